package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// These tests are about what Services share: public addresses, frontends and security rules.

// sharing is a Service on port 80, and another one on port 8080 of the same address, both served.
func sharing(t *testing.T, annotations map[string]string, test func(w *world, first, second *v1.Service, ip string)) {
	t.Helper()
	first := webService(annotations)
	withNode(t, first, func(w *world) {
		ip := w.ensure(first).Status.LoadBalancer.Ingress[0].IP
		second := webNumber(1, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
		if annotations[annotationInternal] != "" {
			second.Annotations[annotationInternal] = "true"
		}
		w.Apply(second)
		assert.Equal(w, ip, w.ensure(second).Status.LoadBalancer.Ingress[0].IP)
		test(w, first, second, ip)
	})
}

// allowed reports whether the security group lets a port of an address in.
func (w *world) allowed(ip, port string) bool {
	for _, rule := range w.securityRules() {
		ports := fieldValues(rule, "destinationPortRange", "destinationPortRanges")
		for _, d := range destinationsOf(rule) {
			if str(rule, "properties", "access") == "Allow" && d == ip && ports[0] == port {
				return true
			}
		}
	}
	return false
}

// TestAddressChangedMeanwhile: what somebody else writes to a public address between our read and our write is kept.
func TestAddressChangedMeanwhile(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	withNode(t, s, func(w *world) {
		w.ensure(s)
		for _, key := range []string{"cost-center", "audited"} {
			w.sim.Meanwhile(pipID(webPIP), func(pip map[string]any) {
				tags := tagsOf(pip)
				tags[key] = "kept"
				pip["tags"] = asDoc(tags)
				pip["properties"].(doc)["idleTimeoutInMinutes"] = 15
			})
		}
		w.change(s, func(s *v1.Service) { s.Annotations[annotationTags] = "team=web" })
		w.ensure(s)
		shown := w.sim.Shown(pipID(webPIP))
		assert.Equal(w, "web", tagsOf(shown)["team"])
		assert.Equal(w, "kept", tagsOf(shown)["cost-center"])
		assert.Equal(w, "kept", tagsOf(shown)["audited"])
		assert.Equal(w, 15, num(shown, "properties", "idleTimeoutInMinutes"))
	})
}

// TestAddressClaimedTogether: Services that name an address at the same time are all in its tag.
func TestAddressClaimedTogether(t *testing.T) {
	t.Parallel()
	first := webService(nil)
	withNode(t, first, func(w *world) {
		ip := w.ensure(first).Status.LoadBalancer.Ingress[0].IP
		var list []*v1.Service
		for i := range 4 {
			s := webNumber(i+1, map[string]string{annotationIPv4: ip}, func(s *v1.Service) { s.Spec.Ports[0].Port = int32(8080 + i) })
			list = append(list, s)
		}
		w.Apply(list...)
		var all sync.WaitGroup
		for _, s := range list {
			all.Go(func() {
				_, _ = w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes)
			})
		}
		all.Wait()
		names, _ := parsed[publicIP](w.sim.Shown(pipID(webPIP))).services()
		assert.ElementsMatch(w, []string{"default/web", "default/web-1", "default/web-2", "default/web-3", "default/web-4"}, names)
	})
}

// TestSharedAddressWithFloatingOff: a change of nodes behind a Service without floating IP leaves the rules of the other Service on the
// address alone.
func TestSharedAddressWithFloatingOff(t *testing.T) {
	t.Parallel()
	sharing(t, map[string]string{annotationNoFloating: "true"}, func(w *world, first, _ *v1.Service, ip string) {
		require.True(w, w.allowed(ip, "8080"))
		w.join("n2")
		w.update(first)
		assert.True(w, w.allowed(ip, "8080"), "the other Service is still let in")
	})
}

// TestFurtherAddressOfTwoServices: an address outside of Azure that two Services name stays let in until both have gone.
func TestFurtherAddressOfTwoServices(t *testing.T) {
	t.Parallel()
	const further = "203.0.113.7"
	first := webService(map[string]string{annotationAdditional: further})
	second := webNumber(1, map[string]string{annotationAdditional: further})
	withNode(t, first, func(w *world) {
		w.Apply(second)
		w.ensure(first)
		w.ensure(second)
		w.change(first, func(s *v1.Service) { delete(s.Annotations, annotationAdditional) })
		w.ensure(first)
		assert.True(w, w.allowed(further, "80"), "the second one names it")
		w.change(first, func(s *v1.Service) { s.Annotations[annotationAdditional] = further })
		w.ensure(first)
		w.remove(first)
		assert.True(w, w.allowed(further, "80"))
		w.remove(second)
		assert.False(w, w.allowed(further, "80"))
	})
}

