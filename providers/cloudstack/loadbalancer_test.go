package cloudstack

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// world is the provider without its guard, in front of a simulated zone, in virtual time.
type world struct {
	*conformance.Bench
	*cloud

	sim     *cloudstacksim.Sim
	server  *simkit.Server
	network *simkit.Network
	url     string
	more    string
	nodes   []*v1.Node
}

func inWorld(t *testing.T, prepare func(*cloudstacksim.Sim), test func(w *world)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := cloudstacksim.New(cloudstacksim.Options{Activation: time.Second, Seed: simkit.SeedOf(t)})
		if prepare != nil {
			prepare(sim)
		}
		network := simkit.NewNetwork()
		w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, network: network, url: network.Serve(t, server)}
		w.restart()
		w.addNode("node-1")
		w.addNode("node-2")
		test(w)
	})
}

// restart makes a new provider, with nothing in memory.
func (w *world) restart() {
	in := testInputs(w.sim, w.url, w.more)
	if w.network != nil {
		in.Dial = w.network.Dial
	}
	c, err := maker().New(in)
	require.NoError(w.T, err)
	c.begin(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder, Stop: w.T.Context().Done()})
	c.reconciler.cluster.SetServices(w.Services())
	c.instances.nodes.SetLister(w.Nodes())
	w.cloud = c
}

func (w *world) addNode(name string) {
	id := w.sim.AddVM(cloudstacksim.Spec{Name: name})
	node := conformance.InitializedNode(name, providerIDPrefix+id)
	w.nodes = append(w.nodes, node)
	w.Register(node)
}

// try reconciles a Service.
func (w *world) try(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	status, err := w.Reconcile(w.loadBalancers, "", s, w.nodes)
	if err == nil {
		w.SetStatus(s, status)
	}
	return status, err
}

func (w *world) ensure(s *v1.Service) *v1.LoadBalancerStatus {
	w.T.Helper()
	status, err := w.try(s)
	require.NoError(w.T, err)
	return status
}

func (w *world) alter(s *v1.Service, change func(*v1.Service)) {
	now := w.Current(s)
	change(now)
	w.Apply(now)
	time.Sleep(2 * observedMaxAge)
}

// writes counts the calls that change something.
func (w *world) writes() (n int) {
	for operation, calls := range w.server.Calls().ByOperation {
		if !strings.HasPrefix(operation, "list") && !strings.HasPrefix(operation, "query") {
			n += calls
		}
	}
	return n
}

// requireNoWrites runs work that changes nothing, also in a program that has just begun.
func (w *world) requireNoWrites(s *v1.Service) {
	w.T.Helper()
	for range 2 {
		w.restart()
		before := w.writes()
		w.ensure(s)
		assert.Equal(w.T, before, w.writes(), "%v", w.server.Calls().ByOperation)
	}
}

func (w *world) rule(name string) *cloudstacksim.Rule {
	for _, r := range w.sim.Rules() {
		if r.Name == name {
			return &r
		}
	}
	return nil
}

// takenAddresses are the addresses that somebody has, less those of source NAT.
func (w *world) takenAddresses() (list []string) {
	for _, a := range w.sim.Addresses() {
		if a.State != "Free" && !a.SourceNAT {
			list = append(list, a.Address)
		}
	}
	return list
}

func (w *world) eventAbout(reason, words string) {
	w.T.Helper()
	all := strings.Join(w.Events(), "\n")
	assert.Contains(w.T, all, reason)
	assert.Contains(w.T, all, words)
}

// another is a Service with an identity of its own.
func another(s *v1.Service) *v1.Service {
	s.UID = types.UID("7b5e2d10-9c4f-4f0e-8a61-00000000000" + s.Name[:1])
	return s
}

func nameOf(s *v1.Service, suffix string) string { return loadBalancerName("", s) + suffix }

