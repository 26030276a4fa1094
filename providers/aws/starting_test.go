package aws

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestStartingInstances: a node is ready before EC2 lists its instance as running. It serves as soon as it runs, without any
// further event, and keeps nobody else from serving.
func TestStartingInstances(t *testing.T) {
	t.Parallel()
	serving := func(w *world) int {
		if len(w.sim.Classics()) > 0 {
			return len(w.sim.Classics()[0].Instances)
		}
		if groups := w.sim.TargetGroups(); len(groups) > 0 {
			return len(groups[0].Targets)
		}
		return 0
	}
	for name, s := range map[string]*v1.Service{
		"classic": service("web", nil, servicePort("http", 80, 30080)), "network": nlb("web", nil, servicePort("http", 80, 30080)),
	} {
		for _, joins := range []bool{false, true} {
			t.Run(name+map[bool]string{false: " is made", true: " is joined"}[joins], func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w, s := startVirtual(t, "", awssim.Options{}), s.DeepCopy()
					w.Apply(s)
					if joins {
						w.ensure(s)
					}
					late := w.addNode(awssim.Spec{Name: "late", State: "pending"})
					done := make(chan error, 1)
					go func() {
						if joins {
							done <- w.loadBalancers.UpdateLoadBalancer(t.Context(), w.cluster, s, w.nodes)
							return
						}
						_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), w.cluster, s, w.nodes)
						done <- err
					}()
					require.Eventually(t, func() bool { return serving(w) > 0 }, 20*time.Second, 10*time.Millisecond, "the others serve meanwhile")
					require.NoError(t, w.sim.SetState(instanceOf(late), "running"))
					require.NoError(t, <-done)
					assert.Equal(t, 2, serving(w))
					assert.Empty(t, w.server.Calls().Refused)
				})
			})
		}
	}
}

// TestRecordsOfStartsAreReadAgain: what was pending in a listing runs by now, and serves without anybody waiting.
func TestRecordsOfStartsAreReadAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := startVirtual(t, "", awssim.Options{})
		late := w.addNode(awssim.Spec{Name: "late", State: "stopped"})
		_, _ = w.instances.InstanceExists(t.Context(), late)
		require.NoError(t, w.sim.SetState(instanceOf(late), "running"))
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		require.Eventually(t, func() bool {
			w.ensure(s)
			return len(w.sim.TargetGroups()[0].Targets) == 2
		}, notRunningMaxAge+10*time.Second, 200*time.Millisecond)
	})
}

// TestTagsMayNotBeRead: AWS's own controller never reads tags of load balancers, so that a policy for it lacks the permission.
// The names tell what is a Service's.
func TestTagsMayNotBeRead(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*v1.Service{
		"classic": service("web", map[string]string{annotationTags: "team=web"}, servicePort("http", 80, 30080)),
		"network": nlb("web", nil, servicePort("http", 80, 30080)),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.Apply(s)
			w.ensure(s)
			w.sim.Deny("DescribeTags", true)
			w.restart()
			w.server.ResetCalls()
			s := w.ensure(s)
			w.ensure(s)
			assert.LessOrEqual(t, w.server.Calls().ByOperation["ELB DescribeTags"]+w.server.Calls().ByOperation["ELBv2 DescribeTags"], 1)
			assert.LessOrEqual(t, w.server.Calls().Writes, 1, "tags that a Service asks for are given once")
			s = w.change(s, addPort)
			w.ensure(s)
			w.addNode(awssim.Spec{Name: "joiner"})
			w.update(s)
			if name == "classic" {
				assert.Len(t, w.sim.Classics()[0].Listeners, 2)
				assert.Len(t, w.sim.Classics()[0].Instances, 2)
			} else {
				assert.Len(t, w.sim.Listeners(), 2)
				assert.Len(t, w.sim.TargetGroups()[1].Targets, 2)
			}
			assert.NotContains(t, w.Events(), eventNotOurs)
			require.NoError(t, w.remove(s))
			assert.Empty(t, snapshot(w.sim))
		})
	}
}

