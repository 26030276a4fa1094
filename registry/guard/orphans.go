package guard

import (
	"context"
	"errors"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

const (
	// orphanDelay lets a start settle, orphanPeriod keeps the search cheap: one listing, once in a while.
	orphanDelay  = 5 * time.Minute
	orphanPeriod = time.Hour
	// orphanTimeout bounds one search.
	orphanTimeout = 2 * time.Minute
)

// Orphan is something in the cloud that carries this cluster's mark and belongs to no living Service.
type Orphan struct {
	Kind    string `json:"kind"`
	ID      string `json:"id"`
	Name    string `json:"name"`
	Created string `json:"created"`
}

// OrphanFinder is implemented by clouds whose objects carry marks.
type OrphanFinder interface {
	// Orphans returns what carries this cluster's mark and belongs to none of the Services.
	Orphans(ctx context.Context, services []*v1.Service) ([]Orphan, error)
	// DeleteOrphan deletes one of them.
	DeleteOrphan(ctx context.Context, o Orphan) error
}

// ErrNoOrphans is the answer of a cloud that cannot tell orphans.
var ErrNoOrphans = errors.New("this provider cannot tell orphans")

// Orphans implements OrphanFinder.
func (c *Cloud) Orphans(ctx context.Context, services []*v1.Service) (found []Orphan, err error) {
	finder, ok := c.inner.(OrphanFinder)
	if !ok {
		return nil, ErrNoOrphans
	}
	defer recovered(&err, "Orphans", c.facts.Provider)
	return finder.Orphans(ctx, services)
}

// DeleteOrphan implements OrphanFinder.
func (c *Cloud) DeleteOrphan(ctx context.Context, o Orphan) (err error) {
	finder, ok := c.inner.(OrphanFinder)
	if !ok {
		return ErrNoOrphans
	}
	defer recovered(&err, "DeleteOrphan", o.ID)
	return finder.DeleteOrphan(ctx, o)
}

// countOrphans keeps the gauge of orphans until stop is closed.
func (c *Cloud) countOrphans(stop <-chan struct{}, synced func() bool, services listers.ServiceLister) {
	timer := time.NewTimer(orphanDelay)
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		timer.Reset(orphanPeriod)
		if !synced() {
			continue
		}
		if err := c.countOrphansOnce(services); errors.Is(err, ErrNoOrphans) {
			return
		} else if err != nil {
			klog.ErrorS(err, "Orphans could not be counted")
		}
	}
}

func (c *Cloud) countOrphansOnce(services listers.ServiceLister) error {
	ctx, cancel := context.WithTimeout(context.Background(), orphanTimeout)
	defer cancel()
	all, err := services.List(labels.Everything())
	if err != nil {
		return err
	}
	found, err := c.Orphans(ctx, all)
	if err != nil {
		return err
	}
	orphans.WithLabelValues(c.facts.Provider).Set(float64(len(found)))
	return nil
}
