package azure

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// tenant is a Service of another namespace, older than any other, that names an address or the public address of somebody else.
func tenant(annotations map[string]string, alter ...func(*v1.Service)) *v1.Service {
	s := webNumber(7, annotations, alter...)
	s.Namespace, s.Name = "tenant", "claimer"
	s.CreationTimestamp = metav1.Date(2020, 1, 1, 0, 0, 0, 0, s.CreationTimestamp.Location())
	return s
}

// TestAddressOfAnotherNamespace: on Azure, Services may share an address by naming it, also across namespaces. The one that comes gets the
// ports that are free, and nothing else: it changes neither ports, names, labels and tags of the first one, nor does it take the address
// along when it goes.
func TestAddressOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationLabel: "shop", annotationTags: "team=web", annotationIPTags: "RoutingPreference=Internet"})
	for name, names := range map[string]func(ip string) map[string]string{
		"by its IP":   func(ip string) map[string]string { return map[string]string{annotationIPv4: ip} },
		"by its name": func(string) map[string]string { return map[string]string{annotationName: webPIP} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNode(t, s.DeepCopy(), func(w *world) {
				ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
				held := w.sim.Snapshot()
				claimer := tenant(names(ip))
				w.Apply(claimer)
				w.server.ResetCalls()
				require.ErrorContains(w, w.refuse(claimer), "needs port 80, which rule")
				w.update(claimer)
				require.NoError(w, w.Remove(w.cloud.loadBalancers, clusterName, claimer))
				assert.Zero(w, w.server.Calls().Writes, "a port of the first one is refused, and nothing of it changes")
				assert.Equal(w, held, w.sim.Snapshot())

				w.Apply(claimer)
				w.change(claimer, func(s *v1.Service) {
					s.Spec.Ports[0].Port = 8080
					s.Annotations[annotationLabel] = "mine"
				})
				require.ErrorContains(w, w.refuse(claimer), "Service default/web has set the DNS label of this public IP address")
				w.change(claimer, func(s *v1.Service) {
					delete(s.Annotations, annotationLabel)
					s.Annotations[annotationTags], s.Annotations[annotationIPTags] = "team=tenant", "FirstPartyUsage=/x"
				})
				assert.Equal(w, ip, w.ensure(claimer).Status.LoadBalancer.Ingress[0].IP)
				shown := w.sim.Shown(pipID(webPIP))
				assert.Equal(w, "web", tagsOf(shown)["team"])
				assert.Equal(w, "shop", str(shown, "properties", "dnsSettings", "domainNameLabel"))
				assert.Equal(w, []doc{{"ipTagType": "RoutingPreference", "tag": "Internet"}}, docs(shown, "properties", "ipTags"))
				assert.Equal(w, "default/web,tenant/claimer", tagsOf(shown)["k8s-azure-service"])
				w.server.ResetCalls()
				w.ensure(s)
				w.ensure(claimer)
				assert.Zero(w, w.server.Calls().Writes, "the two do not undo each other's")
				w.remove(claimer)
				assert.Equal(w, held, w.sim.Snapshot(), "the first one is as before")
				w.remove(s)
				assert.Empty(w, w.sim.Snapshot())
			})
		})
	}
}

// TestPrivateAddressOfAnotherNamespace: the same on an internal load balancer.
func TestPrivateAddressOfAnotherNamespace(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationInternal: "true"})
	withNode(t, s, func(w *world) {
		ip := w.ensure(s).Status.LoadBalancer.Ingress[0].IP
		held := w.sim.Snapshot()
		claimer := tenant(map[string]string{annotationInternal: "true", annotationIPv4: ip})
		w.Apply(claimer)
		require.ErrorContains(w, w.refuse(claimer), "needs port 80, which rule")
		assert.Equal(w, held, w.sim.Snapshot())
		w.change(claimer, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
		w.ensure(claimer)
		w.remove(claimer)
		assert.Equal(w, held, w.sim.Snapshot())
	})
}

// TestAddressOfAnotherCluster: an address that another cluster's controller made is nobody's to take along, whichever Service names it.
func TestAddressOfAnotherCluster(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationName: "theirs"})
	withNode(t, s, func(w *world) {
		theirs := leftPIP(leftIP, "tags", doc{"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "other"})
		w.sim.LeaveAddress("theirs", theirs.ip, theirs.doc)
		before := w.sim.Shown(pipID("theirs"))["tags"]
		_, _ = w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
		w.remove(s)
		shown := w.sim.Shown(pipID("theirs"))
		require.NotNil(w, shown, "it is never deleted")
		assert.Equal(w, before, shown["tags"])
	})
}

// TestUsersOwnServiceTag: a user's tag called service is no sign of a controller's: the address is neither written nor deleted, and
// keeps no Service from going.
func TestUsersOwnServiceTag(t *testing.T) {
	t.Parallel()
	s := webService(map[string]string{annotationName: "mine"})
	withNode(t, s, func(w *world) {
		mine := leftPIP(leftIP, "tags", doc{"service": "checkout"})
		w.sim.LeaveAddress("mine", mine.ip, mine.doc)
		w.ensure(s)
		assert.Equal(w, map[string]string{"service": "checkout"}, tagsOf(w.sim.Shown(pipID("mine"))))
		w.remove(s)
		require.NotNil(w, w.sim.Shown(pipID("mine")))
		assert.Equal(w, map[string]string{"service": "checkout"}, tagsOf(w.sim.Shown(pipID("mine"))))
		assert.NotContains(w, w.sim.Snapshot(), "load balancer")
	})
}
