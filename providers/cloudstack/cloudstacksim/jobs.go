package cloudstacksim

import (
	"errors"
	"slices"
	"time"
)

// States of jobs.
const (
	jobPending = 0
	jobDone    = 1
	jobFailed  = 2
)

// job is work that goes on after the answer.
type job struct {
	id, command, kind, object, account, user string

	begins, ends time.Time
	made         time.Time
	status       int
	result       any
	effect       func() (any, error)
	// undo takes back what the create phase made where the work fails.
	undo func()
}

// Failure is how the next jobs of a command end.
type Failure struct {
	// Command is the name of the command; Code and Text are the error that its job ends with.
	Command string
	Code    int
	Text    string
	// Count is how many jobs fail; 0 means one.
	Count int
	// After is set where the work was done, and the error says otherwise.
	After bool
}

// FailJobs makes the next jobs of a command fail.
func (s *Sim) FailJobs(f Failure) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.Count = max(f.Count, 1)
	s.failures = append(s.failures, &f)
}

// HoldJobs makes jobs that begin from now on not end until it is called again with false.
func (s *Sim) HoldJobs(held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held = held; held {
		return
	}
	now := time.Now()
	for _, j := range s.jobs {
		if j.status == jobPending && j.ends.After(now.Add(beyondAnyTest/2)) {
			j.begins, j.ends = now, now.Add(s.jobDuration())
		}
	}
	clear(s.busy)
}

// beyondAnyTest is longer than any test.
const beyondAnyTest = 1000 * time.Hour

// PendingJobs returns how many jobs have not ended.
func (s *Sim) PendingJobs() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finishJobs()
	for _, j := range s.jobs {
		if j.status == jobPending {
			n++
		}
	}
	return n
}

// jobDuration returns how long the next job takes.
func (s *Sim) jobDuration() time.Duration {
	if s.activation <= 0 {
		return 0
	}
	return s.activation/2 + time.Duration(s.dice.Int64N(int64(s.activation)+1))
}

// submit begins a job. Jobs on the same network wait for each other; "" waits for nobody.
func (c *call) submit(network string, j job) *job {
	s := c.s
	j.id, j.command, j.account, j.user = s.newID("job"), c.name, c.caller.id, c.caller.userID
	j.made, j.begins = time.Now(), time.Now()
	if at := s.busy[network]; network != "" && at.After(j.begins) {
		j.begins = at
	}
	j.ends = j.begins.Add(s.jobDuration())
	if s.held {
		j.ends = j.begins.Add(beyondAnyTest)
	}
	if network != "" {
		s.busy[network] = j.ends
	}
	s.jobs = append(s.jobs, &j)
	return &j
}

// jobResponse answers with a job, and with what the create phase made.
func jobResponse(j *job, created string) map[string]any {
	if created == "" {
		return map[string]any{"jobid": j.id}
	}
	return map[string]any{"jobid": j.id, "id": created}
}

// finishJobs ends the jobs whose time has come, in order.
func (s *Sim) finishJobs() {
	now := time.Now()
	for {
		var next *job
		for _, j := range s.jobs {
			if j.status == jobPending && !j.ends.After(now) && (next == nil || j.ends.Before(next.ends)) {
				next = j
			}
		}
		if next == nil {
			return
		}
		next.end(s)
	}
}

func (j *job) end(s *Sim) {
	err, done := s.failure(j.command)
	if err == nil || done {
		result, failed := j.effect()
		j.result = result
		if err == nil {
			err = failed
		}
	}
	j.status = jobDone
	if err == nil {
		return
	}
	j.status = jobFailed
	known, ok := errors.AsType[*apiError](err)
	if !ok {
		known = &apiError{code: codeInternal, text: err.Error()}
	}
	j.result = map[string]any{"errorcode": known.code, "errortext": known.text}
	if j.undo != nil && !done {
		j.undo()
	}
}

// failure returns the error that a job is to end with, and whether its work is done all the same.
func (s *Sim) failure(command string) (err error, done bool) {
	for i, f := range s.failures {
		if f.Command != command {
			continue
		}
		if f.Count--; f.Count == 0 {
			s.failures = slices.Delete(s.failures, i, i+1)
		}
		return &apiError{code: f.Code, text: f.Text}, f.After
	}
	return nil, false
}

// pending returns the job on an object that has not ended: the one that works, or the first that waits.
func (s *Sim) pending(object string) *job {
	for _, j := range s.jobs {
		if j.status == jobPending && j.object == object && object != "" {
			return j
		}
	}
	return nil
}

// hasJob reports whether a job of a command is at work on an object.
func (s *Sim) hasJob(object, command string) bool {
	j := s.pending(object)
	return j != nil && j.command == command && !j.begins.After(time.Now())
}

// withJob shows the job on an object that has not ended.
func (s *Sim) withJob(m map[string]any, object string) map[string]any {
	if j := s.pending(object); j != nil {
		m["jobid"], m["jobstatus"] = j.id, j.status
	}
	return m
}

// success is the result of a job that makes nothing.
func success() any { return map[string]any{"success": true} }

func (s *Sim) shownJob(j *job) map[string]any {
	m := map[string]any{
		"jobid": j.id, "accountid": j.account, "userid": j.user, "cmd": "org.apache.cloudstack.api.command.user." + j.command + "Cmd",
		"jobstatus": j.status, "jobprocstatus": 0, "jobresultcode": 0, "created": timeText(j.made),
	}
	if j.object != "" {
		m["jobinstancetype"], m["jobinstanceid"] = j.kind, j.object
	}
	if j.status == jobPending {
		return m
	}
	m["completed"], m["jobresulttype"], m["jobresult"] = timeText(j.ends), "object", j.result
	if j.status == jobFailed {
		m["jobresultcode"] = codeInternal
	}
	return m
}

// created is when everything was made that has always been there.
const created = "2024-03-01T10:00:00+0000"

func timeText(at time.Time) string { return at.UTC().Format("2006-01-02T15:04:05+0000") }

func (s *Sim) jobByID(id string) *job {
	i := slices.IndexFunc(s.jobs, func(j *job) bool { return j.id == id })
	if i < 0 {
		return nil
	}
	return s.jobs[i]
}

func (c *call) queryAsyncJobResult() (any, error) {
	j := c.s.jobByID(c.p["jobid"])
	if j == nil {
		return nil, refuse(codeParam, "Unable to find a job by id %s", c.p["jobid"])
	}
	if !c.caller.admin && j.account != c.caller.id {
		return nil, refuse(codePermission, "Permission denied to access the job %s", j.id)
	}
	return c.s.shownJob(j), nil
}
