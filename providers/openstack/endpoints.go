package openstack

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

type loginHostKey struct{}

// loginOnlyAt keeps a login at the configured host: Keystone's list of versions names addresses, to which the SDK would send the
// password.
func loginOnlyAt(ctx context.Context, authURL string) context.Context {
	return context.WithValue(ctx, loginHostKey{}, cloudapi.HostOf(authURL))
}

// endpointGuard refuses the calls of a login that go elsewhere, and calls that are not encrypted: the endpoints are Keystone's to
// name, in its catalog and its list of versions, and every call carries the token.
type endpointGuard struct {
	base     http.RoundTripper
	insecure bool
}

// RoundTrip implements http.RoundTripper.
func (g endpointGuard) RoundTrip(r *http.Request) (*http.Response, error) {
	at := cloudapi.HostOf(r.URL.String())
	if wanted, ok := r.Context().Value(loginHostKey{}).(string); ok && wanted != at {
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Message: fmt.Sprintf(
			"Keystone at %s names %s for logins, to which no password is sent; correct Keystone's public_endpoint, or let auth-url end in /v3", wanted, at)}
	}
	if reason := schema.InsecureURL(at, g.insecure); reason != nil {
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Message: fmt.Sprintf("the endpoint %s, which Keystone's catalog names, %s", at, reason)}
	}
	return g.base.RoundTrip(r)
}

// checkCatalog tells of endpoints in Keystone's catalog that would be refused, without a call of its own. A service that the
// catalog does not have is missed when it is needed.
func (a *api) checkCatalog(ctx context.Context, services ...kind) error {
	provider, err := a.connected(ctx)
	if err != nil {
		return err
	}
	result, ok := provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil
	}
	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil //nolint:nilerr // a token for no project has none
	}
	var problems []error
	for _, of := range services {
		wanted := gophercloud.EndpointOpts{Region: a.region, Availability: a.availability}
		wanted.ApplyDefaults(string(of))
		at, err := openstack.V3EndpointURL(catalog, wanted) //nolint:staticcheck // its successor sends the token to the endpoint
		if err != nil {
			continue
		}
		if reason := schema.InsecureURL(at, a.insecure); reason != nil {
			problems = append(problems, &cloudapi.Error{
				Class: cloudapi.ErrInvalid, Operation: "reading Keystone's catalog",
				Message: fmt.Sprintf("the endpoint %s of the service %s %s", cloudapi.HostOf(at), of, reason),
			})
		}
	}
	return errors.Join(problems...)
}
