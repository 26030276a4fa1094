package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// shelf is a cloud whose load balancers are lists of words. What is desired is a list too.
type shelf struct {
	// stored is the cloud's state; nil means that there is no load balancer.
	stored []string
	// want is the state that the Service requests.
	want []string
	// foreign is set where the load balancer is somebody else's.
	foreign bool
	// meddle changes what is stored after each of our changes, as another person would.
	meddle func(s *shelf)
	fail   string
	// says is reported by each change.
	says  string
	calls []string
	looks int
	// nodesFinding is told of the nodes, ownerFinding of the owner.
	nodesFinding, ownerFinding *Finding
}

var errForeign = errors.New("it is somebody else's")

func (s *shelf) Validate(Request) ([]Finding, error) {
	if s.fail == "validate" {
		return []Finding{Warning("ConfigError", "not legal")}, errors.New("not legal")
	}
	return nil, nil
}

func (s *shelf) Observe(_ context.Context, r Request) ([]string, error) {
	s.looks++
	if s.fail == "observe" {
		return nil, errors.New("no answer")
	}
	s.calls = append(s.calls, "observe "+string(r.Purpose))
	return slices.Clone(s.stored), nil
}

func (s *shelf) CheckOwner(_ context.Context, r Request, observed []string) ([]string, []Finding, error) {
	switch {
	case s.ownerFinding != nil:
		return observed, []Finding{*s.ownerFinding}, nil
	case !s.foreign || observed == nil:
		return observed, nil, nil
	case r.Purpose == Ensure || r.Purpose == Plan:
		return nil, []Finding{Warning("NotOurs", "it is somebody else's")}, errForeign
	}
	return nil, nil, nil
}

func (s *shelf) Desire(_ context.Context, r Request, _ []string) ([]string, []Finding, error) {
	findings := []Finding{Warning("Ignored", "an annotation has no effect"), Notice("Shared", "it is shared")}
	if s.fail == "desire" {
		return nil, append(findings, Warning("ConfigError", "nonsense")), errors.New("nonsense")
	}
	return s.want, findings, nil
}

func (s *shelf) Changes(_ Request, observed, desired []string) ([]Change[[]string], error) {
	if observed == nil {
		c := s.change(contract.PlanCreate, "load balancer", true, func() { s.stored = []string{} })
		c.Expect = func([]string) []string { return []string{} }
		return []Change[[]string]{c}, nil
	}
	var list []Change[[]string]
	for _, w := range desired {
		if !slices.Contains(observed, w) {
			list = append(list, s.change(contract.PlanCreate, w, false, func() { s.stored = append(s.stored, w) }))
		}
	}
	for _, o := range observed {
		if !slices.Contains(desired, o) {
			list = append(
				list,
				s.change(contract.PlanDelete, o, false, func() { s.stored = slices.DeleteFunc(s.stored, func(x string) bool { return x == o }) }),
			)
		}
	}
	return list, nil
}

func (s *shelf) change(action, object string, replan bool, do func()) Change[[]string] {
	return Change[[]string]{
		Planned: contract.Planned{Action: action, Object: object}, Replan: replan, Creates: replan && action == contract.PlanCreate,
		Make: func(_ context.Context, r *Request, _ []string) ([]string, error) {
			if s.says != "" {
				r.Report(Notice("Slow", "%s", s.says))
			}
			s.calls = append(s.calls, action+" "+object)
			if s.fail == object {
				return nil, errors.New("refused")
			}
			do()
			after := slices.Clone(s.stored)
			if s.meddle != nil {
				s.meddle(s)
			}
			return after, nil
		},
	}
}

func (s *shelf) Complete(_ context.Context, r *Request, observed, _ []string) ([]string, error) {
	if s.says != "" {
		r.Report(Notice("Slow", "complete: %s", s.says))
	}
	s.calls = append(s.calls, "complete")
	return observed, nil
}

func (s *shelf) Status(_ Request, observed, _ []string) (*v1.LoadBalancerStatus, error) {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: fmt.Sprint(observed)}}}, nil
}

func (s *shelf) NodeChanges(_ context.Context, r Request, observed []string) ([]Change[[]string], []Finding, error) {
	if observed == nil {
		return nil, nil, nil
	}
	changes, err := s.Changes(r, observed, s.want)
	if s.nodesFinding == nil {
		return changes, nil, err
	}
	return changes, []Finding{*s.nodesFinding}, err
}

