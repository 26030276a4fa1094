package cloudstack

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestSignature holds the signature against one that CloudStack's SDK makes of the same call.
func TestSignature(t *testing.T) {
	t.Parallel()
	signed := sign("secretKEY123", params{
		"algorithm": "roundrobin", "apiKey": "miVr6X7u6bN_sdahOBpjNejPgEsT35eXq", "cidrlist": "10.0.0.0/8,192.168.1.0/24",
		"command": "createLoadBalancerRule", "description": "a b*c+d", "expires": "2030-01-02T03:04:05Z", "name": "a224691befa864b07938cc86d948b99f-tcp-80",
		"openfirewall": "false", "privateport": "30080", "protocol": "tcp", "publicport": "80", "response": "json", "signatureversion": "3",
	})
	assert.Contains(t, signed, "&description=a%20b*c%2Bd&")
	assert.Contains(t, signed, "&signature=lw%2B%2BZj7n7E4gIGdJNMuS%2BomxmIQ%3D")
	assert.Equal(t, "%7Ea%2F", escape("~a/"), "as Java's URLEncoder has it, which the server compares with")
}

const someID = "3a5c5b0e-0000-4a5b-8000-000000000001"

// TestAnswers: only CloudStack itself says that something is absent, by the words of its own and about the very ID; and whatever a proxy
// says is about nothing.
func TestAnswers(t *testing.T) {
	t.Parallel()
	absent := `{"listvirtualmachinesresponse":{"errorcode":431,"cserrorcode":4350,"errortext":"Invalid parameter id value=` + someID +
		` due to incorrect long value format, or entity does not exist or due to incorrect parameter annotation for the field in api cmd class."}}`
	for name, c := range map[string]struct {
		status int
		body   string
		class  error
		words  string
	}{
		"nothing":              {200, `{"listvirtualmachinesresponse":{}}`, nil, ""},
		"another command":      {200, `{"listnetworksresponse":{}}`, cloudapi.ErrTransient, "the answer is not that of the API"},
		"a page":               {200, `<html>`, cloudapi.ErrTransient, "a page instead of an answer of the API; check api-url and proxies"},
		"a page of a proxy":    {502, `<html>`, cloudapi.ErrTransient, "a page instead"},
		"a page that is not":   {404, `<html>`, cloudapi.ErrTransient, "a page instead"},
		"an ID that is none":   {431, absent, cloudapi.ErrNotFound, "entity does not exist"},
		"another ID":           {431, `{"listvirtualmachinesresponse":{"errorcode":431,"errortext":"Invalid parameter zoneid value=7 due to incorrect long value format, or entity does not exist"}}`, cloudapi.ErrInvalid, "zoneid"},
		"a wrong key":          {401, `{"listvirtualmachinesresponse":{"errorcode":401,"errortext":"unable to verify user credentials"}}`, cloudapi.ErrUnauthorized, "the clock of this machine"},
		"a command of others":  {432, `{"errorresponse":{"errorcode":432,"cserrorcode":9999,"errortext":"The API [x] does not exist or is not available"}}`, cloudapi.ErrUnauthorized, "allow the role of the user the command"},
		"too many calls":       {429, `{"listvirtualmachinesresponse":{"errorcode":429,"errortext":"limit"}}`, cloudapi.ErrRateLimited, "limit"},
		"no room":              {533, `{"listvirtualmachinesresponse":{"errorcode":533,"errortext":"Unable to find available public IP addresses"}}`, cloudapi.ErrQuota, "Unable to find"},
		"a conflict":           {537, `{"listvirtualmachinesresponse":{"errorcode":537,"errortext":"conflicts"}}`, cloudapi.ErrConflict, "conflicts"},
		"a fault of the cloud": {530, `{"listvirtualmachinesresponse":{"errorcode":530,"errortext":"router"}}`, cloudapi.ErrTransient, "router"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(c.status)
				_, _ = w.Write([]byte(c.body))
			}))
			t.Cleanup(server.Close)
			a, err := newAPI(Config{URL: server.URL, APIKey: schema.NewSecret("k"), SecretKey: schema.NewSecret("s")}, registry.Inputs{})
			require.NoError(t, err)
			var out map[string]any
			err = a.call(t.Context(), "reading", "listVirtualMachines", params{"id": someID}, &out)
			if c.class == nil {
				require.NoError(t, err)
				return
			}
			require.ErrorIs(t, err, c.class)
			require.ErrorContains(t, err, c.words)
			assert.Equal(t, errors.Is(c.class, cloudapi.ErrNotFound), errors.Is(err, cloudapi.ErrNotFound))
			assert.NotContains(t, err.Error(), "signature=")
		})
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{
		"4.22.0.0": true, "4.22": true, "5.1": true, "4.21.9.9": false, "": false, "4": false,
		"4.22.1-SNAPSHOT": true,
	} {
		assert.Equal(t, want, atLeast(version, 4, 22), version)
	}
}
