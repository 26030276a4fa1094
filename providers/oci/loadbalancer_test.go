package oci

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

const testUID = "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1"

// byHand are annotations by which nobody manages security rules.
func byHand(more ...string) map[string]string {
	a := map[string]string{annotationRuleMode: modeNone}
	for n := 0; n < len(more); n += 2 {
		a[more[n]] = more[n+1]
	}
	return a
}

// balancing runs a test with nodes of the given names.
func balancing(t *testing.T, names []string, test func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder)) {
	t.Helper()
	inWorld(t, func(w *testWorld) {
		for n, name := range names {
			w.joinAt(name, "10.0.1."+string(rune('1'+n)))
		}
		w.start()
		events := record.NewFakeRecorder(100)
		w.cloud.loadBalancers.setEvents(events)
		test(w, w.Nodes, events)
	})
}

func (w *testWorld) ensure(s *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return w.cloud.loadBalancers.EnsureLoadBalancer(w.Context(), "kubernetes", s, nodes)
}

func (w *testWorld) requireServed(s *v1.Service, nodes []*v1.Node) *v1.LoadBalancerStatus {
	w.Helper()
	status, err := w.ensure(s, nodes)
	require.NoError(w, err)
	return status
}

// balancer is the only load balancer in the cloud.
func (w *testWorld) balancer() ocisim.LoadBalancer {
	w.Helper()
	all := w.sim.LoadBalancers()
	require.Len(w, all, 1)
	return all[0]
}

// writes are the calls that are no reads, since the last look.
func (w *testWorld) writes() []string {
	var all []string
	for operation, n := range w.Server.Calls().ByOperation {
		for range n {
			if !strings.HasPrefix(operation, "GET ") {
				all = append(all, operation)
			}
		}
	}
	return all
}

func web() v1.ServicePort { return conformance.Port("http", 80, 30080) }

// TestNodeWithoutAddresses: a node that has just joined receives traffic before anybody wrote its addresses: the framework does not come
// back for them.
func TestNodeWithoutAddresses(t *testing.T) {
	for word, more := range map[string]map[string]string{typeBalancer: {}, typeNLB: ofNetwork()} {
		t.Run(word, func(t *testing.T) {
			balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", more, web())
				w.requireServed(s, nodes[:1])
				fresh := nodes[1].DeepCopy()
				fresh.Status.Addresses = nil
				require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, []*v1.Node{nodes[0], fresh}))
				assert.Empty(w, fresh.Status.Addresses, "the framework's object stays as it is")
				assert.Contains(w, w.sim.Holdings()[0], ", 2 nodes")
			})
		})
	}
}

// TestCreation: scenario 25.
func TestCreation(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		status := w.requireServed(conformance.Service("web", byHand(), web()), nodes)
		require.Len(w, status.Ingress, 1)
		assert.Equal(w, testUID, w.balancer().Name)
		text, err := json.Marshal(w.balancer().Doc)
		require.NoError(w, err)
		assert.JSONEq(w, `{
			"compartmentId": "`+ocisim.Compartment+`", "displayName": "`+testUID+`", "shapeName": "100Mbps", "subnetIds": ["`+ocisim.BalancerSubnet()+`"],
			"isPrivate": false, "certificates": {}, "networkSecurityGroupIds": [], "reservedIps": [], "ipMode": "IPV4", "hostnames": {}, "ruleSets": {},
			"backendSets": {"TCP-80": {"policy": "ROUND_ROBIN",
				"backends": [{"ipAddress": "10.0.1.1", "port": 30080, "weight": 1}, {"ipAddress": "10.0.1.2", "port": 30080, "weight": 1}],
				"healthChecker": {"protocol": "HTTP", "urlPath": "/healthz", "port": 10256, "returnCode": 200, "retries": 3, "timeoutInMillis": 3000,
					"intervalInMillis": 10000, "isForcePlainText": false}}},
			"listeners": {"TCP-80": {"defaultBackendSetName": "TCP-80", "port": 80, "protocol": "TCP"}}
		}`, string(text))
		assert.Equal(w, []string{"POST /loadBalancers"}, w.writes())

		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		again := w.requireServed(conformance.Service("web", byHand(), web()), nodes)
		assert.Equal(w, status, again)
		assert.Empty(w, w.writes(), "nothing is to be changed")
		w.start() // a new process
		w.requireServed(conformance.Service("web", byHand(), web()), nodes)
		assert.Empty(w, w.writes())
	})
}

