package azuresim

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
)

// Kinds of resources of the network.
const (
	kindLoadBalancer  = "Microsoft.Network/loadBalancers"
	kindPool          = "Microsoft.Network/loadBalancers/backendAddressPools"
	kindAddress       = "Microsoft.Network/publicIPAddresses"
	kindPrefix        = "Microsoft.Network/publicIPPrefixes"
	kindSecurityGroup = "Microsoft.Network/networkSecurityGroups"
	kindRouteTable    = "Microsoft.Network/routeTables"
	kindNetwork       = "Microsoft.Network/virtualNetworks"
	kindSubnet        = "Microsoft.Network/virtualNetworks/subnets"
	kindInterface     = "Microsoft.Network/networkInterfaces"
	kindPrivateLink   = "Microsoft.Network/privateLinkServices"
)

func addNetworkKinds(kinds map[string]kind) {
	networkVersions := []string{"2025-01-01", "2025-05-01"} // the one that is written against, and the one of the recordings
	all := "GET PUT DELETE"
	kinds[kindLoadBalancer] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putLoadBalancer, show: (*Sim).showLoadBalancer, remove: (*Sim).removeLoadBalancer,
		fields: loadBalancerFields(),
	}
	kinds[kindAddress] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putAddress, show: (*Sim).showAddress, remove: (*Sim).removeAddress,
		fields: members("publicIPAllocationMethod publicIPAddressVersion idleTimeoutInMinutes ipTags publicIPPrefix dnsSettings ddosSettings ipAddress " +
			"ipConfiguration resourceGuid provisioningState natGateway deleteOption"),
	}
	kinds[kindSecurityGroup] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putSecurityGroup, show: showSecurityGroup,
		fields: members("resourceGuid provisioningState defaultSecurityRules networkInterfaces subnets flushConnection").set("securityRules", sub(
			"protocol access direction priority description sourceAddressPrefix sourceAddressPrefixes sourcePortRange sourcePortRanges "+
				"destinationAddressPrefix destinationAddressPrefixes destinationPortRange destinationPortRanges sourceApplicationSecurityGroups "+
				"destinationApplicationSecurityGroups")),
	}
	kinds[kindRouteTable] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putRouteTable, show: showRouteTable,
		fields: members("resourceGuid provisioningState disableBgpRoutePropagation subnets").set("routes", sub(
			"addressPrefix nextHopType nextHopIpAddress hasBgpOverride")),
	}
	kinds[kindNetwork] = kind{versions: networkVersions, methods: all, put: putAny, show: (*Sim).showNetwork}
	kinds[kindSubnet] = kind{
		versions: networkVersions, methods: all, list: listSubnets, putPart: putSubnet, cutPart: cutSubnet, fields: subnetFields(),
	}
	kinds[kindPool] = kind{
		versions: networkVersions, methods: all, list: listPools, putPart: putPool, cutPart: cutPool,
		fields: loadBalancerFields()["backendAddressPools"]["properties"],
	}
	kinds[kindPrefix] = kind{versions: networkVersions, methods: all, put: putAny, show: showPrefix}
	kinds[kindInterface] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putInterface, show: (*Sim).showInterface,
		fields: members("virtualMachine primary macAddress enableAcceleratedNetworking enableIPForwarding networkSecurityGroup dnsSettings hostedWorkloads "+
			"tapConfigurations resourceGuid provisioningState allowPort25Out defaultOutboundConnectivityEnabled disableTcpStateTracking vnetEncryptionSupported "+
			"auxiliaryMode auxiliarySku nicType privateEndpoint privateLinkService dscpConfiguration migrationPhase workloadType").set("ipConfigurations", sub(
			"primary privateIPAddress privateIPAddressVersion privateIPAllocationMethod privateIPAddressPrefixLength subnet publicIPAddress "+
				"loadBalancerBackendAddressPools loadBalancerInboundNatRules applicationSecurityGroups applicationGatewayBackendAddressPools")),
	}
	kinds[kindPrivateLink] = kind{
		versions: networkVersions, methods: all, put: (*Sim).putPrivateLink, show: (*Sim).showPrivateLink, remove: (*Sim).removePrivateLink,
		fields: privateLinkFields(),
	}
	kinds[kindConnection] = kind{versions: networkVersions, methods: "GET DELETE"}
}

