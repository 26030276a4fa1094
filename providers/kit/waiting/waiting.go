// Package waiting lets any number of callers wait for asynchronous work of a cloud, such as building a load balancer.
//
// While there are callers, one goroutine polls every second or so all that they wait for, in as few calls as possible, and wakes those
// whose work has ended. No caller delays another one.
//
// The polled object is the one in which the cloud shows its work: the load balancer itself, with a status or a flag, or the operation, work
// request or job that a change returned. The Look of an inventory polls the former, by one listing if there are many, and Each polls
// objects that cannot be listed. Failed work has ended too: the object that over judges, and Until returns, shows the failure.
package waiting

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
	"github.com/anyccm/cloud-controller-manager/registry/progress"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	defaultLeast    = time.Second
	defaultMost     = 3 * time.Second
	defaultPatience = 20 * time.Second
	// quick is the time in which work is expected to end: until then the interval is an eighth of the time that has passed, and a quarter
	// afterwards.
	quick = 10 * time.Second
	// maxLooks bounds the concurrent polls, so that one that hangs does not delay other objects, and an outage does not pile them up.
	maxLooks = 4
)

// Pace says how often to poll. The zero value means every 1 to 3 s, and 20 s of failed polls.
type Pace struct {
	// Least is the time before the first poll of new work, and between two polls; Most is the maximum between two. The delay in noticing
	// the end grows with the duration of the work, up to Most.
	Least, Most time.Duration
	// Patience is how long polls may fail in a row before the callers get the error. Lasting failures are returned at once.
	Patience time.Duration
}

// interval returns the time until the next poll of work that has been awaited so long.
func (p Pace) interval(waited time.Duration) time.Duration {
	if waited < quick {
		return min(max(waited/8, p.Least), p.Most)
	}
	return min(max(waited/4, p.Least), p.Most)
}

// Option changes one wait.
type Option func(*options)

type options struct{ skipped int }

// SkipLooks is for work with a known minimum duration: it skips the first polls.
func SkipLooks(n int) Option { return func(o *options) { o.skipped = n } }

// Look reads objects again, in as few calls as possible. It must return a result for each of them.
type Look[ID comparable, V any] func(ctx context.Context, ids []ID) map[ID]inventory.Seen[V]

// Room lets callers wait for objects of one kind. Create it with New; it is safe for concurrent use.
type Room[ID comparable, V any] struct {
	look Look[ID, V]
	pace Pace

	mu      sync.Mutex
	waiters map[*waiter[ID, V]]struct{}
	// running is set while the polling goroutine runs; joined wakes it.
	running bool
	joined  chan struct{}
	// looks counts the polls under way; last is when the last of them began.
	looks int
	last  time.Time
}

// waiter is one caller. The lock of the room guards everything but done.
type waiter[ID comparable, V any] struct {
	id     ID
	urgent bool
	since  time.Time
	next   time.Time
	// looking is set while the object is being polled.
	looking bool
	// failing is when the polls began to fail; zero while they do not.
	failing time.Time
	over    func(V) bool
	result  chan inventory.Seen[V]
}

// New returns a room. For objects of an inventory, look is its method Look.
func New[ID comparable, V any](look Look[ID, V], pace Pace) *Room[ID, V] {
	if pace.Least == 0 {
		pace.Least = defaultLeast
	}
	if pace.Most == 0 {
		pace.Most = max(defaultMost, pace.Least)
	}
	if pace.Patience == 0 {
		pace.Patience = defaultPatience
	}
	return &Room[ID, V]{look: look, pace: pace, waiters: map[*waiter[ID, V]]struct{}{}, joined: make(chan struct{}, 1)}
}

// Until waits until over reports that the work on an object has ended, and returns the object. The error is cloudapi.ErrNotFound if the
// object is gone, as after a deletion, the polls' if they keep failing, or the context's. what names the work for users.
func (r *Room[ID, V]) Until(ctx context.Context, id ID, what string, over func(V) bool, with ...Option) (V, error) {
	defer progress.Note(ctx, what)()
	var o options
	for _, set := range with {
		set(&o)
	}
	now := time.Now()
	w := &waiter[ID, V]{
		id: id, urgent: priority.IsUrgent(ctx), since: now, next: now.Add(time.Duration(1+o.skipped) * r.pace.Least), over: over,
		result: make(chan inventory.Seen[V], 1),
	}
	r.mu.Lock()
	r.waiters[w] = struct{}{}
	if !r.running {
		r.running = true
		rescue.Go("waiting for the cloud's work", r.run)
	} else {
		r.wake()
	}
	r.mu.Unlock()
	select {
	case s := <-w.result:
		return s.Value, s.Err
	case <-ctx.Done():
		r.mu.Lock()
		delete(r.waiters, w)
		r.wake()
		r.mu.Unlock()
		var none V
		return none, fmt.Errorf("waiting for %s: %w", what, ctx.Err())
	}
}

// Waiting returns how many callers wait.
func (r *Room[ID, V]) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.waiters)
}

