package linode

import (
	"errors"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// byLinodes makes a NodeBalancer look as Linode's own controller leaves it: its label says nothing about the Service.
func (w *world) byLinodes(id int) {
	w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) { nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", []string{"kubernetes"} })
}

// claimer is a Service older than all others that leads to a NodeBalancer.
func claimer(annotation string, nb int) *v1.Service {
	s := service("claimer", map[string]string{annotation: strconv.Itoa(nb)}, port("http", 80, 30999))
	s.UID, s.CreationTimestamp = "0c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", metav1.NewTime(time.Unix(1, 0))
	return s
}

// TestClaims: neither age nor an annotation makes a NodeBalancer a Service's, whoever made it.
func TestClaims(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{annotationID, annotationRecord} {
		for _, legacy := range []bool{false, true} {
			w := lbWorld(t, 1)
			victim := service("victim", nil, port("http", 80, 30080))
			victim.CreationTimestamp = metav1.NewTime(time.Unix(1000, 0))
			w.Apply(victim)
			victim, _ = w.ensure(victim)
			theirs := w.sim.NodeBalancers()[0].ID
			if legacy {
				w.byLinodes(theirs)
				w.restart()
			}
			before := snapshot(t, w.sim)
			s := claimer(annotation, theirs)
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			_, isNotOurs := errorsAsNotOurs(err)
			require.True(t, isNotOurs, "%s, legacy %v: %v", annotation, legacy, err)
			told := strings.Join(w.Events(), "\n")
			assert.Contains(t, told, "Warning LoadBalancerNotOurs")
			assert.Contains(t, told, "Warning LoadBalancerClaimed")
			require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil))
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Equal(t, before, snapshot(t, w.sim), "%s, legacy %v", annotation, legacy)
			w.ensure(victim)
			assert.Equal(t, before, snapshot(t, w.sim), "and its owner goes on")
		}
	}
}

func errorsAsNotOurs(err error) (*ownership.NotOursError, bool) {
	return errors.AsType[*ownership.NotOursError](err)
}

// TestAdoption: a NodeBalancer without a mark becomes a Service's by evidence, or by the operator's leave; and what no
// controller made is never deleted.
func TestAdoption(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		adopt   registry.Adoption
		targets int // the node port that it sends traffic to; 0 for none
		made    bool
		refused bool
		deleted bool
	}{
		"the Service's own node port":              {registry.AdoptEvidence, 30080, false, false, false},
		"made by Linode's own for another Service": {registry.AdoptEvidence, 30080, true, true, false},
		"another node port":                        {registry.AdoptEvidence, 30081, false, true, false},
		"no target":                                {registry.AdoptEvidence, 0, false, true, false},
		"no target, made by Linode's own":          {registry.AdoptEvidence, 0, true, true, false},
		"no target, and the operator allows it":    {registry.AdoptAny, 0, false, false, false},
		"its node port, and the operator does not": {registry.AdoptNone, 30080, false, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			w.loadBalancers.owners.adopt = c.adopt
			id := w.users("users-own")
			if c.made {
				w.byLinodes(id)
			}
			if c.targets != 0 {
				w.serves(id, c.targets)
			}
			s := service("web", map[string]string{annotationID: strconv.Itoa(id)}, port("http", 80, 30080))
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			if c.refused {
				_, isNotOurs := errorsAsNotOurs(err)
				require.True(t, isNotOurs, "%v", err)
			} else {
				require.NoError(t, err)
			}
			s = w.Current(s)
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Equal(t, c.deleted, len(w.sim.NodeBalancers()) == 0)
		})
	}
}

// takenFromLinode is a Service whose NodeBalancer Linode's own controller made, and which was taken over.
func takenFromLinode(t *testing.T) (*world, *v1.Service, int) {
	t.Helper()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	s, shown := w.ensure(s)
	s = w.SetStatus(s, shown)
	id := w.sim.NodeBalancers()[0].ID
	w.byLinodes(id)
	w.restart()
	w.server.ResetCalls()
	s, _ = w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "a takeover writes nothing")
	return w, s, id
}

