package openstack

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

type loginHostKey struct{}

// loginOnlyAt restricts a login to the configured host. Otherwise the SDK would send the password to any address in Keystone's list of
// versions.
func loginOnlyAt(ctx context.Context, authURL string) context.Context {
	return context.WithValue(ctx, loginHostKey{}, cloudapi.HostOf(authURL))
}

// endpointGuard refuses logins at other hosts and unencrypted calls. Keystone chooses the endpoints, and each call carries the token.
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

// versionLists keeps the version documents of services. The SDK requests them, and they also show the supported features.
type versionLists struct {
	base http.RoundTripper

	mu        sync.Mutex
	documents map[string][]byte
}

// maxVersionList bounds a list of versions.
const maxVersionList = 64 << 10

// RoundTrip implements http.RoundTripper.
func (v *versionLists) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := v.base.RoundTrip(r)
	if err != nil || operation(r) != http.MethodGet+" /" || response.StatusCode > http.StatusMultipleChoices {
		return response, err
	}
	body := response.Body
	head, err := io.ReadAll(io.LimitReader(body, maxVersionList))
	if err != nil {
		return nil, errors.Join(err, body.Close())
	}
	if len(head) < maxVersionList {
		v.mu.Lock()
		v.documents[rootOf(r.URL.String())] = head
		v.mu.Unlock()
	}
	response.Body = replayedBody{io.MultiReader(bytes.NewReader(head), body), body}
	return response, nil
}

// takeList returns and removes the list of a root, so that the next caller gets a newer one.
func (v *versionLists) takeList(root string) []byte {
	v.mu.Lock()
	defer v.mu.Unlock()
	list := v.documents[rootOf(root)]
	delete(v.documents, rootOf(root))
	return list
}

func rootOf(address string) string { return strings.TrimRight(address, "/") }

// replayedBody is a response body whose beginning was already read.
type replayedBody struct {
	io.Reader
	io.Closer
}

// checkCatalog reports endpoints in Keystone's catalog that would be refused, without a call to them. A missing service is reported when it
// is needed.
func (a *api) checkCatalog(ctx context.Context, services ...serviceType) error {
	provider, err := a.connect(ctx)
	if err != nil {
		return err
	}
	result, ok := provider.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return nil
	}
	catalog, err := result.ExtractServiceCatalog()
	if err != nil {
		return nil //nolint:nilerr // a token without project has no catalog
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
