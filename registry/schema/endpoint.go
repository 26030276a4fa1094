package schema

import (
	"errors"
	"net"
	"net/url"
	"strings"
)

// FlagAllowInsecureEndpoints is the flag that lets endpoints without TLS pass.
const FlagAllowInsecureEndpoints = "allow-insecure-endpoints"

var errInsecure = errors.New("is not encrypted, so that anybody on the network path can read the credentials and change answers; use https://, or allow it with --" +
	FlagAllowInsecureEndpoints)

// InsecureURL says why an endpoint is refused for lack of TLS, or returns nil. A loopback address has no way on which somebody
// could listen, and metadata services have link-local ones, which no router passes on.
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
