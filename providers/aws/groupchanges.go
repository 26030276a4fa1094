package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file has the changes of security groups for both kinds of load balancers. Groups of nodes are shared, so each change to one is
// decided again under the lock of the group.

// ownGroup is the security group that is made for one load balancer.
type ownGroup struct {
	name, description string
	tags              map[string]string
	rules             []rule
	// mine reports whether a rule is kept exact.
	mine func(rule) bool
	// id is "" if the group does not exist yet. untagged: no tag says whose the group is.
	id       string
	untagged bool
}

// desiredGroups are the security groups that a load balancer should have.
type desiredGroups struct {
	// groups are their IDs; nil leaves those that there are. The first one stands for a classic load balancer in rules of nodes. A name
	// stands for a group that does not exist yet.
	groups []string
	// own is the group made for this load balancer, nil if others are given.
	own *ownGroup
	// obsolete are groups that were made for it and that it does not have any more.
	obsolete []securityGroup
}

// desireOwn gives the load balancer a group of its own. One of that name with another owner is an error.
func (d *desiredGroups) desireOwn(id *identity, all map[string]securityGroup, own *ownGroup) (err error) {
	d.own, d.groups = own, []string{own.name}
	for _, g := range groupsByID(all) {
		if g.name == own.name {
			own.id, d.groups[0] = g.id, g.id
			own.untagged, err = checkAdoptable(id, g)
			return err
		}
	}
	return nil
}

// leaveOthers notes the groups made for the load balancer that it is to lose.
func (d *desiredGroups) leaveOthers(id *identity, all map[string]securityGroup, made func(securityGroup) bool) {
	for _, g := range groupsByID(all) {
		if made(g) && id.isOwned(g.tags) && !slices.Contains(d.groups, g.id) {
			d.obsolete = append(d.obsolete, g)
		}
	}
}

// checkAdoptable checks that a group of the right name is ours, and reports whether it lacks tags.
func checkAdoptable(id *identity, g securityGroup) (untagged bool, err error) {
	if other := id.otherOwner(g.tags); other != "" {
		return false, fmt.Errorf("security group %s (%s) belongs to another cluster, %s, and is left alone; rename or remove it", g.id, g.name, other)
	}
	if id.isOwned(g.tags) {
		return false, nil
	}
	if value, tagged := g.tags[id.clusterTag()]; tagged {
		return false, fmt.Errorf("security group %s (%s) has the tag %s=%s, which says that the cluster did not make it; "+
			"set it to %s or rename the group", g.id, g.name, id.clusterTag(), value, ownedValue)
	}
	return true, nil
}

// ownGroupChanges make the group of a load balancer what it should be.
func (s *securityGroups) ownGroupChanges(own *ownGroup, all map[string]securityGroup) []change {
	if own == nil {
		return nil
	}
	if own.id == "" {
		return []change{{
			Planned: contract.Planned{
				Action: contract.PlanCreate, Object: "security group " + own.name, Detail: fmt.Sprintf("%d rules", len(own.rules)),
			},
			Replan: true, Creates: true, Compare: ruleChange{add: own.rules}.compare,
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				g, err := s.ensure(ctx, own.name, own.description, own.tags)
				if err == nil {
					err = s.sync(ctx, g.id, own.rules, own.mine)
				}
				if err == nil {
					o.groups, err = s.all(ctx) // which costs no call
				}
				return o, err
			},
		}}
	}
	var changes []change
	if own.untagged {
		changes = append(changes, change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: all[own.id].title(), Detail: "tag it as the cluster's"},
			Compare: func() (before, after any) {
				return tagsOutput(services.Within(all[own.id].tags, own.tags)), tagsOutput(own.tags)
			},
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				_, err := s.ensure(ctx, own.name, own.description, own.tags)
				return o, err
			},
		})
	}
	if c := exactChange(all[own.id], own.rules, own.mine); !c.isEmpty() {
		changes = append(changes, change{
			Planned: c.planned(),
			Compare: c.compare,
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				return o, s.sync(ctx, own.id, own.rules, own.mine)
			},
		})
	}
	return changes
}

func (g securityGroup) title() string { return fmt.Sprintf("security group %s (%s)", g.id, g.name) }

// planned is a change of rules as plan shows it.
func (c ruleChange) planned() contract.Planned {
	return contract.Planned{
		Action: contract.PlanChange, Object: c.group.title(), Detail: fmt.Sprintf("rules: %d more, %d less", len(c.add), len(c.remove)),
	}
}

// compare is the rules before and after.
func (c ruleChange) compare() (before, after any) {
	texts := func(rules []rule) any {
		list := make([]string, len(rules))
		for i, r := range rules {
			list[i] = r.text()
		}
		return map[string]any{"IpPermissions": list}
	}
	if c.group.id == "" {
		return texts(c.remove), texts(c.add)
	}
	return texts(c.group.rules), texts(c.result().rules)
}

// text is a rule in a few words.
func (r rule) text() string {
	what := fmt.Sprintf("%s/%d-%d", r.protocol, r.from, r.to)
	switch {
	case r.protocol == "-1":
		what = "everything"
	case r.from == r.to:
		what = r.protocol + "/" + strconv.Itoa(int(r.from))
	}
	return what + " from " + r.source.cidr + r.source.group + r.source.prefixList
}

func tagsOutput(tags any) any { return map[string]any{"Tags": tags} }

