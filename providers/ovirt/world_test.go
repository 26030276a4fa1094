package ovirt

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/ovirt/ovirtsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// testWorld is the provider in front of a simulated engine, in virtual time.
type testWorld struct {
	*conformance.NodeBench
	sim   *ovirtsim.Sim
	cloud *cloud
}

// inWorld runs a test in virtual time, with a provider that has started.
func inWorld(t *testing.T, test func(w *testWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := ovirtsim.New(simkit.SeedOf(t))
		w := &testWorld{sim: sim}
		var address string
		w.NodeBench, address = conformance.NewNodeBench(t, server)
		w.Env = sim.Variables(address)
		w.start()
		test(w)
	})
}

func (w *testWorld) start() {
	w.Helper()
	w.Start(func(in registry.Inputs, informers cloudbase.Informers) nodes.API {
		c, err := maker().New(in)
		require.NoError(w, err)
		c.begin(cloudbase.Begun{Stop: informers.Stop})
		c.inform(informers)
		w.cloud = c
		return c.instances
	})
}

// nodeOf is the Node of a virtual machine, which is initialised.
func nodeOf(v *ovirtsim.VM) *v1.Node {
	return conformance.InitializedNode(v.Name, providerIDPrefix+v.ID)
}
