package azure

import (
	"maps"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

func sixOnly(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }

func bothFamilies(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol} }

func localTraffic(s *v1.Service) {
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
}

// longSubnet makes names that are cut: base-longSubnet has 32 + 1 + 60 characters, and the 75th is a digit.
const longSubnet = "subnet-for-internal-load-balancers-of-n1234567890-and-more-x"

// leftKinds are the clusters that are taken over.
func leftKinds() map[string]left {
	kinds := leftPublic()
	for _, more := range []map[string]left{
		leftAddresses(), leftRules(), leftAccess(), leftInternal(), leftShared(), leftSeveral(), leftLinks(),
	} {
		maps.Copy(kinds, more)
	}
	return kinds
}

// leftPublic are about addresses and pools.
func leftPublic() map[string]left {
	return map[string]left{
		"plain": leftWeb(),
		"tags of before, no zones, an older probe": leftWeb().changed(func(l *left) {
			l.addresses = map[string]leftAddress{webPIP: leftPIP(leftIP, "zones", nil, "tags", doc{"service": "default/web", "kubernetes-cluster-name": "kubernetes"})}
			l.balancers["kubernetes"]["probes"] = []any{leftProbe(webRule, 30080, "probeThreshold", nil, "numberOfProbes", 2)}
		}),
		"configured tags in another case": leftWeb().changed(func(l *left) {
			l.config = map[string]any{"tags": "Team=Web,env=prod", "tagsMap": map[string]any{"ENV": "Prod"}}
			l.addresses = map[string]leftAddress{webPIP: leftPIP(leftIP, "tags", doc{
				"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "Kubernetes", "team": "WEB", "Env": "prod", "of-somebody": "else",
			})}
			l.tags = map[string]doc{"kubernetes": {"TEAM": "web", "env": "PROD"}}
		}),
		"IPv6 alone": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, sixOnly)}
			l.addresses = map[string]leftAddress{webPIP: leftPIP6()}
			l.balancers = map[string]doc{"kubernetes": leftBalancer([]doc{leftFront(base, webPIP)},
				[]doc{leftRule("kubernetes", webRule, base, "kubernetes-IPv6", webRule)}, []doc{leftProbe(webRule, 30080)}, "kubernetes-IPv6")}
			l.rules, l.members = []any{leftAllow("IPv6", hashWeb, 500, "Tcp", "Internet", leftIP6, "80")}, []string{"kubernetes/kubernetes-IPv6"}
			l.ingress = map[string][]string{"web": {leftIP6}}
		}),
		"both families": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, bothFamilies)}
			l.addresses[webPIP+"-IPv6"] = leftPIP6()
			l.balancers = map[string]doc{"kubernetes": leftBalancer(
				[]doc{leftFront(base, webPIP), leftFront(base+"-IPv6", webPIP+"-IPv6")},
				[]doc{
					leftRule("kubernetes", webRule, base, "kubernetes", webRule),
					leftRule("kubernetes", webRule+"-IPv6", base+"-IPv6", "kubernetes-IPv6", webRule+"-IPv6"),
				}, []doc{leftProbe(webRule, 30080), leftProbe(webRule+"-IPv6", 30080)}, "kubernetes", "kubernetes-IPv6")}
			l.rules = append(l.rules, leftAllow("IPv6", hashWeb, 501, "Tcp", "Internet", leftIP6, "80"))
			l.members = []string{"kubernetes/kubernetes", "kubernetes/kubernetes-IPv6"}
			l.ingress = map[string][]string{"web": {leftIP, leftIP6}}
		}),
	}
}

