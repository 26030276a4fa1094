package xcloud

import (
	"testing"

	"github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud/xcloudsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const testToken = "xcloud-token"

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := xcloudsim.New(testToken, 0)
	network := simkit.NewNetwork()
	env := map[string]string{"XCLOUD_TOKEN": testToken, "XCLOUD_URL": network.Serve(t, server)}
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Inputs:   func() registry.Inputs { return conformance.Inputs(nil, env) },
		FullTier: true, // template
	}
	f.Lacks = map[string]string{ // what tenants and others cannot try here
		"Claims": "names come from the UID of the Service", "Share": "a load balancer serves one Service", "Reserve": "a Service asks for no address",
		"OwnershipTags": "no annotation sets tags", "Additions": "a load balancer is one object", "AddInterface": "an instance has one interface",
	}
	tryNodes(t, sim, f)                    // nodes
	tryLoadBalancers(t, sim, f)            // load balancers
	f.Strictness = conformance.Strictness{ // load balancers
		Free: map[string]string{"backends[]": "any ID", "name": "any text", "tags[]": "any text"}, // load balancers
	} // load balancers
	return f
}
