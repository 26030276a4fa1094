package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

const (
	// notRunningMaxAge is how old the record may be of an instance that is said not to run; nodes that join many load balancers
	// share the read.
	notRunningMaxAge = 5 * time.Second
	// startingPatience is how long a reconciliation waits for instances to start, and startingPause when it comes back then.
	startingPatience = 2 * time.Minute
	startingPause    = 30 * time.Second
)

// backend is an instance behind a node.
type backend struct {
	node   string
	id     string
	groups []string
	// running is set where the instance runs, so that it can be registered.
	running bool
	// starting is set where it is about to run.
	starting bool
}

// backends are the instances behind a Service's nodes.
type backends struct {
	list []backend
	// noneVisible is set where EC2 shows no instance of any eligible node, or none with the cluster's tag. A fault of the account or of a
	// tagging tool is more likely than the loss of all nodes.
	noneVisible bool
	// keepRegistered is set where what is registered stays: none is visible, or there are no nodes at all.
	keepRegistered bool
}

// targetReader finds the instances behind nodes.
type targetReader struct {
	api       *api
	instances *instances
}

// backendsOf returns the instances that serve, sorted by ID. A node that cannot is left out and holds nobody else up; doubt
// about one is an error: a target is never dropped because a read failed.
func (t targetReader) backendsOf(ctx context.Context, nodes []*v1.Node, s settings) (found backends, err error) {
	_, id, err := t.api.connect(ctx)
	if err != nil {
		return found, err
	}
	ids := map[string]string{}
	for _, n := range nodes {
		instanceID, err := parseProviderID(n.Spec.ProviderID)
		if !hasLabels(n, s.targetLabels) || err != nil {
			klog.V(2).InfoS("Leaving a node out of a load balancer", "node", n.Name, "providerID", n.Spec.ProviderID)
			continue
		}
		ids[instanceID] = n.Name
	}
	sorted := slices.Sorted(maps.Keys(ids))
	ctx = inventory.WithPrefetch(ctx, func() []string { return sorted })
	query := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, Expected: len(sorted)}
	for _, instanceID := range sorted {
		one, err := t.instances.inventory.Get(ctx, instanceID, query)
		if err == nil && one.state != stateRunning {
			// What was not running may run by now: the record is older than the answer that made the node ready.
			query := query
			query.MaxAge = notRunningMaxAge
			one, err = t.instances.inventory.Get(ctx, instanceID, query)
		}
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			continue // its Node may be kept for a while; nothing answers there
		case err != nil:
			return found, fmt.Errorf("finding the instance of node %s: %w", ids[instanceID], err)
		case !id.isTagged(one.tags), one.state == stateTerminated, one.state == stateShuttingDown:
			klog.V(2).InfoS("Leaving an instance out of a load balancer", "node", ids[instanceID], "instance", instanceID,
				"state", one.state, "tagged", id.isTagged(one.tags))
			continue
		}
		found.list = append(found.list, backend{ids[instanceID], instanceID, one.groups, one.state == stateRunning, one.state == statePending})
	}
	found.noneVisible = len(found.list) == 0 && len(ids) > 0
	found.keepRegistered = len(nodes) == 0 || found.noneVisible
	return found, nil
}

// hasLabels reports whether a node has all labels; an empty value asks for the key alone.
func hasLabels(n *v1.Node, wanted map[string]string) bool {
	for k, v := range wanted {
		if have, ok := n.Labels[k]; !ok || (v != "" && have != v) {
			return false
		}
	}
	return true
}

// ids are the instances that are to be registered, and those that may stay.
func (b backends) ids() (running, eligible []string) {
	for _, one := range b.list {
		eligible = append(eligible, one.id)
		if one.running {
			running = append(running, one.id)
		}
	}
	return running, eligible
}

// keptFindings report that a load balancer keeps targets whose instances EC2 does not show.
func (b backends) keptFindings(registered int) []services.Finding {
	if !b.noneVisible || registered == 0 {
		return nil
	}
	return []services.Finding{services.Warning(eventTargetsKept, "the %d targets of the load balancer stay: EC2 shows none of the nodes' "+
		"instances with the tag of the cluster; see to the tags of the instances, and to the account and the region", registered)}
}

// waitChanges wait for pending instances and then compute the changes again. AWS registers only running instances, and a node with a
// pending one is already ready, so that no later event would register it.
func (t targetReader) waitChanges(
	o observed, b backends, reread func(context.Context, services.Request, observed) (observed, error),
) []change {
	starting := slices.DeleteFunc(slices.Clone(b.list), func(one backend) bool { return !one.starting })
	if len(starting) == 0 || o.waited {
		return nil
	}
	return []change{{
		Wait: true, Replan: true,
		Make: func(ctx context.Context, r *services.Request, o observed) (observed, error) {
			if err := t.await(ctx, starting); err != nil {
				return o, err
			}
			o.waited = true
			return reread(ctx, *r, o)
		},
	}}
}

// await waits until none of the instances is about to run any more.
func (t targetReader) await(ctx context.Context, starting []backend) error {
	waiting, cancel := context.WithTimeout(ctx, startingPatience)
	defer cancel()
	for _, b := range starting {
		what := fmt.Sprintf("instance %s of node %s to run", b.id, b.node)
		_, err := t.instances.starting.Until(waiting, b.id, what, func(i instance) bool { return i.state != statePending })
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil && waiting.Err() != nil && ctx.Err() == nil:
			return cloudproviderapi.NewRetryError("waiting for "+what, startingPause)
		case err != nil:
			return err
		}
	}
	return nil
}