// TestLeftBehind: the API server takes status and node ports away with the type of a Service. What Linode's own controller
// made, and nothing else of ours marks, stays then, and the Service is told so: what is left of the evidence is a record, and
// anybody may have written that.
func TestLeftBehind(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		other  *v1.Service
		change bool // the NodeBalancer was changed by us before
		forged bool // the record is somebody else's, and the Service is gone
		same   bool // it is the same process that has served the Service
		left   int
		told   bool
	}{
		"nobody else's":                       {nil, false, false, false, 1, true},
		"nobody else's, changed by us before": {nil, true, false, false, 0, false},
		"another one has its port":            {service("other", nil, port("http", 80, 30080)), false, false, false, 1, false},
		"another one recorded it":             {service("other", map[string]string{annotationRecord: "ID"}, port("http", 80, 30999)), false, false, false, 1, false},
		"another one has other ports":         {service("other", nil, port("http", 80, 30999)), false, false, false, 1, true},
		"a forged record":                     {nil, false, true, false, 1, true},
		"a forged record, changed by us":      {nil, true, true, false, 1, false},
		"nobody else's, the same process":     {nil, false, false, true, 0, false},
		"a forged record, the same process":   {nil, false, true, true, 1, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, s, id := takenFromLinode(t)
			if c.change {
				s = s.DeepCopy()
				s.Annotations[annotationThrottle] = "7"
				w.Apply(s)
				s, _ = w.ensure(s)
				assert.Subset(t, w.sim.NodeBalancers()[0].Tags, append(ownership.ServiceMarks(s), "anyccm:test-cluster"))
			}
			if c.forged {
				w.Withdraw(s)
				s = claimer(annotationRecord, id)
				s.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
			}
			s = s.DeepCopy()
			s.Spec.Type, s.Status.LoadBalancer, s.Spec.Ports[0].NodePort = v1.ServiceTypeClusterIP, v1.LoadBalancerStatus{}, 0
			w.Apply(s)
			if c.other != nil {
				c.other.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
				if c.other.Annotations[annotationRecord] != "" {
					c.other.Annotations[annotationRecord] = strconv.Itoa(id)
				}
				w.Apply(c.other)
			}
			if !c.same {
				w.restart()
			}
			w.Events()
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Len(t, w.sim.NodeBalancers(), c.left)
			assert.Equal(t, c.told, strings.Contains(strings.Join(w.Events(), "\n"), "Normal LoadBalancerRetained NodeBalancer "+strconv.Itoa(id)))
		})
	}
}

// TestPreservedNodeBalancer: who takes the freed node port of a Service has nothing of what it preserved, whoever made that.
func TestPreservedNodeBalancer(t *testing.T) {
	t.Parallel()
	for _, legacy := range []bool{false, true} {
		for _, annotation := range []string{annotationID, annotationRecord} {
			w := lbWorld(t, 1)
			victim := service("victim", nil, port("http", 80, 30080))
			w.Apply(victim)
			victim, _ = w.ensure(victim)
			id := w.sim.NodeBalancers()[0].ID
			if legacy {
				w.byLinodes(id)
			}
			w.Withdraw(victim)
			w.restart()
			before := snapshot(t, w.sim)
			s := claimer(annotation, id)
			s.Spec.Ports[0].NodePort = 30080
			w.Apply(s)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			_, isNotOurs := errorsAsNotOurs(err)
			assert.True(t, isNotOurs, "%s, legacy %v: %v", annotation, legacy, err)
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", w.Current(s)))
			assert.Equal(t, before, snapshot(t, w.sim), "%s, legacy %v", annotation, legacy)
		}
	}
}

// TestOrphanOfALivingService: each of what leads from a living Service to a NodeBalancer keeps it from being an orphan.
func TestOrphanOfALivingService(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		nb     func(*linodesim.NodeBalancer)
		change func(*v1.Service)
		orphan bool
	}{
		"all of it":      {nil, func(*v1.Service) {}, false},
		"its mark alone": {relabelled(true), func(s *v1.Service) { s.Annotations, s.Status = nil, v1.ServiceStatus{} }, false},
		"no load balancer": {relabelled(true), func(s *v1.Service) {
			s.Spec.Type, s.Annotations, s.Status = v1.ServiceTypeClusterIP, nil, v1.ServiceStatus{}
		}, false},
		"its label alone": {
			func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:test-cluster"} },
			func(s *v1.Service) { s.Annotations, s.Status = nil, v1.ServiceStatus{} }, false,
		},
		"its record alone":                   {relabelled(false), func(s *v1.Service) { s.Status = v1.ServiceStatus{} }, false},
		"its record, and another one named":  {relabelled(false), func(s *v1.Service) { s.Annotations[annotationID], s.Status = "4711", v1.ServiceStatus{} }, false},
		"its address alone":                  {relabelled(false), func(s *v1.Service) { s.Annotations = nil }, false},
		"its address, and another one named": {relabelled(false), func(s *v1.Service) { s.Annotations = map[string]string{annotationID: "4711"} }, false},
		"nothing leads there":                {relabelled(false), func(s *v1.Service) { s.Annotations, s.Status = nil, v1.ServiceStatus{} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, shown := w.ensure(s)
			s = w.SetStatus(s, shown).DeepCopy()
			if c.nb != nil {
				w.sim.ChangeNodeBalancer(w.sim.NodeBalancers()[0].ID, c.nb)
			}
			nb := w.sim.NodeBalancers()[0]
			c.change(s)
			w.Apply(s)
			_, err := w.Kube.CoreV1().Services(s.Namespace).UpdateStatus(t.Context(), s, metav1.UpdateOptions{})
			require.NoError(t, err)
			w.restart()
			found, err := w.Orphans(t.Context(), []*v1.Service{s})
			require.NoError(t, err)
			assert.Equal(t, c.orphan, len(found) == 1)
			err = w.DeleteOrphan(t.Context(), contract.Orphan{Kind: kindNodeBalancer, ID: strconv.Itoa(nb.ID), Name: nb.Label})
			assert.Equal(t, c.orphan, err == nil, "%v", err)
			assert.Equal(t, c.orphan, len(w.sim.NodeBalancers()) == 0)
		})
	}
}

