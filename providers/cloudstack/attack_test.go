package cloudstack

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// siege is a provider without its guard in front of a simulated cloud in which things happen that the provider did not do.
type siege struct {
	*cloud
	*conformance.Bench

	sim     *cloudstacksim.Sim
	server  *simkit.Server
	network *simkit.Network
	url     string
	file    string
	nodes   []*v1.Node
}

// besiege runs a test in virtual time, with two nodes.
func besiege(t *testing.T, prepare func(*cloudstacksim.Sim) (file string), test func(w *siege)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		sim, server := cloudstacksim.New(cloudstacksim.Options{Activation: 3 * time.Second, Seed: simkit.SeedOf(t)})
		w := &siege{Bench: conformance.NewBench(t), sim: sim, server: server, network: simkit.NewNetwork()}
		if prepare != nil {
			w.file = prepare(sim)
		}
		w.url = w.network.Serve(t, server)
		require.NoError(t, sim.Judge())
		server.Disarrange(simkit.SeedOf(t), func(string, string) bool { return false })
		server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(20 * time.Millisecond) })
		w.restart()
		w.addNode("worker-1")
		w.addNode("worker-2")
		test(w)
		assert.Empty(t, sim.Differences(), "the API's own description differs")
		assert.Empty(t, server.Calls().Refused, "malformed requests")
	})
}

// restart makes a new provider, with nothing in memory.
func (w *siege) restart() {
	w.T.Helper()
	in := testInputs(w.sim, w.url, w.file)
	in.Dial = w.network.Dial
	c, err := maker().New(in)
	require.NoError(w.T, err)
	c.begin(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder, Stop: w.T.Context().Done()})
	c.instances.nodes.SetLister(w.Nodes())
	c.reconciler.cluster.SetServices(w.Services())
	w.cloud = c
}

func (w *siege) addNode(name string, networks ...string) *v1.Node {
	w.T.Helper()
	id := w.sim.AddVM(cloudstacksim.Spec{Name: name, Networks: networks})
	node := conformance.InitializedNode(name, providerIDPrefix+id)
	w.nodes = append(w.nodes, node)
	w.Register(node)
	return node
}

// serve applies a Service with a UID of its own.
func (w *siege) serve(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	w.T.Helper()
	s := service(name, annotations, ports...)
	s.Name, s.UID = name, types.UID(hexed(name)+"6b52-7a66-4b58-8b4b-0a61c1f9e0a1")
	s.CreationTimestamp = metav1.Now()
	w.Apply(s)
	return s
}

// hexed makes the first two letters of a name part of a UID.
func hexed(name string) string {
	const digits = "0123456789abcdef"
	var out strings.Builder
	for _, c := range []byte(name[:2]) {
		out.WriteByte(digits[c>>4])
		out.WriteByte(digits[c&15])
	}
	return out.String()
}

// insist reconciles a Service for as long as the provider asks for more time, up to ten minutes.
func (w *siege) insist(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	w.T.Helper()
	for began := time.Now(); ; {
		status, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes)
		hint, later := errors.AsType[*cloudproviderapi.RetryError](err)
		if !later || time.Since(began) > 10*time.Minute {
			return status, err
		}
		time.Sleep(hint.RetryAfter())
	}
}

func (w *siege) served(s *v1.Service) *v1.Service {
	w.T.Helper()
	status, err := w.insist(s)
	require.NoError(w.T, err)
	return w.SetStatus(s, status)
}

// remove deletes a Service.
func (w *siege) remove(s *v1.Service) {
	w.T.Helper()
	for began := time.Now(); ; {
		err := w.Remove(w.loadBalancers, "kubernetes", s)
		if err == nil {
			break
		}
		require.Less(w.T, time.Since(began), 10*time.Minute, "%v", err)
		time.Sleep(10 * time.Second)
	}
	require.NoError(w.T, w.Kube.CoreV1().Services(s.Namespace).Delete(w.T.Context(), s.Name, metav1.DeleteOptions{}))
}

