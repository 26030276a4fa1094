package awssim

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// CutOff names the targets of a load balancer that its health checks do not reach, by the rules of the nodes' security groups.
func (s *Sim) CutOff(name string) []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	cut := []string{}
	if lb := s.classics.ByID[name]; lb != nil && lb.Check != nil {
		_, target, _ := strings.Cut(lb.Check.Target, ":")
		text, _, _ := strings.Cut(target, "/")
		port, _ := strconv.Atoi(text)
		for _, id := range lb.Instances {
			if !s.admits(id, port, lb.Groups, s.cidrs(lb.Subnets, false)) {
				cut = append(cut, fmt.Sprintf("%s:%d", id, port))
			}
		}
	}
	for _, t := range s.targets.All() {
		if s.usedBy(t) != nil && s.usedBy(t).Name == name {
			for _, one := range t.Targets {
				if !s.checked(t, one) {
					cut = append(cut, fmt.Sprintf("%s:%d", one.ID, one.Port))
				}
			}
		}
	}
	return cut
}

// usedBy is the load balancer that sends to a target group.
func (s *Sim) usedBy(t *TargetGroup) *LoadBalancer {
	for _, lb := range s.networks.All() {
		if slices.ContainsFunc(s.listenersOf(lb.ARN), func(l *Listener) bool { return l.TargetGroup == t.ARN }) {
			return lb
		}
	}
	return nil
}

// checked reports whether the checks of a target group reach a target, from each subnet of the load balancer.
func (s *Sim) checked(t *TargetGroup, one *Target) bool {
	lb := s.usedBy(t)
	if lb == nil {
		return false
	}
	port := one.Port
	if n, err := strconv.Atoi(t.CheckPort); err == nil {
		port = n
	}
	var subnets []string
	for _, m := range lb.Mappings {
		subnets = append(subnets, m.Subnet)
	}
	return s.admits(one.ID, port, lb.Groups, s.cidrs(subnets, t.AddressType == "ipv6"))
}

func (s *Sim) cidrs(subnets []string, v6 bool) []string {
	var list []string
	for _, id := range subnets {
		switch n := s.subnets.ByID[id]; {
		case n == nil:
		case v6:
			list = append(list, n.CIDRv6)
		default:
			list = append(list, n.CIDR)
		}
	}
	return list
}

// admits reports whether an instance lets TCP in to a port, from one of some groups or from all of some networks.
func (s *Sim) admits(instance string, port int, groups, networks []string) bool {
	i := s.VMs.ByID[instance]
	if i == nil || len(i.Interfaces) == 0 {
		return false
	}
	var rules []Rule
	for _, id := range i.Interfaces[0].Groups {
		if g := s.groups.ByID[id]; g != nil {
			rules = append(rules, g.Rules...)
		}
	}
	rules = slices.DeleteFunc(rules, func(r Rule) bool {
		return r.Protocol != "-1" && (r.Protocol != "tcp" || r.From > port || r.To < port)
	})
	if slices.ContainsFunc(rules, func(r Rule) bool { return r.Group != "" && slices.Contains(groups, r.Group) }) {
		return true
	}
	return !slices.ContainsFunc(networks, func(network string) bool {
		return !slices.ContainsFunc(rules, func(r Rule) bool { return within(network, r.CIDR+r.CIDRv6) })
	})
}

func within(network, rule string) bool {
	n, errN := netip.ParsePrefix(network)
	r, errR := netip.ParsePrefix(rule)
	return errN == nil && errR == nil && r.Bits() <= n.Bits() && r.Contains(n.Addr())
}
