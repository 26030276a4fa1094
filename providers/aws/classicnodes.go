package aws

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Nodes let a classic load balancer in by the security group that stands for it. Which of the rules for such a group may be
// taken away is decided here: people, and tools that build clusters, write rules of the same form for other ends, such as the one
// by which nodes reach the control plane.

// classicRules are the rules of nodes for one classic load balancer.
type classicRules struct {
	id   *identity
	all  map[string]securityGroup
	name string
	// from stands for the load balancer, and opened are the groups of its nodes.
	from   string
	opened []string
	// sources are the groups that may stand for it.
	sources []string
	// shared are groups that other load balancers have.
	shared []string
}

// classicMark returns the name of the load balancer that a rule was made for. Earlier releases wrote none.
func classicMark(r rule) (name string, marked bool) {
	rest, marked := strings.CutPrefix(r.description, descriptionSelf)
	if !marked || r.protocol != protocolAll || r.source.group == "" {
		return "", false
	}
	name, named := strings.CutPrefix(rest, "=")
	return name, named || rest == ""
}

// owns reports whether a group was made for the load balancer. Nothing else is let in by a rule for it.
func (c classicRules) owns(groupID string) bool {
	return c.all[groupID].name == classicGroupName(c.name) && c.id.owned(c.all[groupID].tags)
}

// wanted are the rules that a group of nodes needs. One that could be anybody's by its form says that it is ours.
func (c classicRules) wanted(g securityGroup) []rule {
	if c.from == "" || !slices.Contains(c.opened, g.id) {
		return nil
	}
	r := rule{protocol: protocolAll, source: ruleSource{group: c.from}}
	if g.id == c.from || !c.owns(c.from) || !c.id.ours(g.tags) {
		r.description = descriptionSelf + "=" + c.name
	}
	return []rule{r}
}

// mine reports whether a rule of a group was made for the load balancer, and serves no other one.
func (c classicRules) mine(g securityGroup) func(rule) bool {
	return func(r rule) bool {
		name, marked := classicMark(r)
		switch {
		case r.protocol != protocolAll || r.source.group == "" || slices.Contains(c.shared, r.source.group):
			return false
		case marked && name == c.name:
			return true // whatever group stood for it before
		case !slices.Contains(c.sources, r.source.group) || !c.id.ours(g.tags):
			return false
		}
		return marked || (g.id != r.source.group && c.owns(r.source.group))
	}
}

func (c classicRules) change(g securityGroup) ruleChange { return exactly(g, c.wanted(g), c.mine(g)) }

// kept reports whether a group lets everything of a source in by a rule that nobody knows the maker of.
func (c classicRules) kept(g securityGroup) func(rule) bool {
	mine := c.mine(g)
	return func(r rule) bool {
		return r.protocol == protocolAll && slices.Contains(c.sources, r.source.group) && !slices.Contains(c.shared, r.source.group) && !mine(r)
	}
}

// changes are those of all groups, by what is known of them.
func (c classicRules) changes() []ruleChange {
	var list []ruleChange
	for _, g := range sortedGroups(c.all) {
		if change := c.change(g); !change.empty() {
			list = append(list, change)
		}
	}
	return list
}

// classicNodeChanges are the rules of nodes for a load balancer, and what has to change for them.
func (l *loadBalancers) classicNodeChanges(ctx context.Context, service *v1.Service, from string, backends []backend) (c classicRules, changes []ruleChange, err error) {
	if l.config.NoNodeGroupRules || from == "" || len(backends) == 0 {
		return c, nil, nil
	}
	opened, err := l.nodeGroups(ctx, service, backends)
	if err != nil {
		return c, nil, err
	}
	if c, err = l.classicRulesOf(ctx, service, []string{from}); err != nil {
		return c, nil, err
	}
	c.from, c.opened = from, opened
	changes = c.changes()
	return c, changes, l.spareShared(ctx, &c, &changes)
}

func (l *loadBalancers) classicRulesOf(ctx context.Context, service *v1.Service, sources []string) (classicRules, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return classicRules{}, err
	}
	all, err := l.groups.all(ctx)
	return classicRules{id: id, all: all, name: balancerName(service), sources: sources}, err
}

// spareShared leaves the rules alone that other load balancers need, whose nodes may be in other groups. They are asked for only
// where something is to be removed.
func (l *loadBalancers) spareShared(ctx context.Context, c *classicRules, changes *[]ruleChange) (err error) {
	if !slices.ContainsFunc(*changes, func(one ruleChange) bool { return len(one.remove) > 0 }) {
		return nil
	}
	if c.shared, err = l.sharedGroups(ctx, c.name); err == nil {
		*changes = c.changes()
	}
	return err
}

// classicNodeRules lets the load balancer in to its nodes, or closes what it does not use any more.
func (l *loadBalancers) classicNodeRules(ctx context.Context, service *v1.Service, from string, backends []backend, part changePart) error {
	c, changes, err := l.classicNodeChanges(ctx, service, from, backends)
	if err != nil {
		return err
	}
	for _, one := range changes {
		if err := l.groups.change(ctx, one.group.id, part, c.change); err != nil {
			return err
		}
	}
	return nil
}

// sharedGroups are the security groups of other Services' classic load balancers, as users may name them: the rules for them
// look the same.
func (l *loadBalancers) sharedGroups(ctx context.Context, name string) ([]string, error) {
	all, err := l.balancers.classics.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	living := map[string]bool{}
	for _, s := range l.served() {
		living[balancerName(s)] = s.DeletionTimestamp == nil
	}
	var groups []string
	for _, lb := range all {
		if other := aws.ToString(lb.LoadBalancerName); other != name && living[other] {
			groups = append(groups, lb.SecurityGroups...)
		}
	}
	return groups, nil
}

// closeClassic removes the rules of nodes for a load balancer that goes; lb is nil where it is gone. A rule for a group of its
// that is neither marked nor for a group that was made for it may be how other machines reach the nodes, or nodes each other;
// taking that away would cut them off, so that it is told instead.
func (l *loadBalancers) closeClassic(ctx context.Context, service *v1.Service, lb *classicBalancer) error {
	var sources []string
	if lb != nil {
		sources = l.classicSources(service, lb)
	}
	c, err := l.classicRulesOf(ctx, service, sources)
	if err != nil {
		return err
	}
	changes := c.changes()
	if err := l.spareShared(ctx, &c, &changes); err != nil {
		return err
	}
	for _, one := range changes {
		if err := l.groups.change(ctx, one.group.id, wholeChange, c.change); err != nil {
			return err
		}
	}
	for _, g := range sortedGroups(c.all) {
		if n := slices.IndexFunc(g.rules, c.kept(g)); n >= 0 && (c.id.ours(g.tags) || g.id == g.rules[n].source.group) {
			l.event(service, eventRuleKept, fmt.Sprintf("security group %s (%s) still lets all of %s in: the rule is not marked as made for "+
				"this load balancer, and others may need it; remove it if nobody does", g.id, g.name, g.rules[n].source.group))
		}
	}
	return nil
}
