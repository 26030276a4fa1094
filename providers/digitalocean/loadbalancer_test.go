package digitalocean

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// lbWorld is a world with one node.
func lbWorld(t *testing.T) *world {
	t.Helper()
	w := newTestWorld(t, nil)
	w.addNode(digitaloceansim.Spec{Name: "node-1"})
	return w
}

// leaveRegional makes a regional load balancer as DigitalOcean's own controller left it, and returns its ID and its Service's status.
func leaveRegional(w *world, name string) (string, *v1.LoadBalancerStatus) {
	other := aged(service("", map[string]string{annotationName: "made", annotationType: typeRegional}, port("http", 80, 30080)), "other", 9)
	w.Apply(other)
	other, shown := w.ensure(other)
	id := other.Annotations[annotationID]
	w.Withdraw(other)
	w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) { lb.Name, lb.Tags = name, nil })
	return id, shown
}

// TestLookup: where the load balancer of a Service is looked for, and what is then recorded on the Service.
func TestLookup(t *testing.T) {
	t.Parallel()
	const gone = "ffffffff-5eed-4d00-8000-00d161744c0a"
	for name, c := range map[string]struct {
		// existing is the name of the load balancer that exists; annotations are the Service's, with ID for its identifier.
		existing    string
		annotations map[string]string
		created     bool
		missing     bool
	}{
		"by the default name":                         {existing: "a000000017a664b588b4b0a61c1f9e0a"},
		"by the custom name":                          {existing: "front", annotations: map[string]string{annotationName: "front"}},
		"by the default name although another is set": {existing: "a000000017a664b588b4b0a61c1f9e0a", annotations: map[string]string{annotationName: "front"}},
		"by ID":                                        {existing: "whatever", annotations: map[string]string{annotationID: "ID"}},
		"by ID rather than by name":                    {existing: "whatever", annotations: map[string]string{annotationID: "ID", annotationName: "front"}},
		"by name where the ID leads nowhere":           {existing: "front", annotations: map[string]string{annotationID: gone, annotationName: "front"}},
		"nowhere":                                      {existing: "other", missing: true},
		"nowhere, with an ID that leads nowhere":       {existing: "other", annotations: map[string]string{annotationID: gone}, missing: true},
		"a load balancer of the name of another kind ": {existing: "A000000017A664B588B4B0A61C1F9E0A", missing: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			id, shown := leaveRegional(w, c.existing)

			s := aged(service("", maps.Clone(c.annotations), port("http", 80, 30080)), "web", 1)
			if s.Annotations[annotationID] == "ID" {
				s.Annotations[annotationID] = id
			}
			if s.Annotations[annotationID] != gone {
				s.Status.LoadBalancer = *shown
			}
			w.Apply(s)
			w.restart()
			w.Register(w.nodes[0])
			w.instances.nodes.SetLister(w.Nodes())
			w.server.ResetCalls()
			_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), "kubernetes", s)
			require.NoError(t, err)
			assert.Equal(t, !c.missing, exists)

			after, status := w.ensure(s)
			calls := w.server.Calls()
			require.NotEmpty(t, status.Ingress)
			if c.missing {
				assert.Equal(t, 1, calls.ByOperation["POST /v2/load_balancers"])
				assert.NotEqual(t, id, after.Annotations[annotationID])
				assert.Equal(t, typeNetwork, after.Annotations[annotationType])
				return
			}
			assert.Zero(t, calls.ByOperation["POST /v2/load_balancers"])
			assert.Equal(t, id, after.Annotations[annotationID], "the ID is recorded")
			assert.Equal(t, typeRegional, after.Annotations[annotationType], "the real type is recorded")
			assert.Len(t, w.sim.LoadBalancers(), 1)
			name := cmp.Or(s.Annotations[annotationName], c.existing)
			assert.Equal(t, name, w.sim.LoadBalancers()[0].Name, "it is renamed as the Service asks, and not to a name by which it would pass for ours")
		})
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	l := lbWorld(t).loadBalancers
	assert.Equal(t, "a3c1f6b527a664b588b4b0a61c1f9e0a", l.GetLoadBalancerName(t.Context(), "kubernetes", service("web", nil)))
	assert.Equal(t, "front", l.GetLoadBalancerName(t.Context(), "kubernetes", service("web", map[string]string{annotationName: "front"})))
}

