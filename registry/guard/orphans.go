package guard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// orphanDelay is the time from the start to the first search.
	orphanDelay = 5 * time.Minute
	// orphanTimeout bounds one search.
	orphanTimeout = 2 * time.Minute
)

// Orphans implements OrphanFinder.
func (c *Cloud) Orphans(ctx context.Context, services []*v1.Service) (found []contract.Orphan, err error) {
	finder, ok := c.inner.(contract.OrphanFinder)
	if !ok {
		return nil, contract.ErrNoOrphans
	}
	defer recoverPanic(&err, "Orphans", c.facts.Provider)
	return finder.Orphans(ctx, c.facts.translateAll(services))
}

// DeleteOrphan implements OrphanFinder.
func (c *Cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) (err error) {
	finder, ok := c.inner.(contract.OrphanFinder)
	if !ok {
		return contract.ErrNoOrphans
	}
	defer recoverPanic(&err, "DeleteOrphan", o.ID)
	return finder.DeleteOrphan(ctx, o)
}

// countOrphans updates the gauge of orphans until stop is closed.
func (c *Cloud) countOrphans(stop <-chan struct{}, synced func() bool, services listers.ServiceLister) {
	period := cmp.Or(c.facts.Policy.OrphanPeriod, DefaultPolicy().OrphanPeriod)
	timer := time.NewTimer(min(orphanDelay, period))
	defer timer.Stop()
	for {
		select {
		case <-stop:
			return
		case <-timer.C:
		}
		timer.Reset(period)
		if !synced() {
			continue
		}
		if err := c.countOrphansOnce(services); errors.Is(err, contract.ErrNoOrphans) {
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
	if c.loadBalancers != nil {
		all = slices.Concat(all, c.loadBalancers.retainedServices.list())
	}
	found, err := c.Orphans(ctx, all)
	if err != nil {
		return err
	}
	c.meters.orphans.WithLabelValues(c.facts.Provider).Set(float64(len(found)))
	return nil
}

// maxRetained bounds the memory of Services whose load balancers are kept.
const maxRetained = 1000

// retainedServices holds deleted Services whose load balancers were kept on purpose: those are no orphans. It does not survive the process,
// because nothing is written to the cloud.
type retainedServices struct {
	mu       sync.Mutex
	services []*v1.Service
}

func (r *retainedServices) add(service *v1.Service) {
	kept := service.DeepCopy()
	// The annotations lead to the load balancer as long as the Service counts as one that has it.
	kept.Spec.Type = v1.ServiceTypeLoadBalancer
	r.mu.Lock()
	defer r.mu.Unlock()
	r.services = slices.DeleteFunc(r.services, func(s *v1.Service) bool { return s.UID == kept.UID })
	if len(r.services) >= maxRetained {
		r.services = slices.Delete(r.services, 0, 1)
	}
	r.services = append(r.services, kept)
}

func (r *retainedServices) list() []*v1.Service {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.services)
}
