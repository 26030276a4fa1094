package azure

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azuresim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
)

// left is a cluster's cloud as Azure's own controller leaves it. The objects are written down here by hand, from what that controller
// is known to send, with hashes made by md5sum, and not made by our code.
type left struct {
	config    map[string]any
	subnets   map[string]string
	addresses map[string]leftAddress
	// balancers are the properties of load balancers by name, whose IDs in references are written short: "pool:name" and so on.
	balancers map[string]doc
	tags      map[string]doc
	// links are private link services by name.
	links map[string]doc
	// endpoints are the EndpointSlices of the cluster.
	endpoints []*discovery.EndpointSlice
	rules     []any
	services  []*v1.Service
	// members are the pools, by load balancer and pool, that have all nodes.
	members []string
	ingress map[string][]string
	// stays lists load balancers and security rules of others that remain after all Services are gone, by name.
	stays []string
	// unproven are further addresses that stay in the one rule that is left: nothing shows whose they are.
	unproven []string
}

type leftAddress struct {
	ip  string
	doc doc
}

const (
	leftIP, leftIP6 = "20.60.0.1", "2603:1020:201::60"
	otherIP         = "20.60.0.9"
)

// leftPIP is a public address that Azure's own controller made.
func leftPIP(ip string, more ...any) leftAddress {
	d := doc{
		"location": azuresim.Location, "sku": doc{"name": "Standard"}, "zones": []any{"1", "2", "3"},
		"tags":       doc{"k8s-azure-service": "default/web", "k8s-azure-cluster-name": "kubernetes"},
		"properties": doc{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv4"},
	}
	for i := 0; i+1 < len(more); i += 2 {
		d[more[i].(string)] = more[i+1]
	}
	return leftAddress{ip, d}
}

func leftPIP6(more ...any) leftAddress {
	more = append(more, "properties", doc{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": "IPv6"})
	return leftPIP(leftIP6, more...)
}

func part(name string, properties doc) doc { return doc{"name": name, "properties": properties} }

// reference is the ID of a part of a load balancer.
func reference(lb, kind, name string) doc {
	return doc{"id": azuresim.ID("Microsoft.Network/loadBalancers", lb, kind, name)}
}

func leftFront(name, public string) doc {
	return part(name, doc{"publicIPAddress": doc{"id": azuresim.ID("Microsoft.Network/publicIPAddresses", public)}})
}

func leftPrivate(name, subnet, ip string, more ...any) doc {
	id := azuresim.ID("Microsoft.Network/virtualNetworks", azuresim.Network, "subnets", subnet)
	p := doc{"subnet": doc{"id": id}, "privateIPAddress": ip, "privateIPAllocationMethod": "Static"}
	for i := 0; i+1 < len(more); i += 2 {
		p[more[i].(string)] = more[i+1]
	}
	d := part(name, p)
	d["zones"] = []any{"1", "2", "3"}
	return d
}

// leftRule is the rule of a port; more are properties that differ from those of TCP port 80 without annotations.
func leftRule(lb, name, front, pool, probe string, more ...any) doc {
	p := doc{
		"frontendIPConfiguration": reference(lb, "frontendIPConfigurations", front), "backendAddressPool": reference(lb, "backendAddressPools", pool),
		"protocol": "Tcp", "frontendPort": 80, "backendPort": 80, "enableFloatingIP": true, "enableTcpReset": true, "idleTimeoutInMinutes": 4,
		"loadDistribution": "Default", "disableOutboundSnat": false,
	}
	if probe != "" {
		p["probe"] = reference(lb, "probes", probe)
	}
	for i := 0; i+1 < len(more); i += 2 {
		if p[more[i].(string)] = more[i+1]; more[i+1] == nil {
			delete(p, more[i].(string))
		}
	}
	return part(name, p)
}

func leftProbe(name string, port int, more ...any) doc {
	p := doc{"protocol": "Tcp", "port": port, "intervalInSeconds": 5, "probeThreshold": 2}
	for i := 0; i+1 < len(more); i += 2 {
		if p[more[i].(string)] = more[i+1]; more[i+1] == nil {
			delete(p, more[i].(string))
		}
	}
	return part(name, p)
}

func leftBalancer(fronts, rules, probes []doc, pools ...string) doc {
	var list []doc
	for _, p := range pools {
		list = append(list, part(p, doc{}))
	}
	return doc{
		"frontendIPConfigurations": anyList(fronts), "loadBalancingRules": anyList(rules), "probes": anyList(probes), "backendAddressPools": anyList(list),
	}
}

// leftAllow is a security rule for one destination, which Azure answers in singular with an empty list beside it.
func leftAllow(family, hash string, priority int, protocol string, source any, destination any, ports ...string) doc {
	p := doc{
		"protocol": protocol, "access": "Allow", "direction": "Inbound", "priority": priority, "sourcePortRange": "*", "destinationPortRanges": anyList(ports),
		"sourceAddressPrefixes": []any{}, "destinationAddressPrefixes": []any{}, "sourcePortRanges": []any{},
	}
	for key, v := range map[string]any{"sourceAddressPrefix": source, "destinationAddressPrefix": destination} {
		if list, ok := v.([]any); ok {
			p[key+"es"] = list
		} else {
			p[key] = v
		}
	}
	return part("k8s-azure-lb_allow_"+family+"_"+hash, p)
}

const (
	hashWeb = "d39272f7f57ed937951650d93992ad77" // Tcp_Internet_80
	webRule = base + "-TCP-80"
	webPIP  = "kubernetes-" + base
)

// leftWeb returns the objects left for a Service with port 80 and no annotations.
func leftWeb() left {
	return left{
		services:  []*v1.Service{webService(nil)},
		addresses: map[string]leftAddress{webPIP: leftPIP(leftIP)},
		balancers: map[string]doc{"kubernetes": leftWebBalancer("kubernetes", webPIP)},
		rules:     []any{leftAllow("IPv4", hashWeb, 500, "Tcp", "Internet", leftIP, "80")}, members: []string{"kubernetes/kubernetes"},
		ingress: map[string][]string{"web": {leftIP}},
	}
}

// leftWebBalancer is the load balancer of that Service, with this public address.
func leftWebBalancer(lb, pip string) doc {
	rules, probes := []doc{leftRule(lb, webRule, base, "kubernetes", webRule)}, []doc{leftProbe(webRule, 30080)}
	return leftBalancer([]doc{leftFront(base, pip)}, rules, probes, "kubernetes")
}

// changed changes what is left.
func (l left) changed(change func(*left)) left {
	change(&l)
	return l
}

// leave makes what is left in the cloud and the cluster.
func (l left) leave(w *world) {
	for name, prefix := range l.subnets {
		w.sim.AddSubnet(name, prefix)
	}
	w.slices = l.endpoints
	w.set(l.config)
	for _, name := range []string{"n1", "n2"} {
		w.join(name)
	}
	var machines []string
	for _, n := range w.nodes {
		machines = append(machines, n.Spec.ProviderID)
	}
	l.putIn(w.sim, machines)
	for _, s := range l.leftServices() {
		w.Apply(s)
	}
	w.restart()
}

// leftServices are the Services with the status that they have.
func (l left) leftServices() []*v1.Service {
	for _, s := range l.services {
		for _, ip := range l.ingress[s.Name] {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, v1.LoadBalancerIngress{IP: ip})
		}
	}
	return l.services
}

// putIn makes what is left in the cloud, with machines in the pools.
func (l left) putIn(sim *azuresim.Sim, machines []string) {
	for name, a := range l.addresses {
		sim.LeaveAddress(name, a.ip, a.doc)
	}
	for name, properties := range l.balancers {
		d := doc{"location": azuresim.Location, "sku": doc{"name": "Standard"}, "properties": properties}
		if l.tags[name] != nil {
			d["tags"] = l.tags[name]
		}
		sim.Leave(azuresim.ID("Microsoft.Network/loadBalancers", name), d)
	}
	for name, d := range l.links {
		sim.LetLinksIn(azuresim.Subnet)
		sim.Leave(azuresim.ID("Microsoft.Network/privateLinkServices", name), d)
	}
	sim.Leave(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName), doc{
		"location": azuresim.Location, "properties": doc{"securityRules": l.rules},
	})
	for _, at := range l.members {
		id := azuresim.ID("Microsoft.Network/loadBalancers", ownerName(at), "backendAddressPools", nameOf(at))
		ipv6 := nameOf(at) == "kubernetes-IPv6"
		sim.LeaveMember(azuresim.ID("Microsoft.Compute/virtualMachineScaleSets", azuresim.ScaleSet), id, ipv6)
		for _, machine := range machines {
			sim.LeaveMember(machine, id, ipv6)
		}
	}
}

// leftCases are those of a single Service with the default configuration and without anything of others: no networks by annotation, which
// exclude source ranges, and no rules to node addresses.
func leftCases(sim *azuresim.Sim) map[string]conformance.Left {
	all := map[string]conformance.Left{}
	for name, l := range leftKinds() {
		if len(l.services) != 1 || l.config != nil || l.endpoints != nil || l.stays != nil || l.unproven != nil {
			continue
		}
		if a := l.services[0].Annotations; a[annotationAllowedRanges] != "" || a[annotationNoFloating] != "" {
			continue
		}
		all[name] = l.describe(sim)
	}
	return all
}

// describe tells how the suite takes it over.
func (l left) describe(sim *azuresim.Sim) conformance.Left {
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		for name, prefix := range l.subnets {
			sim.AddSubnet(name, prefix)
		}
		var machines []string
		for _, n := range nodes {
			machines = append(machines, n.Spec.ProviderID)
		}
		l.putIn(sim, machines)
		return l.leftServices()[0]
	}}
}