// edit changes a Service as its user does.
func (w *siege) edit(s *v1.Service, change func(*v1.Service)) {
	w.T.Helper()
	now := w.Current(s)
	change(now)
	w.Apply(now)
}

// settled waits until nothing is remembered.
func (*siege) settled() { time.Sleep(15 * time.Minute) }

// address is the public address with this text.
func (w *siege) address(text string) cloudstacksim.Address {
	all := w.sim.Addresses()
	i := slices.IndexFunc(all, func(a cloudstacksim.Address) bool { return a.Address == text })
	require.GreaterOrEqual(w.T, i, 0, text)
	return all[i]
}

// taken are the addresses that are not free, less those of source NAT.
func (w *siege) taken() (texts []string) {
	for _, a := range w.sim.Addresses() {
		if a.State != "Free" && !a.SourceNAT {
			texts = append(texts, a.Address)
		}
	}
	return texts
}

func (w *siege) ruleNames() (names []string) {
	for _, r := range w.sim.Rules() {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	return names
}

// send gives a command as an administrator does by hand, and waits for its job.
func (w *siege) send(pairs ...string) {
	w.T.Helper()
	form := []string{"response=json"}
	for pair := range slices.Chunk(pairs, 2) {
		form = append(form, strings.Join(pair, "="))
	}
	r := httptest.NewRequestWithContext(w.T.Context(), http.MethodGet, cloudstacksim.IntegrationPath+"?"+strings.Join(form, "&"), http.NoBody)
	answer := httptest.NewRecorder()
	w.sim.ServeHTTP(answer, r)
	require.Equal(w.T, http.StatusOK, answer.Code, "%s", answer.Body)
	time.Sleep(10 * time.Second)
}

// ruleByHand makes a load balancer rule that nobody's controller made.
func (w *siege) ruleByHand(address, name, port string, more ...string) {
	w.T.Helper()
	w.send(append([]string{
		"command", "createLoadBalancerRule", "algorithm", "source", "name", name, "privateport", "1", "publicport", port, "publicipid", address,
		"networkid", w.sim.SeedNetwork(), "openfirewall", "false",
	}, more...)...)
}

// TestAttackForeignRules: the listing by keyword shows rules of anybody whose name or description holds the name of a load balancer; they
// are neither changed nor deleted, and their address stays.
func TestAttackForeignRules(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		s := w.serve("web", nil, port("http", 80, 30080))
		name := loadBalancerName("", s)
		id, err := w.sim.Reserve("203.0.113.90")
		require.NoError(t, err)
		w.ruleByHand(id, name+"-of-mine", "80")
		w.ruleByHand(id, "backup", "81", "description", "instead-of-"+name)
		w.ruleByHand(id, "x"+name+"-tcp-82", "82")
		foreign := w.sim.Rules()
		w.served(s)
		w.remove(s)
		assert.ElementsMatch(t, foreign, w.sim.Rules())
		assert.Equal(t, []string{"203.0.113.90"}, w.taken())
	})
}

// TestAttackSharedAddress: two Services at one address that their user had before; each has its rules, and the address stays.
func TestAttackSharedAddress(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		_, err := w.sim.Reserve("203.0.113.90")
		require.NoError(t, err)
		one := w.serve("one", nil, port("http", 80, 30080))
		two := w.serve("two", nil, port("http", 443, 30443))
		for _, s := range []*v1.Service{one, two} {
			w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.90" })
			w.served(s)
		}
		require.Len(t, w.sim.Rules(), 2)
		w.remove(one)
		assert.Equal(t, []string{loadBalancerName("", two) + "-tcp-443"}, w.ruleNames())
		assert.Len(t, w.sim.Firewalls(), 1)
		w.remove(two)
		assert.Empty(t, w.sim.Rules())
		assert.Empty(t, w.sim.Firewalls())
		assert.Equal(t, []string{"203.0.113.90"}, w.taken(), "it is the user's")
	})
}

