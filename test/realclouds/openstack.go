package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
)

const (
	// openstackVariable names the folder of OpenStack's services on this machine. It has the scripts env.sh, up.sh, seed.sh and down.sh,
	// which start the services, make networks and servers, and write seed.json and cloud.conf.
	openstackVariable = "ANYCCM_OPENSTACK"
	// controllerVariable names OpenStack's own controller, a program. It goes through the measured steps first; where it needs longer than
	// on the machine that the times below are from, ours may as well.
	controllerVariable = "ANYCCM_OPENSTACK_CONTROLLER"
	// servers are those of the project. The last one joins later.
	servers = 6
	// outage is how long a service is away.
	outage = 30 * time.Second
	// resumed is how soon the program goes on after that.
	resumed = 10 * time.Second
	// tried is the Service of the measured steps.
	tried = "web"
)

// openStack are OpenStack's own services.
type openStack struct {
	folder  string
	checker *checker
	seed    seed
	// started is set where the services did not run before.
	started bool
	// up gets the end of the script that starts services again.
	up chan error
	// controller are the seconds that OpenStack's own controller needed for each step on this machine.
	controller map[string]float64
}

// seed holds the objects that the services' own script has created.
type seed struct {
	AuthURL  string `json:"auth_url"`
	Password string `json:"password"`
	Project  string `json:"tenant_name"`
	Servers  map[string]struct {
		ID string   `json:"id"`
		IP []string `json:"ip"`
	} `json:"servers"`
}

func newOpenStack() services { return &openStack{} }

// env reads the settings of the services' scripts.
func (o *openStack) env(ctx context.Context) (map[string]string, error) {
	out, err := command(ctx, o.folder, "bash", "-c", "set -a; . ./env.sh; env")
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for line := range strings.Lines(out) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			all[name] = value
		}
	}
	return all, nil
}

// start implements services.
func (o *openStack) start(ctx context.Context, r *run) (*harness.Outside, error) {
	if o.folder = os.Getenv(openstackVariable); o.folder == "" {
		return nil, notHere("OpenStack's services are not known on this machine: name the folder of their scripts by " + openstackVariable +
			"; docs/acceptance.md says what is in it")
	}
	env, err := o.env(ctx)
	if err != nil {
		return nil, notHere(fmt.Sprintf("%s=%s has no env.sh that can be read: %v", openstackVariable, o.folder, err))
	}
	auth := env["ROS_AUTH_URL"]
	o.started = reachable(ctx, auth) != nil
	r.say("OpenStack at %s %s", auth, map[bool]string{true: "is started", false: "runs already"}[o.started])
	for _, script := range [][]string{{"./up.sh"}, {"./seed.sh", strconv.Itoa(servers)}} {
		if _, err := command(ctx, o.folder, script[0], script[1:]...); err != nil {
			return nil, err
		}
	}
	state := env["ROS"]
	text, err := os.ReadFile(filepath.Join(state, "seed.json"))
	if err == nil {
		err = json.Unmarshal(text, &o.seed)
	}
	if err != nil {
		return nil, fmt.Errorf("reading what the services hold: %w", err)
	}
	config, err := os.ReadFile(filepath.Join(state, "cloud.conf"))
	if err != nil {
		return nil, fmt.Errorf("reading the cloud config: %w", err)
	}
	if o.checker, err = newChecker(ctx, o.seed); err != nil {
		return nil, err
	}
	r.record.Title, r.record.Services = "OpenStack's own services", o.versions(ctx)
	// What OpenStack's own controller needs was measured without routes.
	withoutRoutes, _, _ := strings.Cut(string(config), "[Route]")
	return &harness.Outside{CloudConfig: withoutRoutes}, nil
}

