package azure

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
)

// notMadeSo are clusters that are taken over and that nobody would make so today, with the reason.
func notMadeSo() map[string]string {
	return map[string]string{
		"tags of before, no zones, an older probe":                        "an older version made it",
		"configured tags in another case":                                 "somebody changed the tags",
		"fields that Azure leaves out":                                    "an older API answered so",
		"internal, a dynamic address":                                     "the address was kept at a change",
		"rules of others and another cluster's pool":                      "others made the rest",
		"a configured name beside a load balancer named like the cluster": "others made the rest",
		"a private link service of every setting":                         "somebody changed the tags",
		"several, on the second":                                          "somebody moved it",
	}
}

// TestRollback: our objects equal those of Azure's own controller, so that it can take over again. Expected names, tags, rules and probes
// are written by hand.
func TestRollback(t *testing.T) {
	t.Parallel()
	except, kinds := notMadeSo(), leftKinds()
	for name := range except {
		require.Contains(t, kinds, name)
	}
	for name, l := range kinds {
		if except[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) { runRollback(w, l) })
		})
	}
}

func runRollback(w *world, l left) {
	w.Helper()
	for name, prefix := range l.subnets {
		w.sim.AddSubnet(name, prefix)
	}
	w.slices = l.endpoints
	w.set(l.config)
	for _, name := range []string{"n1", "n2"} {
		w.join(name)
	}
	theirs := map[string]string{} // addresses of the fixture by the name of the public address
	for name, a := range l.addresses {
		theirs[a.ip] = name
		if tags, ok := a.doc["tags"].(doc); !ok || tags["k8s-azure-service"] == nil {
			w.sim.LeaveAddress(name, a.ip, a.doc)
		}
	}
	prefixes(w, l)
	want := l.services
	for i, s := range want {
		s = s.DeepCopy()
		for _, key := range []string{annotationIPv4, annotationIPv6} { // a shared address is the one that the first Service has here
			if i > 0 && s.Annotations[key] != "" {
				s.Annotations[key] = w.Current(want[0]).Status.LoadBalancer.Ingress[0].IP
			}
		}
		w.Apply(s)
		w.ensure(s)
	}
	for name, properties := range l.balancers {
		assert.Equal(w, partsOf(w, doc{"properties": properties}), partsOf(w, w.sim.Shown(lbID(name))), name)
		assert.Equal(w, tagsOf(doc{"tags": l.tags[name]}), ownTags(w.sim.Shown(lbID(name))), name)
	}
	for name, a := range l.addresses {
		shown := w.sim.Shown(pipID(name))
		require.NotNil(w, shown, name)
		for _, key := range []string{"publicIPAllocationMethod", "publicIPAddressVersion"} {
			assert.Equal(w, value(a.doc, "properties", key), value(shown, "properties", key), name)
		}
		assert.Equal(w, tagsOf(plainDoc(w, a.doc)), ownTags(shown), name)
		assert.Equal(w, value(plainDoc(w, a.doc), "zones"), shown["zones"], name)
	}
	for name, d := range l.links {
		shown := w.sim.Shown(linkID(name))
		require.NotNil(w, shown, name)
		assert.Equal(w, tagsOf(d), ownTags(shown))
		assert.Equal(w, namesOf(docs(d, "properties", "ipConfigurations")), namesOf(docs(shown, "properties", "ipConfigurations")))
	}
	assert.Equal(w, rulesOf(plainDoc(w, doc{"properties": doc{"securityRules": l.rules}})),
		rulesOf(w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))))
}

// prefixes makes the public IP prefixes that Services name.
func prefixes(w *world, l left) {
	for _, s := range l.services {
		if id := s.Annotations[annotationPrefixID]; id != "" {
			w.sim.Leave(id, doc{"location": azuresim.Location})
		}
	}
}

// ownTags are the tags of a resource without the mark, which Azure's own controller leaves alone.
func ownTags(d doc) map[string]string {
	tags := tagsOf(d)
	delete(tags, clusterTag)
	return tags
}

func plainDoc(w *world, v any) doc {
	data, err := json.Marshal(v)
	require.NoError(w, err)
	var out doc
	require.NoError(w, json.Unmarshal(data, &out))
	return out
}

// partsOf are the parts of a load balancer by their names, with what Azure's own controller compares.
func partsOf(w *world, lb doc) map[string]doc {
	lb = plainDoc(w, lb)
	parts := map[string]doc{}
	short := func(id string) string { return nameOf(ownerOf(id)) + "/" + nameOf(id) }
	for _, f := range docs(lb, "properties", "frontendIPConfigurations") {
		p := doc{"subnet": nameOf(str(f, "properties", "subnet", "id")), "public": nameOf(str(f, "properties", "publicIPAddress", "id"))}
		parts["front "+str(f, "name")] = p
	}
	for _, pool := range docs(lb, "properties", "backendAddressPools") {
		parts["pool "+str(pool, "name")] = doc{}
	}
	for _, rule := range docs(lb, "properties", "loadBalancingRules") {
		p := doc{}
		for _, key := range []string{"frontendIPConfiguration", "backendAddressPool", "probe"} {
			p[key] = short(str(rule, "properties", key, "id") + "//")
			if id := str(rule, "properties", key, "id"); id != "" {
				p[key] = short(id)
			}
		}
		for _, key := range []string{
			"protocol", "frontendPort", "backendPort", "enableFloatingIP", "enableTcpReset", "idleTimeoutInMinutes", "loadDistribution", "disableOutboundSnat",
		} {
			p[key] = value(rule, "properties", key)
		}
		parts["rule "+str(rule, "name")] = p
	}
	for _, probe := range docs(lb, "properties", "probes") {
		p := doc{}
		for _, key := range []string{"protocol", "port", "requestPath", "intervalInSeconds", "probeThreshold"} {
			p[key] = value(probe, "properties", key)
		}
		parts["probe "+str(probe, "name")] = p
	}
	return parts
}

// rulesOf are the security rules by their names, with how many addresses they are for.
func rulesOf(group doc) map[string]doc {
	rules := map[string]doc{}
	for _, r := range docs(group, "properties", "securityRules") {
		ports := fieldValues(r, "destinationPortRange", "destinationPortRanges")
		sources := fieldValues(r, "sourceAddressPrefix", "sourceAddressPrefixes")
		slices.Sort(sources)
		rules[str(r, "name")] = doc{
			"access": str(r, "properties", "access"), "protocol": str(r, "properties", "protocol"), "ports": strings.Join(ports, ","),
			"sources": strings.Join(sources, ","), "destinations": len(destinationsOf(r)), "from": str(r, "properties", "sourcePortRange"),
		}
	}
	return rules
}