// TestAttackSharedFreeAddress: two Services name one address that was free; it goes with the last of them, in whichever order they go.
func TestAttackSharedFreeAddress(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(map[bool]string{true: "the one that took it goes first", false: "it goes last"}[first], func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				one := w.serve("one", nil, port("http", 80, 30080))
				two := w.serve("two", nil, port("http", 443, 30443))
				for _, s := range []*v1.Service{one, two} {
					w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.90" })
					w.served(s)
				}
				assert.Equal(t, "true", w.Current(one).Annotations[annotationAssociated])
				order := []*v1.Service{one, two}
				if !first {
					slices.Reverse(order)
				}
				w.remove(order[0])
				assert.Len(t, w.sim.Rules(), 1)
				assert.Equal(t, []string{"203.0.113.90"}, w.taken())
				w.settled()
				w.restart()
				w.served(order[1])
				w.remove(order[1])
				assert.Empty(t, w.taken(), "nobody has it any more")
			})
		})
	}
}

// TestAttackAddressThatOthersUse: an address that the provider took, and at which somebody has made a rule since, stays with what is
// theirs.
func TestAttackAddressThatOthersUse(t *testing.T) {
	for what, use := range map[string]func(w *siege, id string){
		"port forwarding":    func(w *siege, id string) { w.sim.AddForward(id, 22) },
		"load balancer rule": func(w *siege, id string) { w.ruleByHand(id, "theirs", "8443") },
		"static NAT": func(w *siege, _ string) {
			vm := w.sim.VMs()[0].ID
			w.sim.EditAddress(w.taken()[0], func(a *cloudstacksim.Address) { a.StaticNAT = vm })
		},
	} {
		t.Run(what, func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				s := w.served(w.serve("web", nil, port("http", 80, 30080)))
				ip := s.Status.LoadBalancer.Ingress[0].IP
				use(w, w.address(ip).ID)
				w.remove(s)
				assert.Equal(t, []string{ip}, w.taken())
				assert.NotContains(t, w.ruleNames(), loadBalancerName("", s)+"-tcp-80")
				if what == "port forwarding" {
					assert.Len(t, w.sim.Forwards(), 1)
				}
			})
		})
	}
}

// TestAttackEditedAddress: spec.loadBalancerIP that changes later, to the address of somebody else, moves nothing, and with the Service
// goes what was taken for it, and nothing of theirs.
func TestAttackEditedAddress(t *testing.T) {
	for what, was := range map[string]string{"from none": "", "from one that the user had": "203.0.113.90"} {
		t.Run(what, func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				for _, text := range []string{"203.0.113.90", "203.0.113.91"} {
					_, err := w.sim.Reserve(text)
					require.NoError(t, err)
				}
				s := w.serve("web", nil, port("http", 80, 30080))
				w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = was })
				before := w.served(s).Status
				w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.91" })
				w.Events()
				assert.Equal(t, before, w.served(s).Status)
				assert.Contains(t, strings.Join(w.Events(), "\n"), "203.0.113.91")
				w.settled()
				w.restart()
				w.remove(s)
				assert.Equal(t, []string{"203.0.113.90", "203.0.113.91"}, w.taken())
			})
		})
	}
}