// TestKeepsWhatOthersSet: scenarios 47 and 50.
func TestKeepsWhatOthersSet(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web(), conformance.Port("https", 443, 30443))
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) {
			set := lb.Doc["backendSets"].(document)["TCP-80"].(document)
			set["sessionPersistenceConfiguration"] = document{"cookieName": "*"}
			set["backends"].([]any)[0].(document)["weight"] = 7.0
			set["backends"].([]any)[0].(document)["drain"] = true
			lb.Doc["listeners"].(document)["TCP-80"].(document)["hostnameNames"] = []any{"mine"}
		}))
		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes))
		assert.Equal(w, []string{"PUT /loadBalancers/{id}/backendSets/{name}", "PUT /loadBalancers/{id}/backendSets/{name}"}, w.writes(),
			"one write for each backend set")
		s.Annotations[annotationProtocol] = "HTTP"
		w.requireServed(s, nodes)
		sets := w.balancer().Doc["backendSets"].(document)
		set := sets["TCP-80"].(document)
		assert.Equal(w, document{"cookieName": "*"}, set["sessionPersistenceConfiguration"])
		kept := map[any]any{}
		for _, b := range set["backends"].([]any) {
			kept[b.(document)["ipAddress"]] = []any{b.(document)["weight"], b.(document)["drain"]}
		}
		assert.Equal(w, map[any]any{"10.0.1.1": []any{7.0, true}, "10.0.1.2": []any{1.0, nil}}, kept)
		l := w.balancer().Doc["listeners"].(document)["TCP-80"].(document)
		assert.Equal(w, []any{"mine"}, l["hostnameNames"])
		assert.Equal(w, "HTTP", l["protocol"], "the listener keeps its name, and is changed in place")
	})
}

// TestPortsChange: scenarios 48 and 49.
func TestPortsChange(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.requireServed(conformance.Service("web", byHand(), web()), nodes)
		w.requireServed(conformance.Service("web", byHand(), conformance.Port("http", 80, 30999), conformance.Port("alt", 8080, 30081)), nodes)
		sets := w.balancer().Doc["backendSets"].(document)
		require.Len(w, sets, 2)
		assert.InDelta(w, 30999, sets["TCP-80"].(document)["backends"].([]any)[0].(document)["port"], 0)
		w.requireServed(conformance.Service("web", byHand(), conformance.Port("alt", 8080, 30081)), nodes)
		assert.Len(w, w.balancer().Doc["backendSets"], 1)
		assert.Len(w, w.balancer().Doc["listeners"], 1)
	})
}

// TestWorkFails: scenario 39.
func TestWorkFails(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.sim.FailNextWork("no capacity")
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "no capacity")
		assert.Contains(w, <-events.Events, eventRefused)
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "has failed")
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.LoadBalancers())
		w.requireServed(s, nodes)
		w.sim.FailNextWork("a passing fault")
		s.Spec.Ports[0].NodePort = 30099
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "a passing fault")
		w.requireServed(s, nodes)
	})
}

// TestOthersWork: scenario 55.
func TestOthersWork(t *testing.T) {
	balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes[:1])
		require.NoError(w, w.sim.BeginWork(testUID, 40*time.Second))
		w.requireServed(s, nodes)
		assert.Empty(w, events.Events, "it is no failure that the cloud works for somebody else")
		require.NoError(w, w.sim.BeginWork(testUID, 40*time.Second))
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		assert.Empty(w, w.sim.LoadBalancers())
	})
}

// TestRestartWhileItIsMade: scenario 40.
func TestRestartWhileItIsMade(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.sim.SetWorkTime(time.Hour)
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "still works")
		w.start()
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "still works")
		time.Sleep(time.Hour)
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.LoadBalancers(), 1)
	})
}

// TestLostPermission: scenarios 33 and 62: what is not shown is not gone.
func TestLostPermission(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		time.Sleep(time.Hour)
		w.sim.SetBlind(true)
		require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		_, err := w.ensure(s, nodes)
		require.Error(w, err)
		_, _, err = w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.Error(w, err)
		w.sim.SetBlind(false)
		assert.Len(w, w.sim.LoadBalancers(), 1)
		w.sim.RemoveLoadBalancers()
		require.NoError(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s))
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.LoadBalancers(), 1, "made again within the day in which retry tokens last")
	})
}

