package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// leftovers is what belongs to a Service beside its load balancer. It is found by names, descriptions and tags, so that it
// is found when the load balancer is gone, too.
type leftovers struct {
	targetGroups []elbv2types.TargetGroup
	groups       []securityGroup
	// opened are security groups with rules for the load balancer.
	opened []securityGroup
}

func (l leftovers) any() bool { return len(l.targetGroups)+len(l.groups)+len(l.opened) > 0 }

func (l *loadBalancers) leftovers(ctx context.Context, cluster string, service *v1.Service, p pair) (leftovers, error) {
	var left leftovers
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return left, err
	}
	if left.targetGroups, err = l.groupsOf(ctx, service, p.network, deleteMaxAge); err != nil {
		return left, err
	}
	all, err := l.groups.all(ctx)
	if err != nil {
		return left, err
	}
	name := balancerName(service)
	own, attached := []string{classicGroupName(name), managedGroupName(cluster, service)}, attachedNetwork(p.network)
	for _, g := range sortedGroups(all) {
		made := slices.Contains(own, g.name) || (slices.Contains(attached, g.id) && managedFor(id, service, g))
		if made && id.owned(g.tags) && !l.spared(service, g.id) {
			left.groups = append(left.groups, g)
		}
	}
	if !l.config.NoNodeGroupRules {
		left.opened, err = l.openedFor(ctx, service, all, left.groups)
	}
	return left, err
}

// openedFor are the security groups with rules for a Service's load balancer that nobody else needs.
func (l *loadBalancers) openedFor(ctx context.Context, service *v1.Service, all map[string]securityGroup, own []securityGroup) ([]securityGroup, error) {
	name := balancerName(service)
	classic, err := l.classicRulesOf(ctx, service, nil)
	if err != nil {
		return nil, err
	}
	changes := classic.changes()
	if err := l.spareShared(ctx, &classic, &changes); err != nil {
		return nil, err
	}
	var opened []securityGroup
	for _, g := range sortedGroups(all) {
		opens := func(r rule) bool {
			return slices.ContainsFunc(own, func(o securityGroup) bool { return o.id == r.source.group && o.id != g.id })
		}
		named := func(r rule) bool { return ofBalancer(r, name) }
		switch {
		case slices.ContainsFunc(g.rules, opens), !classic.change(g).empty():
		case slices.ContainsFunc(g.rules, named) && !networkNodeChange(g, l.nothingFor(name), l.otherNetworks(ctx, name)).empty():
		default:
			continue
		}
		opened = append(opened, g)
	}
	return opened, nil
}

// nothingFor is the wish of a load balancer that goes.
func (l *loadBalancers) nothingFor(name string) nodeRuleWish {
	w := nodeRuleWish{name: name, goes: true}
	if l.config.HealthProbeMode == probeShared {
		w.sharedPort = int32(l.config.SharedProbePort) //nolint:gosec // the table bounds it
	}
	return w
}

// spared are security groups that users named: they are theirs, whatever their tags say.
func (l *loadBalancers) spared(service *v1.Service, groupID string) bool {
	s, _, _ := Annotations.Parse(service.Annotations)
	return groupID == l.config.ClassicGroup || slices.Contains(s.Groups, groupID) || slices.Contains(s.ExtraGroups, groupID)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer. Each try begins with what is there: rules of nodes, the
// load balancer, its target groups, its security group. What the load balancer has not let go of yet is waited for.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	return patiently(ctx, func() error { return l.delete(ctx, cluster, service) })
}

func (l *loadBalancers) delete(ctx context.Context, cluster string, service *v1.Service) error {
	ctx = evidence.With(ctx, evidence.Demand{NotBefore: time.Now()}) // nothing is deleted on what was known before
	p, err := l.findSurely(ctx, service)
	if err != nil {
		return err
	}
	if err := l.checkOwner(ctx, p); err != nil {
		if _, notOurs := errors.AsType[*ownership.NotOursError](err); notOurs {
			klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(service), "reason", err.Error())
			return nil
		}
		return err
	}
	left, err := l.leftovers(ctx, cluster, service, p)
	if err != nil {
		return err
	}
	if err := l.hiddenRules(ctx, service, p); err != nil {
		return err
	}
	if err := l.groupsListed(ctx, service, p.network, left.targetGroups); err != nil {
		return err
	}
	steps := []func() error{func() error { return l.closeNodes(ctx, service, p, left) }, func() error { return l.deleteBalancers(ctx, service, p) }}
	if p.network != nil {
		slices.Reverse(steps) // one that is protected from deletion goes on serving
	}
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	if err := l.hiddenGroups(service, left.targetGroups); err != nil {
		return err
	}
	if err := l.deleteTargetGroups(ctx, service, left.targetGroups); err != nil {
		return err
	}
	for _, g := range left.groups {
		if err := patiently(ctx, func() error { return l.groups.remove(ctx, g) }); err != nil {
			return err
		}
	}
	return nil
}

