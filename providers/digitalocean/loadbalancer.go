package digitalocean

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the observed state may be when a Service is reconciled. Our own writes are in it at once;
	// the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
	// backendMaxAge is for the droplets behind the nodes: their addresses do not change, and one that went meanwhile makes
	// the API refuse the write, after which they are read anew.
	backendMaxAge = 10 * time.Minute
	// unlistedMaxAge is how old a listing may be that proves that a Service has no load balancer of the default name. It is
	// short because of a process that led before this one, whose last request may still be under way.
	unlistedMaxAge = 3 * time.Second
	// setUpDelay is when to look again after the wait for a load balancer has ended without it.
	setUpDelay = time.Second
	// certificateMaxAge bounds how long the rotation of a certificate goes unnoticed when a Service is reconciled.
	certificateMaxAge = 60 * time.Second
)

// Reasons of the events that the provider writes on Services.
const (
	// eventConfigError has the name that DigitalOcean's own controller uses.
	eventConfigError = "LoadBalancerConfigError"
	// eventIgnored: an annotation has no effect.
	eventIgnored = "LoadBalancerAnnotationIgnored"
	// eventFixed: the wish differs from what was fixed when the load balancer was created.
	eventFixed = "LoadBalancerAnnotationFixed"
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	config       Config
	api          *api
	instances    *instances
	observed     *inventory.Inventory[string, *godo.LoadBalancer]
	certificates *inventory.Inventory[string, *godo.Certificate]
	// room is where Services wait for load balancers that are being set up.
	room    *waiting.Room[string, *godo.LoadBalancer]
	cluster *ownership.Cluster
	adopt   registry.Adoption

	regionLock  sync.Mutex
	regionFound string

	// Set by Initialize, before any call of the framework.
	kube   kubernetes.Interface
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

func newLoadBalancers(c Config, adopt registry.Adoption, a *api, i *instances) *loadBalancers {
	l := &loadBalancers{
		config: c, api: a, instances: i, cluster: &ownership.Cluster{}, adopt: adopt,
		observed: inventory.New(inventory.Source[string, *godo.LoadBalancer]{
			Kind: "load balancer", ID: func(lb *godo.LoadBalancer) string { return lb.ID }, List: a.loadBalancers, Get: a.loadBalancer,
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
	l.room = waiting.New(l.observed.Look, waiting.Pace{})
	return l
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (*loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return loadBalancerName(service, settings{Name: service.Annotations[annotationName]})
}

// GetLoadBalancer implements cloudprovider.LoadBalancer.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, _ string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	found, err := l.findOurs(ctx, service, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil || found.lb == nil {
		return nil, false, err
	}
	return status(found.lb, settings{Hostname: service.Annotations[annotationHostname]}), true, nil
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, apply, and tell the Service.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return service.Status.LoadBalancer.DeepCopy(), err
	}
	if err := precheck(service, l.config.DefaultType); err != nil {
		l.event(service, eventConfigError, err.Error())
		return nil, err
	}
	found, err := l.claimed(ctx, service, nodes)
	if err != nil {
		return nil, err
	}
	observed := found.lb
	s, err := l.settings(service, observed)
	if err != nil {
		return nil, err
	}
	want, certificateID, err := l.want(ctx, service, s, found, nodes)
	if err != nil {
		return nil, err
	}
	lb, err := l.converge(ctx, service, found, want, certificateID)
	if err != nil {
		return nil, err
	}
	st, err := ready(lb, s)
	if err == nil && recordedID(service) == lb.ID && !slices.Contains(lb.Tags, ownership.ServiceMark(service.UID)) {
		err = l.cleanUpPrevious(ctx, service, lb)
	}
	return st, err
}

// converge makes a load balancer what is wanted, records it, and waits until it is set up.
func (l *loadBalancers) converge(ctx context.Context, service *v1.Service, found finding, want *godo.LoadBalancerRequest, certificateID string) (*godo.LoadBalancer, error) {
	var err error
	lb := l.withoutVanished(ctx, found.lb, want.DropletIDs)
	if lb == nil {
		// It is born under the default name, which never changes, and gets its own when it is recorded: were the answer lost
		// and the wished name changed before the next try, nothing would lead to it any more.
		if lb, err = l.apply(ctx, service, nil, birth(want, service)); err != nil {
			return nil, err
		}
		if service, err = l.record(ctx, service, lb, ""); err != nil {
			return nil, err
		}
	}
	steps := plan(lb, want)
	if found.lb != nil && len(steps) > 0 {
		if lb, err = l.remark(ctx, service, found, lb); err != nil {
			return nil, err
		}
	}
	for _, st := range steps {
		if lb, err = l.apply(ctx, service, lb, st); err != nil {
			return nil, err
		}
	}
	if _, err := l.record(ctx, service, lb, certificateID); err != nil {
		return nil, err
	}
	return l.setUp(ctx, lb)
}

// claimed finds the Service's load balancer, and tells where it is not the Service's to have.
func (l *loadBalancers) claimed(ctx context.Context, service *v1.Service, nodes []*v1.Node) (finding, error) {
	f, err := l.find(ctx, service, nodes, inventory.Query{MaxAge: ensureMaxAge})
	if err == nil {
		ownership.Report(l.events, service, f.Decision)
		err = f.Err()
	}
	return f, err
}

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: the droplets alone, and only where they differ. Nothing is
// created here, and faults in annotations do not keep nodes from joining or leaving.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	found, err := l.findOurs(ctx, service, nodes, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge})
	if err != nil || found.lb == nil {
		return err
	}
	lb := found.lb
	backends, err := l.backends(ctx, nodes)
	if err != nil {
		return err
	}
	if backends, err = eligible(backends, lb.Type, lb.Network); err != nil {
		return err
	}
	want := dropletIDs(backends)
	lb = l.withoutVanished(ctx, lb, want)
	for _, st := range planDroplets(lb, want) {
		if lb, err = l.apply(ctx, service, lb, st); err != nil {
			return err
		}
	}
	return nil
}

// EnsureLoadBalancerDeleted implements cloudprovider.LoadBalancer.
func (l *loadBalancers) EnsureLoadBalancerDeleted(ctx context.Context, _ string, service *v1.Service) error {
	if disowned, err := isDisowned(service); err != nil || disowned {
		return err
	}
	found, err := l.findOurs(ctx, service, nil, inventory.Query{MaxAge: ensureMaxAge})
	if err == nil && found.lb != nil {
		found, err = l.now(ctx, service, found)
	}
	switch {
	case err != nil || found.lb == nil:
		return err
	case !found.Deletable:
		l.normal(service, guard.EventLoadBalancerRetained, fmt.Sprintf("load balancer %s stays in the cloud, for nothing shows that a controller made it; delete it there if it is not needed", found.lb.ID))
		return nil
	}
	return l.delete(ctx, service, found.lb.ID)
}

func (l *loadBalancers) delete(ctx context.Context, service *v1.Service, id string) error {
	klog.InfoS("Deleting load balancer", "service", klog.KObj(service), "loadBalancer", id)
	err := l.api.deleteLoadBalancer(ctx, id)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.observed.Invalidate(id)
		return err
	}
	l.observed.Forget(id)
	return nil
}

