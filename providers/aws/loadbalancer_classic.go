package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// ensureClassic makes the classic load balancer of a Service what it should be, and returns it.
func (l *loadBalancers) ensureClassic(ctx context.Context, service *v1.Service, s settings, lb *classicBalancer, backends []backend) (*classicBalancer, error) {
	want, err := l.classicWish(ctx, service, s, lb, backends)
	if err != nil {
		return nil, err
	}
	if err := l.checkGroups(ctx, service, attachedClassic(lb), l.namedClassicGroups(s)); err != nil {
		return nil, err
	}
	if err := l.ensureClassicGroup(ctx, service, s, &want); err != nil {
		return nil, err
	}
	if lb == nil {
		if lb, err = l.createClassic(ctx, service, s, want); err != nil {
			return nil, err
		}
	}
	settled, err := l.balancers.classicSettings.Get(ctx, want.name, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, l.classicGone(want.name, err)
	}
	tags, err := l.classicTags(ctx, lb)
	if err != nil && !l.tagsUnknown(err) {
		return nil, l.classicGone(want.name, err)
	}
	l.reportRanges(service, s, nil, nil)
	l.reportBlind(service, s, len(lb.Instances))
	// Openings of nodes come before the instances, or the first checks of their health fail.
	if err := l.classicNodeRules(ctx, service, want.groups[0], backends, opening); err != nil {
		return nil, err
	}
	steps := planClassic(lb, settled.value, tags, want)
	if err := l.run(ctx, service, steps, nil); err != nil {
		return nil, l.notDone(err, func() { l.balancers.classics.Invalidate(want.name) })
	}
	if len(steps) > 0 {
		if lb, err = l.reread(ctx, want.name); err != nil {
			return nil, err
		}
	}
	if err := l.classicNodeRules(ctx, service, want.groups[0], backends, closing); err != nil {
		return nil, err
	}
	return lb, l.dropClassicGroup(ctx, service, want)
}

// classicWish is what the Service asks for. Its security group is added when it is there.
func (l *loadBalancers) classicWish(ctx context.Context, service *v1.Service, s settings, lb *classicBalancer, backends []backend) (classicWish, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return classicWish{}, err
	}
	scheme := schemePublic
	if s.internal {
		scheme = schemeInternal
	}
	if lb != nil {
		l.reportScheme(service, s, aws.ToString(lb.Scheme))
		scheme = aws.ToString(lb.Scheme)
	}
	subnets, err := l.network.choose(ctx, s, scheme == schemeInternal)
	if err != nil {
		return classicWish{}, err
	}
	fresh, eligible := backendIDs(backends)
	want := classicWish{
		name: balancerName(service), scheme: scheme, listeners: classicListeners(service, s), subnets: idsOf(subnets), settings: classicSettings(s),
		tags: l.tagsFor(id, service, s), tlsPolicy: s.TLSPolicy, instances: fresh,
	}
	if len(want.listeners) == 0 {
		return want, errors.New("no port of the Service has a node port; set spec.allocateLoadBalancerNodePorts to true")
	}
	want.check = classicCheck(service, s, l.config, want.listeners)
	if s.ProxyProtocol != "" {
		for _, port := range want.listeners {
			if !slices.Contains(want.proxyPorts, port.instancePort) {
				want.proxyPorts = append(want.proxyPorts, port.instancePort)
			}
		}
	}
	if lb != nil {
		if want.zones, err = l.network.zonesOf(ctx); err != nil {
			return want, err
		}
		l.reportOnlySubnet(service, lb, want)
		want.instances = stayingInstances(lb, s, fresh, eligible)
		want.tags = s.tags // those that say whose it is were given at its creation
	}
	return want, nil
}

// reportOnlySubnet tells of a subnet that AWS does not let go of.
func (l *loadBalancers) reportOnlySubnet(service *v1.Service, lb *classicBalancer, want classicWish) {
	if len(lb.Subnets) == 1 && len(want.subnets) == 1 && lb.Subnets[0] != want.subnets[0] && want.zones[lb.Subnets[0]] == want.zones[want.subnets[0]] {
		l.event(service, eventFixed, fmt.Sprintf("the load balancer stays in subnet %s: AWS does not replace the only subnet by another one of the same zone, %s; name one of another zone as well in %s",
			lb.Subnets[0], want.subnets[0], annotationSubnets))
	}
}

