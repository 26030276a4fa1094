package digitalocean

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
)

// TestListingsThatLag: a listing that does not show our own writes yet makes no second load balancer, takes none back, and is no
// proof that one is gone; with the program running through or starting again between any two steps.
func TestListingsThatLag(t *testing.T) {
	t.Parallel()
	for _, lag := range []time.Duration{time.Second, 5 * time.Second, 20 * time.Second} {
		for _, restart := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, restart %t", lag, restart), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					w := newVirtualWorld(t, map[string]string{envFirewallName: "public-access", envFirewallTags: "worker, gpu"})
					w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker", "gpu"}})
					w.sim.SetListingLag(lag)
					f := w.firewall()
					// A firewall that no listing shows yet is not made twice: the API refuses it, until the listing shows it.
					converge := func() {
						err := f.reconcile(t.Context())
						for began := time.Now(); err != nil && time.Since(began) < 2*lag; err = f.reconcile(t.Context()) {
							time.Sleep(lag / 4)
						}
						require.NoError(t, err)
					}
					between := func() {
						if restart {
							w.restart()
							f = w.firewall()
						}
						time.Sleep(lag / 4)
					}
					s := aged(service("", nil, port("http", 80, 30081)), "web", 1)
					w.Apply(s)
					s, _ = w.ensure(s)
					id := s.Annotations[annotationID]
					between()
					s, _ = w.ensure(s)
					converge()
					between()
					s = s.DeepCopy()
					s.Spec.Ports[0].Port = 81
					w.Apply(s)
					s, _ = w.ensure(s)
					between()
					w.server.ResetCalls()
					s, _ = w.ensure(s)
					assert.Zero(t, w.server.Calls().Writes, "it is as wanted, whatever an old listing shows")
					converge()
					between()
					converge()
					all := w.sim.LoadBalancers()
					require.Len(t, all, 1)
					assert.Equal(t, id, all[0].ID)
					assert.Equal(t, 81, all[0].ForwardingRules[0].EntryPort)
					require.Len(t, w.sim.Firewalls(), 1)
					assert.NotEmpty(t, w.inbound())
					require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
					between()
					require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s), "what a listing still shows is gone")
					assert.Empty(t, w.sim.LoadBalancers())
				})
			})
		}
	}
}

// TestLostRecordWhileListingsLag: a Service that loses its record right after the creation keeps its load balancer, which no
// listing shows yet: what we made is known without one.
func TestLostRecordWhileListingsLag(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newVirtualWorld(t, nil)
		w.addNode(digitaloceansim.Spec{Name: "node-1"})
		w.sim.SetListingLag(5 * time.Second)
		s := aged(service("", nil, port("http", 80, 30081)), "web", 1)
		w.Apply(s)
		s, _ = w.ensure(s)
		id := s.Annotations[annotationID]
		for range 12 {
			time.Sleep(time.Second)
			s = s.DeepCopy()
			delete(s.Annotations, annotationID)
			w.Apply(s)
			s, _ = w.ensure(s)
			require.Len(t, w.sim.LoadBalancers(), 1)
			assert.Equal(t, id, s.Annotations[annotationID])
		}
	})
}
