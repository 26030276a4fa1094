package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func lbID(name string) string { return azuresim.ID("Microsoft.Network/loadBalancers", name) }

func pipID(name string) string { return azuresim.ID("Microsoft.Network/publicIPAddresses", name) }

// parts are those of a kind of a load balancer.
func (w *world) parts(lb, kind string) []doc { return docs(w.sim.Shown(lbID(lb)), "properties", kind) }

func (w *world) securityRules() []doc {
	return docs(w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)), "properties", "securityRules")
}

func namesOf(list []doc) (names []string) {
	for _, d := range list {
		names = append(names, str(d, "name"))
	}
	return names
}

// withNode is a world with a node and a Service.
func withNode(t *testing.T, s *v1.Service, test func(w *world)) {
	t.Helper()
	inWorld(t, func(w *world) {
		w.join("n1")
		w.Apply(s)
		test(w)
		assert.Empty(w, w.server.Calls().Refused)
	})
}

func TestFamilyRemoved(t *testing.T) {
	t.Parallel()
	s := webService(nil, bothFamilies)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Len(w, w.parts("kubernetes", "frontendIPConfigurations"), 2)
		w.change(s, func(s *v1.Service) { s.Spec.IPFamilies = s.Spec.IPFamilies[:1] })
		w.ensure(s)
		assert.Equal(w, []string{base}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
		assert.Equal(w, []string{webRule}, namesOf(w.parts("kubernetes", "loadBalancingRules")))
		assert.Nil(w, w.sim.Shown(pipID(webPIP+"-IPv6")))
		assert.Len(w, w.securityRules(), 1)
	})
}

// TestInternalSubnets: another subnet means another frontend, which keeps an address inside that subnet. A missing subnet is reported.
func TestInternalSubnets(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	withNode(t, s, func(w *world) {
		w.sim.AddSubnet("apps", "10.240.0.0/16")
		w.sim.AddSubnet("far", "10.250.0.0/16")
		first := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		front := w.parts("kubernetes-internal", "frontendIPConfigurations")[0]
		assert.Equal(w, "Dynamic", str(front, "properties", "privateIPAllocationMethod"))
		w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnet] = "apps" })
		assert.Equal(w, first, w.ensure(s).Status.LoadBalancer.Ingress[0].IP)
		front = w.parts("kubernetes-internal", "frontendIPConfigurations")[0]
		assert.Equal(w, base+"-apps", str(front, "name"))
		assert.Equal(w, "Static", str(front, "properties", "privateIPAllocationMethod"))
		assert.Equal(w, []string{base + "-apps-TCP-80"}, namesOf(w.parts("kubernetes-internal", "loadBalancingRules")))
		w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnet] = "far" })
		w.ensure(s)
		assert.Equal(w, []string{base + "-far"}, namesOf(w.parts("kubernetes-internal", "frontendIPConfigurations")))
		w.change(s, func(s *v1.Service) { s.Annotations[annotationSubnet] = "missing" })
		require.ErrorContains(w, w.refuse(s), "virtual network k8s-vnet has no subnet missing; name one of its subnets")
	})
}

// TestSwitchingSides: nothing of the other side is left.
func TestSwitchingSides(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		public := w.sim.Snapshot()
		w.change(s, func(s *v1.Service) { s.Annotations[annotationInternal] = "True" })
		w.ensure(s)
		assert.Nil(w, w.sim.Shown(lbID("kubernetes")))
		assert.Nil(w, w.sim.Shown(pipID(webPIP)))
		assert.Empty(w, w.securityRules())
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationInternal) })
		w.ensure(s)
		assert.Equal(w, public, w.sim.Snapshot())
	})
}

func TestAddressesOfUsers(t *testing.T) {
	t.Parallel()
	s := webService(nil, func(s *v1.Service) { s.Spec.LoadBalancerIP = "20.99.0.1" })
	inWorld(t, func(w *world) {
		w.join("n1")
		w.Apply(s)
		require.ErrorContains(w, w.refuse(s), "resource group k8s-rg has no public IP address with the address 20.99.0.1")
		w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = ""; s.Annotations[annotationName] = "mine" })
		require.ErrorContains(w, w.refuse(s), "has no public IP address \"mine\"; create it, or name another one")
		ip := w.sim.AddAddress("mine")
		time.Sleep(time.Minute)
		assert.Equal(w, ip, w.ensure(s).Status.LoadBalancer.Ingress[0].IP)
		assert.Nil(w, w.sim.Shown(pipID("mine"))["tags"], "a user's address is never written")
		w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = ip; delete(s.Annotations, annotationName) })
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes, "it is the same address")
		w.remove(s)
		assert.NotNil(w, w.sim.Shown(pipID("mine")))
	})
}

