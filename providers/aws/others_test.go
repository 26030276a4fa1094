package aws

import (
	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for. AWS deletes no security group that others use.
func tryOthers(sim *awssim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		id := sim.AddElasticIP()
		return conformance.Reserved{
			With:  map[string]string{annotationType: typeNLB, annotationEIPs: id, annotationSubnets: "public-us-east-1a"},
			There: func() bool { _, there := sim.ElasticIPs()[id]; return there },
		}
	}
	f.Marks = []string{"kubernetes.io/cluster/" + awssim.ClusterID, "kubernetes.io/cluster/other", serviceTag, "KubernetesCluster", "anyccm.io/x", "AWS:x"}
	return f
}
