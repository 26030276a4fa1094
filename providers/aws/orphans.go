package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// orphanMaxAge is how old the listings may be in which orphans are looked for; nothing is deleted on them.
const orphanMaxAge = 10 * time.Minute

// Kinds of orphans.
const (
	orphanClassic     = "classic load balancer"
	orphanNetwork     = "network load balancer"
	orphanTargetGroup = "target group"
	orphanGroup       = "security group"
)

// Orphans implements guard.OrphanFinder: what the tags give to this cluster and no Service has. Target groups and security
// groups count where no load balancer uses them.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]guard.Orphan, error) {
	_, id, err := c.api.ready(ctx)
	if err != nil {
		return nil, err
	}
	living, servedNames := map[string]bool{}, map[string]bool{}
	for _, s := range services {
		if s.Spec.Type == v1.ServiceTypeLoadBalancer || len(s.Finalizers) > 0 {
			living[balancerName(s)], servedNames[serviceName(s)] = true, true
		}
	}
	b, q := c.loadBalancers.balancers, inventory.Query{MaxAge: orphanMaxAge}
	orphans := []guard.Orphan{}
	classics, err := b.classics.All(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, lb := range classics {
		name := aws.ToString(lb.LoadBalancerName)
		if !controllerName.MatchString(name) || living[name] {
			continue
		}
		tags, err := b.classicTags.Get(ctx, name, inventory.Query{MaxAge: tagsMaxAge})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return nil, err
		}
		if err == nil && id.owned(tags.value) && tags.value[serviceTag] != "" {
			orphans = append(orphans, guard.Orphan{Kind: orphanClassic, ID: name, Name: tags.value[serviceTag], Created: created(lb.CreatedTime)})
		}
	}
	networks, err := b.networks.All(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, lb := range networks {
		name, arn := aws.ToString(lb.LoadBalancerName), aws.ToString(lb.LoadBalancerArn)
		if living[name] {
			continue
		}
		tags, err := b.networkTags.Get(ctx, arn, inventory.Query{MaxAge: tagsMaxAge})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return nil, err
		}
		if err == nil && id.owned(tags.value) && tags.value[serviceTag] != "" {
			orphans = append(orphans, guard.Orphan{Kind: orphanNetwork, ID: arn, Name: tags.value[serviceTag], Created: created(lb.CreatedTime)})
		}
	}
	rest, err := c.orphanParts(ctx, id, living, servedNames)
	orphans = append(orphans, rest...)
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, err
}

func created(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// orphanParts finds target groups and security groups that load balancers left behind.
func (c *cloud) orphanParts(ctx context.Context, id *identity, living, served map[string]bool) ([]guard.Orphan, error) {
	b, q := c.loadBalancers.balancers, inventory.Query{MaxAge: orphanMaxAge}
	var orphans []guard.Orphan
	targetGroups, err := b.groups.All(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, t := range targetGroups {
		if len(t.LoadBalancerArns) > 0 || aws.ToString(t.VpcId) != id.vpc {
			continue
		}
		tags, err := b.networkTags.Get(ctx, aws.ToString(t.TargetGroupArn), inventory.Query{MaxAge: tagsMaxAge})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return nil, err
		}
		if err == nil && id.owned(tags.value) && tags.value[serviceTag] != "" && !served[tags.value[serviceTag]] {
			orphans = append(orphans, guard.Orphan{Kind: orphanTargetGroup, ID: aws.ToString(t.TargetGroupArn), Name: tags.value[serviceTag]})
		}
	}
	groups, err := c.loadBalancers.groups.known.All(ctx, q)
	if err != nil {
		return nil, err
	}
	for _, g := range groups {
		name, own := strings.CutPrefix(g.name, classicGroupPrefix)
		if own && id.owned(g.tags) && controllerName.MatchString(name) && !living[name] {
			orphans = append(orphans, guard.Orphan{Kind: orphanGroup, ID: g.id, Name: g.name})
		}
	}
	return orphans, nil
}

// DeleteOrphan implements guard.OrphanFinder.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	l := c.loadBalancers
	var err error
	switch o.Kind {
	case orphanClassic:
		_, err = call(ctx, c.api, "deleting classic load balancer "+o.ID, func(ctx context.Context, c *clients, in *elb.DeleteLoadBalancerInput) (*elb.DeleteLoadBalancerOutput, error) {
			return c.elb.DeleteLoadBalancer(ctx, in)
		}, &elb.DeleteLoadBalancerInput{LoadBalancerName: aws.String(o.ID)})
		l.balancers.classics.Invalidate(o.ID)
	case orphanNetwork:
		_, err = call(ctx, c.api, "deleting network load balancer "+o.ID, func(ctx context.Context, c *clients, in *elbv2.DeleteLoadBalancerInput) (*elbv2.DeleteLoadBalancerOutput, error) {
			return c.elbv2.DeleteLoadBalancer(ctx, in)
		}, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: aws.String(o.ID)})
		l.balancers.networks.Distrust()
	case orphanTargetGroup:
		err = l.balancers.run(ctx, step{what: "deleting target group " + o.ID, input: &elbv2.DeleteTargetGroupInput{TargetGroupArn: aws.String(o.ID)}}, nil)
	case orphanGroup:
		if err = l.closeGroup(ctx, o.ID); err == nil {
			err = l.groups.remove(ctx, securityGroup{id: o.ID, name: o.Name})
		}
	default:
		return fmt.Errorf("%s %s is of no kind that is known here", o.Kind, o.ID)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}