func loadBalancerFields() fields {
	rule := "frontendIPConfiguration backendAddressPool backendAddressPools probe protocol loadDistribution frontendPort backendPort " +
		"idleTimeoutInMinutes enableFloatingIP enableTcpReset disableOutboundSnat enableConnectionTracking"
	frontend := sub("privateIPAddress privateIPAllocationMethod privateIPAddressVersion publicIPAddress publicIPPrefix " +
		"loadBalancingRules outboundRules inboundNatRules inboundNatPools gatewayLoadBalancer")
	frontend["properties"].set("subnet", members("id name")) // which a write may repeat of the subnet itself
	return members("resourceGuid provisioningState inboundNatRules outboundRules inboundNatPools").set("frontendIPConfigurations", frontend).
		set("backendAddressPools", sub("loadBalancerBackendAddresses backendIPConfigurations loadBalancingRules outboundRule outboundRules "+
			"inboundNatRules virtualNetwork location tunnelInterfaces drainPeriodInSeconds syncMode")).
		set("loadBalancingRules", sub(rule)).
		set("probes", sub("protocol port requestPath intervalInSeconds probeThreshold numberOfProbes loadBalancingRules noHealthyBackendsBehavior"))
}

// putLoadBalancer replaces a load balancer, strictly.
func (s *Sim) putLoadBalancer(r *resource, asked object, created bool) *failure {
	if text(asked, "location") == "" || created && text(asked, "sku", "name") == "" {
		return invalid("InvalidRequestFormat", "Cannot parse the request. location and sku are required.")
	}
	if created && !slices.Contains([]string{"Basic", "Standard", "Gateway"}, text(asked, "sku", "name")) {
		return invalid("InvalidRequestFormat", "The sku %q is none of Basic, Standard and Gateway.", text(asked, "sku", "name"))
	}
	if !created && !strings.EqualFold(text(asked, "sku", "name"), text(r.doc, "sku", "name")) {
		return invalid("ResourceSkuCannotBeChanged", "The sku of load balancer %s cannot be changed.", r.name())
	}
	props, _ := asked["properties"].(object)
	if props == nil {
		props = object{}
	}
	if dropDerived(props); created {
		r.doc["sku"] = asked["sku"]
	}
	for _, check := range []func(*resource, object) *failure{
		s.checkFrontends, s.checkRules, s.checkProbes, s.checkBackends, s.checkLinks, checkUnique,
	} {
		if f := check(r, props); f != nil {
			return f
		}
	}
	doc := object{"location": asked["location"], "sku": object{"name": text(asked, "sku", "name"), "tier": "Regional"}}
	for _, key := range []string{"tags", "extendedLocation"} {
		if asked[key] != nil {
			doc[key] = asked[key]
		}
	}
	ensureList(props, "frontendIPConfigurations", "backendAddressPools", "loadBalancingRules", "probes", "inboundNatRules", "outboundRules", "inboundNatPools")
	delete(props, "provisioningState")
	doc["properties"] = props
	r.doc = doc
	return nil
}

// checkUnique refuses two parts of a kind with one name.
func checkUnique(_ *resource, props object) *failure {
	for key := range props {
		seen := map[string]bool{}
		for _, item := range items(props, key) {
			name := strings.ToLower(text(item, "name"))
			if name == "" || seen[name] {
				return invalid("InvalidResourceName", "%s: the name %q is missing or there twice.", key, name)
			}
			seen[name] = true
		}
	}
	return nil
}

