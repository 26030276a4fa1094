// Package gobuild runs `go build` and shows its progress, because a cold build of a control plane takes minutes.
package gobuild

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Tag is a build tag for all programs: gRPC's tracing would import html/template, whose reflection keeps every method of every SDK.
const Tag = "grpcnotrace"

// Env is the environment of every build: static programs, and no garbage collection in the compiler below 2 GiB, which makes a cold build a
// quarter faster.
func Env() []string {
	return []string{"CGO_ENABLED=0", "GOGC=" + cmp.Or(os.Getenv("GOGC"), "off"), "GOMEMLIMIT=" + cmp.Or(os.Getenv("GOMEMLIMIT"), "2GiB")}
}

// FastBuildFlags returns additional flags for short-lived programs: without inlining and debug data a cold build is a third faster.
// Packages compile on one core, except those that all others wait for. These builds share no cache with others; the Makefile builds the
// calling tool with the same flags, to compile the standard library once.
func FastBuildFlags() []string {
	const flags = "-l -dwarf=false"
	return []string{"-gcflags=all=" + flags + " -c=1", "-gcflags=runtime=" + flags, "-gcflags=github.com/anyccm/...=" + flags}
}

// Flags returns the product's `go build` flags, also for programs that share its cache: stripped, without local paths. The arguments are
// additional tags and linker flags.
func Flags(tags, ldflags []string) []string {
	return []string{
		"-trimpath",
		"-tags=" + strings.Join(append([]string{Tag}, tags...), ","),
		"-ldflags=" + strings.Join(append([]string{"-s -w"}, ldflags...), " "),
	}
}

// SlimTags selects the program with one cloud.
func SlimTags(provider string) []string { return []string{"slim", "provider_" + provider} }

// Build is one run of `go build`.
type Build struct {
	// Name is shown in the progress.
	Name string
	// Dir is the folder of the module; empty means the working folder.
	Dir string
	// Env is added to the environment.
	Env []string
	// Flags are additional to -v and -o.
	Flags []string
	// Output is the file to write, or a folder for several programs.
	Output string
	// Packages are built together: they link in parallel, and shared packages are loaded once.
	Packages []string
}

// Period is the interval between lines of progress.
const Period = 5 * time.Second

// Run builds, with a line of progress on w in each period. Shorter builds print nothing.
func (b Build) Run(ctx context.Context, w io.Writer) error {
	cmd := b.command(ctx, slices.Concat([]string{"build", "-v"}, b.Flags, []string{"-o", b.Output}, b.Packages))
	out, err := cmd.StderrPipe()
	if err != nil {
		return fmt.Errorf("building %s: %w", b.Name, err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("building %s: %w", b.Name, err)
	}
	p := &progress{name: b.Name, began: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	var done sync.WaitGroup
	done.Go(func() { p.show(ctx, w, b.countStale) })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		p.line(lines.Text())
	}
	err = cmd.Wait()
	cancel()
	done.Wait()
	if err != nil {
		return fmt.Errorf("building %s: %w\n%s", b.Name, err, strings.Join(p.tail, "\n"))
	}
	if p.shown {
		fmt.Fprintf(w, "  %s: built after %s\n", b.Name, time.Since(p.began).Round(time.Second))
	}
	return nil
}

func (b Build) command(ctx context.Context, args []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "go", args...) //nolint:gosec // the arguments are this repository's own
	cmd.Dir = b.Dir
	cmd.Env = append(os.Environ(), b.Env...)
	return cmd
}

// countStale counts the packages missing from the build cache. It takes seconds itself, so it runs only during longer builds.
func (b Build) countStale(ctx context.Context) (int, error) {
	cmd := b.command(ctx, slices.Concat([]string{"list", "-deps"}, b.Flags, []string{"-f", "{{if .Stale}}x{{end}}"}, b.Packages))
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("counting the packages of %s: %w", b.Name, err)
	}
	return bytes.Count(out, []byte("x")), nil
}

// progress is the state of a running build.
type progress struct {
	name  string
	began time.Time
	// shown: a line of progress was printed.
	shown bool

	mu sync.Mutex
	// tail holds the last lines, for the error message.
	tail []string
	// compiled and downloaded count packages and modules.
	compiled, downloaded int
	// counted is the number of compiled packages when total became known, after the time since the start.
	counted int
	after   time.Duration
	// total is the number of packages to compile, 0 while unknown.
	total int
}

const downloading = "go: downloading "

func (p *progress) line(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(text, downloading) {
		p.downloaded++
		return
	}
	p.compiled++
	p.tail = append(p.tail, text)
	p.tail = p.tail[max(0, len(p.tail)-20):]
}

// show writes a line in every period until ctx ends. It counts packages once modules are downloaded.
func (p *progress) show(ctx context.Context, w io.Writer, stale func(context.Context) (int, error)) {
	ticker := time.NewTicker(Period)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if p.wantsTotal() {
			if n, err := stale(ctx); err == nil {
				p.setTotal(n)
			}
		}
		if ctx.Err() != nil {
			return
		}
		p.shown = true
		fmt.Fprintf(w, "  %s\n", p.describe(time.Since(p.began)))
	}
}

func (p *progress) wantsTotal() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total == 0 && p.compiled > 0
}

func (p *progress) setTotal(stale int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total, p.counted, p.after = p.compiled+stale, p.compiled, time.Since(p.began)
}

// describe describes progress and remaining time. The rate starts with the count of packages, because the time before includes downloads.
func (p *progress) describe(elapsed time.Duration) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.compiled == 0 && p.downloaded > 0:
		return fmt.Sprintf("%s: %d modules downloaded after %s", p.name, p.downloaded, elapsed.Round(time.Second))
	case p.total == 0:
		return fmt.Sprintf("%s: %d packages compiled after %s", p.name, p.compiled, elapsed.Round(time.Second))
	case p.compiled >= p.total:
		return fmt.Sprintf("%s: compiled, linking after %s", p.name, elapsed.Round(time.Second))
	}
	text := fmt.Sprintf("%s: %d of %d packages compiled after %s", p.name, p.compiled, p.total, elapsed.Round(time.Second))
	if done := p.compiled - p.counted; done > 0 && elapsed > p.after {
		left := time.Duration(float64(elapsed-p.after) / float64(done) * float64(p.total-p.compiled))
		text += fmt.Sprintf(", about %s more", left.Round(Period))
	}
	return text
}
