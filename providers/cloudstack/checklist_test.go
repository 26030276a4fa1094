package cloudstack

import (
	_ "embed"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/cloudstack/cloudstacksim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// checklistRows are the legal and the illegal values of each annotation. Requests are forms, so that the tests named show where values
// arrive.
var checklistRows = map[string]conformance.Checked{
	annotationProxyProtocol: {Elsewhere: "TestProxyProtocolIsSwitchedInPlace", Illegal: []string{"enabled", "v1"}, Lenient: true},
	annotationHostname:      {Elsewhere: "TestHostname"},
	annotationSourceCIDRs:   {Elsewhere: "TestNetworksThatMayReachARule", Illegal: []string{"10.0.0.0", "10.0.0.0/8,", "all", "10.0.0.0/8,10.0.0.0/33"}},
	annotationAddress:       {Elsewhere: "TestAddresses", Illegal: []string{"first", "2001:db8::1", "192.0.2.1,192.0.2.2"}},
	annotationKeepIP:        {Elsewhere: "TestAddresses", Illegal: []string{"maybe"}},
	annotationStickiness:    {Elsewhere: "TestStickiness", Illegal: []string{"AppCookie", "cookie"}},
	annotationStickinessParams: {
		With: map[string]string{annotationStickiness: "SourceBased"}, Elsewhere: "TestStickinessOf", Illegal: []string{"tablesize=", "mode=insert", "x"},
	},
	annotationSticky:     {Elsewhere: "TestStickiness", Illegal: []string{"maybe"}, Lenient: true},
	annotationAssociated: {Elsewhere: "TestAddresses", Illegal: []string{"maybe"}, Lenient: true},
	annotationRecord:     {Elsewhere: "TestLostAddress", Illegal: []string{"x"}},
}

func TestAnnotationChecklist(t *testing.T) {
	t.Parallel()
	conformance.Checklist{
		Rows: Annotations.Rows(), Items: checklistRows, Prefix: annotationPrefix, Creation: "createLoadBalancerRule",
		Refused: eventConfigError, Ignored: eventIgnored,
		Service: func(annotations map[string]string) *v1.Service {
			return service("web", annotations, port("http", 80, 30080))
		},
		Check: func(s *v1.Service) (warnings, err error) { return checkService(registry.Inputs{}, s) },
		New: func(t *testing.T) conformance.Subject {
			t.Helper()
			sim, server := cloudstacksim.New(cloudstacksim.Options{})
			w := &world{Bench: conformance.NewBench(t), sim: sim, server: server, url: server.Start(t)}
			w.restart()
			w.addNode("node-1")
			return conformance.Subject{
				Bench: w.Bench, Server: server, Serve: func(s *v1.Service) { w.ensure(s) },
				Ensure: func(s *v1.Service) error {
					_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "", s, w.nodes)
					return err
				},
			}
		},
	}.Run(t)
}

// TestHostname: it is in the status instead of the address, and nothing is written for it.
func TestHostname(t *testing.T) {
	inWorld(t, nil, func(w *world) {
		t := w.T
		s := service("web", nil, port("http", 80, 30080))
		w.Apply(s)
		ip := w.ensure(s).Ingress[0].IP
		before := w.writes()
		w.alter(s, func(s *v1.Service) { s.Annotations = map[string]string{annotationHostname: "www.example.com"} })
		assert.Equal(t, []v1.LoadBalancerIngress{{Hostname: "www.example.com"}}, w.ensure(s).Ingress)
		w.alter(s, func(s *v1.Service) { s.Annotations = nil })
		assert.Equal(t, []v1.LoadBalancerIngress{{IP: ip}}, w.ensure(s).Ingress)
		assert.Equal(t, before, w.writes())
	})
}

//go:embed testdata/examples.yaml
var examples string

// TestExamples holds the examples of the page against the tables.
func TestExamples(t *testing.T) {
	t.Parallel()
	for _, s := range conformance.Examples(t, examples, checkService) {
		set, _, err := parseSettings(s)
		require.NoError(t, err)
		assert.Len(t, wantedRules(s, set), len(s.Spec.Ports))
	}
}
