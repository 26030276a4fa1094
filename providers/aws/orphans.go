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
	orphans := []guard.Orphan{}
	for _, find := range []func(context.Context, *identity, map[string]bool) ([]guard.Orphan, error){
		c.orphanClassics, c.orphanNetworks,
		func(ctx context.Context, id *identity, _ map[string]bool) ([]guard.Orphan, error) {
			return c.orphanTargetGroups(ctx, id, servedNames)
		},
		c.orphanGroups,
	} {
		found, err := find(ctx, id, living)
		if err != nil {
			return nil, err
		}
		orphans = append(orphans, found...)
	}
	slices.SortFunc(orphans, func(a, b guard.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

// orphanOf returns the Service that tags name, if they say that the cluster owns the thing.
func orphanOf(id *identity, tags map[string]string) (string, bool) {
	return tags[serviceTag], id.owned(tags) && tags[serviceTag] != ""
}

func (c *cloud) orphanClassics(ctx context.Context, id *identity, living map[string]bool) ([]guard.Orphan, error) {
	b := c.loadBalancers.balancers
	all, err := b.classics.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []guard.Orphan
	for _, lb := range all {
		name := aws.ToString(lb.LoadBalancerName)
		if !controllerName.MatchString(name) || living[name] {
			continue
		}
		tags, err := tagsIfThere(b.classicTags.Get(ctx, name, inventory.Query{MaxAge: tagsMaxAge}))
		if err != nil {
			return nil, err
		}
		if service, orphan := orphanOf(id, tags); orphan {
			orphans = append(orphans, guard.Orphan{Kind: orphanClassic, ID: name, Name: service, Created: created(lb.CreatedTime)})
		}
	}
	return orphans, nil
}

// tagsIfThere are no tags where the thing is gone meanwhile.
func tagsIfThere(found named[map[string]string], err error) (map[string]string, error) {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return map[string]string{}, nil
	}
	return found.value, err
}

func (c *cloud) orphanNetworks(ctx context.Context, id *identity, living map[string]bool) ([]guard.Orphan, error) {
	b := c.loadBalancers.balancers
	all, err := b.networks.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []guard.Orphan
	for _, lb := range all {
		if living[aws.ToString(lb.LoadBalancerName)] {
			continue
		}
		arn := aws.ToString(lb.LoadBalancerArn)
		tags, err := tagsIfThere(b.networkTags.Get(ctx, arn, inventory.Query{MaxAge: tagsMaxAge}))
		if err != nil {
			return nil, err
		}
		if service, orphan := orphanOf(id, tags); orphan {
			orphans = append(orphans, guard.Orphan{Kind: orphanNetwork, ID: arn, Name: service, Created: created(lb.CreatedTime)})
		}
	}
	return orphans, nil
}

func created(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// orphanTargetGroups finds target groups that no load balancer uses.
func (c *cloud) orphanTargetGroups(ctx context.Context, id *identity, served map[string]bool) ([]guard.Orphan, error) {
	b := c.loadBalancers.balancers
	all, err := b.groups.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []guard.Orphan
	for _, t := range all {
		if len(t.LoadBalancerArns) > 0 || aws.ToString(t.VpcId) != id.vpc {
			continue
		}
		arn := aws.ToString(t.TargetGroupArn)
		tags, err := tagsIfThere(b.networkTags.Get(ctx, arn, inventory.Query{MaxAge: tagsMaxAge}))
		if err != nil {
			return nil, err
		}
		if service, orphan := orphanOf(id, tags); orphan && !served[service] {
			orphans = append(orphans, guard.Orphan{Kind: orphanTargetGroup, ID: arn, Name: service})
		}
	}
	return orphans, nil
}

// orphanGroups finds the security groups of classic load balancers of no Service.
func (c *cloud) orphanGroups(ctx context.Context, id *identity, living map[string]bool) ([]guard.Orphan, error) {
	all, err := c.loadBalancers.groups.known.All(ctx, inventory.Query{MaxAge: orphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []guard.Orphan
	for _, g := range all {
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
		err = l.balancers.deleteClassic(ctx, o.ID)
	case orphanNetwork:
		err = l.balancers.deleteNetwork(ctx, o.ID)
		l.balancers.networks.Distrust() // it is known by its name, which an orphan does not tell
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
