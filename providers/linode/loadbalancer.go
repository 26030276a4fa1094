package linode

import (
	"context"
	"fmt"
	"strconv"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/secrets"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are visible at once; the age only
	// delays the sight of changes by others.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge is for changes of nodes, which affect all NodeBalancers at about the same time.
	updateMaxAge = 60 * time.Second
	// detailsMaxAge is for ports and nodes at a change of nodes: a read would cost a call for each port, our own writes are visible at
	// once, and after a refused write they are read again.
	detailsMaxAge = 24 * time.Hour
	// ensureDetailsMaxAge is for ports and nodes when a Service is reconciled.
	ensureDetailsMaxAge = 60 * time.Second
	// creationShows is how long listings may lack a new NodeBalancer. Its label is unique.
	creationShows = 45 * time.Second
	// backendMaxAge is for the Linodes behind nodes.
	backendMaxAge = 10 * time.Minute
)

// reconciler implements services.Reconciler; the order of the steps is that of services.LoadBalancer.
type reconciler struct {
	services.LoadBalancer[observed, *desired]

	config    Config
	api       *api
	vpcs      *vpcs
	instances *instances
	balancers *inventory.Inventory[int, *nodeBalancer]
	details   *inventory.Inventory[int, *details]
	firewalls *firewalls
	backends  *backends
	owners    *owners
	follower  secrets.Follower

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// observed holds a Service's settings, and its NodeBalancer.
type observed struct {
	settings settings
	// faults of annotations prevent neither changes of nodes, narrowing nor deletion.
	faults error
	match
	// details are the ports and their nodes, if they were read.
	details *details
	// firewall is the ID of the one that this reconciliation has created for the NodeBalancer.
	firewall int
}

// desired is the desired state of a Service.
type desired struct {
	throttle int
	tags     []string
	configs  []configFields
	// request creates the NodeBalancer; nil if it exists.
	request   *nodeBalancerRequest
	firewalls firewallPlan
	// marks show the owner of the Service's objects.
	marks []string
}

var _ cloudprovider.LoadBalancer = (*reconciler)(nil)

func newReconciler(c Config, adopt registry.Adoption, a *api, v *vpcs, i *instances) *reconciler {
	cluster := &ownership.Cluster{}
	r := &reconciler{
		config: c, api: a, vpcs: v, instances: i,
		balancers: inventory.New(inventory.Source[int, *nodeBalancer]{
			Kind: "NodeBalancer", ID: func(nb *nodeBalancer) int { return nb.ID }, List: a.nodeBalancers, Get: a.nodeBalancer,
			Indexes: map[string]func(*nodeBalancer) []string{
				indexLabel: func(nb *nodeBalancer) []string { return []string{nb.Label} },
				indexIP:    func(nb *nodeBalancer) []string { return []string{nb.IPv4, nb.IPv6, nb.Hostname} },
			},
		}),
		details: inventory.New(inventory.Source[int, *details]{
			Kind: "NodeBalancer detail", ID: func(d *details) int { return d.nodeBalancerID }, Get: a.details,
		}),
		firewalls: newFirewalls(a, c.Prefix, cluster),
		backends:  &backends{vpcs: v, instances: i, shared: nodes.Shared[network, wantedNodes]{MaxAge: updateMaxAge}},
	}
	r.owners = &owners{config: c, adopt: adopt, cluster: cluster, instances: i, balancers: r.balancers, details: r.details}
	r.Creations = &services.Creations{Shows: creationShows, Repeat: true}
	r.Identify = i.Identify
	r.Reconciler, r.Name = r, func(_ string, service *v1.Service) string { return label(c.Prefix, service) }
	return r
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (r *reconciler) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if err := r.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service); err != nil {
		return err
	}
	r.owners.proven.Delete(service.UID)
	return nil
}

// Validate implements services.Reconciler.
func (r *reconciler) Validate(req services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(req.Service, r.config)
	return services.Judged(warnings, err), err
}

// Observe implements services.Reconciler.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (o observed, err error) {
	q := inventory.Query{MaxAge: ensureMaxAge}
	if req.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: detailsMaxAge, MaxMissAge: updateMaxAge}
	}
	o.settings, _, o.faults = parseSettings(req.Service, r.config) // Validate reports the warnings
	o.match, err = r.owners.find(ctx, req.Service, req.Nodes, q)
	return o, err
}

