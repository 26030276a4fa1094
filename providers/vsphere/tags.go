package vsphere

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// This file calls vCenter's REST API, which has the tags, and reads those for zones and regions.

const (
	restPath      = "/rest/com/vmware/cis"
	restSession   = "/session"
	sessionHeader = "vmware-api-session-id"
	maxREST       = 16 << 20
)

// tag is a tag of one of the two categories.
type tag struct {
	Name     string `json:"name"`
	Category string `json:"category_id"`
}

// readZoneTags reads which objects have tags of the two categories.
func (v *vcenter) readZoneTags(ctx context.Context, labels labelsConfig) (*zoneTags, error) {
	g := &zoneTags{zones: map[types.ManagedObjectReference]string{}, regions: map[types.ManagedObjectReference]string{}}
	err := v.do(ctx, "reading tags", func(ctx context.Context, s *session) error {
		zone, region, err := s.findCategories(ctx, labels)
		if err != nil {
			return err
		}
		tags, err := s.readTags(ctx, zone, region)
		if err != nil || len(tags) == 0 {
			return err
		}
		return s.readAttached(ctx, tags, zone, region, g)
	})
	if err != nil {
		return nil, err
	}
	return g, nil
}

// findCategories returns the IDs of the two categories.
func (s *session) findCategories(ctx context.Context, labels labelsConfig) (zone, region string, err error) {
	var ids []string
	if err := s.callREST(ctx, http.MethodGet, "/tagging/category", nil, &ids); err != nil {
		return "", "", err
	}
	for _, id := range ids {
		var c struct {
			Name string `json:"name"`
		}
		err := s.callREST(ctx, http.MethodGet, "/tagging/category/id:"+id, nil, &c)
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) { // it may have been deleted meanwhile
			return "", "", err
		}
		if c.Name == labels.Zone {
			zone = id
		}
		if c.Name == labels.Region {
			region = id
		}
		if zone != "" && region != "" {
			return zone, region, nil
		}
	}
	name, key := labels.Zone, "labels.zone"
	if zone != "" {
		name, key = labels.Region, "labels.region"
	}
	return "", "", &cloudapi.Error{
		Class:   cloudapi.ErrInvalid,
		Message: fmt.Sprintf("there is no category of tags named %q; create it, or correct %s of the cloud config", name, key),
	}
}

// readTags reads the tags of the two categories.
func (s *session) readTags(ctx context.Context, zone, region string) (map[string]tag, error) {
	tags := map[string]tag{}
	categories := []string{zone, region}
	if zone == region {
		categories = categories[:1]
	}
	for _, category := range categories {
		var ids []string
		path := "/tagging/tag/id:" + category + "?~action=list-tags-for-category"
		if err := s.callREST(ctx, http.MethodPost, path, map[string]string{"category_id": category}, &ids); err != nil {
			return nil, err
		}
		for _, id := range ids {
			var t tag
			err := s.callREST(ctx, http.MethodGet, "/tagging/tag/id:"+id, nil, &t)
			if errors.Is(err, cloudapi.ErrNotFound) {
				continue // deleted meanwhile
			}
			if err != nil {
				return nil, err
			}
			tags[id] = tag{t.Name, category}
		}
	}
	return tags, nil
}

// readAttached notes what has the tags. Of several tags of a category on one object the first by name counts, so that it is always the
// same.
func (s *session) readAttached(ctx context.Context, tags map[string]tag, zone, region string, g *zoneTags) error {
	var all []struct {
		Tag     string         `json:"tag_id"`
		Objects []taggedObject `json:"object_ids"`
	}
	path := "/tagging/tag-association?~action=list-attached-objects-on-tags"
	if err := s.callREST(ctx, http.MethodPost, path, map[string]any{"tag_ids": slices.Collect(maps.Keys(tags))}, &all); err != nil {
		return err
	}
	note := func(into map[types.ManagedObjectReference]string, ref types.ManagedObjectReference, name string) {
		if known, ok := into[ref]; !ok || name < known {
			into[ref] = name
		}
	}
	for _, a := range all {
		t := tags[a.Tag]
		for _, o := range a.Objects {
			ref := types.ManagedObjectReference{Type: o.Type, Value: o.ID}
			if t.Category == zone {
				note(g.zones, ref, t.Name)
			}
			if t.Category == region {
				note(g.regions, ref, t.Name)
			}
		}
	}
	return nil
}

