package keepalived

import (
	"cmp"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

func configMap(namespace, name string, data map[string]string) *v1.ConfigMap {
	return &v1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Data: data}
}

func newFixture(t testing.TB) *conformance.Fixture {
	api := conformance.NewKubeAPI(configMap(defaultNamespace, defaultPool, map[string]string{"cidr-global": "203.0.113.0/24,2001:db8::/64"}))
	api.Held = func(all []*v1.ConfigMap) (held []string) {
		for _, cm := range all {
			rec, err := readRecord(cm)
			require.NoError(t, err)
			for _, e := range rec.entries {
				held = append(held, e.title()+" "+texts(e.addresses()))
			}
		}
		return held
	}
	server, network := simkit.New(api), simkit.NewNetwork()
	url, env := network.Serve(t, server), map[string]string{envAnnouncer: announcerKeepalived}
	families := func(s *v1.Service, policy v1.IPFamilyPolicy, families ...v1.IPFamily) {
		s.Spec.IPFamilyPolicy, s.Spec.IPFamilies = &policy, families
	}
	dual := conformance.Service("dual", nil, conformance.Port("http", 80, 30080), conformance.Port("https", 443, 30443))
	families(dual, v1.IPFamilyPolicyRequireDualStack, v1.IPv6Protocol, v1.IPv4Protocol)
	return &conformance.Fixture{
		Sim: server, Network: network, Provider: Description(),
		Transcripts: transcripts, Scenarios: scenarios(api, env), PlannedWrites: plannedWrites,
		Inputs: func() registry.Inputs {
			return conformance.Inputs(nil, env)
		},
		Kube: func(rest kubernetes.Interface) kubernetes.Interface { return api.Client(t, network, url, rest) },
		Services: map[string]conformance.Case{
			"plain": {
				Service: conformance.Service("plain", nil, conformance.Port("http", 80, 30080)),
				Change:  func(s *v1.Service) { families(s, v1.IPFamilyPolicyPreferDualStack, v1.IPv4Protocol, v1.IPv6Protocol) },
			},
			"dual": {
				Service: dual,
				Change:  func(s *v1.Service) { families(s, v1.IPFamilyPolicySingleStack, v1.IPv6Protocol) },
			},
		},
		ClusterInSettings: true, DualStack: conformance.FeatureCase{Shows: "2001:db8::"},
		Outsiders: conformance.Outsiders{Address6: func() (string, map[string]string) { return "2001:db8::7", nil }},
		Portable:  map[string]conformance.PortableCase{portable.Address: {Value: "203.0.113.77"}},
		Strictness: conformance.Strictness{
			Ordered:   map[string]string{"*": "a ConfigMap has no lists but what is in its texts"},
			Free:      map[string]string{"*": "a ConfigMap takes any text"},
			Immediate: "the API server answers reads of single objects with what was written last",
		},
		Snapshot: func() string {
			cm := api.ConfigMap(cmp.Or(env[envNamespace], defaultNamespace), cmp.Or(env[envConfigMap], defaultBook))
			rec, err := readRecord(cm)
			require.NoError(t, err)
			if len(rec.entries) == 0 {
				return ""
			}
			text, err := json.Marshal(rec.entries)
			require.NoError(t, err)
			if env[envAnnouncer] == announcerKeepalived {
				require.NoError(t, verify(cm.Data[keyConfiguration]))
			}
			return string(text) + cm.Data[keyConfiguration]
		},
	}
}
