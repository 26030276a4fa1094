package openstack

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// join adds a Service that asks for a load balancer by its ID.
func (w *world) join(id, name string, port int32, annotations map[string]string) *v1.Service {
	s := rename(service(name, map[string]string{annotationID: id}, servicePort("x", port, 30000+port)), name)
	maps.Copy(s.Annotations, annotations)
	w.Apply(s)
	return s
}

// TestSharing: Services share a load balancer by its ID, each with ports of its own, and leave it one by one.
func TestSharing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, owner := newServedWorld(t, "max-shared-lb = 3\n", web(nil))
		id := owner.Annotations[annotationID]
		join := func(name string, port int32, annotations map[string]string) *v1.Service {
			return w.join(id, name, port, annotations)
		}
		second := join("second", 81, nil)
		second, status := w.ensure(second)
		assert.Equal(t, owner.Status.LoadBalancer, *status, "the same address")
		assert.Contains(t, w.sim.LoadBalancers()[0].Tags, "kube_service_kubernetes_default_second")
		assert.Equal(t, "kube_service_kubernetes_default_web", w.sim.LoadBalancers()[0].Name)
		assert.Len(t, w.sim.Listeners(), 2)
		w.requireNoWrites(owner)
		w.requireNoWrites(second)
		w.restart()
		w.requireNoWrites(second)

		// A node event renames nothing, and nothing back.
		w.addNode(openstacksim.Spec{Name: "n3"})
		w.update(owner)
		w.update(second)
		w.requireNoWrites(second)
		second, _ = w.changed(second, func(s *v1.Service) { s.Spec.Ports[0].Port = 82 })
		assert.Len(t, w.sim.Listeners(), 2)
		third := join("third", 83, nil)
		w.ensure(third)
		for name, c := range map[string]struct {
			s    *v1.Service
			want string
		}{
			"too many":         {join("fourth", 84, nil), "max-shared-lb"},
			"an internal one":  {join("internal", 85, map[string]string{annotationInternal: textTrue}), "cannot share"},
			"an unknown ID":    {rename(web(map[string]string{annotationID: someID}), "lost"), "is not the ID of a load balancer"},
			"a port in use":    {join("third", 80, nil), "already exists"},
			"its own port too": {join("third", 82, nil), "already exists"},
		} {
			w.Apply(c.s)
			w.server.ResetCalls()
			_, err := w.try(c.s)
			require.ErrorContains(t, err, c.want, name)
			assert.Zero(t, w.server.Calls().Writes, name)
		}
		fourth := join("fourth", 84, nil)
		w.server.ResetCalls()
		require.NoError(t, w.remove(fourth), "one that never joined leaves without a trace")
		assert.Zero(t, w.server.Calls().Writes)
		require.NoError(t, w.remove(owner))
		require.Len(t, w.sim.LoadBalancers(), 1, "others use it")
		assert.Len(t, w.sim.Listeners(), 2)
		assert.Len(t, w.sim.FloatingIPs(), 1)
		assert.NotContains(t, w.sim.LoadBalancers()[0].Tags, "kube_service_kubernetes_default_web")
		require.NoError(t, w.remove(join("third", 83, nil)))
		require.NoError(t, w.remove(second))
		assert.Empty(t, w.sim.LoadBalancers(), "the last one deletes it")
		assert.Empty(t, w.sim.FloatingIPs())
		assert.Empty(t, w.server.Calls().Refused)
	})
}

