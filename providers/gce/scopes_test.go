package gce

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"GET firewalls",
	"GET forwardingRules",
	"GET metadata",
}

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
		NeededReads: needed,
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
		Overflow: gcelimits.SourceRanges.Max + 1, Full: "takes at most 5000",
		OneClosing:  "a firewall rule has all ports of a Service",
		NoSubnet:    "who may connect does not depend on subnets",
		Unprotected: "nothing of a load balancer can be protected",
		Widen: func(network string) {
			for _, f := range sim.Objects("firewalls") {
				if ranges, _ := f["sourceRanges"].([]any); slices.Contains(ranges, any(network)) {
					sim.Edit("firewalls", fmt.Sprint(f["name"]), func(f map[string]any) { f["sourceRanges"] = []any{"0.0.0.0/0"} })
				}
			}
		},
		Strip: func() {
			for _, kind := range []string{"forwardingRules", "targetPools", "backendServices", "httpHealthChecks", "healthChecks", "addresses"} {
				for _, o := range sim.Objects(kind) {
					sim.Edit(kind, fmt.Sprint(o["name"]), nil)
				}
			}
		},
		Unlisted: "names of firewall rules hold the UID of a Service and no cluster",
		Except:   map[conformance.Writer]string{conformance.SecondProcess: "names of firewall rules are unique, and ours follow from the Service"},
	}
}
