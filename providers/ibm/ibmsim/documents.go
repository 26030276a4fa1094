package ibmsim

import (
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Created is when everything was made: nothing depends on it.
const Created = "2026-01-28T12:00:00Z"

// reference is how documents name another one.
func reference(r *http.Request, path, id, name string) object {
	o := object{"id": id, "href": address(r, path+"/"+id), "crn": "crn:v1:bluemix:public:is:" + Region + ":a/" + Account + "::" + path[1:] + ":" + id, "name": name}
	return o
}

func address(r *http.Request, path string) string { return "http://" + r.Host + "/v1" + path }

func merge(o, more object) object {
	maps.Copy(o, more)
	return o
}

func vpcReference(r *http.Request, name string) object {
	return merge(reference(r, "/vpcs", vpcID(name), name), object{"resource_type": "vpc"})
}

func vpcID(name string) string {
	return "r006-" + strings.Repeat("0", 8) + "-0000-4000-8000-" + strings.Repeat("0", 11) + map[bool]string{true: "1", false: "2"}[name == VPC]
}

func groupReference(r *http.Request) object {
	return object{"id": GroupID, "href": "http://" + r.Host + "/v2/resource_groups/" + GroupID, "name": ResourceGroup}
}

func zone(r *http.Request, name string) object {
	return object{"name": name, "href": address(r, "/regions/"+Region+"/zones/"+name)}
}

// showInstance is the document of an instance, with all fields that one has.
func (s *Sim) showInstance(r *http.Request, i *Instance) object {
	ip := object{
		"address": i.IP, "auto_delete": true, "href": address(r, "/subnets/x/reserved_ips/x"),
		"id": "0717-" + i.ID[5:], "name": "primary", "resource_type": "subnet_reserved_ip",
	}
	subnet := merge(reference(r, "/subnets", s.subnets[0].ID, s.subnets[0].Name), object{"resource_type": "subnet"})
	nic := object{
		"id": "0717-" + i.ID[5:], "href": address(r, "/instances/"+i.ID+"/network_interfaces/x"), "name": "eth0", "primary_ip": ip,
		"resource_type": "network_interface", "subnet": subnet,
	}
	cards := []object{nic}
	if i.Second != "" {
		at := merge(maps.Clone(ip), object{"address": i.Second})
		second := merge(maps.Clone(nic), object{"id": "0717-2" + i.ID[6:], "name": "eth1", "primary_ip": at})
		cards = []object{second, nic}
	}
	startable := i.Status == "stopped"
	return merge(reference(r, "/instances", i.ID, i.Name), object{
		"status": i.Status, "profile": object{"name": i.Profile, "href": address(r, "/instance/profiles/"+i.Profile), "resource_type": "instance_profile"},
		"zone": zone(r, i.Zone), "vpc": vpcReference(r, i.VPC), "primary_network_interface": nic, "network_interfaces": cards,
		"network_attachments": []object{}, "availability": object{"class": "standard"},
		"availability_policy": object{"host_failure": "restart", "preemption": "stop"}, "bandwidth": 4000,
		"boot_volume_attachment": object{
			"id": "0717-" + i.ID[5:], "href": address(r, "/x"), "name": "boot",
			"device": object{"id": "x"},
			"volume": object{"crn": "crn:x", "href": address(r, "/volumes/x"), "id": "r006-x", "name": "boot", "resource_type": "volume"},
		},
		"cluster_network_attachments": []object{}, "confidential_compute_mode": "disabled", "created_at": Created, "disks": []object{}, "enable_secure_boot": false,
		"health_reasons": []object{}, "health_state": "ok", "lifecycle_reasons": []object{}, "lifecycle_state": "stable", "memory": 16,
		"metadata_service":     object{"enabled": true, "protocol": "http", "response_hop_limit": 1},
		"reservation_affinity": object{"policy": "disabled", "pool": []object{}}, "resource_group": groupReference(r), "resource_type": "instance",
		"software_attachments": []object{}, "startable": startable, "status_reasons": []object{}, "threads_per_core": 2, "total_network_bandwidth": 3000,
		"total_volume_bandwidth": 1000, "vcpu": object{"architecture": "amd64", "burst": object{"limit": 400}, "count": 4, "manufacturer": "intel", "percentage": 100},
		"volume_attachments": []object{}, "volume_bandwidth_qos_mode": "pooled",
	})
}

// showSubnet is the document of a subnet.
func (s *Sim) showSubnet(r *http.Request, n Subnet) object {
	return merge(reference(r, "/subnets", n.ID, n.Name), object{
		"available_ipv4_address_count": 200, "total_ipv4_address_count": 256, "created_at": Created, "ip_version": "ipv4", "ipv4_cidr_block": n.CIDR,
		"network_acl":    reference(r, "/network_acls", "r006-acl", "acl"),
		"resource_group": groupReference(r), "resource_type": "subnet", "status": "available", "vpc": vpcReference(r, n.VPC), "zone": zone(r, n.Zone),
		"routing_table": merge(reference(r, "/vpcs/x/routing_tables", "r006-rt", "table"), object{"resource_type": "routing_table"}),
	})
}

// showVPC is the document of a VPC.
func (s *Sim) showVPC(r *http.Request, name string) object {
	standard := object{}
	for _, g := range s.groups {
		if g.isDefault && g.VPC == name {
			standard = reference(r, "/security_groups", g.ID, g.Name)
		}
	}
	return merge(vpcReference(r, name), object{
		"classic_access": false, "created_at": Created, "cse_source_ips": []object{}, "default_security_group": standard,
		"default_network_acl":   reference(r, "/network_acls", "r006-acl", "acl"),
		"default_routing_table": merge(reference(r, "/vpcs/x/routing_tables", "r006-rt", "table"), object{"resource_type": "routing_table"}),
		"dns": object{
			"enable_hub": false, "resolution_binding_count": 0, "resolver": object{"servers": []object{}, "type": "system", "configuration": "default"},
		},
		"health_reasons": []object{}, "health_state": "ok", "public_address_ranges": []object{}, "resource_group": groupReference(r), "status": "available",
	})
}

// showLoadBalancer is the document of a load balancer, with all fields that one has.
func (s *Sim) showLoadBalancer(r *http.Request, lb *LoadBalancer) object {
	path := "/load_balancers/" + lb.ID
	listeners, pools, subnets := []object{}, []object{}, []object{}
	for _, l := range lb.Listeners {
		listeners = append(listeners, object{"id": l.ID, "href": address(r, path+"/listeners/"+l.ID)})
	}
	for _, p := range lb.Pools {
		pools = append(pools, object{"id": p.ID, "href": address(r, path+"/pools/"+p.ID), "name": p.Name})
	}
	for _, n := range s.subnets {
		for _, id := range lb.Subnets {
			if n.ID == id {
				subnets = append(subnets, merge(reference(r, "/subnets", n.ID, n.Name), object{"resource_type": "subnet"}))
			}
		}
	}
	groups := []object{}
	for _, g := range s.groups {
		if slices.Contains(lb.Groups, g.ID) {
			groups = append(groups, reference(r, "/security_groups", g.ID, g.Name))
		}
	}
	public, private, operating := []object{}, []object{}, "offline"
	if lb.ready && lb.Provisioning != "failed" {
		operating = "online"
		private = append(private, object{
			"address": ipOf("10.0.240", lb), "id": "0717-x",
			"href": address(r, "/x"), "name": "ip", "resource_type": "subnet_reserved_ip",
		})
		if lb.Public {
			public = append(public, object{"address": ipOf("203.0.113", lb)})
		}
	}
	profile, idle := "application", []string{}
	if lb.Network {
		profile = "network-fixed"
	}
	document := merge(reference(r, "/load_balancers", lb.ID, lb.Name), object{
		"access_mode": map[bool]string{true: "public", false: "private"}[lb.Public], "advanced_health_checks_supported": false, "asymmetric_routing_supported": false,
		"attached_load_balancer_pool_members": []object{}, "availability": map[bool]string{true: "subnet", false: "region"}[lb.Network], "created_at": Created,
		"failsafe_policy_actions": []string{"fail"}, "fqdn_pool_members_supported": false, "hostname": lb.Hostname, "instance_groups_supported": !lb.Network,
		"is_private_path": false, "is_public": lb.Public, "listeners": listeners,
		"logging": object{"datapath": object{"active": false}}, "mtls_supported": false,
		"operating_status": operating, "pools": pools, "private_ips": private, "public_ips": public, "provisioning_status": s.shownStatus(lb),
		"profile":        object{"family": family(lb), "href": address(r, "/load_balancer/profiles/"+profile), "name": profile},
		"resource_group": groupReference(r), "resource_type": "load_balancer", "route_mode": false, "security_groups": groups, "security_groups_supported": !lb.NoGroups,
		"source_ip_session_persistence_supported": !lb.Network, "subnets": subnets, "udp_supported": lb.Network, "targetable_load_balancer_profiles": idle,
	})
	if lb.DNS != nil {
		document["dns"] = object{"instance": object{"crn": lb.DNS.Instance.CRN}, "zone": object{"id": lb.DNS.Zone.ID}}
	}
	return document
}

func ipOf(network string, lb *LoadBalancer) string {
	return network + "." + strconv.Itoa(lb.number%250+1)
}

// showListener is the document of a listener.
func (s *Sim) showListener(r *http.Request, lb *LoadBalancer, l Listener) object {
	from, to := l.span()
	path := "/load_balancers/" + lb.ID
	o := object{
		"id": l.ID, "href": address(r, path+"/listeners/"+l.ID), "accept_proxy_protocol": false, "created_at": Created, "port": from, "port_min": from, "port_max": to,
		"protocol": l.Protocol, "provisioning_status": "active",
	}
	if l.Pool != nil {
		for _, p := range lb.Pools {
			if p.ID == l.Pool.ID {
				o["default_pool"] = object{"id": p.ID, "href": address(r, path+"/pools/"+p.ID), "name": p.Name}
			}
		}
	}
	if !lb.Network {
		o["connection_limit"], o["idle_connection_timeout"] = 15000, 50
		if l.Limit != nil {
			o["connection_limit"] = *l.Limit
		}
		if l.Idle != nil {
			o["idle_connection_timeout"] = *l.Idle
		}
	}
	return o
}

// showPool returns the document of a pool, with references to its members.
func (s *Sim) showPool(r *http.Request, lb *LoadBalancer, p Pool) object {
	path := "/load_balancers/" + lb.ID + "/pools/" + p.ID
	members := []object{}
	for _, m := range p.Members {
		members = append(members, object{"id": m.ID, "href": address(r, path+"/members/"+m.ID)})
	}
	m := object{"delay": p.Monitor.Delay, "max_retries": p.Monitor.Retries, "timeout": p.Monitor.Timeout, "type": p.Monitor.Type}
	if p.Monitor.Port != nil {
		m["port"] = *p.Monitor.Port
	}
	if p.Monitor.Path != "" {
		m["url_path"] = p.Monitor.Path
	}
	return object{
		"id": p.ID, "href": address(r, path), "name": p.Name, "algorithm": p.Algorithm, "created_at": Created,
		"failsafe_policy": object{"action": "fail", "healthy_member_threshold_count": 0},
		"health_monitor":  m, "members": members, "protocol": p.Protocol, "provisioning_status": "active", "proxy_protocol": p.Proxy,
	}
}

// showMember is the document of a member.
func (s *Sim) showMember(r *http.Request, lb *LoadBalancer, p Pool, m Member) object {
	target := object{"address": m.Target.Address}
	if m.Target.ID != "" {
		target = reference(r, "/instances", m.Target.ID, "instance")
		delete(target, "resource_type")
	}
	return object{
		"id": m.ID, "href": address(r, "/load_balancers/"+lb.ID+"/pools/"+p.ID+"/members/"+m.ID), "created_at": Created, "health": "ok", "port": m.Port,
		"provisioning_status": "active", "target": target, "weight": 50,
	}
}
