package linode

import (
	"encoding/json"
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// scopeOf is a firewall for each NodeBalancer.
func scopeOf(sim *linodesim.Sim) conformance.Scope {
	const own = "a Service has a firewall of its own, which is written as a whole and knows no version: what others write there goes"
	return conformance.Scope{
		Unfilled: "nobody else's rules stay in the firewall of a Service; TestNarrowingAtALimit fills it with its own",
		Rules: func() (lines []string) {
			for _, f := range sim.Firewalls() {
				text, _ := json.Marshal(f.Rules.Inbound) // it was JSON
				lines = append(lines, fmt.Sprint(len(f.Devices()), " ", f.Rules.InboundPolicy, " ", string(text)))
			}
			return lines
		},
		Remove: sim.RemoveFirewalls,
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
}
