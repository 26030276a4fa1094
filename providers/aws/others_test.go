package aws

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for.
func tryOthers(t testing.TB, sim *awssim.Sim, f *conformance.Fixture) *conformance.Fixture {
	t.Helper()
	f.Reserve = func() conformance.Reserved {
		id := sim.AddElasticIP()
		return conformance.Reserved{
			With:   map[string]string{annotationType: typeNLB, annotationEIPs: id, annotationSubnets: "public-us-east-1a"},
			Exists: func() bool { _, there := sim.ElasticIPs()[id]; return there },
		}
	}
	f.Lacks = map[string]string{
		"Capitals":  "the private DNS name is AWS's own, in small letters",
		"Claims":    "nothing on a Service names a load balancer",
		"Share":     "a load balancer serves one Service",
		"Address6":  "an address that a Service asks for is of IPv4",
		"Additions": "AWS refuses to delete a security group or a target group that others use, and a load balancer is one object",
	}
	f.OwnershipTags = []string{"kubernetes.io/cluster/" + awssim.ClusterID, "kubernetes.io/cluster/other", serviceTag, "KubernetesCluster", "anyccm.io/x", "AWS:x"}
	f.TwinOf = f.AddInstance // another VPC has the same addresses
	f.AddInterface = func(providerID string) {
		id, err := parseProviderID(providerID)
		require.NoError(t, err)
		sim.Edit(id, func(i *awssim.Instance) {
			second := *i.Interfaces[0]
			second.ID, second.Index, second.PrivateIPs = "eni-0000000000000second", 1, []string{"10.0.3.77"}
			second.PrivateDNS, second.Subnet = "", "subnet-00000000000000a3"
			i.Interfaces = append(i.Interfaces, &second)
		})
	}
	return f
}
