package azuresim

func subnetFields() fields {
	return members("addressPrefix addressPrefixes networkSecurityGroup routeTable natGateway serviceEndpoints serviceEndpointPolicies delegations " +
		"privateEndpointNetworkPolicies privateLinkServiceNetworkPolicies defaultOutboundAccess sharingScope ipAllocations ipConfigurations " +
		"ipConfigurationProfiles applicationGatewayIPConfigurations privateEndpoints resourceNavigationLinks serviceAssociationLinks purpose provisioningState")
}

// putSubnet replaces a subnet in its network.
func putSubnet(_ *Sim, parent *resource, name string, asked object) (created bool, f *failure) {
	props := propertiesOf(asked)
	if text(props, "addressPrefix") == "" && len(strs(props, "addressPrefixes")) == 0 {
		return false, invalid("InvalidRequestFormat", "Subnet %s needs an address prefix.", name)
	}
	delete(props, "provisioningState")
	kept, replaced := withoutName(items(parent.doc, "properties", "subnets"), name)
	propertiesOf(parent.doc)["subnets"] = anyOf(append(kept, object{"name": name, "properties": props}))
	return !replaced, nil
}

// cutSubnet takes a subnet out of its network.
func cutSubnet(_ *Sim, parent *resource, name string) *failure {
	kept, _ := withoutName(items(parent.doc, "properties", "subnets"), name)
	propertiesOf(parent.doc)["subnets"] = anyOf(kept)
	return nil
}

// listSubnets lists the subnets of a network.
func listSubnets(s *Sim, parent string) []any {
	vnet := s.resources[parent]
	var list []any
	for _, n := range items(vnet.doc, "properties", "subnets") {
		shown := clone(n)
		shown["id"], shown["etag"], shown["type"] = vnet.id+"/subnets/"+text(n, "name"), etagOf(vnet), kindSubnet
		defaults(properties2(shown), object{
			"privateLinkServiceNetworkPolicies": "Enabled", "privateEndpointNetworkPolicies": "Disabled", "delegations": []any{},
		})
		properties2(shown)["provisioningState"] = "Succeeded"
		list = append(list, shown)
	}
	return list
}