func (s *shelf) Deletions(_ context.Context, _ Request, observed []string) ([]Change[[]string], []Finding, error) {
	if observed == nil {
		return nil, []Finding{Notice("Retained", "something stays")}, nil
	}
	return []Change[[]string]{s.change(contract.PlanDelete, "load balancer", true, func() { s.stored = nil })}, nil, nil
}

func (s *shelf) Exists(_ context.Context, _ Request, observed []string) (*v1.LoadBalancerStatus, bool, error) {
	return &v1.LoadBalancerStatus{}, observed != nil, nil
}

func serve(s *shelf) (*LoadBalancer[[]string, []string], *record.FakeRecorder, *v1.Service) {
	events := record.NewFakeRecorder(20)
	return &LoadBalancer[[]string, []string]{
		Reconciler: s, Events: events, Name: func(string, *v1.Service) string { return "shelf" }, Creations: &Creations{},
	}, events, &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}}
}

func drain(events *record.FakeRecorder) []string {
	var list []string
	for len(events.Events) > 0 {
		list = append(list, <-events.Events)
	}
	return list
}

// ensureCases list the calls that Ensure makes for a shelf, and the state afterwards.
var ensureCases = map[string]struct {
	shelf     shelf
	lookAgain bool
	calls     []string
	stored    []string
	err       string
}{
	"nothing is there": {
		shelf: shelf{want: []string{"a", "b"}}, stored: []string{"a", "b"},
		calls: []string{"observe ensure", "create load balancer", "create a", "create b", "complete"},
	},
	"all is as it should be": {
		shelf: shelf{stored: []string{"a"}, want: []string{"a"}}, stored: []string{"a"},
		calls: []string{"observe ensure", "complete"},
	},
	"a change fails": {
		shelf: shelf{stored: []string{"b"}, want: []string{"a", "c"}, fail: "c"}, stored: []string{"b", "a"}, err: "refused",
		calls: []string{"observe ensure", "create a", "create c"},
	},
	"it is looked at again": {
		shelf: shelf{stored: []string{}, want: []string{"a"}}, lookAgain: true, stored: []string{"a"},
		calls: []string{"observe ensure", "create a", "observe ensure", "complete"},
	},
	"nothing was done, so nothing is looked at again": {
		shelf: shelf{stored: []string{"a"}, want: []string{"a"}}, lookAgain: true, stored: []string{"a"},
		calls: []string{"observe ensure", "complete"},
	},
	"somebody changed it meanwhile": {
		shelf: shelf{stored: []string{}, want: []string{"a"}, meddle: func(s *shelf) {
			if len(s.calls) == 2 {
				s.stored = []string{"x"}
			}
		}},
		lookAgain: true, stored: []string{"a"},
		calls: []string{"observe ensure", "create a", "observe ensure", "create a", "delete x", "observe ensure", "complete"},
	},
	"somebody else's": {
		shelf: shelf{stored: []string{"x"}, want: []string{"a"}, foreign: true}, stored: []string{"x"}, err: errForeign.Error(),
		calls: []string{"observe ensure"},
	},
	"no answer is not absence": {
		shelf: shelf{want: []string{"a"}, fail: "observe"}, err: "no answer",
	},
}

func TestEnsure(t *testing.T) {
	t.Parallel()
	for name, tc := range ensureCases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tc.shelf
			l, _, service := serve(&s)
			l.LookAgain = tc.lookAgain
			status, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
			assert.Equal(t, tc.calls, s.calls)
			assert.Equal(t, tc.stored, s.stored)
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				assert.Nil(t, status)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, fmt.Sprint(tc.stored), status.Ingress[0].Hostname, "the status is that of what is there afterwards")
		})
	}
}

