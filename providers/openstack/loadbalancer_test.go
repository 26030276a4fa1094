package openstack

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// newServedWorld returns a world with two nodes and a Service that is served.
func newServedWorld(t *testing.T, file string, s *v1.Service) (*world, *v1.Service) {
	t.Helper()
	w := newTestWorld(t, file, nil)
	w.addNode(openstacksim.Spec{Name: "n1"})
	w.addNode(openstacksim.Spec{Name: "n2"})
	w.Apply(s)
	now, _ := w.ensure(s)
	require.Empty(t, w.server.Calls().Refused)
	return w, now
}

func web(annotations map[string]string) *v1.Service {
	return service("web", annotations, servicePort("http", 80, 30080))
}

// changed applies a change of a Service and reconciles it.
func (w *world) changed(s *v1.Service, change func(*v1.Service)) (*v1.Service, *v1.LoadBalancerStatus) {
	w.T.Helper()
	now := w.Current(s)
	change(now)
	w.Apply(now)
	return w.ensure(now)
}

func (w *world) requireNoWrites(s *v1.Service) {
	w.T.Helper()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(w.T, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
}

// TestNodeSelector: only nodes with the labels are members; an empty annotation overrules the option.
func TestNodeSelector(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		option string
		given  *string
		want   []string
	}{
		"none":                 {"", nil, []string{"n1", "n2"}},
		"the option":           {"pool=edge", nil, []string{"n1"}},
		"the annotation":       {"pool=edge", new("zone"), []string{"n2"}},
		"all of several":       {"", new("pool=edge, zone"), nil},
		"a value with a sign":  {"", new("mark=a=b"), []string{"n2"}},
		"an empty annotation":  {"pool=edge", new(""), []string{"n1", "n2"}},
		"an empty label value": {"", new("zone="), nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				file := ""
				if c.option != "" {
					file = fmt.Sprintf("node-selector = %q\n", c.option)
				}
				w := newTestWorld(t, file, nil)
				w.addNode(openstacksim.Spec{Name: "n1"}).Labels = map[string]string{"pool": "edge"}
				w.addNode(openstacksim.Spec{Name: "n2"}).Labels = map[string]string{"zone": "a", "mark": "a=b"}
				annotations := map[string]string{}
				if c.given != nil {
					annotations[annotationNodeSelector] = *c.given
				}
				s := web(annotations)
				w.Apply(s)
				w.ensure(s)
				var names []string
				for _, m := range w.sim.Pools()[0].BackendMembers() {
					names = append(names, m.Name)
				}
				assert.Equal(t, c.want, names)
			})
		})
	}
}

// TestStatus: what a Service shows.
func TestStatus(t *testing.T) {
	t.Parallel()
	vip, proxied := v1.LoadBalancerIPModeVIP, v1.LoadBalancerIPModeProxy
	suffix := loadBalancerConfig{IngressHostname: true, HostnameSuffix: "nip.io"}
	for name, c := range map[string]struct {
		s    settings
		o    loadBalancerConfig
		more []string
		want []v1.LoadBalancerIngress
	}{
		"an address":              {settings{}, suffix, nil, []v1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &vip}}},
		"with the PROXY protocol": {settings{Proxy: "v2"}, loadBalancerConfig{}, nil, []v1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &proxied}}},
		"and a hostname for it":   {settings{Proxy: textTrue}, suffix, nil, []v1.LoadBalancerIngress{{Hostname: "192.0.2.1.nip.io"}}},
		"a hostname of its own":   {settings{Proxy: textTrue, Hostname: "web.example.com"}, suffix, nil, []v1.LoadBalancerIngress{{Hostname: "web.example.com"}}},
		"two families": {
			settings{},
			suffix,
			[]string{"2001:db8::1"},
			[]v1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &vip}, {IP: "2001:db8::1", IPMode: &vip}},
		},
	} {
		assert.Equal(t, c.want, statusOf("192.0.2.1", c.more, c.s, c.o).Ingress, name)
	}
}

