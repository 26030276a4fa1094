package azure

import (
	"strings"

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
	f.Lacks = map[string]string{"Claims": "load balancers are the cluster's, and Services have frontends of them"}
	f.SharedByName = "load balancers have the name of the cluster, as under Azure's own controller, and tell of no other one until they are marked"
	f.Share = func(guest, owner *v1.Service) { guest.Spec.LoadBalancerIP = owner.Status.LoadBalancer.Ingress[0].IP }
	f.AddInterface = func(providerID string) {
		id := strings.TrimPrefix(providerID, "azure://")
		sim.AddSubnet("storage", "10.9.0.0/24")
		subnet := doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", "storage")}
		_ = sim.Change(id, func(m map[string]any) {
			nics := m["properties"].(doc)["networkProfileConfiguration"].(doc)
			nics["networkInterfaceConfigurations"] = append(nics["networkInterfaceConfigurations"].([]any), part("second", doc{
				"primary": false, "ipConfigurations": []any{part("ipconfig", doc{"primary": true, "privateIPAddressVersion": "IPv4", "subnet": subnet})},
			}))
			machine := m["properties"].(doc)["networkProfile"].(doc)
			first := machine["networkInterfaces"].([]any)[0].(doc)
			first["properties"] = doc{"primary": true}
			machine["networkInterfaces"] = []any{first, doc{"id": id + "/networkInterfaces/second", "properties": doc{"primary": false}}}
		})
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