// TestFurtherAddressOfAServiceThatIsKept: a Service that is deleted and whose load balancer stays is served on. Another Service that is
// reconciled leaves its further address let in.
func TestFurtherAddressOfAServiceThatIsKept(t *testing.T) {
	t.Parallel()
	const further = "203.0.113.7"
	for key, open := range map[string]bool{contract.AnnotationProtect: true, contract.AnnotationDisown: true, "example.com/other": false} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			first, second := webService(map[string]string{annotationAdditional: further}), webNumber(1, nil)
			withNode(t, first, func(w *world) {
				w.Apply(second)
				w.ensure(first)
				w.change(first, func(s *v1.Service) {
					s.Annotations[key], s.DeletionTimestamp = "true", new(metav1.Now())
					s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
				})
				w.ensure(second)
				assert.Equal(w, open, w.allowed(further, "80"))
			})
		})
	}
}

// TestFurtherAddressOfAServiceThatIsGone: where the load balancer of a Service stays when that has gone, so does its further address,
// whatever becomes of others with the same ports. It goes with the last part of the load balancer.
func TestFurtherAddressOfAServiceThatIsGone(t *testing.T) {
	t.Parallel()
	const further, own = "203.0.113.7", "203.0.113.8"
	first, second := webService(map[string]string{annotationAdditional: further}), webNumber(1, map[string]string{annotationAdditional: own})
	withNode(t, first, func(w *world) {
		w.Apply(second)
		w.ensure(first)
		w.ensure(second)
		w.lose(first)
		w.change(second, func(s *v1.Service) { delete(s.Annotations, annotationAdditional) })
		w.ensure(second)
		assert.True(w, w.allowed(further, "80"), "the load balancer of the first one serves")
		assert.False(w, w.allowed(own, "80"))
		w.remove(second)
		assert.True(w, w.allowed(further, "80"))
		w.deleteOrphans()
		assert.Empty(w, w.sim.Snapshot())
	})
}

// TestFurtherAddressThatComesMeanwhile: a Service that waits for its turn to write the security group leaves alone what another one has
// opened since it looked.
func TestFurtherAddressThatComesMeanwhile(t *testing.T) {
	t.Parallel()
	const further = "203.0.113.7"
	first, second := webService(nil), webNumber(1, nil)
	withNode(t, first, func(w *world) {
		w.Apply(second)
		w.ensure(first)
		w.ensure(second)
		w.change(second, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
		r := w.cloud.reconciler
		q := services.Request{Purpose: services.Ensure, Cluster: clusterName, Service: w.Current(second), Nodes: w.nodes}
		o, err := r.Observe(w.Context(), q)
		require.NoError(w, err)
		d, _, err := r.Desire(w.Context(), q, o)
		require.NoError(w, err)
		changes, err := r.securityChange(q, o, d)
		require.NoError(w, err)
		require.Len(w, changes, 1)
		w.change(first, func(s *v1.Service) { s.Annotations = map[string]string{annotationAdditional: further} })
		w.ensure(first)
		_, err = changes[0].Make(w.Context(), &q, o)
		require.NoError(w, err)
		assert.True(w, w.allowed(further, "80"))
	})
}

// TestFurtherAddressOfAnotherCluster: a Service that names an address of another cluster behind the same security group takes nothing of
// that cluster's rules away, whatever it changes: rules say which addresses this cluster put there.
func TestFurtherAddressOfAnotherCluster(t *testing.T) {
	t.Parallel()
	const theirs, hashSecure = "20.55.0.9", "bc87afc9aeeece13e643801ad1da615f" // Tcp_Internet_443
	group := azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)
	for name, c := range map[string]struct {
		port    int32
		restart bool
	}{"another port": {8443, false}, "the same port": {443, false}, "another port, and a restart": {8443, true}, "the same port, and a restart": {443, true}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(map[string]string{annotationAdditional: theirs}, func(s *v1.Service) { s.Spec.Ports[0].Port = c.port })
			withNode(t, s, func(w *world) {
				rule := leftAllow("IPv4", hashSecure, 500, "Tcp", "Internet", theirs, "443")
				w.sim.Leave(group, doc{"location": azuresim.Location, "properties": doc{"securityRules": []any{rule}}})
				w.ensure(s)
				assert.True(w, w.allowed(theirs, "443"))
				again := func() {
					if c.restart {
						w.restart()
					}
				}
				again()
				w.change(s, func(s *v1.Service) { s.Spec.Ports[0].Port = 9443 })
				w.ensure(s)
				assert.True(w, w.allowed(theirs, "443"))
				assert.True(w, w.allowed(theirs, "9443"))
				again()
				w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationAdditional) })
				w.ensure(s)
				assert.True(w, w.allowed(theirs, "443"))
				assert.False(w, w.allowed(theirs, "9443"), "this one the Service had opened itself")
				w.change(s, func(s *v1.Service) { s.Annotations[annotationAdditional] = theirs })
				w.ensure(s)
				again()
				w.remove(s)
				assert.False(w, w.allowed(theirs, "9443"))
				require.Len(w, w.securityRules(), 1)
				assert.Equal(w, []string{theirs}, destinationsOf(w.securityRules()[0]))
			})
		})
	}
}

