package digitaloceansim

import (
	"strconv"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of load balancers lead. Backends are named by the IDs of their droplets.
func (s *Sim) Serves() map[string][]string {
	ports := simkit.Ports{}
	for _, lb := range s.LoadBalancers() {
		for _, r := range lb.ForwardingRules {
			var backends []string
			for _, d := range lb.DropletIDs {
				backends = append(backends, simkit.Backend(strconv.Itoa(d), r.TargetPort))
			}
			protocol := "tcp"
			if r.EntryProtocol == "udp" || r.EntryProtocol == "http3" {
				protocol = "udp"
			}
			ports.Add(protocol, r.EntryPort, "", backends)
		}
	}
	return ports
}
