package keepalived

import (
	"context"
	"fmt"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.OrphanFinder = (*cloud)(nil)

// Orphans implements guard.OrphanFinder: entries of Services that are gone, whose addresses nobody else is given.
func (c *cloud) Orphans(ctx context.Context, list []*v1.Service) ([]guard.Orphan, error) {
	orphans := []guard.Orphan{}
	r := c.reconciler
	if r.annotated() {
		return orphans, nil // what a Service has goes with it
	}
	rec, err := r.book.read(ctx)
	if err != nil {
		return nil, err
	}
	for _, e := range rec.entries {
		if !slices.ContainsFunc(list, func(s *v1.Service) bool { return string(s.UID) == e.UID }) {
			orphans = append(orphans, guard.Orphan{Kind: "address", ID: e.UID, Name: texts(e.addresses())})
		}
	}
	return orphans, nil
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
		return fmt.Errorf("address %s is no orphan any more", o.Name)
	}
	_, err = c.reconciler.book.commit(ctx, func(rec record) (record, error) { return rec.without(o.ID), nil })
	return err
}