// TestFurtherAddressThatIsAnotherClusters: a public address that another cluster's controller made is refused as a further one.
func TestFurtherAddressThatIsAnotherClusters(t *testing.T) {
	t.Parallel()
	for name, tags := range map[string]doc{
		"by its name": {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "other"},
		"by its mark": {"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes", "anyccm-cluster": "00000000-aaaa-4000-8000-000000000000"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(map[string]string{annotationAdditional: leftIP})
			withNode(t, s, func(w *world) {
				theirs := leftPIP(leftIP, "tags", tags)
				w.sim.LeaveAddress("theirs", theirs.ip, theirs.doc)
				require.ErrorContains(w, w.refuse(s), "is public IP address theirs of another cluster")
				assert.False(w, w.allowed(leftIP, "80"))
			})
		})
	}
}

// TestFurtherAddressThatWasTakenOver: where rules of Azure's own controller name further addresses, nothing shows whose they are: they stay
// when the Service goes, and an event names them.
func TestFurtherAddressThatWasTakenOver(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		l := leftKinds()["further addresses"]
		l.leave(w)
		s := l.services[0]
		w.ensure(s)
		w.remove(s)
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, []string{"20.61.0.1", "20.61.0.2"}, destinationsOf(w.securityRules()[0]))
		assert.Contains(w, strings.Join(w.Events(), "\n"), "still names 20.61.0.1 of annotation")
	})
}

// TestFurtherAddressThatStaysIsTold: where a rule that was taken over keeps a further address although the Service wants other clients, or
// the address no more, an event names it: it is open until somebody closes it.
func TestFurtherAddressThatStaysIsTold(t *testing.T) {
	t.Parallel()
	for name, alter := range map[string]func(*v1.Service){
		"narrowed": func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
		"removed":  func(s *v1.Service) { delete(s.Annotations, annotationAdditional) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				l := leftKinds()["further addresses"]
				l.leave(w)
				s := l.services[0]
				w.ensure(s)
				assert.NotContains(w, strings.Join(w.Events(), "\n"), eventRuleKept, "it is wanted there")
				w.change(s, alter)
				w.ensure(s)
				assert.Contains(w, strings.Join(w.Events(), "\n"), "still names 20.61.0.1 of annotation")
			})
		})
	}
}

// TestShownAddresses: addresses in a status were the Service's, except additional ones. If these cannot be told apart, none counts.
func TestShownAddresses(t *testing.T) {
	t.Parallel()
	const own, further, mark = "20.50.0.8", "203.0.113.7", "anyccm:x"
	p := securityProperties{Description: mark + " " + further, Destinations: []string{own, further}}
	noted := []*securityRule{{subresource{Name: rulePrefix}, p}}
	for name, c := range map[string]struct {
		annotation string
		rules      []*securityRule
		shown      []string
		want       []string
	}{
		"its own":                {shown: []string{own}, want: []string{own}},
		"annotated":              {annotation: further, shown: []string{own, further}, want: []string{own}},
		"annotated once":         {rules: noted, shown: []string{own, further}, want: []string{own}},
		"annotated once, untold": {shown: []string{own, further}},
		"none":                   {},
	} {
		s := webService(map[string]string{annotationAdditional: c.annotation})
		for _, ip := range c.shown {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: ip})
		}
		assert.Equal(t, c.want, shownAddresses(s, c.rules, mark), name)
	}
}

