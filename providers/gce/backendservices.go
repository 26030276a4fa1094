package gce

import (
	"cmp"
	"context"
	"crypto/sha1" //nolint:gosec // the names of Google's own controller are made of it
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// backendServices lead internal load balancers to instance groups. Load balancers of one protocol and session affinity can share one.
type backendServices struct {
	*writer

	identity *identity
	groups   *instanceGroups
}

// sharedBackendName is the name that Google's own controller gives, with the affinity in Kubernetes' spelling.
func sharedBackendName(cluster, protocol, affinity string) string {
	word := v1.ServiceAffinityNone
	if affinity == affinityClient {
		word = v1.ServiceAffinityClientIP
	}
	sum := sha1.Sum([]byte(word)) //nolint:gosec // as above
	return "k8s-" + cluster + "-internal-" + strings.ToLower(protocol) + "-nmv1-" + hex.EncodeToString(sum[:])[:16]
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

// sharedBackendOf returns the name of a Service's shared backend service; "" if it has its own or none.
func sharedBackendOf(cluster string, service *v1.Service, s settings) string {
	if !s.sharesBackend() || !isInternal(service) || len(service.Spec.Ports) == 0 {
		return "" // an orphan has no ports
	}
	var d desired
	if d.setPorts(service); d.ownCheck {
		return ""
	}
	return sharedBackendName(cluster, d.protocol, d.affinity)
}

// nameBackend sets the name of the Service's backend service. Unknown names in the rule, set by hand, are ignored.
func (o *observed) nameBackend(req services.Request) {
	o.backendName = cmp.Or(sharedBackendOf(o.cluster, req.Service, o.settings), o.name)
	if o.rule == nil || req.Purpose == services.Ensure || req.Purpose == services.Plan {
		return
	}
	if used := lastPart(o.rule.BackendService); used == o.name || slices.Contains(sharedBackendNames(o.cluster), used) {
		o.backendName = used
	}
}

// findObsolete records backend services to delete: the Service's own if it now shares one, and shared ones without a user. It searches all
// names, because an interrupted change left no record.
func (b *backendServices) findObsolete(ctx context.Context, rd *reader, o *observed) {
	if rd.err == nil {
		o.unneededNames, rd.err = b.findUnneededNames(ctx, *o)
	}
	for _, name := range append(sharedBackendNames(o.cluster), o.name) {
		v, ok := b.api.stores.backends.Peek(name) // the listing for the Service's own includes them all
		if !ok || name == o.backendName || !b.api.stores.isOnlyUser(*o, v) {
			continue
		}
		if v = read(ctx, rd, b.api.stores.backends, name); v != nil {
			o.obsoleteBackends = append(o.obsoleteBackends, v)
		}
	}
}

// findUnneededNames returns the shared backend services that no other living Service requests. One that does may have no forwarding rule
// yet.
func (b *backendServices) findUnneededNames(ctx context.Context, o observed) ([]string, error) {
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
			settings, _, _ := Annotations.Parse(s.Annotations) // a fault is for its own reconciliation to report
			asked := sharedBackendOf(o.cluster, s, settings)
			names = slices.DeleteFunc(names, func(name string) bool { return name == asked })
		}
	}
	return names, err
}

// isOnlyUser reports whether only this Service uses a backend service.
func (s *stores) isOnlyUser(o observed, v *compute.BackendService) bool {
	if v.Name == o.name {
		return true
	}
	isUser := func(r *compute.ForwardingRule) bool {
		return r.Name != o.name && lastPart(r.BackendService) == v.Name
	}
	return slices.Contains(o.unneededNames, v.Name) && !slices.ContainsFunc(s.rules.PeekAll(), isUser)
}

// hasOtherUser reports whether a known backend service of another Service refers to an object.
func (s *stores) hasOtherUser(o observed, index, key string) bool {
	return slices.ContainsFunc(s.backends.PeekIndex(index, key), func(v *compute.BackendService) bool { return !s.isOnlyUser(o, v) })
}

// backendDescription names the Service, unless several share the backend service.
func (d *desired) backendDescription() string {
	if d.backend != d.name {
		return ""
	}
	return serviceDescription(d.service)
}

// backendZones returns the zones whose instance group the backend service has.
func backendZones(groups []desiredGroup) (zones []string) {
	for _, g := range groups {
		if len(g.want) > 0 || g.kept {
			zones = append(zones, g.id.zone)
		}
	}
	return zones
}

// changes update the backend service. User settings for draining, logging and failover stay.
func (b *backendServices) changes(o observed, d desired) []change {
	object, put := "backend service "+d.backend, b.withLock("backend service "+d.backend, b.put(d))
	if o.backend == nil {
		return []change{b.create(object, fmt.Sprint(len(backendZones(d.groups)), " instance groups"), map[string]any{
			"name": d.backend, "protocol": d.protocol, "sessionAffinity": d.affinity, "zones": backendZones(d.groups), "healthChecks": []string{d.checkName()},
		}, put)}
	}
	patch, differs := d.backendPatch(o.backend, o.at)
	if differs == "" {
		return nil
	}
	return []change{b.update(object, differs, services.Within(o.backend, patch), patch, put)}
}