// limitTo limits a change of rules to a phase.
func (c ruleChange) limitTo(phase changePhase) ruleChange {
	switch phase {
	case opening:
		c.remove = nil
	case closing:
		c.add = nil
	case wholeChange:
	}
	return c
}

// nodeRules are changes of the security groups of nodes by what is known of them; decide says what to do with a group as it is when
// it is changed.
type nodeRules struct {
	due      []ruleChange
	decide   func(securityGroup) ruleChange
	findings []services.Finding
}

// doubtFindings report rules that stay although the load balancer does not need them.
func (c ruleChange) doubtFindings() []services.Finding {
	if len(c.doubted) == 0 {
		return nil
	}
	texts := make([]string, len(c.doubted))
	for i, r := range c.doubted {
		texts[i] = r.text()
	}
	slices.Sort(texts)
	return []services.Finding{services.Warning(eventRuleKept, "%s lets in %s as long as nobody can tell what Service %s needs, "+
		"whose settings or subnets cannot be read", c.group.title(), strings.Join(texts[:min(len(texts), maxShown)], ", "), c.doubtOf)}
}

// nodeRuleChanges carry out one phase of changes of nodes' security groups. Each closing is tried.
func (s *securityGroups) nodeRuleChanges(rules nodeRules, phase changePhase) []change {
	var changes []change
	for _, c := range rules.due {
		if c = c.limitTo(phase); c.isEmpty() {
			continue
		}
		scopes := map[changePhase]string{phase: c.group.id}
		changes = append(changes, change{
			Planned: c.planned(), Compare: c.compare, Opens: scopes[opening], Closes: scopes[closing],
			Make: func(ctx context.Context, r *services.Request, o observed) (observed, error) {
				err := s.change(ctx, c.group.id, phase, rules.decide)
				if len(c.add) > 0 {
					r.Asked(err) // a rule whose answer was lost may show later, and would stay open for ever
				}
				return o, err
			},
		})
	}
	if phase == closing {
		return services.EachTried(changes)
	}
	return changes
}

// obsoleteGroupChanges delete groups of its own that a load balancer does not have any more.
func (s *securityGroups) obsoleteGroupChanges(obsolete []securityGroup) []change {
	changes := make([]change, len(obsolete))
	for i, g := range obsolete {
		changes[i] = change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: g.title(), Detail: "the load balancer has other security groups"},
			Compare: ruleChange{remove: g.rules}.compare,
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				if err := s.closeGroupTo(ctx, g.id); err != nil {
					return o, err
				}
				return o, s.remove(ctx, g)
			},
		}
	}
	return changes
}

// leftovers are a Service's objects besides its load balancer.
type leftovers struct {
	targetGroups []elbv2types.TargetGroup
	groups       []securityGroup
	// opened are security groups with rules for the load balancer, and decide is what to do with them.
	opened []securityGroup
	decide func(securityGroup) ruleChange
	// findings report what stays in the cloud.
	findings []services.Finding
}

func (l leftovers) isPresent() bool { return len(l.targetGroups)+len(l.groups)+len(l.opened) > 0 }

// groupsToClose returns the security groups with rules for the leftover groups, or that decide would change.
func (l leftovers) groupsToClose(all map[string]securityGroup, decide func(securityGroup) ruleChange) []securityGroup {
	var opened []securityGroup
	for _, g := range groupsByID(all) {
		opens := func(r rule) bool {
			return slices.ContainsFunc(l.groups, func(o securityGroup) bool { return o.id == r.source.group && o.id != g.id })
		}
		if slices.ContainsFunc(g.rules, opens) || !decide(g).isEmpty() {
			opened = append(opened, g)
		}
	}
	return opened
}

// removeRulesFrom returns copies of security groups without rules for the given sources.
func removeRulesFrom(all map[string]securityGroup, sources []securityGroup) map[string]securityGroup {
	kept := make(map[string]securityGroup, len(all))
	for id, g := range all {
		g.rules = slices.DeleteFunc(slices.Clone(g.rules), func(r rule) bool {
			return slices.ContainsFunc(sources, func(s securityGroup) bool { return s.id == r.source.group && s.id != id })
		})
		kept[id] = g
	}
	return kept
}

// closingChange removes the rules of nodes for a load balancer that is deleted. Each group is tried.
func (s *securityGroups) closingChange(left leftovers) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "rules of nodes", Detail: fmt.Sprintf("in %d security groups", len(left.opened))},
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			var failed []error
			for _, g := range left.groups {
				failed = append(failed, s.closeGroupTo(ctx, g.id))
			}
			for _, g := range left.opened {
				failed = append(failed, s.change(ctx, g.id, wholeChange, left.decide))
			}
			return o, errors.Join(failed...)
		},
	}
}

// deletionChanges delete the security groups of a load balancer that is deleted, which lets go of them after a while.
func (s *securityGroups) deletionChanges(list []securityGroup) []change {
	changes := make([]change, len(list))
	for i, g := range list {
		changes[i] = change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: g.title()},
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				return o, services.Patiently(ctx, patience, func() error { return s.remove(ctx, g) })
			},
		}
	}
	return changes
}

// isNamedByUser reports whether users named a security group: it is theirs, whatever its tags say.
func isNamedByUser(service *v1.Service, c Config, groupID string) bool {
	s, _, _ := Annotations.Parse(service.Annotations)
	return groupID == c.ClassicGroup || slices.Contains(s.Groups, groupID) || slices.Contains(s.ExtraGroups, groupID)
}
