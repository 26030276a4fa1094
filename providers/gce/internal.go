package gce

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const schemeInternal = "INTERNAL"

// observeInternal reads the objects of an internal load balancer.
func (b *reconciler) observeInternal(ctx context.Context, r services.Request, q inventory.Query, o *observation) error {
	s := b.api.stores
	o.nameBackend(r)
	reads := []func() error{readInto(ctx, s.backends, o.backendName, q, &o.backend)}
	if r.Purpose != services.UpdateNodes {
		reads = append(reads, readInto(ctx, s.nodeChecks, o.name, q, &o.ownCheck))
		if o.identified {
			left := func() error { return b.findObsoleteBackends(ctx, q, o) }
			reads = append(reads, left, readInto(ctx, s.nodeChecks, sharedCheckName(o.cluster), q, &o.nodeCheck))
		}
	}
	if b.readsFirewalls(r) {
		reads = append(reads, readInto(ctx, s.firewalls, ownCheckFirewallName(o.name), q, &o.ownCheckFirewall))
		if o.identified {
			reads = append(reads, readInto(ctx, s.firewalls, nodeCheckFirewallName(o.cluster), q, &o.nodeCheckFirewall))
		}
	}
	if err := readAll(reads); err != nil {
		return err
	}
	if o.rule != nil {
		o.ruleBackend, _ = s.backends.Peek(lastPart(o.rule.BackendService))
	}
	goes := r.Purpose == services.Delete || r.Purpose == services.Lookup || !isInternal(r.Service)
	if !goes || r.Purpose == services.UpdateNodes {
		return nil
	}
	at, err := b.api.places.get(ctx)
	if err != nil {
		return err
	}
	return b.findUnusedGroups(ctx, at, o)
}

// findUnusedGroups records the zones whose instance group only this Service needs.
func (b *reconciler) findUnusedGroups(ctx context.Context, at place, o *observation) error {
	if !o.identified || b.hasOtherUser(*o, indexCheck, sharedCheckName(o.cluster)) {
		return nil
	}
	zones, err := b.api.groupsNamed(ctx, at, groupName(o.cluster))
	for _, zone := range zones {
		if !b.hasOtherUser(*o, indexGroup, at.group(groupID{zone, groupName(o.cluster)})) {
			o.groupZones = append(o.groupZones, zone)
		}
	}
	return err
}

// hasOtherUser reports whether a known backend service of another Service refers to an object.
func (b *reconciler) hasOtherUser(o observation, index, key string) bool {
	users := b.api.stores.backends.PeekIndex(index, key)
	return slices.ContainsFunc(users, func(v *compute.BackendService) bool { return !b.isOnlyUser(o, v) })
}

// desireInternal sets the fields of internal load balancers.
func (b *reconciler) desireInternal(
	ctx context.Context, o observation, d *spec, at place, m membership,
) (findings []services.Finding, err error) {
	d.internal, d.at, d.globalAccess, d.tier, d.backend = true, at, d.settings.GlobalAccess == annotationOn, tierPremium, d.name
	if d.settings.shares() && !d.local {
		d.backend = sharedBackendName(d.cluster, d.protocol, d.affinity)
	}
	if d.subnet, d.legacy, err = b.subnetOf(ctx, d.settings.Subnet, at); err != nil {
		return nil, err
	}
	if d.legacy && (d.globalAccess || d.settings.Subnet != "") {
		d.globalAccess = false
		findings = append(findings, services.Warning(eventOptionsIgnored, "Options of internal load balancers have no effect: the network is a legacy one, without subnets."))
	}
	d.groups, err = b.desiredGroups(ctx, o, groupName(d.cluster), at, m)
	return append(findings, groupFindings(d.groups)...), err
}