// TestCertificates: a reference must exist where barbican keeps it; adding and removing it changes the listener's protocol,
// which Octavia cannot do in place.
func TestCertificates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		ref := w.sim.AddContainer("containers", w.url+"/key-manager")
		s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationTLSContainerRef] = ref })
		l := w.sim.Listeners()
		require.Len(t, l, 1)
		assert.Equal(t, "TERMINATED_HTTPS", l[0].Protocol)
		assert.Equal(t, ref, deref(l[0].TLSRef))
		assert.Equal(t, "HTTP", w.sim.Pools()[0].Protocol)
		w.requireNoWrites(s)

		other := w.sim.AddContainer("secrets", w.url+"/key-manager")
		id := l[0].ID
		s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationTLSContainerRef] = other })
		assert.Equal(t, id, w.sim.Listeners()[0].ID, "another reference is set in place")
		assert.Equal(t, other, deref(w.sim.Listeners()[0].TLSRef))

		s, _ = w.changed(s, func(s *v1.Service) { delete(s.Annotations, annotationTLSContainerRef) })
		assert.Equal(t, "TCP", w.sim.Listeners()[0].Protocol)
		s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationForwardedFor] = textTrue })
		assert.Equal(t, "HTTP", w.sim.Listeners()[0].Protocol)
		assert.Len(t, w.sim.Pools(), 1)
		assert.Empty(t, w.server.Calls().Refused)

		now := w.Current(s)
		now.Annotations[annotationTLSContainerRef] = w.url + "/key-manager/v1/containers/" + someID
		w.Apply(now)
		w.server.ResetCalls()
		_, err := w.try(now)
		require.ErrorContains(t, err, "is not in the key manager")
		assert.Zero(t, w.server.Calls().Writes)

		external, _ := newServedWorld(t, "container-store = external\n", web(map[string]string{annotationTLSContainerRef: "vault://web"}))
		assert.Equal(t, "vault://web", deref(external.sim.Listeners()[0].TLSRef))
	})
}

// TestProtocolsOfPorts: TLS and headers are for TCP; UDP and TCP share a port number.
func TestProtocolsOfPorts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		udp, sctp := servicePort("udp", 80, 30081), servicePort("sctp", 90, 30082)
		udp.Protocol, sctp.Protocol = v1.ProtocolUDP, v1.ProtocolSCTP
		s := service("web", map[string]string{annotationForwardedFor: textTrue}, servicePort("http", 80, 30080), udp, sctp)
		w, s := newServedWorld(t, "", s)
		var protocols []string
		for _, l := range w.sim.Listeners() {
			protocols = append(protocols, fmt.Sprint(l.Protocol, " ", l.ProtocolPort, " ", len(l.InsertHeaders)))
		}
		assert.ElementsMatch(t, []string{"HTTP 80 1", "UDP 80 0", "SCTP 90 0"}, protocols)
		_, _ = w.changed(s, func(s *v1.Service) {
			delete(s.Annotations, annotationForwardedFor)
			s.Annotations[annotationProxyProtocol] = textTrue
		})
		for _, p := range w.sim.Pools() {
			assert.Contains(t, []string{"PROXY", "UDP", "SCTP"}, p.Protocol)
		}
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestChanges: what changes later is applied in place, without a new load balancer.
func TestChanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		id := w.sim.LoadBalancers()[0].ID
		steps := []struct {
			name   string
			change func(*v1.Service)
			check  func() bool
		}{
			{
				"affinity", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
				func() bool { p := w.sim.Pools()[0].Persistence; return p != nil && p.Type == "SOURCE_IP" },
			},
			{
				"no affinity", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityNone },
				func() bool { return w.sim.Pools()[0].Persistence == nil },
			},
			{
				"algorithm", func(s *v1.Service) { s.Annotations[annotationMethod] = "SOURCE_IP" },
				func() bool { return w.sim.Pools()[0].Algorithm == "SOURCE_IP" },
			},
			{
				"timeout", func(s *v1.Service) { s.Annotations[annotationTCPInspect] = "9" },
				func() bool { return w.sim.Listeners()[0].TimeoutTCPInspect == 9 },
			},
			{
				"timeout back to 0", func(s *v1.Service) { delete(s.Annotations, annotationTCPInspect) },
				func() bool { return w.sim.Listeners()[0].TimeoutTCPInspect == 0 },
			},
			{
				"limit", func(s *v1.Service) { s.Annotations[annotationConnectionLimit] = "3" },
				func() bool { return w.sim.Listeners()[0].ConnectionLimit == 3 },
			},
			{"monitor", func(s *v1.Service) { s.Annotations[annotationMonitorDelay] = "9" }, func() bool { return w.sim.Monitors()[0].Delay == 9 }},
			{"no monitor", func(s *v1.Service) { s.Annotations[annotationMonitor] = textFalse }, func() bool { return len(w.sim.Monitors()) == 0 }},
			{
				"node port", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 },
				func() bool { return w.sim.Pools()[0].BackendMembers()[0].ProtocolPort == 30090 },
			},
			{"port", func(s *v1.Service) { s.Spec.Ports[0].Port, s.Spec.Ports[0].NodePort = 81, 30080 }, func() bool {
				return w.sim.Listeners()[0].ProtocolPort == 81 && len(w.sim.Listeners()) == 1 && len(w.sim.Pools()) == 1
			}},
		}
		for _, st := range steps {
			s, _ = w.changed(s, st.change)
			assert.True(t, st.check(), st.name)
			w.requireNoWrites(s)
		}
		assert.Equal(t, id, w.sim.LoadBalancers()[0].ID)
		assert.Len(t, w.sim.FloatingIPs(), 1)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestLateSettings: what is fixed at the creation is told, and changes nothing.
