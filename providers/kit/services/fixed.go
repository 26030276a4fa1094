package services

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// EventFixed is the reason of the event about a setting that can no longer be changed.
const EventFixed = "LoadBalancerAnnotationFixed"

// Fixed is a setting that counts only when a load balancer is created, with its present value.
type Fixed struct {
	// Place is the key of an annotation whose row says schema.AtCreation, or a field such as "spec.loadBalancerIP".
	Place string
	// Asked is the value that the Service requests, and Has the load balancer's, in the same form. If Asked is empty, nothing is reported.
	Asked, Has []string
}

// Fixer is implemented by a Reconciler of a cloud with settings that count only when a load balancer is created.
type Fixer[O, D any] interface {
	// Fixed returns these settings; nothing before the creation. It may read, and writes nothing. The present values come from the load
	// balancer itself.
	Fixed(ctx context.Context, r Request, observed O, desired D) ([]Fixed, error)
}

// Single returns a Fixed with one value.
func Single(place, asked, has string) Fixed {
	return Fixed{Place: place, Asked: []string{asked}, Has: []string{has}}
}

// Matching returns a Fixed about a value that is not a property of load balancers, such as a pattern; allows says whether the present value
// satisfies it.
func Matching(place, asked, has string, allows bool) Fixed {
	if allows {
		has = asked
	}
	return Single(place, asked, has)
}

// finding returns the message about a setting that can no longer be changed.
func (f Fixed) finding() (late Finding, is bool) {
	asked, has := normalize(f.Asked), normalize(f.Has)
	if len(asked) == 0 || SameSet(asked, has) {
		return Finding{}, false
	}
	p := schema.Problem{Place: f.Place, Value: strings.Join(asked, ","), Reason: "has no effect, it stays as it is"}
	if len(has) > 0 {
		p.Reason = `has no effect, it stays "` + strings.Join(has, ",") + `"`
	}
	if !strings.HasPrefix(p.Place, "spec.") {
		p.Place = "annotation " + p.Place
	}
	return Warning(EventFixed, "%v: it is fixed when the load balancer is created; delete and create the Service to change it", &p), true
}

// normalize returns values in a comparable form: addresses and networks in one notation, without empty values.
func normalize(values []string) (list []string) {
	for _, v := range values {
		v = strings.TrimSpace(v)
		if a, err := netip.ParseAddr(v); err == nil {
			v = a.Unmap().String()
		}
		if v != "" && !slices.Contains(list, v) {
			list = append(list, v)
		}
	}
	return list
}

// reportFixed reports a Service's settings that can no longer be changed. Failures to read them do not delay anything.
func (l *LoadBalancer[O, D]) reportFixed(ctx context.Context, r Request, findings *report, observed O, desired D) {
	fixer, is := l.Reconciler.(Fixer[O, D])
	if !is {
		return
	}
	all, err := fixer.Fixed(ctx, r, observed, desired)
	for _, f := range all {
		if late, is := f.finding(); is {
			findings.add([]Finding{late})
		}
	}
	if err != nil {
		klog.FromContext(ctx).V(2).Info("Not all that is fixed at creation can be compared", "service", klog.KObj(r.Service), "err", err)
	}
}
