package vspheresim

import (
	"fmt"
	"maps"
	"net/http"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
)

// NSXUser is the only user of the NSX beside a vCenter, and NSXPassword its password.
const (
	NSXUser     = "ccm"
	NSXPassword = "nsx-password"
)

var (
	_ simkit.Pager         = (*Sim)(nil)
	_ simkit.Refusals      = (*Sim)(nil)
	_ simkit.RequestErrors = (*Sim)(nil)
)

// forNSX reports whether a request is for the NSX that stands beside the vCenter.
func (s *Sim) forNSX(r *http.Request) bool { return s.NSX != nil && nsxsim.Serves(r) }

// FirstPage implements simkit.Pager: vCenter's listings are not fetched by number.
func (s *Sim) FirstPage(r *http.Request) bool { return s.forNSX(r) && s.NSX.FirstPage(r) }

// Followed implements simkit.Pager.
func (s *Sim) Followed(r *http.Request, body []byte) []byte { return s.NSX.Followed(r, body) }

// InOrder implements simkit.Refusals.
func (s *Sim) InOrder(status int, body []byte) bool {
	return slices.Contains([]int{http.StatusNotFound, http.StatusUnauthorized, http.StatusPreconditionFailed}, status) ||
		(s.NSX != nil && s.NSX.InOrder(status, body))
}

// WriteErrorFor implements simkit.RequestErrors.
func (s *Sim) WriteErrorFor(w http.ResponseWriter, r *http.Request, status int, message string) {
	if s.forNSX(r) {
		s.NSX.WriteError(w, status, message)
		return
	}
	s.WriteError(w, status, message)
}

// nsxConfig are the sections of vsphere.conf about NSX.
func (s *Sim) nsxConfig(url string) string {
	if s.NSX == nil {
		return ""
	}
	return fmt.Sprintf(`nsxt:
  host: %q
  user: %q
  password: %q
loadBalancer:
  size: SMALL
  tier1GatewayPath: %s
  ipPoolName: %s
  tcpAppProfilePath: %s
  udpAppProfilePath: %s
loadBalancerClass:
  dmz:
    ipPoolId: %s
`, url, NSXUser, NSXPassword, nsxsim.Tier1, nsxsim.PoolName, nsxsim.TCPProfile, nsxsim.UDPProfile, nsxsim.OtherPool)
}

// withNSX adds what the NSX has to what the vCenter has.
func withNSX[V any](s *Sim, own map[string]V, nsx func() map[string]V) map[string]V {
	if s != nil && s.NSX != nil {
		maps.Copy(own, nsx())
	}
	return own
}
