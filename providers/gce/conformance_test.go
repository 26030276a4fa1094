package gce

import (
	"encoding/json"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcesim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

const testToken = "gce-token"

// activation is the approximate duration of operations in tests.
const activation = 2 * time.Second

func TestConformance(t *testing.T) {
	t.Parallel()
	conformance.Run(t, newFixture)
}

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) {
	t.Parallel()
	conformance.Soak(t, newFixture)
}

// testInputs returns the inputs of a provider with a gce.conf.
func testInputs(file string, env map[string]string) registry.Inputs {
	in := conformance.Inputs(nil, env)
	in.File, in.ClusterCIDR = []byte(file), conformance.ClusterCIDR
	return in
}

// cases are external and internal load balancers.
func cases() map[string]conformance.Case {
	return map[string]conformance.Case{
		"plain": {
			Service: testService("plain", conformance.Port("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: richService(),
			Change: func(s *v1.Service) {
				s.Spec.SessionAffinity = v1.ServiceAffinityNone
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
			},
		},
		"within": {
			Service: internalService("internal"),
			Change: func(s *v1.Service) {
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
				s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
			},
		},
		"withinShared": {
			Service: func() *v1.Service {
				s := internalService("shared-internal")
				s.Annotations[annotationShare] = "true"
				return s
			}(),
			Change: func(s *v1.Service) { s.Spec.SessionAffinity = v1.ServiceAffinityClientIP },
		},
		"withinRich": {Service: richInternal(), Change: func(s *v1.Service) {
			s.Annotations[annotationGlobalAccess] = "false"
			s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyCluster, 0
		}},
	}
}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := gcesim.New(testToken, activation)
	judge(t, sim)
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	file, env := sim.CloudConfig(url), sim.Environment(url)
	sim.Put("regions/us-central1/addresses/reserved", map[string]any{"address": "203.0.113.200"})
	number := 0
	return tryOthers(sim, &conformance.Fixture{
		UDP:          conformance.FeatureCase{Shows: `"IPProtocol": "UDP"`},
		SourceRanges: conformance.FeatureCase{Scope: scopeOf(sim)},
		Scopes: map[string]conformance.FeatureCase{
			"internal": {With: internalService("").Annotations, Scope: scopeOf(sim), FullTier: true},
		},
		Strictness: conformance.Strictness{
			Immediate: "a change shows before its operation, which is waited for, is done",
			Free:      map[string]string{"description": "a text for people, which the API does not look at"},
			Unlimited: unlimited(),
		},
		OtherCluster: func() {}, // names come from the Service's UID, and clusters differ by the UID of kube-system
		Services:     cases(),
		Portable: map[string]conformance.PortableCase{
			portable.Address: {Value: "203.0.113.200"},
			portable.Scheme: {Value: portable.SchemeInternal, Seen: func() string {
				if scheme := sim.Objects("forwardingRules")[0]["loadBalancingScheme"]; scheme != schemeInternal {
					return fmt.Sprint("the scheme is ", scheme)
				}
				return ""
			}},
		},
		Transcripts: transcripts, Secrets: []string{testToken}, Interrupts: interrupts(), Scenarios: scenarios(sim), Untranscribed: untranscribed,
		TakenOver:     map[string]conformance.Left{"external": leftExternal(sim)},
		PlannedWrites: plannedWrites, ReadAgain: readAgain, Unplanned: unplanned, Serves: sim.Serves,
		EmptyOfNodes: regexp.MustCompile(`\n\{\n "kind": "compute#instanceGroup",[^}]*"size": 0,[^}]*\}`),
		Target:       func(_ *v1.Service, port v1.ServicePort) int32 { return port.Port },
		Snapshot:     func() string { return snapshot(sim) }, Names: func() map[string]string { return fingerprints(sim) },
		Sim: server, Network: network, Provider: Description(),
		Inputs: func() registry.Inputs { return testInputs(file, env) },
		AddInstance: func(name string) string {
			number++
			return sim.AddInstance(gcesim.Spec{Name: name, Zone: fmt.Sprintf("%s-%c", gcesim.Region, 'a'+number%3)})
		},
		RemoveInstance: sim.RemoveInstanceByID,
		PowerOff:       func(id string) { require.NoError(t, sim.SetStatus(id, "TERMINATED")) },
		Resize:         func(id string) { sim.Edit("instances", path.Base(id), resize) },
		Tag: func(id string, tags map[string]string) {
			sim.Edit("instances", path.Base(id), func(i map[string]any) { i["labels"] = tags })
		},
		Routes:          func() {}, // the inputs have ClusterCIDR
		InstanceListing: "GET aggregated/instances",
		RefuseAccount:   func() { sim.SetToken("another") },
		OtherAccount:    sim.RemoveInstances,
		MalformedIDs: []string{
			providerIDPrefix, providerIDPrefix + "a/b", providerIDPrefix + "a/b/c/d", providerIDPrefix + "my-project/us-central1-a/", providerIDPrefix + "A/b/c",
			providerIDPrefix + "another-project/us-central1-a/worker-1",
		},
	})
}

func testService(name string, ports ...v1.ServicePort) *v1.Service {
	s := conformance.Service(name, nil, ports...)
	s.Spec.IPFamilies, s.Spec.ExternalTrafficPolicy = []v1.IPFamily{v1.IPv4Protocol}, v1.ServiceExternalTrafficPolicyCluster
	return s
}

// richService uses as many features as possible.
func richService() *v1.Service {
	s := testService("rich", conformance.Port("a", 80, 30080), conformance.Port("b", 81, 30081), conformance.Port("c", 443, 30443))
	s.Annotations[annotationTier] = "Standard"
	s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"}
	return s
}

func internalService(name string) *v1.Service {
	s := testService(name, conformance.Port("http", 80, 30080))
	s.Annotations[annotationType] = "Internal"
	return s
}

func richInternal() *v1.Service {
	s := internalService("rich-internal")
	s.Annotations[annotationGlobalAccess] = "true"
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 30999
	for i := range int32(6) {
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port(fmt.Sprint("p", i), 9000+i, 31000+i))
	}
	return s
}

