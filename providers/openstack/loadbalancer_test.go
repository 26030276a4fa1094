package openstack

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// served returns a world with two nodes and a Service that is served.
func served(t *testing.T, file string, s *v1.Service) (*world, *v1.Service) {
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

// TestFloatingIPs: an external Service gets a floating address; an internal one loses it, or keeps it for later.
func TestFloatingIPs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		annotations map[string]string
		left        int // addresses that exist after the Service became internal
	}{
		"ours goes":   {nil, 0},
		"ours stays":  {map[string]string{annotationKeepFloatingIP: textTrue}, 1},
		"theirs stay": {map[string]string{"theirs": "yes"}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTestWorld(t, "", nil)
			w.addNode(openstacksim.Spec{Name: "n1"})
			s := web(c.annotations)
			if c.annotations["theirs"] != "" {
				w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.77", "reserved for the web")
				s.Spec.LoadBalancerIP = "203.0.113.77"
			}
			w.Apply(s)
			s, status := w.ensure(s)
			all := w.sim.FloatingIPs()
			require.Len(t, all, 1)
			assert.Equal(t, all[0].Address, status.Ingress[0].IP)
			assert.Equal(t, all[0].Address, s.Annotations[annotationAddress])

			s, status = w.changed(s, func(s *v1.Service) { s.Annotations[annotationInternal] = textTrue })
			assert.Equal(t, w.sim.LoadBalancers()[0].VIPAddress, status.Ingress[0].IP)
			after := w.sim.FloatingIPs()
			require.Len(t, after, c.left)
			for _, f := range after {
				assert.Nil(t, f.PortID, "it is detached")
			}
			w.requireNoWrites(s)

			_, status = w.changed(s, func(s *v1.Service) { delete(s.Annotations, annotationInternal) })
			assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "203.0.113."))
			if c.annotations["theirs"] != "" {
				assert.Equal(t, "203.0.113.77", status.Ingress[0].IP)
			}
			assert.Empty(t, w.server.Calls().Refused)
		})
	}
	t.Run("the option wins over the annotation", func(t *testing.T) {
		t.Parallel()
		w, _ := served(t, "internal-lb = true\n", web(map[string]string{annotationInternal: textFalse}))
		assert.Empty(t, w.sim.FloatingIPs())
	})
	t.Run("an address in use", func(t *testing.T) {
		t.Parallel()
		w, first := served(t, "", web(nil))
		second := named(web(nil), "second")
		second.Spec.LoadBalancerIP = first.Status.LoadBalancer.Ingress[0].IP
		w.Apply(second)
		_, err := w.try(second)
		require.ErrorContains(t, err, "is not available")
		assert.Len(t, w.sim.FloatingIPs(), 1)
	})
	t.Run("a wanted address that does not exist", func(t *testing.T) {
		t.Parallel()
		s := web(nil)
		s.Spec.LoadBalancerIP = "203.0.113.99"
		_, s = served(t, "", s)
		assert.Equal(t, "203.0.113.99", s.Status.LoadBalancer.Ingress[0].IP)
	})
	t.Run("no external network", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "", nil)
		w.sim.HideNetwork("public")
		w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(nil)
		w.Apply(s)
		_, status := w.ensure(s)
		assert.Equal(t, w.sim.LoadBalancers()[0].VIPAddress, status.Ingress[0].IP)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventForcedInternal)
	})
}

