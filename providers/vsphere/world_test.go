package vsphere

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/vspheresim"
)

// testWorld is the provider in front of simulated vCenters, in virtual time.
type testWorld struct {
	conformance.NodeQuestions

	sims    []*vspheresim.Sim
	servers []*simkit.Server
	network *simkit.Network
	kube    *fake.Clientset
	env     map[string]string
	config  string
	cloud   *cloud
	stop    chan struct{}
}

// inWorld runs a test in virtual time. In the configuration SERVER1 and so on stand for the vCenters; "" means the first one's own.
func inWorld(t *testing.T, config string, options []vspheresim.Options, test func(w *testWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := &testWorld{
			NodeQuestions: conformance.NodeQuestions{T: t}, network: simkit.NewNetwork(), kube: fake.NewSimpleClientset(), env: map[string]string{},
		}
		if options == nil {
			options = []vspheresim.Options{{}}
		}
		for i, o := range options {
			sim, server := vspheresim.New(o)
			server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
			url := w.network.Serve(t, server)
			if config == "" {
				config = sim.CloudConfig(url)
			}
			config = strings.ReplaceAll(config, "SERVER"+string(rune('1'+i)), url)
			w.sims, w.servers = append(w.sims, sim), append(w.servers, server)
		}
		w.config = config
		t.Cleanup(func() {
			if w.stop != nil {
				close(w.stop)
			}
		})
		test(w)
	})
}

const twoVCenters = `
vcenter:
  one: {server: "SERVER1", user: ccm@vsphere.local, password: ccm-password, datacenters: [DC0]}
  two: {server: "SERVER2", user: ccm@vsphere.local, password: ccm-password}
`

// start makes a new provider, as a restart of the program does.
func (w *testWorld) start() {
	w.Helper()
	if w.stop != nil {
		close(w.stop)
		synctest.Wait()
	}
	in := conformance.Inputs(nil, w.env)
	in.File, in.Dial = []byte(w.config), w.network.Dial
	c, err := maker().New(in)
	require.NoError(w, err)
	w.stop = make(chan struct{})
	c.begin(cloudbase.Begun{Kube: w.kube, Stop: w.stop})
	w.cloud, w.API = c, c.instances
}

func nodeOf(m *vspheresim.Machine) *v1.Node {
	return conformance.InitializedNode(m.Name, providerIDPrefix+m.UUID)
}

// calls are those of the first vCenter, which is also the one that fails.
func (w *testWorld) calls() int { return w.servers[0].Calls().Total }

func (w *testWorld) fail(f simkit.Fault) {
	w.Helper()
	_, err := w.servers[0].AddFault(f)
	require.NoError(w, err)
}

func (w *testWorld) secret(data map[string]string) {
	w.Helper()
	s := &v1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "vsphere", Namespace: "kube-system"}, Data: map[string][]byte{}}
	for k, v := range data {
		s.Data[k] = []byte(v)
	}
	secrets := w.kube.CoreV1().Secrets("kube-system")
	_, err := secrets.Update(context.WithoutCancel(w.Context()), s, metav1.UpdateOptions{})
	if err != nil {
		_, err = secrets.Create(context.WithoutCancel(w.Context()), s, metav1.CreateOptions{})
	}
	require.NoError(w, err)
}

func (w *testWorld) requireNothingRefused() {
	w.Helper()
	for _, s := range w.servers {
		require.Empty(w, s.Calls().Refused)
	}
}
