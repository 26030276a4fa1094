//go:build unix

package controlplane

import (
	"context"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"
)

// lock takes an exclusive lock on a file, so that two test runs build the binaries once. The system gives it back when
// the process ends, however it ends.
func lock(ctx context.Context, path string, w io.Writer) (unlock func(), err error) {
	if err := os.MkdirAll(dirOf(path), 0o755); err != nil {
		return nil, fmt.Errorf("making the cache folder: %w", err)
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("locking the cache folder: %w", err)
	}
	for told := false; ; told = true {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return func() { f.Close() }, nil
		}
		if !told {
			fmt.Fprintln(w, "Waiting for another build of the control plane.")
		}
		select {
		case <-ctx.Done():
			f.Close()
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}
