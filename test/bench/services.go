package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the expectations of every cloud
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// servicePatience is how long one phase may take: a cloud that allows 250 calls a minute needs eight minutes for 2,000 writes.
const servicePatience = 20 * time.Minute

// services are load balancers of two ports in a running cluster, and the program that serves them.
type services struct {
	*harness.Cluster
	setup    expectations.ServiceCosts
	args     []string
	services int
	nodes    int
	// padding is how many bytes of images each Node reports.
	padding int
	// activation is how long the cloud works on a change.
	activation time.Duration
	ccm        *harness.CCM
	profiles   *profiles
	// done are the phases so far.
	done []phase
}

// phase is the measurement of one change of the whole cluster.
type phase struct {
	name string
	took time.Duration
	// reads and writes are calls to the cloud, kube those to the API server.
	reads, writes int
	kube          float64
	cpu           time.Duration
	// memory is the program's use at the end, peak its maximum, in bytes.
	memory, peak int64
	// floor is the least number of writes that the change can cost: one for each load balancer that it concerns.
	floor int
}

// ratio is how many writes there were for each that cannot be avoided.
func (p phase) ratio() string {
	if p.floor == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2f", float64(p.writes)/float64(p.floor))
}

// gauge holds the counters of the program and the cloud at one moment.
type gauge struct {
	at   time.Time
	kube float64
	cpu  float64
}

// expectationsOf reads how a cloud is set up for Services; ok is false where it has no load balancers.
func expectationsOf(name string) (want expectations.ServiceCosts, ok bool, err error) {
	p, err := registry.Linked().Lookup(name)
	if err != nil {
		return want, false, err
	}
	if p.Features.LoadBalancers != registry.Done || p.Features.Instances != registry.Done {
		return want, false, nil
	}
	cloud, err := expectations.Read(".", p)
	return cloud.Costs.Services, err == nil, err
}

// measureServices goes through the life of n load balancers on a number of nodes.
func measureServices(ctx context.Context, stage *harness.Stage, b bench, n int) ([]phase, error) {
	want, ok, err := expectationsOf(b.provider)
	if err != nil || !ok {
		return nil, err
	}
	cloud := []string{"--latency=" + b.latency.String(), "--activation=" + b.activation.String()}
	if b.serviceLimits {
		cloud = append(cloud, "--published-limits")
	}
	c, err := stage.Start(ctx, fmt.Sprintf("services%d", n), harness.Options{Provider: b.provider, Cloud: cloud, NoAudit: true})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if !b.serviceLimits {
		want.Environment = maps.Clone(want.Environment)
		if want.Environment == nil {
			want.Environment = map[string]string{}
		}
		maps.Copy(want.Environment, want.Unlimited)
	}
	p := &profiles{dir: b.profiles}
	s := &services{
		Cluster: c, setup: want, args: slices.Concat(b.args, p.args()), services: n, nodes: b.serviceNodes, activation: b.activation,
		padding: b.servicePadding, profiles: p,
	}
	for _, step := range []func(context.Context) error{s.prepare, s.create, s.join, s.leave, s.port, s.restart, s.remove} {
		if err := step(ctx); err != nil {
			return s.done, fmt.Errorf("%d load balancers, after %d phases: %w", n, len(s.done), err)
		}
	}
	return s.done, nil
}

// prepare makes the instances, of which one has no Node yet, starts the program, and has it initialise the Nodes.
func (s *services) prepare(ctx context.Context) error {
	for _, step := range s.setup.Prepare {
		if err := s.Cloud.Prepare(ctx, step); err != nil {
			return err
		}
	}
	if err := s.Cloud.Seed(ctx, s.nodes+1); err != nil {
		return err
	}
	if err := s.start(ctx); err != nil {
		return err
	}
	return s.phase(ctx, "the nodes", 0, func(ctx context.Context) error {
		return s.RegisterNodes(ctx, 1, s.nodes, harness.NodeSpec{Ready: true, Padding: s.padding})
	}, func(ctx context.Context) error { return s.WaitInitialized(ctx, s.nodes, servicePatience) }, nil)
}

