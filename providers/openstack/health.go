package openstack

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/loop"
	"github.com/anyccm/cloud-controller-manager/providers/internal/ownership"
)

const (
	// healthPeriod is how long a load balancer that breaks while nothing changes goes unnoticed: one listing each time.
	healthPeriod  = 5 * time.Minute
	healthTimeout = 2 * time.Minute
)

// healthJob finds load balancers of Services that are in ERROR. The framework does not look at a Service that does not
// change.
func (l *loadBalancers) healthJob(services listers.ServiceLister) loop.Job {
	return loop.Job{
		Name: "load-balancer-health", Period: healthPeriod, Spacing: time.Minute, Timeout: healthTimeout,
		Run: func(ctx context.Context) error { return l.mendAll(ctx, services) },
	}
}

// servedBy returns the Services that are served, by the load balancer's ID; of those that share one, the oldest.
func servedBy(all []*v1.Service) map[string]*v1.Service {
	users := map[string]*v1.Service{}
	for _, s := range all {
		id := s.Annotations[annotationID]
		if id == "" || s.DeletionTimestamp != nil || s.Spec.Type != v1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) == 0 {
			continue // the framework is at work on it
		}
		if first := users[id]; first == nil || s.CreationTimestamp.Before(&first.CreationTimestamp) {
			users[id] = s
		}
	}
	return users
}

func (l *loadBalancers) mendAll(ctx context.Context, services listers.ServiceLister) error {
	all, err := services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	users := servedBy(all)
	if len(users) == 0 {
		return nil
	}
	mark, err := l.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	balancers, err := l.balancers.All(ctx, inventory.Query{MaxAge: healthPeriod / 2})
	if err != nil {
		return err
	}
	var problems []error
	for _, lb := range balancers {
		s := users[lb.ID]
		if s == nil || lb.Status != statusError || ownership.Check("load balancer "+lb.ID, mark, lb.Tags) != nil {
			continue
		}
		_, err := l.failOver(ctx, s, lb)
		if _, later := errors.AsType[*cloudproviderapi.RetryError](err); !later {
			problems = append(problems, err)
		}
	}
	return errors.Join(problems...)
}
