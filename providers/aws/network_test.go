package aws

import (
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

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
		assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning "+services.EventFixed, want)
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

// TestEmptyListingsWhileDeleting: an empty answer leaves nothing behind when a Service goes.
func TestEmptyListingsWhileDeleting(t *testing.T) {
	t.Parallel()
	for _, operation := range []string{"EC2 DescribeSecurityGroups", "ELBv2 DescribeTargetGroups", "ELBv2 DescribeLoadBalancers", "ELB DescribeLoadBalancers"} {
		for _, network := range []bool{false, true} {
			w := startWorld(t, "NLBSecurityGroupMode = Managed\n", awssim.Options{})
			s := service("web", nil, servicePort("http", 80, 30080))
			if network {
				s.Annotations[annotationType] = typeNLB
			}
			w.Apply(s)
			w.ensure(s)
			w.restart()
			undo := w.fault(simkit.Fault{Kind: "empty-set", Operation: operation})
			err := w.remove(s)
			undo()
			if err != nil {
				require.NoError(t, w.remove(s), operation)
			}
			assert.Empty(t, w.sim.Networks(), operation)
			assert.Empty(t, w.sim.Classics(), operation)
			assert.Empty(t, w.sim.TargetGroups(), operation)
			assert.Len(t, w.sim.Groups(), 2, operation)
			assert.Empty(t, rules(w.group("nodes")), operation)
		}
	}
}

// TestFormerNodePortIsClosedInEachGroup: a group that EC2 does not change when the load balancer has left a port keeps no other one open.
func TestFormerNodePortIsClosedInEachGroup(t *testing.T) {
	t.Parallel()
	for _, refused := range []string{"nodes", "fresh"} {
		t.Run(refused, func(t *testing.T) {
			t.Parallel()
			w := startWorld(t, "", awssim.Options{})
			w.ownedGroup(gpuGroup, "fresh")
			w.addNode(awssim.Spec{Name: "n9", Groups: []string{gpuGroup}})
			s := nlb("web", nil, servicePort("http", 80, 30080))
			w.Apply(s)
			w.restart()
			w.ensure(s)
			s = w.Current(s).DeepCopy()
			s.Spec.Ports[0].NodePort = 30081
			w.Apply(s)
			w.fault(simkit.Fault{
				Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "EC2 RevokeSecurityGroupIngress",
				Names: map[string]string{"nodes": awssim.NodeGroup, "fresh": gpuGroup}[refused],
			})
			_, err := w.try(s)
			require.Error(t, err)
			for _, group := range []string{"nodes", "fresh"} {
				open := strings.Contains(strings.Join(rules(w.group(group)), "\n"), "30080")
				assert.Equal(t, group == refused, open, "%s: %v", group, rules(w.group(group)))
			}
		})
	}
}
