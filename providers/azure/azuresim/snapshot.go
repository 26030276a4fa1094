package azuresim

import (
	"fmt"
	"slices"
	"strings"
)

// Snapshot describes all that belongs to Services, without what differs from run to run.
func (s *Sim) Snapshot() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	note := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	short := func(id string) string { return lastOf(ownerOf(id)) + "/" + lastOf(id) }
	s.noteAddresses(note)
	for _, r := range s.all(kindLoadBalancer) {
		lb := s.show(r, false)
		note("load balancer %s", r.name())
		for _, f := range items(lb, "properties", "frontendIPConfigurations") {
			note("%s frontend %s public=%s internal=%t", r.name(), text(f, "name"), lastOf(text(f, "properties", "publicIPAddress", "id")), follow(f, "properties", "subnet") != nil)
		}
		for _, rule := range items(lb, "properties", "loadBalancingRules") {
			p := rule["properties"]
			note("%s rule %s %v %v->%v idle=%v reset=%v floating=%v front=%s pool=%s probe=%s", r.name(), text(rule, "name"), follow(p, "protocol"), follow(p, "frontendPort"),
				follow(p, "backendPort"), follow(p, "idleTimeoutInMinutes"), follow(p, "enableTcpReset"),
				follow(p, "enableFloatingIP"), short(text(p, "frontendIPConfiguration", "id")),
				short(text(p, "backendAddressPool", "id")), short(text(p, "probe", "id")))
			if affinity := text(p, "loadDistribution"); affinity != "Default" {
				note("%s rule %s affinity %s", r.name(), text(rule, "name"), affinity)
			}
		}
		for _, probe := range items(lb, "properties", "probes") {
			p := probe["properties"]
			note("%s probe %s %v %v %v %v %v", r.name(), text(probe, "name"), follow(p, "protocol"), follow(p, "port"), follow(p, "requestPath"),
				follow(p, "intervalInSeconds"), follow(p, "probeThreshold"))
		}
		for _, pool := range items(lb, "properties", "backendAddressPools") {
			for _, c := range items(pool, "properties", "backendIPConfigurations") {
				machine, _, _ := strings.Cut(text(c, "id"), "/networkInterfaces/")
				name := machine
				if m := s.resources[strings.ToLower(machine)]; m != nil {
					name = computerName(m)
				}
				note("%s pool %s member %s", r.name(), text(pool, "name"), name)
			}
		}
	}
	s.noteLinks(note)
	for _, r := range s.all(kindSecurityGroup) {
		for _, rule := range items(r.doc, "properties", "securityRules") {
			p := rule["properties"]
			note("security %s %v %v from %v%v destinations=%d", text(rule, "name"), follow(p, "access"), slices.Sorted(slices.Values(strs(p, "destinationPortRanges"))),
				text(p, "sourceAddressPrefix"), slices.Sorted(slices.Values(strs(p, "sourceAddressPrefixes"))),
				len(strs(p, "destinationAddressPrefixes"))+min(1, len(text(p, "destinationAddressPrefix"))))
		}
	}
	for _, set := range s.all(kindScaleSet) {
		for _, c := range items(set.doc, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations") {
			for _, config := range items(c, "properties", "ipConfigurations") {
				for _, pool := range items(config, "properties", "loadBalancerBackendAddressPools") {
					note("model of %s has %s", set.name(), short(text(pool, "id")))
				}
			}
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// noteLinks describes private link services of Services.
func (s *Sim) noteLinks(note func(format string, args ...any)) {
	for _, r := range s.all(kindPrivateLink) {
		if text(r.doc, "tags", "k8s-azure-owner-service") == "" {
			continue // a user's
		}
		var configs []string
		for _, c := range items(r.doc, "properties", "ipConfigurations") {
			configs = append(configs, text(c, "name"))
		}
		p := r.doc["properties"]
		slices.Sort(configs) // which is the primary one stands in itself
		sorted := func(path ...string) []string { return slices.Sorted(slices.Values(strs(p, path...))) }
		note("private link %s tags=%s fronts=%d configs=%v proxy=%v visible=%v approved=%v fqdns=%v", r.name(), encode(r.doc["tags"]),
			len(items(p, "loadBalancerFrontendIpConfigurations")), configs, follow(p, "enableProxyProtocol"), sorted("visibility", "subscriptions"),
			sorted("autoApproval", "subscriptions"), sorted("fqdns"))
	}
}

// noteAddresses describes public addresses of Services.
func (s *Sim) noteAddresses(note func(format string, args ...any)) {
	for _, a := range s.all(kindAddress) {
		if text(a.doc, "tags", "k8s-azure-service") == "" {
			continue // a user's
		}
		label := text(a.doc, "properties", "dnsSettings", "domainNameLabel")
		note("address %s tags=%s label=%s zones=%v", a.name(), encode(a.doc["tags"]), label, slices.Sorted(slices.Values(strs(a.doc, "zones"))))
	}
}