// TestOrphanWithoutAClient: who cannot see the Services deletes nothing.
func TestOrphanWithoutAClient(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	nb := w.sim.NodeBalancers()[0]
	w.loadBalancers.kube = nil
	require.Error(t, w.DeleteOrphan(t.Context(), contract.Orphan{Kind: kindNodeBalancer, ID: strconv.Itoa(nb.ID), Name: nb.Label}))
	assert.Len(t, w.sim.NodeBalancers(), 1)
}

// relabelled gives a NodeBalancer a label as Linode's own controller makes them, and takes the mark of its Service off.
func relabelled(marked bool) func(*linodesim.NodeBalancer) {
	return func(nb *linodesim.NodeBalancer) {
		nb.Label = "ccm-0f0f0f0f0f0f"
		if !marked {
			nb.Tags = []string{"anyccm:test-cluster"}
		}
	}
}

// TestOperatorsFirewall: what an operator attached to a NodeBalancer stays attached, whatever the author of its Service writes.
func TestOperatorsFirewall(t *testing.T) {
	t.Parallel()
	for name, write := range map[string]func(s *v1.Service, operators, other int){
		"a forged record": func(s *v1.Service, operators, _ int) {
			s.Annotations[annotationFirewallRecord] = strconv.Itoa(operators)
		},
		"a forged record and another one": func(s *v1.Service, operators, other int) {
			s.Annotations[annotationFirewallRecord], s.Annotations[annotationFirewallID] = strconv.Itoa(operators), strconv.Itoa(other)
		},
		"another one": func(s *v1.Service, _, other int) { s.Annotations[annotationFirewallID] = strconv.Itoa(other) },
		"a forged record and an access list": func(s *v1.Service, operators, _ int) {
			s.Annotations[annotationFirewallRecord], s.Annotations[annotationFirewallACL] = strconv.Itoa(operators), allowACL
		},
		"itself, and then no more": func(s *v1.Service, operators, _ int) { s.Annotations[annotationFirewallID] = strconv.Itoa(operators) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t, 1)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, _ = w.ensure(s)
			nb := w.sim.NodeBalancers()[0].ID
			operators, other := w.sim.AddFirewall("operators", nb), w.sim.AddFirewall("other")
			w.restart()
			plain := maps.Clone(s.Annotations)
			for range 2 {
				s = s.DeepCopy()
				write(s, operators, other)
				w.Apply(s)
				s, _ = w.ensure(s)
				s, _ = w.ensure(s)
				s.Annotations = maps.Clone(plain)
				w.Apply(s)
				s, _ = w.ensure(s)
			}
			firewalls := w.sim.Firewalls()
			require.Len(t, firewalls, 2)
			assert.Equal(t, []int{nb}, firewalls[0].Devices())
			assert.Empty(t, firewalls[1].Devices())
		})
	}
}

// TestNotesOfFirewalls: one that we attached, that somebody detached, and that an operator attached later is the operator's.
func TestNotesOfFirewalls(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	users := w.sim.AddFirewall("users")
	s := service("web", map[string]string{annotationFirewallID: strconv.Itoa(users)}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	require.Contains(t, w.sim.NodeBalancers()[0].Tags, firewallMark(users))
	plan := firewallPlan{attached: []int{9}}
	assert.Equal(t, []string{"a", firewallMark(9)}, plan.note([]string{"a", firewallMark(8), firewallMark(9)}))
	assert.Empty(t, notedFirewalls([]string{"a", "anyccm-firewall:", "anyccm-firewall:x", "anyccm-firewall:-1", "7"}))
	s = s.DeepCopy()
	delete(s.Annotations, annotationFirewallID)
	w.Apply(s)
	w.ensure(s)
	assert.NotContains(t, w.sim.NodeBalancers()[0].Tags, firewallMark(users))
	assert.Empty(t, w.sim.Firewalls()[0].Devices())
}
