package oci

import (
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"GET /loadBalancers",
	"GET /networkLoadBalancers",
	"GET /securityLists/{id}",
	"GET /subnets/{id}",
	"GET /networkSecurityGroups",
	"GET /networkSecurityGroups/{id}/securityRules",
}

// securityRules are the rules of all security lists and network security groups.
func securityRules(t testing.TB, sim *ocisim.Sim) (lines []string) {
	t.Helper()
	type scope struct {
		Document document   `json:"document"`
		Rules    []document `json:"rules"`
	}
	var state struct {
		Lists  map[string]scope `json:"securityLists"`
		Groups map[string]scope `json:"networkSecurityGroups"`
	}
	require.NoError(t, json.Unmarshal(sim.State(), &state))
	show := func(where any, direction string, rule document) {
		for _, key := range []string{"id", "timeCreated", "isValid"} {
			delete(rule, key)
		}
		said, _ := rule["description"].(string)
		delete(rule, "description")
		text, _ := json.Marshal(rule)                   // it was JSON
		for mark := range strings.SplitSeq(said, " ") { // clusters share rules
			lines = append(lines, fmt.Sprint(where, " ", direction, " ", string(text), " ", mark))
		}
	}
	for id, l := range state.Lists {
		for _, direction := range []string{ingressField, egressField} {
			for _, r := range fieldOf[[]any](l.Document, direction) {
				show(id, direction, r.(document))
			}
		}
	}
	for _, g := range state.Groups {
		for _, r := range g.Rules {
			show(g.Document["displayName"], "", r)
		}
	}
	for i := range lines { // IDs tell in which order groups were made
		lines[i] = madeGroup.ReplaceAllString(lines[i], "made")
	}
	return lines
}

// madeGroup matches the end of the ID of a group that the program has made.
var madeGroup = regexp.MustCompile(`aaaamade\d+`)

// isMarkedRule reports whether a rule bears the mark of a cluster.
func isMarkedRule(rule document) bool {
	said, _ := rule["description"].(string)
	return ownership.IsMark(said) || strings.HasPrefix(said, markOfService)
}

// listScope are the security lists of subnets, which all clusters and people share.
func listScope(t testing.TB, sim *ocisim.Sim) conformance.Scope {
	t.Helper()
	edit := func(change func(rule document) []any) func() {
		all := func(rules []any) (after []any) {
			for _, r := range rules {
				rule, _ := r.(document)
				if isMarkedRule(rule) {
					after = append(after, change(rule)...)
					continue
				}
				after = append(after, r)
			}
			return after
		}
		return func() {
			for _, list := range []string{ocisim.DefaultList, ocisim.BalancerList} {
				sim.EditList(list, func(in, out []any) ([]any, []any) { return all(in), all(out) })
			}
		}
	}
	described := func(rule document, description string) document {
		other := maps.Clone(rule)
		if other["description"] = description; description == "" {
			delete(other, "description")
		}
		return other
	}
	return conformance.Scope{
		NeededReads: needed,
		Name:        "lists", Unprotected: networksUnprotected, Subnet: func() string { return ocisim.SubnetID(2) },
		Full: "takes at most 200", Fill: func(room int) (leave func()) { return fillLists(sim, room) },
		Widen:    func(network string) { edit(func(r document) []any { return []any{widened(r, network)} })() },
		Rules:    func() []string { return securityRules(t, sim) },
		Unlisted: "openings of a list are the cluster's, whichever Services need them", Swept: true,
		Remove: edit(func(document) []any { return nil }), // a list of a subnet cannot be deleted
		Writes: map[conformance.Writer]func(){
			conformance.Stranger:      edit(func(r document) []any { return []any{r, described(r, "")} }),
			conformance.OtherCluster:  edit(func(r document) []any { return []any{r, described(r, otherClusterMark)} }),
			conformance.SecondProcess: edit(func(r document) []any { return []any{r, maps.Clone(r)} }),
			conformance.Passerby: func() {
				sim.EditList(ocisim.BalancerList, func(in, out []any) ([]any, []any) {
					return append(in, opening{protocol: numberTCP, port: 7, network: "192.0.2.9/32"}.rule("echo")), out
				})
			},
		},
	}
}

// networksUnprotected is why nobody protects a network load balancer.
const networksUnprotected = "network load balancers cannot be protected"

// widened is a rule that lets in everybody, where it named a network.
func widened(rule document, network string) document {
	other := maps.Clone(rule)
	for _, field := range []string{"source", "destination"} {
		if other[field] == network {
			other[field] = everybody
		}
	}
	return other
}

