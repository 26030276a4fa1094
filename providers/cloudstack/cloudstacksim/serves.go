package cloudstacksim

import (
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the public ports of load balancer rules lead. A port that no firewall rule of its address opens leads nowhere.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	ports := simkit.Ports{}
	for _, r := range s.rules.All() {
		protocol := "tcp"
		if r.Protocol == "udp" {
			protocol = r.Protocol
		}
		var backends []string
		for _, m := range r.Members {
			if v := s.VMs.ByID[m.VM]; v != nil && s.opens(r, protocol) {
				backends = append(backends, simkit.Backend(v.Name, r.PrivatePort))
			}
		}
		ports.Add(protocol, r.PublicPort, "", backends)
	}
	return ports
}

// opens reports whether the firewall of an isolated network, or the list of a tier, lets somebody in to a rule.
func (s *Sim) opens(r *Rule, protocol string) bool {
	n := s.networks.ByID[r.Network]
	covers := func(p string, start, end int) bool {
		return p == "all" || p == protocol && start <= r.PublicPort && r.PublicPort <= end
	}
	if n.VPC == "" {
		return !n.offers("Firewall") || slices.ContainsFunc(s.firewalls.All(), func(f *Firewall) bool {
			return f.Address == r.Address && f.State == ruleActive && covers(f.Protocol, f.Start, f.End)
		})
	}
	if l := s.aclLists.ByID[n.ACL]; l == nil || l.Name == listAllow {
		return l != nil
	}
	return slices.ContainsFunc(s.aclItems.All(), func(i *ACLItem) bool {
		return i.List == n.ACL && i.Traffic == "Ingress" && i.Action == "Allow" && i.State == ruleActive && covers(i.Protocol, i.Start, i.End)
	})
}
