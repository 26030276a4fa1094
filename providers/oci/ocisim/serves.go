package ocisim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the listeners of load balancers of both kinds lead: to backends whose security lists or groups let somebody in, where
// those of the load balancer do, too.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	ports := simkit.Ports{}
	for _, lb := range s.balancers {
		s.addListeners(ports, lb.State, lb.Doc)
	}
	for _, lb := range s.nlbs {
		s.addListeners(ports, lb.State, lb.Doc)
	}
	return ports
}

// OpenByHand has all ports be open whatever lists and groups say, as where the user opens them.
func (s *Sim) OpenByHand() { s.mu.Do(func() { s.opened = true }) }

// addListeners adds the listeners of a load balancer that is there.
func (s *Sim) addListeners(ports simkit.Ports, state string, d document) {
	if state == stateCreating || state == stateFailed || state == stateDeleted {
		return
	}
	listeners := part(d, "listeners")
	for _, name := range slices.Sorted(maps.Keys(listeners)) {
		l := part(listeners, name)
		protocols, words := []string{"tcp"}, ""
		switch l["protocol"] {
		case "UDP":
			protocols = []string{"udp"}
		case "TCP_AND_UDP":
			protocols = []string{"tcp", "udp"}
		}
		if l["ipVersion"] == versionIPv6 {
			words = "ipv6"
		}
		subnets := append(slices.Clone(list(d["subnetIds"])), d["subnetId"])
		for _, protocol := range protocols {
			var backends []string
			if s.opens(subnets, list(d["networkSecurityGroupIds"]), protocol, numberOf(l["port"])) {
				backends = s.backendsOf(part(part(d, "backendSets"), fmt.Sprint(l["defaultBackendSetName"])), protocol)
			}
			ports.Add(protocol, numberOf(l["port"]), words, backends)
		}
	}
}

// backendsOf are the backends of a set that get traffic.
func (s *Sim) backendsOf(set document, protocol string) (all []string) {
	for _, v := range list(set["backends"]) {
		b, _ := v.(document)
		out := false
		for _, flag := range []string{"drain", "offline", "isDrain", "isOffline"} {
			out = out || b[flag] == true
		}
		target := fmt.Sprint(b["ipAddress"])
		if id := b["targetId"]; id != nil {
			target = fmt.Sprint(id)
		}
		if !out && s.opensBackend(target, protocol, numberOf(b["port"])) {
			all = append(all, simkit.Backend(target, numberOf(b["port"])))
		}
	}
	return all
}

// opensBackend reports whether somebody is let in to a port of an instance, which is in all groups of the user's.
func (s *Sim) opensBackend(target, protocol string, port int) bool {
	groups := make([]any, len(s.groups))
	for i, g := range s.groups {
		groups[i] = g.id
	}
	for _, i := range s.VMs.All() {
		for _, v := range i.vnics {
			if i.ID == target || v.PrivateIP == target || slices.Contains(v.IPv6, target) {
				return s.opens([]any{v.Subnet}, groups, protocol, port)
			}
		}
	}
	return s.opened
}

// opens reports whether a security list of the subnets, or one of the groups, lets somebody in to a port.
func (s *Sim) opens(subnets, groups []any, protocol string, port int) bool {
	s.listsOnce()
	var rules []document
	for _, id := range subnets {
		subnet, _ := s.subnet(fmt.Sprint(id))
		lists, _ := subnet["securityListIds"].([]string)
		for _, list := range lists {
			rules = append(rules, ingressOf(find(s.lists, list))...)
		}
	}
	for _, id := range groups {
		if g := find(s.groups, fmt.Sprint(id)); g != nil {
			rules = append(rules, g.rules...)
		}
	}
	return s.opened || slices.ContainsFunc(rules, func(r document) bool { return opensPort(r, protocol, port) })
}

// ingressOf are the rules of a security list for what comes in.
func ingressOf(g *guarded) (rules []document) {
	if g != nil {
		for _, v := range list(g.doc[ingressField]) {
			if r, ok := v.(document); ok {
				rules = append(rules, r)
			}
		}
	}
	return rules
}

// opensPort reports whether a rule lets somebody in to a port.
func opensPort(r document, protocol string, port int) bool {
	number := map[string]string{"tcp": "6", "udp": "17"}[protocol]
	if r["direction"] == "EGRESS" || r["protocol"] != "all" && r["protocol"] != number {
		return false
	}
	ports := part(part(r, protocol+"Options"), "destinationPortRange")
	return ports == nil || numberOf(ports["min"]) <= port && port <= numberOf(ports["max"])
}

// numberOf is a number of a document.
func numberOf(v any) int {
	n, _ := v.(float64)
	return int(n)
}
