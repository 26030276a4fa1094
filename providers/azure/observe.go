package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Observe reads the load balancers, the public addresses and the security group, which all Services share.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (*observed, error) {
	all, err := r.resources.loadBalancers.All(ctx, inventory.Query{MaxAge: lookAge})
	if err != nil {
		return nil, err
	}
	o := &observed{cluster: q.Cluster, pools: r.config.ownPools(q.Service)}
	names := r.config.namesOf(q.Cluster)
	r.latest.note(q)
	for _, lb := range all {
		if slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, str(lb, "name")) }) {
			o.lbs = append(o.lbs, lb)
		}
	}
	slices.SortFunc(o.lbs, func(a, b doc) int { return strings.Compare(docID(a), docID(b)) })
	if err := r.observeNodes(ctx, q, o); err != nil {
		return nil, err
	}
	if q.Purpose == services.UpdateNodes {
		if s, _, err := parseSettings(q.Service); err == nil && s.NoFloating && !s.NoSecurity {
			return o, r.observeGroup(ctx, q, o)
		}
		return o, nil
	}
	if err := r.observeAddresses(ctx, q, o); err != nil {
		return nil, err
	}
	return o, r.observeGroup(ctx, q, o)
}

// observeNodes reads what is to be known of nodes: the machines of members, and with several load balancers the sets of machines.
func (r *reconciler) observeNodes(ctx context.Context, q services.Request, o *observed) (err error) {
	if needsMembers := q.Purpose != services.Lookup && q.Purpose != services.Delete; needsMembers && r.config.PoolType == poolNIC {
		if o.machines, err = r.members.machinesOf(ctx, o.lbs...); err != nil {
			return err
		}
	}
	if len(r.config.several) > 0 && len(q.Nodes) > 0 {
		return r.readSets(ctx, o, q.Nodes)
	}
	return nil
}

// observeAddresses reads the public addresses that a Service may have.
func (r *reconciler) observeAddresses(ctx context.Context, q services.Request, o *observed) error {
	groups := []string{r.addressGroup(q.Service)}
	if groups[0] != r.config.Group {
		groups = append(groups, r.config.Group)
	}
	for _, g := range groups {
		list, err := r.resources.addressesOf(g).All(ctx, inventory.Query{MaxAge: lookAge})
		if err != nil {
			return err
		}
		o.addresses = append(o.addresses, list...)
	}
	slices.SortFunc(o.addresses, func(a, b doc) int { return strings.Compare(docID(a), docID(b)) })
	return nil
}

func (r *reconciler) observeGroup(ctx context.Context, q services.Request, o *observed) error {
	if q.Purpose == services.Lookup {
		return nil
	}
	if r.config.SecurityGroup == "" {
		if q.Purpose == services.Delete {
			return nil
		}
		return &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: "reading the security group", Message: "securityGroupName is not configured"}
	}
	var err error
	o.group, err = r.resources.single.Get(ctx, strings.ToLower(r.groupID()), inventory.Query{MaxAge: lookAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		if q.Purpose == services.Delete {
			return nil
		}
		return fmt.Errorf("nsg %q not found: %w", r.config.SecurityGroup, err)
	}
	if err != nil {
		return err
	}
	return r.findFormerNodes(ctx, q, o.group)
}
