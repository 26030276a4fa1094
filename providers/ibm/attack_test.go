package ibm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// TestClosedBeforeOpened: where a Service gets another port and other groups at once, nobody reaches the port by the groups of before.
func TestClosedBeforeOpened(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := conformance.Service("web", nil, conformance.Port("http", 80, 30080))
		w.mustEnsure(s)
		w.writes()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
		w.mustEnsure(s)
		assert.Equal(w.t, []string{postGroup, attach, detach, "POST " + oneLB + "/pools", "POST " + oneLB + "/listeners"}, w.writes())

		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("third", 8081, 30082))
		s.Spec.LoadBalancerSourceRanges = []string{"203.0.113.0/24"}
		w.mustEnsure(s)
		writes := w.writes()
		assert.Less(w.t, lastIndex(writes, deleteRule), slices.Index(writes, "POST "+oneLB+"/pools"),
			"what is no longer allowed ends before the cloud works for minutes")
	})
}

func lastIndex(list []string, one string) int {
	at := -1
	for n, s := range list {
		if s == one {
			at = n
		}
	}
	return at
}

// TestOthersGroup: a Service names neither its own group nor another Service's, which would then never be deleted.
func TestOthersGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		victim := ranged("victim", "192.0.2.0/24")
		w.mustEnsure(victim)
		own := groupName(ibmsim.Cluster, victim)
		id := w.sim.MadeGroups()[0].ID
		w.writes()
		for _, name := range []string{own, id} {
			claim := second(map[string]string{annotationGroups: name})
			require.ErrorContains(w.t, w.ensure(claim), "is that of a Service", name)
			assert.Contains(w.t, w.told(), eventConfigError)
		}
		victim.Spec.LoadBalancerSourceRanges = nil
		victim.Annotations[annotationGroups] = own
		require.ErrorContains(w.t, w.ensure(victim), "is that of a Service")
		assert.Empty(w.t, w.writes())
	})
}

// TestAdoptedStays: a load balancer of somebody else that the operator lets a Service adopt is never deleted.
func TestAdoptedStays(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.in.Adopt = registry.AdoptAny
		w.restart()
		w.sim.AddLoadBalancer("theirs", ibmsim.VPC)
		s := web(annotationName, "theirs")
		w.mustEnsure(s)
		record := s.Annotations[annotationRecord]
		require.Contains(w.t, record, recordAdopted)
		delete(s.Annotations, annotationRecord) // as by replacing the Service
		w.mustEnsure(s)
		assert.Equal(w.t, record, s.Annotations[annotationRecord])
		w.restart()
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		require.Len(w.t, w.sim.LoadBalancers(), 1)
	})
}

// TestFullGroup: networks are replaced by as many others as a group takes, though it has no room for both.
func TestFullGroup(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		networks := func(second int) (list []string) {
			for n := range 200 {
				list = append(list, fmt.Sprintf("10.%d.%d.0/24", second, n))
			}
			return list
		}
		s := ranged("web", networks(1)...)
		w.mustEnsure(s)
		s.Spec.LoadBalancerSourceRanges = networks(2)
		w.mustEnsure(s)
		lets := w.lets()
		assert.Len(w.t, lets, 200)
		assert.NotContains(w.t, strings.Join(lets, " "), " 10.1.")
	})
}
