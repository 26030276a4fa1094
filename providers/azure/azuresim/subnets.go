package azuresim

import (
	"net/http"
	"slices"
	"strings"
)

// withoutName is a list without the item of a name, and whether that was there.
func withoutName(list []object, name string) (kept []object, gone bool) {
	kept = slices.DeleteFunc(slices.Clone(list), func(o object) bool { return strings.EqualFold(text(o, "name"), name) })
	return kept, len(kept) < len(list)
}

func subnetFields() fields {
	return members("addressPrefix addressPrefixes networkSecurityGroup routeTable natGateway serviceEndpoints serviceEndpointPolicies delegations " +
		"privateEndpointNetworkPolicies privateLinkServiceNetworkPolicies defaultOutboundAccess sharingScope ipAllocations ipConfigurations " +
		"ipConfigurationProfiles applicationGatewayIPConfigurations privateEndpoints resourceNavigationLinks serviceAssociationLinks purpose provisioningState")
}

// putSubnet replaces a subnet in its network.
func (*Sim) putSubnet(parent *resource, name string, asked object) (created bool, f *failure) {
	props := propertiesOf(asked)
	if text(props, "addressPrefix") == "" && len(strs(props, "addressPrefixes")) == 0 {
		return false, invalid("InvalidRequestFormat", "Subnet %s needs an address prefix.", name)
	}
	delete(props, "provisioningState")
	kept, replaced := withoutName(items(parent.doc, "properties", "subnets"), name)
	propertiesOf(parent.doc)["subnets"] = anyOf(append(kept, object{"name": name, "properties": props}))
	return !replaced, nil
}

// serveSubnet serves the PUT of a subnet, which is a part of its network.
func (s *Sim) serveSubnet(w http.ResponseWriter, r *http.Request, p armPath) *failure {
	parent := s.resources[strings.ToLower(ownerOf(p.id()))]
	if parent == nil {
		return fail(http.StatusNotFound, "ParentResourceNotFound", "Can not perform requested operation on nested resource. Parent resource is not found.")
	}
	asked, f := readResource(r)
	if f != nil {
		return f
	}
	if f := legal(s.shared, subnetFields(), asked["properties"], nil, "properties"); f != nil {
		return f
	}
	if f := checkValues(asked["properties"], "properties", s.rules, readOnly(), nil); f != nil {
		return f
	}
	if match := r.Header.Get("If-Match"); match != "" && match != etagOf(parent) {
		return mismatch(match, parent, p)
	}
	name := p.pairs[len(p.pairs)-1]
	created, f := s.putSubnet(parent, name, asked)
	if f != nil {
		return f
	}
	s.changed(w, r, parent)
	status := map[bool]int{true: http.StatusCreated, false: http.StatusOK}[created]
	for _, one := range listSubnets(s, strings.ToLower(parent.id)) {
		if strings.EqualFold(text(one, "name"), name) {
			write(w, status, one)
		}
	}
	return nil
}

func (s *Sim) deleteSubnet(w http.ResponseWriter, r *http.Request, parent *resource, name string) *failure {
	kept, _ := withoutName(items(parent.doc, "properties", "subnets"), name)
	propertiesOf(parent.doc)["subnets"] = anyOf(kept)
	s.changed(w, r, parent)
	w.Header().Set("Location", strings.Replace(w.Header().Get("Azure-AsyncOperation"), "/operations/", "/operationResults/", 1))
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// changed gives a resource a new ETag, and begins work on it.
func (s *Sim) changed(w http.ResponseWriter, r *http.Request, res *resource) {
	s.number++
	res.etag = s.number
	s.work(w, r, res, nil)
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