func ownerName(at string) string { return at[:len(at)-len(nameOf(at))-1] }

// TestTakeover: objects of Azure's own controller are served without any write, at the takeover and at the next restart. Deleting the
// Services deletes them all, and objects of others stay.
func TestTakeover(t *testing.T) {
	t.Parallel()
	for name, l := range leftKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) { runTakeover(w, l) })
		})
	}
}

// TestTakenOverServiceChangesItsType: nothing is left of a Service that becomes one of type ClusterIP, whose node ports, source ranges and
// status the API server takes away at once.
func TestTakenOverServiceChangesItsType(t *testing.T) {
	t.Parallel()
	for name, l := range leftKinds() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, func(w *world) {
				l.leave(w)
				for _, s := range l.services {
					w.change(s, func(s *v1.Service) {
						s.Spec.Type, s.Spec.HealthCheckNodePort, s.Spec.ExternalTrafficPolicy = v1.ServiceTypeClusterIP, 0, ""
						s.Spec.LoadBalancerSourceRanges, s.Status = nil, v1.ServiceStatus{}
						for i := range s.Spec.Ports {
							s.Spec.Ports[i].NodePort = 0
						}
					})
					w.remove(s)
				}
				l.checkGone(w)
			})
		})
	}
}

func runTakeover(w *world, l left) {
	l.leave(w)
	foreign := map[string]doc{}
	for _, id := range l.stays {
		foreign[id] = foreignPart(w, id)
		require.NotNil(w, foreign[id], id)
	}
	w.kubeWrites()
	for _, when := range []string{"takeover", "restart", "a minute later"} {
		w.server.ResetCalls()
		for _, s := range l.services {
			before := w.Current(s)
			status, err := w.Reconcile(w.cloud.loadBalancers, clusterName, s, w.nodes)
			require.NoError(w, err, "%s: %v", when, w.Events())
			assert.Equal(w, before.Status.LoadBalancer, *status)
			require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), clusterName, w.Current(s), w.nodes))
			_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), clusterName, s)
			require.NoError(w, err)
			assert.True(w, exists)
		}
		calls := w.server.Calls()
		require.Zero(w, calls.Writes, "%s: %v", when, calls.ByOperation)
		assert.Empty(w, w.kubeWrites(), when)
		assert.Empty(w, w.Events(), "nothing is wrong")
		if when == "takeover" {
			w.restart()
		}
		time.Sleep(time.Minute)
	}
	for _, s := range l.services {
		w.remove(s)
	}
	assert.Empty(w, w.server.Calls().Refused)
	for id, before := range foreign {
		assert.Equal(w, before, foreignPart(w, id), "%s is somebody else's", id)
	}
	l.checkGone(w)
}