// versions are those of the packages that the services come from.
func (o *openStack) versions(ctx context.Context) []string {
	out, err := command(ctx, o.folder, "dpkg-query", "-W", "-f", "${Package} ${Version}\n",
		"python3-keystone", "python3-nova", "python3-neutron", "python3-octavia")
	if err != nil {
		return []string{"versions unknown"}
	}
	var list []string
	scanner := bufio.NewScanner(strings.NewReader(out))
	for scanner.Scan() {
		name, version, _ := strings.Cut(scanner.Text(), " ")
		version = version[strings.Index(version, ":")+1:]
		version, _, _ = strings.Cut(version, "-")
		version, _, _ = strings.Cut(version, "+")
		name = strings.TrimPrefix(name, "python3-")
		list = append(list, strings.ToUpper(name[:1])+name[1:]+" "+version)
	}
	return list
}

// stop implements services.
func (o *openStack) stop() {
	if o.started {
		_, _ = command(context.Background(), o.folder, "./down.sh") // what stays up is found up by the next run
	}
}

// join implements services.
func (o *openStack) join(ctx context.Context, r *run) error { return r.join(ctx, o.nodes()) }

// nodes are the names of the servers that are nodes from the beginning.
func (*openStack) nodes() []string {
	var names []string
	for i := range servers - 1 {
		names = append(names, fmt.Sprintf("node-%d", i))
	}
	return names
}

// joining is the node that joins later.
const joining = "node-5"

// values implements services.
func (*openStack) values() harness.Values { return harness.Values{} }

// suite implements services.
func (*openStack) suite() []suiteRun { return []suiteRun{{part: "suite"}} }

// listLeft implements services: what Octavia and Neutron hold for load balancers.
func (o *openStack) listLeft(ctx context.Context) ([]string, error) {
	var all []string
	for _, list := range []struct{ service, path, key string }{
		{octavia, "/v2.0/lbaas/loadbalancers", "loadbalancers"},
		{octavia, "/v2.0/lbaas/listeners", "listeners"},
		{octavia, "/v2.0/lbaas/pools", "pools"},
		{octavia, "/v2.0/lbaas/healthmonitors", "healthmonitors"},
		{neutron, "/v2.0/floatingips", "floatingips"},
		{neutron, "/v2.0/ports", "ports"},
		{neutron, "/v2.0/security-groups", "security_groups"},
	} {
		objects, err := o.checker.list(ctx, list.service, list.path, list.key)
		if err != nil {
			return nil, err
		}
		for _, object := range objects {
			all = append(all, fmt.Sprint(list.key, " ", object["id"], " ", object["name"]))
		}
	}
	slices.Sort(all)
	return all, nil
}

// before implements services: OpenStack's own controller goes through the steps that ours is measured by.
func (o *openStack) before(ctx context.Context, r *run) error {
	program := os.Getenv(controllerVariable)
	if program == "" || !r.wants("steps") {
		return nil
	}
	r.say("Measuring OpenStack's own controller: %s", program)
	other, err := r.cluster.StartOther(ctx, program, nil, nil)
	if err != nil {
		return err
	}
	defer other.Stop(patience)
	measured := &run{w: r.w, cluster: r.cluster}
	if err := measured.join(ctx, o.nodes()); err != nil {
		return fmt.Errorf("%w\n%s", err, other.Tail(30))
	}
	if err := o.steps(ctx, measured); err != nil {
		return fmt.Errorf("%w\n%s", err, other.Tail(30))
	}
	o.controller = map[string]float64{}
	for _, t := range measured.record.Trials {
		o.controller[t.Name] = t.Seconds
	}
	if err := measured.clear(ctx); err != nil {
		return err
	}
	return r.cluster.Kube.CoreV1().Nodes().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
}

// try implements services.
func (o *openStack) try(ctx context.Context, r *run) error {
	if r.wants("steps") || r.wants("outages") {
		if err := o.steps(ctx, r); err != nil {
			return err
		}
	}
	if r.wants("outages") {
		if err := o.octaviaAway(ctx, r); err != nil {
			return err
		}
		if err := o.novaAway(ctx, r); err != nil {
			return err
		}
	}
	return r.clear(ctx)
}

// part of the measured steps, with what OpenStack's own controller needs on the same services: on this machine where it was measured
// here, else on an idle one of others.
const partSteps = "against OpenStack's own controller"