// TestFloatingSubnets: which subnet the floating address is of.
func TestFloatingSubnets(t *testing.T) {
	t.Parallel()
	prepare := func(s *openstacksim.Sim) (gold, silver string) {
		public := s.Networks()[0].ID
		gold = s.AddSubnet(public, "ext-gold", "198.51.100.0/24", "gold", "fast")
		silver = s.AddSubnet(public, "ext-silver", "192.0.2.0/24", "silver")
		return gold, silver
	}
	for name, c := range map[string]struct {
		annotations map[string]string
		file        string
		prefix      string // of the address; "" for a refusal
	}{
		"by ID":                 {map[string]string{annotationFloatingSubnetID: "GOLD"}, "", "198.51.100."},
		"by glob":               {map[string]string{annotationFloatingSubnet: "ext-s*"}, "", "192.0.2."},
		"by expression":         {map[string]string{annotationFloatingSubnet: "~ext-(gold|bronze)"}, "", "198.51.100."},
		"by the others":         {map[string]string{annotationFloatingSubnet: "!~(public.*|ext-gold)"}, "", "192.0.2."},
		"any tag":               {map[string]string{annotationFloatingSubnetTags: "silver,bronze"}, "", "192.0.2."},
		"all tags":              {map[string]string{annotationFloatingSubnetTags: "&gold,fast"}, "", "198.51.100."},
		"none of the tags":      {map[string]string{annotationFloatingSubnetTags: "!gold,silver"}, "", "203.0.113."},
		"not all tags":          {map[string]string{annotationFloatingSubnet: "ext-*", annotationFloatingSubnetTags: "!&gold,fast"}, "", "192.0.2."},
		"by the option":         {nil, "floating-subnet = ext-gold\n", "198.51.100."},
		"the annotation wins":   {map[string]string{annotationFloatingSubnet: "ext-silver"}, "floating-subnet = ext-gold\n", "192.0.2."},
		"by network":            {map[string]string{annotationFloatingNetworkID: "PUBLIC"}, "floating-network-id = " + someID + "\n", "203.0.113."},
		"an empty annotation":   {map[string]string{annotationFloatingNetworkID: ""}, "floating-network-id = " + someID + "\n", "203.0.113."},
		"nothing matches":       {map[string]string{annotationFloatingSubnet: "bronze"}, "", ""},
		"a subnet of elsewhere": {map[string]string{annotationFloatingSubnetID: firstSubnet}, "", ""},
		"a network of nowhere":  {map[string]string{annotationFloatingNetworkID: someID}, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var gold string
			w := newTestWorld(t, c.file, func(s *openstacksim.Sim) { gold, _ = prepare(s) })
			w.addNode(openstacksim.Spec{Name: "n1"})
			annotations := map[string]string{}
			for k, v := range c.annotations {
				annotations[k] = strings.NewReplacer("GOLD", gold, "PUBLIC", w.sim.Networks()[0].ID).Replace(v)
			}
			s := web(annotations)
			w.Apply(s)
			status, err := w.try(s)
			if c.prefix == "" {
				require.Error(t, err)
				assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
				assert.Empty(t, w.sim.FloatingIPs())
				return
			}
			require.NoError(t, err)
			assert.True(t, strings.HasPrefix(status.Ingress[0].IP, c.prefix), status.Ingress[0].IP)
		})
	}
	t.Run("the next subnet where one is full", func(t *testing.T) {
		t.Parallel()
		var gold string
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { gold, _ = prepare(s) })
		w.sim.ExhaustSubnet(gold)
		w.addNode(openstacksim.Spec{Name: "n1"})
		s := web(map[string]string{annotationFloatingSubnet: "ext-*"})
		w.Apply(s)
		_, status := w.ensure(s)
		assert.True(t, strings.HasPrefix(status.Ingress[0].IP, "192.0.2."))
	})
}

// TestClasses: a class of the cloud config says which networks a load balancer is of.
func TestClasses(t *testing.T) {
	t.Parallel()
	var edge, other string
	file := func(s *openstacksim.Sim) string {
		n := s.AddNetwork("edge", false)
		edge = s.AddSubnet(n, "edge", "10.7.0.0/24")
		other = s.AddSubnet(s.AddNetwork("other", false), "other", "10.8.0.0/24")
		s.AddRouter("edge-router", s.Networks()[0].ID, n)
		return fmt.Sprintf("[LoadBalancerClass \"edge\"]\nsubnet-id = %s\nmember-subnet-id = %s\n", edge, firstSubnet)
	}
	sim, server := openstacksim.New(openstacksim.Options{})
	w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, url: server.Start(t), env: map[string]string{}, cluster: "kubernetes"}
	w.file = file(sim)
	w.restart()
	w.addNode(openstacksim.Spec{Name: "n1"})

	external := web(map[string]string{annotationClass: "edge", annotationSubnetID: other})
	w.Apply(external)
	w.ensure(external)
	assert.Equal(t, edge, w.sim.LoadBalancers()[0].VIPSubnetID, "the class beats the annotation")
	assert.Equal(t, firstSubnet, valueOf(w.sim.Pools()[0].BackendMembers()[0].SubnetID))

	internal := named(web(map[string]string{annotationClass: "edge", annotationSubnetID: other, annotationInternal: textTrue}), "internal")
	w.Apply(internal)
	w.ensure(internal)
	assert.Equal(t, other, w.sim.LoadBalancers()[1].VIPSubnetID, "for internal Services the annotation beats the class")
	assert.Empty(t, w.server.Calls().Refused)

	s, _, err := parseSettings(external, w.config)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		s    settings
		o    loadBalancerConfig
		want string
	}{
		"the annotation": {settings{MemberSubnetID: "a", serviceClass: class{MemberSubnetID: "c"}}, loadBalancerConfig{class: class{MemberSubnetID: "o"}}, "a"},
		"the class":      {s, loadBalancerConfig{class: class{MemberSubnetID: "o"}}, firstSubnet},
		"the option":     {settings{SubnetID: "s"}, loadBalancerConfig{class: class{MemberSubnetID: "o", SubnetID: "p"}}, "o"},
		"its subnet":     {settings{SubnetID: "s"}, loadBalancerConfig{class: class{SubnetID: "p"}}, "p"},
		"the VIP's":      {settings{SubnetID: "s", serviceClass: class{SubnetID: "c"}}, loadBalancerConfig{}, "s"},
		"what was found": {settings{}, loadBalancerConfig{}, "found"},
	} {
		assert.Equal(t, c.want, memberSubnet(c.s, c.o, "found"), name)
	}
}

