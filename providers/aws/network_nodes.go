package aws

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// networkRules finds out what network load balancers need of the security groups of nodes.
type networkRules struct{ *shared }

// rulesFor are the rules that a load balancer in some networks needs.
func (n networkRules) rulesFor(
	service *v1.Service, s settings, lb *networkLoadBalancer, listeners []desiredListener, subnets []netip.Prefix,
) (rules []rule, optional ruleKeys) {
	v6 := targetFamily(service) == addressIPv6
	var ranges []netip.Prefix
	for _, p := range rangesOf(s, v6) {
		if p.Addr().Is6() == v6 {
			ranges = append(ranges, p)
		}
	}
	name := loadBalancerName(service)
	rules, optional = networkNodeRules(name, listeners, ranges, subnets, entranceOf(service, s, n.config, lb).admitsHidden(s))
	if _, told := s.targetAttributes[attributePreserveClient]; told {
		return rules, optional
	}
	// A target group keeps the attribute when its annotation is removed, so rules for the load balancer's own addresses stay as well.
	for _, listener := range listeners {
		for _, p := range subnets {
			port := listener.group.port
			optional[rule{protocolTCP, port, port, ruleSource{cidr: p.String()}, descriptionClient + name}] = true
		}
	}
	return rules, optional
}

// desiredRules are the rules that a load balancer needs in the security groups of its nodes.
func (n networkRules) desiredRules(
	ctx context.Context, service *v1.Service, s settings, lb *networkLoadBalancer, listeners []desiredListener, b backends,
	all map[string]securityGroup,
) (rules nodeRules, findings []services.Finding, err error) {
	if n.config.NoNodeGroupRules || len(b.list) == 0 {
		return rules, nil, nil
	}
	_, id, err := n.api.connect(ctx)
	if err != nil {
		return rules, nil, err
	}
	groups, findings := nodeGroupsOf(id, all, b)
	subnets, complete, err := n.vpc.cidrsOf(ctx, subnetsOf(lb), targetFamily(service) == addressIPv6)
	if err != nil {
		return rules, findings, err
	}
	want := noNodeRules(loadBalancerName(service), n.config)
	want.rules, want.optional = n.rulesFor(service, s, lb, listeners, subnets)
	want.partial, want.deleting = !complete, false
	rules = n.changes(ctx, id, want, groups, all)
	return rules, append(findings, rules.findings...), nil
}

// changes open the groups of targets, and remove the rules of the load balancer from all others of the cluster.
func (n networkRules) changes(
	ctx context.Context, id *identity, want desiredNodeRules, targets []string, all map[string]securityGroup,
) nodeRules {
	others, none := n.otherLoadBalancers(ctx, id, want.name), noNodeRules(want.name, n.config)
	none.partial, none.deleting = want.partial, want.deleting
	rules := nodeRules{decide: func(g securityGroup) ruleChange {
		if slices.Contains(targets, g.id) {
			return networkNodeChange(g, want, others)
		}
		return networkNodeChange(g, none, others)
	}}
	for _, g := range groupsByID(all) {
		if !slices.Contains(targets, g.id) && !id.isTagged(g.tags) && !hasRuleOf(g, want.name) {
			continue
		}
		c := rules.decide(g)
		if rules.findings = append(rules.findings, c.doubtFindings()...); !c.isEmpty() {
			rules.due = append(rules.due, c)
		}
	}
	return rules
}

// otherLoadBalancers are the other Services' network load balancers.
func (n networkRules) otherLoadBalancers(ctx context.Context, id *identity, name string) otherRules {
	var others []*v1.Service
	known := map[string]bool{}
	for _, s := range n.served.all() {
		known[loadBalancerName(s)] = true
		if network, _ := kindOf(s); network && loadBalancerName(s) != name && s.DeletionTimestamp == nil {
			others = append(others, s)
		}
	}
	names := make([]string, len(others))
	for i, s := range others {
		names[i] = loadBalancerName(s)
	}
	return otherRules{
		names: names,
		needs: func(ports map[int32]bool) neededRules { return n.neededRules(ctx, id, others, ports) },
		gone: func(name string) bool {
			if known[name] || !controllerName.MatchString(name) {
				return false
			}
			_, err := n.records.networks.Get(ctx, name, inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: ensureMaxAge})
			return errors.Is(err, cloudapi.ErrNotFound)
		},
	}
}

// neededRules returns the rules for some ports that network load balancers of Services need.
func (n networkRules) neededRules(ctx context.Context, id *identity, others []*v1.Service, ports map[int32]bool) neededRules {
	needed := neededRules{rules: ruleKeys{}, optional: ruleKeys{}}
	for _, service := range others {
		s, _, faults := parseSettings(service, n.config)
		listeners := networkListeners(id.clusterID, service, s, n.config)
		if faults == nil && !slices.ContainsFunc(checkPorts(listeners), func(p int32) bool { return ports[p] }) &&
			!slices.ContainsFunc(listeners, func(one desiredListener) bool { return ports[one.group.port] }) {
			continue
		}
		found, err := n.records.networks.Find(ctx, indexName, loadBalancerName(service), inventory.Query{
			MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge,
		})
		if err == nil && len(found) == 0 {
			continue
		}
		var subnets []netip.Prefix
		complete := false
		if err == nil {
			subnets, complete, err = n.vpc.cidrsOf(ctx, subnetsOf(found[0]), targetFamily(service) == addressIPv6)
		}
		if cmp.Or(faults, err) != nil || !complete {
			klog.V(2).InfoS("What a Service needs of the nodes is not known", "service", klog.KObj(service), "reason", cmp.Or(faults, err, errIncomplete))
			d := doubt{service: serviceName(service), ports: nodePorts(listeners), subnets: subnets, hidden: err != nil || !complete}
			if d.checks = checkPorts(listeners); faults != nil {
				d.checks = n.checksOf(ctx, found, listeners)
			}
			needed.doubts = append(needed.doubts, d)
			continue
		}
		rules, kept := n.rulesFor(service, s, found[0], listeners, subnets)
		maps.Copy(needed.rules, keysOf(rules))
		for r := range kept {
			needed.optional[r.key()] = true
		}
	}
	return needed
}

// checksOf returns the ports that a load balancer checks by its target groups or by listeners; nil if no target group is known.
func (n networkRules) checksOf(ctx context.Context, found []*networkLoadBalancer, listeners []desiredListener) []int32 {
	if len(found) == 0 {
		return nil
	}
	arn := aws.ToString(found[0].LoadBalancerArn)
	groups, err := n.records.targetGroups.Find(ctx, indexLoadBalancer, arn, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil || len(groups) == 0 {
		return nil
	}
	for _, t := range groups {
		group := desiredTargetGroup{port: aws.ToInt32(t.Port), check: healthCheck{port: aws.ToString(t.HealthCheckPort)}}
		listeners = append(listeners, desiredListener{group: group})
	}
	return checkPorts(listeners)
}
