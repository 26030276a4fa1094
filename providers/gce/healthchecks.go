package gce

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Target pools take HTTP health checks only, an older kind with its own collection. Both kinds are handled as the newer one.

// checks are a load balancer's own health check, the one that the cluster's load balancers share, and their firewall rules.
type checks struct {
	own, shared                 *compute.HealthCheck
	ownFirewall, sharedFirewall *compute.Firewall
}

// checksOf returns the health checks of internal or of external load balancers.
func (o *observed) checksOf(internal bool) *checks {
	if internal {
		return &o.backendChecks
	}
	return &o.poolChecks
}

// healthChecks are those of internal load balancers on backend services, or of external ones on target pools.
type healthChecks struct {
	*writer

	store     *store[*compute.HealthCheck]
	firewalls *firewalls
	internal  bool
}

// path returns the path of a health check, which is the key of its lock too.
func (h *healthChecks) path(at location, name string) string {
	if h.internal {
		return at.healthCheck(name)
	}
	return at.httpCheck(name)
}

// document returns the form in which the API takes a health check.
func (h *healthChecks) document(check *compute.HealthCheck) any {
	if h.internal {
		return check
	}
	return toHTTPCheck(check)
}

func fromHTTPCheck(c *compute.HttpHealthCheck) *compute.HealthCheck {
	return &compute.HealthCheck{
		Name: c.Name, Description: c.Description, Type: checkType,
		HttpHealthCheck:  &compute.HTTPHealthCheck{Host: c.Host, Port: c.Port, RequestPath: c.RequestPath},
		CheckIntervalSec: c.CheckIntervalSec, TimeoutSec: c.TimeoutSec,
		HealthyThreshold: c.HealthyThreshold, UnhealthyThreshold: c.UnhealthyThreshold,
	}
}

func toHTTPCheck(c *compute.HealthCheck) *compute.HttpHealthCheck {
	http := c.HttpHealthCheck
	return &compute.HttpHealthCheck{
		Name: c.Name, Description: c.Description, Host: http.Host, Port: http.Port, RequestPath: http.RequestPath,
		CheckIntervalSec: c.CheckIntervalSec, TimeoutSec: c.TimeoutSec,
		HealthyThreshold: c.HealthyThreshold, UnhealthyThreshold: c.UnhealthyThreshold,
	}
}

func (d *desired) checkName() string {
	if d.ownCheck {
		return d.name
	}
	return sharedCheckName(d.cluster)
}

func (d *desired) checkFirewallName() string {
	if d.ownCheck {
		return ownCheckFirewallName(d.name, d.internal)
	}
	return sharedCheckFirewallName(d.cluster, d.internal)
}

// healthCheck returns the desired health check, which keeps larger numbers that users have set.
func (d *desired) healthCheck(have *compute.HealthCheck) *compute.HealthCheck {
	want := &compute.HealthCheck{
		Name: d.checkName(), Type: checkType, HttpHealthCheck: &compute.HTTPHealthCheck{Port: d.checkPort, RequestPath: checkPath},
		CheckIntervalSec: checkInterval, TimeoutSec: checkTimeout, HealthyThreshold: checkHealthy, UnhealthyThreshold: checkUnhealthy,
	}
	switch { // as Google's own controller does
	case !d.internal:
		want.Description = serviceDescription(want.Name)
	case d.ownCheck:
		want.Description = serviceDescription(d.service)
	}
	if have != nil {
		want.CheckIntervalSec, want.TimeoutSec = max(want.CheckIntervalSec, have.CheckIntervalSec), max(want.TimeoutSec, have.TimeoutSec)
		want.HealthyThreshold = max(want.HealthyThreshold, have.HealthyThreshold)
		want.UnhealthyThreshold = max(want.UnhealthyThreshold, have.UnhealthyThreshold)
	}
	return want
}

// equalChecks compares the fields of a health check that this program sets.
func equalChecks(a, b *compute.HealthCheck) bool {
	return a.Type == b.Type && a.Description == b.Description && a.HttpHealthCheck != nil &&
		a.HttpHealthCheck.Port == b.HttpHealthCheck.Port &&
		a.HttpHealthCheck.RequestPath == b.HttpHealthCheck.RequestPath && a.CheckIntervalSec == b.CheckIntervalSec &&
		a.TimeoutSec == b.TimeoutSec && a.HealthyThreshold == b.HealthyThreshold && a.UnhealthyThreshold == b.UnhealthyThreshold
}

// checkFirewall lets the health check reach the nodes. The shared rule serves all load balancers, so it names no address.
func (d *desired) checkFirewall(ip string) *compute.Firewall {
	f := &compute.Firewall{
		Name: d.checkFirewallName(), Network: d.at.network, Priority: firewallPriority, SourceRanges: d.sources, TargetTags: d.tags,
		Allowed: []*compute.FirewallAllowed{{IPProtocol: protocolTCP, Ports: []string{strconv.FormatInt(d.checkPort, 10)}}},
	}
	switch {
	case d.internal:
	case d.ownCheck:
		f.Description, f.DestinationRanges = firewallDescription(d.service, ip), []string{ip}
	default:
		f.Description = clusterDescription(d.cluster)
	}
	return f
}

