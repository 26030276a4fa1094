// Package keepalived assigns addresses to Services of type LoadBalancer without a cloud. keepalived, kube-vip or kube-keepalived-vip
// announce them from the nodes. All state is stored in Kubernetes.
package keepalived

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	eventwriter "k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Name is the value of --cloud-provider.
const Name = "keepalived"

// creationShows is how long a write may take effect after its response was lost.
const creationShows = 45 * time.Second

// Description returns what the provider says about itself.
func Description() registry.Provider {
	return maker().Describe(registry.Provider{
		Name: Name, Title: "keepalived", Stability: "alpha", InCluster: true,
		Features: registry.Features{
			Instances: registry.CloudHasNone, Routes: registry.CloudHasNone, LoadBalancers: registry.Done,
			Internal: registry.CloudHasNone, ReservedAddresses: registry.Done, TLS: registry.CloudHasNone, ProxyProtocol: registry.CloudHasNone,
			UDP: registry.Done, DualStack: registry.Done, SourceRanges: registry.Done,
		},
		Extras:       []string{"a keepalived.conf for all nodes", "shared addresses"},
		Options:      Options.Rows(),
		Annotations:  Annotations.Rows(),
		Records:      []string{annotationHost},
		Installation: installation(),
		Events:       eventRows(),
		CheckService: checkService, ServiceFields: serviceFields, FieldOptions: fieldOptions,
		LeavesAlone: leavesAlone,
	})
}

func init() {
	cloudprovider.RegisterCloudProvider(Name, registry.Register(Description()))
}

// noAPI stands in for a cloud's API.
type noAPI struct{}

func maker() cloudbase.Maker[Config, noAPI, *cloud] {
	return cloudbase.Maker[Config, noAPI, *cloud]{
		Config: parseConfig, Cloud: buildCloud, API: func(Config, registry.Inputs) (noAPI, error) { return noAPI{}, nil },
	}
}

type cloud struct {
	cloudbase.Cloud
	cloudbase.WithLoadBalancers

	reconciler    *reconciler
	loadBalancers *services.LoadBalancer[*observed, desired]
	kube          kubernetes.Interface
}

func buildCloud(config Config, _ noAPI, in registry.Inputs) (*cloud, error) {
	translate := func(s *v1.Service) *v1.Service { return registry.Translate(Description(), in, s).Service }
	c := &cloud{reconciler: newReconciler(config, translate)}
	c.Name, c.Begin, c.Inform, c.Check = Name, c.begin, c.inform, c.check
	c.loadBalancers = &services.LoadBalancer[*observed, desired]{
		Reconciler: c.reconciler, Creations: &services.Creations{Shows: creationShows, Repeat: true},
		Name: func(_ string, s *v1.Service) string { return s.Namespace + "/" + s.Name },
	}
	c.ServiceAPI = c.loadBalancers
	return c, nil
}

// begin starts the parts that need the client and events of the leader.
func (c *cloud) begin(b cloudbase.Begun) {
	c.kube = b.Kube
	c.reconciler.setClient(b.Kube)
	c.loadBalancers.Events = b.Events
	c.reconciler.setEvents(b.Events)
}

// inform passes the informers to the parts, and watches the two ConfigMaps once the Services are known.
func (c *cloud) inform(in cloudbase.Informers) {
	r := c.reconciler
	r.cluster.SetServices(in.Services().Lister())
	r.setNodes(in.Nodes().Lister())
	render := func() {}
	if r.config.Announcer == announcerKeepalived {
		rendering := loop.New(loop.Job{
			Name: "keepalived-configuration", Period: renderPeriod, Spacing: writeSpacing, Timeout: time.Minute, Run: c.republish,
		})
		in.RunLoopOnChanges(rendering, in.Nodes().Informer(), nil)
		render = rendering.Trigger
	}
	// Adding a handler to a stopped informer cannot fail. A deleted Service frees its address.
	_, _ = in.Services().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(any) { r.retryWaiting() }})
	started := false
	in.Run(loop.Job{Name: "keepalived-watch", Period: renderPeriod, Timeout: time.Minute, Run: func(context.Context) error {
		if !started {
			started = true
			c.watch(in.Stop, render)
		}
		return nil
	}}, in.Services().Informer())
}

// renderPeriod is how often the rendered file is checked without a change.
const renderPeriod = 10 * time.Minute

