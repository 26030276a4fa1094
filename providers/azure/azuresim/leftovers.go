package azuresim

import (
	"strings"
)

// Leave stores a resource as somebody else left it, without a call. What the API derives of it is derived as for any other one.
func (s *Sim) Leave(id string, doc map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.resources[strings.ToLower(id)]; old != nil {
		s.drop(id)
	}
	s.put(id, clone(doc))
}

// Remove deletes a resource as somebody does by hand.
func (s *Sim) Remove(id string) { s.mu.Do(func() { s.drop(id) }) }

// LeaveAddress stores a public address that has this IP already.
func (s *Sim) LeaveAddress(name, ip string, doc map[string]any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	propertiesOf(s.put(ID(kindAddress, name), clone(doc)).doc)["ipAddress"] = ip
}

// Shown is a resource as the API shows it, nil where there is none.
func (s *Sim) Shown(id string) map[string]any {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.resources[strings.ToLower(id)]; r != nil {
		return s.show(r, false)
	}
	return nil
}

// LeaveMember puts the configuration of a family of a machine, or of the model of a scale set, into a pool.
func (s *Sim) LeaveMember(id, pool string, six bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.resources[idOf(id)]
	cards := items(r.doc, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations")
	switch r.kind {
	case kindScaleSet:
		cards = items(r.doc, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
	case kindMachine:
		nic := items(r.doc, "properties", "networkProfile", "networkInterfaces")[0]
		cards = []object{s.resources[strings.ToLower(text(nic, "id"))].doc}
	}
	for _, card := range cards {
		for _, config := range items(card, "properties", "ipConfigurations") {
			if (text(config, "properties", "privateIPAddressVersion") == "IPv6") == six {
				pools, _ := follow(config, "properties", "loadBalancerBackendAddressPools").([]any)
				propertiesOf(config)["loadBalancerBackendAddressPools"] = append(pools, object{"id": pool})
			}
		}
	}
}

// AddSubnet adds a subnet to the network.
func (s *Sim) AddSubnet(name string, prefixes ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	props := propertiesOf(s.resources[strings.ToLower(ID(kindNetwork, Network))].doc)
	list, _ := props["subnets"].([]any)
	all := make([]any, len(prefixes))
	for i, p := range prefixes {
		all[i] = p
	}
	props["subnets"] = append(list, object{"name": name, "properties": object{"addressPrefixes": all, "privateLinkServiceNetworkPolicies": "Enabled"}})
}

// Take makes an address of the subnet one that a machine of somebody else has.
func (s *Sim) Take(ip string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(ID(kindInterface, "theirs-"+strings.NewReplacer(".", "-", ":", "-").Replace(ip)), object{"location": Location, "properties": object{
		"ipConfigurations": []any{object{"name": "ipconfig", "properties": object{
			"primary": true, "privateIPAddressVersion": "IPv4", "privateIPAllocationMethod": "Static", "privateIPAddress": ip,
			"subnet": object{"id": ID("Microsoft.Network/virtualNetworks", Network, "subnets", Subnet)},
		}}},
	}})
}
