package ibm

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

const (
	postGroup  = "POST /v1/security_groups"
	oneGroup   = "/v1/security_groups/{id}"
	attach     = "PUT " + oneGroup + "/targets/{id}"
	detach     = "DELETE " + oneGroup + "/targets/{id}"
	postRule   = "POST " + oneGroup + "/rules"
	deleteRule = "DELETE " + oneGroup + "/rules/{id}"
	defaults   = ibmsim.VPC + "-default"
)

// groups are the names of the security groups of the only load balancer.
func (w *world) groups() []string { return w.sim.GroupNames(w.sim.LoadBalancers()[0]) }

// lets are the inbound rules of the Service's own group, in words.
func (w *world) lets() []string {
	var list []string
	for _, g := range w.sim.MadeGroups() {
		for _, r := range g.Rules {
			if r.Direction == inbound {
				list = append(list, fmt.Sprint(r.Protocol, " ", r.PortMin, "-", r.PortMax, " ", r.Remote.CIDR))
			}
		}
	}
	slices.Sort(list)
	return list
}

// TestSourceRanges (38): who may reach a Service is the business of a security group of its own, from before the load balancer is there
// until after it has gone, and never is it open to everybody meanwhile.
func TestSourceRanges(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := ranged("web", "192.0.2.0/24", "198.51.100.7/32", "192.0.2.9/24")
		w.mustEnsure(s)
		own := groupName(ibmsim.Cluster, s)
		assert.Equal(w.t, []string{postGroup, create}, w.writes())
		assert.Equal(w.t, []string{own}, w.groups(), "and no other one, which would let others in")
		assert.Equal(w.t, []string{"tcp 80-80 192.0.2.0/24", "tcp 80-80 198.51.100.7/32"}, w.lets())
		assert.Equal(w.t, recordRanges, s.Annotations[annotationRecord])
		w.mustEnsure(s)
		w.restart()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())

		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{postRule, deleteRule, deleteRule}, w.writes())
		assert.Equal(w.t, []string{"tcp 80-80 203.0.113.0/24"}, w.lets())
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		w.mustEnsure(s)
		assert.Equal(w.t, []string{postRule, "POST " + oneLB + "/pools", "POST " + oneLB + "/listeners"}, w.writes())
		require.NoError(w.t, w.sim.EditSecurityGroup(own, func(g *ibmsim.SecurityGroup) {
			g.Rules = append(g.Rules, ibmsim.Rule{
				ID: "r006-by-hand", Direction: inbound, Family: "ipv4", Protocol: "any",
				Remote: ibmsim.Remote{CIDR: everybody},
			})
		}))
		time.Sleep(time.Minute)
		w.mustEnsure(s)
		assert.Equal(w.t, []string{deleteRule}, w.writes(), "what somebody opened by hand is closed")

		w.restart() // and they are removed while the program does not run
		s.Spec.LoadBalancerSourceRanges = nil
		w.mustEnsure(s)
		assert.Equal(w.t, []string{attach, detach, "DELETE " + oneGroup}, w.writes())
		assert.Equal(w.t, []string{defaults}, w.groups())
		assert.NotContains(w.t, s.Annotations, annotationRecord)
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{postGroup, attach, detach}, w.writes())
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Equal(w.t, []string{"DELETE " + oneLB, "DELETE " + oneGroup}, w.writes())
		assert.Empty(w.t, w.sim.MadeGroups())
		assert.Empty(w.t, w.server.Calls().Refused)
	})
}

// TestGroupStays: a group that somebody else uses stays with an event when its Service goes, and one that was left is an orphan once nobody
// uses it. Groups of others never are.
func TestGroupStays(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := ranged("web", "192.0.2.0/24")
		w.mustEnsure(s)
		use := func(by ...string) {
			require.NoError(w.t, w.sim.EditSecurityGroup(groupName(ibmsim.Cluster, s), func(g *ibmsim.SecurityGroup) { g.Others = by }))
			time.Sleep(time.Minute)
		}
		use("gateway")
		w.drainEvents()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
		assert.Len(w.t, w.sim.MadeGroups(), 1)
		assert.Contains(w.t, w.drainEvents(), eventLeft)
		orphans := func(list ...*v1.Service) int {
			all, err := w.cloud.Orphans(w.t.Context(), list)
			require.NoError(w.t, err)
			return len(all)
		}
		assert.Zero(w.t, orphans())
		use()
		assert.Zero(w.t, orphans(s))
		require.Equal(w.t, 1, orphans())
		all, err := w.cloud.Orphans(w.t.Context(), nil)
		require.NoError(w.t, err)
		require.Error(w.t, w.cloud.DeleteOrphan(w.t.Context(), all[0]), "its Service is there")
		w.bench.Withdraw(s)
		require.NoError(w.t, w.bench.Kube.CoreV1().Services(s.Namespace).Delete(w.t.Context(), s.Name, metav1.DeleteOptions{}))
		require.NoError(w.t, w.cloud.DeleteOrphan(w.t.Context(), all[0]))
		assert.Empty(w.t, w.sim.MadeGroups())
		assert.Len(w.t, w.sim.SecurityGroups(), 3)
	})
}

