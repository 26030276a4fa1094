package contract

import (
	"context"
	"errors"

	v1 "k8s.io/api/core/v1"
)

// Orphan is an object in the cloud with this cluster's mark and without a living Service.
type Orphan struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Created string `json:"created"`
}

// OrphanFinder is implemented by clouds whose objects carry marks.
type OrphanFinder interface {
	// Orphans returns the objects with this cluster's mark that belong to none of the Services.
	Orphans(ctx context.Context, services []*v1.Service) ([]Orphan, error)
	// DeleteOrphan deletes one of them.
	DeleteOrphan(ctx context.Context, o Orphan) error
}

// ErrNoOrphans is returned by a cloud that cannot detect orphans.
var ErrNoOrphans = errors.New("this provider cannot tell orphans")
