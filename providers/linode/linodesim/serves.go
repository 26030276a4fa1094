package linodesim

import (
	"net/netip"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of NodeBalancers lead, which are the same for IPv4 and IPv6.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := simkit.Ports{}
	for _, nb := range sorted(s.nodeBalancers) {
		for _, c := range sorted(nb.configs) {
			var backends []string
			for _, n := range c.nodes {
				at, err := netip.ParseAddrPort(n.Address)
				if err == nil && !slices.Contains([]string{"reject", "drain"}, n.Mode) {
					backends = append(backends, simkit.Backend(at.Addr().String(), int(at.Port())))
				}
			}
			protocol := "tcp"
			if c.Protocol == "udp" {
				protocol = c.Protocol
			}
			ports.Add(protocol, c.Port, "", backends)
		}
	}
	return ports
}