// TestNamedGroups: the groups of the annotation take the place of all others, whose rules are the user's; what nobody lets in is told.
func TestNamedGroups(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationGroups, ibmsim.WebGroup)
		w.mustEnsure(s)
		assert.Equal(w.t, []string{ibmsim.WebGroup}, w.groups())
		assert.Contains(w.t, w.drainEvents(), "no rule of the security groups web lets anybody reach port 443 of TCP")
		w.writes()
		before := w.sim.SecurityGroups()
		other := before[0] // by its ID
		s.Annotations[annotationGroups] = other.ID + ", web"
		w.mustEnsure(s)
		assert.Equal(w.t, []string{attach}, w.writes())
		s.Annotations[annotationGroups] = other.ID
		w.mustEnsure(s)
		assert.Equal(w.t, []string{detach}, w.writes())
		s.Annotations[annotationGroups] = "web"
		w.mustEnsure(s)
		w.writes()
		w.restart()
		delete(s.Annotations, annotationGroups)
		w.mustEnsure(s)
		assert.Equal(w.t, []string{attach, detach}, w.writes())
		assert.Equal(w.t, []string{defaults}, w.groups())
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, w.sim.SecurityGroups(), "no rule of theirs changed")
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Equal(w.t, before, w.sim.SecurityGroups())
	})
}

// TestGroupsByHand: what somebody attached by hand stays where nobody asks for anything; and a load balancer that takes no groups is told
// of, and stays as it is.
func TestGroupsByHand(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		edit := func(change func(*ibmsim.LoadBalancer)) {
			require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), change))
			time.Sleep(time.Minute)
		}
		webGroup := w.sim.SecurityGroups()[2].ID
		edit(func(lb *ibmsim.LoadBalancer) { lb.Groups = append(lb.Groups, webGroup) })
		w.writes()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		edit(func(lb *ibmsim.LoadBalancer) { lb.NoGroups = true })
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.drainEvents()
		require.ErrorContains(w.t, w.ensure(s), "takes no security groups")
		assert.Contains(w.t, w.drainEvents(), eventConfigError)
		assert.Empty(w.t, w.writes())
	})
}

// TestGroupRights: a credential that may not look at security groups serves and deletes Services that need none.
func TestGroupRights(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET /v1/security_groups"})
		require.NoError(w.t, err)
		s := web()
		w.mustEnsure(s)
		orphans, err := w.cloud.Orphans(w.t.Context(), nil)
		require.NoError(w.t, err)
		assert.Len(w.t, orphans, 1)
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
		closed := ranged("closed", "192.0.2.0/24")
		require.Error(w.t, w.ensure(closed))
		assert.Empty(w.t, w.sim.LoadBalancers(), "nothing is open to everybody instead")
	})
}

// TestGroupsAtADeletion: a Service that never had a group of its own costs one listing of groups when it goes, found or not.
func TestGroupsAtADeletion(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.server.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(2 * unlistedMaxAge) }) // or one listing serves both looks
		for name, made := range map[string]bool{"made": true, "never made": false} {
			s := web()
			w.bench.Apply(s.DeepCopy())
			if made {
				w.mustEnsure(s)
			}
			time.Sleep(time.Minute)
			w.server.ResetCalls()
			require.NoError(w.t, w.bench.Remove(w.cloud.loadBalancers, "", s))
			assert.Equal(w.t, 1, w.server.Calls().ByOperation["GET /v1/security_groups"], name)
			assert.Empty(w.t, w.sim.LoadBalancers())
		}
	})
}

