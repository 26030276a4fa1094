package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientset "k8s.io/client-go/kubernetes"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Scenario is a sequence of changes of Services and nodes. A transcript records the API calls that they cause.
type Scenario struct {
	// Name is that of the file, without its ending.
	Name string
	// Services are there from the first step on, in which they are served.
	Services []*v1.Service
	// Nodes is how many nodes there are from the beginning; 0 means two.
	Nodes int
	// Loops runs the loops of the provider beside the steps, with informers that follow the API server.
	Loops bool
	// Prepare sets up the cloud and the cluster before the provider begins; nil where nothing is needed.
	Prepare func()
	Steps   []Step

	// Brief leaves out the creation and what is left, which other transcripts have.
	Brief bool
	// plain leaves out the creation of the first Service, which the scenario "create" has.
	plain bool
}

// Step changes something. Afterwards the Services concerned are reconciled as the framework does it: a Service that was changed by
// itself, all Services after a change of nodes or a restart.
type Step struct {
	Name string
	Do   func(p *Play)
}

// Play is a scenario while it is played.
type Play struct {
	w        *world
	text     *transcript
	scenario Scenario
	// services are those that live, in the order of their creation.
	services []*v1.Service
	// served holds each living Service as it was when it was last served.
	served map[string]*v1.Service
	// refused are Services whose last change is refused.
	refused map[string]bool
	serving serving

	// What the step at hand changed.
	changed, removed, abandoned []*v1.Service
	nodesChanged, restarted     bool
	afterwards                  time.Duration
	answers                     []string
	attempts                    []attempt
	// asked returns the names of the Services that the provider asked for since.
	asked func() []string
}

// Kube is the API server.
func (p *Play) Kube() clientset.Interface { return p.w.kube }

// Create makes a Service.
func (p *Play) Create(s *v1.Service) {
	p.w.createService(p.w.t.Context(), s)
	p.text.names.learnService(s)
	p.services = append(p.services, s)
	p.changed = append(p.changed, s)
}

// Change changes a Service.
func (p *Play) Change(name string, change func(*v1.Service)) {
	s := p.find(name)
	p.w.changeService(p.w.t.Context(), s, change)
	p.changed = append(p.changed, s)
}

// Annotate sets annotations of a Service; those of before stay.
func (p *Play) Annotate(name, key, value string) {
	p.Change(name, func(s *v1.Service) { metav1.SetMetaDataAnnotation(&s.ObjectMeta, key, value) })
}

// ReconcileAgain has a Service reconciled though nothing of it changed.
func (p *Play) ReconcileAgain(name string) { p.changed = append(p.changed, p.find(name)) }

// Delete has a Service deleted when the step is reconciled.
func (p *Play) Delete(name string) { p.removed = append(p.removed, p.find(name)) }

// Abandon takes a Service from the API server without its finalizer, as somebody does by hand. What it leaves is deleted as orphans are.
func (p *Play) Abandon(name string) {
	s := p.find(name)
	require.NoError(p.w.t, p.w.kube.CoreV1().Services(s.Namespace).Delete(p.w.t.Context(), s.Name, metav1.DeleteOptions{}))
	p.abandoned = append(p.abandoned, s)
	p.forget(s)
}

// AddNodes adds initialised nodes.
func (p *Play) AddNodes(names ...string) {
	for _, name := range names {
		node := p.w.addNode(p.w.t.Context(), name, nil)
		_, err := p.w.kube.CoreV1().Nodes().Create(p.w.t.Context(), node, metav1.CreateOptions{})
		require.NoError(p.w.t, err)
		p.w.shown = append(p.w.shown, node)
		p.text.names.learnNode(node)
	}
	p.nodesChanged = true
}

// RemoveNodes removes nodes; their instances stay.
func (p *Play) RemoveNodes(names ...string) {
	for _, name := range names {
		require.NoError(p.w.t, p.w.kube.CoreV1().Nodes().Delete(p.w.t.Context(), name, metav1.DeleteOptions{}))
		is := func(n *v1.Node) bool { return n.Name == name }
		p.w.nodes, p.w.shown = slices.DeleteFunc(slices.Clone(p.w.nodes), is), slices.DeleteFunc(slices.Clone(p.w.shown), is)
	}
	p.nodesChanged = true
}