// steps are those of a Service's life.
func (o *openStack) steps(ctx context.Context, r *run) error {
	kube := r.cluster.Kube.CoreV1()
	wanted := []int{80, 443}
	nodes := o.nodes()
	complete := func(ctx context.Context) error { return o.complete(ctx, r, tried, wanted, nodes) }
	step := func(name string, seconds float64, calls int, do func(context.Context) error) error {
		t := results.Trial{Part: partSteps, Name: name, MaxSeconds: max(o.controller[name], seconds), MaxCalls: calls}
		return r.measure(ctx, t, do, complete)
	}
	if err := o.creations(ctx, r, complete); err != nil {
		return err
	}
	wanted = []int{80, 8443, 9000}
	if err := step("one port is replaced, one added", 18, 46, func(ctx context.Context) error {
		return r.change(ctx, tried, func(s *v1.Service) {
			s.Spec.Ports = append(s.Spec.Ports[:1:1], newService(tried, 8443, 9000).Spec.Ports...)
		})
	}); err != nil {
		return err
	}
	nodes = append(slices.Clone(nodes), joining)
	if err := step("a node joins", 12, 44, func(ctx context.Context) error {
		return r.cluster.RegisterNode(ctx, harness.NodeSpec{Name: joining, Ready: true})
	}); err != nil {
		return err
	}
	nodes = o.nodes()
	if err := step("a node leaves", 9, 23, func(ctx context.Context) error {
		return kube.Nodes().Delete(ctx, joining, metav1.DeleteOptions{})
	}); err != nil {
		return err
	}
	if err := o.loseMember(ctx, r); err != nil {
		return err
	}
	if err := step("a member was deleted behind its back, the Service is touched", 5, 18, func(ctx context.Context) error {
		return r.change(ctx, tried, func(s *v1.Service) { s.Annotations = map[string]string{"example.com/touched": "yes"} })
	}); err != nil {
		return err
	}
	return o.quietSteps(ctx, r)
}

// creations measures how a Service is made, several times: Octavia's own part of one varies by seconds. The last Service stays.
func (o *openStack) creations(ctx context.Context, r *run, complete func(context.Context) error) error {
	const (
		name  = "a Service with 2 ports is made"
		times = 5
	)
	var all []results.Trial
	for len(all) < times {
		if err := r.clear(ctx); err != nil {
			return err
		}
		t := results.Trial{Part: partSteps, Name: name, MaxSeconds: max(o.controller[name], 8), MaxCalls: 24}
		t, err := r.measured(ctx, t, func(ctx context.Context) error {
			_, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, newService(tried, 80, 443), metav1.CreateOptions{})
			return err
		}, complete)
		if err != nil {
			return err
		}
		if !t.Done {
			r.note(t)
			return nil
		}
		r.say("         %s: %.1f s", name, t.Seconds)
		all = append(all, t)
	}
	r.note(results.Median(all))
	return nil
}

// quietSteps is the trial that the steps before it gave no reason for a warning.
func (o *openStack) quietSteps(ctx context.Context, r *run) error {
	texts, err := r.warnings(ctx)
	if err != nil {
		return err
	}
	t := results.Trial{Part: partSteps, Name: "no Warning event", Result: results.Held, Details: texts}
	if len(texts) > 0 {
		t.Result = results.Failed
	}
	r.note(t)
	return nil
}

// newService is a Service with TCP ports.
func newService(name string, ports ...int32) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name},
		Spec:       v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": name}},
	}
	for _, p := range ports {
		s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: fmt.Sprintf("port-%d", p), Protocol: v1.ProtocolTCP, Port: p})
	}
	return s
}

// change changes a Service.
func (r *run) change(ctx context.Context, name string, mutate func(*v1.Service)) error {
	services := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault)
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		s, err := services.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		mutate(s)
		_, err = services.Update(ctx, s, metav1.UpdateOptions{})
		return err
	})
}