// TestTakenBack: what annotations set is taken back when they are removed, though the program did not run then; what was set by hand stays.
func TestTakenBack(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		plain := web()
		w.mustEnsure(plain)
		assert.NotContains(w.t, plain.Annotations, annotationRecord, "a Service without annotations is not written")
		before := snapshot(w.t, w.sim)
		s := web(annotationIdle, "90", annotationCheckDelay, "20",
			annotationCheckTimeout, "10", annotationCheckRetries, "5",
			annotationCheckProtocol, protocolHTTP,
			annotationCheckPath, "/ready")
		w.mustEnsure(s)
		assert.NotEqual(w.t, before, snapshot(w.t, w.sim))
		assert.Equal(w.t, "vpc-health-check-delay,vpc-health-check-path,vpc-health-check-retries,vpc-health-check-timeout,vpc-idle-connection-timeout",
			s.Annotations[annotationRecord])
		w.restart()
		s.Annotations = map[string]string{annotationRecord: s.Annotations[annotationRecord]}
		w.mustEnsure(s)
		after := strings.ReplaceAll(snapshot(w.t, w.sim), `,"url_path":"/ready"`, "") // which tcp does not use, and a patch does not take away
		assert.Equal(w.t, before, after)
		assert.NotContains(w.t, s.Annotations, annotationRecord)

		require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Idle = new(300)
		}))
		time.Sleep(time.Minute)
		w.restart()
		w.writes()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
	})
}

// closed are the steps of a Service whose load balancer lets others in each time, with what it lets in then; nil are the VPC's own rules.
func closed() []struct{ ranges, lets []string } {
	return []struct{ ranges, lets []string }{
		{[]string{"192.0.2.0/24"}, []string{"tcp 80-80 192.0.2.0/24"}},
		{[]string{"203.0.113.0/24", "198.51.100.7/32"}, []string{"tcp 80-80 198.51.100.7/32", "tcp 80-80 203.0.113.0/24"}},
		{[]string{"192.0.2.0/24"}, []string{"tcp 80-80 192.0.2.0/24"}},
		{nil, nil},
		{[]string{"192.0.2.0/24"}, []string{"tcp 80-80 192.0.2.0/24"}},
	}
}

// closing takes a Service through these steps while listings lag, with a fault at its k-th write, and a program that goes on or ends there.
// What it says is done, is done. It returns how many writes there were.
func closing(t *testing.T, f simkit.Fault, restarts bool) (writes int) {
	t.Helper()
	inWorld(t, 1, time.Second, nil, func(w *world) {
		s := ranged("web")
		w.mustEnsure(s) // it exists, so that only groups are at stake
		own, k := groupName(ibmsim.Cluster, s), f.From
		time.Sleep(5 * time.Minute)
		w.sim.SetListingLag(30 * time.Second)
		time.Sleep(time.Minute)
		w.server.ResetCalls()
		if k > 0 {
			_, err := w.server.AddFault(f)
			require.NoError(w.t, err)
		}
		for n, step := range closed() {
			s.Spec.LoadBalancerSourceRanges = step.ranges
			for try := 0; ; try++ {
				err := w.ensure(s)
				if err == nil {
					break
				}
				require.Positive(w.t, k, "step %d: %v", n, err)
				require.Less(w.t, try, 40, "write %d, step %d: %v", k, n, err)
				w.server.ClearFaults()
				if restarts && try == 0 {
					w.restart()
				}
				time.Sleep(5 * time.Second)
			}
			if restarts {
				w.restart()
			}
			groups := []string{defaults}
			if len(step.ranges) > 0 { // or else a group that nothing has may stay until the Service goes, where no listing shows it yet
				groups = []string{own}
				assert.Equal(w.t, step.lets, w.lets(), "write %d, step %d", k, n)
			}
			assert.Equal(w.t, groups, w.groups(), "write %d, step %d", k, n)
		}
		w.server.ClearFaults()
		writes = len(w.writes())
		for try := 0; w.remove(s) != nil; try++ {
			require.Less(w.t, try, 40, "write %d", k)
			time.Sleep(5 * time.Second)
		}
		assert.Empty(w.t, w.sim.MadeGroups(), "write %d", k)
	})
	return writes
}

// TestClosedWhileListingsLag: whatever becomes of a write, and though listings are behind, who may reach a Service is what it asks for, as
// soon as it is said to be done.
func TestClosedWhileListingsLag(t *testing.T) {
	t.Parallel()
	for name, fault := range map[string]simkit.Fault{
		"reset": {Kind: simkit.FaultReset}, "lost": {Kind: simkit.FaultLost},
		"rate limit": {Kind: simkit.FaultStatus, Status: http.StatusTooManyRequests, RetryAfter: 5},
	} {
		for _, restarts := range []bool{false, true} {
			t.Run(fmt.Sprint(name, ", restarts ", restarts), func(t *testing.T) {
				t.Parallel()
				fault := fault // which the case beside it changes, too
				fault.Writes = true
				writes := closing(t, fault, restarts)
				require.Positive(t, writes)
				for fault.From = 1; fault.From <= writes; fault.From++ {
					closing(t, fault, restarts)
				}
			})
		}
	}
}

