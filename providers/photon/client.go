package photon

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// limits of calls to the API, which publishes none and has few workers.
var limits = []cloudapi.Limit{{PerSecond: 50, Burst: 100}}

const (
	tokenPath = "/openidconnect/token"
	scope     = "openid offline_access rs_photon_platform at_groups"
	httpsPort = 443
)

// dialect is a generation of the API: what is before its paths, and where it tells about authentication.
type dialect struct{ name, root, auth string }

// dialects are in the order in which they are asked for, newest first.
func dialects() []dialect {
	return []dialect{{dialectNew, "/v1", "/v1/system/auth"}, {dialectInterim, "/v1", "/v1/auth"}, {dialectOld, "", "/auth"}}
}

// authInfo is what the API tells about authentication to everybody.
type authInfo struct {
	Endpoint string `json:"endpoint"`
	Port     int    `json:"port"`
}

// tokens are those of one login. They are empty where there is no authentication.
type tokens struct{ access, refresh string }

// api is the part of Photon Controller that is used: a login, and reads.
type api struct {
	http   *cloudapi.Client
	config Config
	keeper *session.Keeper[login, *tokens]
	// tasks is where tasks are waited for, and slots are held by those that are under way.
	tasks *waiting.Room[string, task]
	slots chan struct{}

	// probing is held by whoever asks for the dialect.
	probing chan struct{}
	mu      sync.Mutex
	dialect *dialect
	info    authInfo
	// oldest is set for servers before 1.0, whose word for subnets is networks.
	oldest atomic.Bool
}

func newAPI(c Config, in registry.Inputs) (*api, error) {
	pool, err := roots(c)
	if err != nil {
		return nil, err
	}
	t := cloudapi.NewTransport(in.Dial)
	t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool}
	t.TLSClientConfig.InsecureSkipVerify = c.IgnoreCertificate // the operator's choice
	a := &api{config: c, probing: make(chan struct{}, 1), slots: make(chan struct{}, maxTasks)}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, Limits: limits, Transport: t, ClassOf: classOf,
	})
	a.keeper = &session.Keeper[login, *tokens]{Credentials: c.login, Login: a.login, Renew: a.renew}
	if !c.Authentication {
		a.keeper.Credentials = func() (login, error) { return login{}, nil }
		a.keeper.Login = func(context.Context, login) (*tokens, error) { return &tokens{}, nil }
		a.keeper.Renew = nil
	}
	a.tasks = waiting.New(waiting.Each(a.task), waiting.Pace{Least: firstPoll, Most: maxPoll})
	return a, nil
}

var identified = regexp.MustCompile(`^(/v1)?/(vms|tasks|projects)/[^/]+(/vms|/subnets|/networks)?$`)

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	switch path := r.URL.Path; {
	case path == tokenPath:
		return r.Method + " " + path
	case slices.ContainsFunc(dialects(), func(d dialect) bool { return strings.HasSuffix(path, d.auth) }):
		return r.Method + " /auth"
	default:
		if match := identified.FindStringSubmatch(path[max(strings.LastIndex(path, "/v1/"), 0):]); match != nil {
			return r.Method + " /" + match[2] + "/{id}" + match[3]
		}
	}
	return cloudapi.OtherOperation
}

// classOf tells a refused login from a bad request.
func classOf(status int, body []byte) error {
	var said struct {
		Error string `json:"error"`
	}
	if status == http.StatusBadRequest && json.Unmarshal(body, &said) == nil && said.Error == "invalid_grant" {
		return cloudapi.ErrUnauthorized
	}
	return nil
}

