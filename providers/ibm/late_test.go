package ibm

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestAskedForInTime: a load balancer that was made with the zone that the annotations ask for is told of to nobody; one with another zone
// is.
func TestAskedForInTime(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationIPType, typePrivate, annotationDNSInstance, "crn:v1:bluemix:public:dns-svcs:global:a/1::", annotationDNSZone, "example-com-zone1")
		w.mustEnsure(s)
		w.mustEnsure(s)
		assert.Empty(w.t, w.told())
		s.Annotations[annotationDNSZone] = "example-com-zone2"
		w.mustEnsure(s)
		assert.Contains(w.t, w.told(), eventIgnored)
	})
}

// TestGoneByOurselves: of a load balancer that this process deleted nobody is told that it is missing, though the Service still shows it.
// After a restart it may be missing for another reason, which is told once, and keeps no Service.
func TestGoneByOurselves(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		require.NoError(w.t, w.remove(s))
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		require.NoError(w.t, err)
		assert.False(w.t, exists)
		require.NoError(w.t, w.remove(s))
		assert.Empty(w.t, w.told())
		w.restart()
		_, exists, err = w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		require.NoError(w.t, err)
		assert.False(w.t, exists)
		assert.Contains(w.t, w.told(), s.Status.LoadBalancer.Ingress[0].Hostname)
		require.NoError(w.t, w.remove(s))
	})
}

// TestRangeBesidePorts: a range may cover a port of another protocol, which has a listener of its own.
func TestRangeBesidePorts(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationFeatures, featureNLB, annotationPortRange, "80-500", annotationCheckUDP, "10256")
		s.Spec.Ports[1].Protocol = v1.ProtocolUDP
		w.mustEnsure(s)
		assert.Len(w.t, w.sim.LoadBalancers()[0].Listeners, 2)
	})
}

// TestOthersNames: what is refused for a load balancer that does not exist is what a controller may be about to give, cut or whole.
func TestOthersNames(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", nil)
	for name, want := range map[string]bool{
		ownName("ocp4", s): true, ownName("a-b-c", s): true, ownName(strings.Repeat("c", 30), s): true,
		ownName(strings.Repeat("c", longestCluster), s): true,
		"shop": false, "kube-shop": false, "kube-shop-cafe": false, "kube-shop-2024": false, "my-" + ownName("ocp4", s): false,
	} {
		assert.Equal(t, want, othersName(name), name)
	}
}

// TestUntangled: ports stay in their order unless the pool of one is another's; a circle is opened once.
func TestUntangled(t *testing.T) {
	t.Parallel()
	// Each listener has the pool of the number at its place; -1 is none, and -2 one that no port is to have.
	for name, c := range map[string]struct {
		has  []int
		want string
	}{
		"as it should be":             {[]int{0, 1, 2}, "0 1 2"},
		"nothing yet":                 {[]int{-1, -1}, "0 1"},
		"a chain":                     {[]int{-2, 0, 1}, "2 1 0"},
		"a circle of two":             {[]int{1, 0}, "-0 1 0"},
		"a circle, and one beside it": {[]int{2, 0, 1, -1}, "3 -0 2 1 0"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const letters = "abcd"
			list := make([]placed, len(c.has))
			for n, has := range c.has {
				l := listener{ID: letters[n : n+1]}
				switch has {
				case -1:
				case -2:
					l.Pool = &named{ID: "x"}
				default:
					l.Pool = &named{ID: letters[has : has+1]}
				}
				list[n] = placed{port: port{protocol: protocolTCP, port: n, max: n}, pool: &pool{ID: letters[n : n+1]}, listener: &l}
			}
			var got []string
			for _, s := range untangled(list) {
				got = append(got, map[bool]string{true: "-", false: ""}[s.detach]+string(rune('0'+s.port.port)))
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}
