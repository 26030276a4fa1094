package aws

import (
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
)

// lose takes a Service away and leaves all that it has in AWS.
func (w *world) lose(s *v1.Service) {
	w.T.Helper()
	w.Withdraw(s)
	require.NoError(w.T, w.Kube.CoreV1().Services(s.Namespace).Delete(w.T.Context(), s.Name, metav1.DeleteOptions{}))
}

// command starts again as a command does: with the API server, and without caches of Services or Nodes.
func (w *world) command(classes defaults.Set) {
	w.T.Helper()
	source := &defaults.Source{}
	source.Use(classes)
	in := testInputs(w.sim, w.url, w.sim.CloudConfig(w.url)+w.file, w.env)
	in.Defaults = source
	c, err := maker(w.limits).New(in)
	require.NoError(w.T, err)
	c.kube = w.Kube
	w.cloud = c
	for _, n := range w.nodes {
		_, _ = w.Kube.CoreV1().Nodes().Create(w.T.Context(), n, metav1.CreateOptions{}) // it may be there
	}
}

// orphans are those that the command finds, by their kind and name.
func (w *world) orphans() map[string]contract.Orphan {
	w.T.Helper()
	living, err := w.currentServices(w.T.Context())
	require.NoError(w.T, err)
	list, err := w.Orphans(w.T.Context(), living.all)
	require.NoError(w.T, err)
	found := map[string]contract.Orphan{}
	for _, o := range list {
		found[o.Kind+" "+o.Name] = o
	}
	return found
}

// deleteOrphans deletes what the command finds until it finds nothing: target groups count as orphans once their load balancer is gone.
func (w *world) deleteOrphans(classes defaults.Set) {
	w.T.Helper()
	for range 3 {
		w.command(classes)
		for _, o := range w.orphans() {
			require.NoError(w.T, w.DeleteOrphan(w.T.Context(), o))
		}
	}
	w.command(classes)
	require.Empty(w.T, w.orphans())
}

// TestOrphanKeepsTheRulesOfTheLiving: what nodes let in for an orphan and a living Service alike stays with the living one, whatever
// the name in the rule. Only the API server knows the living: by the annotations that they have, or by the defaults of their class.
func TestOrphanKeepsTheRulesOfTheLiving(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		port    int32
		classes defaults.Set
		now     func(*v1.Service) // how the living Service is in the API server
	}{
		"by its annotation": {port: 30081},
		"by the defaults": {
			port: 30081, classes: defaults.Set{"": {annotationType: typeNLB, annotationCheckPort: "30080"}},
			now: func(s *v1.Service) { s.Annotations = map[string]string{} },
		},
		"another controller's by now": {port: 30081, now: func(s *v1.Service) { s.Annotations[annotationType] = typeExternal }},
		"the same node port":          {port: 30080},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := "ClusterServiceLoadBalancerHealthProbeMode = Shared\n"
			if c.classes != nil {
				file = ""
			}
			w := startWorld(t, file, awssim.Options{})
			lost, living := nlb("lost", nil, servicePort("http", 80, 30080)), nlb("living", nil, servicePort("http", 80, c.port))
			if c.classes != nil { // it is checked by the port of the other one
				lost.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				maps.Copy(living.Annotations, c.classes[""])
			}
			w.Apply(lost)
			w.ensure(lost)
			w.lose(lost)
			w.Apply(living)
			w.ensure(living)
			require.NotContains(t, strings.Join(rules(w.group("nodes")), "\n"), descriptionHealth+loadBalancerName(living), "the rule is the orphan's by name")
			if c.now != nil {
				w.change(living, c.now)
			}
			w.command(c.classes)
			require.Contains(t, w.orphans(), orphanNetwork+" default/lost")
			w.deleteOrphans(c.classes)
			w.reached(living)
			if c.classes == nil {
				assert.Contains(t, w.ports("10.0.0.0/24"), 10256)
			}
			if open := w.ports("0.0.0.0/0"); c.port != 30080 {
				assert.Equal(t, []int{int(c.port)}, open)
			} else {
				assert.Contains(t, open, 30080)
			}

			// When it has gone as well, nothing stays.
			w.lose(living)
			w.deleteOrphans(c.classes)
			assert.Empty(t, rules(w.group("nodes")))
		})
	}
}

// TestOrphanOfANamedGroup: nodes stop letting the security group in that somebody named for a classic load balancer, unless another
// load balancer has it, whoever that is for.
func TestOrphanOfANamedGroup(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	by := map[string]string{annotationGroups: extraGroup}
	lost, living := service("lost", by, servicePort("http", 80, 30080)), service("living", by, servicePort("http", 80, 30081))
	w.Apply(lost, living)
	w.ensure(lost)
	w.ensure(living)
	marked := rules(w.group("nodes"))
	require.Len(t, marked, 1)
	require.Contains(t, marked[0], descriptionSelf+"="+loadBalancerName(lost))
	w.lose(lost)
	w.command(nil)
	require.NoError(t, w.DeleteOrphan(t.Context(), w.orphans()[orphanClassic+" default/lost"]))
	require.Len(t, w.sim.Classics(), 1)
	w.reached(living)
	assert.Equal(t, marked, rules(w.group("nodes")))
	assert.Empty(t, w.orphans())

	w.lose(living)
	w.command(nil)
	require.NoError(t, w.DeleteOrphan(t.Context(), w.orphans()[orphanClassic+" default/living"]))
	assert.Empty(t, rules(w.group("nodes")))
	assert.Empty(t, w.orphans())
}

