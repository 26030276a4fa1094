package vsphere

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	kubetesting "k8s.io/client-go/testing"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/kit/tier"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxsim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	nsxUser     = "admin"
	nsxPassword = "nsx-secret"
	clusterName = "kubernetes"
)

var (
	service = conformance.Service
	port    = conformance.Port
)

// nsxTestConfig is the configuration of a provider with load balancers and routes at a simulator.
func nsxTestConfig(url string) Config {
	return Config{
		NSXT: nsxtConfig{Host: url, User: nsxUser, Password: schema.NewSecret(nsxPassword)},
		LoadBalancer: loadBalancerConfig{
			Enabled: true, Size: "SMALL", Tier1GatewayPath: nsxsim.Tier1,
			Class: loadBalancerClass{
				IPPoolName: nsxsim.PoolName, TCPAppProfileName: path.Base(nsxsim.TCPProfile), UDPAppProfilePath: nsxsim.UDPProfile,
			},
			Classes: map[string]loadBalancerClass{"dmz": {IPPoolID: nsxsim.OtherPool}},
		},
		Route: routeConfig{RouterPath: nsxsim.Tier1},
	}
}

// nsxPart is the part of the provider that needs NSX alone, as a cloud of its own.
type nsxPart struct {
	cloudbase.Cloud
	cloudbase.WithLoadBalancers
	cloudbase.WithRoutes
	parts *nsxParts
	nodes nodecount.Counter
}

func newNSXPart(c Config, in registry.Inputs) (*nsxPart, error) {
	p := &nsxPart{}
	parts, err := newNSXParts(c, in, &p.nodes, ofStatus)
	if err != nil {
		return nil, err
	}
	p.parts = parts
	p.Name, p.HTTP, p.Begin = Name, parts.nsx.http, parts.begin
	p.ServiceAPI, p.RouteAPI, p.Check = parts.serviceAPI(), parts.routeAPI(), parts.check
	return p, nil
}

// SetInformers implements cloudprovider.InformerUser.
func (p *nsxPart) SetInformers(factory informers.SharedInformerFactory) {
	p.nodes.SetLister(factory.Core().V1().Nodes().Lister())
	p.parts.setInformers(factory)
}

// Orphans and DeleteOrphan implement contract.OrphanFinder.
func (p *nsxPart) Orphans(ctx context.Context, living []*v1.Service) ([]contract.Orphan, error) {
	return p.parts.Orphans(ctx, living)
}

func (p *nsxPart) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	return p.parts.DeleteOrphan(ctx, o)
}

// nsxWorld is that part on a simulated NSX and a fake API server, for tests of single parts.
type nsxWorld struct {
	*conformance.Bench
	*nsxParts

	sim     *nsxsim.Sim
	server  *simkit.Server
	network *simkit.Network
	config  Config
	cluster string
	nodes   []*v1.Node
	// has are the addresses of virtual machines that their Nodes do not tell as they are, by the name of the Node.
	has map[string][]v1.NodeAddress
	// silent are the nodes whose vCenter does not answer.
	silent map[string]bool
}

// ofStatus takes a Node's word; the nodes of these tests have no virtual machines.
func ofStatus(_ context.Context, n *v1.Node) ([]v1.NodeAddress, error) {
	return n.Status.Addresses, nil
}

// reach are the addresses of the virtual machine of a node, where a test says what it has, and else those that the Node tells.
func (w *nsxWorld) reach(ctx context.Context, n *v1.Node) ([]v1.NodeAddress, error) {
	if w.silent[n.Name] {
		return nil, errors.New("vCenter does not answer")
	}
	if has, said := w.has[n.Name]; said {
		return nodes.Vouched(n.Status.Addresses, has), nil
	}
	return ofStatus(ctx, n)
}

// inNSX runs a test in virtual time.
func inNSX(t *testing.T, o nsxsim.Options, change func(*Config), test func(w *nsxWorld)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(newNSXWorld(t, o, change)) })
}

