package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

const (
	// published is the ConfigMap with the file that the program writes, and fileKey the file in it.
	published = "anyccm-keepalived"
	fileKey   = "keepalived.conf"
	// daemonSet is the one of the documentation, from the root of the checkout.
	daemonSet     = "docs/examples/keepalived/daemonset.yaml"
	partAddresses = "addresses"
	partFailover  = "failover: time without an answer"
	partProgram   = "the program is away for 30 s"
)

// addresses are keepalived itself in network namespaces: nodes that run it as the DaemonSet of the documentation does, and a client.
type addresses struct {
	r       *run
	dir     string
	network *vrrp.Network
	names   []string
}

func newKeepalived() services { return &addresses{names: []string{"n1", "n2", "n3"}} }

// start implements services.
func (a *addresses) start(ctx context.Context, r *run) (_ *harness.Outside, err error) {
	a.r = r
	if a.dir, err = controlplane.TempDir("vrrp"); err != nil {
		return nil, err
	}
	root, err := vrrp.Unpacked(ctx, a.dir)
	if err == nil {
		a.network, err = vrrp.New(ctx, vrrp.Options{Dir: a.dir, Root: root, DaemonSet: filepath.FromSlash(daemonSet), Names: a.names})
	}
	if not, ok := errors.AsType[vrrp.NotHere](err); ok {
		return nil, notHere(not)
	}
	if err != nil {
		return nil, err
	}
	version, err := a.network.Version()
	if err != nil {
		return nil, err
	}
	version, _, _ = strings.Cut(version, " (")
	r.record.Title, r.record.Services = "keepalived itself, in network namespaces", []string{version}
	r.record.Lacks = []results.Lack{
		{
			What: "kubelet", Shows: "what brings the ConfigMap to the nodes is a part of the trial, and looks every 0.1 s",
			Effect: "the minute or so that a kubelet takes until a pod sees a changed ConfigMap",
		},
		{
			What: "kube-proxy", Shows: "what answers on a node is a part of the trial, and names the node",
			Effect: "traffic to pods",
		},
	}
	for _, name := range a.names {
		if err := errors.Join(a.network.Serve(name), a.network.Help(name), a.network.Start(name)); err != nil {
			return nil, err
		}
	}
	return &harness.Outside{Env: map[string]string{
		"KEEPALIVED_ANNOUNCER": r.record.Cloud, "KEEPALIVED_SERVICE_CIDR": "10.98.0.0/24",
	}}, nil
}

// stop implements services.
func (a *addresses) stop() {
	if a.network != nil {
		a.network.Close()
	}
	if a.dir != "" {
		_ = os.RemoveAll(a.dir) // a temporary folder
	}
}

// join implements services: nobody initialises these nodes, and from now on they get the program's file.
func (a *addresses) join(ctx context.Context, r *run) error {
	for i, name := range a.names {
		node := harness.NodeSpec{Name: name, Ready: true, Initialized: true, Address: vrrp.Address(i)}
		if err := r.cluster.RegisterNode(ctx, node); err != nil {
			return err
		}
	}
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	var group sync.WaitGroup
	group.Go(func() {
		last := ""
		for ctx.Err() == nil {
			if err := a.bring(ctx, &last); err != nil && ctx.Err() == nil {
				r.say("         %v", err)
			}
			_ = pause(ctx, 100*time.Millisecond) // the loop ends with it
		}
	})
	r.beside = func() {
		stop()
		group.Wait()
	}
	return nil
}

// bring does what kubelets do with a ConfigMap that pods mount.
func (a *addresses) bring(ctx context.Context, last *string) error {
	cm, err := a.r.cluster.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, published, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("reading what the program has written: %w", err)
	}
	text := cm.Data[fileKey]
	if text == *last {
		return nil
	}
	for _, name := range a.names {
		if err := a.network.Publish(name, text); err != nil {
			return err
		}
	}
	*last = text
	return nil
}

// values implements services.
func (*addresses) values() harness.Values { return harness.Values{} }

// before implements services: there is nothing to compare with.
func (*addresses) before(context.Context, *run) error { return nil }

// suite implements services.
func (*addresses) suite() []suiteRun { return []suiteRun{{part: "suite"}} }

// given are addresses that the program gives.
var given = regexp.MustCompile(`10\.98\.\d+\.\d+`)

