package nsx

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	// apiPrefix is the prefix of the policy API.
	apiPrefix = "/policy/api/v1"
	// pageSize is the largest page of NSX.
	pageSize = 1000
)

// callLimits are below NSX's limit for one client, 100 calls a second; others may use the same account.
var callLimits = []cloudapi.Limit{{PerSecond: 50, Burst: 50, Floor: 1}}

// client is the part of NSX's policy API that we use, with the common classes of errors.
type client struct {
	http *cloudapi.Client
	base string
	auth *authorizer
	// oneByOne is set if NSX refuses changes of several objects at once from this account.
	oneByOne atomic.Bool
}

func newClient(c managerConfig, provider string, in registry.Inputs) (*client, error) {
	transport := cloudapi.NewTransport(in.Dial)
	config, err := tlsConfig(c)
	if err != nil {
		return nil, err
	}
	transport.TLSClientConfig = config
	base := c.Host
	if !strings.Contains(base, "://") {
		base = "https://" + base
	}
	base = strings.TrimSuffix(base, "/")
	agent := "anyccm/" + in.Version
	n := &client{base: base, auth: &authorizer{config: c, exchange: cloudapi.NewClient(cloudapi.Config{
		Provider: provider, UserAgent: agent, Dial: in.Dial, Operation: func(*http.Request) string { return "POST token of VMware Cloud" },
		Repeatable: func(*http.Request) bool { return true }, // another token does no harm
	})}}
	n.http = cloudapi.NewClient(cloudapi.Config{
		Provider: provider, UserAgent: agent, Authorize: n.auth.authorize, Hosts: []string{cloudapi.HostOf(base)},
		Operation: operation, Limits: callLimits, ClassOf: classOf, Transport: transport, Repeatable: isRepeatable,
	})
	return n, nil
}

// isRepeatable reports whether the transport may repeat a request of unknown outcome. A creation may take effect later, which its caller
// must know.
func isRepeatable(r *http.Request) bool {
	return r.Method != http.MethodPost && r.Method != http.MethodPatch
}

func tlsConfig(c managerConfig) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: c.Insecure} //nolint:gosec // the operator asked for it
	if c.CAFile != "" {
		config.RootCAs = x509.NewCertPool()
		for name := range strings.SplitSeq(c.CAFile, ":") {
			roots, err := os.ReadFile(name)
			if err != nil {
				return nil, fmt.Errorf("section nsxt: reading caFile: %w", err)
			}
			if !config.RootCAs.AppendCertsFromPEM(roots) {
				return nil, fmt.Errorf("section nsxt: caFile %s holds no certificate in PEM form", name)
			}
		}
	}
	if c.ClientCertFile != "" {
		if _, err := tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKeyFile); err != nil {
			return nil, fmt.Errorf("section nsxt: reading the client certificate: %w", err)
		}
		// It is read for each connection, so that a renewed one is used without a restart.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(c.ClientCertFile, c.ClientKeyFile)
			return &pair, err
		}
	}
	return config, nil
}

// collections are the parts of paths before an ID.
var collections = []string{
	"lb-services", "lb-virtual-servers", "lb-pools", "lb-monitor-profiles", "lb-app-profiles", "ip-pools", "ip-allocations", "tier-1s",
	"static-routes",
}

// operation names a request without identifiers, for metrics and logs.
func operation(r *http.Request) string {
	path, ours := strings.CutPrefix(r.URL.Path, apiPrefix+"/infra")
	if !ours {
		return r.Method + " " + cloudapi.OtherOperation
	}
	parts := strings.Split(path, "/")
	for i := 1; i < len(parts); i++ {
		switch {
		case slices.Contains(collections, parts[i-1]):
			parts[i] = "{id}"
		case parts[i] != "realized-state" && parts[i] != "realized-entities" && !slices.Contains(collections, parts[i]):
			return r.Method + " " + cloudapi.OtherOperation
		}
	}
	return r.Method + " " + apiPrefix + "/infra" + strings.Join(parts, "/")
}

