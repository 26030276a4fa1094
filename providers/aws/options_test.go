package aws

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

func parse(file string, env map[string]string) (Config, error, error) {
	return parseConfig(registry.Inputs{
		Sources: schema.Sources{File: []byte(file), LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }},
	})
}

// everyKey sets every key of the file.
const everyKey = `; comment
[global]
zone = us-west-2-lax-1a
REGION = us-west-2
VPC = vpc-1
SubnetID = subnet-1
RouteTableID = rtb-1
RoleARN = arn:aws:iam::123456789012:role/ccm
SourceARN = arn:aws:eks:us-west-2:123456789012:cluster/one
KubernetesClusterTag = one
KubernetesClusterID = one
DisableSecurityGroupIngress
ElbSecurityGroup = sg-0
ElbSecurityGroup = sg-1
NodeIPFamilies = ipv6
NodeIPFamilies = ipv4
ClusterServiceLoadBalancerHealthProbeMode = Shared
ClusterServiceSharedLoadBalancerHealthProbePort = 0x2811
ClusterServiceSharedLoadBalancerHealthProbePath = /live
SupportedTopologyInstanceTypePattern = ^m5
NLBSecurityGroupMode = Managed
# the older SDK's identifier
[ServiceOverride "1"]
Service = " ec2 "
Region = us-west-2
URL = https://ec2.example.com
SigningRegion = us-west-1
SigningName = other
SigningMethod = v2
[ServiceOverride "2"]
Service = Elastic Load Balancing v2
Region = us-west-2
URL = https://elb.example.com
SigningRegion = us-west-2
`

// TestCloudConfig sets every key of the file to something and looks where it arrives.
func TestCloudConfig(t *testing.T) {
	t.Parallel()
	c, warnings, err := parse(everyKey, nil)
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, "us-west-2", regionForm.FindString(c.Zone))
	assert.Equal(t, []string{"ipv6", "ipv4"}, c.NodeIPFamilies)
	assert.Equal(t, "sg-1", c.ClassicGroup, "the last one counts")
	assert.True(t, c.NoNodeGroupRules)
	assert.Equal(t, 10257, c.SharedProbePort)
	assert.True(t, c.offInstance())
	assert.Equal(
		t,
		[]override{
			{"EC2", "us-west-2", "https://ec2.example.com", "us-west-1", "other"},
			{"Elastic Load Balancing v2", "us-west-2", "https://elb.example.com", "us-west-2", ""},
		},
		c.Overrides,
	)
	for _, got := range []string{
		c.VPC, c.SubnetID, c.RouteTableID, c.SourceARN, c.LegacyClusterID, c.HealthProbeMode, c.SharedProbePath, c.TopologyTypes, c.NLBGroupMode,
	} {
		assert.NotEmpty(t, got)
	}
}

// TestCloudConfigDefaults: what counts where the file says nothing.
func TestCloudConfigDefaults(t *testing.T) {
	t.Parallel()
	c, warnings, err := parse("", nil)
	require.NoError(t, err)
	require.NoError(t, warnings)
	assert.Equal(t, []string{"ipv4"}, c.NodeIPFamilies)
	assert.Equal(t, 10256, c.SharedProbePort)
	assert.Equal(t, "/healthz", c.SharedProbePath)
	assert.Empty(t, c.NLBGroupMode)
	for zone, region := range map[string]string{
		"us-gov-east-1a": "us-gov-east-1", "us-iso-east-1a": "us-iso-east-1", "us-isob-east-1b": "us-isob-east-1", "cn-north-1a": "cn-north-1",
		"us-east-1-wl1-bos-wlz-1": "us-east-1",
	} {
		assert.Equal(t, region, regionForm.FindString(zone))
	}
}

