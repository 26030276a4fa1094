package digitalocean

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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

const (
	// eventConfigError has the name used by DigitalOcean's own controller.
	eventConfigError = "LoadBalancerConfigError"
	eventIgnored     = "LoadBalancerAnnotationIgnored"
)

// loadBalancers implements cloudprovider.LoadBalancer; services.LoadBalancer defines the order of steps.
type loadBalancers struct {
	services.LoadBalancer[finding, desired]

	config    Config
	api       *api
	instances *instances
	observed  *inventory.Inventory[string, *godo.LoadBalancer]
	// keep shares equal lists of droplets in memory.
	keep         func(*godo.LoadBalancer) *godo.LoadBalancer
	certificates *inventory.Inventory[string, *godo.Certificate]
	// room polls load balancers that are being set up, for all Services.
	room *waiting.Room[string, *godo.LoadBalancer]
	// behind holds the backends of load balancers for each reach.
	behind  nodes.Shared[reach, backends]
	cluster *ownership.Cluster
	adopt   registry.Adoption

	regionLock  sync.Mutex
	regionFound string

	// kube is set by Initialize, before any call of the framework.
	kube kubernetes.Interface
}

// desired is the desired state of a Service.
type desired struct {
	settings settings
	request  *godo.LoadBalancerRequest
	// vanished holds unwanted droplets that no longer exist.
	vanished []int
	// certificateID replaces the recorded certificate; empty if it has not changed.
	certificateID string
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

func newLoadBalancers(c Config, adopt registry.Adoption, a *api, i *instances) *loadBalancers {
	keep := keepDroplets(inventory.NewLists[int]())
	l := &loadBalancers{
		keep: keep, config: c, api: a, instances: i, cluster: &ownership.Cluster{}, adopt: adopt,
		observed: inventory.New(inventory.Source[string, *godo.LoadBalancer]{
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
		certificates: inventory.New(inventory.Source[string, *godo.Certificate]{
			Kind: "certificate", ID: func(c *godo.Certificate) string { return c.ID }, List: a.certificates, Get: a.certificate,
			Indexes: map[string]func(*godo.Certificate) []string{indexName: func(c *godo.Certificate) []string { return []string{c.Name} }},
		}),
	}
	l.behind.MaxAge = updateMaxAge
	l.room, l.Creations = waiting.New(l.observed.Look, waiting.Pace{}), services.Creations{Shows: creationShows}
	l.Identify = i.Identify
	l.Reconciler, l.Name = l, func(_ string, service *v1.Service) string {
		return loadBalancerName(service, settings{Name: service.Annotations[annotationName]})
	}
	return l
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (*v1.LoadBalancerStatus, error) {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return service.Status.LoadBalancer.DeepCopy(), err
	}
	return l.LoadBalancer.EnsureLoadBalancer(ctx, cluster, service, nodes)
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	return l.LoadBalancer.UpdateLoadBalancer(ctx, cluster, service, nodes)
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, cluster string, service *v1.Service) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	return l.LoadBalancer.EnsureLoadBalancerDeleted(ctx, cluster, service)
}

// PlanLoadBalancer implements contract.Planner.
func (l *loadBalancers) PlanLoadBalancer(
	ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node,
) (contract.Plan, error) {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return contract.Plan{}, err
	}
	return l.LoadBalancer.PlanLoadBalancer(ctx, cluster, service, nodes)
}

// Validate implements services.Reconciler.
func (l *loadBalancers) Validate(r services.Request) ([]services.Finding, error) {
	return configFinding(precheck(r.Service, l.config.DefaultType))
}

// configFinding returns a warning for an unusable configuration, with the error itself.
func configFinding(err error) ([]services.Finding, error) {
	if err == nil {
		return nil, nil
	}
	return []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
}

// Observe implements services.Reconciler.
func (l *loadBalancers) Observe(ctx context.Context, r services.Request) (finding, error) {
	q := inventory.Query{MaxAge: ensureMaxAge}
	if r.Purpose == services.UpdateNodes {
		q = inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge}
	}
	return l.find(ctx, r.Service, r.Nodes, q)
}