// TestSharedIP: two Services may have one address with different ports, and whichever goes last takes the frontend with it.
func TestSharedIP(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		second := webNumber(1, map[string]string{annotationIPv4: ip})
		w.Apply(second)
		require.ErrorContains(w, w.refuse(second), "needs port 80, which rule")
		w.change(second, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
		assert.Equal(w, ip, w.ensure(second).Status.LoadBalancer.Ingress[0].IP)
		assert.Len(w, w.parts("kubernetes", "frontendIPConfigurations"), 1)
		assert.Equal(w, "default/web,default/web-1", tagsOf(w.sim.Shown(pipID(webPIP)))["k8s-azure-service"])
		w.remove(s)
		assert.Equal(w, []string{base}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
		assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), 1)
		assert.Len(w, w.securityRules(), 1)
		w.remove(second)
		assert.Empty(w, w.sim.Snapshot())
	})
}

func TestPrefixes(t *testing.T) {
	t.Parallel()
	id := func(name string) string { return azuresim.ID("Microsoft.Network/publicIPPrefixes", name) }
	s := webService(map[string]string{annotationPrefixID: id("one")})
	withNode(t, s, func(w *world) {
		for _, name := range []string{"one", "two"} {
			w.sim.Leave(id(name), doc{"location": azuresim.Location})
		}
		w.ensure(s)
		assert.Equal(w, id("one"), str(w.sim.Shown(pipID(webPIP+"-one")), "properties", "publicIPPrefix", "id"))
		w.change(s, func(s *v1.Service) { s.Annotations[annotationPrefixID] = id("two") })
		w.ensure(s)
		assert.NotNil(w, w.sim.Shown(pipID(webPIP+"-two")))
		assert.Nil(w, w.sim.Shown(pipID(webPIP+"-one")))
	})
}

func TestAddressSettings(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationLabel: "shop", annotationIPTags: "RoutingPreference=Internet", annotationTags: "a=b"})
	withNode(t, s, func(w *world) {
		w.set(map[string]any{"tags": "Team=web", "systemTags": "k8s-, anyccm-"})
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		pip := func() doc { return w.sim.Shown(pipID(webPIP)) }
		assert.Equal(w, "shop", str(pip(), "properties", "dnsSettings", "domainNameLabel"))
		assert.Equal(w, "default/web", tagsOf(pip())["k8s-azure-dns-label-service"])
		assert.Equal(w, "web", tagsOf(pip())["Team"])
		w.change(s, func(s *v1.Service) {
			s.Annotations[annotationLabel], s.Annotations[annotationIPTags], s.Annotations[annotationTags] = "store", "FirstPartyUsage=/x", "c=d"
		})
		assert.Equal(w, ip, w.ensure(s).Status.LoadBalancer.Ingress[0].IP, "all of it changes in place")
		assert.Equal(w, "store", str(pip(), "properties", "dnsSettings", "domainNameLabel"))
		assert.Equal(w, []doc{{"ipTagType": "FirstPartyUsage", "tag": "/x"}}, docs(pip(), "properties", "ipTags"))
		assert.Equal(w, []string{"Team", "anyccm-cluster", "c", "k8s-azure-cluster-name", "k8s-azure-dns-label-service", "k8s-azure-service"}, sortedKeys(tagsOf(pip())),
			"tags that nobody asks for are removed where systemTags is set")
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationLabel) })
		w.server.ResetCalls()
		w.ensure(s)
		assert.Zero(w, w.server.Calls().Writes, "without the annotation the label stays")
		w.change(s, func(s *v1.Service) { s.Annotations[annotationLabel] = "" })
		w.ensure(s)
		assert.Nil(w, value(pip(), "properties", "dnsSettings"))
	})
}

