package azuresim

import (
	"strings"
	"time"
)

// This file adds to resources of the network what the API derives.

// defaultRule is a rule that every security group has.
func defaultRule(name, direction, access string, priority int, source, destination string) object {
	return object{"name": name, "properties": object{
		"access": access, "description": name, "direction": direction, "priority": priority, "protocol": "*",
		"sourceAddressPrefix": source, "sourceAddressPrefixes": []any{}, "sourcePortRange": "*", "sourcePortRanges": []any{},
		"destinationAddressPrefix": destination, "destinationAddressPrefixes": []any{}, "destinationPortRange": "*", "destinationPortRanges": []any{},
	}}
}

func showSecurityGroup(_ *Sim, r *resource, answer object, _ bool) {
	const network = "VirtualNetwork"
	props := propertiesOf(answer)
	props["resourceGuid"] = guid(3)
	props["defaultSecurityRules"] = []any{
		defaultRule("AllowVnetInBound", "Inbound", "Allow", 65000, network, network),
		defaultRule("AllowAzureLoadBalancerInBound", "Inbound", "Allow", 65001, "AzureLoadBalancer", "*"),
		defaultRule("DenyAllInBound", "Inbound", "Deny", 65500, "*", "*"),
		defaultRule("AllowVnetOutBound", "Outbound", "Allow", 65000, network, network),
		defaultRule("AllowInternetOutBound", "Outbound", "Allow", 65001, "*", "Internet"),
		defaultRule("DenyAllOutBound", "Outbound", "Deny", 65500, "*", "*"),
	}
	for _, key := range []string{"securityRules", "defaultSecurityRules"} {
		for _, rule := range items(props, key) {
			rule["id"], rule["etag"], rule["type"] = r.id+"/"+key+"/"+text(rule, "name"), etagOf(r), kindSecurityGroup+"/"+key
			properties2(rule)["provisioningState"] = "Succeeded"
		}
	}
}

func showRouteTable(_ *Sim, r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"] = guid(4)
	defaults(props, object{"disableBgpRoutePropagation": false})
	for _, route := range items(props, "routes") {
		route["id"], route["etag"], route["type"] = r.id+"/routes/"+text(route, "name"), etagOf(r), kindRouteTable+"/routes"
		properties2(route)["provisioningState"] = "Succeeded"
	}
}

// showNetwork shows a virtual network with its subnets.
func (s *Sim) showNetwork(r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"] = guid(5)
	ensureList(props, "virtualNetworkPeerings")
	defaults(props, object{"enableDdosProtection": false, "privateEndpointVNetPolicies": "Disabled"})
	if list := listSubnets(s, strings.ToLower(r.id)); list != nil {
		props["subnets"] = list
	}
}

// showInterface shows a network interface as one that is ready.
func (*Sim) showInterface(r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"], answer["kind"] = guid(6), "Regular"
	ensureList(props, "hostedWorkloads", "tapConfigurations")
	defaults(props, object{
		"allowPort25Out": true, "defaultOutboundConnectivityEnabled": false, "disableTcpStateTracking": false, "enableAcceleratedNetworking": false,
		"enableIPForwarding": false, "vnetEncryptionSupported": false, "auxiliaryMode": "None", "auxiliarySku": "None", "nicType": "Standard",
		"dnsSettings": object{"appliedDnsServers": []any{}, "dnsServers": []any{}, "internalDomainNameSuffix": "x.internal.cloudapp.net"},
	})
	for _, config := range items(props, "ipConfigurations") {
		config["id"], config["etag"], config["type"] = r.id+"/ipConfigurations/"+text(config, "name"), etagOf(r), kindInterface+"/ipConfigurations"
		defaults(properties2(config), object{"primary": true, "privateIPAddress": "10.240.0.4", "privateIPAddressVersion": "IPv4"})
		properties2(config)["provisioningState"] = "Succeeded"
	}
}

func showPrefix(_ *Sim, _ *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"], answer["sku"] = guid(10), object{"name": "Standard", "tier": "Regional"}
	defaults(props, object{"ipPrefix": "20.70.0.0/31", "ipTags": []any{}, "prefixLength": 31, "publicIPAddressVersion": "IPv4"})
}

// showCards adds what the API derives to configurations of network cards.
func showCards(cards []object) {
	for _, card := range cards {
		defaults(propertiesOf(card), object{
			"disableTcpStateTracking": false, "enableAcceleratedNetworking": false, "enableIPForwarding": false, "dnsSettings": object{"dnsServers": []any{}},
		})
		for _, c := range items(card, "properties", "ipConfigurations") {
			defaults(propertiesOf(c), object{"privateIPAddressVersion": "IPv4"})
		}
	}
}

func showScaleSet(_ *Sim, r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	created := r.created.UTC().Format(time.RFC3339)
	defaults(props, object{
		"uniqueId": guid(11), "timeCreated": created, "platformFaultDomainCount": 5, "singlePlacementGroup": true, "overprovision": false,
		"doNotRunExtensionsOnOverprovisionedVMs": false, "orchestrationMode": "Uniform", "upgradePolicy": object{"mode": "Manual"},
	})
	if policy, ok := props["upgradePolicy"].(object); ok {
		defaults(policy, object{"automaticOSUpgradePolicy": object{}})
		automatic, _ := policy["automaticOSUpgradePolicy"].(object)
		defaults(automatic, object{"disableAutomaticRollback": false, "enableAutomaticOSUpgrade": false, "useRollingUpgradePolicy": false})
	}
	if profile, ok := props["virtualMachineProfile"].(object); ok {
		profile["timeCreated"] = created
	}
	if sku, ok := answer["sku"].(object); ok {
		defaults(sku, object{"tier": "Standard"})
	}
	showCards(items(props, "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations"))
}

// defaults sets what is not given.
func defaults(o, values object) {
	for key, v := range values {
		if o[key] == nil {
			o[key] = v
		}
	}
}
