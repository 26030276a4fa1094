// Command bench measures how fast the program initialises nodes, and what that costs the cloud, the API server and the
// machine. Times depend on the machine and are printed, never asserted.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// notes say what limits the figures; they belong to the output, so that nobody reads one without the other.
const notes = `
What limits it: everything runs on this one machine, so kube-apiserver, etcd and the bench itself compete with the
program for the cores. The framework itself makes 3 calls to the API server for each node (PUT, PATCH of the status, event), which
"floor" counts; "ours" is how many more calls were made in all, such as those of the informers, the lease and events. The cloud costs
a handful of pages whatever the number of nodes. "first" and "last" count from the start of the process and
contain its start, leader election and the first listing. "rest" is the resident memory 40 s after the last node; it
and "peak" contain the pages of the binary itself that are in use, about 25 MiB.`

// frameworkCalls are the calls to the API server that the framework makes for each node that it initialises: two writes and an event.
const frameworkCalls = 3

type scenario struct {
	nodes   int
	padding int
	limits  bool
}

type result struct {
	first, last   time.Duration
	cloud         int
	kube          float64
	cpu           time.Duration
	peak, atRest  int64
	nodesPerScond float64
}

// bench configures the measurement.
type bench struct {
	nodes, services string
	// serviceNodes are behind load balancers; servicePadding is how many bytes of images each reports.
	serviceNodes, servicePadding int
	provider                     string
	// latency is the time that every cloud call takes, activation how long the cloud works on a change that it makes later.
	latency, activation time.Duration
	// limits and serviceLimits switch on the cloud's published rate limits.
	limits, serviceLimits bool
	args                  []string
	// profiles is the folder that profiles are written to.
	profiles string
	// page is the file that the table of load balancers is written to.
	page string
}

func main() {
	var b bench
	flag.StringVar(&b.nodes, "nodes", "0,100,1000,5000,5000x18432", "comma-separated numbers of nodes, each with the bytes of a node after an x")
	flag.StringVar(&b.services, "services", "500,1000", "comma-separated numbers of load balancers with two ports each")
	flag.IntVar(&b.serviceNodes, "service-nodes", 1000, "number of nodes behind these load balancers")
	flag.IntVar(&b.servicePadding, "service-node-size", 0, "bytes of images that each of these nodes reports")
	flag.StringVar(&b.provider, "provider", harness.AnyProvider, "the cloud to simulate")
	flag.DurationVar(&b.latency, "latency", 40*time.Millisecond, "time that every cloud call takes")
	flag.DurationVar(&b.activation, "activation", 3*time.Second, "time that the cloud works on a load balancer after a change, where it works on them later")
	flag.BoolVar(&b.limits, "published-limits", true, "switch on the cloud's published rate limits for nodes")
	flag.BoolVar(&b.serviceLimits, "service-limits", false, "switch them on for load balancers too, and the program's own: at 250 calls a minute, 1,000 of them take half an hour")
	args := flag.String("args", "", "further arguments of the program, separated by spaces")
	flag.StringVar(&b.profiles, "profiles", "", "a folder to write down where time and memory of the program go, for each change of load balancers")
	flag.StringVar(&b.page, "write", "", "write the table of load balancers into this page")
	flag.Parse()
	b.args = strings.Fields(*args)
	if err := run(b); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func isComma(r rune) bool { return r == ',' }

// numbersOf reads numbers of load balancers.
func numbersOf(text string) ([]int, error) {
	var all []int
	for number := range strings.FieldsFuncSeq(text, isComma) {
		n, err := strconv.Atoi(number)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("--services %q: numbers from 1 on, separated by commas, are needed", text)
		}
		all = append(all, n)
	}
	return all, nil
}

func parse(sizes string, limits bool) ([]scenario, error) {
	var all []scenario
	for text := range strings.FieldsFuncSeq(sizes, isComma) {
		number, padding, _ := strings.Cut(text, "x")
		n, err := strconv.Atoi(number)
		s := scenario{nodes: n, limits: limits}
		if err == nil && padding != "" {
			s.padding, err = strconv.Atoi(padding)
		}
		if err != nil {
			return nil, fmt.Errorf("--nodes %q: %w", text, err)
		}
		all = append(all, s)
	}
	return all, nil
}

func run(b bench) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	scenarios, err := parse(b.nodes, b.limits)
	if err != nil {
		return err
	}
	numbers, err := numbersOf(b.services)
	if err != nil {
		return err
	}
	stage, err := harness.NewStage(ctx, "bench", os.Stderr)
	if err != nil {
		return err
	}
	defer stage.Close()
	if err := runNodes(ctx, stage, b, scenarios); err != nil {
		return err
	}
	return runServices(ctx, stage, b, numbers)
}

