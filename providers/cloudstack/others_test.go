package cloudstack

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for, and what others add to what Services share.
func tryOthers(t testing.TB, sim *cloudstacksim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	find := func(text string) cloudstacksim.Address {
		all := sim.Addresses()
		at := slices.IndexFunc(all, func(a cloudstacksim.Address) bool { return a.Address == text })
		require.GreaterOrEqual(t, at, 0)
		return all[at]
	}
	f.Reserve = func() conformance.Reserved {
		const theirs = "203.0.113.90"
		id, err := sim.Reserve(theirs)
		require.NoError(t, err)
		return conformance.Reserved{
			Address: theirs, Exists: func() bool { return find(theirs).State != "Free" },
			Claims: []map[string]string{
				{annotationAssociated: "true"}, {annotationRecord: id}, {annotationRecord: id + sealMark + strings.Repeat("0", 2*sealLength)},
			},
		}
	}
	f.Lacks = map[string]string{
		"Claims":        "rules are found by the UID in their names, so that nothing on a Service leads to another's",
		"OwnershipTags": "no annotation sets tags",
	}
	f.Share = func(guest, owner *v1.Service) { guest.Spec.LoadBalancerIP = owner.Status.LoadBalancer.Ingress[0].IP }
	f.Capitals = "Worker-A1"
	f.TwinOf = func(name string) string {
		elsewhere := sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "elsewhere"}) // names are unique in a network
		return providerIDPrefix + sim.AddVM(cloudstacksim.Spec{Name: name, Networks: []string{elsewhere}})
	}
	f.AddInterface = func(providerID string) {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		second := cloudstacksim.NIC{ID: "00000000-0000-4000-8000-000000000002", Network: sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "storage"}), IP: "10.9.0.5"}
		sim.Edit(id, func(v *cloudstacksim.VM) { v.NICs = append([]cloudstacksim.NIC{second}, v.NICs...) })
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a port forwarding rule to an address": func(s *v1.Service) func() bool {
			a := find(s.Status.LoadBalancer.Ingress[0].IP)
			sim.AddForward(a.ID, 2222)
			return func() bool { return find(a.Address).State != "Free" }
		},
	}
	return f
}
