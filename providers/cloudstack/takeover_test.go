package cloudstack

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// createOriginal makes what CloudStack's own controller makes for a Service with one port, in the form of one of its versions.
func createOriginal(w *world, s *v1.Service, suffix, cidrlist string) {
	w.T.Helper()
	var address string
	network := w.sim.Networks()[0]
	place := params{"networkid": network.ID}
	if network.VPC != "" {
		place = params{"vpcid": network.VPC}
	}
	byHand(w, "associateIpAddress", place)
	for _, a := range w.sim.Addresses() {
		if a.State == "Allocated" && !a.SourceNAT {
			address = a.ID
		}
	}
	byHand(w, "createLoadBalancerRule", params{
		"name": nameOf(s, suffix), "publicipid": address, "networkid": network.ID, "publicport": "80", "privateport": "30080", "algorithm": "roundrobin",
		"protocol": "tcp", "openfirewall": "false", "cidrlist": cidrlist,
	})
	var ids []string
	for _, v := range w.sim.List() {
		ids = append(ids, v.ID)
	}
	byHand(w, "assignToLoadBalancerRule", params{"id": w.sim.Rules()[0].ID, "virtualmachineids": strings.Join(ids, ",")})
	if network.VPC == "" {
		byHand(w, "createFirewallRule", params{"ipaddressid": address, "protocol": "tcp", "startport": "80", "endport": "80", "cidrlist": everybody})
		return
	}
	byHand(w, "createNetworkACL", params{
		"aclid": network.ACL, "networkid": network.ID, "protocol": "tcp", "action": "Allow", "cidrlist": everybody, "startport": "80", "endport": "80",
		"traffictype": "Ingress",
	})
}

// createdNow gives a Service the time of its creation, as the API server does.
func createdNow(s *v1.Service) *v1.Service {
	s.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	return s
}

// leftRules returns the rules that the versions of CloudStack's own controller leave behind; theirWorld is where it works.
func leftRules(theirWorld func() *world) map[string]conformance.Left {
	leave := func(suffix, cidrs string) func([]*v1.Node) *v1.Service {
		return func([]*v1.Node) *v1.Service {
			s := createdNow(service("web", nil, port("http", 80, 30080)))
			createOriginal(theirWorld(), s, suffix, cidrs)
			return s
		}
	}
	return map[string]conformance.Left{
		"1.2": {Leave: leave("-tcp-80", everybody)}, "1.1": {Leave: leave("-tcp-80", "")},
		"of Kubernetes": {Leave: leave("-80", ""), Writes: "its rule gets the name that rules have today"},
	}
}

// TestTakeover: what versions 1.1 and 1.2 leave is taken over without a write, and goes with its Service. The rule of the provider that
// Kubernetes had itself gets its name once.
func TestTakeover(t *testing.T) {
	for kind, prepare := range networkKinds {
		for version, c := range map[string]struct {
			suffix, cidrs string
			writes        int
		}{"1.2": {"-tcp-80", everybody, 0}, "1.1": {"-tcp-80", "", 0}, "of Kubernetes": {"-80", "", 1}} {
			for _, release := range []string{cloudstacksim.V420, cloudstacksim.V422} {
				t.Run(kind+", "+version+", CloudStack "+release, func(t *testing.T) {
					inWorld(t, prepare, func(w *world) {
						t := w.T
						w.sim.SetVersion(release)
						s := createdNow(service("web", nil, port("http", 80, 30080)))
						w.Apply(s)
						createOriginal(w, s, c.suffix, c.cidrs)
						w.restart()
						id, before := w.sim.Rules()[0].ID, w.writes()
						_, exists, err := w.loadBalancers.GetLoadBalancer(w.T.Context(), "", w.Current(s))
						require.NoError(t, err)
						require.True(t, exists)
						w.ensure(s)
						assert.Equal(t, before+c.writes, w.writes(), "%v", w.server.Calls().ByOperation)
						assert.Equal(t, id, w.sim.Rules()[0].ID)
						assert.Equal(t, nameOf(s, "-tcp-80"), w.sim.Rules()[0].Name)
						assert.Empty(t, w.Current(s).Annotations)
						w.requireNoWrites(s)
						require.NoError(t, w.Remove(w.loadBalancers, "", s))
						assert.Empty(t, w.sim.Rules())
						assert.Empty(t, w.sim.Firewalls())
						assert.Empty(t, w.sim.ACLItems())
						assert.Empty(t, w.takenAddresses())
					})
				})
			}
		}
	}
}

