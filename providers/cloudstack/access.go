package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file opens and closes ports, in the firewall of an address or in the ACL list of a tier.

// access opens and closes ports.
type access struct{ *inventories }

// readFilter reads the firewall rules or the ACL list.
func (a *access) readFilter(ctx context.Context, lb *observed) (err error) {
	query := inventory.Query{MaxAge: observedMaxAge}
	switch lb.network.filter() {
	case byFirewall:
		lb.firewall, err = a.firewall.All(ctx, query)
		return err
	case byACL:
		if lb.acl, err = a.aclOfNetwork(ctx, lb.network, query); err != nil {
			return err
		}
		lb.others, err = a.rulesOfSameACL(ctx, lb, query)
		return err
	case open:
	}
	return nil
}

// portOpening returns the changes that admit exactly the allowed clients to a port.
func (a *access) portOpening(lb *observed, sources []string, protocol string, port int) (list []lbChange) {
	switch lb.network.filter() {
	case byFirewall:
		if lb.address == nil {
			return []lbChange{a.firewallRuleCreation(sources, protocol, port)}
		}
		missing, surplus := firewallOf(lb.firewall, lb.address.ID, protocol, port, sources)
		common := commonNetworks(surplus, missing)
		missing = slices.DeleteFunc(missing, func(c string) bool { return slices.Contains(common, c) })
		if len(missing) > 0 {
			list = append(list, a.firewallRuleCreation(missing, protocol, port))
		}
		for _, f := range surplus {
			list = append(list, a.firewallRuleDeletion(f))
		}
		if len(common) > 0 {
			list = append(list, a.firewallRuleReplacement(common, protocol, port, surplus))
		}
	case byACL:
		if lb.acl.shared {
			return nil
		}
		v := aclOf(lb.acl.items, lb.name, protocol, port, sources)
		if v.missing {
			list = append(list, a.aclItemCreation(sources, protocol, port))
		}
		for _, i := range v.surplus {
			list = append(list, a.aclItemDeletion(lb.network, i))
		}
	case open:
	}
	return list
}

// portClosing returns the changes that close the port of a rule to be deleted.
func (a *access) portClosing(lb *observed, gone rule) (list []lbChange) {
	switch lb.network.filter() {
	case byFirewall:
		_, all := firewallOf(lb.firewall, gone.AddressID, gone.transport(), gone.port(), nil)
		for _, f := range all {
			list = append(list, a.firewallRuleDeletion(f))
		}
	case byACL:
		if lb.acl.shared {
			return nil
		}
		for _, i := range itemsToDelete(lb.acl.items, lb.name, gone, lb.others) {
			list = append(list, a.aclItemDeletion(lb.network, i))
		}
	case open:
	}
	return list
}

// ruleFields are the fields of a new firewall rule or ACL item.
func ruleFields(sources []string, protocol string, port int) map[string]any {
	return map[string]any{"protocol": protocol, "startport": port, "endport": port, "cidrlist": sources}
}

// ruleParams are the parameters of a new firewall rule or ACL item.
func ruleParams(sources []string, protocol string, port int) params {
	return params{"protocol": protocol, "startport": strconv.Itoa(port), "endport": strconv.Itoa(port), "cidrlist": strings.Join(sources, ",")}
}

// firewallRuleCreation creates a firewall rule.
func (a *access) firewallRuleCreation(sources []string, protocol string, port int) lbChange {
	what := fmt.Sprintf("firewall rule for %s port %d", protocol, port)
	create := func(ctx context.Context, _ *services.Request, lb *observed) error {
		if lb.isRefused(port) {
			return nil // its rule was refused
		}
		var made firewallRule
		c := lb.command("creating the "+what, "createFirewallRule", ruleParams(sources, protocol, port))
		c.params["ipaddressid"], c.key, c.out = lb.address.ID, "firewallrule", &made
		err := a.api.jobs.run(ctx, c)
		if err == nil && (made.ID == "" || !made.opens(protocol, port)) {
			err = cloudapi.Unclear(c.what, "the answer is about another rule")
		}
		if err != nil {
			a.firewall.InvalidateAll() // it may have been created
			return err
		}
		a.firewall.Put(made)
		lb.firewall = append(lb.firewall, made)
		return nil
	}
	c := newChange(contract.PlanCreate, what, strings.Join(sources, ", "), nil, ruleFields(sources, protocol, port), create)
	c.Creates, c.Opens = true, what
	return c
}

// firewallRuleReplacement creates a rule with networks of rules deleted before, because two rules may not share a network. After a
// temporary failure the first of these is created again.
func (a *access) firewallRuleReplacement(sources []string, protocol string, port int, former []firewallRule) lbChange {
	c := a.firewallRuleCreation(sources, protocol, port)
	c.Opens, c.Closes = "", c.Opens // it waits like the deletions
	open := c.Make
	c.Make = func(ctx context.Context, req *services.Request, lb *observed) (*observed, error) {
		lb, err := open(ctx, req, lb)
		if err == nil || !services.MayPass(err) {
			return lb, err
		}
		lb, failed := a.firewallRuleCreation(cidrs(former[0].CIDRs), protocol, port).Make(context.WithoutCancel(ctx), req, lb)
		return lb, errors.Join(err, failed)
	}
	return c
}

