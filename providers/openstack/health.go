package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// healthPeriod bounds how long a broken load balancer goes unnoticed. Each check costs one listing.
	healthPeriod  = 5 * time.Minute
	healthTimeout = 2 * time.Minute
)

// healthCheck finds load balancers in ERROR, because the framework does not reconcile unchanged Services.
type healthCheck struct {
	reconciler *reconciler
	services   listers.ServiceLister
}

func (h healthCheck) job() loop.Job {
	return loop.Job{Name: "load-balancer-health", Period: healthPeriod, Spacing: time.Minute, Timeout: healthTimeout, Run: h.run}
}

// servedBy returns the served Services by the load balancer that they name, the oldest first. The annotation does not prove ownership.
func servedBy(all []*v1.Service) map[string][]*v1.Service {
	users := map[string][]*v1.Service{}
	for _, s := range all {
		id := s.Annotations[annotationID]
		isProcessed := ownership.Leaves(s) || len(s.Status.LoadBalancer.Ingress) == 0 // by the framework
		if id != "" && !isProcessed && !contract.IsDisowned(s) {
			users[id] = append(users[id], s)
		}
	}
	for _, list := range users {
		slices.SortStableFunc(list, func(a, b *v1.Service) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) })
	}
	return users
}

func (h healthCheck) run(ctx context.Context) error {
	r := h.reconciler
	all, err := h.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	users := servedBy(all)
	if len(users) == 0 {
		return nil
	}
	cluster, known := r.finder.clusterName.Load().(string)
	if !known {
		return nil // a start reconciles all Services first
	}
	loadBalancers, err := r.loadBalancers.All(ctx, inventory.Query{MaxAge: healthPeriod / 2})
	if err != nil {
		return err
	}
	var problems []error
	for _, lb := range loadBalancers {
		if lb.Status != statusError || len(users[lb.ID]) == 0 {
			continue
		}
		s, err := h.findUser(ctx, cluster, lb, users[lb.ID])
		if err == nil && s != nil {
			var findings []services.Finding
			_, findings, err = r.writer.failOver(ctx, lb)
			for _, f := range findings {
				r.Events.Event(s, v1.EventTypeWarning, f.Reason, f.Message)
			}
		}
		if _, later := errors.AsType[*cloudproviderapi.RetryError](err); !later {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}

// findUser returns the first Service that may use the load balancer, or nil.
func (h healthCheck) findUser(ctx context.Context, cluster string, lb *loadBalancer, all []*v1.Service) (*v1.Service, error) {
	for _, s := range all {
		req := services.Request{Purpose: services.Lookup, Cluster: cluster, Service: s}
		o, err := h.reconciler.Observe(ctx, req)
		if err == nil {
			o, _, err = h.reconciler.CheckOwner(ctx, req, o)
		}
		if err != nil {
			return nil, err
		}
		if o.lb != nil && o.lb.ID == lb.ID {
			return s, nil
		}
	}
	return nil, nil //nolint:nilnil // none may use it
}
