package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// stage is shared by all tests; each has its own cluster and cloud.
var stage *harness.Stage

// patience bounds a wait for something that usually takes a second or two, on a machine that is busy. brief does so in a step that waits in
// vain.
const (
	patience = 4 * time.Minute
	brief    = 30 * time.Second
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		var err error
		stage, err = harness.NewStage(context.Background(), "acceptance", os.Stderr)
		if err != nil {
			fmt.Fprintln(os.Stderr, "Error:", err)
			return 1
		}
		defer stage.Close()
		return m.Run()
	}())
}

// world is a cluster with an installed release, as anybody has one, but for what no machine runs: pods and namespaces are looked after
// by operate.
type world struct {
	t        *testing.T
	c        *harness.Cluster
	provider registry.Provider
	expected expectations.Cloud
	// args are those with which the suite is called.
	args []string

	// operator runs the program.
	operator *harness.Operator
}

func newWorld(t *testing.T, p registry.Provider) *world {
	t.Helper()
	t.Parallel()
	expected, err := expectations.Read(filepath.Join("..", ".."), p)
	require.NoError(t, err)
	name := strings.ToLower(strings.NewReplacer("/", "-", " ", "-").Replace(t.Name()))
	c, err := stage.Start(t.Context(), name, harness.Options{Provider: p.Name, Cloud: []string{"--instances=3", "--activation=10ms"}, Pooled: true})
	require.NoError(t, err)
	t.Cleanup(c.Close)
	w := &world{t: t, c: c, provider: p}
	w.operator, err = c.Operate(t.Context(), nil, func(err error) { t.Log(err) })
	require.NoError(t, err)
	t.Cleanup(w.operator.End)
	require.NoError(t, w.operator.CCM().WaitLeading(t.Context(), patience))
	require.NoError(t, c.JoinNodes(t.Context(), 3, patience))
	w.args = []string{
		"-provider=" + p.Name, "-kubeconfig=" + c.Kubeconfig, "-program=" + c.Programs.CCM, "-metrics-url=" + w.operator.CCM().URL,
		"-patience=" + patience.String(),
	}
	w.expected = expected
	return w
}

// annotate puts annotations on every Service of the runs.
func (w *world) annotate(annotations map[string]string) {
	for key, value := range annotations {
		w.args = append(w.args, "-annotation="+key+"="+value)
	}
}

// tries runs the suite with -o json and returns its report. told gets each line of its progress as it is written.
func (w *world) tries(ctx context.Context, told func(line string), more ...string) (Report, error) {
	w.t.Helper()
	var out strings.Builder
	progress := &lines{told: told}
	err := run(ctx, append(append([]string{"-yes", "-o=json"}, w.args...), more...), strings.NewReader(""), &out, progress)
	var r Report
	if assert.NoError(w.t, json.Unmarshal([]byte(out.String()), &r), "%v: %s", err, out.String()) && err != nil {
		w.t.Logf("%v\n%s", err, progress.all.String())
	}
	return r, err
}

// lines hands on what is written, line by line.
type lines struct {
	all, rest strings.Builder
	told      func(string)
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.all.Write(p)
	l.rest.Write(p)
	for {
		line, rest, found := strings.Cut(l.rest.String(), "\n")
		if !found {
			return len(p), nil
		}
		l.rest.Reset()
		l.rest.WriteString(rest)
		if l.told != nil {
			l.told(line)
		}
	}
}

// requireNothingLeft: neither the cloud nor the cluster has anything of a run.
func (w *world) requireNothingLeft(before harness.Summary) {
	t := w.t
	t.Helper()
	after, err := w.c.Cloud.Summary(t.Context())
	require.NoError(t, err)
	assert.Equal(t, before.Holdings, after.Holdings, "in the cloud")
	services, err := w.c.Kube.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, s := range services.Items {
		assert.NotEqual(t, v1.ServiceTypeLoadBalancer, s.Spec.Type, s.Name)
	}
	nodes, err := w.c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	for _, n := range nodes.Items {
		assert.NotContains(t, n.Labels, v1.LabelNodeExcludeBalancers, n.Name)
		assert.NotContains(t, n.Annotations, mark, n.Name)
	}
	marked := metav1.ListOptions{LabelSelector: mark}
	spaces, err := w.c.Kube.CoreV1().Namespaces().List(t.Context(), marked)
	require.NoError(t, err)
	assert.Empty(t, spaces.Items)
	roles, err := w.c.Kube.RbacV1().ClusterRoles().List(t.Context(), marked)
	require.NoError(t, err)
	assert.Empty(t, roles.Items)
	bindings, err := w.c.Kube.RbacV1().ClusterRoleBindings().List(t.Context(), marked)
	require.NoError(t, err)
	assert.Empty(t, bindings.Items)
}

