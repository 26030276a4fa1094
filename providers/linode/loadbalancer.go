package linode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// ensureMaxAge is the maximum age of the observed state at a reconciliation. Our own writes are in it at once; the age only delays the
	// sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every NodeBalancer at about the same time.
	updateMaxAge = 60 * time.Second
	// detailsMaxAge is the maximum age of ports and nodes at a change of nodes: our own writes keep them current, and a refused write makes
	// them be read again. Reading them for every new node would cost a call for each port.
	detailsMaxAge = 24 * time.Hour
	// ensureDetailsMaxAge is their maximum age at a reconciliation.
	ensureDetailsMaxAge = 60 * time.Second
	// creationShows is the maximum time until a NodeBalancer is visible whose creation was not answered. Its label is unique.
	creationShows = 45 * time.Second
	// backendMaxAge is the maximum age of the Linodes behind nodes.
	backendMaxAge = 10 * time.Minute
)

// Reasons of the events that the provider writes on Services.
const (
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
	// eventRangesIgnored: spec.loadBalancerSourceRanges has no effect.
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	// eventKept: an object of the user outlives the Service.
	eventKept = contract.EventLoadBalancerRetained
)

// loadBalancers implements cloudprovider.LoadBalancer; the order of the steps is that of services.LoadBalancer.
type loadBalancers struct {
	services.LoadBalancer[finding, *desiredState]

	config    Config
	api       *api
	vpcs      *vpcs
	instances *instances
	observed  *inventory.Inventory[int, *nodeBalancer]
	details   *inventory.Inventory[int, *details]
	firewalls *inventory.Inventory[int, *linodego.Firewall]
	// behind are the nodes of NodeBalancers, by network.
	behind  nodes.Shared[network, wantedNodes]
	cluster *ownership.Cluster
	// adopt is the operator's policy about NodeBalancers without a mark.
	adopt  registry.Adoption
	served provenOwners
	// services are those of the cluster; set by SetInformers.
	services listers.ServiceLister

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// desiredState is the desired state of a Service.
type desiredState struct {
	settings settings
	balancer *desired
	// request creates the NodeBalancer; nil if it exists.
	request   *nodeBalancerRequest
	firewalls firewallPlan
	// marks are those for objects of the Service.
	marks []string
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

func newLoadBalancers(c Config, a *api, v *vpcs, i *instances) *loadBalancers {
	l := &loadBalancers{
		config: c, api: a, vpcs: v, instances: i, cluster: &ownership.Cluster{},
		observed: inventory.New(inventory.Source[int, *nodeBalancer]{
			Kind: "NodeBalancer", ID: func(nb *nodeBalancer) int { return nb.ID }, List: a.nodeBalancers, Get: a.nodeBalancer,
			Indexes: map[string]func(*nodeBalancer) []string{
				indexLabel: func(nb *nodeBalancer) []string { return []string{nb.Label} },
				indexIP:    func(nb *nodeBalancer) []string { return []string{nb.IPv4, nb.IPv6, nb.Hostname} },
			},
		}),
		details: inventory.New(inventory.Source[int, *details]{
			Kind: "NodeBalancer detail", ID: func(d *details) int { return d.nodeBalancerID }, Get: a.details,
		}),
		firewalls: newFirewallInventory(a),
	}
	l.behind.MaxAge = updateMaxAge
	l.Creations = services.Creations{Shows: creationShows, Repeat: true}
	l.Identify = i.Identify
	l.Reconciler, l.Name = l, func(_ string, service *v1.Service) string { return label(c.Prefix, service) }
	return l
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if err := l.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
		return err
	}
	l.served.forget(service)
	return nil
}

// Validate implements services.Reconciler.
func (l *loadBalancers) Validate(r services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(r.Service, l.config)
	return services.Judged(warnings, err), err
}

// configFinding returns the finding about impossible settings.
func configFinding(err error) []services.Finding {
	if err == nil {
		return nil
	}
	return []services.Finding{services.Warning(eventConfigError, "%s", err)}
}

// Observe implements services.Reconciler.
func (l *loadBalancers) Observe(ctx context.Context, r services.Request) (finding, error) {
	q := inventory.Query{MaxAge: ensureMaxAge}
	if r.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: detailsMaxAge, MaxMissAge: updateMaxAge}
	}
	return l.find(ctx, r.Service, r.Nodes, q)
}