// TestAttackImpossiblePorts: ports that the cloud refuses take no address after the other, and the others are served.
func TestAttackImpossiblePorts(t *testing.T) {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	for what, bad := range map[string]v1.ServicePort{"UDP": udp, "the port of HAProxy's statistics": port("stats", 8081, 30081)} {
		t.Run(what, func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				good := w.serve("good", nil, port("http", 80, 30080), bad)
				alone := w.serve("alone", nil, bad)
				for range 5 {
					_, _ = w.insist(good)  // the refused port is an error
					_, _ = w.insist(alone) // as above
					w.settled()
					w.restart()
				}
				assert.Equal(t, []string{loadBalancerName("", good) + "-tcp-80"}, w.ruleNames())
				assert.Len(t, w.sim.Rules()[0].Members, 2)
				assert.LessOrEqual(t, len(w.taken()), 2, "%v", w.taken())
				assert.LessOrEqual(t, w.server.Calls().ByOperation["associateIpAddress"], 2, "no address after the other")
				w.server.ResetCalls() // the refusals were meant
				w.remove(good)
				w.remove(alone)
				assert.Empty(t, w.taken())
				assert.Empty(t, w.sim.Firewalls())
			})
		})
	}
}

// TestAttackExhaustedQuota: an exhausted quota is an event, and no address is lost.
func TestAttackExhaustedQuota(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		owner := w.sim.Networks()[0].Owner
		w.sim.SetQuota(owner, 1)
		s := w.serve("web", nil, port("http", 80, 30080))
		_, err := w.insist(s)
		require.ErrorContains(t, err, "public_ip")
		assert.NotEmpty(t, w.Events())
		w.sim.SetQuota(owner, -1)
		w.settled()
		w.served(s)
		assert.Len(t, w.taken(), 1)
		w.remove(s)
		assert.Empty(t, w.taken())
	})
}

// TestAttackMachinesThatCannotServe: one machine that is destroyed, in another network, or without any interface keeps no other one out.
func TestAttackMachinesThatCannotServe(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		destroyed := w.addNode("worker-3")
		w.addNode("worker-4", w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "second"}))
		bare := w.addNode("worker-5")
		w.sim.EditVM(strings.TrimPrefix(bare.Spec.ProviderID, providerIDPrefix), func(v *cloudstacksim.VM) { v.NICs = nil })
		require.NoError(t, w.sim.SetState(destroyed.Spec.ProviderID, "Destroyed"))
		s := w.served(w.serve("web", nil, port("http", 80, 30080)))
		assert.Len(t, w.sim.Rules()[0].Members, 2)
		require.NoError(t, w.sim.SetState(destroyed.Spec.ProviderID, "Running"))
		w.settled()
		w.served(s)
		assert.Len(t, w.sim.Rules()[0].Members, 3)
		// A machine is destroyed between the listing and the assignment.
		w.addNode("worker-6")
		require.NoError(t, w.sim.SetState(w.addNode("worker-7").Spec.ProviderID, "Destroyed"))
		w.settled()
		w.served(s)
		assert.Len(t, w.sim.Rules()[0].Members, 4)
	})
}

// TestAttackEmptyRule: a rule that was left without members, as after a crash, has them again.
func TestAttackEmptyRule(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		s := w.served(w.serve("web", nil, port("http", 80, 30080)))
		w.sim.EditRule(w.sim.Rules()[0].ID, func(r *cloudstacksim.Rule) { r.Members, r.State = nil, "Add" })
		w.settled()
		w.served(s)
		assert.Len(t, w.sim.Rules()[0].Members, 2)
	})
}

