package ibm

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func arrives(value string, with map[string]string, field string, want any) conformance.Legal {
	return conformance.Arrives(value, with, field, want)
}

// Where values arrive, and what goes with them.
const atMonitor, atPools, atListeners = "pools.0.health_monitor.", "pools.0.", "listeners.0."

var (
	withHTTP     = map[string]string{annotationCheckProtocol: protocolHTTP}
	withPrivate  = map[string]string{annotationIPType: typePrivate}
	withZone     = map[string]string{annotationIPType: typePrivate, annotationDNSZone: "example-zone1"}
	withInstance = map[string]string{annotationIPType: typePrivate, annotationDNSInstance: "crn:v1:bluemix:public:dns-svcs:global:a/1::"}
	withNetwork  = map[string]string{annotationFeatures: featureNLB}
)

// checklistRows are the legal and the illegal values of each annotation, and where the legal ones arrive in the creating request.
var checklistRows = map[string]conformance.Checked{
	annotationIPType: {
		Legal:   []conformance.Legal{arrives("public", nil, "is_public", true), arrives("private", nil, "is_public", false)},
		Illegal: []string{"Public", "internal", "private "}, Lenient: true,
	},
	annotationFeatures: {
		Legal: []conformance.Legal{
			arrives("proxy-protocol", nil, atPools+"proxy_protocol", "v1"), arrives("Proxy - Protocol,alb", nil, atPools+"proxy_protocol", "v1"),
			arrives("nlb", nil, "profile.name", "network-fixed"), arrives("", nil, atPools+"proxy_protocol", "disabled"),
		},
		Illegal: []string{"fast", "proxy-protocol,sdnlb-vpc"}, Lenient: true,
	},
	annotationZone:    {Elsewhere: "TestReceivers"},
	annotationSubnets: {Elsewhere: "TestSubnetNames"},
	annotationNodeSelector: {
		Elsewhere: "TestReceivers", Illegal: []string{"pool=a", "a", "a=b=c"}, Lenient: true,
	},
	annotationName: {
		Legal: []conformance.Legal{arrives("shop", nil, "name", "shop")}, Illegal: []string{"Shop", "shop-", "1shop", "a_b", "shop."},
	},
	annotationCheckProtocol: {
		Legal: []conformance.Legal{
			arrives("http", nil, atMonitor+"type", "http"),
			arrives("https", nil, atMonitor+"url_path", "/"),
			arrives("tcp", nil, atMonitor+"url_path", nil),
		},
		Illegal: []string{"HTTP", "icmp"},
	},
	annotationCheckPort: {
		With: withHTTP,
		Legal: []conformance.Legal{
			arrives("8081", withHTTP, atMonitor+"port", 8081.0),
			arrives("1", withHTTP, atMonitor+"port", 1.0), arrives("65535", withHTTP, atMonitor+"port", 65535.0),
		},
		Illegal: []string{"0", "65536", "-1", "http"},
	},
	annotationCheckPath: {
		With: withHTTP, Legal: []conformance.Legal{arrives("/ready?x=1", withHTTP, atMonitor+"url_path", "/ready?x=1")}, Illegal: []string{"ready", "/a b"},
	},
	annotationCheckDelay: {
		Legal:   []conformance.Legal{arrives("60", nil, atMonitor+"delay", 60.0), arrives("3", nil, atMonitor+"delay", 3.0)},
		Illegal: []string{"1", "61", "5s"},
	},
	annotationCheckTimeout: {
		Legal: []conformance.Legal{
			arrives("1", nil, atMonitor+"timeout", 1.0), arrives("59", map[string]string{annotationCheckDelay: "60"}, atMonitor+"timeout", 59.0),
		},
		Illegal: []string{"0", "60", "5"},
	},
	annotationCheckRetries: {
		Legal:   []conformance.Legal{arrives("1", nil, atMonitor+"max_retries", 1.0), arrives("10", nil, atMonitor+"max_retries", 10.0)},
		Illegal: []string{"0", "11", "x"},
	},
	annotationCheckUDP: {Elsewhere: "TestChecksOfUDP", Illegal: []string{"0", "65536", "x"}},
	annotationIdle: {
		Legal: []conformance.Legal{
			arrives("50", nil, atListeners+"idle_connection_timeout", 50.0),
			arrives("7200", nil, atListeners+"idle_connection_timeout", 7200.0),
		},
		Illegal: []string{"49", "7201", "1m"},
	},
	annotationQuota: {Elsewhere: "TestReceivers", Illegal: []string{"-1", "all", "8 "}},
	annotationPortRange: {
		With: withNetwork, Legal: []conformance.Legal{
			arrives("80-90", withNetwork, atListeners+"port_max", 90.0),
			arrives("80-90", withNetwork, atListeners+"port", nil),
		},
		Illegal: []string{"80", "90-80", "80-65536", "81-90", "80-90,85-95"},
	},
	annotationDNSInstance: {
		With:    withZone,
		Legal:   []conformance.Legal{arrives(withInstance[annotationDNSInstance], withZone, "dns.instance.crn", withInstance[annotationDNSInstance])},
		Illegal: []string{"x", "crn:v1: x"},
	},
	annotationDNSZone: {
		With:    withInstance,
		Legal:   []conformance.Legal{arrives("example-zone1", withInstance, "dns.zone.id", "example-zone1")},
		Illegal: []string{"Zone", "a-", "a.b"},
	},
	annotationGroups: {Elsewhere: "TestNamedGroups", Illegal: []string{",", "web,", "web,,web", "a,b,c,d,e,f"}, With: withPrivate},
	annotationRecord: {Elsewhere: "TestTakenBack", Illegal: []string{"X", "a,"}},
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: checklistRows, Prefix: annotationPrefix,
		Creation: create, Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			return conformance.Service("web", annotations, conformance.Port("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) { return checkService(registry.Inputs{}, s) },
		New: func(t *testing.T) conformance.Subject {
			t.Helper()
			sim, server := ibmsim.New(testKey, 0)
			in := conformance.Inputs(nil, sim.Environment(""))
			in.File = []byte(sim.CloudConfig(server.Start(t)))
			c, err := maker().New(in)
			require.NoError(t, err)
			t.Cleanup(c.HTTP.Close)
			b := conformance.NewBench(t)
			c.begin(cloudbase.Begun{Kube: b.Kube, Events: b.Recorder, Stop: t.Context().Done()})
			node := &v1.Node{}
			node.Name, node.Spec.ProviderID = "node-1", ibmsim.ProviderID(sim.AddInstance("node-1"))
			node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: "10.0.0.4"}}
			ensure := func(s *v1.Service) error {
				_, err := c.loadBalancers.EnsureLoadBalancer(t.Context(), "", b.Current(s), []*v1.Node{node})
				return err
			}
			return conformance.Subject{Bench: b, Server: server, Serve: func(s *v1.Service) { require.NoError(t, ensure(s)) }, Ensure: ensure}
		},
	}.Run(t)
}

