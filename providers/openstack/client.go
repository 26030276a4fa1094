package openstack

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// loginTimeout bounds a login, because all calls wait for it.
	loginTimeout = 10 * time.Second
	// loginPause is how long a failed login counts for all calls, so that an outage does not cause a login for each.
	loginPause = 3 * time.Second
	// A token is renewed this long before it expires.
	renewBefore = time.Minute
	// embeddedFlavors is the first microversion of Nova whose servers contain the flavor's name.
	embeddedFlavors = "2.47"
	// pageSize bounds one page of a listing; services may send less.
	pageSize = 1000
)

// serviceType is a service type of the catalog.
type serviceType string

const (
	compute       serviceType = "compute"
	network       serviceType = "network"
	loadBalancing serviceType = "load-balancer"
	keyManager    serviceType = "key-manager"
)

// api calls OpenStack's APIs and maps their errors to cloudapi's classes.
type api struct {
	http     *cloudapi.Client
	versions *versionLists
	// auth returns the current credentials, because the files may have changed.
	auth         func() gophercloud.AuthOptions
	availability gophercloud.Availability
	region       string
	userAgents   []string
	// insecure is set where the operator allows endpoints without TLS.
	insecure bool

	mu            sync.Mutex
	provider      *gophercloud.ProviderClient
	services      map[serviceType]*gophercloud.ServiceClient
	login         *loginFlight
	loginFailedAt time.Time
	loginError    error
	// expires is the end of the token, or zero if unknown. project is the token's project, or "".
	expires time.Time
	project string
	// noMicroversion is set if Nova is too old to embed flavors.
	noMicroversion bool

	// firstReads prevents concurrent reads of values that are read only once, and guards minor and extensions.
	firstReads keylock.Locks
	// minor is the minor version of Octavia's API; nil if not yet read. extensions are Neutron's.
	minor      *int
	extensions map[string]bool
}

// loginFlight is a login that several callers wait for.
type loginFlight struct {
	done chan struct{}
	err  error
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	transport, err := newTransport(c.Global, in.Dial)
	if err != nil {
		return nil, err
	}
	registerMetrics()
	versions := &versionLists{base: endpointGuard{transport, in.AllowInsecureEndpoints}, documents: map[string][]byte{}}
	a := &api{
		versions:     versions,
		availability: gophercloud.Availability(c.Global.EndpointType), region: c.Global.Region,
		services:   map[serviceType]*gophercloud.ServiceClient{},
		userAgents: append(slices.Clone(c.UserAgents), "anyccm/"+in.Version), insecure: in.AllowInsecureEndpoints,
		http: cloudapi.NewClient(cloudapi.Config{
			Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, Timeout: c.RequestTimeout,
			Transport: versions,
		}),
	}
	first := authOptions(c)
	a.auth = func() gophercloud.AuthOptions { return first }
	if in.FilePath != "" {
		a.auth = func() gophercloud.AuthOptions { return reloadCredentials(in, first) }
	}
	return a, nil
}

// reloadCredentials returns the credentials now in the files. If a file is unusable, for example half written, or names another cloud, the
// previous ones stay.
func reloadCredentials(in registry.Inputs, before gophercloud.AuthOptions) gophercloud.AuthOptions {
	data, err := os.ReadFile(in.FilePath)
	if err != nil {
		return before
	}
	in.File = data
	c, _, err := parseConfig(in)
	if err != nil || c.Global.AuthURL != before.IdentityEndpoint {
		klog.InfoS("The changed cloud config cannot be used for the next login; the credentials read before stay in force", "file", in.FilePath)
		return before
	}
	return authOptions(c)
}

