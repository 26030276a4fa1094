package harness

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strings"
	"time"
)

// maxRunnable is how many threads may be runnable for each processor when another cluster starts. With thirty, as in two test runs side by
// side, etcd took half a minute to answer: leases were lost, and requests and handshakes timed out and were retried.
const maxRunnable = 10

// minClusters of a stage always start, so that a run makes progress on a machine that something else keeps busy.
const minClusters = 1

// maxRoomWait is how long a cluster waits for room at most: what keeps the machine busy may never end.
const maxRoomWait = 2 * time.Minute

// crowd is how many threads are runnable, and how many processors there are for them.
type crowd struct{ runnable, processors int }

// hasRoom decides whether a cluster may start as the nth. Above the limit all processors are busy anyway, so that starting later loses
// little time.
func hasRoom(n int, c crowd) bool {
	return n <= minClusters || c.runnable <= maxRunnable*c.processors
}

// take counts another cluster of the stage if it may start.
func (s *Stage) take(c crowd) bool {
	if hasRoom(int(s.clusters.Add(1)), c) {
		return true
	}
	s.clusters.Add(-1)
	return false
}

// waitForRoom waits until the machine has room for another cluster of the stage, and counts it. Clusters that end meanwhile make room as
// well. Test runs side by side see each other's threads.
func (s *Stage) waitForRoom(ctx context.Context) error {
	const samples = 5
	for began := time.Now(); time.Since(began) < maxRoomWait; {
		var mean crowd
		for i := range samples {
			now, known := s.crowd()
			if !known {
				s.clusters.Add(1)
				return nil
			}
			if i == 0 && s.take(crowd{2 * now.runnable, now.processors}) {
				return nil
			}
			mean.runnable, mean.processors = mean.runnable+now.runnable, now.processors
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(time.Second / samples):
			}
		}
		mean.runnable /= samples
		if s.take(mean) {
			return nil
		}
	}
	s.clusters.Add(1)
	return nil
}

// machineCrowd is unknown on systems other than Linux.
func machineCrowd() (c crowd, known bool) {
	load, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return crowd{}, false
	}
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return crowd{}, false
	}
	return crowdOf(string(load), string(stat))
}

// crowdOf reads the texts of /proc/loadavg, such as "0.20 0.18 0.12 1/80 11206", whose fourth field begins with the number of runnable
// threads, and of /proc/stat, which has a line for each processor (proc_loadavg(5), proc_stat(5)). Both are about the whole machine, in
// a container too.
func crowdOf(load, stat string) (c crowd, known bool) {
	fields := strings.Fields(load)
	if len(fields) < 4 {
		return crowd{}, false
	}
	_, err := fmt.Sscanf(fields[3], "%d/", &c.runnable)
	c.processors = len(processorLine.FindAllString(stat, -1))
	return c, err == nil && c.processors > 0
}

var processorLine = regexp.MustCompile(`(?m)^cpu\d+ `)
