package photon

import (
	"context"
	"encoding/json"
	"errors"
	"math"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath    = "/openidconnect/token"
	scope        = "openid offline_access rs_photon_platform at_groups"
	httpsPort    = 443
	checkAddress = "check target, dialect and proxies"

	// Error codes that need special handling.
	codeVMNotFound, codePageExpired, codeNoToken = "VmNotFound", "PageExpired", "MissingAuthToken"
)

// limits of calls: the API publishes none and has few workers.
var limits = []cloudapi.Limit{{PerSecond: 50, Burst: 100}}

// dialect is a generation of the API: the prefix of its paths, the path about authentication, and the form of its answer.
type dialect struct {
	name, root, auth string

	Endpoint string `json:"endpoint"`
	Port     int    `json:"port"`
}

// dialects are in the order of detection, newest first.
func dialects() []dialect {
	return []dialect{
		{name: dialectNew, root: "/v1", auth: "/v1/system/auth"}, {name: dialectInterim, root: "/v1", auth: "/v1/auth"}, {name: dialectOld, auth: "/auth"},
	}
}

// api is a client of Photon Controller: login and reads.
type api struct {
	http   *restapi.Client
	config Config
	keeper *session.Keeper[login, restapi.Tokens]
	// spoken caches the detected dialect.
	spoken *inventory.Inventory[string, dialect]
	// tasks waits for tasks; slots limit those in progress.
	tasks *waiting.Room[string, task]
	slots chan struct{}
	// oldest: servers before 1.0 call subnets networks.
	oldest atomic.Bool
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	client, err := restapi.New(restapi.Config{
		Config: cloudapi.Config{
			Provider: Name, UserAgent: "anyccm/" + in.Version, Limits: limits, Operation: restapi.Operations(
				tokenPath, "/auth", "/projects/{id}/vms", "/projects/{id}", "/vms/{id}/subnets", "/vms/{id}/networks", "/vms/{id}", "/tasks/{id}"),
		},
		Trust: c.trust(), Server: "the API", CheckAddress: checkAddress, CheckCredentials: "user and password", Refusal: classifyError,
		Untrusted: "set " + keyCAFile + " to the authority that signed it, or " + keyIgnore + " = true, which Kubernetes' own provider had always",
	}, in.Dial)
	if err != nil {
		return nil, err
	}
	a := &api{http: client, config: c, slots: make(chan struct{}, maxTasks)}
	a.spoken = inventory.New(inventory.Source[string, dialect]{Kind: "dialect", ID: func(dialect) string { return Name }, Get: a.probe})
	a.keeper = &session.Keeper[login, restapi.Tokens]{Credentials: c.login, Login: a.login, Renew: a.renew}
	a.tasks = waiting.New(waiting.Each(a.task), waiting.Pace{Least: firstPoll, Most: maxPoll})
	return a, nil
}

// errorBody is the API's error response.
type errorBody struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

func (s errorBody) Error() string { return s.Code }

// codeOf returns the code of an error, "" without one.
func codeOf(err error) string {
	s, _ := errors.AsType[errorBody](err)
	return s.Code
}

// classifyError classifies errors. Only one code proves that a virtual machine does not exist, because wrong paths and dialects are not
// found either.
func classifyError(a restapi.Answer, e *cloudapi.Error) bool {
	var s errorBody
	if a.Status < http.StatusMultipleChoices || !a.JSON || json.Unmarshal(a.Body, &s) != nil {
		return false
	}
	e.Cause, e.Message = s, restapi.Text(s.Code, s.Message)
	if s.Code == codeNoToken {
		e.Message += "; set authentication = true"
	}
	if errors.Is(e.Class, cloudapi.ErrNotFound) && s.Code != codeVMNotFound {
		e.Class = cloudapi.ErrTransient
	}
	return true
}

// probe detects the API's dialect. It needs no token; a server of another dialect answers "not found", or asks for a token.
func (a *api) probe(ctx context.Context, _ string) (dialect, error) {
	var tried []error
	for _, d := range dialects() {
		if a.config.Dialect != dialectAuto && a.config.Dialect != d.name {
			continue
		}
		err := a.http.Get(ctx, "asking for authentication at "+d.auth, a.config.Target+d.auth, "", &d)
		if err == nil {
			klog.InfoS("Photon Controller speaks", "dialect", d.name)
			return d, nil
		}
		tried = append(tried, err)
	}
	return dialect{}, cloudapi.Unclear("finding out the dialect of the API", "none of its paths is answered: %s", errors.Join(tried...))
}

func (a *api) dialect(ctx context.Context) (dialect, error) {
	return a.spoken.Get(ctx, Name, inventory.Query{MaxAge: math.MaxInt64})
}

// get reads one document. Relative paths start below the API's root, but links between pages may include it.
func (a *api) get(ctx context.Context, what, path string, out any) error {
	d, err := a.dialect(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(path, d.root+"/") {
		path = d.root + path
	}
	read := func(t restapi.Tokens) error { return a.http.Get(ctx, what, a.config.Target+path, t.Access, out) }
	if !a.config.Authentication {
		return read(restapi.Tokens{})
	}
	return a.keeper.Do(ctx, read)
}

// login requests tokens from Lightwave, whose address the API returns.
func (a *api) login(ctx context.Context, l login) (restapi.Tokens, error) {
	return a.requestTokens(ctx, "logging in", url.Values{
		"grant_type": {"password"}, "username": {l.user}, "password": {l.password}, "scope": {scope},
	})
}

// renew requests tokens without the password.
func (a *api) renew(ctx context.Context, t restapi.Tokens) (restapi.Tokens, error) {
	if t.Refresh == "" {
		return t, session.ErrRefused
	}
	renewed, err := a.requestTokens(ctx, "renewing the token", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {t.Refresh}})
	if err == nil && renewed.Refresh == "" {
		renewed.Refresh = t.Refresh
	}
	return renewed, err
}

func (a *api) requestTokens(ctx context.Context, what string, form url.Values) (restapi.Tokens, error) {
	d, err := a.dialect(ctx)
	if err != nil {
		return restapi.Tokens{}, err
	}
	if d.Endpoint == "" {
		return restapi.Tokens{}, cloudapi.Unclear(what, "the API names no place to log in; set authentication = false if it needs no login")
	}
	if d.Port == 0 {
		d.Port = httpsPort
	}
	return a.http.Login(ctx, what, "https://"+net.JoinHostPort(d.Endpoint, strconv.Itoa(d.Port))+tokenPath, form)
}
