package app

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/cloud-provider/app/config"
	servicecontroller "k8s.io/cloud-provider/controllers/service"
	servicehelpers "k8s.io/cloud-provider/service/helpers"
	controllersmetrics "k8s.io/component-base/metrics/prometheus/controllers"
)

// relistAPI is an API server with Services and Nodes that streams lists, as current releases do.
type relistAPI struct {
	mu       sync.Mutex
	version  int
	services map[string]*v1.Service
	nodes    map[string]*v1.Node
	watchers map[*io.PipeWriter]string
	streamed map[string]int
	patches  []string
	events   []string
}

func newRelistAPI() *relistAPI {
	return &relistAPI{
		services: map[string]*v1.Service{}, nodes: map[string]*v1.Node{}, watchers: map[*io.PipeWriter]string{},
		streamed: map[string]int{},
	}
}

// RoundTrip implements http.RoundTripper.
func (a *relistAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	answer := func(code int, body io.ReadCloser) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: body, Request: r}, nil
	}
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	resource := path[2]
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		reader, writer := io.Pipe()
		a.watchers[writer] = resource
		initial := a.initial(resource, r.URL.Query().Get("sendInitialEvents") == "true")
		context.AfterFunc(r.Context(), func() { _ = writer.CloseWithError(r.Context().Err()) })
		return answer(http.StatusOK, struct {
			io.Reader
			io.Closer
		}{io.MultiReader(strings.NewReader(initial), reader), reader})
	case r.Method == http.MethodPatch && path[4] == "services":
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		a.patches = append(a.patches, string(body))
		data, err := a.patch(path[5], body)
		if err != nil {
			return nil, err
		}
		return answer(http.StatusOK, io.NopCloser(bytes.NewReader(data)))
	case r.Method == http.MethodPost:
		var event v1.Event
		if err := json.NewDecoder(r.Body).Decode(&event); err != nil {
			return nil, err
		}
		a.events = append(a.events, fmt.Sprintf("%s %s: %s", event.InvolvedObject.Name, event.Reason, event.Message))
		return answer(http.StatusCreated, io.NopCloser(strings.NewReader(`{"kind":"Event","apiVersion":"v1"}`)))
	}
	return answer(http.StatusNotFound, io.NopCloser(strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)))
}

// initial returns the first events of a watch.
func (a *relistAPI) initial(resource string, all bool) string {
	if !all {
		return ""
	}
	a.streamed[resource]++
	var text strings.Builder
	for _, s := range a.services {
		if resource == "services" {
			text.WriteString(watchEvent("ADDED", s))
		}
	}
	for _, n := range a.nodes {
		if resource == "nodes" {
			text.WriteString(watchEvent("ADDED", n))
		}
	}
	mark := metav1.ObjectMeta{ResourceVersion: strconv.Itoa(a.version), Annotations: map[string]string{metav1.InitialEventsAnnotationKey: "true"}}
	if resource == "services" {
		text.WriteString(watchEvent("BOOKMARK", &v1.Service{TypeMeta: metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}, ObjectMeta: mark}))
	} else {
		text.WriteString(watchEvent("BOOKMARK", &v1.Node{TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: mark}))
	}
	return text.String()
}

func watchEvent(kind string, object any) string {
	data, err := json.Marshal(map[string]any{"type": kind, "object": object})
	if err != nil {
		panic(err) // only objects of this test
	}
	return string(data) + "\n"
}

// send sends to all watches, in the background because readers may be slow.
func (a *relistAPI) send(resource, text string) {
	for w, of := range a.watchers {
		if of == resource {
			go func() { _, _ = io.WriteString(w, text) }() // a closed watch needs nothing
		}
	}
}

func (a *relistAPI) addService(s *v1.Service) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	s.TypeMeta = metav1.TypeMeta{Kind: "Service", APIVersion: "v1"}
	s.Namespace, s.UID, s.ResourceVersion = "default", types.UID(s.Name), strconv.Itoa(a.version)
	a.services[s.Name] = s
	a.send("services", watchEvent("ADDED", s))
}

// removeService requests the deletion of a Service.
func (a *relistAPI) removeService(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	s := a.services[name].DeepCopy()
	s.DeletionTimestamp, s.ResourceVersion = &metav1.Time{Time: time.Now()}, strconv.Itoa(a.version)
	a.services[name] = s
	a.send("services", watchEvent("MODIFIED", s))
}

func (a *relistAPI) addNode(name string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.version++
	n := &v1.Node{
		TypeMeta: metav1.TypeMeta{Kind: "Node", APIVersion: "v1"}, ObjectMeta: metav1.ObjectMeta{
			Name: name, UID: types.UID(name), ResourceVersion: strconv.Itoa(a.version),
		},
		Spec:   v1.NodeSpec{ProviderID: "fake://" + name},
		Status: v1.NodeStatus{Conditions: []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}},
	}
	a.nodes[name] = n
	a.send("nodes", watchEvent("ADDED", n))
}

// patch applies a patch as the API server does, and sends the result to all watches.
func (a *relistAPI) patch(name string, body []byte) ([]byte, error) {
	before, err := json.Marshal(a.services[name])
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, body, v1.Service{})
	if err != nil {
		return nil, err
	}
	s := &v1.Service{}
	if err := json.Unmarshal(after, s); err != nil {
		return nil, err
	}
	a.version++
	s.ResourceVersion = strconv.Itoa(a.version)
	a.services[name] = s
	a.send("services", watchEvent("MODIFIED", s))
	return json.Marshal(s)
}

// expire ends all watches with 410 Gone, as the API server does when their version is too old.
func (a *relistAPI) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	gone := `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old resource version"}}` + "\n"
	for w := range a.watchers {
		delete(a.watchers, w)
		go func() { _, _ = io.WriteString(w, gone); _ = w.Close() }() // see send
	}
}