// call makes one call. doing names it in errors, such as "listing virtual servers". A refused credential is fetched again once, if it may
// have changed.
func (n *client) call(ctx context.Context, doing, method, path string, in, out any) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("%s: %w", doing, err)
		}
	}
	if err := n.auth.ensureFresh(ctx); err != nil {
		return cloudapi.Describe(err, doing)
	}
	used := n.auth.currentHeader()
	err := n.send(ctx, doing, method, path, body, out)
	refused, ok := errors.AsType[*cloudapi.Error](err)
	if !ok || refused.Status != http.StatusUnauthorized || !n.auth.isRenewable() {
		return err
	}
	n.auth.expire()
	if again := n.auth.ensureFresh(ctx); again != nil || n.auth.currentHeader() == used {
		return err // the same one would be refused again, and count as a failed login
	}
	return n.send(ctx, doing, method, path, body, out)
}

func (n *client) send(ctx context.Context, doing, method, path string, body []byte, out any) error {
	r, err := http.NewRequestWithContext(ctx, method, n.base+apiPrefix+path, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("%s: %w", doing, err)
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	} else {
		r.Body, r.ContentLength = http.NoBody, 0
	}
	answer, err := n.http.Do(r)
	if err != nil {
		return cloudapi.Describe(err, doing)
	}
	defer answer.Body.Close()
	return readAnswer(answer, doing, out)
}

// readAnswer decodes a response, or returns one of the common error classes. Without out, no content is expected.
func readAnswer(answer *http.Response, doing string, out any) error {
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return cloudapi.Describe(err, doing)
	}
	if answer.StatusCode >= http.StatusBadRequest {
		return responseError(answer, doing, body)
	}
	if out == nil {
		if len(bytes.TrimSpace(body)) == 0 || json.Valid(body) {
			return nil
		}
		err = errors.New("a page instead of an answer")
	} else {
		err = json.Unmarshal(body, out)
	}
	if err == nil {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrTransient, Operation: doing, Status: answer.StatusCode,
		Message: "the answer is not that of NSX; check the host of the section nsxt, and proxies", Cause: err,
	}
}

