package azure

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestServes: where the simulated cloud says that ports lead is what the Service wants, and a public port that no security rule opens leads
// nowhere.
func TestServes(t *testing.T) {
	t.Parallel()
	https := func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("https", 443, 30443)) }
	both := func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol} }
	for name, c := range map[string]struct {
		service *v1.Service
		prepare func(w *world)
		want    map[string][]string
	}{
		"two families": {
			webService(nil, https, both), nil, map[string][]string{
				"tcp/80": {"n1:80", "n2:80"}, "tcp/80 ipv6": {"n1:80", "n2:80"}, "tcp/443": {"n1:443", "n2:443"}, "tcp/443 ipv6": {"n1:443", "n2:443"},
			},
		},
		"at the node ports": {
			webService(map[string]string{annotationNoFloating: "true"}, https), nil, map[string][]string{
				"tcp/80": {"n1:30080", "n2:30080"}, "tcp/443": {"n1:30443", "n2:30443"},
			},
		},
		"all ports of an internal address": {
			webService(map[string]string{annotationInternal: "true", annotationAllPorts: "true"}, https), nil, map[string][]string{
				"all/0": {"n1:0", "n2:0"},
			},
		},
		"members by address": {
			webService(nil, https), (*world).byAddress, map[string][]string{
				"tcp/80": {"n1:80", "n2:80"}, "tcp/443": {"n1:443", "n2:443"},
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				if c.prepare != nil {
					c.prepare(w)
				}
				w.join("n1")
				w.join("n2")
				w.Apply(c.service)
				w.ensure(c.service)
				ports := w.sim.Serves()
				nameBackends(w, ports)
				assert.Equal(w, c.want, ports)
				if c.service.Annotations[annotationInternal] == "" {
					require.NoError(w, w.sim.Change(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), func(doc map[string]any) {
						doc["properties"].(map[string]any)["securityRules"] = []any{}
					}))
					for port := range c.want {
						assert.Empty(w, w.sim.Serves()[port], port)
						assert.Contains(w, w.sim.Serves(), port)
					}
				}
				w.remove(c.service)
				assert.Empty(w, w.sim.Serves())
			})
		})
	}
}

// nameBackends puts the names of nodes in the place of their addresses.
func nameBackends(w *world, ports map[string][]string) {
	for _, backends := range ports {
		for i := range backends {
			for _, n := range w.nodes {
				backends[i] = strings.Replace(backends[i], internalIP(n, false)+":", n.Name+":", 1)
			}
		}
		slices.Sort(backends)
	}
}
