package conformance

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

const (
	// schedulesVariable and seedVariable choose how many schedules are run, and the first seed.
	schedulesVariable = "SOAK_SCHEDULES"
	seedVariable      = "SOAK_SEED"
	// fewSchedules are run with the other tests, fewerSchedules in the fast tier; make soak runs many.
	fewSchedules   = 8
	fewerSchedules = 1
	// steps of a schedule, with a quiet point after every some of them.
	soakSteps  = 60
	quietAfter = 15
	// betweenPasses is the pause of the lifecycle loop, and of a Service's first retry.
	betweenPasses = 5 * time.Second
)

// soakPolicy takes more than one answer for a deletion, but no share of the cluster holds it back: what is destroyed here
// is really gone.
var soakPolicy = guard.Policy{Confirmations: 2, Window: time.Hour, MaxShare: 1, Floor: 1000}

// failingSeeds are schedules that once failed; they are run every time. What they found is also in the suite, because a
// schedule changes with the code that plays it.
// 34: a page of a proxy was taken for the answer to a deletion, and the load balancer stayed.
var failingSeeds = []uint64{34}

// Soak runs random schedules: nodes and Services come and go, the cloud fails in every way, the program is restarted. At
// each quiet point every Node of a living instance is there, every Node of a dead one is gone, the cloud holds what the
// Services want, and in the end nothing. A schedule is its seed.
func Soak(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	first, schedules := uint64(1), fewerSchedules
	if triesAll(t, newFixture) {
		schedules = fewSchedules
	}
	if text := os.Getenv(seedVariable); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		require.NoError(t, err, seedVariable)
		first, schedules = seed, 1
	}
	if text := os.Getenv(schedulesVariable); text != "" {
		n, err := strconv.Atoi(text)
		require.NoError(t, err, schedulesVariable)
		schedules = n
	}
	seeds := slices.Clone(failingSeeds)
	for i := range schedules {
		seeds = append(seeds, first+uint64(i))
	}
	for _, seed := range seeds {
		virtual(t, fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			newSoak(t, newFixture(t), seed).run(t.Context())
		})
	}
}

// soak is one schedule.
type soak struct {
	*world
	rnd    *rand.Rand
	serial int
	// machines are the instances that exist, by node name.
	machines map[string]string
	cluster  map[string]*soakNode
	// wanted are the Services that exist, and those that are being deleted, by name.
	wanted map[string]*soakService
	log    []string
}

type soakNode struct {
	node     *v1.Node
	notReady bool
}

type soakService struct {
	service  *v1.Service
	change   func(*v1.Service)
	dirty    bool
	deleting bool
	// synced are the nodes that the load balancer was last told of.
	synced []string
}

func newSoak(t *testing.T, f *Fixture, seed uint64) *soak {
	t.Helper()
	s := &soak{
		world: newWorld(t, f), rnd: rand.New(rand.NewPCG(seed, seed)), //nolint:gosec // a schedule must be reproducible
		machines: map[string]string{}, cluster: map[string]*soakNode{}, wanted: map[string]*soakService{},
	}
	s.policy = soakPolicy
	s.restart()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("schedule of seed %d:\n%v", seed, s.log)
		}
	})
	return s
}

func (s *soak) note(format string, args ...any) {
	s.log = append(s.log, fmt.Sprintf(format, args...)+"\n")
}

func (s *soak) run(ctx context.Context) {
	s.join()
	for step := 1; step <= soakSteps; step++ {
		s.random(ctx)
		s.controllers(ctx)
		time.Sleep(betweenPasses)
		if step%quietAfter == 0 {
			s.quiet(ctx)
		}
	}
	for name := range s.wanted {
		s.requestDeletion(name)
	}
	s.quiet(ctx)
	if s.hasLoadBalancers() {
		assert.Empty(s.t, s.Snapshot(), "nothing is left after the last Service")
	}
}

// random does one thing that happens in the life of a cluster.
func (s *soak) random(ctx context.Context) {
	switch n := s.rnd.IntN(100); {
	case n < 20:
		s.join()
	case n < 30:
		s.destroy()
	case n < 50:
		s.create(ctx)
	case n < 60:
		s.alter(ctx)
	case n < 68:
		if name, ok := s.pick(s.wanted, func(v *soakService) bool { return !v.deleting }); ok {
			s.requestDeletion(name)
		}
	case n < 76:
		s.note("restart")
		s.restart()
		for _, v := range s.wanted {
			v.dirty = true // the framework looks at every Service after a start
		}
	case n < 96:
		s.fail()
	default:
		s.note("faults end")
		s.calm()
	}
}

