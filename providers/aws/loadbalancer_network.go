package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// ensureNetwork makes the network load balancer of a Service what it should be, and returns it.
func (l *loadBalancers) ensureNetwork(ctx context.Context, cluster string, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, backends []backend) (*elbv2types.LoadBalancer, error) {
	former := attachedNetwork(lb)
	want, err := l.networkWishes(ctx, service, s, lb, backends)
	if err == nil {
		err = l.networkGroups(ctx, cluster, service, s, lb, &want)
	}
	if err != nil {
		return nil, err
	}
	if lb == nil {
		if lb, err = l.createNetwork(ctx, service, s, want); err != nil {
			return nil, err
		}
	}
	state, err := l.networkState(ctx, service, s, lb, ensureMaxAge)
	if err != nil {
		return nil, err
	}
	l.reportRanges(service, s, lb, want.listeners)
	l.reportBlind(service, s, registered(state.targets))
	// Openings of nodes come before the targets, or the first checks of their health fail. What is not needed any more is closed
	// when the load balancer does not use it any more.
	if err := l.networkNodeRules(ctx, service, s, lb, want.listeners, backends, opening); err != nil {
		return nil, err
	}
	steps, err := l.ownSteps(ctx, service, state, planNetwork(state, want))
	if err != nil {
		return nil, err
	}
	if err := l.apply(ctx, service, lb, steps); err != nil {
		return nil, err
	}
	if err := l.networkNodeRules(ctx, service, s, lb, want.listeners, backends, closing); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(steps, func(s step) bool {
		switch s.input.(type) {
		case *elbv2.SetSecurityGroupsInput, *elbv2.SetSubnetsInput:
			return true
		}
		return false
	}) {
		name := want.name
		if lb, err = l.balancers.networks.Get(ctx, name, inventory.Query{}); err != nil {
			l.balancers.networks.Invalidate(name)
			return nil, notAbsence(err)
		}
	}
	return lb, l.dropNetworkGroups(ctx, cluster, service, former, lb)
}

func registered(targets map[string][]target) (n int) {
	for _, list := range targets {
		n += len(list)
	}
	return n
}

// ownSteps leaves out the deletion of target groups that were not made for the Service.
func (l *loadBalancers) ownSteps(ctx context.Context, service *v1.Service, state networkState, steps []step) ([]step, error) {
	var kept []step
	for _, s := range steps {
		if del, ok := s.input.(*elbv2.DeleteTargetGroupInput); ok {
			n := slices.IndexFunc(state.groups, func(t elbv2types.TargetGroup) bool {
				return aws.ToString(t.TargetGroupArn) == aws.ToString(del.TargetGroupArn)
			})
			if ours, err := l.groupMayGo(ctx, service, &state.groups[n]); err != nil {
				return nil, err
			} else if !ours {
				continue
			}
		}
		kept = append(kept, s)
	}
	return kept, nil
}

// networkWishes is what the Service asks for, but for its security groups.
func (l *loadBalancers) networkWishes(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, backends []backend) (networkWish, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return networkWish{}, err
	}
	fresh, eligible := backendIDs(backends)
	want := networkWish{
		name: balancerName(service), scheme: schemePublic, tags: l.tagsFor(id, service, s), attributes: networkAttributes(s), targetAttributes: s.targetAttributes,
		targets: fresh, eligible: eligible, keep: s.keepTargets, listeners: networkListeners(id.clusterID, service, s, l.config), fixedChecks: l.fixedChecks.Load(),
	}
	if len(want.listeners) == 0 {
		return want, errors.New("no port of the Service has a node port; set spec.allocateLoadBalancerNodePorts to true")
	}
	if s.internal {
		want.scheme = schemeInternal
	}
	if lb != nil {
		l.reportScheme(service, s, string(lb.Scheme))
		want.scheme, want.addressType = string(lb.Scheme), string(lb.IpAddressType)
		l.reportAddresses(service, s, lb)
		if len(s.Subnets) > 0 {
			want.mappings, err = l.namedMappings(ctx, service, s, lb)
		}
	} else if err = l.placeNetwork(ctx, service, s, &want); err != nil {
		return want, err
	}
	return want, err
}

