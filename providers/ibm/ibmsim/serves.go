package ibmsim

import (
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of load balancers lead, each of a range apart.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishWork()
	ports := simkit.Ports{}
	for _, lb := range s.loadBalancers {
		if !lb.ready || lb.Provisioning == "failed" {
			continue
		}
		for _, l := range lb.Listeners {
			protocol := "tcp"
			if l.Protocol == "udp" {
				protocol = l.Protocol
			}
			backends := s.backendsOf(lb, l)
			from, to := l.span()
			for port := from; port <= to; port++ {
				if s.opens(lb, protocol, port) {
					ports.Add(protocol, port, "", backends)
				} else {
					ports.Add(protocol, port, "", nil)
				}
			}
		}
	}
	return ports
}

// backendsOf are the members of the pool of a listener, by the names of their instances.
func (s *Sim) backendsOf(lb *LoadBalancer, l Listener) (list []string) {
	at := slices.IndexFunc(lb.Pools, func(p Pool) bool { return l.Pool != nil && p.ID == l.Pool.ID })
	if at < 0 {
		return nil
	}
	for _, m := range lb.Pools[at].Members {
		for _, i := range s.VMs.All() {
			if i.ID == m.Target.ID || i.IP == m.Target.Address {
				list = append(list, simkit.Backend(i.Name, m.Port))
			}
		}
	}
	return list
}

// opens reports whether a security group of a load balancer lets anybody in to a port. The default group of a VPC is open here: its rules
// are the user's.
func (s *Sim) opens(lb *LoadBalancer, protocol string, port int) bool {
	return len(lb.Groups) == 0 || slices.ContainsFunc(s.groups, func(g SecurityGroup) bool {
		return slices.Contains(lb.Groups, g.ID) && (g.isDefault || slices.ContainsFunc(g.Rules, func(r Rule) bool {
			all := r.PortMin == 0 && r.PortMax == 0
			return r.Direction == "inbound" && slices.Contains([]string{"any", "all", protocol}, r.Protocol) &&
				(all || r.PortMin <= port && port <= r.PortMax)
		}))
	})
}
