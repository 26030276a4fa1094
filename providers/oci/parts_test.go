package oci

import (
	"encoding/json"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// keep puts a Secret with a new certificate into the cluster.
func (w *testWorld) keep(namespace, name string) *v1.Secret {
	w.Helper()
	s := newSecret(w.T, name)
	s.Namespace = namespace
	if _, err := w.kube.CoreV1().Secrets(namespace).Create(w.Context(), s, metav1.CreateOptions{}); err != nil {
		_, err = w.kube.CoreV1().Secrets(namespace).Update(w.Context(), s, metav1.UpdateOptions{})
		require.NoError(w, err)
	}
	return s
}

// lose deletes the Secret web-tls of the namespace default, and returns it.
func (w *testWorld) lose() *v1.Secret {
	w.Helper()
	kept := w.kube.CoreV1().Secrets("default")
	s, err := kept.Get(w.Context(), "web-tls", metav1.GetOptions{})
	require.NoError(w, err)
	require.NoError(w, kept.Delete(w.Context(), "web-tls", metav1.DeleteOptions{}))
	return s
}

// retries lets the provider ask for reconciliations, and returns whether it has asked for one of a Service since.
func (w *testWorld) retries(s *v1.Service) (asked func() bool) {
	var times atomic.Int32
	w.cloud.SetServiceRetry(func(waits func(*v1.Service) bool) {
		if waits(s) {
			times.Add(1)
		}
	})
	return func() bool {
		synctest.Wait()
		return times.Swap(0) > 0
	}
}

func (w *testWorld) part(kind, name string) document {
	w.Helper()
	d, _ := w.balancer().Doc[kind].(document)[name].(document)
	return d
}

func certificateOf(d document) any { return d["sslConfiguration"].(document)["certificateName"] }

func secure(more ...string) *v1.Service {
	a := byHand(annotationSSLPorts, "443", annotationTLSSecret, "web-tls")
	for n := 0; n < len(more); n += 2 {
		a[more[n]] = more[n+1]
	}
	return conformance.Service("web", a, web(), conformance.Port("https", 443, 30443))
}

// TestTLS: scenario 30.
func TestTLS(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.release("certs")
		secret := w.keep("certs", "web-tls")
		back := w.keep("default", "back")
		s := secure(annotationTLSSecret, "certs/web-tls", annotationBackSecret, "back", annotationTLS, `{"ciphersuitename": "oci-modern-ssl-cipher-suite-v1"}`)
		w.requireServed(s, nodes)
		assert.Equal(w, document{"certificateName": "web-tls", "publicCertificate": string(secret.Data[v1.TLSCertKey]), "caCertificate": ""},
			w.part("certificates", "web-tls"))
		assert.Equal(w, string(back.Data[v1.TLSCertKey]), w.part("certificates", "back")["publicCertificate"])
		assert.Equal(w, document{
			"certificateName": "web-tls", "verifyDepth": 0.0, "verifyPeerCertificate": false, "cipherSuiteName": "oci-modern-ssl-cipher-suite-v1",
		}, w.part("listeners", "TCP-443")["sslConfiguration"])
		assert.Nil(w, w.part("listeners", "TCP-80")["sslConfiguration"])
		assert.Equal(w, "back", certificateOf(w.part("backendSets", "TCP-443")))
		assert.Nil(w, w.part("backendSets", "TCP-80")["sslConfiguration"])
		assert.Equal(w, true, w.part("backendSets", "TCP-80")["healthChecker"].(document)["isForcePlainText"])
		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "scenario 46: a cipher suite without protocols is no reason for a write")

		s.Annotations[annotationTLS] = `{"CipherSuiteName": "oci-modern-ssl-cipher-suite-v1", "Protocols": ["TLSv1.3", "TLSv1.2"]}`
		w.requireServed(s, nodes)
		assert.ElementsMatch(w, []any{"TLSv1.3", "TLSv1.2"}, w.part("listeners", "TCP-443")["sslConfiguration"].(document)["protocols"])
		delete(s.Annotations, annotationSSLPorts)
		w.requireServed(s, nodes)
		assert.Nil(w, w.part("listeners", "TCP-443")["sslConfiguration"], "TLS ends nowhere without ssl-ports")
	})
}

