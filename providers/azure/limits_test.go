package azure

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// TestNamesBeyondTheLimits: a name that Azure would refuse is refused before anything is written, with the limit and what to do. The
// longest one that Azure takes is served.
func TestNamesBeyondTheLimits(t *testing.T) {
	t.Parallel()
	linked := map[string]string{annotationInternal: "true", annotationPrivateLink: "true", annotationLinkName: strings.Repeat("l", 81)}
	prefixID := azuresim.ID("Microsoft.Network/publicIPPrefixes", strings.Repeat("p", 80))
	internal := map[string]string{annotationInternal: "true"}
	for name, c := range map[string]struct {
		cluster     int
		annotations map[string]string
		alter       func(*v1.Service)
		refusal     string
	}{
		"public address":           {47, nil, nil, ""},
		"longer public address":    {48, nil, nil, "would have 81 characters, and the cloud takes at most 80; shorten --cluster-name"},
		"public address of IPv6":   {42, nil, bothFamilies, ""},
		"longer address of IPv6":   {43, nil, bothFamilies, "would have 81 characters, and the cloud takes at most 80; shorten --cluster-name"},
		"load balancer":            {71, internal, nil, ""},
		"longer load balancer":     {72, internal, nil, "would have 81 characters, and the cloud takes at most 80; shorten --cluster-name, or what the cloud config"},
		"private link service":     {9, linked, nil, annotationLinkName},
		"tag of the address":       {9, map[string]string{annotationTags: "team=" + strings.Repeat("x", 256)}, nil, ""},
		"longer tag":               {9, map[string]string{annotationTags: "team=" + strings.Repeat("x", 257)}, nil, "the value of tag team would have 257 characters, and the cloud takes at most 256"},
		"more tags than fifty":     {9, map[string]string{annotationTags: manyTags(51)}, nil, "a resource would have 51 tags, and the cloud takes at most 50"},
		"tags with ours":           {9, map[string]string{annotationTags: manyTags(47)}, nil, ""},
		"more tags with ours":      {9, map[string]string{annotationTags: manyTags(48)}, nil, "would have 51 tags, and the cloud takes at most 50; ask for fewer"},
		"longer name of a tag":     {9, map[string]string{annotationTags: strings.Repeat("x", 513) + "=a"}, nil, "would have 513 characters, and the cloud takes at most 512"},
		"prefix of a long address": {48, map[string]string{annotationPrefixID: prefixID}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := webService(c.annotations)
			if c.alter != nil {
				c.alter(s)
			}
			withNode(t, s, func(w *world) {
				w.sim.Leave(prefixID, doc{"location": azuresim.Location})
				w.server.ResetCalls()
				_, err := w.Reconcile(w.cloud.loadBalancers, strings.Repeat("c", c.cluster), s, w.nodes)
				if c.refusal == "" {
					require.NoError(w, err)
					return
				}
				require.ErrorContains(w, err, c.refusal)
				assert.Zero(w, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
				assert.Contains(w, strings.Join(w.Events(), "\n"), c.refusal)
			})
		})
	}
}

func manyTags(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf("tag-%d=a", i)
	}
	return strings.Join(all, ",")
}

// TestTagsOfTheConfigurationBeyondTheLimits: the program starts, for nodes are served without tags. What would get the tags is refused
// before it is written.
func TestTagsOfTheConfigurationBeyondTheLimits(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`"tags":"team=%s"`, `"tagsMap":{"team":"%s"}`} {
		_, warnings, err := parseConfig(inputs(minimal + "," + fmt.Sprintf(text, strings.Repeat("x", 257)) + "}"))
		require.NoError(t, err, "the program starts")
		require.ErrorContains(t, warnings, "the value of tag team would have 257 characters, and the cloud takes at most 256")
	}
	lb := &loadBalancer{resource: resource{Tags: map[string]string{"theirs": "1"}}}
	_, err := applyService(lb, "", &desired{}, &Config{tags: pairs(manyTags(50))}, otherParts{})
	require.ErrorContains(t, err, "a resource would have 51 tags, and the cloud takes at most 50")
	_, err = applyService(lb, "", &desired{}, &Config{tags: pairs(manyTags(50))}, otherParts{})
	require.NoError(t, err, "what is there is not judged")
}

