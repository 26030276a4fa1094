package keepalived

import (
	"context"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.OrphanFinder = (*cloud)(nil)

// Orphans implements contract.OrphanFinder: entries of deleted Services, whose addresses are not assigned again. An entry whose
// address another Service shows is none.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	orphans := []contract.Orphan{}
	r := c.reconciler
	if r.usesAnnotations() {
		return orphans, nil // a record on a Service is deleted with it
	}
	rec, err := r.book.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range rec.entries {
		addresses := texts(e.addresses())
		if !slices.ContainsFunc(list, func(s *v1.Service) bool { return string(s.UID) == e.UID }) &&
			!ownership.IsShown(list, strings.Split(addresses, ",")...) {
			orphans = append(orphans, contract.Orphan{Kind: "address", ID: e.UID, Name: addresses})
		}
	}
	return orphans, nil
}

// DeleteOrphan implements contract.OrphanFinder. It checks the entry again with the present Services.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	if err := c.reconciler.cluster.StillOrphan(ctx, o, c.Orphans); err != nil {
		return err
	}
	_, err := c.reconciler.book.commit(ctx, func(rec record) (record, error) { return rec.remove(o.ID), nil })
	return err
}