// TestCloudConfigFaults: each fault is refused at the start, with its place, and all at once.
func TestCloudConfigFaults(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"Zone = nowhere":                      "availability zone",
		"Region = everywhere":                 "not a region",
		"VPC = x":                             "vpc-",
		"SubnetID = x":                        "subnet-",
		"RouteTableID = x":                    "rtb-",
		"ElbSecurityGroup = x":                "sg-",
		"RoleARN = x":                         "ARN",
		"DisableSecurityGroupIngress = maybe": "boolean",
		"NodeIPFamilies = ipv5":               `"ipv5"`,
		"NodeIPFamilies = ipv4\nNodeIPFamilies = ipv4":                                          "twice",
		"ClusterServiceLoadBalancerHealthProbeMode = shared":                                    "Shared",
		"ClusterServiceSharedLoadBalancerHealthProbePort = x":                                   "whole number",
		"ClusterServiceSharedLoadBalancerHealthProbePort = 99999":                               "out of range",
		"ClusterServiceSharedLoadBalancerHealthProbePath = healthz":                             "begin with /",
		"SupportedTopologyInstanceTypePattern = (":                                              "regular expression",
		"NLBSecurityGroupMode = managed":                                                        "Managed",
		"NLBSecurityGroupMode = Managed2":                                                       "Managed",
		"KubernetesClusterID = a\nKubernetesClusterTag = b":                                     "two clusters",
		"[ServiceOverride \"1\"]\nService = EC2":                                                `[ServiceOverride "1"] URL`,
		"[ServiceOverride \"1\"]\nService = s3\nRegion = a\nURL = https://a\nSigningRegion = a": "not a service that this program calls",
		"[ServiceOverride \"1\"]\nService = EC2\nRegion = a\nURL = nowhere\nSigningRegion = a":  "not a URL",
		"[ServiceOverride \"1\"]\nService = EC2\nRegion = a\nURL = https://a\nSigningRegion = a\n[ServiceOverride \"2\"]\nService = ec2\nRegion = a\nURL = https://b\nSigningRegion = a": "override for region a already",
		"[ServiceOverride \"1\"]\nColour = red": "Colour",
	} {
		_, _, err := parse("[Global]\n"+text+"\n", nil)
		require.ErrorContains(t, err, want, text)
	}
	_, _, err := parse("Region = us-east-1\n", nil)
	require.Error(t, err, "a key before any section")
	_, _, err = parse("[Global]\nZone = nowhere\nVPC = x\nRoleARN = y\n", nil)
	assert.Len(t, schema.Problems(err), 3, "all at once")
	_, warnings, err := parse("[Global]\nRegoin = us-east-1\nVPC = vpc-1\nSourceARN = x\n[Other]\nkey = value\n", nil)
	require.NoError(t, err, "what AWS's own controller ignores is no more than a warning")
	require.ErrorContains(t, warnings, "did you mean [Global] Region")
	require.ErrorContains(t, warnings, "[Other] key")
	require.ErrorContains(t, warnings, "SourceARN")
	require.ErrorContains(t, warnings, "key [Global] VPC")
	_, _, err = parse("", map[string]string{"AWS_ACCESS_KEY_ID": "a"})
	require.ErrorContains(t, err, "belong together")
	_, _, err = parse("", map[string]string{"AWS_ENDPOINT_URL": "nowhere"})
	require.ErrorContains(t, err, "AWS_ENDPOINT_URL")
}

// TestEveryOptionHasATest names every row, so that a new one cannot be forgotten here.
func TestEveryOptionHasATest(t *testing.T) {
	t.Parallel()
	var all strings.Builder
	for _, name := range []string{"options_test.go", "tagging_test.go", "instances_test.go", "loadbalancer_test.go", "conformance_test.go", "identity_test.go"} {
		text, err := sources.ReadFile(name)
		require.NoError(t, err)
		all.Write(text)
	}
	known := strings.ToLower(all.String())
	for _, row := range Options.Rows() {
		for _, name := range []string{row.Env, row.Flag, strings.TrimPrefix(row.FileKey, "[Global] ")} {
			assert.True(t, name == "" || strings.Contains(known, strings.ToLower(name)), "no test names %s", name)
		}
	}
}