// TestLifeOfALoadBalancer: exact names, all nodes, a firewall rule for each port, one address; nothing is left.
func TestLifeOfALoadBalancer(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080), port("https", 443, 30443))
		w.Apply(s)
		status := w.ensure(s)
		require.Len(t, w.takenAddresses(), 1)
		assert.Equal(t, w.takenAddresses()[0], status.Ingress[0].IP)
		for _, p := range []string{"80", "443"} {
			r := w.rule(nameOf(s, "-tcp-"+p))
			require.NotNil(t, r)
			assert.Len(t, r.Members, 2)
			assert.Equal(t, "0.0.0.0/0", r.CIDRs)
			assert.Equal(t, "Active", r.State)
		}
		assert.Len(t, w.sim.Firewalls(), 2)
		w.requireNoWrites(s)

		w.alter(s, func(s *v1.Service) { s.Spec.Ports = []v1.ServicePort{port("http", 80, 30081)} })
		w.ensure(s)
		assert.Nil(t, w.rule(nameOf(s, "-tcp-443")))
		assert.Equal(t, 30081, w.rule(nameOf(s, "-tcp-80")).PrivatePort)
		assert.Len(t, w.rule(nameOf(s, "-tcp-80")).Members, 2)
		assert.Len(t, w.sim.Firewalls(), 1)
		assert.Equal(t, status.Ingress[0].IP, w.takenAddresses()[0], "the address stays")
		w.requireNoWrites(s)

		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Empty(t, w.sim.Rules())
		assert.Empty(t, w.sim.Firewalls())
		assert.Empty(t, w.takenAddresses())
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestProxyProtocolIsSwitchedInPlace: the rule stays the same, and so does what the firewall has.
func TestProxyProtocolIsSwitchedInPlace(t *testing.T) {
	for name, prepare := range networkKinds {
		t.Run(name, func(t *testing.T) {
			inWorld(t, prepare, func(w *world) {
				t := w.T
				s := service("web", nil, port("http", 80, 30080))
				w.Apply(s)
				w.ensure(s)
				id, firewalls, items := w.rule(nameOf(s, "-tcp-80")).ID, w.sim.Firewalls(), w.sim.ACLItems()
				for _, on := range []string{"true", "false"} {
					w.alter(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationProxyProtocol: on} })
					w.ensure(s)
					require.Len(t, w.sim.Rules(), 1)
					assert.Equal(t, id, w.sim.Rules()[0].ID)
					assert.Equal(t, on == "true", w.sim.Rules()[0].Protocol == "tcp-proxy")
					assert.Equal(t, w.sim.Rules()[0].Protocol == "tcp-proxy", strings.Contains(w.sim.Rules()[0].Name, "-tcp-proxy-80"))
				}
				assert.Equal(t, firewalls, w.sim.Firewalls())
				assert.Equal(t, items, w.sim.ACLItems())
				w.requireNoWrites(s)
			})
		})
	}
}

// TestNetworksThatMayReachARule: in place from 4.22 on, made again before, and then left alone whichever way the API joins them.
func TestNetworksThatMayReachARule(t *testing.T) {
	for version, inPlace := range map[string]bool{cloudstacksim.V422: true, cloudstacksim.V420: false} {
		t.Run(version, func(t *testing.T) {
			inWorld(t, func(s *cloudstacksim.Sim) { s.SetVersion(version) }, func(w *world) {
				t := w.T
				s := service("web", map[string]string{annotationSourceCIDRs: "10.0.0.0/8, 192.0.2.0/24"}, port("http", 80, 30080))
				w.Apply(s)
				status := w.ensure(s)
				id := w.sim.Rules()[0].ID
				w.alter(s, func(s *v1.Service) { s.Annotations[annotationSourceCIDRs] = "198.51.100.0/24,10.0.0.0/8" })
				assert.Equal(t, status, w.ensure(s))
				require.Len(t, w.sim.Rules(), 1)
				assert.Equal(t, inPlace, id == w.sim.Rules()[0].ID)
				assert.Equal(t, []string{"10.0.0.0/8", "198.51.100.0/24"}, cidrs(w.sim.Rules()[0].CIDRs))
				assert.Len(t, w.sim.Rules()[0].Members, 2)
				w.requireNoWrites(s)
			})
		})
	}
}

// TestAddresses: a free one is taken, noted and released; a user's is used and stays.
func TestAddresses(t *testing.T) {
	for name, c := range map[string]struct {
		reserve, byAnnotation, keep bool
		stays                       bool
	}{
		"free": {}, "free, by annotation": {byAnnotation: true}, "a user's": {reserve: true, stays: true}, "free, and to be kept": {keep: true, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				t := w.T
				const ip = "203.0.113.77"
				if c.reserve {
					_, err := w.sim.Reserve(ip)
					require.NoError(t, err)
				}
				s := service("web", map[string]string{}, port("http", 80, 30080))
				if c.keep {
					s.Annotations[annotationKeepIP] = "true"
				}
				if c.byAnnotation {
					s.Annotations[annotationAddress], s.Spec.LoadBalancerIP = ip, "203.0.113.78"
				} else {
					s.Spec.LoadBalancerIP = ip
				}
				w.Apply(s)
				assert.Equal(t, ip, w.ensure(s).Ingress[0].IP)
				assert.Equal(t, !c.reserve, w.Current(s).Annotations[annotationAssociated] == "true")
				w.requireNoWrites(s)
				require.NoError(t, w.Remove(w.loadBalancers, "", s))
				assert.Equal(t, c.stays, slices.Contains(w.takenAddresses(), ip))
				assert.Empty(t, w.sim.Rules())
			})
		})
	}
}

