package oci

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// testWorld is the provider in front of a simulated cloud, in virtual time.
type testWorld struct {
	*conformance.NodeBench
	sim   *ocisim.Sim
	cloud *cloud
	kube  *fake.Clientset
}

// inWorld runs a test in virtual time, with a provider that has started.
func inWorld(t *testing.T, test func(w *testWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := ocisim.New(testFingerprint)
		w := &testWorld{sim: sim, kube: fake.NewSimpleClientset()}
		var address string
		w.NodeBench, address = conformance.NewNodeBench(t, server)
		w.Config = sim.CloudConfig(address)
		w.start()
		test(w)
	})
}

func (w *testWorld) start() {
	w.Helper()
	w.Start(func(in registry.Inputs, informers cloudbase.Informers) nodes.API {
		c, err := maker().New(in)
		require.NoError(w, err)
		c.begin(cloudbase.Begun{Kube: w.kube, Stop: informers.Stop})
		c.inform(informers)
		w.cloud = c
		return c.instances
	})
}

// join starts an instance, and returns its Node, which is initialised and known to the program when it starts next.
func (w *testWorld) join(name string, change func(*ocisim.Instance)) *v1.Node {
	n := conformance.InitializedNode(name, providerIDPrefix+w.sim.Add(name, change))
	w.Nodes = append(w.Nodes, n)
	return n
}

// joinAt starts an instance with a private address, which its Node tells.
func (w *testWorld) joinAt(name, address string) *v1.Node {
	n := w.join(name, func(i *ocisim.Instance) {
		i.Interfaces(func(all []ocisim.VNIC) []ocisim.VNIC {
			all[0].PrivateIP = address
			return all
		})
	})
	n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}
	return n
}

// giveIPv6 gives an instance an address of IPv6, which its Node tells.
func (w *testWorld) giveIPv6(n *v1.Node, kind v1.NodeAddressType, address string) {
	w.Helper()
	require.NoError(w, w.sim.Change(mustID(w, n), func(i *ocisim.Instance) {
		i.Interfaces(func(all []ocisim.VNIC) []ocisim.VNIC {
			all[0].IPv6 = append(all[0].IPv6, address)
			return all
		})
	}))
	n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: kind, Address: address})
}
