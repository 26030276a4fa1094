package kubeadm

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app/options"
	kubeadmapi "k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm"
	"k8s.io/kubernetes/cmd/kubeadm/app/phases/controlplane"
	kubeletphase "k8s.io/kubernetes/cmd/kubeadm/app/phases/kubelet"
	"k8s.io/kubernetes/cmd/kubeadm/app/util/config"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app/options"
)

// files are kubeadm.yaml and join.yaml of the page.
func files(t *testing.T) (initial, join []byte) {
	t.Helper()
	page, err := os.ReadFile("../../docs/quickstart-kubeadm.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindAllSubmatch(page, -1)
	require.Len(t, found, 2)
	// Without a version kubeadm asks the internet for the newest one.
	version := []byte("kind: ClusterConfiguration\nkubernetesVersion: v1.37.1\n")
	initial = []byte(strings.Replace(string(found[0][1]), "kind: ClusterConfiguration\n", string(version), 1))
	require.NotEqual(t, string(found[0][1]), string(initial))
	return initial, found[1][1]
}

// loaded are the files as `kubeadm init` and `kubeadm join` read them, unknown and deprecated fields refused.
func loaded(t *testing.T) (*kubeadmapi.InitConfiguration, *kubeadmapi.JoinConfiguration) {
	t.Helper()
	initial, join := files(t)
	for _, file := range [][]byte{initial, join} {
		require.NoError(t, config.ValidateConfig(file, false, false), "%s", file)
	}
	i, err := config.BytesToInitConfiguration(initial, true)
	require.NoError(t, err)
	j, err := config.BytesToJoinConfiguration(join, config.LoadOrDefaultConfigurationOptions{SkipCRIDetect: true})
	require.NoError(t, err)
	return i, j
}

// TestKubeadmTakesTheFiles: `kubeadm config validate` finds nothing in them, and finds a field that it does not know.
func TestKubeadmTakesTheFiles(t *testing.T) {
	initial, join := loaded(t)
	assert.Equal(t, "production", initial.ClusterName)
	assert.Equal(t, initial.LocalAPIEndpoint.AdvertiseAddress+":6443", join.Discovery.BootstrapToken.APIServerEndpoint)
	text, _ := files(t)
	broken := strings.Replace(string(text), "kubeletExtraArgs:", "kubeletExtraArguments:", 1)
	require.Error(t, config.ValidateConfig([]byte(broken), false, false))
}

// TestKubelets: what kubeadm hands to both kubelets is legal, and makes their Nodes wait for the program.
func TestKubelets(t *testing.T) {
	initial, join := loaded(t)
	for _, c := range []struct {
		node    *kubeadmapi.NodeRegistrationOptions
		address string
	}{{&initial.NodeRegistration, initial.LocalAPIEndpoint.AdvertiseAddress}, {&join.NodeRegistration, "10.116.0.3"}} {
		dir := t.TempDir()
		require.NoError(t, kubeletphase.WriteKubeletDynamicEnvFile(&initial.ClusterConfiguration, c.node, false, dir))
		args, err := kubeletphase.ReadKubeletDynamicEnvFile(filepath.Join(dir, "kubeadm-flags.env"))
		require.NoError(t, err)
		flags := kubelet.NewKubeletFlags()
		fs := pflag.NewFlagSet("kubelet", pflag.ContinueOnError)
		flags.AddFlags(fs)
		require.NoError(t, fs.Parse(args), "%v", args)
		assert.Equal(t, "external", flags.CloudProvider)
		assert.Equal(t, c.address, flags.NodeIP)
		assert.Empty(t, fs.Lookup("cloud-provider").Deprecated)
		require.NoError(t, kubelet.ValidateKubeletFlags(flags))
	}
}

// TestControllerManager: what kubeadm starts has legal flags; cloud work is left to the program, and pods have the page's range.
func TestControllerManager(t *testing.T) {
	initial, _ := loaded(t)
	pods := controlplane.GetStaticPodSpecs(&initial.ClusterConfiguration, &initial.LocalAPIEndpoint, nil)
	command := pods["kube-controller-manager"].Spec.Containers[0].Command
	require.Equal(t, "kube-controller-manager", command[0])
	s, err := options.NewKubeControllerManagerOptions()
	require.NoError(t, err)
	fs := pflag.NewFlagSet(command[0], pflag.ContinueOnError)
	for _, section := range s.Flags(nil, nil, nil).FlagSets {
		fs.AddFlagSet(section)
	}
	require.NoError(t, fs.Parse(command[1:]), "%v", command)
	shared := s.KubeCloudShared
	assert.Equal(t, "external", shared.CloudProvider.Name)
	assert.Equal(t, "production", shared.ClusterName, "the name that the chart is installed with")
	assert.Equal(t, "10.244.0.0/16", shared.ClusterCIDR)

	server := pods["kube-apiserver"].Spec.Containers[0].Command
	assert.False(t, slices.ContainsFunc(server, func(arg string) bool { return strings.Contains(arg, "cloud") }), "the API server needs nothing")
}