// stayingInstances are the instances that run, and those that are registered and may stay.
func stayingInstances(lb *classicBalancer, s settings, fresh, eligible []string) []string {
	want := slices.Clone(fresh)
	for _, i := range lb.Instances {
		if id := aws.ToString(i.InstanceId); (s.keepTargets || slices.Contains(eligible, id)) && !slices.Contains(want, id) {
			want = append(want, id)
		}
	}
	return want
}

// ensureClassicGroup adds the security groups: those that annotations or the option name, else one of its own.
func (l *loadBalancers) ensureClassicGroup(ctx context.Context, service *v1.Service, s settings, want *classicWish) error {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	if want.groups = l.givenClassicGroups(s); len(want.groups) == 0 {
		tags := cloneTags(s.tags, id.ownershipTags())
		g, err := l.groups.ensure(ctx, classicGroupName(want.name), classicGroupDescription(want.name, service), tags)
		if err != nil {
			return err
		}
		if err := l.groups.sync(ctx, g.id, classicFrontRules(*want, s), frontMine(descriptionFront+want.name)); err != nil {
			return err
		}
		want.groups = []string{g.id}
	}
	want.groups = withExtra(want.groups, s)
	return nil
}

// givenClassicGroups are the security groups that the annotation or the option names; without any it has one of its own.
func (l *loadBalancers) givenClassicGroups(s settings) []string {
	if len(s.Groups) == 0 && l.config.ClassicGroup != "" {
		return []string{l.config.ClassicGroup}
	}
	return slices.Clone(s.Groups)
}

func withExtra(groups []string, s settings) []string {
	for _, g := range s.ExtraGroups {
		if !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	return groups
}

// classicFrontRules are what may come in to a classic load balancer.
func classicFrontRules(want classicWish, s settings) []rule {
	ports := make([]frontPort, len(want.listeners))
	for i, p := range want.listeners {
		ports[i] = frontPort{protocolTCP, p.port}
	}
	return frontRules(ports, rangesOf(s, false), descriptionFront+want.name)
}

func cloneTags(sets ...map[string]string) map[string]string {
	tags := map[string]string{}
	for _, set := range sets {
		maps.Copy(tags, set)
	}
	return tags
}

func (l *loadBalancers) createClassic(ctx context.Context, service *v1.Service, s settings, want classicWish) (*classicBalancer, error) {
	klog.InfoS("Creating classic load balancer", "service", klog.KObj(service), "name", want.name)
	_, err := call(ctx, l.api, "creating classic load balancer "+want.name, (*elb.Client).CreateLoadBalancer, createClassic(want))
	if err != nil {
		l.balancers.classics.InvalidateAll() // it may exist all the same, made by a call whose answer was lost
		switch codeOf(err) {
		case "InvalidSecurityGroup":
			if own := len(l.givenClassicGroups(s)) == 0; own { // it exists: we made or found it
				return nil, notVisible(&cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: err.Error()}, want.groups[0])
			}
		case "DuplicateLoadBalancerName":
			l.balancers.newBalancers.add(want.name) // by a call whose answer was lost, or it does not show yet
			return nil, cloudproviderapi.NewRetryError("AWS does not show classic load balancer "+want.name+" yet, which exists", groupVisiblePause)
		}
		return nil, err
	}
	l.balancers.newBalancers.add(want.name)
	l.balancers.classicTags.Put(named[map[string]string]{want.name, want.tags})
	return l.reread(ctx, want.name)
}

// reread reads a load balancer after a change. Where that fails, what is known of it is worth nothing.
func (l *loadBalancers) reread(ctx context.Context, name string) (*classicBalancer, error) {
	lb, err := l.balancers.classics.Get(ctx, name, inventory.Query{})
	if err != nil {
		l.balancers.classics.Invalidate(name)
	}
	return lb, l.classicGone(name, err)
}