// CheckOwner implements services.Reconciler. It reads the ports and nodes of the Service's NodeBalancer.
func (l *loadBalancers) CheckOwner(ctx context.Context, r services.Request, f finding) (finding, []services.Finding, error) {
	whole := r.Purpose == services.Ensure || r.Purpose == services.Plan
	q := inventory.Query{MaxAge: detailsMaxAge}
	switch {
	case f.unknown != nil:
		return f, configFinding(f.unknown), f.unknown
	case whole && f.Verdict == ownership.Refused:
		return f, services.Refused(r.Service, f.Decision), f.Err()
	case f.Verdict == ownership.Refused:
		klog.InfoS("Leaving a NodeBalancer alone", "service", klog.KObj(r.Service), "reason", f.Err().Error())
		return finding{}, nil, nil
	case f.nb == nil || r.Purpose == services.Lookup || r.Purpose == services.Narrow:
		return f, nil, nil
	case r.Purpose == services.Delete:
		if _, kept, err := deletionSettings(r.Service); kept || err != nil {
			return f, nil, nil //nolint:nilerr // Deletions says what is wrong with them
		}
		f, err := l.reread(ctx, r.Service, f)
		return f, nil, err
	case whole:
		q.MaxAge = ensureDetailsMaxAge
	}
	if r.Purpose == services.Ensure && f.Verdict == ownership.Owned {
		l.served.note(r.Service, f.nb.ID)
	}
	var err error
	f.details, err = l.details.Get(ctx, f.nb.ID, q)
	return f, nil, err
}

// Desire implements services.Reconciler.
func (l *loadBalancers) Desire(ctx context.Context, r services.Request, f finding) (*desiredState, []services.Finding, error) {
	s, _, err := parseSettings(r.Service, l.config) // Validate reported its faults
	if err != nil {
		return nil, nil, err
	}
	d := &desiredState{settings: s}
	behind, err := l.backends(ctx, s, r.Nodes)
	if err != nil {
		return nil, nil, err
	}
	secrets, err := l.secrets(ctx, r.Service, s)
	if err == nil {
		d.balancer, err = desire(r.Service, s, tagsOf(r.Cluster, l.config, s), behind, secrets)
	}
	if err != nil {
		return nil, configFinding(err), err
	}
	if d.marks, err = l.marks(ctx, r.Service); err != nil {
		return nil, nil, err
	}
	if f.nb == nil {
		if d.request, err = l.request(ctx, r.Service, d); err != nil {
			return nil, configFinding(err), err
		}
	}
	var findings []services.Finding
	d.firewalls, findings, err = l.desireFirewalls(ctx, r.Service, s, f.nb)
	return d, findings, err
}

// Changes implements services.Reconciler: firewalls come first, because a NodeBalancer must never be open without its own.
func (l *loadBalancers) Changes(_ services.Request, f finding, d *desiredState) ([]services.Change[finding], error) {
	changes := l.firewallChanges(f.nb, d)
	if f.nb == nil {
		return append(changes, l.creation(d.request, d.firewalls.own)), nil
	}
	nb := *f.nb
	nb.Tags = l.notes(f.nb, d)
	steps := plan(&nb, f.details, d.balancer)
	if f.Deletable {
		steps = addMarkSteps(&nb, d.balancer, d.marks, steps)
	}
	return append(changes, l.changes(&nb, steps)...), nil
}

// Complete implements services.Reconciler.
func (l *loadBalancers) Complete(ctx context.Context, r *services.Request, f finding, d *desiredState) (finding, error) {
	recorded := r.Service.Annotations[annotationRecord]
	err := l.record(ctx, r.Service, d.settings, f.nb)
	if err == nil {
		err = l.cleanUpPrevious(ctx, r, d.settings, f.nb, recorded)
	}
	return f, err
}

// Status implements services.Reconciler.
func (*loadBalancers) Status(_ services.Request, f finding, d *desiredState) (*v1.LoadBalancerStatus, error) {
	return status(f.nb, d.settings), nil
}

// NodeChanges implements services.Reconciler: it changes only nodes. Faults in annotations do not keep nodes from joining or leaving,
// unless they make the nodes' addresses unknown.
func (l *loadBalancers) NodeChanges(
	ctx context.Context, r services.Request, f finding,
) ([]services.Change[finding], []services.Finding, error) {
	if f.nb == nil {
		return nil, nil, nil
	}
	s, _, err := parseSettings(r.Service, l.config)
	if err := problemsAbout(err, backendAnnotations()...); err != nil {
		return nil, nil, err
	}
	want, err := l.wantNodes(ctx, r.Service, s, f.details, r.Nodes)
	if err != nil {
		return nil, nil, err
	}
	return l.changes(f.nb, planNodes(f.details, want)), nil, nil
}

