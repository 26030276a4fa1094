// Package conformance is the suite that every provider passes, with its real SDK over real HTTP against its simulator.
// A provider describes itself by a Fixture; the suite plays the framework and the API server.
package conformance

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	restclient "k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"
	servicehelper "k8s.io/cloud-provider/service/helpers"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// Fixture is one simulated cloud, and how to reach it as the provider does. What concerns nodes, load balancers or routes is set
// where the provider has them.
type Fixture struct {
	// The cloud, and the provider on it.

	// Provider is the description of the provider. Its Features say what is tried.
	Provider registry.Provider
	// Inputs are those of the provider that is opened next. The suite adds the guard, the way to the simulated cloud and the
	// operator's policy about adoption.
	Inputs func() registry.Inputs
	// Sim is the simulated cloud.
	Sim *simkit.Server
	// Network is where the provider reaches it.
	Network *simkit.Network
	// Kube returns the client that the provider is given; nil means the fake API server itself. A provider without a cloud is tried at
	// its ConfigMaps: see KubeAPI.
	Kube func(rest clientset.Interface) clientset.Interface
	// RefuseAccount makes the cloud refuse our credential.
	RefuseAccount func()
	// OtherAccount makes the cloud look as another account's credential sees it: reachable, and without our instances.
	OtherAccount func()
	// Limited puts the cloud's published limits in force, in the simulator and in the provider that is opened next; nil where
	// the cloud publishes none that a test could hold.
	Limited func()
	// FullTier has the fast tier try everything, too: the template does, whose tests are those of the suite, the guard and the kit.
	FullTier bool

	// Nodes and routes.

	// AddInstance starts an instance and returns its provider ID.
	AddInstance func(name string) string
	// RemoveInstance destroys an instance.
	RemoveInstance func(providerID string)
	// PowerOff stops an instance that goes on existing.
	PowerOff func(providerID string)
	// Resize gives an instance another type than the one it has.
	Resize func(providerID string)
	// Tag gives an instance these tags, or those without their values where tags have none, in place of those that it was given before; nil
	// where the description serves no tags.
	Tag func(providerID string, tags map[string]string)
	// CallsPerInstance is how many calls the first metadata of an instance costs at most, where the listing does not have all of it.
	CallsPerInstance int
	// InstanceListing is the operation that lists instances, such as "GET /v2/droplets".
	InstanceListing string
	// MalformedIDs begin like the provider's own but name nothing.
	MalformedIDs []string
	// Routes makes the provider that is opened next one that makes routes, in the networks of ClusterCIDR, and instances such
	// that can have them.
	Routes func()

	// Load balancers: what is tried, and how it shows.

	// Services are the Services to try, by name; each gets a life cycle and the interruption test.
	Services map[string]Case
	// OnlyThere are regular expressions of what events say of annotations that only the cloud or its nodes know, so that validate cannot.
	OnlyThere []string
	// Snapshot describes everything in the cloud that belongs to Services, without identifiers that differ from run to
	// run. An empty cloud is "".
	Snapshot func() string
	// Serves tells for each port of a load balancer, such as "tcp/80", where it leads: "backend:port", with a backend named by its
	// node, its address or its identity. A port that is there more than once has a word behind it: "tcp/80 ipv6". It is nil without a
	// cloud outside of the cluster.
	Serves func() map[string][]string
	// EachFamily is set where Serves has the ports of each IP family, and "ipv6" behind those of IPv6.
	EachFamily bool
	// Target is the port of the nodes to which a port of a Service leads; nil where it is the node port always.
	Target func(s *v1.Service, port v1.ServicePort) int32
	// StateWithoutInstance is set where load balancers know backends by address alone: the cloud takes an instance that is gone for one
	// that does not answer, which its health checks are for. It returns a state (Snapshot) with that backend, less what the
	// cloud itself removes together with the instance of that name. It is nil where the backend goes with the instance.
	StateWithoutInstance func(state, instance string) string
	// RemoveLoadBalancers deletes all load balancers as somebody does by hand, and leaves what providers make together with them, such
	// as addresses, firewalls and target groups; nil where there is nothing of that kind.
	RemoveLoadBalancers func()
	// CreationTokens is set where the cloud knows a creation by a token, so that one whose answer was lost is asked for again at once.
	CreationTokens bool
	// TakenOver are Services as the cloud's own controller leaves them, by name; nil where the cloud has none.
	TakenOver map[string]Left
	// Portable are values of portable annotations that are legal on this cloud, where the common samples are not.
	Portable map[string]PortableCase
	// Fixed are how annotations are tried that count only when the load balancer is made, by their keys. Each makes what its values
	// name, in the cloud and for the provider that is opened next.
	Fixed map[string]func() FixedCase
	// UDP, DualStack and SourceRanges are how these features of load balancers show, where the description says that they are done.
	UDP, DualStack, SourceRanges FeatureCase
	// Scopes are further kinds of load balancers and of rules in which SourceRanges are tried, by name.
	Scopes map[string]FeatureCase
	// Everybody is how the Snapshot and the bodies of writes say that all may connect, where not by a network of all addresses.
	Everybody []string
	// NodeRules begins the lines of the Snapshot about what nodes let in, where a change of nodes sets that by the Service of now.
	NodeRules string
	// OneAfterAnother is why Services that are reconciled at the same moment go one after the other; "" where they do not.
	OneAfterAnother string
	// EachNode bounds what each node of a load balancer takes; the zero value where nodes are read by the page and written by the batch.
	EachNode EachNode
	// MostBackends is how many nodes the cloud takes behind a load balancer, where that is less than the tests have; 0 is no such number.
	MostBackends int
	// EmptyOfNodes matches what of the Snapshot was made for nodes, has none any more and goes with the Service; nil where nothing does.
	EmptyOfNodes *regexp.Regexp
	// SetRightWithNodes is why a change of nodes sets right what else is not as a Service asks; "" where it does not.
	SetRightWithNodes string
	// Dispensable are reads without which a Service is served, with the reason. When it goes, nothing stays unsaid without them either.
	Dispensable map[string]string
	// Filters are the writes that make a filter for a Service that had none: where one is refused, nobody can be shut out.
	Filters []string
	// HostBits is why a network that has bits of hosts lets nobody in.
	HostBits string

	// Whose a load balancer is.

	// OtherCluster makes the provider that is opened next another cluster's, on clouds where the cluster is told apart by
	// settings, and names in the cloud come from the UID of the Service: a copy keeps that, as after a restore. It is nil
	// where the namespace kube-system tells clusters apart.
	OtherCluster func()
	// OwnNames is set where the names of load balancers hold the identity of the cluster, as OtherCluster changes it, so that another
	// cluster's Service of the same UID looks for a load balancer of its own.
	OwnNames bool
	// ChosenName are annotations by which a Service chooses the name of its load balancer, where load balancers are found by it and OwnNames
	// does not hold for it; nil where no name tells whose a load balancer is.
	ChosenName map[string]string
	// ClusterInSettings is set where the settings say which cluster this is, so that nothing is read for that.
	ClusterInSettings bool
	// Outsiders holds the hooks of Tenants, Kubelets, Ownership and TakenOver.
	Outsiders
	// Twins holds those of names of instances.
	Twins

	// How kind the simulated cloud may be.

	// Lag makes reads show what was before for a while, as the cloud's own may; nil on clouds whose reads show at once what was
	// written.
	Lag func(time.Duration)
	// Lags are how far reads may be behind writes on this cloud; nil where they may be by as much as others'.
	Lags []time.Duration
	// Strictness is where the cloud is as kind as no simulator may be without a reason.
	Strictness Strictness

	// Transcripts.

	// Transcripts is testdata/transcripts of the provider's folder, embedded: what the cloud is told in each scenario. It has the exceptions
	// of Access, too, in testdata/access.yaml.
	Transcripts fs.FS
	// Scenarios are those that this cloud has besides the common ones.
	Scenarios []Scenario
	// Untranscribed are the annotations that no scenario sets to a legal value, by the reason.
	Untranscribed map[string][]string
	// Names are names of identities in the cloud, by kind and parent, such as "listener/80", where those that are found by themselves
	// (see names) do not do.
	Names func() map[string]string
	// Documents is set where writes send whole documents, most of which says nothing new: it gives what is at a path before a write, and
	// what is sent there, both without what the cloud fills in. A transcript has the fields in which they differ.
	Documents func(path string, sent map[string]any) (before, after any)
	// Secrets are the credentials and keys of the tests, which no transcript may have.
	Secrets []string
	// PlannedWrites are the writes that each kind of planned change makes.
	PlannedWrites []PlannedWrites
	// Unplanned, Interrupts and Unserved are steps ("scenario/step") that write what plan did not say, let a port lead nowhere
	// meanwhile, or end with ports that lead elsewhere than to all nodes, each with its reason.
	Unplanned, Interrupts, Unserved map[string]string
	// ReadAgain are the reasons for which reads are made again within a step.
	ReadAgain []ReadAgain

	adopt registry.Adoption
	// further is set where SourceRanges is one of Scopes.
	further bool
	// bare makes the provider that is opened next one that knows no portable annotations, and defaults are those of Services.
	bare     bool
	defaults defaults.Source
}

