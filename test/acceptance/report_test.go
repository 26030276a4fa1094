package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	first := &Report{Provider: "toy", Version: "1.0", Kubernetes: "v1.37.1", Steps: []Result{
		{Step: "create", Result: held, Seconds: 8, Calls: new(24), Writes: new(3)},
		{Step: "ports", Result: held, Seconds: 2},
		{Step: "old", Result: held},
		{Step: "skipped", Result: skipped},
	}}
	now := &Report{Provider: "toy", Version: "1.1", Kubernetes: "v1.37.1", Steps: []Result{
		{Step: "create", Result: held, Seconds: 9.04, Calls: new(31), Writes: new(3)},
		{Step: "ports", Result: failed, Seconds: 30},
		{Step: "new", Result: held},
		{Step: "skipped", Result: skipped},
	}}
	assert.Equal(t, []string{
		"program: 1.1, before 1.0",
		"create: 9.0 s, before 8.0 s; 31 calls, before 24",
		"ports: failed, before held",
		"new: not in the first run",
		"old: not in this run",
	}, differences(first, now))
}

func TestReportErr(t *testing.T) {
	t.Parallel()
	r := &Report{Steps: []Result{{Step: "a", Result: held}, {Step: "b", Result: skipped}}}
	require.NoError(t, r.err())
	r.Steps = append(r.Steps, Result{Step: "c", Result: notReached})
	require.EqualError(t, r.err(), "this did not hold: c")
	r.Left = []string{"namespace x"}
	require.EqualError(t, r.err(), "this did not hold: c\nsomething is left: namespace x")
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	const text = `# HELP anyccm_cloud_api_requests_total Calls.
anyccm_cloud_api_requests_total{code="200",operation="GET_/v2/droplets",provider="x"} 3
anyccm_cloud_api_requests_total{code="500",operation="POST_/v2/load_balancers",provider="x"} 1
anyccm_cloud_api_requests_total{code="200",operation="POST_/v2/load_balancers",provider="x"} 1
workqueue_depth{name="service"} 2
process_start_time_seconds 1.5e+09
`
	m := parseMetrics(text)
	assert.InDelta(t, 2, m.sum("workqueue_depth", "name", "service"), 0)
	assert.Zero(t, m.sum("workqueue_depth", "name", "other"))
	now := m.tally()
	assert.Equal(t, counts{"GET_/v2/droplets": 3, "POST_/v2/load_balancers": 2}, now.calls)
	assert.Equal(t, "2 × POST_/v2/load_balancers", now.calls.writes().String())
	before := tally{began: now.began, calls: counts{"GET_/v2/droplets": 2, "POST_/v2/load_balancers": 2}}
	assert.Equal(t, counts{"GET_/v2/droplets": 1}, now.since(&before))
	before.began--
	assert.Equal(t, 5, now.since(&before).total(), "another process counts from 0")
}

func TestOnlyReads(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{
		"GET_/v2/droplets", "EC2_DescribeInstances", "Elastic_Load_Balancing_v2_DescribeTags", "RetrievePropertiesEx", "Login", "CreateContainerView",
		"DestroyView", "POST_/v3/auth/tokens", "POST_/ovirt-engine/sso/oauth/token", "POST_identity", "STS_AssumeRole",
		"POST_/tagging/tag/{id}_list-tags-for-category", "POST_/tagging/tag-association_list-attached-objects-on-tags",
		"listVirtualMachines", "queryAsyncJobResult",
	} {
		assert.True(t, onlyReads(operation), operation)
	}
	for _, operation := range []string{
		"POST_/v2/load_balancers", "DELETE_/v2/load_balancers/{id}", "PUT_/x", "EC2_CreateTags", "ReconfigVM_Task", "Destroy_Task", "GETAWAY", "other", "",
		"POST_/tagging/tag-association/{id}_attach", "POST_/lists_list", "PUT_/x_list-all", "createLoadBalancerRule", "listing",
	} {
		assert.False(t, onlyReads(operation), operation)
	}
}

// TestForward: the way to the metrics is what kubectl says, and where it says something else that is told.
func TestForward(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	kubectl := func(script string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, "kubectl"), []byte("#!/bin/sh\n"+script), 0o700))
	}
	kubectl(`test "$*" = "--kubeconfig k -n kube-system port-forward --address=127.0.0.1 pod/ccm :10258" || exit 1
echo "Forwarding from 127.0.0.1:34567 -> 10258"; exec sleep 60`)
	url, stop, err := forward(t.Context(), "k", "kube-system", "ccm", 10258)
	require.NoError(t, err)
	assert.Equal(t, "https://127.0.0.1:34567", url)
	stop()

	kubectl(`echo "no such pod"; exit 1`)
	_, _, err = forward(t.Context(), "k", "kube-system", "ccm", 10258)
	require.ErrorContains(t, err, `"no such pod"`)
	require.ErrorContains(t, err, "give -metrics-url")
}