// release lets Services of every namespace name the Secrets of one.
func (w *testWorld) release(namespace string) {
	w.cloud.loadBalancers.api.config.SecretNamespaces = []string{namespace}
}

// TestSecretsOfOtherNamespaces: a Service gets no certificate of another namespace, unless the operator says so, and is told the way.
func TestSecretsOfOtherNamespaces(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		w.keep("certs", "web-tls")
		w.keep("default", "web-tls")
		for _, s := range []*v1.Service{
			secure(annotationTLSSecret, "certs/web-tls"), secure(annotationBackSecret, "certs/web-tls"),
		} {
			_, err := w.ensure(s, nodes)
			require.ErrorContains(w, err, "certs/web-tls is in another namespace than the Service")
			assert.Contains(w, <-events.Events, envSecretNamespaces)
			assert.Empty(w, w.writes())
		}
		for _, a := range w.kube.Actions() {
			assert.False(w, a.Matches("get", "secrets") && a.GetNamespace() == "certs", "it is not even read")
		}
		w.requireServed(secure(annotationTLSSecret, "default/web-tls"), nodes)
		w.release("certs")
		w.requireServed(secure(annotationTLSSecret, "certs/web-tls"), nodes)
	})
}

// TestSecretsThatCannotBeUsed: scenario 31.
func TestSecretsThatCannotBeUsed(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		_, err := w.ensure(secure(), nodes)
		require.ErrorContains(w, err, "reading the Secret for TLS of the listeners: ")
		assert.Contains(w, <-events.Events, eventConfigError)
		secret := newSecret(w.T, "web-tls")
		delete(secret.Data, v1.TLSPrivateKeyKey)
		_, err = w.kube.CoreV1().Secrets("default").Create(w.Context(), secret, metav1.CreateOptions{})
		require.NoError(w, err)
		_, err = w.ensure(secure(), nodes)
		require.ErrorContains(w, err, "default/web-tls, has no key tls.key")
		w.keep("default", "web.tls")
		_, err = w.ensure(secure(annotationTLSSecret, "web.tls"), nodes)
		require.ErrorContains(w, err, "is no name that a certificate can have in the cloud")
		assert.Empty(w, w.writes())
	})
}

// TestRotation: scenario 51.
func TestRotation(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		s := secure()
		asked := w.retries(s)
		w.requireServed(s, nodes)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) {
			lb.Doc["certificates"].(document)["mine"] = document{"certificateName": "mine", "publicCertificate": "x"}
		}))
		require.False(w, asked())
		for range 3 {
			secret := w.keep("default", "web-tls")
			time.Sleep(time.Minute)
			w.Server.ResetCalls()
			require.True(w, asked(), "it is reconciled by itself")
			assert.Empty(w, w.writes())
			w.requireServed(s, nodes)
			name, _ := certificateOf(w.part("listeners", "TCP-443")).(string)
			assert.Regexp(w, `^web-tls(-[0-9a-f]{8})?$`, name)
			assert.Equal(w, string(secret.Data[v1.TLSCertKey]), w.part("certificates", name)["publicCertificate"])
			assert.Len(w, w.balancer().Doc["certificates"], 2, "the old one is gone; what somebody else uploaded stays")
			assert.Len(w, w.writes(), 3)
			w.Server.ResetCalls()
			w.requireServed(s, nodes)
			assert.Empty(w, w.writes())
			assert.False(w, asked())
		}
	})
}

// TestSecondRotationOfBefore: a certificate that Oracle's own controller never replaced is replaced at the next reconciliation.
func TestSecondRotationOfBefore(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		s := secure()
		w.requireServed(s, nodes)
		w.keep("default", "web-tls")
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.NotEqual(w, "web-tls", certificateOf(w.part("listeners", "TCP-443")))
		w.keep("default", "other")
		s.Annotations[annotationTLSSecret] = "other"
		w.requireServed(s, nodes)
		assert.Equal(w, "other", certificateOf(w.part("listeners", "TCP-443")))
		assert.Len(w, w.balancer().Doc["certificates"], 1)
	})
}

