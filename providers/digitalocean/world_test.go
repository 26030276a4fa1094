package digitalocean

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// world is a provider without its guard, on a simulated cloud and a fake API server, for tests of single parts.
type world struct {
	*cloud
	*conformance.Bench

	sim    *digitaloceansim.Sim
	server *simkit.Server
	env    map[string]string
	nodes  []*v1.Node
	// network replaces the loopback in virtual time.
	network *simkit.Network
}

func newTestWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	return newTestWorldBehind(t, env, nil)
}

// newVirtualWorld is newTestWorld within a bubble of virtual time.
func newVirtualWorld(t *testing.T, env map[string]string) *world {
	t.Helper()
	sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken, Seed: simkit.SeedOf(t)})
	w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, env: maps.Clone(env), network: simkit.NewNetwork()}
	if w.env == nil {
		w.env = map[string]string{}
	}
	w.env["DO_OVERRIDE_URL"] = w.network.Serve(t, server) + "/"
	w.restart()
	return w
}

// newTestWorldBehind puts something between the provider and the simulator.
func newTestWorldBehind(t *testing.T, env map[string]string, between func(server http.Handler, faulty func() bool) http.Handler) *world {
	t.Helper()
	sim, server := digitaloceansim.New(digitaloceansim.Options{Token: testToken, Seed: simkit.SeedOf(t)})
	w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, env: maps.Clone(env)}
	if w.env == nil {
		w.env = map[string]string{}
	}
	w.env["DO_OVERRIDE_URL"] = server.Start(t) + "/"
	if between != nil {
		outer := httptest.NewServer(between(server, func() bool { return len(server.Faults()) > 0 }))
		t.Cleanup(outer.Close)
		w.env["DO_OVERRIDE_URL"] = outer.URL + "/"
	}
	w.restart()
	return w
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	in := testInputs("", w.env)
	if w.network != nil {
		in.Dial = w.network.Dial
	}
	c, err := newCloud(in)
	require.NoError(w.T, err)
	c.loadBalancers.kube, c.loadBalancers.Events = w.Kube, w.Recorder
	c.loadBalancers.owners.cluster.SetClient(w.Kube)
	c.loadBalancers.owners.cluster.SetServices(w.Services())
	c.loadBalancers.room = waiting.New(c.loadBalancers.balancers.Look, waiting.Pace{Least: time.Millisecond})
	w.cloud = c
}

// addNode adds a droplet and its initialised node.
func (w *world) addNode(spec digitaloceansim.Spec) {
	w.sim.AddDroplet(spec)
	m, err := w.instances.InstanceMetadata(w.T.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: spec.Name}})
	require.NoError(w.T, err)
	w.nodes = append(
		w.nodes,
		&v1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: spec.Name}, Spec: v1.NodeSpec{ProviderID: m.ProviderID},
			Status: v1.NodeStatus{Addresses: m.NodeAddresses},
		},
	)
}

// ensure reconciles a Service until it is served, and returns it as it then is.
func (w *world) ensure(s *v1.Service) (*v1.Service, *v1.LoadBalancerStatus) {
	w.T.Helper()
	var status *v1.LoadBalancerStatus
	var err error
	for range 3 {
		if status, err = w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes); err == nil {
			return w.Current(s), status
		}
	}
	require.NoError(w.T, err)
	return nil, nil
}

// aged gives a Service a name, an identity and an age of its own.
func aged(s *v1.Service, name string, minutes int) *v1.Service {
	s.Name = name
	s.UID = types.UID(fmt.Sprintf("%08d-7a66-4b58-8b4b-0a61c1f9e0a1", minutes))
	s.CreationTimestamp = metav1.NewTime(time.Date(2026, 1, 1, 0, minutes, 0, 0, time.UTC))
	return s
}