// CheckOwner implements services.Reconciler.
func (l *loadBalancers) CheckOwner(ctx context.Context, r services.Request, f finding) (finding, []services.Finding, error) {
	switch {
	case r.Purpose == services.Ensure || r.Purpose == services.Plan:
		return f, services.Refused(r.Service, f.Decision), f.Err()
	case f.lb != nil && isUnproven(r.Service, f):
		if r.Purpose == services.Delete {
			return finding{}, []services.Finding{retentionNotice(f.lb.ID)}, nil
		}
		return f, nil, nil // the framework then requests its deletion, which reports that it stays
	case f.Verdict == ownership.Refused:
		klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(r.Service), "reason", f.Err().Error())
		return finding{}, nil, nil
	case r.Purpose == services.Delete && f.lb != nil:
		f, err := l.reread(ctx, r.Service, f)
		return f, nil, err
	}
	return f, nil, nil
}

// Desire implements services.Reconciler.
func (l *loadBalancers) Desire(ctx context.Context, r services.Request, f finding) (desired, []services.Finding, error) {
	s, findings, err := l.settings(r.Service, f.lb)
	if err != nil {
		return desired{}, findings, err
	}
	d := desired{settings: s}
	var certificateID string
	if certificateID, d.certificateID, err = l.certificate(ctx, s, f.lb); err != nil {
		return d, findings, err
	}
	network, region := s.Network, ""
	if f.lb != nil {
		network = f.lb.Network
	}
	behind, err := l.backends(ctx, r.Nodes, s.Type, network)
	if err == nil && f.lb == nil {
		region, err = l.region(ctx)
	}
	if err != nil {
		return d, findings, err
	}
	if err = behind.none; err == nil {
		d.request, err = desire(l.config, region, r.Service, s, certificateID, behind)
	}
	if err != nil {
		more, err := configFinding(err)
		return d, append(findings, more...), err
	}
	if f.lb != nil && !f.Deletable && d.request.Name == defaultName(r.Service) {
		d.request.Name = f.lb.Name // the Service's default name would mark it as created by a controller
	}
	marks, err := l.marks(ctx, r.Service, f)
	d.request.Tags = append(d.request.Tags, marks...)
	d.vanished = l.findVanished(ctx, f.lb, d.request.DropletIDs)
	return d, findings, err
}

func (l *loadBalancers) settings(service *v1.Service, observed *godo.LoadBalancer) (settings, []services.Finding, error) {
	actualType := ""
	if observed != nil {
		actualType = observed.Type
		if actualType == godo.LoadBalancerTypeGlobal {
			return settings{}, nil, fmt.Errorf("load balancer %s is of type %s, which cannot serve a Service; remove the annotation %s", observed.ID, actualType, annotationID)
		}
	}
	s, warnings, err := parseSettings(service.Annotations, l.config.DefaultType, actualType)
	s.Exists = observed
	told, _ := s.judge(service) // Validate has reported what is refused
	findings := services.Judged(errors.Join(warnings, told), nil)
	more, err := configFinding(err)
	return s, append(findings, more...), err
}

// Fixed implements services.Fixer.
func (*loadBalancers) Fixed(_ context.Context, r services.Request, f finding, _ desired) (all []services.Fixed, err error) {
	if f.lb == nil {
		return nil, nil
	}
	for _, has := range [][2]string{
		{annotationType, f.lb.Type}, {annotationNetwork, f.lb.Network}, {annotationNetworkStack, f.lb.NetworkStack}, {annotationIP, f.lb.IP},
	} {
		if has[1] != "" {
			all = append(all, services.Single(has[0], r.Service.Annotations[has[0]], has[1]))
		}
	}
	return all, nil
}

// Changes implements services.Reconciler. A load balancer is created under the default name and renamed after it is recorded. Otherwise it
// could not be found if the response were lost and the desired name changed.
func (l *loadBalancers) Changes(r services.Request, f finding, d desired) ([]services.Change[finding], error) {
	if f.lb == nil {
		return []services.Change[finding]{l.creation(d.request, r.Service)}, nil
	}
	changes := l.changes(f.lb, d.vanished, plan(withoutDroplets(f.lb, d.vanished), d.request))
	if f.Verdict == ownership.Adopted && !slices.Contains(f.lb.Tags, adoptedMark) {
		changes = append([]services.Change[finding]{l.adoption(f.lb)}, changes...)
	}
	if len(changes) > 0 && l.lacksMarks(f, d) {
		return append([]services.Change[finding]{l.markChange(f.lb, marksIn(d.request))}, changes...), nil
	}
	return changes, nil
}