// TestProtocols: scenario 32.
func TestProtocols(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		s := conformance.Service("web", byHand(annotationProtocol, "grpc", annotationSSLPorts, "443", annotationTLSSecret, "web-tls",
			annotationProxy, "2"),
			conformance.Port("https", 443, 30443))
		w.requireServed(s, nodes)
		l := w.part("listeners", "grpc-443")
		assert.Equal(w, "GRPC", l["protocol"])
		assert.Equal(w, cipherHTTP2, l["sslConfiguration"].(document)["cipherSuiteName"])
		assert.InDelta(w, 60, l["connectionConfiguration"].(document)["idleTimeout"], 0)
		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "scenario 46")
		s.Annotations[annotationProtocol] = "http"
		w.requireServed(s, nodes)
		assert.Equal(w, "HTTP", w.part("listeners", "grpc-443")["protocol"], "in place, without an outage")
	})
}

// TestProxyProtocol: scenario 33.
func TestProxyProtocol(t *testing.T) {
	t.Parallel()
	for protocol, idle := range map[string]float64{"": 300, "tcp": 300, "HTTP": 60} {
		s := conformance.Service("web", byHand(annotationProxy, "2", annotationProtocol, protocol), web())
		set, _, err := parseSettings(s, "")
		require.NoError(t, err)
		for _, l := range set.desiredListeners(s) {
			assert.Equal(t, document{"backendTcpProxyProtocolVersion": 2.0, "idleTimeout": idle}, l["connectionConfiguration"], protocol)
		}
	}
}

// TestReservedAddress: scenario 35.
func TestReservedAddress(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
		id := w.sim.AddReserved("192.0.2.10")
		s := conformance.Service("web", byHand(), web())
		s.Spec.LoadBalancerIP = "192.0.2.10"
		status := w.requireServed(s, nodes)
		assert.Equal(w, "192.0.2.10", status.Ingress[0].IP)
		assert.Equal(w, []any{document{"id": id}}, w.balancer().Doc["reservedIps"])
		second := other(byHand(), web())
		second.Spec.LoadBalancerIP = "192.0.2.10"
		_, err := w.ensure(second, nodes)
		require.ErrorContains(w, err, "is not free: the address is")
		second.Spec.LoadBalancerIP = "192.0.2.11"
		_, err = w.ensure(second, nodes)
		require.ErrorContains(w, err, "there is no such reserved public address")
		w.Server.ResetCalls()
		s.Spec.LoadBalancerIP, s.Spec.Ports[0].NodePort = "192.0.2.11", 30999
		_, err = w.ensure(s, nodes)
		require.ErrorContains(w, err, "cannot be updated after the Load Balancer is created")
		assert.Empty(w, w.writes(), "before any other change")
		for len(events.Events) > 0 {
			<-events.Events
		}
		s.Spec.LoadBalancerIP = ""
		w.requireServed(s, nodes)
		assert.Contains(w, <-events.Events, "keeps its reserved address 192.0.2.10")
	})
}

// TestAddressThatIsNotReserved: the event names what the Service says, its field or its annotation, for both kinds of load balancer.
func TestAddressThatIsNotReserved(t *testing.T) {
	eachKind(t, []string{"a"}, func(w *testWorld, s *v1.Service, nodes []*v1.Node) {
		events := record.NewFakeRecorder(10)
		w.cloud.loadBalancers.setEvents(events)
		requireEvent := func(place string) {
			w.Helper()
			w.serving(s)
			_, err := w.ensure(s, nodes)
			require.Error(w, err)
			told := <-events.Events
			assert.Contains(w, told, eventConfigError)
			assert.Contains(w, told, ": "+place+`: "192.0.2.11" there is no such reserved public address`)
		}
		s.Spec.LoadBalancerIP = "192.0.2.11"
		requireEvent("spec.loadBalancerIP")
		s.Spec.LoadBalancerIP, s.Annotations[annotationAddress] = "", "192.0.2.11"
		requireEvent("annotation " + annotationAddress)
	})
}