//go:embed testdata/examples.yaml
var examples string

// TestExamples holds the examples of the page against the tables.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, s := range conformance.Examples(t, examples, checkService) {
		set, _, err := parseSettings(s)
		require.NoError(t, err)
		assert.Len(t, set.ports(s, set.isNetwork()), len(s.Spec.Ports))
	}
}

// TestChanges: what each annotation that can be changed in place changes, and that a second look finds nothing to do.
func TestChanges(t *testing.T) {
	t.Parallel()
	const patchPool, patchListener = "PATCH " + oneLB + "/pools/{id}", "PATCH " + oneLB + "/listeners/{id}"
	for key, c := range map[string]struct {
		with     []string
		from, to string
		writes   []string
	}{
		annotationFeatures:      {from: "", to: featureProxy, writes: []string{patchPool, patchPool}},
		annotationZone:          {from: "us-south-1", to: "us-south-2", writes: []string{put, put}},
		annotationSubnets:       {from: "lb-subnet", to: ibmsim.Cluster + "-subnet-1", writes: []string{"PATCH " + oneLB}},
		annotationNodeSelector:  {from: v1.LabelTopologyZone + "=us-south-1", to: v1.LabelTopologyZone + "=us-south-2", writes: []string{put, put}},
		annotationCheckProtocol: {from: protocolTCP, to: protocolHTTPS, writes: []string{patchPool, patchPool}},
		annotationCheckPort: {
			with: []string{annotationCheckProtocol, protocolTCP},
			from: "8080", to: "8081", writes: []string{patchPool, patchPool},
		},
		annotationCheckPath: {
			with: []string{annotationCheckProtocol, protocolHTTP},
			from: "/a", to: "/b", writes: []string{patchPool, patchPool},
		},
		annotationCheckDelay:   {from: "6", to: "7", writes: []string{patchPool, patchPool}},
		annotationCheckTimeout: {from: "3", to: "4", writes: []string{patchPool, patchPool}},
		annotationCheckRetries: {from: "3", to: "4", writes: []string{patchPool, patchPool}},
		annotationIdle:         {from: "60", to: "70", writes: []string{patchListener, patchListener}},
		annotationQuota:        {from: "max", to: "1", writes: []string{put, put}},
		annotationGroups:       {from: "web", to: defaults, writes: []string{attach, detach}},
		annotationPortRange: {with: []string{annotationFeatures, featureNLB}, from: "80-90", to: "80-95", writes: []string{
			"DELETE " + oneLB + "/listeners/{id}", "DELETE " + oneLB + "/pools/{id}", "POST " + oneLB + "/pools", "POST " + oneLB + "/listeners",
		}},
	} {
		t.Run(key[len(annotationPrefix):], func(t *testing.T) {
			t.Parallel()
			inWorld(t, 4, 0, nil, func(w *world) {
				s := web(append(c.with, key, c.from)...)
				w.mustEnsure(s)
				w.writes()
				w.restart()
				s.Annotations[key] = c.to
				w.mustEnsure(s)
				assert.Equal(w.t, c.writes, w.writes())
				w.mustEnsure(s)
				assert.Empty(w.t, w.writes())
				assert.Empty(w.t, w.server.Calls().Refused)
			})
		})
	}
}

// TestFixedAtCreationIsTold: what counts only at the creation is told of where it is asked for later.
func TestFixedAtCreationIsTold(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationIPType, typePrivate)
		w.mustEnsure(s)
		w.drainEvents()
		w.writes()
		s.Annotations[annotationDNSInstance] = "crn:v1:bluemix:public:dns-svcs:global:a/1::"
		s.Annotations[annotationDNSZone] = "example-com-zone1"
		err := w.ensure(s)
		assert.True(w.t, err != nil || len(w.writes()) > 0 || w.drainEvents() != "", "no zone, and no word")
	})
}

// TestFixedAtCreationAsAsked: a load balancer that was made with the zone that the annotations ask for is told of to nobody; one with
// another zone is.
func TestFixedAtCreationAsAsked(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web(annotationIPType, typePrivate, annotationDNSInstance, "crn:v1:bluemix:public:dns-svcs:global:a/1::", annotationDNSZone, "example-com-zone1")
		w.mustEnsure(s)
		w.mustEnsure(s)
		assert.Empty(w.t, w.drainEvents())
		s.Annotations[annotationDNSZone] = "example-com-zone2"
		w.mustEnsure(s)
		assert.Contains(w.t, w.drainEvents(), services.EventFixed)
	})
}