// internalRuleChange explains why an internal forwarding rule must be replaced, "" if not.
func internalRuleChange(rule *compute.ForwardingRule, d spec, at string) string {
	switch {
	case rule.LoadBalancingScheme != schemeInternal:
		return "scheme internal"
	case d.ip != "" && rule.IPAddress != d.ip:
		return "address " + d.ip
	case rule.IPProtocol != d.protocol:
		return "protocol " + d.protocol
	case rule.AllPorts != d.allPorts() || (!d.allPorts() && !services.SameSet(rule.Ports, d.rulePorts())):
		return "ports"
	case rule.AllowGlobalAccess != d.globalAccess:
		return "global access"
	case resource(rule.Subnetwork) != d.subnet:
		return "subnet " + lastPart(d.subnet)
	case lastPart(rule.BackendService) != at:
		return "backend service " + at
	}
	return ""
}

func (d *spec) rulePorts() (ports []string) {
	for _, p := range d.ports {
		ports = append(ports, strconv.Itoa(int(p.Port)))
	}
	return ports
}

// allPorts reports whether there are more ports than a rule can list. Then it takes all ports, and the firewall restricts them.
func (d *spec) allPorts() bool { return len(d.ports) > gcelimits.RulePorts.Max }

// internalRule sets the fields of internal forwarding rules.
func (*reconciler) internalRule(rule *compute.ForwardingRule, at place, d spec) {
	rule.PortRange, rule.Target, rule.NetworkTier = "", "", ""
	rule.LoadBalancingScheme, rule.BackendService = schemeInternal, at.backend(d.backend)
	rule.Network, rule.Subnetwork, rule.AllowGlobalAccess = at.network, d.subnet, d.globalAccess
	if rule.AllPorts = d.allPorts(); !rule.AllPorts {
		rule.Ports = d.rulePorts()
	}
}

func (b *reconciler) internalChanges(r services.Request, o observation, d spec) []change {
	list := b.finalizerChanges(r, finalizerILB, true)
	if gone := b.externalDeletions(r, o); len(gone) > 0 {
		return append(list, gone...) // the other kind is created after everything of this one is deleted
	}
	list = append(list, b.groupChanges(d.groups)...)
	list = append(list, b.nodeCheckChanges(o, d)...)
	replace := o.rule != nil && internalRuleChange(o.rule, d, d.backend) != ""
	made := o.rule == nil || replace
	have := o.nodeCheckFirewall
	if d.local {
		have = o.ownCheckFirewall
	}
	opening := b.firewallChanges(have, d.desiredNodeCheckFirewall())
	if !made {
		list = append(list, opening...) // a backend service relies on the health check
	}
	if !d.legacy {
		list = append(list, b.addressChanges(o, d, replace)...)
	}
	if replace {
		why := "to be made again: " + internalRuleChange(o.rule, d, d.backend)
		list = append(list, withCompare(b.step(contract.PlanDelete, "forwarding rule "+d.name, why, b.deleteRule), planFields(o.rule), nil))
	}
	list = append(list, b.backendChanges(o, d)...)
	if made {
		what := "internal, " + d.protocol + " " + strings.Join(d.rulePorts(), ", ")
		rule := &compute.ForwardingRule{Name: d.name, IPProtocol: d.protocol, IPAddress: d.ip}
		b.internalRule(rule, d.at, d)
		list = append(list, withCompare(b.step(contract.PlanCreate, "forwarding rule "+d.name, what, b.createRule(d)), nil, rule))
		o.rule = d.expectedRule(o)
		list = append(list, opening...)
	}
	list = append(list, b.firewallChanges(o.firewall, d.desiredFirewall(o.rule.IPAddress))...)
	list = append(list, b.addressRelease(o, d, replace && !d.legacy)...)
	list = append(append(list, b.backendDeletions(o, o.obsoleteBackends...)...), b.obsoleteNodeChecks(o, d)...)
	if made {
		return list
	}
	return b.addMarkChange(o, d, list)
}