// reportAddresses tells of fixed addresses that an annotation names and a load balancer does not have. They stay the user's: none
// is ever released.
func (l *loadBalancers) reportAddresses(service *v1.Service, s settings, lb *elbv2types.LoadBalancer) {
	var elastic, private []string
	for _, z := range lb.AvailabilityZones {
		for _, a := range z.LoadBalancerAddresses {
			if id := aws.ToString(a.AllocationId); id != "" {
				elastic = append(elastic, id)
			}
			if ip := aws.ToString(a.PrivateIPv4Address); ip != "" {
				private = append(private, ip)
			}
		}
	}
	if len(s.EIPs) > 0 && !sameSet(s.EIPs, elastic) {
		l.reportFixed(service, annotationEIPs, strings.Join(s.EIPs, ","), strings.Join(elastic, ","))
	}
	if len(s.PrivateAddresses) > 0 && !sameSet(s.PrivateAddresses, private) {
		l.reportFixed(service, annotationPrivateAddresses, strings.Join(s.PrivateAddresses, ","), strings.Join(private, ","))
	}
}

// placeNetwork chooses where a new load balancer is, and what it offers to clients.
func (l *loadBalancers) placeNetwork(ctx context.Context, service *v1.Service, s settings, want *networkWish) error {
	subnets, err := l.network.choose(ctx, s, s.internal)
	if err != nil {
		return err
	}
	var required bool
	want.addressType, required = addressTypeOf(service, subnets)
	if hidden := l.unfiltered(service, s); want.addressType == addressDualStack && hidden != "" {
		if required {
			return problemf(annotationSourceRanges, "", "(or spec.loadBalancerSourceRanges) cannot keep clients out that come by %s: "+
				"a network load balancer hides them from nodes with the other family; set NLBSecurityGroupMode = Managed, "+
				"allow all of %s, or want one family alone", hidden, hidden)
		}
		want.addressType = addressIPv4
		l.event(service, eventSingleStack, "the load balancer gets IPv4 alone: without a security group (NLBSecurityGroupMode = Managed) "+
			"it would let everybody in by "+hidden+", whatever the source ranges say")
	} else if !required && want.addressType == addressIPv4 && slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) {
		l.event(service, eventSingleStack, "the load balancer gets IPv4 alone: IPv6 needs a CIDR block for it in each of its subnets ("+strings.Join(idsOf(subnets), ", ")+") and no UDP port")
	}
	want.mappings, err = mappingsOf(subnets, s)
	return err
}

// unfiltered is the family that a new load balancer with both would hide from its nodes, where source ranges would not hold for
// it; "" where they do.
func (l *loadBalancers) unfiltered(service *v1.Service, s settings) string {
	hidden := targetFamily(service) != addressIPv6
	if _, all := covers(s.ranges, hidden); len(s.ranges) == 0 || all || l.config.NLBGroupMode == groupModeManaged {
		return ""
	}
	return familyName(hidden)
}

// namedMappings are the subnets that the annotation names now. More of them are added; fewer have no effect.
func (l *loadBalancers) namedMappings(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer) ([]elbv2types.SubnetMapping, error) {
	subnets, err := l.network.choose(ctx, s, lb.Scheme == elbv2types.LoadBalancerSchemeEnumInternal)
	if err != nil {
		return nil, err
	}
	have := subnetsOf(lb)
	if gone := without(have, idsOf(subnets)); len(gone) > 0 {
		l.reportFixed(service, annotationSubnets, strings.Join(s.Subnets, ","), strings.Join(have, ","))
		return nil, nil
	}
	if len(s.EIPs) > 0 || len(s.PrivateAddresses) > 0 {
		if len(without(idsOf(subnets), have)) > 0 {
			l.reportFixed(service, annotationSubnets, strings.Join(s.Subnets, ","), strings.Join(have, ","))
		}
		return nil, nil
	}
	return mappingsOf(subnets, s)
}