// TestTwoClosedServices: each Service has a group of its own, and neither lets in what the other one asks for; a network of IPv6, which a
// load balancer does not serve, is refused before anything is written.
func TestTwoClosedServices(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, time.Second, nil, func(w *world) {
		a, b := ranged("a", "192.0.2.0/24"), ranged("b", "203.0.113.0/24")
		b.UID = "5c000000-7a66-4b58-8b4b-0a61c1f9e0aa"
		b.Spec.Ports[0].NodePort = 30090
		w.mustEnsure(a)
		w.mustEnsure(b)
		rules := func(s *v1.Service) (list []string) {
			for _, g := range w.sim.MadeGroups() {
				for _, r := range g.Rules {
					if r.Direction == inbound && g.Name == groupName(ibmsim.Cluster, s) {
						list = append(list, r.Remote.CIDR)
					}
				}
			}
			return list
		}
		assert.Equal(w.t, []string{"192.0.2.0/24"}, rules(a))
		assert.Equal(w.t, []string{"203.0.113.0/24"}, rules(b))
		w.drainEvents()
		w.writes()
		for _, network := range []string{"2001:db8::/32", "::/0", "::ffff:192.0.2.0/120"} {
			s := b.DeepCopy()
			s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24", network}
			require.ErrorContains(w.t, w.ensure(s), network)
			assert.Contains(w.t, w.drainEvents(), eventConfigError)
		}
		assert.Empty(w.t, w.writes())
		require.NoError(w.t, w.remove(a))
		assert.Empty(w.t, rules(a))
		assert.Equal(w.t, []string{"203.0.113.0/24"}, rules(b))
	})
}

func lastIndex(list []string, one string) int {
	at := -1
	for n, s := range list {
		if s == one {
			at = n
		}
	}
	return at
}

// TestClosedBeforeOpened: where a Service gets another port and other groups at once, nobody reaches the port by the groups of before.
func TestClosedBeforeOpened(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := conformance.Service("web", nil, conformance.Port("http", 80, 30080))
		w.mustEnsure(s)
		w.writes()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{postGroup, attach, detach, "POST " + oneLB + "/pools", "POST " + oneLB + "/listeners"}, w.writes())

		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("third", 8081, 30082))
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.mustEnsure(s)
		writes := w.writes()
		assert.Less(w.t, lastIndex(writes, deleteRule), slices.Index(writes, "POST "+oneLB+"/pools"),
			"what is no longer allowed ends before the cloud works for minutes")
	})
}

// TestGroupOfAnotherServiceIsNotNamed: a Service names neither its own group nor another Service's, which would then never be deleted.
func TestGroupOfAnotherServiceIsNotNamed(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		victim := ranged("victim", "192.0.2.0/24")
		w.mustEnsure(victim)
		own := groupName(ibmsim.Cluster, victim)
		id := w.sim.MadeGroups()[0].ID
		w.writes()
		for _, name := range []string{own, id} {
			claim := second(map[string]string{annotationGroups: name})
			require.ErrorContains(w.t, w.ensure(claim), "is that of a Service", name)
			assert.Contains(w.t, w.drainEvents(), eventConfigError)
		}
		victim.Spec.LoadBalancerSourceRanges = nil
		victim.Annotations[annotationGroups] = own
		require.ErrorContains(w.t, w.ensure(victim), "is that of a Service")
		assert.Empty(w.t, w.writes())
	})
}

// TestFullGroup: networks are replaced by as many others as a group takes, though it has no room for both.
func TestFullGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		networks := func(second int) (list []string) {
			for n := range 200 {
				list = append(list, fmt.Sprintf("10.%d.%d.0/24", second, n))
			}
			return list
		}
		s := ranged("web", networks(1)...)
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = networks(2)
		w.mustEnsure(s)
		lets := w.lets()
		assert.Len(w.t, lets, 200)
		assert.NotContains(w.t, strings.Join(lets, " "), " 10.1.")
	})
}

