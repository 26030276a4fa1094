package linode

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"GET /v4/nodebalancers",
	"GET /v4/networking/firewalls",
}

// scopeOf is a firewall for each NodeBalancer.
func scopeOf(sim *linodesim.Sim) conformance.Scope {
	const own = "a Service has a firewall of its own, which is written as a whole and knows no version: what others write there goes"
	return conformance.Scope{
		NeededReads: needed,
		Overflow:    maxNetworks() + 1, Full: "room for 6375", Unprotected: "NodeBalancers cannot be protected",
		NoSubnet:   "who may connect does not depend on subnets",
		OneClosing: "the firewall is written as a whole", Annotation: func(network string) (key, value string) {
			return annotationFirewallACL, fmt.Sprintf(`{"allowList": {"ipv4": [%q]}}`, network)
		},
		NotUDP: "firewalls of NodeBalancers filter TCP alone",
		Widen: func(network string) {
			for _, f := range sim.Firewalls() {
				sim.ChangeFirewall(f.ID, func(f *linodesim.Firewall) {
					for i, r := range f.Rules.Inbound {
						if r.Addresses.IPv4 != nil && slices.Contains(*r.Addresses.IPv4, network) {
							f.Rules.Inbound[i].Addresses.IPv4 = &[]string{anyIPv4}
						}
					}
				})
			}
		},
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
