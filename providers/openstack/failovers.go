package openstack

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// failoverPause separates failovers, because repeating one at once does not help.
const failoverPause = 10 * time.Minute

// failovers records when each load balancer was last failed over.
type failovers struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// mayStart reports whether a failover may start now, and then records it.
func (f *failovers) mayStart(id string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.last[id]) < failoverPause {
		return false
	}
	f.last[id] = time.Now()
	return true
}

// repairs returns the changes for a load balancer in ERROR. One that never served is deleted and created again; others are failed over,
// which keeps their address.
func (l *loadBalancers) repairs(lb *loadBalancer, renew bool) []change {
	if renew {
		return []change{{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: titleOf(lb), Detail: "Octavia could not build it"},
			Replan:  true, Make: l.deleteBroken,
			Compare: func() (before, after any) { return lb, nil },
		}}
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: titleOf(lb), Detail: "failover, for it is in ERROR"},
		Replan:  true, Make: l.repair,
		Compare: func() (before, after any) {
			return services.Part(lb, "provisioning_status"), map[string]any{"provisioning_status": statusActive}
		},
	}}
}

func (l *loadBalancers) deleteBroken(ctx context.Context, r *services.Request, o observation) (observation, error) {
	r.Report(services.Warning(eventRecreated, "Octavia could not build load balancer %s; it is deleted and made again", o.lb.ID))
	if err := l.remove(ctx, o.lb, true); err != nil {
		return o, err
	}
	if err := l.record(ctx, r, map[string]string{annotationID: "", annotationMade: ""}); err != nil {
		return o, err
	}
	return l.handleLoss(r)
}

func (l *loadBalancers) repair(ctx context.Context, r *services.Request, o observation) (observation, error) {
	ordered, findings, err := l.failOver(ctx, o.lb)
	r.Report(findings...)
	if !ordered {
		return o, err
	}
	after, err := l.waitUntilIdle(ctx, o.lb.ID, "a failover, for it was in ERROR")
	switch {
	case err != nil:
		return o, err
	case after == nil:
		return l.handleLoss(r)
	case after.Status == statusError:
		return o, cloudproviderapi.NewRetryError(adviceFor(o.lb), time.Minute)
	}
	o.lb, o.parts, o.settled = after, nil, false
	return o, nil
}

// isRenewable reports whether a load balancer in ERROR was created for this Service alone and never served. Its mark and our record must
// say so, and neither the Service nor a floating address may show earlier use.
func (l *loadBalancers) isRenewable(ctx context.Context, service *v1.Service, lb *loadBalancer, r role) (bool, error) {
	fresh := len(service.Status.LoadBalancer.Ingress) == 0 && service.Annotations[annotationAddress] == ""
	made := service.Annotations[annotationMade] == lb.ID && slices.Contains(lb.Tags, r.serviceMark)
	if !fresh || !made || !r.owner || !isMadeByController(lb, service) || isShared(lb, r) {
		return false, nil
	}
	f, err := l.floatingIPOf(ctx, lb, inventory.Query{MaxUnlistedAge: newMaxAge})
	return err == nil && f == nil, err
}

func adviceFor(lb *loadBalancer) string {
	return fmt.Sprintf("load balancer %s is in ERROR: it may go on serving, but Octavia changes nothing of it. Ask an administrator of the cloud to run \"openstack loadbalancer failover %s\"", lb.ID, lb.ID)
}

// failOver starts a failover of a load balancer in ERROR, or reports that an administrator must.
func (l *loadBalancers) failOver(ctx context.Context, lb *loadBalancer) (ordered bool, findings []services.Finding, err error) {
	if l.failovers.mayStart(lb.ID) {
		err := l.api.failOver(ctx, lb.ID)
		if err == nil {
			l.observed.Invalidate(lb.ID)
			return true, []services.Finding{services.Warning(eventFailover,
				"load balancer %s is in ERROR; a failover was ordered, which keeps its address", lb.ID)}, nil
		}
		klog.InfoS("Octavia refused a failover", "loadBalancer", lb.ID, "reason", err.Error())
		findings = []services.Finding{services.Warning(eventBroken, "%s", adviceFor(lb))}
	}
	return false, findings, cloudproviderapi.NewRetryError(adviceFor(lb), time.Minute)
}