// listLeft implements services: addresses that nodes hold, and that the program's ConfigMap has.
func (a *addresses) listLeft(ctx context.Context) ([]string, error) {
	var all []string
	for _, name := range a.names {
		for _, address := range given.FindAllString(a.network.Addresses(name), -1) {
			all = append(all, name+" "+address)
		}
	}
	if a.r.cluster == nil {
		return all, nil
	}
	cm, err := a.r.cluster.Kube.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(ctx, published, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, fmt.Errorf("reading what the program has written: %w", err)
	}
	if err == nil {
		for _, address := range given.FindAllString(fmt.Sprint(cm.Annotations, cm.Data), -1) {
			all = append(all, "ConfigMap "+address)
		}
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

// try implements services.
func (a *addresses) try(ctx context.Context, r *run) error {
	if !r.wants("steps") && !r.wants("outages") {
		return nil
	}
	first, err := a.serve(ctx, r, tried, "a Service is made, and a node answers at its address")
	if err != nil {
		return err
	}
	if r.wants("steps") {
		if err := a.steps(ctx, r, first); err != nil {
			return err
		}
	}
	if r.wants("outages") {
		if err := a.programAway(ctx, r, first); err != nil {
			return err
		}
	}
	return a.release(ctx, r, first)
}

// served is a Service whose address is asked over and over.
type served struct {
	*vrrp.Watcher

	address string
}

// serve makes a Service and waits until a node answers at its address.
func (a *addresses) serve(ctx context.Context, r *run, name, title string) (*served, error) {
	t := results.Trial{Part: partAddresses, Name: title}
	began := time.Now()
	_, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, newService(name, 80), metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("making Service %s: %w", name, err)
	}
	s := &served{}
	if s.address, err = a.addressOf(ctx, r, name); err != nil {
		return nil, err
	}
	t.Details = []string{fmt.Sprintf("its status has %s after %.1f s", s.address, time.Since(began).Seconds())}
	if s.Watcher, err = a.network.Watch(s.address); err != nil {
		return nil, err
	}
	if err := s.Until("!", patience); err != nil {
		return nil, err
	}
	t.Seconds = s.At().Sub(began).Seconds()
	t.Judge()
	t.Details = append(t.Details, "node "+s.Who()+" answers")
	r.note(t)
	return s, nil
}

// addressOf waits for the address of a Service.
func (a *addresses) addressOf(ctx context.Context, r *run, name string) (address string, err error) {
	err = soon(ctx, "the address of Service "+name, func(ctx context.Context) error {
		s, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(s.Status.LoadBalancer.Ingress) == 0 {
			return errors.New("its status is empty")
		}
		address = s.Status.LoadBalancer.Ingress[0].IP
		return nil
	})
	return address, err
}

// steps: one more address interrupts none, and the addresses move away from a node that stops, loses its link or is killed.
func (a *addresses) steps(ctx context.Context, r *run, first *served) error {
	if err := first.Stays(first.Who(), 5*time.Second); err != nil {
		return err
	}
	first.Forget()
	second, err := a.serve(ctx, r, "second", "a second Service is made, and a node answers at its address")
	if err != nil {
		return err
	}
	if err := first.Stays(first.Who(), time.Second); err != nil {
		return err
	}
	a.gap(r, first, "at the first address, while the second one comes", 1, nil)
	for _, how := range []struct {
		name   string
		max    float64
		broken func(string) error
		mend   func(string) error
	}{
		{"keepalived is stopped on the node that answers", 3, a.network.Stop, a.network.Start},
		{
			"the node that answers loses its link", 6, func(name string) error { return a.network.Link(name, false) },
			func(name string) error { return a.network.Link(name, true) },
		},
		{"keepalived is killed on the node that answers", 6, a.kill, a.network.Start},
	} {
		node := first.Who()
		first.Forget()
		if err := how.broken(node); err != nil {
			return err
		}
		failure := first.Until("!"+node, patience)
		a.gap(r, first, how.name, how.max, failure)
		if failure != nil {
			return how.mend(node) // the record has it
		}
		if err := errors.Join(second.Until(first.Who(), patience), how.mend(node)); err != nil {
			return err
		}
		a.stays(r, first, node, how.name)
	}
	return a.quiet(ctx, r)
}

// kill ends keepalived on a node, which leaves its addresses there.
func (a *addresses) kill(node string) error {
	if err := a.network.Kill(node); err != nil {
		return err
	}
	if !given.MatchString(a.network.Addresses(node)) {
		return fmt.Errorf("keepalived was killed on %s, and took the addresses along: it was not killed at once", node)
	}
	return nil
}

// gap notes how long nobody answered.
func (a *addresses) gap(r *run, s *served, name string, limit float64, failure error) {
	t := results.Trial{Part: partFailover, Name: name, Seconds: s.Gap().Seconds(), MaxSeconds: limit}
	t.Judge()
	if failure != nil {
		t.Result, t.Details = results.Failed, append(t.Details, failure.Error())
	}
	r.note(t)
}

// stays: the node that is back does not take the addresses again, and holds none.
func (a *addresses) stays(r *run, s *served, node, after string) {
	t := results.Trial{Part: partAddresses, Name: after + ": it comes back, holds no address, and takes none"}
	began, who := time.Now(), s.Who()
	failure := a.network.Until(patience, "node "+node+" to hold no address", func() bool { return !given.MatchString(a.network.Addresses(node)) })
	t.Seconds = time.Since(began).Seconds()
	t.Judge()
	if failure = errors.Join(failure, s.Stays(who, 5*time.Second)); failure != nil {
		t.Result, t.Details = results.Failed, append(t.Details, failure.Error())
	}
	r.note(t)
}

// quiet is the trial that nothing so far gave a reason for a warning.
func (*addresses) quiet(ctx context.Context, r *run) error {
	texts, err := r.warnings(ctx)
	if err != nil {
		return err
	}
	t := results.Trial{Part: partAddresses, Name: "no Warning event", Result: results.Held, Details: texts}
	if len(texts) > 0 {
		t.Result = results.Failed
	}
	r.note(t)
	return nil
}

// programAway: while the program is away the address stays where it is. A Service that is made meanwhile gets one afterwards.
func (a *addresses) programAway(ctx context.Context, r *run, first *served) error {
	r.operator.CCM().Stop(patience)
	r.say("         the program is away")
	_, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, newService(late, 80), metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("making Service %s: %w", late, err)
	}
	first.Forget()
	stay := results.Trial{Part: partProgram, Name: "one node answers at the address all the time", Result: results.Held}
	if failure := first.Stays(first.Who(), outage); failure != nil {
		stay.Result, stay.Details = results.Failed, []string{failure.Error()}
	}
	stay.Seconds = outage.Seconds()
	stay.Details = append(stay.Details, fmt.Sprintf("the longest time without an answer is %.2f s", first.Gap().Seconds()))
	r.note(stay)
	if err := r.cluster.Kube.CoreV1().Pods(metav1.NamespaceSystem).DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: new(int64)},
		metav1.ListOptions{}); err != nil {
		return fmt.Errorf("starting the program again: %w", err)
	}
	if err := soon(ctx, "the program to start", func(context.Context) error {
		if r.operator.Restarts() == 0 {
			return errors.New("it was not started yet")
		}
		return nil
	}); err != nil {
		return err
	}
	began := time.Now()
	t := results.Trial{Part: partProgram, Name: "the Service that waits gets its address after the start", MaxSeconds: resumed.Seconds()}
	address, failure := a.addressOf(ctx, r, late)
	t.Seconds = time.Since(began).Seconds()
	t.Judge()
	switch {
	case failure != nil:
		t.Result, t.Details = results.Failed, append(t.Details, failure.Error())
	case address == first.address:
		t.Result, t.Details = results.Failed, append(t.Details, "it is that of another Service")
	}
	r.note(t)
	return nil
}

