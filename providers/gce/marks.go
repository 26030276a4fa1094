package gce

import (
	"context"
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// lacksMark reports whether a forwarding rule has no mark of a cluster.
func (d *spec) lacksMark(rule *compute.ForwardingRule) bool {
	return strings.HasPrefix(d.mark, markPrefix) && rule != nil && rule.Labels[labelCluster] == ""
}

// markRule labels a forwarding rule with the cluster's identity. The API takes no labels at creation.
func (b *reconciler) markRule(d spec) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) error {
		labels := maps.Clone(o.rule.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelCluster] = strings.TrimPrefix(d.mark, markPrefix)
		body := &compute.RegionSetLabelsRequest{LabelFingerprint: o.rule.LabelFingerprint, Labels: labels}
		rule, err := putOne(ctx, b.api, b.api.stores.rules, o.rule, at.regional("forwardingRules", d.name), "labelling forwarding rule "+d.name,
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.ForwardingRules.SetLabels(at.project, at.region, d.name, body).RequestId(id).Context(ctx).Do()
			})
		if isForbidden(err) { // the load balancer works without
			klog.ErrorS(err, "Grant compute.forwardingRules.setLabels, so that the forwarding rule shows which cluster made it", "forwardingRule", d.name)
			b.unmarked.Store(true)
			return nil
		}
		if err == nil {
			o.rule = rule
		}
		return err
	}
}

// addMarkChange adds the mark to a forwarding rule that changes anyway, because its creation may have been interrupted. Unchanged ones of
// Google's own controller, which does not mark, are not written.
func (b *reconciler) addMarkChange(o observation, d spec, list []change) []change {
	inCloud := func(c change) bool { return !strings.HasPrefix(c.Object, objectService) }
	// Narrowing was a change too, though it is not in the list any more.
	if !o.narrowed && !slices.ContainsFunc(list, inCloud) || !d.lacksMark(o.rule) || b.unmarked.Load() {
		return list
	}
	mark := b.step(contract.PlanChange, "forwarding rule "+d.name, "label "+labelCluster, b.markRule(d))
	return append([]change{withCompare(mark, nil, field(labelCluster, strings.TrimPrefix(d.mark, markPrefix)))}, list...)
}