// ClusterCIDR are the networks of the pods where routes are tried.
const ClusterCIDR = "10.244.0.0/16"

// outside reports whether there is a cloud outside of the cluster. Without one a load balancer is an address, which knows neither ports
// nor nodes.
func (f *Fixture) outside() bool { return !f.Provider.InCluster }

func (f *Fixture) hasNodes() bool         { return f.Provider.Features.Instances == registry.Done }
func (f *Fixture) hasLoadBalancers() bool { return f.Provider.Features.LoadBalancers == registry.Done }
func (f *Fixture) hasRoutes() bool        { return f.Provider.Features.Routes == registry.Done }

// open makes the provider through the registry, guard included, with empty caches: as a start of the program.
func (f *Fixture) open(policy guard.Policy) (cloudprovider.Interface, error) {
	var r registry.Registry
	if err := r.Add(f.Provider); err != nil {
		return nil, err
	}
	in := f.Inputs()
	in.Guard, in.Dial, in.Adopt, in.Defaults = &policy, f.Network.Dial, f.adopt, &f.defaults
	if f.bare {
		return f.openBare(in)
	}
	return r.Open(f.Provider.Name, in)
}

// Run runs the suite. Every test gets a fixture of its own, and runs in virtual time: whatever waits costs nothing.
func Run(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	var names []string
	for _, part := range parts {
		if !part.full {
			names = append(names, part.name)
		}
	}
	RunParts(t, newFixture, names...)
}

