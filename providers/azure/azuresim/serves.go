package azuresim

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Serves returns where the rules of load balancers lead. A rule of a public address needs a security rule that opens its port; 0 stands for
// all ports.
func (s *Sim) Serves() map[string][]string {
	s.mu.Lock()
	defer s.mu.Unlock()
	ports := simkit.Ports{}
	for _, lb := range s.all(kindLoadBalancer) {
		props := lb.doc["properties"]
		for _, rule := range items(props, "loadBalancingRules") {
			p := rule["properties"]
			frontend := findByName(items(props, "frontendIPConfigurations"), lastOf(text(p, "frontendIPConfiguration", "id")))
			pool := findByName(items(props, "backendAddressPools"), lastOf(text(p, "backendAddressPool", "id")))
			s.addRule(ports, p, s.frontendAddress(frontend), follow(frontend, "properties", "publicIPAddress") != nil, s.backendsOf(lb, pool))
		}
	}
	return ports
}

// addRule adds the port of a rule. With a floating IP packets arrive as they were sent.
func (s *Sim) addRule(ports simkit.Ports, rule any, frontend string, public bool, pool []string) {
	protocol, words, floating := strings.ToLower(text(rule, "protocol")), "", follow(rule, "enableFloatingIP") == true
	if ip, err := netip.ParseAddr(frontend); err == nil && ip.Is6() {
		words = "ipv6"
	}
	front, back := number(rule, "frontendPort"), number(rule, "backendPort")
	if floating {
		back = front
	}
	var backends []string
	if !public || slices.Contains(s.openPorts(protocol, frontend, floating), back) {
		for _, b := range pool {
			backends = append(backends, simkit.Backend(b, back))
		}
	}
	ports.Add(protocol, front, words, backends)
}

// openPorts returns the single ports that security rules open: at the frontend address if packets keep it, else at that of a backend.
func (s *Sim) openPorts(protocol, frontend string, floating bool) (list []int) {
	for _, group := range s.all(kindSecurityGroup) {
		for _, rule := range items(group.doc, "properties", "securityRules") {
			p := rule["properties"]
			to := append(strs(p, "destinationAddressPrefixes"), text(p, "destinationAddressPrefix"))
			asked := strings.ToLower(text(p, "protocol"))
			if text(p, "access") != "Allow" || text(p, "direction") != "Inbound" || asked != protocol && asked != "*" ||
				floating && !slices.Contains(to, frontend) && !slices.Contains(to, "*") {
				continue
			}
			for _, port := range append(strs(p, "destinationPortRanges"), text(p, "destinationPortRange")) {
				if n, err := strconv.Atoi(port); err == nil {
					list = append(list, n)
				}
			}
		}
	}
	return list
}

// frontendAddress is the address of a frontend.
func (s *Sim) frontendAddress(frontend object) string {
	if a := s.resources[strings.ToLower(text(frontend, "properties", "publicIPAddress", "id"))]; a != nil {
		return text(a.doc, "properties", "ipAddress") // while it changes, answers leave it out
	}
	return text(frontend, "properties", "privateIPAddress")
}

// backendsOf are the members of a pool: instances by their names, and addresses.
func (s *Sim) backendsOf(lb *resource, pool object) (list []string) {
	for _, a := range items(pool, "properties", "loadBalancerBackendAddresses") {
		if text(a, "properties", "adminState") != "Down" {
			list = append(list, text(a, "properties", "ipAddress"))
		}
	}
	for _, config := range s.memberConfigs(lb.id + "/backendAddressPools/" + text(pool, "name")) {
		machine, _, _ := strings.Cut(config, "/networkInterfaces/")
		if nic := s.resources[strings.ToLower(ownerOf(config))]; nic != nil {
			machine = text(nic.doc, "properties", "virtualMachine", "id")
		}
		if m := s.resources[strings.ToLower(machine)]; m != nil {
			list = append(list, computerName(m))
		}
	}
	return list
}