func (s *services) start(ctx context.Context) error {
	objects := harness.Values{}
	for path, value := range s.setup.Values {
		objects.Set(path, value)
	}
	var err error
	args := append(append([]string{}, s.setup.Arguments...), s.args...)
	if s.ccm, err = s.StartRelease(ctx, "cloud-controller-manager", s.Programs.CCM, objects, args, s.setup.Environment); err != nil {
		return err
	}
	return s.ccm.WaitLeading(ctx, time.Minute)
}

func (s *services) gauge(ctx context.Context) (gauge, error) {
	g := gauge{at: time.Now()}
	var err error
	if g.kube, err = s.ccm.Metric(ctx, "rest_client_requests_total"); err != nil {
		return g, err
	}
	g.cpu, err = s.ccm.Metric(ctx, "process_cpu_seconds_total")
	return g, err
}

// phase makes a change, waits until nothing is left to do, and notes what it took. reached says cheaply that it is done, and may be nil
// where only the cloud tells. holds asks the cloud, and may be nil; it is asked when all is quiet, for with many load balancers that holds
// up the simulated cloud for seconds.
func (s *services) phase(
	ctx context.Context, name string, floor int, change, reached, holds func(context.Context) error,
) error {
	before, err := s.gauge(ctx)
	if err != nil {
		return err
	}
	if err := s.Cloud.ResetCalls(ctx); err != nil {
		return err
	}
	if err := forgetPeak(s.ccm.PID()); err != nil {
		return err
	}
	s.profiles.begin(ctx, s.ccm, name)
	began := time.Now()
	if err := change(ctx); err != nil {
		return err
	}
	if name == restarted {
		before = gauge{} // another process, which counts from nothing
	}
	end := began
	if reached != nil {
		if err := harness.Eventually(ctx, servicePatience, name, reached); err != nil {
			return err
		}
		end = time.Now()
	}
	var q quiet
	err = harness.Eventually(ctx, servicePatience, name, func(ctx context.Context) error {
		if err := s.waitUntilSettled(ctx, &q); err != nil || holds == nil {
			return err
		}
		return holds(ctx)
	})
	if err != nil {
		return err
	}
	p := phase{name: name, took: max(end.Sub(began), q.last.Sub(began)), floor: floor}
	after, err := s.gauge(ctx)
	if err != nil {
		return err
	}
	calls, err := s.Cloud.Calls(ctx)
	if err != nil {
		return err
	}
	if p.memory, p.peak, err = memory(s.ccm.PID()); err != nil {
		return err
	}
	p.reads, p.writes, p.kube = calls.Reads, calls.Writes, after.kube-before.kube
	p.cpu = time.Duration((after.cpu - before.cpu) * float64(time.Second))
	s.done = append(s.done, p)
	fmt.Println(row(s.services, s.nodes, p))
	return s.profiles.end(ctx, s.ccm, name, calls)
}

// quiet counts the writes to the cloud in a phase and keeps the time of the last one, to detect that they have ended.
type quiet struct {
	writes int
	last   time.Time
}

// waitUntilSettled waits until no Service is queued or worked on and the cloud has seen no write for longer than it works on one.
func (s *services) waitUntilSettled(ctx context.Context, q *quiet) error {
	calm := time.Now()
	return harness.Eventually(ctx, servicePatience, "the Services to be done", func(ctx context.Context) error {
		calls, err := s.Cloud.Calls(ctx)
		if err != nil {
			return err
		}
		now := time.Now()
		if calls.Writes != q.writes {
			q.last, q.writes, calm = now, calls.Writes, now
		}
		if now.Sub(calm) < s.activation+2*time.Second {
			return fmt.Errorf("%d writes so far", q.writes)
		}
		for _, metric := range []string{"workqueue_depth", "workqueue_unfinished_work_seconds"} {
			left, err := s.ccm.Metric(ctx, metric, `name="service"`)
			if err == nil && left > 0 {
				err = fmt.Errorf("%s is %.1f", metric, left)
			}
			if err != nil {
				return err
			}
		}
		return nil
	})
}

const restarted = "a restart"

func name(i int) string { return fmt.Sprintf("web-%d", i) }

