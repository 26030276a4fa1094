package ovirt

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// limits of calls to the engine, which publishes none: more than is ever needed, and little enough not to be a burden for one process.
var limits = []cloudapi.Limit{{PerSecond: 20, Burst: 100}}

// api is the part of the engine that is used: a login, and reads.
type api struct {
	http     *cloudapi.Client
	config   Config
	endpoint endpoint
	keeper   *session.Keeper[credentials, *token]

	// members are the virtual machines of the cluster's nodes.
	members func() []string
	// everything is what shows that an absence is none of permission.
	everything *inventory.Inventory[string, seen]
	places     places
	// seesHosts is whether the user is shown hosts, as only administrators are.
	seesHosts atomic.Bool
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	pool, err := roots(c)
	if err != nil {
		return nil, err
	}
	t := cloudapi.NewTransport(in.Dial)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	t.TLSClientConfig.InsecureSkipVerify = c.Insecure // the operator's choice
	a := &api{config: c, endpoint: c.endpoint}
	a.keeper = &session.Keeper[credentials, *token]{Credentials: credentialsOf(c, in), Login: a.login}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, Limits: limits, Transport: t, ClassOf: classOf,
	})
	a.everything = inventory.New(inventory.Source[string, seen]{
		Kind: "virtual machine", ID: func(v seen) string { return v.ID }, List: a.listEverything,
	})
	a.places = newPlaces(a)
	return a, nil
}

var below = regexp.MustCompile(`/api/(vms|clusters|datacenters|instancetypes)(/[^/]+)?$`)

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	switch {
	case r.URL.Path == tokenPath || r.URL.Path == logoutPath:
		return r.Method + " " + r.URL.Path
	case strings.HasSuffix(r.URL.Path, apiPath):
		return r.Method + " /api"
	}
	if match := below.FindStringSubmatch(r.URL.Path); match != nil {
		if match[2] != "" {
			match[2] = "/{id}"
		}
		return r.Method + " /api/" + match[1] + match[2]
	}
	return cloudapi.OtherOperation
}

// classOf tells a refused login from a bad request.
func classOf(status int, body []byte) error {
	if status == http.StatusBadRequest && deniedLogin(body) {
		return cloudapi.ErrUnauthorized
	}
	return nil
}

// get reads one document in a session. path begins below the entry of the API.
func (a *api) get(ctx context.Context, s *token, what, path string, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, a.endpoint.api+path, http.NoBody)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Authorization", "Bearer "+s.value)
	r.Header.Set("Version", "4")
	r.Header.Set("Accept", "application/json")
	answer, err := a.http.Do(r)
	if err != nil {
		return cloudapi.Unanswered(err, what, untrusted)
	}
	defer answer.Body.Close()
	if answer.StatusCode == http.StatusUnauthorized {
		return &cloudapi.Error{
			Class: cloudapi.ErrUnauthorized, Operation: what, Status: answer.StatusCode, Message: "the token is not accepted", Cause: session.ErrEnded,
		}
	}
	return read(answer, what, out)
}

// vms reads virtual machines by a search; "" finds all.
func (a *api) vms(ctx context.Context, s *token, what, search string, withNICs bool) ([]vm, error) {
	query := url.Values{}
	if search != "" {
		query.Set("search", search)
	}
	if withNICs {
		query.Set("follow", "nics")
	}
	var list listing
	path := "/vms"
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	// A listing that is not found says that the address is wrong, and nothing of virtual machines.
	if err := cloudapi.NotAbsence(a.get(ctx, s, what, path, &list)); err != nil {
		return nil, err
	}
	for i := range list {
		list[i].ID = strings.ToLower(list[i].ID)
	}
	a.noteHosts(list...)
	return list, nil
}

// noteHosts notes whether the user is shown the hosts of machines, of which those that run have one.
func (a *api) noteHosts(list ...vm) {
	switch {
	case slices.ContainsFunc(list, func(v vm) bool { return v.Host.id() != "" }):
		a.seesHosts.Store(true)
	case slices.ContainsFunc(list, func(v vm) bool { return v.Status == "up" }):
		a.seesHosts.Store(false)
	}
}

// instances lists the virtual machines of the filter by one call: pages may miss some when the set changes.
func (a *api) instances(ctx context.Context) (all []vm, calls int, err error) {
	err = a.keeper.Do(ctx, func(s *token) error {
		all, err = a.vms(ctx, s, "listing virtual machines", a.config.Filter, true)
		assignNames(all)
		return err
	})
	return all, 1, err
}
