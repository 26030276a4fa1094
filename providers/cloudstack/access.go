package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file opens and closes ports, in the firewall of an address or in the ACL list of a tier.

// accessOpening returns the changes that admit exactly the allowed clients to a port.
func (r *reconciler) accessOpening(lb *loadBalancer, d spec, w wantedRule) []lbChange {
	protocol := transport(w.Protocol)
	switch lb.network.filter() {
	case byFirewall:
		if lb.address == nil {
			return []lbChange{r.firewallRuleCreation(d, protocol, w.Port)}
		}
		missing, surplus := firewallOf(lb.firewall, lb.address.ID, protocol, w.Port, d.sources)
		both := sharedNetworks(surplus, missing)
		missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(both, c) })
		var list []lbChange
		if d.sources = missing; len(missing) > 0 {
			list = append(list, r.firewallRuleCreation(d, protocol, w.Port))
		}
		for _, f := range surplus {
			list = append(list, r.firewallRuleDeletion(lb.network, f))
		}
		if d.sources = both; len(both) > 0 {
			list = append(list, r.firewallRuleReturn(d, protocol, w.Port, surplus))
		}
		return list
	case byACL:
		if lb.acl.shared {
			return nil
		}
		v := aclOf(lb.acl.items, d.name, protocol, w.Port, d.sources)
		var list []lbChange
		if v.missing {
			list = append(list, r.aclItemCreation(d, protocol, w.Port))
		}
		for _, i := range v.surplus {
			list = append(list, r.aclItemDeletion(lb.network, i))
		}
		return list
	case open:
	}
	return nil
}

// accessClosing returns the changes that close the port of a rule to be deleted.
func (r *reconciler) accessClosing(lb *loadBalancer, gone rule) (list []lbChange) {
	switch lb.network.filter() {
	case byFirewall:
		_, all := firewallOf(lb.firewall, gone.AddressID, gone.transport(), gone.port(), nil)
		for _, f := range all {
			list = append(list, r.firewallRuleDeletion(lb.network, f))
		}
	case byACL:
		if lb.acl.shared {
			return nil
		}
		for _, i := range itemsToDelete(lb.acl.items, lb.name, gone, lb.others) {
			list = append(list, r.aclItemDeletion(lb.network, i))
		}
	case open:
	}
	return list
}

// firewallRuleCreation creates a firewall rule.
func (r *reconciler) firewallRuleCreation(d spec, protocol string, port int) lbChange {
	what := fmt.Sprintf("firewall rule for %s port %d", protocol, port)
	sources := strings.Join(d.sources, ", ")
	c := newChange(contract.PlanCreate, what, sources, func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
		if lb.isRefused(port) {
			return nil // its rule was refused
		}
		var made firewallRule
		c := change{
			network: d.network.key(), owner: d.name, what: "creating the " + what, command: "createFirewallRule", key: "firewallrule", out: &made, params: params{
				"ipaddressid": lb.address.ID, "protocol": protocol, "startport": strconv.Itoa(port), "endport": strconv.Itoa(port),
				"cidrlist": strings.Join(d.sources, ","),
			},
		}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) })
		if err == nil && (made.ID == "" || !made.opens(protocol, port)) {
			err = cloudapi.Unclear(c.what, "the answer is about another rule")
		}
		if err != nil {
			r.firewall.InvalidateAll() // it may have been created
			return err
		}
		r.firewall.Put(made)
		lb.firewall = append(lb.firewall, made)
		return nil
	})
	c.Creates, c.Opens = true, what
	return withCompare(c, nil, map[string]any{"protocol": protocol, "startport": port, "endport": port, "cidrlist": d.sources})
}

// firewallRuleReturn creates a rule with networks of rules deleted before, because two rules may not share a network. After a temporary
// failure the first of these is created again.
func (r *reconciler) firewallRuleReturn(d spec, protocol string, port int, former []firewallRule) lbChange {
	c := r.firewallRuleCreation(d, protocol, port)
	c.Opens, c.Closes = "", c.Opens // it waits like the deletions
	open := c.Make
	c.Make = func(ctx context.Context, q *services.Request, lb *loadBalancer) (*loadBalancer, error) {
		lb, err := open(ctx, q, lb)
		if err == nil || !services.MayPass(err) {
			return lb, err
		}
		d.sources = cidrs(former[0].CIDRs)
		lb, failed := r.firewallRuleCreation(d, protocol, port).Make(context.WithoutCancel(ctx), q, lb)
		return lb, errors.Join(err, failed)
	}
	return c
}

// firewallRuleDeletion deletes a firewall rule.
func (r *reconciler) firewallRuleDeletion(n network, f firewallRule) lbChange {
	what := fmt.Sprintf("firewall rule for %s port %d", f.Protocol, f.Start)
	c := newChange(contract.PlanDelete, what, f.CIDRs, func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
		c := change{network: n.key(), owner: lb.name, what: "deleting the " + what, command: "deleteFirewallRule", params: params{"id": f.ID}}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) })
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			r.firewall.InvalidateAll()
			return err
		}
		r.firewall.Forget(f.ID)
		lb.firewall = slices.DeleteFunc(slices.Clone(lb.firewall), func(o firewallRule) bool { return o.ID == f.ID })
		return nil
	})
	c.Closes = what
	return withCompare(c, f, nil)
}