// ChangeNode changes a node.
func (p *Play) ChangeNode(name string, change func(*v1.Node)) {
	at := slices.IndexFunc(p.w.nodes, func(n *v1.Node) bool { return n.Name == name })
	require.NotEqual(p.w.t, -1, at, name)
	node := p.w.nodes[at].DeepCopy()
	change(node)
	p.w.nodes = slices.Clone(p.w.nodes)
	p.w.nodes[at] = node
	_, err := p.w.kube.CoreV1().Nodes().Update(p.w.t.Context(), node, metav1.UpdateOptions{})
	require.NoError(p.w.t, err)
	p.nodesChanged = true
}

// Restart begins the provider again, with nothing in memory.
func (p *Play) Restart() {
	p.w.restart()
	p.asked = listenForRetries(p.w)
	p.restarted = true
}

// Wait lets time pass, for the loops of the provider.
func (*Play) Wait(d time.Duration) { time.Sleep(d) }

// WaitAfterwards lets time pass once the framework has done what follows from the step.
func (p *Play) WaitAfterwards(d time.Duration) { p.afterwards = d }

// LookAtNodes reads the metadata of all nodes, as the framework does every few minutes.
func (p *Play) LookAtNodes() {
	for _, n := range p.w.nodes {
		_, err := p.w.instances().InstanceMetadata(p.w.t.Context(), n)
		require.NoError(p.w.t, err)
	}
}

func (p *Play) find(name string) *v1.Service {
	at := slices.IndexFunc(p.services, func(s *v1.Service) bool { return s.Name == name })
	require.NotEqual(p.w.t, -1, at, "there is no Service %s", name)
	return p.services[at]
}

func (p *Play) forget(s *v1.Service) {
	p.services = slices.DeleteFunc(slices.Clone(p.services), func(o *v1.Service) bool { return o.Name == s.Name })
	delete(p.served, s.Name)
	delete(p.refused, s.Name)
}

// listConcerned returns the Services that the framework reconciles after the step.
func (p *Play) listConcerned() []*v1.Service {
	if p.restarted || p.nodesChanged {
		return slices.DeleteFunc(slices.Clone(p.services), func(s *v1.Service) bool { return slices.Contains(p.removed, s) })
	}
	return p.changed
}

// addAsked adds the Services for which the provider asked to those that the step changed.
func (p *Play) addAsked() {
	for _, name := range p.asked() {
		s := p.find(name)
		if !slices.Contains(p.changed, s) && !slices.Contains(p.removed, s) {
			p.changed = append(p.changed, s)
		}
	}
}

// reconcile does what the framework does after the step.
func (p *Play) reconcile(ctx context.Context) {
	for _, s := range p.listConcerned() {
		if p.nodesChanged && !p.restarted && !slices.Contains(p.changed, s) {
			p.update(ctx, s)
			continue
		}
		p.ensure(ctx, s)
	}
	for _, s := range p.removed {
		p.w.remove(ctx, s, func() { p.note("deletion of", s, errors.New("failed")) })
		require.NoError(p.w.t, p.w.kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}))
		p.forget(s)
	}
	if len(p.abandoned) > 0 {
		p.w.deleteOrphans(ctx, p.w.orphans(ctx))
	}
	time.Sleep(p.afterwards)
	p.afterwards = 0
}

// sameFailures are how many failures in a row, all of the same words, are a refusal.
const sameFailures = 3

// ensure reconciles a Service until it is served or refused.
func (p *Play) ensure(ctx context.Context, s *v1.Service) {
	delete(p.refused, s.Name)
	last, failures, pause := "", 0, firstServicePause
	for began := time.Now(); ; {
		_, err := p.w.tryEnsure(ctx, s)
		if err == nil {
			p.served[s.Name] = p.w.service(ctx, s)
			return
		}
		require.Less(p.w.t, time.Since(began), patience, "%s is not served: %v", s.Name, err)
		p.note("served", s, err)
		if hint, ok := errors.AsType[*cloudproviderapi.RetryError](err); ok {
			time.Sleep(hint.RetryAfter())
			continue
		}
		if failures++; err.Error() != last {
			last, failures = err.Error(), 1
		}
		if failures == sameFailures || p.refusedOffline(ctx, s) {
			p.refused[s.Name] = true
			return
		}
		time.Sleep(pause)
		pause = min(2*pause, longestPause)
	}
}

