package cloudstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestGone: a machine is gone when its ID and a complete listing say so, however the API puts it.
func TestGone(t *testing.T) {
	inNodeWorld(t, "", func(w *nodeWorld) {
		gone := w.sim.AddVM(cloudstacksim.Spec{Name: "n1"})
		left := w.sim.AddVM(cloudstacksim.Spec{Name: "n2"})
		w.Nodes = []*v1.Node{conformance.InitializedNode("n1", providerIDPrefix+gone), conformance.InitializedNode("n2", providerIDPrefix+left)}
		w.start()
		w.RequireExists(w.Nodes[0])
		w.sim.Remove(gone)
		w.Later()
		w.RequireGone(w.Nodes[0])
		w.RequireGone(conformance.InitializedNode("n3", providerIDPrefix+"3a5c5b0e-0000-4a5b-8000-000000000001"))
		w.RequireGone(conformance.InitializedNode("n3", providerIDPrefix+"3a5c5b0e-0000-4a5b-8000-000000000001"))

		w.sim.Remove(left)
		w.sim.AddVM(cloudstacksim.Spec{Name: "another"})
		w.Later()
		w.RequireGone(w.Nodes[1]) // the network is shown that it was seen in
		w.sim.MoveToProject()
		w.sim.AddVM(cloudstacksim.Spec{Name: "theirs", Networks: []string{w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "theirs"})}})
		w.Later()
		w.RequireDoubt(w.Nodes[1], "neither a node of the cluster nor its network is listed") // but others' machines and networks are
	})
}

// TestEmptyListing: a process that has seen no machine of the cluster yet takes an empty listing for proof only where the network is shown
// that the node has an address of, and that no other account sees.
func TestEmptyListing(t *testing.T) {
	for name, c := range map[string]struct {
		address string
		prepare func(w *nodeWorld)
		doubt   string
	}{
		"the network of the node is shown":        {address: "10.10.1.11"},
		"another network is shown":                {address: "192.0.2.11", doubt: "nor its network is listed"},
		"the node has no address":                 {doubt: "nor its network is listed"},
		"the network is one that others see too":  {address: "10.10.1.11", prepare: shareNetwork, doubt: "nor its network is listed"},
		"no network is shown, in a wrong project": {address: "10.10.1.11", prepare: func(w *nodeWorld) { w.sim.MoveToProject() }, doubt: "nor its network is listed"},
		"machines of others are listed": {address: "192.0.2.11", prepare: func(w *nodeWorld) {
			w.sim.AddVM(cloudstacksim.Spec{Name: "another"})
		}, doubt: "nor its network is listed"},
		"networks cannot be listed": {address: "10.10.1.11", prepare: func(w *nodeWorld) {
			w.sim.Restrict(cloudstacksim.APIKey, "listVirtualMachines")
		}, doubt: "and its network cannot be"},
		"all listings are empty": {address: "10.10.1.11", prepare: func(w *nodeWorld) { w.Fail(simkit.Fault{Kind: "empty-list"}) }, doubt: "nor its network is listed"},
	} {
		t.Run(name, func(t *testing.T) {
			inNodeWorld(t, "", func(w *nodeWorld) {
				node := conformance.InitializedNode("n1", providerIDPrefix+someID)
				if c.address != "" {
					node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: c.address}}
				}
				w.Nodes = []*v1.Node{node}
				if c.prepare != nil {
					c.prepare(w)
				}
				w.start()
				if c.doubt == "" {
					w.RequireGone(node)
				} else {
					w.RequireDoubt(node, c.doubt)
				}
			})
		})
	}
}

func shareNetwork(w *nodeWorld) {
	w.sim.EditNetwork(w.sim.SeedNetwork(), func(n *cloudstacksim.Network) { n.Type = typeShared })
}

// TestEmptyListingBesideServices: what the Services of the cluster have decides where no machine is listed.
func TestEmptyListingBesideServices(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(w *cluster, s *v1.Service)
		doubt   string
	}{
		"the rules are shown":  {},
		"the address is shown": {prepare: func(w *cluster, _ *v1.Service) { w.sim.RemoveRules() }},
		"neither is, but a network": {prepare: func(w *cluster, s *v1.Service) {
			w.sim.RemoveRules()
			w.edit(s, func(s *v1.Service) { s.Annotations[annotationRecord] = someID })
		}, doubt: "nor any of its load balancers is listed"},
		"the rules have members": {prepare: func(w *cluster, _ *v1.Service) {
			_, err := w.server.AddFault(simkit.Fault{Kind: "empty-list", Operation: "listVirtualMachines"})
			require.NoError(w.T, err)
		}, doubt: "is behind one of its load balancers"},
		"rules cannot be listed": {prepare: func(w *cluster, _ *v1.Service) {
			w.sim.Restrict(cloudstacksim.APIKey, "listVirtualMachines", "listNetworks")
		}, doubt: "its load balancers cannot be"},
	} {
		t.Run(name, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.requireServed(w.serve("web", port("http", 80, 30080)))
				for _, n := range w.nodes {
					n.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.10.1.11"}}
				}
				if c.prepare != nil {
					c.prepare(w, s)
				}
				if c.doubt != "is behind one of its load balancers" {
					w.sim.RemoveAll()
				}
				w.restart()
				exists, err := w.instances.InstanceExists(w.T.Context(), w.nodes[0])
				if c.doubt == "" {
					require.NoError(t, err)
					assert.False(t, exists)
				} else {
					require.ErrorContains(t, err, c.doubt)
				}
			})
		})
	}
}

// TestListingThatIsNotComplete is an error, and never absence.
func TestListingThatIsNotComplete(t *testing.T) {
	for _, fault := range []simkit.Fault{
		{Kind: "torn-list", Operation: "listVirtualMachines"},
		{Kind: simkit.FaultStatus, Status: 502, Operation: "listVirtualMachines"},
		{Kind: "empty-list", Operation: "listVirtualMachines"},
	} {
		t.Run(fault.Kind, func(t *testing.T) {
			inNodeWorld(t, "", func(w *nodeWorld) {
				for _, name := range []string{"n0", "n1", "n2"} {
					w.sim.AddVM(cloudstacksim.Spec{Name: name})
				}
				w.Fail(fault)
				w.RequireDoubt(conformance.InitializedNode("gone", providerIDPrefix+someID), "")
			})
		})
	}
}