// clusterIDs are random.
var clusterIDs = regexp.MustCompile(`\b[0-9a-f]{16}\b`)

var snapshotKinds = []string{
	"forwardingRules", "targetPools", "httpHealthChecks", "firewalls", "addresses", "backendServices", "healthChecks", "instanceGroups",
}

// snapshot prints the cloud's objects for Services, without fields that vary from run to run.
func snapshot(sim *gcesim.Sim) string {
	var all strings.Builder
	ips := map[string]string{}
	for _, rule := range sim.Objects("forwardingRules") {
		if rule["IPAddress"] != "203.0.113.200" {
			ips[fmt.Sprint(rule["IPAddress"])] = fmt.Sprint("IP of ", rule["name"])
		}
	}
	for _, kind := range snapshotKinds {
		for _, o := range sim.Objects(kind) {
			if o["name"] == "reserved" {
				continue
			}
			for _, key := range []string{"id", "creationTimestamp", "fingerprint", "labelFingerprint", "selfLinkWithId"} {
				delete(o, key)
			}
			if list, ok := o["instances"].([]any); ok {
				slices.SortFunc(list, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
			}
			text, _ := json.MarshalIndent(o, "", " ") // it was JSON
			line := clusterIDs.ReplaceAllString(string(text), "CLUSTER")
			for ip, name := range ips {
				line = strings.ReplaceAll(line, ip+`\`, name+`\`)
				line = strings.ReplaceAll(line, `"`+ip+`"`, `"`+name+`"`)
			}
			all.WriteString(line + "\n")
		}
	}
	return all.String()
}

// unlimited are the texts and lists without a limit.
func unlimited() map[string]string {
	const unbounded = "the discovery document of Compute Engine bounds it nowhere"
	all := map[string]string{}
	for _, path := range []string{"description", "*requestPath", "healthChecks", "allowed*", "destinationRanges", "targetTags"} {
		all[path] = unbounded
	}
	return all
}

// resize gives an instance another machine type.
func resize(i map[string]any) {
	i["machineType"] = strings.Replace(i["machineType"].(string), "e2-standard-4", "e2-standard-8", 1)
}
