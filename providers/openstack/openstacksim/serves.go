package openstacksim

import (
	"net/netip"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of load balancers lead. What Octavia makes leads nowhere yet, and what it deletes still does.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	ports := simkit.Ports{}
	for _, lb := range s.loadBalancers.all() {
		words := ""
		if ip, err := netip.ParseAddr(lb.VIPAddress); err == nil && ip.Is6() {
			words = "ipv6"
		}
		for _, l := range s.listenersOf(lb.ID) {
			if lb.AdminStateUp && l.AdminStateUp && lb.ProvisioningStatus != PendingCreate && l.ProvisioningStatus != PendingCreate {
				ports.Add(transport(l.Protocol), l.ProtocolPort, words, membersOf(s.pools.byID[deref(l.DefaultPoolID)]))
			}
		}
	}
	return ports
}

// membersOf are the members of a pool, which may be nil, that get traffic.
func membersOf(p *Pool) (list []string) {
	if p == nil || !p.AdminStateUp || p.ProvisioningStatus == PendingCreate {
		return nil
	}
	for _, m := range p.members {
		if m.AdminStateUp && m.Weight > 0 && m.ProvisioningStatus != PendingCreate {
			list = append(list, simkit.Backend(m.Address, m.ProtocolPort))
		}
	}
	return list
}
