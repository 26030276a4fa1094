package openstack

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func TestConformance(t *testing.T) { t.Parallel(); conformance.Run(t, newFixture) }

// TestSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestSchedules(t *testing.T) { t.Parallel(); conformance.Soak(t, newFixture) }

// testInputs are the inputs of a provider with a cloud.conf.
func testInputs(file string, env map[string]string) registry.Inputs {
	in := conformance.Inputs(nil, env)
	in.File = []byte(file)
	return in
}

func serverID(t testing.TB, providerID string) string {
	id, err := Config{}.parseProviderID(providerID)
	require.NoError(t, err)
	return id
}

// anyText is why a field takes any value.
const anyText = "a text for people, which the API does not look at"

// Why lists have no limit.
const (
	countless = "the services count no items of it"
	quota     = "the quota of the project decides, for which there is no number"
)

// strictness is where the simulator is kind, as the services are.
func strictness() conformance.Strictness {
	return conformance.Strictness{
		Immediate: "Octavia, Neutron and Nova answer from the database that they write to",
		Free: map[string]string{
			"loadbalancer.description": anyText, "loadbalancer.name": anyText, "loadbalancer.tags[]": anyText, "loadbalancer.listeners[].name": anyText,
			"loadbalancer.listeners[].tags[]": anyText, "loadbalancer.listeners[].default_pool.name": anyText,
			"loadbalancer.listeners[].default_pool.members[].name": anyText, "loadbalancer.listeners[].default_pool.healthmonitor.name": anyText,
			"listener.name": anyText, "listener.tags[]": anyText, "pool.name": anyText, "pool.tags[]": anyText, "members[].name": anyText, "member.name": anyText,
			"healthmonitor.name":     anyText,
			"floatingip.description": anyText, "security_group.name": anyText, "security_group.description": anyText,
		},
		Unlimited: map[string]string{
			"*url_path": "Octavia checks the form alone", "*tags": countless, "*allowed_cidrs": countless, "*listeners": quota, "*members": quota,
			"port.security_groups": countless,
		},
		LimitsElsewhere: map[string]string{"routes of a router": "TestManyRoutes"},
	}
}

var eachNode = conformance.EachNode{
	Why: "each port of a node gets the security group, and Neutron has no call for several", Calls: 1, Time: 6 * time.Millisecond,
}

func newFixture(t testing.TB) *conformance.Fixture {
	sim, server := openstacksim.New(openstacksim.Options{})
	sim.CloseNodePorts()
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	file := sim.CloudConfig(url) + "manage-security-groups = true\n"
	f := &conformance.Fixture{
		OnlyThere: []string{`^choosing the subnet of the floating address: `, `^creating load balancer `, `^creating a floating address: quota exceeded`},
		Sim:       server, Network: network,
		Provider:       Description(),
		Inputs:         func() registry.Inputs { return testInputs(file, nil) },
		Routes:         func() { file += "[Route]\nrouter-id = " + sim.Routers()[0].ID + "\n" },
		AddInstance:    func(name string) string { return providerIDPrefix + "/" + sim.AddServer(openstacksim.Spec{Name: name}) },
		RemoveInstance: func(id string) { sim.Remove(serverID(t, id)) },
		PowerOff:       func(id string) { require.NoError(t, sim.SetStatus(serverID(t, id), "SHUTOFF")) },
		Resize: func(id string) {
			sim.AddFlavor("9", "m1.huge")
			sim.Edit(serverID(t, id), func(v *openstacksim.Server) { v.FlavorID = "9" })
		},
		Tag: func(id string, tags map[string]string) {
			sim.Edit(serverID(t, id), func(v *openstacksim.Server) { v.Metadata = tags })
		},
		InstanceListing: "GET /compute/v2.1/servers/detail",
		RefuseAccount:   func() { sim.SetPassword("another") },

		RemoveLoadBalancers: sim.RemoveLoadBalancers,
		OtherAccount:        sim.RemoveAll,
		SetRightWithNodes:   "a load balancer that somebody changed is set right at the next occasion",
		EachNode:            eachNode,
		Strictness:          strictness(),
		// The port goes with its server, and what the port had with it.
		StateWithoutInstance: func(state, server string) string {
			return strings.ReplaceAll(state, ",\n \"on "+server+"\"", "")
		},
		MalformedIDs: []string{
			providerIDPrefix, providerIDPrefix + "/", providerIDPrefix + "abc", providerIDPrefix + "a/b/c",
			providerIDPrefix + "OtherRegion/7a6c3b52-1f0e-4b58-8b4b-0a61c1f9e0a1",
		},
		Services: triedServices(), Transcripts: transcripts, Scenarios: scenarios(sim, url), Secrets: []string{openstacksim.Password},
		Serves: sim.Serves, PlannedWrites: plannedWrites, ReadAgain: readAgain,
		SourceRanges: conformance.FeatureCase{ClosesLater: closesLater, Scope: scopeOf(sim, "listeners and groups")},
		Scopes: map[string]conformance.FeatureCase{
			providerOVN: {Prepare: func() { file += "lb-provider = ovn\n" }, Scope: scopeOf(sim, providerOVN)},
			"listeners": {
				Prepare:     func() { file = strings.Replace(file, "manage-security-groups = true\n", "", 1) },
				ClosesLater: "listeners let in whom they do until they go with their load balancer", Scope: listenersOf(sim), FullTier: true,
			},
		},
		Names: func() map[string]string { return names(sim) }, Interrupts: interrupts, Unplanned: unplanned, Untranscribed: untranscribed,
		Fixed:    fixedCases(sim, func(sections string) { file += sections }),
		Portable: portableCases(sim, url), Snapshot: func() string { return snapshot(t, sim) }, UDP: conformance.FeatureCase{Shows: `"UDP"`},
	}
	f.TakenOver = leftCases(t, sim, f)
	return tryOthers(t, sim, f)
}

