package schema

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// FlagAllowInsecureEndpoints is the flag that allows endpoints without TLS.
const FlagAllowInsecureEndpoints = "allow-insecure-endpoints"

var errInsecure = errors.New("is not encrypted, so that anybody on the network path can read the credentials and change answers; use https://, or allow it with --" +
	FlagAllowInsecureEndpoints)

// InsecureURL returns why an endpoint without TLS is refused, or nil. Traffic to a loopback address cannot be intercepted, and metadata
// services have link-local addresses, which routers do not forward.
func InsecureURL(endpoint string, allow bool) error {
	u, err := url.Parse(endpoint)
	if err != nil || allow || u.Scheme != "http" || strings.EqualFold(u.Hostname(), "localhost") {
		return nil //nolint:nilerr // what is no URL is refused where it is parsed
	}
	if ip := net.ParseIP(u.Hostname()); ip != nil && (ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.Equal(net.ParseIP("fd00:ec2::254"))) {
		return nil
	}
	return errInsecure
}
