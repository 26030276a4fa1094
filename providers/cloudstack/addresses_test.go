package cloudstack

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestAddressGivenAgain: an address that was released has the same ID when it is given again; where the answer to that is lost, it is found
// and used, and no second one is taken.
func TestAddressGivenAgain(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		first := w.requireServed(w.serve("first", port("http", 80, 30080)))
		w.remove(first)
		require.Empty(t, w.takenTexts())
		second := w.serve("second", port("http", 80, 30080))
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "associateIpAddress", Count: 1})
		require.NoError(t, err)
		_, err = w.insist(second)
		require.Error(t, err)
		w.requireServed(second)
		assert.Equal(t, []string{first.Status.LoadBalancer.Ingress[0].IP}, w.takenTexts(), "the same address is given again")
		w.remove(second)
		assert.Empty(t, w.takenTexts())
	})
}

// TestSharedAddressOfTheUserStays: two Services at one address that their user had before; each has its rules, and the address stays.
func TestSharedAddressOfTheUserStays(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		_, err := w.sim.Reserve("203.0.113.90")
		require.NoError(t, err)
		one := w.serve("one", port("http", 80, 30080))
		two := w.serve("two", port("http", 443, 30443))
		for _, s := range []*v1.Service{one, two} {
			w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.90" })
			w.requireServed(s)
		}
		require.Len(t, w.sim.Rules(), 2)
		w.remove(one)
		assert.Equal(t, []string{loadBalancerName("", two) + "-tcp-443"}, w.ruleNames())
		assert.Len(t, w.sim.Firewalls(), 1)
		w.remove(two)
		assert.Empty(t, w.sim.Rules())
		assert.Empty(t, w.sim.Firewalls())
		assert.Equal(t, []string{"203.0.113.90"}, w.takenTexts(), "it is the user's")
	})
}

// TestSharedAddressGoesWithTheLastService: two Services name one address that was free; it goes with the last of them, in whichever order
// they go.
func TestSharedAddressGoesWithTheLastService(t *testing.T) {
	for _, first := range []bool{true, false} {
		t.Run(map[bool]string{true: "the one that took it goes first", false: "it goes last"}[first], func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				one := w.serve("one", port("http", 80, 30080))
				two := w.serve("two", port("http", 443, 30443))
				for _, s := range []*v1.Service{one, two} {
					w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.90" })
					w.requireServed(s)
				}
				assert.Equal(t, "true", w.Current(one).Annotations[annotationAssociated])
				order := []*v1.Service{one, two}
				if !first {
					slices.Reverse(order)
				}
				w.remove(order[0])
				assert.Len(t, w.sim.Rules(), 1)
				assert.Len(t, w.sim.Firewalls(), 1)
				assert.Equal(t, []string{"203.0.113.90"}, w.takenTexts())
				w.waitUntilForgotten()
				w.restart()
				w.server.ResetCalls()
				w.requireServed(order[1])
				assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
				w.remove(order[1])
				assert.Empty(t, w.takenTexts(), "nobody has it any more")
			})
		})
	}
}

// TestAddressThatOthersUseStays: an address that the provider took, and at which somebody has made a rule since, stays with what is
// theirs.
func TestAddressThatOthersUseStays(t *testing.T) {
	for what, use := range map[string]func(w *cluster, id string){
		"port forwarding":    func(w *cluster, id string) { w.sim.AddForward(id, 22) },
		"load balancer rule": func(w *cluster, id string) { w.ruleByHand(id, "theirs", "8443") },
		"static NAT": func(w *cluster, _ string) {
			vm := w.sim.List()[0].ID
			w.sim.EditAddress(w.takenTexts()[0], func(a *cloudstacksim.Address) { a.StaticNAT = vm })
		},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.requireServed(w.serve("web", port("http", 80, 30080)))
				ip := s.Status.LoadBalancer.Ingress[0].IP
				use(w, w.address(ip).ID)
				w.remove(s)
				assert.Equal(t, []string{ip}, w.takenTexts())
				assert.NotContains(t, w.ruleNames(), loadBalancerName("", s)+"-tcp-80")
				if what == "port forwarding" {
					assert.Len(t, w.sim.Forwards(), 1)
				}
			})
		})
	}
}

// TestEditedAddressMovesNothing: spec.loadBalancerIP that changes later, to the address of somebody else, moves nothing, and with the
// Service goes what was taken for it, and nothing of theirs.
func TestEditedAddressMovesNothing(t *testing.T) {
	for what, was := range map[string]string{"from none": "", "from one that the user had": "203.0.113.90"} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				for _, text := range []string{"203.0.113.90", "203.0.113.91"} {
					_, err := w.sim.Reserve(text)
					require.NoError(t, err)
				}
				s := w.serve("web", port("http", 80, 30080))
				w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = was })
				before := w.requireServed(s).Status
				w.edit(s, func(s *v1.Service) { s.Spec.LoadBalancerIP = "203.0.113.91" })
				w.Events()
				assert.Equal(t, before, w.requireServed(s).Status)
				assert.Contains(t, strings.Join(w.Events(), "\n"), "203.0.113.91")
				w.waitUntilForgotten()
				w.restart()
				w.remove(s)
				assert.Equal(t, []string{"203.0.113.90", "203.0.113.91"}, w.takenTexts())
			})
		})
	}
}