// callREST makes a call of the REST API, and opens a session if there is none.
func (s *session) callREST(ctx context.Context, method, path string, in, out any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for attempt := 0; ; attempt++ {
		if s.rest == "" {
			if err := s.openREST(ctx); err != nil {
				return err
			}
		}
		err := s.vcenter.sendREST(ctx, method, path, in, out, s.authorize)
		e, refused := errors.AsType[*cloudapi.Error](err)
		if !refused || e.Status != http.StatusUnauthorized || attempt > 0 {
			return err
		}
		s.rest = "" // it ends by itself when it is not used
	}
}

// openREST opens a session of the REST API with the credentials of the other one.
func (s *session) openREST(ctx context.Context) error {
	c, err := s.vcenter.readCredentials(ctx)
	if err != nil {
		return err
	}
	return s.vcenter.sendREST(ctx, http.MethodPost, restSession, nil, &s.rest, func(r *http.Request) error {
		r.Header.Set("vmware-use-header-authn", "true")
		if s.signer != nil {
			return s.signer.SignRequest(r) //nolint:wrapcheck // send names it
		}
		r.SetBasicAuth(c.user, c.password)
		return nil
	})
}

// endREST ends that session.
func (s *session) endREST(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest != "" && s.rest != s.cookie() {
		_ = s.vcenter.sendREST(ctx, http.MethodDelete, restSession, nil, nil, s.authorize)
	}
	s.rest = ""
}

// authorize adds the session of the REST API to a request.
func (s *session) authorize(r *http.Request) error {
	r.Header.Set(sessionHeader, s.rest)
	return nil
}

func (s *session) cookie() string {
	if c := s.SessionCookie(); c != nil {
		return c.Value
	}
	return ""
}

// sendREST sends one request of the REST API.
func (v *vcenter) sendREST(ctx context.Context, method, path string, in, out any, authorize func(*http.Request) error) error {
	var body []byte
	if in != nil {
		var err error
		if body, err = json.Marshal(in); err != nil {
			return fmt.Errorf("encoding a request: %w", err)
		}
	}
	address := v.endpoint.Scheme + "://" + v.endpoint.Host + restPath + path
	r, err := http.NewRequestWithContext(withMethod(ctx, ""), method, address, bytes.NewReader(body))
	if err != nil {
		return fmt.Errorf("making a request: %w", err)
	}
	r.Header.Set("User-Agent", v.agent)
	r.Header.Set("Accept", "application/json")
	if in != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if err := authorize(r); err != nil {
		return fmt.Errorf("signing a request: %w", err)
	}
	answer, err := v.api.http.Do(r)
	if err != nil {
		return err //nolint:wrapcheck // apiError names it
	}
	defer answer.Body.Close()
	content, err := io.ReadAll(io.LimitReader(answer.Body, maxREST))
	switch {
	case err != nil:
		return fmt.Errorf("reading an answer: %w", err)
	case answer.StatusCode >= http.StatusBadRequest:
		return &cloudapi.Error{
			Class: cloudapi.ClassOfStatus(answer.StatusCode), Status: answer.StatusCode,
			Message: "the REST API refuses " + operation(r) + ": " + firstLine(content),
		}
	case out == nil:
		return nil
	}
	value := struct {
		Value any `json:"value"`
	}{out}
	if err := json.Unmarshal(content, &value); err != nil {
		return &cloudapi.Error{
			Class: cloudapi.ErrTransient, Status: answer.StatusCode, Message: "the answer is not that of the REST API; check the server and proxies", Cause: err,
		}
	}
	return nil
}

// firstLine returns the beginning of an error page.
func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	return shorten(line)
}
