package ovirt

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func parse(file string, env map[string]string) (Config, error, error) {
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	return parseConfig(in)
}

// TestFormsOfTheConfig: sections as Kubernetes' own provider had them, keys alone as its successor had them, and either's names.
func TestFormsOfTheConfig(t *testing.T) {
	for name, file := range map[string]string{
		"sections": "[connection]\nuri = https://engine/ovirt-engine/api\nusername = u@internal\npassword = \"p&w\"\n[filters]\nvms = tag=kubernetes\n",
		"in any case, with a comment": "; ours\n[Connection]\nURI = https://engine/ovirt-engine/api\nUsername = u@internal\nPassword = \"p&w\"\n" +
			"[Filters]\nVMs = tag=kubernetes\n",
		"keys alone":                     "# ours\nurl=https://engine/ovirt-engine/api\nusername=u@internal\npassword=p&w\nvmsquery=tag=kubernetes\n",
		"names of the successor":         "[connection]\nurl = https://engine/ovirt-engine/api\nusername = u@internal\npassword = \"p&w\"\n[filters]\nvmsquery = tag=kubernetes\n",
		"keys alone, with blanks around": " url = https://engine/ovirt-engine/api \n\n username = u@internal\npassword = p&w\nvmsquery = tag=kubernetes",
	} {
		t.Run(name, func(t *testing.T) {
			c, warnings, err := parse(file, nil)
			require.NoError(t, err)
			require.NoError(t, warnings)
			assert.Equal(t, "https://engine/ovirt-engine/api", c.endpoint.api)
			assert.Equal(t, []string{"u@internal", "p&w", "tag=kubernetes"}, []string{c.Username.Reveal(), c.Password.Reveal(), c.Filter})
		})
	}
}

func TestFaultsOfTheConfigAreReportedTogether(t *testing.T) {
	_, _, err := parse("[connection]\nusernam = x\ninsecure = perhaps\ncafile = /no/such/file\n[filters]\nvms = name=a page 2\n[nodes]\ninterfaces = (\n", nil)
	for _, words := range []string{
		"missing ovirt uri in cloud provider configuration", "key [connection] usernam of the cloud config: is unknown; did you mean [connection] username?",
		"perhaps", "/no/such/file", "remove sortby and page", "is not a regular expression", "key [connection] password of the cloud config",
	} {
		require.ErrorContains(t, err, words)
	}
	_, _, err = parse("[connection]\nuri = https://engine\nurl = https://engine\npassword = p\n", nil)
	require.ErrorContains(t, err, "keys [connection] uri and [connection] url of the cloud config: are both set")
	_, _, err = parse("[connection]\nuri = http://engine\npassword = p\n", nil)
	require.ErrorContains(t, err, "is not encrypted")
	_, _, err = parse("url=ftp://engine\npassword=p\nnonsense\n", nil)
	require.ErrorContains(t, err, "is not an address of the form")
	require.ErrorContains(t, err, "setting 3 is not of the form key=value")
	_, warnings, err := parse("url=https://engine\npassword=p\npasword=q\n", nil)
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "key pasword of the cloud config: is unknown and has no effect; did you mean password?")
	c, _, err := parse("[connection]\nuri = https://engine\npassword = p\n", nil)
	require.NoError(t, err)
	assert.Equal(t, "admin@internal", c.Username.Reveal(), "the original's default")
}

// TestFormsOfTheAddress: all lead to the same requests.
func TestFormsOfTheAddress(t *testing.T) {
	for _, uri := range []string{
		"https://engine:8443", "https://engine:8443/", "https://engine:8443/api", "https://engine:8443/api/v3", "https://engine:8443/ovirt-engine",
		"https://engine:8443/ovirt-engine/", "https://engine:8443/ovirt-engine/api", "https://engine:8443/ovirt-engine/api/",
		"https://engine:8443/ovirt-engine/api/v3", "https://engine:8443/ovirt-engine/api/v4/",
	} {
		e, err := newEndpoint(uri)
		require.NoError(t, err, uri)
		assert.Equal(t, endpoint{root: "https://engine:8443", api: "https://engine:8443/ovirt-engine/api"}, e, uri)
	}
	for _, uri := range []string{"", "engine", "https://", "https://u:p@engine", "https://engine?x=1", "ldap://engine"} {
		_, err := newEndpoint(uri)
		require.Error(t, err, uri)
	}
	inWorld(t, func(w *testWorld) {
		n := nodeOf(w.sim.Add("worker"))
		host := w.cloud.api.endpoint.root
		for _, path := range []string{"", "/", "/api/v3", "/ovirt-engine/api/"} {
			w.Env[envURL] = host + path
			w.start()
			w.RequireExists(n)
		}
		w.RequireNothingRefused()
	})
}

// TestFolderOfTheSecret: the keys of the Secret that installers of OpenShift make, mounted as files.
func TestFolderOfTheSecret(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"ovirt_url": "https://engine/ovirt-engine/api\n", "ovirt_username": "u@internal", "ovirt_password": "from the folder\n", "ovirt_insecure": "true",
		"ovirt_cafile": "", "unknown": "x",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	env := map[string]string{envSecrets: dir}
	c, warnings, err := parse("", env)
	require.NoError(t, err)
	assert.Empty(t, schema.Problems(warnings))
	assert.Equal(t, "https://engine/ovirt-engine/api", c.endpoint.api)
	assert.Equal(t, []string{"u@internal", "from the folder"}, []string{c.Username.Reveal(), c.Password.Reveal()})
	assert.True(t, c.Insecure)
	env[envPassword] = "from a variable"
	c, _, err = parse("", env)
	require.NoError(t, err)
	assert.Equal(t, "from a variable", c.Password.Reveal(), "which is stronger")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "ovirt_ca_bundle"), []byte("none"), 0o600))
	_, _, err = parse("", env)
	require.ErrorContains(t, err, "OVIRT_CA_BUNDLE: holds no certificate in PEM")
}

func TestPasswordInTheAddressIsRefused(t *testing.T) {
	_, _, err := parseConfig(conformance.Inputs(nil, map[string]string{envURL: "https://admin:hush@engine/api", envPassword: "p"}))
	require.ErrorContains(t, err, "must not hold a user")
	assert.NotContains(t, err.Error(), "hush")
	inWorld(t, func(w *testWorld) {
		w.RequireExists(nodeOf(w.sim.Add("worker")))
		for _, c := range w.Server.Calls().Latest {
			assert.NotContains(w, c.URL, "password")
		}
	})
}