// Each finding is one event in a call, however often the changes are computed again.
func TestFindings(t *testing.T) {
	t.Parallel()
	s := &shelf{want: []string{"a"}}
	l, events, service := serve(s)
	_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.NoError(t, err)
	want := []string{"Warning Ignored an annotation has no effect", "Normal Shared it is shared"}
	assert.Equal(t, want, drain(events))

	s.fail = "desire"
	_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "nonsense")
	assert.Equal(t, append(want, "Warning ConfigError nonsense"), drain(events), "also those beside an error")

	s.fail, s.calls = "validate", nil
	_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "not legal")
	assert.Equal(t, []string{"Warning ConfigError not legal"}, drain(events))
	assert.Empty(t, s.calls, "nothing is read for a Service that is not legal")
	require.NoError(t, l.UpdateLoadBalancer(t.Context(), "kubernetes", service, nil), "and nodes join all the same")
}

// Plan tells what Ensure would do, and writes neither to the cloud nor events.
func TestPlan(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{"b"}, want: []string{"a"}}
	l, events, service := serve(s)
	plan, err := l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.NoError(t, err)
	assert.Equal(t, contract.Plan{
		Changes: []contract.Planned{{Action: "create", Object: "a"}, {Action: "delete", Object: "b"}},
		Findings: []contract.Finding{
			{Reason: "Ignored", Message: "an annotation has no effect", Warning: true}, {Reason: "Shared", Message: "it is shared"},
		},
	}, plan)
	assert.Equal(t, []string{"observe plan"}, s.calls)
	assert.Empty(t, drain(events))

	s.stored = nil
	plan, err = l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.NoError(t, err)
	assert.Equal(t, []contract.Planned{{Action: "create", Object: "load balancer"}, {Action: "create", Object: "a"}}, plan.Changes,
		"what follows a change is computed from what it should leave")

	s.fail = "desire"
	plan, err = l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "nonsense")
	assert.Len(t, plan.Findings, 3, "what is wrong is told beside the error")
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{"b"}, want: []string{"a"}}
	l, events, service := serve(s)
	require.NoError(t, l.UpdateLoadBalancer(t.Context(), "kubernetes", service, nil))
	assert.Equal(t, []string{"observe nodes", "create a", "delete b"}, s.calls)
	assert.Empty(t, drain(events))

	for _, s := range []*shelf{{want: []string{"a"}}, {stored: []string{"x"}, want: []string{"a"}, foreign: true}} {
		l, _, service = serve(s)
		require.NoError(t, l.UpdateLoadBalancer(t.Context(), "kubernetes", service, nil))
		assert.Equal(t, []string{"observe nodes"}, s.calls, "nothing is created, and nothing of others is changed")
	}
}

func TestDelete(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{"b"}}
	l, events, service := serve(s)
	require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", service))
	assert.Equal(t, []string{"observe delete", "delete load balancer"}, s.calls)
	_, exists, err := l.GetLoadBalancer(t.Context(), "kubernetes", service)
	require.NoError(t, err)
	assert.False(t, exists)
	assert.Equal(t, []string{"Normal Retained something stays"}, drain(events))

	s = &shelf{stored: []string{"x"}, foreign: true}
	l, _, service = serve(s)
	require.NoError(t, l.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", service))
	assert.Equal(t, []string{"observe delete"}, s.calls, "what is somebody else's stays")
	s = &shelf{stored: []string{"b"}, fail: "load balancer"}
	l, _, service = serve(s)
	require.ErrorContains(t, l.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", service), "refused")
}

// What comes up while changes are made is told once, whether they succeed or not; a plan, which makes none, has none of it.
func TestReport(t *testing.T) {
	t.Parallel()
	s := &shelf{want: []string{"a", "b"}, says: "it took long"}
	l, events, service := serve(s)
	_, err := l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.NoError(t, err)
	assert.Empty(t, drain(events))
	_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.NoError(t, err)
	told := drain(events)
	assert.Equal(t, []string{"Normal Slow it took long", "Normal Slow complete: it took long"}, told[len(told)-2:])
	assert.Len(t, told, 4, "with the two findings of Desire, each once: %v", told)

	s.want, s.fail = []string{"a", "b", "c"}, "c"
	_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "refused")
	assert.Contains(t, drain(events), "Normal Slow it took long")
}

