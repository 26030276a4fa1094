package aws

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// TestRulesForNamedGroupsStay: an author of a Service can name any security group there is. Rules by which that group reaches the
// cluster, and which were not made for the Service, stay while it lives and when it goes.
func TestRulesForNamedGroupsStay(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	byHand := awssim.Rule{Protocol: "-1", Group: extraGroup, Description: "control plane"}
	w.sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) { g.Rules = []awssim.Rule{byHand} })
	w.sim.AddGroup(awssim.Group{Name: "etcd", Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}, Rules: []awssim.Rule{byHand}})
	check := func(when string) {
		assert.Equal(t, []awssim.Rule{byHand}, w.group("nodes").Rules, when)
		assert.Equal(t, []awssim.Rule{byHand}, w.group("etcd").Rules, when)
	}
	s := service("tenant", map[string]string{annotationGroups: extraGroup}, servicePort("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	check("made")
	w.restart()
	w.addNode(awssim.Spec{Name: "n2"})
	w.update(s)
	check("nodes changed")
	w.Events()
	require.NoError(t, w.remove(s))
	check("gone")
	assert.Empty(t, w.sim.Classics())
	assert.Contains(t, strings.Join(w.Events(), "\n"), eventRuleKept)
}

// TestGroupOfAnotherService: a Service that names the security group of another one's load balancer closes none of that one's
// nodes. It does not get a group that was made for the other one: that could not be deleted then.
func TestGroupOfAnotherService(t *testing.T) {
	t.Parallel()
	for _, named := range []bool{false, true} { // the other one's own group, or one that both name
		w := startWorld(t, "", awssim.Options{})
		group := w.sim.AddGroup(awssim.Group{Name: "nodes of a second group", Tags: awssim.Tags{"kubernetes.io/cluster/simulated": "owned"}})
		w.addNode(awssim.Spec{Name: "n2", Groups: []string{group}})
		w.nodes[0].Labels["pool"] = "one"
		victim := service("victim", nil, servicePort("http", 80, 30080))
		if named {
			victim.Annotations[annotationGroups] = extraGroup
		}
		w.Apply(victim)
		w.ensure(victim)
		from := w.sim.Classics()[0].Groups[0]
		opened := rules(w.group("nodes of a second group"))
		require.Len(t, opened, 1)

		tenant := service("tenant", map[string]string{annotationGroups: from, annotationNodeLabels: "pool=one"}, servicePort("http", 80, 30081))
		w.Apply(tenant)
		if named {
			w.ensure(tenant)
			w.update(tenant)
		} else {
			w.Events()
			_, err := w.try(tenant)
			require.ErrorContains(t, err, "another Service")
			assert.Contains(t, strings.Join(w.Events(), "\n"), eventConfigError)
			assert.Len(t, w.sim.Classics(), 1)
		}
		require.NoError(t, w.remove(tenant))
		assert.Equal(t, opened, rules(w.group("nodes of a second group")))
		assert.Len(t, rules(w.group("nodes")), 1)
		w.unchanged(victim, "nothing of it was touched")
		require.NoError(t, w.remove(victim))
		assert.Empty(t, rules(w.group("nodes")))
		assert.Empty(t, rules(w.group("nodes of a second group")))
	}
}

// TestTargetGroupsOfOthersStay: a target group that somebody attached by hand makes way, and is not deleted, neither then nor with
// the Service.
func TestTargetGroupsOfOthersStay(t *testing.T) {
	t.Parallel()
	for _, restored := range []bool{true, false} {
		w := startWorld(t, "", awssim.Options{})
		s := nlb("web", nil, servicePort("http", 80, 30080))
		w.Apply(s)
		w.ensure(s)
		byHand := awssim.TargetGroup{
			Name: "k8s-shop-byhand", Protocol: "TCP", Type: "instance", AddressType: "ipv4", Port: 30099, CheckPort: "traffic-port",
			CheckProtocol: "TCP", Interval: 30, Timeout: 10, Healthy: 3, Unhealthy: 3, Attributes: usualAttributes(), Tags: awssim.Tags{},
		}
		w.sim.AddTargetGroup(byHand)
		all := w.sim.TargetGroups()
		require.Len(t, all, 2)
		w.sim.AttachTargetGroup(loadBalancerName(s), 80, all[1].ARN)
		w.restart()
		if restored {
			w.ensure(s)
			assert.Equal(t, all[0].ARN, w.sim.Listeners()[0].TargetGroup, "the listener has its own again")
			assert.Len(t, w.sim.TargetGroups(), 2)
		}
		require.NoError(t, w.remove(s))
		require.Len(t, w.sim.TargetGroups(), 1)
		assert.Equal(t, byHand.Name, w.sim.TargetGroups()[0].Name)
	}
}

// TestTwinCluster: of two clusters with the same ID, the load balancers of one are no orphans of the other, nor are their groups.
func TestTwinCluster(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	w.kube = w.Kube
	all := []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))}
	for _, s := range all {
		w.Apply(s)
		w.ensure(s)
	}
	// This cluster has neither the Services nor the Nodes.
	for _, s := range all {
		require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	}
	w.restart()
	w.kube = w.Kube
	found, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	assert.Empty(t, found)

	// With the Nodes, they are orphans: nothing but this cluster can have made them.
	_, err = w.Kube.CoreV1().Nodes().Create(t.Context(), w.nodes[0], metav1.CreateOptions{})
	require.NoError(t, err)
	found, err = w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, found, 4)

	// What changed since then is looked at again: a Service, or a Node, of the other cluster's.
	_, err = w.Kube.CoreV1().Services("default").Create(t.Context(), all[0], metav1.CreateOptions{})
	require.NoError(t, err)
	require.NoError(t, w.Kube.CoreV1().Nodes().Delete(t.Context(), w.nodes[0].Name, metav1.DeleteOptions{}))
	for _, o := range found {
		require.ErrorIs(t, w.DeleteOrphan(t.Context(), o), errNotOrphan, "%s %s", o.Kind, o.Name)
	}
	assert.Len(t, w.sim.Classics(), 1)
	assert.Len(t, w.sim.Networks(), 1)
	assert.Len(t, w.sim.Groups(), 4)
	assert.Len(t, rules(w.group("nodes")), 3, "the other cluster's load balancers reach its nodes")
}

