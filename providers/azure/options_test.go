package azure

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// queryNow demands a read after the question.
var queryNow = inventory.Query{}

const minimal = `{"subscriptionId":"s","tenantId":"t","aadClientId":"c","aadClientSecret":"x","resourceGroup":"RG","location":"westeurope"`

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{"location":`: "neither JSON nor YAML",
		`{}`:           "subscriptionId",
		minimal + `,"excludeMasterFromStandardLB":"maybe"}`:                    "excludeMasterFromStandardLB",
		minimal + `,"clusterServiceSharedLoadBalancerHealthProbePort":"many"}`: "clusterServiceSharedLoadBalancerHealthProbePort",
		minimal + `,"vmType":"floppy"}`:                                        "vmType",
		minimal + `,"resourceManagerEndpoint":"http://example.com"}`:           "is not encrypted",
		minimal + `,"serviceGatewayEnabled":true}`:                             "container load balancers are not served",
		minimal + `,"loadBalancerBackendPoolConfigurationType":"podIP"}`:       "loadBalancerBackendPoolConfigurationType \"podIP\" is not one of",
		minimal + `,"clusterServiceLoadBalancerHealthProbeMode":"none"}`:       "clusterServiceLoadBalancerHealthProbeMode \"none\" is not one of",
		strings.Replace(minimal, `"x"`, `""`, 1) + `}`:                         "there is no credential",
		minimal + `,"useFederatedWorkloadIdentityExtension":true}`:             "aadFederatedTokenFile",
	} {
		_, _, err := parseConfig(inputs(text))
		require.ErrorContains(t, err, want, text)
		assert.NotContains(t, err.Error(), `"x"`)
	}
	_, _, err := parseConfig(inputs(`{"tenantId":"t"}`))
	require.ErrorContains(t, err, "resourceGroup")
	require.ErrorContains(t, err, "location", "everything at once")

	c, warnings, err := parseConfig(inputs(minimal + `,"VMTYPE":"standard","colour":"red","cloudProviderRateLimit":true,"loadBalancerRateLimit":{"a":1},"tagsMap":{"A":"1"},"tags":"a=2,b=3"}`))
	require.NoError(t, err)
	assert.Equal(t, vmTypeStandard, c.VMType, "keys count in any case")
	assert.Equal(t, "rg", c.Group)
	assert.Equal(t, map[string]string{"A": "1", "b": "3"}, c.tags)
	for _, want := range []string{"colour", "cloudProviderRateLimit", "loadBalancerRateLimit"} {
		require.ErrorContains(t, warnings, want)
	}
}

func TestSettingsThatExcludeEachOther(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`,"multipleStandardLoadBalancerConfigurations":[{"name":"a","primaryVMSet":"s"}]`:                                  "multipleStandardLoadBalancerConfigurations needs",
		`,"disableOutboundSNAT":true,"loadBalancerSku":"basic"`:                                                            "disableOutboundSNAT needs loadBalancerSku standard",
		`,"disableAvailabilitySetNodes":true,"vmType":"standard"`:                                                          "disableAvailabilitySetNodes is true, which needs vmType vmss",
		`,"loadBalancerSku":"basic"`:                                                                                       "set it to standard",
		`,"loadBalancerBackendPoolConfigurationType":"nodeIP","multipleStandardLoadBalancerConfigurations":[{"name":"a"}]`: "entry 1 needs name and primaryVMSet",
		`,"loadBalancerBackendPoolConfigurationType":"nodeIP","multipleStandardLoadBalancerConfigurations":[{"name":"a","primaryVMSet":"s","nodeSelector":{"matchExpressions":[{"key":"a","operator":"x"}]}}]`: "nodeSelector of a",
		`,"loadBalancerBackendPoolConfigurationType":"nodeIP","multipleStandardLoadBalancerConfigurations":[{"name":"a","primaryVMSet":"s"},{"name":"A","primaryVMSet":"s2"}]`:                                 "there twice",
	} {
		_, _, err := parseConfig(inputs(minimal + text + "}"))
		require.ErrorContains(t, err, want)
	}
}

// TestNothingIsIgnoredInSilence: what Azure's own controller acts on and this one does not is warned of.
func TestNothingIsIgnoredInSilence(t *testing.T) {
	t.Parallel()
	for text, why := range map[string]string{
		`"enableIPTagMutationForExistingPublicIP":true`:  "always change in place",
		`"nodeInstanceNotFoundGracePeriodInSeconds":600`: "--node-deletion-grace-period",
	} {
		_, warnings, err := parseConfig(inputs(minimal + "," + text + "}"))
		require.NoError(t, err)
		require.ErrorContains(t, warnings, "has no effect", text)
		require.ErrorContains(t, warnings, why, text)
	}
	_, warnings, err := parseConfig(inputs(minimal + `,"multipleStandardLoadBalancerConfigurations":[],"nodeInstanceNotFoundGracePeriodInSeconds":0}`))
	require.NoError(t, err)
	require.NoError(t, warnings)

	for key, why := range map[string]string{annotationMode: "basic load balancers"} {
		_, warnings, err := parseSettings(conformance.Service("web", map[string]string{key: "other"}, conformance.Port("http", 80, 30080)))
		require.NoError(t, err)
		require.ErrorContains(t, warnings, key)
		require.ErrorContains(t, warnings, why)
	}
	_, warnings, err = parseSettings(conformance.Service("web", nil, conformance.Port("http", 80, 30080)))
	require.NoError(t, err)
	require.NoError(t, warnings)
}

// TestPrefixOfAddresses: what is no ID of a public IP prefix is refused, and one in any case is not.
func TestPrefixOfAddresses(t *testing.T) {
	t.Parallel()
	for value, want := range map[string]string{
		"web": "is not the resource ID of a public IP prefix",
		"/subscriptions/S/resourcegroups/RG/providers/microsoft.network/publicipprefixes/web": "",
	} {
		_, _, err := parseSettings(conformance.Service("web", map[string]string{annotationPrefixID: value}, conformance.Port("http", 80, 30080)))
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// TestWorkloadIdentityFromEnvironment: what the webhook of workload identities sets wins over a secret in the file.
func TestWorkloadIdentityFromEnvironment(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "token")
	require.NoError(t, os.WriteFile(file, []byte("header.claims.signature"), 0o600))
	inWorld(t, func(w *world) {
		w.sim.AddInstance("worker")
		in := conformance.Inputs(nil, map[string]string{"AZURE_FEDERATED_TOKEN_FILE": file})
		in.File, in.Dial = []byte(strings.Replace(w.config, testSecret, "wrong", 1)), w.network.Dial
		c, err := maker().New(in)
		require.NoError(t, err)
		require.NoError(t, c.CheckAPI(w.Context()))
	})
}

// TestManagedIdentity asks the machine's own metadata service.
func TestManagedIdentity(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.sim.AddInstance("worker")
		in := inputs(strings.Replace(w.config, `"aadClientSecret":"`+testSecret+`"`, `"useManagedIdentityExtension":true`, 1))
		host := strings.TrimPrefix(w.cloud.instances.api.config.cloud.endpoint, "http://")
		in.Dial = func(ctx context.Context, network, address string) (conn, error) {
			if address == "169.254.169.254:80" {
				address = host
			}
			return w.network.Dial(ctx, network, address)
		}
		c, err := maker().New(in)
		require.NoError(t, err)
		require.NoError(t, c.CheckAPI(w.Context()))
	})
}

// TestTokensAreRenewed: a refused token is replaced within the call, and one that ends soon before it does.
func TestTokensAreRenewed(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.sim.AddInstance("worker")
		require.NoError(t, w.cloud.CheckAPI(w.Context()))
		waitFor(time.Minute)
		w.sim.ForgetTokens()
		_, err := w.cloud.instances.inventory.All(w.Context(), queryNow)
		require.NoError(t, err)
		waitFor(azuresim.TokenLife - 2*renewBefore/5)
		w.server.ResetCalls()
		_, err = w.cloud.instances.inventory.All(w.Context(), queryNow)
		require.NoError(t, err)
		for _, call := range w.server.Calls().Latest {
			assert.Less(t, call.Status, 400, "no call goes out with a token that has ended")
		}
		waitFor(time.Minute)
		w.sim.SetSecret("another")
		_, err = w.cloud.instances.inventory.All(w.Context(), queryNow)
		require.ErrorContains(t, err, "AADSTS7000215")
		assert.NotContains(t, err.Error(), testSecret)
	})
}

// TestRotatedSecret: a cloud config that is written again is read again when a token is needed.
func TestRotatedSecret(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "azure.json")
	inWorld(t, func(w *world) {
		require.NoError(t, os.WriteFile(file, []byte(w.config), 0o600))
		in := inputs(w.config)
		in.FilePath, in.Dial = file, w.network.Dial
		c, err := maker().New(in)
		require.NoError(t, err)
		require.NoError(t, c.CheckAPI(w.Context()))
		waitFor(time.Minute)
		w.sim.SetSecret("newer")
		require.NoError(t, os.WriteFile(file, []byte(strings.Replace(w.config, testSecret, "newer", 1)), 0o600))
		_, err = c.instances.inventory.All(w.Context(), queryNow)
		require.NoError(t, err)
	})
}

func TestClouds(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"": "https://management.azure.com", "AzurePublicCloud": "https://management.azure.com", "AzureChinaCloud": "https://management.chinacloudapi.cn",
		"AzureUSGovernment": "https://management.usgovcloudapi.net", "AzureUSGovernmentCloud": "https://management.usgovcloudapi.net",
	} {
		assert.Equal(t, want, cloudOf(name, "").endpoint)
	}
	// What another endpoint is, it says itself: where tokens come from, and for whom.
	inWorld(t, func(w *world) {
		w.sim.AddInstance("worker")
		w.server.ResetCalls()
		require.NoError(t, w.cloud.CheckAPI(w.Context()))
		assert.Contains(t, w.server.Calls().Latest[0].URL, "/metadata/endpoints?api-version=2019-05-01")
		assert.Equal(t, "https://management.core.windows.net", w.cloud.instances.api.identity.audience)
	})
}

// TestConfigInYAML: the file may be JSON or YAML.
func TestConfigInYAML(t *testing.T) {
	t.Parallel()
	c, warnings, err := parseConfig(inputs("tenantId: t\nsubscriptionId: s\naadClientId: a\naadClientSecret: x\nresourceGroup: RG\nlocation: westeurope\n" +
		"tagsMap: {a: b}\nuseManagedIdentityExtension: false\n"))
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, "rg", c.Group)
	assert.Equal(t, map[string]string{"a": "b"}, c.tags)
}

// TestTenantThatCannotBe: a login that cannot even be made is told with each call, not the first alone.
func TestTenantThatCannotBe(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.set(map[string]any{"tenantId": "my_tenant"})
		for range 2 {
			require.ErrorContains(w, w.cloud.CheckAPI(w.Context()), "tenant")
		}
	})
}
