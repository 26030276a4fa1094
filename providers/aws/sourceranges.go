package aws

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	kitsources "github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Source ranges are enforced by security group rules, of the load balancer or of the nodes. This file reports who gets in despite them.

// entrance is the way of clients through a network load balancer: by which families, and through whose security groups.
type entrance struct {
	// dualStack is set where clients come by both families, and v6 where targets are reached by IPv6.
	dualStack, v6 bool
	// ownGroup is set where rules are written into a security group of the load balancer itself.
	ownGroup bool
	// nodeGroups is set where rules are written into those of the nodes.
	nodeGroups bool
}

// coverage reports whether source ranges contain part of a family, and all of it.
func coverage(ranges []netip.Prefix, v6 bool) (some, all bool) {
	for _, p := range ranges {
		if p.Addr().Is6() == v6 {
			some, all = true, all || p.Bits() == 0
		}
	}
	return some, all
}

// clientFamilies are the families by which clients come; true is IPv6.
func (e entrance) clientFamilies() []bool {
	if e.dualStack {
		return []bool{false, true}
	}
	return []bool{e.v6}
}

// hides reports whether nodes see the load balancer's address instead of that of a client: by choice, or because its family is not that of
// the targets. Rules of nodes cannot distinguish such clients.
func (e entrance) hides(s settings, v6 bool) bool {
	return v6 != e.v6 || s.targetAttributes[attributePreserveClient] == textFalse
}

// admitsHidden reports whether hidden clients are admitted: nodes then open the ports of clients for the load balancer.
func (e entrance) admitsHidden(s settings) bool {
	return slices.ContainsFunc(e.clientFamilies(), func(v6 bool) bool {
		some, _ := coverage(s.ranges, v6)
		return e.hides(s, v6) && (some || len(s.ranges) == 0)
	})
}

// open returns the families that are open to everybody despite the source ranges. checked: health checks use the ports of clients, which
// the nodes open for the load balancer.
func (e entrance) open(s settings, checked bool) (families []string) {
	if len(s.ranges) == 0 || e.ownGroup {
		return nil
	}
	opensHidden := checked || e.admitsHidden(s)
	for _, v6 := range e.clientFamilies() {
		filtered := e.nodeGroups && (!opensHidden || !e.hides(s, v6))
		if _, all := coverage(s.ranges, v6); !all && !filtered {
			families = append(families, familyName(v6))
		}
	}
	return families
}

func familyName(v6 bool) string {
	if v6 {
		return "IPv6"
	}
	return "IPv4"
}

// sharesPorts reports whether health checks use a port that clients use.
func sharesPorts(listeners []desiredListener) bool {
	for _, port := range checkPorts(listeners) {
		if slices.ContainsFunc(listeners, func(l desiredListener) bool { return l.group.port == port }) {
			return true
		}
	}
	return false
}

// rangesPlace is where the source ranges of a Service stand.
func rangesPlace(service *v1.Service) string {
	if len(service.Spec.LoadBalancerSourceRanges) > 0 {
		return kitsources.Field
	}
	return "annotation " + annotationSourceRanges
}

// rangesProblem says that the source ranges have no effect and what to do; nil if they are enforced.
func rangesProblem(service *v1.Service, s settings, c Config, e entrance, listeners []desiredListener) error {
	problem := func(reason string, args ...any) error {
		return &schema.Problem{Place: rangesPlace(service), Value: joinRanges(s.ranges), Reason: fmt.Sprintf(reason, args...), Warning: true}
	}
	if len(s.ranges) == 0 {
		return nil
	}
	if !s.network {
		switch {
		case len(s.Groups) > 0:
			return problem("keeps nobody out: no rules are written into the security groups of %s; see to their rules, or remove it", annotationGroups)
		case c.ClassicGroup != "":
			return problem("keeps nobody out: no rules are written into the security group of the option ElbSecurityGroup; see to its rules")
		}
		return nil
	}
	families := strings.Join(e.open(s, sharesPorts(listeners)), " and ")
	switch {
	case families == "":
		return nil
	case !e.nodeGroups:
		return problem("keeps nobody out that comes by %s: the option DisableSecurityGroupIngress leaves the nodes' security groups alone, "+
			"and none of the load balancer itself gets rules", families)
	}
	return problem("keeps nobody out that comes by %s: the load balancer hides the addresses of these clients from the nodes "+
		"(%s=false, or the family that its targets do not have), and no security group of its own gets rules; set NLBSecurityGroupMode = Managed "+
		"before the load balancer is made", families, attributePreserveClient)
}

// maxShown is how many source ranges a message names.
const maxShown = 20

func joinRanges(ranges []netip.Prefix) string {
	shown := ranges[:min(len(ranges), maxShown)]
	texts := make([]string, 0, len(shown)+1)
	for _, p := range shown {
		texts = append(texts, p.String())
	}
	if len(shown) < len(ranges) {
		texts = append(texts, "...")
	}
	return strings.Join(texts, ",")
}

// tooManyRules refuses source ranges that fit into no security group, before any rule is made of them.
func tooManyRules(service *v1.Service, s settings, c Config) error {
	filtered := len(s.Groups) == 0 && c.ClassicGroup == ""
	if s.network {
		filtered = !c.NoNodeGroupRules || (len(s.Groups) == 0 && c.NLBGroupMode == groupModeManaged)
	}
	rules := len(s.ranges) * len(service.Spec.Ports)
	if !filtered || rules <= awslimits.GroupRulesEver.Max {
		return nil
	}
	return &schema.Problem{Place: rangesPlace(service), Value: joinRanges(s.ranges), Reason: fmt.Sprintf("holds %d networks, which are %d rules for %d ports: "+
		"a security group holds %d at most, and %d without a higher quota; use fewer and larger networks",
		len(s.ranges), rules, len(service.Spec.Ports), awslimits.GroupRulesEver.Max, awslimits.GroupRules.Max)}
}

// plannedEntrance is that of a network load balancer which is not made yet.
func plannedEntrance(service *v1.Service, s settings, c Config) entrance {
	return entrance{
		v6:       targetFamily(service) == addressIPv6, // one with both families is made only where the ranges hold for both
		ownGroup: c.NLBGroupMode == groupModeManaged && len(s.Groups) == 0, nodeGroups: !c.NoNodeGroupRules,
	}
}

// entranceOf is that of a network load balancer as it is.
func entranceOf(service *v1.Service, s settings, c Config, lb *networkLoadBalancer) entrance {
	e := plannedEntrance(service, s, c)
	e.dualStack = lb.IpAddressType == elbv2types.IpAddressTypeDualstack
	e.ownGroup = e.ownGroup && len(lb.SecurityGroups) > 0
	return e
}

// rangesFindings report source ranges that do not hold.
func rangesFindings(service *v1.Service, s settings, c Config, e entrance, listeners []desiredListener) []services.Finding {
	problem := rangesProblem(service, s, c, e, listeners)
	if problem == nil {
		return nil
	}
	return []services.Finding{services.Warning(eventRangesIgnored, "%s", problem)}
}