// TestReservedTags: a Service cannot say whose a load balancer is.
func TestReservedTags(t *testing.T) {
	t.Parallel()
	for _, s := range []*v1.Service{
		service("classic", map[string]string{annotationTags: "team=web,kubernetes.io/cluster/two=owned,KubernetesCluster=two"}, servicePort("http", 80, 30080)),
		nlb("network", map[string]string{annotationTags: "team=web,kubernetes.io/service-name=a/b,anyccm.io/x=y,AWS:x=y"}, servicePort("http", 80, 30080)),
	} {
		w := startWorld(t, "", awssim.Options{})
		w.Apply(s)
		s = w.ensure(s)
		s = w.change(s, func(s *v1.Service) { s.Annotations[annotationTags] += ",kubernetes.io/cluster/simulated=shared" })
		w.ensure(s)
		want := awssim.Tags{"kubernetes.io/cluster/simulated": "owned", serviceTag: serviceName(s), "team": "web"}
		for _, lb := range w.sim.Classics() {
			assert.Equal(t, want, lb.Tags)
		}
		for _, lb := range w.sim.Networks() {
			assert.Equal(t, want, lb.Tags)
		}
		events := w.Events()
		require.NotEmpty(t, events)
		assert.Contains(t, events[0], eventIgnored)
		assert.Contains(t, events[0], "which is left out")
		_, warnings, err := parseSettings(s, Config{})
		require.NoError(t, err)
		require.ErrorContains(t, warnings, "kubernetes.io/cluster/simulated")
	}
}

// TestBoundedAnnotations: what nobody writes is refused before anything is made of it, as is what is no ID.
func TestBoundedAnnotations(t *testing.T) {
	t.Parallel()
	long := string(make([]byte, maxText+1))
	for key, value := range map[string]string{
		annotationTags: long, annotationNodeLabels: long, annotationSubnets: long, annotationTLSPorts: long, annotationSourceRanges: long,
		annotationGroups: "sg-*", annotationCertificate: "arn:aws:acm:us-east-1:123456789012:certificate/../x?y", annotationExtraGroups: "sg-1",
	} {
		_, _, err := parseSettings(service("web", map[string]string{key: value}, servicePort("http", 80, 30080)), Config{})
		require.ErrorContains(t, err, key)
	}
	_, _, err := parseSettings(nlb("web", map[string]string{annotationEIPs: "eipalloc-*"}, servicePort("http", 80, 30080)), Config{})
	require.ErrorContains(t, err, annotationEIPs)
}

// TestToldAddresses: a kubelet does not become another node's instance by telling its address.
func TestToldAddresses(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	victim := w.addNode(
		awssim.Spec{Name: "victim", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.9.0.1"}}, {PrivateIPs: []string{"10.9.0.2"}}}},
	)
	w.sim.AddInstance(
		awssim.Spec{Name: "second", Interfaces: []*awssim.Interface{{PrivateIPs: []string{"10.9.0.3"}}, {PrivateIPs: []string{"10.9.0.4"}}}},
	)
	for told, want := range map[string]string{
		"10.9.0.1": "node victim is that instance", "10.9.0.2": "not on its first interface", "10.9.0.4": "not on its first interface",
	} {
		node := bare("worker.example.com")
		node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: told}}
		_, err := w.instances.InstanceMetadata(t.Context(), node)
		require.ErrorContains(t, err, want, told)
	}
	victim.Spec.ProviderID = "" // before its initialisation, the name says it
	node := bare("worker.example.com")
	node.Annotations = map[string]string{annotationNodeIP: "10.9.0.1"}
	_, err := w.instances.InstanceMetadata(t.Context(), node)
	require.ErrorContains(t, err, "node victim is that instance")
}