// CheckOwner implements services.Reconciler. It reads the ports and nodes of the Service's NodeBalancer.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (_ observed, _ []services.Finding, err error) {
	whole := req.Purpose == services.Ensure || req.Purpose == services.Plan
	q := inventory.Query{MaxAge: detailsMaxAge}
	switch {
	case o.wrongID != nil:
		return o, services.Judged(nil, o.wrongID), o.wrongID
	case whole && o.Verdict == ownership.Refused:
		return o, services.Refused(req.Service, o.Decision), o.Err()
	case o.Verdict == ownership.Refused:
		klog.InfoS("Leaving a NodeBalancer alone", "service", klog.KObj(req.Service), "reason", o.Err().Error())
		o.match = match{}
		return o, nil, nil
	case o.nb == nil || req.Purpose == services.Lookup || req.Purpose == services.Narrow:
		return o, nil, nil
	case req.Purpose == services.Delete:
		if !o.settings.Preserve && o.deletionFaults() == nil {
			o.match, err = r.owners.reread(ctx, req.Service, o.nb.ID)
		}
		return o, nil, err
	case whole:
		q.MaxAge = ensureDetailsMaxAge
	}
	if req.Purpose == services.Ensure && o.Verdict == ownership.Owned {
		r.owners.proven.Store(req.Service.UID, o.nb.ID)
	}
	o.details, err = r.details.Get(ctx, o.nb.ID, q)
	return o, nil, err
}

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (d *desired, findings []services.Finding, err error) {
	behind, err := r.backends.find(ctx, o.settings, req.Nodes)
	if err != nil {
		return nil, nil, err
	}
	certificates, err := r.secrets(ctx, req.Service, o.settings, r.follower.Follow(req.Service))
	if err == nil {
		d, err = desire(req.Service, o.settings, tagsOf(req.Cluster, r.config, o.settings), behind, certificates)
	}
	if err != nil {
		return nil, services.Judged(nil, err), err
	}
	if d.marks, err = r.owners.marks(ctx, req.Service); err != nil {
		return nil, nil, err
	}
	if o.nb == nil {
		if d.request, err = r.request(ctx, req.Service, o.settings, d); err != nil {
			return nil, services.Judged(nil, err), err
		}
	}
	d.firewalls, findings, err = r.firewalls.desire(ctx, req.Service, o.settings, o.nb)
	return d, findings, err
}

// Changes implements services.Reconciler: firewalls come first, because a NodeBalancer must never be open without its own.
func (r *reconciler) Changes(_ services.Request, o observed, d *desired) ([]services.Change[observed], error) {
	changes := r.firewallChanges(o.nb, d)
	if o.nb == nil {
		return append(changes, r.creation(d.request, d.firewalls.own)), nil
	}
	nb := *o.nb
	nb.Tags = r.noteFirewalls(o.nb, d)
	steps := plan(&nb, o.details, d)
	if o.Deletable {
		steps = addMarkSteps(&nb, d, steps)
	}
	return append(changes, r.changes(&nb, steps)...), nil
}

// Complete implements services.Reconciler.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, o observed, _ *desired) (observed, error) {
	if err := r.record(ctx, req.Service, o.settings, o.nb); err != nil {
		return o, err
	}
	return o, r.cleanUpPrevious(ctx, req, o.settings, o.nb)
}

// Status implements services.Reconciler.
func (*reconciler) Status(_ services.Request, o observed, _ *desired) (*v1.LoadBalancerStatus, error) {
	return status(o.nb, o.settings), nil
}

// NodeChanges implements services.Reconciler: it changes only nodes. Faults in annotations do not keep nodes from joining or leaving,
// unless they make the nodes' addresses unknown.
func (r *reconciler) NodeChanges(
	ctx context.Context, req services.Request, o observed,
) ([]services.Change[observed], []services.Finding, error) {
	if o.nb == nil {
		return nil, nil, nil
	}
	if err := problemsAbout(o.faults, backendAnnotations()...); err != nil {
		return nil, nil, err
	}
	steps, err := r.planNodes(ctx, req.Service, o.settings, o.details, req.Nodes)
	return r.changes(o.nb, steps), nil, err
}