func TestDisown(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", map[string]string{annotationDisown: "true", annotationType: "nonsense"}, port("http", 80, 30080))
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	w.Apply(s)
	w.server.ResetCalls()
	status, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.NoError(t, err)
	assert.Equal(t, s.Status.LoadBalancer, *status)
	require.NoError(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil))
	require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
	assert.Zero(t, w.server.Calls().Total)
	assert.Len(t, w.Current(s).Annotations, 2, "nothing was recorded")

	s.Annotations[annotationDisown] = "maybe"
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, annotationDisown)
	require.ErrorContains(t, w.loadBalancers.UpdateLoadBalancer(t.Context(), "kubernetes", s, nil), annotationDisown)
	require.ErrorContains(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s), annotationDisown)
	assert.Zero(t, w.server.Calls().Total)
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		fault  *simkit.Fault
		exists bool
		fails  bool
	}{
		"there is none":        {},
		"success":              {exists: true},
		"the listing fails":    {fault: &simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "GET /v2/load_balancers"}, exists: true, fails: true},
		"the deletion fails":   {fault: &simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "DELETE /v2/load_balancers"}, exists: true, fails: true},
		"somebody was quicker": {fault: &simkit.Fault{Kind: simkit.FaultStatus, Status: 404, Operation: "DELETE /v2/load_balancers"}, exists: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			if c.exists {
				s, _ = w.ensure(s)
			}
			w.restart()
			if c.fault != nil {
				_, err := w.server.AddFault(*c.fault)
				require.NoError(t, err)
			}
			err := w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s)
			assert.Equal(t, c.fails, err != nil, "%v", err)
			if c.exists && c.fault == nil {
				assert.Empty(t, w.sim.LoadBalancers())
			}
		})
	}
}

// TestCreatedOnce: an address of one's own goes into the creation alone, a subnet into every request.
func TestCreatedOnce(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", map[string]string{annotationIP: "198.51.100.9", annotationSubnet: "5a4981aa-9653-4bd1-bef5-d6bff52042e4"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	assert.Equal(t, "198.51.100.9", conformance.LatestBody(t, w.server, createOperation)["ip"])
	s.Spec.Ports = append(s.Spec.Ports, port("alt", 81, 30081))
	w.Apply(s)
	w.ensure(s)
	assert.NotContains(t, conformance.LatestBody(t, w.server, updateOperation), "ip")
	assert.Equal(t, "5a4981aa-9653-4bd1-bef5-d6bff52042e4", conformance.LatestBody(t, w.server, updateOperation)["subnet_uuid"])
}

// TestSettingsThatCameTooLate become events: nothing else changes, and nothing is sent for them.
func TestSettingsThatCameTooLate(t *testing.T) {
	t.Parallel()
	for key, value := range map[string]string{
		annotationType:         typeRegional,
		annotationNetwork:      "INTERNAL",
		annotationNetworkStack: "DUALSTACK",
		annotationIP:           "198.51.100.1",
	} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			s := service("web", nil, port("http", 80, 30080))
			w.Apply(s)
			s, before := w.ensure(s)
			s.Annotations[key] = value
			w.Apply(s)
			w.server.ResetCalls()
			s, after := w.ensure(s)
			assert.Equal(t, before, after)
			assert.Zero(t, w.server.Calls().Writes)
			told := strings.Join(w.Events(), "\n")
			assert.Contains(t, told, "Warning LoadBalancerAnnotationFixed annotation "+key+": \""+value+"\"")
			assert.Contains(t, told, "it is fixed when the load balancer is created; delete and create the Service to change it")
			assert.Equal(t, typeNetwork, s.Annotations[annotationType])
		})
	}
}

// certificateCase changes the certificate of a load balancer and expects another one.
type certificateCase struct {
	kind string
	// then acts after the creation; it returns the Service's annotations from then on.
	then func(w *world, id string) map[string]string
	// want chooses the certificate in the end from the first one and the one that then added.
	first, recorded bool
	plain           bool
}

