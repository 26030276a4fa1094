package oci

import (
	"context"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// A load balancer is found by listing compartments, and an annotation of its Service names the one to look in. That annotation may
// change, also while the program does not run: the record on the Service tells where the load balancer is then.

// record returns the compartment to record on the Service: that of a load balancer which is not in the configured one, if this program
// created it or the Service requests another one; what is recorded stays. A load balancer that Oracle's own controller created where its
// Service requests needs none, so that taking it over writes nothing. lb is nil before the creation.
func (p placement) record(lb *loadBalancer) string {
	switch {
	case lb == nil && p.compartment != p.configured && p.mark != "":
		return p.compartment
	case lb == nil || lb.Compartment == "" || lb.Compartment == p.configured && p.asked == p.configured:
		return ""
	case lb.Compartment != p.asked || !unmarked(lb) || lb.Compartment == p.recorded:
		return lb.Compartment
	}
	return ""
}

// planRecord returns the changes that make the record of a Service say what it should.
func (r *common) planRecord(service *v1.Service, compartment string) []change {
	if service.Annotations[annotationPlaced] == compartment {
		return nil
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "annotation " + annotationPlaced + " of the Service", Detail: compartment},
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			return o, r.recordPlace(ctx, req, compartment)
		},
	}}
}

func (r *common) recordPlace(ctx context.Context, req *services.Request, compartment string) error {
	if r.kube == nil {
		return nil
	}
	var value any
	if compartment != "" {
		value = compartment
	}
	var err error
	if req.Service, err = services.Annotate(ctx, r.kube, req.Service, map[string]any{annotationPlaced: value}); err != nil {
		return fmt.Errorf("recording the compartment of the load balancer on the Service: %w", err)
	}
	return nil
}

// lostSight is an error where a Service was served, names a compartment, and has nothing in it: another one may have been named before,
// and the load balancer be there. seen is set where this process has seen one that is gone.
func (p placement) lostSight(service *v1.Service, seen bool) error {
	shows := service.Status.LoadBalancer.Ingress
	if seen || len(shows) == 0 || p.asked == p.configured || service.Annotations[annotationPlaced] != "" {
		return nil
	}
	return misplaced(fmt.Errorf("the Service shows %s, and no load balancer with its name is in compartment %s or %s: if annotation %s was changed meanwhile, "+
		"set it back; else set annotation %s to the compartment that was asked for before, or is now, and what is not there is made again",
		shows[0].IP+shows[0].Hostname, p.asked, p.configured, annotationCompartment, annotationPlaced))
}