// newNSXWorldOn is another cluster on the same NSX.
func newNSXWorldOn(w *nsxWorld, uid string) *nsxWorld {
	w.T.Helper()
	other := &nsxWorld{Bench: conformance.NewBench(w.T), sim: w.sim, server: w.server, network: w.network}
	other.cluster, other.config = w.cluster, w.config
	namespaces := other.Kube.CoreV1().Namespaces()
	namespace, err := namespaces.Get(w.T.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	require.NoError(w.T, err)
	namespace.UID = types.UID(uid)
	_, err = namespaces.Update(w.T.Context(), namespace, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	other.restart()
	return other
}

// hideIdentity takes the right to read the identity of the cluster away.
func (w *nsxWorld) hideIdentity() {
	w.Kube.PrependReactor("get", "namespaces", func(kubetesting.Action) (bool, runtime.Object, error) {
		return true, nil, apierrors.NewForbidden(v1.Resource("namespaces"), metav1.NamespaceSystem, errors.New("no right"))
	})
}

// requireNoKubeWrites demands that nothing was written to the API server since the last call.
func (w *nsxWorld) requireNoKubeWrites() {
	w.T.Helper()
	for _, a := range w.Kube.Actions() {
		if a.GetResource().Resource == "services" && a.GetVerb() == "create" {
			continue // the test itself
		}
		require.Contains(w.T, []string{"get", "list", "watch"}, a.GetVerb(), "%v", a)
	}
}

func newNSXWorld(t *testing.T, o nsxsim.Options, change func(*Config)) *nsxWorld {
	t.Helper()
	o.User, o.Password, o.Seed = nsxUser, nsxPassword, simkit.SeedOf(t)
	sim, server := nsxsim.New(o)
	w := &nsxWorld{Bench: conformance.NewBench(t), sim: sim, server: server, network: simkit.NewNetwork(), cluster: clusterName}
	w.config = nsxTestConfig(w.network.Serve(t, server))
	if change != nil {
		change(&w.config)
	}
	w.restart()
	return w
}

// restart makes a new provider, with nothing in memory.
func (w *nsxWorld) restart() {
	w.T.Helper()
	in := conformance.Inputs(nil, nil)
	if w.network != nil { // otherwise it is on the loopback
		in.Dial = w.network.Dial
	}
	nodes := &nodecount.Counter{}
	parts, err := newNSXParts(w.config, in, nodes, w.reach)
	require.NoError(w.T, err)
	parts.begin(cloudbase.Begun{Kube: w.Kube, Events: w.Recorder})
	parts.loadBalancers.cluster.SetServices(w.Services())
	nodes.SetLister(w.Nodes())
	w.nsxParts = parts
}

// addNode adds an initialized node.
func (w *nsxWorld) addNode(name, address string) *v1.Node {
	n := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-of-" + name)},
		Spec:       v1.NodeSpec{ProviderID: "vsphere://422e4956-ad22-1139-6d72-" + fmt.Sprintf("%012d", len(w.nodes))},
		Status:     v1.NodeStatus{Addresses: []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: address}}},
	}
	w.nodes = append(w.nodes, n)
	w.Register(n)
	return n
}

func (w *nsxWorld) try(s *v1.Service) (*v1.LoadBalancerStatus, error) {
	return w.loadBalancers.EnsureLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes)
}

// ensure reconciles a Service, and returns it as it then is.
func (w *nsxWorld) ensure(s *v1.Service) *v1.Service {
	w.T.Helper()
	status, err := w.Reconcile(w.loadBalancers, w.cluster, s, w.nodes)
	require.NoError(w.T, err)
	return w.SetStatus(s, status)
}

func (w *nsxWorld) update(s *v1.Service) {
	w.T.Helper()
	require.NoError(w.T, w.loadBalancers.UpdateLoadBalancer(w.T.Context(), w.cluster, w.Current(s), w.nodes))
}

func (w *nsxWorld) remove(s *v1.Service) error { return w.Remove(w.loadBalancers, w.cluster, s) }

func (w *nsxWorld) change(s *v1.Service, change func(*v1.Service)) *v1.Service {
	w.T.Helper()
	now := w.Current(s)
	change(now)
	_, err := w.Kube.CoreV1().Services(s.Namespace).Update(w.T.Context(), now, metav1.UpdateOptions{})
	require.NoError(w.T, err)
	return w.Current(s)
}

func (w *nsxWorld) requireNothingRefused() {
	w.T.Helper()
	require.Empty(w.T, w.server.Calls().Refused, "the real API would have refused these")
}

// writes are the operations that changed something, in order.
func (w *nsxWorld) writes() []string {
	var list []string
	for _, c := range w.server.Calls().Latest {
		if c.Write {
			list = append(list, strings.TrimPrefix(c.Operation, ""))
		}
	}
	return list
}

// nsxHost names the manager in the inputs, so that the suite can name another.
const nsxHost = "NSXT_MANAGER_HOST"

func nsxDescription(config Config) registry.Provider {
	p := Description()
	p.Features = registry.Features{Instances: registry.CloudHasNone, LoadBalancers: registry.Done, Routes: registry.Done, UDP: registry.Done}
	p.ProviderIDPrefixes, p.InstanceKey = nil, nil
	p.Validate = func(registry.Inputs) error { return nil }
	p.CheckService = func(_ registry.Inputs, s *v1.Service) (warnings, err error) {
		return precheck(s, config.LoadBalancer)
	}
	p.New = func(in registry.Inputs) (cloudprovider.Interface, error) {
		own := config
		own.NSXT.Host, _ = in.LookupEnv(nsxHost)
		if err := own.checkNSXValues(in); err != nil {
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
		Sim: server, Network: network, Provider: nsxDescription(nsxTestConfig(url)),
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
	collections := []string{pathServices, pathServers, pathPools, pathMonitors}
	for _, p := range sim.Objects(pathIPPools) {
		collections = append(collections, p.Path+"/ip-allocations")
	}
	for _, c := range collections {
		for _, o := range sim.Objects(c) {
			if o.Tag(scopeCluster) == "" {
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

func counts(list []string) map[string]int {
	n := map[string]int{}
	for _, x := range list {
		n[x]++
	}
	return maps.Clone(n)
}

// TestNSXSchedules runs random schedules; SOAK_SCHEDULES and SOAK_SEED choose how many and which.
func TestNSXSchedules(t *testing.T) {
	t.Parallel()
	tier.Full(t)
	conformance.Soak(t, newNSXFixture)
}
