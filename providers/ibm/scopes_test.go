package ibm

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// scopeOf is a security group for each Service.
func scopeOf(t testing.TB, sim *ibmsim.Sim) conformance.Scope {
	t.Helper()
	const own = "a Service has a security group of its own: what is there goes with it"
	return conformance.Scope{
		Unfilled: "nobody else's rules stay in the group of a Service; TestNarrowingAtALimit fills it with its own",
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