func (p *Play) refusedOffline(ctx context.Context, s *v1.Service) bool {
	_, err := registry.CheckServiceOf(p.w.Provider, p.w.Inputs(), p.w.service(ctx, s))
	return err != nil
}

// update plays a change of nodes for a Service.
func (p *Play) update(ctx context.Context, s *v1.Service) {
	p.w.attempt(s.Name, false)
	err := p.w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, p.w.service(ctx, s), p.w.nodes)
	if err == nil {
		p.w.waitForUpdates()
		return
	}
	p.note("nodes of", s, err)
	p.ensure(ctx, s)
}

// note keeps what the framework was answered.
func (p *Play) note(what string, s *v1.Service, err error) {
	kind := "fails"
	if _, ok := errors.AsType[*cloudproviderapi.RetryError](err); ok {
		kind = "later"
	}
	p.answers = append(p.answers, what+" "+s.Name+": "+kind+": "+err.Error())
}

// planServices returns what `plan` says of the Services concerned: a program that begins with nothing in memory.
func (p *Play) planServices(ctx context.Context) (plans []planOf) {
	if len(p.listConcerned()) == 0 {
		return nil
	}
	cloud, services, stop := p.w.start(false)
	defer stop()
	p.w.showIn(services)
	planner, ok := cloud.(contract.Planner)
	require.True(p.w.t, ok)
	p.w.Sim.ResetCalls()
	for _, s := range p.listConcerned() {
		plan, err := planner.PlanLoadBalancer(ctx, clusterName, p.w.service(ctx, s), p.w.nodes)
		plans = append(plans, planOf{s.Name, plan.Changes, err})
	}
	p.w.requireNoWrites("plan writes nothing")
	return plans
}

// planOf is the plan of a Service.
type planOf struct {
	service string
	changes []contract.Planned
	err     error
}

// Web is a Service with ports of HTTP and HTTPS.
func Web(annotations map[string]string) *v1.Service {
	return Service("web", annotations, Port("http", 80, 30080), Port("https", 443, 30443))
}

// makeOther makes a second Service, with ports of its own.
func makeOther(annotations map[string]string) *v1.Service {
	s := Service("other", annotations, Port("smtp", 25, 30025))
	s.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
	return s
}

// AnnotationScenario is a Service on which an annotation is set, changed and removed. A value that needs others is set together with them.
func AnnotationScenario(key string, values []Legal, service func(annotations map[string]string) *v1.Service) Scenario {
	key = strings.ReplaceAll(key, "<port>", "80")
	_, name, _ := strings.Cut(key, "/")
	first := service(map[string]string{})
	s := Scenario{Name: "annotation-" + name, Services: []*v1.Service{first}, Brief: true}
	set := func(step string, annotations map[string]string) {
		s.Steps = append(s.Steps, Step{step, func(p *Play) {
			p.Change(first.Name, func(now *v1.Service) {
				for _, v := range values {
					for k := range withAnnotation(v.With, key, v.Value) {
						delete(now.Annotations, k)
					}
				}
				for k, v := range first.Annotations {
					metav1.SetMetaDataAnnotation(&now.ObjectMeta, k, v)
				}
				for k, v := range annotations {
					metav1.SetMetaDataAnnotation(&now.ObjectMeta, k, v)
				}
			})
		}})
	}
	for i, v := range values {
		step := strings.TrimSpace("it is " + v.Value)
		if slices.ContainsFunc(values[:i], func(o Legal) bool { return o.Value == v.Value }) {
			step += fmt.Sprintf(", case %d", i+1)
		}
		set(step, withAnnotation(v.With, key, v.Value))
	}
	set("it is removed", nil)
	return s
}

// Scenarios are those of the annotations that have legal values.
func (c Checklist) Scenarios() (all []Scenario) {
	for _, row := range c.Rows {
		if values := c.Items[row.Key].Legal; len(values) > 0 {
			all = append(all, AnnotationScenario(row.Key, values, c.Service))
		}
	}
	return all
}
