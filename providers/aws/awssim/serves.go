package awssim

import (
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves returns the instances behind the ports of all load balancers, if their security groups let clients in.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := simkit.Ports{}
	for _, lb := range s.classics.All() {
		for _, l := range lb.Listeners {
			var backends []string
			for _, id := range lb.Instances {
				if s.opens(id, "tcp", l.InstancePort) {
					backends = append(backends, simkit.Backend(id, l.InstancePort))
				}
			}
			ports.Add("tcp", l.Port, "", backends)
		}
	}
	for _, lb := range s.networks.All() {
		for _, l := range s.listenersOf(lb.ARN) {
			if s.stateOf(lb) == "active" {
				s.addListener(ports, l)
			}
		}
	}
	return ports
}

// addListener adds a listener of a load balancer of the second generation, which may be of two protocols.
func (s *Sim) addListener(ports simkit.Ports, l *Listener) {
	for protocol := range strings.SplitSeq(strings.ReplaceAll(strings.ToLower(l.Protocol), "tls", "tcp"), "_") {
		var backends []string
		if t := s.targets.ByID[l.TargetGroup]; t != nil {
			for _, one := range t.Targets {
				if s.opens(one.ID, protocol, one.Port) {
					backends = append(backends, simkit.Backend(one.ID, one.Port))
				}
			}
		}
		ports.Add(protocol, l.Port, "", backends)
	}
}

// opens reports whether a security group of an instance that is there lets anybody in to a port.
func (s *Sim) opens(instance, protocol string, port int) bool {
	i := s.VMs.ByID[instance]
	return i != nil && len(i.Interfaces) > 0 && slices.ContainsFunc(i.Interfaces[0].Groups, func(id string) bool {
		g := s.groups.ByID[id]
		return g != nil && slices.ContainsFunc(g.Rules, func(r Rule) bool {
			return r.Protocol == "-1" || r.Protocol == protocol && r.From <= port && port <= r.To
		})
	})
}
