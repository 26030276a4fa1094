package conformance

import (
	"cmp"
	"context"
	"encoding/base64"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// This file plays scenarios and holds what goes over the wire meanwhile, as text: transcripts. They are files of the provider's folder,
// reviewed like code.

// Update is the flag of tests that write what they compare with.
var Update = flag.Bool("update", false, "write what the tests compare with")

// transcriptFolder is where the transcripts of a provider are, in its folder.
const transcriptFolder = "testdata/transcripts"

// runTranscripts plays all scenarios, each in a world of its own, and compares what was said with the transcripts.
func runTranscripts(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	names, files, rows, servesKnown := listNames(t, newFixture)
	require.NotEmpty(t, files, "a cloud with load balancers has transcripts: see docs/developing-a-provider.md")
	require.True(t, servesKnown, "Fixture.Serves tells where the ports of load balancers lead")
	var mu sync.Mutex
	played, used := 0, map[string]bool{}
	t.Cleanup(func() {
		for _, row := range rows {
			assert.True(t, used[row] || played < len(names), "%s: no scenario needs this row", row)
		}
	})
	for _, name := range names {
		delete(files, name)
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t)
				text, rows := f.play(t, f.findScenario(name))
				f.compare(t, name, text)
				mu.Lock()
				defer mu.Unlock()
				played++
				maps.Copy(used, rows)
			})
		})
	}
	if *Update {
		for name := range files {
			require.NoError(t, os.Remove(filepath.FromSlash(transcriptFolder+"/"+name+".txt")))
		}
		return
	}
	assert.Empty(t, slices.Sorted(maps.Keys(files)), "transcripts of no scenario")
}

// listNames returns the names of all scenarios of a cloud, of its transcripts and of its rows of planned writes, and whether it says where
// ports lead, unless there is no cloud outside of the cluster.
func listNames(
	t *testing.T, newFixture func(t testing.TB) *Fixture,
) (names []string, files map[string]bool, rows []string, servesKnown bool) {
	t.Helper()
	files = map[string]bool{}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		for _, s := range f.listScenarios() {
			require.NotContains(t, names, s.Name, "two scenarios have this name")
			names = append(names, s.Name)
		}
		if f.Transcripts != nil {
			require.NoError(t, fs.WalkDir(f.Transcripts, ".", func(path string, entry fs.DirEntry, err error) error {
				if name, ok := strings.CutSuffix(entry.Name(), ".txt"); ok {
					files[name] = true
				}
				return err
			}))
		}
		for rule, steps := range f.listExceptions() {
			for step := range steps {
				scenario, _, _ := strings.Cut(step, "/")
				require.Contains(t, names, scenario, "an exception of %q names a scenario that there is not", rule)
			}
		}
		rows, servesKnown = listRows(f.PlannedWrites), f.Serves != nil || !f.outside()
		for _, r := range f.ReadAgain {
			rows = append(rows, r.String())
		}
	})
	return names, files, rows, servesKnown
}

func (f *Fixture) listScenarios() []Scenario { return append(f.listCommon(), f.Scenarios...) }

func (f *Fixture) findScenario(name string) Scenario {
	all := f.listScenarios()
	return all[slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })]
}

// compare compares a transcript with its file, or writes it.
func (f *Fixture) compare(t *testing.T, name, text string) {
	t.Helper()
	for _, secret := range f.spellSecrets() {
		require.NotContains(t, text, secret, "%s: a secret", name)
	}
	path := transcriptFolder + "/" + name + ".txt"
	if *Update {
		require.NoError(t, os.MkdirAll(filepath.FromSlash(transcriptFolder), 0o755))    //nolint:gosec // sources are for everybody
		require.NoError(t, os.WriteFile(filepath.FromSlash(path), []byte(text), 0o644)) //nolint:gosec // a file of the checkout
		return
	}
	require.NotNil(t, f.Transcripts, "Fixture.Transcripts is %s, embedded", transcriptFolder)
	have, err := fs.ReadFile(f.Transcripts, path)
	require.NoError(t, err, "run the test with -update, and review what it writes")
	assert.Equal(t, string(have), text, "%s: run the test with -update, and review what it writes", name)
}

// spellSecrets returns the secrets as they may be written.
func (f *Fixture) spellSecrets() (all []string) {
	for _, secret := range f.Secrets {
		all = append(all, secret, base64.StdEncoding.EncodeToString([]byte(secret)))
	}
	return append(all, "PRIVATE KEY")
}

