package ocisim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the listeners of load balancers of both kinds lead.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.settle()
	ports := simkit.Ports{}
	for _, lb := range s.balancers {
		addListeners(ports, lb.State, lb.Doc)
	}
	for _, lb := range s.nlbs {
		addListeners(ports, lb.State, lb.Doc)
	}
	return ports
}

// addListeners adds the listeners of a load balancer that is there.
func addListeners(ports simkit.Ports, state string, d document) {
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
		for _, protocol := range protocols {
			ports.Add(protocol, numberOf(l["port"]), words, backendsOf(part(part(d, "backendSets"), fmt.Sprint(l["defaultBackendSetName"]))))
		}
	}
}

// backendsOf are the backends of a set that get traffic.
func backendsOf(set document) (all []string) {
	for _, v := range list(set["backends"]) {
		b, _ := v.(document)
		out := false
		for _, flag := range []string{"drain", "offline", "isDrain", "isOffline"} {
			out = out || b[flag] == true
		}
		if target := b["targetId"]; target != nil && !out {
			all = append(all, simkit.Backend(fmt.Sprint(target), numberOf(b["port"])))
		} else if !out {
			all = append(all, simkit.Backend(fmt.Sprint(b["ipAddress"]), numberOf(b["port"])))
		}
	}
	return all
}

// numberOf is a number of a document.
func numberOf(v any) int {
	n, _ := v.(float64)
	return int(n)
}
