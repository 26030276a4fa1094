package ocisim

import (
	"fmt"
	"net/netip"
)

func networkSetShape(creation bool) shape {
	backend := shape{map[string]field{
		"name": text(false, ""), "ipAddress": {kind: "ip"}, "targetId": text(false, `^ocid1\.(instance|privateip|pod)\.`), "port": number(true, 0, maxPort),
		"weight": number(false, 0, 100), "isBackup": flag(), "isDrain": flag(), "isOffline": flag(),
	}}
	checker := shape{map[string]field{
		"protocol": choice(true, "HTTP", "HTTPS", "TCP", "UDP", "DNS"), "port": number(false, 0, maxPort), "urlPath": text(false, `^/`),
		"returnCode": number(false, 100, 599), "retries": number(false, 1, 100), "timeoutInMillis": number(false, 1, 600000),
		"intervalInMillis": number(false, 1000, 1800000), "responseBodyRegex": text(false, ""), "requestData": text(false, ""),
		"responseData": text(false, ""), "dns": {kind: "any"},
	}}
	return shape{map[string]field{
		"policy": choice(creation, "TWO_TUPLE", "THREE_TUPLE", "FIVE_TUPLE"), "isPreserveSource": flag(), "isFailOpen": flag(),
		"isInstantFailoverEnabled": flag(), "isInstantFailoverTcpResetEnabled": flag(), "areOperationallyActiveBackendsPreferred": flag(),
		"ipVersion": choice(false, versionIPv4, versionIPv6), "backends": {kind: "list", of: &backend},
		"healthChecker": {kind: "object", must: creation, of: &checker},
	}}
}

func networkListenerShape(creation bool) shape {
	return shape{map[string]field{
		"defaultBackendSetName": text(creation, `^.+$`), "port": number(creation, 0, maxPort),
		"protocol": choice(creation, "ANY", "TCP", "UDP", "TCP_AND_UDP", "L3IP"), "ipVersion": choice(false, versionIPv4, versionIPv6),
		"isPpv2Enabled": flag(), "tcpIdleTimeout": number(false, 120, 1800), "udpIdleTimeout": number(false, 120, 1800),
		"l3IpIdleTimeout": number(false, 120, 1800),
	}}
}

func partName() field { return field{kind: "string", must: true, form: `^[A-Za-z0-9_-]{1,32}$`} }

func networkGroupsShape() shape {
	return shape{map[string]field{"networkSecurityGroupIds": {
		kind: "list", each: &field{kind: "string", form: `^ocid1\.networksecuritygroup\.`},
	}}}
}

func networkCreationShape() shape {
	sets, listeners := networkSetShape(false), networkListenerShape(true)
	checker := sets.fields["healthChecker"]
	checker.must = true
	sets.fields["healthChecker"] = checker
	listeners.fields["name"] = partName()
	reserved := shape{map[string]field{"id": text(true, `^ocid1\.(publicip|privateip|ipv6)\.`)}}
	return shape{map[string]field{
		"compartmentId": text(true, `^ocid1\.compartment\.`), "displayName": {kind: "string", must: true, form: `^.+$`},
		"subnetId": text(true, `^ocid1\.subnet\.`), "isPrivate": flag(), "isPreserveSourceDestination": flag(), "isSymmetricHashEnabled": flag(),
		"nlbIpVersion": choice(false, versionIPv4, versionBoth, versionIPv6), "subnetIpv6Cidr": text(false, ""),
		"assignedPrivateIpv4": {kind: "ip"}, "assignedIpv6": {kind: "ip"}, "reservedIps": {kind: "list", of: &reserved, atMost: 3},
		"networkSecurityGroupIds": networkGroupsShape().fields["networkSecurityGroupIds"], "listeners": {kind: "map", of: &listeners},
		"backendSets": {kind: "map", of: &sets}, "freeformTags": {kind: kindTags}, "definedTags": {kind: "map"}, "securityAttributes": {kind: "map"},
	}}
}

func networkUpdateShape() shape {
	return shape{map[string]field{
		"displayName": {kind: "string", form: `^.+$`}, "isPreserveSourceDestination": flag(), "isSymmetricHashEnabled": flag(),
		"nlbIpVersion": choice(false, versionIPv4, versionBoth, versionIPv6), "subnetIpv6Cidr": text(false, ""), "assignedIpv6": {kind: "ip"},
		"freeformTags": {kind: kindTags}, "definedTags": {kind: "map"}, "securityAttributes": {kind: "map"},
	}}
}

func versionOf(d document) string {
	if v, ok := d["ipVersion"].(string); ok {
		return v
	}
	return versionIPv4
}

// serves reports whether a network load balancer has a version of IP.
func serves(whole document, version string) bool {
	has, _ := whole["nlbIpVersion"].(string)
	return has == version || has == versionBoth || (has == "" && version == versionIPv4)
}

