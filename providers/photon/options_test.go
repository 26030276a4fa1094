package photon

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

func parse(file string, env map[string]string) (Config, error, error) {
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	return parseConfig(in)
}

func TestCloudConfig(t *testing.T) {
	c, warnings, err := parse("[Global]\ntarget = https://photon:443/\nproject = p1\noverrideIP = true\nvmID = abc\nauthentication = false\n", nil)
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "vmID")
	assert.Equal(t, []any{"https://photon:443", "p1", true, false}, []any{c.Target, c.Project, c.OverrideIP, c.Authentication})
	_, _, err = parse("[Global]\ntarget = https://photon\nproject = p1\nprojekt = p1\n", nil)
	require.ErrorContains(t, err, "key [Global] projekt of the cloud config: is unknown; did you mean [Global] project?")
	_, _, err = parse("", nil)
	require.ErrorContains(t, err, "is missing or empty; name the file")
	_, _, err = parse("[Global]\ntarget = https://photon\nproject = ../p\nzone = a b\ncaFile = /no/such/file\n", nil)
	for _, words := range []string{"is not the ID of a project", "cannot be the value of a label", "/no/such/file"} {
		require.ErrorContains(t, err, words)
	}
	_, _, err = parse("", map[string]string{"PHOTON_TARGET": "https://photon", "PHOTON_PROJECT": "p1"})
	require.NoError(t, err, "variables are enough")
}

func TestTarget(t *testing.T) {
	for text, words := range map[string]string{
		"": "is required and is not set", "photon:443": "is not an address of the form", "ftp://photon": "is not an address of the form",
		"http://photon:9000": "is not encrypted", "https://u:hush@photon": "is not an address of the form",
	} {
		_, _, err := parse("[Global]\nproject = p1\ntarget = \""+text+"\"\n", nil)
		require.ErrorContains(t, err, words, text)
		assert.NotContains(t, err.Error(), "hush")
	}
	for _, text := range []string{"https://photon:443", "https://photon:443/", "https://photon:443/v1", "https://photon:443/v1/"} {
		c, _, err := parse("[Global]\nproject = p1\ntarget = "+text+"\n", nil)
		require.NoError(t, err)
		assert.Equal(t, "https://photon:443", c.Target)
	}
}

func TestLoginFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pc_login_info")
	file := "[Global]\ntarget = https://photon\nproject = p1\nauthentication = true\nloginFile = " + path + "\n"
	_, _, err := parse(file, nil)
	require.ErrorContains(t, err, path+`" cannot be read: `)
	for text, words := range map[string]string{
		"": "the user is missing", "\npassword\n": "the user is missing", "user\n": "the password is missing", "user\n \n": "the password is missing",
	} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		_, _, err := parse(file, nil)
		require.ErrorContains(t, err, words, "%q", text)
	}
	for _, text := range []string{"user\npass word", " user \n pass word \n", "user\r\npass word\r\n", "user\npass word\nmore\n"} {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		c, _, err := parse(file, nil)
		require.NoError(t, err)
		l, err := c.login()
		require.NoError(t, err)
		assert.Equal(t, login{"user", "pass word"}, l, "%q", text)
	}
	_, _, err = parse(file, map[string]string{"PHOTON_USERNAME": "u"})
	require.ErrorContains(t, err, "the password is missing")
}
