package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func identified(namespace, name, uid string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(uid)}}
}

// TestNames holds names byte by byte to those that AWS's own controller gives.
func TestNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "a1111111122223333444455555555555", loadBalancerName(identified("default", "web", "11111111-2222-3333-4444-555555555555")))
	assert.Equal(t, "k8s-elb-a1111111122223333444455555555555", classicGroupName("a1111111122223333444455555555555"))
	assert.Equal(t, "Security group for Kubernetes ELB a1 (default/web)", classicGroupDescription("a1", identified("default", "web", "1")))
	for _, c := range []struct{ cluster, namespace, name, uid, want string }{
		{"test-cluster", "default", "my-service", "12345678-1234-1234-1234-123456789abc", "k8s-default-myservic-b7cb8b02f0"},
		{"test-cluster", "kube-system", "my-service-123", "87654321-4321-4321-4321-cba987654321", "k8s-kubesyst-myservic-5aa269aeaf"},
		{"c", "b", "a", "x", "k8s-b-a-7a83d4e37a"},
		{"test", "___@@@___", "---***---", "special-uid", "k8s---a9ace1b206"},
	} {
		assert.Equal(t, c.want, managedGroupName(c.cluster, identified(c.namespace, c.name, c.uid)))
	}
	s := identified("default", "service-a", "1")
	group := func(targetType, protocol string, interval int32) desiredTargetGroup {
		return desiredTargetGroup{protocol: "TCP", targetType: targetType, port: 8080, check: healthCheck{protocol: protocol, interval: interval}}
	}
	base := targetGroupName("cluster-a", s, 80, group("instance", "TCP", 30))
	assert.Equal(t, "k8s-default-servicea-7dc8c715c5", base)
	assert.Equal(t, "k8s-default-servicea-7fa2e07508", targetGroupName("cluster-a", s, 80, group("instance", "", 0)))
	assert.Equal(t, "k8s-default-servicea-4028e49618", targetGroupName("cluster-a", s, 80, group("ip", "HTTP", 10)))
	for _, other := range []string{
		targetGroupName("cluster-b", s, 80, group("instance", "TCP", 30)),
		targetGroupName("cluster-a", identified("other", "service-a", "1"), 80, group("instance", "TCP", 30)),
		targetGroupName("cluster-a", identified("default", "service-b", "1"), 80, group("instance", "TCP", 30)),
		targetGroupName("cluster-a", s, 81, group("instance", "TCP", 30)),
		targetGroupName("cluster-a", s, 80, desiredTargetGroup{
			protocol: "TCP", targetType: "instance", port: 8081, check: healthCheck{protocol: "TCP", interval: 30},
		}),
		targetGroupName("cluster-a", s, 80, desiredTargetGroup{
			protocol: "UDP", targetType: "instance", port: 8080, check: healthCheck{protocol: "TCP", interval: 30},
		}),
		targetGroupName("cluster-a", s, 80, group("instance", "HTTP", 30)),
		targetGroupName("cluster-a", s, 80, group("instance", "TCP", 10)),
	} {
		assert.NotEqual(t, base, other, "each of what the name is made of changes it")
	}
}

// TestRecordedTexts holds the texts that AWS's own controller looks for.
func TestRecordedTexts(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "kubernetes.io/rule/nlb/client=", descriptionClient)
	assert.Equal(t, "kubernetes.io/rule/nlb/health=", descriptionHealth)
	assert.Equal(t, "kubernetes.io/rule/nlb/mtu", descriptionMTU)
	assert.Equal(t, "[k8s] Managed SecurityGroup for LoadBalancer", managedGroupDescription)
	assert.Equal(t, "k8s-proxyprotocol-enabled", policyProxy)
	assert.Equal(t, "k8s-SSLNegotiationPolicy-", policyTLSPrefix)
	assert.Equal(t, "9767c4972ba72e87ab553bad2afde741", checksum(map[string]string{"key1": "value1"}))
	assert.Equal(t, checksum(map[string]string{"a": "1", "b": "2"}), checksum(map[string]string{"b": "2", "a": "1"}))
	id := &identity{clusterID: "one", legacy: true}
	assert.Equal(t, map[string]string{"kubernetes.io/cluster/one": "owned", "KubernetesCluster": "one"}, id.ownershipTags())
}

func TestClusterTags(t *testing.T) {
	t.Parallel()
	id := &identity{clusterID: "one"}
	for _, c := range []struct {
		tags        map[string]string
		ours, owned bool
		other       string
	}{
		{map[string]string{"kubernetes.io/cluster/one": "owned"}, true, true, ""},
		{map[string]string{"kubernetes.io/cluster/one": "shared"}, true, false, ""},
		{map[string]string{"kubernetes.io/cluster/one": ""}, true, false, ""},
		{map[string]string{"KubernetesCluster": "one"}, true, true, ""},
		{map[string]string{"KubernetesCluster": "two"}, false, false, "two"},
		{map[string]string{"kubernetes.io/cluster/two": "owned"}, false, false, "two"},
		{map[string]string{"kubernetes.io/cluster/two": "owned", "kubernetes.io/cluster/one": "shared"}, true, false, ""},
		{map[string]string{"Kubernetes.io/cluster/one": "owned"}, false, false, ""},
		{nil, false, false, ""},
	} {
		assert.Equal(t, c.ours, id.isTagged(c.tags), "%v", c.tags)
		assert.Equal(t, c.owned, id.isOwned(c.tags), "%v", c.tags)
		assert.Equal(t, c.other, id.otherOwner(c.tags), "%v", c.tags)
	}
}

func TestParsePairs(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]map[string]string{
		"":                   {},
		"a=1,b=2":            {"a": "1", "b": "2"},
		" a = 1 , b = 2 ":    {"a": "1", "b": "2"},
		"a=,b":               {"a": "", "b": ""},
		"=x,,a=1":            {"a": "1"},
		"a=b=c":              {"a": "b"},
		"key with space=v w": {"key with space": "v w"},
	} {
		got, _ := parsePairs(text)
		assert.Equal(t, want, got, "%q", text)
	}
	_, cut := parsePairs("a=b=c,d=1")
	assert.Equal(t, []string{"a"}, cut)
}