// TestTakeoverOfAnAddressThatMayBeAnybodys: the address of a load balancer that was taken over stays when nothing in the cloud says that
// CloudStack's own controller took it for the Service, whatever the Service says.
func TestTakeoverOfAnAddressThatMayBeAnybodys(t *testing.T) {
	for what, c := range map[string]struct {
		annotations map[string]string
		named       bool
		says        string
	}{
		"an annotation says that it was taken": {map[string]string{annotationAssociated: "true"}, true, annotationAssociated},
		"the Service names it no longer":       {nil, false, "another time"},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				t := w.T
				s := service("web", c.annotations, port("http", 80, 30080))
				s.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) // it is younger than its address
				createOriginal(w, s, "-tcp-80", everybody)
				taken := w.takenAddresses()
				if c.named {
					s.Spec.LoadBalancerIP = taken[0]
				}
				w.Apply(s)
				w.restart()
				w.ensure(s)
				w.Events()
				require.NoError(t, w.Remove(w.loadBalancers, "", s))
				assert.Empty(t, w.sim.Rules())
				assert.Equal(t, taken, w.takenAddresses())
				assert.Contains(t, strings.Join(w.Events(), "\n"), c.says)
			})
		})
	}
}

// TestTakeoverOfSeveralPortsThatAreMadeAgain: rules that say by themselves that their address was taken for their Service are made again,
// one after the other, for other node ports, or go where another one says nothing; the address goes with the Service nevertheless.
func TestTakeoverOfSeveralPortsThatAreMadeAgain(t *testing.T) {
	for what, c := range map[string]struct {
		description string
		change      func(s *v1.Service)
		// unrecorded has the record count no longer, as after a change of the secret key.
		unrecorded bool
	}{
		"made again": {"", func(s *v1.Service) {
			for n := range s.Spec.Ports {
				s.Spec.Ports[n].NodePort += 1000
			}
		}, true},
		"one goes": {"web", func(s *v1.Service) { s.Spec.Ports = s.Spec.Ports[1:] }, false},
	} {
		t.Run(what, func(t *testing.T) {
			inWorld(t, nil, func(w *world) {
				t := w.T
				s := createdNow(service("web", nil, port("http", 80, 30080), port("https", 443, 30443)))
				w.Apply(s)
				createOriginal(w, s, "-tcp-80", everybody)
				address := w.sim.Rules()[0].Address
				byHand(w, "createLoadBalancerRule", params{
					"name": nameOf(s, "-tcp-443"), "publicipid": address, "networkid": w.sim.Networks()[0].ID, "publicport": "443", "privateport": "30443",
					"algorithm": "roundrobin", "protocol": "tcp", "openfirewall": "false", "cidrlist": everybody, "description": c.description,
				})
				w.restart()
				w.alter(s, c.change)
				w.ensure(s)
				if c.unrecorded {
					w.alter(s, func(s *v1.Service) { s.Annotations = nil })
				}
				w.restart()
				require.NoError(t, w.Remove(w.loadBalancers, "", w.Current(s)))
				assert.Empty(t, w.sim.Rules())
				assert.Empty(t, w.takenAddresses())
			})
		})
	}
}

// TestTakeoverWithAClockBehind: an address that CloudStack's clock, a little behind, says was given before its Service was created goes
// with the Service as well.
func TestTakeoverWithAClockBehind(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := createdNow(service("web", nil, port("http", 80, 30080)))
		w.Apply(s)
		createOriginal(w, s, "-tcp-80", everybody)
		w.sim.EditAddress(w.takenAddresses()[0], func(a *cloudstacksim.Address) {
			a.Allocated = s.CreationTimestamp.Add(-5 * time.Second).UTC().Format(timeForm)
		})
		w.restart()
		w.ensure(s)
		require.NoError(t, w.Remove(w.loadBalancers, "", s))
		assert.Empty(t, w.takenAddresses())
	})
}
