package azuresim

import (
	"net/http"
	"net/netip"
	"strings"
)

// kindConnection is a private endpoint that is connected to a private link service.
const kindConnection = kindPrivateLink + "/privateEndpointConnections"

func privateLinkFields() fields {
	return members("visibility autoApproval fqdns enableProxyProtocol networkInterfaces privateEndpointConnections alias provisioningState resourceGuid "+
		"destinationIPAddress accessMode").
		set("loadBalancerFrontendIpConfigurations", members("id")).
		set("ipConfigurations", sub("primary privateIPAllocationMethod privateIPAddress privateIPAddressVersion subnet"))
}

// putPrivateLink replaces a private link service, strictly.
func (s *Sim) putPrivateLink(r *resource, asked object, _ bool) *failure {
	if text(asked, "location") == "" {
		return invalid("LocationRequired", "The location property is required for this definition.")
	}
	props := propertiesOf(asked)
	if f := checkUnique(r, object{"ipConfigurations": props["ipConfigurations"]}); f != nil {
		return f
	}
	for _, check := range []func(*resource, object) *failure{s.checkLinkFronts, s.checkLinkConfigs} {
		if f := check(r, props); f != nil {
			return f
		}
	}
	for _, derived := range []string{"provisioningState", "privateEndpointConnections", "networkInterfaces", "alias", "resourceGuid"} {
		delete(props, derived)
	}
	r.doc = object{"location": asked["location"], "properties": props}
	for _, key := range []string{"tags", "extendedLocation"} {
		if asked[key] != nil {
			r.doc[key] = asked[key]
		}
	}
	s.touchLoadBalancers(props)
	return nil
}

// touchLoadBalancers gives the load balancers of a private link service new ETags, as its changes do.
func (s *Sim) touchLoadBalancers(props object) {
	for _, ref := range items(props, "loadBalancerFrontendIpConfigurations") {
		if lb := s.resources[strings.ToLower(ownerOf(text(ref, "id")))]; lb != nil {
			s.number++
			lb.etag = s.number
		}
	}
}

func (s *Sim) checkLinkFronts(r *resource, props object) *failure {
	refs := items(props, "loadBalancerFrontendIpConfigurations")
	if len(refs) == 0 {
		return invalid("InvalidRequestFormat", "Private link service %s needs a frontend of a load balancer.", r.name())
	}
	for _, ref := range refs {
		id := text(ref, "id")
		lb := s.resources[strings.ToLower(ownerOf(id))]
		if lb == nil || findByName(items(lb.doc, "properties", "frontendIPConfigurations"), lastOf(id)) == nil {
			return invalid("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", id, r.id)
		}
		if other := s.linkOf(id); other != nil && !strings.EqualFold(other.id, r.id) {
			return invalid("PrivateLinkServiceFrontendInUse", "Frontend %s is in use by private link service %s.", id, other.id)
		}
		if lb.busy.isRunning() {
			return fail(http.StatusConflict, "AnotherOperationInProgress", "Another operation on this or dependent resource is in progress.")
		}
	}
	return nil
}

// linkOf is the private link service of a frontend.
func (s *Sim) linkOf(front string) *resource {
	for _, r := range s.all(kindPrivateLink) {
		for _, ref := range items(r.doc, "properties", "loadBalancerFrontendIpConfigurations") {
			if strings.EqualFold(text(ref, "id"), front) {
				return r
			}
		}
	}
	return nil
}

func (s *Sim) checkLinkConfigs(r *resource, props object) *failure {
	configs, primaries, taken := items(props, "ipConfigurations"), 0, map[string]bool{}
	if len(configs) < 1 {
		return invalid("InvalidRequestFormat", "Private link service %s has no IP configuration.", r.name())
	}
	for _, c := range configs {
		if primary, _ := follow(c, "properties", "primary").(bool); primary {
			primaries++
		}
		subnet := s.subnet(text(c, "properties", "subnet", "id"))
		switch {
		case subnet == nil:
			return invalid("InvalidResourceReference", "Resource %s referenced by resource %s was not found.", text(c, "properties", "subnet", "id"), r.id)
		case text(subnet, "properties", "privateLinkServiceNetworkPolicies") != "Disabled":
			return invalid("PrivateLinkServiceCannotBeCreatedInSubnetThatHasNetworkPoliciesEnabled",
				"Private link service %s cannot be created in a subnet that has private link service network policies enabled.", r.id)
		}
		ip := text(c, "properties", "privateIPAddress")
		if text(c, "properties", "privateIPAllocationMethod") == "Static" {
			if f := linkAddress(subnet, ip, taken); f != nil {
				return f
			}
		}
		defaults(properties2(c), object{"privateIPAllocationMethod": "Dynamic", "privateIPAddressVersion": "IPv4", "primary": false})
	}
	if primaries != 1 {
		return invalid("InvalidRequestFormat", "Private link service %s needs one primary IP configuration, and has %d.", r.name(), primaries)
	}
	return nil
}