// classicGone makes the absence of a load balancer a wish for patience where it was just made.
func (l *loadBalancers) classicGone(name string, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		if later := l.balancers.newBalancers.check(name, "classic load balancer "+name); later != nil {
			return later
		}
	}
	return notAbsence(err)
}

// notAbsence keeps the absence of something that we just saw or made from being taken for an answer about the Service.
func notAbsence(err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Message: err.Error()}
	}
	return err
}

// run carries out a plan.
func (l *loadBalancers) run(ctx context.Context, service *v1.Service, steps []step, groups map[string]string) error {
	for _, s := range steps {
		klog.InfoS("Changing load balancer", "service", klog.KObj(service), "name", balancerName(service), "step", s.what)
		if err := l.balancers.run(ctx, s, groups); err != nil {
			return fmt.Errorf("load balancer %s: %w", balancerName(service), err)
		}
	}
	return nil
}

// notDone makes the next try look anew at what a failed write may have changed.
func (l *loadBalancers) notDone(err error, doubt func()) error {
	doubt()
	if refusedTarget(err) {
		l.instances.all.InvalidateAll()
	}
	return err
}

// classicSource is the security group that stands for a load balancer where nodes let it in: the first one that is named,
// else its own. AWS lists its groups in any order, so that a place among them says nothing. It is "" where the load balancer
// does not have that group yet, or any more; a reconciliation sees to it first.
func (l *loadBalancers) classicSource(ctx context.Context, s settings, lb *classicBalancer) (string, error) {
	given := l.givenClassicGroups(s)
	if len(given) == 0 {
		own, found, err := l.groups.named(ctx, classicGroupName(aws.ToString(lb.LoadBalancerName)))
		if err != nil || !found {
			return "", err
		}
		given = []string{own.id}
	}
	if !slices.Contains(lb.SecurityGroups, given[0]) {
		return "", nil
	}
	return given[0], nil
}

// dropClassicGroup deletes the group of its own that a load balancer does not have any more.
func (l *loadBalancers) dropClassicGroup(ctx context.Context, service *v1.Service, want classicWish) error {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	g, found, err := l.groups.named(ctx, classicGroupName(want.name))
	if err != nil || !found || slices.Contains(want.groups, g.id) || !id.owned(g.tags) {
		return err
	}
	if err := l.closeGroup(ctx, g.id); err != nil {
		return err
	}
	klog.InfoS("The load balancer has other security groups now", "service", klog.KObj(service), "group", g.id)
	return l.groups.remove(ctx, g)
}

// closeGroup removes the rules of other groups that let a group in.
func (l *loadBalancers) closeGroup(ctx context.Context, id string) error {
	all, err := l.groups.all(ctx)
	if err != nil {
		return err
	}
	mine := func(r rule) bool { return r.source.group == id }
	for _, g := range sortedGroups(all) {
		if g.id == id || !slices.ContainsFunc(g.rules, mine) {
			continue
		}
		if err := l.groups.sync(ctx, g.id, nil, mine); err != nil {
			return err
		}
	}
	return nil
}

func sortedGroups(all map[string]securityGroup) []securityGroup {
	list := make([]securityGroup, 0, len(all))
	for _, g := range all {
		list = append(list, g)
	}
	slices.SortFunc(list, func(a, b securityGroup) int {
		if a.id < b.id {
			return -1
		}
		return 1
	})
	return list
}

// updateClassic brings instances and openings up to date.
func (l *loadBalancers) updateClassic(ctx context.Context, service *v1.Service, s settings, lb *classicBalancer, backends []backend) error {
	l.reportBlind(service, s, len(lb.Instances))
	from, err := l.classicSource(ctx, s, lb)
	if err != nil {
		return err
	}
	if err := l.classicNodeRules(ctx, service, from, backends, opening); err != nil {
		return err
	}
	fresh, eligible := backendIDs(backends)
	steps := planClassicInstances(lb, stayingInstances(lb, s, fresh, eligible))
	if err := l.run(ctx, service, steps, nil); err != nil {
		return l.notDone(err, func() { l.balancers.classics.Invalidate(balancerName(service)) })
	}
	return l.classicNodeRules(ctx, service, from, backends, closing)
}
