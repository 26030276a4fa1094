package services

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// fence is a shelf with openings, of which those that a Service does not name are to close.
type fence struct {
	*shelf
	open, lets []string
	// blind is set where Observe fails but for Narrow, and refused are the closings that the cloud refuses.
	blind   bool
	refused []string
	// ownerless is set where whose it is cannot be read but for Narrow.
	ownerless bool
	// elsewhere is set where the Service is another controller's.
	elsewhere bool
}

func (f *fence) Validate(r Request) ([]Finding, error) {
	if f.elsewhere {
		return nil, cloudprovider.ImplementedElsewhere
	}
	return f.shelf.Validate(r)
}

func (f *fence) Observe(ctx context.Context, r Request) ([]string, error) {
	if f.blind && r.Purpose != Narrow {
		return nil, errors.New("a node cannot be read")
	}
	return f.shelf.Observe(ctx, r)
}

func (f *fence) CheckOwner(ctx context.Context, r Request, observed []string) ([]string, []Finding, error) {
	if f.ownerless && r.Purpose != Narrow {
		return nil, nil, errors.New("a port cannot be read")
	}
	return f.shelf.CheckOwner(ctx, r, observed)
}

func (f *fence) Narrowing(_ context.Context, _ Request, observed []string) (list []Change[[]string], err error) {
	for _, o := range f.open {
		if slices.Contains(f.lets, o) || (f.foreign && observed == nil) {
			continue
		}
		list = append(list, Change[[]string]{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: "opening " + o}, Replan: true,
			Make: func(context.Context, *Request, []string) ([]string, error) {
				f.calls = append(f.calls, "close "+o)
				if slices.Contains(f.refused, o) {
					return nil, errors.New(o + " stays open")
				}
				f.open = slices.DeleteFunc(slices.Clone(f.open), func(x string) bool { return x == o })
				return observed, nil
			},
		})
	}
	return list, nil
}

// narrowingCase is a situation of a Service with the expected result.
type narrowingCase struct {
	fence  fence
	unused bool
	calls  []string
	open   []string
	err    string
}

// narrowingCases are the cases of TestNarrowing.
func narrowingCases() map[string]narrowingCase {
	return map[string]narrowingCase{
		"nothing is to be narrowed": {
			fence: fence{shelf: &shelf{stored: []string{"a"}, want: []string{"a"}}, open: []string{"x"}, lets: []string{"x"}},
			calls: []string{"observe ensure", "complete"}, open: []string{"x"},
		},
		"it comes before all else": {
			fence: fence{shelf: &shelf{stored: []string{}, want: []string{"a"}}, open: []string{"x", "y"}, lets: []string{"y"}},
			calls: []string{"observe ensure", "close x", "create a", "complete"}, open: []string{"y"},
		},
		"the plan fails": {
			fence: fence{shelf: &shelf{stored: []string{}, fail: "desire"}, open: []string{"x"}},
			calls: []string{"observe ensure", "close x"}, err: "nonsense",
		},
		"a change fails": {
			fence: fence{shelf: &shelf{stored: []string{}, want: []string{"a"}, fail: "a"}, open: []string{"x"}},
			calls: []string{"observe ensure", "close x", "create a"}, err: "refused",
		},
		"a check fails": {
			fence: fence{shelf: &shelf{stored: []string{}, fail: "validate"}, open: []string{"x"}},
			calls: []string{"observe narrow", "close x"}, err: "not legal",
		},
		"a check fails of a Service that was never served": {
			fence: fence{shelf: &shelf{stored: []string{}, fail: "validate"}, open: []string{"x"}}, unused: true, open: []string{"x"}, err: "not legal",
		},
		"another controller serves it": {
			fence: fence{shelf: &shelf{stored: []string{}}, open: []string{"x"}, elsewhere: true}, open: []string{"x"}, err: "implemented by alternate",
		},
		"a node cannot be read": {
			fence: fence{shelf: &shelf{stored: []string{}}, open: []string{"x"}, blind: true},
			calls: []string{"observe narrow", "close x"}, err: "a node cannot be read",
		},
		"it is somebody else's": {
			fence: fence{shelf: &shelf{stored: []string{}, foreign: true}, open: []string{"x"}},
			calls: []string{"observe ensure", "observe narrow"}, open: []string{"x"}, err: errForeign.Error(),
		},
		"whose it is cannot be told by all that is read": {
			fence: fence{shelf: &shelf{stored: []string{}}, open: []string{"x"}, ownerless: true},
			calls: []string{"observe ensure", "observe narrow", "close x"}, err: "a port cannot be read",
		},
		"each is tried, and the rest as well": {
			fence: fence{shelf: &shelf{stored: []string{}, want: []string{"a"}, fail: "a"}, open: []string{"x", "y"}, refused: []string{"x"}},
			calls: []string{"observe ensure", "close x", "close y", "observe ensure", "create a"}, open: []string{"x"}, err: "x stays open\nrefused",
		},
		"the rest includes what failed": {
			fence: fence{shelf: &shelf{stored: []string{}, want: []string{"a"}}, open: []string{"x"}, refused: []string{"x"}},
			calls: []string{"observe ensure", "close x", "observe ensure", "create a", "complete"}, open: []string{"x"},
		},
	}
}

