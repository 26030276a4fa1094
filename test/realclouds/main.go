// Command realclouds tries the built program on what nobody of this project wrote: OpenStack's own services, moto in place of AWS, vcsim in
// place of vCenter, and keepalived itself. It takes what runs or starts what it is told of, puts a control plane next to it, runs the
// acceptance suite and its own trials, and says what held, in which time, with how many calls.
package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
	"github.com/anyccm/cloud-controller-manager/test/harness"
	"github.com/anyccm/cloud-controller-manager/test/realclouds/results"
	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

// patience bounds a wait for something that real services do.
const patience = 3 * time.Minute

// notHere is why the services cannot be tried on this machine, and what to do about it.
type notHere string

// Error implements error.
func (n notHere) Error() string { return string(n) }

// services are real services that stand for a cloud.
type services interface {
	// start takes what runs, or starts it, and returns how the program reaches it.
	start(ctx context.Context, r *run) (*harness.Outside, error)
	// join registers the nodes that there are from the beginning.
	join(ctx context.Context, r *run) error
	// values are further values of the chart.
	values() harness.Values
	// before measures what the program is compared with, while it does not run yet.
	before(ctx context.Context, r *run) error
	// try tries what the suite does not.
	try(ctx context.Context, r *run) error
	// suite is how often the acceptance suite runs, with which flags.
	suite() []suiteRun
	// listLeft lists the cluster's objects, to compare them before and after.
	listLeft(ctx context.Context) ([]string, error)
	// stop ends what start has started.
	stop()
}

// suiteRun is a run of the acceptance suite.
type suiteRun struct {
	part string
	args []string
	// without are steps that are not tried, by name, or by that of their kind; what names them all in the record, why is the reason.
	without   []string
	what, why string
}

func main() {
	vrrp.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := try(ctx, os.Args[1:], os.Stdout)
	var not notHere
	switch {
	case errors.As(err, &not):
		fmt.Println("SKIPPED: nothing was tried.", not)
	case err != nil && !errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(os.Stderr, "Error:", err)
		stop()
		os.Exit(1) //nolint:gocritic // the only deferred call has been made
	}
}

// run is one run on one kind of services.
type run struct {
	w       io.Writer
	cluster *harness.Cluster
	// operator runs the program; it is nil while another program is measured.
	operator   *harness.Operator
	acceptance string
	record     results.Record
	// only are the parts that are tried; empty means all.
	only []string
	// beside ends what services run beside the cluster; nil for nothing.
	beside func()
}