// defaultNodes is how many nodes a scenario has that does not say.
const defaultNodes = 2

// play plays a scenario and returns its transcript, and which exceptions and rows of planned writes it used.
func (f *Fixture) play(t *testing.T, s Scenario) (text string, used map[string]bool) {
	t.Helper()
	w := newWorld(t, f)
	w.stop() // it begins once everything is there
	w.Sim.Disarrange(0, nil)
	w.loops = s.Loops
	p := &Play{
		w: w, scenario: s, served: map[string]*v1.Service{}, refused: map[string]bool{},
		text: newTranscript(f.spellSecrets()),
	}
	w.attempted = func(service string, deletes bool) {
		p.attempts = append(p.attempts, attempt{w.Sim.Calls().Total, service, deletes})
	}
	if s.Prepare != nil {
		s.Prepare()
	}
	w.restart()
	p.asked = listenForRetries(w)
	for i := range cmp.Or(s.Nodes, defaultNodes) {
		p.AddNodes(fmt.Sprintf("worker-%d", i+1))
	}
	p.nodesChanged = false
	p.text.names.learn(w)
	steps := append(s.listCreations(), s.Steps...)
	used = map[string]bool{}
	for i, step := range steps {
		p.playStep(step, used)
		if i == 0 && (s.Brief || s.plain) {
			p.text.out.Reset()
		}
		if i == 0 && s.plain {
			p.text.addSection("== "+step.Name, []string{"as in create.txt"})
		}
	}
	for _, left := range findUnneeded(f.listExceptions(), s.Name, used) {
		assert.Fail(t, left+": the exception is not needed")
	}
	w.requireNothingRefused()
	w.Sim.Inspect(nil)
	if !s.Brief {
		p.text.addRemains(f.Snapshot())
	}
	w.stop()
	return p.text.String(), used
}

// listCreations returns the steps in which the Services of a scenario are created, one after the other: each plan knows those before it.
func (s Scenario) listCreations() (steps []Step) {
	for i, service := range s.Services {
		name := "created"
		if i > 0 {
			name = service.Name + " is created"
		}
		steps = append(steps, Step{name, func(p *Play) { p.Create(service) }})
	}
	return steps
}

// Rules over all transcripts, from which steps may be excepted.
const (
	rulePlanned  = "what plan said is what is written"
	ruleServes   = "a port that serves before and after serves meanwhile"
	ruleAllNodes = "each port leads to all nodes"
	ruleReadOnce = "nothing is read twice without a reason"
)

// listExceptions returns the steps that are excepted from a rule, with reasons, by the rule.
func (f *Fixture) listExceptions() map[string]map[string]string {
	return map[string]map[string]string{rulePlanned: f.Unplanned, ruleServes: f.Interrupts, ruleAllNodes: f.Unserved}
}

// findUnneeded returns the exceptions of a scenario that no step needed, by rule and step.
func findUnneeded(exceptions map[string]map[string]string, scenario string, used map[string]bool) (list []string) {
	for _, rule := range sortedKeys(exceptions) {
		for _, step := range sortedKeys(exceptions[rule]) {
			if at := rule + ": " + step; strings.HasPrefix(step, scenario+"/") && !used[at] {
				list = append(list, at)
			}
		}
	}
	return list
}

// stepPause lies between steps, so that what was read lately is old.
const stepPause = 10 * time.Minute

