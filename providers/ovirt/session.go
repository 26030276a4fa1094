package ovirt

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
)

const (
	tokenPath  = enginePath + "/sso/oauth/token"
	logoutPath = enginePath + "/services/sso-logout"
	scope      = "ovirt-app-api"

	// Accounts are locked after a few refused logins. The same credentials are therefore tried again after firstRefusal, and less and
	// less often.
	firstRefusal  = time.Minute
	maxRefusal    = 10 * time.Minute
	logoutTimeout = 5 * time.Second
	// minMajor is the first version of the engine with the API that is used.
	minMajor = 4
)

// session is a token that was given.
type session struct{ token string }

// refusal is a refused login.
type refusal struct {
	sum   [sha256.Size]byte
	until time.Time
	pause time.Duration
	err   error
}

var (
	// errSessionEnded is an answer to a token that is not accepted any more: it was idle for too long, or the engine was restarted.
	errSessionEnded = errors.New("the session has ended")
	// errRefused marks a login that the engine has refused for its credentials.
	errRefused = errors.New("the credentials are refused")
)

// credentialsOf returns what reads the credentials for a login. Those in the cloud config are read again from the file; one that cannot
// be used now, as in the middle of a change, leaves those in force that were read before.
func credentialsOf(c Config, in registry.Inputs) func() (user, password string) {
	return func() (string, string) {
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
		return now.Username.Reveal(), now.Password.Reveal()
	}
}

func (a *api) current() *session {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.session
}

// drop forgets a session, unless another one has taken its place.
func (a *api) drop(s *session) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.session == s {
		a.session = nil
	}
}

// open returns the open session, or logs in: one caller at a time, and the others get what it has got.
func (a *api) open(ctx context.Context) (*session, error) {
	if s := a.current(); s != nil {
		return s, nil
	}
	select {
	case a.turn <- struct{}{}:
		defer func() { <-a.turn }()
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting for a login: %w", ctx.Err())
	}
	if s := a.current(); s != nil {
		return s, nil
	}
	user, password := a.credentials()
	sum := sha256.Sum256(fmt.Appendf(nil, "%q %q", user, password))
	a.mu.Lock()
	refused := a.refused
	a.mu.Unlock()
	if refused.sum == sum && time.Now().Before(refused.until) {
		return nil, refused.err
	}
	s, err := a.login(ctx, user, password)
	a.mu.Lock()
	defer a.mu.Unlock()
	if errors.Is(err, errRefused) {
		pause := firstRefusal
		if a.refused.sum == sum {
			pause = min(2*a.refused.pause, maxRefusal)
		}
		a.refused = refusal{sum: sum, until: time.Now().Add(pause), pause: pause, err: err}
	}
	if err == nil {
		a.session, a.refused = s, refusal{}
	}
	return s, err
}

// login asks for a token, and looks whether it serves with an engine that is new enough.
func (a *api) login(ctx context.Context, user, password string) (*session, error) {
	const what = "logging in"
	form := url.Values{"grant_type": {"password"}, "scope": {scope}, "username": {user}, "password": {password}}
	answer, err := a.post(ctx, tokenPath, form)
	if err != nil {
		return nil, transportError(err, what)
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
	s := &session{token: said.Token}
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
		mapped.Class, mapped.Cause = cloudapi.ErrUnauthorized, errRefused
		mapped.Message = strings.TrimPrefix(mapped.Message+"; check username and password ("+envUsername+", "+envPassword+")", "; ")
	case errors.Is(mapped.Class, cloudapi.ErrNotFound), page, status == http.StatusOK:
		mapped.Class, mapped.Message = cloudapi.ErrTransient, "a page instead of an answer of the engine; "+checkAddress
	case mapped.Class == cloudapi.ErrInvalid: //nolint:errorlint // it is one of the classes
		mapped.Cause = errRefused // it is no better for being repeated
	}
	return mapped
}

// checkVersion refuses what is no engine, and engines without the API that is used.
func (a *api) checkVersion(ctx context.Context, s *session) error {
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
		return unclear(what, "the answer is not that of an engine; %s", checkAddress)
	case major < minMajor:
		return unclear(what, "the engine has version %s, and this program needs %d.0 or newer", entry.Product.Version.Full, minMajor)
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
	a.mu.Lock()
	s := a.session
	a.session = nil
	a.mu.Unlock()
	if s == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, logoutTimeout)
	defer cancel()
	if answer, err := a.post(ctx, logoutPath, url.Values{"token": {s.token}, "scope": {""}}); err == nil {
		_ = answer.Body.Close() // it was read whole
	}
}