// passedToSDK are variables that the SDK itself reads from the process's environment; the table documents them.
func TestVariablesOfTheSDK(t *testing.T) {
	t.Parallel()
	c, _, err := parse("", map[string]string{
		"AWS_WEB_IDENTITY_TOKEN_FILE": "/token", "AWS_ROLE_ARN": "arn:aws:iam::1:role/x", "AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials",
		"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/pod-token",
	})
	require.NoError(t, err)
	assert.Equal(
		t, []string{"/token", "arn:aws:iam::1:role/x", "http://169.254.170.23/v1/credentials", "/pod-token"},
		[]string{c.WebIdentityTokenFile, c.WebIdentityRoleARN, c.ContainerCredentialsURI, c.ContainerTokenFile},
	)
}

// TestProfiles: shared files give the region and the credentials.
func TestProfiles(t *testing.T) {
	t.Parallel()
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
		return path
	}
	env := map[string]string{
		"AWS_PROFILE": "work", "AWS_ENDPOINT_URL": url,
		"AWS_CONFIG_FILE":             write("config", "[profile work]\nregion = us-east-1\n"),
		"AWS_SHARED_CREDENTIALS_FILE": write("credentials", "[work]\naws_access_key_id = "+awssim.Key+"\naws_secret_access_key = x\n"),
	}
	file := strings.ReplaceAll(sim.CloudConfig(url), "Region = us-east-1\n", "")
	c, err := newCloud(registry.Inputs{
		Sources: schema.Sources{File: []byte(file), LookupEnv: func(k string) (string, bool) { v, ok := env[k]; return v, ok }},
	})
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	assert.Equal(t, "us-east-1", c.api.identity.region)
}

// TestEndpoints: each service can have an endpoint of its own, by the file, by its variable or by the common one.
func TestEndpoints(t *testing.T) {
	t.Parallel()
	override := func(service, url, signing string) string {
		return fmt.Sprintf("[ServiceOverride %q]\nService = %s\nRegion = us-east-1\nURL = %s\nSigningRegion = %s\n", service, service, url, signing)
	}
	start := func() (*awssim.Sim, *simkit.Server, string) {
		sim, server := awssim.New(newRegion(awssim.Options{}))
		return sim, server, server.Start(t)
	}
	sim, main, mainURL := start()
	_, ec2Server, ec2URL := start()
	_, elbServer, elbURL := start()
	_, nlbServer, nlbURL := start()
	reach := func(file string, env map[string]string) {
		c, err := newCloud(testInputs(sim, mainURL, sim.CloudConfig(mainURL)+file, env))
		require.NoError(t, err)
		require.NoError(t, c.CheckAPI(t.Context()))
		_, _, err = c.api.listClassics(t.Context())
		require.NoError(t, err)
		_, _, err = c.api.listNetworks(t.Context())
		require.NoError(t, err)
	}
	reach("", nil)
	assert.Equal(t, 3, main.Calls().Total)
	reach("", map[string]string{"AWS_ENDPOINT_URL_EC2": ec2URL, "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING": elbURL, "AWS_ENDPOINT_URL_ELASTIC_LOAD_BALANCING_V2": nlbURL})
	reach(override("EC2", ec2URL, "us-east-1")+override("elasticloadbalancing", elbURL, "us-east-1")+override("elbv2", nlbURL, "us-east-1"), nil)
	assert.Equal(t, 3, main.Calls().Total)
	assert.Equal(t, map[string]int{"EC2 DescribeInstances": 2}, ec2Server.Calls().ByOperation)
	assert.Equal(t, map[string]int{"ELB DescribeLoadBalancers": 2}, elbServer.Calls().ByOperation)
	assert.Equal(t, map[string]int{"ELBv2 DescribeLoadBalancers": 2}, nlbServer.Calls().ByOperation)

	// The signature is for the region that the override names, which the simulator refuses.
	c, err := newCloud(testInputs(sim, mainURL, sim.CloudConfig(mainURL)+override("EC2", ec2URL, "eu-west-1"), nil))
	require.NoError(t, err)
	require.ErrorContains(t, c.CheckAPI(t.Context()), "eu-west-1")
	// An override for another region has no effect.
	before := main.Calls().Total
	reach(strings.ReplaceAll(override("EC2", ec2URL, "us-east-1"), "Region = us-east-1\n", "Region = eu-west-1\n"), nil)
	assert.Equal(t, before+3, main.Calls().Total)
}