func (s *Sim) checkFrontends(r *resource, props object) *failure {
	taken := map[string]bool{}
	for _, f := range items(props, "frontendIPConfigurations") {
		before := findByName(items(r.doc, "properties", "frontendIPConfigurations"), text(f, "name"))
		zones, listed := f["zones"].([]any)
		if f["zones"] != nil && !listed || !areZones(zones) || before != nil && !sameZones(before["zones"], f["zones"]) {
			return invalid("LoadBalancerFrontendIPConfigurationZonesInvalid", "The zones of frontend %s are none, or were others.", text(f, "name"))
		}
		public, subnet := text(f, "properties", "publicIPAddress", "id"), text(f, "properties", "subnet", "id")
		if (public == "") == (subnet == "") {
			return invalid("LoadBalancerFrontendIPConfigurationMustReferenceSubnetOrPublicIP", "Frontend %s must reference a subnet or a public address.", text(f, "name"))
		}
		if public != "" {
			if failed := s.checkPublic(r, text(f, "name"), public); failed != nil {
				return failed
			}
			propertiesOf(f)["privateIPAllocationMethod"] = "Dynamic"
			continue
		}
		if failed := s.checkPrivate(r, f, subnet); failed != nil {
			return failed
		}
		ip := text(f, "properties", "privateIPAddress")
		if taken[ip] {
			return invalid("PrivateIPAddressInUse", "Private IP address %s is in use.", ip)
		}
		taken[ip] = true
	}
	return nil
}

func (s *Sim) checkPublic(r *resource, name, public string) *failure {
	a := s.resources[strings.ToLower(public)]
	switch {
	case a == nil:
		return invalid("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", public, r.id)
	case a.busy.isRunning() || text(s.show(a, false), "properties", "provisioningState") == "Failed":
		return invalid("ReferencedResourceNotProvisioned", "Cannot proceed with operation because resource %s used by resource %s is not in Succeeded state.", public, r.id)
	case text(a.doc, "sku", "name") != text(r.doc, "sku", "name"):
		return invalid("LoadBalancerAndPublicIPAddressSkuMismatch", "The sku of the load balancer and of %s differ.", public)
	}
	if bound := s.frontendOf(public); bound != "" && !strings.EqualFold(bound, r.id+"/frontendIPConfigurations/"+name) {
		if !strings.HasPrefix(strings.ToLower(bound), strings.ToLower(r.id)+"/") {
			return invalid("PublicIPAddressInUse", "Resource %s is already allocated to %s.", public, bound)
		}
	}
	return nil
}

// frontendOf is the frontend that a public address is bound to.
func (s *Sim) frontendOf(public string) string {
	for _, lb := range s.all(kindLoadBalancer) {
		for _, f := range items(lb.doc, "properties", "frontendIPConfigurations") {
			if strings.EqualFold(text(f, "properties", "publicIPAddress", "id"), public) {
				return lb.id + "/frontendIPConfigurations/" + text(f, "name")
			}
		}
	}
	return ""
}

// checkRules judges the rules of a load balancer as a whole.
func (*Sim) checkRules(r *resource, props object) *failure {
	taken, pairs := map[string]string{}, map[string]string{}
	for _, rule := range items(props, "loadBalancingRules") {
		if f := checkReferences(r, props, rule); f != nil {
			return f
		}
		if f := checkRule(props, rule); f != nil {
			return f
		}
		p := rule["properties"]
		protocol, front, back := text(p, "protocol"), number(p, "frontendPort"), number(p, "backendPort")
		floating, _ := follow(p, "enableFloatingIP").(bool)
		key := fmt.Sprint(strings.ToLower(text(p, "frontendIPConfiguration", "id")), " ", protocol, " ", front)
		if other := taken[key]; other != "" {
			return invalid("RulesUseSameFrontendPortProtocolAndIPConfig", "Rules %s and %s use the same frontend port.", other, text(rule, "name"))
		}
		taken[key] = text(rule, "name")
		key = fmt.Sprint(strings.ToLower(text(p, "backendAddressPool", "id")), " ", protocol, " ", back)
		if other := pairs[key]; other != "" && !floating {
			return invalid("RulesUseSameBackendPortProtocolAndPool", "Rules %s and %s use the same backend port.", other, text(rule, "name"))
		}
		if !floating {
			pairs[key] = text(rule, "name")
		}
	}
	return nil
}