// complete is nil once a Service shows an address, and Octavia has a listener for each port with all nodes behind it, and rests.
func (o *openStack) complete(ctx context.Context, r *run, name string, ports []int, nodes []string) error {
	s, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if len(s.Status.LoadBalancer.Ingress) == 0 {
		return errors.New("its status is empty")
	}
	lb, err := o.balancer(ctx, name)
	if err != nil {
		return err
	}
	if lb["provisioning_status"] != "ACTIVE" {
		return fmt.Errorf("the load balancer is %v", lb["provisioning_status"])
	}
	id := fmt.Sprint(lb["id"])
	listeners, err := o.checker.list(ctx, octavia, "/v2.0/lbaas/listeners?loadbalancer_id="+id, "listeners")
	if err != nil {
		return err
	}
	var have []int
	for _, l := range listeners {
		have = append(have, number(l["protocol_port"]))
	}
	slices.Sort(have)
	if want := slices.Sorted(slices.Values(ports)); !slices.Equal(have, want) {
		return fmt.Errorf("listeners %v instead of %v", have, want)
	}
	return o.completePools(ctx, id, len(ports), nodes)
}

// completePools is nil where each pool has all nodes.
func (o *openStack) completePools(ctx context.Context, id string, ports int, nodes []string) error {
	var want []string
	for _, n := range nodes {
		want = append(want, o.seed.Servers[n].IP[0])
	}
	slices.Sort(want)
	pools, err := o.checker.list(ctx, octavia, "/v2.0/lbaas/pools?loadbalancer_id="+id, "pools")
	if err != nil {
		return err
	}
	if len(pools) != ports {
		return fmt.Errorf("%d pools for %d ports", len(pools), ports)
	}
	for _, p := range pools {
		members, err := o.checker.list(ctx, octavia, fmt.Sprintf("/v2.0/lbaas/pools/%s/members", p["id"]), "members")
		if err != nil {
			return err
		}
		var have []string
		for _, m := range members {
			have = append(have, fmt.Sprint(m["address"]))
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			return fmt.Errorf("members %v instead of %v", have, want)
		}
	}
	return nil
}

// balancer is the load balancer of a Service.
func (o *openStack) balancer(ctx context.Context, name string) (map[string]any, error) {
	list, err := o.checker.list(ctx, octavia, "/v2.0/lbaas/loadbalancers", "loadbalancers")
	if err != nil {
		return nil, err
	}
	suffix := regexp.MustCompile(`_default_` + regexp.QuoteMeta(name) + `$`)
	for _, lb := range list {
		if suffix.MatchString(fmt.Sprint(lb["name"])) {
			return lb, nil
		}
	}
	return nil, errors.New("there is no load balancer")
}

// loseMember deletes a member behind the program's back, and waits until Octavia has done it.
func (o *openStack) loseMember(ctx context.Context, r *run) error {
	lb, err := o.balancer(ctx, tried)
	if err != nil {
		return err
	}
	pools, err := o.checker.list(ctx, octavia, fmt.Sprintf("/v2.0/lbaas/pools?loadbalancer_id=%v", lb["id"]), "pools")
	if err != nil {
		return err
	}
	members, err := o.checker.list(ctx, octavia, fmt.Sprintf("/v2.0/lbaas/pools/%v/members", pools[0]["id"]), "members")
	if err != nil {
		return err
	}
	if err := o.checker.call(ctx, http.MethodDelete, octavia, fmt.Sprintf("/v2.0/lbaas/pools/%v/members/%v", pools[0]["id"], members[0]["id"]), nil); err != nil {
		return err
	}
	r.say("         a member was deleted")
	return soon(ctx, "Octavia to have deleted the member", func(ctx context.Context) error {
		now, err := o.balancer(ctx, tried)
		if err == nil && now["provisioning_status"] != "ACTIVE" {
			err = fmt.Errorf("the load balancer is %v", now["provisioning_status"])
		}
		return err
	})
}

func number(v any) int {
	n, _ := v.(float64)
	return int(n)
}