// TestRulesOfGoneLoadBalancers: rules of nodes that were left behind when their load balancer went are orphans of their own, of
// either kind, unless the Service lives, the load balancer exists, or the security group is another cluster's as well.
func TestRulesOfGoneLoadBalancers(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	network := nlb("network", nil, servicePort("http", 80, 30080))
	classic := service("classic", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30081))
	foreign, byHand := awssim.Rule{Protocol: "tcp", From: 30090, To: 30090, CIDR: "0.0.0.0/0", Description: descriptionClient + "a1111111122223333444455555555555"},
		awssim.Rule{Protocol: "tcp", From: 22, To: 22, CIDR: "0.0.0.0/0", Description: descriptionClient + "by-hand"}
	w.sim.AddNetwork("a1111111122223333444455555555555", "network", awssim.Tags{"kubernetes.io/cluster/another": "owned"})
	w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = []awssim.Rule{foreign, byHand} })
	theirs := rules(w.group("nodes"))
	w.sim.AddGroup(awssim.Group{ID: gpuGroup, Name: "of two clusters", Tags: awssim.Tags{
		"kubernetes.io/cluster/simulated": "owned", "kubernetes.io/cluster/another": "shared",
	}, Rules: []awssim.Rule{{Protocol: "tcp", From: 30091, To: 30091, CIDR: "0.0.0.0/0", Description: descriptionClient + "a2222222222223333444455555555555"}}})
	for _, s := range []*v1.Service{network, classic} {
		w.Apply(s)
		w.ensure(s)
	}
	w.command(nil)
	require.Empty(t, w.orphans(), "both live")
	w.lose(network)
	w.lose(classic)
	w.sim.RemoveLoadBalancers()
	w.sim.AddNetwork("a1111111122223333444455555555555", "network", awssim.Tags{"kubernetes.io/cluster/another": "owned"})
	w.command(nil)
	w.server.ResetCalls()
	found := w.orphans()
	assert.Zero(t, w.server.Calls().Writes)
	left := []contract.Orphan{found[orphanRules+" "+loadBalancerName(network)], found[orphanRules+" "+loadBalancerName(classic)]}
	for name, o := range found {
		assert.NotContains(t, name, "a1111111122223333444455555555555")
		assert.NotContains(t, name, "a2222222222223333444455555555555")
		assert.NotEmpty(t, o.ID)
	}
	require.NotContains(t, left, contract.Orphan{})

	w.keepsRulesOf([]*v1.Service{network, classic}, left)
	for _, o := range left {
		require.NoError(t, w.DeleteOrphan(t.Context(), o))
	}
	assert.Subset(t, rules(w.group("nodes")), theirs)
	assert.Len(t, w.group("of two clusters").Rules, 1)
	w.command(nil)
	for name := range w.orphans() {
		assert.NotContains(t, name, orphanRules)
	}
}

// keepsRulesOf: a Service, or a load balancer, of the name keeps rules.
func (w *world) keepsRulesOf(services []*v1.Service, left []contract.Orphan) {
	w.T.Helper()
	t := w.T
	for _, s := range services {
		again := s.DeepCopy()
		again.ResourceVersion = ""
		_, err := w.Kube.CoreV1().Services("default").Create(t.Context(), again, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	before := rules(w.group("nodes"))
	for _, o := range left {
		require.ErrorIs(t, w.DeleteOrphan(t.Context(), o), errNotOrphan)
	}
	for _, s := range services {
		require.NoError(t, w.Kube.CoreV1().Services("default").Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
	w.sim.AddNetwork(loadBalancerName(services[0]), "network", awssim.Tags{})
	require.ErrorIs(t, w.DeleteOrphan(t.Context(), left[0]), errNotOrphan)
	w.sim.DeleteNetwork(w.sim.Networks()[len(w.sim.Networks())-1].ARN)
	assert.Equal(t, before, rules(w.group("nodes")))
}

// TestProtectedOrphan: a network load balancer that somebody protects from deletion goes on reaching the nodes.
func TestProtectedOrphan(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	s := nlb("web", nil, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	w.lose(s)
	w.sim.ChangeNetwork(loadBalancerName(s), func(lb *awssim.LoadBalancer) { lb.Attributes[attributeProtected] = "true" })
	w.command(nil)
	require.ErrorContains(t, w.DeleteOrphan(t.Context(), w.orphans()[orphanNetwork+" default/web"]), attributeProtected)
	w.reached(s)
	assert.Equal(t, []int{30080}, w.ports("0.0.0.0/0"))
}

// TestClosedBeforeDeleted: a load balancer whose rules could not be removed stays, and is found again with them.
func TestClosedBeforeDeleted(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{orphanNetwork, orphanClassic} {
		w := startWorld(t, "", awssim.Options{})
		s := service("web", nil, servicePort("http", 80, 30080))
		if kind == orphanNetwork {
			s.Annotations[annotationType] = typeNLB
		}
		w.Apply(s)
		w.ensure(s)
		w.lose(s)
		w.command(nil)
		o := w.orphans()[kind+" default/web"]
		w.fault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "RevokeSecurityGroupIngress"})
		require.Error(t, w.DeleteOrphan(t.Context(), o))
		assert.Equal(t, 1, len(w.sim.Classics())+len(w.sim.Networks()), kind)
		w.command(nil)
		assert.Contains(t, w.orphans(), kind+" default/web")
	}
}
