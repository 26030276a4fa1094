package aws

import (
	"context"
	"errors"
	"maps"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// groupNames are security groups by the place that names them.
type groupNames map[string][]string

// placeClassicGroup is where the operator names a group for all classic load balancers.
const placeClassicGroup = "option ElbSecurityGroup"

// namedClassicGroups are the security groups of a classic load balancer that somebody names.
func namedClassicGroups(s settings, c Config) groupNames {
	named := groupNames{"annotation " + annotationGroups: s.Groups, "annotation " + annotationExtraGroups: s.ExtraGroups}
	if len(s.Groups) == 0 && c.ClassicGroup != "" {
		named[placeClassicGroup] = []string{c.ClassicGroup}
	}
	return named
}

// check refuses groups that a load balancer cannot have, or that the author of a Service may not choose. It skips groups already attached,
// so that existing Services keep working.
func (s *securityGroups) check(ctx context.Context, service *v1.Service, attached []string, named groupNames) error {
	for _, place := range slices.Sorted(maps.Keys(named)) {
		for _, groupID := range named[place] {
			if slices.Contains(attached, groupID) {
				continue
			}
			if reason, err := s.refusalOf(ctx, service, groupID, place == placeClassicGroup); err != nil {
				return err
			} else if reason != "" {
				return &schema.Problem{Place: place, Value: groupID, Reason: reason}
			}
		}
	}
	return nil
}

// refusalOf says why a load balancer may not have a group; "" where it may.
func (s *securityGroups) refusalOf(ctx context.Context, service *v1.Service, groupID string, byOperator bool) (string, error) {
	_, id, err := s.api.connect(ctx)
	if err != nil {
		return "", err
	}
	all, err := s.all(ctx)
	if err != nil {
		return "", err
	}
	g, known := all[groupID]
	if !known { // it may be new
		g, err = s.inventory.Get(ctx, groupID, inventory.Query{MaxAge: groupsMaxAge, MaxMissAge: groupsMaxMiss})
		if errors.Is(err, cloudapi.ErrNotFound) {
			return "is not a security group of the VPC " + id.vpc + "; name one that exists", nil
		}
		if err != nil {
			return "", err
		}
	}
	switch {
	case byOperator:
		return "", nil
	case madeForLoadBalancer(id, g) && g.name != classicGroupName(loadBalancerName(service)):
		return "(" + g.name + ") was made for the load balancer of another Service, and goes with it; name a group of yours", nil
	case id.isOwnedByOther(g.tags):
		return "(" + g.name + ") is owned by another cluster, whose machines would reach all ports of the nodes; name a group of this cluster's, or of none", nil
	}
	return "", nil
}
