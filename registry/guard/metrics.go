package guard

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/component-base/metrics"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// meters are a guard's metrics. They count only once they are registered.
type meters struct {
	deletionsAllowed, deletionsHeld, initializationsFailed *metrics.CounterVec
	orphans, foreignNodes                                  *metrics.GaugeVec
}

func newMeters() *meters {
	return &meters{
		deletionsAllowed: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "anyccm", Subsystem: "guard", Name: "node_deletions_allowed_total", StabilityLevel: metrics.ALPHA,
			Help: "Nodes that the framework was told to delete.",
		}, []string{"provider"}),
		deletionsHeld: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "anyccm", Subsystem: "guard", Name: "node_deletions_held_total", StabilityLevel: metrics.ALPHA,
			Help: "Times that the cloud called an instance gone and the Node was kept, by reason.",
		}, []string{"provider", "reason"}),
		orphans: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "anyccm", Subsystem: "guard", Name: "orphans", StabilityLevel: metrics.ALPHA,
			Help: "Objects in the cloud that carry the cluster's mark and belong to no Service, looked for every `--orphan-search-period`, once an hour by default.",
		}, []string{"provider"}),
		foreignNodes: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: "anyccm", Subsystem: "guard", Name: "foreign_nodes", StabilityLevel: metrics.ALPHA,
			Help: "Nodes of the cluster that are not ours and are left alone.",
		}, []string{"provider"}),
		initializationsFailed: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: "anyccm", Subsystem: "guard", Name: "node_initializations_failed_total", StabilityLevel: metrics.ALPHA,
			Help: "Times that a new Node could not be initialised; the event NodeInitializationFailed says why.",
		}, []string{"provider"}),
	}
}

var (
	uninitializedNodes = metrics.NewDesc("anyccm_guard_uninitialized_nodes",
		"Nodes that wait to be initialised.", []string{"provider"}, nil, metrics.ALPHA, "")
	oldestUninitialized = metrics.NewDesc("anyccm_guard_oldest_uninitialized_node_timestamp_seconds",
		"When the Node was made that has waited longest to be initialised, in seconds since 1970; 0 while none waits.",
		[]string{"provider"}, nil, metrics.ALPHA, "")
	heldNodes = metrics.NewDesc("anyccm_guard_held_nodes",
		"Nodes that are kept until something changes although the cloud calls their instances gone, by reason.",
		[]string{"provider", "reason"}, nil, metrics.ALPHA, "")
	unservedServices = metrics.NewDesc("anyccm_guard_unserved_services",
		"Services that want a load balancer of this program and have none: pending, because of their settings, or because of the cloud.",
		[]string{"provider", "reason"}, nil, metrics.ALPHA, "")
	oldestUnserved = metrics.NewDesc("anyccm_guard_oldest_unserved_service_timestamp_seconds",
		"Since when the Service has no load balancer that has waited longest for the reason, in seconds since 1970; 0 while there is none.",
		[]string{"provider", "reason"}, nil, metrics.ALPHA, "")
)

// allHolds returns all reasons for keeping a Node.
func allHolds() []hold {
	return []hold{holdYoung, holdUnconfirmed, holdPace, holdShare, holdAll, holdContradiction, holdAccount, holdDryRun}
}

// RegisterMetrics registers the cloud's metrics. Counters begin at 0: an increase is invisible if the series first appears with it.
func (c *Cloud) RegisterMetrics(register func(...metrics.Registerable), registerCollector func(...metrics.StableCollector)) {
	m, provider := c.meters, c.facts.Provider
	register(m.deletionsAllowed, m.deletionsHeld, m.foreignNodes, m.orphans, m.initializationsFailed)
	registerCollector(&collector{cloud: c})
	m.deletionsAllowed.WithLabelValues(provider).Add(0)
	m.initializationsFailed.WithLabelValues(provider).Add(0)
	for _, why := range allHolds() {
		m.deletionsHeld.WithLabelValues(provider, string(why)).Add(0)
	}
}

// collector counts Nodes when metrics are read: counters kept by events would stay wrong if one is missed.
type collector struct {
	metrics.BaseStableCollector

	cloud *Cloud
}

// DescribeWithStability implements metrics.StableCollector.
func (*collector) DescribeWithStability(ch chan<- *metrics.Desc) {
	for _, d := range []*metrics.Desc{uninitializedNodes, oldestUninitialized, heldNodes, unservedServices, oldestUnserved} {
		ch <- d
	}
}

// CollectWithStability implements metrics.StableCollector.
func (c *collector) CollectWithStability(ch chan<- metrics.Metric) {
	provider := c.cloud.facts.Provider
	c.cloud.collectUnserved(provider, ch)
	nodes, known := c.cloud.ownership.listOurs()
	if !known {
		return
	}
	count, oldest := countUninitialized(nodes)
	ch <- metrics.NewLazyConstMetric(uninitializedNodes, metrics.GaugeValue, float64(count), provider)
	ch <- metrics.NewLazyConstMetric(oldestUninitialized, metrics.GaugeValue, oldest, provider)
	for why, n := range c.cloud.decider.countHeld(nodes) {
		ch <- metrics.NewLazyConstMetric(heldNodes, metrics.GaugeValue, float64(n), provider, string(why))
	}
}

func (c *Cloud) collectUnserved(provider string, ch chan<- metrics.Metric) {
	if c.loadBalancers == nil {
		return
	}
	all, _ := c.loadBalancers.countUnserved()
	for why, u := range all {
		ch <- metrics.NewLazyConstMetric(unservedServices, metrics.GaugeValue, float64(u.count), provider, string(why))
		ch <- metrics.NewLazyConstMetric(oldestUnserved, metrics.GaugeValue, u.oldest, provider, string(why))
	}
}

// countUninitialized counts the Nodes to be initialised, and returns when the oldest of them was created.
func countUninitialized(nodes []*v1.Node) (count int, oldest float64) {
	for _, n := range nodes {
		if !contract.Uninitialized(n) {
			continue
		}
		count++
		if made := float64(n.CreationTimestamp.Unix()); oldest == 0 || made < oldest {
			oldest = made
		}
	}
	return count, oldest
}

// countHeld counts the Nodes with a lasting hold, by reason; each reason is present.
func (d *decider) countHeld(nodes []*v1.Node) map[hold]int {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[hold]int{}
	for _, why := range allHolds() {
		if why.isLasting() {
			all[why] = 0
		}
	}
	for _, n := range nodes {
		if m := d.findRecordLocked(n).suspicion; m != nil && m.why.isLasting() {
			all[m.why]++
		}
	}
	return all
}
