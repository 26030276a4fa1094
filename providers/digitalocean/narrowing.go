package digitalocean

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// This file shuts out clients that a Service no longer allows, before other changes.

var _ services.Narrower[observed] = (*reconciler)(nil)

// nobody is a documentation address. An empty allow list would admit everybody.
const nobody = "ip:192.0.2.0"

// Narrowing implements services.Narrower: one call changes only the allow and deny rules.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, o observed) ([]services.Change[observed], error) {
	if o.lb == nil || o.lb.Type == godo.LoadBalancerTypeGlobal {
		return nil, nil
	}
	have := ptr.Deref(o.lb.Firewall, godo.LBFirewall{})
	after := narrow(have, req.Service)
	if sameFirewall(&have, &after) {
		return nil, nil
	}
	if req.Purpose != services.Narrow {
		if whole, unreadable := firewallRules(req.Service, o.settings); o.faults == nil && unreadable == nil {
			after = *whole
		}
	}
	vanished := r.findVanished(ctx, o.lb, nil)
	request := keepFixed(o.lb, withoutDroplets(o.lb, vanished).AsRequest())
	request.SizeSlug, request.SizeUnit = currentSize(o.lb)
	request.Firewall = &after
	slices.Sort(request.Tags) // the API guarantees no order
	slices.SortFunc(request.ForwardingRules, func(a, b godo.ForwardingRule) int {
		return cmp.Or(cmp.Compare(a.EntryPort, b.EntryPort), strings.Compare(a.EntryProtocol, b.EntryProtocol))
	})
	changes := r.changes(o.lb, vanished, []step{{kind: replace, request: request, reasons: []string{"firewall"}}})
	marks, err := r.owners.marks(ctx, req.Service, o.match)
	if err == nil && o.lacksMarks(marks) {
		changes = append(changes, r.markChange(o.lb, marks))
	}
	return changes, err
}

// narrow removes clients that the Service does not allow. It never admits new ones.
func narrow(have godo.LBFirewall, service *v1.Service) godo.LBFirewall {
	after := godo.LBFirewall{Allow: have.Allow, Deny: slices.Clone(have.Deny)}
	denied := networksOf(have.Deny)
	for rule := range strings.SplitSeq(service.Annotations[annotationDenyRules], ",") {
		if p, is := networkOf(rule); is && !slices.Contains(denied, p) {
			after.Deny = append(after.Deny, strings.TrimSpace(rule))
		}
	}
	before := networksOf(have.Allow)
	if len(have.Allow) == 0 {
		before = networksOf([]string{"cidr:" + everywhereV4, "cidr:" + everywhereV6})
	}
	networks, closes := clientsOf(service).Narrow(before, false)
	if !closes {
		return after
	}
	after.Allow = nil
	for _, p := range networks {
		rule := "cidr:" + p.String()
		if at := slices.IndexFunc(have.Allow, func(rule string) bool { q, _ := networkOf(rule); return p == q }); at >= 0 {
			rule = have.Allow[at]
		}
		after.Allow = append(after.Allow, rule)
	}
	if len(after.Allow) == 0 {
		after.Allow = []string{nobody}
	}
	return after
}

// clientsOf returns the clients that a Service allows, as far as they can be read: source ranges, otherwise allow rules.
func clientsOf(service *v1.Service) sources.Set {
	set, _ := sources.Parse(sources.Field, service.Spec.LoadBalancerSourceRanges)
	text := strings.TrimSpace(service.Annotations[annotationAllowRules])
	if !set.Everybody() || text == "" {
		return set
	}
	rules := slices.DeleteFunc(strings.Split(text, ","), func(rule string) bool { return strings.TrimSpace(rule) == "" })
	networks := networksOf(rules)
	return sources.New(networks, len(rules) == 0 || len(networks) < len(rules))
}

// networksOf returns the networks of readable rules.
func networksOf(rules []string) (networks []netip.Prefix) {
	for _, rule := range rules {
		if p, is := networkOf(rule); is {
			networks = append(networks, p)
		}
	}
	return networks
}

// networkOf returns the network of an allow or deny rule.
func networkOf(rule string) (netip.Prefix, bool) {
	kind, text, _ := strings.Cut(strings.TrimSpace(rule), ":")
	ip, noAddress := netip.ParseAddr(text)
	p, noNetwork := netip.ParsePrefix(text)
	switch {
	case kind == "ip" && noAddress == nil:
		return netip.PrefixFrom(ip, ip.BitLen()), true
	case kind == "cidr" && noNetwork == nil:
		return p.Masked(), true
	}
	return netip.Prefix{}, false
}
