package cloudstack

import (
	"context"
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // the API knows no other
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// signatureLife is the validity of a signed call.
	signatureLife = 15 * time.Minute
	// settingsMaxAge is for the version and the ID of the project.
	settingsMaxAge = 12 * time.Hour
	// attemptTimeout bounds a call: a page of 500 virtual machines takes the API seconds.
	attemptTimeout = 30 * time.Second
)

// limits stay below CloudStack's own limit of 25 calls a second for an account, which others may use too.
var limits = []cloudapi.Limit{{PerSecond: 12, Burst: 10}}

// params holds a command's parameters. Empty values are not sent.
type params map[string]string

type api struct {
	http   *cloudapi.Client
	config Config
	jobs   *jobs
	// settings holds the ID of the project and the version.
	settings *inventory.Inventory[string, setting]
}

type setting struct{ name, value string }

const (
	settingProject = "project"
	settingVersion = "version"
)

func newAPI(c Config, in registry.Inputs) (*api, error) {
	transport := cloudapi.NewTransport(in.Dial)
	var err error
	if transport.TLSClientConfig, err = c.trust().TLS(); err != nil {
		return nil, err
	}
	a := &api{config: c, http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, Limits: limits, Transport: transport, Timeout: attemptTimeout,
	})}
	a.jobs = newJobs(a)
	a.settings = inventory.New(inventory.Source[string, setting]{
		Kind: "setting", ID: func(s setting) string { return s.name }, Get: a.setting,
	})
	return a, nil
}

// commandKey is the context key of a request's command, which may be in its body.
type commandKey struct{}

func operation(r *http.Request) string {
	command, _ := r.Context().Value(commandKey{}).(string)
	if slices.ContainsFunc(permissions(), func(p registry.Permission) bool { return slices.Contains(p.Needs, command) }) {
		return command
	}
	return cloudapi.OtherOperation
}

// sign returns the encoded parameters of a call with the signature.
func sign(secret string, p params) string {
	names := slices.Sorted(maps.Keys(p))
	pairs := make([]string, len(names))
	for i, name := range names {
		pairs[i] = name + "=" + escape(p[name])
	}
	query := strings.Join(pairs, "&")
	mac := hmac.New(sha1.New, []byte(secret))
	_, _ = mac.Write([]byte(strings.ToLower(query))) // never fails
	return query + "&signature=" + url.QueryEscape(base64.StdEncoding.EncodeToString(mac.Sum(nil)))
}

// escape encodes a value as the server does before it verifies the signature.
func escape(v string) string {
	return strings.NewReplacer("+", "%20", "%2A", "*", "~", "%7E").Replace(url.QueryEscape(v))
}

