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

// metadata asks the instance that the program runs on.
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
	ctx, _ = cloudapi.WatchListing(ctx) // it is no page of the listing that it may be asked for
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+path, http.NoBody)
	if err != nil {
		return "", fmt.Errorf("%s: %w", what, err)
	}
	r.Header.Set("Authorization", "Bearer Oracle")
	answer, err := m.http.Do(r)
	if err != nil {
		return "", cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(io.LimitReader(answer.Body, maxToken))
	if err != nil {
		return "", cloudapi.Describe(err, what)
	}
	if answer.StatusCode != http.StatusOK {
		return "", &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Status: answer.StatusCode, Message: "it is no instance of this cloud"}
	}
	return string(data), nil
}

// location is where the cluster is.
type location struct{ region, compartment string }

// locator knows where the cluster is: from the configuration, and what that leaves out from the instance that the program runs on, which
// is asked when it is first needed.
type locator struct {
	config   Config
	metadata *metadata

	mu    sync.Mutex
	asked *location
}

// locate returns where the cluster is.
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

// missingKey is the error about a setting that the instance did not tell.
func missingKey(at string, cause error) error {
	e := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "cloud config", Message: "the key " + at + " is missing, and the instance does not tell it; set it in the cloud config", Cause: cause}
	if cause != nil {
		e.Message += ": " + cause.Error()
	}
	return e
}

// ask asks the instance, until it has told.
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
