package simkit

import (
	"fmt"
	"slices"
	"strings"
)

// Ports maps ports of load balancers to backends: "tcp/80" to "10.0.0.4:30080" and others.
type Ports map[string][]string

// Add adds a port with its backends. The words distinguish equal ports; if those are equal too, a number is added.
func (p Ports) Add(protocol string, port int, words string, backends []string) {
	key := strings.TrimSpace(fmt.Sprintf("%s/%d %s", strings.ToLower(protocol), port, words))
	for _, taken := p[key]; taken; _, taken = p[key] {
		key += " another"
	}
	p[key] = slices.Compact(slices.Sorted(slices.Values(backends)))
}

// Backend returns the text for a backend's port.
func Backend(name string, port int) string { return fmt.Sprintf("%s:%d", name, port) }