// TestTags: scenario 36.
func TestTags(t *testing.T) {
	t.Parallel()
	configured := tags{Freeform: map[string]string{"a": "b"}, Defined: map[string]map[string]any{"ns": {"k": "v"}}}
	assert.Equal(t, configured, settings{}.tagsOf(configured))
	assert.Equal(t, tags{Freeform: map[string]string{"c": "d"}}, settings{Freeform: `{"c": "d"}`}.tagsOf(configured), "all of those of the cloud config")
	marked := configured.withMark("anyccm:1")
	assert.Equal(t, map[string]string{"a": "b", tagCluster: "anyccm:1"}, marked.Freeform)
	assert.Len(t, configured.Freeform, 1)
}

// TestFaultsOfRuleSetsHaveAnOrder: the same faults are the same event.
func TestFaultsOfRuleSetsHaveAnOrder(t *testing.T) {
	t.Parallel()
	s := conformance.Service("web", byHand(annotationRuleSets, `{"a": {}, "b": {}, "c": {}, "d": {}}`), web())
	_, _, first := parseSettings(s, "")
	require.ErrorContains(t, first, `rule set "a" has no items`)
	for range 20 {
		_, _, err := parseSettings(s, "")
		require.EqualError(t, err, first.Error())
	}
}

// TestNullParts: parts that the cloud shows as null exist. They are deleted and changed, not created.
func TestNullParts(t *testing.T) {
	t.Parallel()
	lb := &loadBalancer{}
	require.NoError(t, json.Unmarshal([]byte(`{"listeners": {"TCP-80": null, "TCP-81": null}, "backendSets": {"TCP-80": null, "TCP-81": null}}`), lb))
	r := &loadBalancers{kind: balancerKind(Config{})}
	want := map[string]document{"TCP-81": {"port": 81.0, "policy": roundRobin}}
	actions := map[string]string{}
	for _, c := range r.changesOfParts(lb, desired{listeners: want, sets: want}) {
		actions[c.Object] = c.Action
	}
	assert.Equal(t, map[string]string{
		"listener TCP-80": contract.PlanDelete, "backend set TCP-80": contract.PlanDelete,
		"listener TCP-81": contract.PlanChange, "backend set TCP-81": contract.PlanChange,
	}, actions)
}

// TestRuleSets: scenario 37.
func TestRuleSets(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(annotationRuleSets, `{"moved": {"items": [
			{"action": "REDIRECT", "redirectUri": {"protocol": "https"}, "conditions": [{"attributeName": "PATH", "attributeValue": "/", "operator": "EXACT_MATCH"}]},
			{"action": "ADD_HTTP_REQUEST_HEADER", "header": "X-A", "value": "b"}]}}`), web())
		w.requireServed(s, nodes)
		assert.Len(w, w.part("ruleSets", "moved")["items"], 2)
		assert.Equal(w, []any{"moved"}, w.part("listeners", "TCP-80")["ruleSetNames"])
		w.Server.ResetCalls()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "what the cloud fills in is no difference")
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		s.Annotations[annotationRuleSets] = `{"other": {"items": [{"action": "REMOVE_HTTP_REQUEST_HEADER", "header": "X-A"}]}}`
		w.requireServed(s, nodes)
		for _, name := range []string{"TCP-80", "TCP-8080"} {
			assert.Equal(w, []any{"other"}, w.part("listeners", name)["ruleSetNames"], "a new listener has them at once")
		}
		assert.Len(w, w.balancer().Doc["ruleSets"], 1)
		delete(s.Annotations, annotationRuleSets)
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes(), "without the annotation they are left alone")
		s.Annotations[annotationRuleSets] = ""
		w.requireServed(s, nodes)
		assert.Empty(w, w.balancer().Doc["ruleSets"])
	})
}

// TestShapeChanges: scenario 53.
func TestShapeChanges(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		s.Annotations[annotationShape], s.Annotations[annotationShapeMin], s.Annotations[annotationShapeMax] = "Flexible", "10", "100Mbps"
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Equal(w, []string{"PUT /loadBalancers/{id}/updateShape"}, w.writes())
		assert.Equal(w, document{"minimumBandwidthInMbps": 10.0, "maximumBandwidthInMbps": 100.0}, w.balancer().Doc["shapeDetails"])
		s.Annotations[annotationShape] = "400Mbps"
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, `"400Mbps" is a fixed shape, and the load balancer is flexible`)
	})
}