// TestRole: the role's credentials sign the calls, and STS hears on whose behalf.
func TestRole(t *testing.T) {
	t.Parallel()
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	file := strings.Replace(sim.CloudConfig(url), "[Global]\n", "[Global]\nRoleARN = arn:aws:iam::210987654321:role/ccm\nSourceARN = arn:aws:eks:us-east-1:210987654321:cluster/one\n", 1)
	c, err := newCloud(testInputs(sim, url, file, map[string]string{"AWS_ENDPOINT_URL_STS": url, "AWS_SESSION_TOKEN": "session"}))
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	_, _, err = c.api.listClassics(t.Context())
	require.NoError(t, err)
	assert.Equal(t, map[string]int{"STS AssumeRole": 1, "EC2 DescribeInstances": 1, "ELB DescribeLoadBalancers": 1}, server.Calls().ByOperation)
	assert.Equal(t, "210987654321", sim.Header("STS AssumeRole", "x-amz-source-account"))
	assert.Equal(t, "arn:aws:eks:us-east-1:210987654321:cluster/one", sim.Header("STS AssumeRole", "x-amz-source-arn"))
	assert.Contains(t, sim.Header("EC2 DescribeInstances", "Authorization"), "Credential=ASIAROLE")
	assert.Contains(t, sim.Header("EC2 DescribeInstances", "User-Agent"), "anyccm/test")
}

// TestRotatedKey: a key that is in a file is read again.
func TestRotatedKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{"id": "first", "secret": "x"} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text+"\n"), 0o600))
	}
	c, _, err := parse("", map[string]string{"AWS_ACCESS_KEY_ID_FILE": filepath.Join(dir, "id"), "AWS_SECRET_ACCESS_KEY_FILE": filepath.Join(dir, "secret")})
	require.NoError(t, err)
	got, err := keyPair{c}.Retrieve(context.Background())
	require.NoError(t, err)
	assert.Equal(t, "first", got.AccessKeyID)
	assert.True(t, got.CanExpire, "the SDK asks again")
}

// TestCABundle: a file that holds no certificates is refused at the start.
func TestCABundle(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "roots.pem")
	require.NoError(t, os.WriteFile(path, []byte("no certificate"), 0o600))
	sim, _ := awssim.New(newRegion(awssim.Options{}))
	_, err := newCloud(testInputs(sim, "http://127.0.0.1:1", "", map[string]string{"AWS_CA_BUNDLE": path}))
	require.ErrorContains(t, err, "AWS_CA_BUNDLE")
	_, err = newCloud(testInputs(sim, "http://127.0.0.1:1", "", map[string]string{"AWS_CA_BUNDLE": path + "x"}))
	require.ErrorContains(t, err, "AWS_CA_BUNDLE")
}

// TestSecretsAreNotShown looks for the secrets in everything that a configuration prints.
func TestSecretsAreNotShown(t *testing.T) {
	t.Parallel()
	c, _, err := parse("", map[string]string{"AWS_ACCESS_KEY_ID": "AKIASECRET", "AWS_SECRET_ACCESS_KEY": "hush", "AWS_SESSION_TOKEN": "quiet"})
	require.NoError(t, err)
	shown := fmt.Sprintf("%v %+v %#v", c, c, c)
	for _, s := range []schema.Secret{c.AccessKeyID, c.SecretAccessKey, c.SessionToken} {
		assert.NotContains(t, shown, s.Reveal())
	}
}
