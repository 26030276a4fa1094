package vsphere

import (
	"context"
	"encoding/json"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsx"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	nsxUser     = "admin"
	nsxPassword = "nsx-secret"
)

var (
	service = conformance.Service
	port    = conformance.Port
)

// annotationClass names the class of a load balancer.
const annotationClass = "loadbalancer.vmware.io/class"

// nsxTestConfig is the configuration of a provider with load balancers and routes at a simulator.
func nsxTestConfig(t testing.TB, url string) (c nsx.Config) {
	c.NSXT.Host, c.NSXT.User, c.NSXT.Password = url, nsxUser, schema.NewSecret(nsxPassword)
	l := &c.LoadBalancer
	l.Size, l.Tier1GatewayPath, c.Route.RouterPath = "SMALL", nsxsim.Tier1, nsxsim.Tier1
	l.Class.IPPoolName, l.Class.TCPAppProfileName, l.Class.UDPAppProfilePath = nsxsim.PoolName, path.Base(nsxsim.TCPProfile), nsxsim.UDPProfile
	require.NoError(t, c.AddClasses(map[string]map[string]string{"dmz": {"ipPoolId": nsxsim.OtherPool}}, ""))
	return c
}

// nsxPart is the part of the provider that needs NSX alone, as a cloud of its own.
type nsxPart struct {
	cloudbase.Cloud
	cloudbase.WithLoadBalancers
	cloudbase.WithRoutes
	parts *nsx.Parts
	nodes nodecount.Counter
}

func newNSXPart(c nsx.Config, in registry.Inputs) (*nsxPart, error) {
	p := &nsxPart{}
	parts, err := nsx.New(c, Name, in, nsx.Nodes{Counter: &p.nodes, Addresses: ofStatus})
	if err != nil {
		return nil, err
	}
	p.parts = parts
	p.Name, p.Begin, p.Check = Name, parts.Lead, parts.CheckAPI
	p.ServiceAPI, p.RouteAPI = parts.Implementations()
	return p, nil
}

// SetInformers implements cloudprovider.InformerUser.
func (p *nsxPart) SetInformers(factory informers.SharedInformerFactory) {
	p.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	p.parts.SetInformers(factory)
}

// APIHealth implements registry.CloudAPI.
func (p *nsxPart) APIHealth() error { return p.parts.APIHealth() }

// Orphans and DeleteOrphan implement contract.OrphanFinder.
func (p *nsxPart) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	return p.parts.Orphans(ctx, living)
}

func (p *nsxPart) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	return p.parts.DeleteOrphan(ctx, o)
}

// ofStatus takes a Node's word; the nodes of these tests have no virtual machines.
func ofStatus(_ context.Context, n *v1.Node) ([]v1.NodeAddress, error) {
	return n.Status.Addresses, nil
}

// nsxHost names the manager in the inputs, so that the suite can name another.
const nsxHost = "NSXT_MANAGER_HOST"

func nsxDescription(config nsx.Config) registry.Provider {
	p := Description()
	p.Features = registry.Features{Instances: registry.CloudHasNone, LoadBalancers: registry.Done, Routes: registry.Done, UDP: registry.Done}
	p.ProviderIDPrefixes, p.InstanceKey = nil, nil
	p.Validate = func(registry.Inputs) error { return nil }
	p.CheckService = func(_ registry.Inputs, s *v1.Service) (warnings, err error) {
		return config.LoadBalancer.CheckService(s)
	}
	p.New = func(in registry.Inputs) (cloudprovider.Interface, error) {
		own := config
		own.NSXT.Host, _ = in.LookupEnv(nsxHost)
		if err := own.Check(in.AllowInsecureEndpoints); err != nil {
			return nil, err
		}
		return newNSXPart(own, in)
	}
	return p
}

// TestNSXConformance has NSX alone, which TestConformance has together with vCenter, and transcripts of it.
func TestNSXConformance(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	conformance.RunParts(t, newNSXFixture)
}