// TestMoreServicesThanATagNames: of Services that share an address, the first whose name the tag has no room for is refused without a
// write. The others are served on.
func TestMoreServicesThanATagNames(t *testing.T) {
	t.Parallel()
	first := webService(nil)
	withNode(t, first, func(w *world) {
		ip := w.ensure(first).Status.LoadBalancer.Ingress[0].IP
		add := func(i int) *v1.Service {
			s := webNumber(i, map[string]string{annotationIPv4: ip}, func(s *v1.Service) {
				s.Name, s.Spec.Ports[0].Port = fmt.Sprintf("echo-server-number-%02d", i), int32(8000+i)
			})
			w.Apply(s)
			return s
		}
		room := 1 + (azurelimits.TagValue.Max-len("default/web"))/len(",default/echo-server-number-00")
		for i := 1; i < room; i++ {
			w.ensure(add(i))
		}
		w.server.ResetCalls()
		require.ErrorContains(w, w.refuse(add(room)), fmt.Sprintf("is to be for %d Services, and the value of tag k8s-azure-service would have ", room+1))
		assert.Zero(w, w.server.Calls().Writes)
		assert.Contains(w, strings.Join(w.Events(), "\n"), "and the cloud takes at most 256: give this Service an address of its own")
		assert.Len(w, w.parts("kubernetes", "loadBalancingRules"), room)
	})
}

// limitsElsewhere are the limits that the test below holds, of what is counted in several rules, and of routes.
func limitsElsewhere() map[string]string {
	const test = "TestSimulatorKnowsTheLimits"
	return map[string]string{
		azurelimits.Sources.String(): test, azurelimits.Destinations.String(): test, azurelimits.Routes.String(): test,
		azurelimits.RuleDescription.String(): test,
	}
}

// unlimited are the texts and lists that have no limit.
func unlimited() map[string]string {
	const filledIn, unbounded = "the API fills it in, and ignores what a write says about it", "Azure's page of limits has no number for it"
	all := map[string]string{
		"name": "the path says it", "id": "the path says it", "sku.tier": "the name says it",
		"*sourceAddressPrefixes": "those of all rules are counted, by TestSimulatorKnowsTheLimits",
	}
	for _, field := range []string{
		"etag", "type", "defaultSecurityRules", "networkInterfaces", "backendIPConfigurations", "[].properties.loadBalancingRules", "onfigurations[].id",
		"Rules[].id", "defaultSecurityRules[].properties.access", "alias", "networkInterfaces[].id", "networkInterfaceIPConfiguration.id",
	} {
		all["*"+field] = filledIn
	}
	for _, field := range []string{
		"ackendAddressPools", "probes", "zones", "destinationPortRanges", "etworkInterfaceConfigurations", "ipConfigurations", "addressPrefixes", "vmSize",
		"subnet.id", "subscriptions", "fqdns", "fqdns[]", "sourceAddressPrefix", "requestPath", "loadBalancerFrontendIpConfigurations",
	} {
		all["*"+field] = unbounded
	}
	return all
}

// TestSimulatorKnowsTheLimits: it refuses what Azure refuses, by Azure's codes.
func TestSimulatorKnowsTheLimits(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		address := func(tags doc) doc {
			return doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "tags": tags, "properties": doc{"publicIPAllocationMethod": "Static"}}
		}
		put := func(name string, tags doc) error {
			return w.cloud.reconciler.resources.api.put(w.Context(), "a public address", pipID(name), networkVersion, address(tags), "")
		}
		tags := doc{strings.Repeat("k", azurelimits.TagName.Max): strings.Repeat("v", azurelimits.TagValue.Max)}
		require.NoError(w, put(strings.Repeat("n", azurelimits.Name.Max), tags))
		assert.Equal(w, "InvalidResourceName", codeOf(put(strings.Repeat("n", azurelimits.Name.Max+1), nil)))
		assert.Equal(w, "InvalidTagValueLength", codeOf(put("a", doc{"k": strings.Repeat("v", azurelimits.TagValue.Max+1)})))
		assert.Equal(w, "InvalidTagName", codeOf(put("a", doc{strings.Repeat("k", azurelimits.TagName.Max+1): "v"})))
		group := func(sources, destinations, description int) error {
			addresses := func(n int) (list []any) {
				for i := range n {
					list = append(list, fmt.Sprintf("10.0.%d.%d", i>>8, i&0xff))
				}
				return list
			}
			rule := part("rule", doc{
				"direction": "Inbound", "priority": 500, "access": "Allow", "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "80",
				"description": strings.Repeat("d", description), "sourceAddressPrefixes": addresses(sources), "destinationAddressPrefixes": addresses(destinations),
			})
			id := azuresim.ID("Microsoft.Network/networkSecurityGroups", "many")
			return w.cloud.reconciler.resources.api.put(w.Context(), "a security group", id, networkVersion, doc{
				"location": azuresim.Location, "properties": doc{"securityRules": []any{rule}},
			}, "")
		}
		require.NoError(w, group(azurelimits.Sources.Max, azurelimits.Destinations.Max, azurelimits.RuleDescription.Max))
		assert.Equal(w, "LimitExceeded", codeOf(group(azurelimits.Sources.Max+1, 1, 1)))
		assert.Equal(w, "LimitExceeded", codeOf(group(1, azurelimits.Destinations.Max+1, 1)))
		assert.Equal(w, "InvalidRequestFormat", codeOf(group(1, 1, azurelimits.RuleDescription.Max+1)))
		table := func(routes int) error {
			var list []any
			for i := range routes {
				list = append(list, part(fmt.Sprint("route-", i), doc{
					"addressPrefix": fmt.Sprintf("10.%d.%d.0/24", i>>8, i&0xff), "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.0.0.4",
				}))
			}
			id := azuresim.ID("Microsoft.Network/routeTables", "many")
			return w.cloud.reconciler.resources.api.put(w.Context(), "a route table", id, networkVersion, doc{
				"location": azuresim.Location, "properties": doc{"routes": list},
			}, "")
		}
		require.NoError(w, table(azurelimits.Routes.Max))
		assert.Equal(w, "RouteTableLimit", codeOf(table(azurelimits.Routes.Max+1)))
	})
}

