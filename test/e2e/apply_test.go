package e2e

import (
	"encoding/json"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	interval  = "service.beta.kubernetes.io/do-loadbalancer-healthcheck-check-interval-seconds"
	keepAlive = "service.beta.kubernetes.io/do-loadbalancer-enable-backend-keepalive"
)

// edits are changes that people make to a manifest.
var edits = map[string]func(*v1.Service){
	"annotation added":   func(s *v1.Service) { s.Annotations[keepAlive] = "true" },
	"annotation changed": func(s *v1.Service) { s.Annotations[interval] = "9" },
	"annotation removed": func(s *v1.Service) { delete(s.Annotations, interval) },
	"port added":         func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "https", Port: 443}) },
	"port changed":       func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 },
	"port removed":       func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[:1] },
	"ranges changed":     func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8", "192.0.2.0/24"} },
	"ranges removed":     func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = nil },
	"class":              func(s *v1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") },
	"type":               func(s *v1.Service) { s.Spec.Type, s.Spec.LoadBalancerSourceRanges = v1.ServiceTypeClusterIP, nil },
}

// usualEdits are those that the fast tier tries of the ways in which most manifests are applied.
var usualEdits = []string{
	"annotation added", "annotation changed", "annotation removed", "class", "port added", "port changed", "ranges removed", "type",
}

// way is one in which a manifest gets into a cluster.
type way struct {
	// make makes the Service, apply is what plan foresees, restore takes it back; diff is what kubectl says of it, nil for nothing.
	make, apply, restore, diff []string
	// plan has further arguments of plan.
	plan []string
	// stays are edits that change nothing, refused those that the API server does not take.
	stays, refused []string
	// edits are those that are tried, all if there are none; the fast tier has those of fast, if there are any.
	edits, fast []string
}

func kubectl(args ...string) []string { return append([]string{"kubectl"}, args...) }

var ways = map[string]way{
	"client-side": {
		make: kubectl("apply", "-f"), apply: kubectl("apply", "-f"), restore: kubectl("apply", "-f"), diff: kubectl("diff", "-f"),
		refused: []string{"class"}, fast: usualEdits,
	},
	"server-side": {
		make:    kubectl("apply", "--server-side", "--field-manager=kustomize-controller", "-f"),
		apply:   kubectl("apply", "--server-side", "--field-manager=kustomize-controller", "-f"),
		restore: kubectl("apply", "--server-side", "--field-manager=kustomize-controller", "-f"),
		diff:    kubectl("diff", "--server-side", "--field-manager=kustomize-controller", "-f"),
		refused: []string{"class"}, fast: usualEdits,
	},
	"created": {
		make: kubectl("create", "-f"), apply: kubectl("apply", "-f"), restore: kubectl("replace", "-f"), diff: kubectl("diff", "-f"),
		stays: []string{"annotation removed", "port removed", "ranges removed"}, refused: []string{"class", "port changed", "type"},
		fast: []string{"annotation removed", "class", "ranges removed", "type"},
	},
	"replaced": {
		make: kubectl("create", "-f"), apply: kubectl("replace", "-f"), restore: kubectl("replace", "-f"), plan: []string{"--apply=replace"},
		refused: []string{"class"}, fast: []string{"annotation removed", "class", "port changed"},
	},
	"migrated-annotation": {
		make: kubectl("apply", "-f"), apply: kubectl("apply", "--server-side", "--force-conflicts", "-f"),
		restore: kubectl("apply", "--server-side", "--force-conflicts", "-f"), plan: []string{"--apply=server-side"}, edits: []string{"annotation removed"},
	},
	"migrated-ranges": {
		make: kubectl("apply", "-f"), apply: kubectl("apply", "--server-side", "--force-conflicts", "-f"),
		restore: kubectl("apply", "--server-side", "--force-conflicts", "-f"), plan: []string{"--apply=server-side"}, edits: []string{"ranges removed"},
	},
	"migrated-port": {
		make: kubectl("apply", "-f"), apply: kubectl("apply", "--server-side", "-f"), plan: []string{"--apply=server-side"},
		edits: []string{"port changed"}, refused: []string{"port changed"},
	},
	"helm": {
		make: []string{"helm", "install", "web"}, apply: []string{"helm", "upgrade", "web"}, restore: []string{"helm", "upgrade", "web"},
		refused: []string{"class"}, fast: []string{"annotation removed", "port changed", "ranges removed"},
	},
	"helm-client-side": {
		make:    []string{"helm", "install", "--server-side=false", "web-client"},
		apply:   []string{"helm", "upgrade", "--server-side=false", "web-client"},
		restore: []string{"helm", "upgrade", "--server-side=false", "web-client"},
		refused: []string{"class"}, fast: []string{"annotation removed", "port changed", "ranges removed"},
	},
}

// TestPlanForeseesApply: however a Service got into the cluster, plan says of a changed manifest before it is applied what it says
// afterwards, and sees no change where kubectl diff sees none. What the API server refuses is refused.
func TestPlanForeseesApply(t *testing.T) {
	c := newCluster(t, "--instances=2")
	require.FileExists(t, c.Programs.Kubectl, "run make tools-for-tests")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	hands := &applyHands{t: t, c: c, plan: planner(t, c, harness.AnyProvider)}
	for name, w := range ways {
		hands.run(w.make, hands.write(name, nil))
		_, err := c.WaitServed(t.Context(), name, patience)
		require.NoError(t, err)
	}
	waitHoldings(t, c, len(ways), ", 2 ")
	m.Stop(patience)
	for _, name := range []string{"client-side", "server-side"} {
		dump, err := hands.command(kubectl("get", "-o", "yaml", "-f"), hands.write(name, nil)).Output()
		require.NoError(t, err)
		said := hands.plan(name, string(dump))
		assert.Empty(t, said.Error, "%s: a dump of the cluster", name)
		assert.Empty(t, said.Planned, "%s: a dump of the cluster changes nothing", name)
	}
	for name, w := range ways {
		tried := w.edits
		if !tier.All() && w.fast != nil {
			tried = w.fast
		}
		if tried == nil {
			tried = slices.Sorted(maps.Keys(edits))
		}
		for _, edit := range tried {
			t.Run(name+"/"+edit, func(t *testing.T) {
				hands := *hands
				hands.t = t
				hands.try(name, w, edit)
			})
		}
	}
}

