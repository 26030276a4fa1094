package openstack

import (
	"context"
	"fmt"
	"net/http"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
)

type loginHostKey struct{}

// loginOnlyAt keeps a login at the configured host: Keystone's list of versions names addresses, to which the SDK would send the
// password.
func loginOnlyAt(ctx context.Context, authURL string) context.Context {
	return context.WithValue(ctx, loginHostKey{}, cloudapi.HostOf(authURL))
}

// loginGuard refuses the calls of a login that go elsewhere.
type loginGuard struct{ base http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (g loginGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	at := cloudapi.HostOf(r.URL.String())
	if wanted, ok := r.Context().Value(loginHostKey{}).(string); ok && wanted != at {
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Message: fmt.Sprintf(
			"Keystone at %s names %s for logins, to which no password is sent; correct Keystone's public_endpoint, or let auth-url end in /v3", wanted, at)}
	}
	return g.base.RoundTrip(r)
}