// call sends one command and decodes the response.
func (a *api) call(ctx context.Context, what, command string, p params, out any) error {
	signed := params{
		"command": command, "apiKey": a.config.APIKey.Reveal(), "response": "json", "signatureversion": "3",
		"expires": time.Now().Add(a.clockOffset()).Add(signatureLife).UTC().Format("2006-01-02T15:04:05Z"),
	}
	for name, value := range p {
		if value != "" {
			signed[name] = value
		}
	}
	text := sign(a.config.SecretKey.Reveal(), signed)
	ctx = context.WithValue(ctx, commandKey{}, command)
	method, address, body := http.MethodPost, a.config.URL, text
	if strings.HasPrefix(command, "list") || strings.HasPrefix(command, "query") {
		method, address, body = http.MethodGet, a.config.URL+"?"+text, ""
	}
	r, err := http.NewRequestWithContext(ctx, method, address, strings.NewReader(body))
	if err != nil {
		return cloudapi.Unclear(what, "api-url is no address")
	}
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	answer, err := a.http.Do(r)
	if err != nil {
		return cloudapi.Unanswered(err, what, "set "+keyCAFile+" to the authority that signed it, or [Global] ssl-no-verify = true")
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(answer.Body) // bounded by the client
	if err != nil {
		return cloudapi.Describe(err, what)
	}
	inner, err := readResponse(answer, content, what, command, p["id"])
	if err != nil {
		return err
	}
	if err := json.Unmarshal(inner, out); err != nil {
		return cloudapi.Unclear(what, "the answer is not that of the API; %s", checkAddress)
	}
	return nil
}

// clockOffset returns how far the cloud's clock is ahead of ours. It affects the expiry of signatures.
func (a *api) clockOffset() time.Duration {
	skew, known := a.http.ClockSkew()
	if !known {
		return 0
	}
	return -skew
}

type listing struct {
	what, command string
	// key is the objects' key in the response.
	key string
	// scope lists the project's objects, or all that the user may see.
	scope bool
}

type page[T any] struct {
	count int
	items []T
}

// list reads a complete listing or fails. The first page is requested without a size, so its length is the maximum page size.
func list[T any](ctx context.Context, a *api, l listing, p params) (all []T, calls int, err error) {
	p = maps.Clone(p)
	if p == nil {
		p = params{}
	}
	if l.scope {
		project, err := a.project(ctx)
		if err != nil {
			return nil, 0, err
		}
		p["listall"], p["projectid"] = "true", project
	}
	ctx, watch := cloudapi.WatchListing(ctx)
	first, err := readPage[T](ctx, a, l, p)
	if err != nil {
		return nil, 1, err
	}
	all, calls = first.items, 1
	if size := len(first.items); first.count > size && size > 0 {
		p["pagesize"] = strconv.Itoa(size)
		rest, err := cloudapi.ReadPages(ctx, 2, (first.count+size-1)/size, func(ctx context.Context, number int) (page[T], error) {
			numbered := maps.Clone(p)
			numbered["page"] = strconv.Itoa(number)
			return readPage[T](ctx, a, l, numbered)
		})
		if err != nil {
			return nil, calls, err
		}
		for _, next := range rest {
			calls++
			all = append(all, next.items...)
		}
	}
	if len(all) != first.count {
		return nil, calls, cloudapi.Unclear(l.what, "the listing broke off, or changed meanwhile: %d of %d objects", len(all), first.count)
	}
	return all, calls, watch.Add(len(all))
}

func readPage[T any](ctx context.Context, a *api, l listing, p params) (page[T], error) {
	var inner map[string]json.RawMessage
	if err := a.call(ctx, l.what, l.command, p, &inner); err != nil {
		return page[T]{}, err
	}
	var got page[T]
	count, counted := inner["count"]
	objects, shown := inner[l.key]
	if len(inner) == 0 {
		return got, nil // this means an empty listing
	}
	if !counted || json.Unmarshal(count, &got.count) != nil || (shown && json.Unmarshal(objects, &got.items) != nil) {
		return got, cloudapi.Unclear(l.what, "the answer is not that of the API; %s", checkAddress)
	}
	return got, nil
}

// listOnce is list for objects that must not repeat. Deletions during the listing move entries to other pages.
func listOnce[T any](ctx context.Context, a *api, l listing, p params, id func(T) string) ([]T, int, error) {
	all, calls, err := list[T](ctx, a, l, p)
	seen := make(map[string]struct{}, len(all))
	for _, v := range all {
		seen[id(v)] = struct{}{}
	}
	if err == nil && len(seen) != len(all) {
		return nil, calls, cloudapi.Unclear(l.what, "the listing changed while it was read: objects came twice")
	}
	return all, calls, err
}

var uuidForm = regexp.MustCompile(`^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`)

// project returns the ID of the project, or "".
func (a *api) project(ctx context.Context) (string, error) {
	if a.config.Project == "" || uuidForm.MatchString(a.config.Project) {
		return a.config.Project, nil
	}
	s, err := a.cachedSetting(ctx, settingProject)
	return s.value, err
}

// cachedSetting reads a setting once. A lost creation (services.Creations) is no reason to read it again.
func (a *api) cachedSetting(ctx context.Context, name string) (setting, error) {
	s, err := a.settings.Get(inventory.NotBefore(ctx, time.Time{}), name, inventory.Query{MaxAge: settingsMaxAge})
	return s, cloudapi.NotAbsence(err)
}

func (a *api) setting(ctx context.Context, name string) (setting, error) {
	if name == settingProject {
		return a.findProject(ctx, a.config.Project)
	}
	var said struct {
		Capability struct {
			Version string `json:"cloudstackversion"`
		} `json:"capability"`
	}
	err := a.call(ctx, "reading the version of CloudStack", "listCapabilities", nil, &said)
	switch {
	case isDenied(err):
		klog.InfoS("The role of the user may not read the version of CloudStack; networks that may reach a load balancer change by making its rules again",
			"option", "[Global] version")
	case err != nil:
		return setting{}, err
	}
	return setting{settingVersion, said.Capability.Version}, nil
}

func (a *api) findProject(ctx context.Context, name string) (setting, error) {
	type project struct {
		ID   string `json:"id"`
		Name string `json:"name"`
	}
	l := listing{what: "looking for project " + name, command: "listProjects", key: "project"}
	all, _, err := list[project](ctx, a, l, params{"listall": "true", "name": name})
	if err != nil {
		return setting{}, err
	}
	all = slices.DeleteFunc(all, func(p project) bool { return p.Name != name })
	if len(all) != 1 || all[0].ID == "" {
		return setting{}, cloudapi.Unclear(l.what, "%d projects that the user sees have this name; set project-id to the ID of one", len(all))
	}
	return setting{settingProject, all[0].ID}, nil
}

// changesNetworks reports whether the networks of a rule can be changed, as since CloudStack 4.22.
func (a *api) changesNetworks(ctx context.Context) (bool, error) {
	version := a.config.Version
	if version == "" {
		s, err := a.cachedSetting(ctx, settingVersion)
		if err != nil {
			return false, err
		}
		version = s.value
	}
	return atLeast(version, 4, 22), nil
}

// atLeast compares the first two numbers of a version. An unknown version counts as older.
func atLeast(version string, major, minor int) bool {
	match := versionForm.FindStringSubmatch(version)
	if match == nil {
		return false
	}
	x, _ := strconv.Atoi(match[1])
	y, _ := strconv.Atoi(match[2])
	return x > major || (x == major && y >= minor)
}

// check reads the project, and the version if it is not configured.
func (a *api) check(ctx context.Context) error {
	if _, err := a.project(ctx); err != nil {
		return fmt.Errorf("project-id: %w", err)
	}
	_, err := a.changesNetworks(ctx)
	return err
}