// leftAddresses are about whose the addresses are, and about members by address.
func leftAddresses() map[string]left {
	const prefixID = "/subscriptions/" + azuresim.Subscription + "/resourceGroups/k8s-rg/providers/Microsoft.Network/publicIPPrefixes/prefix-with-a-name-that-is-cut-off-somewhere"
	cut := (webPIP + "-prefix-with-a-name-that-is-cut-off-somewhere")[:75]
	return map[string]left{
		"an address of a prefix, whose name is cut": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationPrefixID: prefixID})}
			l.addresses, l.balancers = map[string]leftAddress{cut: leftPIP(leftIP)}, map[string]doc{"kubernetes": leftWebBalancer("kubernetes", cut)}
		}),
		"a user's address by name": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationName: "mine"})}
			l.addresses = map[string]leftAddress{"mine": leftPIP(leftIP, "tags", nil)}
			l.balancers = map[string]doc{"kubernetes": leftWebBalancer("kubernetes", "mine")}
			l.stays = []string{"address:mine"}
		}),
		"a user's address by IP": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, func(s *v1.Service) { s.Spec.LoadBalancerIP = leftIP })}
			l.addresses = map[string]leftAddress{"mine": leftPIP(leftIP, "tags", doc{"owner": "me"})}
			l.balancers = map[string]doc{"kubernetes": leftWebBalancer("kubernetes", "mine")}
			l.stays = []string{"address:mine"}
		}),
		"a DNS label, IP tags and tags of the address": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{
				annotationLabel: "shop", annotationIPTags: "RoutingPreference=Internet,FirstPartyUsage=/x", annotationTags: "a=b, c = d ",
			})}
			l.addresses = map[string]leftAddress{webPIP: leftPIP(leftIP, "tags", doc{
				"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes", "k8s-azure-dns-label-service": "default/web", "a": "b", "c": "d",
			}, "properties", doc{
				"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4", "dnsSettings": doc{"domainNameLabel": "shop"},
				"ipTags": []any{doc{"ipTagType": "FirstPartyUsage", "tag": "/x"}, doc{"ipTagType": "RoutingPreference", "tag": "Internet"}},
			})}
		}),
		"members by address, under other names": leftWeb().changed(func(l *left) {
			l.config, l.members = map[string]any{"loadBalancerBackendPoolConfigurationType": "nodeIP"}, nil
			network := doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network)}
			l.balancers["kubernetes"]["backendAddressPools"] = []any{part("kubernetes", doc{"loadBalancerBackendAddresses": []any{
				part("by-hand-1", doc{"ipAddress": "10.240.0.11", "virtualNetwork": network}), part("n2", doc{"ipAddress": "10.240.0.8", "virtualNetwork": network}),
			}})}
		}),
		"a configured name beside a load balancer named like the cluster": leftWeb().changed(func(l *left) {
			l.config = map[string]any{"loadBalancerName": "front"}
			l.addresses["else"] = leftPIP(otherIP, "tags", nil)
			l.balancers = map[string]doc{
				"front":      leftWebBalancer("front", webPIP),
				"kubernetes": leftBalancer([]doc{leftFront("theirs", "else")}, []doc{leftRule("kubernetes", "theirs", "theirs", "pool", "")}, nil, "pool"),
			}
			l.members, l.stays = []string{"front/kubernetes"}, []string{"kubernetes", "address:else"}
		}),
	}
}