// backendPatch returns the patch that a backend service needs, and a description of the differences.
func (d *desired) backendPatch(have *compute.BackendService, at location) (patch *compute.BackendService, differs string) {
	patch = &compute.BackendService{Fingerprint: have.Fingerprint}
	var words []string
	if have.Protocol != d.protocol {
		patch.Protocol, words = d.protocol, append(words, "protocol "+d.protocol)
	}
	if have.SessionAffinity != d.affinity {
		patch.SessionAffinity, words = d.affinity, append(words, "affinity "+d.affinity)
	}
	if text := d.backendDescription(); text != "" && have.Description != text {
		patch.Description, words = text, append(words, "description")
	}
	if len(have.HealthChecks) != 1 || lastPart(have.HealthChecks[0]) != d.checkName() {
		patch.HealthChecks, words = []string{at.healthCheck(d.checkName())}, append(words, "health check "+d.checkName())
	}
	if backends, same := backendsOf(have, d.cluster, backendZones(d.groups), at); !same {
		patch.Backends, words = backends, append(words, fmt.Sprint(len(backends), " instance groups"))
		if len(backends) == 0 {
			patch.ForceSendFields = []string{"Backends"}
		}
	}
	return patch, strings.Join(words, ", ")
}

// backendsOf returns the instance groups of the zones, with the user settings of those that stay.
func backendsOf(have *compute.BackendService, cluster string, zones []string, at location) (list []*compute.Backend, same bool) {
	old := map[string]*compute.Backend{}
	if have != nil {
		for _, g := range have.Backends {
			old[resource(g.Group)] = g
		}
	}
	same = len(old) == len(zones)
	for _, zone := range zones {
		path := at.group(groupID{zone, groupName(cluster)})
		g := old[path]
		if g == nil {
			g, same = &compute.Backend{Group: links([]string{path})[0]}, false
		}
		list = append(list, g)
	}
	return list, same
}

func (b *backendServices) put(d desired) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) (err error) {
		if now, ok := b.api.stores.backends.Peek(d.backend); ok {
			o.backend = now
			if _, differs := d.backendPatch(now, o.at); differs == "" {
				return nil // another Service that shares it was faster
			}
		}
		have := o.backend
		backends, _ := backendsOf(have, d.cluster, backendZones(d.groups), o.at)
		body := &compute.BackendService{
			Name: d.backend, Description: d.backendDescription(), Protocol: d.protocol, SessionAffinity: d.affinity,
			LoadBalancingScheme: schemeInternal, HealthChecks: []string{o.at.healthCheck(d.checkName())}, Backends: backends,
		}
		call := request(b.api.sdk.RegionBackendServices.Insert(o.at.project, o.at.region, body))
		if have != nil {
			patch, _ := d.backendPatch(have, o.at)
			call = request(b.api.sdk.RegionBackendServices.Patch(o.at.project, o.at.region, d.backend, patch))
		}
		o.backend, err = putOne(ctx, b.api, b.api.stores.backends, body, o.at.backend(d.backend), "writing backend service "+d.backend, call)
		if err != nil || have == nil {
			return err
		}
		return b.groups.deleteUnused(ctx, *o, have, backendZones(d.groups))
	}
}

// nodeChanges update the groups of a backend service.
func (b *backendServices) nodeChanges(o observed, zones []string) []change {
	if _, same := backendsOf(o.backend, o.cluster, zones, o.at); same {
		return nil
	}
	object := "backend service " + o.backendName
	return []change{b.update(object, fmt.Sprint(len(zones), " instance groups"), nil, nil, b.withLock(object, b.putGroups(zones)))}
}

func (b *backendServices) putGroups(zones []string) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) (err error) {
		name := o.backendName
		if now, ok := b.api.stores.backends.Peek(name); ok {
			o.backend = now // another Service may have changed it
		}
		have := o.backend
		backends, same := backendsOf(have, o.cluster, zones, o.at)
		if same {
			return nil
		}
		after := *have
		after.Backends = backends
		patch := &compute.BackendService{Fingerprint: have.Fingerprint, Backends: backends}
		o.backend, err = putOne(ctx, b.api, b.api.stores.backends, &after, o.at.backend(name), "changing the groups of backend service "+name,
			request(b.api.sdk.RegionBackendServices.Patch(o.at.project, o.at.region, name, patch)))
		if err != nil {
			return err
		}
		return b.groups.deleteUnused(ctx, *o, have, zones)
	}
}

// deletions delete backend services that no other load balancer uses.
func (b *backendServices) deletions(o observed, all ...*compute.BackendService) (list []change) {
	for _, v := range all {
		if v != nil && b.api.stores.isOnlyUser(o, v) {
			object := "backend service " + v.Name
			list = append(list, b.remove(object, "", v, b.withLock(object, b.delete(v))))
		}
	}
	return list
}

func (b *backendServices) delete(v *compute.BackendService) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) (err error) {
		if o.unneededNames, err = b.findUnneededNames(ctx, *o); err != nil {
			return err
		}
		stores := b.api.stores
		if !stores.isOnlyUser(*o, v) {
			return nil // another Service uses it now
		}
		err = deleteOne(ctx, b.api, stores.backends, o.at.backend(v.Name), "deleting backend service "+v.Name,
			request(b.api.sdk.RegionBackendServices.Delete(o.at.project, o.at.region, v.Name)))
		kept := isInUse(err) && v.Name != o.name
		if kept {
			stores.rules.InvalidateAll() // the next read shows its user
		} else if err != nil {
			return err
		}
		if o.backend != nil && o.backend.Name == v.Name {
			o.backend, o.backendName = nil, o.name
		}
		o.obsoleteBackends = slices.DeleteFunc(slices.Clone(o.obsoleteBackends), func(l *compute.BackendService) bool { return l.Name == v.Name })
		unused := func(g *compute.Backend) bool { return !stores.hasOtherUser(*o, indexGroup, resource(g.Group)) }
		if kept || o.backend != nil || len(o.groupZones) > 0 || !slices.ContainsFunc(v.Backends, unused) {
			return nil
		}
		return b.groups.findUnused(ctx, o) // other users may have gone since the first read
	}
}