// settings reads the annotations and tells the Service what is wrong with them.
func (l *loadBalancers) settings(service *v1.Service, observed *godo.LoadBalancer) (settings, error) {
	actualType := ""
	if observed != nil {
		actualType = observed.Type
		if actualType == godo.LoadBalancerTypeGlobal {
			return settings{}, fmt.Errorf("load balancer %s is of type %s, which cannot serve a Service; remove the annotation %s", observed.ID, actualType, annotationID)
		}
	}
	s, warnings, err := parseSettings(service.Annotations, l.config.DefaultType, actualType)
	s.Exists = observed
	for _, w := range schema.Problems(warnings) {
		l.event(service, eventIgnored, w.Error())
	}
	for _, f := range fixed(service.Annotations, observed) {
		l.event(service, eventFixed, f.Error())
	}
	if err != nil {
		l.event(service, eventConfigError, err.Error())
	}
	return s, err
}

// want computes the desired state, and the certificate that the Service should record from now on, if that changed.
func (l *loadBalancers) want(ctx context.Context, service *v1.Service, s settings, found finding, nodes []*v1.Node) (*godo.LoadBalancerRequest, string, error) {
	observed := found.lb
	certificateID, rotatedTo, err := l.certificate(ctx, s, observed)
	if err != nil {
		return nil, "", err
	}
	backends, err := l.backends(ctx, nodes)
	if err != nil {
		return nil, "", err
	}
	network, region := s.Network, ""
	if observed != nil {
		network = observed.Network
	} else if region, err = l.region(ctx); err != nil {
		return nil, "", err
	}
	backends, err = eligible(backends, s.Type, network)
	if err == nil {
		var want *godo.LoadBalancerRequest
		if want, err = desire(l.config, region, service, s, certificateID, backends); err == nil {
			if found.lb != nil && !found.Deletable && want.Name == defaultName(service) {
				want.Name = observed.Name // under the Service's own it would pass for a controller's
			}
			marks, err := l.marks(ctx, service, found)
			want.Tags = append(want.Tags, marks...)
			return want, rotatedTo, err
		}
	}
	l.event(service, eventConfigError, err.Error())
	return nil, "", err
}

