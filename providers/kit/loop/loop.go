// Package loop runs a provider's own controllers: one job each, run after changes and periodically.
package loop

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	firstBackoff = time.Second
	maxBackoff   = 5 * time.Minute
)

// Job is a piece of work that brings the cloud to a desired state and may be done at any time.
type Job struct {
	// Name is the job's name in logs and in the metrics of its queue.
	Name string
	// Period is the longest time between two runs.
	Period time.Duration
	// Spacing is the shortest time from the end of a run to the next one: many changes in a row cause few writes, and a single one is not
	// delayed. Meanwhile the caches show what the run wrote, which the next one would else write again.
	Spacing time.Duration
	// Timeout bounds one run.
	Timeout time.Duration
	// Run does the work. After an error it is retried with increasing delays.
	Run func(ctx context.Context) error
}

// Loop runs one job. Any number of triggers during a run lead to one more run.
type Loop struct {
	job   Job
	queue workqueue.TypedRateLimitingInterface[string]
	start sync.Once
	// last is when the latest run ended.
	last time.Time
}

// New returns a loop that does not run yet.
func New(job Job) *Loop {
	return &Loop{job: job, queue: workqueue.NewTypedRateLimitingQueueWithConfig(
		workqueue.NewTypedItemExponentialFailureRateLimiter[string](firstBackoff, maxBackoff),
		workqueue.TypedRateLimitingQueueConfig[string]{Name: job.Name},
	)}
}

// Trigger makes the job run soon. It never blocks.
func (l *Loop) Trigger() { l.queue.Add(l.job.Name) }

// Start begins to run the job once the caches are filled, until stop is closed. Only the first call counts.
func (l *Loop) Start(stop <-chan struct{}, synced ...cache.DoneChecker) {
	l.start.Do(func() {
		ctx := wait.ContextForChannel(stop)
		context.AfterFunc(ctx, l.queue.ShutDown)
		rescue.Go(l.job.Name, func() {
			if !cache.WaitFor(ctx, "", synced...) {
				return
			}
			rescue.Go(l.job.Name, func() { wait.Until(l.Trigger, l.job.Period, stop) })
			for l.next(ctx) {
			}
		})
	})
}

// next waits for a trigger and runs the job; it returns false after the end.
func (l *Loop) next(ctx context.Context) bool {
	key, over := l.queue.Get()
	if over {
		return false
	}
	defer l.queue.Done(key)
	if wait := l.job.Spacing - time.Since(l.last); wait > 0 {
		l.queue.AddAfter(key, wait)
		return true
	}
	err := l.run(ctx)
	if l.last = time.Now(); err != nil {
		if ctx.Err() == nil {
			klog.ErrorS(err, "A controller of the provider failed and is retried", "controller", l.job.Name)
		}
		l.queue.AddRateLimited(key)
		return true
	}
	l.queue.Forget(key)
	return true
}

func (l *Loop) run(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeout(ctx, l.job.Timeout)
	defer cancel()
	defer rescue.Into(&err, l.job.Name)
	return l.job.Run(ctx)
}