// TestPlaces: where the address of a load balancer is.
func TestPlaces(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", nil)
	w.addNode(openstacksim.Spec{Name: "n1"})
	p := w.sim.AddPort(openstacksim.Port{NetworkID: firstNet, FixedIPs: []openstacksim.FixedIP{{SubnetID: firstSubnet, Address: "10.0.77.7"}}, PortSecurity: true})
	byPort := web(map[string]string{annotationPortID: p})
	w.Apply(byPort)
	w.ensure(byPort)
	assert.Equal(t, "10.0.77.7", w.sim.LoadBalancers()[0].VIPAddress)
	assert.Nil(t, conformance.Field(conformance.LatestBody(t, w.server, creation), "loadbalancer.vip_subnet_id"))

	wished := named(web(map[string]string{annotationInternal: textTrue}), "wished")
	wished.Spec.LoadBalancerIP = "10.0.77.8"
	w.Apply(wished)
	_, status := w.ensure(wished)
	assert.Equal(t, "10.0.77.8", status.Ingress[0].IP)
	assert.Empty(t, w.server.Calls().Refused)

	// No node has a port with its address: nobody can say where the load balancer should be.
	lost := named(web(nil), "lost")
	w.Apply(lost)
	w.nodes[0].Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "172.31.0.1"}}
	w.nodes[0].Spec.ProviderID = "rke2://x"
	_, err := w.try(lost)
	require.ErrorContains(t, err, annotationSubnetID)
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
		"two families":            {settings{}, suffix, []string{"2001:db8::1"}, []v1.LoadBalancerIngress{{IP: "192.0.2.1", IPMode: &vip}, {IP: "2001:db8::1", IPMode: &vip}}},
	} {
		assert.Equal(t, c.want, statusOf("192.0.2.1", c.more, c.s, c.o).Ingress, name)
	}
}

// TestCertificates: a reference must exist where barbican keeps it; adding and removing it changes the listener's protocol,
// which Octavia cannot do in place.
func TestCertificates(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	ref := w.sim.AddContainer("containers", w.url+"/key-manager")
	s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationTLSContainerRef] = ref })
	l := w.sim.Listeners()
	require.Len(t, l, 1)
	assert.Equal(t, "TERMINATED_HTTPS", l[0].Protocol)
	assert.Equal(t, ref, valueOf(l[0].TLSRef))
	assert.Equal(t, "HTTP", w.sim.Pools()[0].Protocol)
	w.requireNoWrites(s)

	other := w.sim.AddContainer("secrets", w.url+"/key-manager")
	id := l[0].ID
	s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationTLSContainerRef] = other })
	assert.Equal(t, id, w.sim.Listeners()[0].ID, "another reference is set in place")
	assert.Equal(t, other, valueOf(w.sim.Listeners()[0].TLSRef))

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

	external, _ := served(t, "container-store = external\n", web(map[string]string{annotationTLSContainerRef: "vault://web"}))
	assert.Equal(t, "vault://web", valueOf(external.sim.Listeners()[0].TLSRef))
}

// TestProtocolsOfPorts: TLS and headers are for TCP; UDP and TCP share a port number.
func TestProtocolsOfPorts(t *testing.T) {
	t.Parallel()
	udp, sctp := servicePort("udp", 80, 30081), servicePort("sctp", 90, 30082)
	udp.Protocol, sctp.Protocol = v1.ProtocolUDP, v1.ProtocolSCTP
	s := service("web", map[string]string{annotationForwardedFor: textTrue}, servicePort("http", 80, 30080), udp, sctp)
	w, s := served(t, "", s)
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
}

// TestChanges: what changes later is applied in place, without a new load balancer.
func TestChanges(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	id := w.sim.LoadBalancers()[0].ID
	steps := []struct {
		name   string
		change func(*v1.Service)
		check  func() bool
	}{
		{"affinity", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, func() bool { p := w.sim.Pools()[0].Persistence; return p != nil && p.Type == "SOURCE_IP" }},
		{"no affinity", func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityNone }, func() bool { return w.sim.Pools()[0].Persistence == nil }},
		{"algorithm", func(s *v1.Service) { s.Annotations[annotationMethod] = "SOURCE_IP" }, func() bool { return w.sim.Pools()[0].Algorithm == "SOURCE_IP" }},
		{"timeout", func(s *v1.Service) { s.Annotations[annotationTCPInspect] = "9" }, func() bool { return w.sim.Listeners()[0].TimeoutTCPInspect == 9 }},
		{"timeout back to 0", func(s *v1.Service) { delete(s.Annotations, annotationTCPInspect) }, func() bool { return w.sim.Listeners()[0].TimeoutTCPInspect == 0 }},
		{"limit", func(s *v1.Service) { s.Annotations[annotationConnectionLimit] = "3" }, func() bool { return w.sim.Listeners()[0].ConnectionLimit == 3 }},
		{"monitor", func(s *v1.Service) { s.Annotations[annotationMonitorDelay] = "9" }, func() bool { return w.sim.Monitors()[0].Delay == 9 }},
		{"no monitor", func(s *v1.Service) { s.Annotations[annotationMonitor] = textFalse }, func() bool { return len(w.sim.Monitors()) == 0 }},
		{"node port", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 30090 }, func() bool { return w.sim.Pools()[0].BackendMembers()[0].ProtocolPort == 30090 }},
		{"no node port", func(s *v1.Service) { s.Spec.Ports[0].NodePort = 0 }, func() bool { return len(w.sim.Pools()[0].BackendMembers()) == 0 }},
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
}

