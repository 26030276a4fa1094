package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are visible at once; the age only
	// delays the sight of changes by others.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge is for changes of nodes, which affect all load balancers at about the same time.
	updateMaxAge = 60 * time.Second
	// backendMaxAge is for the nodes' droplets. Their addresses do not change, and if one is gone, the API refuses the write and they are
	// read again.
	backendMaxAge = 10 * time.Minute
	// unlistedMaxAge is for a listing that proves that a Service has no load balancer yet. It is short, because a request of the previous
	// leader may still be in progress.
	unlistedMaxAge = 3 * time.Second
	// creationShows is how long listings may lack a new load balancer. After a lost response it is found only by name or tag, and the API
	// accepts duplicate names.
	creationShows = 45 * time.Second
	// setUpDelay is the retry delay after the wait for a load balancer has ended.
	setUpDelay = time.Second
	// certificateMaxAge bounds how long a certificate's rotation goes unnoticed.
	certificateMaxAge = 60 * time.Second
)

// reconciler implements services.Reconciler; services.LoadBalancer defines the order of steps.
type reconciler struct {
	services.LoadBalancer[observed, desired]

	config    Config
	api       *api
	instances *instances
	balancers *inventory.Inventory[string, *godo.LoadBalancer]
	// keep shares equal lists of droplets in memory.
	keep         func(*godo.LoadBalancer) *godo.LoadBalancer
	certificates certificates
	backends     *backends
	owners       *owners
	// room polls load balancers that are being set up, for all Services.
	room *waiting.Room[string, *godo.LoadBalancer]

	regionLock  sync.Mutex
	regionFound string

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// observed holds a Service's load balancer, and the Service's settings for one of its type.
type observed struct {
	match
	// created is set if this reconciliation has created it.
	created  bool
	settings settings
	// warnings and faults about the annotations.
	warnings, faults error
}

// desired is the desired state of a Service.
type desired struct {
	request *godo.LoadBalancerRequest
	// marks are the tags of the request that show the owner.
	marks []string
	// vanished holds unwanted droplets that no longer exist.
	vanished []int
	// rotatedTo is the certificate that has replaced the one that the Service names; empty if none has.
	rotatedTo string
}

var _ cloudprovider.LoadBalancer = (*reconciler)(nil)

func newReconciler(c Config, adopt registry.Adoption, a *api, i *instances) *reconciler {
	keep := keepDroplets(inventory.NewLists[int]())
	r := &reconciler{
		keep: keep, config: c, api: a, instances: i, certificates: newCertificates(a),
		backends: &backends{instances: i, shared: nodes.Shared[loadBalancerKind, backendSet]{MaxAge: updateMaxAge}},
		balancers: inventory.New(inventory.Source[string, *godo.LoadBalancer]{
			Kind: "load balancer", ID: func(lb *godo.LoadBalancer) string { return lb.ID }, Get: a.loadBalancer, Wrote: equalsWritten,
			List: func(ctx context.Context) ([]*godo.LoadBalancer, int, error) {
				return a.loadBalancers(ctx, i.nodes.Counts().All, keep)
			},
			Keep: keep,
			Indexes: map[string]func(*godo.LoadBalancer) []string{
				indexName: func(lb *godo.LoadBalancer) []string { return []string{lb.Name} },
				indexTag:  func(lb *godo.LoadBalancer) []string { return lb.Tags },
			},
		}),
	}
	r.owners = &owners{config: c, adopt: adopt, cluster: &ownership.Cluster{}, instances: i, balancers: r.balancers}
	r.room, r.Creations = waiting.New(r.balancers.Look, waiting.Pace{}), &services.Creations{Shows: creationShows}
	r.Identify = i.Identify
	r.Reconciler, r.Name = r, func(_ string, service *v1.Service) string {
		return loadBalancerName(service, settings{Name: service.Annotations[annotationName]})
	}
	return r
}

// Validate implements services.Reconciler. Desire reports the warnings, which depend on the type of the load balancer.
func (r *reconciler) Validate(req services.Request) ([]services.Finding, error) {
	_, err := validate(req.Service, r.config.DefaultType)
	return services.Judged(nil, err), err
}

// Observe implements services.Reconciler.
func (r *reconciler) Observe(ctx context.Context, req services.Request) (observed, error) {
	q := inventory.Query{MaxAge: ensureMaxAge}
	if req.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge}
	}
	m, err := r.owners.find(ctx, req.Service, req.Nodes, q)
	return r.observe(req.Service, m), err
}

// observe parses the settings of a Service for the load balancer found for it.
func (r *reconciler) observe(service *v1.Service, m match) observed {
	o := observed{match: m}
	lbType := ""
	if m.lb != nil {
		lbType = m.lb.Type
	}
	o.settings, o.warnings, o.faults = parseSettings(service.Annotations, r.config.DefaultType, lbType)
	return o
}