// RunParts runs the named parts of the suite, and all of them in the full tier. It is for a cloud's second kind of network, of which the
// first one's tests show most.
func RunParts(t *testing.T, newFixture func(t testing.TB) *Fixture, names ...string) {
	t.Helper()
	all := triesAll(t, newFixture)
	for _, name := range names {
		require.True(t, slices.ContainsFunc(parts, func(p part) bool { return p.name == name }), "the suite has no part %q", name)
	}
	runFeatures(t, newFixture)
	if readFixture(t, newFixture, (*Fixture).hasLoadBalancers) {
		t.Run("ServiceFields", func(t *testing.T) { t.Parallel(); runServiceFields(t, newFixture) })
	}
	for _, part := range parts {
		if (all && !part.firstNetwork || slices.Contains(names, part.name)) && readFixture(t, newFixture, part.applies) {
			t.Run(part.name, func(t *testing.T) { t.Parallel(); part.run(t, newFixture) })
		}
	}
}

// part is one of the suite.
type part struct {
	name string
	// applies says which providers it is for.
	applies func(*Fixture) bool
	run     func(t *testing.T, newFixture func(t testing.TB) *Fixture)
	// full is set where the full tier alone has it.
	full bool
	// firstNetwork is set where a cloud's second kind of network has nothing of its own.
	firstNetwork bool
}