// fillLists has somebody fill lists by hand, but for some room, until leave is called.
func fillLists(sim *ocisim.Sim, room int) (leave func()) {
	lists := []string{ocisim.DefaultList, ocisim.BalancerList}
	for _, list := range lists {
		sim.EditList(list, func(in, out []any) ([]any, []any) {
			for n := len(in) + room; n < ocilimits.IngressRules.Max; n++ {
				in = append(in, opening{protocol: numberTCP, port: 20000 + n, network: "192.0.2.9/32"}.rule(byHandName))
			}
			return in, out
		})
	}
	return func() {
		for _, list := range lists {
			sim.EditList(list, func(in, out []any) ([]any, []any) {
				return slices.DeleteFunc(in, func(r any) bool { return r.(document)["description"] == byHandName }), out
			})
		}
	}
}

// markOfService begins the description of rules in groups, before the UID of the Service.
const markOfService = "service-uid-"

// otherClusterMark is the mark of another cluster.
var otherClusterMark = ownership.ClusterMark("another-cluster")

// protectOf has somebody protect load balancers from deletion, or take that back.
func protectOf(t testing.TB, sim *ocisim.Sim) func(protected bool) {
	t.Helper()
	return func(protected bool) {
		for _, lb := range sim.LoadBalancers() {
			require.NoError(t, sim.EditLoadBalancer(lb.Name, func(lb *ocisim.LoadBalancer) { lb.Doc["isDeleteProtectionEnabled"] = protected }))
		}
	}
}

// groupScope are network security groups: one of the load balancer's own and, where shared, that of the nodes.
func groupScope(t testing.TB, sim *ocisim.Sim) conformance.Scope {
	t.Helper()
	edit := func(change func(rule document) []document) func() {
		return func() {
			sim.EditGroupRules(ocisim.GroupID(3), func(rules []map[string]any) (after []map[string]any) {
				for _, r := range rules {
					if isMarkedRule(r) {
						after = append(after, change(r)...)
						continue
					}
					after = append(after, r)
				}
				return after
			})
		}
	}
	number := 0
	copied := func(rule document, description string) document {
		other := maps.Clone(rule)
		number++
		if other["id"], other["description"] = fmt.Sprintf("%06X", 0xF00000+number), description; description == "" {
			delete(other, "description")
		}
		return other
	}
	return conformance.Scope{
		NeededReads: needed,
		Unprotected: networksUnprotected, Subnet: func() string { return ocisim.SubnetID(2) },
		Rules: func() []string { return securityRules(t, sim) },
		Widen: func(network string) { widenGroups(sim, network) },
		Full:  "takes at most 120",
		Fill:  func(room int) (leave func()) { return fillGroups(sim, room, copied) },
		Remove: func() { // a group that is in use cannot be deleted
			for _, g := range sim.Groups() {
				sim.EditGroupRules(g.ID, func([]document) []document { return nil })
			}
		},
		Writes: map[conformance.Writer]func(){
			conformance.Stranger:     edit(func(r document) []document { return []document{r, copied(r, "")} }),
			conformance.OtherCluster: edit(func(r document) []document { return []document{r, copied(r, markOfService+"another")} }),
			conformance.SecondProcess: edit(func(r document) []document {
				return []document{r, copied(r, fmt.Sprint(r["description"]))}
			}),
			conformance.Passerby: func() {
				sim.EditGroupRules(ocisim.GroupID(3), func(rules []map[string]any) []map[string]any {
					rule := opening{protocol: numberTCP, port: 7, network: "192.0.2.9/32"}.rule("echo")
					rule["direction"], rule["sourceType"] = "INGRESS", "CIDR_BLOCK"
					return append(rules, copied(rule, "echo"))
				})
			},
		},
	}
}

// fillGroups has somebody fill groups by hand, but for some room, until leave is called.
func fillGroups(sim *ocisim.Sim, room int, copied func(rule document, description string) document) (leave func()) {
	for _, g := range sim.Groups() {
		sim.EditGroupRules(g.ID, func(rules []document) []document {
			for n := len(rules) + room; n < 120; n++ {
				rule := opening{protocol: numberTCP, port: 20000 + n, network: "192.0.2.9/32"}.rule("")
				rule["direction"], rule["sourceType"] = "INGRESS", sideNetwork
				rules = append(rules, copied(rule, "by hand"))
			}
			return rules
		})
	}
	return func() {
		for _, g := range sim.Groups() {
			sim.EditGroupRules(g.ID, func(rules []document) []document {
				return slices.DeleteFunc(rules, func(r document) bool { return r["description"] == "by hand" })
			})
		}
	}
}

// widenGroups lets everybody in by the rules of groups for a network.
func widenGroups(sim *ocisim.Sim, network string) {
	for _, g := range sim.Groups() {
		sim.EditGroupRules(g.ID, func(rules []document) []document {
			for i := range rules {
				rules[i] = widened(rules[i], network)
			}
			return rules
		})
	}
}
