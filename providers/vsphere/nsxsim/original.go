package nsxsim

import (
	"fmt"
	"slices"
	"strconv"

	v1 "k8s.io/api/core/v1"
)

type fields = map[string]any

// Original makes what the cloud's own controller leaves in NSX. It is written down here by hand, from what that controller is known
// to send, and not made by our code: identities are random, and nothing names the Service's UID.
type Original struct {
	// Address is that of the load balancers, out of Pool, the IP pool of Class; SNAT is the kind of address translation.
	Address, Pool, Class, SNAT string
	// Service is the path of the load balancer service.
	Service string

	sim    *Sim
	serial int
}

// NewOriginal makes the load balancer service of the cluster kubernetes.
func NewOriginal(s *Sim) *Original {
	o := &Original{
		Address: "203.0.113.77", Pool: PoolID, Class: "default", SNAT: "LBSnatAutoMap", Service: "/infra/lb-services/5b7c1c0e-0000-4000-8000-00000000ab01", sim: s,
	}
	s.Add(o.Service, fields{
		"resource_type": "LBService", "display_name": "cluster:kubernetes", "enabled": true, "size": "SMALL", "connectivity_path": Tier1,
		"description": "virtual server pool for cluster kubernetes created by vsphere-cloud-controller-manager", "tags": OriginalTags("cluster", "kubernetes"),
	})
	return o
}

// OriginalTags are the tags of an object, with the owner; pairs are scopes and tags.
func OriginalTags(pairs ...string) []any {
	list := []any{fields{"scope": "owner", "tag": "vsphere-cloud-controller-manager"}}
	for i := 0; i+1 < len(pairs); i += 2 {
		list = append(list, fields{"scope": pairs[i], "tag": pairs[i+1]})
	}
	return list
}

func (o *Original) id() string {
	o.serial++
	return fmt.Sprintf("9c858901-8a57-4791-81fe-%012d", o.serial)
}

// Serve makes the objects of a Service. Its members are the nodes in an order that nobody promises.
func (o *Original) Serve(s *v1.Service, nodes []*v1.Node) {
	key := s.Namespace + "/" + s.Name
	allocation := "/infra/ip-pools/" + o.Pool + "/ip-allocations/" + o.id()
	o.sim.Add(allocation, fields{"resource_type": "IpAddressAllocation", "tags": OriginalTags("cluster", "kubernetes", "service", key)})
	o.sim.SetAddress(allocation, o.Address)
	members := []any{}
	for _, n := range slices.Backward(nodes) {
		members = append(members, fields{"admin_state": "ENABLED", "display_name": "kubernetes:" + n.Name, "ip_address": n.Status.Addresses[0].Address})
	}
	for _, p := range s.Spec.Ports {
		portTag := fmt.Sprintf("%s/%d", p.Protocol, p.Port)
		tags := OriginalTags("cluster", "kubernetes", "service", key, "port", portTag)
		pool := fields{
			"resource_type": "LBPool", "display_name": "cluster:kubernetes:" + key, "snat_translation": fields{"type": o.SNAT}, "members": members, "tags": tags,
			"description": "pool for cluster kubernetes, service " + key + " created by vsphere-cloud-controller-manager",
		}
		profile := UDPProfile
		if p.Protocol == v1.ProtocolTCP {
			monitor := "/infra/lb-monitor-profiles/" + o.id()
			o.sim.Add(monitor, fields{ // its name is that of the first node port
				"resource_type": "LBTcpMonitorProfile", "display_name": "cluster:kubernetes:" + key + ":31999", "monitor_port": p.NodePort, "tags": tags,
				"description": "tcp monitor for cluster kubernetes, service " + key + ", port 31999 created by vsphere-cloud-controller-manager",
			})
			pool["active_monitor_paths"] = []any{monitor}
			profile = TCPProfile
		}
		at := "/infra/lb-pools/" + o.id()
		o.sim.Add(at, pool)
		o.sim.Add("/infra/lb-virtual-servers/"+o.id(), fields{
			"resource_type": "LBVirtualServer", "display_name": "cluster:kubernetes:" + key, "enabled": true, "ip_address": o.Address,
			"ports": []any{strconv.Itoa(int(p.Port))}, "default_pool_member_ports": []any{strconv.Itoa(int(p.NodePort))},
			"application_profile_path": profile, "pool_path": at, "lb_service_path": o.Service,
			"description": "virtual server for cluster kubernetes, service " + key + " created by vsphere-cloud-controller-manager",
			"tags":        OriginalTags("cluster", "kubernetes", "ippoolid", o.Pool, "lbclass", o.Class, "port", portTag, "service", key),
		})
	}
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: o.Address}}
}