// certificate resolves the certificate of the Service and follows the rotation of Let's Encrypt certificates. rotatedTo
// is set where the Service names a certificate by an ID that the renewal has replaced.
func (l *loadBalancers) certificate(ctx context.Context, s settings, observed *godo.LoadBalancer) (id, rotatedTo string, err error) {
	if s.CertificateID == "" && s.CertificateName == "" {
		return "", "", nil
	}
	if s.Type == godo.LoadBalancerTypeRegionalNetwork {
		return "", "", nil // it terminates no TLS
	}
	query := inventory.Query{MaxAge: certificateMaxAge}
	if s.CertificateID == "" {
		found, err := l.certificates.Find(ctx, indexName, s.CertificateName, query)
		if err != nil {
			return "", "", err
		}
		if len(found) == 0 {
			return "", "", &schema.Problem{Place: "annotation " + annotationCertificateName, Value: s.CertificateName, Reason: "is not the name of a certificate of this account"}
		}
		return found[0].ID, "", nil
	}
	if observed == nil {
		return s.CertificateID, "", nil
	}
	inUseID := certificateInUse(observed)
	if inUseID == "" || inUseID == s.CertificateID {
		return s.CertificateID, "", nil
	}
	inUse, err := l.certificateByID(ctx, inUseID, query)
	if err != nil || inUse == nil || inUse.Type != letsEncrypt {
		return s.CertificateID, "", err
	}
	wanted, err := l.certificateByID(ctx, s.CertificateID, query)
	if err != nil {
		return "", "", err
	}
	if rotated(inUse, wanted) {
		return inUseID, inUseID, nil
	}
	return s.CertificateID, "", nil
}

// certificateByID returns nil for a certificate that does not exist.
func (l *loadBalancers) certificateByID(ctx context.Context, id string, q inventory.Query) (*godo.Certificate, error) {
	c, err := l.certificates.Get(ctx, id, q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return c, err
}

// region returns where load balancers are created: as configured, else where the program runs.
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

// backends returns the droplets behind the nodes. Nodes of other clouds, and nodes that are not initialised yet, are
// left out; the framework comes back when a node gets its provider ID. Doubt about a droplet is an error: a backend is
// never dropped because a read failed.
func (l *loadBalancers) backends(ctx context.Context, nodes []*v1.Node) ([]backend, error) {
	var list []backend
	for _, node := range nodes {
		b := backend{node: node.Name}
		if strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) {
			id, err := parseProviderID(node.Spec.ProviderID)
			if err != nil {
				klog.ErrorS(err, "Leaving a node out of load balancers", "node", node.Name)
				continue
			}
			b.dropletID = id
		} else if node.Spec.ProviderID != "" || guard.Uninitialized(node) {
			continue
		}
		d, err := l.dropletOf(ctx, node, b.dropletID)
		if errors.Is(err, cloudapi.ErrNotFound) {
			// Its Node may be kept for a while; the API refuses a load balancer that names a droplet which is gone.
			klog.V(2).InfoS("Leaving a node without a droplet out of load balancers", "node", node.Name)
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("finding the droplet of node %s: %w", node.Name, err)
		}
		b.dropletID = d.id
		if !b.classify(node.Status.Addresses) {
			// A node joins before its addresses are written, and the framework does not come back for addresses.
			b.classify(d.addresses())
		}
		list = append(list, b)
	}
	return list, nil
}

func (l *loadBalancers) dropletOf(ctx context.Context, node *v1.Node, id int) (droplet, error) {
	q := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: backendMaxAge, Expected: l.instances.nodes.Counts().All}
	if id != 0 {
		return l.instances.droplets.Get(ctx, id, q)
	}
	return l.instances.Find(ctx, node, q)
}