// TestAnotherAddressIsNamedLater: the load balancer keeps its address, and nobody's is released.
func TestAnotherAddressIsNamedLater(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		_, err := w.sim.Reserve("203.0.113.77")
		require.NoError(t, err)
		s := service("web", nil, port("http", 80, 30080))
		s.Spec.LoadBalancerIP = "203.0.113.77"
		w.Apply(s)
		w.ensure(s)
		for _, later := range []string{"203.0.113.78", ""} {
			w.alter(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = later })
			assert.Equal(t, "203.0.113.77", w.ensure(s).Ingress[0].IP)
		}
		w.eventAbout(services.EventFixed, "203.0.113.78")
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Equal(t, []string{"203.0.113.77"}, w.takenAddresses())
	})
}

// TestPortsThatAreRefused: the others are served, and no address is taken again and again.
func TestPortsThatAreRefused(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("stats", 8081, 30081), port("http", 80, 30080))
		w.Apply(s)
		for range 3 {
			_, err := w.try(s)
			require.ErrorContains(t, err, "LB service provider cannot support this rule")
		}
		w.eventAbout(eventRefused, "port 8081")
		assert.NotNil(t, w.rule(nameOf(s, "-tcp-80")))
		assert.Len(t, w.takenAddresses(), 1)
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Empty(t, w.takenAddresses())
	})
}

// TestUDPOnAVirtualRouter is told once, and costs no address where there is nothing else.
func TestUDPOnAVirtualRouter(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		dns := port("dns", 53, 30053)
		dns.Protocol = v1.ProtocolUDP
		s := service("dns", nil, dns)
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorContains(t, err, "UDP is refused by the virtual router")
		w.eventAbout(eventConfigError, "53")
		assert.Empty(t, w.takenAddresses())
		both := another(service("both", nil, dns, port("http", 80, 30080)))
		w.Apply(both)
		w.ensure(both)
		require.Len(t, w.sim.Rules(), 1)
	})
}

// TestQuota: no address is to be had, which the user is told; nothing is taken.
func TestQuota(t *testing.T) {
	inWorld(t, func(s *cloudstacksim.Sim) { s.TakeAddresses() }, func(w *world) {
		t := w.T
		before := w.takenAddresses()
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		_, err := w.try(s)
		require.ErrorContains(t, err, "address capacity")
		w.eventAbout(eventAddress, "address capacity")
		assert.Equal(t, before, w.takenAddresses())
	})
}

// TestForeignRules: names and descriptions that hold the name of the load balancer are nobody's of ours.
func TestForeignRules(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s, other := service("web", nil, port("http", 80, 30080)), another(service("d", nil, port("http", 8080, 30081)))
		w.Apply(other)
		w.ensure(other)
		address, network := w.sim.Rules()[0].Address, w.sim.Rules()[0].Network
		byHand(w, "createLoadBalancerRule", params{
			"name": "mine", "description": nameOf(s, "-tcp-80"), "publicipid": address, "networkid": network, "publicport": "90", "privateport": "90",
			"algorithm": "roundrobin", "openfirewall": "false",
		})
		byHand(w, "createLoadBalancerRule", params{
			"name": "x-" + nameOf(s, "-tcp-91"), "publicipid": address, "networkid": network, "publicport": "91", "privateport": "91",
			"algorithm": "roundrobin", "openfirewall": "false",
		})
		byHand(w, "createLoadBalancerRule", params{
			"name": nameOf(s, "-of-mine"), "publicipid": address, "networkid": network, "publicport": "92", "privateport": "92",
			"algorithm": "roundrobin", "openfirewall": "false",
		})
		before := w.sim.Rules()
		w.Apply(s)
		w.ensure(s)
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Equal(t, before, w.sim.Rules())
	})
}

