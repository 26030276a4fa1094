package azure

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file finds addresses of former nodes that rules for node ports still contain.

// formerNodes remembers such addresses, each with the rules that contained it when its node left. In any other rule it is somebody else's,
// because Azure gives it to the next machine, which may be another cluster's behind the same security group.
type formerNodes struct {
	mu        sync.Mutex
	lastIPs   []string
	leftovers map[string][]string
}

// update records the rules and the present nodes' addresses, and returns those of former nodes.
func (f *formerNodes) update(rules []*securityRule, now []string) map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	naming := map[string][]string{}
	for _, rule := range rules {
		if isManaged(rule) {
			for _, ip := range rule.destinations() {
				naming[ip] = append(naming[ip], rule.Name)
			}
		}
	}
	left := map[string][]string{}
	for ip, names := range f.leftovers {
		left[ip] = slices.DeleteFunc(slices.Clone(names), func(name string) bool { return !slices.Contains(naming[ip], name) })
	}
	for _, ip := range f.lastIPs {
		if left[ip] == nil {
			left[ip] = naming[ip]
		}
	}
	maps.DeleteFunc(left, func(ip string, names []string) bool { return len(names) == 0 || slices.Contains(now, ip) })
	f.lastIPs, f.leftovers = now, left
	return left
}

// seenAmong returns those of some addresses that nodes had when update was last called.
func (f *formerNodes) seenAmong(ips []string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(ips, func(ip string) bool { return !slices.Contains(f.lastIPs, ip) })
}

// recordLeft records that an address in a rule was a node's, and returns all such addresses.
func (f *formerNodes) recordLeft(ip, rule string) map[string][]string {
	f.mu.Lock()
	defer f.mu.Unlock()
	left := maps.Clone(f.leftovers)
	left[ip] = append(slices.Clone(left[ip]), rule)
	f.leftovers = left
	return left
}

// addressUse is whether an address of the network is free.
type addressUse struct {
	ip   string
	free bool
}

func newAddressUses(a *api) *inventory.Inventory[string, addressUse] {
	return inventory.New(inventory.Source[string, addressUse]{
		Kind: "use of an address", ID: func(u addressUse) string { return u.ip }, Get: func(ctx context.Context, ip string) (addressUse, error) {
			var answer struct {
				Available *bool `json:"available"`
			}
			err := a.get(ctx, "the use of address "+ip, a.config.networkID()+"/CheckIPAddressAvailability", networkVersion, &answer, "ipAddress", ip)
			if err == nil && answer.Available == nil {
				err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading the use of address " + ip, Message: "the answer does not say it"}
			}
			return addressUse{ip, err == nil && *answer.Available}, err
		},
	})
}

// findFormerNodes finds addresses of nodes that left, or changed address, while the program did not run: only rules for the Service's node
// ports contain them, no Node reports them, and they belong to a node's machine or to nobody. Others stay.
func (r *observer) findFormerNodes(ctx context.Context, q services.Request, o *observed) error {
	k := claim{nodePorts: nodePortsOf(q.Service)}
	nodes, rules := o.namedNodes, o.group.Properties.Rules
	o.formerNodes = r.former.update(rules, nodes)
	for _, rule := range rules {
		if !isManaged(rule) || !k.isForNodePorts(rule.Properties.Protocol, rule.ports()) {
			continue
		}
		for _, text := range rule.destinations() {
			ip, bad := netip.ParseAddr(text)
			if bad != nil || !ip.IsPrivate() || slices.Contains(nodes, text) || slices.Contains(o.formerNodes[text], rule.Name) {
				continue
			}
			left, err := r.isNodeAddress(ctx, text)
			if q.Purpose == services.Narrow {
				err = nil // a failed read does not keep other rules from being closed
			}
			if err == nil && !left {
				left, err = r.isFree(ctx, text)
			}
			if err != nil {
				return err
			}
			if left {
				o.formerNodes = r.former.recordLeft(text, rule.Name)
			}
		}
	}
	return nil
}

// isNodeAddress reports whether a node's machine has an address, whatever the Node reports.
func (r *observer) isNodeAddress(ctx context.Context, ip string) (bool, error) {
	for _, n := range r.instances.nodes.Nodes() {
		has, err := r.instances.addressesOf(ctx, n)
		if err != nil || slices.ContainsFunc(has, func(a v1.NodeAddress) bool { return sameIP(a.Address, ip) }) {
			return err == nil, err
		}
	}
	return false, nil
}

// isFree reports whether nobody has an address of the network. An older answer that somebody has it suffices, because the address then
// stays.
func (r *observer) isFree(ctx context.Context, ip string) (bool, error) {
	if r.config.Network == "" {
		return false, nil
	}
	use, err := r.uses.Get(ctx, ip, inventory.Query{MaxAge: 10 * time.Minute})
	if err == nil && use.free {
		use, err = r.uses.Get(ctx, ip, inventory.Query{MaxAge: observeMaxAge})
	}
	if errors.Is(err, cloudapi.ErrUnauthorized) || errors.Is(err, cloudapi.ErrNotFound) || errors.Is(err, cloudapi.ErrInvalid) {
		return false, nil
	}
	return use.free, err
}
