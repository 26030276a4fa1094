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

// maxRunnable is how many threads may be runnable for each processor when another cluster starts. With thirty, as in two test runs side by
// side, etcd took half a minute to answer: leases were lost, and requests and handshakes timed out and were retried.
const maxRunnable = 10

// minClusters always start, so that a run makes progress on a machine that something else keeps busy.
const minClusters = 3

// maxRoomWait bounds the wait for room, in case every running cluster belongs to a test that wants another one.
const maxRoomWait = 10 * time.Minute

// hasRoom decides whether another cluster may start. Up to the limit the processors are fully used, so that waiting costs no time.
func hasRoom(clusters, runnable, processors int) bool {
	return clusters < minClusters || runnable <= maxRunnable*processors
}

// waitForRoom returns when the machine has room for another cluster of the stage. Test runs side by side see each other's threads.
func (s *Stage) waitForRoom(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, maxRoomWait, errNoRoom)
	defer cancel()
	for {
		clusters := int(s.clusters.Load())
		if clusters < minClusters {
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

var errNoRoom = errors.New("no room for another cluster")

// meanRunnable is how many threads were runnable, on average over a second. Systems other than Linux do not tell.
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

// runnableOf reads how many threads are runnable from the text of /proc/loadavg, such as "0.20 0.18 0.12 1/80 11206": the fourth field
// begins with it (proc_loadavg(5)).
func runnableOf(loadavg string) (n int, known bool) {
	fields := strings.Fields(loadavg)
	if len(fields) < 4 {
		return 0, false
	}
	_, err := fmt.Sscanf(fields[3], "%d/", &n)
	return n, err == nil
}