func (l *loadBalancers) creation(want *godo.LoadBalancerRequest, service *v1.Service) services.Change[finding] {
	st := creation(want, service)
	return services.Change[finding]{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + want.Name, Detail: fmt.Sprintf(
			"type %s, in %s, %s, %d droplets", want.Type, want.Region, rulesOf(want.ForwardingRules), len(want.DropletIDs))},
		Replan: true, Creates: true, Compare: func() (before, after any) { return nil, want },
		Make: func(ctx context.Context, r *services.Request, _ finding) (finding, error) {
			lb, err := l.apply(ctx, nil, st)
			if err == nil {
				r.Service, err = l.record(ctx, r.Service, lb, "")
			}
			return finding{lb: lb, created: true, Decision: ownership.Decision{Verdict: ownership.Owned, Deletable: true}}, err
		},
	}
}

// changes returns the calls of a plan. Each starts from the result of the previous one, without vanished droplets.
func (l *loadBalancers) changes(lb *godo.LoadBalancer, vanished []int, steps []step) []services.Change[finding] {
	var changes []services.Change[finding]
	for _, st := range steps {
		detail := fmt.Sprintf("%s: %s", st.kind, strings.Join(st.reasons, ", "))
		changes = append(changes, services.Change[finding]{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: detail},
			Compare: func() (before, after any) { return st.compare(withoutDroplets(lb, vanished)) },
			Make: func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
				var err error
				f.lb, err = l.apply(ctx, withoutDroplets(f.lb, vanished), st)
				return f, err
			},
		})
	}
	return changes
}

// lacksMarks reports whether a load balancer lacks marks, or has those of a deleted Service.
func (l *loadBalancers) lacksMarks(f finding, d desired) bool {
	marks := marksIn(d.request)
	missing := func(tag string) bool { return !slices.Contains(f.lb.Tags, tag) }
	stale := func(tag string) bool { return ownership.IsServiceMark(tag) && !slices.Contains(marks, tag) }
	return len(marks) > 0 && !f.created && (slices.ContainsFunc(marks, missing) || slices.ContainsFunc(f.lb.Tags, stale))
}

func marksIn(r *godo.LoadBalancerRequest) []string {
	return slices.DeleteFunc(slices.Clone(r.Tags), func(tag string) bool { return !ownership.IsMark(tag) })
}

func (l *loadBalancers) markChange(lb *godo.LoadBalancer, marks []string) services.Change[finding] {
	return services.Change[finding]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: "tag it as this Service's"},
		Compare: func() (before, after any) {
			tags := slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool {
				return slices.Contains(marks, tag) || ownership.IsServiceMark(tag)
			})
			return services.Part(lb, "tags"), map[string]any{"tags": append(tags, marks...)}
		},
		Make: func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			var err error
			f.lb, err = l.addMarks(ctx, r.Service, f, f.lb)
			return f, err
		},
	}
}

// adoption tags a load balancer that was made by hand before the Service shows it: later it would look like one of DigitalOcean's own
// controller, and be deleted with the Service.
func (l *loadBalancers) adoption(lb *godo.LoadBalancer) services.Change[finding] {
	return services.Change[finding]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: "tag it as one that stays when its Service goes"},
		Compare: func() (before, after any) {
			return services.Part(lb, "tags"), map[string]any{"tags": append(slices.Clone(lb.Tags), adoptedMark)}
		},
		Make: func(ctx context.Context, _ *services.Request, f finding) (finding, error) {
			lb, err := l.tag(ctx, f.lb, adoptedMark)
			if err == nil {
				f.lb = lb
			}
			return f, err
		},
	}
}

// Complete implements services.Reconciler.
func (l *loadBalancers) Complete(ctx context.Context, r *services.Request, f finding, d desired) (finding, error) {
	_, err := l.record(ctx, r.Service, f.lb, d.certificateID)
	if err == nil {
		f.lb, err = l.waitUntilActive(ctx, f.lb)
	}
	if err != nil || f.lb.Status != statusActive || f.created {
		return f, err
	}
	if recordedID(r.Service) == f.lb.ID && !slices.Contains(f.lb.Tags, ownership.ServiceMark(r.Service.UID)) && !contract.Keeps(r.Service) {
		err = l.cleanUpPrevious(ctx, r.Service, f.lb)
	}
	return f, err
}