func TestLateSettings(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		w.Events()
		s, _ = w.changed(s, func(s *v1.Service) {
			s.Annotations[annotationFlavorID], s.Annotations[annotationZone], s.Annotations[annotationNetworkID] = someID, "nova", firstNet
		})
		told := strings.Join(w.Events(), "\n")
		assert.Contains(t, told, "annotation "+annotationFlavorID)
		assert.Contains(t, told, "annotation "+annotationZone)
		assert.NotContains(t, told, "annotation "+annotationNetworkID, "it is there already")
		w.requireNoWrites(s)
		w.Events()
		w.changed(s, func(s *v1.Service) {
			s.Annotations[annotationSubnetID], s.Annotations[annotationMemberSubnetID] = someID, firstSubnet
		})
		assert.Contains(t, strings.Join(w.Events(), "\n"), "annotation "+annotationSubnetID)
	})
}

// TestLocalTraffic: with externalTrafficPolicy Local the health check node port is checked where that is possible; where it
// is not, nothing is written again and again.
func TestLocalTraffic(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		local := func(annotations map[string]string) *v1.Service {
			udp := servicePort("dns", 53, 30053)
			udp.Protocol = v1.ProtocolUDP
			s := service("web", annotations, servicePort("http", 80, 30080), udp)
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
			return s
		}
		types := func(w *world) (list []string) {
			for _, m := range w.sim.Monitors() {
				list = append(list, m.Type)
			}
			return list
		}
		ports := func(w *world) (list []int) {
			for _, p := range w.sim.Pools() {
				list = append(list, deref(p.BackendMembers()[0].MonitorPort))
			}
			return list
		}
		w, s := newServedWorld(t, "", local(nil))
		assert.Equal(t, []string{"HTTP", "HTTP"}, types(w))
		assert.Equal(t, []int{30999, 30999}, ports(w))
		assert.Equal(t, "/healthz", deref(w.sim.Monitors()[0].URLPath))
		w.requireNoWrites(s)
		w.restart()
		w.requireNoWrites(s)

		w = newTestWorld(t, "lb-provider = ovn\n", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		s = local(nil)
		w.Apply(s)
		s, _ = w.ensure(s)
		assert.Equal(t, []string{"TCP", "UDP-CONNECT"}, types(w))
		assert.Equal(t, []int{0, 0}, ports(w))
		w.requireNoWrites(s)

		w = newTestWorld(t, "", nil)
		w.sim.SetOctaviaMinor(15)
		w.addNode(openstacksim.Spec{Name: "n1"})
		s = local(nil)
		w.Apply(s)
		s, _ = w.ensure(s)
		assert.Equal(t, []string{"HTTP", "UDP-CONNECT"}, types(w))
		w.requireNoWrites(s)

		w, _ = newServedWorld(t, "", local(map[string]string{annotationMonitor: textFalse}))
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventNoMonitor, "traffic would be lost silently")
	})
}

