package cloudstack

import (
	"context"
	"errors"
	"maps"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

const (
	indexOwner   = "owner"
	indexAddress = "address"
)

// inventories hold the objects in CloudStack that belong to load balancers.
type inventories struct {
	api *api

	rules     *inventory.Inventory[string, rule]
	members   *inventory.Inventory[string, members]
	firewall  *inventory.Inventory[string, firewallRule]
	addresses *inventory.Inventory[string, address]
	networks  *inventory.Inventory[string, network]
	acls      *inventory.Inventory[string, *acl]
	policies  *inventory.Inventory[string, policies]
}

func newInventories(a *api) *inventories {
	rules := sourceOf(a, "load balancer rule", "load balancer rules", "listLoadBalancerRules", "loadbalancerrule", func(r rule) string { return r.ID }, nil)
	rules.Indexes = map[string]func(rule) []string{
		indexOwner: func(r rule) []string { return []string{r.owner()} }, indexAddress: func(r rule) []string { return []string{r.AddressID} },
	}
	firewall := sourceOf(a, "firewall rule", "firewall rules", "listFirewallRules", "firewallrule", func(f firewallRule) string { return f.ID }, nil)
	firewall.Get = nil
	return &inventories{
		api: a, rules: inventory.New(rules), firewall: inventory.New(firewall), networks: inventory.New(networkSource(a)),
		addresses: inventory.New(sourceOf(a, "public address", "public addresses", "listPublicIpAddresses", "publicipaddress",
			func(a address) string { return a.ID }, params{"allocatedonly": "false"})),
		members: inventory.New(inventory.Source[string, members]{
			Kind: "rule's virtual machines", ID: func(m members) string { return m.RuleID }, Get: a.members,
		}),
		policies: inventory.New(inventory.Source[string, policies]{
			Kind: "rule's stickiness policies", ID: func(p policies) string { return p.RuleID }, Get: a.policiesOf,
		}),
		acls: inventory.New(inventory.Source[string, *acl]{Kind: "network ACL list", ID: func(a *acl) string { return a.id }, Get: a.readACL}),
	}
}

func networkSource(a *api) inventory.Source[string, network] {
	return sourceOf(a, "network", "networks", "listNetworks", "network", func(n network) string { return n.ID }, nil)
}

// sourceOf lists objects, and reads them by ID with more parameters. One that is not shown may only be invisible to the user; callers for
// which that matters must check.
func sourceOf[T any](a *api, kind, plural, command, key string, idOf func(T) string, more params) inventory.Source[string, T] {
	return inventory.Source[string, T]{
		Kind: kind, ID: idOf,
		List: func(ctx context.Context) ([]T, int, error) {
			return listOnce(ctx, a, listing{what: "listing " + plural, command: command, key: key, scope: true}, nil, idOf)
		},
		Get: func(ctx context.Context, id string) (found T, err error) {
			p := params{"id": id}
			maps.Copy(p, more)
			l := listing{what: "reading " + kind + " " + id, command: command, key: key, scope: true}
			all, _, err := list[T](ctx, a, l, p)
			switch {
			case err != nil:
				return found, err
			case len(all) == 0:
				return found, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: l.what, Message: "it is not shown"}
			case len(all) > 1 || idOf(all[0]) != id:
				return found, cloudapi.Unclear(l.what, "the answer is about something else")
			}
			return all[0], nil
		},
	}
}

// invalidateAll forgets everything that an earlier job may have changed.
func (i *inventories) invalidateAll() {
	i.rules.InvalidateAll()
	i.members.InvalidateAll()
	i.firewall.InvalidateAll()
	i.addresses.InvalidateAll()
	i.acls.InvalidateAll()
	i.policies.InvalidateAll()
}

// forgetMissing handles a failed change of a rule. If the rule is missing, everything is observed again.
func (i *inventories) forgetMissing(id string, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		i.rules.Forget(id)
		i.members.Forget(id)
		return services.ErrGone
	}
	i.rules.Invalidate(id)
	i.members.Invalidate(id)
	return err
}
