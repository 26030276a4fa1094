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
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Internal load balancers can share backend services, one for each protocol and session affinity.

// sharedBackendName is the name that Google's own controller gives, with the affinity in Kubernetes' spelling.
func sharedBackendName(cluster, protocol, affinity string) string {
	word := v1.ServiceAffinityNone
	if affinity == affinityClient {
		word = v1.ServiceAffinityClientIP
	}
	sum := sha1.Sum([]byte(word)) //nolint:gosec // as above
	return "k8s-" + cluster + "-internal-" + strings.ToLower(protocol) + "-nmv1-" + hex.EncodeToString(sum[:])[:16]
}

// shares reports whether a Service requests a shared backend service, in the only spelling that Google's own controller reads.
func (s settings) shares() bool { return s.Share == annotationOn || s.AlphaShare == annotationOn }

// sharedBackendOf returns the name of a Service's shared backend service; "" if it has its own or none.
func sharedBackendOf(cluster string, service *v1.Service) string {
	s, _, _ := parseSettings(service) // Validate has reported faults
	if !s.shares() || !isInternal(service) || len(service.Spec.Ports) == 0 {
		return "" // an orphan has no ports
	}
	var d spec
	if d.desirePorts(service); d.local {
		return ""
	}
	return sharedBackendName(cluster, d.protocol, d.affinity)
}

// nameBackend sets the name of the Service's backend service. Unknown names in the rule, set by hand, are ignored.
func (o *observation) nameBackend(r services.Request) {
	o.backendName = cmp.Or(sharedBackendOf(o.cluster, r.Service), o.name)
	if o.rule == nil || r.Purpose == services.Ensure || r.Purpose == services.Plan {
		return
	}
	if used := lastPart(o.rule.BackendService); used == o.name || slices.Contains(sharedBackendNames(o.cluster), used) {
		o.backendName = used
	}
}

// findObsoleteBackends records backend services to delete: the Service's own if it now shares one, and shared ones without a user. It
// searches all names, because an interrupted change left no record.
func (b *reconciler) findObsoleteBackends(ctx context.Context, q inventory.Query, o *observation) (err error) {
	if o.unneededNames, err = b.findUnneededNames(ctx, *o); err != nil {
		return err
	}
	for _, name := range append(sharedBackendNames(o.cluster), o.name) {
		v, ok := b.api.stores.backends.Peek(name) // the listing for the Service's own includes them all
		if !ok || name == o.backendName || !b.isOnlyUser(*o, v) {
			continue
		}
		if v, err = find(ctx, b.api.stores.backends, name, q); err != nil {
			return err
		}
		if v != nil {
			o.obsoleteBackends = append(o.obsoleteBackends, v)
		}
	}
	return nil
}

// findUnneededNames returns the shared backend services that no other living Service requests. One that does may have no forwarding rule
// yet.
func (b *reconciler) findUnneededNames(ctx context.Context, o observation) ([]string, error) {
	names := slices.DeleteFunc(sharedBackendNames(o.cluster), func(name string) bool {
		_, ok := b.api.stores.backends.Peek(name)
		return !ok
	})
	if len(names) == 0 {
		return nil, nil
	}
	known, err := b.identity.Services(ctx)
	for _, s := range known {
		if s.DeletionTimestamp == nil && ownership.MayHave(s) && loadBalancerName("", s) != o.name {
			asked := sharedBackendOf(o.cluster, s)
			names = slices.DeleteFunc(names, func(name string) bool { return name == asked })
		}
	}
	return names, err
}

// sharedBackendNames returns all names possible in a cluster.
func sharedBackendNames(cluster string) (all []string) {
	for _, protocol := range []v1.Protocol{v1.ProtocolTCP, v1.ProtocolUDP} {
		for _, affinity := range []string{affinityNone, affinityClient} {
			all = append(all, sharedBackendName(cluster, string(protocol), affinity))
		}
	}
	return all
}

// backendDescription names the Service, unless several share the backend service.
func (d *spec) backendDescription() string {
	if d.backend != d.name {
		return ""
	}
	return serviceDescription(d.service)
}

// isOnlyUser reports whether only this Service uses a backend service.
func (b *reconciler) isOnlyUser(o observation, v *compute.BackendService) bool {
	if v.Name == o.name {
		return true
	}
	isUser := func(r *compute.ForwardingRule) bool {
		return r.Name != o.name && lastPart(r.BackendService) == v.Name
	}
	return slices.Contains(o.unneededNames, v.Name) && !slices.ContainsFunc(b.api.stores.rules.PeekAll(), isUser)
}

// backendDeletions delete backend services that no other load balancer uses.
func (b *reconciler) backendDeletions(o observation, all ...*compute.BackendService) (list []change) {
	for _, v := range all {
		if v != nil && b.isOnlyUser(o, v) {
			list = append(list, withCompare(b.step(contract.PlanDelete, "backend service "+v.Name, "", b.deleteBackend(v)), planFields(v), nil))
		}
	}
	return list
}

func (b *reconciler) deleteBackend(v *compute.BackendService) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "backend service "+v.Name)
		if err != nil {
			return err
		}
		defer unlock()
		if o.unneededNames, err = b.findUnneededNames(ctx, *o); err != nil {
			return err
		}
		if !b.isOnlyUser(*o, v) {
			return nil // another Service uses it now
		}
		err = deleteOne(ctx, b.api, b.api.stores.backends, at.backend(v.Name), "deleting backend service "+v.Name, func(id string) (*compute.Operation, error) {
			return b.api.sdk.RegionBackendServices.Delete(at.project, at.region, v.Name).RequestId(id).Context(ctx).Do()
		})
		kept := inUse(err) && v.Name != o.name
		if kept {
			b.api.stores.rules.InvalidateAll() // the next read shows its user
		} else if err != nil {
			return err
		}
		if o.backend != nil && o.backend.Name == v.Name {
			o.backend, o.backendName = nil, o.name
		}
		o.obsoleteBackends = slices.DeleteFunc(slices.Clone(o.obsoleteBackends), func(l *compute.BackendService) bool { return l.Name == v.Name })
		unused := func(g *compute.Backend) bool { return !b.hasOtherUser(*o, indexGroup, resource(g.Group)) }
		if kept || o.backend != nil || len(o.groupZones) > 0 || !slices.ContainsFunc(v.Backends, unused) {
			return nil
		}
		return b.findUnusedGroups(ctx, at, o) // other users may have gone since the first read
	}
}