// aclItemCreation creates an item of an ACL list, with the reason that CloudStack's own controller will use in its next version.
func (r *reconciler) aclItemCreation(d spec, protocol string, port int) lbChange {
	what := fmt.Sprintf("network ACL item for %s port %d", protocol, port)
	sources := strings.Join(d.sources, ", ")
	c := newChange(contract.PlanCreate, what, sources, func(ctx context.Context, q *services.Request, lb *loadBalancer) error {
		if lb.isRefused(port) {
			return nil
		}
		var made aclItem
		c := change{
			network: d.network.key(), owner: d.name, what: "creating the " + what, command: "createNetworkACL", key: "networkacl", out: &made, params: params{
				"aclid": lb.acl.id, "protocol": protocol, "startport": strconv.Itoa(port), "endport": strconv.Itoa(port),
				"cidrlist": strings.Join(d.sources, ","), "action": "Allow", "traffictype": "Ingress", "reason": reasonPrefix + d.name,
			},
		}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) })
		r.acls.Invalidate(lb.acl.id)
		switch {
		case codeOf(err) == codeForbidden:
			q.Report(services.Warning(eventBlocked, "port %d is closed: %v", port, err))
			return err
		case err != nil:
			return err
		case made.ID == "":
			return cloudapi.Unclear(c.what, "the answer names no item")
		}
		known := *lb.acl
		known.items = append(slices.Clone(known.items), made)
		lb.acl = &known
		return nil
	})
	c.Creates, c.Opens = true, what
	return withCompare(c, nil, map[string]any{"protocol": protocol, "startport": port, "endport": port, "cidrlist": d.sources})
}

// aclItemDeletion deletes an item of an ACL list.
func (r *reconciler) aclItemDeletion(n network, i aclItem) lbChange {
	what := fmt.Sprintf("network ACL item for %s port %s", strings.ToLower(i.Protocol), i.Start)
	c := newChange(contract.PlanDelete, what, i.CIDRs, func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
		return r.api.jobs.runInNetwork(ctx, n.key(), func() error { return r.deleteACLItem(ctx, n, lb, i) })
	})
	c.Closes = what
	return withCompare(c, i, nil)
}

// deleteACLItem deletes an item of an ACL list. The caller holds the network's lock.
func (r *reconciler) deleteACLItem(ctx context.Context, n network, lb *loadBalancer, i aclItem) error {
	what := fmt.Sprintf("deleting the network ACL item for %s port %s", strings.ToLower(i.Protocol), i.Start)
	err := r.api.jobs.run(ctx, change{
		network: n.key(), owner: lb.name, what: what, command: "deleteNetworkACL", params: params{"id": i.ID},
	})
	r.acls.Invalidate(i.List)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	if lb.acl == nil {
		return nil
	}
	known := *lb.acl
	known.items = slices.DeleteFunc(slices.Clone(known.items), func(o aclItem) bool { return o.ID == i.ID })
	lb.acl = &known
	return nil
}

// deleteUnneededItems deletes items that other rules needed at planning time but no longer do: Services deleted at the same time see each
// other's rules. The caller holds the network's lock, so that the last one notices.
func (r *reconciler) deleteUnneededItems(ctx context.Context, lb *loadBalancer, gone rule) error {
	if lb.acl == nil || lb.acl.shared {
		return nil
	}
	last := itemsToDelete(lb.acl.items, lb.name, gone, nil)
	if len(last) == len(itemsToDelete(lb.acl.items, lb.name, gone, lb.others)) {
		return nil
	}
	others, err := r.rulesOfSameACL(ctx, lb, inventory.Query{})
	if err != nil {
		return err
	}
	for _, i := range itemsToDelete(lb.acl.items, lb.name, gone, others) {
		if err := r.deleteACLItem(ctx, lb.network, lb, i); err != nil {
			return err
		}
	}
	return nil
}

// rulesOfSameACL returns other load balancers' rules in networks with the same ACL list.
func (r *reconciler) rulesOfSameACL(ctx context.Context, lb *loadBalancer, query inventory.Query) ([]rule, error) {
	all, err := r.rules.All(ctx, query)
	if err != nil {
		return nil, err
	}
	networks, err := r.networks.All(ctx, inventory.Query{MaxAge: networkMaxAge})
	if err != nil {
		return nil, err
	}
	elsewhere := map[string]bool{}
	for _, n := range networks {
		elsewhere[n.ID] = n.ACL != lb.network.ACL
	}
	return slices.DeleteFunc(all, func(o rule) bool { return o.owner() == lb.name || elsewhere[o.NetworkID] }), nil
}
