package controlplane

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"
	"time"

	"k8s.io/client-go/rest"
)

// Request is one line of the audit log.
type Request struct {
	ID    string `json:"auditID"`
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	URI   string `json:"requestURI"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent      string `json:"userAgent"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
}

// received is the stage of a request that nothing was done about yet.
const received = "RequestReceived"

// Audit returns the requests whose user name contains user, and that came since ForgetAudit, in the order in which they were done. All are
// there that came before this was called: a request may be done before the log has its end, but never before it has its beginning.
func (s *APIServer) Audit(ctx context.Context, user string) ([]Request, error) {
	lines, err := s.settledAudit(ctx)
	var all []Request
	began := map[string]bool{}
	for _, r := range lines {
		switch {
		case r.Stage == received:
			began[r.ID] = true
		case began[r.ID] && strings.Contains(r.User.Username, user):
			all = append(all, r)
		}
	}
	return all, err
}

// ForgetAudit leaves the requests that came so far out of Audit, also those that are not done yet.
func (s *APIServer) ForgetAudit(ctx context.Context) error {
	if _, err := s.settledAudit(ctx); err != nil {
		return err
	}
	info, err := os.Stat(s.auditLog())
	if err == nil {
		s.forgotten.Store(info.Size())
	}
	return err
}

// settledAudit makes a request of its own, and returns the log once it has that request and the end of all that came before it.
func (s *APIServer) settledAudit(ctx context.Context) ([]Request, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	mark := fmt.Sprintf("/version?mark=%d", s.marks.Add(1))
	client, err := rest.HTTPClientFor(s.Config())
	if err == nil {
		err = get(ctx, client, s.URL+mark)
	}
	if err != nil {
		return nil, fmt.Errorf("marking the audit log: %w", err)
	}
	for {
		lines, err := s.readAudit()
		if err != nil {
			return nil, err
		}
		missing := unsettled(lines, mark)
		if missing == nil {
			return lines, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("the audit log: %w", errors.Join(missing, ctx.Err()))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// unsettled says what the log lacks of the request mark and of those that came before it. Those that watch end with their client.
func unsettled(lines []Request, mark string) error {
	open, marked := map[string]Request{}, false
	for _, r := range lines {
		switch {
		case r.Stage != received:
			delete(open, r.ID)
		case !marked && r.Verb != "watch":
			open[r.ID] = r
		}
		marked = marked || r.URI == mark
	}
	for _, r := range open {
		return fmt.Errorf("it has no end of %s %s by %s", r.Verb, r.URI, r.User.Username)
	}
	if !marked {
		return fmt.Errorf("it has no %s", mark)
	}
	return nil
}

func (s *APIServer) readAudit() (all []Request, err error) {
	log, err := os.Open(s.auditLog())
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	defer log.Close()
	forgotten := s.forgotten.Load()
	data, err := io.ReadAll(io.NewSectionReader(log, forgotten, math.MaxInt64-forgotten))
	if err != nil {
		return nil, fmt.Errorf("reading the audit log: %w", err)
	}
	for line := range bytes.Lines(data) {
		var r Request
		if json.Unmarshal(line, &r) == nil {
			all = append(all, r)
		}
	}
	return all, nil
}
