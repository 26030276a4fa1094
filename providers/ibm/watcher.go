package ibm

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// A load balancer may break or disappear without a change of its Service: the watcher reports that, like IBM's own controller. It deletes
// nothing.

const (
	monitorPeriod  = 5 * time.Minute
	monitorTimeout = 2 * time.Minute
	// statusMissing stands for a load balancer that does not exist.
	statusMissing = "missing"
	// A status is reported after so many equal observations. Work of the cloud takes minutes.
	minRepeats, minRepeatsBusy = 2, 3
)

// lastStatus is the last observed status of a Service's load balancer, and how many times in a row it was observed.
type lastStatus struct {
	status string
	times  int
	// existed is set once a load balancer was observed: a Service that never had one here may be another controller's.
	existed bool
}

// watcher watches the load balancers of all Services, in one goroutine.
type watcher struct {
	*finder

	events record.EventRecorder
	seen   map[types.UID]lastStatus
}

func (w *watcher) job() loop.Job {
	return loop.Job{Name: "watching-load-balancers", Period: monitorPeriod, Spacing: monitorPeriod, Timeout: monitorTimeout, Run: w.run}
}

// run checks the load balancers of all Services that have one, which costs the pages of one listing.
func (w *watcher) run(ctx context.Context) error {
	services, err := w.cluster.Services(ctx)
	if err != nil {
		return err
	}
	services = slices.DeleteFunc(services, func(s *v1.Service) bool {
		return ownership.Leaves(s) || !servicehelper.HasLBFinalizer(s) || len(s.Status.LoadBalancer.Ingress) == 0
	})
	now := map[types.UID]lastStatus{}
	defer func() { w.seen = now }()
	if len(services) == 0 {
		return nil
	}
	if _, err = w.loadBalancers.All(ctx, inventory.Query{MaxAge: time.Minute}); err == nil {
		err = w.instances.seesVPC(ctx, time.Minute)
	}
	if err != nil {
		now = w.seen // nothing was observed
		return err
	}
	for _, s := range services {
		lb, err := w.find(ctx, s)
		if err != nil {
			now = w.seen
			return err
		}
		before := w.seen[s.UID]
		after := lastStatus{status: statusMissing, times: 1, existed: before.existed || lb != nil}
		if lb != nil {
			after.status = lb.Operating + "/" + lb.Provisioning
		}
		if before.status == after.status {
			after.times = before.times + 1
		}
		now[s.UID] = after
		w.writeEvents(s, lb, before, after)
	}
	return nil
}

// find returns the load balancer of a Service; nil is none.
func (w *watcher) find(ctx context.Context, s *v1.Service) (*loadBalancer, error) {
	for _, lb := range w.loadBalancers.PeekIndex(indexName, w.records.name("", s)) {
		if ours, err := w.instances.inVPC(ctx, lb); err != nil || ours {
			return lb, err
		}
	}
	return nil, nil //nolint:nilnil // nil is a load balancer that does not exist
}

// writeEvents writes an event if a bad status lasts, and when it is good again.
func (w *watcher) writeEvents(s *v1.Service, lb *loadBalancer, before, after lastStatus) {
	kind, reason, needed := v1.EventTypeWarning, eventVerifying, minRepeats
	var text string
	switch {
	case lb == nil:
		text = "is not there; it is made again at the next change of the Service, and when this program starts"
	case lb.Provisioning == stateActive && lb.Operating == operatingOnline:
		kind, reason, text = v1.EventTypeNormal, eventNormal, "is online/active again"
		if before.status == "" || before.status == after.status {
			return // normal
		}
		needed = 1
	case lb.Provisioning == stateFailed:
		text = "has failed; its page in the console, or IBM's support, tells why"
	case lb.Provisioning == stateMaintenance && lb.Operating != operatingOnline:
		text = "is under maintenance"
	default:
		text = "is " + after.status
		if lb.isBusy() {
			needed = minRepeatsBusy
		}
	}
	if after.times != needed || !after.existed || w.events == nil {
		return
	}
	w.events.Event(s, kind, reason, fmt.Sprintf("load balancer %s %s", w.records.name("", s), text))
}
