package vsphere

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// pageSize is how many objects a page of a listing has: 2.6 kB each, and up to ten times that if guests report the interfaces of all
	// their pods. smallPage is used after a response was too large.
	pageSize  = 2000
	smallPage = 200
	// maxMissing is how many virtual machines are remembered that no listing shows any more: unrelated ones are created and deleted all the
	// time.
	maxMissing = 5000
	// straggler is how long a listing waits for a vCenter after another one has answered.
	straggler = 10 * time.Second
)

// knownMachines holds the virtual machines that a vCenter has shown.
type knownMachines struct {
	sync.Mutex
	// machines are all that were ever shown and are not proved to be gone.
	machines map[types.ManagedObjectReference]machine
	// missing are those that the last listing lacked, and since when.
	missing map[types.ManagedObjectReference]time.Time
	// shown are those of the last listing, unknown others in it that could not be identified.
	shown, unknown []machine
	tree           tree
	// problem is the fault of the configured datacenters.
	problem error
	// failed is the error of the last listing for all nodes; nil if it succeeded.
	failed error
	page   int32
}

func newKnownMachines() *knownMachines {
	return &knownMachines{
		machines: map[types.ManagedObjectReference]machine{}, missing: map[types.ManagedObjectReference]time.Time{}, page: pageSize,
	}
}

func (s *knownMachines) currentTree() tree {
	s.Lock()
	defer s.Unlock()
	return s.tree
}

// recall completes known virtual machines with remembered data that is not shown now, and remembers the others.
func (s *knownMachines) recall(machines []machine) (known, unknown []machine) {
	s.Lock()
	defer s.Unlock()
	for _, m := range machines {
		before, ok := s.machines[m.Ref]
		switch {
		case m.UUID != "":
			s.machines[m.Ref] = m
		case ok:
			m = m.fillFrom(before)
		default:
			unknown = append(unknown, m)
			continue
		}
		known = append(known, m)
	}
	return known, unknown
}

// machinesOf returns the remembered machines with an ID.
func (s *knownMachines) machinesOf(id string) []machine {
	s.Lock()
	defer s.Unlock()
	var list []machine
	for _, m := range s.machines {
		if canonicalUUID(m.UUID) == id {
			list = append(list, m)
		}
	}
	return list
}

func (s *knownMachines) noteFailed(err error) {
	s.Lock()
	defer s.Unlock()
	s.failed = err
}

func (s *knownMachines) forget(ref types.ManagedObjectReference) {
	s.Lock()
	defer s.Unlock()
	delete(s.machines, ref)
	delete(s.missing, ref)
}

// noteMissingLocked keeps little data, of the most recently missing ones only.
func (s *knownMachines) noteMissingLocked(shown []machine) {
	there := map[types.ManagedObjectReference]bool{}
	for _, m := range shown {
		there[m.Ref] = true
	}
	for ref, m := range s.machines {
		if there[ref] {
			delete(s.missing, ref)
			continue
		}
		if _, known := s.missing[ref]; !known {
			s.missing[ref] = time.Now()
			m.NICs, m.Metadata = nil, ""
			s.machines[ref] = m
		}
	}
	if len(s.missing) <= maxMissing {
		return
	}
	oldest := slices.SortedFunc(maps.Keys(s.missing), func(a, b types.ManagedObjectReference) int {
		return cmp.Or(s.missing[a].Compare(s.missing[b]), strings.Compare(a.Value, b.Value))
	})
	for _, ref := range oldest[:len(oldest)-maxMissing] {
		delete(s.machines, ref)
		delete(s.missing, ref)
	}
}

// answer is the response of one vCenter.
type answer struct {
	machines []machine
	calls    int
	err      error
}

// askAll asks all vCenters concurrently. Slow ones are not awaited after another one has answered.
func askAll(ctx context.Context, vcenters []*vcenter, ask func(context.Context, *vcenter) answer) []answer {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	list := make([]answer, len(vcenters))
	var group sync.WaitGroup
	var once sync.Once
	for i, v := range vcenters {
		group.Add(1)
		rescue.Go("asking vCenter "+v.config.Key, func() {
			defer group.Done()
			list[i].err = errors.New("no answer")
			if list[i] = ask(ctx, v); list[i].err == nil {
				once.Do(func() { time.AfterFunc(straggler, cancel) })
			}
		})
	}
	group.Wait()
	return list
}

