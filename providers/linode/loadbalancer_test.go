package linode

import (
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

func lbWorld(t *testing.T, nodes int) *world {
	t.Helper()
	w := newTestWorld(t, nil, func(s *linodesim.Sim) { s.Reserve(reservedIP) })
	for i := range nodes {
		w.addNode(linodesim.Spec{Label: fmt.Sprint("worker-", i+1), Private: true})
	}
	return w
}

// TestChangesOfNodes: one call for each port where one node comes or goes, a rebuild that keeps the others where more do.
func TestChangesOfNodes(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 4)
	all := w.nodes
	w.nodes = all[:2]
	s := service("web", nil, port("a", 80, 30080), port("b", 81, 30081))
	w.Apply(s)
	s, _ = w.ensure(s)
	s, _ = w.ensure(s)
	ids := func() map[string]int {
		byAddress := map[string]int{}
		for _, c := range w.sim.NodeBalancers()[0].Configs() {
			for _, n := range c.Nodes() {
				byAddress[n.Address] = n.ID
			}
		}
		return byAddress
	}
	before := ids()
	update := func(nodes []*v1.Node) map[string]int {
		w.server.ResetCalls()
		require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nodes))
		return w.server.Calls().ByOperation
	}
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all[:3]), "one node joins")
	assert.Empty(t, update(all[:3]))
	assert.Equal(t, map[string]int{"DELETE /v4/nodebalancers/{id}/configs/{id}/nodes/{id}": 2}, update(all[:2]), "one node leaves")
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/rebuild": 2, "GET /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all), "two nodes join")
	s.Annotations[annotationCheckType] = "tea"
	assert.Equal(t, map[string]int{"DELETE /v4/nodebalancers/{id}/configs/{id}/nodes/{id}": 2}, update(all[:3]), "a fault in another annotation holds no node up")
	assert.Equal(t, map[string]int{"POST /v4/nodebalancers/{id}/configs/{id}/nodes": 2}, update(all))
	judged := 0
	for _, key := range backendAnnotations() {
		if key == annotationPort {
			key += "80"
		}
		faulty := s.DeepCopy()
		faulty.Annotations[key] = "\x00"
		if _, _, err := parseSettings(faulty, w.loadBalancers.config); problemsAbout(err, key) == nil {
			continue // any text will do
		}
		w.server.ResetCalls()
		require.ErrorContains(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", faulty, all[:1]), key)
		assert.Zero(t, w.server.Calls().Total)
		judged++
	}
	assert.GreaterOrEqual(t, judged, 4)
	for address, id := range before {
		assert.Equal(t, id, ids()[address], "connections to nodes that stay survive")
	}
	assert.Len(t, ids(), 8)
	require.ErrorIs(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil), errNoBackends)
	assert.Empty(t, w.server.Calls().Refused)
}

// TestPortsOfTwoProtocols: TCP and UDP on one number are two configs, and neither is taken for the other.
func TestPortsOfTwoProtocols(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	udp := port("quic", 443, 30444)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", nil, port("https", 443, 30443), udp)
	w.Apply(s)
	s, _ = w.ensure(s)
	s, _ = w.ensure(s)
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes)
	s.Spec.Ports = s.Spec.Ports[1:]
	w.Apply(s)
	w.ensure(s)
	configs := w.sim.NodeBalancers()[0].Configs()
	require.Len(t, configs, 1)
	assert.Equal(t, "udp", configs[0].Protocol)
	assert.Equal(t, "none", configs[0].Nodes()[0].Mode)
}

