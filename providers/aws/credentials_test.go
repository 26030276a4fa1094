package aws

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// TestEndpointsOfTheSharedFile: endpoints of the shared config file count where nothing overrides them, unless they have no TLS.
func TestEndpointsOfTheSharedFile(t *testing.T) {
	t.Parallel()
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	for name, text := range map[string]string{
		"endpoint_url": "[default]\nendpoint_url = %s\n",
		"services":     "[default]\nservices = sim\n[services sim]\nec2 =\n  endpoint_url = %s\n",
	} {
		file := filepath.Join(t.TempDir(), "config")
		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, text, url), 0o600))
		server.ResetCalls()
		c, err := newCloud(
			testInputs(nil, "", sim.CloudConfig(url), map[string]string{"AWS_CONFIG_FILE": file, "AWS_ACCESS_KEY_ID": awssim.Key, "AWS_SECRET_ACCESS_KEY": "simulated"}),
		)
		require.NoError(t, err)
		require.NoError(t, c.CheckAPI(t.Context()), name)
		assert.Equal(t, 1, server.Calls().Total, name)

		require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, text, "http://192.0.2.1"), 0o600))
		c, err = newCloud(
			testInputs(nil, "", sim.CloudConfig(url), map[string]string{"AWS_CONFIG_FILE": file, "AWS_ACCESS_KEY_ID": awssim.Key, "AWS_SECRET_ACCESS_KEY": "simulated"}),
		)
		require.NoError(t, err)
		require.ErrorContains(t, c.CheckAPI(t.Context()), schema.FlagAllowInsecureEndpoints, name)
	}
}

// TestCredentialsAreFetchedAgain: one failure of what gives credentials fails no call.
func TestCredentialsAreFetchedAgain(t *testing.T) {
	var asked atomic.Int32
	giver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) == 1 {
			http.Error(w, `{"code":"InternalServerException","message":"again"}`, http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprintf(w, `{"AccessKeyId":%q,"SecretAccessKey":"simulated","Token":"t","Expiration":"2100-01-01T00:00:00Z"}`, awssim.Key)
	}))
	t.Cleanup(giver.Close)
	t.Setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", giver.URL+"/credentials")
	for _, other := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_PROFILE"} {
		t.Setenv(other, "")
	}
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	c, err := newCloud(testInputs(nil, "", sim.CloudConfig(url), map[string]string{"AWS_ENDPOINT_URL": url}))
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	assert.Equal(t, int32(2), asked.Load())
}

// TestCredentialClasses: an identity provider that AWS cannot reach is no refusal.
func TestCredentialClasses(t *testing.T) {
	t.Parallel()
	assert.Equal(t, cloudapi.ErrTransient, classOf("IDPCommunicationError", http.StatusBadRequest))
	assert.Equal(t, cloudapi.ErrUnauthorized, classOf("InvalidIdentityToken", http.StatusBadRequest))
}

// TestMetadataModes: the SDK's settings of the instance metadata service count, such as the mode of its endpoint.
func TestMetadataModes(t *testing.T) {
	for mode, want := range map[string]string{"": "169.254.169.254:80", "IPv6": "[fd00:ec2::254]:80"} {
		t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT_MODE", mode)
		synctest.Test(t, func(t *testing.T) { // the SDK tries again for seconds
			var dialled atomic.Value
			in := testInputs(nil, "", "", map[string]string{"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": awssim.Key, "AWS_SECRET_ACCESS_KEY": "simulated"})
			in.Dial = func(_ context.Context, _, address string) (net.Conn, error) {
				dialled.Store(address)
				return nil, errors.New("no network here")
			}
			c, err := newCloud(in)
			require.NoError(t, err)
			_, _, err = c.api.connect(t.Context())
			require.Error(t, err)
			assert.Equal(t, want, dialled.Load(), mode)
		})
	}
}
