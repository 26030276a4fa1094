package gce

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"

	compute "google.golang.org/api/compute/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// firewalls are the rules of the network that let clients and health checks reach the nodes.
type firewalls struct {
	*writer

	reported reportedMessages
}

// reportedMessages remembers the last message about each object of a Service, so that it is written once.
type reportedMessages struct{ last sync.Map }

type reportKey struct {
	service types.UID
	object  string
}

// isNew reports whether a message about an object differs from the last one.
func (m *reportedMessages) isNew(service types.UID, object, message string) bool {
	last, _ := m.last.Swap(reportKey{service, object}, message)
	return last != message
}

// trafficFirewall lets clients reach the ports of the load balancer. It needs a higher priority than a deny rule, which wins at equal
// priority.
func (d *desired) trafficFirewall(o observed) *compute.Firewall {
	priority := int64(firewallPriority)
	if o.denyFirewall != nil {
		priority = max(o.denyFirewall.Priority-1, 0)
	}
	return &compute.Firewall{
		Name: firewallName(d.name), Description: firewallDescription(d.service, o.rule.IPAddress), Network: d.at.network, Priority: priority,
		SourceRanges: d.settings.SourceRanges, DestinationRanges: []string{o.rule.IPAddress}, TargetTags: d.tags,
		Allowed: []*compute.FirewallAllowed{{IPProtocol: strings.ToLower(d.protocol), Ports: portRanges(d.ports)}},
	}
}

// firewallAt returns the field for the firewall rule of this name.
func (o *observed) firewallAt(name string) **compute.Firewall {
	switch name {
	case firewallName(o.name):
		return &o.firewall
	case denyFirewallName(o.name):
		return &o.denyFirewall
	case ownCheckFirewallName(o.name, false):
		return &o.poolChecks.ownFirewall
	case ownCheckFirewallName(o.name, true):
		return &o.backendChecks.ownFirewall
	case sharedCheckFirewallName(o.cluster, true):
		return &o.backendChecks.sharedFirewall
	}
	return &o.poolChecks.sharedFirewall
}

// changes create or change a firewall rule.
func (f *firewalls) changes(have, want *compute.Firewall) []change {
	object, put := "firewall rule "+want.Name, f.withLock("firewall rule "+want.Name, f.put(want))
	if have == nil {
		return []change{f.create(object, strings.Join(want.SourceRanges, ", "), want, put)}
	}
	differs := firewallChange(have, want)
	if differs == "" {
		return nil
	}
	before := *have
	if resource(have.Network) == resource(want.Network) {
		before.Network = want.Network // ignore the notation
	}
	return []change{f.update(object, differs, services.Within(&before, want), want, put)}
}

// put creates or changes a firewall rule, unless another Service just did. If the network's project forbids it, an administrator is asked.
func (f *firewalls) put(want *compute.Firewall) writeFunc {
	return func(ctx context.Context, req *services.Request, o *observed) error {
		have, err := find(ctx, f.api.stores.firewalls, want.Name, ensureQuery)
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		body, verb, call := want, "create", request(f.api.sdk.Firewalls.Insert(o.at.networkProject, want))
		if have != nil {
			body, verb = mergeFirewall(have, want), "update"
			call = request(f.api.sdk.Firewalls.Patch(o.at.networkProject, want.Name, body))
		}
		after := have
		if have == nil || firewallChange(have, want) != "" {
			after, err = putOne(ctx, f.api, f.api.stores.firewalls, body, o.at.firewall(want.Name), "writing firewall rule "+want.Name, call)
		}
		if err != nil && o.at.isSharedVPC() && isForbidden(err) {
			f.requestManualChange(req, want.Name, gcloud(verb, o.at, body))
			after, err = want, nil // assume it exists: the load balancer works once the administrator creates it
		}
		*o.firewallAt(want.Name) = after
		return err
	}
}

// requestManualChange asks an administrator for a change, once.
func (f *firewalls) requestManualChange(req *services.Request, rule, command string) {
	if f.reported.isNew(req.Service.UID, rule, command) {
		req.Report(services.Notice(eventByHand, "Firewall change required by security admin: `%s`", command))
	}
}

func (f *firewalls) deletion(name string) change {
	return f.remove("firewall rule "+name, "", field("name", name), func(ctx context.Context, req *services.Request, o *observed) error {
		unlock, needed, err := f.lockIfNeeded(ctx, name, *o)
		defer unlock()
		if err != nil {
			return err
		}
		if !needed {
			err = deleteOne(ctx, f.api, f.api.stores.firewalls, o.at.firewall(name), "deleting firewall rule "+name,
				request(f.api.sdk.Firewalls.Delete(o.at.networkProject, name)))
		}
		if err != nil && o.at.isSharedVPC() && isForbidden(err) {
			f.requestManualChange(req, name, gcloud("delete", o.at, &compute.Firewall{Name: name}))
			err = nil
		}
		if err == nil {
			*o.firewallAt(name) = nil
		}
		return err
	})
}

// lockIfNeeded reports whether a shared firewall rule must stay, because its health check exists. Until unlock, no other Service can create
// that.
func (f *firewalls) lockIfNeeded(ctx context.Context, name string, o observed) (unlock func(), needed bool, err error) {
	store, path := f.api.stores.httpChecks, o.at.httpCheck(sharedCheckName(o.cluster))
	switch name {
	case sharedCheckFirewallName(o.cluster, false):
	case sharedCheckFirewallName(o.cluster, true):
		store, path = f.api.stores.checks, o.at.healthCheck(sharedCheckName(o.cluster))
	default:
		return func() {}, false, nil
	}
	if *o.firewallAt(name) == nil {
		return func() {}, true, nil
	}
	if unlock, err = f.locks.Lock(ctx, path); err != nil {
		return func() {}, false, err
	}
	found, err := find(ctx, store, lastPart(path), ensureQuery)
	return unlock, found != nil, cloudapi.NotAbsence(err)
}

// gcloud returns the command with which an administrator makes the change.
func gcloud(verb string, at location, f *compute.Firewall) string {
	parts := []string{"gcloud compute firewall-rules", verb, f.Name}
	if verb == "create" {
		parts = append(parts, "--network", lastPart(at.network))
	}
	if verb != "delete" {
		var allowed []string
		for _, a := range f.Allowed {
			for _, p := range a.Ports {
				allowed = append(allowed, a.IPProtocol+":"+p)
			}
		}
		add := func(flag string, list []string) {
			if len(list) > 0 {
				parts = append(parts, flag, strings.Join(slices.Sorted(slices.Values(list)), ","))
			}
		}
		parts = append(parts, "--description", strconv.Quote(f.Description))
		add("--allow", allowed)
		add("--source-ranges", f.SourceRanges)
		add("--destination-ranges", f.DestinationRanges)
		add("--target-tags", f.TargetTags)
		if f.Priority != 0 {
			parts = append(parts, "--priority", strconv.FormatInt(f.Priority, 10))
		}
	}
	return strings.Join(append(parts, "--project", at.networkProject), " ")
}