func TestLabelOfAnotherService(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationLabel: "shop"})
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		second := webNumber(1, map[string]string{annotationIPv4: ip, annotationLabel: "mine"}, func(s *v1.Service) { s.Spec.Ports[0].Port = 81 })
		w.Apply(second)
		require.ErrorContains(w, w.refuse(second), "Service default/web has set the DNS label of this public IP address")
	})
}

// TestFloatingOff: the security group lets traffic to the nodes' own addresses, of the nodes that there are.
func TestFloatingOff(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		rule := w.parts("kubernetes", "loadBalancingRules")[0]
		assert.Equal(w, 30080, num(rule, "properties", "backendPort"))
		assert.False(w, flag(rule, "properties", "enableFloatingIP"))
		addresses := func() []string { return destinationsOf(w.securityRules()[0]) }
		first := internalIP(w.nodes[0], false)
		assert.Equal(w, []string{first}, addresses())
		second := internalIP(w.join("n2"), false)
		w.update(s)
		assert.ElementsMatch(w, []string{first, second}, addresses(), "a node that joins")
		w.nodes = w.nodes[1:]
		w.update(s)
		assert.Equal(w, []string{second}, addresses(), "a node that leaves")
		w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationNoFloating) })
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, []string{ip}, addresses())
		w.remove(s)
		assert.Empty(w, w.sim.Snapshot())
	})
}

func TestProtocols(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationAllPorts: "true"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Equal(w, "Tcp", str(w.parts("kubernetes", "loadBalancingRules")[0], "properties", "protocol"), "all ports are for internal ones")
		w.change(s, func(s *v1.Service) {
			s.Spec.Ports[0].Protocol = v1.ProtocolSCTP
			delete(s.Annotations, annotationAllPorts)
		})
		require.ErrorContains(w, w.refuse(s), "a public load balancer serves no SCTP")
		w.change(s, func(s *v1.Service) { s.Annotations[annotationInternal] = "true" })
		w.ensure(s)
		rules := w.parts("kubernetes-internal", "loadBalancingRules")
		assert.Equal(w, []string{base + "-SCTP-80"}, namesOf(rules))
		assert.Equal(w, "All", str(rules[0], "properties", "protocol"))
		assert.Equal(w, 80, num(rules[0], "properties", "frontendPort"))
	})
}

func TestProbes(t *testing.T) {
	t.Parallel()
	https, odd := "https", "kubernetes.io/h2c"
	for name, c := range map[string]struct {
		annotations map[string]string
		app         *string
		want        doc
		refused     string
	}{
		"default":        {want: doc{"protocol": "Tcp", "port": 30080.0, "intervalInSeconds": 5.0, "probeThreshold": 2.0}},
		"port by number": {annotations: map[string]string{prefix + "port_80_health-probe_port": "80"}, want: doc{"port": 30080.0}},
		"port by name":   {annotations: map[string]string{prefix + "port_80_health-probe_port": "http"}, want: doc{"port": 30080.0}},
		"foreign number": {annotations: map[string]string{prefix + "port_80_health-probe_port": "9090"}, want: doc{"port": 9090.0}},
		"unknown name":   {annotations: map[string]string{prefix + "port_80_health-probe_port": "x"}, refused: `port_80_health-probe_port: "x" is neither a port of the Service nor`},
		"out of range":   {annotations: map[string]string{prefix + "port_80_health-probe_port": "70000"}, refused: `port_80_health-probe_port: "70000" is neither a port of the Service nor`},
		"path": {
			annotations: map[string]string{annotationProbeProtocol: "Http", annotationProbePath: "/a"}, want: doc{"protocol": "Http", "requestPath": "/a"},
		},
		"app protocol":      {app: &https, want: doc{"protocol": "Https", "requestPath": "/"}},
		"odd app protocol":  {app: &odd, want: doc{"protocol": "Tcp"}},
		"too long in all":   {annotations: map[string]string{annotationProbeInterval: "59", annotationProbeNumber: "3"}, refused: "3 probes at intervals of 59 s take 177 s; choose fewer or shorter ones, below 120 s in all"},
		"interval of port":  {annotations: map[string]string{prefix + "port_80_health-probe_interval": "7"}, want: doc{"intervalInSeconds": 7.0}},
		"interval too low":  {annotations: map[string]string{annotationProbeInterval: "4"}, refused: "4"},
		"port's too low":    {annotations: map[string]string{prefix + "port_80_health-probe_interval": "4"}, refused: `port_80_health-probe_interval: "4"`},
		"label":             {annotations: map[string]string{annotationLabel: "Shop_1"}, refused: `azure-dns-label-name: "Shop_1" is not a DNS label`},
		"other protocol":    {annotations: map[string]string{prefix + "port_80_health-probe_protocol": "icmp"}, want: doc{"protocol": "Tcp"}},
		"idle too long":     {annotations: map[string]string{annotationIdle: "101"}, refused: "101"},
		"idle is no number": {annotations: map[string]string{annotationIdle: "x"}, refused: "x"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(c.annotations, func(s *v1.Service) { s.Spec.Ports[0].AppProtocol = c.app })
			withNode(t, s, func(w *world) {
				if c.refused != "" {
					require.ErrorContains(w, w.refuse(s), c.refused)
					assert.Empty(w, w.parts("kubernetes", "probes"))
					return
				}
				w.ensure(s)
				probes := w.parts("kubernetes", "probes")
				require.Len(w, probes, 1)
				for key, v := range c.want {
					assert.Equal(w, v, value(probes[0], "properties", key), key)
				}
			})
		})
	}
}

