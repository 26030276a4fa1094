package cloudstack

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

func parse(t *testing.T, file string) (c Config, warnings, err error) {
	t.Helper()
	in := conformance.Inputs(nil, nil)
	in.File = []byte(file)
	return parseConfig(in)
}

const minimal = "[Global]\napi-url = https://cloud.example.com/client/api\napi-key = \"k#1\"\nsecret-key = s\n"

// TestConfig: files as CloudStack's own controller and CKS have them.
func TestConfig(t *testing.T) {
	t.Parallel()
	c, warnings, err := parse(t, minimal+"ssl-no-verify\nproject-id = 3a5c5b0e-0000-4a5b-8000-000000000001\nregion = r1\nversion = 4.21.0.0\n")
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, "https://cloud.example.com/client/api", c.URL)
	assert.Equal(t, "k#1", c.APIKey.Reveal())
	assert.Equal(t, []string{"r1", "4.21.0.0"}, []string{c.Region, c.Version})
	assert.True(t, c.Insecure)

	_, _, err = parse(t, "\xef\xbb\xbf"+minimal)
	require.NoError(t, err, "a byte order mark")

	_, warnings, err = parse(t, minimal+"foo = 1\nzone = zone-1\n")
	require.NoError(t, err, "unknown keys end nothing")
	require.ErrorContains(t, warnings, "[Global] foo")
	require.ErrorContains(t, warnings, "[Global] zone")
}

// TestBadConfig: all that is wrong is said at once, and no secret.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	_, _, err := parse(t, "[Global]\napi-key = k\n")
	require.ErrorContains(t, err, "[Global] api-url")
	require.ErrorContains(t, err, "CLOUDSTACK_SECRET_KEY")
	for text, words := range map[string]string{
		"ssl-no-verify = maybe\n": "[Global] ssl-no-verify", "version = four\n": "is not a version", "region = \"a b\"\n": "cannot be the value of a label",
		"ca-file = /nonexistent/ca.pem\n": "cannot be read", "api-url = https://u:p@cloud.example.com/client/api\n": "is not an address",
		"api-url = https://cloud.example.com/client/api?a=b\n": "is not an address", "secret-key\n": "has no value",
	} {
		_, _, err := parse(t, minimal+text)
		require.ErrorContains(t, err, words, text)
		assert.NotContains(t, err.Error(), "u:p")
	}
}