// TestLateWishes: what is fixed at the creation is told, and changes nothing.
func TestLateWishes(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
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
}

// TestLocalTraffic: with externalTrafficPolicy Local the health check node port is checked where that is possible; where it
// is not, nothing is written again and again.
func TestLocalTraffic(t *testing.T) {
	t.Parallel()
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
			list = append(list, valueOf(p.BackendMembers()[0].MonitorPort))
		}
		return list
	}
	w, s := served(t, "", local(nil))
	assert.Equal(t, []string{"HTTP", "HTTP"}, types(w))
	assert.Equal(t, []int{30999, 30999}, ports(w))
	assert.Equal(t, "/healthz", valueOf(w.sim.Monitors()[0].URLPath))
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

	w, _ = served(t, "", local(map[string]string{annotationMonitor: textFalse}))
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventNoMonitor, "traffic would be lost silently")
}

// TestOVN: what the provider ovn does not know is neither sent nor asked for.
func TestOVN(t *testing.T) {
	t.Parallel()
	s := web(map[string]string{annotationZone: "nova", annotationFlavorID: someID})
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	w, s := served(t, "lb-provider = ovn\nmanage-security-groups = true\n", s)
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
		bad := named(web(map[string]string{key: textTrue}), "bad")
		_, err := w.loadBalancers.Validate(services.Request{Purpose: services.Ensure, Service: bad, Nodes: w.nodes})
		require.ErrorContains(t, err, "is not possible with the provider ovn")
	}

	w, _ = served(t, "lb-provider = ovn\n", s)
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventRangesIgnored)
}

func groupRules(w *world) []string {
	var list []string
	for _, g := range w.sim.SecurityGroups() {
		for _, r := range g.Rules {
			list = append(list, fmt.Sprint(valueOf(r.Protocol), " ", valueOf(r.Min), " ", valueOf(r.Prefix)))
		}
	}
	slices.Sort(list)
	return list
}

// TestOldOctavia: features are gated by the version of the API, and a probe that fails is an error.
func TestOldOctavia(t *testing.T) {
	t.Parallel()
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
	for _, fault := range []simkit.Fault{{Kind: simkit.FaultStatus, Status: 503, Operation: "GET /load-balancer$"}, {Kind: simkit.FaultHTML, Operation: "GET /load-balancer$"}} {
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
}

// TestSourceRanges: ranges of another family than the address let nobody in, and are refused.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	s, _ = w.changed(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.7/24", "2001:db8::/32"} })
	assert.Equal(t, []string{"198.51.100.0/24"}, w.sim.Listeners()[0].AllowedCIDRs, "the address is of IPv4 alone")
	w.requireNoWrites(s)
	s = w.Current(s)
	s.Spec.LoadBalancerSourceRanges = []string{"2001:db8::/32"}
	w.Apply(s)
	_, err := w.try(s)
	require.ErrorContains(t, err, "another IP family")
	assert.Equal(t, []string{"198.51.100.0/24"}, w.sim.Listeners()[0].AllowedCIDRs)
	_, offline := checkService(testInputs("", nil), s)
	require.EqualError(t, offline, err.Error())
}

// TestDualStack: two families get two addresses where Octavia knows that, and else one and an event.
func TestDualStack(t *testing.T) {
	t.Parallel()
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

	w, _ = served(t, "", dual)
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
}

// TestSerialMode: providers that know no batches get everything one by one.
func TestSerialMode(t *testing.T) {
	t.Parallel()
	w, s := served(t, "provider-requires-serial-api-calls = true\n", web(nil))
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
}

