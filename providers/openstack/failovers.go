package openstack

import (
	"context"
	"fmt"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

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
func (r *reconciler) repairs(lb *loadBalancer, renew bool) []change {
	if renew {
		return []change{{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: titleOf(lb), Detail: "Octavia could not build it"},
			Replan:  true, Make: r.deleteBroken,
			Compare: func() (before, after any) { return lb, nil },
		}}
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: titleOf(lb), Detail: "failover, for it is in ERROR"},
		Replan:  true, Make: r.repair,
		Compare: func() (before, after any) {
			return services.Part(lb, "provisioning_status"), map[string]any{"provisioning_status": statusActive}
		},
	}}
}

func (r *reconciler) deleteBroken(ctx context.Context, req *services.Request, o observed) (observed, error) {
	req.Report(services.Warning(eventRecreated, "Octavia could not build load balancer %s; it is deleted and made again", o.lb.ID))
	if err := r.writer.remove(ctx, o.lb, true); err != nil {
		return o, err
	}
	if err := r.record(ctx, req, map[string]string{annotationID: "", annotationMade: ""}); err != nil {
		return o, err
	}
	return handleLoss(req)
}

func (r *reconciler) repair(ctx context.Context, req *services.Request, o observed) (observed, error) {
	ordered, findings, err := r.writer.failOver(ctx, o.lb)
	req.Report(findings...)
	if !ordered {
		return o, err
	}
	after, err := r.writer.waitUntilIdle(ctx, o.lb.ID, "a failover, for it was in ERROR")
	switch {
	case err != nil:
		return o, err
	case after == nil:
		return handleLoss(req)
	case after.Status == statusError:
		return o, cloudproviderapi.NewRetryError(adviceFor(o.lb), time.Minute)
	}
	o.lb, o.parts, o.settled = after, nil, false
	return o, nil
}

func adviceFor(lb *loadBalancer) string {
	return fmt.Sprintf("load balancer %s is in ERROR: it may go on serving, but Octavia changes nothing of it. Ask an administrator of the cloud to run \"openstack loadbalancer failover %s\"", lb.ID, lb.ID)
}
