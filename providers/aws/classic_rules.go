package aws

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
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
	return c.all[groupID].name == classicGroupName(c.name) && c.id.isOwned(c.all[groupID].tags)
}

// desiredRules are the rules that a group of nodes needs. One that could be anybody's by its form says that it is ours.
func (c classicRules) desiredRules(g securityGroup) []rule {
	if c.from == "" || !slices.Contains(c.opened, g.id) {
		return nil
	}
	r := rule{protocol: protocolAll, source: ruleSource{group: c.from}}
	if g.id == c.from || !c.owns(c.from) || !c.id.isTagged(g.tags) {
		r.description = descriptionSelf + "=" + c.name
	}
	return []rule{r}
}

// isOwn reports whether a rule of a group was made for the load balancer, and serves no other one.
func (c classicRules) isOwn(g securityGroup) func(rule) bool {
	return func(r rule) bool {
		name, marked := classicMark(r)
		switch {
		case r.protocol != protocolAll || r.source.group == "" || slices.Contains(c.shared, r.source.group):
			return false
		case marked && name == c.name:
			return true // whatever group stood for it before
		case !slices.Contains(c.sources, r.source.group) || !c.id.isTagged(g.tags):
			return false
		}
		return marked || (g.id != r.source.group && c.owns(r.source.group))
	}
}

func (c classicRules) change(g securityGroup) ruleChange {
	return exactChange(g, c.desiredRules(g), c.isOwn(g))
}

// isForeign reports whether a group lets everything of a source in by a rule that nobody knows the maker of.
func (c classicRules) isForeign(g securityGroup) func(rule) bool {
	mine := c.isOwn(g)
	return func(r rule) bool {
		return r.protocol == protocolAll && slices.Contains(c.sources, r.source.group) && !slices.Contains(c.shared, r.source.group) && !mine(r)
	}
}

// changes are those of all groups, by what is known of them.
func (c classicRules) changes() []ruleChange {
	var list []ruleChange
	for _, g := range groupsByID(c.all) {
		if change := c.change(g); !change.isEmpty() {
			list = append(list, change)
		}
	}
	return list
}

// nodeRules are the changes that are due, each decided again when it is made.
func (c *classicRules) nodeRules() nodeRules {
	if c == nil {
		return nodeRules{}
	}
	return nodeRules{due: c.changes(), decide: c.change}
}

// keptFindings report rules that stay because their maker is unknown.
func (c classicRules) keptFindings() []services.Finding {
	var findings []services.Finding
	for _, g := range groupsByID(c.all) {
		if n := slices.IndexFunc(g.rules, c.isForeign(g)); n >= 0 && (c.id.isTagged(g.tags) || g.id == g.rules[n].source.group) {
			findings = append(findings, services.Warning(eventRuleKept, "security group %s (%s) still lets all of %s in: the rule is not marked "+
				"as made for this load balancer, and others may need it; remove it if nobody does", g.id, g.name, g.rules[n].source.group))
		}
	}
	return findings
}

// classicSource is the security group that stands for a load balancer in rules of nodes: the first configured one, else its own. AWS lists
// groups in any order, so the position says nothing. "" means the load balancer lacks that group; a reconciliation adds it first.
func classicSource(s settings, c Config, lb *classicLoadBalancer, all map[string]securityGroup) string {
	given := givenClassicGroups(s, c)
	if len(given) == 0 {
		own := classicGroupName(aws.ToString(lb.LoadBalancerName))
		for _, g := range groupsByID(all) {
			if g.name == own {
				given = append(given, g.id)
			}
		}
	}
	if len(given) == 0 || !slices.Contains(lb.SecurityGroups, given[0]) {
		return ""
	}
	return given[0]
}

// classicSources are the security groups that may stand for a load balancer in rules of nodes, besides its own: the one that is
// named first, or those that were named before.
func classicSources(service *v1.Service, c Config, lb *classicLoadBalancer) []string {
	s, _, _ := Annotations.Parse(service.Annotations)
	if given := givenClassicGroups(s, c); len(given) > 0 && slices.Contains(lb.SecurityGroups, given[0]) {
		return given[:1]
	}
	return slices.Sorted(slices.Values(difference(lb.SecurityGroups, s.ExtraGroups)))
}

// classicRuleOf reports whether a rule was made for the classic load balancer of a Service, or is for a group that it has.
func classicRuleOf(service *v1.Service, attached []string) func(rule) bool {
	name := loadBalancerName(service)
	return func(r rule) bool {
		marked, _ := classicMark(r)
		return marked == name || (r.protocol == protocolAll && slices.Contains(attached, r.source.group))
	}
}
