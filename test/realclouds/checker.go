package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// The services that are looked at, as the catalog names them.
const (
	octavia = "load-balancer"
	neutron = "network"
	nova    = "compute"
)

// checker looks at OpenStack as a user of its own, whose calls nobody counts as the program's.
type checker struct {
	http  http.Client
	token string
	urls  map[string]string
}

// newChecker logs in.
func newChecker(ctx context.Context, s seed) (*checker, error) {
	domain := map[string]any{"name": "Default"}
	body := map[string]any{"auth": map[string]any{
		"identity": map[string]any{"methods": []string{"password"}, "password": map[string]any{
			"user": map[string]any{"name": "checker", "password": s.Password, "domain": domain},
		}},
		"scope": map[string]any{"project": map[string]any{"name": s.Project, "domain": domain}},
	}}
	c := &checker{http: http.Client{Timeout: time.Minute}, urls: map[string]string{}}
	header, text, err := c.send(ctx, http.MethodPost, s.AuthURL+"/auth/tokens", body)
	if err != nil {
		return nil, err
	}
	c.token = header.Get("X-Subject-Token")
	var told struct {
		Token struct {
			Catalog []struct {
				Type      string
				Endpoints []struct{ Interface, URL string }
			}
		}
	}
	if err := json.Unmarshal(text, &told); err != nil {
		return nil, fmt.Errorf("reading the catalog: %w", err)
	}
	for _, service := range told.Token.Catalog {
		for _, e := range service.Endpoints {
			if e.Interface == "public" {
				c.urls[service.Type] = e.URL
			}
		}
	}
	if c.token == "" || c.urls[octavia] == "" || c.urls[neutron] == "" || c.urls[nova] == "" {
		return nil, errors.New("keystone gives no token, or names not all services")
	}
	return c, nil
}

func (c *checker) send(ctx context.Context, method, url string, body any) (http.Header, []byte, error) {
	var content io.Reader = http.NoBody
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, nil, fmt.Errorf("encoding a request: %w", err)
		}
		content = bytes.NewReader(text)
	}
	request, err := http.NewRequestWithContext(ctx, method, url, content)
	if err != nil {
		return nil, nil, fmt.Errorf("asking OpenStack: %w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("X-Auth-Token", c.token)
	answer, err := c.http.Do(request)
	if err != nil {
		return nil, nil, fmt.Errorf("asking OpenStack: %w", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode >= http.StatusBadRequest {
		err = fmt.Errorf("%s %s: HTTP %d: %s", method, url, answer.StatusCode, text)
	}
	return answer.Header, text, err
}

// call asks a service for something whose answer nobody needs.
func (c *checker) call(ctx context.Context, method, service, path string, body any) error {
	_, _, err := c.send(ctx, method, c.urls[service]+path, body)
	return err
}

// list returns the objects of a listing.
func (c *checker) list(ctx context.Context, service, path, key string) ([]map[string]any, error) {
	_, text, err := c.send(ctx, http.MethodGet, c.urls[service]+path, nil)
	if err != nil {
		return nil, err
	}
	var told map[string]json.RawMessage
	if err := json.Unmarshal(text, &told); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	var objects []map[string]any
	if err := json.Unmarshal(told[key], &objects); err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	return objects, nil
}

// reachable is nil where something answers at a URL, whatever it says.
func reachable(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode >= http.StatusInternalServerError {
		return fmt.Errorf("HTTP %d", answer.StatusCode)
	}
	return nil
}