func (w *world) summary() harness.Summary {
	w.t.Helper()
	s, err := w.c.Cloud.Summary(w.t.Context())
	require.NoError(w.t, err)
	return s
}

// call is one that the simulated cloud saw.
type call struct {
	Operation string
	Write     bool
}

func (w *world) latestCalls() []call {
	w.t.Helper()
	var seen struct{ Latest []call }
	require.NoError(w.t, w.c.Cloud.Call(w.t.Context(), http.MethodGet, "/_sim/calls", "", nil, &seen))
	return seen.Latest
}

// leastHeld are the steps that hold on every cloud with load balancers.
var leastHeld = []string{
	"prepare", "release", "nodes", "create", "ports", "node-leaves", "node-joins",
	"annotation/backend-selector", "annotation/hostname", "restart", "delete",
}

// TestEachCloud: on every simulated cloud everything holds, Nodes are as the cloud's expectations say, nothing is logged as an error, and
// nothing is left. The full tier tries every kind of load balancer that the cloud has and every annotation; the fast one tries all of
// them on one cloud, for what an annotation writes is in each cloud's transcripts.
func TestEachCloud(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		expected, err := expectations.Read(filepath.Join("..", ".."), p)
		require.NoError(t, err)
		usual := expectations.Kind{Annotations: expected.Service}
		for name, kind := range expected.LifeCycle {
			if maps.Equal(kind.Annotations, expected.Service) {
				usual = kind
				continue
			}
			t.Run(p.Name+"/"+name, func(t *testing.T) {
				tier.Full(t)
				tryKind(newWorld(t, p), kind, false)
			})
		}
		t.Run(p.Name, func(t *testing.T) { tryKind(newWorld(t, p), usual, true) })
	}
}

// tryKind tries a kind of load balancer. Of one that is not usual its own annotations may decide about others, so that these are not tried.
func tryKind(w *world, kind expectations.Kind, usual bool) {
	t := w.t
	t.Helper()
	w.annotate(kind.Annotations)
	before, state := w.summary(), w.state()
	w.requireNode()
	more := []string{"-keep-going"}
	switch {
	case !usual:
		more = append(more, "-skip=annotation,source-ranges")
	case !tier.All() && w.provider.Name != harness.AnyProvider:
		more = append(more, "-skip="+w.annotationsBesides(leastHeld))
	}
	r, err := w.tries(t.Context(), func(line string) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == held && fields[1] == "create" {
			w.requireServed(kind)
		}
	}, more...)
	for _, s := range r.Steps {
		t.Log(s.line())
	}
	require.NoError(t, err)
	w.requireNothingLeft(before)
	assert.Equal(t, state, w.state())
	assert.Equal(t, 1, w.operator.Restarts())
	w.requireTold(r, usual)
	w.requireNoErrors()
	if w.provider.Features.LoadBalancers != registry.Done || w.provider.InCluster { // no cloud that sees calls
		return
	}
	for _, c := range w.latestCalls() {
		assert.False(t, c.Write && onlyReads(strings.ReplaceAll(c.Operation, " ", "_")), "%s counts as a read", c.Operation)
	}
}

