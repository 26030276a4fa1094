package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

const modulePath = "github.com/anyccm/cloud-controller-manager/"

// stage is a target that has run.
type stage struct {
	target    string
	took, cpu time.Duration
	failures  []string
	skips     []skip
	err       error
}

// report prints what happens, and keeps what the summary needs.
type report struct {
	mu       sync.Mutex
	out      io.Writer
	began    time.Time
	lastLine time.Time
	running  map[string]time.Time
	stages   []stage
}

func (r *report) begin(target string) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	r.running[target] = now
	r.print(target, "begins")
	return now
}

func (r *report) line(target, line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.print(target, strings.ReplaceAll(line, modulePath, ""))
}

func (r *report) end(s stage) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.running, s.target)
	r.stages = append(r.stages, s)
	result := "passed"
	if s.err != nil {
		result = "FAILED"
	}
	r.print(s.target, fmt.Sprintf("%s after %d s", result, int(s.took.Seconds())))
}

// print is called with the lock held.
func (r *report) print(target, line string) {
	r.lastLine = time.Now()
	fmt.Fprintf(r.out, "%4d s  %-15s %s\n", int(time.Since(r.began).Seconds()), target, line)
}

// showProgress names what is under way where nothing else was printed for a while.
func (r *report) showProgress(ctx context.Context) {
	ticker := time.NewTicker(quiet / 3)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			r.mu.Lock()
			if time.Since(r.lastLine) >= quiet && len(r.running) > 0 {
				r.print("under way:", strings.Join(slices.Sorted(maps.Keys(r.running)), ", "))
			}
			r.mu.Unlock()
		}
	}
}

// summarize prints the output of what failed, a table of the stages and what was skipped, and reports whether anything failed.
func (r *report) summarize() (failed bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.stages {
		if s.err == nil {
			continue
		}
		failed = true
		fmt.Fprintf(r.out, "\n=== %s\n%s\n%v\n", s.target, strings.Join(s.failures, "\n"), s.err)
	}
	fmt.Fprintf(r.out, "\n%-15s %8s %8s\n", "stage", "s", "CPU s")
	var cpu time.Duration
	for _, s := range r.stages {
		cpu += s.cpu
		fmt.Fprintf(r.out, "%-15s %8d %8d\n", s.target, int(s.took.Seconds()), int(s.cpu.Seconds()))
	}
	fmt.Fprintf(r.out, "%-15s %8d %8d\n", "all", int(time.Since(r.began).Seconds()), int(cpu.Seconds()))
	skipped, unlisted := summarizeSkips(r.stages)
	fmt.Fprint(r.out, "\n", skipped)
	if failed {
		fmt.Fprintln(r.out, "Error: tests failed; their output is above")
	}
	return failed || unlisted > 0
}
