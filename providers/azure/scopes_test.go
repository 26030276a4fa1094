package azure

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"POST identity",
	"GET identity",
	"GET Microsoft.Network/loadBalancers",
	"GET Microsoft.Network/publicIPAddresses",
	"GET Microsoft.Network/networkSecurityGroups/{name}",
}

// moreScopes are further kinds of rules.
func moreScopes(t testing.TB, sim *azuresim.Sim) map[string]conformance.FeatureCase {
	t.Helper()
	onNodes := scopeOf(t, sim)
	onNodes.Unlisted = "rules without floating IP name nodes, and no load balancer"
	onNodes.NeededReads = append(machineReads(), needed...) // whose machines cannot be read keeps its clients
	return map[string]conformance.FeatureCase{
		"others denied":       {With: map[string]string{annotationDenyAll: "true"}, Scope: scopeOf(t, sim), FullTier: true},
		"without floating IP": {With: map[string]string{annotationNoFloating: "true"}, Scope: onNodes, FullTier: true},
	}
}

// machineReads are those that tell which addresses nodes have.
func machineReads() []string {
	return []string{
		"GET Microsoft.Network/networkInterfaces", "GET Microsoft.Compute/virtualMachineScaleSets",
		"GET Microsoft.Compute/virtualMachineScaleSets/networkInterfaces",
	}
}

// otherAddress is another cluster's.
const otherAddress = "203.0.113.222"

// scopeOf is the network security group, which all clusters and people share.
func scopeOf(t testing.TB, sim *azuresim.Sim) conformance.Scope {
	t.Helper()
	group := azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName)
	rules := func() []doc { return docs(sim.Shown(group), "properties", "securityRules") }
	edit := func(change func(rules []doc) []doc) {
		require.NoError(t, sim.Change(group, func(d map[string]any) {
			setList(d, "securityRules", change(docs(d, "properties", "securityRules")))
		}))
	}
	number := 100
	return conformance.Scope{
		NeededReads: needed,
		Rules:       func() []string { return linesOf(rules()) },
		Writes: map[conformance.Writer]func(){
			conformance.Stranger: func() {
				edit(func(rules []doc) []doc {
					for _, rule := range rules {
						if strings.HasPrefix(str(rule, "name"), rulePrefix) {
							number++
							copied := doc{"name": fmt.Sprint("by-hand-", number), "properties": maps.Clone(props(rule))}
							props(copied)["priority"] = number
							rules = append(rules, copied)
						}
					}
					return rules
				})
			},
			conformance.OtherCluster: func() { // rules of the same clients and ports are shared by their name
				edit(func(rules []doc) []doc {
					for _, rule := range rules {
						if strings.HasPrefix(str(rule, "name"), rulePrefix) {
							setFieldValues(props(rule), "destinationAddressPrefix", "destinationAddressPrefixes", append(destinationsOf(rule), otherAddress))
						}
					}
					return rules
				})
			},
			conformance.Passerby: func() {
				edit(func(rules []doc) []doc { return append(rules, otherRule()) })
			},
		},
		Remove:      func() { sim.Remove(group) },
		Widen:       func(network string) { widenRules(edit, network) },
		NoSubnet:    noSubnet,
		Full:        "takes at most 4000",
		Fill:        func(room int) (leave func()) { return fillGroup(edit, room) },
		Unprotected: "a lock is no field of a load balancer, and to read it is another right: the deletion is refused after all is closed",
		OneClosing:  "the group is written as a whole",
		Missing:     `nsg "[^"]+" not found`,
		Except:      map[conformance.Writer]string{conformance.SecondProcess: "names of rules are unique in a group, and ours say what a rule opens"},
	}
}

// noSubnet is why no subnet is hidden.
const noSubnet = "who may connect does not depend on subnets"

// filler is a rule with many sources that somebody wrote by hand.
func filler(sources int) doc {
	var many []any
	for n := range sources {
		many = append(many, netip.AddrFrom4([4]byte{172, 16, byte(n >> 8), byte(n)}).String())
	}
	rule := leftAllow("IPv4", "", lastPriority, "Tcp", many, "10.0.0.9", "22")
	rule["name"] = "theirs"
	return rule
}

// otherRule is a rule about another port.
func otherRule() doc {
	return doc{"name": "echo", "properties": doc{
		"access": "Allow", "direction": "Inbound", "priority": 100, "protocol": "Tcp", "sourcePortRange": "*",
		"sourceAddressPrefix": "192.0.2.9", "destinationPortRange": "7", "destinationAddressPrefix": "*",
	}}
}

// widenRules lets everybody in by the rules for a network.
func widenRules(edit func(change func(rules []doc) []doc), network string) {
	edit(func(rules []doc) []doc {
		for _, rule := range rules {
			if strings.HasPrefix(str(rule, "name"), rulePrefix) && slices.Contains(accessOf(parsed[securityRule](rule)).sources, network) {
				setFieldValues(props(rule), "sourceAddressPrefix", "sourceAddressPrefixes", []string{"*"})
			}
		}
		return rules
	})
}

// fillGroup fills a group by a rule with many sources, but for some room, until leave is called.
func fillGroup(edit func(change func(rules []doc) []doc), room int) (leave func()) {
	edit(func(rules []doc) []doc {
		room += countSources(parsed[securityGroup](doc{"properties": doc{"securityRules": anyList(rules)}}).Properties.Rules)
		return append(rules, filler(azurelimits.Sources.Max-room))
	})
	return func() {
		edit(func(rules []doc) []doc {
			return slices.DeleteFunc(rules, func(rule doc) bool { return str(rule, "name") == "theirs" })
		})
	}
}

// linesOf are rules as they say who may connect to which port.
func linesOf(rules []doc) (lines []string) {
	for _, rule := range rules {
		a := accessOf(parsed[securityRule](rule))
		slices.Sort(a.sources)
		for _, to := range a.destinations {
			if to != otherAddress {
				to = "the Service's address"
			}
			name := str(rule, "name")
			if strings.HasPrefix(name, rulePrefix) {
				name = rulePrefix // the rest of it says what follows
			}
			for _, port := range a.ports {
				lines = append(lines, fmt.Sprint(name, " ", a.protocol, a.sources, port, " to ", to, " ", str(rule, "properties", "access")))
			}
		}
	}
	return lines
}
