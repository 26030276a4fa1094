package oci

import (
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// fit limits the backends of sets, and reports how many nodes are left out.
func (r *reconciler) fit(sets map[string]document, lb *loadBalancer) []services.Finding {
	leftOut := fitSets(sets, lb)
	if leftOut == 0 {
		return nil
	}
	selector := map[bool]string{true: annotationSelector, false: nlbSelector}[r.kind.path == balancerPath]
	return []services.Finding{services.LeftOut(eventTooMany, ocilimits.SetBackends, leftOut,
		"choose nodes by "+selector+", or label some with "+v1.LabelNodeExcludeBalancers)}
}

// fitSets removes the backends for which sets have no room, and returns the number of nodes left out. Existing backends take precedence.
func fitSets(sets map[string]document, lb *loadBalancer) (leftOut int) {
	for name, set := range sets {
		wanted := fieldOf[[]any](set, "backends")
		known := map[string]bool{}
		if lb != nil {
			for _, b := range fieldOf[[]any](lb.BackendSets[name], "backends") {
				known[backendKey(b)] = true
			}
		}
		fit := limits.Fit(ocilimits.SetBackends, wanted, func(b any) bool {
			d, _ := b.(document)
			return known[backendKey(b)] || known[backendKey(document{"targetId": d["targetId"], "port": d["port"]})]
		})
		leftOut = max(leftOut, len(wanted)-len(fit))
		set["backends"] = fit
	}
	return leftOut
}

// explain adds the number of all backends to a refusal that may be due to it.
func (r *loadBalancers) explain(err error, sets map[string]document) error {
	have := 0
	for _, set := range sets {
		have += len(fieldOf[[]any](set, "backends"))
	}
	if r.kind.path != balancerPath {
		return err
	}
	return cloudapi.ExplainLimit(err, ocilimits.Backends, have)
}