// assertServed holds which certificate a rule has: the first one, the one that is asked for, or another one that is recorded.
func (c certificateCase) assertServed(t *testing.T, s *v1.Service, rule digitaloceansim.Rule, first, asked string) {
	t.Helper()
	switch {
	case c.plain:
		assert.Equal(t, "http", rule.EntryProtocol)
		assert.Empty(t, rule.CertificateID)
	case c.first:
		assert.Equal(t, first, rule.CertificateID)
	case c.recorded:
		assert.NotEqual(t, first, rule.CertificateID, "the new one stays in use")
		assert.Equal(t, rule.CertificateID, s.Annotations[annotationCertificateID], "and is recorded")
	default:
		assert.Equal(t, asked, rule.CertificateID, "what is asked for is done")
	}
}

var certificateCases = map[string]certificateCase{
	"nothing happens": {kind: "lets_encrypt", first: true},
	"renewed": {kind: "lets_encrypt", then: func(w *world, id string) map[string]string {
		w.sim.RenewCertificate(id)
		return nil
	}, recorded: true},
	"renewed, and the old one is still there": {kind: "lets_encrypt", then: func(w *world, id string) map[string]string {
		// The renewal issues a new ID under the same name.
		w.moveTo(id, w.sim.AddCertificate("web", "lets_encrypt"))
		return nil
	}, recorded: true},
	"another one of another name is asked for": {kind: "lets_encrypt", then: func(w *world, id string) map[string]string {
		return map[string]string{annotationCertificateID: w.sim.AddCertificate("second", "lets_encrypt")}
	}},
	"the one in use vanished": {kind: "lets_encrypt", then: func(w *world, id string) map[string]string {
		asked := w.sim.AddCertificate("second", "lets_encrypt")
		w.moveTo(id, "00000000-0000-4000-8000-000000000000")
		return map[string]string{annotationCertificateID: asked}
	}},
	"custom, another one is asked for": {kind: "custom", then: func(w *world, id string) map[string]string {
		return map[string]string{annotationCertificateID: w.sim.AddCertificate("second", "custom")}
	}},
	"custom, another one of the same name": {kind: "custom", then: func(w *world, id string) map[string]string {
		return map[string]string{annotationCertificateID: w.sim.AddCertificate("web", "custom")}
	}},
	"custom, a Let's Encrypt one is asked for": {kind: "custom", then: func(w *world, id string) map[string]string {
		return map[string]string{annotationCertificateID: w.sim.AddCertificate("web", "lets_encrypt")}
	}},
	"the annotation is removed": {kind: "lets_encrypt", then: func(*world, string) map[string]string { return map[string]string{} }, plain: true},
}

// TestCertificates: by ID, by name, and Let's Encrypt's rotation, which moves the load balancer to a new ID by itself.
func TestCertificates(t *testing.T) {
	t.Parallel()
	for name, c := range certificateCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			id := w.sim.AddCertificate("web", c.kind)
			base := map[string]string{annotationType: typeRegional, annotationProtocol: "http"}
			s := service("web", maps.Clone(base), port("https", 443, 30443))
			s.Annotations[annotationCertificateID] = id
			w.Apply(s)
			s, _ = w.ensure(s)
			if c.then != nil {
				if asked := c.then(w, id); asked != nil {
					delete(s.Annotations, annotationCertificateID)
					maps.Copy(s.Annotations, asked)
				}
			}
			asked := s.Annotations[annotationCertificateID]
			w.Apply(s)
			w.restart()
			s, _ = w.ensure(s)
			c.assertServed(t, s, w.sim.LoadBalancers()[0].ForwardingRules[0], id, asked)
			w.server.ResetCalls()
			w.ensure(s)
			assert.Zero(t, w.server.Calls().Writes)
			assert.Empty(t, w.server.Calls().Refused)
		})
	}
	t.Run("by name", testCertificateByName)
}