var parts = []part{
	{name: "Guard", applies: (*Fixture).hasNodes, run: runGuard},
	{name: "Instances", applies: (*Fixture).hasNodes, run: runInstances},
	{name: "LoadBalancers", applies: (*Fixture).hasLoadBalancers, run: runLoadBalancers},
	// source ranges that cannot be read open nothing
	{name: "Sources", applies: (*Fixture).hasSources, run: inEachScope(runSources)},
	// a Secret that changes has its Services reconciled, and nothing else writes
	{name: "Secrets", applies: (*Fixture).hasSecrets, run: runSecretChanges, firstNetwork: true},
	// former clients are shut out whatever else is refused
	{name: "Narrowing", applies: (*Fixture).hasSources, run: runNarrowings},
	// source ranges are removed, Services share a port, and go
	{name: "Access", applies: (*Fixture).hasSources, run: inEachScope(runAccess)},
	// what Access does not try, or with another end, is what the documentation says
	{name: "Exceptions", applies: (*Fixture).hasSources, run: runExceptions},
	// nobody gets another's load balancer by asking for it
	{name: "Ownership", applies: func(f *Fixture) bool { return f.hasLoadBalancers() && f.Claims != nil }, run: runOwnership},
	// the address of the family that stays, stays
	{name: "Families", applies: (*Fixture).hasFamilies, run: runFamilies, firstNetwork: true},
	// nothing that a Service says takes from another one, or from others
	{name: "Tenants", applies: func(f *Fixture) bool { return f.hasLoadBalancers() && f.outside() }, run: runTenants, firstNetwork: true},
	// nothing that a Node says leads traffic elsewhere
	{name: "Kubelets", applies: func(f *Fixture) bool { return f.hasLoadBalancers() && f.hasNodes() }, run: runKubelets, firstNetwork: true},
	// reads are behind writes
	{name: "Lag", applies: func(f *Fixture) bool { return f.hasLoadBalancers() && f.Lag != nil }, run: runLag},
	// a creation without an answer takes effect later
	{name: "Creations", applies: (*Fixture).hasLoadBalancers, run: runCreations},
	// somebody deletes all that a Service has; two processes work at once
	{name: "ByHand", applies: (*Fixture).hasLoadBalancers, run: runByHand},
	// what is deleted at the same moment leaves nothing of what it shares
	{name: "Together", applies: (*Fixture).hasLoadBalancers, run: runTogether},
	// what a Service leaves that went without its finalizer
	{name: "Orphans", applies: (*Fixture).hasLoadBalancers, run: runOrphans},
	// somebody deletes the load balancer, and not what belongs to it
	{name: "Vanish", applies: func(f *Fixture) bool { return f.hasLoadBalancers() && f.RemoveLoadBalancers != nil }, run: runVanish},
	// what the cloud's own controller made is changed by ours, and goes
	{name: "TakenOver", applies: func(f *Fixture) bool { return len(f.TakenOver) > 0 }, run: runTakenOver, firstNetwork: true},
	// a change of nodes is about nodes alone
	{name: "NodeChanges", applies: (*Fixture).hasLoadBalancers, run: runNodeChanges},
	// what is not read is not taken for absence
	{name: "Unread", applies: (*Fixture).hasLoadBalancers, run: runUnread},
	// the pause that a cloud asks for is kept
	{name: "RateLimited", applies: (*Fixture).hasLoadBalancers, run: runRateLimited},
	// how long Services keep each other waiting
	{name: "AtOnce", applies: (*Fixture).hasLoadBalancers, run: runAtOnce},
	// the time to an address grows with pages and batches alone
	{name: "ManyNodes", applies: (*Fixture).hasLoadBalancers, run: runManyNodes},
	// what says nothing new is not said again
	{name: "Repeats", applies: (*Fixture).hasLoadBalancers, run: runRepeats},
	{name: "Routes", applies: (*Fixture).hasRoutes, run: runRoutes},
	// null, redirects, listings without end
	{name: "HostileAnswers", applies: (*Fixture).outside, run: runHostileAnswers},
	// nothing of users gets into the labels of metrics
	{name: "Labels", applies: func(*Fixture) bool { return true }, run: runLabels},
	{name: "Portable", applies: (*Fixture).hasLoadBalancers, run: runPortable},
	// what counts only when the load balancer is made
	{name: "Fixed", applies: (*Fixture).hasLoadBalancers, run: runFixed},
	{name: "Foretold", applies: (*Fixture).hasLoadBalancers, run: runForetold},
	{name: "WithoutPortable", applies: (*Fixture).hasLoadBalancers, run: runWithoutPortable},
	// what is written in each scenario is what the files say
	{name: "Transcripts", applies: (*Fixture).hasLoadBalancers, run: runTranscripts, firstNetwork: true},
	{name: "Transcribed", applies: (*Fixture).hasLoadBalancers, run: runTranscribed, firstNetwork: true},
	// each call of a life is broken
	{name: "Interruption", applies: (*Fixture).hasLoadBalancers, run: runInterruption},
	// the simulator is no kinder than the cloud
	{name: "Strictness", applies: (*Fixture).hasLoadBalancers, run: runStrictness, full: true},
	// the API server fails
	{name: "KubeFails", applies: (*Fixture).hasLoadBalancers, run: runKubeFails},
}

// virtual runs a subtest in virtual time, beside others. Inside of it there are no further subtests.
func virtual(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, test)
	})
}

