package openstack

import (
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestAnotherLoadBalancer: a Service that moves to another load balancer leaves none behind that was made for it, nor its
// address; what may not be deleted is named.
func TestAnotherLoadBalancer(t *testing.T) {
	t.Parallel()
	type outcome struct{ stays, told, orphan bool }
	for name, c := range map[string]struct {
		prepare func(*world, *v1.Service)
		want    outcome
	}{
		"made by us":      {},
		"after a restart": {prepare: func(w *world, _ *v1.Service) { w.restart() }},
		"without marks": {
			prepare: func(w *world, s *v1.Service) {
				w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) { lb.Tags = lb.Tags[:1] })
				w.restart()
			},
			want: outcome{stays: true, told: true},
		},
		"not recorded": {
			prepare: func(w *world, s *v1.Service) { delete(s.Annotations, annotationMade); w.Apply(s) },
			want:    outcome{stays: true, told: true, orphan: true},
		},
		"to be kept": {
			prepare: func(w *world, s *v1.Service) { s.Annotations[contract.AnnotationRetain] = textTrue; w.Apply(s) },
			want:    outcome{stays: true, told: true, orphan: true},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, first := newServedWorld(t, "", web(nil))
				s := rename(service("other", nil, servicePort("x", 81, 30081)), "other")
				w.Apply(s)
				s, _ = w.ensure(s)
				before := s.Annotations[annotationID]
				if c.prepare != nil {
					c.prepare(w, s)
				}
				s, _ = w.changed(s, func(s *v1.Service) { s.Annotations[annotationID] = first.Annotations[annotationID] })
				assert.Equal(t, first.Status, s.Status)
				assert.Equal(t, c.want.stays, len(w.sim.LoadBalancers()) == 2)
				assert.Equal(t, c.want.stays, len(w.sim.FloatingIPs()) == 2)
				assert.Equal(t, c.want.told, strings.Contains(strings.Join(w.Events(), "\n"), contract.EventLoadBalancerRetained+" load balancer "+before))
				w.requireNoWrites(s)
				orphans, err := w.Orphans(t.Context(), []*v1.Service{w.Current(first), w.Current(s)})
				require.NoError(t, err)
				assert.Equal(t, c.want.orphan, len(orphans) == 1 && orphans[0].ID == before, "%v", orphans)
			})
		})
	}
}

// TestServingIsNoOrphan: what a Service shows is no orphan, nor what has its name, though an annotation names something that it
// does not get. Each is enough.
func TestServingIsNoOrphan(t *testing.T) {
	t.Parallel()
	for name, alone := range map[string]func(w *world, s *v1.Service){
		"its address": func(w *world, s *v1.Service) {
			w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *openstacksim.LoadBalancer) {
				cluster, _ := ownership.Marked(lb.Tags)
				lb.Name, lb.Description, lb.Tags = "renamed", "", []string{ownership.ClusterMark(cluster)}
			})
			delete(s.Annotations, annotationMade)
			delete(s.Annotations, annotationAddress)
		},
		"its name": func(_ *world, s *v1.Service) {
			s.Status = v1.ServiceStatus{}
			delete(s.Annotations, annotationAddress)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, s := newServedWorld(t, "", web(nil))
				alone(w, s)
				s.Annotations[annotationID] = w.sim.AddLoadBalancer("by-hand", firstSubnet).ID
				w.Apply(s)
				w.restart()
				_, err := w.try(s)
				require.Error(t, err)
				w.restart()
				orphans, err := w.Orphans(t.Context(), []*v1.Service{s})
				require.NoError(t, err)
				assert.Empty(t, orphans)
				assert.Len(t, w.sim.LoadBalancers(), 2)
			})
		})
	}
}
