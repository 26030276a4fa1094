package oci

import (
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// checklistRows are the legal and the illegal values of each annotation of load balancers.
func checklistRows() map[string]conformance.Checked {
	const listener, set = "listeners.TCP-80.", "backendSets.TCP-80."
	first, second := ocisim.DomainSubnets()
	flexible := map[string]string{annotationShape: "flexible", annotationShapeMin: "20", annotationShapeMax: "40"}
	tls := map[string]string{annotationSSLPorts: "80", annotationTLSSecret: "web-tls"}
	arrives := conformance.Arrives
	rows := map[string]conformance.Checked{
		annotationInternal: {
			Legal:   []conformance.Legal{arrives("true", nil, "isPrivate", true), arrives("0", nil, "isPrivate", false)},
			Illegal: []string{"maybe"},
		},
		annotationShape: {Legal: []conformance.Legal{
			arrives("400Mbps", nil, "shapeName", "400Mbps"),
			arrives("Flexible", flexible, "shapeName", "flexible"),
		}},
		annotationShapeMin: {Legal: []conformance.Legal{
			arrives("5Mbps", flexible, "shapeDetails.minimumBandwidthInMbps", 10.0), arrives("30", flexible, "shapeDetails.minimumBandwidthInMbps", 30.0),
		}, Illegal: []string{"much"}, With: flexible},
		annotationShapeMax: {Legal: []conformance.Legal{arrives("9000", flexible, "shapeDetails.maximumBandwidthInMbps", 8192.0)}, Illegal: []string{"much"}, With: flexible},
		annotationSubnet1:  {Legal: []conformance.Legal{arrives(ocisim.DualSubnet(), nil, "subnetIds.0", ocisim.DualSubnet())}, Illegal: []string{"web"}},
		annotationSubnet2: {
			Legal:   []conformance.Legal{arrives(second, map[string]string{annotationSubnet1: first}, "subnetIds.1", second)},
			Illegal: []string{"web"},
		},
		annotationIdle: {Legal: []conformance.Legal{arrives("99", nil, listener+"connectionConfiguration.idleTimeout", 99.0)}, Illegal: []string{"0", "7201", "1m"}},
		annotationProxy: {Legal: []conformance.Legal{
			arrives("1", nil, listener+"connectionConfiguration.backendTcpProxyProtocolVersion", 1.0),
			arrives("2", nil, listener+"connectionConfiguration.idleTimeout", 300.0),
		}, Illegal: []string{"0", "3", "v2"}},
		annotationProtocol: {Legal: []conformance.Legal{
			arrives("http", nil, "listeners.http-80.protocol", "HTTP"), arrives("TCP", nil, listener+"protocol", "TCP"),
			arrives("GRPC", tls, "listeners.GRPC-80.sslConfiguration.cipherSuiteName", cipherHTTP2),
		}, Illegal: []string{"UDP", "GRPC"}},
		annotationRetries:  {Legal: []conformance.Legal{arrives("7", nil, set+"healthChecker.retries", 7.0)}, Illegal: []string{"0", "many"}},
		annotationInterval: {Legal: []conformance.Legal{arrives("1800000", nil, set+"healthChecker.intervalInMillis", 1800000.0)}, Illegal: []string{"999", "1800001"}},
		annotationTimeout:  {Legal: []conformance.Legal{arrives("4000", nil, set+"healthChecker.timeoutInMillis", 4000.0)}, Illegal: []string{"0"}},
		annotationAccount:  {Elsewhere: "TestRefused", Illegal: []string{"builder"}},
		annotationListMode: {Elsewhere: "TestModes", Illegal: []string{"all", "SL-All"}, Lenient: true},
		annotationRuleMode: {Elsewhere: "TestSecurityLists", Illegal: []string{"none", "All"}},
		annotationGroups: {
			Legal:   []conformance.Legal{arrives(ocisim.GroupID(1), nil, "networkSecurityGroupIds.0", ocisim.GroupID(1))},
			Illegal: []string{"web", sixGroups()},
		},
		annotationBackGroups: {Elsewhere: "TestManagedGroup", Illegal: []string{"web"}},
		annotationPolicy:     {Legal: []conformance.Legal{arrives(ipHash, nil, set+"policy", ipHash)}, Illegal: []string{"ip_hash"}},
		annotationFreeform:   {Legal: []conformance.Legal{arrives(`{"a": "b"}`, nil, "freeformTags.a", "b")}, Illegal: []string{"a=b"}},
		annotationDefined:    {Legal: []conformance.Legal{arrives(`{"ns": {"a": "b"}}`, nil, "definedTags.ns.a", "b")}, Illegal: []string{`{"a": "b"}`}},
		annotationSelector: {Legal: []conformance.Legal{
			arrives("pool=none", nil, set+"backends", []any{}), arrives("kubernetes.io/hostname=node-1", nil, set+"backends.0.port", 30080.0),
		}, Illegal: []string{"a b"}},
	}
	maps.Copy(rows, checklistOfParts(arrives))
	return rows
}

// checklistOfParts are those of the parts of a load balancer, and of where it is.
func checklistOfParts(arrives func(string, map[string]string, string, any) conformance.Legal) map[string]conformance.Checked {
	const listener, set = "listeners.TCP-80.", "backendSets.TCP-80."
	tls := map[string]string{annotationSSLPorts: "80", annotationTLSSecret: "web-tls"}
	both := map[string]string{annotationSSLPorts: "80", annotationTLSSecret: "web-tls", annotationBackSecret: "web-tls"}
	return map[string]conformance.Checked{
		annotationIPMode: {Elsewhere: "TestIPMode", Illegal: []string{"both"}},
		annotationType:   {Legal: []conformance.Legal{arrives("LB", nil, "displayName", testUID)}, Illegal: []string{"alb"}},
		annotationSSLPorts: {Legal: []conformance.Legal{
			arrives("80,443", map[string]string{annotationTLSSecret: "web-tls"}, listener+"sslConfiguration.certificateName", "web-tls"),
			arrives("443", map[string]string{annotationTLSSecret: "web-tls"}, listener+"sslConfiguration", nil),
		}, Illegal: []string{"https", "0", "80"}},
		annotationTLSSecret: {Legal: []conformance.Legal{
			arrives("default/web-tls", tls, listener+"sslConfiguration.certificateName", "web-tls"), arrives("web-tls", nil, listener+"sslConfiguration", nil),
		}, Illegal: []string{"a/b/c", "Web"}},
		annotationBackSecret: {Legal: []conformance.Legal{arrives("web-tls", tls, set+"sslConfiguration.certificateName", "web-tls")}, Illegal: []string{"Web"}},
		annotationTLS: {Legal: []conformance.Legal{
			arrives(`{"Protocols": ["TLSv1.3"]}`, tls, listener+"sslConfiguration.protocols.0", "TLSv1.3"),
		}, Illegal: []string{"TLSv1.3"}},
		annotationBackTLS: {Legal: []conformance.Legal{
			arrives(`{"CipherSuiteName": "oci-modern-ssl-cipher-suite-v1"}`, both, set+"sslConfiguration.cipherSuiteName", "oci-modern-ssl-cipher-suite-v1"),
		}, Illegal: []string{"{"}},
		annotationRuleSets: {Legal: []conformance.Legal{
			arrives(`{"a": {"items": [{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "X"}]}}`, nil, listener+"ruleSetNames.0", "a"),
		}, Illegal: []string{"a", `{"a": {}}`}},
		annotationAddress: {
			Legal:   []conformance.Legal{arrives("192.0.2.50", nil, "reservedIps.0.id", "ocid1.publicip.oc1.phx.aaaareserved01")},
			Illegal: []string{"web", "2001:db8::1"},
		},
		annotationPlaced:      {Elsewhere: "TestCompartmentOfBefore", Illegal: []string{"web"}},
		annotationCompartment: {Legal: []conformance.Legal{arrives(otherCompartment, nil, "compartmentId", otherCompartment)}, Illegal: []string{"web"}},
	}
}

const otherCompartment = "ocid1.compartment.oc1..aaaaother"

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: checklistRows(), Prefix: annotationPrefix, Creation: "POST /loadBalancers",
		Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service { return conformance.Service("web", annotations, web()) },
		Check:   func(s *v1.Service) (warnings, err error) { return checkService(registry.Inputs{}, s) },
		New:     newSubject,
	}.Run(t)
}