// readFixture returns what read finds in a fixture.
func readFixture[V any](t *testing.T, newFixture func(t testing.TB) *Fixture, read func(*Fixture) V) (found V) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { found = read(newFixture(t)) })
	return found
}

func serviceNames(f *Fixture) []string { return sortedKeys(f.Services) }

// world is one cluster on one cloud: a fake API server and the provider.
type world struct {
	*Fixture
	t      testing.TB
	kube   *fake.Clientset
	outage failingAPI
	cloud  cloudprovider.Interface
	nodes  []*v1.Node
	policy guard.Policy
	// foreignNodes is the number of the last node that another cloud's controller initialised.
	foreignNodes int
	// loops lets the informers follow the API server, so that the loops of the provider start.
	loops bool
	// shown are the Nodes that the informers show; without loops none of the provider's starts, because they never say that they have
	// synced.
	shown []*v1.Node
	// services is the running provider's informer store: it equals the API server's content.
	services cache.Store
	// stop ends the provider that runs.
	stop context.CancelFunc
	// attempted is called before each call of the framework; nil where nobody wants to know.
	attempted func(service string, deletes bool)
}

// trustingPolicy is the guard's policy for tests that are about the provider: the guard lets every "gone" pass.
var trustingPolicy = guard.Policy{Confirmations: 1, Window: time.Hour, MaxShare: 1, Floor: 1000}

// roundTrip is how long every call takes: without it nothing would ever be older than anything else in virtual time.
const roundTrip = 20 * time.Millisecond

func newWorld(t testing.TB, f *Fixture) *world {
	f.Sim.Configure(func(s *simkit.Settings) { s.Latency = simkit.Duration(roundTrip) })
	f.Sim.Disarrange(simkit.SeedOf(t), newExemptions(f.Strictness.Ordered).covers)
	w := &world{Fixture: f, t: t, kube: newKube("cluster-1"), policy: trustingPolicy, loops: f.SourceRanges.Settles > 0}
	w.kube.PrependReactor("*", "*", w.outage.react)
	w.restart()
	return w
}

// newKube returns a fake API server of a cluster with the given identity.
func newKube(uid string) *fake.Clientset {
	// Its successor builds a whole REST mapper at every write, which is half of the time of the suite.
	return fake.NewSimpleClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: metav1.NamespaceSystem, UID: types.UID(uid)}})
}

// restart ends the provider and makes a new one, with nothing in memory.
func (w *world) restart() {
	if w.stop != nil {
		w.stop()
	}
	w.cloud, w.services, w.stop = w.start(w.loops)
	w.show()
}

