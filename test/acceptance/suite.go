package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

const (
	// mark is the label of everything that a run makes in the cluster, and the annotation of Nodes that it has labelled; its value is
	// the namespace of the run.
	mark = "acceptance.anyccm.io/run"
	// account reads the metrics.
	account = "metrics"
)

// suite is one run.
type suite struct {
	Options

	provider registry.Provider
	w        io.Writer
	kube     kubernetes.Interface
	release  *release
	setting  setting
	scraper  *scraper
	// unforward closes the way to the metrics.
	unforward func()
	// dir has the credentials of the release while the run goes on.
	dir string
	// space is the namespace of the run.
	space string
	// before are the objects of nobody that were in the cloud when the run began.
	before map[string]contract.Orphan
	// warned are the Warning events that were told, by UID, with how often each had been seen.
	warned map[string]int32
	// step is the one that is being tried.
	step    string
	report  Report
	metered bool
}

// skip is why a step is left out.
type skip string

// Error implements error.
func (s skip) Error() string { return string(s) }

// step is one thing that is tried. It adds to the details what it saw.
type step struct {
	name string
	// needed is set where the steps after it make no sense without it.
	needed bool
	try    func(ctx context.Context, saw *[]string) error
}

func newSuite(o Options, p registry.Provider, w io.Writer) (*suite, error) {
	o.Provider = p.Name
	config, err := clientcmd.BuildConfigFromFlags("", o.Kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("-kubeconfig: %w", err)
	}
	config.QPS, config.Burst = 50, 100
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("-kubeconfig: %w", err)
	}
	var id [3]byte
	if _, err := rand.Read(id[:]); err != nil {
		return nil, fmt.Errorf("naming the run: %w", err)
	}
	return &suite{
		Options: o, provider: p, w: w, kube: kube, scraper: newScraper(), space: "anyccm-acceptance-" + hex.EncodeToString(id[:]), warned: map[string]int32{},
	}, nil
}

// connect finds the release and how its commands are run. It changes nothing.
func (s *suite) connect(ctx context.Context) (err error) {
	if _, err := os.Stat(s.Program); err != nil {
		return fmt.Errorf("%w: -program: %w; make build writes it", errUsage, err)
	}
	version, err := s.kube.Discovery().ServerVersion()
	if err != nil {
		return fmt.Errorf("the API server does not answer: %w", err)
	}
	s.report = Report{Provider: s.provider.Name, Kubernetes: version.GitVersion, Version: "unknown"}
	if s.release, err = findRelease(ctx, s.kube, s.Options); err != nil {
		return err
	}
	if s.dir, err = os.MkdirTemp("", "acceptance"); err != nil {
		return fmt.Errorf("keeping the credentials of the release: %w", err)
	}
	if s.setting, err = s.release.commandSetting(ctx, s.kube, s.provider, s.Options, s.dir); err != nil {
		s.close()
	}
	return err
}

// close removes the credentials from this machine and closes the way to the metrics.
func (s *suite) close() {
	if s.unforward != nil {
		s.unforward()
		s.unforward = nil
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // a temporary folder
	}
}

// announce says what the run will make, before anything is made.
func (s *suite) announce() {
	fmt.Fprintf(s.w, "%s %s/%s runs the program for %s. This run will\n", s.release.kind, s.release.namespace, s.release.name, s.provider.Title)
	fmt.Fprintf(s.w, "- make the namespace %s, and in it a ServiceAccount, which a ClusterRole and a ClusterRoleBinding of the same name let read metrics;\n", s.space)
	if s.provider.Features.LoadBalancers == registry.Done {
		fmt.Fprintln(s.w, "- make Services of type LoadBalancer in it, two at a time at most, whose load balancers may cost money, and pods for them where there are pods;")
		fmt.Fprintf(s.w, "- give one Node the label %s for a while;\n", v1.LabelNodeExcludeBalancers)
	}
	fmt.Fprintln(s.w, "- restart the program once;")
	fmt.Fprintln(s.w, "- remove all of this at the end, also after an interruption. It keeps the release's credentials in a temporary folder meanwhile.")
	var names []string
	for _, one := range s.steps() {
		if !s.isSkipped(one.name) {
			names = append(names, one.name)
		}
	}
	fmt.Fprintln(s.w, "Steps:", strings.Join(names, ", "))
}

// isSkipped reports whether a step is left out by the user.
func (s *suite) isSkipped(name string) bool {
	return slices.ContainsFunc(s.Skip, func(one string) bool {
		one = strings.TrimSpace(one)
		return one != "" && (name == one || strings.HasPrefix(name, one+"/"))
	})
}