// deleteTargetGroups deletes those target groups that were made for the Service.
func (l *loadBalancers) deleteTargetGroups(ctx context.Context, service *v1.Service, groups []elbv2types.TargetGroup) error {
	for _, t := range groups {
		if ours, err := l.groupMayGo(ctx, service, &t); err != nil {
			return err
		} else if !ours {
			continue
		}
		klog.InfoS("Deleting target group", "service", klog.KObj(service), "name", aws.ToString(t.TargetGroupName))
		del := step{what: "deleting target group " + aws.ToString(t.TargetGroupName), input: &elbv2.DeleteTargetGroupInput{TargetGroupArn: t.TargetGroupArn}}
		if err := patiently(ctx, func() error { return l.balancers.run(ctx, del, nil) }); err != nil {
			return err
		}
	}
	return nil
}

// groupMayGo reports whether a target group of a load balancer was made for its Service, and goes with it. People attach others by
// hand.
func (l *loadBalancers) groupMayGo(ctx context.Context, service *v1.Service, t *elbv2types.TargetGroup) (bool, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return false, err
	}
	name, arn := aws.ToString(t.TargetGroupName), aws.ToString(t.TargetGroupArn)
	switch {
	case !strings.HasPrefix(name, targetGroupPrefix(service)):
		return false, nil
	case l.namedFor(id, service, name):
		return true, nil
	}
	tags, err := l.networkTags(ctx, arn)
	if l.tagsUnknown(err) || errors.Is(err, cloudapi.ErrNotFound) {
		return true, nil // its name and its load balancer are the Service's
	}
	of, told := tags[serviceTag]
	return err == nil && id.otherOwner(tags) == "" && (!told || of == serviceName(service)), err
}

// hiddenGroups returns a wish for patience while target groups of the Service that were just made are not among those listed.
func (l *loadBalancers) hiddenGroups(service *v1.Service, listed []elbv2types.TargetGroup) error {
	for _, arn := range l.balancers.newGroups.keys() {
		if strings.Contains(arn, ":targetgroup/"+targetGroupPrefix(service)) && !slices.ContainsFunc(listed, func(t elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) == arn }) {
			return l.balancers.newGroups.check(arn, "target group "+arn)
		}
	}
	return nil
}

// groupsListed returns an error where a load balancer sends to target groups and none was listed: they would stay behind.
func (l *loadBalancers) groupsListed(ctx context.Context, service *v1.Service, lb *elbv2types.LoadBalancer, listed []elbv2types.TargetGroup) error {
	if lb == nil || len(listed) > 0 {
		return nil
	}
	if err := l.hiddenGroups(service, listed); err != nil {
		return err
	}
	arn := aws.ToString(lb.LoadBalancerArn)
	listeners, err := l.balancers.listeners.Get(ctx, arn, inventory.Query{MaxAge: updateTargetsMaxAge})
	if err != nil {
		return l.networkGone(lb, err)
	}
	if slices.ContainsFunc(listeners.value, func(one elbv2types.Listener) bool { return forwardsTo(&one) != "" }) {
		l.balancers.groups.InvalidateAll()
		return fmt.Errorf("listing the target groups of load balancer %s: %w", aws.ToString(lb.LoadBalancerName), errIncomplete)
	}
	return nil
}

// hiddenRules returns a wish for patience while rules that were just made for the load balancer are not among those listed.
func (l *loadBalancers) hiddenRules(ctx context.Context, service *v1.Service, p pair) error {
	all, err := l.groups.all(ctx)
	if err != nil {
		return err
	}
	name := balancerName(service)
	return l.groups.added.hidden(all, func(r rule) bool {
		marked, _ := classicMark(r)
		return ofBalancer(r, name) || marked == name || (p.classic != nil && r.protocol == protocolAll && slices.Contains(p.classic.SecurityGroups, r.source.group))
	})
}

// closeNodes removes the rules that let the load balancer in to nodes.
func (l *loadBalancers) closeNodes(ctx context.Context, service *v1.Service, p pair, left leftovers) error {
	if l.config.NoNodeGroupRules {
		return nil
	}
	if err := l.changeNodeRules(ctx, l.nothingFor(balancerName(service)), nil, wholeChange); err != nil {
		return err
	}
	for _, g := range left.groups {
		if err := l.closeGroup(ctx, g.id); err != nil {
			return err
		}
	}
	return l.closeClassic(ctx, service, p.classic)
}

// classicSources are the security groups that may stand for a load balancer in rules of nodes, beside its own: the one that is
// named first, or those that were named before.
func (l *loadBalancers) classicSources(service *v1.Service, lb *classicBalancer) []string {
	s, _, _ := Annotations.Parse(service.Annotations)
	if given := l.givenClassicGroups(s); len(given) > 0 && slices.Contains(lb.SecurityGroups, given[0]) {
		return given[:1]
	}
	return slices.Sorted(slices.Values(without(lb.SecurityGroups, s.ExtraGroups)))
}

// deleteBalancers deletes the load balancers themselves.
func (l *loadBalancers) deleteBalancers(ctx context.Context, service *v1.Service, p pair) error {
	name := balancerName(service)
	if p.classic != nil {
		klog.InfoS("Deleting classic load balancer", "service", klog.KObj(service), "name", name)
		if err := l.balancers.deleteClassic(ctx, name); err != nil {
			return err
		}
	}
	if p.network == nil {
		return nil
	}
	klog.InfoS("Deleting network load balancer", "service", klog.KObj(service), "name", name)
	if err := l.balancers.deleteNetwork(ctx, aws.ToString(p.network.LoadBalancerArn)); err != nil {
		l.balancers.networks.Invalidate(name)
		return err
	}
	l.balancers.networks.Forget(name)
	return nil
}
