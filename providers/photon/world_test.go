package photon

import (
	"net/url"
	"strconv"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/photon/photonsim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// authenticated serves a simulated Photon Controller with a login, and returns the environment of its controller.
func authenticated(t testing.TB, network *simkit.Network, sim *photonsim.Sim, server *simkit.Server, address string) map[string]string {
	t.Helper()
	env := sim.Variables(address)
	place, err := url.Parse(network.ServeTLS(t, server))
	require.NoError(t, err)
	port, err := strconv.Atoi(place.Port())
	require.NoError(t, err)
	sim.Authenticate(place.Hostname(), port)
	env["PHOTON_AUTHENTICATION"], env["PHOTON_USERNAME"], env["PHOTON_PASSWORD"] = "true", photonsim.User, photonsim.Password
	env["PHOTON_IGNORE_CERTIFICATE"] = "true"
	return env
}

// testWorld is the provider with a simulated Photon Controller, in virtual time.
type testWorld struct {
	*conformance.NodeBench
	sim   *photonsim.Sim
	cloud *cloud
}

// inWorld runs a test in virtual time, with a provider that has started.
func inWorld(t *testing.T, dialect photonsim.Dialect, test func(w *testWorld)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := photonsim.New(dialect, simkit.SeedOf(t))
		b, address := conformance.NewNodeBench(t, server)
		w := &testWorld{NodeBench: b, sim: sim}
		w.Env = authenticated(t, b.Network, sim, server, address)
		w.start()
		test(w)
	})
}

func (w *testWorld) start() {
	w.Helper()
	w.Start(func(in registry.Inputs, informers cloudbase.Informers) nodes.API {
		c, err := maker().New(in)
		require.NoError(w, err)
		c.Inform(informers)
		w.cloud = c
		return c.instances
	})
}

// nodeOf returns the initialised Node of a virtual machine.
func nodeOf(v *photonsim.VM) *v1.Node {
	return conformance.InitializedNode(v.Name, providerIDPrefix+v.ID)
}

// dialect returns the name of the detected dialect.
func (w *testWorld) dialect() string {
	d, err := w.cloud.instances.api.dialect(w.Context())
	require.NoError(w, err)
	return d.name
}