func subnetsOf(lb *elbv2types.LoadBalancer) []string {
	var ids []string
	for _, z := range lb.AvailabilityZones {
		ids = append(ids, aws.ToString(z.SubnetId))
	}
	return ids
}

// networkGroups adds the security groups: in the mode Managed, those that the annotation names or one of its own. A load
// balancer that was made without any can never get one.
func (l *loadBalancers) networkGroups(ctx context.Context, cluster string, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, want *networkWish) error {
	if l.config.NLBGroupMode != groupModeManaged || (lb != nil && len(lb.SecurityGroups) == 0) {
		return nil
	}
	if len(s.Groups) > 0 {
		want.groups = s.Groups
		return l.checkGroups(ctx, service, attachedNetwork(lb), groupNames{"annotation " + annotationGroups: s.Groups})
	}
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	g, err := l.groups.ensure(ctx, managedGroupName(cluster, service), managedGroupDescription, cloneTags(s.tags, id.ownershipTags()))
	if err != nil {
		return err
	}
	want.groups = []string{g.id}
	return l.groups.sync(ctx, g.id, networkFrontRules(*want, s), frontMine(descriptionFront+want.name))
}

// networkFrontRules are what may come in to a network load balancer. TLS is TCP to a security group.
func networkFrontRules(want networkWish, s settings) []rule {
	ports := make([]frontPort, len(want.listeners))
	for i, p := range want.listeners {
		ports[i] = frontPort{protocolTCP, p.port}
		if p.protocol == "UDP" {
			ports[i].protocol = protocolUDP
		}
	}
	return frontRules(ports, rangesOf(s, want.addressType == addressDualStack), descriptionFront+want.name)
}

func (l *loadBalancers) createNetwork(ctx context.Context, service *v1.Service, s settings, want networkWish) (*elbv2types.LoadBalancer, error) {
	klog.InfoS("Creating network load balancer", "service", klog.KObj(service), "name", want.name)
	what := "creating network load balancer " + want.name
	out, err := call(ctx, l.api, what, (*elbv2.Client).CreateLoadBalancer, createNetwork(want))
	if err == nil && (len(out.LoadBalancers) != 1 || out.LoadBalancers[0].LoadBalancerArn == nil) {
		err = incomplete(what)
	}
	if err != nil {
		l.balancers.networks.InvalidateAll() // it may exist all the same, made by a call whose answer was lost
		if codeOf(err) == "InvalidSecurityGroup" && len(want.groups) > 0 && len(s.Groups) == 0 {
			return nil, notVisible(&cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: err.Error()}, want.groups[0])
		}
		return nil, err
	}
	lb := &out.LoadBalancers[0]
	l.balancers.networks.Put(lb)
	l.balancers.newBalancers.add(want.name)
	l.balancers.networkTags.Put(named[map[string]string]{aws.ToString(lb.LoadBalancerArn), want.tags})
	return lb, nil
}

// networkState reads what a load balancer is made of.
func (l *loadBalancers) networkState(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, maxAge time.Duration) (networkState, error) {
	arn := aws.ToString(lb.LoadBalancerArn)
	q := inventory.Query{MaxAge: maxAge}
	state := networkState{lb: *lb, targets: map[string][]target{}, targetAttributes: map[string]map[string]string{}}
	listeners, err := l.balancers.listeners.Get(ctx, arn, q)
	if err != nil {
		return state, l.networkGone(lb, err)
	}
	state.listeners = listeners.value
	attributes, err := l.balancers.attributes.Get(ctx, arn, q)
	if err != nil {
		return state, l.networkGone(lb, err)
	}
	state.attributes = attributes.value
	if state.groups, err = l.groupsOf(ctx, service, lb, maxAge); err != nil {
		return state, err
	}
	for _, t := range state.groups {
		tg := aws.ToString(t.TargetGroupArn)
		found, err := l.balancers.targets.Get(ctx, tg, q)
		if err != nil {
			return state, l.groupGone(tg, err)
		}
		state.targets[tg] = found.value
		if len(s.targetAttributes) > 0 {
			a, err := l.balancers.targetAttributes.Get(ctx, tg, q)
			if err != nil {
				return state, l.groupGone(tg, err)
			}
			state.targetAttributes[tg] = a.value
		}
	}
	return state, nil
}