// TestAddressThatWasLeftBeforeARestart: a Service that takes another address, and no longer wants a further one, leaves neither open,
// although the program that knew them has ended.
func TestAddressThatWasLeftBeforeARestart(t *testing.T) {
	t.Parallel()
	const further = "203.0.113.7"
	s := webService(map[string]string{annotationName: "one", annotationAdditional: further})
	withNode(t, s, func(w *world) {
		one, two := w.sim.AddAddress("one"), w.sim.AddAddress("two")
		w.ensure(s)
		require.True(w, w.allowed(one, "80"))
		w.change(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationName: "two"} })
		w.fail("PUT Microsoft.Network/networkSecurityGroups")
		_ = w.refuse(s)
		w.server.ClearFaults()
		w.restart()
		w.ensure(s)
		assert.False(w, w.allowed(one, "80"))
		assert.False(w, w.allowed(further, "80"))
		assert.True(w, w.allowed(two, "80"))
	})
}

// TestManyFurtherAddresses: more of them than the description of a rule has room for as text are taken out again.
func TestManyFurtherAddresses(t *testing.T) {
	t.Parallel()
	for name, form := range map[string]string{"IPv4": "203.0.113.%d", "IPv6": "2001:db8:aaaa:bbbb:cccc:dddd:eeee:%d"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var many []string
			for i := range map[string]int{"IPv4": 16, "IPv6": 4}[name] {
				many = append(many, fmt.Sprintf(form, 100+i))
			}
			s := webService(map[string]string{annotationAdditional: strings.Join(many, ",")})
			withNode(t, s, func(w *world) {
				w.ensure(s)
				for _, rule := range w.securityRules() {
					assert.LessOrEqual(w, len(str(rule, "properties", "description")), azurelimits.RuleDescription.Max)
				}
				w.restart()
				w.change(s, func(s *v1.Service) { s.Annotations[annotationAdditional] = strings.Join(many[1:], ",") })
				w.ensure(s)
				assert.False(w, w.allowed(many[0], "80"))
				assert.True(w, w.allowed(many[len(many)-1], "80"))
				w.remove(s)
				assert.Empty(w, w.securityRules())
			})
		})
	}
}

// TestSharedAddressOutlivesItsService: whatever becomes of the Service that made an address, the others on it are served, and the last of
// them takes it along.
func TestSharedAddressOutlivesItsService(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(*v1.Service){
		"internal":        func(s *v1.Service) { s.Annotations[annotationInternal] = "true"; delete(s.Annotations, annotationIPv4) },
		"another address": func(s *v1.Service) { s.Annotations[annotationName] = "mine"; delete(s.Annotations, annotationIPv4) },
	} {
		t.Run(name+" first", func(t *testing.T) {
			t.Parallel()
			sharing(t, nil, func(w *world, first, second *v1.Service, ip string) {
				w.sim.AddAddress("mine")
				time.Sleep(time.Minute)
				w.change(first, leave)
				_, _ = w.Reconcile(w.cloud.loadBalancers, clusterName, first, w.nodes)
				assert.Equal(w, ip, w.ensure(second).Status.LoadBalancer.Ingress[0].IP)
				assert.True(w, w.allowed(ip, "8080"))
				w.remove(second)
				w.ensure(first)
				assert.Nil(w, w.sim.Shown(pipID(webPIP)), "nobody has it any more")
				w.remove(first)
				assert.NotContains(w, w.sim.Snapshot(), "load balancer")
			})
		})
		t.Run(name+" second, after the first has gone", func(t *testing.T) {
			t.Parallel()
			sharing(t, nil, func(w *world, first, second *v1.Service, _ string) {
				w.sim.AddAddress("mine")
				time.Sleep(time.Minute)
				w.remove(first)
				w.change(second, leave)
				w.ensure(second)
				assert.Nil(w, w.sim.Shown(pipID(webPIP)), "nobody has it any more")
				w.remove(second)
				assert.NotContains(w, w.sim.Snapshot(), "load balancer")
			})
		})
		t.Run(name+" second, the address has no mark", func(t *testing.T) {
			t.Parallel()
			sharing(t, nil, func(w *world, first, second *v1.Service, _ string) {
				w.sim.AddAddress("mine")
				unmarked := w.sim.Shown(pipID(webPIP))
				tags, _ := unmarked["tags"].(doc)
				delete(tags, clusterTag)
				w.sim.Leave(pipID(webPIP), unmarked)
				waitFor(2 * observeMaxAge)
				w.change(second, leave)
				w.ensure(second)
				w.remove(first)
				assert.Nil(w, w.sim.Shown(pipID(webPIP)), "the address outlives all that had it")
			})
		})
	}
}

