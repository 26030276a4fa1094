package ibmsim

import (
	"net/http"
	"strings"
)

// created is when everything was made: nothing depends on it.
const created = "2026-01-28T12:00:00Z"

// reference is how documents name another one.
func reference(r *http.Request, path, id, name string) object {
	o := object{"id": id, "href": address(r, path+"/"+id), "crn": "crn:v1:bluemix:public:is:" + Region + ":a/" + Account + "::" + path[1:] + ":" + id, "name": name}
	return o
}

func address(r *http.Request, path string) string { return "http://" + r.Host + "/v1" + path }

func with(o, more object) object {
	for k, v := range more {
		o[k] = v
	}
	return o
}

func vpcReference(r *http.Request, name string) object {
	id := "r006-" + strings.Repeat("0", 8) + "-0000-4000-8000-" + strings.Repeat("0", 11) + map[bool]string{true: "1", false: "2"}[name == VPC]
	return with(reference(r, "/vpcs", id, name), object{"resource_type": "vpc"})
}

func groupReference(r *http.Request) object {
	return object{"id": GroupID, "href": "http://" + r.Host + "/v2/resource_groups/" + GroupID, "name": ResourceGroup}
}

func zone(r *http.Request, name string) object {
	return object{"name": name, "href": address(r, "/regions/"+Region+"/zones/"+name)}
}

// showInstance is the document of an instance, with all fields that one has.
func (s *Sim) showInstance(r *http.Request, i Instance) object {
	ip := object{
		"address": i.IP, "auto_delete": true, "href": address(r, "/subnets/x/reserved_ips/x"), "id": "0717-" + i.ID[5:], "name": "primary", "resource_type": "subnet_reserved_ip",
	}
	subnet := with(reference(r, "/subnets", s.subnets[0].ID, s.subnets[0].Name), object{"resource_type": "subnet"})
	nic := object{
		"id": "0717-" + i.ID[5:], "href": address(r, "/instances/"+i.ID+"/network_interfaces/x"), "name": "eth0", "primary_ip": ip,
		"resource_type": "network_interface", "subnet": subnet,
	}
	startable := i.Status == "stopped"
	return with(reference(r, "/instances", i.ID, i.Name), object{
		"status": i.Status, "profile": object{"name": i.Profile, "href": address(r, "/instance/profiles/"+i.Profile), "resource_type": "instance_profile"},
		"zone": zone(r, i.Zone), "vpc": vpcReference(r, i.VPC), "primary_network_interface": nic, "network_interfaces": []object{nic},
		"network_attachments": []object{}, "availability": object{"class": "standard"},
		"availability_policy": object{"host_failure": "restart", "preemption": "stop"}, "bandwidth": 4000,
		"boot_volume_attachment": object{
			"id": "0717-" + i.ID[5:], "href": address(r, "/x"), "name": "boot",
			"device": object{"id": "x"}, "volume": object{"crn": "crn:x", "href": address(r, "/volumes/x"), "id": "r006-x", "name": "boot", "resource_type": "volume"},
		},
		"cluster_network_attachments": []object{}, "confidential_compute_mode": "disabled", "created_at": created, "disks": []object{}, "enable_secure_boot": false,
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
	return with(reference(r, "/subnets", n.ID, n.Name), object{
		"available_ipv4_address_count": 200, "total_ipv4_address_count": 256, "created_at": created, "ip_version": "ipv4", "ipv4_cidr_block": n.CIDR,
		"network_acl":    reference(r, "/network_acls", "r006-acl", "acl"),
		"resource_group": groupReference(r), "resource_type": "subnet", "status": "available", "vpc": vpcReference(r, n.VPC), "zone": zone(r, n.Zone),
		"routing_table": with(reference(r, "/vpcs/x/routing_tables", "r006-rt", "table"), object{"resource_type": "routing_table"}),
	})
}
