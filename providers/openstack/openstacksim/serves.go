package openstacksim

import (
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of load balancers lead: to members whose security groups let somebody in. What Octavia makes leads nowhere
// yet, and what it deletes still does.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	ports := simkit.Ports{}
	for _, lb := range s.loadBalancers.All() {
		words := ""
		if ip, err := netip.ParseAddr(lb.VIPAddress); err == nil && ip.Is6() {
			words = "ipv6"
		}
		for _, l := range s.listenersOf(lb.ID) {
			if lb.AdminStateUp && l.AdminStateUp && lb.ProvisioningStatus != PendingCreate && l.ProvisioningStatus != PendingCreate {
				ports.Add(transport(l.Protocol), l.ProtocolPort, words, s.membersOf(s.pools.ByID[deref(l.DefaultPoolID)]))
			}
		}
	}
	return ports
}

// membersOf are the members of a pool, which may be nil, that get traffic.
func (s *Sim) membersOf(p *Pool) (list []string) {
	if p == nil || !p.AdminStateUp || p.ProvisioningStatus == PendingCreate {
		return nil
	}
	for _, m := range p.members {
		if m.AdminStateUp && m.Weight > 0 && m.ProvisioningStatus != PendingCreate && s.opens(m.Address, transport(p.Protocol), m.ProtocolPort) {
			list = append(list, simkit.Backend(m.Address, m.ProtocolPort))
		}
	}
	return list
}

// CloseNodePorts has node ports lead nowhere that no security group opens, as where the user leaves them to the program.
func (s *Sim) CloseNodePorts() { s.mu.Do(func() { s.nodePortsClosed = true }) }

// opens reports whether somebody is let in to a port of an address.
func (s *Sim) opens(address, protocol string, port int) bool {
	if !s.nodePortsClosed {
		return true
	}
	for _, p := range s.ports.All() {
		if !slices.ContainsFunc(p.FixedIPs, func(ip FixedIP) bool { return ip.Address == address }) {
			continue
		}
		return !p.PortSecurity || slices.ContainsFunc(p.SecurityGroups, func(id string) bool {
			g := s.groups.ByID[id]
			return g != nil && slices.ContainsFunc(g.Rules, func(r SecurityRule) bool { return r.opens(protocol, port) })
		})
	}
	return true
}

// opens reports whether a rule lets somebody in to a port.
func (r SecurityRule) opens(protocol string, port int) bool {
	return r.Direction == "ingress" && (r.Protocol == nil || strings.EqualFold(*r.Protocol, protocol)) &&
		(r.Min == nil || *r.Min <= port) && (r.Max == nil || port <= *r.Max)
}