// leftRules are about rules, probes and the security group.
func leftRules() map[string]left {
	const both = "556f7044ec033071ec0dfcf7cd85bc93" // Tcp_Internet_443,80
	rule := func(l *left, more ...any) {
		l.balancers["kubernetes"]["loadBalancingRules"] = []any{leftRule("kubernetes", webRule, base, "kubernetes", webRule, more...)}
	}
	probe := func(l *left, name string, port int, more ...any) {
		l.balancers["kubernetes"]["probes"] = []any{leftProbe(name, port, more...)}
		l.balancers["kubernetes"]["loadBalancingRules"] = []any{leftRule("kubernetes", webRule, base, "kubernetes", name)}
	}
	return map[string]left{
		"tuned": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationIdle: "30", annotationNoReset: "true"}, func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
			})}
			l.config = map[string]any{"disableOutboundSNAT": true}
			rule(l, "idleTimeoutInMinutes", 30, "enableTcpReset", false, "loadDistribution", "SourceIP", "disableOutboundSnat", true)
		}),
		"fields that Azure leaves out": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationNoReset: "true"})}
			rule(l, "enableTcpReset", nil, "disableOutboundSnat", nil, "idleTimeoutInMinutes", nil)
		}),
		"local": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, localTraffic)}
			probe(l, base+"-TCP-30999", 30999, "protocol", "Http", "requestPath", "/healthz")
		}),
		"HTTP probes": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{
				annotationProbeProtocol: "http", annotationProbePath: "/ready", annotationProbeInterval: "10", annotationProbeNumber: "3",
			})}
			probe(l, webRule, 30080, "protocol", "Http", "requestPath", "/ready", "intervalInSeconds", 10, "probeThreshold", 3)
		}),
		"UDP and TCP on one port": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, func(s *v1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "u", Protocol: v1.ProtocolUDP, Port: 80, NodePort: 30081})
			})}
			rule(l)
			l.balancers["kubernetes"]["loadBalancingRules"] = append(l.balancers["kubernetes"]["loadBalancingRules"].([]any),
				leftRule("kubernetes", base+"-UDP-80", base, "kubernetes", "", "protocol", "Udp", "enableTcpReset", nil))
			l.rules = append(l.rules, leftAllow("IPv4", "6b4085dfd0882976b170baf495eeb088", 501, "Udp", "Internet", leftIP, "80")) // Udp_Internet_80
		}),
		"two ports, sorted as texts": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(nil, func(s *v1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: "s", Protocol: v1.ProtocolTCP, Port: 443, NodePort: 30443})
			})}
			l.balancers["kubernetes"]["loadBalancingRules"] = []any{
				leftRule("kubernetes", webRule, base, "kubernetes", webRule),
				leftRule("kubernetes", base+"-TCP-443", base, "kubernetes", base+"-TCP-443", "frontendPort", 443, "backendPort", 443),
			}
			l.balancers["kubernetes"]["probes"] = []any{leftProbe(webRule, 30080), leftProbe(base+"-TCP-443", 30443)}
			l.rules = []any{leftAllow("IPv4", both, 777, "Tcp", "Internet", leftIP, "443", "80")}
		}),
		"floating IP off": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationNoFloating: "true"})}
			rule(l, "enableFloatingIP", false, "backendPort", 30080)
			// Tcp_Internet_30080
			l.rules = []any{leftAllow("IPv4", "bc4e74614871d9c246abe0af3fccced5", 500, "Tcp", "Internet", []any{"10.240.0.11", "10.240.0.8"}, "30080")}
		}),
	}
}

// leftAccess are about who may connect.
func leftAccess() map[string]left {
	filtered := func(hash string, source any, annotations map[string]string, ranges ...string) left {
		return leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(annotations, func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = ranges })}
			l.rules = []any{leftAllow("IPv4", hash, 500, "Tcp", source, leftIP, "80")}
		})
	}
	return map[string]left{
		"networks, sorted as texts": filtered("c0c81ca9cebc7866fb5c11813d592ad4", []any{"192.0.2.0/24", "198.51.100.0/24"}, nil, "198.51.100.0/24", "192.0.2.0/24"),
		"networks whose order as texts differs": filtered("6c201ae84721ac89083cef4ba33642d8", []any{"100.64.0.0/10", "20.0.0.0/24", "3.0.0.0/8"}, map[string]string{
			annotationAllowedRanges: "3.0.0.0/8,20.0.0.0/24,100.64.0.0/10",
		}),
		"networks that are joined": filtered("d19fe493a876f8c05e5cbf9b8490d8f2", "10.0.0.0/23", map[string]string{annotationSourceRanges: "10.0.1.0/24,10.0.0.0/24,10.0.0.128/25"}),
		"all networks":             filtered("171627efadb2d53e9804aac21fa6e380", "0.0.0.0/0", nil, "0.0.0.0/0"),
		"service tags": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationServiceTags: "AzureFrontDoor.Backend,Storage"})}
			l.rules = []any{
				leftAllow("IPv4", "465c9cd4f09e4be21ec7e39f3ae2c518", 500, "Tcp", "AzureFrontDoor.Backend", leftIP, "80"),
				leftAllow("IPv4", "6ce51be4b821d0e95b9de38fb5cc4199", 501, "Tcp", "Storage", leftIP, "80"),
			}
		}),
		"all others denied": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationDenyAll: "true", annotationAllowedRanges: "10.0.0.0/8"})}
			l.rules = []any{leftAllow("IPv4", "2e80b3cfd2a6a84924746e76e404cce0", 500, "Tcp", "10.0.0.0/8", leftIP, "80"), part("k8s-azure-lb_deny-all_IPv4", doc{
				"protocol": "*", "access": "Deny", "direction": "Inbound", "priority": 4095, "sourcePortRange": "*", "sourceAddressPrefix": "*",
				"destinationPortRange": "*", "destinationAddressPrefix": leftIP, "destinationAddressPrefixes": []any{}, "sourceAddressPrefixes": []any{},
			})}
		}),
		"no rules of the security group": leftWeb().changed(func(l *left) {
			l.services, l.rules = []*v1.Service{webService(map[string]string{annotationNoSecurity: "true"})}, nil
		}),
		"further addresses": leftWeb().changed(func(l *left) {
			l.services = []*v1.Service{webService(map[string]string{annotationAdditional: "20.61.0.1,20.61.0.2"})}
			l.rules = []any{leftAllow("IPv4", hashWeb, 500, "Tcp", "Internet", []any{leftIP, "20.61.0.1", "20.61.0.2"}, "80")}
			l.ingress = map[string][]string{"web": {leftIP, "20.61.0.1", "20.61.0.2"}}
			l.unproven = []string{"20.61.0.1", "20.61.0.2"}
		}),
	}
}