// steps are all that are tried on the cloud, in their order.
func (s *suite) steps() []step {
	all := []step{{name: "release", needed: true, try: s.tryRelease}}
	if s.provider.Features.Instances == registry.Done {
		all = append(all, step{name: "nodes", try: s.tryNodes})
	}
	if s.provider.Features.LoadBalancers != registry.Done {
		return append(all, step{name: "restart", try: s.tryRestart})
	}
	all = append(all,
		step{name: "create", needed: true, try: s.tryCreate},
		step{name: "traffic", try: s.tryTraffic},
		s.ofACloud(step{name: "ports", try: s.tryPorts}),
		s.ofACloud(step{name: "node-leaves", try: s.tryLeaving}),
		s.ofACloud(step{name: "node-joins", try: s.tryJoining}),
	)
	if s.provider.Features.SourceRanges == registry.Done {
		all = append(all, s.ofACloud(step{name: "source-ranges", try: s.trySourceRanges}))
	}
	all = append(all, step{name: "traffic-policy", try: s.tryTrafficPolicy})
	for _, t := range trials(s.provider, s.Values, s.space) {
		one := step{name: "annotation/" + t.name(), try: func(ctx context.Context, saw *[]string) error { return s.tryAnnotation(ctx, t, saw) }}
		if t.key == portable.BackendSelector {
			one = s.ofACloud(one)
		}
		all = append(all, one)
	}
	return append(all, step{name: "restart", try: s.tryRestart}, step{name: "delete", try: s.tryDelete})
}

// ofACloud leaves a step out where there is no cloud outside of the cluster, which could learn of ports and nodes.
func (s *suite) ofACloud(one step) step {
	if s.provider.InCluster {
		one.try = func(context.Context, *[]string) error {
			return skip("a Service has an address alone here; ports, nodes and source ranges are kube-proxy's matter")
		}
	}
	return one
}

// run tries everything, and removes what it made whatever happens.
func (s *suite) run(ctx context.Context) Report {
	s.report.Began = time.Now().UTC().Truncate(time.Second)
	stopped := s.tryStep(ctx, step{name: "prepare", needed: true, try: s.prepare})
	for _, one := range s.steps() {
		switch {
		case stopped:
			s.note(Result{Step: one.name, Result: notReached})
		case s.isSkipped(one.name):
			s.note(Result{Step: one.name, Result: skipped, Details: []string{"left out by -skip"}})
		default:
			stopped = s.tryStep(ctx, one)
		}
	}
	s.cleanUp(context.WithoutCancel(ctx))
	s.report.Seconds = time.Since(s.report.Began).Seconds()
	return s.report
}

func (s *suite) note(r Result) {
	s.report.Steps = append(s.report.Steps, r)
	fmt.Fprintln(s.w, r.line())
}

// did says what the run has just done to the cluster.
func (s *suite) did(format string, args ...any) { fmt.Fprintf(s.w, "         "+format+"\n", args...) }

// tryStep tries one step, counts its calls, and looks for warnings. It reports whether the run ends with it.
func (s *suite) tryStep(ctx context.Context, one step) bool {
	s.step = one.name
	fmt.Fprintln(s.w, "begins  ", one.name)
	began, before := time.Now(), s.count(ctx)
	var saw []string
	err := one.try(ctx, &saw)
	r := Result{Step: one.name, Result: held, Seconds: time.Since(began).Seconds()}
	var why skip
	switch {
	case errors.As(err, &why) && ctx.Err() == nil:
		s.note(Result{Step: one.name, Result: skipped, Details: []string{string(why)}})
		return false
	case err == nil:
		err = s.warnings(ctx)
	default:
		err = errors.Join(err, s.warnings(context.WithoutCancel(ctx)))
	}
	if s.metered && before != nil && ctx.Err() == nil {
		s.meter(ctx, &r, before)
	}
	r.Details = saw
	if ctx.Err() != nil {
		err = errors.New("interrupted")
	}
	if err != nil {
		r.Result = failed
		r.Details = append(r.Details, strings.Split(err.Error(), "\n")...)
	}
	s.note(r)
	return ctx.Err() != nil || (err != nil && (one.needed || !s.KeepGoing))
}

// count are the calls so far; nil where they are not known.
func (s *suite) count(ctx context.Context) *tally {
	if !s.metered {
		return nil
	}
	m, err := s.scraper.metrics(ctx)
	if err != nil {
		return nil
	}
	return new(m.tally())
}

// meter waits until the program makes no call for a moment, and counts those of a step.
func (s *suite) meter(ctx context.Context, r *Result, before *tally) {
	const moment, most = 700 * time.Millisecond, 15
	last := s.count(ctx)
	for range most {
		if wait(ctx, moment) != nil {
			return
		}
		now := s.count(ctx)
		if now != nil && last != nil && now.calls.total() == last.calls.total() {
			break
		}
		last = now
	}
	if last != nil {
		made := last.since(before)
		r.Calls, r.Writes = new(made.total()), new(made.writes().total())
	}
}

