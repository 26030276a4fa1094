package main

import (
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

func onAnyCloud(t *testing.T) *world {
	t.Helper()
	p, err := registry.Linked().Lookup(harness.AnyProvider)
	require.NoError(t, err)
	return newWorld(t, p)
}

// TestFaults: what goes wrong is seen, also where it passes by itself, and where the cluster alone shows nothing of it.
func TestFaults(t *testing.T) {
	w := onAnyCloud(t)
	before := w.summary()
	fails := func(step, words string, longest time.Duration, f func()) {
		t.Helper()
		r, err := w.tries(t.Context(), runAfter("begins   "+step, "", 0, f), "-step-patience="+step+"="+longest.String(), "-skip="+w.otherSteps(step, ""))
		require.ErrorContains(t, err, "this did not hold: "+step)
		for _, s := range r.Steps {
			if s.Step == step {
				assert.Contains(t, strings.Join(s.Details, "\n"), words)
			} else {
				assert.NotEqual(t, failed, s.Result, s.Step)
			}
		}
		assert.Empty(t, r.Left)
	}

	// One call fails, and the program tries again by itself.
	fails("ports", "event of Service web: SyncLoadBalancerFailed: ", patience, func() {
		once := harness.Fault{Kind: "status", Status: http.StatusUnprocessableEntity, Writes: true, Count: 1}
		assert.NoError(t, w.c.Cloud.AddFault(t.Context(), once))
	})
	require.NoError(t, w.c.Cloud.ClearFaults(t.Context()))
	w.requireNothingLeft(before)

	// The new program finds something to do.
	fails("restart", "a restart changes nothing, and these calls may have: 1 × ", patience, func() {
		assert.NoError(t, w.c.Cloud.Call(t.Context(), http.MethodDelete, "/v2/load_balancers/"+w.balancer().ID+"/droplets", "any",
			map[string]any{"droplet_ids": w.balancer().DropletIDs[:1]}, nil))
	})
	w.requireNothingLeft(before)

	// Something with the cluster's mark stays in the cloud.
	fails("delete", "orphans shows load balancer ", brief, func() {
		b := w.balancer()
		assert.NoError(t, w.c.Cloud.Call(t.Context(), http.MethodPost, "/v2/load_balancers", "any", map[string]any{
			"name": "left", "region": "nyc3", "type": "REGIONAL_NETWORK", "tags": b.Tags,
			"forwarding_rules": []map[string]any{{"entry_protocol": "tcp", "entry_port": 80, "target_protocol": "tcp", "target_port": 30080}},
		}, nil))
	})
	require.NoError(t, w.c.Cloud.Call(t.Context(), http.MethodDelete, "/v2/load_balancers/"+w.balancer().ID, "any", nil, nil))
	w.requireNothingLeft(before)
}

// balancer is a load balancer of the simulated cloud.
type balancer struct {
	ID         string   `json:"id"`
	Tags       []string `json:"tags"`
	DropletIDs []int    `json:"droplet_ids"`
}

func (w *world) balancer() balancer {
	w.t.Helper()
	var all struct {
		LoadBalancers []balancer `json:"load_balancers"`
	}
	assert.NoError(w.t, w.c.Cloud.Call(w.t.Context(), http.MethodGet, "/v2/load_balancers", "any", nil, &all))
	if !assert.NotEmpty(w.t, all.LoadBalancers) {
		return balancer{}
	}
	return all.LoadBalancers[0]
}

// TestFacts: a Node that does not agree with what the cloud says is named.
func TestFacts(t *testing.T) {
	w := onAnyCloud(t)
	_, err := w.c.Kube.CoreV1().Nodes().Patch(t.Context(), "node-2", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"beta.kubernetes.io/instance-type":"huge","node.kubernetes.io/instance-type":"huge"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	r, err := w.tries(t.Context(), nil, "-skip="+w.otherSteps("nodes", ""))
	require.ErrorContains(t, err, "this did not hold: nodes, ")
	assert.Contains(t, strings.Join(r.Steps[2].Details, "\n"), "node-2 (node.kubernetes.io/instance-type huge, in the cloud ")
}

// TestCleanUp: what a run left that was killed is removed by -clean-up.
func TestCleanUp(t *testing.T) {
	w := onAnyCloud(t)
	before := w.summary()
	o, err := parse(w.args, os.Stderr)
	require.NoError(t, err)
	s, err := newSuite(o, w.provider, os.Stderr)
	require.NoError(t, err)
	require.NoError(t, s.connect(t.Context()))
	t.Cleanup(s.close)
	var saw []string
	require.NoError(t, s.prepare(t.Context(), &saw))
	require.NoError(t, s.serve(t.Context(), s.draft(web, nil), &saw))
	require.NoError(t, s.exclude(t.Context(), "node-1"))
	assert.NotEqual(t, before.Holdings, w.summary().Holdings)

	require.NoError(t, run(t.Context(), append(w.args, "-clean-up"), strings.NewReader(""), os.Stderr, os.Stderr))
	w.requireNothingLeft(before)
}

// TestAsks: without yes nothing is made, and beforehand the run says what it would make. Its files are readable for its user alone.
func TestAsks(t *testing.T) {
	w := onAnyCloud(t)
	before := w.summary()
	var out strings.Builder
	err := run(t.Context(), w.args, strings.NewReader("no\n"), &out, os.Stderr)
	require.ErrorIs(t, err, errUsage)
	assert.Contains(t, out.String(), "make the namespace anyccm-acceptance-")
	assert.Contains(t, out.String(), "Steps: release, nodes, create, ")
	w.requireNothingLeft(before)

	o, err := parse(w.args, os.Stderr)
	require.NoError(t, err)
	s, err := newSuite(o, w.provider, os.Stderr)
	require.NoError(t, err)
	require.NoError(t, s.connect(t.Context()))
	files := 0
	require.NoError(t, filepath.WalkDir(s.dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		files++
		info, err := entry.Info()
		assert.Zero(t, info.Mode().Perm()&0o077, path)
		return err
	}))
	assert.Positive(t, files, "the credentials are mounted")
	s.close()
	assert.NoDirExists(t, s.dir)
}