func TestNarrowing(t *testing.T) {
	for name, c := range narrowingCases() {
		t.Run(name, func(t *testing.T) {
			l, _, s := serve(c.fence.shelf)
			l.Reconciler = &c.fence
			if !c.unused {
				s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			}
			_, err := l.EnsureLoadBalancer(t.Context(), "c", s, nil)
			if c.err == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.err)
			}
			assert.Equal(t, c.calls, c.fence.calls)
			assert.ElementsMatch(t, c.open, c.fence.open)
		})
	}
}

// TestNarrowingOfARefusedService is asked for by what refuses it before anything is read.
func TestNarrowingOfARefusedService(t *testing.T) {
	f := &fence{shelf: &shelf{stored: []string{}, fail: "validate"}, open: []string{"x"}}
	l, _, s := serve(f.shelf)
	l.Reconciler = f
	require.NoError(t, l.NarrowLoadBalancer(t.Context(), "c", s))
	assert.Empty(t, f.calls, "it was never served")
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	require.NoError(t, l.NarrowLoadBalancer(t.Context(), "c", s))
	assert.Equal(t, []string{"observe narrow", "close x"}, f.calls)
}

// TestPlanShowsNarrowings, also of a Service that is refused. It says an object once, and what is narrowed first.
func TestPlanShowsNarrowings(t *testing.T) {
	for name, c := range map[string]struct {
		shelf   shelf
		planned []string
		err     string
	}{
		"served":         {shelf{stored: []string{}, want: []string{"a"}}, []string{"opening x", "a"}, ""},
		"a change alike": {shelf{stored: []string{}, want: []string{"a", "opening x", "b"}}, []string{"opening x", "a", "b"}, ""},
		"the plan fails": {shelf{stored: []string{}, fail: "desire"}, []string{"opening x"}, "nonsense"},
		"a check fails":  {shelf{stored: []string{}, fail: "validate"}, []string{"opening x"}, "not legal"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fence{shelf: &c.shelf, open: []string{"x"}}
			l, _, s := serve(f.shelf)
			l.Reconciler = f
			s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			plan, err := l.PlanLoadBalancer(t.Context(), "c", s, nil)
			var objects []string
			for _, p := range plan.Changes {
				objects = append(objects, p.Object)
			}
			assert.Equal(t, c.planned, objects)
			assert.Equal(t, c.err == "", err == nil, "%v", err)
			assert.Equal(t, []string{"x"}, f.open, "plan writes nothing")
		})
	}
}

// TestPlanOfLateClosings: what closes only after other changes stands behind these in a plan, whatever is narrowed of its object.
func TestPlanOfLateClosings(t *testing.T) {
	opens, closes, whole := contract.Planned{Object: "group", Detail: "1 more"}, contract.Planned{Object: "group", Detail: "1 less"},
		contract.Planned{Object: "group", Detail: "1 more, 1 less"}
	leaves, late := contract.Planned{Object: "listener"}, contract.Planned{Object: "group", Detail: "2 less"}
	for name, c := range map[string]struct{ narrowing, rest, want []contract.Planned }{
		"late":       {[]contract.Planned{closes}, []contract.Planned{opens, leaves, late}, []contract.Planned{closes, opens, leaves, late}},
		"the same":   {[]contract.Planned{closes}, []contract.Planned{opens, leaves, closes}, []contract.Planned{closes, opens, leaves}},
		"one change": {[]contract.Planned{opens, closes}, []contract.Planned{leaves, whole}, []contract.Planned{whole, leaves}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, narrowedFirst(c.narrowing, c.rest)) })
	}
}