func TestLocalAndBack(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{prefix + "port_30999_health-probe_interval": "7"}, localTraffic, func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "dns", Protocol: v1.ProtocolUDP, Port: 53, NodePort: 30053})
	})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Equal(w, 7, num(w.parts("kubernetes", "probes")[0], "properties", "intervalInSeconds"))
		assert.Equal(w, []string{base + "-TCP-30999"}, namesOf(w.parts("kubernetes", "probes")))
		for _, rule := range w.parts("kubernetes", "loadBalancingRules") {
			assert.Equal(w, base+"-TCP-30999", nameOf(str(rule, "properties", "probe", "id")), "UDP as well")
		}
		w.change(s, func(s *v1.Service) { s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = "Cluster", 0 })
		w.ensure(s)
		assert.Equal(w, []string{webRule}, namesOf(w.parts("kubernetes", "probes")))
		w.change(s, localTraffic)
		w.ensure(s)
		assert.Equal(w, []string{base + "-TCP-30999"}, namesOf(w.parts("kubernetes", "probes")))
	})
}

func TestSharedProbe(t *testing.T) {
	t.Parallel()
	s, second, local := webService(nil), webNumber(1, nil), webNumber(2, nil, localTraffic)
	withNode(t, s, func(w *world) {
		w.set(map[string]any{"clusterServiceLoadBalancerHealthProbeMode": "shared"})
		w.Apply(second, local)
		for _, s := range []*v1.Service{s, second, local} {
			w.ensure(s)
		}
		assert.ElementsMatch(w, []string{sharedProbe, baseName(local) + "-TCP-30999"}, namesOf(w.parts("kubernetes", "probes")))
		w.remove(s)
		assert.Contains(w, namesOf(w.parts("kubernetes", "probes")), sharedProbe)
		w.remove(second)
		assert.NotContains(w, namesOf(w.parts("kubernetes", "probes")), sharedProbe)
	})
}

func TestPortsWithout(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{prefix + "port_80_no_lb_rule": "true", prefix + "port_81_no_probe_rule": "true"}, func(s *v1.Service) {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "more", Protocol: v1.ProtocolTCP, Port: 81, NodePort: 30181})
	})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		assert.Equal(w, []string{base + "-TCP-81"}, namesOf(w.parts("kubernetes", "loadBalancingRules")))
		assert.Empty(w, w.parts("kubernetes", "probes"))
	})
}