// probe finds out which dialect the API speaks, once. The question needs no token; a server without that path does not find it, or wants
// a token.
func (a *api) probe(ctx context.Context) (dialect, authInfo, error) {
	select {
	case a.probing <- struct{}{}:
		defer func() { <-a.probing }()
	case <-ctx.Done():
		return dialect{}, authInfo{}, fmt.Errorf("waiting for the dialect of the API: %w", ctx.Err())
	}
	a.mu.Lock()
	known, info := a.dialect, a.info
	a.mu.Unlock()
	if known != nil {
		return *known, info, nil
	}
	var tried []error
	for _, d := range dialects() {
		if a.config.Dialect != dialectAuto && a.config.Dialect != d.name {
			continue
		}
		err := a.send(ctx, "asking for authentication at "+d.auth, a.config.Target+d.auth, "", &info)
		if err == nil {
			klog.InfoS("Photon Controller speaks", "dialect", d.name)
			a.mu.Lock()
			defer a.mu.Unlock()
			a.dialect, a.info = &d, info
			return d, info, nil
		}
		tried = append(tried, err)
	}
	err := cloudapi.Unclear("finding out the dialect of the API", "none of its paths is answered: %s", errors.Join(tried...))
	return dialect{}, authInfo{}, err
}

// send makes a call with a token, or without one where that is "".
func (a *api) send(ctx context.Context, what, address, token string, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Accept", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return cloudapi.Unanswered(err, what, untrusted)
	}
	defer answer.Body.Close()
	return read(answer, what, out)
}

// get reads one document. path begins below the root of the API, unless it has that already, as links between pages do.
func (a *api) get(ctx context.Context, what, path string, out any) error {
	d, _, err := a.probe(ctx)
	if err != nil {
		return err
	}
	if !strings.HasPrefix(path, d.root+"/") {
		path = d.root + path
	}
	return a.keeper.Do(ctx, func(t *tokens) error { return a.send(ctx, what, a.config.Target+path, t.access, out) })
}

// login asks Lightwave for tokens, which the API names.
func (a *api) login(ctx context.Context, l login) (*tokens, error) {
	return a.askTokens(ctx, "logging in", url.Values{
		"grant_type": {"password"}, "username": {l.user}, "password": {l.password}, "scope": {scope},
	})
}

// renew asks for tokens without the password.
func (a *api) renew(ctx context.Context, t *tokens) (*tokens, error) {
	if t.refresh == "" {
		return nil, session.ErrRefused
	}
	renewed, err := a.askTokens(ctx, "renewing the token", url.Values{"grant_type": {"refresh_token"}, "refresh_token": {t.refresh}})
	if err == nil && renewed.refresh == "" {
		renewed.refresh = t.refresh
	}
	return renewed, err
}

func (a *api) askTokens(ctx context.Context, what string, form url.Values) (*tokens, error) {
	_, info, err := a.probe(ctx)
	if err != nil {
		return nil, err
	}
	if info.Endpoint == "" {
		return nil, cloudapi.Unclear(what, "the API names no place to log in; set authentication = false if it needs no login")
	}
	if info.Port == 0 {
		info.Port = httpsPort
	}
	address := "https://" + net.JoinHostPort(info.Endpoint, strconv.Itoa(info.Port)) + tokenPath
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, cloudapi.Unclear(what, "the API names %q as the place to log in, which is no host", info.Endpoint)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := a.http.Do(r)
	if err != nil {
		return nil, cloudapi.Unanswered(err, what, untrusted)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	var said struct {
		Access  string `json:"access_token"`
		Refresh string `json:"refresh_token"`
		Error   string `json:"error"`
		Text    string `json:"error_description"`
	}
	broken := json.Unmarshal(body, &said) != nil
	if answer.StatusCode == http.StatusOK && said.Access != "" && !broken {
		return &tokens{said.Access, said.Refresh}, nil
	}
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, Message: "no answer of Lightwave; check proxies"}
	if said.Error != "" {
		text := strings.TrimSuffix(said.Error+": "+said.Text, ": ")
		mapped.Message = text[:min(len(text), maxMessage)]
	}
	if answer.StatusCode == http.StatusUnauthorized || (said.Error != "" && answer.StatusCode < http.StatusInternalServerError) {
		mapped.Class, mapped.Cause = cloudapi.ErrUnauthorized, session.ErrRefused
		mapped.Message += "; check user and password"
	}
	return nil, mapped
}