func TestStatus(t *testing.T) {
	t.Parallel()
	nb := &nodeBalancer{Hostname: "h.example", IPv4: "198.19.0.1", IPv6: "2001:db8::1"}
	v4, v6 := v1.LoadBalancerIngress{Hostname: "h.example", IP: "198.19.0.1"}, v1.LoadBalancerIngress{Hostname: "h.example", IP: "2001:db8::1"}
	for name, c := range map[string]struct {
		config      Config
		annotations map[string]string
		want        []v1.LoadBalancerIngress
	}{
		"default":              {Config{}, nil, []v1.LoadBalancerIngress{v4}},
		"hostname":             {Config{}, map[string]string{annotationHostnameOnly: "true"}, []v1.LoadBalancerIngress{{Hostname: "h.example"}}},
		"hostname by option":   {Config{HostnameOnly: true}, nil, []v1.LoadBalancerIngress{{Hostname: "h.example"}}},
		"hostname against it":  {Config{HostnameOnly: true}, map[string]string{annotationHostnameOnly: "false"}, []v1.LoadBalancerIngress{v4}},
		"IPv6":                 {Config{}, map[string]string{annotationIPv6Ingress: "1"}, []v1.LoadBalancerIngress{v4, v6}},
		"IPv6 by option":       {Config{IPv6Ingress: true}, nil, []v1.LoadBalancerIngress{v4, v6}},
		"IPv6 against it":      {Config{IPv6Ingress: true}, map[string]string{annotationIPv6Ingress: "false"}, []v1.LoadBalancerIngress{v4}},
		"illegal is the usual": {Config{IPv6Ingress: true}, map[string]string{annotationIPv6Ingress: "maybe"}, []v1.LoadBalancerIngress{v4}},
	} {
		s, _, err := parseSettings(service("web", c.annotations), c.config)
		require.NoError(t, err, name)
		assert.Equal(t, c.want, status(nb, s).Ingress, name)
	}
}

// TestRollback: what Linode's own controller sends for a Service that we made changes nothing, and it finds it.
func TestRollback(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", map[string]string{
		annotationTags: "one", annotationPort + "80": `{"protocol": "http"}`, annotationCheckType: "http",
	}, port("http", 80, 30080), port("tcp", 443, 30443), udp)
	w.Apply(s)
	s, status := w.ensure(s)
	found, _, err := listAll[*nodeBalancer](t.Context(), w.api, "NodeBalancers", "nodebalancers", body(map[string]string{"ipv4": status.Ingress[0].IP}))
	require.NoError(t, err)
	require.Len(t, found, 1, "by the address in the status")
	assert.Regexp(t, "^ccm-[0-9a-f]{12}$", found[0].Label)
	assert.Subset(t, found[0].Tags, []string{"kubernetes", "one"})

	before := snapshot(t, w.sim)
	d, err := w.api.details(t.Context(), found[0].ID)
	require.NoError(t, err)
	for _, c := range d.configs {
		fields := map[string]any{
			"port": c.Port, "algorithm": "roundrobin", "proxy_protocol": "none",
			"check": "http", "check_path": "/", "check_interval": 5, "check_timeout": 3, "check_attempts": 2,
		}
		maps.Copy(fields, map[int]map[string]any{
			80:  {"protocol": "http", "stickiness": "table", "check_passive": true},
			443: {"protocol": "tcp", "check_passive": true},
			53:  {"protocol": "udp", "stickiness": "session", "check_passive": false, "udp_check_port": 80},
		}[c.Port])
		nodes := []map[string]any{}
		for n := range c.nodes.entries() {
			one := map[string]any{"id": n.ID, "address": n.Address, "label": n.Label, "weight": 100}
			if c.Port != 53 {
				one["mode"] = "accept"
			}
			nodes = append(nodes, one)
		}
		fields["nodes"] = nodes
		_, err := w.api.sendConfig(t.Context(), "rebuilding", http.MethodPost, fmt.Sprintf("nodebalancers/%d/configs/%d/rebuild", found[0].ID, c.ID), fields)
		require.NoError(t, err)
	}
	assert.Equal(t, before, snapshot(t, w.sim))
	w.restart()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "and back again")
}

