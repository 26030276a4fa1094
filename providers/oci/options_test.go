package oci

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// whole is a config with all that a key takes.
func whole(t *testing.T) string {
	t.Helper()
	sim, _ := ocisim.New(testFingerprint)
	return sim.CloudConfig("https://cloud.example.com")
}

// judged returns what is said of a config.
func judged(config string) (c Config, warnings, err error) {
	return parseConfig(inputs(config))
}

// TestConfig: the file of Oracle's own controller is read, and what is not known in it is a warning.
func TestConfig(t *testing.T) {
	t.Parallel()
	c, warnings, err := judged(whole(t))
	require.NoError(t, err, "without a section loadBalancer")
	require.NoError(t, warnings)
	assert.Equal(t, []string{ocisim.Compartment, ocisim.VCN, ocisim.Region}, []string{c.Compartment, c.VCN, c.Region})

	c, warnings, err = judged(strings.Replace(whole(t), "compartment:", "comparment: x\ntags: {common: {freeform: {a: b}}}\nx: {z: 1}\n#", 1) +
		"  compartment: ocid1.compartment.oc1..old\n")
	require.NoError(t, err)
	assert.Equal(t, "ocid1.compartment.oc1..old", c.Compartment, "its former place")
	require.ErrorContains(t, warnings, `comparment of the cloud config: is unknown and ignored; did you mean "compartment"?`)
	require.ErrorContains(t, warnings, "key tags.common of the cloud config: has no effect")
	require.ErrorContains(t, warnings, "key x.z of the cloud config: is unknown and ignored")
}

// TestBadConfig: everything that is wrong is said at once, in the words of Oracle's own controller.
func TestBadConfig(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ config, words string }{
		"nothing":  {"", "is missing or empty"},
		"no YAML":  {"a: [", "is not YAML: "},
		"two ways": {"useInstancePrincipals: true\nuseWorkloadIdentity: true", "useWorkloadIdentity: Invalid value: true: useInstancePrincipals is true as well"},
		"no user":  {strings.Replace(whole(t), "user: "+ocisim.User, "", 1), "auth.user: Required value"},
		"no key":   {"auth: {region: r, tenancy: t, user: u, fingerprint: f}", "auth.key: Required value"},
		"Donkey": {
			whole(t) + "loadBalancer: {securityListManagementMode: Donkey}",
			`loadBalancer.securityListManagementMode: Invalid value: "Donkey": is not one of All, Frontend, None`,
		},
		"no region": {"useWorkloadIdentity: true", "auth.region: Required value: name the region; useWorkloadIdentity needs it"},
		"no domain": {"useWorkloadIdentity: true", identityPrefix + "DOMAIN_URL: is required with useWorkloadIdentity"},
		"no secret": {"useWorkloadIdentity: true", identityPrefix + "CLIENT_SECRET: is required with useWorkloadIdentity"},
		"bad limit": {whole(t) + "rateLimiter: {rateLimitQPSRead: -1}", "rateLimiter.rateLimitQPSRead"},
	} {
		_, _, err := judged(c.config)
		require.ErrorContains(t, err, c.words, name)
	}
	_, _, err := judged(strings.Replace(whole(t), "MII", "", 1))
	require.ErrorContains(t, err, "key auth.key of the cloud config: is no private key")
	assert.NotContains(t, err.Error(), "BEGIN")
}

// TestEndpoints: each service has its host in the region; a region with a dot is a domain.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	c := Config{Domain: "oraclecloud.com"}
	assert.Equal(t, "https://iaas.eu-frankfurt-1.oraclecloud.com", c.serviceURL("eu-frankfurt-1", "iaas", c.Domain))
	assert.Equal(t, "https://auth.sim.local", c.serviceURL("sim.local", "auth", c.Domain))
	c.Endpoint = "http://127.0.0.1:1/"
	assert.Equal(t, "http://127.0.0.1:1", c.serviceURL("eu-frankfurt-1", "iaas", c.Domain))
}

// TestStartMakesNoCall: nothing is asked of the cloud, nor of the instance, before the framework asks.
func TestStartMakesNoCall(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		asInstance(w)
		assert.Zero(w, w.Server.Calls().Total)
	})
}

// TestLimits: calls beyond the limits of the options wait, and none fails for that.
func TestLimits(t *testing.T) {
	inWorld(t, func(w *testWorld) {
		w.Config += "rateLimiter: {rateLimitQPSRead: 1, rateLimitBucketRead: 1}\n"
		w.start()
		n := w.join("worker", nil)
		w.Server.Configure(func(s *simkit.Settings) { s.Latency = 0 })
		w.RequireMetadata(n)
		calls := w.Server.Calls().Latest
		first, last := calls[0].At, calls[len(calls)-1].At
		assert.GreaterOrEqual(w, last.Sub(first).Seconds(), float64(len(calls)-1))
	})
}
