// Command soak lets nodes and Services come and go at random on a real kube-apiserver while the simulated cloud fails and
// the program is killed and restarted. At each quiet point every Node of a living instance must be there, every Node of a
// dead one gone, and the cloud must hold one load balancer for each Service; in the end nothing. A run is its seed.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const (
	// pace is the time between two things that happen, and stretch how many happen between two quiet points.
	pace    = 700 * time.Millisecond
	stretch = 25
	// patience is how long the cluster may take to settle at a quiet point: backoffs of the framework included.
	patience = 3 * time.Minute
	maxNodes = 12
	maxLBs   = 8
)

func main() {
	duration := flag.Duration("duration", 3*time.Minute, "how long to go on")
	seed := flag.Uint64("seed", uint64(time.Now().UnixNano()), "the seed of the run")
	provider := flag.String("provider", harness.AnyProvider, "the cloud to simulate")
	flag.Parse()
	if err := run(*provider, *seed, *duration); err != nil {
		fmt.Fprintf(os.Stderr, "The run with -seed=%d failed: %v\n", *seed, err)
		os.Exit(1)
	}
}

type soak struct {
	rnd      *rand.Rand
	cluster  *harness.Cluster
	ccm      *harness.CCM
	began    time.Time
	joined   int
	created  int
	alive    map[string]bool
	services map[string]bool
}

func run(provider string, seed uint64, duration time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	stage, err := harness.NewStage(ctx, "soak", os.Stderr)
	if err != nil {
		return err
	}
	defer stage.Close()
	cluster, err := stage.Start(ctx, "soak", harness.Options{Provider: provider, Cloud: []string{"--activation=500ms", "--latency=10ms"}, NoAudit: true})
	if err != nil {
		return err
	}
	defer cluster.Close()
	s := &soak{
		rnd: rand.New(rand.NewPCG(seed, seed)), cluster: cluster, began: time.Now(), //nolint:gosec // a run must be reproducible
		alive: map[string]bool{}, services: map[string]bool{},
	}
	fmt.Printf("seed %d, %s\n", seed, duration)
	if err := s.goOn(ctx, duration); err != nil {
		return fmt.Errorf("%w\n%s", err, s.ccm.Tail(30))
	}
	return nil
}

