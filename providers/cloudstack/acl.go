package cloudstack

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file is about the lists of what may enter the tiers of a VPC. All Services of a tier share its list, and so may several tiers.

// reasonPrefix begins the reason of the items that controllers make. The name of the load balancer follows.
const reasonPrefix = "Managed by the CloudStack Kubernetes Provider for "

// Lists that CloudStack has for everybody, and that nobody may change.
const (
	listOpen   = "default_allow"
	listClosed = "default_deny"
)

// aclItem is one entry of a list.
type aclItem struct {
	ID       string `json:"id"`
	List     string `json:"aclid"`
	Protocol string `json:"protocol"`
	Start    string `json:"startport"`
	End      string `json:"endport"`
	CIDRs    string `json:"cidrlist"`
	Action   string `json:"action"`
	Traffic  string `json:"traffictype"`
	Reason   string `json:"reason"`
	State    string `json:"state"`
}

// acl is a list with its items.
type acl struct {
	id, name string
	// shared is set for lists of all VPCs, which only administrators change.
	shared bool
	items  []aclItem
}

// opensPort reports whether an item is about one port that traffic enters by, and no other.
func (i aclItem) opensPort(protocol string, port int) bool {
	text := strconv.Itoa(port)
	return strings.EqualFold(i.Traffic, "ingress") && strings.EqualFold(i.Protocol, protocol) && i.Start == text && i.End == text
}

// covers reports whether a port is among those that an item is about.
func (i aclItem) covers(protocol string, port int) bool {
	if !strings.EqualFold(i.Traffic, "ingress") {
		return false
	}
	if strings.EqualFold(i.Protocol, "all") {
		return true
	}
	first, err := strconv.Atoi(i.Start)
	last, endErr := strconv.Atoi(i.End)
	return err == nil && endErr == nil && strings.EqualFold(i.Protocol, protocol) && first <= port && port <= last
}

func (i aclItem) allows() bool { return strings.EqualFold(i.Action, "allow") }

// everybodys reports whether an item lets everybody in.
func (i aclItem) everybodys() bool { return i.allows() && slices.Contains(cidrs(i.CIDRs), everybody) }

// isMarked reports whether a controller made an item for some load balancer.
func (i aclItem) isMarked() bool { return strings.HasPrefix(i.Reason, reasonPrefix) }

// aclVerdict compares a list with a port of a Service.
type aclVerdict struct {
	// missing is set where an item of the Service's own is due; surplus are those that it has and should not.
	missing bool
	surplus []aclItem
	// hand is an item that somebody made by hand for this port, and that decides.
	hand *aclItem
}

// aclOf judges what a list has about one port. What somebody made for that port by hand is respected.
func aclOf(items []aclItem, name, protocol string, port int, sources []string) (v aclVerdict) {
	v.missing = true
	var own []aclItem
	for _, i := range items {
		switch {
		case i.State == stateDeleting:
		case i.Reason == reasonPrefix+name && i.opensPort(protocol, port):
			own = append(own, i)
		case !i.isMarked() && i.decides(protocol, port, v.hand):
			v.hand, v.missing = &i, false
		}
	}
	if v.hand != nil { // an item of ours beside it stays until the Service goes, but for former clients
		own = slices.DeleteFunc(own, func(i aclItem) bool { return within(cidrs(i.CIDRs), sources) })
		v.missing = len(own) > 0
	}
	for _, i := range own {
		if v.missing && i.allows() && slices.Equal(cidrs(i.CIDRs), sources) {
			v.missing = false
			continue
		}
		v.surplus = append(v.surplus, i)
	}
	return v
}

// decides reports whether an item that somebody made by hand decides about a port after what was found before it: one for the very port
// before those that hold for everybody.
func (i aclItem) decides(protocol string, port int, before *aclItem) bool {
	if i.opensPort(protocol, port) {
		return before == nil || before.everybodys()
	}
	return before == nil && i.everybodys() && i.covers(protocol, port)
}