// TestBrokenLoadBalancers: one that could not be built is built anew; one that served is failed over, or the user is told
// who can do that. Neither its address nor the load balancer is given up.
func TestBrokenLoadBalancers(t *testing.T) {
	t.Parallel()
	t.Run("never built", func(t *testing.T) {
		t.Parallel()
		w := newTestWorld(t, "", func(s *openstacksim.Sim) { s.FailCreations(2) })
		w.addNode(openstacksim.Spec{Name: "n1"})
		w.Apply(web(nil))
		w.ensure(web(nil))
		require.Len(t, w.sim.LoadBalancers(), 1)
		assert.Equal(t, 3, w.server.Calls().ByOperation[creation])
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRecreated)
	})
	breakDown := func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = openstacksim.Failed }
	t.Run("failed over", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		w.sim.AllowFailover(true)
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, status := w.ensure(s)
		assert.Equal(t, s.Status.LoadBalancer, *status)
		assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventFailover)
	})
	t.Run("found though nothing changes", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		w.sim.AllowFailover(true)
		job := w.loadBalancers.healthJob(w.Services())
		require.NoError(t, job.Run(t.Context()))
		assert.Equal(t, openstacksim.Active, w.sim.LoadBalancers()[0].ProvisioningStatus)
		w.sim.ChangeLoadBalancer(s.Annotations[annotationID], breakDown)
		w.restart()
		w.loadBalancers.clusterName.Store(w.cluster) // the framework looks at every Service first
		job = w.loadBalancers.healthJob(w.Services())
		w.server.ResetCalls()
		require.NoError(t, job.Run(t.Context()))
		assert.Equal(t, 2, w.server.Calls().Total-w.server.Calls().ByOperation["POST /identity/v3/auth/tokens"]-w.server.Calls().ByOperation["GET /load-balancer"], "a listing and the failover")
		assert.Equal(t, openstacksim.Active, w.sim.LoadBalancers()[0].ProvisioningStatus)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventFailover)
	})
	t.Run("named by an older Service that it is not for", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		w.sim.AllowFailover(true)
		stranger := w.sim.AddLoadBalancer("users-own", firstSubnet)
		for i, id := range []string{s.Annotations[annotationID], stranger.ID} {
			claim := named(service("claim", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), fmt.Sprintf("claim-%d", i))
			claim.CreationTimestamp = metav1.NewTime(time.Unix(1, 0))
			claim.Status = s.Status
			w.Apply(claim)
			w.sim.ChangeLoadBalancer(id, breakDown)
		}
		w.restart()
		_, _, err := w.loadBalancers.GetLoadBalancer(t.Context(), w.cluster, w.Current(s))
		require.NoError(t, err)
		w.server.ResetCalls()
		require.NoError(t, w.loadBalancers.repairAll(t.Context(), w.Services()))
		assert.Equal(t, 1, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
		for _, lb := range w.sim.LoadBalancers() {
			assert.Equal(t, lb.ID == stranger.ID, lb.ProvisioningStatus == openstacksim.Failed, lb.Name)
		}
	})
	for name, c := range map[string]struct {
		prepare func(w *world, s *v1.Service) *v1.Service
		fails   bool
	}{
		"kept, and its Service comes back": {prepare: func(w *world, s *v1.Service) *v1.Service {
			w.vanish(s)
			again := web(nil)
			again.UID = "made-again"
			return again
		}},
		"kept, and its Service comes back with a record": {prepare: func(w *world, s *v1.Service) *v1.Service {
			w.vanish(s)
			again := web(map[string]string{annotationID: s.Annotations[annotationID], annotationMade: s.Annotations[annotationID]})
			again.UID = "made-again"
			return again
		}},
		"kept, and its Service is a load balancer again": {prepare: func(_ *world, s *v1.Service) *v1.Service {
			s.Annotations, s.Status = map[string]string{}, v1.ServiceStatus{}
			return s
		}},
		"it has an address that the Service does not show yet": {prepare: func(_ *world, s *v1.Service) *v1.Service {
			delete(s.Annotations, annotationAddress)
			s.Status = v1.ServiceStatus{}
			return s
		}},
		"nobody may fail it over": {fails: true, prepare: func(w *world, s *v1.Service) *v1.Service {
			w.sim.AllowFailover(false)
			w.vanish(s)
			again := web(nil)
			again.UID = "made-again"
			return again
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := served(t, "", web(nil))
			w.sim.AllowFailover(true)
			before := w.sim.LoadBalancers()[0]
			w.sim.ChangeLoadBalancer(before.ID, breakDown)
			w.restart()
			now := c.prepare(w, w.Current(s))
			w.Apply(now)
			_, err := w.Kube.CoreV1().Services(now.Namespace).UpdateStatus(t.Context(), now, metav1.UpdateOptions{})
			require.NoError(t, err)
			status, err := w.try(now)
			events := strings.Join(w.Events(), "\n")
			assert.NotContains(t, events, eventRecreated)
			require.Len(t, w.sim.LoadBalancers(), 1)
			assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
			assert.Equal(t, before.VIPAddress, w.sim.LoadBalancers()[0].VIPAddress)
			require.Len(t, w.sim.FloatingIPs(), 1)
			assert.Equal(t, before.VIPPortID, valueOf(w.sim.FloatingIPs()[0].PortID))
			if c.fails {
				require.ErrorContains(t, err, "openstack loadbalancer failover "+before.ID)
				assert.Contains(t, events, eventBroken)
				return
			}
			require.NoError(t, err)
			assert.Contains(t, events, eventFailover)
			assert.Equal(t, s.Status.LoadBalancer, *status)
		})
	}
	t.Run("well again before anything is done", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		w.sim.AllowFailover(true)
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, _, err := w.loadBalancers.GetLoadBalancer(t.Context(), w.cluster, w.Current(s)) // it is seen to be broken
		require.NoError(t, err)
		w.sim.ChangeLoadBalancer(before.ID, func(lb *openstacksim.LoadBalancer) { lb.ProvisioningStatus = openstacksim.Active })
		w.requireNoWrites(s)
	})
	t.Run("no right to do so", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		before := w.sim.LoadBalancers()[0]
		w.sim.ChangeLoadBalancer(before.ID, breakDown)
		w.restart()
		_, err := w.try(s)
		require.ErrorContains(t, err, "openstack loadbalancer failover "+before.ID)
		assert.Equal(t, 1, w.server.Calls().ByOperation["PUT /load-balancer/v2.0/lbaas/loadbalancers/{id}/failover"], "once in a while, not again and again")
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventBroken)
		assert.Equal(t, before.ID, w.sim.LoadBalancers()[0].ID)
		require.NoError(t, w.remove(s), "it can be deleted")
		assert.Empty(t, w.sim.LoadBalancers())
	})
	t.Run("deleted behind our back", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		w.sim.DropLoadBalancer(w.sim.LoadBalancers()[0].ID)
		w.restart()
		s, _ = w.ensure(s)
		require.Len(t, w.sim.LoadBalancers(), 1)
		assert.Equal(t, w.sim.LoadBalancers()[0].ID, s.Annotations[annotationID])
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
		"and the address kept":     {"", map[string]string{annotationKeepFloatingIP: textTrue}, func(w *world) { w.sim.DropLoadBalancer(w.sim.LoadBalancers()[0].ID) }, 1},
		"the option is off now":    {"manage-security-groups = true\n", nil, func(w *world) { w.file = "" }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s := served(t, c.file, web(c.annotations))
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
	}
	t.Run("in doubt about the address", func(t *testing.T) {
		t.Parallel()
		w, s := served(t, "", web(nil))
		other := w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.200", "Floating IP for Kubernetes external service default/other from cluster kubernetes")
		require.NoError(t, w.remove(s))
		assert.Equal(t, other, w.sim.FloatingIPs()[0].ID, "another Service's stays")
	})
}

