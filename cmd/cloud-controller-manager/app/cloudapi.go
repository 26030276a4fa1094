package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"
	"k8s.io/cloud-provider/names"
	"k8s.io/component-base/configz"
	controllermanager "k8s.io/controller-manager/app"
	"k8s.io/controller-manager/controller"
	"k8s.io/controller-manager/pkg/healthz"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// cloudAPIController is the name of the controller that reports failures of the cloud's API, and of its health check.
	cloudAPIController = "cloud-api"

	eventAPIUnavailable = "CloudAPIUnavailable"
	eventAPIAvailable   = "CloudAPIAvailable"

	// healthPeriod is how often the result of the latest calls is read, without a call.
	healthPeriod = 5 * time.Second
	// checkTimeout bounds one check of our own.
	checkTimeout = 45 * time.Second
)

// controllers returns the framework's controllers and ours.
func (m *manager) controllers() map[string]frameworkapp.ControllerInitFuncConstructor {
	all := map[string]frameworkapp.ControllerInitFuncConstructor{}
	maps.Copy(all, frameworkapp.DefaultInitFuncConstructors)
	all[names.NodeRouteController] = withOurNodes(whereRoutes(all[names.NodeRouteController]))
	all[names.ServiceLBController] = withServiceNodes(m.withDefaults(withRetry(withFrame(all[names.ServiceLBController]))))
	all[names.CloudNodeLifecycleController] = withFrame(all[names.CloudNodeLifecycleController])
	all[names.CloudNodeController] = withInitializer(all[names.CloudNodeController])
	all[nodeLabelController] = m.correctNodeLabels(all[names.CloudNodeController].InitContext)
	all[servingController] = m.approveServing()
	all[cloudAPIController] = frameworkapp.ControllerInitFuncConstructor{
		InitContext: frameworkapp.ControllerInitContext{ClientName: cloudAPIController},
		Constructor: func(_ frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface) frameworkapp.InitFunc {
			return func(ctx context.Context, _ controllermanager.ControllerContext) (controller.Interface, bool, error) {
				m.lease.readHolder(ctx)
				go returnMemory(ctx)
				api, ok := cloud.(registry.CloudAPI)
				if !ok {
					return nil, false, nil
				}
				status, err := configz.New("anyccm")
				if err != nil {
					return nil, false, fmt.Errorf("registering the status: %w", err)
				}
				w := &apiWatch{api: api, report: m.eventFunc(c), publish: func(s *apiStatus) error { return status.Set(s) }}
				go w.run(ctx)
				return w, true, nil
			}
		},
	}
	for _, c := range m.ownControllers() {
		all[c.Name] = ownController(c)
		if !c.PodRanges {
			frameworkapp.ControllersDisabledByDefault.Insert(c.Name)
		}
	}
	return all
}

// ownControllers returns the linked providers' additional controllers, nearly all off by default.
func (m *manager) ownControllers() []registry.Controller {
	var all []registry.Controller
	for _, p := range m.providers.Providers() {
		all = append(all, p.Controllers...)
	}
	return all
}

// aliases are alternative names for --controllers.
func (m *manager) aliases() map[string]string {
	all := names.CCMControllerAliases()
	for _, c := range m.ownControllers() {
		for _, alias := range c.Aliases {
			all[alias] = c.Name
		}
	}
	return all
}

// classesOfControllers returns the classes of Services that the cloud's enabled controllers serve.
func (m *manager) classesOfControllers() (classes []string) {
	p, err := m.providers.Lookup(m.options.KubeCloudShared.CloudProvider.Name)
	if err != nil {
		return nil
	}
	enabled := m.enabledControllers()
	for _, c := range p.Controllers {
		if enabled.Has(c.Name) {
			classes = append(classes, c.Classes...)
		}
	}
	return classes
}

// othersPredicate returns the cloud's predicate for Services of other controllers; nil if there are none.
func (m *manager) othersPredicate(in registry.Inputs) func(*v1.Service) bool {
	p, err := m.providers.Lookup(m.options.KubeCloudShared.CloudProvider.Name)
	if err != nil || p.LeavesAlone == nil {
		return nil
	}
	return p.LeavesAlone(in)
}

