package gce

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestCloudConfig: every key of Google's own controller is read.
func TestCloudConfig(t *testing.T) {
	t.Parallel()
	c, warnings, err := parseConfig(testInputs(`
[Global]
token-url = https://tokens.example/token
token-body = "{\"a\":1}"
project-id = my-project
network-project-id = host-project
network-name = net
subnetwork-name = sub
stack-type = IPV6
secondary-range-name = pods
node-tags = one
node-tags = two
node-instance-prefix = k8s-
regional
multizone = yes
api-endpoint = https://compute.googleapis.com/compute/v1
container-api-endpoint = https://container.googleapis.com/v1/
local-zone = us-central1-b
alpha-features = ILBSubsets
`, map[string]string{"GCE_METADATA_HOST": "127.0.0.1:9"}))
	require.NoError(t, err)
	assert.Equal(t, []string{"my-project", "host-project", "net", "sub", "IPV6", "k8s-", "us-central1-b", "127.0.0.1:9"},
		[]string{c.Project, c.NetworkProject, c.Network, c.Subnet, c.StackType, c.InstancePrefix, c.LocalZone, c.MetadataHost})
	assert.Equal(t, []string{"one", "two"}, c.NodeTags)
	assert.True(t, c.Regional && c.Multizone)
	assert.Equal(t, "https://compute.googleapis.com/compute/v1/", c.Endpoint, "with the final slash, without which the version would be lost")
	assert.Equal(t, `{"a":1}`, c.TokenBody.Reveal())
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v", c, c, c), `{"a"`, "the body is a secret")
	assert.ErrorContains(t, warnings, "secondary-range-name")
	assert.ErrorContains(t, warnings, "container-api-endpoint")
}

// TestCloudConfigFaults: all faults are reported together; unknown keys are warnings.
func TestCloudConfigFaults(t *testing.T) {
	t.Parallel()
	_, _, err := parseConfig(testInputs("[global]\nproject-id = My_Project\nlocal-zone = here\nregional = perhaps\napi-endpoint = http://compute.example/\n", nil))
	for _, words := range []string{"project-id", "local-zone", "regional", "api-endpoint"} {
		require.ErrorContains(t, err, words)
	}
	_, warnings, err := parseConfig(testInputs("[global]\nproject = p\nnode-tag = x\n", nil))
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "did you mean [global] node-tags?")

	_, _, err = parseConfig(testInputs("[global]\ntoken-url = nil\n", nil))
	require.ErrorContains(t, err, "GOOGLE_APPLICATION_CREDENTIALS")

	inClear := testInputs("[global]\ntoken-url = http://tokens.example.com/token\n", nil)
	_, _, err = parseConfig(inClear)
	require.ErrorContains(t, err, "token-url")
	require.ErrorContains(t, err, "allow-insecure-endpoints", "the machine's own token would go there")
	inClear.AllowInsecureEndpoints = true
	_, _, err = parseConfig(inClear)
	require.NoError(t, err)

	in := testInputs("", nil)
	in.Flags = map[string]string{"enable-multi-project": "true", "enable-multi-networking": "true", "cloud-provider-gce-lb-src-cidrs": "10.0.0.0/8"}
	c, warnings, err := parseConfig(in)
	require.NoError(t, err)
	require.ErrorContains(t, warnings, "enable-multi-project")
	require.ErrorContains(t, warnings, "enable-multi-networking")
	assert.Equal(t, []string{"10.0.0.0/8"}, c.Sources)
	assert.NotContains(t, warnings.Error(), "lb-src-cidrs")
}

// TestMetadata: without a cloud config the metadata server returns the cluster's location, once, and not before it is needed.
func TestMetadata(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, "[global]\n")
		assert.Zero(t, w.server.Calls().Total, "a replica that does not lead asks nothing")
		w.addNode(gcesim.Spec{Name: "n1"})
		at, err := w.api.locator.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, location{
			project: "my-project", networkProject: "my-project", zone: "us-central1-a", region: "us-central1", network: "projects/my-project/global/networks/cluster",
		}, at)
		assert.Equal(t, 4, w.server.Calls().ByOperation["GET metadata"], "project, zone, network and a token")
	})
}

// TestPlaces: names, numbers and links in every notation.
func TestPlaces(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, "[global]\nproject-id = 123456789\nlocal-zone = us-central1-a\nnetwork-name = https://compute.googleapis.com/compute/v1/projects/host-project/global/networks/shared\nsubnetwork-name = regions/us-central1/subnetworks/sub\nnetwork-project-id = host-project\n")
		at, err := w.api.locator.get(t.Context())
		require.NoError(t, err)
		assert.Equal(t, location{
			project: "my-project", networkProject: "host-project", zone: "us-central1-a", region: "us-central1",
			network: "projects/host-project/global/networks/shared", subnet: "projects/host-project/regions/us-central1/subnetworks/sub",
		}, at)
		assert.True(t, at.isSharedVPC())
	})
	for _, link := range []string{
		"https://www.googleapis.com/compute/v1/projects/p/global/networks/n", "https://compute.googleapis.com/compute/beta/projects/p/global/networks/n",
		"projects/p/global/networks/n", "/projects/p/global/networks/n",
	} {
		assert.Equal(t, "projects/p/global/networks/n", resource(link))
	}
}

