// Command stages runs targets of the Makefile that test, and shows how far they are: a line for each package that is done, what is under
// way, and at the end the output of whatever failed and how many tests were skipped. A test that is skipped for a reason that skips.go does
// not have is a failure.
//
//	stages [-make PROGRAM] "TARGET TARGET…" …
//
// The targets of one argument run after each other, the arguments side by side. Every target runs, whatever failed before it.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"
)

// quiet is after how long without a line the stages that are under way are named.
const quiet = 30 * time.Second

func main() {
	program := flag.String("make", "make", "the make that runs the targets")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	failed := run(ctx, *program, flag.Args(), os.Stdout)
	stop()
	if failed {
		os.Exit(1)
	}
}

// run runs the targets and reports whether one failed.
func run(ctx context.Context, program string, chains []string, out io.Writer) (failed bool) {
	r := &report{out: out, began: time.Now(), running: map[string]time.Time{}}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var chainsDone, progress sync.WaitGroup
	progress.Go(func() { r.showProgress(ctx) })
	for _, chain := range chains {
		chainsDone.Go(func() {
			for target := range strings.FieldsSeq(chain) {
				runTarget(ctx, program, target, r)
			}
		})
	}
	chainsDone.Wait()
	cancel()
	progress.Wait()
	return r.summarize()
}

// runTarget runs one target and reports its lines.
func runTarget(ctx context.Context, program, target string, r *report) {
	began := r.begin(target)
	cmd := exec.CommandContext(ctx, program, "--no-print-directory", "EVENTS=-json", target) //nolint:gosec // the Makefile names both
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }                 // make ends what it started
	cmd.WaitDelay = time.Minute
	p := newParser(func(line string) { r.line(target, line) })
	cmd.Stdout, cmd.Stderr = p, p
	err := cmd.Run()
	s := stage{target: target, took: time.Since(began), failures: p.finish(err != nil), skips: p.skips}
	if err != nil {
		s.err = fmt.Errorf("make %s: %w", target, err)
	}
	if state := cmd.ProcessState; state != nil {
		s.cpu = state.UserTime() + state.SystemTime()
	}
	r.end(s)
}