// TestOVN: what the provider ovn does not know is neither sent nor asked for.
func TestOVN(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := web(map[string]string{annotationZone: "nova", annotationFlavorID: someID})
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		w, s := newServedWorld(t, "lb-provider = ovn\nmanage-security-groups = true\n", s)
		body := conformance.LatestBody(t, w.server, creation)
		for _, field := range []string{"flavor_id", "availability_zone", "listeners.0.allowed_cidrs", "listeners.0.timeout_client_data"} {
			assert.Nil(t, conformance.Field(body, "loadbalancer."+field), field)
		}
		assert.Equal(t, "SOURCE_IP_PORT", w.sim.Pools()[0].Algorithm, "the only algorithm of ovn is its default")
		told := strings.Join(w.Events(), "\n")
		assert.Contains(t, told, eventZoneIgnored)
		assert.NotContains(t, told, eventRangesIgnored, "the security group holds them")
		assert.Contains(t, fmt.Sprint(groupRules(w)), "tcp 30080 198.51.100.0/24")
		w.requireNoWrites(s)
		for _, key := range []string{annotationProxyProtocol, annotationForwardedFor} {
			bad := rename(web(map[string]string{key: textTrue}), "bad")
			_, err := w.reconciler.Validate(services.Request{Purpose: services.Ensure, Service: bad, Nodes: w.nodes})
			require.ErrorContains(t, err, "is not possible with the provider ovn")
		}

		w, _ = newServedWorld(t, "lb-provider = ovn\n", s)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRangesIgnored)
	})
}

func groupRules(w *world) []string {
	var list []string
	for _, g := range w.sim.SecurityGroups() {
		for _, r := range g.Rules {
			list = append(list, fmt.Sprint(deref(r.Protocol), " ", deref(r.Min), " ", deref(r.Prefix)))
		}
	}
	slices.Sort(list)
	return list
}

// TestOldOctavia: features are gated by the version of the API, and a probe that fails is an error.
func TestOldOctavia(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := web(map[string]string{annotationZone: "nova", annotationFlavorID: someID})
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
		w := newTestWorld(t, "", nil)
		w.sim.SetOctaviaMinor(0)
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(s)
		s, _ = w.ensure(s)
		told := strings.Join(w.Events(), "\n")
		assert.Contains(t, told, eventRangesIgnored)
		assert.Contains(t, told, eventZoneIgnored)
		assert.Empty(t, w.sim.LoadBalancers()[0].Tags)
		assert.Empty(t, w.server.Calls().Refused)
		w.requireNoWrites(s)
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.LoadBalancers())

		w = newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(web(nil))
		for _, fault := range []simkit.Fault{
			{Kind: simkit.FaultStatus, Status: 503, Operation: "GET /load-balancer$"},
			{Kind: simkit.FaultHTML, Operation: "GET /load-balancer$"},
		} {
			w.restart()
			id, err := w.server.AddFault(fault)
			require.NoError(t, err)
			w.server.ResetCalls()
			_, err = w.try(web(nil))
			require.Error(t, err)
			assert.Zero(t, w.server.Calls().Writes, "not known is not absent")
			w.server.RemoveFault(id)
		}
		w.restart()
		w.ensure(web(nil))
	})
}

