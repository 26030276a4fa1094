package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// cpuProfile is how long from the beginning of a change the use of the processor is recorded.
const cpuProfile = 20 * time.Second

// profiles writes down where the program's time and memory go. Nothing is written without a folder.
type profiles struct {
	dir string
	cpu sync.WaitGroup
	// failed is the error of a CPU profile; it is read after the end of the wait.
	failed error
}

// args returns the program's arguments for profiling.
func (p *profiles) args() []string {
	if p.dir == "" {
		return nil
	}
	return []string{"--profiling=true"}
}

// begin begins to record the use of the processor during a change.
func (p *profiles) begin(ctx context.Context, m *harness.CCM, change string) {
	if p.dir == "" {
		return
	}
	p.cpu.Go(func() {
		if p.failed = os.MkdirAll(p.dir, 0o750); p.failed != nil {
			return
		}
		err := p.write(ctx, m, fmt.Sprintf("/debug/pprof/profile?seconds=%d", int(cpuProfile.Seconds())), change, "cpu")
		if change != restarted { // a process that is stopped has no profile
			p.failed = err
		}
	})
}

// end writes the heap as it is after a change, and the calls to the cloud by their names.
func (p *profiles) end(ctx context.Context, m *harness.CCM, change string, calls harness.Calls) error {
	if p.dir == "" {
		return nil
	}
	p.cpu.Wait()
	if p.failed != nil {
		return p.failed
	}
	var text strings.Builder
	for _, operation := range slices.Sorted(maps.Keys(calls.ByOperation)) {
		fmt.Fprintf(&text, "%7d %s\n", calls.ByOperation[operation], operation)
	}
	if err := os.WriteFile(p.path(change, "calls"), []byte(text.String()), 0o600); err != nil {
		return fmt.Errorf("writing calls: %w", err)
	}
	return p.write(ctx, m, "/debug/pprof/heap?gc=1", change, "heap")
}

// path is that of a file about a change, such as one-more-node.heap.
func (p *profiles) path(change, what string) string {
	return filepath.Join(p.dir, strings.ReplaceAll(change, " ", "-")+"."+what)
}

func (p *profiles) write(ctx context.Context, m *harness.CCM, from, change, what string) error {
	profile, err := m.Get(ctx, from)
	if err != nil {
		return fmt.Errorf("the %s profile of %s: %w", what, change, err)
	}
	if err := os.WriteFile(p.path(change, what), []byte(profile), 0o600); err != nil {
		return fmt.Errorf("writing a profile: %w", err)
	}
	return nil
}

// memory returns the main memory that a process uses now, and its peak.
func memory(pid int) (now, peak int64, err error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, fmt.Errorf("reading the program's memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		kib, _ := strconv.ParseInt(fields[1], 10, 64) // other lines are not numbers
		switch fields[0] {
		case "VmHWM:":
			peak = kib << 10
		case "VmRSS:":
			now = kib << 10
		}
	}
	return now, peak, nil
}

// forgetPeak makes the peak of a process begin with what it holds now.
func forgetPeak(pid int) error {
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the program's peak of memory: %w", err)
	}
	return nil
}
