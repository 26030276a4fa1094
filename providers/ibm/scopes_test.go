package ibm

import (
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// scopeOf is a security group for each Service.
func scopeOf(sim *ibmsim.Sim) conformance.Scope {
	const own = "a Service has a security group of its own: what is there goes with it"
	return conformance.Scope{
		Rules: func() (lines []string) {
			for _, g := range sim.SecurityGroups() {
				for _, r := range g.Rules {
					r.ID = ""
					lines = append(lines, fmt.Sprint(g.Name, " ", r))
				}
			}
			return lines
		},
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
}