// ownController starts an additional controller of the running cloud; other clouds' names are ignored.
func ownController(c registry.Controller) frameworkapp.ControllerInitFuncConstructor {
	return frameworkapp.ControllerInitFuncConstructor{
		InitContext: frameworkapp.ControllerInitContext{ClientName: c.Name + "-controller"},
		Constructor: func(_ frameworkapp.ControllerInitContext, _ *config.CompletedConfig, cloud cloudprovider.Interface) frameworkapp.InitFunc {
			return func(ctx context.Context, _ controllermanager.ControllerContext) (controller.Interface, bool, error) {
				if c.Unneeded != "" {
					klog.InfoS("A controller that --controllers names has no effect", "controller", c.Name, "reason", c.Unneeded)
					return nil, false, nil
				}
				runner, ok := cloud.(registry.ControllerRunner)
				if !ok {
					return nil, false, nil
				}
				started, err := runner.StartController(ctx, c.Name)
				return nil, started, err
			}
		},
	}
}

// eventFunc returns a function that writes events on the lease, the one object that always exists and is ours.
func (m *manager) eventFunc(c *config.CompletedConfig) func(kind, reason, message string) {
	election := c.ComponentConfig.Generic.LeaderElection
	object := &v1.ObjectReference{APIVersion: "coordination.k8s.io/v1", Kind: "Lease", Namespace: election.ResourceNamespace, Name: election.ResourceName}
	return func(kind, reason, message string) { c.EventRecorder.Event(object, kind, reason, message) }
}

// apiWatch checks the cloud's API when we begin to lead and whenever it fails. It reports in the log, in events and in its health check,
// but never ends the program: a restart would not help in an outage.
type apiWatch struct {
	api    registry.CloudAPI
	report func(kind, reason, message string)
	// publish adds the status to /configz.
	publish func(*apiStatus) error

	mu     sync.Mutex
	status error
}

// apiStatus is served at /configz.
type apiStatus struct {
	metav1.TypeMeta `json:",inline"`
	Usable          bool   `json:"usable"`
	Reason          string `json:"reason,omitempty"`
}

// DeepCopyObject implements runtime.Object.
func (s *apiStatus) DeepCopyObject() runtime.Object {
	c := *s
	return &c
}

var (
	_ controller.Interface       = (*apiWatch)(nil)
	_ controller.HealthCheckable = (*apiWatch)(nil)
)

// Name implements controller.Interface.
func (*apiWatch) Name() string { return cloudAPIController }

// HealthChecker implements controller.HealthCheckable.
func (w *apiWatch) HealthChecker() healthz.UnnamedHealthChecker { return w }

// Check implements healthz.UnnamedHealthChecker. A cloud outage shows only at /healthz?cloud-api: as part of the plain /healthz it would
// make the kubelet restart us repeatedly. Health pages hide reasons; /configz shows them to authorised users.
func (w *apiWatch) Check(r *http.Request) error {
	if !r.URL.Query().Has(cloudAPIController) {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

func (w *apiWatch) run(ctx context.Context) {
	backoff := wait.Backoff{Duration: 2 * time.Second, Factor: 2, Jitter: 0.2, Steps: 6, Cap: time.Minute}
	delay := backoff
	unchecked, next := true, time.Time{}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		err := w.api.APIHealth()
		if err == nil && !unchecked {
			w.set(nil)
			delay = backoff
			return
		}
		if time.Now().Before(next) {
			w.set(errors.Join(err, w.current(unchecked)))
			return
		}
		ctx, cancel := context.WithTimeout(ctx, checkTimeout)
		defer cancel()
		err = w.api.CheckAPI(ctx)
		w.set(err)
		if unchecked = err != nil; unchecked {
			klog.ErrorS(err, "The cloud's API cannot be used; nodes and load balancers stay as they are")
			next = time.Now().Add(delay.Step())
		}
	}, healthPeriod)
}

// current returns the last status until the first check succeeds, because its reason is more precise than a call's.
func (w *apiWatch) current(unchecked bool) error {
	if !unchecked {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.status
}

// set records the status and reports changes.
func (w *apiWatch) set(err error) {
	w.mu.Lock()
	before := w.status
	w.status = err
	w.mu.Unlock()
	status := &apiStatus{TypeMeta: metav1.TypeMeta{Kind: "CloudAPIStatus", APIVersion: "anyccm/v1"}, Usable: err == nil}
	if err != nil {
		status.Reason = err.Error()
	}
	if err := w.publish(status); err != nil {
		klog.ErrorS(err, "The status at /configz is out of date")
	}
	switch {
	case before == nil && err != nil:
		w.report(v1.EventTypeWarning, eventAPIUnavailable, fmt.Sprintf("the cloud's API cannot be used: %v", err))
	case before != nil && err == nil:
		klog.InfoS("The cloud's API works again")
		w.report(v1.EventTypeNormal, eventAPIAvailable, "the cloud's API works again")
	}
}