// checkReferences demands that what a rule names is a part of its load balancer.
func checkReferences(r *resource, props, rule object) *failure {
	for key, list := range map[string]string{"frontendIPConfiguration": "frontendIPConfigurations", "backendAddressPool": "backendAddressPools", "probe": "probes"} {
		id := text(rule["properties"], key, "id")
		missing := id == "" && key != "probe"
		if missing || id != "" && (!strings.EqualFold(ownerOf(id), r.id) || findByName(items(props, list), lastOf(id)) == nil) {
			return invalid("InvalidResourceReference", "Resource %s referenced by rule %s was not found.", id, text(rule, "name"))
		}
	}
	return nil
}

// checkRule judges a rule by itself.
func checkRule(props, rule object) *failure {
	p := rule["properties"]
	protocol, front, back := text(p, "protocol"), number(p, "frontendPort"), number(p, "backendPort")
	frontend := findByName(items(props, "frontendIPConfigurations"), lastOf(text(p, "frontendIPConfiguration", "id")))
	internal := follow(frontend, "properties", "subnet") != nil
	switch {
	case protocol != "Tcp" && protocol != "Udp" && protocol != "All":
		return invalid("InvalidRequestFormat", "protocol %q is none of Tcp, Udp, All.", protocol)
	case protocol == "All" && (!internal || front != 0 && front != back):
		return invalid("LoadBalancingRuleInvalidProtocolAll", "Rule %s: protocol All is for internal load balancers.", text(rule, "name"))
	case protocol != "All" && (front < 1 || front > 65534 || back < 1 || back > 65535):
		return invalid("InvalidRequestFormat", "Rule %s: port %d or %d is out of range.", text(rule, "name"), front, back)
	case !slices.Contains([]string{"", "Default", "SourceIP", "SourceIPProtocol"}, text(p, "loadDistribution")):
		return invalid("InvalidRequestFormat", "loadDistribution %q is unknown.", text(p, "loadDistribution"))
	}
	return checkIdle(p, text(rule, "name"))
}

func checkIdle(p any, name string) *failure {
	if idle := number(p, "idleTimeoutInMinutes"); follow(p, "idleTimeoutInMinutes") != nil && (idle < 4 || idle > 100) {
		return invalid("InvalidRequestFormat", "Rule %s: idle timeout %d is out of range.", name, idle)
	}
	return nil
}

func (*Sim) checkProbes(_ *resource, props object) *failure {
	for _, probe := range items(props, "probes") {
		p := probe["properties"]
		protocol, port, interval := text(p, "protocol"), number(p, "port"), number(p, "intervalInSeconds")
		switch {
		case !slices.Contains([]string{"Tcp", "Http", "Https"}, protocol):
			return invalid("InvalidRequestFormat", "Probe %s: protocol %q is unknown.", text(probe, "name"), protocol)
		case port < 1 || port > 65535 || interval < 5:
			return invalid("InvalidRequestFormat", "Probe %s: port %d or interval %d is out of range.", text(probe, "name"), port, interval)
		case (protocol == "Tcp") != (text(p, "requestPath") == ""):
			return invalid("InvalidProbeRequestPath", "Probe %s: a path is for Http and Https, which need one.", text(probe, "name"))
		}
	}
	return nil
}

