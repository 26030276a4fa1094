package cloudstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"listLoadBalancerRules",
	"listPublicIpAddresses",
	"listNetworks",
	"listFirewallRules",
	"listNetworkACLs",
	"listNetworkACLLists",
	"queryAsyncJobResult", // how an opening ends, before which nothing closes
}

// noSubnet is why no subnet is hidden.
const noSubnet = "who may connect does not depend on subnets"

// unprotected is why nobody protects load balancers.
const unprotected = "nothing of a load balancer can be protected"

// scopeOf is where rules stand in a kind of networks.
func scopeOf(sim *cloudstacksim.Sim, kind string) conformance.Scope {
	if kind == vpcTier {
		return listScope(sim)
	}
	const own = "CloudStack takes no two rules for a port that share a network, and firewall rules bear no mark: those of the address are ours"
	return conformance.Scope{
		NeededReads: needed,
		Name:        kind, NoSubnet: noSubnet, Unprotected: unprotected, NotUDP: udpNotMade, Full: noRoom, Annotation: annotate,
		Fill:  func(room int) func() { return fillRouter(sim, room) },
		Rules: func() []string { return rulesIn(sim) }, Remove: sim.RemoveFirewalls, Unlisted: "firewall rules bear no mark",
		Widen: func(network string) {
			for _, f := range sim.Firewalls() {
				sim.EditFirewall(f.ID, func(f *cloudstacksim.Firewall) { f.CIDRs = widened(f.CIDRs, network) })
			}
		},
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
}

// annotate has the load balancer itself let in a network.
func annotate(network string) (key, value string) { return annotationSourceCIDRs, network }

// udpNotMade is why source ranges do not hold for UDP.
const udpNotMade = "Services with ports of UDP are refused"

// joins has a Service ask for the address of another one.
// widened are networks of which one lets everybody in.
func widened(networks []string, from string) []string {
	if slices.Contains(networks, from) {
		return []string{everybody}
	}
	return networks
}

// noRoom is in the error of a router that takes no more rules.
const noRoom = "has no room"

// fillRouter has a router take some more rules, until leave is called.
func fillRouter(sim *cloudstacksim.Sim, room int) (leave func()) {
	sim.LimitRules(len(sim.Firewalls()) + len(sim.ACLItems()) + room)
	return func() { sim.LimitRules(0) }
}

// rulesIn are firewall rules and items of lists.
func rulesIn(sim *cloudstacksim.Sim) (lines []string) {
	for _, f := range joinFirewalls(sim.Firewalls()) {
		lines = append(lines, fmt.Sprint("firewall ", f.Protocol, f.Start, f.End, slices.Sorted(slices.Values(f.CIDRs))))
	}
	for _, i := range sim.ACLItems() {
		lines = append(lines, fmt.Sprint("item ", i.Protocol, i.Start, i.End, slices.Sorted(slices.Values(i.CIDRs)), i.Action, i.Reason))
	}
	return lines
}

// listScope is the list of a tier, which all clusters and people share.
func listScope(sim *cloudstacksim.Sim) conformance.Scope {
	write := func(change func(*cloudstacksim.ACLItem)) func() {
		return func() {
			for _, i := range sim.ACLItems() {
				if strings.HasPrefix(i.Reason, reasonPrefix) {
					i.ID, i.Number = "", 0
					change(&i)
					sim.AddACLItem(i)
				}
			}
		}
	}
	return conformance.Scope{
		NeededReads: needed,
		Name:        vpcTier,
		NoSubnet:    noSubnet, Unprotected: unprotected, NotUDP: udpNotMade, Full: noRoom, Annotation: annotate,
		Fill:   func(room int) func() { return fillRouter(sim, room) },
		Rules:  func() []string { return rulesIn(sim) },
		Remove: sim.RemoveACLItems,
		Widen: func(network string) {
			for _, i := range sim.ACLItems() {
				sim.EditACLItem(i.ID, func(i *cloudstacksim.ACLItem) { i.CIDRs = widened(i.CIDRs, network) })
			}
		},
		Unlisted: "items name the load balancer by the UID of its Service, and no cluster",
		Writes: map[conformance.Writer]func(){
			conformance.Stranger:      write(func(i *cloudstacksim.ACLItem) { i.Reason = "by hand" }),
			conformance.OtherCluster:  write(func(i *cloudstacksim.ACLItem) { i.Reason = reasonPrefix + "a0123456789abcdef0123456789abcde" }),
			conformance.SecondProcess: write(func(*cloudstacksim.ACLItem) {}),
			conformance.Passerby: func() {
				sim.AddACLItem(cloudstacksim.ACLItem{
					List: sim.UsedList(), Protocol: "tcp", Start: 7, End: 7, CIDRs: []string{"192.0.2.9/32"}, Action: "Allow", Traffic: "Ingress", Reason: "echo",
				})
			},
		},
	}
}
