package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestPreflight: a set-up that is right passes, and what is wrong is named with what to do; nothing is changed.
func TestPreflight(t *testing.T) {
	c := newCluster(t, "--instances=2")
	m := startCCM(t, c, nil, nil)
	joinNodes(t, c, 2)
	env, err := c.Cloud.Environment(t.Context())
	require.NoError(t, err)
	preflight := func(env map[string]string, args ...string) (map[string]string, bool) {
		return preflightResults(t.Context(), t, c, env, args...)
	}
	kubeconfig := "--kubeconfig=" + c.Kubeconfig
	require.NoError(t, c.Cloud.ResetCalls(t.Context()))
	all, ok := preflight(env, kubeconfig)
	assert.True(t, ok, "%v", all)
	for _, check := range []string{"settings", "cloud API", "clock", "cluster", "cluster ID", "rights", "nodes"} {
		assert.True(t, strings.HasPrefix(all[check], "ok: "), "%s: %s", check, all[check])
	}
	assert.Zero(t, calls(t, c).Writes)
	assert.NotContains(t, all, "node facts", "nodes agree with the cloud")
	assert.NotContains(t, all, "node labels")

	_, err = c.Kube.CoreV1().Nodes().Patch(t.Context(), "node-2", types.MergePatchType,
		[]byte(`{"metadata":{"labels":{"beta.kubernetes.io/instance-type":"huge","node.kubernetes.io/instance-type":"huge"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	all, _ = preflight(env, kubeconfig)
	assert.Contains(t, all["node labels"], "warning: the labels of 1 of 2 nodes differ from what the cloud says: node-2 (node.kubernetes.io/instance-type huge, in the cloud ")

	all, _ = preflight(map[string]string{"DO_OVERRIDE_URL": "x"}, kubeconfig)
	assert.Contains(t, all["settings"], "error: ")
	refused := map[string]string{"DO_ACCESS_TOKEN": "wrong", "DO_OVERRIDE_URL": env["DO_OVERRIDE_URL"]}
	all, ok = preflight(refused, kubeconfig)
	assert.False(t, ok)
	assert.Contains(t, all["cloud API"], "error: ")
	assert.Contains(t, all["cloud API"], "not authorized")

	require.NoError(t, c.RegisterNode(t.Context(), harness.NodeSpec{Name: "stray", Ready: true}))
	nobody := filepath.Join(c.Dir, "nobody.kubeconfig")
	require.NoError(t, c.API.WriteKubeconfig(nobody, "no-such-token"))
	all, ok = preflight(env, "--kubeconfig="+nobody)
	assert.False(t, ok)
	assert.Contains(t, all["cluster"]+all["rights"]+all["nodes"], "error: ")
	all, ok = preflight(env, kubeconfig)
	assert.False(t, ok)
	assert.Contains(t, all["nodes"], "1 of 3 nodes cannot be served: stray")

	m.Stop(patience)
	accountsAreChecked(t, c, env)
}

// accountsAreChecked: where each controller has an account of its own, preflight names what one of them lacks.
func accountsAreChecked(t *testing.T, c *harness.Cluster, env map[string]string) {
	t.Helper()
	_, err := c.Install(t.Context(), program, harness.Values{"serviceAccount.perController": true})
	require.NoError(t, err)
	const account = "system:serviceaccount:kube-system:" + program
	accounts := []string{"--kubeconfig=" + c.Kubeconfig, "--as=" + account, "--controller-accounts=kube-system/" + program}
	const allowed = "ok: everything that the controllers do is allowed to "
	all, _ := preflightResults(t.Context(), t, c, env, accounts...)
	assert.Equal(t, strings.Join([]string{
		allowed + account, allowed + account + "-node-controller", allowed + account + "-route-controller", allowed + account + "-service-controller", "",
	}, "\n"), all["rights"])
	require.NoError(t, c.Kube.RbacV1().ClusterRoleBindings().Delete(t.Context(), "kube-system:"+program+":route-controller", metav1.DeleteOptions{}))
	require.NoError(t, c.Kube.RbacV1().Roles(metav1.NamespaceSystem).Delete(t.Context(), program+":controllers", metav1.DeleteOptions{}))
	require.NoError(t, harness.Eventually(t.Context(), patience, "the roles to count no more", func(ctx context.Context) error {
		all, _ = preflightResults(ctx, t, c, env, accounts...)
		for _, want := range []string{
			"error: " + account + " is not allowed: create serviceaccounts/token, get serviceaccounts\n",
			"error: " + account + "-route-controller is not allowed: create events, patch events, patch nodes/status, update events\n",
		} {
			if !strings.Contains(all["rights"], want) {
				return errors.New(all["rights"])
			}
		}
		return nil
	}))
}

// preflightResults are the results of the checks by their names, and whether all passed, which the exit status says as well.
func preflightResults(
	ctx context.Context, t *testing.T, c *harness.Cluster, env map[string]string, args ...string,
) (map[string]string, bool) {
	t.Helper()
	args = append([]string{"preflight", "--cloud-provider=digitalocean", "-o", "json"}, args...)
	cmd := exec.CommandContext(ctx, c.Programs.CCM, args...)
	for k, v := range env {
		cmd.Env = append(cmd.Env, k+"="+v)
	}
	out, err := cmd.Output()
	var report struct {
		OK      bool
		Results []struct{ Check, Result, Message, Fix string }
	}
	require.NoError(t, json.Unmarshal(out, &report), "%s", out)
	assert.Equal(t, report.OK, err == nil, "the exit code agrees")
	all := map[string]string{}
	for _, r := range report.Results {
		all[r.Check] += r.Result + ": " + r.Message + "\n"
		assert.True(t, r.Result == "ok" || r.Fix != "", "%s: no fix is named", r.Check)
	}
	assert.NotContains(t, string(out), testToken)
	return all, report.OK
}