func (s *Sim) checkBackends(r *resource, props object) *failure {
	kept := map[string]bool{}
	for _, pool := range items(props, "backendAddressPools") {
		kept[strings.ToLower(text(pool, "name"))] = true
		addresses := items(pool, "properties", "loadBalancerBackendAddresses")
		delete(properties2(pool), "backendIPConfigurations") // read-only
		id := r.id + "/backendAddressPools/" + text(pool, "name")
		if len(addresses) > 0 && len(s.memberConfigs(id)) > 0 && !fromInterfaces(addresses) {
			return invalid("MixedBackendPool", "Backend pool %s has members by network interface.", text(pool, "name"))
		}
		if fromInterfaces(addresses) {
			delete(properties2(pool), "loadBalancerBackendAddresses")
			continue
		}
		for _, a := range addresses {
			if _, err := netip.ParseAddr(text(a, "properties", "ipAddress")); err != nil || text(a, "name") == "" {
				return invalid("InvalidRequestFormat", "Backend pool %s: the address %v is not legal.", text(pool, "name"), a)
			}
			if text(pool, "properties", "virtualNetwork", "id") == "" && text(a, "properties", "virtualNetwork", "id") == "" {
				return invalid("BackendAddressNeedsVirtualNetwork", "Backend pool %s: a virtual network is missing.", text(pool, "name"))
			}
		}
	}
	for _, pool := range items(r.doc, "properties", "backendAddressPools") {
		id := r.id + "/backendAddressPools/" + text(pool, "name")
		if !kept[strings.ToLower(text(pool, "name"))] && len(s.memberConfigs(id)) > 0 {
			return invalid("InUseBackendAddressPoolCannotBeDeleted", "Backend pool %s is in use by network interfaces.", id)
		}
	}
	return nil
}

// fromInterfaces reports whether addresses are those that answers show for members by network interface.
func fromInterfaces(addresses []object) bool {
	return len(addresses) > 0 && follow(addresses[0], "properties", "networkInterfaceIPConfiguration") != nil
}

func properties2(o object) object {
	p, _ := o["properties"].(object)
	return p
}

// showLoadBalancer adds what the API derives: identities of parts, back references, members.
func (s *Sim) showLoadBalancer(r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"] = guid(1)
	for _, key := range []string{"frontendIPConfigurations", "backendAddressPools", "probes"} {
		for _, item := range items(props, key) {
			delete(properties2(item), "loadBalancingRules") // what a write repeats of an answer
		}
	}
	for key, kindOf := range map[string]string{
		"frontendIPConfigurations": "frontendIPConfigurations", "backendAddressPools": "backendAddressPools",
		"loadBalancingRules": "loadBalancingRules", "probes": "probes", "outboundRules": "outboundRules", "inboundNatRules": "inboundNatRules",
	} {
		for _, item := range items(props, key) {
			item["id"] = r.id + "/" + kindOf + "/" + text(item, "name")
			item["etag"], item["type"] = etagOf(r), kindLoadBalancer+"/"+kindOf
			if item["properties"] == nil {
				item["properties"] = object{}
			}
			properties2(item)["provisioningState"] = "Succeeded"
		}
	}
	for _, rule := range items(props, "loadBalancingRules") {
		p := properties2(rule)
		p["backendAddressPools"] = []any{p["backendAddressPool"]}
		for key, list := range map[string]string{"frontendIPConfiguration": "frontendIPConfigurations", "backendAddressPool": "backendAddressPools", "probe": "probes"} {
			if target := findByName(items(props, list), lastOf(text(p, key, "id"))); target != nil {
				refs, _ := properties2(target)["loadBalancingRules"].([]any)
				properties2(target)["loadBalancingRules"] = append(refs, object{"id": rule["id"]})
			}
		}
	}
	for _, pool := range items(props, "backendAddressPools") {
		var configs, addresses []any
		for _, id := range s.memberConfigs(text(pool, "id")) {
			configs = append(configs, object{"id": id})
			addresses = append(addresses, object{"name": lastOf(ownerOf(ownerOf(id))) + "nic", "properties": object{"networkInterfaceIPConfiguration": object{"id": id}}})
		}
		if configs != nil {
			properties2(pool)["backendIPConfigurations"], properties2(pool)["loadBalancerBackendAddresses"] = configs, addresses
		}
		ensureList(properties2(pool), "loadBalancerBackendAddresses")
	}
}