// leaving are the items that go with a rule: those made for its load balancer, and where the rule bears no mark of ours, so that
// CloudStack's own controller made it, the item without a reason that this one leaves, unless another rule needs the port.
func leaving(items []aclItem, name string, r rule, others []rule) (list []aclItem) {
	needed := slices.ContainsFunc(others, func(o rule) bool {
		return o.ID != r.ID && o.port() == r.port() && o.transport() == r.transport()
	})
	for _, i := range items {
		if !i.opensPort(r.transport(), r.port()) || i.State == stateDeleting {
			continue
		}
		plain := i.Reason == "" && i.allows() && slices.Equal(cidrs(i.CIDRs), []string{everybody})
		if i.Reason == reasonPrefix+name || (plain && len(r.marks()) == 0 && !needed) {
			list = append(list, i)
		}
	}
	return list
}

func (a *api) aclItems(ctx context.Context, what string, p params) ([]aclItem, error) {
	l := listing{what: what, command: "listNetworkACLs", key: "networkacl", scope: true}
	items, _, err := listOnce(ctx, a, l, p, func(i aclItem) string { return i.ID })
	return items, err
}

// readACL reads a list of a tier.
func (a *api) readACL(ctx context.Context, id string) (*acl, error) {
	items, err := a.aclItems(ctx, "listing the items of network ACL list "+id, params{"aclid": id})
	if err != nil {
		return nil, err
	}
	found := &acl{id: id, items: items}
	type aclList struct {
		ID   string `json:"id"`
		Name string `json:"name"`
		VPC  string `json:"vpcid"`
	}
	l := listing{what: "reading network ACL list " + id, command: "listNetworkACLLists", key: "networkacllist", scope: true}
	lists, _, err := list[aclList](ctx, a, l, params{"id": id})
	switch {
	case denied(err): // the name that the network shows has to do
	case err != nil:
		return nil, err
	case len(lists) == 1:
		found.name, found.shared = lists[0].Name, lists[0].VPC == ""
	}
	return found, nil
}

// aclOfNetwork returns the list of a tier, which Services share.
func (r *reconciler) aclOfNetwork(ctx context.Context, n network, q inventory.Query) (*acl, error) {
	found, err := r.acls.Get(ctx, n.ACL, q)
	if err != nil {
		return nil, err
	}
	known := *found
	if known.name == "" {
		known.name = n.ACLName
	}
	known.shared = known.shared || known.name == listOpen || known.name == listClosed
	return &known, nil
}

// leftItems are the items that were made for a load balancer in other lists than its tier has: somebody gave the tier another one, or a
// creation that was not answered took effect late and there are no rules.
func (r *reconciler) leftItems(ctx context.Context, lb *loadBalancer) (list []lbChange, err error) {
	if len(lb.rules) > 0 && lb.acl == nil {
		return nil, nil // in no tier
	}
	networks, err := r.networks.All(ctx, inventory.Query{MaxAge: networkMaxAge})
	if err != nil {
		return nil, err
	}
	tiers := slices.DeleteFunc(slices.Clone(networks), func(n network) bool { return n.filter() != byACL || n.VPC == "" })
	if len(tiers) == 0 {
		return nil, nil
	}
	items, err := r.api.aclItems(ctx, "listing the items of all network ACL lists", nil)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		if i.Reason != reasonPrefix+lb.name || i.State == stateDeleting || lb.acl != nil && lb.acl.id == i.List {
			continue
		}
		found, err := r.acls.Get(ctx, i.List, inventory.Query{MaxAge: observedMaxAge})
		if err != nil {
			return nil, err
		}
		if !found.shared {
			list = append(list, r.disallow(tiers[max(0, slices.IndexFunc(tiers, func(n network) bool { return n.ACL == i.List }))], i))
		}
	}
	return list, nil
}
