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

// Serves returns the backends of the forwarding rules' ports. Packets keep their destination port; of a range only ports opened by a
// firewall count.
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

// portsOf returns a rule's ports: listed ones, the ends of its range, and those within it that a firewall opens.
func (s *Sim) portsOf(rule document, protocol string) []int {
	spans := append(textsOf(rule["ports"]), text(rule, "portRange"))
	found := map[int]bool{}
	for _, span := range spans {
		if from, to := rangeEnds(span); span != "" {
			found[from], found[to] = true, true
		}
	}
	for _, opened := range s.openedPorts(rule, protocol, nil) {
		first, last := rangeEnds(opened)
		for port := first; port <= min(last, first+maxOpened); port++ {
			if rule["allPorts"] == true || containPort(spans, port) {
				found[port] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// maxOpened limits the ports examined in an opened range. probers is the health checkers' network, which is not for clients.
const (
	maxOpened = 16
	probers   = "130.211.0.0/22"
)

func containPort(spans []string, port int) bool {
	return slices.ContainsFunc(spans, func(span string) bool {
		from, to := rangeEnds(span)
		return from <= port && port <= to
	})
}

// rangeEnds returns the first and last port of a range; the last is at least the first.
func rangeEnds(span string) (from, to int) {
	first, last, both := strings.Cut(span, "-")
	from, err := strconv.Atoi(first)
	if err != nil {
		return 1, 0
	}
	if to = from; both {
		to, _ = strconv.Atoi(last) // already validated
	}
	return from, to
}

// openedPorts returns the ports at a rule's address that firewalls open on an instance, or on any.
func (s *Sim) openedPorts(rule document, protocol string, instance document) (spans []string) {
	ip, _ := netip.ParseAddr(text(rule, "IPAddress"))
	tags, _ := instance["tags"].(map[string]any)
	for p, f := range s.objects {
		if parsePath(p).collection != "firewalls" || f["disabled"] == true || f["direction"] != "INGRESS" ||
			slices.Contains(textsOf(f["sourceRanges"]), probers) {
			continue
		}
		targets := textsOf(f["targetTags"])
		tagged := func(tag string) bool { return slices.Contains(targets, tag) }
		if instance != nil && len(targets) > 0 && !slices.ContainsFunc(textsOf(tags["items"]), tagged) {
			continue
		}
		to := textsOf(f["destinationRanges"])
		if len(to) > 0 && !slices.ContainsFunc(to, func(r string) bool { within, err := prefixOf(r); return err == nil && within.Contains(ip) }) {
			continue
		}
		entries, _ := f["allowed"].([]any)
		for _, e := range entries {
			entry, _ := e.(map[string]any)
			if lower(entry, "IPProtocol") == protocol {
				spans = append(spans, textsOf(entry["ports"])...)
			}
		}
	}
	return spans
}

// backendsOf returns the instances behind a rule whose firewall admits its packets.
func (s *Sim) backendsOf(rule document, protocol string, port int) (list []string) {
	links := textsOf(s.objects[location{}.resource(text(rule, "target"))]["instances"])
	backends, _ := s.objects[location{}.resource(text(rule, "backendService"))]["backends"].([]any)
	for _, b := range backends {
		backend, _ := b.(map[string]any)
		links = append(links, textsOf(s.objects[location{}.resource(text(backend, "group"))]["members"])...)
	}
	for _, link := range links {
		if i := s.objects[location{}.resource(link)]; i != nil && containPort(s.openedPorts(rule, protocol, i), port) {
			list = append(list, simkit.Backend(path.Base(link), port))
		}
	}
	return list
}