func (s *Sim) removeLoadBalancer(r *resource) *failure {
	if f := s.checkLinks(r, object{}); f != nil {
		return f
	}
	for _, set := range s.all(kindScaleSet) {
		if strings.Contains(strings.ToLower(string(encode(set.doc))), strings.ToLower(r.id+"/")) {
			return invalid("LoadBalancerInUseByVirtualMachineScaleSet", "Cannot delete load balancer %s since its child resources %s are in use by virtual machine scale set %s.",
				r.id, r.name(), set.id)
		}
	}
	for _, pool := range items(r.doc, "properties", "backendAddressPools") {
		if len(s.memberConfigs(r.id+"/backendAddressPools/"+text(pool, "name"))) > 0 {
			return invalid("LoadBalancerInUse", "Load balancer %s is in use by network interfaces.", r.id)
		}
	}
	return nil
}

// RemoveLoadBalancers deletes all load balancers, as somebody does by hand who takes the network interfaces out of their pools first, and
// deletes their private link services: without that Azure refuses.
func (s *Sim) RemoveLoadBalancers() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range slices.Clone(s.all(kindLoadBalancer)) {
		s.leavePools(r.id)
		for _, f := range items(r.doc, "properties", "frontendIPConfigurations") {
			if l := s.linkOf(r.id + "/frontendIPConfigurations/" + text(f, "name")); l != nil {
				s.drop(l.id)
			}
		}
		s.drop(r.id)
	}
}

// leavePools takes all network interfaces out of the pools of a load balancer. The lock is held.
func (s *Sim) leavePools(id string) {
	const pools = "loadBalancerBackendAddressPools"
	inside := func(p object) bool { return strings.HasPrefix(strings.ToLower(text(p, "id")), strings.ToLower(id)+"/") }
	var leave func(v any)
	leave = func(v any) {
		switch v := v.(type) {
		case object:
			if kept := slices.DeleteFunc(items(v, pools), inside); v[pools] != nil && len(kept) < len(items(v, pools)) {
				v[pools] = anyOf(kept)
			}
			for _, field := range v {
				leave(field)
			}
		case []any:
			for _, element := range v {
				leave(element)
			}
		}
	}
	for _, kind := range []string{kindInterface, kindInstance, kindScaleSet} {
		for _, r := range s.all(kind) {
			leave(r.doc)
			s.number++
			r.etag = s.number
		}
	}
}

func (s *Sim) putAddress(r *resource, asked object, created bool) *failure {
	if f := s.checkAddress(r, asked, created); f != nil {
		return f
	}
	before, props := r.doc, propertiesOf(asked)
	if f := checkAddressTexts(asked, props); f != nil {
		return f
	}
	if label := text(props, "dnsSettings", "domainNameLabel"); label != "" {
		props["dnsSettings"] = object{"domainNameLabel": label, "fqdn": label + "." + Location + ".cloudapp.azure.com"}
	}
	if text(props, "publicIPAddressVersion") == "" {
		props["publicIPAddressVersion"] = "IPv4"
	}
	if ip := text(before, "properties", "ipAddress"); ip != "" {
		props["ipAddress"] = ip
	} else {
		s.number++
		props["ipAddress"] = fmt.Sprintf("20.50.%d.%d", s.number/250, s.number%250+1)
		if text(props, "publicIPAddressVersion") == "IPv6" {
			props["ipAddress"] = fmt.Sprintf("2603:1020:201::%x", s.number)
		}
	}
	ensureList(props, "ipTags")
	if props["publicIPAllocationMethod"] == nil {
		props["publicIPAllocationMethod"] = "Dynamic"
	}
	if props["idleTimeoutInMinutes"] == nil {
		props["idleTimeoutInMinutes"] = 4
	}
	delete(props, "provisioningState")
	r.doc = object{"location": asked["location"], "properties": props, "sku": object{"name": text(asked, "sku", "name"), "tier": "Regional"}}
	for _, key := range []string{"tags", "zones", "extendedLocation"} {
		if asked[key] != nil {
			r.doc[key] = asked[key]
		}
	}
	return nil
}

// skuMayBecome reports whether the sku of a public address may be this one: a basic one that is static and bound to nothing may be
// upgraded.
func (s *Sim) skuMayBecome(r *resource, sku string) bool {
	have := text(r.doc, "sku", "name")
	upgrade := have == "Basic" && sku == "Standard" && text(r.doc, "properties", "publicIPAllocationMethod") == "Static"
	return have == sku || upgrade && s.frontendOf(r.id) == ""
}