// TestMembers: nodes that join and leave are one job for each rule; what crashed between creation and assignment is made good, and a
// machine that the API refuses keeps nobody out.
func TestMembers(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		w.addNode("node-3")
		before := maps.Clone(w.server.Calls().ByOperation)
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), "", w.Current(s), w.nodes))
		assert.Equal(t, before["assignToLoadBalancerRule"]+1, w.server.Calls().ByOperation["assignToLoadBalancerRule"])
		assert.Len(t, w.sim.Rules()[0].Members, 3)

		broken := strings.TrimPrefix(w.nodes[2].Spec.ProviderID, providerIDPrefix)
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), "", w.Current(s), w.nodes[:2]))
		assert.Len(t, w.sim.Rules()[0].Members, 2)
		w.addNode("node-4")
		require.NoError(t, w.sim.SetStatus(broken, "Destroyed"))
		_ = w.loadBalancers.UpdateLoadBalancer(w.T.Context(), "", w.Current(s), w.nodes) // refused as a whole where the state is not known yet
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), "", w.Current(s), w.nodes))
		assert.Len(t, w.sim.Rules()[0].Members, 3)

		byHand(w, "removeFromLoadBalancerRule", params{
			"id": w.sim.Rules()[0].ID, "virtualmachineids": strings.TrimPrefix(w.nodes[0].Spec.ProviderID, providerIDPrefix),
		})
		time.Sleep(2 * membersMaxAge)
		w.ensure(s)
		assert.Len(t, w.sim.Rules()[0].Members, 3)
	})
}

// TestOtherNetworks: nodes outside of the network are left out, and the user is told.
func TestOtherNetworks(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		second := w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "second"})
		id := w.sim.AddVM(cloudstacksim.Spec{Name: "away", Networks: []string{second}})
		w.nodes = append(w.nodes, conformance.InitializedNode("away", providerIDPrefix+id))
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		assert.Len(t, w.sim.Rules()[0].Members, 2)
		w.eventAbout(eventOutside, "away")
	})
}

// TestNoReadyNode: the load balancer is made all the same, where the nodes that are not ready are.
func TestNoReadyNode(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		all := w.nodes
		w.nodes = nil
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		assert.Empty(t, w.sim.Rules()[0].Members)
		w.nodes = all
		w.ensure(s)
		assert.Len(t, w.sim.Rules()[0].Members, 2)
	})
}

// TestLostAddress: an address whose giving was not answered is found again, also by the next process.
func TestLostAddress(t *testing.T) {
	for name, restart := range map[string]bool{"the same process": false, "the next one": true} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				t := w.T
				s := service("web", nil, port("http", 80, 30080))
				w.Apply(s)
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatusAfter, Status: 504, Operation: "associateIpAddress"})
				require.NoError(t, err)
				_, err = w.try(s)
				require.Error(t, err)
				w.server.ClearFaults()
				if restart {
					w.restart()
				}
				time.Sleep(time.Minute)
				w.ensure(s)
				assert.Len(t, w.takenAddresses(), 1)
				require.NoError(t, w.Remove(w.loadBalancers, "", s))
				assert.Empty(t, w.takenAddresses())
			})
		})
	}
}

// TestJobThatTakesLong is waited for, and not begun again.
func TestJobThatTakesLong(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.sim.SetActivation(4 * time.Minute)
		w.ensure(s)
		calls := w.server.Calls().ByOperation
		assert.Equal(t, []int{1, 1, 1, 1}, []int{
			calls["associateIpAddress"], calls["createLoadBalancerRule"], calls["assignToLoadBalancerRule"], calls["createFirewallRule"],
		})
		assert.Len(t, w.takenAddresses(), 1)
	})
}

// TestAffinity: the algorithm follows in place.
func TestAffinity(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		id := w.sim.Rules()[0].ID
		for affinity, algorithm := range map[v1.ServiceAffinity]string{v1.ServiceAffinityClientIP: "source", v1.ServiceAffinityNone: "roundrobin"} {
			w.alter(s, func(s *v1.Service) { s.Spec.SessionAffinity = affinity })
			w.ensure(s)
			assert.Equal(t, []string{id, algorithm}, []string{w.sim.Rules()[0].ID, w.sim.Rules()[0].Algorithm})
		}
	})
}

// TestPortsOfServices: what no load balancer of CloudStack has is refused before anything is written.
func TestPortsOfServices(t *testing.T) {
	t.Parallel()
	of := func(protocol v1.Protocol, number, nodePort int32) v1.ServicePort {
		return v1.ServicePort{Name: string(protocol), Protocol: protocol, Port: number, NodePort: nodePort}
	}
	for words, ports := range map[string][]v1.ServicePort{
		"there twice, with TCP and UDP":      {of(v1.ProtocolTCP, 53, 30053), of(v1.ProtocolUDP, 53, 30054)},
		"is a protocol that CloudStack":      {of(v1.ProtocolSCTP, 53, 30053)},
		"has no node port":                   {of(v1.ProtocolTCP, 53, 0)},
		"requested load balancer with no po": nil,
	} {
		_, err := checkService(registry.Inputs{}, service("web", nil, ports...))
		require.ErrorContains(t, err, words)
	}
}