// TestSubnets: scenarios 28 and 29.
func TestSubnets(t *testing.T) {
	first, second := ocisim.DomainSubnets()
	for name, c := range map[string]struct {
		annotations []string
		want        []any
	}{
		"two of a domain each":           {[]string{annotationSubnet1, first, annotationSubnet2, second}, []any{first, second}},
		"an internal one":                {[]string{annotationSubnet1, first, annotationSubnet2, second, annotationInternal, "true"}, []any{first}},
		"the second of the whole region": {[]string{annotationSubnet1, first, annotationSubnet2, ocisim.DualSubnet()}, []any{ocisim.DualSubnet()}},
		"the first of the whole region":  {[]string{annotationSubnet1, ocisim.DualSubnet()}, []any{ocisim.DualSubnet()}},
		"both of the whole region": {
			[]string{annotationSubnet1, ocisim.BalancerSubnet(), annotationSubnet2, ocisim.DualSubnet()}, []any{ocisim.DualSubnet()},
		},
	} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				w.cloud.loadBalancers.setEvents(events)
				s := conformance.Service("web", byHand(c.annotations...), web())
				w.requireServed(s, nodes)
				assert.Equal(w, c.want, w.balancer().Doc["subnetIds"])
				w.requireServed(s, nodes)
				assert.Empty(w, events.Events, "it is as it was made")
			})
		})
	}
}

// TestBothFamilies: a Service of both families has both where the subnet has them.
func TestBothFamilies(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{annotationRuleMode: "SL-Frontend"}, web())
		s.Spec.IPFamilies = []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
		s.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyRequireDualStack)
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "has no network of IPv6")
		assert.Empty(w, w.writes())
		s.Annotations[annotationSubnet1] = ocisim.DualSubnet()
		assert.Len(w, w.requireServed(s, nodes).Ingress, 2)
		assert.ElementsMatch(w, fronts(everybody, everybodyIPv6), w.sim.SecurityRules(ocisim.BalancerList))
		w.deleted(s)
		s.Annotations[annotationSubnet1] = ocisim.BalancerSubnet()
		s.Spec.IPFamilyPolicy = new(v1.IPFamilyPolicyPreferDualStack)
		assert.Len(w, w.requireServed(s, nodes).Ingress, 1)
	})
}

// TestWriteUnderETag: who changes a load balancer between our look and our write is not overwritten.
func TestWriteUnderETag(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", byHand(), web())
		w.requireServed(s, nodes)
		s.Annotations[annotationIdle] = "99"
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) {
			lb.Doc["listeners"].(document)["TCP-80"].(document)["routingPolicyName"] = "mine"
		}))
		w.requireServed(s, nodes)
		l := w.part("listeners", "TCP-80")
		assert.Equal(w, "mine", l["routingPolicyName"], "what is known was ten seconds old at most, and had not that")
		assert.InDelta(w, 99, l["connectionConfiguration"].(document)["idleTimeout"], 0)
	})
}

// TestOtherCompartment: a Service may name the compartment of its load balancer.
func TestOtherCompartment(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		const compartment = "ocid1.compartment.oc1..aaaaother"
		w.sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = compartment })
		s := conformance.Service("web", byHand(annotationCompartment, compartment), web())
		w.serving(s)
		w.requireServed(s, nodes)
		assert.Equal(w, compartment, w.balancer().Doc["compartmentId"])
		w.start()
		w.serving(s)
		w.Server.ResetCalls()
		w.requireServed(s, nodes)
		assert.Empty(w, w.writes())
		w.deleted(s)
		assert.Empty(w, w.sim.LoadBalancers())
	})
}

// TestForeignCertificate: a certificate that no Service of ours ever named stays, even where a listener had it.
func TestForeignCertificate(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		s := secure()
		w.serving(s)
		w.requireServed(s, nodes)
		require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) {
			lb.Doc["certificates"].(document)["mine"] = document{"certificateName": "mine", "publicCertificate": "x"}
			for _, part := range []document{follow(lb.Doc, "listeners", "TCP-80"), follow(lb.Doc, "listeners", "TCP-443")} {
				part["sslConfiguration"] = document{"certificateName": "mine", "verifyDepth": 0.0, "verifyPeerCertificate": false}
			}
		}))
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Equal(w, "web-tls", certificateOf(w.part("listeners", "TCP-443")))
		assert.NotNil(w, w.part("certificates", "mine"))
	})
}