func testCertificateByName(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	id := w.sim.AddCertificate("web", "lets_encrypt")
	s := service("web", map[string]string{annotationType: typeRegional, annotationCertificateName: "web"}, port("https", 443, 30443))
	w.Apply(s)
	w.ensure(s)
	renewed := w.sim.RenewCertificate(id)
	w.restart()
	w.server.ResetCalls()
	s, _ = w.ensure(s)
	assert.Equal(t, renewed, w.sim.LoadBalancers()[0].ForwardingRules[0].CertificateID)
	assert.NotContains(t, s.Annotations, annotationCertificateID, "the name stays what counts")
	assert.Zero(t, w.server.Calls().Writes)

	s.Annotations[annotationCertificateName] = "unknown"
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, `annotation service.beta.kubernetes.io/do-loadbalancer-certificate-name: "unknown" is not the name of a certificate`)
}

// moveTo makes every load balancer use another certificate, as a renewal does.
func (w *world) moveTo(from, to string) {
	for _, lb := range w.sim.LoadBalancers() {
		w.sim.ChangeLoadBalancer(lb.ID, func(lb *digitaloceansim.LoadBalancer) {
			for i := range lb.ForwardingRules {
				if lb.ForwardingRules[i].CertificateID == from {
					lb.ForwardingRules[i].CertificateID = to
				}
			}
		})
	}
}

// TestDropletsOfNodes: by provider ID, by name, by address; what has no droplet is left out and harms nobody.
func TestDropletsOfNodes(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil)
	node := func(name, providerID string) *v1.Node {
		return &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1.NodeSpec{ProviderID: providerID}}
	}
	add := func(name string) int { return w.sim.AddDroplet(digitaloceansim.Spec{Name: name}) }
	byID, byName, byIP := add("by-id"), add("by-name"), add("by-ip")
	add("no node")
	ip := ""
	for _, d := range w.sim.List() {
		if d.ID == byIP {
			ip = d.Networks.V4[slices.IndexFunc(d.Networks.V4, func(n digitaloceansim.NetworkV4) bool { return n.Type == "private" })].IPAddress
		}
	}
	list, err := w.loadBalancers.backends.listDroplets(t.Context(), []*v1.Node{
		node("by-id", providerIDPrefix+strconv.Itoa(byID)), node("by-name", ""), node(ip, ""), node("nowhere", ""),
		node("gone", providerIDPrefix+"999999"), node("malformed", providerIDPrefix+"x"), node("elsewhere", "aws:///x/i-1"),
	})
	require.NoError(t, err)
	kept, err := eligibleBackends(list, typeNetwork, "EXTERNAL")
	require.NoError(t, err)
	assert.Equal(t, []int{byID, byName, byIP}, dropletIDs(kept))

	w.restart()
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403})
	require.NoError(t, err)
	_, err = w.loadBalancers.backends.listDroplets(t.Context(), []*v1.Node{node("by-id", providerIDPrefix+strconv.Itoa(byID))})
	require.ErrorContains(t, err, "finding the droplet of node by-id", "doubt never takes a backend out")
}

// TestOnlyFaultsOfTheServiceAreEvents: an outage is not the Service's fault, and success is silent.
func TestOnlyFaultsOfTheServiceAreEvents(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403})
	require.NoError(t, err)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.Error(t, err)
	assert.Empty(t, w.Events())
	w.server.RemoveFault(id)
	w.ensure(s)
	assert.Empty(t, w.Events())

	w.nodes = nil
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
	require.ErrorIs(t, err, errNoBackends)
	told := w.Events()
	require.Len(t, told, 1)
	assert.Contains(t, told[0], "Warning LoadBalancerConfigError no node can be a backend")
}