// start makes a provider, with nothing in memory, and returns what its informer knows of Services. Its loops run where the informers
// follow the API server.
func (w *world) start(follow bool) (cloud cloudprovider.Interface, services cache.Store, stop context.CancelFunc) {
	cloud, err := w.open(w.policy)
	require.NoError(w.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	w.t.Cleanup(cancel)
	var kube clientset.Interface = w.kube
	if w.Kube != nil {
		kube = w.Kube(kube)
	}
	cloud.Initialize(clients{kube}, ctx.Done())
	if user, ok := cloud.(cloudprovider.InformerUser); ok {
		factory := informers.NewSharedInformerFactory(w.kube, 0)
		user.SetInformers(factory)
		services = factory.Core().V1().Services().Informer().GetStore()
		if follow {
			factory.Start(ctx.Done())
			factory.WaitForCacheSync(ctx.Done())
			return cloud, services, cancel
		}
		for _, n := range w.shown {
			require.NoError(w.t, factory.Core().V1().Nodes().Informer().GetStore().Add(n))
		}
	}
	return cloud, services, cancel
}

// show brings the informer of Services up to date, as its watch does: it never begins here, because the provider's loops would
// then run beside the test.
func (w *world) show() {
	if w.loops {
		time.Sleep(time.Nanosecond) // it follows by itself, while others may wait for it, too
		return
	}
	w.showIn(w.services)
}

func (w *world) showIn(services cache.Store) {
	if services == nil {
		return
	}
	list, err := w.kube.CoreV1().Services(metav1.NamespaceAll).List(context.WithoutCancel(w.t.Context()), metav1.ListOptions{})
	require.NoError(w.t, err)
	all := make([]any, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	require.NoError(w.t, services.Replace(all, ""))
}

func (w *world) instances() cloudprovider.InstancesV2 {
	i, ok := w.cloud.InstancesV2()
	require.True(w.t, ok)
	return i
}

func (w *world) loadBalancer() cloudprovider.LoadBalancer {
	w.show()
	lb, ok := w.cloud.LoadBalancer()
	require.True(w.t, ok)
	return lb
}

// addNode starts an instance and adds its node, initialised as the framework does it: it tries again after failures, with
// pauses that double, and whenever kubelet writes the Node's status.
func (w *world) addNode(ctx context.Context, name string, onError func()) *v1.Node {
	node := bareNode(name)
	if !w.hasNodes() {
		w.foreignNodes++
		initializeElsewhere(node, w.foreignNodes)
		w.nodes = append(w.nodes, node)
		return node
	}
	w.AddInstance(name)
	began, pause := time.Now(), firstNodePause
	for {
		m, err := w.instances().InstanceMetadata(ctx, node)
		if err == nil {
			node.Spec.ProviderID, node.Spec.Taints, node.Status.Addresses = m.ProviderID, nil, m.NodeAddresses
			w.nodes = append(w.nodes, node)
			return node
		}
		require.Less(w.t, time.Since(began), patience, "the node is not initialised: %v", err)
		if onError != nil {
			onError()
		}
		time.Sleep(pause)
		pause = min(2*pause, kubeletWrites)
	}
}

// initializeElsewhere makes a node what another cloud's controller makes of it.
func initializeElsewhere(node *v1.Node, number int) {
	node.Spec.ProviderID, node.Spec.Taints = "elsewhere://"+node.Name, nil
	node.Status.Addresses = []v1.NodeAddress{{Type: v1.NodeInternalIP, Address: fmt.Sprintf("10.0.%d.%d", number/250, number%250+1)}}
}

// bareNode is a node as kubelet registers it with --cloud-provider=external.
func bareNode(name string) *v1.Node {
	return &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1.NodeSpec{
			Taints: []v1.Taint{{Key: cloudproviderapi.TaintExternalCloudProvider, Value: "true", Effect: v1.TaintEffectNoSchedule}},
		},
	}
}

// createService makes a Service, with the time of its creation as the API server notes it.
func (w *world) createService(ctx context.Context, s *v1.Service) {
	s = s.DeepCopy()
	if s.CreationTimestamp.IsZero() {
		s.CreationTimestamp = metav1.NewTime(time.Now().Truncate(time.Second))
	}
	_, err := w.kube.CoreV1().Services(s.Namespace).Create(ctx, s, metav1.CreateOptions{})
	require.NoError(w.t, err)
}

func (w *world) service(ctx context.Context, s *v1.Service) *v1.Service {
	current, err := w.kube.CoreV1().Services(s.Namespace).Get(ctx, s.Name, metav1.GetOptions{})
	require.NoError(w.t, err)
	return current
}

func (w *world) changeService(ctx context.Context, s *v1.Service, change func(*v1.Service)) {
	current := w.service(ctx, s)
	change(current)
	_, err := w.kube.CoreV1().Services(s.Namespace).Update(ctx, current, metav1.UpdateOptions{})
	require.NoError(w.t, err)
}

// The framework's pauses between tries.
const (
	firstNodePause    = 5 * time.Millisecond
	kubeletWrites     = 10 * time.Second
	firstServicePause = 5 * time.Second
	longestPause      = 300 * time.Second
	// cleanUpPause is how often a Service that is being deleted is looked at, whatever its pause.
	cleanUpPause = 30 * time.Second
)

// patience bounds the virtual time that anything takes until it has converged.
const patience = 30 * time.Minute

// ensure plays the service controller until the Service is served: it tries again after errors and retry hints, with the
// pauses of the framework. onError runs after each failure.
func (w *world) ensure(ctx context.Context, s *v1.Service, onError func()) *v1.LoadBalancerStatus {
	began, pause := time.Now(), firstServicePause
	for {
		status, err := w.tryEnsure(ctx, s)
		if err == nil {
			w.SourceRanges.settle()
			return status
		}
		require.Less(w.t, time.Since(began), patience, "the Service is not served: %v", err)
		if hint, ok := errors.AsType[*cloudproviderapi.RetryError](err); ok {
			time.Sleep(hint.RetryAfter()) // work that goes on is no failure
			continue
		}
		if onError != nil {
			onError()
		}
		time.Sleep(pause)
		pause = min(2*pause, longestPause)
	}
}

// tryEnsure reconciles a Service once, and writes its status where it is served.
func (w *world) tryEnsure(ctx context.Context, s *v1.Service) (*v1.LoadBalancerStatus, error) {
	current := w.service(ctx, s)
	w.protect(ctx, current)
	w.attempt(s.Name, false)
	status, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, current, w.nodes)
	if err != nil {
		return nil, err
	}
	current = w.service(ctx, s)
	current.Status.LoadBalancer = *status
	_, err = w.kube.CoreV1().Services(s.Namespace).UpdateStatus(ctx, current, metav1.UpdateOptions{})
	require.NoError(w.t, err)
	return status, nil
}

