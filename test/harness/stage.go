package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
)

// Stage is the common environment of clusters: the built programs, the control plane's binaries, and a running etcd.
type Stage struct {
	// Dir is a temporary folder that goes with the stage.
	Dir      string
	Programs Programs
	Binaries string
	Etcd     *controlplane.Etcd

	w      io.Writer
	places chan struct{}

	mu sync.Mutex
	// idle are API servers that wait for their next cluster, and pooled counts those that were started for the pool.
	idle   []*controlplane.APIServer
	pooled int
}

// maxClusters is how many clusters there are at a time. Each takes some hundred megabytes, and a core while it starts.
const maxClusters = 3

// NewStage builds what is not built yet, with progress on w, and starts etcd. what names the run.
func NewStage(ctx context.Context, what string, w io.Writer) (*Stage, error) {
	s := &Stage{w: w, places: make(chan struct{}, maxClusters)}
	if err := s.set(ctx, what, w); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

func (s *Stage) set(ctx context.Context, what string, w io.Writer) (err error) {
	if s.Binaries, err = controlplane.Binaries(ctx, w); err != nil {
		return err
	}
	if s.Dir, err = controlplane.TempDir(what); err != nil {
		return err
	}
	if s.Programs, err = Build(ctx, s.Dir); err != nil {
		return err
	}
	s.Etcd, err = controlplane.StartEtcd(ctx, s.Binaries, filepath.Join(s.Dir, "etcd"))
	return err
}

// Close ends the API servers of the pool and etcd, and removes the folder.
func (s *Stage) Close() {
	for _, api := range s.idle {
		api.Stop(0)
	}
	if s.Etcd != nil {
		s.Etcd.Stop(time.Second)
	}
	if s.Dir != "" {
		_ = os.RemoveAll(s.Dir) // a temporary folder
	}
}

// Start starts a cluster on the stage as soon as there is a place for it; the stage's own fields of the options are filled in.
func (s *Stage) Start(ctx context.Context, name string, o Options) (*Cluster, error) {
	select {
	case s.places <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to start cluster %s: %w", name, ctx.Err())
	}
	leave := func() { <-s.places }
	o.Dir, o.Programs, o.Binaries, o.Etcd = filepath.Join(s.Dir, name), s.Programs, s.Binaries, s.Etcd
	o.closed = sync.OnceFunc(leave)
	if o.Pooled {
		api, err := s.borrow(ctx)
		if err != nil {
			leave()
			return nil, err
		}
		o.server = api
		o.closed = sync.OnceFunc(func() {
			defer leave()
			s.giveBack(context.WithoutCancel(ctx), api)
		})
	}
	return Start(ctx, o)
}

// borrow returns an API server of the pool, or a new one.
func (s *Stage) borrow(ctx context.Context) (*controlplane.APIServer, error) {
	s.mu.Lock()
	if n := len(s.idle); n > 0 {
		api := s.idle[n-1]
		s.idle = s.idle[:n-1]
		s.mu.Unlock()
		if err := api.ForgetAudit(ctx); err != nil {
			api.Stop(0)
			return nil, err
		}
		return api, nil
	}
	s.pooled++
	name := fmt.Sprintf("apiserver-%d", s.pooled)
	s.mu.Unlock()
	return startAPIServer(ctx, s.Binaries, filepath.Join(s.Dir, name), s.Etcd, "/"+name, true)
}

// giveBack empties an API server for the next cluster. One that cannot be emptied is not used again.
func (s *Stage) giveBack(ctx context.Context, api *controlplane.APIServer) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	reusable, err := Empty(ctx, api.Config())
	if err != nil {
		fmt.Fprintf(s.w, "The API server of %s is not used again: %v\n", api.Dir, err)
	}
	if err != nil || !reusable {
		api.Stop(0)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.idle = append(s.idle, api)
}