// vpcOptionCases are options and annotations, and what backends and frontend are attached to; S0 and S1 are the subnets' IDs.
var vpcOptionCases = map[string]struct {
	flags, annotations map[string]string
	backend            string
	frontend           string
	refused            string
}{
	"the first subnet": {nil, nil, `[{"subnet_id":S0}]`, "null", ""},
	"a range":          {nil, map[string]string{annotationBackendRange: "10.0.8.0/30"}, `[{"subnet_id":S0,"ipv4_range":"10.0.8.0/30"}]`, "null", ""},
	"a range outside": {
		map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"},
		map[string]string{annotationBackendRange: "10.0.8.0/30"},
		"", "", "is not inside --nodebalancer-backend-ipv4-subnet",
	},
	"a range that is wider": {
		map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"},
		map[string]string{annotationBackendRange: "10.0.4.0/20"},
		"", "", "is not inside",
	},
	"a subnet by name":       {nil, map[string]string{annotationBackendSubnet: "spare"}, `[{"subnet_id":S1}]`, "null", ""},
	"an unknown subnet":      {nil, map[string]string{annotationBackendSubnet: "x"}, "", "", `VPC "cluster" has no subnet "x"`},
	"an unknown VPC":         {nil, map[string]string{annotationBackendVPC: "x"}, "", "", `no VPC has the label "x"`},
	"a subnet by ID":         {nil, map[string]string{annotationBackendSubnetID: "S1"}, `[{"subnet_id":S1}]`, "null", ""},
	"an option with an ID":   {map[string]string{"nodebalancer-backend-ipv4-subnet-id": "S1"}, nil, `[{"subnet_id":S1}]`, "null", ""},
	"an option with a label": {map[string]string{"nodebalancer-backend-ipv4-subnet-name": "spare"}, nil, `[{"subnet_id":S1}]`, "null", ""},
	"an option with a range": {map[string]string{"nodebalancer-backend-ipv4-subnet": "10.0.4.0/22"}, nil, `[{"subnet_id":S0,"ipv4_range":"10.0.4.0/22","ipv4_range_auto_assign":true}]`, "null", ""},
	"switched off":           {map[string]string{"disable-nodebalancer-vpc-backends": "true"}, nil, "null", "null", ""},
	"IPv6 backends":          {nil, map[string]string{annotationIPv6Backends: "true"}, "null", "null", ""},
	"a private frontend": {
		nil,
		map[string]string{annotationFrontendSubnetID: "S1", annotationFrontendRangeV4: "10.1.0.0/30"},
		`[{"subnet_id":S0}]`, `[{"subnet_id":S1,"ipv4_range":"10.1.0.0/30"}]`, "",
	},
	"a frontend by names": {
		nil,
		map[string]string{annotationFrontendVPC: "cluster", annotationFrontendSubnet: "spare"},
		`[{"subnet_id":S0}]`, `[{"subnet_id":S1}]`, "",
	},
}

// TestVPCOptions: what a NodeBalancer is attached to.
func TestVPCOptions(t *testing.T) {
	t.Parallel()
	var ids []int
	for name, c := range vpcOptionCases {
		t.Run(name, func(t *testing.T) {
			put := func(text string) string {
				return strings.NewReplacer("S0", strconv.Itoa(ids[0]), "S1", strconv.Itoa(ids[1])).Replace(text)
			}
			flags := map[string]string{"vpc-names": "cluster"}
			var sim *linodesim.Sim
			w := newTestWorld(t, flags, func(s *linodesim.Sim) {
				s.AddVPC("other", [2]string{"default", "10.9.0.0/16"})
				_, ids = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"}, [2]string{"spare", "10.1.0.0/16"})
				sim = s
			})
			require.NotNil(t, sim)
			for k, v := range c.flags {
				w.flags[k] = put(v)
			}
			w.restart()
			w.addNode(linodesim.Spec{Label: "worker", SubnetID: ids[0], Private: true})
			annotations := map[string]string{}
			for k, v := range c.annotations {
				annotations[k] = put(v)
			}
			s := service("web", annotations, port("http", 80, 30080))
			w.Apply(s)
			settings, _, err := parseSettings(s, w.loadBalancers.config)
			require.NoError(t, err)
			backend, err := w.loadBalancers.vpcs.backendVPCs(t.Context(), settings)
			if c.refused != "" {
				require.ErrorContains(t, err, c.refused)
				_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
				require.Error(t, err)
				assert.Empty(t, w.sim.NodeBalancers())
				return
			}
			require.NoError(t, err)
			assert.Equal(t, put(c.backend), body(backend))
			frontend, err := w.loadBalancers.vpcs.frontendVPCs(t.Context(), settings)
			require.NoError(t, err)
			assert.Equal(t, put(c.frontend), body(frontend))
		})
	}
}

