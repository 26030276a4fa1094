package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// startOnInstance starts a provider on an instance with these tags.
func startOnInstance(t *testing.T, tags awssim.Tags, file string, env map[string]string) (*cloud, *awssim.Sim, *simkit.Server) {
	t.Helper()
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	self := sim.AddInstance(awssim.Spec{Name: "ip-10-1-0-2.ec2.internal", Tags: tags, Untagged: true})
	sim.Self(self)
	c, err := newCloud(testInputs(sim, url, file, env))
	require.NoError(t, err)
	return c, sim, server
}

// TestOnInstance: the instance that runs the program tells the region, the VPC and the cluster.
func TestOnInstance(t *testing.T) {
	t.Parallel()
	t.Run("tags", testClusterTags)
	t.Run("the cost of a start", func(t *testing.T) {
		t.Parallel()
		c, _, server := startOnInstance(t, awssim.Tags{"kubernetes.io/cluster/one": "owned"}, "", nil)
		m, err := c.instances.InstanceMetadata(t.Context(), bare("ip-10-1-0-2.ec2.internal"))
		require.NoError(t, err)
		assert.Contains(t, m.ProviderID, "aws:///")
		calls := server.Calls()
		assert.LessOrEqual(t, calls.ByOperation["EC2 DescribeInstances {id}"], 1, "our own instance is read once")
		assert.LessOrEqual(t, calls.Total, 9, "%v", calls.ByOperation)
	})
	t.Run("our own name needs no tag", func(t *testing.T) {
		t.Parallel()
		c, _, _ := startOnInstance(t, nil, "[Global]\nKubernetesClusterID = one\n", nil)
		m, err := c.instances.InstanceMetadata(t.Context(), bare("ip-10-1-0-2.ec2.internal"))
		require.NoError(t, err)
		assert.Equal(t, "us-east-1", m.Region)
	})
	t.Run("the metadata service is overridden by the file", func(t *testing.T) {
		t.Parallel()
		sim, server := awssim.New(newRegion(awssim.Options{}))
		url := server.Start(t)
		sim.Self(sim.AddInstance(awssim.Spec{}))
		file := "[ServiceOverride \"1\"]\nService = ec2imds\nRegion = anywhere\nURL = " + url + "\nSigningRegion = anywhere\n"
		c, err := newCloud(testInputs(sim, url, file, map[string]string{"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:1"}))
		require.NoError(t, err)
		_, id, err := c.api.connect(t.Context())
		require.NoError(t, err)
		assert.Equal(t, awssim.ClusterID, id.clusterID)
	})
	t.Run("it is switched off", func(t *testing.T) {
		t.Parallel()
		c, _, server := startOnInstance(t, nil, "", map[string]string{"AWS_EC2_METADATA_DISABLED": "true"})
		require.ErrorContains(t, c.CheckAPI(t.Context()), "AWS_EC2_METADATA_DISABLED")
		assert.Zero(t, server.Calls().Total)
		c, _, _ = startOnInstance(t, nil, "", map[string]string{"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "us-east-1"})
		require.ErrorContains(t, c.CheckAPI(t.Context()), "set VPC, KubernetesClusterID and SubnetID or RoleARN", "what to do off EC2")
	})
	t.Run("a failure is not asked about by everybody", func(t *testing.T) {
		t.Parallel()
		c, sim, server := startOnInstance(t, awssim.Tags{"kubernetes.io/cluster/one": "owned"}, "", nil)
		sim.SetKey("another")
		require.ErrorContains(t, c.CheckAPI(t.Context()), "not authorized")
		calls := server.Calls().Total
		for range 10 {
			_, err := c.instances.InstanceExists(t.Context(), withID("n", "aws:///us-east-1a/i-0123456789abcdef0"))
			require.Error(t, err)
		}
		assert.Equal(t, calls, server.Calls().Total)
	})
}

func testClusterTags(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tags   awssim.Tags
		id     string
		legacy bool
		wrong  string
	}{
		{awssim.Tags{"kubernetes.io/cluster/one": "owned"}, "one", false, ""},
		{awssim.Tags{"kubernetes.io/cluster/one": ""}, "one", false, ""},
		{awssim.Tags{"KubernetesCluster": "one"}, "one", true, ""},
		{awssim.Tags{"KubernetesCluster": "one", "kubernetes.io/cluster/one": "shared"}, "one", true, ""},
		{awssim.Tags{"KubernetesCluster": "two", "kubernetes.io/cluster/one": "shared"}, "", false, "name two clusters"},
		{awssim.Tags{"kubernetes.io/cluster/two": "", "kubernetes.io/cluster/one": ""}, "", false, "tags of two clusters, one and two"},
		{awssim.Tags{}, "", false, "the ID of the cluster is unknown"},
	} {
		provider, _, _ := startOnInstance(t, c.tags, "", nil)
		_, id, err := provider.api.connect(t.Context())
		if c.wrong != "" {
			require.ErrorContains(t, err, c.wrong)
			require.ErrorContains(t, provider.CheckAPI(t.Context()), c.wrong, "and it is told to whoever asks")
			continue
		}
		require.NoError(t, err)
		assert.Equal(t, c.id, id.clusterID)
		assert.Equal(t, c.legacy, id.legacy)
		assert.Equal(t, awssim.VPC, id.vpc)
		assert.Equal(t, awssim.Region, id.region)
	}
}

// TestOffInstance: with the VPC, a subnet and the cluster in the file, no instance is needed; the zone gives the region.
func TestOffInstance(t *testing.T) {
	t.Parallel()
	sim, server := awssim.New(newRegion(awssim.Options{}))
	url := server.Start(t)
	c, err := newCloud(testInputs(sim, url, strings.Replace(sim.CloudConfig(url), "Region = us-east-1", "Zone = us-east-1c\nRegion = eu-west-1", 1), nil))
	require.NoError(t, err)
	require.NoError(t, c.CheckAPI(t.Context()))
	assert.Equal(t, map[string]int{"EC2 DescribeInstances": 1}, server.Calls().ByOperation)
	assert.Equal(t, identity{region: "us-east-1", vpc: awssim.VPC, subnet: "subnet-00000000000000a0", clusterID: awssim.ClusterID}, *c.api.identity)
}
