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
	// jobPatience is how long a job is waited for in one go, and jobAgain when it is looked at again after that.
	jobPatience = 2 * time.Minute
	jobAgain    = 10 * time.Second

	// firstLook is when a job is first looked at: many end as fast as the virtual router takes a change.
	firstLook = 500 * time.Millisecond

	jobPending, jobDone = 0, 1
)

// job is work of the server.
type job struct {
	ID     string          `json:"jobid"`
	Status *int            `json:"jobstatus"`
	Result json.RawMessage `json:"jobresult"`
}

func (j job) isFinished() bool { return j.Status != nil && *j.Status != jobPending }

// jobs are the changes that CloudStack works on: one at a time in a network, as the server has it anyway.
type jobs struct {
	api   *api
	room  *waiting.Room[string, job]
	locks keylock.Locks

	mu sync.Mutex
	// pending are jobs that somebody stopped waiting for, by the network.
	pending map[string]pendingJob
}

// pendingJob is a job, and the load balancer that it is for.
type pendingJob struct{ id, owner string }

func newJobs(a *api) *jobs {
	return &jobs{api: a, room: waiting.New(waiting.Each(a.job), waiting.Pace{Least: firstLook}), pending: map[string]pendingJob{}}
}

func (a *api) job(ctx context.Context, id string) (j job, err error) {
	err = a.call(ctx, "reading job "+id, "queryAsyncJobResult", params{"jobid": id}, &j)
	if err == nil && j.Status == nil {
		err = cloudapi.Unclear("reading job "+id, "the answer does not say how it is; %s", checkAddress)
	}
	return j, cloudapi.NotAbsence(err) // its absence says nothing about what it changes
}

// change is one command that changes something, and what it is about.
type change struct {
	// network is where it works, and owner the load balancer that it is for.
	network, owner, what, command string
	params                        params
	// key is where the object is in the result of the job, which out receives; "" where the result does not matter.
	key string
	out any
}

// run gives a command that the server works on, and waits until it has ended. The network is the caller's: see in.
func (j *jobs) run(ctx context.Context, c change) error {
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

// result returns the outcome of a job.
func (j job) result(c change) error {
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

// wait waits for a job, and remembers it if that breaks off.
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
		j.remember(network, pendingJob{}) // the server has forgotten it
		return job{}, fmt.Errorf("%s: %w", what, err)
	case errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
		return job{}, cloudproviderapi.NewRetryError(fmt.Sprintf("CloudStack is still at it: %s (job %s)", what, p.id), jobAgain)
	}
	return job{}, fmt.Errorf("%s: %w", what, err)
}

func (j *jobs) pendingOf(network string) pendingJob {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.pending[network]
}

// settle waits for what was begun before for a load balancer. How it ended shows in its objects. It reports whether there was anything.
func (j *jobs) settle(ctx context.Context, owner string) (waited bool, err error) {
	j.mu.Lock()
	mine := maps.Clone(j.pending)
	j.mu.Unlock()
	for network, p := range mine {
		if p.owner != owner {
			continue
		}
		waited = true
		err := j.runInNetwork(ctx, network, func() error {
			if j.pendingOf(network) != p {
				return nil // somebody has waited for it meanwhile
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

// runInNetwork does work in a network while nobody else does.
func (j *jobs) runInNetwork(ctx context.Context, network string, work func() error) error {
	done, err := j.locks.Lock(ctx, network)
	if err != nil {
		return fmt.Errorf("waiting for another change in network %s: %w", network, err)
	}
	defer done()
	return work()
}