// TestRotatedToken: a refused token is replaced at once, and the call succeeds.
func TestRotatedToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		w.sim.AddInstance(gcesim.Spec{Name: "n1"})
		id := instanceID{"my-project", "us-central1-a", "n1"}
		_, err := w.api.instance(t.Context(), id)
		require.NoError(t, err)
		time.Sleep(time.Minute)
		w.sim.RotateToken("another")
		_, err = w.api.instance(t.Context(), id)
		require.NoError(t, err)

		tokens := func() int { return w.server.Calls().ByOperation["GET metadata"] }
		before := tokens()
		time.Sleep(50 * time.Minute)
		_, err = w.api.instance(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, before, tokens(), "a token is used as long as it is good")
		time.Sleep(20 * time.Minute)
		_, err = w.api.instance(t.Context(), id)
		require.NoError(t, err)
		assert.Equal(t, before+1, tokens())
		w.sim.SetToken("none that anybody has")
		for range 10 {
			_, err = w.api.instance(t.Context(), id)
			require.Error(t, err)
		}
		assert.LessOrEqual(t, tokens(), before+2, "a credential that is refused is not asked for over and over")
	})
}

// tokenServer issues tokens like token-url and OAuth.
func tokenServer(t *testing.T, network *simkit.Network) (url string, bodies *[]string) {
	t.Helper()
	bodies = &[]string{}
	return network.Serve(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		*bodies = append(*bodies, r.Header.Get("Authorization")+" "+string(body))
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{
			"accessToken": testToken, "expireTime": time.Now().Add(time.Hour).Format(time.RFC3339), "access_token": testToken, "expires_in": 3600,
		})
	})), bodies
}

// TestAlternateToken: the call of token-url has the configured body and the machine's own token.
func TestAlternateToken(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		url, bodies := tokenServer(t, w.network)
		w.file = usual + "token-url = " + url + "\ntoken-body = \"the body\"\n"
		w.restart()
		w.addNode(gcesim.Spec{Name: "n1"})
		assert.Equal(t, []string{"Bearer " + testToken + " the body"}, *bodies)
	})
}

// TestCredentialsFile: the file is read for each token, so that a rotated one is used, and no error quotes its content.
func TestCredentialsFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newTestWorld(t, usual)
		url, bodies := tokenServer(t, w.network)
		path := filepath.Join(t.TempDir(), "key.json")
		write := func(text string) { require.NoError(t, os.WriteFile(path, []byte(text), 0o600)) }
		key, err := rsa.GenerateKey(rand.Reader, 2048)
		require.NoError(t, err)
		text, err := json.Marshal(map[string]string{
			"type": "service_account", "client_email": "ccm@my-project.iam.gserviceaccount.com", "token_uri": url,
			"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})),
		})
		require.NoError(t, err)
		write(string(text))
		in := testInputs(usual+"token-url = nil\napi-endpoint = "+w.url+"/compute/v1/\n", map[string]string{"GOOGLE_APPLICATION_CREDENTIALS": path})
		in.Dial = w.network.Dial
		c, err := newCloud(in)
		require.NoError(t, err)
		w.sim.AddInstance(gcesim.Spec{Name: "n1"})
		_, err = c.instances.InstanceMetadata(t.Context(), nodeNamed("n1", ""))
		require.NoError(t, err)
		require.Len(t, *bodies, 1)
		assert.Contains(t, (*bodies)[0], "assertion=")
		time.Sleep(2 * time.Hour)
		write(`{"type":"service_account","private_key":"hidden"}`)
		_, err = c.instances.InstanceMetadata(t.Context(), nodeNamed("n1", "gce://my-project/us-central1-a/n1"))
		require.Error(t, err)
		assert.NotContains(t, err.Error(), "hidden")
	})
}

// TestTokenBodyIsNeverShown: no way of printing the configuration shows the secret.
func TestTokenBodyIsNeverShown(t *testing.T) {
	t.Parallel()
	c, _, err := parseConfig(testInputs(usual+"token-url = https://tokens.example.com/\ntoken-body = \"the-secret\"\n", nil))
	require.NoError(t, err)
	assert.Equal(t, "the-secret", c.TokenBody.Reveal())
	assert.NotContains(t, fmt.Sprintf("%v %+v %#v %s", c, c, c, c.TokenBody), "the-secret")
}

// TestEndpointWithoutFinalSlash: the SDK would cut off the text after the last slash.
func TestEndpointWithoutFinalSlash(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"https://compute.example.com/compute/v1", "https://compute.example.com/compute/v1/"} {
		c, warnings, err := parseConfig(testInputs(usual+"api-endpoint = "+text+"\n", nil))
		require.NoError(t, err)
		require.NoError(t, warnings)
		assert.Equal(t, "https://compute.example.com/compute/v1/", c.Endpoint)
	}
}
