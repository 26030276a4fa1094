package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// Cloud is a simulated cloud in a process of its own, seen through its admin path. For a provider without a cloud outside of the
// cluster there is no process: see inCluster.
type Cloud struct {
	*controlplane.Process
	URL string

	inCluster *inCluster
}

// InCluster reports whether there is no cloud outside of the cluster.
func (c *Cloud) InCluster() bool { return c.inCluster != nil }

// Calls are the counts of calls that the cloud saw.
type Calls struct {
	Total       int            `json:"total"`
	Reads       int            `json:"reads"`
	Writes      int            `json:"writes"`
	ByOperation map[string]int `json:"byOperation"`
	Refused     []string       `json:"refused"`
}

// Instance is a machine of the cloud.
type Instance struct {
	Name       string `json:"name"`
	ProviderID string `json:"providerID"`
	Status     string `json:"status"`
}

// Summary lists the cloud's objects.
type Summary struct {
	Instances []Instance `json:"instances"`
	Holdings  []string   `json:"holdings"`
}

// Fault makes calls fail; the fields are those of the simulators' admin path.
type Fault struct {
	Kind       string `json:"kind"`
	Status     int    `json:"status,omitempty"`
	RetryAfter int    `json:"retryAfter,omitempty"`
	Operation  string `json:"operation,omitempty"`
	Names      string `json:"names,omitempty"`
	Writes     bool   `json:"writes,omitempty"`
	From       int    `json:"from,omitempty"`
	Count      int    `json:"count,omitempty"`
}

func (c *Cluster) startCloud(ctx context.Context) (*Cloud, error) {
	known, err := c.describe()
	if err != nil {
		return nil, err
	}
	if len(known.InCluster) > 0 {
		return &Cloud{inCluster: &inCluster{cluster: c, options: known.InCluster}}, nil
	}
	urlFile := filepath.Join(c.Dir, "cloud-url")
	p, err := controlplane.Start(
		"cloudsim", c.Dir, c.Programs.Cloudsim,
		append([]string{"--provider=" + c.Provider, "--url-file=" + urlFile}, c.Options.Cloud...), nil,
	)
	if err != nil {
		return nil, err
	}
	c.processes = append(c.processes, p)
	cloud := &Cloud{Process: p}
	return cloud, Eventually(ctx, startTimeout, "the simulated cloud", func(context.Context) error {
		url, err := os.ReadFile(urlFile)
		cloud.URL = strings.TrimSpace(string(url))
		if err == nil && cloud.URL == "" {
			err = io.ErrUnexpectedEOF
		}
		return err
	})
}

// Call uses the cloud's own API, as its command-line tool does. The answer goes into out unless that is nil.
func (c *Cloud) Call(ctx context.Context, method, path, token string, in, out any) error {
	return c.send(ctx, method, path, token, in, out)
}

// operator is a credential that every simulated cloud accepts.
const operator = "dop_v1_5up3r53cr3tt0k3nf0rt35t5"

// Prepare makes a thing in the cloud that an expectation needs.
func (c *Cloud) Prepare(ctx context.Context, step expectations.Step) error {
	if step.Action != "" {
		return c.Do(ctx, step.Action, step.Body)
	}
	return c.Call(ctx, step.Method, step.Path, operator, step.Body, nil)
}

// State reads everything that the cloud holds.
func (c *Cloud) State(ctx context.Context, out any) error {
	if c.InCluster() {
		return c.inCluster.state(ctx, out)
	}
	return c.admin(ctx, http.MethodGet, "state", nil, out)
}

func (c *Cloud) admin(ctx context.Context, method, path string, in, out any) error {
	return c.send(ctx, method, "/_sim/"+path, "", in, out)
}

func (c *Cloud) send(ctx context.Context, method, path, token string, in, out any) error {
	r := Request{Method: method, Path: path, Headers: map[string]string{}}
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding for the simulated cloud: %w", err)
		}
		r.Body = data
	}
	if token != "" {
		r.Headers["Authorization"] = "Bearer " + token
	}
	data, _, err := c.Send(ctx, r)
	if err != nil || out == nil {
		return err
	}
	return json.Unmarshal(data, out)
}