// TestSourceRanges: ranges of another family than the address let nobody in, and are refused.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		s, _ = w.changed(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.7/24", "2001:db8::/32"} })
		assert.Equal(t, []string{"198.51.100.0/24"}, w.sim.Listeners()[0].AllowedCIDRs, "the address is of IPv4 alone")
		w.requireNoWrites(s)
		s = w.Current(s)
		s.Spec.LoadBalancerSourceRanges = []string{"2001:db8::/32"}
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorContains(t, err, "another IP family")
		assert.Equal(t, []string{"0.0.0.0/32"}, w.sim.Listeners()[0].AllowedCIDRs, "former clients are shut out, and an empty list would let in all")
		_, offline := checkService(testInputs("", nil), s)
		require.EqualError(t, offline, err.Error())
	})
}

// TestDualStack: two families get two addresses where Octavia knows that, and else one and an event.
func TestDualStack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dual := web(nil)
		dual.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.AddSubnet(firstNet, "private-v6", "2001:db8:1::/64") })
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(dual)
		s, status := w.ensure(dual)
		require.Len(t, status.Ingress, 2)
		assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "203.0.113."))
		assert.True(t, strings.HasPrefix(status.Ingress[1].IP, "2001:db8:1:"))
		assert.ElementsMatch(t, []string{"0.0.0.0/0", "::/0"}, w.sim.Listeners()[0].AllowedCIDRs)
		w.requireNoWrites(s)
		w.changed(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "2001:db8:9::/48"} })
		assert.ElementsMatch(t, []string{"198.51.100.0/24", "2001:db8:9::/48"}, w.sim.Listeners()[0].AllowedCIDRs)
		assert.Empty(t, w.server.Calls().Refused)

		w, _ = newServedWorld(t, "", dual)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventSingleStack)

		// A Service of IPv6 first has no floating address.
		v6 := web(nil)
		v6.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
		w = newTestWorld(t, "", func(s *openstacksim.Sim) { s.AddSubnet(firstNet, "private-v6", "2001:db8:1::/64") })
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(v6)
		_, status = w.ensure(v6)
		assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "2001:db8:1:"))
		assert.Equal(t, []string{"::/0"}, w.sim.Listeners()[0].AllowedCIDRs)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventFloatingSkipped)
		assert.Empty(t, w.sim.FloatingIPs())
	})
}

// TestSerialMode: providers that know no batches get everything one by one.
func TestSerialMode(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "provider-requires-serial-api-calls = true\n", web(nil))
		got := w.server.Calls().ByOperation
		assert.Nil(t, conformance.Field(conformance.LatestBody(t, w.server, creation), "loadbalancer.listeners"))
		assert.Zero(t, got["PUT /load-balancer/v2.0/lbaas/pools/{id}/members"])
		assert.Equal(t, 2, got["POST /load-balancer/v2.0/lbaas/pools/{id}/members"])
		assert.Equal(t, fmt.Sprintf("member_n1_%s_30080", w.nodes[0].Status.Addresses[0].Address), w.sim.Pools()[0].BackendMembers()[0].Name)
		w.requireNoWrites(s)
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(s)
		w.nodes = w.nodes[1:]
		w.update(s)
		assert.Len(t, w.sim.Pools()[0].BackendMembers(), 2)
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestDeletion: what is ours goes, after any interruption and even if the load balancer went first.
func TestDeletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file        string
		annotations map[string]string
		before      func(*world)
		floating    int
	}{
		"in one call":              {"", nil, func(*world) {}, 0},
		"one by one":               {"cascade-delete = false\n", nil, func(*world) {}, 0},
		"with a security group":    {"manage-security-groups = true\n", nil, func(*world) {}, 0},
		"the address is kept":      {"", map[string]string{annotationKeepFloatingIP: textTrue}, func(*world) {}, 1},
		"the load balancer is off": {"manage-security-groups = true\n", nil, func(w *world) { w.sim.DropLoadBalancer(w.sim.LoadBalancers()[0].ID) }, 0},
		"and the address kept": {
			"", map[string]string{annotationKeepFloatingIP: textTrue}, func(w *world) { w.sim.DropLoadBalancer(w.sim.LoadBalancers()[0].ID) }, 1,
		},
		"the option is off now": {"manage-security-groups = true\n", nil, func(w *world) { w.file = "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, c.file, web(c.annotations))
				c.before(w)
				w.restart()
				require.NoError(t, w.remove(s))
				assert.Empty(t, w.sim.LoadBalancers())
				assert.Empty(t, w.sim.Listeners())
				assert.Empty(t, w.sim.Pools())
				assert.Empty(t, w.sim.Monitors())
				assert.Empty(t, w.sim.SecurityGroups())
				assert.Len(t, w.sim.FloatingIPs(), c.floating)
				assert.Empty(t, w.server.Calls().Refused)
			})
		})
	}
	t.Run("in doubt about the address", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			w, s := newServedWorld(t, "", web(nil))
			other := w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.200", "Floating IP for Kubernetes external service default/other from cluster kubernetes")
			require.NoError(t, w.remove(s))
			assert.Equal(t, other, w.sim.FloatingIPs()[0].ID, "another Service's stays")
		})
	})
}