// TestFullLoadBalancer: a Service for which a load balancer would get more rules or frontends than Azure takes is refused before a write.
// The last one that fits is served, and those that add none are.
func TestFullLoadBalancer(t *testing.T) {
	t.Parallel()
	for kind, limit := range map[string]limits.Limit{"loadBalancingRules": azurelimits.BalancerRules, "frontendIPConfigurations": azurelimits.Frontends} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			internal := map[string]string{annotationInternal: "true"}
			first, last, more := webNumber(0, internal), webNumber(1, internal), webNumber(2, internal)
			withNode(t, first, func(w *world) {
				w.ensure(first)
				lb := w.sim.Shown(lbID("kubernetes-internal"))
				theirs := docs(lb, "properties", kind)
				for n := len(theirs); n < limit.Max-1; n++ {
					like := maps.Clone(theirs[0]["properties"].(doc))
					delete(like, "privateIPAddress")
					if like["frontendPort"] != nil {
						like["frontendPort"] = float64(10000 + n)
					}
					theirs = append(theirs, part(fmt.Sprint("theirs-", n), like))
				}
				setList(lb, kind, theirs)
				w.sim.Leave(str(lb, "id"), lb)
				waitFor(2 * observeMaxAge)
				w.Apply(last)
				w.ensure(last)
				w.Apply(more)
				w.server.ResetCalls()
				refusal := fmt.Sprintf("a load balancer would have %d %s, and the cloud takes at most %d; use several", limit.Max+1, limit.What, limit.Max)
				require.ErrorContains(w, w.refuse(more), refusal)
				assert.Zero(w, w.server.Calls().Writes, "a write finds it out")
				w.change(last, func(s *v1.Service) { s.Spec.Ports[0].NodePort++ })
				w.ensure(last)
				require.Len(w, w.parts("kubernetes-internal", kind), limit.Max)
				lb = w.sim.Shown(lbID("kubernetes-internal"))
				beyond := maps.Clone(theirs[len(theirs)-1]["properties"].(doc))
				if beyond["frontendPort"] != nil {
					beyond["frontendPort"] = float64(9999)
				}
				setList(lb, kind, append(docs(lb, "properties", kind), part("beyond", beyond)))
				w.sim.Leave(str(lb, "id"), lb)
				waitFor(2 * observeMaxAge)
				w.ensure(last)
			})
		})
	}
}

