package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var errNoMark = errors.New("the identity of the cluster is unknown: grant get on the namespace kube-system")

var _ guard.OrphanFinder = (*cloud)(nil)

const (
	kindFrontend = "frontend"
	kindAddress  = "public IP address"
)

// Orphans implements guard.OrphanFinder: what carries the mark of this cluster and belongs to no Service. Of load balancers, which all
// Services share, it is the frontends.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]guard.Orphan, error) {
	mark, err := c.reconciler.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	if mark == "" {
		return nil, errNoMark
	}
	uid, _ := ownership.Marked([]string{mark})
	ours := func(d doc) bool { return tagsOf(d)[clusterTag] == uid }
	orphans := []guard.Orphan{}
	lbs, err := c.reconciler.resources.loadBalancers.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	for _, lb := range lbs {
		for _, f := range docs(lb, "properties", "frontendIPConfigurations") {
			held := slices.ContainsFunc(list, func(s *v1.Service) bool { return ownedBy(baseName(s), str(f, "name")) })
			if ours(lb) && madeName(str(f, "name")) && !held && inUse(lb, f, str(f, "name")[:32]) == "" {
				orphans = append(orphans, guard.Orphan{Kind: kindFrontend, ID: str(f, "id"), Name: str(f, "name")})
			}
		}
	}
	addresses, err := c.reconciler.resources.addressesOf(c.reconciler.config.Group).All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	for _, a := range addresses {
		names, given := servicesOf(a)
		held := slices.ContainsFunc(list, func(s *v1.Service) bool {
			return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, serviceName(s)) })
		})
		if given && ours(a) && !held && value(a, "properties", "ipConfiguration") == nil {
			orphans = append(orphans, guard.Orphan{Kind: kindAddress, ID: str(a, "id"), Name: str(a, "name")})
		}
	}
	return orphans, nil
}

// madeName reports whether a name has the form that controllers give: "a" and a UID without dashes, cut at 32 characters.
func madeName(name string) bool {
	if len(name) < 32 || name[0] != 'a' {
		return false
	}
	return strings.Trim(name[1:32], "0123456789abcdef") == ""
}

// DeleteOrphan implements guard.OrphanFinder. Time has passed since it was found: it is looked at again, with the Services of now.
func (c *cloud) DeleteOrphan(ctx context.Context, o guard.Orphan) error {
	list, err := c.reconciler.cluster.Living(ctx)
	if err != nil {
		return err
	}
	found, err := c.Orphans(ctx, list)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(other guard.Orphan) bool { return other.ID == o.ID }) {
		return fmt.Errorf("%s %s is no orphan any more", o.Kind, o.Name)
	}
	r := c.reconciler
	if o.Kind == kindAddress {
		_, err := r.resources.documents.submit(ctx, document{id: o.ID, what: "public IP address " + o.Name, version: networkVersion}, func(d doc) error {
			if d == nil {
				return errKeep
			}
			return errRemove
		})
		return err
	}
	lb := ownerOf(o.ID)
	target := document{id: lb, what: "load balancer " + nameOf(lb), version: networkVersion, beforeRemoval: r.members.decouple}
	_, err = r.resources.documents.submit(ctx, target, func(d doc) error {
		if d == nil {
			return errKeep
		}
		changed, err := applyService(d, o.Name[:32], nil, r.config, around{})
		switch {
		case err != nil:
			return err
		case empty(d):
			return errRemove
		case !changed:
			return errKeep
		}
		return nil
	})
	return err
}
