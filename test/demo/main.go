// Command demo shows the whole product on one machine: a real kube-apiserver, a simulated cloud and the built program,
// each as a process of its own. It ends with exit code 0 only if every step was really seen.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

const patience = time.Minute

// The demo spares new Nodes for a shorter time than the program does by default, and asks more often whether an instance is gone, so that
// a Node goes while somebody looks on. What is asked for before it goes is the same.
const (
	grace        = "2s"
	period       = "500ms"
	confirmation = "1s"
)

func main() {
	provider := flag.String("provider", harness.AnyProvider, "the cloud to simulate")
	nodes := flag.Int("nodes", 3, "number of nodes")
	oneshot := flag.Bool("oneshot", false, "end after the last step instead of waiting for Ctrl-C")
	flag.Parse()

	d := &demo{began: time.Now(), nodes: *nodes, provider: *provider}
	if err := d.run(*oneshot); err != nil {
		fmt.Fprintln(os.Stderr, "\nThe demo failed:", err)
		os.Exit(1)
	}
}

type demo struct {
	began    time.Time
	nodes    int
	provider string
	stage    *harness.Stage
	cluster  *harness.Cluster
	ccm      *harness.CCM
}

func (d *demo) step(format string, args ...any) {
	fmt.Printf("\n[%5.1fs] %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) tell(format string, args ...any) { fmt.Printf("         "+format+"\n", args...) }

func (d *demo) close() {
	if d.cluster != nil {
		d.cluster.Close()
	}
	if d.stage != nil {
		d.stage.Close()
	}
}

func (d *demo) run(oneshot bool) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	defer d.close()
	if d.nodes < 1 {
		return errors.New("at least one node is needed")
	}
	if err := d.start(ctx); err != nil {
		return err
	}
	steps := []func(context.Context) error{d.join, d.serve, d.lose}
	if d.cluster.Cloud.InCluster() {
		steps = []func(context.Context) error{d.joinReady, d.serveInCluster}
	}
	for _, s := range steps {
		if err := s(ctx); err != nil {
			return err
		}
	}
	if oneshot {
		d.step("Everything was seen. Bye.")
		return nil
	}
	d.step("Everything was seen. It all keeps running until you press Ctrl-C. Go on by hand:")
	d.tell("export KUBECONFIG=%s", d.cluster.Kubeconfig)
	if d.cluster.Cloud.InCluster() {
		d.tell("kubectl get services,nodes -o wide")
		d.tell("kubectl get configmaps -n kube-system")
		d.tell("kubectl create service loadbalancer late --tcp=80")
		d.tell("tail -f %s", d.ccm.Log)
		<-ctx.Done()
		fmt.Println()
		return nil
	}
	d.tell("export CLOUD=%s", d.cluster.Cloud.URL)
	d.tell("kubectl get nodes -o wide")
	d.tell("kubectl describe service web")
	d.tell("kubectl get events -A")
	d.tell("curl -s $CLOUD/_sim/summary          # what the cloud holds")
	d.tell("curl -s $CLOUD/_sim/calls            # the calls that it saw")
	d.tell("curl -s -X POST -d '{\"kind\":\"status\",\"status\":500}' $CLOUD/_sim/faults   # an outage")
	d.tell("kubectl create service loadbalancer late --tcp=80       # a Service while the cloud fails")
	d.tell("kubectl describe service late                           # what its events say")
	d.tell("curl -s -X DELETE $CLOUD/_sim/faults                    # the end of the outage; the Service is served")
	d.tell("tail -f %s", d.ccm.Log)
	<-ctx.Done()
	fmt.Println()
	return nil
}

// start brings up the control plane, the cloud and the program.
func (d *demo) start(ctx context.Context) error {
	d.step("Control plane: kube-apiserver and etcd")
	var err error
	if d.stage, err = harness.NewStage(ctx, "demo", os.Stdout); err != nil {
		return err
	}
	if d.cluster, err = d.stage.Start(ctx, "demo", harness.Options{
		Provider: d.provider, Cloud: []string{fmt.Sprintf("--instances=%d", d.nodes), "--latency=40ms", "--activation=500ms"},
	}); err != nil {
		return err
	}
	d.tell("kube-apiserver  %s", d.cluster.API.URL)
	if !d.cluster.Cloud.InCluster() {
		d.tell("%-15s %s, simulated, %d instances", d.provider, d.cluster.Cloud.URL, d.nodes)
	}

	d.step("Cloud controller manager: --cloud-provider=%s", d.provider)
	if d.ccm, err = d.cluster.StartCCM(ctx, []string{
		"--node-deletion-grace-period=" + grace, "--node-monitor-period=" + period, "--node-deletion-confirmation-time=" + confirmation,
	}, nil); err != nil {
		return err
	}
	if err := d.ccm.WaitLeading(ctx, patience); err != nil {
		return err
	}
	d.tell("it leads, and serves health and metrics at %s", d.ccm.URL)
	return nil
}

// join registers nodes and watches them being initialised.
func (d *demo) join(ctx context.Context) error {
	d.step("%d nodes register as kubelet does with --cloud-provider=external: tainted, without provider ID", d.nodes)
	if err := d.cluster.RegisterNodes(ctx, 1, d.nodes, harness.NodeSpec{Ready: true}); err != nil {
		return err
	}
	shown := map[string]bool{}
	const most = 10
	err := harness.Eventually(ctx, patience, "all nodes to be initialised", func(ctx context.Context) error {
		list, err := d.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range list.Items {
			n := &list.Items[i]
			if !harness.Initialized(n) || shown[n.Name] {
				continue
			}
			shown[n.Name] = true
			if len(shown) <= most {
				d.tell("%-9s taint gone  %s  type %s  region %s  %s", n.Name, n.Spec.ProviderID,
					n.Labels[v1.LabelInstanceTypeStable], n.Labels[v1.LabelTopologyRegion], addresses(n))
			}
		}
		if len(shown) < d.nodes {
			return fmt.Errorf("%d of %d", len(shown), d.nodes)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.ccm.Tail(10))
	}
	if len(shown) > most {
		d.tell("and %d more", len(shown)-most)
	}
	return d.cost(ctx)
}

func addresses(n *v1.Node) string {
	var list []string
	for _, a := range n.Status.Addresses {
		list = append(list, fmt.Sprintf("%s=%s", a.Type, a.Address))
	}
	return strings.Join(list, " ")
}

func (d *demo) cost(ctx context.Context) error {
	calls, err := d.cluster.Cloud.Calls(ctx)
	if err != nil {
		return err
	}
	d.tell("the cloud has seen %d reads and %d writes so far", calls.Reads, calls.Writes)
	return nil
}

// servesServices asks the program whether the cloud has load balancers.
func (d *demo) servesServices(ctx context.Context) (bool, error) {
	text, err := exec.CommandContext(ctx, d.stage.Programs.CCM, "providers", "--output=json").Output()
	var all []struct {
		Name     string `json:"name"`
		Features struct {
			LoadBalancers string `json:"loadBalancers"`
		} `json:"features"`
	}
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil {
		return false, fmt.Errorf("asking the program for its clouds: %w", err)
	}
	for _, p := range all {
		if p.Name == d.provider {
			return p.Features.LoadBalancers == registry.Done.String(), nil
		}
	}
	return false, fmt.Errorf("the program has no cloud %s", d.provider)
}

// serve creates a Service and shows its address and what the cloud holds for it.
func (d *demo) serve(ctx context.Context) error {
	if serves, err := d.servesServices(ctx); !serves {
		return err
	}
	d.step("A Service of type LoadBalancer")
	if _, err := d.cluster.CreateService(ctx, "web", nil); err != nil {
		return err
	}
	address, err := d.cluster.WaitServed(ctx, "web", patience)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.ccm.Tail(10))
	}
	d.tell("Service web is served at %s", address)
	summary, err := d.cluster.Cloud.Summary(ctx)
	if err != nil {
		return err
	}
	if len(summary.Holdings) == 0 {
		return errors.New("the Service has an address, but the cloud holds no load balancer")
	}
	for _, h := range summary.Holdings {
		d.tell("the cloud holds: %s", h)
	}
	return d.cost(ctx)
}

// lose destroys an instance and watches its Node go.
func (d *demo) lose(ctx context.Context) error {
	name := fmt.Sprintf("node-%d", d.nodes)
	d.step("Somebody deletes the instance of %s in the cloud; its kubelet falls silent", name)
	d.tell("the cloud is asked every %s for %s here, every 5s for 10s by default; see docs/node-deletion.md", period, confirmation)
	if err := d.cluster.Cloud.Remove(ctx, name); err != nil {
		return err
	}
	if err := d.cluster.SetReady(ctx, name, false); err != nil {
		return err
	}
	gone := time.Now()
	err := harness.Eventually(ctx, patience, "the Node to be removed", func(ctx context.Context) error {
		_, err := d.cluster.Kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errors.Join(err, errors.New("it is still there"))
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.ccm.Tail(10))
	}
	d.tell("Node %s is gone after %.1f s; the other %d stay", name, time.Since(gone).Seconds(), d.nodes-1)
	list, err := d.cluster.Kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	if len(list.Items) != d.nodes-1 {
		return fmt.Errorf("%d nodes are left instead of %d", len(list.Items), d.nodes-1)
	}
	return d.cost(ctx)
}