func TestParse(t *testing.T) {
	t.Setenv("KUBECONFIG", "")
	for words, args := range map[string][]string{
		"-kubeconfig is missing":   {"-provider=x"},
		`"more" is no flag`:        {"-kubeconfig=x", "more"},
		"-o yaml: use text or jso": {"-kubeconfig=x", "-o=yaml"},
		"use KEY=VALUE":            {"-kubeconfig=x", "-value=a"},
		"use a time such as 5m":    {"-kubeconfig=x", "-patience=0s"},
		"-step-patience":           {"-kubeconfig=x", "-step-patience=create"},
	} {
		_, err := parse(args, &strings.Builder{})
		require.ErrorIs(t, err, errUsage, words)
		require.ErrorContains(t, err, words)
	}
	o, err := parse([]string{"-kubeconfig=x", "-skip=a,b", "-skip=c", "-arg=--x", "-value=k=v=w"}, &strings.Builder{})
	require.NoError(t, err)
	assert.Equal(t, []string{"a", "b", "c"}, o.Skip)
	assert.Equal(t, settings{"k": "v=w"}, o.Values)
	s := &suite{Options: o}
	assert.True(t, s.isSkipped("a"))
	assert.True(t, s.isSkipped("a/b"))
	assert.False(t, s.isSkipped("ab"))
}

// TestWarnings: each warning about a Service of the run is told once, and again when it was seen again; those of the API server are not.
func TestWarnings(t *testing.T) {
	t.Parallel()
	event := func(name, kind, from string) *v1.Event {
		return &v1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "run", Name: name, UID: types.UID(name)}, Type: v1.EventTypeWarning, Reason: name,
			InvolvedObject: v1.ObjectReference{Kind: kind, Name: "web"}, ReportingController: from,
		}
	}
	kube := fake.NewClientset(
		event("SyncLoadBalancerFailed", "Service", "service-controller"), event("ClusterIPNotAllocated", "Service", "ipallocator-repair-controller"),
		event("BackOff", "Pod", "kubelet"),
	)
	s := &suite{kube: kube, space: "run", warned: map[string]int32{}}
	require.EqualError(t, s.warnings(t.Context()), "event of Service web: SyncLoadBalancerFailed: ")
	require.NoError(t, s.warnings(t.Context()))
	again := event("SyncLoadBalancerFailed", "Service", "service-controller")
	again.Count = 2
	_, err := kube.CoreV1().Events("run").Update(t.Context(), again, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Error(t, s.warnings(t.Context()))
}

// TestPatience: what stays as it is is given up after the patience of its step, and what goes on changing is waited for.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &suite{Options: Options{Patience: time.Minute, StepPatience: map[string]time.Duration{"create": time.Hour}}}
		began := time.Now()
		waits := func(step string, check func() error) error {
			s.step, began = step, time.Now()
			return s.eventually(t.Context(), "it", func(context.Context) error { return check() })
		}
		missing := errors.New("missing")
		require.ErrorContains(t, waits("ports", func() error { return missing }), "for it: missing")
		assert.InDelta(t, time.Minute.Seconds(), time.Since(began).Seconds(), 6)
		require.Error(t, waits("create", func() error { return missing }))
		assert.InDelta(t, time.Hour.Seconds(), time.Since(began).Seconds(), 6)
		require.Error(t, waits("ports", func() error { return fmt.Errorf("missing for %s, seen %d times", time.Since(began), time.Now().Unix()) }))
		assert.InDelta(t, time.Minute.Seconds(), time.Since(began).Seconds(), 6, "times and counters are no progress")
		progress := func() error { return fmt.Errorf("missing: %s", strings.Repeat("x", int(time.Since(began).Seconds()))) }
		require.NoError(t, waits("ports", func() error {
			if time.Since(began) > 4*time.Minute {
				return nil
			}
			return progress()
		}))
		require.Error(t, waits("ports", progress))
		assert.InDelta(t, 5*time.Minute.Seconds(), time.Since(began).Seconds(), 6)
	})
}
