package simkit

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"
)

// Tokens are issued by a simulated cloud for a form (RFC 6749, sections 4.3 and 6).
type Tokens struct {
	// Lock guards them, and the rest of the cloud's state.
	Lock sync.Locker
	// User is the only user, with this password, and Scope the only scope.
	User, Password, Scope string
	// Idle is the lifetime of an unused token; 0 means for ever.
	Idle time.Duration
	// Renews is set if a token can be renewed without the password.
	Renews bool

	used                      map[string]time.Time
	refresh                   map[string]bool
	logins, refused, renewals int
}

// Grant answers a form. Without a token, problem is the code of RFC 6749, section 5.2.
func (t *Tokens) Grant(form url.Values) (access, refresh, problem string) {
	switch grant := form.Get("grant_type"); {
	case t.Renews && grant == "refresh_token":
		if !t.refresh[form.Get("refresh_token")] {
			return "", "", "invalid_grant"
		}
		t.renewals++
	case grant != "password":
		return "", "", "unsupported_grant_type"
	case form.Get("scope") != t.Scope:
		return "", "", "invalid_scope"
	case form.Get("username") != t.User || form.Get("password") != t.Password:
		t.refused++
		return "", "", "invalid_grant"
	default:
		t.logins++
	}
	n := t.logins + t.renewals
	access = fmt.Sprintf("token-%d-%08x", n, crc32.ChecksumIEEE(fmt.Append(nil, n)))
	if t.used == nil {
		t.used, t.refresh = map[string]time.Time{}, map[string]bool{}
	}
	t.used[access] = time.Now()
	if t.Renews {
		refresh = "refresh+" + access // with a character that must be escaped in forms
		t.refresh[refresh] = true
	}
	return access, refresh, ""
}

// Form returns the form of a request for a token, and whether it is one.
func (*Tokens) Form(r *http.Request) (url.Values, bool) {
	ok := r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") && r.ParseForm() == nil
	return r.PostForm, ok
}

// Authorized checks the token of a request and extends its lifetime; none is set if there is no token.
func (t *Tokens) Authorized(r *http.Request) (ok, none bool) {
	token, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	used, ok := t.used[token]
	if !bearer || !ok || (t.Idle > 0 && time.Since(used) > t.Idle) {
		delete(t.used, token)
		return false, !bearer
	}
	t.used[token] = time.Now()
	return true, false
}

// Logout ends a token.
func (t *Tokens) Logout(token string) { delete(t.used, token) }

// SetPassword changes the only password that is accepted.
func (t *Tokens) SetPassword(password string) {
	t.Lock.Lock()
	defer t.Lock.Unlock()
	t.Password = password
}

// EndTokens makes all tokens invalid, and their renewal if requested.
func (t *Tokens) EndTokens(renewal bool) {
	t.Lock.Lock()
	defer t.Lock.Unlock()
	clear(t.used)
	if renewal {
		clear(t.refresh)
	}
}

// Logins counts the accepted and the refused logins, and the renewed tokens.
func (t *Tokens) Logins() (accepted, refused, renewed int) {
	t.Lock.Lock()
	defer t.Lock.Unlock()
	return t.logins, t.refused, t.renewals
}