// desiredNodeCheckFirewall lets the health check reach the nodes.
func (d *spec) desiredNodeCheckFirewall() *compute.Firewall {
	name := nodeCheckFirewallName(d.cluster)
	if d.local {
		name = ownCheckFirewallName(d.name)
	}
	return &compute.Firewall{
		Name: name, Network: d.network, Priority: firewallPriority, SourceRanges: d.sources, TargetTags: d.tags,
		Allowed: []*compute.FirewallAllowed{{IPProtocol: protocolTCP, Ports: []string{strconv.FormatInt(d.checkPort, 10)}}},
	}
}

// desiredNodeCheck keeps larger numbers that users have set.
func (d *spec) desiredNodeCheck(have *compute.HealthCheck) *compute.HealthCheck {
	want := &compute.HealthCheck{
		Name: d.checkName(), Type: "HTTP", HttpHealthCheck: &compute.HTTPHealthCheck{Port: d.checkPort, RequestPath: checkPath},
		CheckIntervalSec: checkInterval, TimeoutSec: checkTimeout, HealthyThreshold: checkHealthy, UnhealthyThreshold: checkUnhealthy,
	}
	if d.local {
		want.Description = serviceDescription(d.service)
	}
	if have != nil {
		want.CheckIntervalSec, want.TimeoutSec = max(want.CheckIntervalSec, have.CheckIntervalSec), max(want.TimeoutSec, have.TimeoutSec)
		want.HealthyThreshold = max(want.HealthyThreshold, have.HealthyThreshold)
		want.UnhealthyThreshold = max(want.UnhealthyThreshold, have.UnhealthyThreshold)
	}
	return want
}

func sameNodeCheck(a, b *compute.HealthCheck) bool {
	return a.Type == b.Type && a.Description == b.Description && a.HttpHealthCheck != nil &&
		a.HttpHealthCheck.Port == b.HttpHealthCheck.Port &&
		a.HttpHealthCheck.RequestPath == b.HttpHealthCheck.RequestPath && a.CheckIntervalSec == b.CheckIntervalSec &&
		a.TimeoutSec == b.TimeoutSec && a.HealthyThreshold == b.HealthyThreshold && a.UnhealthyThreshold == b.UnhealthyThreshold
}

// nodeCheckChanges create or change the health check before anything refers to it.
func (b *reconciler) nodeCheckChanges(o observation, d spec) []change {
	have, action := o.nodeCheck, contract.PlanChange
	if d.local {
		have = o.ownCheck
	}
	want := d.desiredNodeCheck(have)
	var before any
	if have == nil {
		action = contract.PlanCreate
	} else {
		before = services.Within(have, want)
	}
	if have != nil && sameNodeCheck(have, want) {
		return nil
	}
	put := b.step(action, "health check "+want.Name, fmt.Sprint("port ", d.checkPort), b.putNodeCheck(want.Name, d))
	return []change{withCompare(put, before, want)}
}

func (b *reconciler) putNodeCheck(name string, d spec) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "node health check "+name)
		if err != nil {
			return err
		}
		defer unlock()
		have, err := find(ctx, b.api.stores.nodeChecks, name, ensureQuery)
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		if want := d.desiredNodeCheck(have); have == nil || !sameNodeCheck(have, want) {
			sdk := b.api.sdk.HealthChecks
			have, err = putOne(ctx, b.api, b.api.stores.nodeChecks, want, at.healthCheck(name), "making health check "+name,
				func(id string) (*compute.Operation, error) {
					if have == nil {
						return sdk.Insert(at.project, want).RequestId(id).Context(ctx).Do()
					}
					return sdk.Update(at.project, name, want).RequestId(id).Context(ctx).Do()
				})
		}
		if d.local {
			o.ownCheck = have
			return err
		}
		if o.nodeCheck = have; err != nil {
			return err
		}
		// Another Service that deleted the health check may also have deleted its firewall rule.
		o.nodeCheckFirewall, err = find(ctx, b.api.stores.firewalls, nodeCheckFirewallName(d.cluster), ensureQuery)
		return cloudapi.NotAbsence(err)
	}
}