// TestFullPool: the addresses that a backend pool has keep their places, the others wait for one, and an event says so.
func TestFullPool(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		w.byAddress()
		const most = 5000
		var all []*v1.Node
		for n := range most + 2 {
			one := node(fmt.Sprint("n", n), "")
			one.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", 8+n>>8, n&0xff)}}
			all = append(all, one)
		}
		lb := &loadBalancer{resource: resource{subresource: subresource{Name: "kubernetes"}}}
		lb.Properties.Pools = []*pool{{subresource: subresource{Name: "kubernetes"}}}
		plan := func(nodes []*v1.Node) string {
			o := &observed{cluster: "kubernetes", nodes: nodes, lbs: []*loadBalancer{lb}}
			q := services.Request{Cluster: "kubernetes", Service: webService(nil), Nodes: nodes}
			wanted, findings, err := w.cloud.reconciler.poolMembers(q, o, "kubernetes", false, []desiredFront{{pool: "kubernetes"}})
			require.NoError(w, err)
			applyAddresses(lb, wanted, "network")
			var told []string
			for _, f := range findings {
				told = append(told, f.Reason+" "+f.Message)
			}
			return strings.Join(told, "\n")
		}
		has := func(ip string) bool { return slices.Contains(lb.pool("kubernetes").ips(), ip) }
		assert.Empty(w, plan(all[1:][:most]))
		require.Len(w, lb.pool("kubernetes").ips(), most)
		assert.Equal(w, "LoadBalancerMembersLimited a backend pool takes 5000 addresses at most, so that 2 nodes receive no traffic; "+
			"label nodes with node.kubernetes.io/exclude-from-external-load-balancers to choose", plan(all))
		assert.False(w, has("10.0.8.0"), "it is full")
		assert.True(w, has("10.0.8.1"))
		assert.NotEmpty(w, plan(append(all[2:], all[0])))
		require.Len(w, lb.pool("kubernetes").ips(), most)
		assert.NotEqual(w, has("10.0.8.0"), has(fmt.Sprintf("10.0.%d.%d", 8+(most+1)>>8, (most+1)&0xff)), "one of those that waited")
		assert.False(w, has("10.0.8.1"), "it is no node any more")
	})
}

// TestFullRouteTable: a route that Azure refuses as one too many is told with the limit, how many there would be, and what to do. Those of
// other nodes are made.
func TestFullRouteTable(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		first, last, more := w.podNode("a", 1), w.podNode("b", 2), w.podNode("c", 3)
		for _, n := range w.nodes {
			n.Spec.PodCIDRs = n.Spec.PodCIDRs[:1]
		}
		require.Empty(w, w.route(first))
		table := w.sim.Shown(tableID())
		list := docs(table, "properties", "routes")
		for n := len(list); n < azurelimits.Routes.Max-1; n++ {
			list = append(list, part(fmt.Sprint("theirs-", n), doc{
				"addressPrefix": fmt.Sprintf("10.%d.%d.0/24", 100+n>>8, n&0xff), "nextHopType": "VirtualAppliance", "nextHopIpAddress": "10.0.0.4",
			}))
		}
		setList(table, "routes", list)
		w.sim.Leave(str(table, "id"), table)
		waitFor(2 * routesMaxAge)
		require.Empty(w, w.route(first, last))
		problems := w.route(first, last, more)
		require.Len(w, problems, 1)
		require.ErrorContains(w, problems[0], "; a route table would have 401 routes, and the cloud takes at most 400 unless it was raised for this account; have")
		assert.Len(w, docs(w.sim.Shown(tableID()), "properties", "routes"), azurelimits.Routes.Max)
	})
}

// TestRulesOfOneFamily: the simulated cloud refuses a security rule that names addresses of both families, as Azure does.
func TestRulesOfOneFamily(t *testing.T) {
	t.Parallel()
	inWorld(t, func(w *world) {
		put := func(sources, destinations []any) error {
			rule := part("rule", doc{
				"direction": "Inbound", "priority": 500, "access": "Allow", "protocol": "Tcp", "sourcePortRange": "*", "destinationPortRange": "80",
				"sourceAddressPrefixes": sources, "destinationAddressPrefixes": destinations,
			})
			id := azuresim.ID("Microsoft.Network/networkSecurityGroups", "families")
			return w.cloud.reconciler.resources.api.put(w.Context(), "a security group", id, networkVersion, doc{
				"location": azuresim.Location, "properties": doc{"securityRules": []any{rule}},
			}, "")
		}
		const refusal = "ResourceCannotContainAddressPrefixesFromDifferentAddressFamilies"
		four, six := []any{"192.0.2.0/24"}, []any{"2001:db8::/64"}
		require.NoError(w, put(four, []any{"203.0.113.1"}))
		require.NoError(w, put(six, []any{"2001:db8::1"}))
		require.NoError(w, put([]any{"Internet"}, six))
		assert.Equal(w, refusal, codeOf(put(append(four, six...), four)))
		assert.Equal(w, refusal, codeOf(put(four, six)))
	})
}
