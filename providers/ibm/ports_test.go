package ibm

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestRangeOverPort: a range that covers another port of the Service is told of before anything is written, and takes no port away.
func TestRangeOverPort(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationFeatures, featureNLB, annotationPortRange, "80-90")
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.writes()
		s.Annotations[annotationPortRange] = "80-500" // 443 is a port of its own
		require.Error(w.t, w.ensure(s))
		assert.Contains(w.t, w.drainEvents(), eventConfigError)
		assert.Empty(w.t, w.writes())
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
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

// TestTenPorts: a load balancer with as many ports as it takes gets as many others.
func TestTenPorts(t *testing.T) {
	t.Parallel()
	for _, feature := range []string{featureALB, featureNLB} {
		t.Run(feature, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				ports := func(from int32) (list []v1.ServicePort) {
					for n := range int32(ibmlimits.Listeners.Max) {
						list = append(list, conformance.Port(fmt.Sprint("p", n), from+n, 30000+n))
					}
					return list
				}
				s := web(annotationFeatures, feature)
				s.Spec.Ports = ports(1000)
				w.mustEnsure(s)
				s.Spec.Ports = ports(2000)
				w.mustEnsure(s)
				assert.Len(w.t, w.sim.LoadBalancers()[0].Listeners, ibmlimits.Listeners.Max)
				w.writes()
				w.mustEnsure(s)
				assert.Empty(w.t, w.writes())
			})
		})
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
			list := make([]portPool, len(c.has))
			for n, has := range c.has {
				l := listener{ID: letters[n : n+1]}
				switch has {
				case -1:
				case -2:
					l.Pool = &reference{ID: "x"}
				default:
					l.Pool = &reference{ID: letters[has : has+1]}
				}
				list[n] = portPool{port: port{protocol: protocolTCP, port: n, max: n}, pool: &pool{ID: letters[n : n+1]}, listener: &l}
			}
			var got []string
			for _, s := range orderSteps(list) {
				got = append(got, map[bool]string{true: "-", false: ""}[s.detach]+string(rune('0'+s.port.port)))
			}
			assert.Equal(t, c.want, strings.Join(got, " "))
		})
	}
}

// TestPartsChangedByHand: what somebody changed by hand in the parts of a load balancer is set right in one go, whatever hangs together
// with it.
func TestPartsChangedByHand(t *testing.T) {
	t.Parallel()
	extra := func(lb *ibmsim.LoadBalancer, name string) string {
		p := lb.Pools[0]
		p.ID, p.Name, p.Members = "r006-0a1b2c3d-7a2c-4b1d-9e3f-00000000aaaa", name, nil
		lb.Pools = append(slices.Clone(lb.Pools), p)
		return p.ID
	}
	for name, change := range map[string]func(*ibmsim.LoadBalancer){
		"a listener leads to another pool": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool = &ibmsim.Reference{ID: extra(lb, "blue")}
		},
		"a listener leads to another pool, and its own has gone": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool = &ibmsim.Reference{ID: extra(lb, "blue")}
			lb.Pools = lb.Pools[1:]
		},
		"two listeners have changed pools": func(lb *ibmsim.LoadBalancer) {
			lb.Listeners[0].Pool, lb.Listeners[1].Pool = lb.Listeners[1].Pool, lb.Listeners[0].Pool
		},
		"a listener leads nowhere": func(lb *ibmsim.LoadBalancer) { lb.Listeners[0].Pool = nil },
		"two pools have changed names": func(lb *ibmsim.LoadBalancer) {
			lb.Pools[0].Name, lb.Pools[1].Name = lb.Pools[1].Name, lb.Pools[0].Name
		},
		"a pool of before has the name of the next": func(lb *ibmsim.LoadBalancer) { extra(lb, "tcp-80-30081") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, time.Second, nil, func(w *world) {
				s := web()
				w.mustEnsure(s)
				before := snapshot(w.t, w.sim)
				time.Sleep(time.Minute)
				require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
					lb.Listeners, lb.Pools = slices.Clone(lb.Listeners), slices.Clone(lb.Pools)
					change(lb)
				}))
				w.restart()
				assert.NoError(w.t, w.ensure(s))
				assert.Equal(w.t, before, snapshot(w.t, w.sim))
				w.writes()
				assert.NoError(w.t, w.ensure(s))
				assert.Empty(w.t, w.writes())
			})
		})
	}
}