// listInstances lists the virtual machines of all vCenters. For a vCenter that does not answer, its last ones are returned, and questions
// about them are errors; nodes of other vCenters are not affected.
func (a *api) listInstances(ctx context.Context) ([]instance, int, error) {
	var machines []machine
	var problems []error
	calls := 0
	for i, got := range askAll(ctx, a.vcenters, func(ctx context.Context, v *vcenter) answer { return v.listMachines(ctx, false) }) {
		calls += got.calls
		a.vcenters[i].known.noteFailed(got.err)
		if got.err != nil {
			problems = append(problems, got.err)
			machines = append(machines, a.vcenters[i].staleMachines(got.err)...)
			continue
		}
		machines = append(machines, got.machines...)
	}
	if len(problems) == len(a.vcenters) {
		return nil, calls, errors.Join(problems...)
	}
	return groupByUUID(machines), calls, nil
}

// staleMachines returns the virtual machines shown before.
func (v *vcenter) staleMachines(problem error) []machine {
	v.known.Lock()
	defer v.known.Unlock()
	list := slices.Clone(v.known.shown)
	for i := range list {
		list[i].Problem = cloudapi.NotAbsence(problem)
	}
	return list
}

// listMachines lists the virtual machines of one vCenter, in full or by changes.
func (v *vcenter) listMachines(ctx context.Context, full bool) answer {
	var got answer
	got.err = v.do(ctx, "listing virtual machines", func(ctx context.Context, s *session) (err error) {
		got.machines, got.calls, err = v.listCurrent(ctx, s, full)
		return err
	})
	return got
}

func (v *vcenter) page() int32 {
	v.known.Lock()
	defer v.known.Unlock()
	return v.known.page
}

// reducePages reduces the page size after a response that was too large.
func (v *vcenter) reducePages(err error) {
	e, ok := errors.AsType[*cloudapi.Error](err)
	if !ok || e.Status != 200 {
		return
	}
	v.known.Lock()
	defer v.known.Unlock()
	v.known.page = smallPage
}

// convertListing converts a listing to virtual machines and places.
func (v *vcenter) convertListing(s *session, objects []types.ObjectContent) ([]machine, error) {
	t := tree{}
	var machines []machine
	viewed := -1
	for _, o := range objects {
		switch o.Obj.Type {
		case kindMachine:
			m, err := newMachine(v.config.Key, o)
			if err != nil {
				return nil, err
			}
			machines = append(machines, m)
		case kindView:
			viewed = countViewed(o)
		default:
			t[o.Obj] = newPlace(o)
		}
	}
	if shown := len(machines) + len(t); viewed != shown {
		return nil, unclearError("the listing broke off: %d of %d objects", shown, max(viewed, 0))
	}
	inside, problem := t.datacenters(v.config.Datacenters, s.ServiceContent.RootFolder)
	for i := range machines {
		m := &machines[i]
		m.Path = t.path(m.place(), m.Name)
		m.Outside = !slices.ContainsFunc(t.chain(m.place()), func(ref types.ManagedObjectReference) bool { return inside[ref] })
	}
	known, unknown := v.known.recall(machines)
	v.known.Lock()
	defer v.known.Unlock()
	v.known.shown, v.known.unknown, v.known.tree, v.known.problem = known, unknown, t, problem
	v.known.noteMissingLocked(known)
	return slices.Clone(known), nil
}

const (
	kindMachine = "VirtualMachine"
	kindView    = "ContainerView"
)

// countViewed counts the objects of a view, which the listing must all contain; -1 if the view does not say.
func countViewed(view types.ObjectContent) int {
	for _, p := range view.PropSet {
		if refs, ok := p.Val.(types.ArrayOfManagedObjectReference); ok {
			return len(refs.ManagedObjectReference)
		}
	}
	return -1
}

func newPlace(o types.ObjectContent) place {
	var p place
	for _, prop := range o.PropSet {
		switch v := prop.Val.(type) {
		case string:
			p.Name = v
		case types.ManagedObjectReference:
			p.Parent = v
		}
	}
	return p
}

// placeKinds are the kinds of objects that contain virtual machines; clusters are compute resources, and vApps are resource pools.
func placeKinds() []string {
	return []string{"HostSystem", "ComputeResource", "ResourcePool", kindFolder, kindDatacenter}
}

