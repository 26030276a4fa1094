package cloudstack

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file handles the network ACL lists of VPC tiers. All Services of a tier share its list, and tiers may share one too.

// reasonPrefix begins the reason of items that controllers create. The load balancer's name follows.
const reasonPrefix = "Managed by the CloudStack Kubernetes Provider for "

// Lists that CloudStack provides for all VPCs. They cannot be changed.
const (
	listOpen   = "default_allow"
	listClosed = "default_deny"
)

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

type acl struct {
	id, name string
	// shared is set for lists of all VPCs, which only administrators change.
	shared bool
	items  []aclItem
}

// opensPort reports whether an item is about incoming traffic at exactly one port.
func (i aclItem) opensPort(protocol string, port int) bool {
	text := strconv.Itoa(port)
	return strings.EqualFold(i.Traffic, "ingress") && strings.EqualFold(i.Protocol, protocol) && i.Start == text && i.End == text
}

// covers reports whether an item is about incoming traffic at a port.
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

// allowsEverybody reports whether an item allows all clients.
func (i aclItem) allowsEverybody() bool {
	return i.allows() && slices.Contains(cidrs(i.CIDRs), everybody)
}

// isMarked reports whether a controller created the item.
func (i aclItem) isMarked() bool { return strings.HasPrefix(i.Reason, reasonPrefix) }

// aclVerdict compares a list with a port of a Service.
type aclVerdict struct {
	// missing is set if the Service needs a new item; surplus holds items of its own to delete.
	missing bool
	surplus []aclItem
	// manual is an item created by hand that decides about this port.
	manual *aclItem
}

// aclOf compares the items with one port. Items created by hand take precedence.
func aclOf(items []aclItem, name, protocol string, port int, sources []string) (v aclVerdict) {
	v.missing = true
	var own []aclItem
	for _, i := range items {
		switch {
		case i.State == stateDeleting:
		case i.Reason == reasonPrefix+name && i.opensPort(protocol, port):
			own = append(own, i)
		case !i.isMarked() && i.decides(protocol, port, v.manual):
			v.manual, v.missing = &i, false
		}
	}
	if v.manual != nil { // our own item stays unless it admits former clients
		own = slices.DeleteFunc(own, func(i aclItem) bool { return allWithin(cidrs(i.CIDRs), sources) })
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

// decides reports whether an item created by hand decides about a port. One for exactly this port takes precedence over those for all
// clients.
func (i aclItem) decides(protocol string, port int, before *aclItem) bool {
	if i.opensPort(protocol, port) {
		return before == nil || before.allowsEverybody()
	}
	return before == nil && i.allowsEverybody() && i.covers(protocol, port)
}

// itemsToDelete returns the items to delete with a rule: those created for its load balancer. For a rule without our marks, also the item
// without reason that CloudStack's own controller leaves behind, unless another rule needs the port.
func itemsToDelete(items []aclItem, name string, r rule, others []rule) (list []aclItem) {
	needed := slices.ContainsFunc(others, func(o rule) bool {
		return o.ID != r.ID && o.port() == r.port() && o.transport() == r.transport()
	})
	for _, i := range items {
		if !i.opensPort(r.transport(), r.port()) || i.State == stateDeleting {
			continue
		}
		official := i.Reason == "" && i.allows() && slices.Equal(cidrs(i.CIDRs), []string{everybody})
		if i.Reason == reasonPrefix+name || (official && len(r.marks()) == 0 && !needed) {
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
	case isDenied(err): // the name shown by the network must suffice
	case err != nil:
		return nil, err
	case len(lists) == 1:
		found.name, found.shared = lists[0].Name, lists[0].VPC == ""
	}
	return found, nil
}

// aclOfNetwork returns a tier's list, which Services share.
func (a *access) aclOfNetwork(ctx context.Context, n network, query inventory.Query) (*acl, error) {
	found, err := a.acls.Get(ctx, n.ACL, query)
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

// leftoverItems returns items created for the load balancer in lists other than its tier's: the tier got another list, or a lost creation
// took effect late.
func (a *access) leftoverItems(ctx context.Context, lb *observed) (list []lbChange, err error) {
	if len(lb.rules) > 0 && lb.acl == nil {
		return nil, nil // in no tier
	}
	networks, err := a.networks.All(ctx, inventory.Query{MaxAge: networkMaxAge})
	if err != nil {
		return nil, err
	}
	tiers := slices.DeleteFunc(slices.Clone(networks), func(n network) bool { return n.filter() != byACL || n.VPC == "" })
	if len(tiers) == 0 {
		return nil, nil
	}
	items, err := a.api.aclItems(ctx, "listing the items of all network ACL lists", nil)
	if err != nil {
		return nil, err
	}
	for _, i := range items {
		if i.Reason != reasonPrefix+lb.name || i.State == stateDeleting || lb.acl != nil && lb.acl.id == i.List {
			continue
		}
		found, err := a.acls.Get(ctx, i.List, inventory.Query{MaxAge: observedMaxAge})
		if err != nil {
			return nil, err
		}
		if !found.shared {
			list = append(list, a.aclItemDeletion(tiers[max(0, slices.IndexFunc(tiers, func(n network) bool { return n.ACL == i.List }))], i))
		}
	}
	return list, nil
}
