package vsphere

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// This file keeps a listing up to date with vCenter's property collector. Changes are requested when virtual machines are needed, without a
// waiting call: that would prove nothing about the present, and return whenever guests report interfaces of pods.

const (
	// trackDelay is the time from a listing to the request to track changes: then the start is over.
	trackDelay = time.Minute
	// trackPause is the time until the next try after a failure.
	trackPause = 10 * time.Minute
	// fullAge is how long changes are used without a new listing, in case one was lost.
	fullAge = 15 * time.Minute
	// maxUpdates bounds the responses to one request for changes.
	maxUpdates = 2000
)

// tracker holds the objects of a view, kept up to date within a session.
type tracker struct {
	collector types.ManagedObjectReference
	// turn is held by the goroutine that requests changes.
	turn chan struct{}

	mu      sync.Mutex
	version string
	objects map[types.ManagedObjectReference]types.ObjectContent
	// listed is when everything was listed; applied counts the responses with changes.
	listed  time.Time
	applied int
}

func newTracker(collector types.ManagedObjectReference) *tracker {
	return &tracker{collector: collector, turn: make(chan struct{}, 1), objects: map[types.ManagedObjectReference]types.ObjectContent{}}
}

// currentTracker returns the tracker, nil if there is none.
func (s *session) currentTracker() *tracker {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tracker
}

// stopTracking drops a tracker that may have lost changes. Its collector is destroyed before another one is created.
func (s *session) stopTracking(c *tracker) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tracker == c {
		s.tracker, s.oldCollector = nil, &c.collector
	}
}

// listCurrent returns everything that a vCenter shows: the last listing with its changes, or a new listing if there are no reliable
// changes.
func (v *vcenter) listCurrent(ctx context.Context, s *session, full bool) (machines []machine, calls int, err error) {
	c := s.currentTracker()
	if c != nil && !full && c.isRecent() {
		objects, asked, err := c.catchUp(ctx, s, v.page())
		if err == nil {
			machines, err = v.convertListing(s, objects)
		}
		if err == nil {
			return machines, asked, nil
		}
		klog.V(2).InfoS("Listing in full, because changes are not known", "vcenter", v.config.Key, "reason", err)
		calls += asked
		s.stopTracking(c)
		c = nil
	}
	applied, began := c.count(), time.Now()
	view, err := s.viewOfAll(ctx)
	if err != nil {
		return nil, calls, err
	}
	objects, asked, err := s.retrieveAll(ctx, view, v.page())
	calls += asked
	if isFault[types.ManagedObjectNotFound](err) {
		s.forgetView()
		return nil, calls, fmt.Errorf("%w: %w", errSessionEnded, err)
	}
	if err != nil {
		v.reducePages(err)
		return nil, calls, err
	}
	if machines, err = v.convertListing(s, objects); err != nil {
		return nil, calls, err
	}
	c.rebase(objects, applied, began)
	if c == nil {
		v.trackLater() //nolint:contextcheck // it continues after the question
	}
	return machines, calls, nil
}

func (c *tracker) isRecent() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.listed) < fullAge
}

func (c *tracker) count() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.applied
}

// rebase replaces the state by a listing, unless changes arrived meanwhile that the listing may lack.
func (c *tracker) rebase(objects []types.ObjectContent, applied int, began time.Time) {
	if c == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.applied != applied {
		return
	}
	clear(c.objects)
	for _, o := range objects {
		c.objects[o.Obj] = o
	}
	c.listed = began
}

// trackLater starts tracking changes after a while. Only a leading program does so: commands end soon.
func (v *vcenter) trackLater() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.stop == nil || v.trackSoon || time.Now().Before(v.trackAfter) {
		return
	}
	v.trackSoon = true
	ctx := wait.ContextForChannel(v.stop)
	rescue.Go("following the changes of vCenter "+v.config.Key, func() {
		timer := time.NewTimer(trackDelay)
		defer timer.Stop()
		var err error
		select {
		case <-ctx.Done():
		case <-timer.C:
			err = v.do(ctx, "following changes", v.track)
		}
		v.mu.Lock()
		defer v.mu.Unlock()
		v.trackSoon = false
		if err != nil {
			v.trackAfter = time.Now().Add(trackPause)
			klog.V(2).InfoS("Changes are not followed, everything is listed instead", "vcenter", v.config.Key, "reason", err)
		}
	})
}

// track makes vCenter track changes of everything in the view.
func (v *vcenter) track(ctx context.Context, s *session) error {
	s.mu.Lock()
	tracks, old := s.tracker != nil, s.oldCollector
	s.oldCollector = nil
	s.mu.Unlock()
	if tracks {
		return nil
	}
	if old != nil { // a failure costs vCenter memory until the session ends
		_, _ = methods.DestroyPropertyCollector(withMethod(ctx, "DestroyPropertyCollector"), s, &types.DestroyPropertyCollector{This: *old})
	}
	view, err := s.viewOfAll(ctx)
	if err != nil {
		return err
	}
	made, err := methods.CreatePropertyCollector(withMethod(ctx, "CreatePropertyCollector"), s, &types.CreatePropertyCollector{
		This: s.ServiceContent.PropertyCollector,
	})
	if err != nil {
		return err //nolint:wrapcheck // apiError names it
	}
	c := newTracker(made.Returnval)
	_, err = methods.CreateFilter(withMethod(ctx, "CreateFilter"), s, &types.CreateFilter{This: c.collector, Spec: viewFilter(view)})
	c.listed = time.Now()
	if err == nil {
		_, _, err = c.catchUp(ctx, s, v.page())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.oldCollector = &c.collector
		return err //nolint:wrapcheck // apiError names it
	}
	s.tracker = c
	return nil
}

