package cloudstack

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// unlimited is why nobody fills firewalls and lists.
const unlimited = "no limit of the rules of an address or of the items of a list is known"

// scopeOf is where rules stand in a kind of networks.
func scopeOf(sim *cloudstacksim.Sim, kind string) conformance.Scope {
	if kind == vpcTier {
		return listScope(sim)
	}
	const own = "CloudStack takes no two rules for a port that share a network, and firewall rules bear no mark: those of the address are ours"
	return conformance.Scope{
		Name: kind, Unfilled: unlimited,
		Rules: func() []string { return rulesIn(sim) }, Remove: sim.RemoveFirewalls, Unlisted: "firewall rules bear no mark",
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
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
		Name:     vpcTier,
		Unfilled: unlimited,
		Rules:    func() []string { return rulesIn(sim) },
		Remove:   sim.RemoveACLItems,
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
