package gce

import (
	"context"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ services.Narrower[observation] = (*reconciler)(nil)

// Narrowing removes clients that the Service no longer allows. A firewall rule without sources would admit everybody, so it is deleted. A
// Service with more networks than a rule takes is refused, and keeps as many as fit.
func (b *reconciler) Narrowing(_ context.Context, r services.Request, o observation) ([]change, error) {
	if o.firewall == nil {
		return nil, nil
	}
	set, _ := sources.ForService(r.Service, annotationSourceRanges)
	after, narrower := set.Families(true, false).NarrowTexts(o.firewall.SourceRanges, r.Purpose != services.Narrow)
	switch {
	case !narrower:
		return nil, nil
	case len(after) == 0:
		return []change{b.firewallDeletion(o.firewall.Name)}, nil
	}
	have := o.firewall
	after = rangesThatFit(after, have.SourceRanges)
	var allowed []*compute.FirewallAllowed
	for _, a := range have.Allowed { // the API guarantees no order
		ports := slices.SortedFunc(slices.Values(a.Ports), func(a, b string) int {
			return slices.Compare(numbersOf([]string{a}), numbersOf([]string{b}))
		})
		allowed = append(allowed, &compute.FirewallAllowed{IPProtocol: a.IPProtocol, Ports: ports})
	}
	want := &compute.Firewall{
		Name: have.Name, Description: have.Description, Network: resource(have.Network), Priority: have.Priority, SourceRanges: after,
		DestinationRanges: have.DestinationRanges, TargetTags: have.TargetTags, Allowed: allowed,
	}
	put := func(ctx context.Context, r *services.Request, at place, o *observation) error {
		o.narrowed = true
		return b.putFirewall(want)(ctx, r, at, o)
	}
	step := b.step(contract.PlanChange, "firewall rule "+have.Name, "source ranges: "+strings.Join(after, ", "), put)
	before := *have
	before.Network = want.Network // ignore the notation
	return []change{withCompare(step, services.Within(&before, want), want)}, nil
}

// rangesThatFit returns as many of the networks as a firewall rule takes, first those that it has already.
func rangesThatFit(networks, have []string) []string {
	if gcelimits.SourceRanges.CheckNumber(len(networks)) == nil {
		return networks
	}
	isOpen := map[string]bool{}
	for _, n := range have {
		isOpen[n] = true
	}
	var open, others []string
	for _, n := range networks {
		if isOpen[n] {
			open = append(open, n)
		} else {
			others = append(others, n)
		}
	}
	return slices.Sorted(slices.Values(append(open, others...)[:gcelimits.SourceRanges.Max]))
}
