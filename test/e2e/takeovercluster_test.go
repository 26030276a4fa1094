package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// leftCluster is a cluster that the cloud's own controller leaves, or that ours leaves to it.
type leftCluster struct {
	t        *testing.T
	c        *harness.Cluster
	takeover expectations.Takeover
	cluster  expectations.LeftCluster
	kinds    []string
	base     expectations.Scene
}

// newLeftCluster starts one, without controllers, and makes what there is in the cloud before there are Services.
func newLeftCluster(t *testing.T, provider, name string, takeover expectations.Takeover) *leftCluster {
	t.Helper()
	l := &leftCluster{t: t, takeover: takeover, cluster: takeover.Cluster(name), kinds: takeover.KindsOf(name)}
	if t.Parallel(); len(l.kinds) == 0 {
		t.Fatal("the cluster has no kinds")
	}
	l.c = startClusterWith(t, provider, l.cluster.CloudConfig, l.cluster.Cloud...)
	env, err := l.c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	l.base = expectations.Scene{
		Token: testToken, URL: l.c.Cloud.URL, Environment: env, Common: takeover.Common,
		Answers: map[string]any{}, AnswerHeaders: map[string]map[string]string{},
	}
	if l.cluster.Objects != "" {
		objects, err := harness.Decode([]byte(l.text(l.cluster.Objects, l.base)))
		require.NoError(t, err)
		require.NoError(t, l.c.Apply(t.Context(), objects))
	}
	for _, r := range l.cluster.Prepare {
		l.send(r, expectations.LeftKind{}, l.base)
	}
	return l
}

// scene returns the input of templates for a Service, or, without a name, for all.
func (l *leftCluster) scene(name string) expectations.Scene {
	l.t.Helper()
	s := l.base
	s.Answers, s.AnswerHeaders = maps.Clone(l.base.Answers), maps.Clone(l.base.AnswerHeaders)
	s.State = l.state()
	for _, n := range listNodes(l.t.Context(), l.t, l.c) {
		s.Nodes = append(s.Nodes, l.asJSON(n))
	}
	services := listServices(l.t.Context(), l.t, l.c)
	for _, each := range slices.Sorted(maps.Keys(services)) {
		s.Services = append(s.Services, l.asJSON(services[each]))
	}
	byName := func(a, b any) int { return strings.Compare(nameIn(a), nameIn(b)) }
	slices.SortFunc(s.Nodes, byName)
	if name != "" {
		s.Service, s.Kind, s.With, s.Number = l.asJSON(services[name]), name, l.takeover.Kinds[name].With, slices.Index(l.kinds, name)
	}
	return s
}

func nameIn(o any) string { return o.(object)["metadata"].(object)["name"].(string) }

// asJSON is an object as JSON has it.
func (l *leftCluster) asJSON(o any) any {
	l.t.Helper()
	text, err := json.Marshal(o)
	require.NoError(l.t, err)
	var v any
	require.NoError(l.t, json.Unmarshal(text, &v))
	return v
}

// state is all that the simulated cloud has.
func (l *leftCluster) state() any {
	l.t.Helper()
	var state any
	require.NoError(l.t, l.c.Cloud.State(l.t.Context(), &state))
	return state
}

func (l *leftCluster) value(text string, s expectations.Scene) any {
	l.t.Helper()
	v, err := l.takeover.Value(text, s)
	require.NoError(l.t, err)
	return v
}

func (l *leftCluster) text(text string, s expectations.Scene) string {
	l.t.Helper()
	rendered, err := l.takeover.Text(text, s)
	require.NoError(l.t, err)
	return rendered
}

// registerNodes registers the cloud's instances as Nodes that the cloud's own controller has initialised.
func (l *leftCluster) registerNodes() {
	l.t.Helper()
	summary, err := l.c.Cloud.Summary(l.t.Context())
	require.NoError(l.t, err)
	for _, i := range summary.Instances {
		s := l.scene("")
		s.Item = l.asJSON(i)
		n := &v1.Node{}
		require.NoError(l.t, l.takeover.Into(l.takeover.Node, s, n))
		if n.Labels == nil {
			n.Labels = map[string]string{}
		}
		n.Name, n.Labels[v1.LabelHostname] = i.Name, i.Name // what follows is kubelet's
		n.Status.Conditions = []v1.NodeCondition{{Type: v1.NodeReady, Status: v1.ConditionTrue}}
		_, err := l.c.Kube.CoreV1().Nodes().Create(l.t.Context(), n, metav1.CreateOptions{})
		require.NoError(l.t, err)
	}
}

// createOthers creates the Services of other types.
func (l *leftCluster) createOthers() {
	l.t.Helper()
	for _, name := range l.kinds {
		if !l.takeover.Kinds[name].LoadBalancer() {
			l.createService(name, nil)
		}
	}
}

// createService makes a Service as its user wrote it.
func (l *leftCluster) createService(name string, finalizers []string) {
	l.t.Helper()
	kind := l.takeover.Kinds[name]
	spec := expectations.Merged(object{
		"type": "LoadBalancer", "selector": object{"app": name}, "ports": []any{object{"name": "http", "protocol": "TCP", "port": 80}},
	}, kind.Spec)
	written, err := l.takeover.Filled(l.asJSON(object{
		"metadata": object{"name": name, "annotations": kind.Annotations, "finalizers": finalizers}, "spec": spec,
	}), l.base)
	require.NoError(l.t, err)
	text, err := json.Marshal(written)
	require.NoError(l.t, err)
	s := &v1.Service{}
	require.NoError(l.t, yaml.UnmarshalStrict(text, s))
	_, err = l.c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(l.t.Context(), s, metav1.CreateOptions{})
	require.NoError(l.t, err)
}