// backendChanges update the backend service. User settings for draining, logging and failover stay.
func (b *reconciler) backendChanges(o observation, d spec) []change {
	if o.backend == nil {
		put := b.step(contract.PlanCreate, "backend service "+d.backend, fmt.Sprint(len(d.zones()), " instance groups"), b.putBackend(d))
		return []change{withCompare(put, nil, map[string]any{
			"name": d.backend, "protocol": d.protocol, "sessionAffinity": d.affinity, "zones": d.zones(), "healthChecks": []string{d.checkName()},
		})}
	}
	patch, differs := d.backendPatch(o.backend, d.at)
	if differs == "" {
		return nil
	}
	put := b.step(contract.PlanChange, "backend service "+d.backend, differs, b.putBackend(d))
	return []change{withCompare(put, services.Within(o.backend, patch), patch)}
}

// backendPatch returns the patch that a backend service needs, and a description of the differences.
func (d *spec) backendPatch(have *compute.BackendService, at place) (patch *compute.BackendService, differs string) {
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
	if backends, same := backendsOf(have, d.cluster, d.zones(), at); !same {
		patch.Backends, words = backends, append(words, fmt.Sprint(len(backends), " instance groups"))
		if len(backends) == 0 {
			patch.ForceSendFields = []string{"Backends"}
		}
	}
	return patch, strings.Join(words, ", ")
}

// backendsOf returns the instance groups of the zones, with the user settings of those that stay.
func backendsOf(have *compute.BackendService, cluster string, zones []string, at place) (list []*compute.Backend, same bool) {
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

func (d *spec) zones() (zones []string) {
	for _, g := range d.groups {
		if len(g.want) > 0 || g.kept {
			zones = append(zones, g.id.zone)
		}
	}
	return zones
}

func (b *reconciler) putBackend(d spec) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
		unlock, err := b.lock(ctx, "backend service "+d.backend)
		if err != nil {
			return err
		}
		defer unlock()
		if now, ok := b.api.stores.backends.Peek(d.backend); ok {
			o.backend = now
			if _, differs := d.backendPatch(now, at); differs == "" {
				return nil // another Service that shares it was faster
			}
		}
		sdk, have, what := b.api.sdk.RegionBackendServices, o.backend, "writing backend service "+d.backend
		backends, _ := backendsOf(have, d.cluster, d.zones(), at)
		body := &compute.BackendService{
			Name: d.backend, Description: d.backendDescription(), Protocol: d.protocol, SessionAffinity: d.affinity,
			LoadBalancingScheme: schemeInternal, HealthChecks: []string{at.healthCheck(d.checkName())}, Backends: backends,
		}
		path := at.backend(d.backend)
		o.backend, err = putOne(ctx, b.api, b.api.stores.backends, body, path, what, func(id string) (*compute.Operation, error) {
			if have == nil {
				return sdk.Insert(at.project, at.region, body).RequestId(id).Context(ctx).Do()
			}
			patch, _ := d.backendPatch(have, at)
			return sdk.Patch(at.project, at.region, d.backend, patch).RequestId(id).Context(ctx).Do()
		})
		if err != nil || have == nil {
			return err
		}
		return b.dropGroups(ctx, at, *o, have, d)
	}
}

// obsoleteNodeChecks delete the health check that another one replaces.
func (b *reconciler) obsoleteNodeChecks(o observation, d spec) (list []change) {
	if !d.local {
		return b.ownCheckDeletions(o)
	}
	if o.identified && !b.hasOtherUser(o, indexCheck, sharedCheckName(o.cluster)) {
		list = append(list, b.nodeCheckDeletions(o)...)
	}
	return list
}