// TestSwitches: as with Azure's own controller, the word true alone turns a switch on.
func TestSwitches(t *testing.T) {
	t.Parallel()
	for _, table := range [][]schema.AnnotationRow{Annotations.Rows(), PortAnnotations.Rows()} {
		for _, row := range table {
			if row.Kind != schema.KindBool {
				continue
			}
			key := strings.Replace(row.Key, schema.Numbered, "80", 1)
			parsed := func(value string) (settings, error) {
				s, warnings, _ := parseSettings(webService(map[string]string{key: value})) // what some need besides is not set
				return s, warnings
			}
			on, _ := parsed("tRUE")
			off, _ := parsed("false")
			one, warned := parsed("1")
			assert.NotEqual(t, off, on, key)
			assert.Equal(t, off, one, key)
			assert.ErrorContains(t, warned, key)
		}
	}
}

func TestRanges(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationAllowedRanges: "10.1.2.3/24,192.0.2.0/24"})
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		assert.ElementsMatch(w, []string{"k8s-azure-lb_deny-all_IPv4", access{protocol: "Tcp", sources: []string{"192.0.2.0/24"}, ports: []string{"80"}}.name()},
			namesOf(w.securityRules()), "a network that is none denies all others")
		assert.Contains(w, strings.Join(w.Events(), "\n"), "10.1.2.3/24")
		w.change(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"10.0.0.0/8"} })
		require.ErrorContains(w, w.refuse(s), "is set beside spec.loadBalancerSourceRanges; keep one of them")
		w.change(s, func(s *v1.Service) {
			s.Annotations = map[string]string{annotationServiceTags: "AzureFrontDoor.Backend,Storage"}
		})
		w.Events()
		w.ensure(s)
		assert.Len(w, w.securityRules(), 3, "two tags, and the networks together")
		for _, rule := range w.securityRules() {
			assert.Equal(w, []string{ip}, destinationsOf(rule))
		}
		assert.Contains(w, strings.Join(w.Events(), "\n"), "both service tags and networks")
	})
}

// TestSharedRules: Services with the same ports and sources share a rule, whose priority stays.
func TestSharedRules(t *testing.T) {
	t.Parallel()
	s, second := webService(nil), webNumber(1, nil)
	withNode(t, s, func(w *world) {
		w.Apply(second)
		w.ensure(s)
		w.ensure(second)
		require.Len(w, w.securityRules(), 1)
		assert.Len(w, destinationsOf(w.securityRules()[0]), 2)
		before := num(w.securityRules()[0], "properties", "priority")
		w.remove(s)
		assert.Len(w, destinationsOf(w.securityRules()[0]), 1)
		assert.Equal(w, before, num(w.securityRules()[0], "properties", "priority"))
	})
}

// TestMachinesThatTakeNoChange: they are left out, and all others have the pool.
func TestMachinesThatTakeNoChange(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		deleting, stopped, failed, well := w.join("deleting"), w.join("stopped"), w.sim.AddMachine("failed"), w.join("well")
		w.joinAs("failed", failed)
		require.NoError(w, w.sim.SetState(deleting.Spec.ProviderID, "Deleting"))
		require.NoError(w, w.sim.SetPower(stopped.Spec.ProviderID, "deallocated"))
		require.NoError(w, w.sim.SetState(azuresim.ID("Microsoft.Network/networkInterfaces", "failed-nic"), "Failed"))
		time.Sleep(stateAge)
		w.ensure(s)
		snapshot := w.sim.Snapshot()
		for _, name := range []string{"n1", well.Name} {
			assert.Contains(w, snapshot, "pool kubernetes member "+name)
		}
		for _, name := range []string{"deleting", "stopped", "failed"} {
			assert.NotContains(w, snapshot, "member "+name)
		}
	})
}

// TestFrontendInUse: what a user's rules need stays when the Service goes, and is told.
func TestFrontendInUse(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		lb := w.sim.Shown(lbID("kubernetes"))
		props(lb)["outboundRules"] = []any{part("out", doc{"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", base)}})}
		w.sim.Leave(lbID("kubernetes"), lb)
		w.restart()
		w.Events()
		now := w.Current(s)
		// The address cannot go either, so the deletion goes on until the rule does.
		_ = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), clusterName, now)
		assert.Equal(w, []string{base}, namesOf(w.parts("kubernetes", "frontendIPConfigurations")))
		assert.Empty(w, w.parts("kubernetes", "loadBalancingRules"))
		assert.Contains(w, strings.Join(w.Events(), "\n"), "outboundRules out")
	})
}