// isDenied reports whether the security group denies all others at an address.
func (w *world) isDenied(ip string) bool {
	return slices.ContainsFunc(w.securityRules(), func(rule doc) bool {
		return str(rule, "properties", "access") == "Deny" && slices.Contains(destinationsOf(rule), ip)
	})
}

// denials are sequences of two Services on an address, of which the first denies all other clients there.
var denials = map[string]func(w *world, first, second *v1.Service, isDenied func(bool)){
	"both asked, and change": func(w *world, first, second *v1.Service, isDenied func(bool)) {
		w.change(second, deny)
		w.ensure(second)
		w.change(first, relent)
		w.ensure(first)
		isDenied(true)
		w.change(second, relent)
		w.ensure(second)
		isDenied(false)
	},
	"both asked, and go": func(w *world, first, second *v1.Service, isDenied func(bool)) {
		w.change(second, deny)
		w.ensure(second)
		w.remove(first)
		isDenied(true)
		w.remove(second)
		isDenied(false)
	},
	"both change at once": func(w *world, first, second *v1.Service, isDenied func(bool)) {
		w.change(second, deny)
		w.ensure(second)
		w.change(first, relent)
		w.change(second, relent)
		w.together([]*v1.Service{first, second}, w.ensure)
		isDenied(false)
	},
	"one asked": func(w *world, first, _ *v1.Service, isDenied func(bool)) {
		w.change(first, relent)
		w.ensure(first)
		isDenied(false)
	},
	"the one that asked goes": func(w *world, first, _ *v1.Service, isDenied func(bool)) {
		w.remove(first)
		isDenied(false)
	},
	"the other one has a fault": func(w *world, first, second *v1.Service, isDenied func(bool)) {
		w.change(second, func(s *v1.Service) { s.Annotations[annotationIdle] = "1000" })
		w.change(first, relent)
		w.ensure(first)
		isDenied(true)
		w.change(second, func(s *v1.Service) { delete(s.Annotations, annotationIdle) })
		w.ensure(first)
		isDenied(false)
	},
	"another one is about to come": func(w *world, first, _ *v1.Service, isDenied func(bool)) {
		third := webNumber(2, denyOthers)
		w.Apply(third)
		w.change(first, relent)
		w.ensure(first)
		isDenied(true)
		w.ensure(third)
		w.ensure(first)
		isDenied(false)
	},
}

// denyOthers are the annotations of a Service that has all others denied, deny adds them, and relent takes the denial away.
var denyOthers = map[string]string{annotationAllowedRanges: "192.0.2.0/24", annotationDenyAll: "true"}

func deny(s *v1.Service) { maps.Copy(s.Annotations, denyOthers) }

func relent(s *v1.Service) { delete(s.Annotations, annotationDenyAll) }

// TestDenialAtASharedAddress: all others are denied at an address as long as a Service that has it asks for that, and no longer.
func TestDenialAtASharedAddress(t *testing.T) {
	t.Parallel()
	for name, test := range denials {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sharing(t, denyOthers, func(w *world, first, second *v1.Service, ip string) {
				require.True(w, w.isDenied(ip))
				test(w, first, second, func(want bool) {
					w.Helper()
					require.Equal(w, want, w.isDenied(ip))
				})
				w.server.ResetCalls()
				for _, s := range []*v1.Service{first, second} {
					if now, err := w.Kube.CoreV1().Services(s.Namespace).Get(w.Context(), s.Name, metav1.GetOptions{}); err == nil {
						w.ensure(now)
					}
				}
				assert.Zero(w, w.server.Calls().Writes)
			})
		})
	}
}