// TestPhases: of a phase whose changes do not depend on each other each is tried, and none of the next one where one failed.
func TestPhases(t *testing.T) {
	s := &shelf{stored: []string{"a", "b", "c"}, fail: "a"}
	l, events, service := serve(s)
	var due []Change[[]string]
	for i, phase := range []Phase{PhaseNarrow, PhaseNarrow, PhaseOpen, PhaseOpen} {
		c := s.change(contract.PlanDelete, string(rune('a'+i)), phase == PhaseNarrow, func() {})
		c.Phase = phase
		due = append(due, c)
	}
	try := func(due []Change[[]string]) error {
		s.calls = nil
		_, _, err := l.makeAll(t.Context(), &Request{Service: service}, &report{events: events, service: service}, due, nil)
		return err
	}
	require.ErrorContains(t, try(due), "refused")
	assert.Equal(t, []string{"delete a", "delete b"}, s.calls)
	s.fail = "c"
	require.ErrorContains(t, try(due[2:]), "refused")
	assert.Equal(t, []string{"delete c"}, s.calls, "the first that fails is the last where one needs the other")
}

// TestOpeningBeforeItsClosing: who is asked for stays in while the opening for them fails for now, and nobody does by a lasting refusal.
func TestOpeningBeforeItsClosing(t *testing.T) {
	failure := func(class error) error { return &cloudapi.Error{Class: class, Operation: "opening"} }
	for name, c := range map[string]struct {
		fails []error
		calls []string
	}{
		"nothing fails":       {nil, []string{"open x", "close x", "close y"}},
		"for now":             {[]error{failure(cloudapi.ErrTransient)}, []string{"open x", "close y"}},
		"a conflict":          {[]error{failure(cloudapi.ErrConflict)}, []string{"open x", "close y"}},
		"more time":           {[]error{cloudproviderapi.NewRetryError("wait", 1)}, []string{"open x", "close y"}},
		"it went away":        {[]error{ErrGone}, []string{"open x", "close y"}},
		"for ever":            {[]error{failure(cloudapi.ErrInvalid)}, []string{"open x", "close x", "close y"}},
		"a page that refuses": {[]error{&cloudapi.Error{Class: cloudapi.ErrTransient, Status: 400}}, []string{"open x", "close x", "close y"}},
		"no room":             {[]error{failure(cloudapi.ErrQuota)}, []string{"open x", "close x", "close y"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := &shelf{}
			l, events, service := serve(s)
			var failed error
			change := func(word, what string) Change[[]string] {
				return Change[[]string]{
					Planned: contract.Planned{Object: what}, Phase: PhaseNarrow,
					Make: func(context.Context, *Request, []string) ([]string, error) {
						s.calls = append(s.calls, word+" "+what)
						if failed = nil; word == "open" && len(c.fails) > 0 {
							failed, c.fails = c.fails[0], c.fails[1:]
						}
						return nil, failed
					},
				}
			}
			due := []Change[[]string]{change("open", "x"), change("close", "x"), change("close", "y")}
			due[0].Opens, due[1].Closes, due[2].Closes = "x", "x", "y"
			fails := len(c.fails) > 0
			_, _, err := l.makeAll(t.Context(), &Request{Service: service}, &report{events: events, service: service}, due, nil)
			assert.Equal(t, c.calls, s.calls)
			assert.Equal(t, fails, err != nil, "%v", err)
		})
	}
}

// TestAddWhatFits: what is added is as much as there is room for, in its order, whatever the number of items, and by few attempts.
func TestAddWhatFits(t *testing.T) {
	for room := range 12 {
		for asked := range 12 {
			var items, added []int
			for n := range asked {
				items = append(items, n)
			}
			attempts := 0
			left, err := AddWhatFits(items, func(some []int) error {
				if attempts++; len(added)+len(some) > room {
					return &cloudapi.Error{Class: cloudapi.ErrQuota}
				}
				added = append(added, some...)
				return nil
			})
			fits := min(room, asked)
			assert.Equal(t, fmt.Sprint(items[:fits]), fmt.Sprint(added), "room for %d of %d", room, asked)
			assert.Equal(t, fmt.Sprint(items[fits:]), fmt.Sprint(left), "room for %d of %d", room, asked)
			assert.Equal(t, fits < asked, errors.Is(err, cloudapi.ErrQuota), "room for %d of %d: %v", room, asked, err)
			assert.LessOrEqual(t, attempts, 9, "room for %d of %d", room, asked)
		}
	}
	attempts := 0
	left, err := AddWhatFits([]int{1, 2, 3}, func([]int) error { attempts++; return &cloudapi.Error{Class: cloudapi.ErrTransient} })
	assert.Equal(t, []int{1, 2, 3}, left)
	require.ErrorIs(t, err, cloudapi.ErrTransient)
	assert.Equal(t, 1, attempts, "only what has no room is tried in parts")
}