// observe reads the health checks and their firewall rules.
func (h *healthChecks) observe(ctx context.Context, rd *reader, o *observed) {
	checks := o.checksOf(h.internal)
	if !rd.onlyNodes {
		checks.own = read(ctx, rd, h.store, o.name)
	}
	if !rd.onlyNodes && o.identified {
		checks.shared = read(ctx, rd, h.store, sharedCheckName(o.cluster))
	}
	if rd.firewalls {
		checks.ownFirewall = read(ctx, rd, h.api.stores.firewalls, ownCheckFirewallName(o.name, h.internal))
	}
	if rd.firewalls && o.identified {
		checks.sharedFirewall = read(ctx, rd, h.api.stores.firewalls, sharedCheckFirewallName(o.cluster, h.internal))
	}
}

// changes create or change the health check before anything refers to it.
func (h *healthChecks) changes(o observed, d desired) []change {
	have := o.checksOf(h.internal).shared
	if d.ownCheck {
		have = o.checksOf(h.internal).own
	}
	want := d.healthCheck(have)
	object, detail, put := "health check "+want.Name, fmt.Sprint("port ", d.checkPort), h.withLock(h.path(o.at, want.Name), h.put(d))
	switch {
	case have == nil:
		return []change{h.create(object, detail, h.document(want), put)}
	case !equalChecks(have, want):
		return []change{h.update(object, detail, services.Within(h.document(have), h.document(want)), h.document(want), put)}
	}
	return nil
}

// put creates or replaces a health check. Another Service may have created the shared one meanwhile.
func (h *healthChecks) put(d desired) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) error {
		have, err := find(ctx, h.store, d.checkName(), ensureQuery)
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		if want := d.healthCheck(have); have == nil || !equalChecks(have, want) {
			have, err = putOne(ctx, h.api, h.store, want, h.path(o.at, want.Name), "making health check "+want.Name, h.putRequest(o.at, want, have == nil))
		}
		checks := o.checksOf(h.internal)
		if d.ownCheck {
			checks.own = have
			return err
		}
		if checks.shared = have; err != nil {
			return err
		}
		// Another Service that deleted the health check may also have deleted its firewall rule.
		checks.sharedFirewall, err = find(ctx, h.api.stores.firewalls, d.checkFirewallName(), ensureQuery)
		return cloudapi.NotAbsence(err)
	}
}

func (h *healthChecks) putRequest(at location, want *compute.HealthCheck, create bool) requestFunc {
	sdk, old := h.api.sdk.HealthChecks, h.api.sdk.HttpHealthChecks
	switch {
	case h.internal && create:
		return request(sdk.Insert(at.project, want))
	case h.internal:
		return request(sdk.Update(at.project, want.Name, want))
	case create:
		return request(old.Insert(at.project, toHTTPCheck(want)))
	}
	return request(old.Update(at.project, want.Name, toHTTPCheck(want)))
}

// obsoleteDeletions delete the health check that another one replaces.
func (h *healthChecks) obsoleteDeletions(o observed, d desired) []change {
	if d.ownCheck {
		return h.sharedDeletions(o)
	}
	return h.ownDeletions(o)
}

func (h *healthChecks) ownDeletions(o observed) []change {
	checks := o.checksOf(h.internal)
	return h.deletions(o, o.name, "", checks.own, checks.ownFirewall)
}

// sharedDeletions delete the objects that a cluster's load balancers share, if no other known one uses them. The cloud refuses that while
// one does.
func (h *healthChecks) sharedDeletions(o observed) []change {
	name, why := sharedCheckName(o.cluster), "no load balancer uses it"
	if h.internal {
		why = "no internal load balancer uses it"
	}
	if !o.identified || h.internal && h.api.stores.hasOtherUser(o, indexCheck, name) {
		return nil
	}
	isOther := func(p *compute.TargetPool) bool { return p.Name != o.name && p.Name != nextPoolName(o.name) }
	if !h.internal && slices.ContainsFunc(h.api.stores.pools.PeekIndex(indexCheck, name), isOther) {
		return nil
	}
	checks := o.checksOf(h.internal)
	return h.deletions(o, name, why, checks.shared, checks.sharedFirewall)
}

func (h *healthChecks) deletions(o observed, name, why string, check *compute.HealthCheck, firewall *compute.Firewall) (list []change) {
	if check != nil {
		list = append(list, h.remove("health check "+name, why, h.document(check), h.withLock(h.path(o.at, name), h.delete(name))))
	}
	if firewall != nil {
		list = append(list, h.firewalls.deletion(firewall.Name))
	}
	return list
}

func (h *healthChecks) delete(name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) error {
		call := request(h.api.sdk.HttpHealthChecks.Delete(o.at.project, name))
		if h.internal {
			call = request(h.api.sdk.HealthChecks.Delete(o.at.project, name))
		}
		err := deleteOne(ctx, h.api, h.store, h.path(o.at, name), "deleting health check "+name, call)
		checks := o.checksOf(h.internal)
		switch {
		case isInUse(err) && name != o.name: // by a load balancer of another process: both stay, and the next read shows it
			checks.shared, checks.sharedFirewall = nil, nil
			if h.internal {
				h.api.stores.backends.InvalidateAll()
			} else {
				h.api.stores.pools.InvalidateAll()
			}
			return nil
		case err != nil:
			return err
		case name == o.name:
			checks.own = nil
		default:
			checks.shared = nil
		}
		return nil
	}
}