// TestAdoptedLoadBalancer: a load balancer that a user made is used, and neither it nor its listeners are deleted.
func TestAdoptedLoadBalancer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newTestWorld(t, "", nil)
		w.addNode(openstacksim.Spec{Name: "n1"})
		own := listenerRequest{Name: "own", Protocol: "HTTP", Port: 8080, ConnectionLimit: -1}
		request := loadBalancerRequest{Name: "mine", VIPSubnetID: firstSubnet, Listeners: []listenerRequest{own}}
		lb, err := w.api.createLoadBalancer(t.Context(), request)
		require.NoError(t, err)
		s := web(map[string]string{annotationID: lb.ID})
		w.Apply(s)
		_, err = w.try(s)
		require.ErrorContains(t, err, "--adopt-load-balancers=any", "the operator has not agreed")
		w.adopt = registry.AdoptAny
		w.restart()
		_, err = w.try(s)
		require.ErrorContains(t, err, "has no floating address")
		f := w.sim.AddFloatingIP(w.sim.Networks()[0].ID, "203.0.113.50", "mine")
		require.NoError(t, w.sim.AttachFloatingIP(f, w.sim.LoadBalancers()[0].VIPPortID))
		w.restart()
		s, status := w.ensure(s)
		assert.Equal(t, "203.0.113.50", status.Ingress[0].IP)
		assert.Len(t, w.sim.Listeners(), 2)
		w.adopt = registry.AdoptNone
		w.restart()
		w.requireNoWrites(s) // what is used stays in use
		require.NoError(t, w.remove(s))
		require.Len(t, w.sim.LoadBalancers(), 1)
		require.Len(t, w.sim.Listeners(), 1)
		assert.Equal(t, "own", w.sim.Listeners()[0].Name)
		assert.Equal(t, []string{""}, w.sim.LoadBalancers()[0].Tags)
		assert.NotNil(t, w.sim.FloatingIPs()[0].PortID)
	})
}

// TestClustersOfOneName: two clusters with the same --cluster-name in one project keep apart.
func TestClustersOfOneName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, first := newServedWorld(t, "", web(nil))
		other := w.anotherCluster("kubernetes", "")
		same := rename(web(nil), "web")
		other.Apply(same)
		w.server.ResetCalls()
		_, err := other.try(same)
		require.ErrorContains(t, err, "belongs to another cluster")
		require.NoError(t, other.remove(same))
		assert.Zero(t, w.server.Calls().Writes)
		w.requireNoWrites(first)

		// It may share the load balancer if both it and its operator say so, under a name of its own.
		guest := rename(service("guest", map[string]string{annotationID: first.Annotations[annotationID]}, servicePort("x", 90, 30090)), "guest")
		other.Apply(guest)
		w.server.ResetCalls()
		_, err = other.try(guest)
		require.ErrorContains(t, err, "belongs to Service default/web, which is not of this cluster")
		assert.Zero(t, w.server.Calls().Writes)
		other.file = "share-across-namespaces = true\n"
		other.restart()
		guest, _ = other.ensure(guest)
		w.requireNoWrites(first)
		require.NoError(t, other.remove(guest))
		assert.Len(t, w.sim.Listeners(), 1)
		assert.Len(t, w.sim.LoadBalancers(), 1)
	})
}

// TestOtherProjects: a load balancer of the same name in another project, which an administrator sees, is nobody's here.
func TestOtherProjects(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, first := newServedWorld(t, "", web(nil))
		w.sim.ChangeLoadBalancer(first.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.ProjectID, lb.Tags = "another", lb.Tags[:1] })
		w.restart()
		same := rename(web(nil), "web")
		w.Apply(same)
		same, _ = w.ensure(same)
		assert.NotEqual(t, first.Annotations[annotationID], same.Annotations[annotationID])
		assert.Len(t, w.sim.LoadBalancers(), 2)
	})
}