func newTransport(g global, dial cloudapi.DialFunc) (http.RoundTripper, error) {
	t := cloudapi.NewTransport(dial)
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: g.TLSInsecure == "true"} //nolint:gosec // the operator asked for it
	roots := []byte(g.CAFileContents)
	if g.CAFile != "" {
		var err error
		if roots, err = os.ReadFile(g.CAFile); err != nil {
			return nil, fmt.Errorf("reading ca-file: %w", err)
		}
	}
	if len(roots) > 0 {
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM(roots) {
			return nil, fmt.Errorf("ca-file %s holds no certificate in PEM form", g.CAFile)
		}
	}
	if g.CertFile != "" && g.KeyFile != "" {
		pair, err := tls.LoadX509KeyPair(g.CertFile, g.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("reading cert-file and key-file: %w", err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	t.TLSClientConfig = config
	return t, nil
}

// authOptions chooses the login method: token, application credential by ID, password, application credential by name.
func authOptions(c Config) gophercloud.AuthOptions {
	g := c.Global
	o := gophercloud.AuthOptions{IdentityEndpoint: g.AuthURL}
	switch {
	case !g.Token.IsZero():
		o.TokenID, o.Scope = g.Token.Reveal(), g.scope()
	case g.ApplicationCredentialID != "":
		o.ApplicationCredentialID, o.ApplicationCredentialSecret = g.ApplicationCredentialID, g.ApplicationCredentialSecret.Reveal()
	case !g.Password.IsZero() || !g.TrusteePassword.IsZero():
		g.setUser(&o)
		o.Password, o.Scope = g.Password.Reveal(), g.scope()
		if g.TrustID != "" && !g.TrusteePassword.IsZero() {
			o.Password = g.TrusteePassword.Reveal()
		}
	default:
		g.setUser(&o)
		o.ApplicationCredentialName, o.ApplicationCredentialSecret = g.ApplicationCredentialName, g.ApplicationCredentialSecret.Reveal()
	}
	return o
}

// scope returns the scope of the token: a trust, a project or a domain.
func (g global) scope() *gophercloud.AuthScope {
	scope := &gophercloud.AuthScope{}
	switch {
	case g.TrustID != "":
		scope.TrustID = g.TrustID
	case g.TenantID != "":
		scope.ProjectID = g.TenantID
	case g.TenantName != "":
		scope.ProjectName = g.TenantName
		scope.DomainID, scope.DomainName = preferID(cmp.Or(g.TenantDomainID, g.DomainID), cmp.Or(g.TenantDomainName, g.DomainName))
		if g.TenantDomainID == "" && g.TenantDomainName != "" {
			scope.DomainID, scope.DomainName = "", g.TenantDomainName
		}
	default:
		scope.DomainID, scope.DomainName = preferID(g.DomainID, g.DomainName)
	}
	return scope
}

// setUser sets the user, and the domain that a user name requires.
func (g global) setUser(o *gophercloud.AuthOptions) {
	o.UserID, o.Username = g.UserID, g.Username
	if g.TrustID != "" && g.TrusteeID != "" {
		o.UserID, o.Username = g.TrusteeID, ""
	}
	if o.Username == "" {
		return
	}
	if g.UserDomainID != "" || g.UserDomainName != "" {
		o.DomainID, o.DomainName = preferID(g.UserDomainID, g.UserDomainName)
		return
	}
	o.DomainID, o.DomainName = preferID(g.DomainID, g.DomainName)
}

// preferID drops the name if the ID is known, because Keystone accepts only one of them.
func preferID(id, name string) (string, string) {
	if id != "" {
		return id, ""
	}
	return "", name
}

var identifier = regexp.MustCompile(`^([0-9a-fA-F]{8}-[0-9a-fA-F-]{27}|[0-9a-f]{32})$`)

// templates are the paths of our calls, below the endpoint in the catalog.
var templates = []string{
	"auth/tokens", "servers/detail", "servers/{id}", "flavors/detail", "flavors/{id}", "extensions",
	"networks", "networks/{id}", "subnets", "subnets/{id}", "ports", "ports/{id}", "floatingips", "floatingips/{id}",
	"routers", "routers/{id}", "routers/{id}/add_extraroutes", "routers/{id}/remove_extraroutes",
	"security-groups", "security-groups/{id}", "security-group-rules", "security-group-rules/{id}",
	"lbaas/loadbalancers", "lbaas/loadbalancers/{id}", "lbaas/loadbalancers/{id}/failover",
	"lbaas/loadbalancers/{id}/status", "lbaas/listeners", "lbaas/listeners/{id}",
	"lbaas/pools", "lbaas/pools/{id}", "lbaas/pools/{id}/members", "lbaas/pools/{id}/members/{id}",
	"lbaas/healthmonitors", "lbaas/healthmonitors/{id}", "containers/{id}", "secrets/{id}",
}

// roots are the first segments of templates.
var roots = sync.OnceValue(func() map[string]bool {
	first := map[string]bool{}
	for _, t := range templates {
		root, _, _ := strings.Cut(t, "/")
		first[root] = true
	}
	return first
})

// operation names a request without IDs, such as "GET /compute/v2.1/servers/{id}". Unknown paths share one name, so that metrics stay
// bounded.
func operation(r *http.Request) string {
	segments := strings.Split(path.Clean(r.URL.Path), "/")
	for i, s := range segments {
		after := ""
		if i > 0 {
			after = segments[i-1]
		}
		if identifier.MatchString(s) || (after == "flavors" && s != "detail") || after == "tags" {
			segments[i] = "{id}"
		}
	}
	root := slices.IndexFunc(segments, func(s string) bool { return roots()[s] })
	switch {
	case root < 0:
		return r.Method + " /" // the root of a service, which lists its versions
	case !slices.Contains(templates, strings.Join(segments[root:], "/")):
		return r.Method + " " + cloudapi.OtherOperation
	}
	return r.Method + " " + strings.Join(segments, "/")
}

// connect returns a provider client that is logged in. Concurrent callers share one login.
func (a *api) connect(ctx context.Context) (*gophercloud.ProviderClient, error) {
	a.mu.Lock()
	if provider := a.provider; provider != nil {
		ending := !a.expires.IsZero() && time.Until(a.expires) < renewBefore
		a.mu.Unlock()
		if ending {
			// An expired token would cost each caller a refused call.
			if err := provider.Reauthenticate(ctx, provider.Token()); err != nil {
				klog.ErrorS(err, "Renewing the token failed; the old one serves while it lasts")
			}
		}
		return provider, nil
	}
	if a.loginError != nil && time.Since(a.loginFailedAt) < loginPause {
		defer a.mu.Unlock()
		return nil, a.loginError
	}
	f := a.login
	if f == nil {
		f = &loginFlight{done: make(chan struct{})}
		a.login = f
		rescue.Go("logging in", func() { a.logIn(context.WithoutCancel(ctx), f) })
	}
	a.mu.Unlock()
	select {
	case <-f.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for the login: %w", ctx.Err())
	}
	if f.err != nil {
		return nil, f.err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.provider, nil
}

// logIn logs in for the first time. It ignores the caller's deadline, because others wait for it too.
func (a *api) logIn(ctx context.Context, f *loginFlight) {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	provider, err := a.authenticate(ctx)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.login, a.loginError = nil, nil
	if err != nil {
		f.err, a.loginError, a.loginFailedAt = err, err, time.Now()
	} else {
		provider.ReauthFunc = a.logInAgain
		a.provider = provider
		a.expires, a.project = describeToken(provider)
	}
	close(f.done)
}

// logInAgain gets a new token for the shared client. The SDK calls it after a 401, one call at a time.
func (a *api) logInAgain(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	fresh, err := a.authenticate(ctx)
	if err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.provider.CopyTokenFrom(fresh)
	a.expires, _ = describeToken(fresh)
	return nil
}

// describeToken returns when a token expires and the ID of its project, as far as known. It tells no time for a token with hardly more
// lifetime than a renewal needs.
func describeToken(p *gophercloud.ProviderClient) (expires time.Time, project string) {
	result, ok := p.GetAuthResult().(tokens.CreateResult)
	if !ok {
		return expires, ""
	}
	if token, err := result.ExtractToken(); err == nil && time.Until(token.ExpiresAt) >= 2*renewBefore {
		expires = token.ExpiresAt
	}
	if found, err := result.ExtractProject(); err == nil && found != nil {
		project = found.ID
	}
	return expires, project
}

func (a *api) authenticate(ctx context.Context) (provider *gophercloud.ProviderClient, err error) {
	defer rescue.Into(&err, "logging in to Keystone")
	o := a.auth()
	provider, err = openstack.NewClient(o.IdentityEndpoint)
	if err != nil {
		return nil, fmt.Errorf("reading auth-url: %w", err)
	}
	provider.HTTPClient = *a.http.Client
	provider.UserAgent.Prepend(a.userAgents...)
	_, err = call(ctx, "logging in to Keystone", func(ctx context.Context) (struct{}, error) {
		return struct{}{}, openstack.Authenticate(loginOnlyAt(ctx, o.IdentityEndpoint), provider, o)
	})
	return provider, err
}

// service returns the client of a service. Its endpoint is looked up once.
func (a *api) service(ctx context.Context, wanted serviceType) (*gophercloud.ServiceClient, error) {
	provider, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := a.firstReads.Lock(ctx, string(wanted))
	if err != nil {
		return nil, fmt.Errorf("waiting for the endpoint of the service %s: %w", wanted, err)
	}
	defer unlock()
	a.mu.Lock()
	client := a.services[wanted]
	a.mu.Unlock()
	if client != nil {
		return client, nil
	}
	construct := map[serviceType]func(*gophercloud.ProviderClient, gophercloud.EndpointOpts) (*gophercloud.ServiceClient, error){
		compute: openstack.NewComputeV2, network: openstack.NewNetworkV2, loadBalancing: openstack.NewLoadBalancerV2,
		keyManager: openstack.NewKeyManagerV1,
	}[wanted]
	client, err = call(ctx, fmt.Sprintf("finding the endpoint of the service %s", wanted), func(context.Context) (*gophercloud.ServiceClient, error) {
		return construct(provider, gophercloud.EndpointOpts{Region: a.region, Availability: a.availability})
	})
	if err != nil {
		return nil, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if wanted == compute && !a.noMicroversion {
		client.Microversion = embeddedFlavors
	}
	a.services[wanted] = client
	return client, nil
}

func call[T any](ctx context.Context, doing string, make func(context.Context) (T, error)) (T, error) {
	ctx, caught := cloudapi.RecordLastResponse(ctx)
	began := time.Now()
	v, err := make(ctx)
	countCall(caught.Operation(), began, err)
	return v, apiError(err, caught, doing)
}

// errWrongAnswer: the response was successful but lacks the requested object.
var errWrongAnswer = errors.New("the answer does not hold what was asked for")

// request sends a request and decodes the object under key, if any.
func request[T any](
	ctx context.Context, a *api, service serviceType, doing, method, resource string, body any, key string, accepted ...int,
) (*T, error) {
	client, err := a.service(ctx, service)
	if err != nil {
		return nil, err
	}
	return call(ctx, doing, func(ctx context.Context) (*T, error) {
		var answer map[string]json.RawMessage
		o := &gophercloud.RequestOpts{OkCodes: accepted, JSONBody: body}
		if key != "" {
			o.JSONResponse = &answer
		}
		if r, ok := ctx.Value(revisionKey{}).(int); ok && r > 0 { // revisions need an extension of Neutron
			o.MoreHeaders = map[string]string{"If-Match": fmt.Sprintf("revision_number=%d", r)}
		}
		if err := fetch(ctx, client, method, client.ServiceURL(resource), o); err != nil || key == "" {
			return nil, err
		}
		v := new(T)
		if err := json.Unmarshal(answer[key], v); err != nil {
			return nil, fmt.Errorf("%w: %w", errWrongAnswer, err)
		}
		if string(answer[key]) == "null" {
			return nil, errWrongAnswer
		}
		return v, nil
	})
}

// fetch sends a request. The SDK decodes the response, if any.
func fetch(ctx context.Context, client *gophercloud.ServiceClient, method, address string, o *gophercloud.RequestOpts) error {
	response, err := client.Request(ctx, method, address, o)
	if response != nil && response.Body != nil {
		defer response.Body.Close()
	}
	return err
}

type revisionKey struct{}

// ifRevision makes a write fail if the object has changed since it was read.
func ifRevision(ctx context.Context, revision int) context.Context {
	return context.WithValue(ctx, revisionKey{}, revision)
}

// requestObject is request for an answer with an object, which isIt has to accept.
func requestObject[T any](
	ctx context.Context, a *api, service serviceType, doing, method, resource string, body any, key string, isIt func(*T) bool,
	accepted ...int,
) (*T, error) {
	v, err := request[T](ctx, a, service, doing, method, resource, body, key, accepted...)
	if err == nil && !isIt(v) {
		return nil, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: errWrongAnswer.Error()}
	}
	return v, err
}

// get reads one object and checks its identity.
func get[T any](ctx context.Context, a *api, service serviceType, doing, resource, key string, isIt func(*T) bool) (*T, error) {
	return requestObject(ctx, a, service, doing, http.MethodGet, resource, nil, key, isIt, http.StatusOK)
}

// neutron writes an object of Neutron, with the same key in request and response.
func neutron[T any](ctx context.Context, a *api, doing, method, resource, key string, body any, isIt func(*T) bool) (*T, error) {
	accepted := http.StatusOK
	if method == http.MethodPost {
		accepted = http.StatusCreated
	}
	return requestObject(ctx, a, network, doing, method, resource, map[string]any{key: body}, key, isIt, accepted)
}

// sourceOf returns the source of an inventory of objects that are listed at a path, and read below it. The last word of the path is their
// key in answers.
func sourceOf[T any](a *api, service serviceType, title, resource string, id func(T) string) inventory.Source[string, T] {
	all := strings.ReplaceAll(path.Base(resource), "-", "_")
	return inventory.Source[string, T]{
		Kind: title, ID: id,
		List: func(ctx context.Context) ([]T, int, error) {
			return listAll[T](ctx, a, service, resource, all, listQuery())
		},
		Get: func(ctx context.Context, wanted string) (v T, err error) {
			isIt := func(v *T) bool { return id(*v) == wanted }
			found, err := get(ctx, a, service, "reading "+title+" "+wanted, resource+"/"+wanted, strings.TrimSuffix(all, "s"), isIt)
			if err == nil {
				v = *found
			}
			return v, err
		},
	}
}

// listAll reads every page. A page without the expected key is an error, not an empty page.
func listAll[T any](ctx context.Context, a *api, service serviceType, resource, key string, query url.Values) ([]T, int, error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	return allPages(ctx, listing, a, service, resource, key, query, func([]T) {})
}

// listLarge is listAll for large pages: keep drops most of each page.
func listLarge[T any](
	ctx context.Context, a *api, service serviceType, resource, key string, query url.Values, keep func(page []T),
) ([]T, int, error) {
	ctx, listing := cloudapi.WatchLargeListing(ctx)
	return allPages(ctx, listing, a, service, resource, key, query, keep)
}

func allPages[T any](
	ctx context.Context, listing *cloudapi.Listing, a *api, service serviceType, resource, key string, query url.Values, keep func(page []T),
) ([]T, int, error) {
	var all []T
	for pages := 1; ; pages++ {
		doing := fmt.Sprintf("listing %s, page %d", key, pages)
		items, next, err := onePage[T](ctx, a, service, doing, resource, key, query)
		if err == nil {
			err = listing.Add(len(items))
		}
		if err != nil {
			return nil, pages, err
		}
		keep(items)
		all = append(all, items...)
		if next == nil || len(items) == 0 {
			return all, pages, nil
		}
		query = next
	}
}

// onePage reads one page and returns the query of the next. It follows only the query of a link, because behind a proxy the host of the
// link may be unreachable.
func onePage[T any](
	ctx context.Context, a *api, service serviceType, doing, resource, key string, query url.Values,
) ([]T, url.Values, error) {
	client, err := a.service(ctx, service)
	if err != nil {
		return nil, nil, err
	}
	type page struct {
		items []T
		next  url.Values
	}
	p, err := call(ctx, doing, func(ctx context.Context) (page, error) {
		var answer map[string]json.RawMessage
		address := client.ServiceURL(resource)
		if len(query) > 0 {
			address += "?" + query.Encode()
		}
		if err := fetch(
			ctx, client, http.MethodGet, address, &gophercloud.RequestOpts{OkCodes: []int{http.StatusOK}, JSONResponse: &answer},
		); err != nil {
			return page{}, err
		}
		var p page
		if list, ok := answer[key]; !ok || string(list) == "null" {
			return p, errWrongAnswer
		} else if err := json.Unmarshal(list, &p.items); err != nil {
			return p, fmt.Errorf("%w: %w", errWrongAnswer, err)
		}
		p.next, err = nextPage(answer[key+"_links"])
		return p, err
	})
	return p.items, p.next, err
}

func nextPage(links json.RawMessage) (url.Values, error) {
	if len(links) == 0 {
		return nil, nil //nolint:nilnil // there is no next page
	}
	var list []struct{ Rel, Href string }
	if err := json.Unmarshal(links, &list); err != nil {
		return nil, fmt.Errorf("%w: %w", errWrongAnswer, err)
	}
	for _, l := range list {
		if l.Rel == "next" {
			next, err := url.Parse(l.Href)
			if err != nil {
				return nil, fmt.Errorf("%w: %w", errWrongAnswer, err)
			}
			return next.Query(), nil
		}
	}
	return nil, nil //nolint:nilnil // there is no next page
}

// listQuery returns the query of a listing.
func listQuery(filters ...string) url.Values {
	q := url.Values{"limit": {strconv.Itoa(pageSize)}}
	for i := 0; i+1 < len(filters); i += 2 {
		q.Add(filters[i], filters[i+1])
	}
	return q
}
