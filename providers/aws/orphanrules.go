package aws

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file closes what nodes have open for load balancers of Services that are gone. Who may still need a rule is asked of the
// API server: the commands have no caches of Services.

// orphanRules are rules of nodes for a load balancer that is gone. The ID is that of their security group, and the name of the load
// balancer.
const orphanRules = "rules of security group"

// nodeClosing lists the node rules to remove with one load balancer that has no Service.
type nodeClosing struct {
	id   *identity
	name string
	// others are the other network load balancers, as far as they are the cluster's.
	others otherRules
	want   desiredNodeRules
	// classic has what to do with rules for a classic load balancer of the name.
	classic classicRules
}

// closingChange returns the rules to remove from a security group. In a foreign group only rules naming the load balancer count.
func (d nodeClosing) closingChange(g securityGroup) ruleChange {
	if d.id.isTagged(g.tags) || hasRuleOf(g, d.name) {
		if c := networkNodeChange(g, d.want, d.others); !c.isEmpty() {
			after := d.classic.change(c.result())
			c.remove = append(c.remove, after.remove...)
			return c
		}
	}
	return d.classic.change(g)
}

// closingOf finds out which rules are removed with a load balancer. groups are the security groups of a classic load balancer that still
// exists.
func (c *cloud) closingOf(
	ctx context.Context, id *identity, name string, groups []string, living livingServices, maxAge time.Duration,
) (d nodeClosing, err error) {
	all, err := c.loadBalancers.groups.all(ctx)
	if err != nil {
		return d, err
	}
	d = nodeClosing{id: id, name: name, want: noNodeRules(name, c.config)}
	if d.others, err = c.othersBeside(ctx, id, name, living, maxAge); err != nil {
		return d, err
	}
	d.classic = classicRules{id: id, all: all, name: name, sources: groups}
	classics, err := c.loadBalancers.records.classics.All(ctx, inventory.Query{MaxAge: maxAge})
	for _, lb := range classics {
		if aws.ToString(lb.LoadBalancerName) != name { // nobody but the API server of its cluster knows whether it serves somebody
			d.classic.shared = append(d.classic.shared, lb.SecurityGroups...)
		}
	}
	return d, err
}

// othersBeside are the network load balancers of living Services, whatever kind their annotations ask for by now, and those of the
// cluster that no Service has: they may have been kept on purpose, and are checked as well.
func (c *cloud) othersBeside(
	ctx context.Context, id *identity, name string, living livingServices, maxAge time.Duration,
) (others otherRules, err error) {
	records := c.loadBalancers.records
	all, err := records.networks.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return others, err
	}
	there := map[string]bool{}
	for _, lb := range all {
		other := aws.ToString(lb.LoadBalancerName)
		there[other] = true
		if other == name || living.loadBalancers[other] || aws.ToString(lb.VpcId) != id.vpc {
			continue
		}
		tags, err := tagsIfThere(records.networkTags.Get(ctx, aws.ToString(lb.LoadBalancerArn), inventory.Query{MaxAge: tagsMaxAge}))
		if err != nil {
			return others, err
		}
		if id.isOwned(tags) {
			others.names = append(others.names, other)
		}
	}
	var served []*v1.Service
	for _, s := range living.all {
		if network, _ := kindOf(s); (network || there[loadBalancerName(s)]) && loadBalancerName(s) != name {
			served, others.names = append(served, s), append(others.names, loadBalancerName(s))
		}
	}
	others.needs = func(ports map[int32]bool) neededRules {
		needed := networkRules{c.loadBalancers.shared}.neededRules(ctx, id, served, ports)
		maps.Copy(needed.rules, needed.optional) // one may be all that a load balancer is let in by
		return needed
	}
	return others, nil
}

// closeNodes removes the rules of nodes for a load balancer that no Service has.
func (c *cloud) closeNodes(ctx context.Context, id *identity, name string, groups []string) error {
	if c.config.NoNodeGroupRules {
		return nil
	}
	living, err := c.currentServices(ctx)
	if err != nil {
		return err
	}
	d, err := c.closingOf(ctx, id, name, groups, living, 0)
	if err != nil {
		return notAbsence(err)
	}
	for _, g := range groupsByID(d.classic.all) {
		if d.closingChange(g).isEmpty() {
			continue
		}
		if err := c.loadBalancers.groups.change(ctx, g.id, wholeChange, d.closingChange); err != nil {
			return fmt.Errorf("closing nodes to load balancer %s, which no Service has: %w", name, notAbsence(err))
		}
	}
	return nil
}

// orphanNodeRules finds rules of nodes for load balancers that are gone, as their Services are. A security group that other clusters
// have as well may hold theirs.
func (c *cloud) orphanNodeRules(ctx context.Context, s orphanSearch) (orphans []leftover, err error) {
	if c.config.NoNodeGroupRules {
		return nil, nil
	}
	groupID, only, _ := strings.Cut(s.only, "/")
	all, err := readFor(ctx, c.loadBalancers.groups.inventory, groupID, s.maxAge)
	if err != nil {
		return nil, err
	}
	there, err := c.loadBalancerNames(ctx, only, s.maxAge)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if !s.id.isOnlyOwner(g.tags) {
			continue
		}
		for _, name := range loadBalancersIn(g) {
			if there[name] || s.living.loadBalancers[name] || (only != "" && name != only) {
				continue
			}
			d, err := c.closingOf(ctx, s.id, name, nil, s.living, s.maxAge)
			if err != nil {
				return nil, err
			}
			if !d.closingChange(g).isEmpty() {
				orphans = append(orphans, leftover{
					contract.Orphan{Kind: orphanRules, ID: g.id + "/" + name, Name: name},
					func(ctx context.Context) error {
						return c.loadBalancers.groups.change(ctx, g.id, wholeChange, d.closingChange)
					},
				})
			}
		}
	}
	return orphans, nil
}

// loadBalancersIn are the names of the load balancers that rules of a security group were made for.
func loadBalancersIn(g securityGroup) []string {
	names := map[string]bool{}
	for _, r := range g.rules {
		name, _ := ruleOf(r)
		if name == "" {
			name, _ = classicMark(r)
		}
		if controllerName.MatchString(name) {
			names[name] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// loadBalancerNames are the names of the load balancers of both kinds, of all or of those with the only name.
func (c *cloud) loadBalancerNames(ctx context.Context, only string, maxAge time.Duration) (map[string]bool, error) {
	records, names := c.loadBalancers.records, map[string]bool{}
	classics, err := readFor(ctx, records.classics, only, maxAge)
	if cloudapi.IgnoreNotFound(err) != nil {
		return nil, err
	}
	for _, lb := range classics {
		names[aws.ToString(lb.LoadBalancerName)] = true
	}
	networks, err := readFor(ctx, records.networks, only, maxAge)
	for _, lb := range networks {
		names[aws.ToString(lb.LoadBalancerName)] = true
	}
	return names, cloudapi.IgnoreNotFound(err)
}