// newSubject is a provider with a node on a cloud of its own.
func newSubject(t *testing.T) conformance.Subject {
	t.Helper()
	sim, server := ocisim.New(testFingerprint)
	sim.SetWorkTime(time.Millisecond)
	b := conformance.NewBench(t)

	in := inputs(sim.CloudConfig(server.Start(t)))
	c, err := maker().New(in)
	require.NoError(t, err)
	c.loadBalancers.cluster.SetClient(b.Kube)
	c.loadBalancers.kube = b.Kube
	c.loadBalancers.follower.Start(b.Kube, t.Context().Done())
	c.loadBalancers.lb.works = waiting.New(waiting.Each(c.loadBalancers.lb.readWork), waiting.Pace{Least: time.Millisecond})
	c.loadBalancers.setEvents(b.Recorder)
	c.loadBalancers.cluster.SetServices(b.Services())
	c.instances.nodes.SetLister(b.Nodes())
	node := conformance.InitializedNode("node-1", providerIDPrefix+sim.AddInstance("node-1"))
	node.Labels = map[string]string{v1.LabelHostname: "node-1"}
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.64.3"}}
	b.Register(node)
	sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = otherCompartment })
	sim.AddReserved("192.0.2.50")
	_, err = b.Kube.CoreV1().Secrets("default").Create(t.Context(), newSecret(t, "web-tls"), metav1.CreateOptions{})
	require.NoError(t, err)
	nodes := []*v1.Node{node}
	return conformance.Subject{
		Bench: b, Server: server, Serve: func(s *v1.Service) {
			_, err := b.Reconcile(c.loadBalancers, "kubernetes", s, nodes)
			require.NoError(t, err)
		},
		Ensure: func(s *v1.Service) error {
			_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, nodes)
			return err
		},
	}
}

