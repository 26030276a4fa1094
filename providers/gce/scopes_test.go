package gce

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// scopeOf returns the firewall rules of the network.
func scopeOf(sim *gcesim.Sim) conformance.Scope {
	copyAs := func(name func(string) string) func() {
		return func() {
			for _, f := range sim.Objects("firewalls") {
				if is := fmt.Sprint(f["name"]); strings.HasPrefix(is, "k8s-fw-") {
					sim.Put("global/firewalls/"+name(is), f)
				}
			}
		}
	}
	return conformance.Scope{
		Rules: func() (lines []string) {
			for _, f := range sim.Objects("firewalls") {
				text, _ := json.Marshal([]any{f["name"], f["sourceRanges"], f["allowed"], f["denied"], f["destinationRanges"] != nil, f["targetTags"]}) // it was JSON
				lines = append(lines, clusterIDs.ReplaceAllString(string(text), "CLUSTER"))
			}
			return lines
		},
		Writes: map[conformance.Writer]func(){
			conformance.Stranger:     copyAs(func(name string) string { return "by-hand-" + strings.TrimPrefix(name, "k8s-fw-") }),
			conformance.OtherCluster: copyAs(func(name string) string { return name[:len(name)-4] + "ffff" }),
			conformance.Passerby: func() {
				sim.Put("global/firewalls/echo", map[string]any{
					"sourceRanges": []any{"192.0.2.9/32"}, "allowed": []any{map[string]any{"IPProtocol": "tcp", "ports": []any{"7"}}},
				})
			},
		},
		Remove: func() {
			for _, f := range sim.Objects("firewalls") {
				sim.Edit("firewalls", fmt.Sprint(f["name"]), nil)
			}
		},
		Unfilled: "a firewall rule of the Service's own is narrowed in place, which takes no room",
		Strip: func() {
			for _, kind := range []string{"forwardingRules", "targetPools", "httpHealthChecks", "addresses"} {
				for _, o := range sim.Objects(kind) {
					sim.Edit(kind, fmt.Sprint(o["name"]), nil)
				}
			}
		},
		Unlisted: "names of firewall rules hold the UID of a Service and no cluster",
		Except:   map[conformance.Writer]string{conformance.SecondProcess: "names of firewall rules are unique, and ours follow from the Service"},
	}
}
