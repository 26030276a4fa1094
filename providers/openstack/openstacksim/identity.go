package openstacksim

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Trust is the only trust that is known.
const Trust = "0b6a1c2d3e4f40518293a4b5c6d7e8f9"

// timeFormat is Keystone's.
const timeFormat = "2006-01-02T15:04:05.000000Z"

// SetPassword changes the only password that is accepted, and takes every token back.
func (s *Sim) SetPassword(password string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.password = password
	clear(s.tokens)
}

// RevokeTokens takes every token back; the password stays.
func (s *Sim) RevokeTokens() { s.mu.Do(func() { clear(s.tokens) }) }

// SetTokenTTL sets how long tokens that are issued from now on last.
func (s *Sim) SetTokenTTL(d time.Duration) { s.mu.Do(func() { s.tokenTTL = d }) }

// AddApplicationCredential makes an application credential that is accepted beside the password.
func (s *Sim) AddApplicationCredential(id, secret string) {
	s.mu.Do(func() { s.appID, s.appSecret = id, secret })
}

func (s *Sim) authorized(r *http.Request) bool {
	until, ok := s.tokens[r.Header.Get("X-Auth-Token")]
	return ok && time.Now().Before(until)
}

type authRequest struct {
	Identity struct {
		Methods  []string `json:"methods"`
		Password struct {
			User authUser `json:"user"`
		} `json:"password"`
		Token struct {
			ID string `json:"id"`
		} `json:"token"`
		ApplicationCredential struct {
			ID     string    `json:"id"`
			Name   string    `json:"name"`
			Secret string    `json:"secret"`
			User   *authUser `json:"user"`
		} `json:"application_credential"`
	} `json:"identity"`
	Scope json.RawMessage `json:"scope"`
}

type authUser struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Password string         `json:"password"`
	Domain   map[string]any `json:"domain"`
}

func (s *Sim) identity(w http.ResponseWriter, r *http.Request, rest string) error {
	base := "http://" + r.Host
	switch {
	case rest == "" && r.Method == http.MethodGet:
		write(w, http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{map[string]any{
			"id": "v3.14", "status": "stable", "links": []any{map[string]string{"rel": "self", "href": base + identityPath + "/v3/"}},
		}}}})
		return nil
	case rest == "v3/auth/tokens" && r.Method == http.MethodPost:
		return s.login(w, r, base)
	}
	return failure(http.StatusNotFound, "", "The resource could not be found.")
}

// accepts reports whether a credential is good, and whether it brings a project along.
func (s *Sim) accepts(in authRequest) (good, scoped bool) {
	switch in.Identity.Methods[0] {
	case "password":
		u := in.Identity.Password.User
		named := u.ID == User || (u.Name == User && len(u.Domain) > 0)
		return named && u.Password == s.password, false
	case "application_credential":
		c := in.Identity.ApplicationCredential
		named := c.ID == s.appID || (c.Name == s.appID && c.User != nil)
		return len(in.Scope) == 0 && s.appSecret != "" && c.Secret == s.appSecret && named, true
	case "token":
		_, known := s.tokens[in.Identity.Token.ID]
		return known, false
	}
	return false, false
}

// login checks a credential and issues a token, with the catalog where the token has a project.
func (s *Sim) login(w http.ResponseWriter, r *http.Request, base string) error {
	var in authRequest
	if err := decodeBody(r, "auth", &in); err != nil {
		return err
	}
	if len(in.Identity.Methods) != 1 {
		return failure(http.StatusBadRequest, "", "one method is expected")
	}
	good, scoped := s.accepts(in)
	if !good {
		return failure(http.StatusUnauthorized, "", "The request you have made requires authentication.")
	}
	if strings.Contains(string(in.Scope), "trust") && !strings.Contains(string(in.Scope), `"`+Trust+`"`) {
		return failure(http.StatusForbidden, "", "Could not find trust.")
	}
	s.logins = append(s.logins, in.Identity.Methods[0]+" "+string(in.Scope))
	token := s.issueToken()
	body := map[string]any{
		"methods": in.Identity.Methods, "issued_at": time.Now().UTC().Format(timeFormat), "expires_at": s.tokens[token].UTC().Format(timeFormat),
		"user": map[string]any{"id": "user-1", "name": User, "domain": map[string]string{"id": "default", "name": Domain}},
	}
	if scoped || len(in.Scope) > 0 {
		body["project"] = map[string]any{"id": Project, "name": "cluster", "domain": map[string]string{"id": "default", "name": Domain}}
		body["roles"] = []any{map[string]string{"id": "r1", "name": "member"}, map[string]string{"id": "r2", "name": "load-balancer_member"}}
		body["catalog"] = catalog(base)
	}
	w.Header().Set("X-Subject-Token", token)
	write(w, http.StatusCreated, map[string]any{"token": body})
	return nil
}

func (s *Sim) issueToken() string {
	s.serial++
	token := fmt.Sprintf("gAAAA-simulated-token-%d", s.serial)
	s.tokens[token] = time.Now().Add(s.tokenTTL)
	return token
}

// IssueToken returns a token, as another program may have got it.
func (s *Sim) IssueToken() string { return simkit.Get(&s.mu, func() string { return s.issueToken() }) }

// Logins returns the method and scope of each login so far.
func (s *Sim) Logins() []string {
	return simkit.Get(&s.mu, func() []string { return slices.Clone(s.logins) })
}

func catalog(base string) []any {
	entry := func(kind, name, path string) any {
		endpoints := []any{}
		for _, i := range []string{"public", "internal", "admin"} {
			endpoints = append(endpoints, map[string]string{"id": kind + "-" + i, "interface": i, "region": Region, "region_id": Region, "url": base + path})
		}
		return map[string]any{"id": kind, "type": kind, "name": name, "endpoints": endpoints}
	}
	return []any{
		entry("identity", "keystone", identityPath), entry("compute", "nova", computePath), entry("network", "neutron", networkPath),
		entry("load-balancer", "octavia", loadBalancerPath), entry("key-manager", "barbican", containerPath),
	}
}

// AddContainer makes a container or secret of certificates in Barbican and returns its reference.
func (s *Sim) AddContainer(kind, host string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID(0xba)
	s.containers[kind+"/"+id] = true
	return host + "/v1/" + kind + "/" + id
}

func (s *Sim) keyManager(w http.ResponseWriter, r *http.Request, rest string) error {
	if rest == "" {
		write(w, http.StatusMultipleChoices, map[string]any{"versions": map[string]any{"values": []any{map[string]any{"id": "v1", "status": "CURRENT"}}}})
		return nil
	}
	kind, id, _ := strings.Cut(strings.TrimPrefix(rest, "v1/"), "/")
	if r.Method != http.MethodGet || !slices.Contains([]string{"containers", "secrets"}, kind) || !s.containers[kind+"/"+id] {
		return failure(http.StatusNotFound, "", "Not Found. Sorry but your %s is in another castle.", strings.TrimSuffix(kind, "s"))
	}
	ref := "http://" + r.Host + containerPath + "/v1/" + kind + "/" + id
	if kind == "secrets" {
		write(w, http.StatusOK, map[string]any{"secret_ref": ref, "name": "certificate", "status": "ACTIVE"})
		return nil
	}
	write(w, http.StatusOK, map[string]any{"container_ref": ref, "name": "certificate", "type": "certificate", "status": "ACTIVE", "secret_refs": []any{}})
	return nil
}
