package chart

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// cloudConfigs are legal keys that are no plain texts in a fixed place, and what else refuses, by what is wrong with it.
var cloudConfigs = map[string]struct{ legal, illegal, want string }{
	"vsphere": {
		legal:   "global: {port: 443}\n  vcenter: {first: {server: vc.example.com, user: u, password: p, datacenters: [a, b]}}\n  loadBalancerClass: {dmz: {ipPoolName: pool}}\n  loadBalancer: {tags: {scope: tag}}",
		illegal: "vcenter: {first: {sever: vc.example.com}}", want: "/vcenter/first/sever",
	},
	"azure": {
		legal:   "tagsMap: {a: b}\n  multipleStandardLoadBalancerConfigurations: [{name: kubernetes, primaryVMSet: a}]\n  resourcegroup: g\n  loadBalancerRateLimit: {cloudProviderRateLimit: true}",
		illegal: "tagMaps: {a: b}", want: "/tagMaps",
	},
	"oci": {
		legal:   "loadBalancer: {securityLists: {ocid1.subnet: ocid1.securitylist}}\n  tags: {loadBalancer: {freeform: {a: b}}}",
		illegal: "loadBalancer: {securityList: {a: b}}", want: "/loadBalancer/securityList",
	},
	"openstack": {
		legal:   "global: {AUTH-URL: https://keystone/v3}\n  'LoadBalancerClass \"dmz\"': {subnet-id: a}",
		illegal: "'LoadBalancerClass \"dmz\"': {subnet: a}", want: "/subnet",
	},
	"aws": {
		legal:   "'ServiceOverride \"1\"': {Service: ec2, Region: r, URL: https://ec2, SigningRegion: r}",
		illegal: "'ServiceOverride \"1\"': {Servce: ec2}", want: "/Servce",
	},
}

// TestCloudConfigs: mappings, lists and sections with a name are values of the chart as well, and faults in them are seen.
func TestCloudConfigs(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		c, ok := cloudConfigs[p.Name]
		assert.Equal(t, len(p.Installation.Config.Sections) > 0 || structured(p), ok, "%s: tried", p.Name)
		if !ok {
			continue
		}
		values := withoutSecret(t, p)
		text := render(t, "x", values+"cloudConfig:\n  "+c.legal+"\n")
		assert.NotContains(t, strings.Split(text, "checksum")[0], "map[", p.Name)
		refused(t, values+"cloudConfig: {"+c.illegal+"}\n", c.want)
	}
}

func structured(p registry.Provider) bool {
	for _, o := range p.Options {
		if o.Structured {
			return true
		}
	}
	return false
}

// TestCloudConfigInAnyCase: where keys count in any case, the chart takes them so, and keeps credentials out of what pods show.
func TestCloudConfigInAnyCase(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		if !p.Installation.Config.AnyCase {
			continue
		}
		config := map[string]any{}
		for _, o := range p.Options {
			section, key, inside := strings.Cut(strings.TrimPrefix(o.FileKey, "["), "] ")
			switch {
			case o.FileKey == "":
			case inside:
				below, _ := config[strings.ToUpper(section)].(map[string]any)
				if below == nil {
					below = map[string]any{}
				}
				below[strings.ToUpper(key)] = "x"
				config[strings.ToUpper(section)] = below
			default:
				config[strings.ToUpper(o.FileKey)] = "x"
			}
		}
		checksum := func() string {
			text, err := yaml.Marshal(map[string]any{"cloudConfig": config})
			require.NoError(t, err)
			_, after, _ := strings.Cut(render(t, "x", withoutSecret(t, p)+string(text)), "checksum/cloud-config: ")
			sum, _, _ := strings.Cut(after, "\n")
			return sum
		}
		before := checksum()
		if _, ok := config["AADCLIENTSECRET"]; ok {
			config["AADCLIENTSECRET"] = "another"
			assert.Equal(t, before, checksum(), "%s: a secret is in no hash", p.Name)
		}
	}
}

// withoutSecret are the values of a release whose cloud config is in the values.
func withoutSecret(t *testing.T, p registry.Provider) string {
	t.Helper()
	if p.Installation.Config.HoldsCredentials {
		return "cloudProvider: " + p.Name + "\n"
	}
	return given(p)
}