// TestOneBadNodeHoldsNobodyUp: nodes of other clouds, without address or gone are left out; no node at all changes nothing.
func TestOneBadNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w, s := served(t, "manage-security-groups = true\n", web(nil))
	w.nodes = append(w.nodes,
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "rke"}, Spec: v1.NodeSpec{ProviderID: "rke2://x"}, Status: v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.99.1"}}}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "new"}},
		&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "gone"}, Spec: v1.NodeSpec{ProviderID: providerIDPrefix + "/" + someID}},
	)
	w.update(s)
	assert.Len(t, w.sim.Pools()[0].BackendMembers(), 3, "the node of another cloud has an address")
	w.nodes = nil
	w.server.ResetCalls()
	require.ErrorIs(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), nil), errNoNodes)
	_, err := w.try(s)
	require.ErrorContains(t, err, "no available nodes")
	assert.Zero(t, w.server.Calls().Writes)
}

// TestSecurityGroups: the group follows the nodes, and changes of others on the same port are not lost.
func TestSecurityGroups(t *testing.T) {
	t.Parallel()
	s := web(nil)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
	w, s := served(t, "manage-security-groups = true\n", s)
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
	theirs, err := w.loadBalancers.createSecurityGroup(t.Context(), named(web(nil), "theirs"))
	require.NoError(t, err)
	n4 := w.addNode(openstacksim.Spec{Name: "n4"})
	ports, err := w.instances.portsOf(t.Context(), serverID(t, n4.Spec.ProviderID), inventory.Query{MaxAge: minAge})
	require.NoError(t, err)
	w.sim.ChangePort(ports[0].ID, func(p *openstacksim.Port) { p.SecurityGroups = []string{theirs.ID} })
	for range 3 {
		if err = w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, w.Current(s), w.nodes); err == nil {
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
}

// TestSharing: Services share a load balancer by its ID, each with ports of its own, and leave it one by one.
func TestSharing(t *testing.T) {
	t.Parallel()
	w, owner := served(t, "max-shared-lb = 3\n", web(nil))
	id := owner.Annotations[annotationID]
	join := func(name string, port int32, annotations map[string]string) *v1.Service {
		s := named(service(name, map[string]string{annotationID: id}, servicePort("x", port, 30000+port)), name)
		maps.Copy(s.Annotations, annotations)
		w.Apply(s)
		return s
	}
	second := join("second", 81, nil)
	second, status := w.ensure(second)
	assert.Equal(t, owner.Status.LoadBalancer, *status, "the same address")
	assert.Contains(t, w.sim.LoadBalancers()[0].Tags, "kube_service_kubernetes_default_second")
	assert.Equal(t, "kube_service_kubernetes_default_web", w.sim.LoadBalancers()[0].Name)
	assert.Len(t, w.sim.Listeners(), 2)
	w.requireNoWrites(owner)
	w.requireNoWrites(second)
	w.restart()
	w.requireNoWrites(second)

	// A node event renames nothing, and nothing back.
	w.addNode(openstacksim.Spec{Name: "n3"})
	w.update(owner)
	w.update(second)
	w.requireNoWrites(second)
	second, _ = w.changed(second, func(s *v1.Service) { s.Spec.Ports[0].Port = 82 })
	assert.Len(t, w.sim.Listeners(), 2)

	third := join("third", 83, nil)
	w.ensure(third)
	for name, c := range map[string]struct {
		s    *v1.Service
		want string
	}{
		"too many":         {join("fourth", 84, nil), "max-shared-lb"},
		"an internal one":  {join("internal", 85, map[string]string{annotationInternal: textTrue}), "cannot share"},
		"an unknown ID":    {named(web(map[string]string{annotationID: someID}), "lost"), "is not the ID of a load balancer"},
		"a port in use":    {join("third", 80, nil), "already exists"},
		"its own port too": {join("third", 82, nil), "already exists"},
	} {
		w.Apply(c.s)
		w.server.ResetCalls()
		_, err := w.try(c.s)
		require.ErrorContains(t, err, c.want, name)
		assert.Zero(t, w.server.Calls().Writes, name)
	}
	fourth := join("fourth", 84, nil)
	w.server.ResetCalls()
	require.NoError(t, w.remove(fourth), "one that never joined leaves without a trace")
	assert.Zero(t, w.server.Calls().Writes)

	require.NoError(t, w.remove(owner))
	require.Len(t, w.sim.LoadBalancers(), 1, "others use it")
	assert.Len(t, w.sim.Listeners(), 2)
	assert.Len(t, w.sim.FloatingIPs(), 1)
	assert.NotContains(t, w.sim.LoadBalancers()[0].Tags, "kube_service_kubernetes_default_web")
	require.NoError(t, w.remove(join("third", 83, nil)))
	require.NoError(t, w.remove(second))
	assert.Empty(t, w.sim.LoadBalancers(), "the last one deletes it")
	assert.Empty(t, w.sim.FloatingIPs())
	assert.Empty(t, w.server.Calls().Refused)
}

// TestAdoptedLoadBalancer: a load balancer that a user made is used, and neither it nor its listeners are deleted.
func TestAdoptedLoadBalancer(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", nil)
	w.addNode(openstacksim.Spec{Name: "n1"})
	lb, err := w.api.createBalancer(t.Context(), balancerRequest{Name: "mine", VIPSubnetID: firstSubnet, Listeners: []listenerRequest{{Name: "own", Protocol: "HTTP", Port: 8080, ConnectionLimit: -1}}})
	require.NoError(t, err)
	s := web(map[string]string{annotationID: lb.ID})
	w.Apply(s)
	_, err = w.try(s)
	require.ErrorContains(t, err, "--adopt-load-balancers=any", "the operator has not agreed")
	w.adopt = registry.AdoptAny
	w.restart()
	_, err = w.try(s)
	require.ErrorContains(t, err, "has no floating address")
	f := w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.50", "mine")
	require.NoError(t, w.sim.AttachFloatingIP(f, w.sim.LoadBalancers()[0].VIPPortID))
	w.restart()
	s, status := w.ensure(s)
	assert.Equal(t, "203.0.113.50", status.Ingress[0].IP)
	assert.Len(t, w.sim.Listeners(), 2)
	w.adopt = registry.AdoptNone
	w.restart()
	w.requireNoWrites(s) // what is used stays in use
	require.NoError(t, w.remove(s))
	require.Len(t, w.sim.LoadBalancers(), 1)
	require.Len(t, w.sim.Listeners(), 1)
	assert.Equal(t, "own", w.sim.Listeners()[0].Name)
	assert.Equal(t, []string{""}, w.sim.LoadBalancers()[0].Tags)
	assert.NotNil(t, w.sim.FloatingIPs()[0].PortID)
}

// TestClustersOfOneName: two clusters with the same --cluster-name in one project keep apart.
func TestClustersOfOneName(t *testing.T) {
	t.Parallel()
	w, first := served(t, "", web(nil))
	other := w.anotherCluster("kubernetes", "")
	same := named(web(nil), "web")
	other.Apply(same)
	w.server.ResetCalls()
	_, err := other.try(same)
	require.ErrorContains(t, err, "belongs to another cluster")
	require.NoError(t, other.remove(same))
	assert.Zero(t, w.server.Calls().Writes)
	w.requireNoWrites(first)

	// It may share the load balancer if both it and its operator say so, under a name of its own.
	guest := named(service("guest", map[string]string{annotationID: first.Annotations[annotationID]}, servicePort("x", 90, 30090)), "guest")
	other.Apply(guest)
	w.server.ResetCalls()
	_, err = other.try(guest)
	require.ErrorContains(t, err, "belongs to Service default/web, which is not of this cluster")
	assert.Zero(t, w.server.Calls().Writes)
	other.file = "share-across-namespaces = true\n"
	other.restart()
	guest, _ = other.ensure(guest)
	w.requireNoWrites(first)
	require.NoError(t, other.remove(guest))
	assert.Len(t, w.sim.Listeners(), 1)
	assert.Len(t, w.sim.LoadBalancers(), 1)
}

// TestOtherProjects: a load balancer of the same name in another project, which an administrator sees, is nobody's here.
func TestOtherProjects(t *testing.T) {
	t.Parallel()
	w, first := served(t, "", web(nil))
	w.sim.ChangeLoadBalancer(first.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.ProjectID, lb.Tags = "another", lb.Tags[:1] })
	w.restart()
	same := named(web(nil), "web")
	w.Apply(same)
	same, _ = w.ensure(same)
	assert.NotEqual(t, first.Annotations[annotationID], same.Annotations[annotationID])
	assert.Len(t, w.sim.LoadBalancers(), 2)
}

