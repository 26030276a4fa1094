package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// firewallWorld is a world with a managed firewall and one node.
func firewallWorld(t *testing.T) (*world, *publicFirewall) {
	t.Helper()
	w := newTestWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker, gpu"})
	w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker", "gpu"}})
	return w, w.firewall()
}

// firewall returns the controller as a start of the program makes it.
func (w *world) firewall() *publicFirewall {
	f := newPublicFirewall(w.loadBalancers)
	f.services = w.Services()
	return f
}

// TestMissingFirewallTags: preflight names the tags without which the API refuses the firewall. A token without the right does not tell.
func TestMissingFirewallTags(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker, missing"})
	w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker"}})
	err := w.CheckSettings(t.Context())
	require.ErrorContains(t, err, envFirewallTags+`: "missing" is not a tag of this account`)
	require.NotContains(t, err.Error(), `"worker"`)
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v2/tags/{name}", Count: 1})
	require.NoError(t, err)
	require.NoError(t, w.CheckSettings(t.Context()))
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 500, Operation: "GET /v2/tags/{name}"})
	require.NoError(t, err)
	require.ErrorContains(t, w.CheckSettings(t.Context()), "reading tag worker")
}

func (w *world) converge(f *publicFirewall) {
	w.T.Helper()
	var err error
	for range 5 {
		if err = f.reconcile(w.T.Context()); err == nil {
			return
		}
	}
	require.NoError(w.T, err)
}

// inbound describes the rules of the only firewall.
func (w *world) inbound() []string {
	w.T.Helper()
	all := w.sim.Firewalls()
	require.Len(w.T, all, 1)
	list := []string{}
	for _, r := range all[0].InboundRules {
		list = append(list, r.Protocol+" "+r.Ports+" "+strings.Join(slices.Concat(r.Sources.Addresses, r.Sources.LoadBalancerUIDs), " "))
	}
	return list
}

// at80 are the rules of the only firewall for port 80.
func (w *world) at80() []string {
	return slices.DeleteFunc(w.inbound(), func(rule string) bool { return !strings.HasPrefix(rule, "tcp 80 ") })
}

// TestUnreadableSourcesOpenNothing: a Service whose sources cannot be read is refused, and lets in nobody new at the firewall, whatever
// happens next. Where none can be read, nothing changes; it is otherwise with a Service that never had a load balancer.
func TestUnreadableSourcesOpenNothing(t *testing.T) {
	t.Parallel()
	const kept, other, both = "198.51.100.0/24", "203.0.113.0/24", "tcp 80 198.51.100.0/24 203.0.113.0/24"
	allow := func(rules string) func(*v1.Service) {
		return func(s *v1.Service) {
			s.Spec.LoadBalancerSourceRanges = nil
			s.Annotations[annotationAllowRules] = rules
		}
	}
	for name, c := range map[string]struct {
		change func(*v1.Service)
		want   string
	}{
		"beside a new one": {
			func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{kept, "192.0.2.0/24", "010.0.0.0/8"} }, "tcp 80 " + kept,
		},
		"misspelt":       {allow("cdir:" + kept), both},
		"without a kind": {allow(kept), both},
		"no rule":        {allow(","), both},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := firewallWorld(t)
			s := aged(service("web", nil, port("http", 80, 30080)), "web", 1)
			s.Spec.LoadBalancerSourceRanges = []string{kept, other}
			w.Apply(s)
			s, _ = w.ensure(s)
			w.converge(f)
			s = w.Current(s).DeepCopy()
			c.change(s)
			w.Apply(s)
			for range 2 {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
				require.Error(t, err)
				w.converge(f)
				assert.Equal(t, []string{c.want}, w.at80())
				w.restart()
				f = w.firewall()
			}
			never := aged(service("never", nil, port("http", 80, 30081)), "never", 2)
			never.Spec.LoadBalancerSourceRanges = []string{"bad"}
			w.Apply(never)
			w.Withdraw(s)
			w.converge(f)
			assert.Empty(t, w.at80())
		})
	}
}