// annotationsBesides are the steps that try annotations, without some, for -skip.
func (w *world) annotationsBesides(kept []string) string {
	w.t.Helper()
	var names []string
	for _, one := range (&suite{provider: w.provider}).steps() {
		if strings.HasPrefix(one.name, "annotation/") && !slices.Contains(kept, one.name) {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, ",")
}

// state is all that the cloud has, without what tells of changes.
func (w *world) state() any {
	w.t.Helper()
	var state any
	require.NoError(w.t, w.c.Cloud.State(w.t.Context(), &state))
	return expectations.Settled(state)
}

// requireNode holds what was written to a Node against what the cloud's page says of its instances.
func (w *world) requireNode() {
	t := w.t
	t.Helper()
	n, err := w.c.Kube.CoreV1().Nodes().Get(t.Context(), "node-1", metav1.GetOptions{})
	require.NoError(t, err)
	if w.c.Cloud.InCluster() {
		assert.Empty(t, n.Spec.ProviderID, "nobody writes it")
	} else {
		assert.Regexp(t, w.expected.ProviderID, n.Spec.ProviderID)
	}
	for label, pattern := range w.expected.Labels {
		assert.Regexp(t, pattern, n.Labels[label], label)
	}
}

// requireServed holds the first Service and what the cloud holds against what is expected of its kind.
func (w *world) requireServed(kind expectations.Kind) {
	t := w.t
	t.Helper()
	list, err := w.c.Kube.CoreV1().Services(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{LabelSelector: mark})
	if !assert.NoError(t, err) || !assert.Len(t, list.Items, 1) {
		return
	}
	s := &list.Items[0]
	assert.Regexp(t, kind.Address, address(s))
	if kind.IPMode != "" && assert.NotNil(t, s.Status.LoadBalancer.Ingress[0].IPMode) {
		assert.Equal(t, kind.IPMode, *s.Status.LoadBalancer.Ingress[0].IPMode)
	}
	if recorded := w.expected.Adoption.Recorded; recorded != "" {
		assert.NotEmpty(t, s.Annotations[recorded], "the load balancer is recorded on the Service")
	}
	assert.Contains(t, strings.Join(w.summary().Holdings, "\n"), kind.Holds)
}

// errorLine is a line of the log by which an error about a Service of a run is told.
var errorLine = regexp.MustCompile(`(?m)^E\d{4} .*anyccm-acceptance-.*$`)

// requireNoErrors: where nothing went wrong no program has logged an error about a Service.
func (w *world) requireNoErrors() {
	t := w.t
	t.Helper()
	logs, err := filepath.Glob(filepath.Join(w.c.Dir, "ccm-*.log"))
	require.NoError(t, err)
	require.Len(t, logs, 2, "the program was restarted once")
	for _, log := range logs {
		text, err := os.ReadFile(log)
		require.NoError(t, err)
		require.NotEmpty(t, text)
		assert.Empty(t, errorLine.FindAllString(string(text), -1))
	}
}

// requireTold: every step has a result with its calls, and nothing is left out without a word. annotations says whether they were tried.
func (w *world) requireTold(r Report, annotations bool) {
	t := w.t
	t.Helper()
	results := map[string]Result{}
	for _, s := range r.Steps {
		results[s.Step] = s
		assert.Contains(t, []string{held, skipped}, s.Result, s.Step)
		if s.Result == skipped {
			assert.NotEmpty(t, s.Details, s.Step)
		} else if s.Step != "prepare" {
			assert.NotNil(t, s.Calls, s.Step)
			assert.NotNil(t, s.Writes, s.Step)
		}
	}
	if w.provider.Features.Instances == registry.Done {
		assert.Equal(t, 3, r.Nodes)
	}
	assert.NotEqual(t, "unknown", r.Version)
	assert.Zero(t, *results["restart"].Writes)
	if w.provider.Features.LoadBalancers != registry.Done {
		return
	}
	least, writing := leastHeld, []string{"create", "ports", "node-leaves", "node-joins", "delete"}
	if w.provider.InCluster {
		least, writing = []string{"prepare", "release", "create", "annotation/hostname", "restart", "delete"}, nil
	}
	for _, name := range least {
		if annotations || !strings.HasPrefix(name, "annotation/") {
			assert.Equal(t, held, results[name].Result, name)
		}
	}
	for _, name := range writing {
		assert.Positive(t, *results[name].Writes, name)
	}
	for _, row := range portable.Annotations.Rows() {
		name := "annotation/" + strings.TrimPrefix(row.Key, portable.Prefix)
		_, tried := results[name]
		assert.Equal(t, len(w.provider.Cloud().Pairs(row.Key)) > 0 || portable.Shared(row.Key), tried, name)
	}
}

// TestRefusedRun: a second run, in which the cloud answers writes with errors until the suite has said so, is compared with the first, and
// leaves nothing.
func TestRefusedRun(t *testing.T) {
	w := onAnyCloud(t)
	before := w.summary()
	results := "-results=" + filepath.Join(t.TempDir(), "results", "first.json")
	_, err := w.tries(t.Context(), nil, results, "-skip="+w.otherSteps("", ""))
	require.NoError(t, err)
	r, err := w.tries(t.Context(), func(line string) {
		switch {
		case strings.HasPrefix(line, "begins   create"):
			assert.NoError(t, w.c.Cloud.AddFault(t.Context(), harness.Fault{Kind: "status", Status: http.StatusInternalServerError, Writes: true}))
		case strings.HasPrefix(line, failed):
			assert.NoError(t, w.c.Cloud.ClearFaults(t.Context()))
		}
	}, results, "-step-patience=create="+brief.String(), "-skip=nodes")
	require.ErrorContains(t, err, "this did not hold: create, ")
	require.Greater(t, len(r.Steps), 4)
	for _, s := range r.Steps[4:] {
		assert.Contains(t, []string{notReached, skipped}, s.Result, s.Step)
	}
	assert.Equal(t, "create", r.Steps[3].Step)
	assert.Contains(t, strings.Join(r.Steps[3].Details, "\n"), "event of Service web: SyncLoadBalancerFailed: ")
	assert.Contains(t, r.Compared, "create: failed, before held")
	w.requireNothingLeft(before)
}

// runAfter runs f when a line of progress begins with words for the n-th time after another one.
func runAfter(after, words string, n int, f func()) func(string) {
	begun, seen := false, 0
	return func(line string) {
		if strings.HasPrefix(line, after) {
			begun = true
			if words == "" {
				f()
			}
			return
		}
		if begun && words != "" && strings.HasPrefix(line, words) {
			if seen++; seen == n {
				f()
			}
		}
		if isResult(line) {
			begun = false
		}
	}
}

// isResult reports whether a line ends a step.
func isResult(line string) bool {
	return slices.ContainsFunc([]string{held, failed, skipped, notReached}, func(result string) bool {
		return strings.HasPrefix(line, result)
	})
}

// did begins the lines about what was done to the cluster.
const did = "         "

// TestInterrupted: whenever the run is interrupted, as each step begins and after everything that it does to the cluster, nothing is left.
// The fast tier interrupts each step once, after all that it does.
func TestInterrupted(t *testing.T) {
	p, err := registry.Linked().Lookup(harness.AnyProvider)
	require.NoError(t, err)
	w := newWorld(t, p)
	before := w.summary()
	var lines []string
	// Of the annotations one that is changed in place and one that has a Service of its own.
	const annotations = "annotation/name,annotation/proxy-protocol"
	r, err := w.tries(t.Context(), func(line string) { lines = append(lines, line) }, "-skip="+w.otherSteps("", annotations))
	require.NoError(t, err)
	moments := 0
	for _, s := range r.Steps {
		if s.Result == skipped {
			continue
		}
		last := didIn(lines, s.Step)
		for n := range last + 1 {
			if n < last && !tier.All() {
				continue
			}
			moments++
			w.interrupts(s.Step, n, annotations)
			w.requireNothingLeft(before)
		}
	}
	if tier.All() {
		assert.Greater(t, moments, 20)
	} else {
		assert.Greater(t, moments, 5)
	}
}

// didIn counts what a step does to the cluster.
func didIn(lines []string, step string) int {
	begun, n := false, 0
	for _, line := range lines {
		switch {
		case line == "begins   "+step:
			begun = true
		case isResult(line):
			begun = false
		case begun && strings.HasPrefix(line, did):
			n++
		}
	}
	return n
}

// interrupts interrupts a run as a step begins, or after the n-th thing that it does.
func (w *world) interrupts(step string, n int, annotations string) {
	t := w.t
	t.Helper()
	ctx, interrupt := context.WithCancel(t.Context())
	defer interrupt()
	words := did
	if n == 0 {
		words = ""
	}
	r, err := w.tries(ctx, runAfter("begins   "+step, words, n, interrupt), "-skip="+w.otherSteps(step, annotations))
	require.Error(t, err, "%s, %d", step, n)
	i := slices.IndexFunc(r.Steps, func(one Result) bool { return one.Step == step })
	require.Equal(t, failed, r.Steps[i].Result, "%s, %d", step, n)
	assert.Contains(t, r.Steps[i].Details, "interrupted")
	for _, later := range r.Steps[i+1:] {
		assert.Equal(t, notReached, later.Result, later.Step)
	}
	assert.Empty(t, r.Left)
}

// otherSteps are the steps that a step does without, for -skip; without a step those that nobody is interested in.
func (w *world) otherSteps(step, annotations string) string {
	w.t.Helper()
	s := &suite{provider: w.provider}
	var names []string
	for _, one := range s.steps() {
		needed := one.name == "create" || (one.name == "node-leaves" && step == "node-joins")
		chosen := !strings.HasPrefix(one.name, "annotation/") || slices.Contains(strings.Split(annotations, ","), one.name)
		if one.name != step && !needed && (step != "" || !chosen) {
			names = append(names, one.name)
		}
	}
	return strings.Join(names, ",")
}