// TestAttackRangesAreNeverOpen: while a Service's source ranges change, and whatever fails meanwhile, no port is open to more clients than
// it was before or is to be.
func TestAttackRangesAreNeverOpen(t *testing.T) {
	for _, tier := range []bool{false, true} {
		for _, broken := range []string{"", "createFirewallRule", "deleteFirewallRule", "createNetworkACL", "deleteNetworkACL"} {
			t.Run(map[bool]string{true: "tier", false: "isolated"}[tier]+" "+broken, func(t *testing.T) {
				prepare := func(s *cloudstacksim.Sim) string {
					if tier {
						s.MakeTier()
					}
					return ""
				}
				besiege(t, prepare, func(w *siege) {
					s := w.serve("web", nil, port("http", 80, 30080))
					w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24", "198.51.100.0/24"} })
					w.server.Inspect(func(*http.Request, []byte, func(*http.Request) *httptest.ResponseRecorder) func() {
						for _, f := range w.sim.Firewalls() {
							assert.NotContains(t, f.CIDRs, everybody)
						}
						for _, i := range w.sim.ACLItems() {
							assert.NotContains(t, i.CIDRs, everybody)
						}
						return nil
					})
					if broken != "" {
						w.sim.FailJobs(cloudstacksim.Failure{Command: broken, Code: 530, Text: "the router is down", Count: 2})
					}
					for _, list := range [][]string{nil, {"192.0.2.0/24"}, {"192.0.2.0/24", "203.0.113.0/24"}, {"198.51.100.0/25"}} {
						if list != nil {
							w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = list })
						}
						for range 4 {
							if _, err := w.insist(s); err == nil {
								break
							}
							time.Sleep(time.Minute)
						}
						w.served(s)
					}
					w.server.Inspect(nil)
					if tier {
						require.Len(t, w.sim.ACLItems(), 1)
						assert.Equal(t, []string{"198.51.100.0/25"}, w.sim.ACLItems()[0].CIDRs)
					} else {
						require.Len(t, w.sim.Firewalls(), 1)
						assert.Equal(t, []string{"198.51.100.0/25"}, w.sim.Firewalls()[0].CIDRs)
					}
					w.remove(s)
					assert.Empty(t, w.sim.Firewalls())
					assert.Empty(t, w.sim.ACLItems())
					assert.Empty(t, w.taken())
				})
			})
		}
	}
}

// TestAttackJobsThatOutlive: a job that is still at it when nobody waits any more is given no second time, and its result is found.
func TestAttackJobsThatOutlive(t *testing.T) {
	for _, restart := range []bool{false, true} {
		t.Run(map[bool]string{true: "restart", false: "same process"}[restart], func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				s := w.serve("web", nil, port("http", 80, 30080))
				w.sim.HoldJobs(true)
				for range 3 {
					_, err := w.loadBalancers.EnsureLoadBalancer(w.T.Context(), "kubernetes", w.Current(s), w.nodes)
					require.Error(t, err)
					if restart {
						w.restart()
					}
					time.Sleep(time.Minute)
				}
				assert.Equal(t, 1, w.sim.PendingJobs(), "%v", w.server.Calls().ByOperation)
				w.sim.HoldJobs(false)
				w.served(s)
				assert.Len(t, w.taken(), 1)
				assert.Len(t, w.sim.Rules(), 1)
				w.remove(s)
				assert.Empty(t, w.taken())
			})
		})
	}
}

// TestAttackJobsThatLie: a job that did its work and says that it failed does harm to nobody: what is there is looked at.
func TestAttackJobsThatLie(t *testing.T) {
	for _, command := range []string{
		"associateIpAddress", "createLoadBalancerRule", "assignToLoadBalancerRule", "createFirewallRule", "deleteFirewallRule",
		"deleteLoadBalancerRule", "disassociateIpAddress",
	} {
		t.Run(command, func(t *testing.T) {
			besiege(t, nil, func(w *siege) {
				s := w.serve("web", nil, port("http", 80, 30080))
				w.sim.FailJobs(cloudstacksim.Failure{Command: command, Code: 530, Text: "timed out", After: true})
				for range 3 {
					if _, err := w.insist(s); err == nil {
						break
					}
					time.Sleep(time.Minute)
				}
				w.served(s)
				assert.Len(t, w.taken(), 1)
				assert.Len(t, w.sim.Rules(), 1)
				assert.Len(t, w.sim.Rules()[0].Members, 2)
				assert.Len(t, w.sim.Firewalls(), 1)
				w.remove(s)
				assert.Empty(t, w.taken())
				assert.Empty(t, w.sim.Rules())
				assert.Empty(t, w.sim.Firewalls())
			})
		})
	}
}

