package simkit

import (
	"fmt"
	"slices"
	"strings"
)

// Ports are where the ports of load balancers lead: "tcp/80" to "10.0.0.4:30080" and others.
type Ports map[string][]string

// Add adds a port that leads to some backends. The words tell apart what has the same port; where they do not, one more is added.
func (p Ports) Add(protocol string, port int, words string, backends []string) {
	key := strings.TrimSpace(fmt.Sprintf("%s/%d %s", strings.ToLower(protocol), port, words))
	for _, taken := p[key]; taken; _, taken = p[key] {
		key += " another"
	}
	p[key] = slices.Compact(slices.Sorted(slices.Values(backends)))
}

// Backend is a backend at a port of it.
func Backend(name string, port int) string { return fmt.Sprintf("%s:%d", name, port) }