// networkGone makes the next try look for the load balancer again, where a part of it told that it does not exist.
func (l *loadBalancers) networkGone(lb *elbv2types.LoadBalancer, err error) error {
	name := aws.ToString(lb.LoadBalancerName)
	if errors.Is(err, cloudapi.ErrNotFound) {
		if later := l.balancers.newBalancers.check(name, "network load balancer "+name); later != nil {
			return later
		}
		l.balancers.networks.Invalidate(name)
	}
	return notAbsence(err)
}

// groupGone makes the absence of a target group a wish for patience where it was just made.
func (l *loadBalancers) groupGone(arn string, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		if later := l.balancers.newGroups.check(arn, "target group "+arn); later != nil {
			return later
		}
	}
	return notAbsence(err)
}

// balancerOfARN is the name in the ARN of a network load balancer, which no two have at a time; "" if it is of another kind.
func balancerOfARN(arn string) string {
	_, path, _ := strings.Cut(arn, ":loadbalancer/net/")
	name, _, _ := strings.Cut(path, "/")
	return name
}

// groupsOf returns the target groups of a load balancer, and those that were made for its Service and that none uses yet,
// or any more: AWS shows a load balancer that was deleted for a while. lb is nil where there is no load balancer.
func (l *loadBalancers) groupsOf(ctx context.Context, service *v1.Service, lb *elbv2types.LoadBalancer, maxAge time.Duration) ([]elbv2types.TargetGroup, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.balancers.groups.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return nil, err
	}
	gone := func(arn string) bool {
		return balancerOfARN(arn) == balancerName(service) && (lb == nil || arn != aws.ToString(lb.LoadBalancerArn))
	}
	var list []elbv2types.TargetGroup
	for _, t := range all {
		switch {
		case lb != nil && slices.Contains(t.LoadBalancerArns, aws.ToString(lb.LoadBalancerArn)):
			list = append(list, *t)
		case len(slices.DeleteFunc(slices.Clone(t.LoadBalancerArns), gone)) == 0 && strings.HasPrefix(aws.ToString(t.TargetGroupName), targetGroupPrefix(service)) && aws.ToString(t.VpcId) == id.vpc:
			ours, err := l.groupIsOf(ctx, id, t, service)
			if err != nil {
				return nil, err
			}
			if ours {
				list = append(list, *t)
			}
		}
	}
	slices.SortFunc(list, func(a, b elbv2types.TargetGroup) int {
		return strings.Compare(aws.ToString(a.TargetGroupName), aws.ToString(b.TargetGroupName))
	})
	return list, nil
}

// groupIsOf reports whether the tags of a target group that none uses say that it was made for the Service.
func (l *loadBalancers) groupIsOf(ctx context.Context, id *identity, t *elbv2types.TargetGroup, service *v1.Service) (bool, error) {
	if len(t.LoadBalancerArns) > 0 {
		return true, nil // those that are gone had the Service's UID in their names
	}
	tags, err := l.networkTags(ctx, aws.ToString(t.TargetGroupArn))
	if l.tagsUnknown(err) {
		return l.namedFor(id, service, aws.ToString(t.TargetGroupName)), nil
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		l.balancers.forgetGroup(aws.ToString(t.TargetGroupArn))
		return false, nil
	}
	return err == nil && id.owned(tags) && tags[serviceTag] == serviceName(service), err
}