func (w *world) attempt(service string, deletes bool) {
	if w.attempted != nil {
		w.attempted(service, deletes)
	}
}

// protect puts the framework's finalizer on a Service, before it is first given to the provider, which sees it as it was before.
func (w *world) protect(ctx context.Context, s *v1.Service) {
	if slices.Contains(s.Finalizers, servicehelper.LoadBalancerCleanupFinalizer) {
		return
	}
	w.changeService(ctx, s, func(s *v1.Service) { s.Finalizers = append(s.Finalizers, servicehelper.LoadBalancerCleanupFinalizer) })
}

// update plays a change of nodes. The framework answers an update that failed, or is not finished, with a full
// reconciliation.
func (w *world) update(ctx context.Context, s *v1.Service, onError func()) {
	err := w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
	if err == nil {
		w.waitForUpdates()
		return
	}
	if _, hint := errors.AsType[*cloudproviderapi.RetryError](err); !hint {
		require.NotNil(w.t, onError, "the update failed: %v", err)
		onError()
	}
	w.ensure(ctx, s, onError)
}

// waitForUpdates waits for changes of nodes that the guard goes on with by itself.
func (w *world) waitForUpdates() {
	g, ok := w.cloud.(*guard.Cloud)
	require.True(w.t, ok, "every cloud is opened with its guard")
	require.Eventually(w.t, func() bool { return g.UpdatesUnderWay() == 0 }, 2*time.Minute, 10*time.Millisecond)
}

// remove plays the service controller until the Service is gone. Hints of the deletion do not reach the framework's queue.
func (w *world) remove(ctx context.Context, s *v1.Service, onError func()) {
	began, pause := time.Now(), firstServicePause
	for {
		current := w.service(ctx, s)
		current.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		w.attempt(s.Name, false)
		_, exists, err := w.loadBalancer().GetLoadBalancer(ctx, clusterName, current)
		if err == nil && exists {
			w.attempt(s.Name, true)
			err = w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, current)
		}
		if err == nil {
			w.changeService(ctx, s, func(s *v1.Service) { s.Finalizers = nil })
			if w.SourceRanges.Settles > 0 {
				w.forget(ctx, s)
			}
			return
		}
		require.Less(w.t, time.Since(began), patience, "the Service is not gone: %v", err)
		if _, hint := errors.AsType[*cloudproviderapi.RetryError](err); !hint && onError != nil {
			onError()
		}
		time.Sleep(pause)
		pause = min(2*pause, cleanUpPause)
	}
}

const clusterName = "kubernetes"

// clients hands the fake API server to the provider.
type clients struct{ kube clientset.Interface }

// Config implements cloudprovider.ControllerClientBuilder.
func (clients) Config(string) (*restclient.Config, error) { return &restclient.Config{}, nil }

// ConfigOrDie implements cloudprovider.ControllerClientBuilder.
func (clients) ConfigOrDie(string) *restclient.Config { return &restclient.Config{} }

// Client implements cloudprovider.ControllerClientBuilder.
func (c clients) Client(string) (clientset.Interface, error) { return c.kube, nil }

// ClientOrDie implements cloudprovider.ControllerClientBuilder.
func (c clients) ClientOrDie(string) clientset.Interface { return c.kube }

func (w *world) failCalls(f simkit.Fault) {
	_, err := w.Sim.AddFault(f)
	require.NoError(w.t, err)
}

func (w *world) requireNoWrites(why string) {
	w.t.Helper()
	assert.Zero(w.t, w.Sim.Calls().Writes, why)
}

func (w *world) requireNothingRefused() {
	w.t.Helper()
	assert.Empty(w.t, w.Sim.Calls().Refused, "the real API would have refused these")
}