// playStep plays one step and holds the rules.
func (p *Play) playStep(step Step, used map[string]bool) {
	ctx := p.w.t.Context()
	if !p.w.loops {
		time.Sleep(stepPause)
	}
	p.changed, p.removed, p.abandoned, p.answers, p.attempts = nil, nil, nil, nil, nil
	p.nodesChanged, p.restarted = false, false
	p.w.Sim.ResetCalls()
	p.serving.begin(p.readPorts())
	p.watch()
	before := p.describeServices(ctx)
	step.Do(p)
	p.addAsked()
	made := p.w.Sim.Calls() // by loops, or by what initialises nodes
	planned := p.planServices(ctx)
	if !p.w.loops { // loops have written in the step already
		p.serving.begin(p.readPorts())
	}
	p.reconcileAndWait(ctx)
	calls := p.w.Sim.Calls()
	ofLoops := 0
	if p.w.loops {
		ofLoops = len(made.Latest)
		calls.Latest = append(made.Latest, calls.Latest...)
	}
	ports := p.readPorts()
	gaps, wrong := p.serving.findGaps(ports), []string(nil)
	if p.w.Serves != nil {
		wrong = p.findUnserved(ports)
	}
	place := p.scenario.Name + "/" + step.Name
	except := func(rule string, broken []string) []string {
		if len(broken) == 0 {
			return nil
		}
		if reason := p.w.listExceptions()[rule][place]; reason != "" {
			used[rule+": "+place] = true
			return append(broken, "because "+reason)
		}
		assert.Fail(p.w.t, place+": "+rule, strings.Join(broken, "\n"))
		return broken
	}
	compared := p.compareWithPlan(planned, calls.Latest[ofLoops:])
	again, reasons := findReadAgain(p.w.ReadAgain, p.attempts, calls.Latest, ofLoops, place)
	except(ruleReadOnce, again)
	for _, row := range append(compared.used, reasons...) {
		used[row] = true
	}
	p.text.addStep(playedStep{
		name: step.Name, plans: planned, calls: calls.Latest, answers: p.answers, events: p.listNewEvents(ctx),
		services: compareLines(before, p.describeServices(ctx)), ports: ports,
		unplanned: append(except(rulePlanned, compared.broken), compared.listExplained()...),
		gaps:      except(ruleServes, gaps),
		wrong:     except(ruleAllNodes, wrong),
	})
	for _, leak := range p.text.leaks {
		assert.Fail(p.w.t, place+": a secret is told", leak)
	}
	p.text.leaks = nil
}

func (p *Play) reconcileAndWait(ctx context.Context) {
	synctest.Wait() // for the end of the program that planned
	p.w.Sim.ResetCalls()
	p.reconcile(ctx)
	synctest.Wait()
}

// compareWithPlan compares what was written with what was planned, but for deletions, which no plan is about, and for Services whose plan
// fails when nodes come and go, which they do whatever is wrong with a Service.
func (p *Play) compareWithPlan(plans []planOf, calls []simkit.Call) comparison {
	failed := map[string]bool{}
	for _, plan := range plans {
		failed[plan.service] = plan.err != nil && p.nodesChanged
	}
	var asked []simkit.Call
	for at, c := range calls {
		if a := findAttempt(p.attempts, at); !a.deletes && !failed[a.service] {
			asked = append(asked, c)
		}
	}
	plans = slices.DeleteFunc(slices.Clone(plans), func(plan planOf) bool { return failed[plan.service] })
	planned, writes := p.text.listPlanned(plans, asked)
	return findUnplanned(p.w.PlannedWrites, planned, writes)
}

// listNewEvents returns the events since the step before.
func (p *Play) listNewEvents(ctx context.Context) (lines []string) {
	list, err := p.w.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(p.w.t, err)
	for _, e := range list.Items {
		before := p.text.eventCounts[e.Name]
		p.text.eventCounts[e.Name] = max(e.Count, 1)
		if max(e.Count, 1) > before {
			lines = append(lines, fmt.Sprintf("%s %s %s/%s: %s", e.Type, e.Reason, e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Message))
		}
	}
	return lines
}

// describeServices returns what the provider and the framework write to Services.
func (p *Play) describeServices(ctx context.Context) (lines []string) {
	for _, s := range p.services {
		s = p.w.service(ctx, s)
		for _, key := range sortedKeys(s.Annotations) {
			lines = append(lines, fmt.Sprintf("%s annotation %s: %s", s.Name, key, s.Annotations[key]))
		}
		lines = append(lines, fmt.Sprintf("%s finalizers: %s", s.Name, strings.Join(s.Finalizers, " ")))
		for _, i := range s.Status.LoadBalancer.Ingress {
			lines = append(lines, fmt.Sprintf("%s status: %s", s.Name, strings.TrimSpace(i.IP+" "+i.Hostname)))
		}
		for _, c := range s.Status.Conditions {
			lines = append(lines, fmt.Sprintf("%s condition %s: %s %s", s.Name, c.Type, c.Status, c.Reason))
		}
	}
	return lines
}

// compareLines returns lines that came, and those that went.
func compareLines(before, after []string) (lines []string) {
	for _, line := range before {
		if !slices.Contains(after, line) {
			lines = append(lines, "- "+line)
		}
	}
	for _, line := range after {
		if !slices.Contains(before, line) {
			lines = append(lines, "+ "+line)
		}
	}
	return lines
}
