package cloudstack

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// together is a deletion that was planned before another one had begun.
type together struct {
	request services.Request
	lb      *observed
	changes []lbChange
}

func planned(w *world, s *v1.Service) (d together) {
	w.T.Helper()
	d.request = services.Request{Purpose: services.Delete, Service: w.Current(s)}
	var err error
	d.lb, err = w.reconciler.Observe(w.T.Context(), d.request)
	require.NoError(w.T, err)
	d.lb, _, err = w.reconciler.CheckOwner(w.T.Context(), d.request, d.lb)
	require.NoError(w.T, err)
	d.changes, _, err = w.reconciler.Deletions(w.T.Context(), d.request, d.lb)
	require.NoError(w.T, err)
	return d
}

func (d together) carryOut(w *world) (err error) {
	for _, c := range d.changes {
		if d.lb, err = c.Make(w.T.Context(), &d.request, d.lb); err != nil {
			return err
		}
	}
	return nil
}

// TestServicesThatGoTogether: the item without a reason that CloudStack's own controller left serves all rules for its port. Services that
// go at the same moment see each other's rules, and the last of them takes it away.
func TestServicesThatGoTogether(t *testing.T) {
	inWorld(t, networkKinds[vpcTier], func(w *world) {
		a := createdNow(service("web", nil, port("http", 80, 30080)))
		b := createdNow(another(service("other", nil, port("http", 80, 30081))))
		w.Apply(a, b)
		createOriginal(w, a, "-tcp-80", everybody)
		network := w.sim.Networks()[0]
		byHand(w, "associateIpAddress", params{"vpcid": network.VPC})
		addresses := w.sim.Addresses()
		var address string
		for _, text := range w.takenAddresses() {
			for _, found := range addresses {
				if found.Address == text && found.ID != w.sim.Rules()[0].Address {
					address = found.ID
				}
			}
		}
		byHand(w, "createLoadBalancerRule", params{
			"name": nameOf(b, "-tcp-80"), "publicipid": address, "networkid": network.ID, "publicport": "80", "privateport": "30081",
			"algorithm": "roundrobin", "protocol": "tcp", "openfirewall": "false",
		})
		w.restart()
		require.Len(w.T, w.sim.ACLItems(), 1)
		first, second := planned(w, a), planned(w, b)
		require.NoError(w.T, first.carryOut(w))
		assert.Len(w.T, w.sim.ACLItems(), 1, "the other Service needs it")
		require.NoError(w.T, second.carryOut(w))
		assert.Empty(w.T, w.sim.ACLItems())
		assert.Empty(w.T, w.sim.Rules())
		assert.Empty(w.T, w.takenAddresses())
	})
}

// TestAddressOfServicesThatGoTogether: an address that was taken for one Service and that serves another one as well is released when both
// go at the same moment, by whatever way and in whatever order.
func TestAddressOfServicesThatGoTogether(t *testing.T) {
	for how, leave := range map[string]func(*v1.Service){
		"deleted":           func(s *v1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} },
		"of another type":   func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP },
		"later than theirs": nil,
	} {
		t.Run(how, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				a := service("web", nil, port("http", 80, 30080))
				w.Apply(a)
				ip := w.ensure(a).Ingress[0].IP
				b := another(service("other", nil, port("https", 443, 30443)))
				b.Spec.LoadBalancerIP = ip
				w.Apply(b)
				w.ensure(b)
				time.Sleep(2 * observedMaxAge)
				first, second := planned(w, a), planned(w, b)
				if leave != nil {
					w.alter(b, leave)
				}
				err := first.carryOut(w)
				if leave == nil {
					require.NoError(w.T, err)
					assert.Equal(w.T, []string{ip}, w.takenAddresses(), "it was handed over")
					require.NoError(w.T, planned(w, b).carryOut(w))
					assert.Empty(w.T, w.takenAddresses())
					return
				}
				var later *cloudproviderapi.RetryError
				require.ErrorAs(w.T, err, &later)
				assert.ErrorContains(w.T, err, "waits for Service default/other")
				require.NoError(w.T, second.carryOut(w))
				time.Sleep(2 * observedMaxAge)
				require.NoError(w.T, planned(w, a).carryOut(w))
				assert.Empty(w.T, w.takenAddresses())
			})
		})
	}
}