// leaveServices makes the Services with load balancers and what the cloud's own controller makes for them. It returns what the cloud
// has that no change of a Service takes away.
func (l *leftCluster) leaveServices() (before any) {
	l.t.Helper()
	before = wholeState(l.t, l.c)
	for _, name := range l.balanced() {
		l.leave(name)
		if l.takeover.Kinds[name].Stays != "" {
			before = expectations.Settled(waitStill(l.t, l.c))
		}
	}
	l.sendAll("", l.takeover.Shared)
	waitStill(l.t, l.c)
	return before
}

// leave makes a Service and its objects in the cloud, and records them.
func (l *leftCluster) leave(name string) {
	l.t.Helper()
	kind := l.takeover.Kinds[name]
	finalizers := l.takeover.Finalizers
	if kind.Finalizers != nil {
		finalizers = kind.Finalizers
	}
	l.createService(name, finalizers)
	s := l.sendAll(name, l.takeover.Requests)
	recorded := l.takeover.Annotations
	if kind.Recorded != nil {
		recorded = *kind.Recorded
	}
	services := l.c.Kube.CoreV1().Services(metav1.NamespaceDefault)
	if recorded != "" {
		var annotations map[string]string
		require.NoError(l.t, l.takeover.Into(recorded, s, &annotations))
		patch, err := json.Marshal(object{"metadata": object{"annotations": annotations}})
		require.NoError(l.t, err)
		_, err = services.Patch(l.t.Context(), name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
		require.NoError(l.t, err)
	}
	shown := l.takeover.Status
	if kind.Status != "" {
		shown = kind.Status
	}
	service, err := services.Get(l.t.Context(), name, metav1.GetOptions{})
	require.NoError(l.t, err)
	require.NoError(l.t, l.takeover.Into(shown, s, &service.Status.LoadBalancer.Ingress))
	_, err = services.UpdateStatus(l.t.Context(), service, metav1.UpdateOptions{})
	require.NoError(l.t, err)
}

// sendAll sends requests about a Service, or about all.
func (l *leftCluster) sendAll(name string, requests []expectations.Request) expectations.Scene {
	l.t.Helper()
	s, kind := l.scene(name), l.takeover.Kinds[name]
	for _, r := range requests {
		if slices.Contains(kind.Without, r.Name) && r.Name != "" {
			continue
		}
		l.send(r, kind, s)
		s.State = l.state()
	}
	return s
}

// send sends a request for each of its items, and keeps the last answer.
func (l *leftCluster) send(r expectations.Request, kind expectations.LeftKind, s expectations.Scene) {
	l.t.Helper()
	if r.Each != "" {
		items, isList := l.value(r.Each, s).([]any)
		require.True(l.t, isList, "each of %s gives no list", r.Name)
		r.Each = ""
		for _, item := range items {
			s.Item, s.State = item, l.state()
			l.send(r, kind, s)
		}
		return
	}
	if r.When != "" && strings.TrimSpace(l.text(r.When, s)) != "true" {
		return
	}
	body, err := l.takeover.Body(r, kind, s)
	require.NoError(l.t, err)
	if r.Action != "" {
		require.NoError(l.t, l.c.Cloud.Do(l.t.Context(), r.Action, body))
		return
	}
	got, err := l.call(l.t.Context(), r, body, s)
	require.NoError(l.t, err)
	s.Answer = l.keep(r.Name, got, s)
	if r.Until == nil {
		return
	}
	look := expectations.Request{Name: r.Name, Method: http.MethodGet, Path: l.text(r.Until.Path, s), Headers: r.Headers}
	require.NoError(l.t, harness.Eventually(l.t.Context(), patience, "what "+r.Name+" makes", func(ctx context.Context) error {
		got, err := l.call(ctx, look, nil, s)
		if err != nil {
			return err
		}
		if lacks := expectations.Lacks(l.value(r.Until.Has, s), l.keep(r.Name, got, s)); lacks != "" {
			return errors.New(lacks)
		}
		return nil
	}))
}

// answer is that of the simulated cloud.
type answer struct {
	body   any
	header map[string]string
}

// keep puts an answer where templates see it, and returns its body.
func (l *leftCluster) keep(name string, a answer, s expectations.Scene) any {
	if name != "" {
		s.Answers[name], s.AnswerHeaders[name] = a.body, a.header
	}
	return a.body
}

// call sends one request as it goes over the wire.
func (l *leftCluster) call(ctx context.Context, r expectations.Request, body any, s expectations.Scene) (answer, error) {
	l.t.Helper()
	wire := harness.Request{Method: r.Method, Path: l.text(r.Path, s), Headers: map[string]string{"Authorization": "Bearer " + testToken}}
	switch {
	case body != nil && r.Form:
		form := url.Values{}
		for key, value := range body.(object) {
			form.Set(key, fmt.Sprint(value))
		}
		wire.Body, wire.Headers["Content-Type"] = []byte(form.Encode()), "application/x-www-form-urlencoded"
	case body != nil:
		text, err := json.Marshal(body)
		require.NoError(l.t, err)
		wire.Body, wire.Headers["Content-Type"] = text, "application/json"
	}
	for _, headers := range []map[string]string{l.takeover.Headers, r.Headers} {
		for name, value := range headers {
			wire.Headers[name] = l.text(value, s)
		}
	}
	data, header, err := l.c.Cloud.Send(ctx, wire)
	if err != nil {
		return answer{}, fmt.Errorf("%s %s %s: %w", r.Name, r.Method, wire.Body, err)
	}
	a := answer{header: map[string]string{}}
	for name := range header {
		a.header[name] = header.Get(name)
	}
	if len(data) > 0 {
		require.NoError(l.t, json.Unmarshal(data, &a.body), string(data))
	}
	return a, nil
}