// TestNoNodes: scenario 54.
func TestNoNodes(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		w.Server.ResetCalls()
		w.requireServed(s, nil)
		require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nil))
		assert.Empty(w, w.writes())
	})
}

// TestRefused: what cannot be served, and what is wrong, is refused before any call.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(*v1.Service)
		want   string
	}{
		"rules":        {func(s *v1.Service) { s.Annotations[annotationRuleMode] = "SL" }, annotationRuleMode + `: "SL" is not one of SL-All`},
		"ports of TLS": {func(s *v1.Service) { s.Annotations[annotationSSLPorts] = "https" }, annotationSSLPorts},
		"TLS alone":    {func(s *v1.Service) { s.Annotations[annotationSSLPorts] = "80" }, "needs " + annotationTLSSecret},
		"GRPC":         {func(s *v1.Service) { s.Annotations[annotationProtocol] = "grpc" }, "needs TLS on each port"},
		"ciphers":      {func(s *v1.Service) { s.Annotations[annotationTLS] = "x" }, "is not a configuration of TLS in JSON"},
		"rule sets":    {func(s *v1.Service) { s.Annotations[annotationRuleSets] = `{"a": 1}` }, "is not JSON of rule sets"},
		"empty set":    {func(s *v1.Service) { s.Annotations[annotationRuleSets] = `{"a": {}}` }, "has no items"},
		"large set": {func(s *v1.Service) {
			s.Annotations[annotationRuleSets] = `{"a": {"items": [{}` + strings.Repeat(",{}", 50) + `]}}`
		}, "a rule set would have 51 rules, and the cloud takes at most 50; use several rule sets"},
		"name of a set": {func(s *v1.Service) {
			s.Annotations[annotationRuleSets] = `{"` + strings.Repeat("a", 33) + `": {"items": [{}]}}`
		}, "would have 33 characters, and the cloud takes at most 32"},
		"account":       {func(s *v1.Service) { s.Annotations[annotationAccount] = "x" }, "is not served yet"},
		"UDP":           {func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }, "is a protocol that load balancers of this kind do not have"},
		"ranges":        {func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"everybody"} }, "everybody"},
		"no node ports": {func(s *v1.Service) { s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(bool), 0 }, "node ports"},
		"affinity":      {func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP }, "has no equivalent on Oracle's load balancers"},
		"IPv6 alone":    {func(s *v1.Service) { s.Spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol} }, "is not served by load balancers of this kind"},
		"address":       {func(s *v1.Service) { s.Spec.LoadBalancerIP = "web" }, `"web" is not an IPv4 address`},
		"private address": {func(s *v1.Service) {
			s.Spec.LoadBalancerIP, s.Annotations[annotationInternal] = "192.0.2.1", "true"
		}, "is a reserved public address, which an internal load balancer cannot have"},
		"protocol":  {func(s *v1.Service) { s.Annotations[annotationProtocol] = "UDP" }, "is not one of TCP, HTTP, GRPC"},
		"bandwidth": {func(s *v1.Service) { s.Annotations[annotationShapeMin] = "much" }, `"much" is not a bandwidth`},
		"groups":    {func(s *v1.Service) { s.Annotations[annotationGroups] = sixGroups() }, "holds 6 groups; a load balancer takes 5"},
		"five groups and ours": {func(s *v1.Service) {
			s.Annotations[annotationRuleMode], s.Annotations[annotationGroups] = modeGroups, sixGroups()[:len(sixGroups())-len(ocisim.GroupID(5))-1]
		}, "holds 5 groups; a load balancer takes 4"},
		"no group": {func(s *v1.Service) { s.Annotations[annotationBackGroups] = "web" }, "is not an OCID"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := conformance.Service("web", byHand(), web())
			c.change(s)
			_, _, err := parseSettings(s, "")
			require.ErrorContains(t, err, c.want)
		})
	}
}

func sixGroups() string {
	var all []string
	for n := range 6 {
		all = append(all, ocisim.GroupID(n))
	}
	return strings.Join(all, ",")
}

