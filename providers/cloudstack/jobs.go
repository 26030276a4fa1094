package cloudstack

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	// jobPatience bounds one wait for a job; jobAgain is the retry delay afterwards.
	jobPatience   = 2 * time.Minute
	jobRetryDelay = 10 * time.Second

	// firstPoll is the delay before a job is first polled: many end quickly.
	firstPoll = 500 * time.Millisecond

	jobPending, jobDone = 0, 1
)

// job is an asynchronous job of the server.
type job struct {
	ID     string          `json:"jobid"`
	Status *int            `json:"jobstatus"`
	Result json.RawMessage `json:"jobresult"`
}

func (j job) isFinished() bool { return j.Status != nil && *j.Status != jobPending }

// jobs runs changes as asynchronous jobs, one at a time for each network, as the server does anyway.
type jobs struct {
	api   *api
	room  *waiting.Room[string, job]
	locks keylock.Locks

	mu sync.Mutex
	// pending holds unfinished jobs whose wait was interrupted, by network.
	pending map[string]pendingJob
}

// pendingJob is a job and the load balancer that it is for.
type pendingJob struct{ id, owner string }

func newJobs(a *api) *jobs {
	return &jobs{api: a, room: waiting.New(waiting.Each(a.job), waiting.Pace{Least: firstPoll}), pending: map[string]pendingJob{}}
}

func (a *api) job(ctx context.Context, id string) (j job, err error) {
	err = a.call(ctx, "reading job "+id, "queryAsyncJobResult", params{"jobid": id}, &j)
	if err == nil && j.Status == nil {
		err = cloudapi.Unclear("reading job "+id, "the answer does not say how it is; %s", checkAddress)
	}
	return j, cloudapi.NotAbsence(err) // a missing job proves nothing about its object
}

// jobRequest is one command that changes something.
type jobRequest struct {
	// network identifies the lock to hold, owner the load balancer.
	network, owner, what, command string
	params                        params
	// key is the object's key in the job's result, decoded into out; "" ignores the result.
	key string
	out any
}

// run makes a change while holding the network's lock.
func (j *jobs) run(ctx context.Context, c jobRequest) error {
	return j.runInNetwork(ctx, c.network, func() error { return j.runLocked(ctx, c) })
}

// runLocked starts a job and waits for its end. The caller holds the network's lock: see runInNetwork.
func (j *jobs) runLocked(ctx context.Context, c jobRequest) error {
	if former := j.pendingOf(c.network); former.id != "" {
		if _, err := j.wait(ctx, c.network, former, c.what); err != nil {
			return err
		}
	}
	var submitted struct {
		JobID string `json:"jobid"`
	}
	if err := j.api.call(ctx, c.what, c.command, c.params, &submitted); err != nil {
		return err
	}
	if submitted.JobID == "" {
		return cloudapi.Unclear(c.what, "the answer names no job; %s", checkAddress)
	}
	ended, err := j.wait(ctx, c.network, pendingJob{submitted.JobID, c.owner}, c.what)
	if err != nil {
		return err
	}
	return ended.result(c)
}

func (j job) result(c jobRequest) error {
	if *j.Status != jobDone {
		var r refusal
		e := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: c.what, Message: "the job " + j.ID + " failed without saying why"}
		if json.Unmarshal(j.Result, &r) == nil && r.Code != 0 {
			e = r.describe(e, c.params["id"])
		}
		return e
	}
	if c.key == "" {
		return nil
	}
	var inner map[string]json.RawMessage
	if json.Unmarshal(j.Result, &inner) != nil || json.Unmarshal(inner[c.key], c.out) != nil {
		return cloudapi.Unclear(c.what, "the result of job %s is not that of the API; %s", j.ID, checkAddress)
	}
	return nil
}

// wait waits for a job, and remembers it if the wait is interrupted.
func (j *jobs) wait(ctx context.Context, network string, p pendingJob, what string) (job, error) {
	limited, cancel := context.WithTimeout(ctx, jobPatience)
	defer cancel()
	j.remember(network, p)
	ended, err := j.room.Until(limited, p.id, what, job.isFinished)
	switch {
	case err == nil:
		j.remember(network, pendingJob{})
		return ended, nil
	case codeOf(err) == codeInvalid:
		j.remember(network, pendingJob{}) // the server no longer knows it
		return job{}, fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return job{}, cloudproviderapi.NewRetryError(fmt.Sprintf("CloudStack is still at it: %s (job %s)", what, p.id), jobRetryDelay)
	}
	return job{}, fmt.Errorf("%s: %w", what, err)
}

func (j *jobs) pendingOf(network string) pendingJob {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pending[network]
}

// waitForPending waits for a load balancer's earlier jobs and reports whether there were any. Their results show in its objects.
func (j *jobs) waitForPending(ctx context.Context, owner string) (waited bool, err error) {
	j.mu.Lock()
	pending := maps.Clone(j.pending)
	j.mu.Unlock()
	for network, p := range pending {
		if p.owner != owner {
			continue
		}
		waited = true
		err := j.runInNetwork(ctx, network, func() error {
			if j.pendingOf(network) != p {
				return nil // another caller has waited for it
			}
			_, err := j.wait(ctx, network, p, "changing load balancer "+owner)
			return err
		})
		if err != nil {
			return waited, err
		}
	}
	return waited, nil
}

func (j *jobs) remember(network string, p pendingJob) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if p.id == "" {
		delete(j.pending, network)
	} else {
		j.pending[network] = p
	}
}

// runInNetwork runs work while holding the network's lock.
func (j *jobs) runInNetwork(ctx context.Context, network string, work func() error) error {
	done, err := j.locks.Lock(ctx, network)
	if err != nil {
		return fmt.Errorf("waiting for another change in network %s: %w", network, err)
	}
	defer done()
	return work()
}