// TestNotActive: what is being set up is asked for again, and an errored load balancer says what to do.
func TestNotActive(t *testing.T) {
	t.Parallel()
	for status, says := range map[string]string{"new": "is being set up", "errored": `is in state "errored"; look at it in the DigitalOcean control panel`} {
		t.Run(status, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newVirtualWorld(t, nil)
				w.addNode(digitaloceansim.Spec{Name: "node-1"})
				s := service("web", nil, port("http", 80, 30080))
				w.Apply(s)
				s, _ = w.ensure(s)
				w.sim.AgeLoadBalancer(s.Annotations[annotationID], -time.Hour)
				w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Status = status })
				w.restart()
				w.server.ResetCalls()
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				got, err := w.loadBalancers.EnsureLoadBalancer(ctx, "kubernetes", s, w.nodes)
				require.ErrorContains(t, err, says)
				assert.Nil(t, got)
				assert.Zero(t, w.server.Calls().Writes)
			})
		})
	}
}

// TestBothAddressesAreShown, or the hostname instead.
func TestBothAddressesAreShown(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil)
	w.addNode(digitaloceansim.Spec{Name: "node-1", IPv6: true})
	s := service("web", nil, port("http", 80, 30080))
	w.Apply(s)
	_, status := w.ensure(s)
	require.Len(t, status.Ingress, 2)
	assert.True(t, strings.HasPrefix(status.Ingress[1].IP, "2001:db8:"), status.Ingress[1].IP)
}

// TestResizeHoldsNothingUp: the API refuses to resize in the first hour; other changes go through all the same.
func TestResizeHoldsNothingUp(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := service("web", map[string]string{annotationSizeUnit: "1"}, port("http", 80, 30080))
	w.Apply(s)
	s, _ = w.ensure(s)
	s.Annotations[annotationSizeUnit] = "3"
	s.Spec.Ports = append(s.Spec.Ports, port("alt", 81, 30081))
	w.Apply(s)
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, "can be resized once an hour")
	lb := w.sim.LoadBalancers()[0]
	assert.Len(t, lb.ForwardingRules, 2)
	assert.Equal(t, 1, lb.SizeUnit)

	w.sim.AgeLoadBalancer(lb.ID, time.Hour)
	w.server.ResetCalls()
	w.ensure(s)
	assert.Equal(t, 3, w.sim.LoadBalancers()[0].SizeUnit)
	assert.Equal(t, 1, w.server.Calls().Writes)
}

// TestMetadataByName: the names of nodes and droplets.
func TestMetadataByName(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil)
	id := w.sim.AddDroplet(digitaloceansim.Spec{Name: "Web-01"})
	gpu := w.sim.AddDroplet(digitaloceansim.Spec{Name: "gpu", GPU: true})
	metadata := func(name string) (string, error) {
		m, err := w.instances.InstanceMetadata(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})
		if err != nil {
			return "", err
		}
		assert.Equal(t, "s-2vcpu-4gb", m.InstanceType)
		assert.Equal(t, "nyc3", m.Region)
		assert.Empty(t, m.Zone)
		assert.Empty(t, m.AdditionalLabels)
		return m.ProviderID, nil
	}
	for name, want := range map[string]int{"web-01": id, "gpu": gpu} {
		got, err := metadata(name)
		require.NoError(t, err)
		assert.Equal(t, fmt.Sprint(providerIDPrefix, want), got)
	}
	_, err := metadata("nobody")
	require.ErrorContains(t, err, "no droplet is named nobody; name the droplet like the node")
	w.restart()
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403})
	require.NoError(t, err)
	_, err = metadata("web-01")
	require.ErrorContains(t, err, "not authorized")
}

// TestPagesAreFollowed: listings of more than one page, whatever their order, and none of them ends early.
func TestPagesAreFollowed(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil)
	for i := range 2*pageSize + 1 {
		w.sim.AddDroplet(digitaloceansim.Spec{Name: fmt.Sprintf("d-%04d", i)})
	}
	all, pages, err := w.api.droplets(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 2*pageSize+1)
	assert.Equal(t, 4, pages, "three, and one of droplets with GPUs")
	ids := map[int]bool{}
	for _, d := range all {
		ids[d.id] = true
	}
	assert.Len(t, ids, 2*pageSize+1, "each of them once")
	_, err = w.server.AddFault(simkit.Fault{Kind: "cut-list", Operation: "GET /v2/droplets"})
	require.NoError(t, err)
	_, _, err = w.api.droplets(t.Context())
	require.ErrorContains(t, err, "the listing broke off")
}