// TestShapes: scenarios 27 and 53.
func TestShapes(t *testing.T) {
	t.Parallel()
	flexible := settings{Shape: "Flexible", ShapeMin: "5", ShapeMax: "9000"}
	shape, details, err := flexible.shapeFor(nil)
	require.NoError(t, err)
	assert.Equal(t, shapeFlexible, shape)
	assert.Equal(t, shapeDetails{10, 8192}, *details)
	_, details, err = settings{Shape: shapeFlexible, ShapeMin: "10Mbps", ShapeMax: "10Mbps"}.shapeFor(nil)
	require.NoError(t, err)
	assert.Equal(t, shapeDetails{10, 10}, *details)
	_, _, err = settings{Shape: shapeFlexible}.shapeFor(nil)
	require.ErrorContains(t, err, "takes its bandwidths from")
	is := &loadBalancer{Shape: shapeFlexible, Details: &shapeDetails{20, 40}}
	_, details, err = settings{}.shapeFor(is)
	require.NoError(t, err)
	assert.Equal(t, *is.Details, *details)
	_, _, err = settings{Shape: "400Mbps"}.shapeFor(is)
	require.ErrorContains(t, err, `"400Mbps" is a fixed shape, and the load balancer is flexible`)
}

// TestPrefix: scenario 26.
func TestPrefix(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", nil, web())
	for _, prefix := range []string{"p", "p-"} {
		assert.Equal(t, "p-"+testUID, balancerName(prefix, s))
	}
	assert.Equal(t, testUID, balancerName("", s))
	assert.Len(t, balancerName(strings.Repeat("x", 2000), s), ocilimits.Title.Max)
}

// TestQuota: scenario 38: a creation that is refused is an error that says why, is not asked for again by itself, and the next one
// is another.
func TestQuota(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.sim.Refuse("LimitExceeded", "the limit of load balancers is reached")
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "LimitExceeded: the limit of load balancers is reached")
		assert.Equal(w, []string{"POST /loadBalancers"}, w.writes(), "no storm of tries")
		s.Spec.Ports[0].NodePort = 30999
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.LoadBalancers(), 1)
	})
}

// TestChangedBetweenWrites: what somebody sets by hand between two writes of ours stays.
func TestChangedBetweenWrites(t *testing.T) {
	for name, annotations := range map[string]map[string]string{typeBalancer: byHand(), typeNLB: ofNetwork()} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a", "b"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", annotations, web(), conformance.Port("alt", 8080, 30081))
				w.requireServed(s, nodes[:1])
				drain := func(d document) {
					backend, _ := fieldOf[[]any](d["backendSets"].(document)["TCP-8080"].(document), "backends")[0].(document)
					backend[map[string]string{typeBalancer: "drain", typeNLB: "isDrain"}[name]] = true
				}
				w.sim.SetWorkTime(3 * time.Second)
				done := make(chan error, 1)
				go func() { done <- w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, nodes) }()
				time.Sleep(3500 * time.Millisecond) // the first work has ended, and nobody has looked yet
				if name == typeBalancer {
					require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { drain(lb.Doc) }))
				} else {
					require.NoError(w, w.sim.EditNetworkLoadBalancer(testNetworkName, func(lb *ocisim.NetworkLoadBalancer) { drain(lb.Doc) }))
				}
				require.NoError(w, <-done)
				var doc document
				if name == typeBalancer {
					doc = w.balancer().Doc
				} else {
					doc = w.nlb().Doc
				}
				backends := fieldOf[[]any](doc["backendSets"].(document)["TCP-8080"].(document), "backends")
				require.Len(w, backends, 2)
				drained := slices.ContainsFunc(backends, func(v any) bool { b := v.(document); return b["drain"] == true || b["isDrain"] == true })
				assert.True(w, drained)
			})
		})
	}
}

// TestLostPermissionForLoadBalancers: policies name load balancers apart from networks. Who may not see them any more does not take them
// for gone.
func TestLostPermissionForLoadBalancers(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		time.Sleep(time.Minute)
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
		require.NoError(w, err)
		require.True(w, exists)
		w.sim.Hide("/20170115/")
		require.Error(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s), "within the age of what is known")
		w.sim.Hide()
		assert.Len(w, w.sim.LoadBalancers(), 1)
		w.deleted(s)
	})
}

// TestDeletionWithAVanishedNode: a Node whose instance nobody can tell about holds up no deletion.
func TestDeletionWithAVanishedNode(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", map[string]string{annotationType: kind, annotationRuleMode: "SL-All"}, web())
				w.requireServed(s, nodes)
				w.sim.Remove(strings.TrimPrefix(nodes[0].Spec.ProviderID, providerIDPrefix))
				w.start()
				w.serving(s)
				w.deleted(s)
				assert.Empty(w, w.sim.Holdings())
				assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
			})
		})
	}
}

