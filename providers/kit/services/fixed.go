package services

import (
	"context"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// EventFixed is the reason of the event about what is asked for too late.
const EventFixed = "LoadBalancerAnnotationFixed"

// Fixed is a setting that counts only when a load balancer is created, with its present value.
type Fixed struct {
	// Place is the key of an annotation whose row says schema.AtCreation, or a field such as "spec.loadBalancerIP".
	Place string
	// Asked is the value that the Service requests, and Has the load balancer's, in the same form. If Asked is empty, nothing is reported.
	Asked, Has []string
}

// Fixer is a Reconciler of a cloud where some of what a Service asks for counts only when its load balancer is made.
type Fixer[O, D any] interface {
	// Fixed returns what the load balancer has of that; nothing where there is none. It may read, and writes nothing. What was at the
	// creation is read from the load balancer itself.
	Fixed(ctx context.Context, r Request, observed O, desired D) ([]Fixed, error)
}

// Single is a Fixed of one value.
func Single(place, asked, has string) Fixed {
	return Fixed{Place: place, Asked: []string{asked}, Has: []string{has}}
}

// Matching is a Fixed about a value that no load balancer has as such, such as a pattern, which allows what there is, or not.
func Matching(place, asked, has string, allows bool) Fixed {
	if allows {
		has = asked
	}
	return Single(place, asked, has)
}

// finding tells of what was asked for too late.
func (f Fixed) finding() (late Finding, is bool) {
	asked, has := normalized(f.Asked), normalized(f.Has)
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

// normalized are values as they are compared: addresses and networks in one form, and nothing that is empty.
func normalized(values []string) (list []string) {
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

// tellFixed tells of what a Service asks for too late. What cannot be read for that holds nothing up.
func (l *LoadBalancer[O, D]) tellFixed(ctx context.Context, r Request, findings *report, observed O, desired D) {
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
