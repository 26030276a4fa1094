package oci

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// A load balancer is found by listing compartments, and an annotation of its Service names one. Because that annotation may change, also
// while the program does not run, the load balancer's compartment is recorded on the Service.

// record returns the compartment to record on the Service: that of a load balancer outside the configured one, if this program created it
// or the Service requests another one. A record stays. For a load balancer of Oracle's own controller where its Service requests it there
// is none, so that a takeover writes nothing. lb is nil before the creation.
func (p placement) record(lb *loadBalancer) string {
	switch {
	case lb == nil && p.compartment != p.configured && p.mark != "":
		return p.compartment
	case lb == nil || lb.Compartment == "" || lb.Compartment == p.configured && p.asked == p.configured:
		return ""
	case lb.Compartment != p.asked || !isUnmarked(lb) || lb.Compartment == p.recorded:
		return lb.Compartment
	}
	return ""
}

// planRecord updates the record of a Service.
func (r *common) planRecord(service *v1.Service, compartment string) []change {
	if service.Annotations[annotationPlaced] == compartment {
		return nil
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "annotation " + annotationPlaced + " of the Service", Detail: compartment},
		Make: func(ctx context.Context, req *services.Request, o observed) (_ observed, err error) {
			if r.kube == nil {
				return o, nil
			}
			var value any
			if compartment != "" {
				value = compartment
			}
			if req.Service, err = services.Annotate(ctx, r.kube, req.Service, map[string]any{annotationPlaced: value}); err != nil {
				err = fmt.Errorf("recording the compartment of the load balancer on the Service: %w", err)
			}
			return o, err
		},
	}}
}

// checkLoss returns an error if a Service was served and names a compartment without its load balancer: it may be in one that the Service
// named before. seen is set if this process has seen a load balancer that is gone.
func (p placement) checkLoss(service *v1.Service, seen bool) error {
	shows := service.Status.LoadBalancer.Ingress
	if seen || len(shows) == 0 || p.asked == p.configured || service.Annotations[annotationPlaced] != "" {
		return nil
	}
	return placeError(fmt.Errorf("the Service shows %s, and no load balancer with its name is in compartment %s or %s: if annotation %s was changed meanwhile, "+
		"set it back; else set annotation %s to the compartment that was asked for before, or is now, and what is not there is made again",
		shows[0].IP+shows[0].Hostname, p.asked, p.configured, annotationCompartment, annotationPlaced))
}