func runNodes(ctx context.Context, stage *harness.Stage, b bench, scenarios []scenario) error {
	if len(scenarios) == 0 {
		return nil
	}
	fmt.Printf("%s, cloud latency %s, published rate limits %s, defaults of the program %s\n\n", b.provider, b.latency, onOff(b.limits), strings.Join(b.args, " "))
	fmt.Printf("%-14s %8s %8s %9s %12s %11s %8s %6s %8s %10s %10s\n", "nodes", "first", "last", "nodes/s", "cloud calls", "kube calls",
		"floor", "ours", "CPU", "peak MiB", "rest MiB")
	for i, s := range scenarios {
		r, err := measure(ctx, stage, fmt.Sprintf("bench%d", i), b.provider, b.latency, s, b.args)
		if err != nil {
			return fmt.Errorf("%d nodes: %w", s.nodes, err)
		}
		name := strconv.Itoa(s.nodes)
		if s.padding > 0 {
			name += fmt.Sprintf(" of %d kB", s.padding>>10)
		}
		floor := s.nodes * frameworkCalls
		fmt.Printf("%-14s %7.1fs %7.1fs %9.0f %12d %11.0f %8d %6.0f %7.1fs %10.1f %10.1f\n", name, r.first.Seconds(), r.last.Seconds(),
			r.nodesPerScond, r.cloud, r.kube, floor, r.kube-float64(floor), r.cpu.Seconds(), mib(r.peak), mib(r.atRest))
	}
	fmt.Println(notes)
	return nil
}

func onOff(on bool) string {
	if on {
		return "on"
	}
	return "off"
}

func mib(bytes int64) float64 { return float64(bytes) / (1 << 20) }

func measure(
	ctx context.Context, stage *harness.Stage, name, provider string, latency time.Duration, s scenario, args []string,
) (result, error) {
	var r result
	cloud := []string{fmt.Sprintf("--instances=%d", s.nodes), fmt.Sprintf("--latency=%s", latency)}
	if s.limits {
		cloud = append(cloud, "--published-limits")
	}
	c, err := stage.Start(ctx, name, harness.Options{Provider: provider, Cloud: cloud, NoAudit: true})
	if err != nil {
		return r, err
	}
	defer c.Close()
	if err := c.RegisterNodes(ctx, 1, s.nodes, harness.NodeSpec{Ready: true, Padding: s.padding}); err != nil {
		return r, err
	}
	began := time.Now()
	m, err := c.StartCCM(ctx, args, nil)
	if err != nil {
		return r, err
	}
	if err := watchNodes(ctx, c, s.nodes, began, &r); err != nil {
		return r, fmt.Errorf("%w\n%s", err, m.Tail(10))
	}
	if err := m.WaitLeading(ctx, time.Minute); err != nil {
		return r, err
	}
	calls, err := c.Cloud.Calls(ctx)
	if err != nil {
		return r, err
	}
	r.cloud = calls.Total
	r.nodesPerScond = float64(s.nodes) / (r.last - r.first + 1).Seconds()
	return r, rest(ctx, m, &r)
}

// watchNodes notes when the first and the last node had everything from their cloud.
func watchNodes(ctx context.Context, c *harness.Cluster, n int, began time.Time, r *result) error {
	if n == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	w, err := c.Kube.CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("watching nodes: %w", err)
	}
	defer w.Stop()
	done := map[string]bool{}
	for e := range w.ResultChan() {
		node, ok := e.Object.(*v1.Node)
		if !ok || e.Type == watch.Deleted || done[node.Name] || !harness.Initialized(node) {
			continue
		}
		done[node.Name] = true
		if len(done) == 1 {
			r.first = time.Since(began)
		}
		if len(done) == n {
			r.last = time.Since(began)
			return nil
		}
	}
	return errors.Join(fmt.Errorf("%d of %d nodes were initialised", len(done), n), ctx.Err())
}

// settle is how long the program is left alone before its memory at rest is read.
const settle = 40 * time.Second

func rest(ctx context.Context, m *harness.CCM, r *result) error {
	select {
	case <-time.After(settle):
	case <-ctx.Done():
		return ctx.Err()
	}
	var err error
	if r.kube, err = m.Metric(ctx, "rest_client_requests_total"); err != nil {
		return err
	}
	if r.atRest, r.peak, err = memory(m.PID()); err != nil {
		return err
	}
	m.Stop(10 * time.Second)
	r.cpu, _ = m.Usage()
	return nil
}
