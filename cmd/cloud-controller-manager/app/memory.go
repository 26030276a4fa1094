package app

import (
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
)

const (
	// gcPercent trades a little CPU for a lot of memory: the program idles most of the time, and its peaks are short
	// bursts of decoding.
	gcPercent = 40
	// limitShare of the container's memory is the point from which the collector works harder.
	limitShare = 0.9
	cgroupFile = "/sys/fs/cgroup/memory.max"
)

// tuneMemory sets the collector up. GOGC and GOMEMLIMIT in the environment win.
func tuneMemory() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	data, err := os.ReadFile(cgroupFile)
	if err != nil {
		return // not in a container, or a host with cgroup v1: the collector has no limit then, as usual
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && limit > 0 && limit < math.MaxInt64 {
		debug.SetMemoryLimit(int64(float64(limit) * limitShare))
	}
}