// release deletes a Service: no node holds its address then, and nobody answers there. The others stay.
func (a *addresses) release(ctx context.Context, r *run, s *served) error {
	services := r.cluster.Kube.CoreV1().Services(metav1.NamespaceDefault)
	t := results.Trial{Part: partAddresses, Name: "a Service is deleted, no node holds its address, and nobody answers there"}
	began := time.Now()
	if err := services.Delete(ctx, tried, metav1.DeleteOptions{}); err != nil {
		return fmt.Errorf("deleting Service %s: %w", tried, err)
	}
	failure := errors.Join(
		a.network.Until(patience, s.address+" to be on no node", func() bool { return !slices.Contains(a.heldAddresses(), s.address) }), s.Until("", patience),
	)
	t.Seconds = time.Since(began).Seconds()
	t.Judge()
	if failure != nil {
		t.Result, t.Details = results.Failed, []string{failure.Error()}
	}
	r.note(t)
	list, err := services.List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	others := map[string]string{}
	for _, one := range list.Items {
		if one.Spec.Type == v1.ServiceTypeLoadBalancer && len(one.Status.LoadBalancer.Ingress) > 0 {
			others[one.Status.LoadBalancer.Ingress[0].IP] = one.Name
		}
	}
	if len(others) == 0 {
		return nil
	}
	stay := results.Trial{Part: partAddresses, Name: "the addresses of the other Services stay, each on one node", Result: results.Held}
	if want, have := slices.Sorted(maps.Keys(others)), a.heldAddresses(); !slices.Equal(want, have) {
		stay.Result, stay.Details = results.Failed, []string{fmt.Sprintf("nodes hold %v instead of %v", have, want)}
	}
	r.note(stay)
	return nil
}

// heldAddresses are the addresses that nodes hold, each as often as nodes hold it.
func (a *addresses) heldAddresses() []string {
	var all []string
	for _, name := range a.names {
		all = append(all, given.FindAllString(a.network.Addresses(name), -1)...)
	}
	slices.Sort(all)
	return all
}
