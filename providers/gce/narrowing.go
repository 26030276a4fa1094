package gce

import (
	"context"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

var _ services.Narrower[observed] = (*reconciler)(nil)

// Narrowing implements services.Narrower. A firewall rule without sources would admit everybody, so it is deleted.
func (r *reconciler) Narrowing(_ context.Context, req services.Request, o observed) ([]change, error) {
	if o.firewall == nil {
		return nil, nil
	}
	set, _ := sources.ForService(req.Service, annotationSourceRanges) // Validate reports the faults
	after, narrower := set.Families(true, false).NarrowTexts(o.firewall.SourceRanges, req.Purpose != services.Narrow)
	switch {
	case !narrower:
		return nil, nil
	case len(after) == 0:
		return []change{r.firewalls.deletion(o.firewall.Name)}, nil
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
	before := *have
	before.Network = want.Network // ignore the notation
	narrow := r.withLock("firewall rule "+have.Name, func(ctx context.Context, req *services.Request, o *observed) error {
		o.narrowed = true
		return r.firewalls.put(want)(ctx, req, o)
	})
	return []change{
		r.update("firewall rule "+have.Name, "source ranges: "+strings.Join(after, ", "), services.Within(&before, want), want, narrow),
	}, nil
}

// rangesThatFit returns as many of the networks as a firewall rule takes, first those that it has already: a Service with more is refused.
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
