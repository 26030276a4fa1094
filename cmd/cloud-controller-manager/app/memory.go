package app

import (
	"context"
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

const (
	// gcPercent trades a little CPU for much memory: the program is mostly idle, and its peaks are short bursts of decoding.
	gcPercent = 40
	// limitShare is the share of the container's memory from which the collector works harder.
	limitShare = 0.9
	// returnPeriod is how often unused memory is checked, and returnAbove the amount that justifies a collection. A burst of new nodes
	// doubles the heap for seconds, and the runtime would keep it for minutes.
	returnPeriod = 15 * time.Second
	returnAbove  = 4 << 20
	cgroupFile   = "/sys/fs/cgroup/memory.max"
)

// tuneMemory configures the collector, unless GOGC or GOMEMLIMIT do. Heap profile sampling costs 1.5 MB, so it is on only with --profiling.
func tuneMemory(args []string) {
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(strings.TrimLeft(a, "-"), "profiling") }) {
		runtime.MemProfileRate = 0
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	data, err := os.ReadFile(cgroupFile)
	if err != nil {
		return // not in a container, or with cgroup v1: no limit
	}
	if limit, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && limit > 0 && limit < math.MaxInt64 {
		debug.SetMemoryLimit(int64(float64(limit) * limitShare))
	}
}

// returnMemory returns unused memory to the system.
func returnMemory(ctx context.Context) {
	unused := []metrics.Sample{
		{Name: "/memory/classes/heap/free:bytes"},
		{Name: "/memory/classes/heap/unused:bytes"},
		{Name: "/gc/heap/live:bytes"},
		{Name: "/memory/classes/heap/objects:bytes"},
	}
	wait.UntilWithContext(ctx, func(context.Context) {
		metrics.Read(unused)
		garbage := int64(unused[3].Value.Uint64()) - int64(unused[2].Value.Uint64()) //nolint:gosec // sizes of a heap
		if int64(unused[0].Value.Uint64())+garbage > returnAbove {                   //nolint:gosec // sizes of a heap
			debug.FreeOSMemory()
		}
	}, returnPeriod)
}
