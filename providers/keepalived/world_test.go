package keepalived

import (
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// stage is a cluster with processes of the provider.
type stage struct {
	*conformance.Bench

	api    *conformance.KubeAPI
	server *simkit.Server
	client kubernetes.Interface
	env    map[string]string
}

// onStage runs a test in virtual time, with existing ConfigMaps.
func onStage(t *testing.T, env map[string]string, test func(t *testing.T, s *stage), configMaps ...*v1.ConfigMap) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := &stage{Bench: conformance.NewBench(t), api: conformance.NewKubeAPI(configMaps...), env: env}
		s.server = simkit.New(s.api)
		network := simkit.NewNetwork()
		s.client = s.api.Client(t, network, network.Serve(t, s.server), s.Kube)
		test(t, s)
	})
}

// start starts a process with empty memory.
func (s *stage) start() *cloud {
	s.T.Helper()
	config, _, err := parseConfig(conformance.Inputs(nil, s.env))
	require.NoError(s.T, err)
	c, err := buildCloud(config, noAPI{}, conformance.Inputs(nil, s.env))
	require.NoError(s.T, err)
	c.kube = s.client
	c.reconciler.setClient(s.client)
	c.reconciler.cluster.SetServices(s.Services())
	c.reconciler.setNodes(s.Nodes())
	c.loadBalancers.Events = s.Recorder
	return c
}

// ensure reconciles a Service and writes its status.
func (s *stage) ensure(c *cloud, service *v1.Service) ([]v1.LoadBalancerIngress, error) {
	status, err := c.loadBalancers.EnsureLoadBalancer(s.T.Context(), "", s.Current(service), nil)
	if err != nil {
		return nil, err
	}
	s.SetStatus(service, status)
	return status.Ingress, nil
}

func (s *stage) requireServed(c *cloud, service *v1.Service) string {
	s.T.Helper()
	ingress, err := s.ensure(c, service)
	require.NoError(s.T, err)
	require.NotEmpty(s.T, ingress)
	return ingress[0].IP
}

func (s *stage) writes() int { return s.server.Calls().Writes }

var vipEnv = map[string]string{envConfigMap: "vips", envNamespace: "network", envServiceCIDR: "10.210.38.64/26"}

// vips returns the ConfigMap of keepalived-cloud-provider.
func vips(registry string, data map[string]string) *v1.ConfigMap {
	cm := configMap("network", "vips", data)
	if registry != "" {
		cm.Annotations = map[string]string{annotationRegistry: registry}
	}
	return cm
}

func (s *stage) vips() *v1.ConfigMap { return s.api.ConfigMap("network", "vips") }

func inputs(env map[string]string) registry.Inputs { return conformance.Inputs(nil, env) }

func asks(address string) func(*v1.Service) {
	return func(s *v1.Service) { s.Spec.LoadBalancerIP = address }
}

func annotated(address string) func(*v1.Service) {
	return func(s *v1.Service) { s.Annotations = map[string]string{annotationIPs: address} }
}

// requireRefusal: a Service is refused with an event, and nothing is written.
func (s *stage) requireRefusal(c *cloud, service *v1.Service, reason, words string) {
	s.T.Helper()
	before := s.writes()
	_, err := s.ensure(c, service)
	require.Error(s.T, err, service.Name)
	events := strings.Join(s.Events(), "\n")
	assert.Contains(s.T, events, "Warning "+reason)
	assert.Contains(s.T, events, words)
	assert.Equal(s.T, before, s.writes())
}

var confEnv = map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24,fd98::/64"}

// addressesOf returns the addresses recorded for a Service.
func (s *stage) addressesOf(c *cloud, service *v1.Service) []netip.Addr {
	s.T.Helper()
	if c.reconciler.usesAnnotations() {
		return annotatedAddresses(s.Current(service))
	}
	rec, err := c.reconciler.book.read(s.T.Context())
	require.NoError(s.T, err)
	return rec.entryOf(string(service.UID)).addresses()
}

// fromServer reads a Service from the API server.
func (s *stage) fromServer(service *v1.Service) *v1.Service {
	now, err := s.Kube.CoreV1().Services(service.Namespace).Get(s.T.Context(), service.Name, metav1.GetOptions{})
	if err != nil {
		return service
	}
	return now
}