// TestDenialThatWasLeft: a rule of Azure's own controller that cuts a node off is taken away.
func TestDenialThatWasLeft(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true", annotationAllowedRanges: "192.0.2.0/24", annotationDenyAll: "true"})
	withNode(t, s, func(w *world) {
		deny := part("k8s-azure-lb_deny-all_IPv4", doc{
			"protocol": "*", "access": "Deny", "direction": "Inbound", "priority": 4095, "sourceAddressPrefix": "*", "sourcePortRange": "*",
			"destinationPortRange": "*", "destinationAddressPrefixes": []any{internalIP(w.nodes[0], false), otherIP},
		})
		w.sim.Leave(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), doc{
			"location": azuresim.Location, "properties": doc{"securityRules": []any{deny}},
		})
		w.ensure(s)
		assert.Equal(w, []string{otherIP}, destinationsOf(byName(w.securityRules(), "k8s-azure-lb_deny-all_IPv4")), "another cluster's stays")
	})
}

// TestDenialWithFloatingOff: rules for node ports name the nodes, and one that denies all others would cut the nodes off from each other
// and from the probes of all load balancers.
func TestDenialWithFloatingOff(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationNoFloating: "true", annotationAllowedRanges: "10.1.2.3/24,192.0.2.0/24", annotationDenyAll: "true"})
	withNode(t, s, func(w *world) {
		w.ensure(s)
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, "Allow", str(w.securityRules()[0], "properties", "access"))
	})
}

// TestNodeIsNoFurtherAddress: who may write a Service cannot open a port of a node itself.
func TestNodeIsNoFurtherAddress(t *testing.T) {
	t.Parallel()
	s := webService(nil, func(s *v1.Service) { s.Spec.Ports[0].Port = 22 })
	withNode(t, s, func(w *world) {
		ip := internalIP(w.nodes[0], false)
		w.change(s, func(s *v1.Service) { s.Annotations[annotationAdditional] = ip })
		require.ErrorContains(w, w.refuse(s), "is an address of node n1")
		assert.False(w, w.allowed(ip, "22"))
	})
}

// TestPortOfAnotherServiceStaysClosed: a Service that lets in some networks alone is not opened to all by another one that names its
// address.
func TestPortOfAnotherServiceStaysClosed(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationAllowedRanges: "10.0.0.0/8"})
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		before := w.securityRules()
		claimer := tenant(map[string]string{annotationAdditional: ip})
		w.Apply(claimer)
		require.ErrorContains(w, w.refuse(claimer), "is the address of another Service, which has port 80 there")
		assert.Len(w, w.securityRules(), len(before))
	})
}

// TestAddressOfAClusterOfTheSameName: two clusters called kubernetes may have their public addresses in one resource group, and Services
// of the same name.
func TestAddressOfAClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	s := webService(nil)
	for name, theirs := range map[string]leftAddress{
		"marked": leftPIP(leftIP, "tags", doc{
			"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes", "anyccm-cluster": "00000000-aaaa-4000-8000-000000000000",
		}),
		"bound": leftPIP(leftIP),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNode(t, s.DeepCopy(), func(w *world) {
				w.sim.LeaveAddress("theirs", theirs.ip, theirs.doc)
				if name == "bound" {
					w.sim.Leave(lbID("their-lb"), doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": doc{
						"frontendIPConfigurations": []any{leftFront("a0000000000000000000000000000000", "theirs")},
					}})
				}
				allow := leftAllow("IPv4", "d39272f7f57ed937951650d93992ad77", 500, "Tcp", "Internet", leftIP, "80")
				w.sim.Leave(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), doc{
					"location": azuresim.Location, "properties": doc{"securityRules": []any{allow}},
				})
				w.restart()
				w.ensure(s)
				assert.NotNil(w, w.sim.Shown(pipID("theirs")))
				assert.True(w, w.allowed(leftIP, "80"))
				w.remove(s)
				assert.NotNil(w, w.sim.Shown(pipID("theirs")))
				assert.True(w, w.allowed(leftIP, "80"))
			})
		})
	}
}

// TestAddressGroupChanges: a public address in a resource group that the Service names no more goes as any other one.
func TestAddressGroupChanges(t *testing.T) {
	t.Parallel()
	for name, after := range map[string]func(w *world, s *v1.Service){
		"served":  func(w *world, s *v1.Service) { w.ensure(s) },
		"removed": func(w *world, s *v1.Service) { w.remove(s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(map[string]string{annotationGroup: azuresim.OtherGroup})
			withNode(t, s, func(w *world) {
				w.ensure(s)
				w.restart()
				w.change(s, func(s *v1.Service) { delete(s.Annotations, annotationGroup) })
				after(w, s)
				assert.NotContains(w, w.sim.Snapshot(), azuresim.OtherGroup)
				if w.sim.Shown(lbID("kubernetes")) != nil {
					w.remove(s)
				}
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}