// catchUp requests the changes since the last request, and returns the present state.
func (c *tracker) catchUp(ctx context.Context, s *session, page int32) (all []types.ObjectContent, calls int, err error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return nil, 0, ctx.Err() //nolint:wrapcheck // apiError names it
	}
	for more := true; more; calls++ {
		if calls >= maxUpdates {
			return nil, calls, unclearError("more than %d answers with changes", calls)
		}
		answer, err := methods.WaitForUpdatesEx(withMethod(ctx, "WaitForUpdatesEx"), s, &types.WaitForUpdatesEx{
			This: c.collector, Version: c.lastVersion(), Options: &types.WaitOptions{MaxWaitSeconds: types.NewInt32(0), MaxObjectUpdates: page},
		})
		if err != nil {
			return nil, calls + 1, err //nolint:wrapcheck // apiError names it
		}
		if more, err = c.applySet(answer.Returnval); err != nil {
			return nil, calls + 1, err
		}
	}
	return c.snapshot(), calls, nil
}

func (c *tracker) lastVersion() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.version
}

// snapshot returns everything, in the order of the references.
func (c *tracker) snapshot() []types.ObjectContent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.SortedFunc(maps.Values(c.objects), func(a, b types.ObjectContent) int { return strings.Compare(a.Obj.Value, b.Obj.Value) })
}

// applySet applies a response with changes, and reports whether another one follows at once. It is nil without changes.
func (c *tracker) applySet(set *types.UpdateSet) (more bool, err error) {
	if set == nil {
		return false, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, f := range set.FilterSet {
		if len(f.MissingSet) > 0 {
			return false, unclearError("%s cannot be read", f.MissingSet[0].Obj.Value)
		}
		for _, u := range f.ObjectSet {
			if err := c.update(u); err != nil {
				return false, err
			}
		}
	}
	if set.Version == "" {
		return false, unclearError("changes have no version")
	}
	c.version = set.Version
	c.applied++
	return set.Truncated != nil && *set.Truncated, nil
}

// update applies the changes of one object.
func (c *tracker) update(u types.ObjectUpdate) error {
	switch u.Kind {
	case types.ObjectUpdateKindLeave:
		delete(c.objects, u.Obj)
		for ref, o := range c.objects {
			if ref.Type == kindView {
				c.objects[ref] = withoutViewed(o, u.Obj)
			}
		}
		return nil
	case types.ObjectUpdateKindEnter:
		c.objects[u.Obj] = types.ObjectContent{Obj: u.Obj}
	}
	o, known := c.objects[u.Obj]
	if !known {
		return unclearError("a change of %s, which is not known", u.Obj.Value)
	}
	o, err := applyUpdate(o, u)
	if err != nil {
		return err
	}
	if u.Obj.Type == kindView {
		o = withoutViewed(o, types.ManagedObjectReference{})
	}
	c.objects[u.Obj] = o
	return nil
}

// applyUpdate returns an object with changed properties. The former object is not modified.
func applyUpdate(o types.ObjectContent, u types.ObjectUpdate) (types.ObjectContent, error) {
	o.PropSet, o.MissingSet = slices.Clone(o.PropSet), slices.Clone(o.MissingSet)
	drop := func(path string) {
		within := func(name string) bool {
			return name == path || strings.HasPrefix(name, path+".") || strings.HasPrefix(name, path+"[")
		}
		o.PropSet = slices.DeleteFunc(o.PropSet, func(p types.DynamicProperty) bool { return within(p.Name) })
		o.MissingSet = slices.DeleteFunc(o.MissingSet, func(m types.MissingProperty) bool { return within(m.Path) })
	}
	for _, p := range u.ChangeSet {
		drop(p.Name)
		switch p.Op {
		case types.PropertyChangeOpAssign:
			if p.Val == nil {
				continue
			}
			if u.Obj.Type == kindMachine && !slices.Contains(paths(), p.Name) {
				return o, unclearError("a change of the property %s, which nobody asked for", p.Name)
			}
			o.PropSet = append(o.PropSet, types.DynamicProperty{Name: p.Name, Val: p.Val})
		case types.PropertyChangeOpRemove, types.PropertyChangeOpIndirectRemove:
		default:
			return o, unclearError("a change of kind %s of the property %s", p.Op, p.Name)
		}
	}
	for _, m := range u.MissingSet {
		drop(m.Path)
		o.MissingSet = append(o.MissingSet, m)
	}
	return o, nil
}

// withoutViewed returns a view with each object once, and without removed ones, whether the view reported the removal or not.
func withoutViewed(view types.ObjectContent, left types.ManagedObjectReference) types.ObjectContent {
	view.PropSet = slices.Clone(view.PropSet)
	for i, p := range view.PropSet {
		refs, ok := p.Val.(types.ArrayOfManagedObjectReference)
		if !ok {
			continue
		}
		seen := map[types.ManagedObjectReference]bool{left: true}
		refs.ManagedObjectReference = slices.DeleteFunc(slices.Clone(refs.ManagedObjectReference), func(ref types.ManagedObjectReference) bool {
			was := seen[ref]
			seen[ref] = true
			return was
		})
		view.PropSet[i].Val = refs
	}
	return view
}