func (b *reconciler) ownCheckDeletions(o observation) (list []change) {
	if o.ownCheck != nil {
		list = append(list, withCompare(b.step(contract.PlanDelete, "health check "+o.name, "", b.deleteNodeCheck(o.name)), planFields(o.ownCheck), nil))
	}
	if o.ownCheckFirewall != nil {
		list = append(list, b.firewallDeletion(ownCheckFirewallName(o.name)))
	}
	return list
}

func (b *reconciler) nodeCheckDeletions(o observation) (list []change) {
	if o.nodeCheck != nil {
		name := sharedCheckName(o.cluster)
		gone := b.step(contract.PlanDelete, "health check "+name, "no internal load balancer uses it", b.deleteNodeCheck(name))
		list = append(list, withCompare(gone, planFields(o.nodeCheck), nil))
	}
	if o.nodeCheckFirewall != nil {
		list = append(list, b.firewallDeletion(nodeCheckFirewallName(o.cluster)))
	}
	return list
}

func (b *reconciler) deleteNodeCheck(name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "node health check "+name)
		if err != nil {
			return err
		}
		defer unlock()
		err = deleteOne(ctx, b.api, b.api.stores.nodeChecks, at.healthCheck(name), "deleting health check "+name,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.HealthChecks.Delete(at.project, name).RequestId(id).Context(ctx).Do()
			})
		switch {
		case inUse(err) && name != o.name:
			o.nodeCheck, o.nodeCheckFirewall = nil, nil // a load balancer of another process uses it: both stay
			b.api.stores.backends.InvalidateAll()       // the next read shows its user
			return nil
		case err != nil:
			return err
		case name == o.name:
			o.ownCheck = nil
		default:
			o.nodeCheck = nil
		}
		return nil
	}
}

// internalDeletions delete everything that belongs to an internal load balancer, and with the last one the shared objects.
func (b *reconciler) internalDeletions(r services.Request, o observation) (list []change) {
	if o.rule != nil && o.rule.LoadBalancingScheme == schemeInternal {
		if o.firewall != nil {
			list = append(list, b.firewallDeletion(firewallName(o.name)))
		}
		list = append(list, withCompare(b.step(contract.PlanDelete, "forwarding rule "+o.name, "", b.deleteRule), planFields(o.rule), nil))
	}
	list = append(list, b.backendDeletions(o, append(o.obsoleteBackends, o.backend)...)...)
	list = append(list, b.ownCheckDeletions(o)...)
	if o.identified && !b.hasOtherUser(o, indexCheck, sharedCheckName(o.cluster)) {
		list = append(list, b.nodeCheckDeletions(o)...)
	}
	for _, zone := range o.groupZones {
		gone := b.step(contract.PlanDelete, "instance group "+groupName(o.cluster)+" in "+zone, "no internal load balancer uses it",
			func(ctx context.Context, _ *services.Request, at place, o *observation) error {
				err := b.deleteGroup(ctx, at, groupID{zone, groupName(o.cluster)})
				if err == nil {
					o.groupZones = slices.DeleteFunc(slices.Clone(o.groupZones), func(z string) bool { return z == zone })
				}
				return err
			})
		list = append(list, withCompare(gone, field("zone", zone), nil))
	}
	return append(list, b.finalizerChanges(r, finalizerILB, false)...)
}

// hasInternalParts reports whether any object of an internal load balancer exists.
func (b *reconciler) hasInternalParts(r services.Request, o observation) bool {
	shared := o.nodeCheck != nil || o.nodeCheckFirewall != nil
	if shared && o.identified && !b.hasOtherUser(o, indexCheck, sharedCheckName(o.cluster)) {
		return true
	}
	backends := b.backendDeletions(o, append(o.obsoleteBackends, o.backend)...)
	return len(backends) > 0 || o.ownCheck != nil || o.ownCheckFirewall != nil || len(o.groupZones) > 0 ||
		slices.Contains(r.Service.Finalizers, finalizerILB)
}
