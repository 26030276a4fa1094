package gce

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the names of Google's own controller are made of it
	"encoding/hex"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// Internal load balancers may share backend services: one for each protocol and session affinity.

func sharedBackendPrefix(cluster string) string { return "k8s-" + cluster + "-internal-" }

// sharedBackendName is the name that Google's own controller gives, with the word for the affinity that Services have.
func sharedBackendName(cluster, protocol, affinity string) string {
	word := v1.ServiceAffinityNone
	if affinity == affinityClient {
		word = v1.ServiceAffinityClientIP
	}
	sum := sha1.Sum([]byte(word)) //nolint:gosec // as above
	return sharedBackendPrefix(cluster) + strings.ToLower(protocol) + "-nmv1-" + hex.EncodeToString(sum[:])[:16]
}

func (s settings) shares() bool { return s.Share || s.AlphaShare }

// sharedBackendOf is the name of the backend service that a Service shares; "" where it has its own.
func sharedBackendOf(cluster string, service *v1.Service) string {
	s, _, _ := parseSettings(service) // Validate has judged them
	if !s.shares() || len(service.Spec.Ports) == 0 {
		return "" // an orphan has no ports
	}
	var d spec
	if d.desirePorts(service); d.local {
		return ""
	}
	return sharedBackendName(cluster, d.protocol, d.affinity)
}

// nameBackend fills in which backend service the Service has, or is to have, and reports whether it shares one, or did.
func (o *observation) nameBackend(r services.Request) (shares bool) {
	asked := cmp.Or(sharedBackendOf(o.cluster, r.Service), o.name)
	o.backendName = asked
	used := ""
	if o.rule != nil {
		used = lastPart(o.rule.BackendService)
	}
	if r.Purpose != services.Ensure && r.Purpose != services.Plan && used != "" {
		o.backendName = used
	}
	return asked != o.name || strings.HasPrefix(used, sharedBackendPrefix(o.cluster))
}

// findLeftBackends fills in backend services that the Service may have had before: its own, and shared ones that no load balancer has.
// A change that was interrupted tells nobody which one it was.
func (b *reconciler) findLeftBackends(ctx context.Context, q inventory.Query, o *observation) error {
	for _, name := range append(sharedBackendNames(o.cluster), o.name) {
		v, err := find(ctx, b.api.stores.backends, name, q)
		if err != nil {
			return err
		}
		if v != nil && name != o.backendName {
			o.leftBackends = append(o.leftBackends, v)
		}
	}
	return nil
}

// sharedBackendNames are all that a cluster may have.
func sharedBackendNames(cluster string) (all []string) {
	for _, protocol := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP} {
		for _, affinity := range []string{affinityNone, affinityClient} {
			all = append(all, sharedBackendName(cluster, string(protocol), affinity))
		}
	}
	return all
}

// backendDescription is that of the backend service; one that several share says nothing of a Service.
func (d *spec) backendDescription() string {
	if d.backend != d.name {
		return ""
	}
	return serviceDescription(d.service)
}

// alone reports whether a backend service is the Service's alone: its own, or one that could be shared and is not.
func (b *reconciler) alone(o observation, v *compute.BackendService) bool {
	if v.Name == o.name {
		return true
	}
	return v.Name == o.backendName && !slices.ContainsFunc(b.api.stores.rules.PeekAll(), func(r *compute.ForwardingRule) bool {
		return r.Name != o.name && lastPart(r.BackendService) == v.Name
	})
}

// backendDeletions remove backend services that no other load balancer has.
func (b *reconciler) backendDeletions(o observation, all ...*compute.BackendService) (list []change) {
	for _, v := range all {
		if v == nil {
			continue
		}
		o.backendName = v.Name
		if b.alone(o, v) {
			list = append(list, comparing(b.step(guard.PlanDelete, "backend service "+v.Name, "", b.deleteBackend(v)), described(v), nil))
		}
	}
	return list
}

func (b *reconciler) deleteBackend(v *compute.BackendService) doing {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "backend service "+v.Name)
		if err != nil {
			return err
		}
		defer unlock()
		err = removed(ctx, b.api, b.api.stores.backends, at.backend(v.Name), "deleting backend service "+v.Name, func(id string) (*compute.Operation, error) {
			return b.api.sdk.RegionBackendServices.Delete(at.project, at.region, v.Name).RequestId(id).Context(ctx).Do()
		})
		kept := inUse(err) && v.Name != o.name
		if kept {
			b.api.stores.rules.InvalidateAll() // so that the next look shows whose it is
		} else if err != nil {
			return err
		}
		if o.backend != nil && o.backend.Name == v.Name {
			o.backend, o.backendName = nil, o.name
		}
		o.leftBackends = slices.DeleteFunc(slices.Clone(o.leftBackends), func(l *compute.BackendService) bool { return l.Name == v.Name })
		unused := func(g *compute.Backend) bool { return !b.othersUse(*o, indexGroup, resource(g.Group)) }
		if kept || o.backend != nil || len(o.groupZones) > 0 || !slices.ContainsFunc(v.Backends, unused) {
			return nil
		}
		return b.findUnusedGroups(ctx, at, o) // those who used them when this Service was looked at have gone since
	}
}