// TestUnreadableSourcesFollowTheLoadBalancer: where ranges cannot be read, whom somebody takes from the load balancer by hand goes from the
// public firewall as well, and whom somebody adds there does not come in.
func TestUnreadableSourcesFollowTheLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker"})
		w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker"}})
		f := w.firewall()
		s := aged(service("web", nil, port("http", 80, 30080)), "web", 1)
		s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "203.0.113.0/24"}
		w.Apply(s)
		s, _ = w.ensure(s)
		w.converge(f)
		s = w.Current(s).DeepCopy()
		s.Spec.LoadBalancerSourceRanges = []string{"010.0.0.0/8"}
		w.Apply(s)
		w.converge(f)
		require.Equal(t, []string{"tcp 80 198.51.100.0/24 203.0.113.0/24"}, w.at80())
		for _, allow := range [][]string{{"cidr:198.51.100.0/24"}, {"cidr:198.51.100.0/24", "cidr:203.0.113.0/24"}} {
			w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Firewall.Allow = allow })
			time.Sleep(firewallPeriod)
			w.converge(f)
			assert.Equal(t, []string{"tcp 80 198.51.100.0/24"}, w.at80(), "the load balancer lets in %s", allow)
		}
	})
}

// TestFirewallOfAnotherCluster: a firewall of the same name that is for other droplets alone stays as it is, and Services are told, until
// it is for ours as well. One that this process has kept is set right, and Services are told if that happens again and again.
func TestFirewallOfAnotherCluster(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	w.Apply(aged(nodePortService(nil, port("http", 80, 30080)), "np", 1))
	w.converge(f)
	fw := w.sim.Firewalls()[0]
	change := func(tags ...string) {
		w.sim.ChangeFirewall(fw.ID, func(f *digitaloceansim.CloudFirewall) { f.InboundRules, f.Tags = nil, tags })
		f.observed.InvalidateAll()
	}
	for n := range 3 {
		require.Empty(t, w.Events(), "change %d", n)
		change("theirs")
		w.converge(f)
		assert.Equal(t, []string{"tcp 30080 0.0.0.0/0 ::/0"}, w.inbound())
		w.converge(f)
	}
	told := w.Events()
	require.Len(t, told, 1, "changes again and again are told")
	assert.Contains(t, told[0], "somebody else changes the firewall public-access again and again")

	f = w.firewall()
	change("theirs")
	w.server.ResetCalls()
	require.ErrorContains(t, f.reconcile(t.Context()), "is for droplets with the tags theirs, and for none of PUBLIC_ACCESS_FIREWALL_TAGS")
	assert.Zero(t, w.server.Calls().Writes)
	told = w.Events()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "FirewallPortClosed the firewall "+fw.ID+" of the name public-access is for droplets with the tags theirs")
	change("theirs", "worker")
	w.converge(f)
	assert.Equal(t, []string{"tcp 30080 0.0.0.0/0 ::/0"}, w.inbound())
	assert.Equal(t, []string{"worker", "gpu"}, w.sim.Firewalls()[0].Tags)
}

func TestFirewallLifeCycle(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	w.converge(f)
	assert.Empty(t, w.inbound(), "it exists without Services, and lets nothing in")
	fw := w.sim.Firewalls()[0]
	assert.Equal(t, "public-access", fw.Name)
	assert.Equal(t, []string{"worker", "gpu"}, fw.Tags)
	assert.Len(t, fw.OutboundRules, 3)

	np, web := aged(nodePortService(nil, port("http", 80, 30080)), "np", 1), aged(service("", nil, port("http", 80, 30081)), "web", 2)
	regional := aged(service("", map[string]string{annotationType: typeRegional}, port("http", 81, 30082)), "regional", 3)
	w.Apply(np, web, regional)
	web, _ = w.ensure(web)
	w.ensure(regional)
	w.server.ResetCalls()
	w.converge(f)
	assert.Equal(t, []string{
		"tcp 10256 " + web.Annotations[annotationID], "tcp 30080 0.0.0.0/0 ::/0", "tcp 80 0.0.0.0/0 ::/0",
	}, w.inbound())
	assert.Equal(
		t, map[string]int{"GET /v2/firewalls/{id}": 1, "PUT /v2/firewalls/{id}": 1}, w.server.Calls().ByOperation, "one write, and a look before it",
	)

	w.server.ResetCalls()
	w.converge(f)
	w.converge(f)
	assert.Zero(t, w.server.Calls().Total, "nothing changed")

	w.sim.ChangeFirewall(fw.ID, func(f *digitaloceansim.CloudFirewall) { f.InboundRules, f.DropletIDs = nil, []int{1} })
	f = w.firewall()
	w.converge(f)
	assert.Len(t, w.inbound(), 3, "a change by hand does not last")
	assert.Equal(t, []int{1}, w.sim.Firewalls()[0].DropletIDs, "what is attached by hand stays attached")

	w.Withdraw(np)
	w.Withdraw(web)
	w.converge(f)
	assert.Empty(t, w.inbound())
	assert.Empty(t, w.server.Calls().Refused)
	assert.Empty(t, w.Events())
}

