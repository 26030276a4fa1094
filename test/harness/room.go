package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// crowd is how many threads may want each processor when a further cluster starts. With thirty (two test runs side by side) etcd answered
// after half a minute: leases were lost, requests and handshakes gave up, and what gave up began anew.
const crowd = 10

// few is how many clusters of a stage run on any machine: without them nothing would go on where something else keeps the processors busy.
const few = 3

// maxRoom bounds the wait for room, in case that all clusters that run are held by tests which want one more.
const maxRoom = 10 * time.Minute

// hasRoom decides whether a further cluster may start beside those that run, where so many threads want to run. Up to the limit the
// processors are busy anyway, so that what waits loses no time.
func hasRoom(clusters, runnable, processors int) bool {
	return clusters < few || runnable <= crowd*processors
}

// waitForRoom returns when the machine has room for a further cluster of the stage. Test runs side by side see each other's threads.
func (s *Stage) waitForRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxRoom, errNoRoom)
	defer cancel()
	for {
		clusters := int(s.clusters.Load())
		if clusters < few {
			return nil
		}
		runnable, known, err := meanRunnable(ctx)
		switch {
		case errors.Is(context.Cause(ctx), errNoRoom):
			return nil
		case err != nil:
			return err
		case !known || hasRoom(clusters, runnable, runtime.NumCPU()):
			return nil
		}
	}
}

var errNoRoom = errors.New("no room for a further cluster")

// meanRunnable is how many threads wanted to run, on average over a second. It is unknown on systems that do not say so.
func meanRunnable(ctx context.Context) (n int, known bool, err error) {
	const times = 5
	total := 0
	for range times {
		text, err := os.ReadFile("/proc/loadavg")
		if err != nil {
			return 0, false, nil //nolint:nilerr // not Linux
		}
		now, known := runnableOf(string(text))
		if !known {
			return 0, false, nil
		}
		total += now
		select {
		case <-ctx.Done():
			return 0, true, ctx.Err()
		case <-time.After(time.Second / times):
		}
	}
	return total / times, true, nil
}

// runnableOf reads how many threads want to run from the text of /proc/loadavg, such as "0.20 0.18 0.12 1/80 11206": the fourth field
// begins with it (proc(5)).
func runnableOf(loadavg string) (n int, known bool) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	_, err := fmt.Sscanf(fields[3], "%d/", &n)
	return n, err == nil
}