// viewOfAll returns the view of everything, created once in a session.
func (s *session) viewOfAll(ctx context.Context) (types.ManagedObjectReference, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.view != nil {
		return *s.view, nil
	}
	answer, err := methods.CreateContainerView(withMethod(ctx, "CreateContainerView"), s, &types.CreateContainerView{
		This: *s.ServiceContent.ViewManager, Container: s.ServiceContent.RootFolder, Recursive: true,
		Type: append([]string{kindMachine}, placeKinds()...),
	})
	if err != nil {
		return types.ManagedObjectReference{}, err //nolint:wrapcheck // apiError names it
	}
	s.view = &answer.Returnval
	return answer.Returnval, nil
}

func (s *session) forgetView() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = nil
}

// viewFilter selects the properties to read of a view's objects, and of the view itself.
func viewFilter(view types.ManagedObjectReference) types.PropertyFilterSpec {
	wanted := []types.PropertySpec{{Type: kindMachine, PathSet: paths()}, {Type: kindView, PathSet: []string{"view"}}}
	for _, kind := range placeKinds() {
		wanted = append(wanted, types.PropertySpec{Type: kind, PathSet: []string{"name", "parent"}})
	}
	return types.PropertyFilterSpec{PropSet: wanted, ObjectSet: []types.ObjectSpec{{
		Obj:       view,
		SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: kindView, Path: "view"}},
	}}}
}

// retrieveAll reads everything in a view, and the view itself, which shows whether it is complete.
func (s *session) retrieveAll(
	ctx context.Context, view types.ManagedObjectReference, page int32,
) (all []types.ObjectContent, calls int, err error) {
	request := &types.RetrievePropertiesEx{
		This: s.ServiceContent.PropertyCollector, Options: types.RetrieveOptions{MaxObjects: page},
		SpecSet: []types.PropertyFilterSpec{viewFilter(view)},
	}
	ctx, listing := cloudapi.WatchListing(ctx)
	first, err := methods.RetrievePropertiesEx(withMethod(ctx, "RetrievePropertiesEx"), s, request)
	if err != nil {
		return nil, 1, err //nolint:wrapcheck // apiError names it
	}
	for calls = 1; ; calls++ {
		if first.Returnval == nil {
			return all, calls, nil
		}
		all = append(all, first.Returnval.Objects...)
		token := first.Returnval.Token
		if err := listing.Add(len(first.Returnval.Objects)); err != nil || token == "" {
			return all, calls, err //nolint:wrapcheck // ours
		}
		if err := listing.Turn(token); err != nil {
			return nil, calls, err //nolint:wrapcheck // ours
		}
		next, err := methods.ContinueRetrievePropertiesEx(withMethod(ctx, "ContinueRetrievePropertiesEx"), s, &types.ContinueRetrievePropertiesEx{
			This: s.ServiceContent.PropertyCollector, Token: token,
		})
		if err != nil {
			return nil, calls, err //nolint:wrapcheck // apiError names it
		}
		first.Returnval = &next.Returnval
	}
}

// retrieve reads virtual machines by reference. One that does not exist makes the call fail.
func (s *session) retrieve(ctx context.Context, vcenter string, refs []types.ManagedObjectReference) ([]machine, error) {
	request := &types.RetrievePropertiesEx{
		This:    s.ServiceContent.PropertyCollector,
		SpecSet: []types.PropertyFilterSpec{{PropSet: []types.PropertySpec{{Type: kindMachine, PathSet: paths()}}}},
	}
	for _, ref := range refs {
		request.SpecSet[0].ObjectSet = append(request.SpecSet[0].ObjectSet, types.ObjectSpec{Obj: ref})
	}
	answer, err := methods.RetrievePropertiesEx(withMethod(ctx, "RetrievePropertiesEx virtual machine"), s, request)
	if err != nil {
		return nil, err //nolint:wrapcheck // apiError names it
	}
	var list []machine
	if answer.Returnval != nil {
		for _, o := range answer.Returnval.Objects {
			m, err := newMachine(vcenter, o)
			if err != nil {
				return nil, err
			}
			list = append(list, m)
		}
	}
	if len(list) != len(refs) {
		return nil, unclearError("the answer has %d of %d virtual machines", len(list), len(refs))
	}
	return list, nil
}