// TestRefusedPortsTakeOneAddress: ports that the cloud refuses take no address after the other, and the others are served.
func TestRefusedPortsTakeOneAddress(t *testing.T) {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	for what, bad := range map[string]v1.ServicePort{"UDP": udp, "the port of HAProxy's statistics": port("stats", 8081, 30081)} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				good := w.serve("good", port("http", 80, 30080), bad)
				alone := w.serve("alone", bad)
				for range 5 {
					_, _ = w.insist(good)  // the refused port is an error
					_, _ = w.insist(alone) // as above
					w.waitUntilForgotten()
					w.restart()
				}
				assert.Equal(t, []string{loadBalancerName("", good) + "-tcp-80"}, w.ruleNames())
				assert.Len(t, w.sim.Rules()[0].Members, 2)
				assert.LessOrEqual(t, len(w.takenTexts()), 2, "%v", w.takenTexts())
				assert.LessOrEqual(t, w.server.Calls().ByOperation["associateIpAddress"], 2, "no address after the other")
				w.server.ResetCalls() // the refusals were meant
				w.remove(good)
				w.remove(alone)
				assert.Empty(t, w.takenTexts())
				assert.Empty(t, w.sim.Firewalls())
			})
		})
	}
}

// TestExhaustedQuotaLosesNoAddress: an exhausted quota is an event, and no address is lost.
func TestExhaustedQuotaLosesNoAddress(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		owner := w.sim.Networks()[0].Owner
		w.sim.SetQuota(owner, 1)
		s := w.serve("web", port("http", 80, 30080))
		_, err := w.insist(s)
		require.ErrorContains(t, err, "public_ip")
		assert.NotEmpty(t, w.Events())
		w.sim.SetQuota(owner, -1)
		w.waitUntilForgotten()
		w.requireServed(s)
		assert.Len(t, w.takenTexts(), 1)
		w.remove(s)
		assert.Empty(t, w.takenTexts())
	})
}

// TestAddressOfSomebodyElseAfterALostRequest: an address that somebody takes after ours was asked for and not given is his: it is neither
// used nor released.
func TestAddressOfSomebodyElseAfterALostRequest(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		s := w.serve("web", port("http", 80, 30080))
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
		assert.Equal(t, []string{"203.0.113.90", "203.0.113.91"}, w.takenTexts())
		again := w.serve("web", port("http", 80, 30080))
		_, err = w.insist(again)
		require.Error(t, err)
		w.send("command", "associateIpAddress", "networkid", second, "ipaddress", "203.0.113.92")
		w.remove(again)
		assert.Equal(t, []string{"203.0.113.90", "203.0.113.91", "203.0.113.92"}, w.takenTexts())
	})
}

// TestAddressWithoutRulesGoesWithItsService: rules that somebody deleted leave an address, which goes with the Service.
func TestAddressWithoutRulesGoesWithItsService(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		s := w.requireServed(w.serve("web", port("http", 80, 30080)))
		w.sim.RemoveRules()
		w.waitUntilForgotten()
		w.restart()
		w.remove(s)
		assert.Empty(t, w.takenTexts())
	})
}

// TestAddressThatAServiceClaims: nothing that the author of a Service writes has an address released that was not taken for the Service,
// be it used by it or not.
func TestAddressThatAServiceClaims(t *testing.T) {
	const theirs = "203.0.113.90"
	claims := func(text string) func(w *cluster, s *v1.Service) {
		return func(w *cluster, s *v1.Service) {
			w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationRecord: text + w.address(theirs).ID} })
		}
	}
	named := func(s *v1.Service) { s.Spec.LoadBalancerIP = theirs }
	for what, c := range map[string]struct {
		// before and after change the Service before it is served and afterwards; nil where it never is, or not changed.
		before func(s *v1.Service)
		after  func(w *cluster, s *v1.Service)
		event  string
	}{
		"a record of its own":            {named, claims(""), annotationRecord},
		"a record, and no load balancer": {nil, claims(""), ""},
		"a record with a seal of its own": {named, func(w *cluster, s *v1.Service) {
			w.edit(s, func(s *v1.Service) {
				s.Annotations = map[string]string{annotationRecord: w.address(theirs).ID + sealMark + strings.Repeat("0", 2*sealLength)}
			})
		}, annotationRecord},
		"a time at which it asked": {nil, func(w *cluster, s *v1.Service) {
			w.edit(s, func(s *v1.Service) {
				s.Annotations = map[string]string{annotationRecord: requestPrefix + s.CreationTimestamp.UTC().Format(time.RFC3339)}
			})
		}, ""},
		"the annotation of CloudStack's own controller": {named, func(w *cluster, s *v1.Service) {
			w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationAssociated: "true"} })
		}, annotationAssociated},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.serve("web", port("http", 80, 30080))
				_, err := w.sim.Reserve(theirs)
				require.NoError(t, err)
				if c.before != nil {
					w.edit(s, c.before)
					w.requireServed(s)
				}
				c.after(w, s)
				w.waitUntilForgotten()
				w.restart()
				w.Events()
				w.remove(s)
				assert.Equal(t, []string{theirs}, w.takenTexts())
				if c.event != "" {
					assert.Contains(t, strings.Join(w.Events(), "\n"), c.event)
				}
			})
		})
	}
}

