package simkit

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// Tokens are those that a simulated cloud gives for a form (RFC 6749, sections 4.3 and 6).
type Tokens struct {
	// User is the only user, Scope the only scope.
	User, Scope string
	// Idle is how long a token lives that is not used; 0 means for ever.
	Idle time.Duration
	// Renews is set where a token may be renewed without the password.
	Renews bool

	used                      map[string]time.Time
	refresh                   map[string]bool
	logins, refused, renewals int
}

// Grant answers a form of which the password has to be the given one. Where there is no token, problem is the code of RFC 6749,
// section 5.2.
func (t *Tokens) Grant(form url.Values, password string) (access, refresh, problem string) {
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
	case form.Get("username") != t.User || form.Get("password") != password:
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
		refresh = "refresh+" + access // with a character that forms encode
		t.refresh[refresh] = true
	}
	return access, refresh, ""
}

// Form returns the form of a request for a token, and whether it is one.
func (*Tokens) Form(r *http.Request) (url.Values, bool) {
	ok := r.Method == http.MethodPost && strings.HasPrefix(r.Header.Get("Content-Type"), "application/x-www-form-urlencoded") && r.ParseForm() == nil
	return r.PostForm, ok
}

// Authorized looks after the token of a request, which lives on by being used; none is set where there is none.
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

// EndTokens makes all tokens invalid, and with them what renews them where that is asked for.
func (m *Machines[V]) EndTokens(renewal bool) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	clear(m.used)
	if renewal {
		clear(m.refresh)
	}
}

// Logins are how many logins were accepted and refused, and how many tokens were renewed.
func (m *Machines[V]) Logins() (accepted, refused, renewed int) {
	m.Lock.Lock()
	defer m.Lock.Unlock()
	return m.logins, m.refused, m.renewals
}