// TestPlacementThatCannotBeRead: what is read for an event alone keeps no port from being made.
func TestPlacementThatCannotBeRead(t *testing.T) {
	t.Parallel()
	var ids []int
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster"}, func(s *linodesim.Sim) {
		_, ids = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
	})
	w.restart()
	w.addNode(linodesim.Spec{Label: "worker", SubnetID: ids[0], Private: true})
	s := service("web", map[string]string{annotationBackendSubnetID: strconv.Itoa(ids[0])}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: "GET /v4/nodebalancers/{id}/vpcs"})
	require.NoError(t, err)
	s.Spec.Ports = append(s.Spec.Ports, port("more", 81, 30081))
	w.Apply(s)
	w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers()[0].Configs(), 2)
}

// TestReservedAddress: it goes into the creation, and a later one is an event.
func TestReservedAddress(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", map[string]string{annotationReservedIPv4: reservedIP}, port("http", 80, 30080))
	w.Apply(s)
	s, status := w.ensure(s)
	assert.Equal(t, reservedIP, status.Ingress[0].IP)
	s.Annotations[annotationReservedIPv4] = "198.19.200.8"
	s.Annotations[annotationType] = "premium"
	w.Apply(s)
	w.server.ResetCalls()
	_, again := w.ensure(s)
	assert.Equal(t, status, again)
	assert.Zero(t, w.server.Calls().Writes)
	told := strings.Join(w.Events(), "\n")
	assert.Contains(t, told, "Warning LoadBalancerAnnotationFixed annotation "+annotationReservedIPv4+`: "198.19.200.8" has no effect, it stays "`+reservedIP)
	assert.Contains(t, told, `Warning LoadBalancerAnnotationFixed annotation `+annotationType+`: "premium" has no effect, it stays "common"`)

	other := service("other", map[string]string{annotationReservedIPv4: "198.19.200.9"}, port("http", 80, 30090))
	other.UID = "9c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"
	w.Apply(other)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", other, w.nodes)
	require.ErrorContains(t, err, "IPv4 address is not reserved")
}

// TestOneBadNodeHoldsNobodyUp: a node without an address that a NodeBalancer can use is left out.
func TestOneBadNodeHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	w.sim.AddLinode(linodesim.Spec{Label: "public-only"})
	w.nodes = append(w.nodes, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "public-only"}}, &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "no-linode"}})
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers()[0].Configs()[0].Nodes(), 1)

	id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v4/linode/instances"})
	require.NoError(t, err)
	w.restart()
	require.Error(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes), "doubt never takes a backend out")
	w.server.RemoveFault(id)
}

// TestAddressesThatALinodeDoesNotHave: what a kubelet writes on its Node leads no traffic elsewhere.
func TestAddressesThatALinodeDoesNotHave(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	var subnets []int
	vw := newTestWorld(t, map[string]string{"vpc-names": "cluster"}, func(s *linodesim.Sim) {
		_, subnets = s.AddVPC("cluster", [2]string{"default", "10.0.0.0/16"})
	})
	vw.addNode(linodesim.Spec{Label: "in-vpc", SubnetID: subnets[0]})
	for _, c := range []struct {
		w    *world
		with map[string]string
	}{{w, nil}, {w, map[string]string{annotationIPv6Backends: "true"}}, {vw, nil}} {
		clean := c.w.nodes[0].DeepCopy()
		s, _, err := parseSettings(service("web", c.with, port("http", 80, 30080)), c.w.loadBalancers.config)
		require.NoError(t, err)
		want, err := c.w.loadBalancers.backends.find(t.Context(), s, []*v1.Node{clean})
		require.NoError(t, err)
		require.Len(t, want.streams.rows, 1)
		liar := clean.DeepCopy()
		liar.Annotations = map[string]string{annotationPrivateIP: "192.168.200.200", annotationPublicIPv6: "2001:db8:666::1/128"}
		liar.Status.Addresses = append([]v1.NodeAddress{
			{Type: v1.NodeInternalIP, Address: "10.0.200.200"},
			{Type: v1.NodeInternalIP, Address: "192.168.200.201"},
		}, liar.Status.Addresses...)
		got, err := c.w.loadBalancers.backends.find(t.Context(), s, []*v1.Node{liar})
		require.NoError(t, err)
		assert.Equal(t, want, got)
	}
	// Among several addresses that it has, the Node chooses.
	id, err := parseProviderID(w.nodes[0].Spec.ProviderID)
	require.NoError(t, err)
	w.sim.Edit(id, func(l *linodesim.Linode) { l.IPv4 = append(l.IPv4, "192.168.140.9") })
	w.restart()
	chooses := w.nodes[0].DeepCopy()
	chooses.Annotations = map[string]string{annotationPrivateIP: "192.168.140.9"}
	got, err := w.loadBalancers.backends.find(t.Context(), settings{}, []*v1.Node{chooses})
	require.NoError(t, err)
	assert.Equal(t, "192.168.140.9", got.streams.rows[0].host)
}