func (s *soak) join() {
	s.serial++
	name := fmt.Sprintf("worker-%d", s.serial)
	s.note("join %s", name)
	node := bareNode(name)
	node.UID, node.CreationTimestamp = types.UID(name), metav1.NewTime(time.Now().Add(-time.Hour))
	if s.hasNodes() {
		s.machines[name] = s.AddInstance(name)
	} else {
		s.machines[name] = name
		initializeElsewhere(node, s.serial)
	}
	s.cluster[name] = &soakNode{node: node}
}

func (s *soak) destroy() {
	name, ok := s.pickNode()
	if !ok || len(s.machines) < 2 {
		return
	}
	providerID := s.machines[name]
	s.note("destroy %s", name)
	delete(s.machines, name)
	if !s.hasNodes() {
		delete(s.cluster, name) // whoever has initialised it deletes it
		return
	}
	s.RemoveInstance(providerID)
	if n := s.cluster[name]; n != nil {
		n.notReady = true
	}
}

func (s *soak) pickNode() (string, bool) {
	names := sortedKeys(s.machines)
	if len(names) == 0 {
		return "", false
	}
	return names[s.rnd.IntN(len(names))], true
}

func (s *soak) pick(from map[string]*soakService, ok func(*soakService) bool) (string, bool) {
	names := slices.DeleteFunc(sortedKeys(from), func(n string) bool { return !ok(from[n]) })
	if len(names) == 0 {
		return "", false
	}
	return names[s.rnd.IntN(len(names))], true
}

func (s *soak) create(ctx context.Context) {
	kinds := sortedKeys(s.Services)
	if len(kinds) == 0 {
		return
	}
	kind := kinds[s.rnd.IntN(len(kinds))]
	if slices.ContainsFunc(
		sortedKeys(s.wanted), func(n string) bool { return s.wanted[n].service.Labels["kind"] == kind },
	) && kind != kinds[0] {
		return // Services with a name of their own in the cloud exist once
	}
	s.serial++
	service := s.Services[kind].Service.DeepCopy()
	service.Name = fmt.Sprintf("%s-%d", kind, s.serial)
	service.UID = types.UID(fmt.Sprintf("%08d-0000-4000-8000-000000000000", s.serial))
	service.Labels = map[string]string{"kind": kind}
	service.CreationTimestamp = metav1.NewTime(time.Now())
	s.note("create %s", service.Name)
	s.createService(ctx, service)
	s.wanted[service.Name] = &soakService{service: service, change: s.Services[kind].Change, dirty: true}
}

func (s *soak) alter(ctx context.Context) {
	name, ok := s.pick(s.wanted, func(v *soakService) bool { return !v.deleting && v.change != nil })
	if !ok {
		return
	}
	v := s.wanted[name]
	s.note("change %s", name)
	s.changeService(ctx, v.service, v.change)
	v.dirty, v.change = true, nil
}

func (s *soak) requestDeletion(name string) {
	s.note("delete %s", name)
	s.wanted[name].deleting = true
}

// fail puts one random fault in force for some calls.
func (s *soak) fail() {
	kinds := []simkit.Fault{
		{Kind: simkit.FaultStatus, Status: 500},
		{Kind: simkit.FaultStatus, Status: 503},
		{Kind: simkit.FaultStatus, Status: 429},
		{Kind: simkit.FaultStatus, Status: 401},
		{Kind: simkit.FaultStatus, Status: 403},
		{Kind: simkit.FaultStatusAfter, Status: 500},
		{Kind: simkit.FaultReset},
		{Kind: simkit.FaultLost},
		{Kind: simkit.FaultCut},
		{Kind: simkit.FaultHTML},
	}
	if s.hasNodes() { // what lies about instances must show in no decision; about load balancers, nothing else tells the truth
		for _, kind := range sortedKeys(s.Sim.Distortions()) {
			kinds = append(kinds, simkit.Fault{Kind: kind, Operation: s.InstanceListing})
		}
	}
	if s.Lag != nil && s.rnd.IntN(6) == 0 {
		lags := s.lags()
		lag := lags[s.rnd.IntN(len(lags))]
		s.note("reads lag by %s", lag)
		s.Lag(lag)
	}
	f := kinds[s.rnd.IntN(len(kinds))]
	f.From, f.Count, f.Writes = 1+s.rnd.IntN(3), 1+s.rnd.IntN(6), f.Operation == "" && s.rnd.IntN(3) == 0
	s.note("fault %s %d from %d count %d writes %t", f.Kind, f.Status, f.From, f.Count, f.Writes)
	s.failCalls(f)
}

// controllers plays one pass of the framework's controllers; it reports whether everything is done.
func (s *soak) controllers(ctx context.Context) bool {
	done := s.nodePass(ctx)
	for _, name := range sortedKeys(s.wanted) {
		if !s.servicePass(ctx, s.wanted[name], name) {
			done = false
		}
	}
	return done
}