// TestAttackAddressOfSomebodyElse: an address that somebody takes after ours was asked for and not given is his: it is neither used nor
// released.
func TestAttackAddressOfSomebodyElse(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		s := w.serve("web", nil, port("http", 80, 30080))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultReset, Operation: "associateIpAddress"})
		require.NoError(t, err)
		_, err = w.insist(s)
		require.Error(t, err)
		time.Sleep(time.Hour)
		_, err = w.sim.Reserve("203.0.113.90")
		require.NoError(t, err)
		second := w.sim.AddNetwork(cloudstacksim.NetworkSpec{Name: "second"})
		w.send("command", "associateIpAddress", "networkid", second, "ipaddress", "203.0.113.91")
		w.restart()
		w.remove(s)
		assert.Equal(t, []string{"203.0.113.90", "203.0.113.91"}, w.taken())
		again := w.serve("web", nil, port("http", 80, 30080))
		_, err = w.insist(again)
		require.Error(t, err)
		w.send("command", "associateIpAddress", "networkid", second, "ipaddress", "203.0.113.92")
		w.remove(again)
		assert.Equal(t, []string{"203.0.113.90", "203.0.113.91", "203.0.113.92"}, w.taken())
	})
}

// TestAttackRulesTakenAway: rules that somebody deleted leave an address, which goes with the Service.
func TestAttackRulesTakenAway(t *testing.T) {
	besiege(t, nil, func(w *siege) {
		s := w.served(w.serve("web", nil, port("http", 80, 30080)))
		w.sim.RemoveRules()
		w.settled()
		w.restart()
		w.remove(s)
		assert.Empty(t, w.taken())
	})
}

// inProject has all of it in a project.
func inProject(s *cloudstacksim.Sim) string {
	s.MakeTier()
	s.MoveToProject()
	return "project-id = " + cloudstacksim.ProjectID + "\n"
}

// TestAttackProjects: every call is about the project: nothing is made twice, and nothing is left.
func TestAttackProjects(t *testing.T) {
	besiege(t, inProject, func(w *siege) {
		s := w.served(w.serve("web", nil, port("http", 80, 30080)))
		named := w.serve("named", map[string]string{annotationAddress: "203.0.113.91"}, port("http", 8080, 30081))
		w.served(named)
		for range 3 {
			w.settled()
			w.restart()
			w.server.ResetCalls()
			w.served(s)
			w.served(named)
			assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
		}
		assert.Len(t, w.sim.ACLItems(), 2)
		for _, c := range w.server.Calls().Latest {
			scoped := strings.HasPrefix(c.Operation, "list") && c.Operation != "listCapabilities" && c.Operation != "listLoadBalancerRuleInstances"
			if scoped {
				assert.Contains(t, c.URL+c.Body, "projectid="+cloudstacksim.ProjectID, c.Operation)
			}
		}
		w.remove(s)
		w.remove(named)
		assert.Empty(t, w.taken())
		assert.Empty(t, w.sim.ACLItems())
	})
}

// TestAttackNarrowRole: CloudStack's own role for clusters in projects suffices.
func TestAttackNarrowRole(t *testing.T) {
	prepare := func(s *cloudstacksim.Sim) string {
		file := inProject(s)
		s.Restrict(cloudstacksim.APIKey, strings.Fields("listVirtualMachines queryAsyncJobResult listNetworks listPublicIpAddresses associateIpAddress "+
			"disassociateIpAddress listLoadBalancerRules createLoadBalancerRule updateLoadBalancerRule deleteLoadBalancerRule assignToLoadBalancerRule "+
			"removeFromLoadBalancerRule listLoadBalancerRuleInstances listFirewallRules createFirewallRule deleteFirewallRule updateFirewallRule "+
			"listNetworkACLs createNetworkACL deleteNetworkACL")...)
		return file
	}
	besiege(t, prepare, func(w *siege) {
		s := w.served(w.serve("web", nil, port("http", 80, 30080)))
		w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationSourceCIDRs: "10.0.0.0/8"} })
		w.served(s)
		assert.Equal(t, "10.0.0.0/8", w.sim.Rules()[0].CIDRs)
		w.remove(s)
		assert.Empty(t, w.taken())
		assert.Empty(t, w.sim.ACLItems())
	})
}

