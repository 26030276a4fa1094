package azure

import (
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for, and what others add to what Services share.
func tryOthers(sim *azuresim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Address6 = func() (string, map[string]string) {
		const address = "2603:1020:201::aa"
		sim.LeaveAddress("mine6", address, sixPIP())
		return address, nil
	}
	f.Reserve = func() conformance.Reserved {
		return conformance.Reserved{
			Address: sim.AddAddress("idle"), Exists: func() bool { return sim.Shown(pipID("idle")) != nil },
			Claims: []map[string]string{{annotationName: "idle"}},
		}
	}
	f.OwnershipTags = []string{
		"anyccm-cluster", "K8S-Azure-Service", "k8s-azure-cluster-name", "k8s-azure-dns-label-service", "service", "kubernetes-cluster-name",
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"an outbound rule to a load balancer": func(*v1.Service) func() bool {
			sim.AddAddress("users")
			_ = sim.Change(lbID("kubernetes"), func(lb map[string]any) {
				setList(lb, "frontendIPConfigurations", append(docs(lb, "properties", "frontendIPConfigurations"), leftFront("users", "users")))
				setList(lb, "outboundRules", []doc{part("users-out", doc{
					"frontendIPConfigurations": []any{reference("kubernetes", "frontendIPConfigurations", "users")},
				})})
			})
			return func() bool { return len(docs(sim.Shown(lbID("kubernetes")), "properties", "outboundRules")) == 1 }
		},
		"another Service to an address": func(s *v1.Service) func() bool {
			id := pipID("kubernetes-" + baseName(s))
			_ = sim.Change(id, func(a map[string]any) { a["tags"].(doc)[serviceTag] = serviceName(s) + ",other/guest" })
			return func() bool { return sim.Shown(id) != nil }
		},
	}
	return f
}
