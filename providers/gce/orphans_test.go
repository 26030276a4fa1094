package gce

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestOrphanWithoutForwardingRule: the objects of a load balancer of either kind are deleted, even after its forwarding rule.
func TestOrphanWithoutForwardingRule(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.addNode(gcesim.Spec{Name: "n1"})
		for name, c := range cases() {
			s, _ := w.ensure(w.apply(c.Service))
			lb := loadBalancerName("", s)
			w.sim.Edit("forwardingRules", lb, nil)
			require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
			w.restart()
			time.Sleep(time.Hour)
			found, err := w.Orphans(t.Context(), nil)
			require.NoError(t, err)
			shares := c.Service.Annotations[annotationShare] != ""          // a shared backend service names no Service
			if shares || len(c.Service.Spec.LoadBalancerSourceRanges) > 0 { // its own health check does not prove its cluster
				assert.Empty(t, found, name)
				require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
				continue
			}
			require.Len(t, found, 1, name)
			require.NoError(t, w.DeleteOrphan(t.Context(), contract.Orphan{Kind: kindLoadBalancer, ID: lb, Name: found[0].Name}), name)
			for _, kind := range snapshotKinds {
				assert.Empty(t, w.sim.Objects(kind), "%s: %s", name, kind)
			}
		}
	})
}