// TestFirewallLookUp: by name among all pages; a firewall that was deleted, or replaced by one of the same name.
func TestFirewallLookUp(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	for i := range 250 {
		require.NoError(t, f.write("create", nil, func() (*godo.Firewall, error) {
			r, _ := desiredFirewall(fmt.Sprint("other-", i), nil, nil)
			return w.api.createFirewall(t.Context(), r)
		}))
	}
	w.converge(f)
	require.Len(t, w.sim.Firewalls(), 251)
	w.server.ResetCalls()
	f = w.firewall()
	w.converge(f)
	assert.Equal(t, map[string]int{"GET /v2/firewalls": 2}, w.server.Calls().ByOperation)

	// Deleted by hand: a change finds out, and makes it again, once.
	mine := w.sim.Firewalls()[250]
	deleteFirewall(t, w, mine.ID)
	w.Apply(aged(nodePortService(nil, port("http", 80, 30080)), "np", 1))
	require.Error(t, f.reconcile(t.Context()))
	w.converge(f)
	all := w.sim.Firewalls()
	require.Len(t, all, 251)
	assert.NotEqual(t, mine.ID, all[250].ID)

	// Deleted and made again by hand, with other rules: the new one is the one that is kept.
	deleteFirewall(t, w, all[250].ID)
	r, _ := desiredFirewall("public-access", nil, nil)
	byHand, err := w.api.createFirewall(t.Context(), r)
	require.NoError(t, err)
	w.Apply(aged(nodePortService(nil, port("http", 80, 30080), port("more", 81, 30081)), "np", 1))
	require.Error(t, f.reconcile(t.Context()))
	w.converge(f)
	all = w.sim.Firewalls()
	require.Len(t, all, 251)
	assert.Equal(t, byHand.ID, all[250].ID)
	assert.Len(t, all[250].InboundRules, 2)
}

func deleteFirewall(t *testing.T, w *world, id string) {
	t.Helper()
	_, err := w.api.sdk.Firewalls.Delete(t.Context(), id)
	require.NoError(t, err)
}

// TestFirewallInterruption breaks the k-th call of creation and change, before and after its effect, for every k; a
// restart follows. Never are there two firewalls, and the outcome is always the same.
func TestFirewallInterruption(t *testing.T) {
	t.Parallel()
	// run makes a firewall and changes it, with faults from the k-th call on, and a restart after failures alone or always. It
	// returns how many calls there were before the last convergence, and whether a fault struck.
	run := func(t *testing.T, kind string, k int, restart bool) (int, bool) {
		t.Helper()
		w := newVirtualWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker, gpu"})
		w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker", "gpu"}})
		f := w.firewall()
		if kind != "" {
			_, err := w.server.AddFault(simkit.Fault{Kind: kind, Status: 500, Operation: "firewalls", From: k, Count: 4})
			require.NoError(t, err)
		}
		w.server.ResetCalls()
		for _, nodePort := range []int32{30080, 30099} {
			w.Apply(aged(nodePortService(nil, port("http", 80, nodePort)), "np", 1))
			if err := f.reconcile(t.Context()); err != nil || restart {
				f = w.firewall()
			}
			w.converge(f)
		}
		calls := w.server.Calls()
		assert.Equal(t, []string{"tcp 30099 0.0.0.0/0 ::/0"}, w.inbound(), "call %d", k)
		return calls.ByOperation["GET /v2/firewalls"] + calls.ByOperation["GET /v2/firewalls/{id}"] + calls.ByOperation["POST /v2/firewalls"] +
				calls.ByOperation["PUT /v2/firewalls/{id}"],
			slices.ContainsFunc(calls.Latest, func(c simkit.Call) bool { return c.Fault != "" })
	}
	for _, kind := range []string{simkit.FaultReset, simkit.FaultLost, simkit.FaultStatusAfter, simkit.FaultHTML} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %v", kind, restart), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					count, _ := run(t, "", 0, restart)
					require.GreaterOrEqual(t, count, 3, "a listing, a creation and a change")
					for k := 1; k <= count; k++ {
						_, struck := run(t, kind, k, restart)
						assert.True(t, struck, "call %d", k)
					}
				})
			})
		}
	}
}