// checkAddress judges what was asked of a public address.
func (s *Sim) checkAddress(r *resource, asked object, created bool) *failure {
	if text(asked, "location") == "" {
		return invalid("LocationRequired", "The location property is required for this definition.")
	}
	if !created && (!s.skuMayBecome(r, text(asked, "sku", "name")) || !sameZones(asked["zones"], r.doc["zones"])) {
		return invalid("ResourceSkuOrZonesCannotBeChanged", "The sku and the zones of %s cannot be changed.", r.name())
	}
	props := propertiesOf(asked)
	if text(asked, "sku", "name") == "Standard" && text(props, "publicIPAllocationMethod") != "Static" {
		return invalid("StandardSkuPublicIPAddressMustBeStatic", "A standard public address is static.")
	}
	if prefix := text(props, "publicIPPrefix", "id"); prefix != "" && s.resources[strings.ToLower(prefix)] == nil {
		return invalid("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", prefix, r.id)
	}
	label, version := text(props, "dnsSettings", "domainNameLabel"), cmp.Or(text(props, "publicIPAddressVersion"), "IPv4")
	for _, other := range s.all(kindAddress) {
		if label != "" && !strings.EqualFold(other.id, r.id) && text(other.doc, "properties", "dnsSettings", "domainNameLabel") == label &&
			text(other.doc, "properties", "publicIPAddressVersion") == version {
			return invalid("DnsRecordInUse", "DNS record %s.%s.cloudapp.azure.com is already used by another public IP.", label, Location)
		}
	}
	return nil
}

func (s *Sim) showAddress(r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"], props["ddosSettings"] = guid(2), object{"protectionMode": "VirtualNetworkInherited"}
	delete(props, "ipConfiguration")
	if bound := s.frontendOf(r.id); bound != "" {
		props["ipConfiguration"] = object{"id": bound}
	}
	if r.busy.isRunning() {
		delete(props, "ipAddress")
	}
}

func (s *Sim) removeAddress(r *resource) *failure {
	if bound := s.frontendOf(r.id); bound != "" {
		return invalid("PublicIPAddressCannotBeDeleted", "Public IP address %s can not be deleted since it is still allocated to resource %s.", r.id, bound)
	}
	return nil
}

// askedParts are the properties that a document with named parts is to have.
func askedParts(r *resource, asked object) (object, *failure) {
	if text(asked, "location") == "" {
		return nil, invalid("LocationRequired", "The location property is required for this definition.")
	}
	props, _ := asked["properties"].(object)
	if props == nil {
		props = object{}
	}
	dropDerived(props)
	return props, checkUnique(r, props)
}

// setDocument stores the requested document with these properties.
func (r *resource) setDocument(asked, props object) {
	r.doc = object{"location": asked["location"], "properties": props}
	if asked["tags"] != nil {
		r.doc["tags"] = asked["tags"]
	}
}

func (*Sim) putSecurityGroup(r *resource, asked object, _ bool) *failure {
	props, f := askedParts(r, asked)
	if f != nil {
		return f
	}
	priorities, sources, destinations := map[string]string{}, 0, 0
	for _, rule := range items(props, "securityRules") {
		p := propertiesOf(rule)
		sources += max(1, len(strs(p, "sourceAddressPrefixes")))
		destinations += max(1, len(strs(p, "destinationAddressPrefixes")))
	}
	if f := overLimit(errors.Join(azurelimits.Sources.CheckNumber(sources), azurelimits.Destinations.CheckNumber(destinations))); f != nil {
		return f
	}
	for _, rule := range items(props, "securityRules") {
		if f := checkSecurityRule(rule, priorities); f != nil {
			return f
		}
	}
	ensureList(props, "securityRules")
	delete(props, "provisioningState")
	delete(props, "defaultSecurityRules")
	r.setDocument(asked, props)
	return nil
}

