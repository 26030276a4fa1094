package guard

import (
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

var (
	deletionsAllowed = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "anyccm", Subsystem: "guard", Name: "node_deletions_allowed_total", StabilityLevel: metrics.ALPHA,
		Help: "Nodes that the framework was told to delete.",
	}, []string{"provider"})
	deletionsHeld = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "anyccm", Subsystem: "guard", Name: "node_deletions_held_total", StabilityLevel: metrics.ALPHA,
		Help: "Times that the cloud called an instance gone and the Node was kept, by reason.",
	}, []string{"provider", "reason"})
	orphans = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "anyccm", Subsystem: "guard", Name: "orphans", StabilityLevel: metrics.ALPHA,
		Help: "Objects in the cloud that carry the cluster's mark and belong to no Service, looked for once an hour.",
	}, []string{"provider"})
	foreignNodes = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "anyccm", Subsystem: "guard", Name: "foreign_nodes", StabilityLevel: metrics.ALPHA,
		Help: "Nodes of the cluster that are not ours and are left alone.",
	}, []string{"provider"})

	registerOnce sync.Once
)

func registerMetrics() {
	registerOnce.Do(func() { legacyregistry.MustRegister(deletionsAllowed, deletionsHeld, foreignNodes, orphans) })
}