// namedFor reports whether the name of a target group is one that the Service's ports have now; it holds a checksum of the
// cluster and the Service.
func (l *loadBalancers) namedFor(id *identity, service *v1.Service, name string) bool {
	s, _, _ := parseSettings(service, l.config)
	return slices.ContainsFunc(networkListeners(id.clusterID, service, s, l.config), func(w listenerWish) bool { return w.group.name == name })
}

// apply carries out a plan and keeps what is known of the load balancer true.
func (l *loadBalancers) apply(ctx context.Context, service *v1.Service, lb *elbv2types.LoadBalancer, steps []step) error {
	arn, made := aws.ToString(lb.LoadBalancerArn), map[string]string{}
	for _, s := range steps {
		err := l.run(ctx, service, []step{s}, made)
		attached := ""
		switch in := s.input.(type) {
		case *elbv2.CreateTargetGroupInput:
			if tg := made[s.group]; tg != "" {
				l.balancers.networkTags.Put(named[map[string]string]{tg, keyed(in.Tags, networkTag)})
			}
		case *elbv2.CreateListenerInput:
			attached = aws.ToString(in.DefaultActions[0].TargetGroupArn)
		case *elbv2.ModifyListenerInput:
			attached = aws.ToString(in.DefaultActions[0].TargetGroupArn)
		case *elbv2.DeleteListenerInput:
			l.balancers.listeners.Invalidate(arn)
		case *elbv2.SetSecurityGroupsInput, *elbv2.SetSubnetsInput:
			if err != nil {
				l.balancers.networks.Invalidate(aws.ToString(lb.LoadBalancerName))
			}
		case *elbv2.ModifyTargetGroupInput:
			if codeOf(err) == "InvalidConfigurationRequest" && l.fixedChecks.CompareAndSwap(false, true) {
				return cloudproviderapi.NewRetryError("AWS does not change this health check; the target group is replaced", groupVisiblePause)
			}
		}
		if codeOf(err) == "DuplicateListener" {
			err = cloudproviderapi.NewRetryError("AWS does not show all listeners of load balancer "+balancerName(service)+" yet", groupVisiblePause)
		}
		if attached != "" {
			l.balancers.listeners.Invalidate(arn)
			l.noteAttached(attached, arn, err)
		}
		if err != nil {
			return l.notDone(err, func() { l.balancers.listeners.Invalidate(arn) })
		}
	}
	return nil
}

// noteAttached notes that a target group is used by a load balancer, which its own picture does not show yet.
func (l *loadBalancers) noteAttached(group, lb string, err error) {
	known, ok := l.balancers.groups.Peek(group)
	if err != nil || !ok {
		l.balancers.groups.InvalidateAll()
		return
	}
	if !slices.Contains(known.LoadBalancerArns, lb) {
		changed := *known
		changed.LoadBalancerArns = append(slices.Clone(known.LoadBalancerArns), lb)
		l.balancers.groups.PutPartial(&changed)
	}
}

// networkNodeRules lets clients and health checks in to the nodes, or closes what this load balancer does not need any more.
func (l *loadBalancers) networkNodeRules(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, listeners []listenerWish, backends []backend, part changePart) error {
	if l.config.NoNodeGroupRules || len(backends) == 0 {
		return nil
	}
	want, targets, err := l.nodeRuleWish(ctx, service, s, lb, listeners, backends)
	if err != nil {
		return err
	}
	return l.changeNodeRules(ctx, want, targets, part)
}

// nodeRuleWish is what a load balancer needs of the security groups of its nodes, and which groups these are.
func (l *loadBalancers) nodeRuleWish(ctx context.Context, service *v1.Service, s settings, lb *elbv2types.LoadBalancer, listeners []listenerWish, backends []backend) (want nodeRuleWish, groups []string, err error) {
	if groups, err = l.nodeGroups(ctx, service, backends); err != nil {
		return want, nil, err
	}
	subnets, complete, err := l.network.cidrsOf(ctx, subnetsOf(lb), targetFamily(service) == addressIPv6)
	if err != nil {
		return want, nil, err
	}
	want = l.nothingFor(balancerName(service))
	want.rules, want.spare = l.rulesOn(service, s, lb, listeners, subnets)
	want.partial, want.goes = !complete, false
	return want, groups, nil
}