// TestRenamedCluster: a cluster that got another name takes its load balancers along; one that merely shares a load
// loadBalancer of another cluster renames nothing.
func TestRenamedCluster(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, s := newServedWorld(t, "", web(nil))
		before := w.sim.LoadBalancers()[0]
		w.cluster = "production"
		w.restart()
		s, _ = w.ensure(s)
		after := w.sim.LoadBalancers()
		require.Len(t, after, 1)
		assert.Equal(t, before.ID, after[0].ID)
		assert.Equal(t, "kube_service_production_default_web", after[0].Name)
		assert.Contains(t, after[0].Tags, "kube_service_production_default_web")
		assert.NotContains(t, after[0].Tags, "kube_service_kubernetes_default_web")
		assert.Equal(t, "listener_0_kube_service_production_default_web", w.sim.Listeners()[0].Name)
		assert.Equal(t, []string{"kube_service_production_default_web"}, w.sim.Listeners()[0].Tags)
		assert.Equal(t, "pool_0_kube_service_production_default_web", w.sim.Pools()[0].Name)
		assert.Equal(t, "monitor_0_kube_service_production_default_web", w.sim.Monitors()[0].Name)
		assert.Contains(t, strings.Join(w.Events(), "\n"), eventRename)
		w.requireNoWrites(s)
		require.NoError(t, w.remove(s))
		assert.Empty(t, w.sim.LoadBalancers())
		assert.Empty(t, w.server.Calls().Refused)

		for name, c := range map[string]struct {
			have, want string
			differs    bool
		}{
			"another cluster":       {"kube_service_a_default_web", "kube_service_b_default_web", true},
			"underscores":           {"kube_service_a_b_default_web", "kube_service_c_default_web", true},
			"named like the prefix": {"kube_service_kube_default_web", "kube_service_service_default_web", true},
			"another Service":       {"kube_service_a_default_web", "kube_service_b_default_api", false},
			"the same":              {"kube_service_a_default_web", "kube_service_a_default_web", false},
			"a user's":              {"mine", "kube_service_a_default_web", false},
			"a part":                {"listener_0_kube_service_a_default_web", "listener_0_kube_service_b_default_web", true},
			"another part":          {"listener_0_kube_service_a_default_web", "listener_1_kube_service_b_default_web", false},
			"one that was cut":      {openstacklimits.Name.Cut("kube_service_" + strings.Repeat("x", 300) + "_default_web"), "kube_service_b_default_web", false},
		} {
			assert.Equal(t, c.differs, clusterDiffers(c.have, c.want), name)
		}
	})
}

// TestGuestsOfAnotherName: a cluster of another name that shares a load balancer renames nothing of it, even if its Service
// has the same name.
func TestGuestsOfAnotherName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, first := newServedWorld(t, "", web(nil))
		guest := w.anotherCluster("elsewhere", "share-across-namespaces = true\n")
		s := rename(service("web", map[string]string{annotationID: first.Annotations[annotationID]}, servicePort("x", 90, 30090)), "web")
		guest.Apply(s)
		s, _ = guest.ensure(s)
		assert.Equal(t, "kube_service_kubernetes_default_web", w.sim.LoadBalancers()[0].Name)
		guest.restart()
		guest.requireNoWrites(s)
		w.requireNoWrites(first)
		require.NoError(t, w.remove(first), "its own listeners are found")
		assert.Len(t, w.sim.Listeners(), 1)
		require.NoError(t, guest.remove(s))
		assert.Empty(t, w.sim.LoadBalancers())
	})
}

// TestGuestOfALivingOwner: who shares a load balancer never deletes it while its owner lives, even if the owner's tag is missing.
func TestGuestOfALivingOwner(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, owner := newServedWorld(t, "", web(nil))
		id := owner.Annotations[annotationID]
		guest := rename(service("guest", map[string]string{annotationID: id}, servicePort("x", 81, 30081)), "guest")
		w.Apply(guest)
		guest, _ = w.ensure(guest)
		w.sim.ChangeLoadBalancer(id, func(lb *openstacksim.LoadBalancer) {
			lb.Tags = slices.DeleteFunc(lb.Tags, func(tag string) bool { return tag == loadBalancerName(w.cluster, owner) })
		})
		w.restart()
		require.NoError(t, w.remove(guest))
		assert.Len(t, w.sim.LoadBalancers(), 1)
		assert.Len(t, w.sim.Listeners(), 1, "what was the guest's is gone")
	})
}

// TestGuestOfAClusterOfTheSameName: the tag of another cluster's guest lets none of the same name in, nor take it off.
func TestGuestOfAClusterOfTheSameName(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, owner := newServedWorld(t, "", web(nil))
		claim := func(port int32) *v1.Service {
			return rename(service("guest", map[string]string{annotationID: owner.Annotations[annotationID]}, servicePort("x", port, 30081)), "guest")
		}
		guest := claim(81)
		w.Apply(guest)
		w.ensure(guest)
		before := w.sim.LoadBalancers()[0].Tags
		w.anotherCluster(w.cluster, "").refuses(claim(82), "is not of this cluster")
		assert.Equal(t, before, w.sim.LoadBalancers()[0].Tags)
	})
}
