package gce

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// tryOthers says what tenants may ask for, and what others add to what Services have.
func tryOthers(sim *gcesim.Sim, f *conformance.Fixture) *conformance.Fixture {
	f.Reserve = func() conformance.Reserved {
		const theirs = "203.0.113.201"
		sim.Put("regions/us-central1/addresses/idle", map[string]any{"address": theirs})
		return conformance.Reserved{Address: theirs, Exists: func() bool {
			return slices.ContainsFunc(sim.Objects("addresses"), func(a map[string]any) bool { return a["address"] == theirs })
		}}
	}
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a forwarding rule to a target pool": func(*v1.Service) func() bool {
			pool := fmt.Sprint("regions/us-central1/targetPools/", sim.Objects("targetPools")[0]["name"])
			sim.Put("regions/us-central1/addresses/theirs", map[string]any{"address": "203.0.113.202"})
			sim.Put("regions/us-central1/forwardingRules/theirs", map[string]any{"IPAddress": "203.0.113.202", "portRange": "80-80", "target": pool})
			return func() bool { return len(sim.Objects("targetPools")) == 1 }
		},
	}
	f.AddInterface = func(providerID string) {
		sim.AddNetwork(gcesim.Project, "storage", "storage", "10.9.0.0/24")
		sim.Edit("instances", path.Base(providerID), func(i map[string]any) {
			cards := i["networkInterfaces"].([]any)
			second := maps.Clone(cards[0].(map[string]any))
			delete(second, "accessConfigs")
			second["name"], second["networkIP"] = "nic1", "10.9.0.5"
			for key, kind := range map[string]string{"network": "networks/", "subnetwork": "subnetworks/"} {
				before, _, _ := strings.Cut(second[key].(string), kind)
				second[key] = before + kind + "storage"
			}
			i["networkInterfaces"] = append(cards, second)
		})
	}
	f.RemoveLoadBalancers = func() { // the forwarding rules, and none of what they lead to
		for _, o := range sim.Objects("forwardingRules") {
			sim.Edit("forwardingRules", fmt.Sprint(o["name"]), nil)
		}
	}
	f.TwinOf = f.AddInstance // in the next zone, for names are unique in a zone
	f.Lacks = map[string]string{
		"Capitals":      "names have small letters alone",
		"Claims":        "names come from the UID of the Service",
		"Share":         "backend services alone are shared, which Together tries",
		"OwnershipTags": "no annotation sets labels",
	}
	return f
}