// CheckOwner implements services.Reconciler.
func (r *reconciler) CheckOwner(ctx context.Context, req services.Request, o observed) (observed, []services.Finding, error) {
	switch {
	case req.Purpose == services.Ensure || req.Purpose == services.Plan:
		return o, services.Refused(req.Service, o.Decision), o.Err()
	case o.lb != nil && isUnproven(req.Service, o.match):
		if req.Purpose == services.Delete {
			return observed{}, []services.Finding{retentionNotice(o.lb.ID)}, nil
		}
		return o, nil, nil // the framework then requests its deletion, which reports that it stays
	case o.Verdict == ownership.Refused:
		klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(req.Service), "reason", o.Err().Error())
		return observed{}, nil, nil
	case req.Purpose == services.Delete && o.lb != nil:
		m, err := r.owners.reread(ctx, req.Service, o.lb.ID)
		return observed{match: m}, nil, err
	}
	return o, nil, nil
}

// Desire implements services.Reconciler.
func (r *reconciler) Desire(ctx context.Context, req services.Request, o observed) (d desired, findings []services.Finding, err error) {
	if o.lb != nil && o.lb.Type == godo.LoadBalancerTypeGlobal {
		return d, nil, fmt.Errorf("load balancer %s is of type %s, which cannot serve a Service; remove the annotation %s", o.lb.ID, o.lb.Type, annotationID)
	}
	s := o.settings
	warned, _ := s.judge(req.Service) // Validate has reported what is refused
	findings = services.Judged(errors.Join(o.warnings, warned), o.faults)
	if o.faults != nil {
		return d, findings, o.faults
	}
	var certificateID string
	if certificateID, d.rotatedTo, err = r.certificates.find(ctx, s, o.lb); err != nil {
		return d, findings, err
	}
	network, region := s.Network, ""
	if o.lb != nil {
		network = o.lb.Network
	}
	backends, err := r.backends.find(ctx, req.Nodes, s.Type, network)
	if err == nil && o.lb == nil {
		region, err = r.region(ctx)
	}
	if err != nil {
		return d, findings, err
	}
	if err = backends.emptyBecause; err == nil {
		d.request, err = desire(r.config, region, req.Service, s, certificateID, backends, o.lb)
	}
	if err != nil {
		return d, append(findings, services.Judged(nil, err)...), err
	}
	if o.lb != nil && !o.Deletable && d.request.Name == defaultName(req.Service) {
		d.request.Name = o.lb.Name // the Service's default name would mark it as created by a controller
	}
	d.marks, err = r.owners.marks(ctx, req.Service, o.match)
	d.request.Tags = append(d.request.Tags, d.marks...)
	d.vanished = r.findVanished(ctx, o.lb, d.request.DropletIDs)
	return d, findings, err
}

// Fixed implements services.Fixer.
func (*reconciler) Fixed(_ context.Context, req services.Request, o observed, _ desired) (all []services.Fixed, err error) {
	if o.lb == nil {
		return nil, nil
	}
	for _, has := range [][2]string{
		{annotationType, o.lb.Type}, {annotationNetwork, o.lb.Network}, {annotationNetworkStack, o.lb.NetworkStack}, {annotationIP, o.lb.IP},
	} {
		if has[1] != "" {
			all = append(all, services.Single(has[0], req.Service.Annotations[has[0]], has[1]))
		}
	}
	return all, nil
}

// Changes implements services.Reconciler. A load balancer is created under the default name and renamed after it is recorded. Otherwise it
// could not be found if the response were lost and the desired name changed.
func (r *reconciler) Changes(req services.Request, o observed, d desired) ([]services.Change[observed], error) {
	if o.lb == nil {
		return []services.Change[observed]{r.creation(d.request, req.Service)}, nil
	}
	changes := r.changes(o.lb, d.vanished, plan(withoutDroplets(o.lb, d.vanished), d.request))
	if o.Verdict == ownership.Adopted && !slices.Contains(o.lb.Tags, adoptedMark) {
		changes = append([]services.Change[observed]{r.adoption(o.lb)}, changes...)
	}
	if len(changes) > 0 && o.lacksMarks(d.marks) {
		changes = append([]services.Change[observed]{r.markChange(o.lb, d.marks)}, changes...)
	}
	return changes, nil
}

// lacksMarks reports whether a load balancer lacks marks, or has those of a deleted Service.
func (o observed) lacksMarks(marks []string) bool {
	missing := func(tag string) bool { return !slices.Contains(o.lb.Tags, tag) }
	return !o.created && (slices.ContainsFunc(marks, missing) || len(staleMarks(o.lb.Tags, marks)) > 0)
}

// Complete implements services.Reconciler.
func (r *reconciler) Complete(ctx context.Context, req *services.Request, o observed, d desired) (observed, error) {
	_, err := r.record(ctx, req.Service, o.lb, d.rotatedTo)
	if err == nil {
		o.lb, err = r.waitUntilActive(ctx, o.lb)
	}
	if err != nil || o.lb.Status != statusActive || o.created {
		return o, err
	}
	marked := slices.Contains(o.lb.Tags, ownership.ServiceMark(req.Service.UID))
	if recordedID(req.Service) == o.lb.ID && !marked && !contract.Keeps(req.Service) {
		err = r.cleanUpPrevious(ctx, req.Service, o.lb)
	}
	return o, err
}