// linkAddress judges a static address.
func linkAddress(subnet object, ip string, taken map[string]bool) *failure {
	address, err := netip.ParseAddr(ip)
	inside := false
	for _, p := range append(strs(subnet, "properties", "addressPrefixes"), text(subnet, "properties", "addressPrefix")) {
		prefix, bad := netip.ParsePrefix(p)
		inside = inside || bad == nil && prefix.Contains(address)
	}
	switch {
	case err != nil || !address.Is4() || !inside:
		return invalid("PrivateIPAddressNotInSubnet", "Private static IP address %s does not belong to the range of the subnet.", ip)
	case taken[ip]:
		return invalid("PrivateIPAddressInUse", "Private IP address %s is in use.", ip)
	}
	taken[ip] = true
	return nil
}

func (s *Sim) showPrivateLink(r *resource, answer object, _ bool) {
	props := propertiesOf(answer)
	props["resourceGuid"] = guid(7)
	props["alias"] = strings.ToLower(r.name()) + "." + guid(8) + "." + Location + ".azure.privatelinkservice"
	props["networkInterfaces"] = []any{object{"id": ID(kindInterface, r.name()+".nic."+guid(9))}}
	defaults(props, object{"fqdns": []any{}, "enableProxyProtocol": false})
	for _, c := range items(props, "ipConfigurations") {
		c["id"], c["etag"], c["type"] = r.id+"/ipConfigurations/"+text(c, "name"), etagOf(r), kindPrivateLink+"/ipConfigurations"
		properties2(c)["provisioningState"] = "Succeeded"
	}
	connections := []any{}
	for _, c := range s.connections(r) {
		connections = append(connections, object{
			"id": c.id, "name": c.name(), "type": kindConnection, "etag": etagOf(c), "properties": c.doc["properties"],
		})
	}
	props["privateEndpointConnections"] = connections
}

func (s *Sim) connections(r *resource) (list []*resource) {
	for _, c := range s.all(kindConnection) {
		if strings.EqualFold(ownerOf(c.id), r.id) {
			list = append(list, c)
		}
	}
	return list
}

func (s *Sim) removePrivateLink(r *resource) *failure {
	if list := s.connections(r); len(list) > 0 {
		return invalid("PrivateLinkServiceWithPrivateEndpointConnectionsCannotBeDeleted",
			"Private link service %s cannot be deleted because it has private endpoint connections: %s.", r.id, list[0].id)
	}
	s.touchLoadBalancers(propertiesOf(r.doc))
	return nil
}

// checkLinks refuses to take away or to change a frontend that a private link service has.
func (s *Sim) checkLinks(r *resource, props object) *failure {
	for _, have := range items(r.doc, "properties", "frontendIPConfigurations") {
		want := findByName(items(props, "frontendIPConfigurations"), text(have, "name"))
		id := r.id + "/frontendIPConfigurations/" + text(have, "name")
		link := s.linkOf(id)
		if link == nil {
			continue
		}
		same := want != nil && strings.EqualFold(text(have, "properties", "subnet", "id"), text(want, "properties", "subnet", "id")) &&
			strings.EqualFold(text(have, "properties", "publicIPAddress", "id"), text(want, "properties", "publicIPAddress", "id"))
		if !same {
			return invalid("FrontendIPConfigurationInUseByPrivateLinkService", "Frontend %s is in use by private link service %s.", id, link.id)
		}
	}
	return nil
}

// Connect connects a private endpoint to a private link service.
func (s *Sim) Connect(link, name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.number++
	s.store(&resource{id: link + "/privateEndpointConnections/" + name, kind: kindConnection, etag: s.number, doc: object{
		"properties": object{"privateLinkServiceConnectionState": object{"status": "Approved"}, "provisioningState": "Succeeded"},
	}})
}

// SetState makes a resource one in another provisioning state, such as Failed, until the next write.
func (s *Sim) SetState(id, state string) error {
	return s.alter(id, func(r *resource) { propertiesOf(r.doc)["provisioningState"] = state })
}

// LetLinksIn lets private link services into a subnet.
func (s *Sim) LetLinksIn(subnet string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := findByName(items(s.resources[strings.ToLower(ID(kindNetwork, Network))].doc, "properties", "subnets"), subnet)
	propertiesOf(n)["privateLinkServiceNetworkPolicies"] = "Disabled"
}