// triedServices are a Service with little and one with much, and how each changes.
func triedServices() map[string]conformance.Case {
	return map[string]conformance.Case{
		"plain": {
			Service: service("plain", map[string]string{annotationMonitor: textFalse}, servicePort("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, servicePort("alt", 8080, 30081)) },
		},
		"rich": {
			Service: richService(),
			Change: func(s *v1.Service) {
				s.Annotations[annotationConnectionLimit] = "500"
				s.Annotations[annotationProxyProtocol] = "v2"
				s.Annotations[annotationMonitorDelay] = "11"
				s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"}
				s.Spec.Ports = s.Spec.Ports[1:]
			},
		},
	}
}

// byHand makes a load balancer as a user would, with a floating address.
func byHand(t testing.TB, sim *openstacksim.Sim) string {
	lb := sim.AddLoadBalancer("by-hand", firstSubnet)
	address := sim.AddFloatingIP(sim.Networks()[0].ID, "203.0.113.90", "by hand")
	require.NoError(t, sim.AttachFloatingIP(address, lb.VIPPortID))
	return lb.ID
}

// snapshot prints the cloud's objects for Services, without the identifiers and times that differ from run to run.
func snapshot(t testing.TB, sim *openstacksim.Sim) string {
	var all strings.Builder
	show := func(v any) {
		text, err := json.MarshalIndent(withoutEmpty(t, v), "", " ")
		require.NoError(t, err)
		all.Write(text)
	}
	names, servers := map[string]string{}, map[string]string{}
	for _, s := range sim.List() {
		servers[s.ID] = s.Name
	}
	for _, lb := range sim.LoadBalancers() {
		names[lb.VIPPortID] = lb.Name
		lb.ID, lb.VIPAddress, lb.VIPPortID, lb.CreatedAt, lb.UpdatedAt = "", "", "", "", ""
		lb.Listeners, lb.Pools = nil, nil
		show(lb)
	}
	snapshotListeners(sim, show)
	for _, f := range sim.FloatingIPs() {
		show(fmt.Sprint("floating address ", f.Description, " at ", names[deref(f.PortID)]))
	}
	for _, g := range sim.SecurityGroups() {
		lines := []string{g.Name}
		for _, r := range g.Rules {
			lines = append(lines, fmt.Sprint(r.Direction, r.EtherType, deref(r.Protocol), deref(r.Min), deref(r.Prefix)))
		}
		for _, p := range sim.Ports() {
			if slices.Contains(p.SecurityGroups, g.ID) {
				lines = append(lines, "on "+servers[p.DeviceID])
			}
		}
		slices.Sort(lines)
		show(lines)
	}
	return all.String()
}

// usual are the values of fields that all objects have which are at rest.
var usual = map[string][]any{
	"admin_state_up": {true}, "provisioning_status": {"ACTIVE"}, "operating_status": {"ONLINE", "OFFLINE"}, "project_id": {openstacksim.Project},
}

// withoutEmpty is v as JSON, less the fields that hold nothing, or what all objects have.
func withoutEmpty(t testing.TB, v any) any {
	text, err := json.Marshal(v)
	require.NoError(t, err)
	var all any
	require.NoError(t, json.Unmarshal(text, &all))
	var prune func(v any) any
	prune = func(v any) any {
		switch v := v.(type) {
		case []any:
			for i := range v {
				v[i] = prune(v[i])
			}
		case map[string]any:
			for key, value := range v {
				empty := slices.Contains([]string{"<nil>", "", "[]", "map[]"}, fmt.Sprint(prune(value)))
				if v[key] = prune(value); empty || slices.Contains(usual[key], value) {
					delete(v, key)
				}
			}
		}
		return v
	}
	return prune(all)
}

// snapshotListeners shows each listener with its pool, members and monitor, and then what belongs to none.
func snapshotListeners(sim *openstacksim.Sim, show func(any)) {
	pools, monitors := map[string]openstacksim.Pool{}, map[string]openstacksim.Monitor{}
	for _, p := range sim.Pools() {
		pools[p.ID] = p
	}
	for _, m := range sim.Monitors() {
		monitors[m.ID] = m
	}
	listeners := sim.Listeners()
	slices.SortFunc(listeners, func(a, b openstacksim.Listener) int { return strings.Compare(a.Name, b.Name) })
	for _, l := range listeners {
		if p, ok := pools[deref(l.DefaultPoolID)]; ok {
			delete(pools, p.ID)
			lines := []string{}
			for _, m := range p.BackendMembers() {
				lines = append(lines, fmt.Sprint(m.Name, " ", m.ProtocolPort, " ", m.SubnetID != nil, " ", deref(m.MonitorPort)))
			}
			slices.Sort(lines)
			m := monitors[p.MonitorID]
			delete(monitors, m.ID)
			m.ID, m.Pools, m.UpdatedAt = "", nil, nil
			p.ID, p.MonitorID, p.Members, p.Listeners, p.LoadBalancers, p.UpdatedAt = "", "", nil, nil, nil, nil
			show([]any{p, lines, m})
		}
		l.ID, l.DefaultPoolID, l.LoadBalancers, l.UpdatedAt = "", nil, nil, nil
		l.AllowedCIDRs = slices.Sorted(slices.Values(l.AllowedCIDRs)) // their order means nothing
		show(l)
	}
	if len(pools)+len(monitors) > 0 {
		show(fmt.Sprint("left over: ", slices.Collect(maps.Values(pools)), slices.Collect(maps.Values(monitors))))
	}
}

// servicePort is a port of a Service.
var servicePort = conformance.Port

func service(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", Annotations: annotations},
		Spec: v1.ServiceSpec{
			Type: v1.ServiceTypeLoadBalancer, Ports: ports, IPFamilies: []v1.IPFamily{v1.IPv4Protocol},
			ExternalTrafficPolicy: v1.ServiceExternalTrafficPolicyCluster,
		},
	}
}

// richService uses everything at once that does not exclude something else.
func richService() *v1.Service {
	udp := servicePort("quic", 443, 30443)
	udp.Protocol = v1.ProtocolUDP
	s := service("rich", map[string]string{
		annotationConnectionLimit: "100", annotationMethod: "LEAST_CONNECTIONS", annotationProxyProtocol: "v1", annotationClientData: "60000",
		annotationMemberConnect: "6000", annotationMemberData: "70000", annotationTCPInspect: "10", annotationMonitor: textTrue,
		annotationMonitorDelay:   "10",
		annotationMonitorTimeout: "7", annotationMonitorRetries: "2", annotationMonitorRetriesDown: "4", annotationZone: "nova",
	}, servicePort("http", 80, 30080), servicePort("https", 443, 30444), udp)
	s.Spec.SessionAffinity = v1.ServiceAffinityClientIP
	s.Spec.ExternalTrafficPolicy = v1.ServiceExternalTrafficPolicyLocal
	s.Spec.HealthCheckNodePort = 30999
	s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "192.0.2.0/24"}
	return s
}