// leftInternal are about internal load balancers.
func leftInternal() map[string]left {
	const ip, ip6, inApps, inOne = "10.240.7.7", "fd00:10:240::77", base + "-apps-TCP-80", base + "-apps-1-TCP-80"
	internal := func(subnet, front, rule, probe string, service *v1.Service, more ...any) left {
		return leftWeb().changed(func(l *left) {
			l.services, l.addresses, l.rules = []*v1.Service{service}, nil, nil
			port := 30080
			var settings []any
			if strings.HasSuffix(probe, "30999") {
				port, settings = 30999, []any{"protocol", "Http", "requestPath", "/healthz"}
			}
			l.balancers = map[string]doc{"kubernetes-internal": leftBalancer([]doc{leftPrivate(front, subnet, ip)},
				[]doc{leftRule("kubernetes-internal", rule, front, "kubernetes", probe, more...)}, []doc{leftProbe(probe, port, settings...)}, "kubernetes")}
			l.members, l.ingress = []string{"kubernetes-internal/kubernetes"}, map[string][]string{"web": {ip}}
			if subnet != azuresim.Subnet {
				l.subnets = map[string]string{subnet: "10.240.7.0/24"}
			}
		})
	}
	yes := map[string]string{annotationInternal: "true"}
	in := func(subnet string) map[string]string {
		return map[string]string{annotationInternal: "true", annotationSubnet: subnet}
	}
	allPorts := map[string]string{annotationInternal: "true", annotationAllPorts: "true"}
	cutFront := (base + "-" + longSubnet)[:74] + "_"
	cutRule := base + "-" + longSubnet[:75-32-1-7] + "-TCP-80"
	return map[string]left{
		"internal": internal(azuresim.Subnet, base, webRule, webRule, webService(yes)),
		"internal, a dynamic address": internal(azuresim.Subnet, base, webRule, webRule, webService(yes)).changed(func(l *left) {
			l.balancers["kubernetes-internal"]["frontendIPConfigurations"] = []any{leftPrivate(base, azuresim.Subnet, ip, "privateIPAllocationMethod", "Static")}
		}),
		"internal, in a subnet":                              internal("apps", base+"-apps", inApps, inApps, webService(in("apps"))),
		"internal, in a subnet whose name ends with a digit": internal("apps-1", base+"-apps-1", inOne, inOne, webService(in("apps-1"))),
		"internal, in a subnet whose name is cut":            internal(longSubnet, cutFront, cutRule, cutRule, webService(in(longSubnet))),
		"internal, local, in a subnet":                       internal("apps", base+"-apps", inApps, base+"-apps-TCP-30999", webService(in("apps"), localTraffic)),
		"internal, an address that is asked for": internal(azuresim.Subnet, base, webRule, webRule, webService(map[string]string{
			annotationInternal: "true", annotationIPv4: ip,
		})),
		"internal, all ports": internal(azuresim.Subnet, base, webRule, webRule, webService(allPorts), "protocol", "All", "frontendPort", 0, "backendPort", 0),
		"internal, both families, all ports": internal(azuresim.Subnet, base, webRule, webRule, webService(allPorts, bothFamilies)).changed(func(l *left) {
			const lb, six = "kubernetes-internal", base + "-IPv6"
			all := []any{"protocol", "All", "frontendPort", 0, "backendPort", 0}
			l.balancers = map[string]doc{lb: leftBalancer(
				[]doc{leftPrivate(base, azuresim.Subnet, ip), leftPrivate(six, azuresim.Subnet, ip6, "privateIPAddressVersion", "IPv6")},
				[]doc{
					leftRule(lb, webRule, base, "kubernetes", webRule, all...),
					leftRule(lb, webRule+"-IPv6", six, "kubernetes-IPv6", webRule+"-IPv6", append(all, "enableFloatingIP", false)...),
				}, []doc{leftProbe(webRule, 30080), leftProbe(webRule+"-IPv6", 30080)}, "kubernetes", "kubernetes-IPv6")}
			l.members = []string{lb + "/kubernetes", lb + "/kubernetes-IPv6"}
			l.ingress = map[string][]string{"web": {ip, ip6}}
		}),
		"internal, SCTP": internal(azuresim.Subnet, base, base+"-SCTP-80", "", webService(yes, func(s *v1.Service) {
			s.Spec.Ports[0].Protocol = v1.ProtocolSCTP
		}), "protocol", "All", "enableTcpReset", nil).changed(func(l *left) { l.balancers["kubernetes-internal"]["probes"] = []any{} }),
		"internal, networks": internal(azuresim.Subnet, base, webRule, webRule, webService(map[string]string{
			annotationInternal: "true", annotationAllowedRanges: "10.0.0.0/8",
		})).changed(func(l *left) {
			l.rules = []any{leftAllow("IPv4", "2e80b3cfd2a6a84924746e76e404cce0", 500, "Tcp", "10.0.0.0/8", ip, "80")}
		}),
	}
}