// Status implements services.Reconciler.
func (l *loadBalancers) Status(_ services.Request, f finding, d desired) (*v1.LoadBalancerStatus, error) {
	return statusIfActive(f.lb, d.settings)
}

// NodeChanges implements services.Reconciler: only droplets, and only if they differ.
func (l *loadBalancers) NodeChanges(
	ctx context.Context, r services.Request, f finding,
) ([]services.Change[finding], []services.Finding, error) {
	if f.lb == nil {
		return nil, nil, nil
	}
	behind, err := l.backends(ctx, r.Nodes, f.lb.Type, f.lb.Network)
	if err == nil {
		err = behind.none
	}
	if err != nil {
		return nil, nil, err
	}
	vanished := l.findVanished(ctx, f.lb, behind.ids)
	return l.changes(f.lb, vanished, planDroplets(withoutDroplets(f.lb, vanished), behind.ids)), nil, nil
}

// Deletions implements services.Reconciler.
func (l *loadBalancers) Deletions(
	_ context.Context, r services.Request, f finding,
) ([]services.Change[finding], []services.Finding, error) {
	switch {
	case f.lb == nil:
		return nil, nil, nil
	case !f.Deletable:
		return nil, []services.Finding{retentionNotice(f.lb.ID)}, nil
	}
	return []services.Change[finding]{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "load balancer " + f.lb.ID},
		Make: func(ctx context.Context, r *services.Request, f finding) (finding, error) {
			return finding{}, l.delete(ctx, r.Service, f.lb.ID)
		},
	}}, nil, nil
}

// isUnproven reports whether a Service that changed its type records a load balancer without other evidence of ownership. The API server
// has cleared the status, which was the only one.
func isUnproven(service *v1.Service, f finding) bool {
	return service.Spec.Type != v1.ServiceTypeLoadBalancer && f.Verdict == ownership.Refused && f.Owner == nil &&
		f.lb.ID == recordedID(service) && !slices.ContainsFunc(f.lb.Tags, ownership.IsMark) && !defaultNames.MatchString(f.lb.Name)
}

// retentionNotice reports that a load balancer outlives its Service.
func retentionNotice(id string) services.Finding {
	return services.Notice(contract.EventLoadBalancerRetained,
		"load balancer %s stays in the cloud, for nothing shows that a controller made it; delete it there if it is not needed", id)
}

// Exists implements services.Reconciler.
func (l *loadBalancers) Exists(_ context.Context, r services.Request, f finding) (*v1.LoadBalancerStatus, bool, error) {
	if f.lb == nil {
		return nil, false, nil
	}
	return status(f.lb, settings{Hostname: r.Service.Annotations[annotationHostname]}), true, nil
}

func (l *loadBalancers) delete(ctx context.Context, service *v1.Service, id string) error {
	klog.InfoS("Deleting load balancer", "service", klog.KObj(service), "loadBalancer", id)
	err := l.api.deleteLoadBalancer(ctx, id)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.observed.Doubt(id)
		return err
	}
	l.observed.Forget(id)
	return nil
}

// apply makes one call and returns the resulting load balancer. A failed call may have taken effect, so it is read again.
func (l *loadBalancers) apply(ctx context.Context, lb *godo.LoadBalancer, st step) (*godo.LoadBalancer, error) {
	id := ""
	if lb != nil {
		id = lb.ID
	}
	after, err := l.call(ctx, lb, st)
	if cloudapi.NotSent(err) {
		return nil, err
	}
	if err != nil {
		l.observed.Doubt(id)
		if errors.Is(err, cloudapi.ErrInvalid) {
			// A droplet may have been deleted in the meantime.
			l.instances.droplets.InvalidateAll()
			l.behind.Forget()
		}
		return nil, err
	}
	if after = l.keep(after); st.kind == create || st.kind == replace {
		l.observed.Put(after)
	} else {
		l.observed.PutPartial(after)
	}
	return after, nil
}