func TestFirewallReconcilesOneAtATime(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() { assert.NoError(t, f.reconcile(context.WithoutCancel(t.Context()))) })
	}
	group.Wait()
	assert.Equal(t, 1, w.server.Calls().ByOperation["POST /v2/firewalls"])
}

// TestOneBadServiceDoesNotBlockOthers: neither illegal annotations, nor a load balancer that is gone, nor too many ports.
func TestOneBadServiceDoesNotBlockOthers(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	good := aged(nodePortService(nil, port("http", 80, 30080)), "good", 1)
	serving := aged(service("", nil, port("http", 80, 30081)), "serving", 2)
	w.Apply(good, serving)
	serving, _ = w.ensure(serving)
	w.converge(f)
	before := w.inbound()
	require.Len(t, before, 3)

	// The type becomes illegal while the load balancer serves: its ports stay open.
	broken := serving.DeepCopy()
	broken.Annotations[annotationType] = "SUPER"
	w.Apply(broken, aged(service("", map[string]string{annotationType: "SUPER"}, port("http", 90, 30090)), "never-served", 3))
	w.converge(f)
	assert.Equal(t, before, w.inbound())

	// The load balancer is deleted by hand, and another Service changes.
	_, err := w.api.sdk.LoadBalancers.Delete(t.Context(), serving.Annotations[annotationID])
	require.NoError(t, err)
	w.Apply(serving, aged(nodePortService(nil, port("http", 80, 30085)), "new", 4))
	require.Error(t, f.reconcile(t.Context()), "the API refuses a rule for a load balancer that is gone")
	require.NoError(t, f.reconcile(t.Context()))
	assert.Equal(t, []string{"tcp 30080 0.0.0.0/0 ::/0", "tcp 30085 0.0.0.0/0 ::/0", "tcp 80 0.0.0.0/0 ::/0"}, w.inbound())

	// A Service with more ports than there is room for.
	var many []v1.ServicePort
	for i := range int32(60) {
		many = append(many, port(fmt.Sprint("p", i), 1000+i, 31000+2*i))
	}
	w.Events()
	greedy := aged(nodePortService(nil, many...), "greedy", 5)
	w.Apply(greedy, aged(nodePortService(nil, port("http", 80, 30086)), "newest", 6))
	require.NoError(t, f.reconcile(t.Context()))
	assert.Contains(t, w.inbound(), "tcp 30085-30086 0.0.0.0/0 ::/0", "neighbours share a rule where room is scarce")
	told := w.Events()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning FirewallPortClosed the public access firewall public-access has no room for this Service: DigitalOcean allows 50 rules; use fewer or consecutive ports")
	require.NoError(t, f.reconcile(t.Context()))
	assert.Empty(t, w.Events(), "it is told once")
}

// TestSourceRangesReachTheFirewall: what the load balancer refuses is refused at the node too.
func TestSourceRangesReachTheFirewall(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	s := aged(service("", nil, port("http", 80, 30080)), "s", 1)
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24"}
	foreign := aged(service("", nil, port("http", 99, 30099)), "foreign", 2)
	foreign.Spec.LoadBalancerClass = new("example.com/other")
	w.Apply(s, foreign)
	w.converge(f)
	assert.Empty(t, w.inbound(), "nothing is opened before there is a load balancer")
	s, _ = w.ensure(s)
	w.converge(f)
	assert.Equal(t, []string{"tcp 10256 " + s.Annotations[annotationID], "tcp 80 198.51.100.0/24"}, w.inbound())

	// Somebody takes the records away: what serves stays open.
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	s.Annotations = map[string]string{}
	w.Apply(s)
	w.converge(f)
	assert.Equal(t, []string{"tcp 80 198.51.100.0/24"}, w.inbound())
}