// TestRenamedCluster: a cluster that got another name takes its load balancers along; one that merely shares a load
// balancer of another cluster renames nothing.
func TestRenamedCluster(t *testing.T) {
	t.Parallel()
	w, s := served(t, "", web(nil))
	before := w.sim.LoadBalancers()[0]
	w.cluster = "production"
	w.restart()
	s, _ = w.ensure(s)
	after := w.sim.LoadBalancers()
	require.Len(t, after, 1)
	assert.Equal(t, before.ID, after[0].ID)
	assert.Equal(t, "kube_service_production_default_web", after[0].Name)
	assert.Contains(t, after[0].Tags, "kube_service_production_default_web")
	assert.NotContains(t, after[0].Tags, "kube_service_kubernetes_default_web")
	assert.Equal(t, "listener_0_kube_service_production_default_web", w.sim.Listeners()[0].Name)
	assert.Equal(t, []string{"kube_service_production_default_web"}, w.sim.Listeners()[0].Tags)
	assert.Equal(t, "pool_0_kube_service_production_default_web", w.sim.Pools()[0].Name)
	assert.Equal(t, "monitor_0_kube_service_production_default_web", w.sim.Monitors()[0].Name)
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventRename)
	w.requireNoWrites(s)
	require.NoError(t, w.remove(s))
	assert.Empty(t, w.sim.LoadBalancers())
	assert.Empty(t, w.server.Calls().Refused)

	for name, c := range map[string]struct {
		have, want string
		differs    bool
	}{
		"another cluster":       {"kube_service_a_default_web", "kube_service_b_default_web", true},
		"underscores":           {"kube_service_a_b_default_web", "kube_service_c_default_web", true},
		"named like the prefix": {"kube_service_kube_default_web", "kube_service_service_default_web", true},
		"another Service":       {"kube_service_a_default_web", "kube_service_b_default_api", false},
		"the same":              {"kube_service_a_default_web", "kube_service_a_default_web", false},
		"a user's":              {"mine", "kube_service_a_default_web", false},
		"a part":                {"listener_0_kube_service_a_default_web", "listener_0_kube_service_b_default_web", true},
		"another part":          {"listener_0_kube_service_a_default_web", "listener_1_kube_service_b_default_web", false},
		"one that was cut":      {cut("kube_service_" + strings.Repeat("x", 300) + "_default_web"), "kube_service_b_default_web", false},
	} {
		assert.Equal(t, c.differs, clusterDiffers(c.have, c.want), name)
	}
}