// leftShared are about what several Services, clusters and users share.
func leftShared() map[string]left {
	const second, foreign = "a3c1f6b527a664b588b4b0a61c1f9e01", "afffffff7a664b588b4b0a61c1f9e0cf"
	more := func(l *left) {
		l.services = append(l.services, webNumber(1, nil))
		l.addresses["kubernetes-"+second] = leftPIP(otherIP, "tags", doc{"k8s-azure-service": "default/web-1", "k8s-azure-cluster-name": "kubernetes"})
		l.balancers["kubernetes"] = leftBalancer([]doc{leftFront(base, webPIP), leftFront(second, "kubernetes-"+second)}, []doc{
			leftRule("kubernetes", webRule, base, "kubernetes", webRule), leftRule("kubernetes", second+"-TCP-80", second, "kubernetes", second+"-TCP-80"),
		}, []doc{leftProbe(webRule, 30080), leftProbe(second+"-TCP-80", 30081)}, "kubernetes")
		l.rules = []any{leftAllow("IPv4", hashWeb, 500, "Tcp", "Internet", []any{leftIP, otherIP}, "80")}
		l.ingress = map[string][]string{"web": {leftIP}, "web-1": {otherIP}}
	}
	return map[string]left{
		"two Services in one security rule": leftWeb().changed(more),
		"one probe for all": leftWeb().changed(more).changed(func(l *left) {
			const shared = "cluster-service-shared-health-probe"
			l.config = map[string]any{"clusterServiceLoadBalancerHealthProbeMode": "Shared"}
			l.balancers["kubernetes"]["loadBalancingRules"] = []any{
				leftRule("kubernetes", webRule, base, "kubernetes", shared), leftRule("kubernetes", second+"-TCP-80", second, "kubernetes", shared),
			}
			l.balancers["kubernetes"]["probes"] = []any{leftProbe(shared, 10256, "protocol", "Http", "requestPath", "/healthz")}
		}),
		"a second Service on the address": leftWeb().changed(func(l *left) {
			onPort := func(s *v1.Service) { s.Spec.Ports[0].Port = 8080 }
			l.services = append(l.services, webNumber(1, map[string]string{annotationIPv4: leftIP}, onPort))
			l.addresses[webPIP] = leftPIP(leftIP, "tags", doc{"k8s-azure-service": "default/web,default/web-1", "k8s-azure-cluster-name": "kubernetes"})
			l.balancers["kubernetes"] = leftBalancer([]doc{leftFront(base, webPIP)}, []doc{
				leftRule("kubernetes", webRule, base, "kubernetes", webRule),
				leftRule("kubernetes", second+"-TCP-8080", base, "kubernetes", second+"-TCP-8080", "frontendPort", 8080, "backendPort", 8080),
			}, []doc{leftProbe(webRule, 30080), leftProbe(second+"-TCP-8080", 30081)}, "kubernetes")
			l.rules = append(l.rules, leftAllow("IPv4", "598ac966df67dd73c4c2eb44fab6896c", 501, "Tcp", "Internet", leftIP, "8080"))
			l.ingress = map[string][]string{"web": {leftIP}, "web-1": {leftIP}}
		}),
		"rules of others and another cluster's pool": leftWeb().changed(func(l *left) {
			// Another cluster's address and Service are in the same rules, and what a user wrote is around them.
			l.addresses["else"] = leftPIP(otherIP, "tags", doc{"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "other"})
			lb := leftBalancer([]doc{leftFront(base, webPIP), leftFront(foreign, "else")}, []doc{
				leftRule("kubernetes", webRule, base, "kubernetes", webRule), leftRule("kubernetes", foreign+"-TCP-80", foreign, "other", ""),
			}, []doc{leftProbe(webRule, 30080)}, "kubernetes", "other")
			lb["backendAddressPools"] = append(lb["backendAddressPools"].([]any), part("by-hand", doc{
				"virtualNetwork":               doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network)},
				"loadBalancerBackendAddresses": []any{part("x", doc{"ipAddress": "10.240.9.9"})},
			}))
			l.balancers["kubernetes"] = lb
			l.members = append(l.members, "kubernetes/other")
			theirs := leftAllow("IPv4", "598ac966df67dd73c4c2eb44fab6896c", 600, "Tcp", "Internet", otherIP, "8080")
			group := leftAllow("IPv4", "of-a-group", 601, "Tcp", "Internet", nil, "80")
			target := doc{"id": azuresim.ID("Microsoft.Network/applicationSecurityGroups", "x")}
			group["name"], group["properties"].(doc)["destinationApplicationSecurityGroups"] = "k8s-azure-lb_group", []any{target}
			delete(group["properties"].(doc), "destinationAddressPrefix")
			admin := leftAllow("IPv4", "", 501, "*", "*", "*", "22")
			admin["name"] = "admin"
			l.rules = append(l.rules, theirs, group, admin)
			l.stays = []string{
				"rule:" + theirs["name"].(string), "rule:k8s-azure-lb_group", "rule:admin", "pool:kubernetes/other", "pool:kubernetes/by-hand", "address:else",
			}
		}),
	}
}