// TestIPMode: what the status says of its addresses.
func TestIPMode(t *testing.T) {
	t.Parallel()
	lb := &loadBalancer{Addresses: []address{{IP: "192.0.2.2"}, {IP: "192.0.2.1"}}}
	require.Nil(t, statusOf(lb, "").Ingress[0].IPMode)
	require.Equal(t, v1.LoadBalancerIPModeVIP, *statusOf(lb, "VIP").Ingress[0].IPMode)
	require.Equal(t, v1.LoadBalancerIPModeProxy, *statusOf(lb, "proxy").Ingress[1].IPMode)
}

// TestOrderOfStatus: what a Service shows already stays in its order, so that a takeover is no news; anything else is in our own.
func TestOrderOfStatus(t *testing.T) {
	t.Parallel()
	lb := &loadBalancer{Addresses: []address{{IP: "140.238.0.1"}, {IP: "2603:c020::1"}}}
	s := conformance.Service("web", nil, web())
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "2603:c020::1"}, {IP: "140.238.0.1"}}
	r := &reconciler{}
	status, err := r.Status(services.Request{Service: s}, observed{lb: lb}, desired{})
	require.NoError(t, err)
	require.Equal(t, s.Status.LoadBalancer, *status)
	status, _, err = r.Exists(t.Context(), services.Request{Service: s}, observed{lb: lb})
	require.NoError(t, err)
	require.Equal(t, s.Status.LoadBalancer, *status)
	s.Status.LoadBalancer.Ingress[0].IP = "192.0.2.1"
	status, err = r.Status(services.Request{Service: s}, observed{lb: lb}, desired{})
	require.NoError(t, err)
	require.Equal(t, *statusOf(lb, ""), *status)
}

// TestTooLong: a value that is too long is refused on any Service, as the admission policy does, also where it has no effect.
func TestTooLong(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("1", schema.DefaultMaxLength+1)
	for key, more := range map[string]string{annotationShape: typeNLB, nlbSubnet: typeBalancer} {
		s := conformance.Service("web", map[string]string{key: long, annotationType: more}, web())
		_, err := checkService(registry.Inputs{}, s)
		require.ErrorContains(t, err, "annotation "+key+": is 16385 characters long; use at most 16384")
	}
}

// TestModes: which annotation says how security rules are managed, and the cloud config where none does.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ rule, list, configured, want string }{
		{"", "", "", modeAll},
		{"", "", modeFrontend, modeFrontend},
		{"", modeNone, modeAll, modeNone},
		{"", modeFrontend, "", modeFrontend},
		{"sl-all", modeNone, modeNone, modeAll},
		{modeNone, modeAll, modeAll, modeNone},
		{"nsg", modeAll, "", modeGroups},
		{"SL-Frontend", "", "", modeFrontend},
	} {
		s := conformance.Service("web", map[string]string{annotationRuleMode: c.rule, annotationListMode: c.list}, web())
		set, _, err := parseSettings(s, c.configured)
		require.NoError(t, err)
		require.Equal(t, c.want, set.mode, c)
	}
}