// aTier has the network of the nodes be a tier.
func aTier(s *cloudstacksim.Sim) string { s.MakeTier(); return "" }

// TestAttackSharedItem: two Services on one port of a tier; when one goes, the other's port stays open.
func TestAttackSharedItem(t *testing.T) {
	besiege(t, aTier, func(w *siege) {
		one := w.served(w.serve("one", nil, port("http", 80, 30080)))
		two := w.served(w.serve("two", nil, port("http", 80, 30081)))
		opened := func() bool {
			return slices.ContainsFunc(w.sim.ACLItems(), func(i cloudstacksim.ACLItem) bool {
				return i.Start == 80 && i.End == 80 && i.Action == "Allow" && i.Traffic == "Ingress" && slices.Contains(i.CIDRs, everybody)
			})
		}
		require.True(t, opened())
		w.remove(one)
		assert.True(t, opened(), "the other Service is served")
		w.settled()
		w.server.ResetCalls()
		w.served(two)
		assert.Zero(t, w.server.Calls().Writes)
		w.remove(two)
		assert.False(t, opened())
	})
}

// TestAttackItemsByHand: what somebody put into the list by hand stays, and what does not open the port does not count as if it did.
func TestAttackItemsByHand(t *testing.T) {
	for what, item := range map[string]cloudstacksim.ACLItem{
		"deny":       {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Deny", Traffic: "Ingress"},
		"egress":     {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Allow", Traffic: "Egress"},
		"restricted": {Protocol: "tcp", Start: 80, End: 80, CIDRs: []string{"192.0.2.0/24"}, Action: "Allow", Traffic: "Ingress"},
		"a range":    {Protocol: "tcp", Start: 1, End: 65535, CIDRs: []string{"192.0.2.0/24"}, Action: "Allow", Traffic: "Ingress"},
		"upper case": {Protocol: "TCP", Start: 80, End: 80, CIDRs: []string{everybody}, Action: "Allow", Traffic: "Ingress"},
	} {
		t.Run(what, func(t *testing.T) {
			besiege(t, aTier, func(w *siege) {
				item.List = w.sim.Networks()[0].ACL
				item.ID = w.sim.AddACLItem(item)
				s := w.served(w.serve("web", nil, port("http", 80, 30080)))
				own := slices.ContainsFunc(w.sim.ACLItems(), func(i cloudstacksim.ACLItem) bool {
					return i.ID != item.ID && i.Start == 80 && i.Action == "Allow" && i.Traffic == "Ingress"
				})
				assert.Equal(t, what == "egress" || what == "a range", own, "%+v", w.sim.ACLItems())
				w.remove(s)
				require.Len(t, w.sim.ACLItems(), 1)
				assert.Equal(t, item.ID, w.sim.ACLItems()[0].ID)
			})
		})
	}
}

// TestAttackListsOfOthers: lists that belong to no VPC are never written to.
func TestAttackListsOfOthers(t *testing.T) {
	for _, name := range []string{"default_allow", "default_deny", "company"} {
		t.Run(name, func(t *testing.T) {
			prepare := func(s *cloudstacksim.Sim) string {
				s.MakeTier()
				s.UseList(name)
				return ""
			}
			besiege(t, prepare, func(w *siege) {
				s := w.serve("web", nil, port("http", 80, 30080))
				w.served(s)
				assert.Zero(t, w.server.Calls().ByOperation["createNetworkACL"])
				if name != "default_allow" {
					assert.Contains(t, strings.Join(w.Events(), "\n"), name)
				}
				w.remove(s)
				assert.Empty(t, w.taken())
			})
		})
	}
}
