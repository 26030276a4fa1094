package gce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestServes: the simulator reports backends for the Service's ports of either scheme, and none for a port that no firewall opens.
func TestServes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, kind := range []map[string]string{{}, {annotationType: "Internal"}} {
			w := newTestWorld(t, usual)
			w.withIdentity()
			w.addNode(gcesim.Spec{Name: "n1"})
			time.Sleep(time.Minute) // until the cached listing has expired
			w.addNode(gcesim.Spec{Name: "n2"})
			s := w.apply(conformance.Service("web", kind, conformance.Port("http", 80, 30080), conformance.Port("https", 443, 30443)))
			s, _ = w.ensure(s)
			assert.Equal(t, map[string][]string{"tcp/80": {"n1:80", "n2:80"}, "tcp/443": {"n1:443", "n2:443"}}, w.sim.Serves())
			s.Spec.Ports, w.nodes = s.Spec.Ports[:1], w.nodes[:1]
			w.ensure(w.write(s))
			assert.Equal(t, map[string][]string{"tcp/80": {"n1:80"}}, w.sim.Serves())
			for _, f := range w.sim.Objects("firewalls") {
				w.sim.Edit("firewalls", f["name"].(string), nil)
			}
			assert.Equal(t, map[string][]string{"tcp/80": nil}, w.sim.Serves())
			for _, rule := range w.sim.Objects("forwardingRules") {
				w.sim.Edit("forwardingRules", rule["name"].(string), nil)
			}
			assert.Empty(t, w.sim.Serves())
		}
	})
}
