package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

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
		Rules: func() (lines []string) {
			for _, rule := range rules() {
				a := accessOf(rule)
				slices.Sort(a.sources)
				for _, to := range a.destinations {
					if to != otherAddress {
						to = "the Service's address"
					}
					lines = append(lines, fmt.Sprint(str(rule, "name"), " ", a.protocol, a.sources, a.ports, " to ", to, " ", str(rule, "properties", "access")))
				}
			}
			return lines
		},
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
		Remove:   func() { sim.Remove(group) },
		Unfilled: "a full network security group is tried by TestNarrowingIsNotHeldUpByAFullGroup",
		Missing:  `nsg "[^"]+" not found`,
		Except:   map[conformance.Writer]string{conformance.SecondProcess: "names of rules are unique in a group, and ours say what a rule opens"},
	}
}

// otherRule is a rule about another port.
func otherRule() doc {
	return doc{"name": "echo", "properties": doc{
		"access": "Allow", "direction": "Inbound", "priority": 100, "protocol": "Tcp", "sourcePortRange": "*",
		"sourceAddressPrefix": "192.0.2.9", "destinationPortRange": "7", "destinationAddressPrefix": "*",
	}}
}