// TestRefusedClaimOpensNothing: a Service that claims another one's load balancer gets none, and no port of the nodes.
func TestRefusedClaimOpensNothing(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	owner := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(owner)
	owner, _ = w.ensure(owner)
	w.converge(f)
	before := w.inbound()
	claimer := aged(service("", nil, port("x", 10250, 30999)), "claimer", 2)
	claimer.Annotations[annotationID] = owner.Annotations[annotationID]
	claimer.Annotations[annotationType] = godo.LoadBalancerTypeRegionalNetwork
	w.Apply(claimer)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", claimer, w.nodes)
	require.ErrorContains(t, err, "belongs to Service default/web")
	w.converge(f)
	assert.Equal(t, before, w.inbound())
}

// TestAttachedSinceTheFirewallWasRead: a Droplet that somebody attached meanwhile stays attached.
func TestAttachedSinceTheFirewallWasRead(t *testing.T) {
	t.Parallel()
	w, f := firewallWorld(t)
	w.converge(f)
	w.sim.ChangeFirewall(w.sim.Firewalls()[0].ID, func(f *digitaloceansim.CloudFirewall) { f.DropletIDs = []int{1} })
	w.Apply(aged(nodePortService(nil, port("http", 80, 30080)), "np", 1))
	w.converge(f)
	assert.Equal(t, []string{"tcp 30080 0.0.0.0/0 ::/0"}, w.inbound())
	assert.Equal(t, []int{1}, w.sim.Firewalls()[0].DropletIDs)
}

// TestUnreadableServiceInTheFirewall: a Service whose load balancer cannot be read keeps what is open for it, lets in nobody new and no
// longer whom it does not ask for; the others get what they need.
func TestUnreadableServiceInTheFirewall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const former, inside = "198.51.0.0/16", "198.51.100.0/24"
		w := newVirtualWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker"})
		w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker"}})
		f := w.firewall()
		s := aged(service("web", nil, port("http", 80, 30080)), "web", 1)
		s.Spec.LoadBalancerSourceRanges = []string{former}
		w.Apply(s)
		s, _ = w.ensure(s)
		w.converge(f)
		w.restart()
		f = w.firewall()
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v2/load_balancers"})
		require.NoError(t, err)
		check := "tcp 10256 " + s.Annotations[annotationID]
		for _, c := range []struct {
			ranges []string
			want   string
		}{{[]string{former, "192.0.2.0/24"}, former}, {[]string{inside, "192.0.2.0/24"}, inside}} {
			s = w.Current(s).DeepCopy()
			s.Spec.LoadBalancerSourceRanges = c.ranges
			s.Spec.Ports = []v1.ServicePort{port("http", 80, 30080), port("more", 81, 30081)}
			w.Apply(s, aged(nodePortService(nil, port("http", 80, 30090)), "np", 2))
			require.ErrorContains(t, f.reconcile(t.Context()), "service default/web")
			assert.Equal(t, []string{check, "tcp 30090 0.0.0.0/0 ::/0", "tcp 80 " + c.want}, w.inbound())
		}
		w.server.ClearFaults()
		time.Sleep(firewallPeriod)
		w.converge(f)
		assert.Equal(t, []string{check, "tcp 30090 0.0.0.0/0 ::/0", "tcp 80 192.0.2.0/24 " + inside, "tcp 81 192.0.2.0/24 " + inside}, w.inbound())
	})
}

// TestFirstFirewallWaitsForAnUnreadableService: where there is no firewall yet, none is made without the ports of a Service whose load
// balancer cannot be read.
func TestFirstFirewallWaitsForAnUnreadableService(t *testing.T) {
	t.Parallel()
	w, _ := firewallWorld(t)
	s := aged(service("web", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	w.restart()
	f := w.firewall()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v2/load_balancers"})
	require.NoError(t, err)
	require.ErrorContains(t, f.reconcile(t.Context()), "service default/web")
	assert.Empty(t, w.sim.Firewalls())
	w.server.ClearFaults()
	w.restart()
	w.converge(w.firewall())
	assert.Equal(t, []string{"tcp 10256 " + s.Annotations[annotationID], "tcp 80 0.0.0.0/0 ::/0"}, w.inbound())
}