// leftSeveral are about several load balancers, whose members are addresses.
func leftSeveral() map[string]left {
	members := func(d doc, nodes ...string) doc {
		for i := range d["backendAddressPools"].([]any) {
			var list []any
			for _, n := range nodes {
				list = append(list, part("any-name-"+n, doc{"ipAddress": n}))
			}
			d["backendAddressPools"].([]any)[i].(doc)["properties"] = doc{
				"loadBalancerBackendAddresses": list, "virtualNetwork": doc{"id": azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network)},
			}
		}
		return d
	}
	second := map[string]any{"name": "lb2", "primaryVMSet": "second"}
	return map[string]left{
		"several, on the second": leftWeb().changed(func(l *left) {
			l.config, l.members = lbs(map[string]any{"name": "lb2", "primaryVMSet": azuresim.ScaleSet}), nil
			l.config["multipleStandardLoadBalancerConfigurations"].([]any)[0].(map[string]any)["primaryVMSet"] = "first"
			l.balancers = map[string]doc{"lb2": members(leftWebBalancer("lb2", webPIP), "10.240.0.8", "10.240.0.11")}
		}),
		"several, traffic that stays on its node": leftWeb().changed(func(l *left) {
			l.config, l.members = lbs(second), nil
			l.services, l.endpoints = []*v1.Service{webService(nil, localTraffic)}, endpointsOn("n2")
			const probe = base + "-TCP-30999"
			l.balancers = map[string]doc{"kubernetes": members(leftBalancer([]doc{leftFront(base, webPIP)},
				[]doc{leftRule("kubernetes", webRule, base, "default-web", probe)}, []doc{leftProbe(probe, 30999, "protocol", "Http", "requestPath", "/healthz")},
				"default-web"), "10.240.0.11")}
		}),
	}
}