// TestRecordOfAReleasedAddress: the record of an address that was released does not count when somebody else has the address.
func TestRecordOfAReleasedAddress(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		s := w.requireServed(w.serve("web", port("http", 80, 30080)))
		former, ip := w.Current(s).Annotations[annotationRecord], s.Status.LoadBalancer.Ingress[0].IP
		require.NotEmpty(t, former)
		w.remove(s)
		require.Empty(t, w.takenTexts())
		time.Sleep(time.Hour)
		_, err := w.sim.Reserve(ip)
		require.NoError(t, err)
		w.Apply(s)
		w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationRecord: former} })
		w.remove(s)
		assert.Equal(t, []string{ip}, w.takenTexts(), "a Service without a load balancer")
		w.Apply(s)
		w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationRecord: former} })
		w.requireServed(s)
		assert.Contains(t, strings.Join(w.Events(), "\n"), "address "+ip+" is not used, and stays")
		w.remove(s)
		assert.Equal(t, []string{ip}, w.takenTexts(), "a Service with one")
	})
}

// TestAddressAfterAnotherKey: the rules prove that their address was taken for their Service, also where the record was sealed with a key
// that the user has no longer.
func TestAddressAfterAnotherKey(t *testing.T) {
	inCluster(t, nil, func(w *cluster) {
		s := w.requireServed(w.serve("web", port("http", 80, 30080)))
		w.edit(s, func(s *v1.Service) {
			s.Annotations[annotationRecord] = w.address(s.Status.LoadBalancer.Ingress[0].IP).ID + sealMark + strings.Repeat("0", 2*sealLength)
		})
		w.waitUntilForgotten()
		w.restart()
		w.remove(s)
		assert.Empty(t, w.takenTexts())
	})
}

// TestFormerQuestionReleasesNothing: the record of a question that was answered, brought back by the author of the Service, has no
// address of somebody else released who reserved it soon after the question, be it used by the Service or not.
func TestFormerQuestionReleasesNothing(t *testing.T) {
	const theirs = "203.0.113.90"
	for what, c := range map[string]struct{ served, restarted bool }{
		"of a Service without a load balancer": {false, false},
		"of a Service with one":                {true, false},
		"of one without, after a restart":      {false, true},
		"of one with one, after a restart":     {true, true},
	} {
		t.Run(what, func(t *testing.T) {
			inCluster(t, nil, func(w *cluster) {
				s := w.serve("web", port("http", 80, 30080))
				_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultReset, Operation: "associateIpAddress"})
				require.NoError(t, err)
				_, err = w.insist(s)
				require.Error(t, err)
				question := w.Current(s).Annotations[annotationRecord]
				require.Contains(t, question, requestPrefix)
				w.server.ClearFaults()
				owner := w.sim.Networks()[0].Owner
				w.sim.SetQuota(owner, 0)
				w.edit(s, func(s *v1.Service) { s.Annotations = nil })
				_, err = w.insist(s)
				require.ErrorContains(t, err, "public_ip")
				require.Empty(t, w.Current(s).Annotations[annotationRecord])
				w.sim.SetQuota(owner, -1)
				_, err = w.sim.Reserve(theirs)
				require.NoError(t, err)
				w.waitUntilForgotten()
				if c.restarted { // a process looks at all Services when it starts
					w.restart()
					_, _, err = w.loadBalancers.GetLoadBalancer(w.T.Context(), "kubernetes", w.Current(s))
					require.NoError(t, err)
				}
				w.edit(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationRecord: question} })
				w.Events()
				if c.served {
					w.requireServed(s)
				}
				w.remove(s)
				assert.Equal(t, []string{theirs}, w.takenTexts())
				assert.Contains(t, strings.Join(w.Events(), "\n"), eventAddressKept)
			})
		})
	}
}