// TestNothingIsClaimed: nothing that the author of a Service writes leads to a load balancer of another Service: not its name, its
// host name, its tags, nor the node ports.
func TestNothingIsClaimed(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	victims := []*v1.Service{service("classic", nil, servicePort("http", 80, 30080)), nlb("network", nil, servicePort("http", 80, 30081))}
	for i, s := range victims {
		w.Apply(s)
		victims[i] = w.ensure(s)
	}
	before := snapshot(w.sim)
	for _, victim := range victims {
		name := loadBalancerName(victim)
		thief := victim.DeepCopy()
		thief.Namespace, thief.Name, thief.UID, thief.ResourceVersion = "tenant", victim.Name, "uid-of-thief", ""
		thief.CreationTimestamp = metav1.Time{}
		for _, key := range []string{"load-balancer-id", "name", "arn", "target-group-arn"} {
			thief.Annotations[annotationPrefix+key] = name
		}
		thief.Annotations[annotationTags] = serviceTag + "=" + serviceName(victim) + ",kubernetes.io/cluster/simulated=owned,Name=" + name
		w.Apply(thief)
		w.ensure(thief)
		require.NoError(t, w.remove(thief))
	}
	assert.Equal(t, before, snapshot(w.sim))
	for _, s := range victims {
		w.unchanged(s, "served as before")
	}
}

// TestAddressesStayTheUsers: whatever changes about a Service, elastic addresses stay allocated and free in the end, and nothing of
// ours stays.
func TestAddressesStayTheUsers(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
	first, second := w.sim.AddElasticIP(), w.sim.AddElasticIP()
	subnets := map[string]string{annotationSubnets: "public-us-east-1a", annotationEIPs: first}
	s := nlb("web", subnets, servicePort("http", 80, 30080))
	w.Apply(s)
	s = w.ensure(s)
	name := loadBalancerName(s)
	require.Equal(t, map[string]string{first: name, second: ""}, w.sim.ElasticIPs())
	told := func(want string) {
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+eventFixed, want)
	}
	for _, change := range []func(*v1.Service){
		func(s *v1.Service) { s.Annotations[annotationEIPs] = second },
		func(s *v1.Service) { delete(s.Annotations, annotationEIPs); s.Annotations[annotationInternal] = "true" },
		func(s *v1.Service) {
			s.Annotations[annotationInternal], s.Annotations[annotationPrivateAddresses] = "true", "10.0.0.9"
		},
		func(s *v1.Service) { s.Annotations[annotationType] = typeExternal },
	} {
		w.Events()
		s = w.change(s, change)
		_, _ = w.try(s) // the last one is another controller's
		told("what has no effect is told")
		require.Equal(t, map[string]string{first: name, second: ""}, w.sim.ElasticIPs())
		require.Len(t, w.sim.Networks(), 1)
	}
	found, err := w.Orphans(t.Context(), []*v1.Service{s})
	require.NoError(t, err)
	assert.Empty(t, found)
	found, err = w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	assert.Len(t, found, 2, "the load balancer and its group would be found")
	require.NoError(t, w.remove(s))
	assert.Equal(t, map[string]string{first: "", second: ""}, w.sim.ElasticIPs(), "still the user's, and free")
	assert.Empty(t, w.sim.Networks())
	assert.Empty(t, w.sim.TargetGroups())
	assert.Len(t, w.sim.Groups(), 2)
	assert.Empty(t, rules(w.group("nodes")))
	assert.Empty(t, w.server.Calls().Refused)
}

// TestOrphanOfAManagedGroup: the security group of a network load balancer is found once nothing else is left of its Service, and
// AWS's other controller's, whose names are of the same form, is not.
func TestOrphanOfAManagedGroup(t *testing.T) {
	t.Parallel()
	w := startWorld(t, "", awssim.Options{})
	group := func(name string, tags awssim.Tags) string {
		tags["kubernetes.io/cluster/simulated"] = "owned"
		return w.sim.AddGroup(awssim.Group{Name: name, Description: managedGroupDescription, Tags: tags})
	}
	lost := group("k8s-shop-web-0123456789", awssim.Tags{})
	group("k8s-shop-api-0123456789", awssim.Tags{"elbv2.k8s.aws/cluster": "simulated"})
	group("k8s-default-living-0123456789", awssim.Tags{})
	group("web", awssim.Tags{})
	found, err := w.Orphans(t.Context(), []*v1.Service{nlb("living", nil, servicePort("http", 80, 30080))})
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, lost, found[0].ID)
	require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
	assert.Len(t, w.sim.Groups(), 5)
}