// Deletions implements services.Reconciler. Our objects are deleted, and the user's stay: the NodeBalancer first, so that it is never open
// without its firewall.
func (r *reconciler) Deletions(
	ctx context.Context, req services.Request, o observed,
) (changes []services.Change[observed], findings []services.Finding, err error) {
	if err := o.deletionFaults(); err != nil || o.settings.Preserve {
		return nil, nil, err // when in doubt, nothing is deleted
	}
	switch {
	case o.nb == nil:
	case o.Deletable:
		return []services.Change[observed]{{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: fmt.Sprintf("NodeBalancer %d", o.nb.ID)},
			Replan:  true,
			Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
				err := r.delete(ctx, req, o.settings, o.nb)
				o.match = match{}
				return o, err
			},
		}}, nil, nil
	default:
		findings = append(findings, retentionNotice(o.nb))
	}
	unused, err := r.firewalls.findUnused(ctx, req.Service)
	for _, firewall := range unused {
		changes = append(changes, services.Change[observed]{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: fmt.Sprintf("firewall %d", firewall.ID)},
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				return o, r.firewalls.delete(ctx, firewall.ID)
			},
		})
	}
	return changes, findings, err
}

// deletionFaults returns the faults of annotations about the deletion. Those of others do not prevent it.
func (o observed) deletionFaults() error {
	return problemsAbout(o.faults, annotationPreserve, annotationRetainReservedIPv4)
}

// retentionNotice reports that a NodeBalancer outlives its Service, because it belongs to another owner.
func retentionNotice(nb *nodeBalancer) services.Finding {
	return services.Notice(contract.EventLoadBalancerRetained,
		"NodeBalancer %d is kept: nothing that only a controller can write shows that one made it for this Service; "+
			"delete it in the cloud if it is not needed", nb.ID)
}

// Exists implements services.Reconciler. Without it the framework requests no deletion; a firewall outlives its NodeBalancer for a moment.
// A fault in an annotation hides nothing.
func (r *reconciler) Exists(ctx context.Context, req services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if o.nb == nil {
		unused, err := r.firewalls.findUnused(ctx, req.Service)
		if err != nil {
			return nil, false, err
		}
		return &v1.LoadBalancerStatus{}, len(unused) > 0, nil
	}
	return status(o.nb, o.settings), true, nil
}

// delete deletes a NodeBalancer that a controller created.
func (r *reconciler) delete(ctx context.Context, req *services.Request, s settings, nb *nodeBalancer) error {
	if err := r.firewalls.adoptForDeletion(ctx, req.Service, nb); err != nil {
		return err
	}
	// The address first: after the NodeBalancer is gone, it could not be found, and a failed release would be forgotten.
	if err := r.releaseReserved(ctx, req, s, nb); err != nil {
		return err
	}
	klog.InfoS("Deleting NodeBalancer", "service", klog.KObj(req.Service), "nodeBalancer", nb.ID)
	if err := r.api.deleteNodeBalancer(ctx, nb.ID); cloudapi.IgnoreNotFound(err) != nil {
		r.balancers.Invalidate(nb.ID)
		return err
	}
	r.balancers.Forget(nb.ID)
	r.details.Forget(nb.ID)
	return nil
}

// cleanUpPrevious removes the Service's former NodeBalancer after it moved to another one.
func (r *reconciler) cleanUpPrevious(ctx context.Context, req *services.Request, s settings, now *nodeBalancer) error {
	if req.Service.Annotations[annotationID] == "" || s.Preserve || contract.Keeps(req.Service) {
		return nil
	}
	without := req.Service.DeepCopy()
	delete(without.Annotations, annotationID)
	previous, err := r.owners.findByRecords(ctx, without, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil || previous.nb == nil || previous.nb.ID == now.ID || previous.Verdict == ownership.Refused {
		return err
	}
	previous, err = r.owners.reread(ctx, without, previous.nb.ID)
	switch {
	case err != nil || previous.nb == nil:
		return err
	case !previous.Deletable:
		req.Report(retentionNotice(previous.nb))
		return nil
	}
	return r.delete(ctx, req, s, previous.nb)
}

// record writes the ID of the NodeBalancer on the Service, and that of an attached firewall.
func (r *reconciler) record(ctx context.Context, service *v1.Service, s settings, nb *nodeBalancer) error {
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
	if len(changes) == 0 || r.kube == nil {
		return nil
	}
	// The request's Service keeps the former record, by which its former NodeBalancer is found.
	if _, err := services.Annotate(ctx, r.kube, service, changes); err != nil {
		return fmt.Errorf("recording NodeBalancer %d on the Service: %w", nb.ID, err)
	}
	return nil
}