func (s *soak) nodePass(ctx context.Context) bool {
	done := true
	s.nodes = nil
	for _, name := range sortedKeys(s.cluster) {
		n := s.cluster[name]
		switch {
		case n.notReady:
			exists, err := s.instances().InstanceExists(ctx, n.node)
			if err == nil && !exists {
				require.NotContains(s.t, s.machines, name, "the Node of a living instance is deleted")
				delete(s.cluster, name)
				continue
			}
			done = false
		case n.node.Spec.ProviderID == "":
			m, err := s.instances().InstanceMetadata(ctx, n.node)
			if err != nil {
				done = false
				break
			}
			n.node.Spec.ProviderID, n.node.Spec.Taints, n.node.Status.Addresses = m.ProviderID, nil, m.NodeAddresses
		case s.hasNodes() && s.rnd.IntN(4) == 0:
			// Kubelet of a living instance is silent for a while.
			exists, err := s.instances().InstanceExists(ctx, n.node)
			require.True(s.t, exists || err != nil, "the Node of a living instance is called gone")
		}
		s.nodes = append(s.nodes, n.node)
	}
	return done
}

func (s *soak) servicePass(ctx context.Context, v *soakService, name string) bool {
	current := s.service(ctx, v.service)
	if v.deleting {
		current.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		_, exists, err := s.loadBalancer().GetLoadBalancer(ctx, clusterName, current)
		if err == nil && exists {
			err = s.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, current)
		}
		if err != nil {
			return false
		}
		require.NoError(s.t, s.kube.CoreV1().Services(current.Namespace).Delete(ctx, current.Name, metav1.DeleteOptions{}))
		delete(s.wanted, name)
		return true
	}
	var names []string
	for _, n := range s.nodes {
		names = append(names, n.Name+n.Spec.ProviderID)
	}
	if !v.dirty && !slices.Equal(names, v.synced) {
		v.synced = names
		v.dirty = s.loadBalancer().UpdateLoadBalancer(ctx, clusterName, current, s.nodes) != nil
	}
	if v.dirty {
		v.synced = names
		s.protect(ctx, current)
		_, err := s.loadBalancer().EnsureLoadBalancer(ctx, clusterName, current, s.nodes)
		v.dirty = err != nil
		if err != nil && !errors.Is(err, context.Canceled) {
			s.note("  %s: %v", name, err)
		}
	}
	return !v.dirty
}

// calm ends all faults.
func (s *soak) calm() {
	s.Sim.ClearFaults()
	if s.Lag != nil {
		s.Lag(0)
	}
}

// quiet ends all faults, lets the controllers settle, and compares the cluster and the cloud with what is wanted.
func (s *soak) quiet(ctx context.Context) {
	s.note("quiet")
	s.calm()
	if len(s.cluster) == 0 {
		s.join()
	}
	for name, n := range s.cluster {
		if _, lives := s.machines[name]; !lives && n.node.Spec.ProviderID == "" {
			// Its instance went before it was known which one it is, so nothing can be said to be gone: the operator
			// deletes such a Node.
			delete(s.cluster, name)
		}
	}
	// Done is done when nothing was left to do twice in a row: the first pass may have initialised a node that the second
	// one makes a backend.
	for began, done := time.Now(), 0; done < 2 && time.Since(began) < patience; time.Sleep(betweenPasses) {
		settled := s.controllers(ctx)
		s.waitForUpdates()
		if settled {
			done++
		} else {
			done = 0
		}
	}
	time.Sleep(time.Minute) // until what was read while reads lagged is read again
	for name := range s.machines {
		require.Contains(s.t, s.cluster, name, "the Node of a living instance is there")
	}
	for name, n := range s.cluster {
		require.Contains(s.t, s.machines, name, "the Node of a dead instance is gone")
		require.NotEmpty(s.t, n.node.Spec.ProviderID, "every Node is initialised")
	}
	for name, v := range s.wanted {
		require.False(s.t, v.dirty || v.deleting, "Service %s has settled", name)
	}
	require.Len(s.t, s.Sim.Summary().Holdings, len(s.wanted), "the cloud holds one load balancer for each Service")
	s.Sim.ResetCalls()
	for _, name := range sortedKeys(s.wanted) {
		status, err := s.loadBalancer().EnsureLoadBalancer(ctx, clusterName, s.service(ctx, s.wanted[name].service), s.nodes)
		require.NoError(s.t, err)
		require.NotEmpty(s.t, status.Ingress)
	}
	s.requireNoWrites("everything is as wanted already")
}