func checkSecurityRule(rule object, priorities map[string]string) *failure {
	p, name := propertiesOf(rule), text(rule, "name")
	key := fmt.Sprint(text(p, "direction"), number(p, "priority"))
	switch priority := number(p, "priority"); {
	case priority < 100 || priority > 4096:
		return invalid("SecurityRuleInvalidPriority", "Security rule %s: priority %d is out of range.", name, priority)
	case priorities[key] != "":
		return invalid("SecurityRuleConflict", "Security rule %s conflicts with rule %s: same priority and direction.", name, priorities[key])
	case !slices.Contains([]string{"Tcp", "Udp", "*", "Icmp", "Ah", "Esp"}, text(p, "protocol")):
		return invalid("SecurityRuleInvalidProtocol", "Security rule %s: protocol %q is unknown.", name, text(p, "protocol"))
	case !slices.Contains([]string{"Allow", "Deny"}, text(p, "access")), !slices.Contains([]string{"Inbound", "Outbound"}, text(p, "direction")):
		return invalid("SecurityRuleInvalid", "Security rule %s: access or direction is not legal.", name)
	}
	priorities[key] = name
	for singular, plural := range map[string]string{
		"sourceAddressPrefix": "sourceAddressPrefixes", "destinationAddressPrefix": "destinationAddressPrefixes",
		"sourcePortRange": "sourcePortRanges", "destinationPortRange": "destinationPortRanges",
	} {
		groups := strings.Replace(singular, "AddressPrefix", "ApplicationSecurityGroups", 1)
		one, many, asg := text(p, singular) != "", len(strs(p, plural)) > 0, len(items(p, groups)) > 0
		if one && many || !one && !many && !asg {
			return invalid("SecurityRuleInvalidAddressOrPort", "Security rule %s: exactly one of %s and %s must be set.", name, singular, plural)
		}
		ensureList(p, plural)
	}
	if hasBothFamilies(p) {
		return invalid("ResourceCannotContainAddressPrefixesFromDifferentAddressFamilies", "Resource %s contains IP addresses or prefixes that belong to "+
			"different address families. All IP addresses or prefixes in the resource should belong to the same address family.", text(rule, "id"))
	}
	return nil
}

// hasBothFamilies reports whether a security rule names addresses of IPv4 and of IPv6. Service tags and * are of neither.
func hasBothFamilies(p object) bool {
	families := map[bool]bool{}
	for _, field := range []string{"sourceAddressPrefix", "destinationAddressPrefix"} {
		for _, address := range append(strs(p, field+"es"), text(p, field)) {
			host, _, _ := strings.Cut(address, "/")
			if ip, err := netip.ParseAddr(host); err == nil {
				families[ip.Is4()] = true
			}
		}
	}
	return len(families) == 2
}

func (*Sim) putRouteTable(r *resource, asked object, _ bool) *failure {
	props, f := askedParts(r, asked)
	if f != nil {
		return f
	}
	prefixes := map[string]bool{}
	for _, route := range items(props, "routes") {
		prefix := text(route, "properties", "addressPrefix")
		if _, err := netip.ParsePrefix(prefix); err != nil || prefixes[prefix] {
			return invalid("InvalidRouteAddressPrefix", "Route %s: the prefix %q is not legal, or there twice.", text(route, "name"), prefix)
		}
		prefixes[prefix] = true
		hop := text(route, "properties", "nextHopType")
		if _, err := netip.ParseAddr(text(route, "properties", "nextHopIpAddress")); hop == "VirtualAppliance" && err != nil || hop == "" {
			return invalid("InvalidNextHop", "Route %s: the next hop is not legal.", text(route, "name"))
		}
	}
	ensureList(props, "routes")
	delete(props, "provisioningState")
	r.setDocument(asked, props)
	return nil
}

func (s *Sim) putInterface(r *resource, asked object, created bool) *failure {
	if !created {
		configs := []any{object{"properties": object{"ipConfigurations": follow(asked, "properties", "ipConfigurations")}}}
		if f := s.checkPools(any(configs)); f != nil {
			return f
		}
	}
	return putAny(s, r, asked, created)
}