// Status implements services.Reconciler.
func (r *reconciler) Status(_ services.Request, o observed, _ desired) (*v1.LoadBalancerStatus, error) {
	switch o.lb.Status {
	case statusActive:
		return status(o.lb, o.settings), nil
	case statusNew:
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("load balancer %s is being set up", o.lb.ID), setUpDelay)
	}
	return nil, fmt.Errorf("load balancer %s is in state %q; look at it in the DigitalOcean control panel, or delete it there to have it created again",
		o.lb.ID, o.lb.Status)
}

// NodeChanges implements services.Reconciler: only droplets, and only if they differ.
func (r *reconciler) NodeChanges(
	ctx context.Context, req services.Request, o observed,
) ([]services.Change[observed], []services.Finding, error) {
	if o.lb == nil {
		return nil, nil, nil
	}
	backends, err := r.backends.find(ctx, req.Nodes, o.lb.Type, o.lb.Network)
	if err == nil {
		err = backends.emptyBecause
	}
	if err != nil {
		return nil, nil, err
	}
	vanished := r.findVanished(ctx, o.lb, backends.ids)
	return r.changes(o.lb, vanished, planDroplets(withoutDroplets(o.lb, vanished), backends.ids)), nil, nil
}

// Deletions implements services.Reconciler.
func (r *reconciler) Deletions(
	_ context.Context, req services.Request, o observed,
) ([]services.Change[observed], []services.Finding, error) {
	switch {
	case o.lb == nil:
		return nil, nil, nil
	case !o.Deletable:
		return nil, []services.Finding{retentionNotice(o.lb.ID)}, nil
	}
	return []services.Change[observed]{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "load balancer " + o.lb.ID},
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			return observed{}, r.delete(ctx, req.Service, o.lb.ID)
		},
	}}, nil, nil
}

// isUnproven reports whether a Service that changed its type records a load balancer without other evidence of ownership. The API server
// has cleared the status, which was the only one.
func isUnproven(service *v1.Service, m match) bool {
	return service.Spec.Type != v1.ServiceTypeLoadBalancer && m.Verdict == ownership.Refused && m.Owner == nil &&
		m.lb.ID == recordedID(service) && !slices.ContainsFunc(m.lb.Tags, ownership.IsMark) && !defaultNames.MatchString(m.lb.Name)
}

// retentionNotice reports that a load balancer outlives its Service.
func retentionNotice(id string) services.Finding {
	return services.Notice(contract.EventLoadBalancerRetained,
		"load balancer %s stays in the cloud, for nothing shows that a controller made it; delete it there if it is not needed", id)
}

// Exists implements services.Reconciler.
func (r *reconciler) Exists(_ context.Context, req services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	if o.lb == nil {
		return nil, false, nil
	}
	return status(o.lb, o.settings), true, nil
}

// record writes the load balancer's ID and type on the Service, like DigitalOcean's own controller, and a rotated certificate. It returns
// the updated Service, even after a failure.
func (r *reconciler) record(ctx context.Context, service *v1.Service, lb *godo.LoadBalancer, rotatedTo string) (*v1.Service, error) {
	changes := map[string]any{}
	note := func(key, value string) {
		if value != "" && service.Annotations[key] != value {
			changes[key] = value
		}
	}
	note(annotationID, lb.ID)
	note(annotationType, lb.Type)
	note(annotationCertificateID, rotatedTo)
	if len(changes) == 0 || r.kube == nil {
		return service, nil
	}
	service, err := services.Annotate(ctx, r.kube, service, changes)
	if err != nil {
		return service, fmt.Errorf("recording load balancer %s on the Service: %w", lb.ID, err)
	}
	return service, nil
}

// waitUntilActive waits for a new load balancer for a limited time.
func (r *reconciler) waitUntilActive(ctx context.Context, lb *godo.LoadBalancer) (*godo.LoadBalancer, error) {
	if lb.Status != statusNew {
		return lb, nil
	}
	after, err := r.room.Until(ctx, lb.ID, fmt.Sprintf("load balancer %s to be set up", lb.ID), func(lb *godo.LoadBalancer) bool { return lb.Status != statusNew })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return lb, nil
	case errors.Is(err, cloudapi.ErrNotFound):
		r.balancers.Forget(lb.ID)
	}
	return after, err
}

// region returns the region of new load balancers: the configured one, otherwise that of the program's droplet.
func (r *reconciler) region(ctx context.Context) (string, error) {
	if r.config.Region != "" {
		return r.config.Region, nil
	}
	r.regionLock.Lock()
	defer r.regionLock.Unlock()
	if r.regionFound == "" {
		region, err := r.api.ownRegion(ctx)
		if err != nil {
			return "", err
		}
		r.regionFound = region
	}
	return r.regionFound, nil
}