// applyHands apply manifests as an operator does.
type applyHands struct {
	t    *testing.T
	c    *harness.Cluster
	plan func(name, manifest string, args ...string) planned
}

func (h *applyHands) try(name string, w way, edit string) {
	t := h.t
	changed := h.write(name, edits[edit])
	text := h.manifest(changed)
	before := h.plan(name, text, w.plan...)
	if w.diff != nil {
		status := h.status(w.diff, changed)
		assert.Equal(t, before.Error != "", status > 1, "kubectl diff refuses as well: %s", before.Error)
		assert.False(t, len(before.Planned) > 0 && status == 0, "kubectl diff sees what changes: %v", before.Planned)
	}
	if slices.Contains(w.refused, edit) {
		assert.NotEmpty(t, before.Error)
		assert.NotZero(t, h.status(w.apply, changed))
		return
	}
	require.Empty(t, before.Error)
	assert.Equal(t, slices.Contains(w.stays, edit), len(before.Planned) == 0, "%v", before.Planned)
	h.run(w.apply, changed)
	defer func() { h.run(w.restore, h.write(name, nil)) }()
	if edit == "type" {
		require.Len(t, before.Planned, 1)
		assert.Equal(t, "delete", before.Planned[0].Action)
		return
	}
	after := h.plan(name, text, w.plan...)
	require.Empty(t, after.Error)
	assert.Equal(t, before.Planned, after.Planned)
}

// write writes a chart whose one file is the manifest of a Service, edited, and returns its folder.
func (h *applyHands) write(name string, edit func(*v1.Service)) string {
	t := h.t
	s := serviceOf(name, v1.ServiceTypeLoadBalancer, map[string]string{interval: "7"})
	s.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	s.Namespace = "default"
	s.Spec.Ports = []v1.ServicePort{{Name: "http", Port: 80}, {Name: "metrics", Port: 9090}}
	s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"}
	if edit != nil {
		edit(s)
	}
	text, err := yaml.Marshal(s)
	require.NoError(t, err)
	dir := filepath.Join(h.c.Dir, "charts", name)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "templates"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "Chart.yaml"), []byte("{apiVersion: v2, name: web, version: 1.0.0}\n"), 0o600))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "templates", "service.yaml"), text, 0o600))
	return dir
}

func (h *applyHands) manifest(chart string) string {
	text, err := os.ReadFile(filepath.Join(chart, "templates", "service.yaml"))
	require.NoError(h.t, err)
	return string(text)
}

func (h *applyHands) run(command []string, chart string) {
	h.t.Helper()
	out, err := h.command(command, chart).CombinedOutput()
	require.NoError(h.t, err, "%v: %s", command, out)
}

// status is that with which a command ends.
func (h *applyHands) status(command []string, chart string) int {
	h.t.Helper()
	out, err := h.command(command, chart).CombinedOutput()
	if err == nil {
		return 0
	}
	ended, ok := errors.AsType[*exec.ExitError](err)
	require.True(h.t, ok, "%v: %s", err, out)
	return ended.ExitCode()
}

// command is kubectl with the manifest of a chart, or helm with the chart.
func (h *applyHands) command(command []string, chart string) *exec.Cmd {
	path, what := h.c.Programs.Helm, chart
	if command[0] == "kubectl" {
		path, what = h.c.Programs.Kubectl, filepath.Join(chart, "templates", "service.yaml")
	}
	cmd := exec.CommandContext(h.t.Context(), path, append(slices.Clone(command[1:]), what)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+h.c.Kubeconfig, "HOME="+h.c.Dir)
	return cmd
}

// planner returns what runs `plan` with a manifest of a Service and holds that it writes nothing to the cloud.
func planner(t *testing.T, c *harness.Cluster, provider string) func(name, manifest string, args ...string) planned {
	t.Helper()
	env, err := c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	config, err := c.Cloud.CloudConfig(t.Context())
	require.NoError(t, err)
	fixed := []string{"plan", "--cloud-provider=" + provider, "--kubeconfig=" + c.Kubeconfig, "-o", "json", "--detailed-exitcode"}
	if config != "" {
		file := filepath.Join(c.Dir, "plan.conf")
		require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		fixed = append(fixed, "--cloud-config="+file)
	}
	return func(name, manifest string, args ...string) planned {
		t.Helper()
		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		file := filepath.Join(c.Dir, "service.yaml")
		require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
		cmd := exec.CommandContext(t.Context(), c.Programs.CCM, slices.Concat(fixed, []string{"-f", file}, args)...)
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out, err := cmd.Output()
		var all []planned
		require.NoError(t, json.Unmarshal(out, &all), "%s: %v", out, err)
		require.Len(t, all, 1)
		status := 0
		switch {
		case all[0].Error != "":
			status = 1
		case len(all[0].Planned) > 0:
			status = 2
		}
		assert.Equal(t, status, cmd.ProcessState.ExitCode(), "the exit status agrees")
		assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)
		assert.Equal(t, "default/"+name, all[0].Service)
		return all[0]
	}
}
