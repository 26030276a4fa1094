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
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// reportedMessages remembers messages for each Service, so that each is written once.
type reportedMessages struct {
	mu       sync.Mutex
	commands map[types.UID]map[string]string
}

// isNew reports whether a message about a rule is new for a Service.
func (t *reportedMessages) isNew(uid types.UID, rule, command string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.commands == nil {
		t.commands = map[types.UID]map[string]string{}
	}
	if t.commands[uid] == nil {
		t.commands[uid] = map[string]string{}
	}
	is := t.commands[uid][rule] != command
	t.commands[uid][rule] = command
	return is
}

// firewallChanges create or change a firewall rule.
func (b *reconciler) firewallChanges(have, want *compute.Firewall) []change {
	object := "firewall rule " + want.Name
	if have == nil {
		return []change{withCompare(b.step(contract.PlanCreate, object, strings.Join(want.SourceRanges, ", "), b.putFirewall(want)), nil, want)}
	}
	differs := firewallChange(have, want)
	if differs == "" {
		return nil
	}
	before := *have
	if resource(have.Network) == resource(want.Network) {
		before.Network = want.Network // ignore the notation
	}
	return []change{withCompare(b.step(contract.PlanChange, object, differs, b.putFirewall(want)), services.Within(&before, want), want)}
}

// putFirewall creates or changes a firewall rule. Another Service may have created a shared one meanwhile. In a shared network an
// administrator may have to do it.
func (b *reconciler) putFirewall(want *compute.Firewall) writeFunc {
	return func(ctx context.Context, r *services.Request, at place, o *observation) error {
		unlock, err := b.lock(ctx, "firewall rule "+want.Name)
		if err != nil {
			return err
		}
		defer unlock()
		have, err := find(ctx, b.api.stores.firewalls, want.Name, ensureQuery)
		if err != nil {
			return cloudapi.NotAbsence(err)
		}
		sdk, body, verb := b.api.sdk.Firewalls, want, "create"
		if have != nil {
			body, verb = mergeFirewall(have, want), "update"
		}
		after := have
		if have == nil || firewallChange(have, want) != "" {
			after, err = putOne(ctx, b.api, b.api.stores.firewalls, body, at.firewall(want.Name), "writing firewall rule "+want.Name,
				func(id string) (*compute.Operation, error) {
					if have == nil {
						return sdk.Insert(at.networkProject, body).RequestId(id).Context(ctx).Do()
					}
					return sdk.Patch(at.networkProject, want.Name, body).RequestId(id).Context(ctx).Do()
				})
		}
		if err != nil && at.isSharedVPC() && isForbidden(err) {
			b.requestManualChange(r, want.Name, gcloud(verb, at, body))
			after, err = want, nil // assume it exists: the load balancer works once the administrator creates it
		}
		b.noteFirewall(o, want.Name, after)
		return err
	}
}

// requestManualChange asks an administrator for a change, once.
func (b *reconciler) requestManualChange(r *services.Request, rule, command string) {
	if b.told.isNew(r.Service.UID, rule, command) {
		r.Report(services.Notice(eventByHand, "Firewall change required by security admin: `%s`", command))
	}
}

func (*reconciler) noteFirewall(o *observation, name string, f *compute.Firewall) {
	switch name {
	case firewallName(o.name):
		o.firewall = f
	case localFirewallName(o.name):
		o.localFirewall = f
	case denyFirewallName(o.name):
		o.deny = f
	case ownCheckFirewallName(o.name):
		o.ownCheckFirewall = f
	case nodeCheckFirewallName(o.cluster):
		o.nodeCheckFirewall = f
	default:
		o.sharedFirewall = f
	}
}

func (b *reconciler) firewallDeletion(name string) change {
	deletion := func(ctx context.Context, r *services.Request, at place, o *observation) error {
		unlock, needed, err := b.lockIfNeeded(ctx, name, *o)
		defer unlock()
		if err != nil {
			return err
		}
		if needed {
			b.noteFirewall(o, name, nil)
			return nil
		}
		err = deleteOne(ctx, b.api, b.api.stores.firewalls, at.firewall(name), "deleting firewall rule "+name, func(id string) (*compute.Operation, error) {
			return b.api.sdk.Firewalls.Delete(at.networkProject, name).RequestId(id).Context(ctx).Do()
		})
		if err != nil && at.isSharedVPC() && isForbidden(err) {
			b.requestManualChange(r, name, gcloud("delete", at, &compute.Firewall{Name: name}))
			err = nil
		}
		if err == nil {
			b.noteFirewall(o, name, nil)
		}
		return err
	}
	return withCompare(b.step(contract.PlanDelete, "firewall rule "+name, "", deletion), field("name", name), nil)
}

// lockIfNeeded reports whether a shared firewall rule must stay, because its health check exists. Until unlock, no other Service can create
// that.
func (b *reconciler) lockIfNeeded(ctx context.Context, name string, o observation) (unlock func(), needed bool, err error) {
	check := sharedCheckName(o.cluster)
	switch name {
	case sharedFirewallName(o.cluster):
		return lockAndFind(ctx, b, b.api.stores.checks, "health check "+check, check, o.sharedFirewall == nil)
	case nodeCheckFirewallName(o.cluster):
		return lockAndFind(ctx, b, b.api.stores.nodeChecks, "node health check "+check, check, o.nodeCheckFirewall == nil)
	}
	return func() {}, false, nil
}

// lockAndFind reports whether a shared health check exists. Until unlock, no other Service can create it.
func lockAndFind[T any](
	ctx context.Context, b *reconciler, s *store[T], key, check string, gone bool,
) (unlock func(), there bool, err error) {
	if gone {
		return func() {}, true, nil
	}
	unlock, err = b.lock(ctx, key)
	if err != nil {
		return func() {}, false, err
	}
	found, err := s.Find(ctx, indexName, check, ensureQuery)
	return unlock, len(found) > 0, cloudapi.NotAbsence(err)
}

// gcloud returns the command with which an administrator makes the change.
func gcloud(verb string, at place, f *compute.Firewall) string {
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
