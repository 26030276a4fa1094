package guard

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// Policy says which Nodes are ours, and when a Node whose instance the cloud calls gone may be deleted. The zero value
// means the defaults.
type Policy struct {
	// NodeSelector excludes Nodes that it does not match; empty matches all.
	NodeSelector string
	// GracePeriod is the age below which a Node is never deleted. Clouds show a new instance to all of their API servers
	// only after some seconds; by then kubelet may have registered it.
	GracePeriod time.Duration
	// Confirmations is how often in a row the cloud must call an instance gone.
	Confirmations int
	// ConfirmationTime is the least time between the first and the last of them.
	ConfirmationTime time.Duration
	// Window is the span over which vanished Nodes are counted against MaxShare and Floor.
	Window time.Duration
	// MaxShare of the cluster's Nodes may vanish within the window, from 0 to 1.
	MaxShare float64
	// Floor is a number of Nodes that may vanish whatever share of the cluster they are, so that small clusters are not blocked.
	Floor int
	// HoldTime is how long unannounced losses beyond the share are held while the evidence stays the same; then the Nodes are deleted one
	// by one. 0 holds them until a person acts.
	HoldTime time.Duration
	// PlannedKeys are further taints and annotations that announce the removal of a Node.
	PlannedKeys []string
	// MonitorPeriod is the framework's --node-monitor-period, the time between two questions about a Node that is not ready; 0 means
	// the framework's default.
	MonitorPeriod time.Duration
	// OrphanPeriod is the time between two searches for orphans. The first one follows after five minutes, or after this if it is shorter.
	// 0 means the default.
	OrphanPeriod time.Duration
	// DryRun reports what would be deleted, and deletes nothing.
	DryRun bool
	// VerifyInstances uses as backends and next hops only Nodes whose instances the cloud verifies.
	VerifyInstances bool
	// Addresses chooses among the addresses of Nodes.
	Addresses AddressPolicy
}

// DefaultPolicy returns the defaults. docs/node-deletion.md gives the reasons.
func DefaultPolicy() Policy {
	return Policy{
		GracePeriod: 20 * time.Second, Confirmations: 3, ConfirmationTime: 10 * time.Second,
		Window: 10 * time.Minute, MaxShare: 0.2, Floor: 3, HoldTime: 15 * time.Minute,
		OrphanPeriod: time.Hour,
	}
}

// usualPeriod is the framework's default of MonitorPeriod, to which the providers' maximum ages are adapted.
const usualPeriod = 5 * time.Second

// maxExistsAge returns evidence.Demand.Within: with a shorter period, the framework must not get the same answer each time.
func (p Policy) maxExistsAge() time.Duration {
	if p.MonitorPeriod >= usualPeriod {
		return 0
	}
	return 2 * p.MonitorPeriod
}

// AddFlags declares a flag for every limit.
func (p *Policy) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&p.NodeSelector, "node-selector", p.NodeSelector, "Label selector of the Nodes that this program manages. Other Nodes are neither initialized, updated, tainted nor deleted, and cost no API calls. Empty means all.")
	fs.DurationVar(&p.GracePeriod, "node-deletion-grace-period", p.GracePeriod, "Age below which a Node is never deleted.")
	fs.IntVar(&p.Confirmations, "node-deletion-confirmations", p.Confirmations, "How many times in a row the cloud must say that an instance is gone before its Node is deleted.")
	fs.DurationVar(&p.ConfirmationTime, "node-deletion-confirmation-time", p.ConfirmationTime, "Minimum time between the first and the last of these answers.")
	fs.DurationVar(&p.Window, "node-deletion-window", p.Window, "Period over which Nodes that vanish without an announcement count towards --node-deletion-max-share and --node-deletion-floor.")
	fs.Float64Var(&p.MaxShare, "node-deletion-max-share", p.MaxShare, "Share of the cluster's Nodes, from 0 to 1, that may vanish without an announcement within the window. If more do, they are held. 1 disables this limit, the one on a cluster that vanishes as a whole, and the requirement to see an existing instance.")
	fs.IntVar(&p.Floor, "node-deletion-floor", p.Floor, "Number of Nodes that may vanish without an announcement within the window, whatever share of the cluster they are.")
	fs.DurationVar(&p.HoldTime, "node-deletion-hold-time", p.HoldTime, "How long Nodes beyond the share are held. If by then the cloud has called their instances gone all the time, other instances were seen and none came back, the Nodes are deleted one by one. 0 holds them until a person acts.")
	fs.StringSliceVar(&p.PlannedKeys, "node-deletion-planned-keys", p.PlannedKeys, "Further keys of taints or annotations that announce the removal of a Node, in addition to those of Cluster Autoscaler and Karpenter and node.kubernetes.io/out-of-service. Such a Node does not count towards the share and is not held by it; its instance must still be proved gone.")
	fs.DurationVar(&p.OrphanPeriod, "orphan-search-period", p.OrphanPeriod, "Time between two searches for load balancers that no Service uses any more, which the metric anyccm_guard_orphans counts. The first search follows 5 minutes after the start, or after this time if it is shorter.")
	fs.BoolVar(&p.VerifyInstances, "verify-node-instances", p.VerifyInstances, "Make a Node a backend of load balancers or the next hop of routes only if the cloud shows that the instance behind its provider ID is a node of this cluster: by its name or by the cluster's mark, as the cloud's page says. Without this flag the provider ID is trusted, which kubelet can choose.")
	p.Addresses.AddFlags(fs)
	fs.BoolVar(&p.DryRun, "node-deletion-dry-run", p.DryRun, "Delete no Nodes; report with events which ones would be deleted.")
}

// Validate reports all invalid limits.
func (p Policy) Validate() error {
	problems := []error{p.Addresses.Validate()}
	if selector, err := labels.Parse(p.NodeSelector); err != nil {
		problems = append(problems, fmt.Errorf("--node-selector %q: %w", p.NodeSelector, err))
	} else if label := portable.FindContradiction(selector); label != "" {
		problems = append(problems, fmt.Errorf("--node-selector %q: matches no Node, for its conditions on the label %s exclude each other", p.NodeSelector, label))
	}
	if p.Confirmations < 1 {
		problems = append(problems, fmt.Errorf("--node-deletion-confirmations=%d: use 1 or more", p.Confirmations))
	}
	if p.MaxShare < 0 || p.MaxShare > 1 {
		problems = append(problems, fmt.Errorf("--node-deletion-max-share=%v: use a share from 0 to 1", p.MaxShare))
	}
	if p.Floor < 0 {
		problems = append(problems, fmt.Errorf("--node-deletion-floor=%d: use 0 or more", p.Floor))
	}
	for flag, d := range map[string]time.Duration{"grace-period": p.GracePeriod, "confirmation-time": p.ConfirmationTime, "hold-time": p.HoldTime} {
		if d < 0 {
			problems = append(problems, fmt.Errorf("--node-deletion-%s=%s: use 0 or more", flag, d))
		}
	}
	if p.Window < time.Minute {
		problems = append(problems, fmt.Errorf("--node-deletion-window=%s: use 1m or more", p.Window))
	}
	if p.OrphanPeriod != 0 && p.OrphanPeriod < time.Second {
		problems = append(problems, fmt.Errorf("--orphan-search-period=%s: use 1s or more", p.OrphanPeriod))
	}
	return errors.Join(problems...)
}