func (l *loadBalancers) call(ctx context.Context, lb *godo.LoadBalancer, st step) (*godo.LoadBalancer, error) {
	switch st.kind {
	case create:
		return l.api.createLoadBalancer(ctx, st.request)
	case replace:
		return l.api.replaceLoadBalancer(ctx, lb.ID, st.request)
	case addDroplets:
		after := *lb
		after.DropletIDs = append(slices.Clone(lb.DropletIDs), st.droplets...)
		return &after, l.api.addDroplets(ctx, lb.ID, st.droplets)
	case removeDroplets:
		after := *lb
		after.DropletIDs = subtract(lb.DropletIDs, st.droplets)
		return &after, l.api.removeDroplets(ctx, lb.ID, st.droplets)
	}
	return nil, fmt.Errorf("unknown step %q", st.kind)
}

// record writes the load balancer's ID and type on the Service, like DigitalOcean's own controller, and a rotated certificate. It returns
// the updated Service, even after a failure.
func (l *loadBalancers) record(ctx context.Context, service *v1.Service, lb *godo.LoadBalancer, certificateID string) (*v1.Service, error) {
	changes := map[string]string{}
	note := func(key, value string) {
		if value != "" && service.Annotations[key] != value {
			changes[key] = value
		}
	}
	note(annotationID, lb.ID)
	note(annotationType, lb.Type)
	note(annotationCertificateID, certificateID)
	if len(changes) == 0 || l.kube == nil {
		return service, nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": service.UID, "annotations": changes}})
	if err != nil {
		return service, fmt.Errorf("recording load balancer %s on the Service: %w", lb.ID, err)
	}
	stored, err := l.kube.CoreV1().Services(service.Namespace).Patch(
		ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{},
	)
	if err != nil {
		return service, fmt.Errorf("recording load balancer %s on the Service: %w", lb.ID, err)
	}
	// The stored Service lacks annotations translated from portable ones.
	updated := service.DeepCopy()
	updated.ResourceVersion = stored.ResourceVersion
	if updated.Annotations == nil {
		updated.Annotations = map[string]string{}
	}
	maps.Copy(updated.Annotations, changes)
	return updated, nil
}

// waitUntilActive waits for a new load balancer for a limited time.
func (l *loadBalancers) waitUntilActive(ctx context.Context, lb *godo.LoadBalancer) (*godo.LoadBalancer, error) {
	if lb.Status != statusNew {
		return lb, nil
	}
	after, err := l.room.Until(ctx, lb.ID, fmt.Sprintf("load balancer %s to be set up", lb.ID), func(lb *godo.LoadBalancer) bool { return lb.Status != statusNew })
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return lb, nil
	case errors.Is(err, cloudapi.ErrNotFound):
		l.observed.Forget(lb.ID)
	}
	return after, err
}

// statusIfActive returns the status of an active load balancer, or an error with a retry hint.
func statusIfActive(lb *godo.LoadBalancer, s settings) (*v1.LoadBalancerStatus, error) {
	switch lb.Status {
	case statusActive:
		return status(lb, s), nil
	case statusNew:
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("load balancer %s is being set up", lb.ID), setUpDelay)
	}
	return nil, fmt.Errorf("load balancer %s is in state %q; look at it in the DigitalOcean control panel, or delete it there to have it created again", lb.ID, lb.Status)
}

func isDisowned(service *v1.Service) (bool, error) {
	s, _, err := disownTable.Parse(service.Annotations)
	return s.Disown, err
}

func (l *loadBalancers) event(service *v1.Service, reason, message string) {
	if l.Events != nil {
		l.Events.Event(service, v1.EventTypeWarning, reason, message)
	}
}

// region returns the region of new load balancers: the configured one, otherwise that of the program's droplet.
func (l *loadBalancers) region(ctx context.Context) (string, error) {
	if l.config.Region != "" {
		return l.config.Region, nil
	}
	l.regionLock.Lock()
	defer l.regionLock.Unlock()
	if l.regionFound == "" {
		region, err := l.api.ownRegion(ctx)
		if err != nil {
			return "", err
		}
		l.regionFound = region
	}
	return l.regionFound, nil
}

func rulesOf(rules []godo.ForwardingRule) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = fmt.Sprintf("%s/%d to %s/%d", r.EntryProtocol, r.EntryPort, r.TargetProtocol, r.TargetPort)
	}
	return strings.Join(texts, ", ")
}
