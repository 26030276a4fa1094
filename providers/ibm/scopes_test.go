package ibm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"POST /identity/token",
	"GET /v1/load_balancers",
	"GET /v1/load_balancers/{id}",
	"GET /v1/security_groups",
	"GET /v1/subnets",         // the VPC in which a Service gets its group
	"GET /v2/resource_groups", // as above
}

// scopeOf is a security group for each Service.
func scopeOf(t testing.TB, sim *ibmsim.Sim) conformance.Scope {
	t.Helper()
	const own = "a Service has a security group of its own: what is there goes with it"
	return conformance.Scope{
		NeededReads:  needed,
		Subnet:       func() string { return sim.Subnets()[0].ID },
		NoAnnotation: "no annotation names networks that may connect",
		Overflow:     ibmlimits.Rules.Max, Full: "takes 250 rules", Unprotected: "load balancers cannot be protected",
		Widen: func(network string) {
			for _, g := range sim.MadeGroups() {
				require.NoError(t, sim.EditSecurityGroup(g.Name, func(g *ibmsim.SecurityGroup) {
					for i := range g.Rules {
						if g.Rules[i].Remote.CIDR == network {
							g.Rules[i].Remote.CIDR = everybody
						}
					}
				}))
			}
		},
		Rules: func() (lines []string) {
			for _, g := range sim.SecurityGroups() {
				for _, r := range g.Rules {
					r.ID = ""
					lines = append(lines, fmt.Sprint(g.Name, " ", r))
				}
			}
			return lines
		},
		Remove: func() { // a group that is in use cannot be deleted
			for _, g := range sim.MadeGroups() {
				for _, lb := range sim.LoadBalancers() {
					require.NoError(t, sim.EditLoadBalancer(lb.Name, func(lb *ibmsim.LoadBalancer) {
						lb.Groups = slices.DeleteFunc(lb.Groups, func(id string) bool { return id == g.ID })
					}))
				}
				require.NoError(t, sim.EditSecurityGroup(g.Name, func(g *ibmsim.SecurityGroup) { g.Rules = nil }))
			}
		},
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
}