// Neither a person who always undoes what is done nor a change without effect keeps a worker for ever.
func TestNoEnd(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{}, want: []string{"a"}, meddle: func(s *shelf) { s.stored = []string{} }}
	l, _, service := serve(s)
	l.LookAgain = true
	_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "changed by somebody else")
	assert.Equal(t, maxLooks+1, s.looks)

	s = &shelf{stored: nil, want: []string{"a"}, meddle: func(s *shelf) { s.stored = nil }}
	l, _, service = serve(s)
	l.Reconciler = forgetful{s}
	_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
	require.ErrorContains(t, err, "no end")
}

// forgetful returns from each change that nothing is there.
type forgetful struct{ *shelf }

func (f forgetful) Changes(r Request, _, desired []string) ([]Change[[]string], error) {
	return f.shelf.Changes(r, nil, desired)
}

// waits is a shelf whose load balancer takes time: it asks for more until it was looked at often enough, and is waited for.
type waits struct {
	*shelf
	until  int
	waited bool
}

func (w *waits) Observe(ctx context.Context, r Request) ([]string, error) {
	observed, err := w.shelf.Observe(ctx, r)
	if err == nil && w.looks < w.until {
		err = cloudproviderapi.NewRetryError("it does not show yet", time.Second)
	}
	return observed, err
}

func (w *waits) Changes(r Request, observed, desired []string) ([]Change[[]string], error) {
	changes, err := w.shelf.Changes(r, observed, desired)
	if w.waited {
		return changes, err
	}
	return append(changes, Change[[]string]{
		Wait: true, Replan: true,
		Make: func(context.Context, *Request, []string) ([]string, error) {
			w.calls, w.waited = append(w.calls, "wait"), true
			return slices.Clone(w.stored), nil
		},
	}), err
}

// A Reconciler that asks for more time gets it for as long as patience lasts, and what is found meanwhile is told once. What is
// waited for is no change: plan does not mention it, and nothing is looked at again because of it.
func TestPatience(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &shelf{stored: []string{"a"}, want: []string{"a"}}
		w := &waits{shelf: s, until: 3}
		l, events, service := serve(s)
		l.Reconciler, l.LookAgain, l.Patience = w, true, 5*time.Second
		before := time.Now()
		_, err := l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err)
		assert.Equal(t, 2*time.Second, time.Since(before))
		assert.Equal(t, []string{"observe ensure", "observe ensure", "observe ensure", "wait", "complete"}, s.calls)
		assert.Len(t, drain(events), 2)

		w.waited, s.looks = false, 0
		_, err = l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.ErrorContains(t, err, "does not show yet", "plan does not wait")
		w.until = 0
		plan, err := l.PlanLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.NoError(t, err)
		assert.Empty(t, plan.Changes)

		w.until, l.Patience = 100, 5*time.Second
		before = time.Now()
		_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.ErrorContains(t, err, "does not show yet")
		assert.Equal(t, 5*time.Second, time.Since(before))
		l.Patience, before = 0, time.Now()
		_, err = l.EnsureLoadBalancer(t.Context(), "kubernetes", service, nil)
		require.ErrorContains(t, err, "does not show yet")
		assert.Zero(t, time.Since(before), "the framework comes back")
	})
}

// What is found while nodes join and leave is told as well.
func TestFindingsOfNodes(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{"a"}, want: []string{"a"}, nodesFinding: &Finding{Reason: "NodeLeftOut", Message: "it has no address"}}
	l, events, service := serve(s)
	require.NoError(t, l.UpdateLoadBalancer(t.Context(), "kubernetes", service, nil))
	assert.Equal(t, []string{"Warning NodeLeftOut it has no address"}, drain(events))
}

// TestFindingsOfLookup: what is found when nothing exists is told, because no deletion follows that would tell it.
func TestFindingsOfLookup(t *testing.T) {
	t.Parallel()
	s := &shelf{stored: []string{"a"}, ownerFinding: &Finding{Reason: "Missing", Message: "it is not found"}}
	l, events, service := serve(s)
	_, exists, err := l.GetLoadBalancer(t.Context(), "kubernetes", service)
	require.NoError(t, err)
	assert.True(t, exists)
	assert.Empty(t, drain(events))
	s.stored = nil
	for range 2 {
		_, exists, err = l.GetLoadBalancer(t.Context(), "kubernetes", service)
		require.NoError(t, err)
		assert.False(t, exists)
	}
	assert.Equal(t, slices.Repeat([]string{"Warning Missing it is not found"}, 2), drain(events))
}
