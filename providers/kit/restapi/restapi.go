// Package restapi is a client for JSON APIs of clouds without an SDK: it reads whole documents, gets tokens with a password, and accepts
// private certificate authorities.
package restapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
)

// maxMessage bounds a text from another program.
const maxMessage = 300

// Client reads one API.
type Client struct {
	*cloudapi.Client
	config Config
}

// Config says how the client talks to its API, and what its errors advise.
type Config struct {
	cloudapi.Config
	Trust Trust
	// Server names the API in messages, such as "the API"; CheckAddress is the advice if something else responds.
	Server, CheckAddress string
	// CheckCredentials is the advice if a login is refused, and Untrusted if a certificate is not trusted.
	CheckCredentials, Untrusted string
	// Header is sent with each read.
	Header http.Header
	// Refusal reports whether a response, in JSON or without a body, is the API's error for a refused call. It completes the error, whose
	// class comes from the status.
	Refusal func(Answer, *cloudapi.Error) bool
}

// Answer is a response, read completely.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
	// JSON is set where the body is an object in JSON.
	JSON bool
}

// New returns a client.
func New(c Config, dial cloudapi.DialFunc) (*Client, error) {
	t := cloudapi.NewTransport(dial)
	var err error
	if t.TLSClientConfig, err = c.Trust.TLS(); err != nil {
		return nil, err
	}
	c.Transport, c.ClassOf = t, classOf
	return &Client{cloudapi.NewClient(c.Config), c}, nil
}

// classOf distinguishes a refused login from a bad request.
func classOf(status int, body []byte) error {
	var said tokenAnswer
	if status == http.StatusBadRequest && json.Unmarshal(body, &said) == nil && said.refusesCredentials() {
		return cloudapi.ErrUnauthorized
	}
	return nil
}

// Get reads one document, with a token unless it is "".
func (c *Client) Get(ctx context.Context, what, address, token string, out any) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	maps.Copy(r.Header, c.config.Header)
	r.Header.Set("Accept", "application/json")
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	a, err := c.do(r, what)
	if err != nil {
		return err
	}
	return c.decode(a, what, out)
}

func (c *Client) do(r *http.Request, what string) (Answer, error) {
	answer, err := c.Do(r)
	if err != nil {
		return Answer{}, cloudapi.Unanswered(err, what, c.config.Untrusted)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body) // which the client below bounds
	if err != nil {
		return Answer{}, cloudapi.Describe(err, what)
	}
	kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type"))
	return Answer{
		Status: answer.StatusCode, Header: answer.Header, Body: body,
		JSON: kind == "application/json" && bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")),
	}, nil
}

// decode decodes a response, or returns one of the common error classes. An HTML page comes from a proxy: it says nothing about an object.
func (c *Client) decode(a Answer, what string, out any) error {
	e := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(a.Status), Operation: what, Status: a.Status, RequestID: a.Header.Get("request-id"),
		RetryAfter: cloudapi.ParseRetryAfter(a.Header, time.Now()),
	}
	success := a.Status >= http.StatusOK && a.Status < http.StatusMultipleChoices
	switch known := (a.JSON || len(bytes.TrimSpace(a.Body)) == 0) && c.config.Refusal(a, e); {
	case known:
	case success && a.JSON && json.Unmarshal(a.Body, out) == nil:
		return nil
	case a.Status == http.StatusUnauthorized:
		e.Message = "the token is not accepted"
	default:
		e.Message = "a page instead of an answer of " + c.config.Server + "; " + c.config.CheckAddress
		if a.JSON {
			e.Message = "the answer is not that of " + c.config.Server + "; " + c.config.CheckAddress
		}
		if !slices.Contains([]error{cloudapi.ErrUnauthorized, cloudapi.ErrRateLimited}, e.Class) {
			e.Class = cloudapi.ErrTransient
		}
	}
	if a.Status == http.StatusUnauthorized {
		e.Cause = session.ErrEnded
	}
	return e
}

// Text joins the non-empty parts of another program's message and limits the length.
func Text(parts ...string) string {
	text := strings.Join(slices.DeleteFunc(parts, func(s string) bool { return strings.TrimSpace(s) == "" }), ": ")
	return text[:min(len(text), maxMessage)]
}

// Tokens are the result of a login. Refresh is "" if they cannot be renewed.
type Tokens struct{ Access, Refresh string }

// tokenAnswer is the response of a token endpoint (RFC 6749, sections 5.1 and 5.2, and oVirt's own form of it).
type tokenAnswer struct {
	Access      string `json:"access_token"`
	Refresh     string `json:"refresh_token"`
	Code        string `json:"error_code"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// refusesCredentials reports whether it says that the credentials are at fault, and not the request.
func (t tokenAnswer) refusesCredentials() bool {
	codes := []string{"access_denied", "invalid_grant", "not_authenticated"}
	return slices.Contains(codes, t.Code) || slices.Contains(codes, t.Error)
}

// Login requests tokens with a form. The error is session.ErrRefused if repeating it is useless.
func (c *Client) Login(ctx context.Context, what, address string, form url.Values) (Tokens, error) {
	a, err := c.Post(ctx, what, address, form)
	if err != nil {
		return Tokens{}, err
	}
	var said tokenAnswer
	page := json.Unmarshal(a.Body, &said) != nil
	if a.Status == http.StatusOK && said.Access != "" {
		return Tokens{said.Access, said.Refresh}, nil
	}
	e := &cloudapi.Error{
		Class: cloudapi.ClassOfStatus(a.Status), Operation: what, Status: a.Status, Message: Text(said.Code, said.Error, said.Description),
	}
	switch {
	case said.refusesCredentials(), a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden:
		e.Class, e.Cause = cloudapi.ErrUnauthorized, session.ErrRefused
		e.Message = strings.TrimPrefix(e.Message+"; check "+c.config.CheckCredentials, "; ")
	case errors.Is(e.Class, cloudapi.ErrNotFound), page, a.Status == http.StatusOK:
		e.Class, e.Message = cloudapi.ErrTransient, "a page instead of an answer of "+c.config.Server+"; "+c.config.CheckAddress
	case errors.Is(e.Class, cloudapi.ErrInvalid):
		e.Cause = session.ErrRefused
	}
	return Tokens{}, e
}

// Post sends a form.
func (c *Client) Post(ctx context.Context, what, address string, form url.Values) (Answer, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return Answer{}, cloudapi.Unclear(what, "%q is no address", address)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	return c.do(r, what)
}