// newNSXFixture is a cluster whose nodes are somebody else's, so that every call is one of NSX.
func newNSXFixture(t testing.TB) *conformance.Fixture {
	sim, server := nsxsim.New(nsxsim.Options{User: nsxUser, Password: nsxPassword, Seed: simkit.SeedOf(t), Activation: 700 * time.Millisecond})
	network := simkit.NewNetwork()
	url := network.Serve(t, server)
	f := &conformance.Fixture{
		Sim: server, Network: network, Provider: nsxDescription(nsxTestConfig(t, url)),
		Inputs: func() registry.Inputs { return conformance.Inputs(nil, map[string]string{nsxHost: url}) },
		Routes: func() {}, RefuseAccount: func() { sim.SetPassword("another") },
	}
	tryNSX(t, sim, f)
	return f
}

// tryNSX adds what load balancers are tried with.
func tryNSX(t testing.TB, sim *nsxsim.Sim, f *conformance.Fixture) {
	f.UDP = conformance.FeatureCase{Shows: "UDP/53"}
	f.Fixed = map[string]func() conformance.FixedCase{
		annotationClass: func() conformance.FixedCase { return conformance.FixedCase{Later: "dmz"} },
	}
	f.RemoveLoadBalancers = sim.RemoveLoadBalancers
	f.Additions = map[string]func(*v1.Service) func() bool{
		"a virtual server to a load balancer service": func(*v1.Service) func() bool {
			path := sim.Objects("/infra/lb-services")[0].Path
			sim.Add("/infra/lb-virtual-servers/theirs", map[string]any{
				"ip_address": "192.0.2.99", "ports": []any{"80"}, "application_profile_path": "/infra/lb-app-profiles/default-tcp-lb-app-profile", "lb_service_path": path,
			})
			return func() bool { return sim.Get(path) != nil }
		},
	}
	f.Lacks = map[string]string{
		"Claims":        "objects are found by their tags, and nothing on a Service names one",
		"Share":         "Services share a load balancer service without asking, which Together tries",
		"Reserve":       "a Service asks for a pool of addresses, and for none of them",
		"OwnershipTags": "no annotation sets tags",
	}
	const bySize = "TestSizeOfTheService"
	elsewhere := map[string]string{nsxlimits.Servers.String(): bySize, nsxlimits.Members.String(): bySize}
	f.Strictness = conformance.Strictness{Free: nsxFree(), Unlimited: nsxUnlimited(), LimitsElsewhere: elsewhere, Ordered: map[string]string{
		reading + "[].val.GuestNicInfo.ipAddress": tools, reading + "[].val.GuestNicInfo[].ipAddress": tools,
		reading + ".val.GuestNicInfo.ipAddress": tools, reading + ".val.GuestNicInfo[].ipAddress": tools,
		reading + ".val.ManagedObjectReference": walk, reading + "[].val.ManagedObjectReference": walk,
	}}
	f.Lag, f.Serves, f.Snapshot = sim.SetLag, sim.Serves, func() string { return nsxSnapshot(t, sim) }
	f.TakenOver = map[string]conformance.Left{
		"plain": leftServers(sim, service("web", nil, port("http", 80, 30080))), "two ports": leftServers(sim, twoPorts()),
	}
	f.Services = map[string]conformance.Case{
		"plain": {
			Service: service("plain", nil, port("http", 80, 30080)),
			Change:  func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, port("alt", 8080, 30081)) },
		},
		"rich": {
			Service: richNSXService(),
			Change: func(s *v1.Service) {
				s.Spec.Ports = s.Spec.Ports[1:]
				s.Spec.Ports[0].NodePort = 30777
			},
		},
	}
}

// richNSXService uses everything at once.
func richNSXService() *v1.Service {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	s := service("rich", map[string]string{annotationClass: "dmz"}, port("http", 80, 30080), port("https", 443, 30443), udp)
	s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	return s
}