// TestOneBadNodeHoldsNobodyUp: nodes of other clouds, without address or gone are left out; no node at all changes nothing.
func TestOneBadNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "manage-security-groups = true\n", web(nil))
		w.nodes = append(w.nodes,
			&v1.Node{
				ObjectMeta: metav1.ObjectMeta{Name: "rke"}, Spec: v1.NodeSpec{ProviderID: "rke2://x"},
				Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.99.1"}}},
			},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
			&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: v1.NodeSpec{ProviderID: providerIDPrefix + "/" + someID}},
		)
		w.update(s)
		assert.Len(t, w.sim.Pools()[0].BackendMembers(), 3, "the node of another cloud has an address")
		w.nodes = nil
		w.server.ResetCalls()
		require.ErrorIs(t, w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), nil), errNoNodes)
		_, err := w.try(s)
		require.ErrorContains(t, err, "no node can be a member")
		assert.Zero(t, w.server.Calls().Writes)
	})
}

// TestSecurityGroups: the group follows the nodes, and changes of others on the same port are not lost.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := web(nil)
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
		w, s := newServedWorld(t, "manage-security-groups = true\n", s)
		assert.Equal(t, []string{"tcp 30080 10.0.0.0/16", "tcp 30999 10.0.0.0/16"}, groupRules(w), "and no egress rule")
		assert.Equal(t, "lb-sg-"+string(s.UID)+"-default-web", w.sim.SecurityGroups()[0].Name)
		group := w.sim.SecurityGroups()[0].ID
		having := func() (n int) {
			for _, p := range w.sim.Ports() {
				if slices.Contains(p.SecurityGroups, group) {
					n++
				}
			}
			return n
		}
		assert.Equal(t, 2, having())
		w.requireNoWrites(s)
		w.restart()
		w.requireNoWrites(s)

		w.addNode(openstacksim.Spec{Name: "insecure", NoPortSecurity: true})
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(s)
		assert.Equal(t, 3, having(), "a port without port security gets none")
		w.nodes = w.nodes[2:]
		w.update(s)
		assert.Equal(t, 1, having(), "nodes that left lose it")

		s, _ = w.changed(s, func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30081 })
		assert.Equal(t, []string{"tcp 30081 10.0.0.0/16", "tcp 30999 10.0.0.0/16"}, groupRules(w))

		// Somebody adds a group of theirs to the port between our read and our write.
		require.NoError(t, w.reconciler.securityGroups.create(t.Context(), rename(web(nil), "theirs")))
		groups := w.sim.SecurityGroups()
		theirs := groups[slices.IndexFunc(groups, func(g openstacksim.SecurityGroup) bool { return g.ID != group })]
		n4 := w.addNode(openstacksim.Spec{Name: "n4"})
		ports, err := w.instances.portsOf(t.Context(), serverID(t, n4.Spec.ProviderID), inventory.Query{MaxAge: minAge})
		require.NoError(t, err)
		w.sim.ChangePort(ports[0].ID, func(p *openstacksim.Port) { p.SecurityGroups = []string{theirs.ID} })
		for range 3 {
			if err = w.reconciler.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes); err == nil {
				break
			}
		}
		w.ensure(s)
		i := slices.IndexFunc(w.sim.Ports(), func(p openstacksim.Port) bool { return p.ID == ports[0].ID })
		assert.ElementsMatch(t, []string{theirs.ID, group}, w.sim.Ports()[i].SecurityGroups)

		w.file = ""
		w.restart()
		w.ensure(s)
		assert.Zero(t, having(), "the option is off")
		assert.Len(t, w.sim.SecurityGroups(), 1)
	})
}

