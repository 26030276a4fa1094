package schema

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestEndpointsWithoutTLS: the refusal stands beside the other faults, and names the flag that lifts it.
func TestEndpointsWithoutTLS(t *testing.T) {
	t.Parallel()
	table := Options[config]{
		URLOption(func(c *config) *string { return &c.URL }, OptionRow{Env: "X_URL", Spec: Spec{Help: "Base URL."}}),
		SecretOption(func(c *config) *Secret { return &c.Token }, OptionRow{Env: "X_TOKEN", Required: true, Spec: Spec{Help: "Token."}}),
	}
	for endpoint, good := range map[string]bool{
		"https://api.example.com": true, "http://127.0.0.1:8080/v3": true, "http://[::1]:1": true, "http://localhost": true, "http://169.254.169.254/": true,
		"http://[fd00:ec2::254]/": true, "http://api.example.com": false, "http://10.0.0.1": false, "http://localhost.example.com": false,
		"http://127.0.0.1.example.com": false,
	} {
		src := Sources{LookupEnv: func(k string) (string, bool) { return endpoint, k == "X_URL" }}
		_, err := table.Parse(src)
		require.ErrorContains(t, err, "X_TOKEN")
		if good {
			assert.NotContains(t, err.Error(), "encrypted", endpoint)
			continue
		}
		require.ErrorContains(t, err, "X_URL", endpoint)
		require.ErrorContains(t, err, "--allow-insecure-endpoints")
		src.AllowInsecureEndpoints = true
		_, err = table.Parse(src)
		assert.NotContains(t, err.Error(), "encrypted", endpoint)
	}
}