// mustHaveWritten fails where the program made no call that writes since others were counted. Such a call may show in the cloud a moment
// before it is counted.
func (s *suite) mustHaveWritten(ctx context.Context, before *tally) error {
	const moment, most = 500 * time.Millisecond, 20
	for range most {
		now := s.count(ctx)
		if now == nil || before == nil || len(now.since(before).writes()) > 0 {
			return nil
		}
		if err := wait(ctx, moment); err != nil {
			return err
		}
	}
	return errors.New("the program made no call that writes")
}

// warnings are the Warning events of the run's namespace that came since they were asked for last: in normal operation there is none.
func (s *suite) warnings(ctx context.Context) error {
	list, err := s.kube.CoreV1().Events(s.space).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("reading events: %w", err)
	}
	var problems []error
	for _, e := range list.Items {
		count := max(e.Count, 1)
		if e.Type != v1.EventTypeWarning || e.InvolvedObject.Kind != "Service" || s.warned[string(e.UID)] >= count || ofAPIServer(&e) {
			continue
		}
		s.warned[string(e.UID)] = count
		problems = append(problems, fmt.Errorf("event of Service %s: %s: %s", e.InvolvedObject.Name, e.Reason, e.Message))
	}
	return errors.Join(problems...)
}

// ofAPIServer reports whether an event is the API server's own, which at times warns of a Service that is as new as its look at all
// addresses and ports is old, and sets it right.
func ofAPIServer(e *v1.Event) bool {
	return strings.HasSuffix(cmp.Or(e.ReportingController, e.Source.Component), "allocator-repair-controller")
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// numbers match times and counters, which change in an answer that stays the same.
var numbers = regexp.MustCompile(`\d[\d.a-zµ]*`)

// eventually asks until something holds, or until the answer stayed the same but for numbers for longer than the patience; where it goes on
// changing, for five times as long. The last answer is part of the error.
func (s *suite) eventually(ctx context.Context, what string, check func(context.Context) error) error {
	const longest, most = 5 * time.Second, 5
	patience := cmp.Or(s.StepPatience[s.step], s.Patience)
	began, changed, last := time.Now(), time.Now(), ""
	for pause := 250 * time.Millisecond; ; pause = min(pause*3/2, longest) {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if text := numbers.ReplaceAllString(err.Error(), ""); text != last {
			changed, last = time.Now(), text
		}
		if time.Since(changed) > patience || time.Since(began) > most*patience {
			return fmt.Errorf("waited %s for %s: %w", time.Since(began).Round(time.Second), what, err)
		}
		if err := wait(ctx, pause); err != nil {
			return err
		}
	}
}

func (s *suite) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Namespace: s.space, Labels: map[string]string{mark: s.space}}
}

// prepare makes the namespace and the account that reads metrics, and looks at what nobody owns in the cloud already.
func (s *suite) prepare(ctx context.Context, saw *[]string) error {
	space := s.meta(s.space)
	space.Namespace = ""
	if _, err := s.kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: space}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making namespace %s: %w", s.space, err)
	}
	s.did("namespace %s was made", s.space)
	if err := s.allowMetrics(ctx, space); err != nil {
		return err
	}
	if reached := s.reach(ctx); s.scraper.url == "" {
		*saw = append(*saw, fmt.Sprint("the program's metrics are not reached, so that no calls are counted: ", reached))
		return nil
	}
	// The program hears of a new role a moment later.
	err := s.eventually(ctx, "the program's metrics", func(ctx context.Context) error {
		m, err := s.scraper.metrics(ctx)
		if err != nil {
			return err
		}
		for _, one := range m["anyccm_build_info"] {
			s.report.Version, s.report.Commit = one.labels["version"], one.labels["commit"]
		}
		return nil
	})
	s.metered = err == nil
	return err
}

// allowMetrics makes an account that may read the program's metrics and nothing else.
func (s *suite) allowMetrics(ctx context.Context, shared metav1.ObjectMeta) error {
	role := &rbacv1.ClusterRole{ObjectMeta: shared, Rules: []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}}
	if _, err := s.kube.RbacV1().ClusterRoles().Create(ctx, role, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the role that reads metrics: %w", err)
	}
	binding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: shared, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: s.space},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: s.space, Name: account}},
	}
	if _, err := s.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the role that reads metrics: %w", err)
	}
	accounts := s.kube.CoreV1().ServiceAccounts(s.space)
	if _, err := accounts.Create(ctx, &v1.ServiceAccount{ObjectMeta: s.meta(account)}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("making the account that reads metrics: %w", err)
	}
	seconds := int64((12 * time.Hour).Seconds())
	token, err := accounts.CreateToken(ctx, account, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("asking for a token that reads metrics: %w", err)
	}
	s.scraper.token = token.Status.Token
	return nil
}