// firewallRuleDeletion deletes a firewall rule.
func (a *access) firewallRuleDeletion(f firewallRule) lbChange {
	what := fmt.Sprintf("firewall rule for %s port %d", f.Protocol, f.Start)
	c := newChange(contract.PlanDelete, what, f.CIDRs, f, nil, func(ctx context.Context, _ *services.Request, lb *observed) error {
		err := a.api.jobs.run(ctx, lb.command("deleting the "+what, "deleteFirewallRule", params{"id": f.ID}))
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			a.firewall.InvalidateAll()
			return err
		}
		a.firewall.Forget(f.ID)
		lb.firewall = slices.DeleteFunc(slices.Clone(lb.firewall), func(o firewallRule) bool { return o.ID == f.ID })
		return nil
	})
	c.Closes = what
	return c
}

// aclItemCreation creates an item of an ACL list, with the reason that CloudStack's own controller will use in its next version.
func (a *access) aclItemCreation(sources []string, protocol string, port int) lbChange {
	what := fmt.Sprintf("network ACL item for %s port %d", protocol, port)
	create := func(ctx context.Context, req *services.Request, lb *observed) error {
		if lb.isRefused(port) {
			return nil
		}
		var made aclItem
		c := lb.command("creating the "+what, "createNetworkACL", ruleParams(sources, protocol, port))
		maps.Copy(c.params, params{"aclid": lb.acl.id, "action": "Allow", "traffictype": "Ingress", "reason": reasonPrefix + lb.name})
		c.key, c.out = "networkacl", &made
		err := a.api.jobs.run(ctx, c)
		a.acls.Invalidate(lb.acl.id)
		switch {
		case codeOf(err) == codeForbidden:
			req.Report(services.Warning(eventBlocked, "port %d is closed: %v", port, err))
			return err
		case err != nil:
			return err
		case made.ID == "":
			return cloudapi.Unclear(c.what, "the answer names no item")
		}
		lb.acl.items = append(slices.Clone(lb.acl.items), made)
		return nil
	}
	c := newChange(contract.PlanCreate, what, strings.Join(sources, ", "), nil, ruleFields(sources, protocol, port), create)
	c.Creates, c.Opens = true, what
	return c
}

// aclItemDeletion deletes an item of an ACL list.
func (a *access) aclItemDeletion(n network, i aclItem) lbChange {
	what := fmt.Sprintf("network ACL item for %s port %s", strings.ToLower(i.Protocol), i.Start)
	c := newChange(contract.PlanDelete, what, i.CIDRs, i, nil, func(ctx context.Context, _ *services.Request, lb *observed) error {
		return a.api.jobs.runInNetwork(ctx, n.key(), func() error { return a.deleteACLItem(ctx, n, lb, i) })
	})
	c.Closes = what
	return c
}

// deleteACLItem deletes an item of an ACL list. The caller holds the network's lock.
func (a *access) deleteACLItem(ctx context.Context, n network, lb *observed, i aclItem) error {
	what := fmt.Sprintf("deleting the network ACL item for %s port %s", strings.ToLower(i.Protocol), i.Start)
	err := a.api.jobs.runLocked(ctx, jobRequest{
		network: n.key(), owner: lb.name, what: what, command: "deleteNetworkACL", params: params{"id": i.ID},
	})
	a.acls.Invalidate(i.List)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	if lb.acl == nil {
		return nil
	}
	lb.acl.items = slices.DeleteFunc(slices.Clone(lb.acl.items), func(o aclItem) bool { return o.ID == i.ID })
	return nil
}

// deleteUnneededItems deletes items that other rules needed at planning time but no longer do: Services deleted at the same time see each
// other's rules. The caller holds the network's lock, so that the last one notices.
func (a *access) deleteUnneededItems(ctx context.Context, lb *observed, gone rule) error {
	if lb.acl == nil || lb.acl.shared {
		return nil
	}
	last := itemsToDelete(lb.acl.items, lb.name, gone, nil)
	if len(last) == len(itemsToDelete(lb.acl.items, lb.name, gone, lb.others)) {
		return nil
	}
	others, err := a.rulesOfSameACL(ctx, lb, inventory.Query{})
	if err != nil {
		return err
	}
	for _, i := range itemsToDelete(lb.acl.items, lb.name, gone, others) {
		if err := a.deleteACLItem(ctx, lb.network, lb, i); err != nil {
			return err
		}
	}
	return nil
}

// rulesOfSameACL returns other load balancers' rules in networks with the same ACL list.
func (a *access) rulesOfSameACL(ctx context.Context, lb *observed, query inventory.Query) ([]rule, error) {
	all, err := a.rules.All(ctx, query)
	if err != nil {
		return nil, err
	}
	networks, err := a.networks.All(ctx, inventory.Query{MaxAge: networkMaxAge})
	if err != nil {
		return nil, err
	}
	otherACL := map[string]bool{}
	for _, n := range networks {
		otherACL[n.ID] = n.ACL != lb.network.ACL
	}
	return slices.DeleteFunc(all, func(o rule) bool { return o.owner() == lb.name || otherACL[o.NetworkID] }), nil
}