func (r *Room[ID, V]) wake() {
	select {
	case r.joined <- struct{}{}:
	default:
	}
}

// run polls for as long as there are callers.
func (r *Room[ID, V]) run() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, urgent, pause := r.nextTurn()
		switch {
		case pause < 0:
			return
		case pause > 0:
			timer.Reset(pause)
			select {
			case <-timer.C:
			case <-r.joined:
			}
		default:
			rescue.Go("looking at the cloud's work", func() { r.wakeFinished(due, r.pollSafely(urgent, ids(due))) })
		}
	}
}

// idle is the pause while only the end of a poll, or a new caller, can change anything.
const idle = time.Hour

// nextTurn returns the callers to poll for, or the pause if there are none; a negative pause means that the room is empty, and run ends.
func (r *Room[ID, V]) nextTurn() (due []*waiter[ID, V], urgent bool, pause time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.waiters) == 0 {
		r.running = false
		return nil, false, -1
	}
	if r.looks >= maxLooks {
		return nil, false, idle
	}
	now := time.Now()
	first := now.Add(idle)
	for w := range r.waiters {
		if !w.looking && w.next.Before(first) {
			first = w.next
		}
	}
	if earliest := r.last.Add(r.pace.Least); first.Before(earliest) {
		first = earliest
	}
	if first.After(now) {
		return nil, false, first.Sub(now)
	}
	// Callers that are due soon join this poll, so that there are fewer polls.
	soon := now.Add(r.pace.Least / 2)
	for w := range r.waiters {
		if !w.looking && !w.next.After(soon) {
			w.looking = true
			due = append(due, w)
			urgent = urgent || w.urgent
		}
	}
	r.looks++
	r.last = now
	return due, urgent, 0
}

func ids[ID comparable, V any](waiters []*waiter[ID, V]) []ID {
	var list []ID
	known := map[ID]bool{}
	for _, w := range waiters {
		if !known[w.id] {
			known[w.id] = true
			list = append(list, w.id)
		}
	}
	return list
}

// errLook is returned to all who wait if a poll crashes.
var errLook = errors.New("looking at the cloud's work crashed; this is a bug, please report it with the log")

// pollSafely polls; a panic becomes the error of all who wait for the poll.
func (r *Room[ID, V]) pollSafely(urgent bool, wanted []ID) (seen map[ID]inventory.Seen[V]) {
	defer func() {
		if p := recover(); p != nil {
			klog.ErrorS(errLook, "Recovered from a panic", "panic", fmt.Sprint(p))
			seen = map[ID]inventory.Seen[V]{}
		}
	}()
	ctx := context.Background() // independent of any single caller; each read has its own deadline
	if urgent {
		ctx = priority.Urgent(ctx)
	}
	return r.look(ctx, wanted)
}

// wakeFinished wakes the callers whose wait is over, and sets when the others are due.
func (r *Room[ID, V]) wakeFinished(due []*waiter[ID, V], seen map[ID]inventory.Seen[V]) {
	r.mu.Lock()
	defer r.mu.Unlock()
	defer r.wake()
	r.looks--
	now := time.Now()
	for _, w := range due {
		w.looking = false
		if _, waits := r.waiters[w]; !waits {
			continue
		}
		s, answered := seen[w.id]
		if !answered {
			s.Err = errLook
		}
		if r.isFinished(w, &s, now) {
			delete(r.waiters, w)
			w.result <- s
			continue
		}
		w.next = now.Add(r.pace.interval(now.Sub(w.since)))
		if pause := pauseOf(s.Err); pause > 0 {
			w.next = now.Add(max(pause, r.pace.Least))
		}
	}
}

// isFinished reports whether a wait is over after a poll. It records how long polls have failed.
func (r *Room[ID, V]) isFinished(w *waiter[ID, V], s *inventory.Seen[V], now time.Time) bool {
	if s.Err == nil {
		w.failing = time.Time{}
		return r.judge(w, s)
	}
	temporary := errors.Is(s.Err, cloudapi.ErrTransient) || errors.Is(s.Err, cloudapi.ErrRateLimited) ||
		errors.Is(s.Err, context.DeadlineExceeded)
	if !temporary {
		return true
	}
	if w.failing.IsZero() {
		w.failing = now
	}
	return now.Sub(w.failing) >= r.pace.Patience
}

// judge calls the caller's function; its panic affects that caller alone.
func (r *Room[ID, V]) judge(w *waiter[ID, V], s *inventory.Seen[V]) (over bool) {
	defer func() {
		if p := recover(); p != nil {
			klog.ErrorS(errLook, "Recovered from a panic", "panic", fmt.Sprint(p))
			s.Err, over = errLook, true
		}
	}()
	return w.over(s.Value)
}

// pauseOf returns the pause that the cloud demands.
func pauseOf(err error) time.Duration {
	if limited, ok := errors.AsType[interface {
		error
		RetryIn() time.Duration
	}](err); ok {
		return limited.RetryIn()
	}
	return 0
}
