package linodesim

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of NodeBalancers lead, which are the same for IPv4 and IPv6. One that its firewalls let nobody in to leads
// nowhere.
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
			if !s.opens(nb.ID, protocol, c.Port) {
				backends = nil
			}
			ports.Add(protocol, c.Port, "", backends)
		}
	}
	return ports
}

// opens reports whether each firewall of a NodeBalancer lets anybody in to a port.
func (s *Sim) opens(nodeBalancer int, protocol string, port int) bool {
	for _, f := range s.firewalls {
		if slices.Contains(f.Devices(), nodeBalancer) && !f.opens(protocol, port) {
			return false
		}
	}
	return true
}

// opens reports whether a firewall lets anybody in to a port: the first rule about somebody decides.
func (f *Firewall) opens(protocol string, port int) bool {
	for _, r := range f.Rules.Inbound {
		if !strings.EqualFold(r.Protocol, protocol) || !hasPort(r.Ports, port) {
			continue
		}
		if r.Action == "ACCEPT" {
			return true
		}
		if r.Addresses.everybody() {
			return false
		}
	}
	return f.Rules.InboundPolicy == "ACCEPT"
}

// hasPort reports whether a port is among those of a rule: "80,443,8000-8010", or all.
func hasPort(ports string, port int) bool {
	for piece := range strings.SplitSeq(ports, ",") {
		from, to, isRange := strings.Cut(strings.TrimSpace(piece), "-")
		first, _ := strconv.Atoi(from)
		last, _ := strconv.Atoi(to)
		if !isRange {
			last = first
		}
		if first <= port && port <= last {
			return true
		}
	}
	return ports == ""
}

// everybody reports whether all addresses of IPv4 are among those of a rule.
func (a Addresses) everybody() bool { return a.IPv4 != nil && slices.Contains(*a.IPv4, "0.0.0.0/0") }
