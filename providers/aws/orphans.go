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
		used, err := c.inUse(ctx, t, orphanMaxAge)
		if err != nil {
			return nil, err
		}
		if used || aws.ToString(t.VpcId) != id.vpc {
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

// inUse reports whether a target group has a load balancer. AWS goes on showing some that were deleted; those of other
// controllers count as living, for they are not known here.
func (c *cloud) inUse(ctx context.Context, t *elbv2types.TargetGroup, maxAge time.Duration) (bool, error) {
	for _, arn := range t.LoadBalancerArns {
		name := balancerOfARN(arn)
		if !controllerName.MatchString(name) {
			return true, nil
		}
		lb, err := c.loadBalancers.balancers.networks.Get(ctx, name, inventory.Query{MaxAge: maxAge, MaxMissAge: maxAge})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil:
			return false, err
		case aws.ToString(lb.LoadBalancerArn) == arn:
			return true, nil
		}
	}
	return false, nil
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

// errNotOrphan is the answer where what was an orphan has an owner by now.
var errNotOrphan = errors.New("is not the cluster's any more, or in use; it is left alone")

// DeleteOrphan implements guard.OrphanFinder. What was found is looked at again first: people may have taken it over.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	_, id, err := c.api.ready(ctx)
	if err != nil {
		return err
	}
	l := c.loadBalancers
	switch o.Kind {
	case orphanClassic:
		if err = l.stillOrphan(ctx, id, o, l.balancers.classicTags); err == nil {
			err = l.balancers.deleteClassic(ctx, o.ID)
		}
	case orphanNetwork:
		if err = l.stillOrphan(ctx, id, o, l.balancers.networkTags); err == nil {
			err = l.balancers.deleteNetwork(ctx, o.ID)
		}
		l.balancers.networks.Forget(balancerOfARN(o.ID))
	case orphanTargetGroup:
		err = c.deleteOrphanTargetGroup(ctx, id, o)
	case orphanGroup:
		err = c.deleteOrphanGroup(ctx, id, o)
	default:
		return fmt.Errorf("%s %s is of no kind that is known here", o.Kind, o.ID)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

// stillOrphan reads the tags of something that is about to be deleted.
func (*loadBalancers) stillOrphan(ctx context.Context, id *identity, o guard.Orphan, tags *inventory.Inventory[string, named[map[string]string]]) error {
	found, err := tags.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if service, orphan := orphanOf(id, found.value); !orphan || service != o.Name {
		return fmt.Errorf("%s %s %w", o.Kind, o.ID, errNotOrphan)
	}
	return nil
}

func (c *cloud) deleteOrphanTargetGroup(ctx context.Context, id *identity, o guard.Orphan) error {
	b := c.loadBalancers.balancers
	all, err := b.groups.All(ctx, inventory.Query{})
	if err != nil {
		return err
	}
	n := slices.IndexFunc(all, func(t *elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) == o.ID })
	if n < 0 {
		return nil
	}
	if err := c.loadBalancers.stillOrphan(ctx, id, o, b.networkTags); err != nil {
		return err
	}
	used, err := c.inUse(ctx, all[n], 0)
	if err != nil {
		return err
	}
	if used {
		return fmt.Errorf("%s %s %w", o.Kind, o.ID, errNotOrphan)
	}
	return b.run(ctx, step{what: "deleting target group " + o.ID, input: &elbv2.DeleteTargetGroupInput{TargetGroupArn: aws.String(o.ID)}}, nil)
}

func (c *cloud) deleteOrphanGroup(ctx context.Context, id *identity, o guard.Orphan) error {
	groups := c.loadBalancers.groups
	g, err := groups.known.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if !id.owned(g.tags) || g.name != o.Name {
		return fmt.Errorf("%s %s %w", o.Kind, o.ID, errNotOrphan)
	}
	if err := c.loadBalancers.closeGroup(ctx, o.ID); err != nil {
		return err
	}
	return groups.remove(ctx, g)
}
