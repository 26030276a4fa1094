package e2e

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// planned is what the command prints for a Service.
type planned struct {
	Service string
	Planned []struct {
		Action, Object, Detail string
		Fields                 []struct{ Name, Before, After string }
	}
	Error string
}

// planner returns what runs `plan` with a manifest of the Service web and holds that it writes nothing to the cloud.
func planner(t *testing.T, c *harness.Cluster, provider string) func(manifest string) planned {
	t.Helper()
	env, err := c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	config, err := c.Cloud.CloudConfig(t.Context())
	require.NoError(t, err)
	args := []string{"plan", "--cloud-provider=" + provider, "--kubeconfig=" + c.Kubeconfig, "-o", "json"}
	if config != "" {
		file := filepath.Join(c.Dir, "plan.conf")
		require.NoError(t, os.WriteFile(file, []byte(config), 0o600))
		args = append(args, "--cloud-config="+file)
	}
	return func(manifest string) planned {
		t.Helper()
		require.NoError(t, c.Cloud.ResetCalls(t.Context()))
		file := filepath.Join(c.Dir, "service.yaml")
		require.NoError(t, os.WriteFile(file, []byte(manifest), 0o600))
		cmd := exec.CommandContext(t.Context(), c.Programs.CCM, append(args, "-f", file)...)
		for k, v := range env {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		out, err := cmd.Output()
		var all []planned
		require.NoError(t, json.Unmarshal(out, &all), "%s: %v", out, err)
		require.Len(t, all, 1)
		assert.Equal(t, all[0].Error == "", err == nil, "the exit code agrees")
		assert.Zero(t, calls(t, c).Writes, "%v", calls(t, c).ByOperation)
		assert.Equal(t, "default/web", all[0].Service)
		return all[0]
	}
}

// TestPlan: on every cloud, what would be made for a new Service, nothing for one that is served, and what a change would
// do; nothing is written anywhere.
func TestPlan(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		annotations, err := json.Marshal(expected.Service)
		require.NoError(t, err)
		c := newClusterOn(t, provider, "--instances=2")
		m := startCCM(t, c, nil, nil)
		joinNodes(t, c, 2)
		plan := planner(t, c, provider)
		manifest := "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: " + string(annotations) + "\nspec:\n  type: LoadBalancer\n  ports:\n  - {name: http, port: 80}\n"
		m.Stop(patience)
		fresh := plan(manifest)
		require.Empty(t, fresh.Error)
		require.NotEmpty(t, fresh.Planned)
		assert.Equal(t, "create", fresh.Planned[0].Action)
		for _, one := range fresh.Planned {
			assert.NotEmpty(t, one.Fields, "%s %s", one.Action, one.Object)
		}
		t.Logf("%v", fresh.Planned)
		_, err = c.Kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "the Service was not made either")

		_, err = c.CreateService(t.Context(), "web", expected.Service)
		require.NoError(t, err)
		m = startCCM(t, c, nil, nil)
		_, err = c.WaitServed(t.Context(), "web", patience)
		require.NoError(t, err)
		waitHoldings(t, c, 1, unlessInCluster(c, ", 2 "))
		requireWorked(t, m, "service")
		m.Stop(patience)
		served := plan(manifest)
		assert.Empty(t, served.Error)
		assert.Empty(t, served.Planned)
		changed := plan(manifest + "  - {name: https, port: 443}\n")
		assert.Empty(t, changed.Error)
		assert.Equal(t, c.Cloud.InCluster(), len(changed.Planned) == 0, "an address has no ports")
		t.Logf("%v", changed.Planned)
		refused := plan(strings.ReplaceAll(manifest, "  ports:", "  loadBalancerSourceRanges: [nowhere]\n  ports:"))
		assert.NotEmpty(t, refused.Error)
	})
}
