package oci

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// metadata reads the metadata of the instance on which the program runs.
type metadata struct {
	http *cloudapi.Client
	url  string
}

func newMetadata(c Config, in registry.Inputs) *metadata {
	return &metadata{url: strings.TrimSuffix(c.MetadataURL, "/"), http: cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Timeout: 5 * time.Second, Dial: in.Dial,
		Operation: func(*http.Request) string { return "GET metadata" },
	})}
}

// text reads one value.
func (m *metadata) text(ctx context.Context, path string) (string, error) {
	what := "asking the instance for " + path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Authorization", "Bearer Oracle")
	status, _, text, err := sendAside(m.http, r, what)
	if err == nil && status != http.StatusOK {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Status: status, Message: "it is no instance of this cloud"}
	}
	return string(text), err
}

// sendAside sends a request during a listing without counting as one of its pages.
func sendAside(c *cloudapi.Client, r *http.Request, what string) (status int, header http.Header, text []byte, err error) {
	ctx, _ := cloudapi.WatchListing(r.Context())
	answer, err := c.Do(r.WithContext(ctx))
	if err != nil {
		return 0, nil, nil, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	if text, err = io.ReadAll(answer.Body); err != nil {
		err = cloudapi.Describe(err, what)
	}
	return answer.StatusCode, answer.Header, text, err
}

// location is the region and the compartment of the cluster.
type location struct{ region, compartment string }

// locator finds the cluster's location in the configuration, or else in the metadata of the instance on which the program runs.
type locator struct {
	config   Config
	metadata *metadata

	mu    sync.Mutex
	asked *location
}

func (l *locator) locate(ctx context.Context) (location, error) {
	where := location{l.config.Region, l.config.Compartment}
	if where.region != "" && where.compartment != "" {
		return where, nil
	}
	told, err := l.ask(ctx)
	where = location{cmp.Or(where.region, told.region), cmp.Or(where.compartment, told.compartment)}
	switch {
	case where.region == "":
		return where, missingKey("auth.region", err)
	case where.compartment == "":
		return where, missingKey("compartment", err)
	}
	return where, nil
}

// missingKey returns the error about a setting that neither the configuration nor the instance has.
func missingKey(at string, cause error) error {
	e := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "cloud config", Message: "the key " + at + " is missing, and the instance does not tell it; set it in the cloud config", Cause: cause}
	if cause != nil {
		e.Message += ": " + cause.Error()
	}
	return e
}

// ask reads the location from the metadata once.
func (l *locator) ask(ctx context.Context) (location, error) {
	l.mu.Lock()
	known := l.asked
	l.mu.Unlock()
	if known != nil {
		return *known, nil
	}
	text, err := l.metadata.text(ctx, "/instance/")
	if err != nil {
		return location{}, err
	}
	var said struct {
		Compartment string `json:"compartmentId"`
		Region      string `json:"canonicalRegionName"`
	}
	if err := json.Unmarshal([]byte(text), &said); err != nil {
		return location{}, cloudapi.Unclear("asking the instance for its place", "the answer is not that of an instance")
	}
	told := location{said.Region, said.Compartment}
	if told.region == "" || told.compartment == "" { // it may tell later
		return told, cloudapi.Unclear("asking the instance for its place", "the answer lacks its region or its compartment")
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = &told
	return told, nil
}
