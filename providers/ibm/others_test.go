package ibm

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for, and what others add to what Services have.
func tryOthers(t testing.TB, sim *ibmsim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	f.Claims = &conformance.Claims{
		NotGivenBack: "names alone tell whose a load balancer is: one under a former name stays, with an event, and one that was retained is nobody's",
		Of: func(s *v1.Service) string {
			all := sim.LoadBalancers()
			is := func(lb ibmsim.LoadBalancer) bool { return lb.Hostname == s.Status.LoadBalancer.Ingress[0].Hostname }
			return all[slices.IndexFunc(all, is)].Name
		},
		Claim: func(s *v1.Service, name string) { s.Annotations[annotationName] = name },
		Foreign: func() string {
			sim.AddLoadBalancer("by-hand", ibmsim.VPC)
			return "by-hand"
		},
		Exists: func(name string) bool {
			return slices.ContainsFunc(sim.LoadBalancers(), func(lb ibmsim.LoadBalancer) bool { return lb.Name == name })
		},
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a server to a security group": func(*v1.Service) func() bool {
			name := sim.MadeGroups()[0].Name
			require.NoError(t, sim.EditSecurityGroup(name, func(g *ibmsim.SecurityGroup) { g.Others = append(g.Others, "0717-server") }))
			return func() bool {
				return slices.ContainsFunc(sim.MadeGroups(), func(g ibmsim.SecurityGroup) bool { return g.Name == name && len(g.Others) == 1 })
			}
		},
	}
	f.AddInterface = func(providerID string) {
		_, _, worker, _ := splitProviderID(providerID)
		sim.Edit(worker, func(i *ibmsim.Instance) { i.Second = "10.9.0.5" })
	}
	f.TwinOf = f.AddInstance
	f.Lacks = map[string]string{
		"Capitals":      "names have small letters alone",
		"Share":         "a load balancer serves one Service",
		"Reserve":       "a Service asks for no address",
		"OwnershipTags": "no annotation sets tags",
	}
	return f
}