func (a *relistAPI) get(name string) *v1.Service {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.services[name].DeepCopy()
}

// relistCloud records the service controller's calls.
type relistCloud struct {
	cloudprovider.Interface
	mu    sync.Mutex
	calls []string
}

func (c *relistCloud) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return c, true }

func (*relistCloud) ProviderName() string { return "fake" }

func (c *relistCloud) note(what string, s *v1.Service, nodes []*v1.Node) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("%s %s %d", what, s.Name, len(nodes)))
}

func (c *relistCloud) since() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	calls := c.calls
	c.calls = nil
	return calls
}

func (*relistCloud) GetLoadBalancer(context.Context, string, *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	return &v1.LoadBalancerStatus{}, true, nil
}

func (*relistCloud) GetLoadBalancerName(_ context.Context, _ string, s *v1.Service) string {
	return s.Name
}

func (c *relistCloud) EnsureLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	c.note("ensure", s, nodes)
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "198.51.100.1"}}}, nil
}

func (c *relistCloud) UpdateLoadBalancer(_ context.Context, _ string, s *v1.Service, nodes []*v1.Node) error {
	c.note("update", s, nodes)
	return nil
}

func (c *relistCloud) EnsureLoadBalancerDeleted(_ context.Context, _ string, s *v1.Service) error {
	c.note("delete", s, nil)
	return nil
}

// runServiceController runs the framework's service controller with our informers.
func runServiceController(ctx context.Context, t *testing.T, api *relistAPI, selection serviceSelection) *relistCloud {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: "http://api.invalid", Transport: api})
	require.NoError(t, err)
	c := &config.Config{}
	c.VersionedClient = client
	c.ComponentConfig.Generic.MinResyncPeriod = metav1.Duration{Duration: 12 * time.Hour}
	completed := c.Complete()
	trimInformers(completed, selection)
	cloud := &relistCloud{}
	core := completed.SharedInformers.Core().V1()
	sc, err := servicecontroller.New(cloud, client, core.Services(), core.Nodes(), "kubernetes", utilfeature.DefaultFeatureGate)
	require.NoError(t, err)
	completed.SharedInformers.Start(ctx.Done())
	go sc.Run(ctx, 2, controllersmetrics.NewControllerManagerMetrics("relist"))
	return cloud
}

// TestRelist: after a new list and after a restart the framework sees the same Services. It deletes nothing, nodes join, and nothing of the
// selection reaches the API server.
func TestRelist(t *testing.T) {
	t.Parallel()
	if raceDetector {
		t.Skip("the framework's service controller has a data race of its own, between its workers of nodes and of Services; make test-unit runs this test without the detector")
	}
	const class = "example.com/ours"
	for mode, served := range map[string]string{unclassed: "plain", named: "ours", namedAndUnclassed: "ours plain"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				api := newRelistAPI()
				api.addNode("node-1")
				ctx, stop := context.WithCancel(t.Context())
				selection := serviceSelection{mode: mode, class: class}
				cloud := runServiceController(ctx, t, api, selection)
				settle := func() []string { time.Sleep(20 * time.Minute); synctest.Wait(); return cloud.since() }
				settle()
				for name, wanted := range map[string]*string{"plain": nil, "ours": new(class), "other": new("example.com/other")} {
					s := &v1.Service{
						Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: wanted, Ports: []v1.ServicePort{{Port: 80}}},
					}
					s.Name = name
					if name == "other" {
						s.Finalizers = []string{servicehelpers.LoadBalancerCleanupFinalizer}
					}
					api.addService(s)
				}
				requireServed(t, settle(), "ensure", served, 1)

				api.expire()
				calls := settle()
				assert.NotContains(t, strings.Join(calls, "\n"), "delete", "after a relist")
				assert.Equal(t, 2, api.streamed["services"], "the list was streamed again")
				api.addNode("node-2")
				requireServed(t, settle(), "update", served, 2)

				stop()
				synctest.Wait()
				ctx, stop = context.WithCancel(t.Context())
				defer stop()
				cloud = runServiceController(ctx, t, api, selection)
				requireServed(t, settle(), "ensure", served, 2)
				api.addNode("node-3")
				requireServed(t, settle(), "update", served, 3)
				requireUntouched(t, api, class)
				stop()
				synctest.Wait()
			})
		})
	}
}

// requireServed asserts that exactly the named Services got this kind of call, each with this number of nodes.
func requireServed(t *testing.T, calls []string, what, served string, nodes int) {
	t.Helper()
	got := map[string]bool{}
	for _, call := range calls {
		got[call] = true
	}
	want := map[string]bool{}
	for name := range strings.FieldsSeq(served) {
		want[fmt.Sprintf("%s %s %d", what, name, nodes)] = true
	}
	require.Equal(t, want, got)
}

// requireUntouched asserts that our in-memory changes did not reach the API server.
func requireUntouched(t *testing.T, api *relistAPI, class string) {
	t.Helper()
	require.NotEmpty(t, api.patches)
	for _, patch := range api.patches {
		assert.NotContains(t, patch, "anyccm.io/")
		assert.NotContains(t, patch, "selfLink")
		assert.NotContains(t, patch, "loadBalancerClass")
	}
	assert.Nil(t, api.get("plain").Spec.LoadBalancerClass)
	assert.Equal(t, class, *api.get("ours").Spec.LoadBalancerClass)
	assert.Equal(t, []string{servicehelpers.LoadBalancerCleanupFinalizer}, api.get("other").Finalizers)
	for _, name := range []string{"plain", "ours", "other"} {
		assert.Empty(t, api.get(name).GetSelfLink())
	}
}