// leftLinks are about private link services.
func leftLinks() map[string]left {
	const ip, inOne = "10.240.7.7", base + "-apps-1"
	internal := func(link string, d doc, annotations map[string]string) left {
		annotations[annotationInternal], annotations[annotationPrivateLink] = "true", "true"
		return leftWeb().changed(func(l *left) {
			l.services, l.addresses, l.rules = []*v1.Service{webService(annotations)}, nil, nil
			l.balancers = map[string]doc{"kubernetes-internal": leftBalancer([]doc{leftPrivate(base, azuresim.Subnet, ip)},
				[]doc{leftRule("kubernetes-internal", webRule, base, "kubernetes", webRule)}, []doc{leftProbe(webRule, 30080)}, "kubernetes")}
			l.members, l.ingress = []string{"kubernetes-internal/kubernetes"}, map[string][]string{"web": {ip}}
			l.links = map[string]doc{link: d}
		})
	}
	return map[string]left{
		"a private link service": internal("pls-"+base, leftLink(base, "pls-"+base, "dynamic-0", ""), map[string]string{}),
		"a private link service in a subnet whose name ends with a digit": internal("pls-"+inOne, leftLink(inOne, "pls-"+inOne,
			"dynamic-0", ""), map[string]string{annotationSubnet: "apps-1", annotationLinkSubnet: azuresim.Subnet}).changed(func(l *left) {
			l.subnets = map[string]string{"apps-1": "10.240.7.0/24"}
			l.balancers = map[string]doc{"kubernetes-internal": leftBalancer([]doc{leftPrivate(inOne, "apps-1", ip)},
				[]doc{leftRule("kubernetes-internal", inOne+"-TCP-80", inOne, "kubernetes", inOne+"-TCP-80")},
				[]doc{leftProbe(inOne+"-TCP-80", 30080)}, "kubernetes")}
		}),
		"a private link service of every setting": internal("shop", leftLink(base, "shop", "static-10.240.7.9", "10.240.7.9",
			"tags", doc{"k8s-azure-owner-service": "Default/Web", "k8s-azure-cluster-name": "Kubernetes", "team": "web", "of-somebody": "else"},
			"visibility", doc{"subscriptions": []any{"*"}}, "autoApproval", doc{"subscriptions": []any{azuresim.Subscription}},
			"fqdns", []any{"a.example.com", "b.example.com"}, "enableProxyProtocol", true), map[string]string{
			annotationLinkName: "shop", annotationLinkIPs: "10.240.7.9", annotationLinkProxy: "true", annotationLinkVisible: "*",
			annotationLinkFQDNs: "b.example.com a.example.com", annotationLinkApproved: azuresim.Subscription,
		}).changed(func(l *left) {
			l.config = map[string]any{"tags": "Team=Web"}
			l.tags = map[string]doc{"kubernetes-internal": {"team": "WEB"}}
		}),
	}
}