// TestPortsThatWereAllocated: a Service that wants no node ports any more keeps those that it has, and is served.
func TestPortsThatWereAllocated(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		t.Run(kind, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				s := conformance.Service("web", byHand(annotationType, kind), web())
				s.Spec.AllocateLoadBalancerNodePorts = new(bool)
				w.requireServed(s, nodes)
				w.Server.ResetCalls()
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 0))
				_, err := w.ensure(s, nodes)
				require.ErrorContains(w, err, "node ports")
				assert.Empty(w, w.writes())
			})
		})
	}
}

// TestProtectedFromDeletion: what somebody has protected is said to be so.
func TestProtectedFromDeletion(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { lb.Doc["isDeleteProtectionEnabled"] = true }))
		w.Server.ResetCalls()
		err := w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s)
		require.ErrorContains(w, err, "delete protection")
		assert.LessOrEqual(w, w.Calls(http.MethodDelete+" /loadBalancers/{id}"), 2)
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		w.Server.ResetCalls()
		require.ErrorContains(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s), "delete protection")
		assert.Zero(w, w.Calls(http.MethodDelete+" /loadBalancers/{id}"), "it is known to be protected")
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { delete(lb.Doc, "isDeleteProtectionEnabled") }))
		w.deleted(s)
	})
}

// TestProtectionIsReadBeforeRulesClose: one that somebody protected a moment ago keeps the rules by which it serves.
func TestProtectionIsReadBeforeRulesClose(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		before := w.allRules()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		time.Sleep(2 * time.Second) // less than what is known may be old
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { lb.Doc["isDeleteProtectionEnabled"] = true }))
		require.ErrorContains(w, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s), "delete protection")
		assert.Equal(w, before, w.allRules())
	})
}

// TestProtectedOrphan: a load balancer that somebody protects from deletion goes on serving, also without its Service.
func TestProtectedOrphan(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		w.requireServed(s, nodes)
		before := w.allRules()
		w.serving()
		time.Sleep(time.Minute)
		orphans, err := w.cloud.Orphans(w.Context(), nil)
		require.NoError(w, err)
		require.Len(w, orphans, 1)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) { lb.Doc["isDeleteProtectionEnabled"] = true }))
		require.ErrorContains(w, w.cloud.DeleteOrphan(w.Context(), orphans[0]), "delete protection")
		assert.Equal(w, before, w.allRules())
	})
}

// TestDeletionAfterALostCreation: what a lost creation makes goes with its Service, which the next process deletes at once.
func TestDeletionAfterALostCreation(t *testing.T) {
	for _, kind := range []string{typeBalancer, typeNLB} {
		for _, now := range []string{typeBalancer, typeNLB} {
			t.Run(kind+" "+now, func(t *testing.T) {
				balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
					s := conformance.Service("web", byHand(annotationType, kind), web())
					s.CreationTimestamp = metav1.Now()
					s.Finalizers = []string{servicehelper.LoadBalancerCleanupFinalizer}
					time.Sleep(time.Minute)
					w.Fail(simkit.Fault{Kind: simkit.FaultLate, Late: simkit.Duration(20 * time.Second), Writes: true, Status: http.StatusGatewayTimeout})
					_, err := w.ensure(s, nodes)
					require.Error(w, err)
					w.Server.ClearFaults()
					s.Annotations[annotationType] = now
					w.start()
					for range 40 {
						var exists bool
						if _, exists, err = w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s); err == nil && !exists {
							break
						}
						if exists {
							err = w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.Context(), "kubernetes", s)
						}
						time.Sleep(5 * time.Second)
					}
					require.NoError(w, err)
					time.Sleep(time.Hour)
					assert.Empty(w, w.sim.Holdings())
				})
			})
		}
	}
}

// TestStatusKeepsItsOrder: another order of the same addresses is no news.
func TestStatusKeepsItsOrder(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := dual(conformance.Service("web", byHand(annotationSubnet1, ocisim.DualSubnet()), web()), v1.IPFamilyPolicyRequireDualStack)
		status := w.requireServed(s, nodes)
		require.Len(w, status.Ingress, 2)
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{status.Ingress[1], status.Ingress[0]}
		assert.Equal(w, &s.Status.LoadBalancer, w.requireServed(s, nodes))
	})
}
