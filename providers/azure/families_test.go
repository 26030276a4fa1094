package azure

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// These tests are about the families of addresses, and the ways in which addresses are written.

// ipsOfFamily are the addresses of a family that a status shows.
func ipsOfFamily(s *v1.Service, ipv6 bool) (list []string) {
	for _, i := range s.Status.LoadBalancer.Ingress {
		if strings.Contains(i.IP, ":") == ipv6 {
			list = append(list, i.IP)
		}
	}
	return list
}

// quiet demands that Services which are served are written no more, by this process and by the next one.
func (w *world) quiet(list ...*v1.Service) {
	w.Helper()
	for range 2 {
		time.Sleep(10 * time.Minute)
		w.server.ResetCalls()
		for _, s := range list {
			w.ensure(s)
		}
		assert.Zero(w, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
		w.restart()
	}
}

// sixPIP is a user's public address of IPv6.
func sixPIP() doc {
	return doc{
		"location": azuresim.Location, "sku": doc{"name": "Standard"},
		"properties": doc{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv6"},
	}
}

// TestPublicAddressOfTheOtherFamily: a public address of the other family is refused before any write, whichever annotation names it.
func TestPublicAddressOfTheOtherFamily(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]*v1.Service{
		"IPv6 for IPv4":      webService(map[string]string{annotationName: "six"}),
		"IPv4 for IPv6":      webService(map[string]string{annotationName: "four"}, sixOnly),
		"each for the other": webService(map[string]string{annotationName: "six", annotationName6: "four"}, bothFamilies),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			withNode(t, s, func(w *world) {
				w.sim.LeaveAddress("six", "2603:1020:201::bb", sixPIP())
				w.sim.AddAddress("four")
				w.server.ResetCalls()
				require.ErrorContains(w, w.refuse(s), "name another one")
				assert.Zero(w, w.server.Calls().Writes)
			})
		})
	}
}

// TestAddressWrittenInOtherWays: an address means the same whatever way it is written.
func TestAddressWrittenInOtherWays(t *testing.T) {
	t.Parallel()
	const public, private = "2603:1020:201::aa", "fd00:10:240::f00a"
	for name, written := range map[string]func(ip string) string{
		"as Azure does": func(ip string) string { return ip },
		"in upper case": strings.ToUpper,
		"in full":       func(ip string) string { return netip.MustParseAddr(ip).StringExpanded() },
	} {
		for kind, c := range map[string]struct {
			ip   string
			more map[string]string
		}{"public": {public, nil}, "internal": {private, map[string]string{annotationInternal: "true"}}} {
			for by, name6 := range map[string]func(*v1.Service){
				"annotation": func(s *v1.Service) { s.Annotations[annotationIPv6] = written(c.ip) },
				"field":      func(s *v1.Service) { s.Spec.LoadBalancerIP = written(c.ip) },
			} {
				t.Run(kind+" "+name+" by "+by, func(t *testing.T) {
					t.Parallel()
					first := webService(c.more, sixOnly, name6)
					second := webNumber(1, c.more, sixOnly, name6, func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 })
					withNode(t, first, func(w *world) {
						w.sim.LeaveAddress("mine6", public, sixPIP())
						w.Apply(second)
						assert.Equal(w, []string{c.ip}, ipsOfFamily(w.ensure(first), true))
						assert.Equal(w, []string{c.ip}, ipsOfFamily(w.ensure(second), true))
						w.quiet(first, second)
						w.remove(first)
						w.ensure(second)
						w.remove(second)
						assert.NotNil(w, w.sim.Shown(pipID("mine6")), "a user's address stays")
					})
				})
			}
		}
	}
}
