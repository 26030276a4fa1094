package azure

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
)

func group(t *testing.T, rules string) *securityGroup {
	t.Helper()
	var d doc
	require.NoError(t, json.Unmarshal([]byte(`{"properties":{"securityRules":`+rules+`}}`), &d))
	return parse[securityGroup](d)
}

// web lets the internet to port 80 of addresses.
func web(destinations ...string) access {
	return access{protocol: "Tcp", sources: []string{"Internet"}, ports: []string{"80"}, destinations: destinations}
}

// TestSingleDestinationIsWrittenOnce: Azure answers an empty list beside the field in singular, which is no difference.
func TestSingleDestinationIsWrittenOnce(t *testing.T) {
	t.Parallel()
	g := group(t, `[{"name":"`+web().name()+`","properties":{"direction":"Inbound","priority":500,"access":"Allow","protocol":"Tcp","sourceAddressPrefix":"Internet",
		"sourceAddressPrefixes":[],"destinationAddressPrefix":"20.0.0.1","destinationAddressPrefixes":[],"destinationPortRanges":["80"],"sourcePortRange":"*"}}]`)
	changed, err := applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}, wanted: []access{web("20.0.0.1")}})
	require.NoError(t, err)
	assert.False(t, changed)
}

// TestForeignRulesStay: without a destination, with a group as the destination, and addresses of other clusters.
func TestForeignRulesStay(t *testing.T) {
	t.Parallel()
	foreign := `{"name":"admin","properties":{"direction":"Inbound","priority":500,"access":"Allow","protocol":"*","future":{"kept":true}}},
		{"name":"asg","properties":{"direction":"Inbound","priority":501,"access":"Allow","protocol":"*","destinationApplicationSecurityGroups":[{"id":"/x"}]}}`
	g := group(t, `[`+foreign+`,{"name":"`+web().name()+`","properties":{"direction":"Inbound","priority":502,"access":"Allow","protocol":"Tcp",
		"sourceAddressPrefix":"Internet","destinationAddressPrefix":"40.0.0.9","destinationPortRanges":["80"]}}]`)
	changed, err := applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}, wanted: []access{web("20.0.0.1")}})
	require.NoError(t, err)
	require.True(t, changed)
	rules := g.Properties.Rules
	assert.Equal(t, group(t, "["+foreign+"]").Properties.Rules, rules[:2])
	assert.Equal(t, []string{"20.0.0.1", "40.0.0.9"}, rules[2].destinations(), "another cluster's address stays in the shared rule")
	assert.Equal(t, 502, rules[2].Properties.Priority)

	changed, err = applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}})
	require.NoError(t, err)
	require.True(t, changed)
	assert.Equal(t, []string{"40.0.0.9"}, g.Properties.Rules[2].destinations())
}

// TestSharedAddress: what another Service needs of an address stays when one goes, and so does its deny rule.
func TestSharedAddress(t *testing.T) {
	t.Parallel()
	g := group(t, `[]`)
	both := access{protocol: "Tcp", sources: []string{"Internet"}, ports: []string{"80", "443"}, destinations: []string{"20.0.0.1"}}
	deny := access{deny: true, destinations: []string{"20.0.0.1"}}
	_, err := applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}, wanted: []access{both, deny}})
	require.NoError(t, err)
	_, err = applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}, sharedPorts: map[string][]string{"20.0.0.1": {"tcp 443"}}})
	require.NoError(t, err)
	rules := g.Properties.Rules
	require.Len(t, rules, 2)
	assert.NotNil(t, findByName(rules, deny.name()))
	left := findByName(rules, access{protocol: "Tcp", sources: []string{"Internet"}, ports: []string{"443"}}.name())
	require.NotNil(t, left)
	assert.Equal(t, []string{"20.0.0.1"}, left.destinations())
}

// TestFullGroupLetsGo: a security group beyond its limits refuses what comes, and not what goes.
func TestFullGroupLetsGo(t *testing.T) {
	t.Parallel()
	g := group(t, `[]`)
	_, err := applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}, wanted: []access{web("20.0.0.1")}})
	require.NoError(t, err)
	var many []string
	for i := range azurelimits.Sources.Max + 1 {
		many = append(many, netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}).String())
	}
	others := &securityRule{subresource{Name: "others"}, securityProperties{
		Direction: "Inbound", Priority: 100, Access: "Allow", Protocol: "*", Sources: many,
	}}
	g.Properties.Rules = append(g.Properties.Rules, others)
	_, err = applyClaim(clone(g), claim{ownIPs: []string{"20.0.0.2"}, wanted: []access{web("20.0.0.2")}})
	require.ErrorContains(t, err, "a network security group would have 4002 source addresses, and the cloud takes at most 4000")
	changed, err := applyClaim(g, claim{ownIPs: []string{"20.0.0.1"}})
	require.NoError(t, err)
	assert.True(t, changed)
	assert.Equal(t, []*securityRule{others}, g.Properties.Rules)
}