// TestRangesWhileListingsLag: who may reach a Service is what it asks for last, though listings of security groups are behind our own
// writes. Nothing is asked for twice meanwhile.
func TestRangesWhileListingsLag(t *testing.T) {
	t.Parallel()
	for name, last := range map[string]string{"back again": "192.0.2.0/24", "the same once more": "203.0.113.0/24"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				time.Sleep(5 * time.Minute)
				w.sim.SetListingLag(30 * time.Second)
				time.Sleep(time.Minute)
				s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
				w.mustEnsure(s)
				require.Equal(w.t, []string{"tcp 80-80 203.0.113.0/24"}, w.lets())
				s.Spec.LoadBalancerSourceRanges = []string{last}
				assert.NoError(w.t, w.ensure(s))
				assert.Equal(w.t, []string{"tcp 80-80 " + last}, w.lets())
				assert.Empty(w.t, w.server.Calls().Refused)
				assert.NotContains(w.t, w.drainEvents(), "Warning")
			})
		})
	}
}

// TestGroupStillShowsTarget: a security group shows a load balancer for a while after that has gone, or was detached. It is ours alone
// nonetheless, and goes.
func TestGroupStillShowsTarget(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, s *v1.Service) error{
		"the Service goes": func(w *world, s *v1.Service) error { return w.remove(s) },
		"the ranges go":    func(w *world, s *v1.Service) error { s.Spec.LoadBalancerSourceRanges = nil; return w.ensure(s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 10*time.Second, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				time.Sleep(time.Minute)
				w.drainEvents()
				w.sim.SetTargetLag(20 * time.Second)
				for try := 0; ; try++ { // the framework asks again as long as it is told to
					if err := end(w, s); err == nil {
						break
					}
					require.Less(w.t, try, 20)
					time.Sleep(5 * time.Second)
				}
				time.Sleep(time.Minute)
				assert.Empty(w.t, w.sim.MadeGroups(), "what was told: %s", w.drainEvents())
			})
		})
	}
}

// TestGroupThatARuleNames: a user lets members of a Service's group reach something, by a rule of a group of their own. The Service goes,
// and lives without ranges, all the same; the group stays with an event, as one that somebody else uses.
func TestGroupThatARuleNames(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(w *world, s *v1.Service) error{
		"the Service goes": func(w *world, s *v1.Service) error { return w.remove(s) },
		"the ranges go":    func(w *world, s *v1.Service) error { s.Spec.LoadBalancerSourceRanges = nil; return w.ensure(s) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				s := ranged("web", "192.0.2.0/24")
				w.mustEnsure(s)
				own := w.sim.MadeGroups()[0].ID
				require.NoError(w.t, w.sim.EditSecurityGroup(ibmsim.WebGroup, func(g *ibmsim.SecurityGroup) {
					g.Rules = append(g.Rules, ibmsim.Rule{
						ID: "r006-by-hand", Direction: inbound, Family: "ipv4", Protocol: protocolTCP, PortMin: 5432, PortMax: 5432,
						Remote: ibmsim.Remote{ID: own},
					})
				}))
				time.Sleep(time.Minute)
				w.drainEvents()
				assert.NoError(w.t, end(w, s), "or it is tried for ever")
				assert.Contains(w.t, w.drainEvents(), eventLeft)
			})
		})
	}
}

// userGroup makes a security group as a user does.
func (w *world) userGroup(name string) {
	w.t.Helper()
	vpc, err := w.cloud.instances.vpc(w.t.Context())
	require.NoError(w.t, err)
	require.NoError(w.t, w.cloud.api.call(w.t.Context(), request{
		what: "making a group", method: http.MethodPost, path: "/security_groups", in: map[string]any{
			"name": name, "vpc": reference{ID: vpc}, "resource_group": reference{ID: ibmsim.GroupID},
		},
	}, &reference{}))
}

// TestAllGroupsReplaced: a load balancer has as many groups as it takes, and is to have others. Nothing is open meanwhile, and it comes to
// an end.
func TestAllGroupsReplaced(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*v1.Service){
		"by others of the user": func(s *v1.Service) { s.Annotations[annotationGroups] = "b-0,b-1,b-2,b-3,b-4" },
		"by source ranges": func(s *v1.Service) {
			delete(s.Annotations, annotationGroups)
			s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				for n := range ibmlimits.Groups.Max {
					w.userGroup(fmt.Sprint("a-", n))
					w.userGroup(fmt.Sprint("b-", n))
				}
				s := web(annotationGroups, "a-0,a-1,a-2,a-3,a-4")
				w.mustEnsure(s)
				require.Len(w.t, w.groups(), ibmlimits.Groups.Max)
				change(s)
				assert.NoError(w.t, w.ensure(s))
				for _, g := range w.groups() {
					assert.NotContains(w.t, g, "a-", "what is no longer asked for is gone")
				}
			})
		})
	}
}