// rulesOn are the rules that a load balancer in some networks needs.
func (l *loadBalancers) rulesOn(service *v1.Service, s settings, lb *elbv2types.LoadBalancer, listeners []listenerWish, subnets []netip.Prefix) (rules []rule, spare ruleKeys) {
	v6 := targetFamily(service) == addressIPv6
	var ranges []netip.Prefix
	for _, p := range rangesOf(s, v6) {
		if p.Addr().Is6() == v6 {
			ranges = append(ranges, p)
		}
	}
	name := balancerName(service)
	rules, spare = networkNodeRules(name, listeners, ranges, subnets, entranceOf(service, s, l.config, lb).hides(s))
	if _, told := s.targetAttributes[attributePreserveClient]; told {
		return rules, spare
	}
	// A target group keeps the attribute when its annotation goes: what lets the load balancer's own addresses in stays, too.
	for _, listener := range listeners {
		for _, p := range subnets {
			port := listener.group.port
			spare[rule{protocolTCP, port, port, ruleSource{cidr: p.String()}, descriptionClient + name}] = true
		}
	}
	return rules, spare
}

// changeNodeRules opens the groups of targets, or removes the rules of the load balancer from all others of the cluster.
func (l *loadBalancers) changeNodeRules(ctx context.Context, want nodeRuleWish, targets []string, part changePart) error {
	changes, decide, err := l.networkNodeChanges(ctx, want, targets)
	if err != nil {
		return err
	}
	for _, c := range changes {
		if err := l.groups.change(ctx, c.group.id, part, decide); err != nil {
			return err
		}
	}
	return nil
}

// networkNodeChanges are the changes of the security groups of nodes, by what is known of these groups; decide is what to do
// with one as it is when it is changed.
func (l *loadBalancers) networkNodeChanges(ctx context.Context, want nodeRuleWish, targets []string) (changes []ruleChange, decide func(securityGroup) ruleChange, err error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return nil, nil, err
	}
	all, err := l.groups.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	others, none := l.otherNetworks(ctx, want.name), l.nothingFor(want.name)
	none.partial, none.goes = want.partial, want.goes
	decide = func(g securityGroup) ruleChange {
		if slices.Contains(targets, g.id) {
			return networkNodeChange(g, want, others)
		}
		return networkNodeChange(g, none, others)
	}
	for _, g := range sortedGroups(all) {
		if !slices.Contains(targets, g.id) && !id.ours(g.tags) && !slices.ContainsFunc(g.rules, func(r rule) bool { return ofBalancer(r, want.name) }) {
			continue
		}
		if c := decide(g); !c.empty() {
			changes = append(changes, c)
		}
	}
	return changes, decide, nil
}

// ofBalancer reports whether a rule was made for a load balancer.
func ofBalancer(r rule, name string) bool {
	of, _ := ruleOf(r)
	return of == name
}

// otherNetworks are the other Services' network load balancers.
func (l *loadBalancers) otherNetworks(ctx context.Context, name string) otherRules {
	var others []*v1.Service
	known := map[string]bool{}
	for _, s := range l.served() {
		known[balancerName(s)] = true
		if network, _ := kindOf(s); network && balancerName(s) != name && s.DeletionTimestamp == nil {
			others = append(others, s)
		}
	}
	names := make([]string, len(others))
	for i, s := range others {
		names[i] = balancerName(s)
	}
	return otherRules{
		names: names,
		needs: func(ports map[int32]bool) (ruleKeys, error) { return l.neededBy(ctx, others, ports) },
		gone: func(name string) bool {
			if known[name] || !controllerName.MatchString(name) {
				return false
			}
			_, err := l.balancers.networks.Get(ctx, name, inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: ensureMaxAge})
			return errors.Is(err, cloudapi.ErrNotFound)
		},
	}
}