// checkGone demands that nothing is there once all Services are gone, but what is somebody else's or may be.
func (l left) checkGone(w *world) {
	w.Helper()
	switch {
	case l.unproven != nil:
		require.Len(w, w.securityRules(), 1)
		assert.Equal(w, l.unproven, destinationsOf(w.securityRules()[0]))
	case len(l.stays) == 0:
		assert.Empty(w, w.sim.Snapshot())
	}
}

// foreignPart returns another user's resource, or a security rule given as "group/rule", without the fields that Azure derives.
func foreignPart(w *world, id string) doc {
	if rule, ok := strings.CutPrefix(id, "rule:"); ok {
		group := w.sim.Shown(azuresim.ID("Microsoft.Network/networkSecurityGroups", azuresim.SecurityName))
		return withoutETag(byName(docs(group, "properties", "securityRules"), rule))
	}
	if lb, ok := strings.CutPrefix(id, "pool:"); ok {
		shown := w.sim.Shown(azuresim.ID("Microsoft.Network/loadBalancers", ownerName(lb)))
		return withoutETag(byName(docs(shown, "properties", "backendAddressPools"), nameOf(lb)))
	}
	if ip, ok := strings.CutPrefix(id, "address:"); ok {
		d := withoutETag(w.sim.Shown(azuresim.ID("Microsoft.Network/publicIPAddresses", ip)))
		if d != nil {
			delete(d["properties"].(doc), "ipConfiguration")
		}
		return d
	}
	return withoutETag(w.sim.Shown(azuresim.ID("Microsoft.Network/loadBalancers", id)))
}

// withoutETag is a copy of a part without its ETag.
func withoutETag(d doc) doc {
	if d == nil {
		return nil
	}
	d = jsondoc.Clone(d)
	delete(d, "etag")
	return d
}