// Reasons why lists in vCenter's answers have an order that matters.
const (
	reading = "Body.RetrievePropertiesExResponse.returnval.objects[].propSet"
	tools   = "the addresses stand as the guest's tools tell them, and the first one that fits is the Node's"
	walk    = "the parents and children of an object, which are looked through for one"
)

// nsxFree are the fields of requests to NSX-T that take any value.
func nsxFree() map[string]string {
	const (
		people, name, readOnly = "a text for people, which the API does not look at", "a name of the client's own", "read-only: what a request says of it is ignored"
	)
	free := map[string]string{
		"relative_path": readOnly, "parent_path": readOnly, "path": readOnly, "unique_id": readOnly, "_create_user": readOnly, "_system_owned": readOnly,
		"members[].display_name": people, "description": people, "display_name": people, "tags[].*": people,
	}
	for _, kind := range []string{"LBMonitorProfile", "LBPool", "LBService", "LBVirtualServer"} {
		at := "children[]." + kind + "."
		free[at+"description"], free[at+"display_name"], free[at+"tags[].scope"], free[at+"tags[].tag"], free[at+"id"] = people, people, people, people, name
	}
	free["children[].LBPool.members[].display_name"] = people
	return free
}

// nsxUnlimited are the texts and lists that have no limit, or one that follows from the size of the load balancer service.
func nsxUnlimited() map[string]string {
	const bySize, unbounded = "the size of the load balancer service bounds it", "NSX's API bounds it nowhere"
	all := map[string]string{"*members": bySize, "children": unbounded, "children[].*.id": unbounded}
	for _, field := range []string{"relative_path", "parent_path", "path", "unique_id", "_create_user"} {
		all[field] = "read-only: what a request says of it is ignored"
	}
	for _, field := range []string{"active_monitor_paths", "ports", "default_pool_member_ports"} {
		all["*"+field] = unbounded
	}
	return all
}

// nsxSnapshot prints the NSX objects of Services, without the fields that differ from run to run.
func nsxSnapshot(t testing.TB, sim *nsxsim.Sim) string {
	var all strings.Builder
	for _, c := range collectionsOf(sim) {
		for _, o := range sim.Objects(c) {
			if o.Tag("cluster") == "" {
				continue
			}
			delete(o.Fields, "ip_address")
			text, err := json.Marshal(conformance.InOrder(o.Fields))
			require.NoError(t, err)
			all.WriteString(o.Path + string(text) + "\n")
		}
	}
	return all.String()
}

// collectionsOf returns the collections of objects of load balancers.
func collectionsOf(sim *nsxsim.Sim) []string {
	all := []string{"/infra/lb-services", "/infra/lb-virtual-servers", "/infra/lb-pools", "/infra/lb-monitor-profiles"}
	for _, p := range sim.Objects("/infra/ip-pools") {
		all = append(all, p.Path+"/ip-allocations")
	}
	return all
}

// leftServers is how the suite takes over what was made for a Service.
func leftServers(sim *nsxsim.Sim, s *v1.Service) conformance.Left {
	return conformance.Left{Leave: func(nodes []*v1.Node) *v1.Service {
		var theirs []*v1.Node
		for _, n := range nodes {
			n = n.DeepCopy()
			n.Status.Addresses = slices.DeleteFunc(n.Status.Addresses, func(a v1.NodeAddress) bool { return a.Type != v1.NodeInternalIP })
			theirs = append(theirs, n)
		}
		nsxsim.NewOriginal(sim).Serve(s, theirs)
		return s
	}}
}

// twoPorts is a Service with a port of each protocol.
func twoPorts() *v1.Service {
	udp := port("dns", 53, 30053)
	udp.Protocol = v1.ProtocolUDP
	return service("web", nil, port("http", 80, 30080), udp)
}

// TestNSXSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestNSXSchedules(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	conformance.Soak(t, newNSXFixture)
}