// TestNames: the names of OpenStack's own controller, and their length.
func TestNames(t *testing.T) {
	t.Parallel()
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "svc", UID: "0123-4567-89ab"}}
	assert.Equal(t, "kube_service_cluster_ns_svc", balancerName("cluster", s))
	assert.Equal(t, "kube_service___", balancerName("", &v1.Service{}))
	assert.Equal(t, "a0123456789ab", legacyName(s))
	assert.Equal(t, "lb-sg-0123-4567-89ab-ns-svc", securityGroupName(s))
	assert.Equal(t, "lb-sg---", securityGroupName(&v1.Service{}))
	assert.Equal(t, "Floating IP for Kubernetes external service ns/svc from cluster c", floatingIPDescription("c", s))
	assert.Equal(t, "Kubernetes external service ns/svc from cluster c", balancerDescription("c", s))
	long := &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: strings.Repeat("x", 300)}}
	assert.Len(t, balancerName("c", long), 255)
	assert.Len(t, securityGroupName(long), 255)
	assert.Len(t, partName("listener", 10, balancerName("c", long)), 255)
	assert.Equal(t, "pool_3_kube_service_cluster_ns_svc", partName("pool", 3, balancerName("cluster", s)))
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
	w, s := served(t, "", web(nil))
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
}