func TestNames(t *testing.T) {
	t.Parallel()
	assert.Equal(t, "k8s-azure-lb_allow_IPv4_d39272f7f57ed937951650d93992ad77", web().name())
	base := "a0123456789abcdef0123456789abcde"
	assert.True(t, ownedBy(base, base+"-TCP-443"))
	assert.False(t, ownedBy(base, base+"f-TCP-443"), "a name that only begins alike")
}

// TestUglyNames: the names that Azure's own controller gives, to the character: a takeover finds its objects by them.
func TestUglyNames(t *testing.T) {
	t.Parallel()
	base := "a0123456789abcdef0123456789abcde"
	long := func(n int) string { return strings.Repeat("s", n) }
	// The name of a frontend has room for 42 characters of the subnet's, that of the rule of this port for 34.
	for subnet, want := range map[string]struct{ front, rule string }{
		"apps":          {"apps", "apps"},
		"apps-1":        {"apps-1", "apps-1"},
		"1":             {"1", "1"},
		"apps.":         {"apps.", "apps."},
		"-apps-":        {"-apps-", "-apps-"},
		"apps_":         {"apps_", "apps_"},
		long(33) + "1":  {long(33) + "1", long(33) + "1"},
		long(34) + "1":  {long(34) + "1", long(34)},
		long(41) + "1":  {long(41) + "1", long(34)},
		long(41) + "-":  {long(41) + "-", long(34)},
		long(41) + "1x": {long(41) + "_", long(34)},
		long(41) + "-1": {long(41) + "_", long(34)},
		long(41) + ".1": {long(41) + "_", long(34)},
		long(41) + "_1": {long(41) + "_", long(34)},
		long(41) + "Z1": {long(41) + "Z", long(34)},
		long(80):        {long(42), long(34)},
	} {
		for _, suffix := range []string{"", suffixIPv6} {
			assert.Equal(t, base+"-"+want.front+suffix, frontName(base, subnet, suffix), subnet)
			rule := ruleName(base, subnet, v1.ServicePort{Protocol: "TCP", Port: 443}, suffix)
			assert.Equal(t, base+"-"+want.rule+"-TCP-443"+suffix, rule, subnet)
			assert.Equal(t, base+suffix, frontName(base, "", suffix))
			assert.Equal(t, base+"-TCP-443"+suffix, ruleName(base, "", v1.ServicePort{Protocol: "TCP", Port: 443}, suffix))
		}
	}
	// A public address has the name of its prefix as far as there is room, and nothing takes the place of the last character.
	for prefix, want := range map[string]string{
		"": "", "p-1": "-p-1", long(30) + "1": "-" + long(30) + "1", long(30) + "-1": "-" + long(30) + "-", long(80): "-" + long(31),
	} {
		if prefix != "" {
			prefix = "/publicIPPrefixes/" + prefix
		}
		for _, suffix := range []string{"", suffixIPv6} {
			assert.Equal(t, "kubernetes-"+base+want+suffix, addressName("kubernetes", base, prefix, suffix), prefix)
		}
	}
}

func TestAggregatedRanges(t *testing.T) {
	t.Parallel()
	var list []netip.Prefix
	for _, p := range []string{"10.0.1.0/24", "10.0.0.0/24", "10.0.0.128/25", "192.168.0.0/16"} {
		list = append(list, netip.MustParsePrefix(p))
	}
	assert.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/23"), netip.MustParsePrefix("192.168.0.0/16")}, mergePrefixes(list))
}

// TestNothingOpensForWhatIsNoAddress: a destination that cannot be read is none, or Azure would be asked to open something else.
func TestNothingOpensForWhatIsNoAddress(t *testing.T) {
	t.Parallel()
	d := desired{AccessPorts: []accessPort{{"Tcp", 80}}}
	assert.Empty(t, accesses(d, []string{"", "*", "VirtualNetwork", "fe80::zz"}))
	assert.Len(t, accesses(d, []string{"192.0.2.1", "2001:db8::1"}), 2)
	assert.Len(t, accesses(d, []string{unknownAddress(false), unknownAddress(true)}), 2, "plan shows what is not known yet")
}
