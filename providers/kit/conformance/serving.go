package conformance

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"
)

// serving is where the ports lead to after each call of a step.
type serving struct {
	mu      sync.Mutex
	samples []sample
}

// sample is where the ports lead to after a call.
type sample struct {
	call  string
	ports map[string][]string
}

// begin forgets the samples of the step before.
func (s *serving) begin(ports map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples = []sample{{"", ports}}
}

func (s *serving) add(call string, ports map[string][]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if last := s.samples[len(s.samples)-1]; !maps.EqualFunc(last.ports, ports, slices.Equal) {
		s.samples = append(s.samples, sample{call, ports})
	}
}

// findGaps returns the ports that led somewhere before and after the step, and meanwhile nowhere, or where they led neither before nor
// afterwards.
func (s *serving) findGaps(after map[string][]string) (gaps []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.samples[0].ports
	for _, port := range sortedKeys(after) {
		if len(after[port]) == 0 || len(before[port]) == 0 {
			continue
		}
		for _, sample := range s.samples {
			elsewhere := slices.DeleteFunc(slices.Clone(sample.ports[port]), func(backend string) bool {
				return slices.Contains(before[port], backend) || slices.Contains(after[port], backend)
			})
			if len(sample.ports[port]) == 0 {
				gaps = append(gaps, port+" leads nowhere after "+sample.call)
				break
			}
			if len(elsewhere) > 0 {
				gaps = append(gaps, fmt.Sprintf("%s leads elsewhere after %s: %v", port, sample.call, elsewhere))
				break
			}
		}
	}
	return gaps
}

// watch looks after each call where the ports lead to, and what the identities in the cloud are called.
func (p *Play) watch() {
	p.w.Sim.Inspect(func(r *http.Request, body []byte, _ func(*http.Request) *httptest.ResponseRecorder) func() {
		operation, write := p.w.Sim.Operation(r)
		if write && p.w.Documents != nil {
			p.text.learnDocument(r, body, p.w.Documents)
		}
		return func() {
			p.text.names.learn(p.w)
			p.serving.add(operation, p.readPorts())
		}
	})
}

// readPorts returns where the ports lead to, with backends by the name of their node.
func (p *Play) readPorts() map[string][]string {
	if p.w.Serves == nil {
		return nil
	}
	ports := map[string][]string{}
	for port, backends := range p.w.Serves() {
		named := make([]string, len(backends))
		for i, b := range backends {
			named[i] = p.text.names.apply(b)
		}
		slices.Sort(named)
		ports[port] = slices.Compact(named)
	}
	return ports
}

// listWanted returns where the Services want their ports to lead, by the port and its family. Two Services may have the same port.
func (p *Play) listWanted() map[string][][]string {
	wanted := map[string][][]string{}
	for _, s := range p.services {
		served := p.served[s.Name]
		if served == nil {
			continue
		}
		for _, port := range served.Spec.Ports {
			var all []string
			for _, n := range p.w.nodes {
				all = append(all, fmt.Sprintf("%s:%d", n.Name, p.chooseTarget(served, port)))
			}
			slices.Sort(all)
			for _, family := range p.w.listFamilies(served) {
				key := fmt.Sprintf("%s/%d%s", strings.ToLower(string(port.Protocol)), port.Port, family)
				wanted[key] = append(wanted[key], all)
			}
		}
	}
	return wanted
}

// ofIPv6 stands behind the ports of IPv6 in what Serves says.
const ofIPv6 = " ipv6"

// listFamilies returns what stands behind the ports of a Service, for each of its families that has ports of its own.
func (w *world) listFamilies(s *v1.Service) (words []string) {
	if !w.EachFamily || len(s.Spec.IPFamilies) == 0 {
		return []string{""}
	}
	for _, family := range s.Spec.IPFamilies {
		words = append(words, map[v1.IPFamily]string{v1.IPv6Protocol: ofIPv6}[family])
	}
	return words
}

// findUnserved returns the ports that do not lead where their Services want them to, and those that no Service has.
func (p *Play) findUnserved(ports map[string][]string) (wrong []string) {
	wanted, found := p.listWanted(), map[string][][]string{}
	for _, key := range sortedKeys(ports) {
		port, words, _ := strings.Cut(key, " ")
		if p.w.EachFamily && strings.HasPrefix(" "+words, ofIPv6) {
			port += ofIPv6
		}
		found[port] = append(found[port], ports[key])
		switch want, ok := wanted[port]; {
		case !ok:
			wrong = append(wrong, key+" serves, and no Service has it")
		case !slices.ContainsFunc(want, func(all []string) bool { return slices.Equal(all, ports[key]) }):
			wrong = append(wrong, fmt.Sprintf("%s leads to %v, not to %v", key, ports[key], want[min(len(found[port]), len(want))-1]))
		}
	}
	for _, port := range sortedKeys(wanted) {
		if len(found[port]) < len(wanted[port]) {
			wrong = append(wrong, port+" does not serve")
		}
	}
	return wrong
}

// chooseTarget returns the port of the nodes to which a port of a Service leads.
func (p *Play) chooseTarget(s *v1.Service, port v1.ServicePort) int32 {
	if p.w.Target != nil {
		return p.w.Target(s, port)
	}
	return port.NodePort
}
