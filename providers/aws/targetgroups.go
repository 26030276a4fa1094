package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// targetGroups finds the target groups of network load balancers, and decides which of them were made for a Service.
type targetGroups struct{ *shared }

// groupsOf returns the target groups of a load balancer and the unused ones made for its Service, because AWS shows a deleted load balancer
// for a while. lb is nil if there is no load balancer.
func (c targetGroups) groupsOf(
	ctx context.Context, service *v1.Service, lb *networkLoadBalancer, maxAge time.Duration,
) ([]elbv2types.TargetGroup, error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	all, err := c.records.targetGroups.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return nil, err
	}
	gone := func(arn string) bool {
		return loadBalancerOfARN(arn) == loadBalancerName(service) && (lb == nil || arn != aws.ToString(lb.LoadBalancerArn))
	}
	var list []elbv2types.TargetGroup
	for _, t := range all {
		switch {
		case lb != nil && slices.Contains(t.LoadBalancerArns, aws.ToString(lb.LoadBalancerArn)):
			list = append(list, *t)
		case len(slices.DeleteFunc(slices.Clone(t.LoadBalancerArns), gone)) == 0 && strings.HasPrefix(
			aws.ToString(t.TargetGroupName), targetGroupPrefix(service),
		) && aws.ToString(t.VpcId) == id.vpc:
			ours, err := c.isUnusedOneOf(ctx, id, t, service)
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

// isUnusedOneOf reports whether the tags of a target group that none uses say that it was made for the Service.
func (c targetGroups) isUnusedOneOf(ctx context.Context, id *identity, t *elbv2types.TargetGroup, service *v1.Service) (bool, error) {
	if len(t.LoadBalancerArns) > 0 {
		return true, nil // those that are gone had the Service's UID in their names
	}
	tags, err := c.tags.networkTags(ctx, aws.ToString(t.TargetGroupArn))
	if c.tags.isUnreadable(err) {
		return c.hasPortName(id, service, aws.ToString(t.TargetGroupName)), nil
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		c.records.forgetTargetGroup(aws.ToString(t.TargetGroupArn))
		return false, nil
	}
	return err == nil && id.isOwned(tags) && tags[serviceTag] == serviceName(service), err
}

// hasPortName reports whether a target group has the name of one of the Service's ports; the name has a checksum of cluster and Service.
func (c targetGroups) hasPortName(id *identity, service *v1.Service, name string) bool {
	s, _, _ := parseSettings(service, c.config)
	return slices.ContainsFunc(
		networkListeners(id.clusterID, service, s, c.config), func(w desiredListener) bool { return w.group.name == name },
	)
}

// isMadeFor reports whether a target group was made for the Service and is deleted with it. People attach others by hand.
func (c targetGroups) isMadeFor(ctx context.Context, service *v1.Service, t *elbv2types.TargetGroup) (bool, error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return false, err
	}
	name, arn := aws.ToString(t.TargetGroupName), aws.ToString(t.TargetGroupArn)
	switch {
	case !strings.HasPrefix(name, targetGroupPrefix(service)):
		return false, nil
	case c.hasPortName(id, service, name):
		return true, nil
	}
	tags, err := c.tags.networkTags(ctx, arn)
	if c.tags.isUnreadable(err) || errors.Is(err, cloudapi.ErrNotFound) {
		return true, nil // its name and its load balancer are the Service's
	}
	of, told := tags[serviceTag]
	return err == nil && id.otherOwner(tags) == "" && (!told || of == serviceName(service)), err
}

// checkListed returns an error where a load balancer sends to target groups, and none was listed: they would stay behind.
func (c targetGroups) checkListed(ctx context.Context, lb *networkLoadBalancer, listed []elbv2types.TargetGroup) error {
	if lb == nil || len(listed) > 0 {
		return nil
	}
	arn := aws.ToString(lb.LoadBalancerArn)
	listeners, err := c.records.listeners.Get(ctx, arn, inventory.Query{MaxAge: updateTargetsMaxAge})
	if err != nil {
		return c.invalidateMissingNetwork(lb, err)
	}
	if slices.ContainsFunc(listeners.value, func(one elbv2types.Listener) bool { return forwardsTo(&one) != "" }) {
		c.records.targetGroups.InvalidateAll()
		return fmt.Errorf("listing the target groups of load balancer %s: %w", aws.ToString(lb.LoadBalancerName), errIncomplete)
	}
	return nil
}

// noteAttached notes that a target group is used by a load balancer, which its own record does not show yet.
func (c targetGroups) noteAttached(group, lb string, err error) {
	known, ok := c.records.targetGroups.Peek(group)
	if err != nil || !ok {
		c.records.targetGroups.InvalidateAll()
		return
	}
	if !slices.Contains(known.LoadBalancerArns, lb) {
		changed := *known
		changed.LoadBalancerArns = append(slices.Clone(known.LoadBalancerArns), lb)
		c.records.targetGroups.PutPartial(&changed)
	}
}