// TestListingsThatLag: what a listing does not show yet is not made twice, and what it still shows is not there.
func TestListingsThatLag(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	s := service("web", map[string]string{annotationFirewallACL: allowACL}, port("http", 80, 30080))
	w.Apply(s)
	w.sim.FreezeListings()
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "POST /v4/nodebalancers", Count: 1})
	require.NoError(t, err)
	for range 3 { // the answer to the creation was lost, and no listing shows it
		_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.Error(t, err)
	}
	w.sim.ThawListings()
	w.restart()
	s, _ = w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers(), 1)
	assert.Len(t, w.sim.Firewalls(), 1)

	w.sim.FreezeListings()
	w.restart()
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	for range 2 {
		require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s), "nothing is there, whatever the listing says")
		w.restart()
	}
	assert.Empty(t, w.sim.NodeBalancers())
	assert.Empty(t, w.sim.Firewalls())
}

// TestTakeover: the label says nothing about the Service, and nothing of ours is there: it is found by its address.
func TestTakeover(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 2)
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("web", map[string]string{
		annotationTags: "one", annotationThrottle: "3", annotationFirewallACL: allowACL,
	}, port("http", 80, 30080), udp)
	w.Apply(s)
	s, _ = w.ensure(s)
	// What Linode's own controller would have made differs in labels and tags alone.
	id, _ := strconv.Atoi(s.Annotations[annotationRecord])
	w.sim.ChangeNodeBalancer(id, func(nb *linodesim.NodeBalancer) { nb.Label, nb.Tags = "ccm-0f0f0f0f0f0f", nb.Tags[:2] })
	f := w.sim.Firewalls()[0]
	w.sim.ChangeFirewall(f.ID, func(f *linodesim.Firewall) { f.Label, f.Tags = "ccm-1f1f1f1f1f1f", f.Tags[:2] })
	delete(s.Annotations, annotationRecord)
	w.Apply(s)
	w.restart()
	w.server.ResetCalls()
	before := s.Status
	s, status := w.ensure(s)
	assert.Equal(t, before.LoadBalancer, *status)
	assert.Zero(t, w.server.Calls().Writes, "%v", w.server.Calls().ByOperation)
	assert.Equal(t, strconv.Itoa(id), s.Annotations[annotationRecord])

	// Its firewall goes with it, though nothing leads from the Service to it once the NodeBalancer is gone.
	require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
	assert.Empty(t, w.sim.NodeBalancers())
	assert.Empty(t, w.sim.Firewalls())
}

// TestCreationIsIdempotent: the label is the same at every try, so that a lost answer makes no second one, and a label
// that somebody else has is not taken over.
func TestCreationIsIdempotent(t *testing.T) {
	t.Parallel()
	w := lbWorld(t, 1)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultLost, Operation: "POST /v4/nodebalancers", Count: 1})
	require.NoError(t, err)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.Error(t, err)
	w.ensure(s)
	assert.Len(t, w.sim.NodeBalancers(), 1)
	assert.Equal(t, 1, w.server.Calls().ByOperation[http.MethodPost+" /v4/nodebalancers"])
	assert.Equal(t, "ccm-3c1f6b527a66", w.sim.NodeBalancers()[0].Label)

	w.sim.ChangeNodeBalancer(w.sim.NodeBalancers()[0].ID, func(nb *linodesim.NodeBalancer) { nb.Tags = []string{"anyccm:another"} })
	w.restart()
	other := service("other", nil, port("http", 80, 30080))
	w.Apply(other)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", other, w.nodes)
	require.ErrorContains(t, err, "belongs to another cluster")
}
