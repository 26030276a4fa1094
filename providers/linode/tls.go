package linode

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	coreinformers "k8s.io/client-go/informers/core/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	tlsPeriod  = 10 * time.Minute
	tlsTimeout = 2 * time.Minute
)

// tlsRotation follows the TLS Secrets that Services name, each by its own watch, so that no right to read all Secrets is needed.
type tlsRotation struct {
	reconciler *reconciler
	services   listers.ServiceLister
	// changed triggers the job; stop ends the watches.
	changed func()
	stop    <-chan struct{}

	mu      sync.Mutex
	watches map[types.NamespacedName]context.CancelFunc
}

func newTLSRotation(r *reconciler, services listers.ServiceLister) *tlsRotation {
	return &tlsRotation{reconciler: r, services: services, changed: func() {}, watches: map[types.NamespacedName]context.CancelFunc{}}
}

func (t *tlsRotation) job() loop.Job {
	return loop.Job{Name: "tls-secrets", Period: tlsPeriod, Spacing: 2 * time.Second, Timeout: tlsTimeout, Run: t.run}
}

// run watches the named Secrets, and updates certificates that differ on their NodeBalancers.
func (t *tlsRotation) run(ctx context.Context) error {
	all, err := t.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	named := map[types.NamespacedName]bool{}
	var failures []error
	for _, service := range all {
		if ownership.Leaves(service) || service.Spec.LoadBalancerClass != nil || contract.IsDisowned(service) {
			continue
		}
		s, _, err := parseSettings(service, t.reconciler.config)
		if err != nil {
			continue // its own reconciliation reports the fault
		}
		uses := false
		for _, p := range s.ports {
			if p.TLSSecret != "" {
				named[types.NamespacedName{Namespace: service.Namespace, Name: p.TLSSecret}] = true
				uses = true
			}
		}
		if uses {
			failures = append(failures, t.rotate(ctx, service, s))
		}
	}
	t.watch(named) //nolint:contextcheck // watches outlive the run that begins them
	return errors.Join(failures...)
}

// rotate replaces certificates that differ from the Secrets.
func (t *tlsRotation) rotate(ctx context.Context, service *v1.Service, s settings) error {
	r := t.reconciler
	if service.Annotations[annotationRecord] == "" {
		return nil // it is created with its certificates
	}
	secrets, err := r.secrets(ctx, service, s)
	if err != nil {
		if r.Events != nil {
			r.Events.Event(service, v1.EventTypeWarning, eventConfigError, err.Error())
		}
		return err
	}
	o := observed{settings: s}
	o.match, err = r.owners.find(ctx, service, nil, inventory.Query{MaxAge: detailsMaxAge, MaxMissAge: updateMaxAge})
	if err == nil {
		o, _, err = r.CheckOwner(ctx, services.Request{Purpose: services.UpdateNodes, Service: service}, o)
	}
	if err != nil || o.nb == nil {
		return err
	}
	d := o.details
	var steps []step
	for _, port := range service.Spec.Ports {
		want, err := desireConfig(port, s, secrets)
		i := slices.IndexFunc(d.configs, func(c config) bool { return samePort(c, want) })
		if err != nil || i < 0 || want.Protocol != protocolHTTPS || !slices.Contains(configDifferences(d.configs[i], want), fieldCertificate) {
			continue
		}
		c := d.configs[i]
		steps = append(steps, step{kind: updatePort, config: c, fields: keepObserved(c, want), reasons: []string{fieldCertificate}})
	}
	for _, st := range steps {
		klog.InfoS("Changing NodeBalancer", "service", klog.KObj(service), "nodeBalancer", o.nb.ID, "step", st.title(), "fields", st.reasons)
		if o, err = r.apply(ctx, o, st); err != nil {
			return err
		}
	}
	return nil
}

// watch starts missing watches and ends unneeded ones.
func (t *tlsRotation) watch(named map[types.NamespacedName]bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, end := range t.watches {
		if !named[name] {
			end()
			delete(t.watches, name)
		}
	}
	for name := range named {
		if t.watches[name] == nil {
			t.watches[name] = t.begin(name)
		}
	}
}

func (t *tlsRotation) begin(name types.NamespacedName) context.CancelFunc {
	ctx, cancel := context.WithCancel(wait.ContextForChannel(t.stop))
	informer := coreinformers.NewFilteredSecretInformer(t.reconciler.kube, name.Namespace, 0, cache.Indexers{}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, name.Name).String()
	})
	seen := ""
	note := func(object any) {
		if s, ok := object.(*v1.Secret); ok && seen != s.ResourceVersion {
			seen = s.ResourceVersion
			t.changed()
		}
	}
	if _, err := informer.AddEventHandler(
		cache.ResourceEventHandlerFuncs{AddFunc: note, UpdateFunc: func(_, object any) { note(object) }},
	); err != nil {
		klog.ErrorS(err, "A TLS secret cannot be watched", "secret", name)
	}
	klog.V(2).InfoS("Watching a TLS secret", "secret", name)
	rescue.Go("watching TLS secrets", func() { informer.RunWithContext(ctx) })
	return cancel
}