// watch watches the two ConfigMaps, and renders the file again after foreign changes.
func (c *cloud) watch(stop <-chan struct{}, render func()) {
	r := c.reconciler
	follow := func(namespace, name string, changed func(cm *v1.ConfigMap)) (synced func() bool) {
		factory := informers.NewSharedInformerFactoryWithOptions(c.kube, 0, informers.WithNamespace(namespace),
			informers.WithTweakListOptions(func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
			}))
		see := func(object any) {
			cm, _ := object.(*v1.ConfigMap)
			changed(cm)
		}
		// Adding a handler to a stopped informer cannot fail.
		_, _ = factory.Core().V1().ConfigMaps().Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: see, UpdateFunc: func(_, object any) { see(object) }, DeleteFunc: func(any) { changed(nil) },
		})
		factory.Start(stop)
		return factory.Core().V1().ConfigMaps().Informer().HasSynced
	}
	r.pools.follow(follow(r.config.PoolNamespace, r.config.PoolConfigMap, func(*v1.ConfigMap) {
		r.pools.invalidate()
		r.retryWaiting()
	}))
	if r.usesAnnotations() {
		return
	}
	r.book.follow(follow(r.config.Namespace, r.config.ConfigMap, func(cm *v1.ConfigMap) {
		if !r.book.observe(cm) {
			return
		}
		r.retryWaiting() // another process may have freed an address
		render()
	}))
}

// republish renders the file again after a change of nodes or a manual change. Without addresses there is nothing to announce.
func (c *cloud) republish(ctx context.Context) error {
	r := c.reconciler
	rec, err := r.book.read(ctx)
	if err != nil || (len(rec.entries) == 0 && rec.data[keyConfiguration] == "") {
		return err
	}
	nodes, err := r.announcingNodes(ctx)
	if err != nil {
		return err
	}
	if len(rec.entries) > 0 {
		r.reportExcluded(nodes, rec.addresses())
	}
	text, err := r.renderRecord(ctx, rec)
	if err != nil || rec.data[keyConfiguration] == text {
		return err
	}
	_, err = r.book.commit(ctx, func(rec record) (record, error) { return rec, nil })
	return err
}

// check reads the stored state with only the permissions that the program needs anyway.
func (c *cloud) check(ctx context.Context) error {
	r := c.reconciler
	if c.kube == nil {
		return nil
	}
	if p := r.pools.read(ctx); p.err != nil {
		return p.err
	}
	if r.usesAnnotations() {
		return nil
	}
	_, err := r.book.read(ctx)
	return err
}

var _ contract.ServiceRetrier = (*cloud)(nil)

// SetServiceRetry implements contract.ServiceRetrier.
func (c *cloud) SetServiceRetry(retry func(func(*v1.Service) bool)) {
	c.reconciler.mu.Lock()
	defer c.reconciler.mu.Unlock()
	c.reconciler.retry = retry
}

func (r *reconciler) setEvents(events eventwriter.EventRecorder) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = events
}

func (r *reconciler) setClient(client kubernetes.Interface) {
	r.cluster.SetClient(client)
	r.book.setClient(client)
	r.pools.setClient(client)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.kube = client
}

func (r *reconciler) client() kubernetes.Interface {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kube
}

func installation() registry.Installation {
	return registry.Installation{
		Set:           []string{"options.KEEPALIVED_ANNOUNCER=keepalived", "options.KEEPALIVED_SERVICE_CIDR=192.168.10.0/26"},
		ServiceRights: []registry.Right{{Resources: []string{"services"}, Verbs: []string{"patch"}}},
		SystemRights: []registry.Right{
			{
				Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch", "update"}, Names: []string{defaultBook, vipBook, defaultPool},
				NamesOf: []string{envConfigMap, envPoolConfigMap}, NamespacesOf: []string{envNamespace, envPoolNamespace},
			},
			{Resources: []string{"configmaps"}, Verbs: []string{"create"}, NamespacesOf: []string{envNamespace}},
		},
		Notes: []string{
			"There is no cloud and no credential: `options` say which addresses there are and what announces them. " +
				"See [keepalived](providers/keepalived.md), which also has the DaemonSet for keepalived itself.",
		},
		Migration: registry.Migration{
			Credentials: "there are none",
			ClusterName: "nothing",
			Written:     "the finalizer on Services that have none, and with kube-vip the label `implementation: kube-vip`, and the annotation `kube-vip.io/loadbalancerIPs` where `spec.loadBalancerIP` alone has the address, on Services that lack them; scale keepalived-cloud-provider to 0 first, and give kube-vip-cloud-provider's lease to ours, `leaderElection.leaseName=kube-vip-cloud-controller`",
			Origin: registry.Origin{
				Namespace: "kube-system", Workloads: []string{"deployment/kube-vip-cloud-provider"}, Lease: "kube-vip-cloud-controller",
				Set: []string{"options.KEEPALIVED_ANNOUNCER=kube-vip"},
				Flags: []registry.OldFlag{
					{
						Flag:  "--leader-elect-resource-name=kube-vip-cloud-controller",
						Value: "leaderElection.leaseName=kube-vip-cloud-controller",
					},
				},
				Before: "The pools stay in the ConfigMap `kubevip`.",
			},
		},
		MaxSlimMiB: 46,
	}
}