// Deletions implements services.Reconciler. Our objects are deleted, and the user's stay: the NodeBalancer first, so that it is never open
// without its firewall.
func (l *loadBalancers) Deletions(
	ctx context.Context, r services.Request, f finding,
) (changes []services.Change[finding], findings []services.Finding, err error) {
	s, preserved, err := deletionSettings(r.Service)
	if err != nil || preserved {
		return nil, nil, err // when in doubt, nothing is deleted
	}
	switch {
	case f.nb == nil:
	case f.Deletable:
		return []services.Change[finding]{{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: fmt.Sprintf("NodeBalancer %d", f.nb.ID)},
			Replan:  true,
			Make: func(ctx context.Context, r *services.Request, f finding) (finding, error) {
				return finding{}, l.delete(ctx, r, s, f.nb)
			},
		}}, nil, nil
	default:
		findings = append(findings, retentionNotice(f.nb))
	}
	left, err := l.unusedFirewalls(ctx, r.Service)
	for _, firewall := range left {
		changes = append(changes, services.Change[finding]{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: fmt.Sprintf("firewall %d", firewall.ID)},
			Make: func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
				return f, l.deleteFirewall(ctx, firewall.ID)
			},
		})
	}
	return changes, findings, err
}

// deletionSettings reads the annotations that decide how a Service is deleted. Invalid values of other annotations are ignored.
func deletionSettings(service *v1.Service) (s settings, preserved bool, err error) {
	s, _, err = namedAnnotations().Parse(service.Annotations)
	err = problemsAbout(err, annotationPreserve, annotationRetainReservedIPv4)
	return s, s.Preserve, err
}

// retentionNotice reports that a NodeBalancer outlives its Service, because it belongs to another owner.
func retentionNotice(nb *nodeBalancer) services.Finding {
	return services.Notice(eventKept,
		"NodeBalancer %d is kept: nothing that only a controller can write shows that one made it for this Service; "+
			"delete it in the cloud if it is not needed", nb.ID)
}

// Exists implements services.Reconciler. Without it the framework requests no deletion; a firewall outlives its NodeBalancer for a moment.
func (l *loadBalancers) Exists(ctx context.Context, r services.Request, f finding) (*v1.LoadBalancerStatus, bool, error) {
	if f.nb == nil {
		left, err := l.unusedFirewalls(ctx, r.Service)
		if err != nil {
			return nil, false, err
		}
		return &v1.LoadBalancerStatus{}, len(left) > 0, nil
	}
	s, _, _ := parseSettings(r.Service, l.config) // a fault in other annotations hides nothing
	return status(f.nb, s), true, nil
}

// delete deletes a NodeBalancer that a controller created.
func (l *loadBalancers) delete(ctx context.Context, r *services.Request, s settings, nb *nodeBalancer) error {
	if err := l.adoptFirewallForDeletion(ctx, r.Service, nb); err != nil {
		return err
	}
	// The address first: after the NodeBalancer is gone, it could not be found, and a failed release would be forgotten.
	if err := l.releaseReserved(ctx, r, s, nb); err != nil {
		return err
	}
	klog.InfoS("Deleting NodeBalancer", "service", klog.KObj(r.Service), "nodeBalancer", nb.ID)
	if err := l.api.deleteNodeBalancer(ctx, nb.ID); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.observed.Invalidate(nb.ID)
		return err
	}
	l.observed.Forget(nb.ID)
	l.details.Forget(nb.ID)
	return nil
}

// cleanUpPrevious removes the Service's former NodeBalancer after it moved to another one.
func (l *loadBalancers) cleanUpPrevious(ctx context.Context, r *services.Request, s settings, now *nodeBalancer, recorded string) error {
	if r.Service.Annotations[annotationID] == "" || s.Preserve || contract.Keeps(r.Service) {
		return nil
	}
	without := r.Service.DeepCopy()
	delete(without.Annotations, annotationID)
	without.Annotations[annotationRecord] = recorded
	previous, err := l.findByRecords(ctx, without, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil || previous.nb == nil || previous.nb.ID == now.ID || previous.Verdict == ownership.Refused {
		return err
	}
	previous, err = l.reread(ctx, without, previous)
	switch {
	case err != nil || previous.nb == nil:
		return err
	case !previous.Deletable:
		r.Report(retentionNotice(previous.nb))
		return nil
	}
	return l.delete(ctx, r, s, previous.nb)
}

// record writes the ID of the NodeBalancer on the Service, and that of an attached firewall.
func (l *loadBalancers) record(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer) error {
	changes := map[string]any{}
	if id := strconv.Itoa(nb.ID); service.Annotations[annotationRecord] != id {
		changes[annotationRecord] = id
	}
	switch s.FirewallID {
	case s.FirewallRecord:
	case 0:
		changes[annotationFirewallRecord] = nil
	default:
		changes[annotationFirewallRecord] = strconv.Itoa(s.FirewallID)
	}
	if len(changes) == 0 || l.kube == nil {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return fmt.Errorf("recording NodeBalancer %d on the Service: %w", nb.ID, err)
	}
	if _, err := l.kube.CoreV1().Services(service.Namespace).Patch(
		ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	); err != nil {
		return fmt.Errorf("recording NodeBalancer %d on the Service: %w", nb.ID, err)
	}
	return nil
}