// listObjects reads every page of a collection. Objects that NSX is deleting are left out.
func listObjects[V any, T objectOf[V]](ctx context.Context, n *client, kind, path string) (all []T, pages int, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	doing, cursor, stated := "listing "+kind+"s", "", 0
	for number := 1; ; number++ {
		query := url.Values{"page_size": {strconv.Itoa(pageSize)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		var page struct {
			Results *[]json.RawMessage `json:"results"`
			Count   *int               `json:"result_count"`
			Cursor  string             `json:"cursor"`
		}
		err = n.call(ctx, doing, http.MethodGet, path+"?"+query.Encode(), nil, &page)
		if err == nil && page.Results == nil && (orZero(page.Count) > 0 || page.Count == nil) {
			err = incompleteError(doing, "the answer is not a listing")
		}
		if err == nil {
			err = listing.Add(len(orZero(page.Results)))
		}
		if err != nil {
			return nil, number, cloudapi.NotAbsence(err)
		}
		stated = max(stated, orZero(page.Count))
		for _, raw := range orZero(page.Results) {
			one := T(new(V))
			if err := decodeObject(raw, one); err != nil || one.common().ID == "" {
				return nil, number, incompleteError(doing, "an object cannot be read")
			}
			all = append(all, one)
		}
		if page.Cursor == "" {
			if len(all) < stated {
				return nil, number, incompleteError(doing, fmt.Sprintf("%d of %d objects on %d pages", len(all), stated, number))
			}
			return slices.DeleteFunc(all, func(o T) bool { return o.common().Deleted }), number, nil
		}
		if err := listing.Turn(page.Cursor); err != nil {
			return nil, number, err
		}
		cursor = page.Cursor
	}
}

func incompleteError(doing, what string) error {
	return cloudapi.Unclear(doing, "the listing broke off: %s", what)
}

// readObject reads one object. One that NSX is deleting does not exist any more.
func readObject[V any, T objectOf[V]](ctx context.Context, n *client, kind, path string) (T, error) {
	return exchangeObject[V, T](ctx, n, "reading "+kind+" "+path, http.MethodGet, path, nil)
}

// replaceObject creates an object, or replaces it if its revision is the present one.
func replaceObject[V any, T objectOf[V]](ctx context.Context, n *client, kind, path string, o T) (T, error) {
	body, err := encodeObject(o)
	if err != nil {
		return nil, err
	}
	return exchangeObject[V, T](ctx, n, "writing "+kind+" "+path, http.MethodPut, path, body)
}

func exchangeObject[V any, T objectOf[V]](ctx context.Context, n *client, doing, method, path string, in any) (T, error) {
	var raw json.RawMessage
	if err := n.call(ctx, doing, method, path, in, &raw); err != nil {
		return nil, err
	}
	one := T(new(V))
	if err := decodeObject(raw, one); err != nil || one.common().ID != path[strings.LastIndex(path, "/")+1:] {
		return nil, cloudapi.Unclear(doing, "the answer is about another object")
	}
	if one.common().Deleted && method == http.MethodGet {
		return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: doing, Message: "it is being deleted"}
	}
	return one, nil
}

// patch creates an object, or changes the sent fields.
func (n *client) patch(ctx context.Context, kind, path string, o object) error {
	body, err := encodeObject(o)
	if err != nil {
		return err
	}
	return n.call(ctx, "writing "+kind+" "+path, http.MethodPatch, path, body, nil)
}

// remove deletes an object; a missing one is no error.
func (n *client) remove(ctx context.Context, kind, path string) error {
	err := n.call(ctx, "deleting "+kind+" "+path, http.MethodDelete, path, nil, nil)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

// readRealized reads the realized state of an object.
func (n *client) readRealized(ctx context.Context, path string) (list []realizedEntity, err error) {
	var page struct {
		Results *[]realizedEntity `json:"results"`
	}
	doing := "reading the realized state of " + path
	err = n.call(ctx, doing, http.MethodGet, "/infra/realized-state/realized-entities?"+url.Values{"intent_path": {path}}.Encode(), nil, &page)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil // it appears after a moment
	}
	if err == nil && page.Results == nil {
		err = incompleteError(doing, "no results")
	}
	for _, e := range orZero(page.Results) {
		if slices.Contains(e.IntentPaths, path) {
			list = append(list, e)
		}
	}
	return list, err
}

// childNames are the fields of a change tree with objects of a kind.
var childNames = map[string]string{
	typeService: "LBService", typeVirtualServer: "LBVirtualServer", typePool: "LBPool", typeTCPMonitor: "LBMonitorProfile",
}

// patchTree creates several objects by one call, all or none.
func (n *client) patchTree(ctx context.Context, doing string, objects []object) error {
	children := make([]map[string]any, 0, len(objects))
	for _, o := range objects {
		body, err := encodeObject(o)
		if err != nil {
			return err
		}
		name := childNames[o.common().ResourceType]
		children = append(children, map[string]any{"resource_type": "Child" + name, name: body})
	}
	return n.call(ctx, doing, http.MethodPatch, "/infra", map[string]any{"resource_type": "Infra", "children": children}, nil)
}

func orZero[T any](p *T) (zero T) {
	if p == nil {
		return zero
	}
	return *p
}

// realizedState returns the realized state of an object, and its error.
func (n *client) realizedState(ctx context.Context, path string) (state, why string, err error) {
	entities, err := n.readRealized(ctx, path)
	for _, e := range entities {
		switch e.State {
		case stateError:
			return stateError, e.alarms(), nil
		case stateRealized:
			if state == "" {
				state = stateRealized
			}
		default:
			state = e.State
		}
	}
	return state, "", err
}

// createObjects writes new objects: together if there are several and NSX allows that, else one after the other.
func (n *client) createObjects(ctx context.Context, objects []object) error {
	if len(objects) > 1 && !n.oneByOne.Load() {
		err := n.patchTree(ctx, "creating a load balancer", objects)
		said, ok := errors.AsType[*cloudapi.Error](err)
		if !ok || !slices.Contains([]int{http.StatusForbidden, http.StatusNotFound, http.StatusMethodNotAllowed}, said.Status) {
			return err
		}
		klog.InfoS("NSX does not let this account change several objects at once; they are created one after the other", "reason", err.Error())
		n.oneByOne.Store(true)
	}
	for _, x := range objects {
		if err := n.patch(ctx, kindOf(x), pathOf(x), x); err != nil {
			return err
		}
	}
	return nil
}