// TestAddressesThatCannotBeUsed is told, and nothing is taken.
func TestAddressesThatCannotBeUsed(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		_, err := w.sim.Reserve("203.0.113.77")
		require.NoError(t, err)
		machine := w.sim.List()[0].ID
		w.sim.EditAddress("203.0.113.77", func(a *cloudstacksim.Address) { a.StaticNAT = machine })
		for ip, words := range map[string]string{"198.51.100.1": "the account sees 0 addresses 198.51.100.1, and needs one", "203.0.113.77": "static NAT"} {
			s := service("web", nil, port("http", 80, 30080))
			s.Spec.LoadBalancerIP = ip
			w.Apply(s)
			_, err := w.try(s)
			require.ErrorContains(t, err, words)
			w.eventAbout(eventAddress, words)
		}
		assert.Equal(t, []string{"203.0.113.77"}, w.takenAddresses())
	})
}

// projectRole lists the API rights that CKS gives its service account in a project.
var projectRole = []string{
	"queryAsyncJobResult", "listVirtualMachines", "listNetworks", "listPublicIpAddresses", "associateIpAddress", "disassociateIpAddress",
	"listLoadBalancerRules", "createLoadBalancerRule", "updateLoadBalancerRule", "deleteLoadBalancerRule", "assignToLoadBalancerRule",
	"removeFromLoadBalancerRule", "listLoadBalancerRuleInstances", "listFirewallRules", "createFirewallRule", "deleteFirewallRule",
	"updateFirewallRule", "listNetworkACLs", "createNetworkACL", "deleteNetworkACL",
}

// TestNarrowRole: the role that CKS gives is enough in every kind of network of a project.
func TestNarrowRole(t *testing.T) {
	for name, prepare := range networkKinds {
		t.Run(name, func(t *testing.T) {
			inWorld(t, prepare, func(w *world) {
				t := w.T
				w.more = "project-id = " + w.sim.MoveToProject() + "\n"
				w.restart()
				w.sim.Restrict(cloudstacksim.APIKey, projectRole...)
				s := service("web", map[string]string{annotationSourceCIDRs: "10.0.0.0/8"}, port("http", 80, 30080))
				w.Apply(s)
				w.ensure(s)
				w.alter(s, func(s *v1.Service) { s.Annotations[annotationSourceCIDRs] = "192.0.2.0/24" })
				w.ensure(s)
				w.requireNoWrites(s)
				require.NoError(t, w.Remove(w.loadBalancers, "", s))
				assert.Empty(t, w.takenAddresses())
				assert.Empty(t, w.sim.ACLItems())
			})
		})
	}
}

// TestProject: every call is of the project.
func TestProject(t *testing.T) {
	for name, prepare := range networkKinds {
		t.Run(name, func(t *testing.T) {
			inWorld(t, prepare, func(w *world) {
				t := w.T
				w.more = "project-id = " + w.sim.MoveToProject() + "\n"
				w.restart()
				s := service("web", nil, port("http", 80, 30080))
				s.Spec.LoadBalancerIP = "203.0.113.77"
				w.Apply(s)
				w.ensure(s)
				w.requireNoWrites(s)
				for _, c := range w.server.Calls().Latest {
					if strings.HasPrefix(c.Operation, "list") && c.Operation != "listCapabilities" && c.Operation != "listLoadBalancerRuleInstances" {
						assert.Contains(t, c.URL+c.Body, "projectid="+cloudstacksim.ProjectID, c.Operation)
					}
				}
				require.NoError(t, w.Remove(w.loadBalancers, "", s))
				assert.Empty(t, w.takenAddresses())
				assert.Empty(t, w.sim.ACLItems())
			})
		})
	}
}

// TestLoadBalancersOnSmallPages: rules beyond the first page are found.
func TestLoadBalancersOnSmallPages(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		w.sim.SetPageSize(2)
		s := service("web", nil, port("a", 80, 30080), port("b", 81, 30081), port("c", 82, 30082), port("d", 83, 30083), port("e", 84, 30084))
		w.Apply(s)
		w.ensure(s)
		assert.Len(t, w.sim.Rules(), 5)
		w.requireNoWrites(s)
	})
}