// judgeNetworkSet is about what a backend set has to do with the rest.
func (s *Sim) judgeNetworkSet(whole document, name string, set document) string {
	if !serves(whole, versionOf(set)) {
		return "backend set " + name + " is of " + versionOf(set) + ", which the network load balancer is not"
	}
	seen := map[string]bool{}
	for _, v := range list(set["backends"]) {
		b := v.(document) //nolint:forcetypeassert // its shape was judged
		ip, _ := b["ipAddress"].(string)
		target, _ := b["targetId"].(string)
		address, err := netip.ParseAddr(ip)
		switch {
		case ip == "" && target == "":
			return "a backend needs ipAddress or targetId"
		case b["port"] == 0.0:
			return "a backend of a listener with a port needs a port"
		case ip != "" && (err != nil || address.Is6() != (versionOf(set) == versionIPv6)):
			return "backend " + ip + " is not of " + versionOf(set)
		case target != "" && versionOf(set) == versionIPv6:
			return "a backend of IPv6 cannot be named by targetId"
		case target != "" && s.VMs.ByID[target] == nil:
			return "there is no target " + target
		}
		for _, key := range []string{ip, target} {
			key = fmt.Sprintf("%s:%v", key, b["port"])
			if key[0] != ':' && seen[key] {
				return "Duplicate backend IP/id + port combinations not allowed"
			}
			seen[key] = true
		}
	}
	return ""
}

// judgeNetworkListener is about what a listener has to do with the rest.
func judgeNetworkListener(whole document, name string, l document) string {
	set := part(part(whole, "backendSets"), fmt.Sprint(l["defaultBackendSetName"]))
	switch {
	case set == nil:
		return "Invalid listener: " + name + " is not associated with a backendset"
	case versionOf(set) != versionOf(l):
		return "Invalid listener: " + name + " is of " + versionOf(l) + " and its backendset of " + versionOf(set)
	case l["port"] == 0.0 && l["protocol"] != "ANY" && l["protocol"] != "L3IP":
		return "Invalid listener: " + name + " has no port"
	}
	for other, o := range part(whole, "listeners") {
		o := o.(document) //nolint:forcetypeassert // its shape was judged
		if other != name && o["port"] == l["port"] && versionOf(o) == versionOf(l) {
			return "Invalid listener: " + name + ": listener " + other + " has the port"
		}
	}
	return ""
}

// judgeNetworkCreation says why a network load balancer cannot be made.
func (s *Sim) judgeNetworkCreation(d document) (code, why string) {
	if why := networkCreationShape().judge("networkLoadBalancer", d); why != "" {
		return "InvalidParameter", why
	}
	subnet, known := s.subnet(fmt.Sprint(d["subnetId"]))
	if !s.hasCompartment(fmt.Sprint(d["compartmentId"])) || !known {
		return "RelatedResourceNotAuthorizedOrNotFound", "there is no such compartment or subnet"
	}
	if why := judgeVersion(subnet, d["nlbIpVersion"]); why != "" {
		return "InvalidParameter", why
	}
	for name, set := range part(d, "backendSets") {
		if why := partName().judge("backend set", name); why != "" {
			return "InvalidParameter", why
		}
		if why := s.judgeNetworkSet(d, name, set.(document)); why != "" { //nolint:forcetypeassert // its shape was judged
			return "InvalidParameter", why
		}
	}
	for name, l := range part(d, "listeners") {
		l := l.(document) //nolint:forcetypeassert // its shape was judged
		if l["name"] != name {
			return "InvalidParameter", fmt.Sprintf("listener %s has the name %v", name, l["name"])
		}
		if why := judgeNetworkListener(d, name, l); why != "" {
			return "InvalidParameter", why
		}
	}
	return s.judgeReserved(d)
}

// judgeReserved is about reserved addresses, of which one may be a public one.
func (s *Sim) judgeReserved(d document) (code, why string) {
	for _, v := range list(d["reservedIps"]) {
		id := v.(document)["id"] //nolint:forcetypeassert // its shape was judged
		if r := s.reservation(fmt.Sprint(id)); d["isPrivate"] == true || r == nil || r.state != "AVAILABLE" {
			return "InvalidParameter", fmt.Sprintf("reserved address %v cannot be used", id)
		}
	}
	return "", ""
}

// judgeVersion is about the versions of IP that a subnet has.
func judgeVersion(subnet document, version any) string {
	six, _ := subnet["ipv6CidrBlocks"].([]string)
	if version != nil && version != versionIPv4 && len(six) == 0 {
		return "the subnet has no addresses of IPv6"
	}
	if version != versionIPv6 && subnet["cidrBlock"] == nil {
		return "the subnet has no addresses of IPv4"
	}
	return ""
}