// classify takes over addresses and reports whether there were any that matter.
func (b *backend) classify(addresses []v1.NodeAddress) bool {
	known := false
	for _, a := range addresses {
		ip, err := netip.ParseAddr(a.Address)
		if err != nil {
			continue
		}
		switch {
		case a.Type == v1.NodeExternalIP && ip.Is4():
			b.publicV4, known = true, true
		case a.Type == v1.NodeExternalIP:
			b.publicV6, known = true, true
		case a.Type == v1.NodeInternalIP && ip.Is4() && ip.IsPrivate():
			b.private, known = true, true
		case a.Type == v1.NodeInternalIP:
			known = true
		}
	}
	return known
}

func dropletIDs(backends []backend) []int {
	ids := make([]int, len(backends))
	for i, b := range backends {
		ids[i] = b.dropletID
	}
	return ids
}

// withoutVanished leaves out droplets that are not wanted and do not exist any more: the cloud takes a destroyed droplet
// out of its load balancers by itself, and refuses to be asked for it.
func (l *loadBalancers) withoutVanished(ctx context.Context, observed *godo.LoadBalancer, want []int) *godo.LoadBalancer {
	if observed == nil {
		return nil
	}
	var vanished []int
	for _, id := range without(observed.DropletIDs, want) {
		_, err := l.instances.droplets.Get(ctx, id, inventory.Query{MaxAge: updateMaxAge, MaxMissAge: backendMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) {
			vanished = append(vanished, id)
		}
	}
	if len(vanished) == 0 {
		return observed
	}
	after := *observed
	after.DropletIDs = without(observed.DropletIDs, vanished)
	l.observed.Amend(&after)
	return &after
}

// apply makes one call and returns the load balancer as it is afterwards. Whatever fails may have taken effect, so the
// next look reads it again.
func (l *loadBalancers) apply(ctx context.Context, service *v1.Service, lb *godo.LoadBalancer, st step) (*godo.LoadBalancer, error) {
	id := ""
	if lb != nil {
		id = lb.ID
	}
	klog.InfoS("Changing load balancer", "service", klog.KObj(service), "loadBalancer", id, "step", st.kind, "fields", st.reasons, "droplets", len(st.droplets))
	after, err := l.call(ctx, lb, st)
	if cloudapi.NotSent(err) {
		return nil, err
	}
	if err != nil {
		l.observed.Invalidate(id)
		if errors.Is(err, cloudapi.ErrInvalid) {
			// A droplet may have gone since it was last seen.
			l.instances.droplets.Distrust()
		}
		return nil, err
	}
	if st.kind == create || st.kind == replace {
		l.observed.Put(after)
	} else {
		l.observed.Amend(after)
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
		after.DropletIDs = without(lb.DropletIDs, st.droplets)
		return &after, l.api.removeDroplets(ctx, lb.ID, st.droplets)
	}
	return nil, fmt.Errorf("unknown step %q", st.kind)
}

// record writes the ID and the real type of the load balancer on the Service, where DigitalOcean's own controller keeps
// them too, and a certificate that was rotated. It returns the Service as it then is.
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
		return nil, fmt.Errorf("recording load balancer %s on the Service: %w", lb.ID, err)
	}
	updated, err := l.kube.CoreV1().Services(service.Namespace).Patch(ctx, service.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("recording load balancer %s on the Service: %w", lb.ID, err)
	}
	return updated, nil
}

// setUp waits until a load balancer is no longer being set up, or the time for that is over.
func (l *loadBalancers) setUp(ctx context.Context, lb *godo.LoadBalancer) (*godo.LoadBalancer, error) {
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

// ready returns the status of a load balancer that serves, or an error that says when to look again.
func ready(lb *godo.LoadBalancer, s settings) (*v1.LoadBalancerStatus, error) {
	switch lb.Status {
	case statusActive:
		return status(lb, s), nil
	case statusNew:
		return nil, cloudproviderapi.NewRetryError(fmt.Sprintf("load balancer %s is being set up", lb.ID), setUpDelay)
	}
	return nil, fmt.Errorf("load balancer %s is in state %q; look at it in the DigitalOcean control panel, or delete it there to have it created anew", lb.ID, lb.Status)
}

func isDisowned(service *v1.Service) (bool, error) {
	s, _, err := disownTable.Parse(service.Annotations)
	return s.Disown, err
}

func (l *loadBalancers) event(service *v1.Service, reason, message string) {
	if l.events != nil {
		l.events.Event(service, v1.EventTypeWarning, reason, message)
	}
}

func (l *loadBalancers) normal(service *v1.Service, reason, message string) {
	if l.events != nil {
		l.events.Event(service, v1.EventTypeNormal, reason, message)
	}
}
