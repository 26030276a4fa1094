package harness

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/controlplane"
)

// Stage is what clusters are put on: the built programs, the control plane's binaries, and a running etcd.
type Stage struct {
	// Dir is a temporary folder that goes with the stage.
	Dir      string
	Programs Programs
	Binaries string
	Etcd     *controlplane.Etcd

	starting chan struct{}
	// clusters counts those that run or start, and not those that wait for room.
	clusters atomic.Int64
	crowd    func() (c crowd, known bool)
}

// maxStarting is how many clusters start at a time. A start needs a core for some seconds: a dozen at once take so long that
// the API servers' own time limits end them.
const maxStarting = 2

// NewStage builds what is not built yet, with progress on w, and starts etcd. what names the run.
func NewStage(ctx context.Context, what string, w io.Writer) (*Stage, error) {
	s := &Stage{starting: make(chan struct{}, maxStarting), crowd: machineCrowd}
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

// Close ends etcd and removes the folder.
func (s *Stage) Close() {
	if s.Etcd != nil {
		s.Etcd.Stop(time.Second)
	}
	if s.Dir != "" {
		_ = os.RemoveAll(s.Dir) // a temporary folder
	}
}

// Start starts a cluster on the stage as soon as the machine has room for it; the stage's own fields of the options are filled in.
func (s *Stage) Start(ctx context.Context, name string, o Options) (*Cluster, error) {
	select {
	case s.starting <- struct{}{}:
	case <-ctx.Done():
		return nil, fmt.Errorf("waiting to start cluster %s: %w", name, ctx.Err())
	}
	defer func() { <-s.starting }()
	if err := s.waitForRoom(ctx); err != nil {
		return nil, fmt.Errorf("waiting for room for cluster %s: %w", name, err)
	}
	o.closed = sync.OnceFunc(func() { s.clusters.Add(-1) })
	o.Dir, o.Programs, o.Binaries, o.Etcd = filepath.Join(s.Dir, name), s.Programs, s.Binaries, s.Etcd
	return Start(ctx, o)
}
