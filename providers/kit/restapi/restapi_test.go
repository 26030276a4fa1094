package restapi

import (
	"encoding/base64"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
)

// answers is a client of an API that gives one answer to everything.
func answers(t *testing.T, status int, contentType, body string, saw *http.Request) (c *Client, address string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _ = r.ParseForm(); saw != nil {
			*saw = *r
		}
		w.Header().Set("Content-Type", contentType)
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(server.Close)
	c, err := New(Config{
		Config: cloudapi.Config{Provider: "restapitest", Retries: -1, Operation: Operations("/documents/{id}", "/token")},
		Header: http.Header{"Version": {"4"}}, Server: "the API", CheckAddress: "check address", CheckCredentials: "user and password",
		Refusal: func(a Answer, e *cloudapi.Error) bool {
			e.Message = Text("said", string(a.Body))
			return a.JSON && a.Status >= http.StatusMultipleChoices
		},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c, server.URL
}

// TestDocuments: what somebody in between answers is never taken for an answer of the API, whatever status it has.
func TestDocuments(t *testing.T) {
	t.Parallel()
	const page, document = "text/html", "application/json; charset=utf-8"
	for name, c := range map[string]struct {
		status     int
		kind, body string
		class      error
		words      string
	}{
		"a document":              {200, document, ` {"name":"a"}`, nil, ""},
		"made":                    {201, document, `{"name":"a"}`, nil, ""},
		"a list":                  {200, document, `[]`, cloudapi.ErrTransient, "a page instead of an answer of the API; check address"},
		"another document":        {200, document, `{"name":1}`, cloudapi.ErrTransient, "the answer is not that of the API; check address"},
		"half a document":         {200, document, `{"name":`, cloudapi.ErrTransient, "the answer is not that of the API"},
		"a document of no type":   {200, "text/plain", `{"name":"a"}`, cloudapi.ErrTransient, "a page instead of an answer"},
		"a page":                  {200, page, `<html>`, cloudapi.ErrTransient, "a page instead of an answer"},
		"nothing":                 {200, document, ``, cloudapi.ErrTransient, "a page instead of an answer"},
		"not found":               {404, document, `{}`, cloudapi.ErrNotFound, "said: {}"},
		"a page that is not":      {404, page, `<html>`, cloudapi.ErrTransient, "a page instead of an answer"},
		"nothing that is not":     {404, "", ``, cloudapi.ErrTransient, "a page instead of an answer"},
		"a page of a wrong token": {401, page, `<html>`, cloudapi.ErrUnauthorized, "the token is not accepted"},
		"a wrong token":           {401, document, `{}`, cloudapi.ErrUnauthorized, "said: {}"},
		"a page for the rate":     {429, page, `<html>`, cloudapi.ErrRateLimited, "a page instead of an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var saw http.Request
			client, address := answers(t, c.status, c.kind, c.body, &saw)
			var out struct{ Name string }
			err := client.Get(t.Context(), "reading", address+"/documents/1", "secret", &out)
			assert.Equal(t, []string{"Bearer secret", "4"}, []string{saw.Header.Get("Authorization"), saw.Header.Get("Version")})
			assert.Equal(t, c.status == http.StatusUnauthorized, errors.Is(err, session.ErrEnded))
			if c.class == nil {
				require.NoError(t, err)
				assert.Equal(t, "a", out.Name)
				return
			}
			require.ErrorIs(t, err, c.class)
			require.ErrorContains(t, err, c.words)
		})
	}
}

// TestLogins: what is refused for the credentials is told from a request that is at fault, and from a page, which says nothing.
func TestLogins(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		status  int
		body    string
		class   error
		refused bool
		words   string
	}{
		"tokens":               {200, `{"access_token":"a","refresh_token":"r"}`, nil, false, ""},
		"no token":             {200, `{}`, cloudapi.ErrTransient, false, "a page instead of an answer"},
		"a wrong password":     {400, `{"error":"invalid_grant","error_description":"no"}`, cloudapi.ErrUnauthorized, true, "invalid_grant: no; check user and password"},
		"oVirt's form of it":   {400, `{"error_code":"access_denied","error":"no"}`, cloudapi.ErrUnauthorized, true, "access_denied: no; check user"},
		"a page of old ones":   {401, `<html>`, cloudapi.ErrUnauthorized, true, "check user and password"},
		"a wrong scope":        {400, `{"error":"invalid_scope"}`, cloudapi.ErrInvalid, true, "invalid_scope"},
		"a wrong address":      {404, `<html>`, cloudapi.ErrTransient, false, "a page instead of an answer"},
		"a page":               {502, `<html>`, cloudapi.ErrTransient, false, "a page instead of an answer"},
		"the directory is off": {503, `{"error":"temporarily_unavailable"}`, cloudapi.ErrTransient, false, "temporarily_unavailable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var saw http.Request
			client, address := answers(t, c.status, "application/json", c.body, &saw)
			tokens, err := client.Login(t.Context(), "logging in", address+"/token", url.Values{"password": {"a&b+c=d"}})
			assert.Equal(t, "a&b+c=d", saw.PostForm.Get("password"), "it is encoded")
			if c.class == nil {
				require.NoError(t, err)
				assert.Equal(t, Tokens{"a", "r"}, tokens)
				return
			}
			require.ErrorIs(t, err, c.class)
			require.ErrorContains(t, err, c.words)
			assert.Equal(t, c.refused, errors.Is(err, session.ErrRefused))
			assert.Empty(t, tokens)
		})
	}
}

// TestTrust: everything that is wrong with certificates is reported at once, and none of it is passed over.
func TestTrust(t *testing.T) {
	t.Parallel()
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, text, 0o600))
	for _, trust := range []Trust{{File: file}, {Bundle: string(text)}, {Bundle: base64.StdEncoding.EncodeToString(text)}, {Insecure: true}} {
		c, err := New(Config{
			Config: cloudapi.Config{Provider: "restapitest", Operation: Operations()}, Trust: trust,
			Refusal: func(Answer, *cloudapi.Error) bool { return true },
		}, nil)
		require.NoError(t, err)
		require.ErrorContains(t, c.Get(t.Context(), "reading", server.URL, "", nil), "HTTP 404")
		c.Close()
	}
	require.NoError(t, os.WriteFile(file, []byte("none"), 0o600))
	_, err := Trust{File: file, FilePlace: "the file", Bundle: "none", BundlePlace: "the bundle"}.TLS()
	require.ErrorContains(t, err, "the file")
	require.ErrorContains(t, err, "the bundle: holds no certificate in PEM")
	_, err = Trust{File: file + "x", FilePlace: "the file"}.TLS()
	require.ErrorContains(t, err, "cannot be read")
}

func TestOperations(t *testing.T) {
	t.Parallel()
	name := Operations("/token", "/vms/{id}", "/vms")
	for path, want := range map[string]string{
		"/api/token": "GET /token", "/v1/vms/1.2": "GET /vms/{id}", "/vms": "GET /vms", "/vms/a/b": cloudapi.OtherOperation, "/": cloudapi.OtherOperation,
	} {
		assert.Equal(t, want, name(httptest.NewRequest(http.MethodGet, path, http.NoBody)), path)
	}
}
