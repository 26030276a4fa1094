package gcesim

import (
	"maps"
	"net/netip"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves tells where the ports of forwarding rules lead. Packets arrive at the instances as they were sent, so that the port of the
// instance is that of the rule, and of a range those lead somewhere that a firewall opens.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.advance()
	ports := simkit.Ports{}
	for _, p := range slices.Sorted(maps.Keys(s.objects)) {
		rule := s.objects[p]
		if parsePath(p).collection != "forwardingRules" {
			continue
		}
		for _, protocol := range protocolsOf(rule) {
			for _, port := range s.portsOf(rule, protocol) {
				ports.Add(protocol, port, "", s.backendsOf(rule, protocol, port))
			}
		}
	}
	return ports
}

func protocolsOf(rule document) []string {
	if p := lower(rule, "IPProtocol"); p != "l3_default" {
		return []string{p}
	}
	return []string{"tcp", "udp"}
}

// portsOf are the ports that a rule names, the ends of its range, and those within it that a firewall opens.
func (s *Sim) portsOf(rule document, protocol string) []int {
	spans := append(strs(rule["ports"]), text(rule, "portRange"))
	found := map[int]bool{}
	for _, span := range spans {
		if from, to := ends(span); span != "" {
			found[from], found[to] = true, true
		}
	}
	for _, opened := range s.opened(rule, protocol, nil) {
		first, last := ends(opened)
		for port := first; port <= min(last, first+maxOpened); port++ {
			if rule["allPorts"] == true || hold(spans, port) {
				found[port] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// maxOpened is how many ports of a range that a firewall opens are looked at, and probers the network of health checks: what is open to
// them is not open to clients.
const (
	maxOpened = 16
	probers   = "130.211.0.0/22"
)

// hold reports whether a port is in one of some ranges.
func hold(spans []string, port int) bool {
	return slices.ContainsFunc(spans, func(span string) bool {
		from, to := ends(span)
		return from <= port && port <= to
	})
}

// ends are the first and the last port of a range; no range ends before it begins.
func ends(span string) (from, to int) {
	first, last, both := strings.Cut(span, "-")
	from, err := strconv.Atoi(first)
	if err != nil {
		return 1, 0
	}
	if to = from; both {
		to, _ = strconv.Atoi(last) // as it was checked
	}
	return from, to
}

// opened are the ports at the address of a rule that firewalls open on an instance, or on any.
func (s *Sim) opened(rule document, protocol string, instance document) (spans []string) {
	ip, _ := netip.ParseAddr(text(rule, "IPAddress"))
	tags, _ := instance["tags"].(map[string]any)
	for p, f := range s.objects {
		if parsePath(p).collection != "firewalls" || f["disabled"] == true || f["direction"] != "INGRESS" ||
			slices.Contains(strs(f["sourceRanges"]), probers) {
			continue
		}
		targets := strs(f["targetTags"])
		tagged := func(tag string) bool { return slices.Contains(targets, tag) }
		if instance != nil && len(targets) > 0 && !slices.ContainsFunc(strs(tags["items"]), tagged) {
			continue
		}
		to := strs(f["destinationRanges"])
		if len(to) > 0 && !slices.ContainsFunc(to, func(r string) bool { within, err := prefixOf(r); return err == nil && within.Contains(ip) }) {
			continue
		}
		entries, _ := f["allowed"].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			if lower(entry, "IPProtocol") == protocol {
				spans = append(spans, strs(entry["ports"])...)
			}
		}
	}
	return spans
}

// backendsOf are the instances behind a rule that a firewall lets its packets in to.
func (s *Sim) backendsOf(rule document, protocol string, port int) (list []string) {
	links := strs(s.objects[location{}.resource(text(rule, "target"))]["instances"])
	backends, _ := s.objects[location{}.resource(text(rule, "backendService"))]["backends"].([]any)
	for _, b := range backends {
		backend, _ := b.(map[string]any)
		links = append(links, strs(s.objects[location{}.resource(text(backend, "group"))]["members"])...)
	}
	for _, link := range links {
		if i := s.objects[location{}.resource(link)]; i != nil && hold(s.opened(rule, protocol, i), port) {
			list = append(list, simkit.Backend(path.Base(link), port))
		}
	}
	return list
}