func (s *soak) say(format string, args ...any) {
	fmt.Printf("[%6.1fs] %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

func (s *soak) goOn(ctx context.Context, duration time.Duration) error {
	if err := s.start(ctx); err != nil {
		return err
	}
	for range 3 {
		if err := s.join(ctx); err != nil {
			return err
		}
	}
	ticker := time.NewTicker(pace)
	defer ticker.Stop()
	for time.Since(s.began) < duration {
		for range stretch {
			if err := s.random(ctx); err != nil {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-ticker.C:
			}
		}
		if err := s.quiet(ctx); err != nil {
			return err
		}
	}
	for name := range s.services {
		if err := s.remove(ctx, name); err != nil {
			return err
		}
	}
	return s.quiet(ctx)
}

// start starts the program with the limit on vanishing Nodes lifted: what is destroyed here is really gone.
func (s *soak) start(ctx context.Context) (err error) {
	s.ccm, err = s.cluster.StartCCM(
		ctx,
		[]string{"--node-deletion-max-share=1", "--leader-elect-lease-duration=4s", "--leader-elect-renew-deadline=3s", "--leader-elect-retry-period=1s"},
		nil,
	)
	return err
}

func (s *soak) random(ctx context.Context) error {
	switch n := s.rnd.IntN(100); {
	case n < 18:
		return s.join(ctx)
	case n < 30:
		return s.destroy(ctx)
	case n < 50:
		return s.create(ctx)
	case n < 62:
		if name, ok := pick(s.rnd, s.services); ok {
			return s.remove(ctx, name)
		}
	case n < 68:
		return s.restart(ctx)
	case n < 90:
		return s.fail(ctx)
	default:
		s.say("faults end")
		return s.cluster.Cloud.ClearFaults(ctx)
	}
	return nil
}

// pick chooses by the order of names, not of the map, so that a seed is a run.
func pick(rnd *rand.Rand, from map[string]bool) (string, bool) {
	names := slices.Sorted(maps.Keys(from))
	if len(names) == 0 {
		return "", false
	}
	return names[rnd.IntN(len(names))], true
}

func (s *soak) join(ctx context.Context) error {
	if len(s.alive) >= maxNodes {
		return nil
	}
	s.joined++
	name := fmt.Sprintf("node-%d", s.joined) // the simulated cloud counts in the same way
	s.say("join %s", name)
	if err := s.cluster.Cloud.Seed(ctx, 1); err != nil {
		return err
	}
	s.alive[name] = true
	return s.cluster.RegisterNode(ctx, harness.NodeSpec{Name: name, Ready: true})
}

func (s *soak) destroy(ctx context.Context) error {
	name, ok := pick(s.rnd, s.alive)
	if !ok || len(s.alive) < 2 {
		return nil
	}
	s.say("destroy %s", name)
	delete(s.alive, name)
	if err := s.cluster.Cloud.Remove(ctx, name); err != nil {
		return err
	}
	return ignoreNotFound(s.cluster.SetReady(ctx, name, false))
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func (s *soak) create(ctx context.Context) error {
	if len(s.services) >= maxLBs {
		return nil
	}
	s.created++
	name := fmt.Sprintf("web-%d", s.created)
	s.say("create %s", name)
	s.services[name] = true
	_, err := s.cluster.CreateService(ctx, name, nil)
	return err
}

func (s *soak) remove(ctx context.Context, name string) error {
	s.say("delete %s", name)
	delete(s.services, name)
	return s.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, name, metav1.DeleteOptions{})
}

func (s *soak) restart(ctx context.Context) error {
	if s.rnd.IntN(2) == 0 {
		s.say("kill")
		s.ccm.Stop(0)
	} else {
		s.say("stop")
		s.ccm.Stop(5 * time.Second)
	}
	return s.start(ctx)
}

func (s *soak) fail(ctx context.Context) error {
	faults := []harness.Fault{
		{Kind: "status", Status: 500},
		{Kind: "status", Status: 503},
		{Kind: "status", Status: 429, RetryAfter: 1},
		{Kind: "status", Status: 401},
		{Kind: "status", Status: 403},
		{Kind: "status-after", Status: 500},
		{Kind: "reset"},
		{Kind: "lost"},
		{Kind: "cut"},
		{Kind: "html"},
	}
	f := faults[s.rnd.IntN(len(faults))]
	f.From, f.Count = 1+s.rnd.IntN(3), 1+s.rnd.IntN(8)
	s.say("fault %s %d, %d calls from the %d.", f.Kind, f.Status, f.Count, f.From)
	return s.cluster.Cloud.AddFault(ctx, f)
}

// quiet ends the faults and waits until everything is as wanted.
func (s *soak) quiet(ctx context.Context) error {
	s.say("quiet: %d nodes, %d Services", len(s.alive), len(s.services))
	if err := s.cluster.Cloud.ClearFaults(ctx); err != nil {
		return err
	}
	if err := s.dropNameless(ctx); err != nil {
		return err
	}
	began := time.Now()
	if err := harness.Eventually(ctx, patience, "the cluster to settle", s.checkSettled); err != nil {
		return err
	}
	s.say("settled after %.1f s", time.Since(began).Seconds())
	return nil
}

// dropNameless does what an operator has to: a Node whose instance went before it was known which one it is can never be
// called gone.
func (s *soak) dropNameless(ctx context.Context) error {
	list, err := s.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	for _, n := range list.Items {
		if !s.alive[n.Name] && n.Spec.ProviderID == "" {
			if err := ignoreNotFound(s.cluster.Kube.CoreV1().Nodes().Delete(ctx, n.Name, metav1.DeleteOptions{})); err != nil {
				return fmt.Errorf("deleting node %s: %w", n.Name, err)
			}
		}
	}
	return nil
}

func (s *soak) checkSettled(ctx context.Context) error {
	list, err := s.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	there := map[string]bool{}
	var problems []error
	for i := range list.Items {
		n := &list.Items[i]
		there[n.Name] = true
		if !s.alive[n.Name] {
			problems = append(problems, fmt.Errorf("node %s of a dead instance is there", n.Name))
		} else if !harness.Initialized(n) {
			problems = append(problems, fmt.Errorf("node %s is not initialised", n.Name))
		}
	}
	for name := range s.alive {
		if !there[name] {
			problems = append(problems, fmt.Errorf("node %s of a living instance is gone", name))
		}
	}
	for name := range s.services {
		service, err := s.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(service.Status.LoadBalancer.Ingress) == 0 {
			err = fmt.Errorf("Service %s has no address", name) //nolint:staticcheck // Service is a name
		}
		problems = append(problems, err)
	}
	summary, err := s.cluster.Cloud.Summary(ctx)
	if err == nil && len(summary.Holdings) != len(s.services) {
		err = fmt.Errorf("%d Services, but the cloud holds %v", len(s.services), summary.Holdings)
	}
	return errors.Join(append(problems, err)...)
}
