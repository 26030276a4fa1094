package chart

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	"sigs.k8s.io/yaml"
)

// kubeadmConfig holds the fields of kubeadm's objects that the page sets.
type kubeadmConfig struct {
	Kind             string
	NodeRegistration struct{ KubeletExtraArgs []argument }
	APIServer        struct{ ExtraArgs []argument } `json:"apiServer"`
	Controller       struct{ ExtraArgs []argument } `json:"controllerManager"`
	ServerTLS        bool                           `json:"serverTLSBootstrap"`
}

type argument struct{ Name, Value string }

var external = argument{"cloud-provider", "external"}

// TestQuickStart: the page's settings of kubelets and the control plane are those that the program needs, and its helm command installs
// what starts on nodes that nobody has initialised.
func TestQuickStart(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/quickstart-kubeadm.md")
	require.NoError(t, err)
	found := map[string]kubeadmConfig{}
	for _, block := range regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllStringSubmatch(string(page), -1) {
		for document := range strings.SplitSeq(block[1], "\n---\n") {
			var c kubeadmConfig
			require.NoError(t, yaml.Unmarshal([]byte(document), &c), document)
			found[c.Kind] = c
		}
	}
	require.Len(t, found, 4)
	assert.True(t, found["KubeletConfiguration"].ServerTLS)
	for _, kind := range []string{"InitConfiguration", "JoinConfiguration"} {
		assert.Contains(t, found[kind].NodeRegistration.KubeletExtraArgs, external, kind)
	}
	cluster := found["ClusterConfiguration"]
	assert.Contains(t, cluster.Controller.ExtraArgs, external)
	assert.Empty(t, cluster.APIServer.ExtraArgs)

	for _, p := range clouds() {
		if !strings.Contains(string(page), "--cloud-provider="+p.Name+" ") {
			assert.Contains(t, string(page), "\n| "+p.Title+" | ", "how its nodes find their instances")
		}
	}

	command := regexp.MustCompile(`(?s)\nhelm install (.*?[^\\])\n`).FindSubmatch(page)
	require.NotNil(t, command)
	args := strings.Fields(strings.NewReplacer("\\\n", " ", "'", "").Replace(string(command[1])))
	for i := range args {
		args[i] = strings.Replace(args[i], "charts/cloud-controller-manager", folder, 1)
	}
	out, err := helm(t, "", append([]string{"template"}, args...)...)
	require.NoError(t, err, out)
	var workload appsv1.DaemonSet
	for document := range strings.SplitSeq(out, "\n---\n") {
		if strings.Contains(document, "kind: DaemonSet\n") {
			require.NoError(t, yaml.Unmarshal([]byte(document), &workload))
		}
	}
	assert.Contains(t, out, ",kubelet-serving-approver,", "the kubelets wait for their certificates")
	pod := workload.Spec.Template.Spec
	assert.True(t, pod.HostNetwork, "there is no pod network yet")
	tolerated := map[string]bool{}
	for _, one := range pod.Tolerations {
		tolerated[one.Key] = true
	}
	for _, taint := range []string{
		"node.cloudprovider.kubernetes.io/uninitialized", "node.kubernetes.io/not-ready", "node-role.kubernetes.io/control-plane",
	} {
		assert.True(t, tolerated[taint], taint)
	}
}