// TestCertificateOfAFormerProcess: nobody knows which Secrets a Service named before the start. A certificate of one goes if that Secret
// still holds it, or if its name has the digest of its content. Others stay: somebody may have uploaded them, and have their keys nowhere
// else.
func TestCertificateOfAFormerProcess(t *testing.T) {
	for name, c := range map[string]struct {
		renewed bool
		after   func(w *testWorld)
		stays   bool
	}{
		"its Secret is there":             {},
		"it was renewed":                  {renewed: true},
		"it was renewed, its Secret went": {renewed: true, after: func(w *testWorld) { w.lose() }},
		"its Secret went":                 {after: func(w *testWorld) { w.lose() }, stays: true},
		"its Secret holds something else": {after: func(w *testWorld) { w.keep("default", "web-tls") }, stays: true},
		"its Secret is in another namespace": {after: func(w *testWorld) {
			s := w.lose()
			s.Namespace, s.ResourceVersion = "other", ""
			_, err := w.kube.CoreV1().Secrets("other").Create(w.Context(), s, metav1.CreateOptions{})
			require.NoError(w, err)
		}, stays: true},
	} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				w.keep("default", "web-tls")
				s := secure()
				w.requireServed(s, nodes)
				if c.renewed {
					w.keep("default", "web-tls")
					time.Sleep(time.Minute)
					w.requireServed(s, nodes)
				}
				former, _ := certificateOf(w.part("listeners", "TCP-443")).(string)
				require.Equal(w, c.renewed, former != "web-tls")
				require.NoError(w, w.sim.EditLoadBalancer(testUID, func(lb *ocisim.LoadBalancer) {
					lb.Doc["certificates"].(document)["mine-20240131"] = document{"certificateName": "mine-20240131", "publicCertificate": "x"}
				}))
				w.start()
				if c.after != nil {
					c.after(w)
				}
				w.keep("default", "other")
				s.Annotations[annotationTLSSecret] = "other"
				w.requireServed(s, nodes)
				assert.Equal(w, "other", certificateOf(w.part("listeners", "TCP-443")))
				want := []string{"mine-20240131", "other"}
				if c.stays {
					want = append(want, former)
				}
				assert.ElementsMatch(w, want, slices.Collect(maps.Keys(w.balancer().Doc["certificates"].(document))))
			})
		})
	}
}

// TestSecretDeletedWithItsName: a Service names another Secret, and the former one is deleted before the Service is reconciled. Its
// certificate goes nevertheless: the process knows that the Service named it.
func TestSecretDeletedWithItsName(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		s := secure()
		w.requireServed(s, nodes)
		w.keep("default", "other")
		s.Annotations[annotationTLSSecret] = "other"
		w.lose()
		w.requireServed(s, nodes)
		assert.Equal(w, []string{"other"}, slices.Collect(maps.Keys(w.balancer().Doc["certificates"].(document))))
	})
}

// TestRotationOfBackends: the certificates of backend sets are replaced, too, and their backends stay.
func TestRotationOfBackends(t *testing.T) {
	balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		w.keep("default", "web-tls")
		w.keep("default", "back")
		s := secure(annotationBackSecret, "back")
		asked := w.retries(s)
		w.requireServed(s, nodes)
		secret := w.keep("default", "back")
		time.Sleep(time.Minute)
		require.True(w, asked())
		w.requireServed(s, nodes)
		name, _ := certificateOf(w.part("backendSets", "TCP-443")).(string)
		assert.Equal(w, string(secret.Data[v1.TLSCertKey]), w.part("certificates", name)["publicCertificate"])
		assert.Len(w, fieldOf[[]any](w.part("backendSets", "TCP-443"), "backends"), 1)
		assert.Len(w, w.balancer().Doc["certificates"], 2)
	})
}