// neededBy are the rules for some ports that network load balancers of Services need. One that is not made yet opens the nodes
// itself.
func (l *loadBalancers) neededBy(ctx context.Context, services []*v1.Service, ports map[int32]bool) (ruleKeys, error) {
	needed := ruleKeys{}
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return nil, err
	}
	for _, service := range services {
		s, _, faults := parseSettings(service, l.config)
		listeners := networkListeners(id.clusterID, service, s, l.config)
		if !slices.ContainsFunc(checkPorts(listeners), func(p int32) bool { return ports[p] }) &&
			!slices.ContainsFunc(listeners, func(one listenerWish) bool { return ports[one.group.port] }) {
			continue
		}
		if faults != nil {
			return nil, fmt.Errorf("the wishes of Service %s: %w", serviceName(service), faults)
		}
		found, err := l.balancers.networks.Find(ctx, indexName, balancerName(service), inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge})
		if err != nil {
			return nil, err
		}
		for _, lb := range found {
			subnets, complete, err := l.network.cidrsOf(ctx, subnetsOf(lb), targetFamily(service) == addressIPv6)
			if err != nil || !complete {
				return nil, cmp.Or(err, errIncomplete)
			}
			rules, _ := l.rulesOn(service, s, lb, listeners, subnets)
			for _, r := range rules {
				needed[r.key()] = true
			}
		}
	}
	return needed, nil
}

// dropNetworkGroups deletes groups of its own that a load balancer does not have any more. They may have the name that another
// value of --cluster-name gives.
func (l *loadBalancers) dropNetworkGroups(ctx context.Context, cluster string, service *v1.Service, former []string, lb *elbv2types.LoadBalancer) error {
	if l.config.NLBGroupMode != groupModeManaged {
		return nil
	}
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	all, err := l.groups.all(ctx)
	if err != nil {
		return err
	}
	name := managedGroupName(cluster, service)
	for _, g := range sortedGroups(all) {
		own := g.name == name || (slices.Contains(former, g.id) && managedFor(id, service, g))
		if !own || slices.Contains(lb.SecurityGroups, g.id) || !id.owned(g.tags) {
			continue
		}
		if err := l.closeGroup(ctx, g.id); err != nil {
			return err
		}
		if err := l.groups.remove(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// managedFor reports whether a group that a network load balancer of a Service has was made for it.
func managedFor(id *identity, service *v1.Service, g securityGroup) bool {
	return madeForBalancer(id, g) && strings.HasPrefix(g.name, targetGroupPrefix(service))
}

// updateNetwork brings targets and openings up to date.
func (l *loadBalancers) updateNetwork(ctx context.Context, service *v1.Service, s settings, sound bool, lb *elbv2types.LoadBalancer, backends []backend) error {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	rules := func(part changePart) error {
		if !sound {
			return nil
		}
		return l.networkNodeRules(ctx, service, s, lb, networkListeners(id.clusterID, service, s, l.config), backends, part)
	}
	if err := rules(opening); err != nil {
		return err
	}
	groups, err := l.groupsOf(ctx, service, lb, updateMaxAge)
	if err != nil {
		return err
	}
	fresh, eligible := backendIDs(backends)
	for _, t := range groups {
		arn := aws.ToString(t.TargetGroupArn)
		found, err := l.balancers.targets.Get(ctx, arn, inventory.Query{MaxAge: updateTargetsMaxAge})
		if err != nil {
			return fmt.Errorf("load balancer %s: %w", balancerName(service), l.groupGone(arn, err))
		}
		l.reportBlind(service, s, len(found.value))
		g := targetGroupWish{name: aws.ToString(t.TargetGroupName), port: aws.ToInt32(t.Port)}
		if err := l.run(ctx, service, planTargets(arn, g, found.value, fresh, eligible, s.keepTargets), nil); err != nil {
			return l.notDone(err, func() { l.balancers.targets.Invalidate(arn) })
		}
	}
	return rules(closing)
}