func (s *services) create(ctx context.Context) error {
	return s.phase(ctx, "creation", s.services, func(ctx context.Context) error {
		for i := range s.services {
			_, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, &v1.Service{
				ObjectMeta: metav1.ObjectMeta{Name: name(i), Annotations: s.setup.Annotations},
				Spec: v1.ServiceSpec{
					Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Name: "a", Port: 80}, {Name: "b", Port: 443}},
				},
			}, metav1.CreateOptions{})
			if err != nil {
				return fmt.Errorf("creating Service %s: %w", name(i), err)
			}
		}
		return nil
	}, s.checkServed, s.shows(fmt.Sprintf("%d nodes", s.nodes)))
}

// checkServed is nil once each Service has an address.
func (s *services) checkServed(ctx context.Context) error {
	list, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{ResourceVersion: "0"})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	without := 0
	for i := range list.Items {
		svc := &list.Items[i]
		if svc.Spec.Type == v1.ServiceTypeLoadBalancer && len(svc.Status.LoadBalancer.Ingress) == 0 {
			without++
		}
	}
	if without > 0 {
		return fmt.Errorf("%d of %d have no address", without, s.services)
	}
	return nil
}

// shows returns a check whether every load balancer of the cloud says a text of itself.
func (s *services) shows(text string) func(context.Context) error {
	return func(ctx context.Context) error {
		summary, err := s.Cloud.Summary(ctx)
		if err != nil {
			return err
		}
		matching := 0
		for _, h := range summary.Holdings {
			if strings.Contains(h, text) {
				matching++
			}
		}
		if matching < s.services {
			return fmt.Errorf("%d of %d load balancers show %s", matching, s.services, text)
		}
		return nil
	}
}

func (s *services) join(ctx context.Context) error {
	return s.phase(ctx, "one more node", s.services, func(ctx context.Context) error {
		return s.RegisterNode(ctx, harness.NodeSpec{Name: fmt.Sprintf("node-%d", s.nodes+1), Ready: true})
	}, nil, s.shows(fmt.Sprintf("%d nodes", s.nodes+1)))
}

func (s *services) leave(ctx context.Context) error {
	return s.phase(ctx, "one node less", s.services, func(ctx context.Context) error {
		_, err := s.Kube.CoreV1().Nodes().Patch(ctx, "node-1", types.StrategicMergePatchType,
			[]byte(`{"metadata":{"labels":{"`+v1.LabelNodeExcludeBalancers+`":""}}}`), metav1.PatchOptions{})
		if err != nil {
			return fmt.Errorf("excluding a node: %w", err)
		}
		return nil
	}, nil, s.shows(fmt.Sprintf("%d nodes", s.nodes)))
}

func (s *services) port(ctx context.Context) error {
	return s.phase(ctx, "a changed port", s.services, func(ctx context.Context) error {
		return s.each(ctx, `{"spec":{"ports":[{"name":"b","port":443,"$patch":"delete"},{"name":"b","port":8443}]}}`)
	}, nil, s.shows("8443"))
}

// each patches every Service.
func (s *services) each(ctx context.Context, patch string) error {
	for i := range s.services {
		_, err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Patch(
			ctx, name(i), types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{},
		)
		if err != nil {
			return fmt.Errorf("changing Service %s: %w", name(i), err)
		}
	}
	return nil
}

func (s *services) restart(ctx context.Context) error {
	again := func(ctx context.Context) error {
		s.ccm.Stop(10 * time.Second)
		return s.start(ctx)
	}
	return s.phase(ctx, restarted, 0, again, func(ctx context.Context) error {
		done, err := s.ccm.Metric(ctx, "workqueue_work_duration_seconds_count", `name="service"`)
		if err == nil && int(done) < s.services {
			err = fmt.Errorf("%.0f of %d Services were looked at", done, s.services)
		}
		return err
	}, nil)
}

func (s *services) remove(ctx context.Context) error {
	return s.phase(ctx, "deletion", s.services, func(ctx context.Context) error {
		for i := range s.services {
			if err := s.Kube.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, name(i), metav1.DeleteOptions{}); err != nil {
				return fmt.Errorf("deleting Service %s: %w", name(i), err)
			}
		}
		return nil
	}, nil, func(ctx context.Context) error {
		summary, err := s.Cloud.Summary(ctx)
		if err == nil && len(summary.Holdings) > 0 {
			err = errors.New(summary.Holdings[0])
		}
		return err
	})
}