// TestNames: the names of OpenStack's own controller, and their length.
func TestNames(t *testing.T) {
	t.Parallel()
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", UID: "0123-4567-89ab"}}
	assert.Equal(t, "kube_service_cluster_ns_svc", loadBalancerName("cluster", s))
	assert.Equal(t, "kube_service___", loadBalancerName("", &v1.Service{}))
	assert.Equal(t, "a0123456789ab", legacyName(s))
	assert.Equal(t, "lb-sg-0123-4567-89ab-ns-svc", securityGroupName(s))
	assert.Equal(t, "lb-sg---", securityGroupName(&v1.Service{}))
	assert.Equal(t, "Floating IP for Kubernetes external service ns/svc from cluster c", floatingIPDescription("c", s))
	assert.Equal(t, "Kubernetes external service ns/svc from cluster c", loadBalancerDescription("c", s))
	long := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: strings.Repeat("x", 300)}}
	assert.Len(t, loadBalancerName("c", long), 255)
	assert.Len(t, securityGroupName(long), 255)
	assert.Len(t, partName("listener", 10, loadBalancerName("c", long)), 255)
	assert.Len(t, loadBalancerDescription(strings.Repeat("c", 300), s), 255)
	assert.Len(t, floatingIPDescription(strings.Repeat("c", 300), s), 255)
	assert.Equal(t, "pool_3_kube_service_cluster_ns_svc", partName("pool", 3, loadBalancerName("cluster", s)))
}

// TestNodeAddressFor: the address at which a load balancer reaches a node.
func TestNodeAddressFor(t *testing.T) {
	t.Parallel()
	all := []v1.NodeAddress{
		{Type: v1.NodeExternalDNS, Address: "n.example.com"},
		{Type: v1.NodeExternalIP, Address: "203.0.113.1"},
		{Type: v1.NodeExternalIP, Address: "2001:db8::1"},
		{Type: v1.NodeInternalIP, Address: "10.0.0.1"},
		{Type: v1.NodeInternalIP, Address: "10.0.0.2"},
	}
	assert.Equal(t, "10.0.0.1", nodeAddressFor(all, v1.IPv4Protocol))
	assert.Equal(t, "2001:db8::1", nodeAddressFor(all, v1.IPv6Protocol), "an external address where there is no internal one")
	assert.Equal(t, "10.0.0.1", nodeAddressFor(all, ""))
	assert.Empty(t, nodeAddressFor(all[:1], v1.IPv4Protocol))
	assert.Empty(t, nodeAddressFor(all[1:3], ""), "without a family internal addresses alone")
}

// TestOrphans: a load balancer with the mark of the cluster that no Service has.
func TestOrphans(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		none, err := w.Orphans(t.Context(), []*v1.Service{w.Current(s)})
		require.NoError(t, err)
		assert.Empty(t, none)
		found, err := w.Orphans(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, found, 1)
		assert.Equal(t, s.Annotations[annotationID], found[0].ID)
		w.vanish(s)
		require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Empty(t, w.sim.FloatingIPs())
		require.NoError(t, w.DeleteOrphan(t.Context(), found[0]), "it is gone already")
	})
}