func try(ctx context.Context, args []string, w io.Writer) error {
	fs := flag.NewFlagSet("realclouds", flag.ContinueOnError)
	which := fs.String("services", "", "openstack, aws, vsphere or keepalived")
	acceptance := fs.String("acceptance", "bin/acceptance", "the acceptance suite")
	only := fs.String("only", "", "parts to try, separated by commas, such as steps,outages,suite; empty means all")
	into := fs.String("record", "", "file that gets the record of the run")
	if err := fs.Parse(args); err != nil {
		return err
	}
	known := map[string]func() services{"openstack": newOpenStack, "aws": newMoto, "vsphere": newVcsim, "keepalived": newKeepalived}
	make, ok := known[*which]
	if !ok {
		return fmt.Errorf("-services %q: use %s", *which, strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
	r := &run{w: w, acceptance: *acceptance, record: results.Record{
		Cloud: *which, How: "make acceptance-" + *which, Began: time.Now().UTC().Truncate(time.Second),
	}}
	if *only != "" {
		r.only = strings.Split(*only, ",")
		r.record.How += " ONLY=" + *only
	}
	r.record.Machine, r.record.Load = machine()
	if err := r.all(ctx, make()); err != nil {
		return err
	}
	if *into != "" {
		if err := r.record.Write(*into); err != nil {
			return err
		}
	}
	if broken := r.record.Failures(); len(broken) > 0 {
		return fmt.Errorf("this did not hold: %s", strings.Join(broken, ", "))
	}
	return nil
}

// machine says what the times are measured on, and the load by core.
func machine() (text string, load float64) {
	if data, err := os.ReadFile("/proc/loadavg"); err == nil {
		if _, err := fmt.Sscan(string(data), &load); err == nil {
			load /= float64(runtime.NumCPU())
		}
	}
	return fmt.Sprintf("%d cores of %s/%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH), load
}

// wants reports whether a part is tried.
func (r *run) wants(part string) bool {
	for _, one := range r.only {
		if strings.TrimSpace(one) == part {
			return true
		}
	}
	return len(r.only) == 0
}

func (r *run) say(format string, args ...any) { fmt.Fprintf(r.w, format+"\n", args...) }

// note keeps a trial and prints it.
func (r *run) note(t results.Trial) {
	r.record.Trials = append(r.record.Trials, t)
	text := fmt.Sprintf("%-8s %s, %s (%.1f s", t.Result, t.Part, t.Name, t.Seconds)
	if t.MaxSeconds > 0 {
		text += fmt.Sprintf(" of %.0f", t.MaxSeconds)
	}
	if t.Calls != nil {
		text += fmt.Sprintf(", %d calls", *t.Calls)
	}
	if t.MaxCalls > 0 {
		text += fmt.Sprintf(" of %d", t.MaxCalls)
	}
	r.say("%s", strings.Join(append([]string{text + ")"}, t.Details...), "\n         "))
}

// all starts the services and a cluster, tries everything, and compares what is left.
func (r *run) all(ctx context.Context, s services) error {
	defer s.stop()
	outside, err := s.start(ctx, r)
	if err != nil {
		return err
	}
	before, err := s.listLeft(ctx)
	if err != nil {
		return err
	}
	stage, err := harness.NewStage(ctx, "realclouds", r.w)
	if err != nil {
		return err
	}
	defer stage.Close()
	if r.cluster, err = stage.Start(ctx, r.record.Cloud, harness.Options{Provider: r.record.Cloud, Outside: outside}); err != nil {
		return err
	}
	defer r.cluster.Close()
	defer func() {
		if r.beside != nil {
			r.beside()
		}
		if r.operator != nil {
			r.operator.End()
		}
	}()
	if err := s.before(ctx, r); err != nil {
		return err
	}
	if err := r.operate(ctx, s); err != nil {
		return fmt.Errorf("%w\n%s", err, r.tail())
	}
	err = r.tryAll(ctx, s)
	// Whatever has failed, the load balancers go while the program runs.
	err = errors.Join(err, r.clear(context.WithoutCancel(ctx)))
	r.compare(context.WithoutCancel(ctx), s, before)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, r.tail())
	}
	return nil
}

// tryAll tries what the suite does not, and then runs the suite.
func (r *run) tryAll(ctx context.Context, s services) error {
	if err := s.try(ctx, r); err != nil || !r.wants("suite") {
		return err
	}
	for _, one := range s.suite() {
		if err := r.runSuite(ctx, one); err != nil {
			return err
		}
	}
	return nil
}

// clear deletes the Services that are left, and waits until their load balancers are gone.
func (r *run) clear(ctx context.Context) error {
	return harness.Eventually(ctx, patience, "all Services to be gone", func(ctx context.Context) error {
		list, err := r.cluster.Kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var names []string
		for _, s := range list.Items {
			if s.Spec.Type != v1.ServiceTypeLoadBalancer {
				continue
			}
			names = append(names, s.Name)
			if s.DeletionTimestamp == nil {
				if err := r.cluster.Kube.CoreV1().Services(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
		}
		if len(names) > 0 {
			return errors.New("still there: " + strings.Join(names, ", "))
		}
		return nil
	})
}

// tail is the end of the program's log.
func (r *run) tail() string {
	if r.operator == nil || r.operator.CCM() == nil {
		return ""
	}
	return r.operator.CCM().Tail(30)
}

// operate installs the release and waits until it leads and all nodes are initialised.
func (r *run) operate(ctx context.Context, s services) error {
	var err error
	if r.operator, err = r.cluster.Operate(ctx, s.values(), func(err error) { r.say("         %v", err) }); err != nil {
		return err
	}
	if err := r.operator.CCM().WaitLeading(ctx, patience); err != nil {
		return err
	}
	version, err := r.cluster.Kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("asking for the version of Kubernetes: %w", err)
	}
	r.record.Kubernetes = version.GitVersion
	if r.record.Version, r.record.Commit, err = versionOf(ctx, r.cluster.Programs.CCM); err != nil {
		return err
	}
	return s.join(ctx, r)
}

// versionOf asks the program for its version and its commit.
func versionOf(ctx context.Context, program string) (version, commit string, err error) {
	text, err := command(ctx, "", program, "version")
	if err != nil {
		return "", "", err
	}
	if _, err := fmt.Sscanf(text, "AnyCCM %s (commit %s", &version, &commit); err != nil {
		return "", "", fmt.Errorf("reading the version in %q: %w", text, err)
	}
	return version, strings.TrimSuffix(commit, ","), nil
}

// join registers nodes and waits until they are initialised.
func (r *run) join(ctx context.Context, names []string) error {
	for _, name := range names {
		if err := r.cluster.RegisterNode(ctx, harness.NodeSpec{Name: name, Ready: true}); err != nil {
			return err
		}
	}
	return r.cluster.WaitInitialized(ctx, len(names), patience)
}

// report is the part of the suite's report that is kept.
type report struct {
	Steps []struct {
		Step, Result string
		Details      []string
		Seconds      float64
		Calls        *int
	}
	Left []string
}

// runSuite runs the acceptance suite as everybody does, and keeps its results.
func (r *run) runSuite(ctx context.Context, one suiteRun) error {
	args := append([]string{
		"-yes", "-o=json", "-keep-going", "-provider=" + r.record.Cloud, "-kubeconfig=" + r.cluster.Kubeconfig, "-program=" + r.cluster.Programs.CCM,
		"-metrics-url=" + r.operator.CCM().URL, "-patience=" + patience.String(),
	}, one.args...)
	if len(one.without) > 0 {
		args = append(args, "-skip="+strings.Join(one.without, ","))
	}
	r.say("%s", one.part)
	cmd := exec.CommandContext(ctx, r.acceptance, args...)
	// After a signal it removes what it made, and after a second one it does not: our terminal's must not reach it as well.
	cmd.SysProcAttr = controlplane.Attributes()
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	runtime.LockOSThread() // with this thread it would end
	defer runtime.UnlockOSThread()
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, r.w
	failure := cmd.Run()
	var told report
	if err := json.Unmarshal(out.Bytes(), &told); err != nil {
		return fmt.Errorf("the acceptance suite prints %q: %w", out.String(), errors.Join(failure, err))
	}
	for _, s := range told.Steps {
		if slices.ContainsFunc(one.without, func(name string) bool { return s.Step == name || strings.HasPrefix(s.Step, name+"/") }) {
			continue
		}
		result := s.Result
		if result != results.Held && result != results.Skipped {
			result = results.Failed
		}
		r.record.Trials = append(r.record.Trials, results.Trial{
			Part: one.part, Name: s.Step, Result: result, Seconds: s.Seconds, Calls: s.Calls, Details: s.Details,
		})
	}
	if len(one.without) > 0 {
		r.note(results.Trial{Part: one.part, Name: one.what, Result: results.Skipped, Details: []string{one.why}})
	}
	for _, l := range told.Left {
		r.note(results.Trial{Part: one.part, Name: "nothing is left", Result: results.Failed, Details: []string{l}})
	}
	return ctx.Err()
}

// compare is the last trial: the cloud has what it had before.
func (r *run) compare(ctx context.Context, s services, before []string) {
	began := time.Now()
	t := results.Trial{Part: "afterwards", Name: "nothing is left in the cloud"}
	err := harness.Eventually(ctx, time.Minute, "the cloud to have what it had before", func(ctx context.Context) error {
		now, err := s.listLeft(ctx)
		if err != nil {
			return err
		}
		if a, b := strings.Join(before, "\n"), strings.Join(now, "\n"); a != b {
			return fmt.Errorf("before:\n%s\nnow:\n%s", a, b)
		}
		return nil
	})
	t.Seconds = time.Since(began).Seconds()
	t.Judge()
	if err != nil {
		t.Result, t.Details = results.Failed, []string{err.Error()}
	}
	r.note(t)
}

// warnings are the Warning events so far, of whichever object.
func (r *run) warnings(ctx context.Context) ([]string, error) {
	list, err := r.cluster.Kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{FieldSelector: "type=Warning"})
	if err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	var texts []string
	for _, e := range list.Items {
		if strings.HasSuffix(cmp.Or(e.ReportingController, e.Source.Component), "allocator-repair-controller") {
			continue // the API server's own
		}
		texts = append(texts, fmt.Sprintf("event of %s %s: %s: %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return texts, nil
}

// calls counts the program's calls to the cloud so far. Another program's are not known.
func (r *run) calls(ctx context.Context) (int, error) {
	if r.operator == nil {
		return 0, nil
	}
	n, err := r.operator.CCM().Metric(ctx, "anyccm_cloud_api_requests_total")
	return int(n), err
}

// quiet is how long the program makes no call once it has done something.
const quiet = 2500 * time.Millisecond

// untilQuiet waits until the program makes no call for a while, and returns how many it has made so far.
func (r *run) untilQuiet(ctx context.Context) (int, error) {
	last, since := -1, time.Now()
	for time.Since(since) < quiet {
		n, err := r.calls(ctx)
		if err != nil {
			return 0, err
		}
		if n != last {
			last, since = n, time.Now()
		}
		if err := pause(ctx, 250*time.Millisecond); err != nil {
			return 0, err
		}
	}
	return last, nil
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// soon asks often until something holds: what is measured is not the pause between two looks.
func soon(ctx context.Context, what string, check func(context.Context) error) error {
	const often = 100 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if pause(ctx, often) != nil {
			return fmt.Errorf("waited for %s: %w", what, err)
		}
	}
}

// measured does something, waits until it has come to its end in the cloud, and counts the calls until the program is quiet.
func (r *run) measured(ctx context.Context, t results.Trial, do, done func(context.Context) error) (results.Trial, error) {
	before, err := r.untilQuiet(ctx)
	if err != nil {
		return t, err
	}
	began := time.Now()
	if err := do(ctx); err != nil {
		return t, err
	}
	failure := soon(ctx, t.Name, done)
	t.Seconds = time.Since(began).Seconds()
	after, err := r.untilQuiet(ctx)
	if err != nil {
		return t, err
	}
	if r.operator != nil {
		t.Calls = new(after - before)
	}
	t.Judge()
	t.Done = failure == nil
	if failure != nil {
		t.Result, t.Details = results.Failed, append(t.Details, failure.Error())
	}
	return t, ctx.Err()
}

// measure notes what was measured once.
func (r *run) measure(ctx context.Context, t results.Trial, do, done func(context.Context) error) error {
	t, err := r.measured(ctx, t, do, done)
	if err != nil {
		return err
	}
	r.note(t)
	return nil
}

// command runs a program of the services' folder and returns what it prints.
func command(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", filepath.Base(name), strings.Join(args, " "), err, lastLines(string(out), 10))
	}
	return string(out), nil
}

func lastLines(text string, n int) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
