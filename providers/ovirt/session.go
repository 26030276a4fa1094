package ovirt

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath     = enginePath + "/sso/oauth/token"
	logoutPath    = enginePath + "/services/sso-logout"
	scope         = "ovirt-app-api"
	logoutTimeout = 5 * time.Second
	// minMajor is the first version of the engine with the API that is used.
	minMajor = 4
)

// credentials are a user with a password.
type credentials struct{ user, password string }

// token is what a login gives.
type token struct{ value string }

// credentialsOf returns what reads the credentials for a login. Those in the cloud config are read again from the file; one that cannot
// be used now, as in the middle of a change, leaves those in force that were read before.
func credentialsOf(c Config, in registry.Inputs) func() (credentials, error) {
	return func() (credentials, error) {
		now := c
		if in.FilePath != "" {
			if data, err := os.ReadFile(in.FilePath); err == nil {
				again := in
				again.File = data
				if changed, _, err := parseConfig(again); err == nil && changed.endpoint == c.endpoint {
					now = changed
				} else {
					klog.InfoS("The changed cloud config cannot be used for the next login; the credentials read before stay in force", "file", in.FilePath)
				}
			}
		}
		return credentials{now.Username.Reveal(), now.Password.Reveal()}, nil
	}
}

// login asks for a token, and looks whether it serves with an engine that is new enough.
func (a *api) login(ctx context.Context, c credentials) (*token, error) {
	const what = "logging in"
	form := url.Values{"grant_type": {"password"}, "scope": {scope}, "username": {c.user}, "password": {c.password}}
	answer, err := a.post(ctx, tokenPath, form)
	if err != nil {
		return nil, cloudapi.Unanswered(err, what, untrusted)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxAnswer))
	if err != nil {
		return nil, cloudapi.Describe(err, what)
	}
	var said struct {
		Token string `json:"access_token"`
		ssoError
	}
	err = json.Unmarshal(body, &said)
	if answer.StatusCode != http.StatusOK || err != nil || said.Token == "" {
		return nil, loginError(answer.StatusCode, said.ssoError, err != nil)
	}
	s := &token{said.Token}
	if err := a.checkVersion(ctx, s); err != nil {
		return nil, err
	}
	return s, nil
}

// ssoError is what single sign-on says of a request that it refuses.
type ssoError struct {
	Code        string `json:"error_code"`
	Error       string `json:"error"`
	Description string `json:"error_description"`
}

// refusesCredentials reports whether it says that the credentials are at fault, and not the request.
func (e ssoError) refusesCredentials() bool {
	for _, code := range []string{e.Code, e.Error} {
		if code == "access_denied" || code == "invalid_grant" || code == "not_authenticated" {
			return true
		}
	}
	return false
}

func deniedLogin(body []byte) bool {
	var e ssoError
	return json.Unmarshal(body, &e) == nil && e.refusesCredentials()
}

// loginError describes a login that failed. Older engines refuse one with a page.
func loginError(status int, e ssoError, page bool) error {
	text := strings.TrimSuffix(strings.Join([]string{e.Code, e.Error, e.Description}, ": "), ": ")
	text = strings.TrimPrefix(text, ": ")
	mapped := &cloudapi.Error{Class: cloudapi.ClassOfStatus(status), Operation: "logging in", Status: status, Message: text[:min(len(text), maxMessage)]}
	switch {
	case e.refusesCredentials(), status == http.StatusUnauthorized, status == http.StatusForbidden:
		mapped.Class, mapped.Cause = cloudapi.ErrUnauthorized, session.ErrRefused
		mapped.Message = strings.TrimPrefix(mapped.Message+"; check username and password ("+envUsername+", "+envPassword+")", "; ")
	case errors.Is(mapped.Class, cloudapi.ErrNotFound), page, status == http.StatusOK:
		mapped.Class, mapped.Message = cloudapi.ErrTransient, "a page instead of an answer of the engine; "+checkAddress
	case mapped.Class == cloudapi.ErrInvalid: //nolint:errorlint // it is one of the classes
		mapped.Cause = session.ErrRefused // it is no better for being repeated
	}
	return mapped
}

// checkVersion refuses what is no engine, and engines without the API that is used.
func (a *api) checkVersion(ctx context.Context, s *token) error {
	const what = "reading the version of the engine"
	var entry struct {
		Product struct {
			Version struct {
				Major string `json:"major"`
				Full  string `json:"full_version"`
			} `json:"version"`
		} `json:"product_info"`
	}
	if err := cloudapi.NotAbsence(a.get(ctx, s, what, "", &entry)); err != nil {
		return err
	}
	major, err := strconv.Atoi(entry.Product.Version.Major)
	switch {
	case err != nil:
		return cloudapi.Unclear(what, "the answer is not that of an engine; %s", checkAddress)
	case major < minMajor:
		return cloudapi.Unclear(what, "the engine has version %s, and this program needs %d.0 or newer", entry.Product.Version.Full, minMajor)
	}
	return nil
}

func (a *api) post(ctx context.Context, path string, form url.Values) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, a.endpoint.root+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	r.Header.Set("Accept", "application/json")
	return a.http.Do(r)
}

// close ends the session that is open. That it fails changes nothing: the engine ends idle ones.
func (a *api) close(ctx context.Context) {
	s := a.keeper.Take()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	if answer, err := a.post(ctx, logoutPath, url.Values{"token": {s.value}, "scope": {""}}); err == nil {
		_ = answer.Body.Close() // it was read whole
	}
}