// Request is a request to the simulated cloud as it goes over the wire.
type Request struct {
	Method, Path string
	Headers      map[string]string
	Body         []byte
}

// Send sends a request as it is, and returns the answer unless it refuses.
func (c *Cloud) Send(ctx context.Context, in Request) ([]byte, http.Header, error) {
	r, err := http.NewRequestWithContext(ctx, in.Method, c.URL+in.Path, bytes.NewReader(in.Body))
	if err != nil {
		return nil, nil, fmt.Errorf("asking the simulated cloud: %w", err)
	}
	for name, value := range in.Headers {
		r.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the simulated cloud: %w", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("asking the simulated cloud: %w", err)
	}
	if resp.StatusCode >= http.StatusBadRequest {
		return nil, nil, fmt.Errorf("the simulated cloud refuses %s: %s", in.Path, data)
	}
	return data, resp.Header, nil
}

// CloudConfig returns the configuration file of a controller for this cloud; empty if it needs none.
func (c *Cloud) CloudConfig(ctx context.Context) (string, error) {
	if c.InCluster() {
		return "", nil
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.URL+"/_sim/cloud-config", nil)
	if err != nil {
		return "", fmt.Errorf("asking for the cloud config: %w", err)
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", fmt.Errorf("asking for the cloud config: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	return string(text), err
}

// Environment returns the variables of a controller for this cloud.
func (c *Cloud) Environment(ctx context.Context) (map[string]string, error) {
	if c.InCluster() {
		return maps.Clone(c.inCluster.options), nil
	}
	env := map[string]string{}
	return env, c.admin(ctx, http.MethodGet, "env", nil, &env)
}

// Calls returns the counts since the last reset.
func (c *Cloud) Calls(ctx context.Context) (Calls, error) {
	if c.InCluster() {
		return c.inCluster.calls(ctx)
	}
	var calls Calls
	return calls, c.admin(ctx, http.MethodGet, "calls", nil, &calls)
}

// ResetCalls sets the counts to zero.
func (c *Cloud) ResetCalls(ctx context.Context) error {
	if c.InCluster() {
		return c.inCluster.reset(ctx)
	}
	return c.admin(ctx, http.MethodDelete, "calls", nil, nil)
}

// Summary returns what the cloud holds.
func (c *Cloud) Summary(ctx context.Context) (Summary, error) {
	var s Summary
	if c.InCluster() {
		var err error
		s.Holdings, err = c.inCluster.holdings(ctx)
		return s, err
	}
	return s, c.admin(ctx, http.MethodGet, "summary", nil, &s)
}

// Seed adds instances that are named on.
func (c *Cloud) Seed(ctx context.Context, n int) error {
	return c.admin(ctx, http.MethodPost, "seed", map[string]int{"instances": n}, nil)
}

// Remove destroys an instance.
func (c *Cloud) Remove(ctx context.Context, name string) error {
	return c.admin(ctx, http.MethodPost, "remove", map[string]string{"name": name}, nil)
}

// Do runs one of the cloud's own actions.
func (c *Cloud) Do(ctx context.Context, action string, body any) error {
	return c.admin(ctx, http.MethodPost, "do/"+action, body, nil)
}

// AddFault makes calls fail until ClearFaults.
func (c *Cloud) AddFault(ctx context.Context, f Fault) error {
	return c.admin(ctx, http.MethodPost, "faults", f, nil)
}

// ClearFaults ends all faults.
func (c *Cloud) ClearFaults(ctx context.Context) error {
	return c.admin(ctx, http.MethodDelete, "faults", nil, nil)
}

// Configure changes settings such as latency and rate limits.
func (c *Cloud) Configure(ctx context.Context, settings map[string]any) error {
	return c.admin(ctx, http.MethodPost, "config", settings, nil)
}
