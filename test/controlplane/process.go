package controlplane

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

func dirOf(path string) string { return filepath.Dir(path) }

// Process is a program that this one started. It dies with us on Linux; elsewhere Stop must be called.
type Process struct {
	// Name is the program's name.
	Name string
	// Log is the file that holds its output.
	Log string

	cmd  *exec.Cmd
	done chan struct{}
	err  error
	once sync.Once
}

// Start runs a program with its output in a file under dir. env is added to a minimal environment.
func Start(name, dir, path string, args, env []string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, name+".log"))
	if err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	cmd := exec.Command(path, args...) //nolint:noctx // it outlives the call; Stop ends it
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Dir = dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}, env...)
	cmd.SysProcAttr = processAttributes()
	p := &Process{Name: name, Log: log.Name(), cmd: cmd, done: make(chan struct{})}
	started := make(chan error)
	go func() {
		// The kernel's signal at the parent's death is bound to the thread that started the child, so that thread must
		// live as long as the child.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		defer log.Close()
		err := cmd.Start()
		started <- err
		if err == nil {
			p.err = cmd.Wait()
			close(p.done)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting %s: %w", name, err)
	}
	return p, nil
}

// Attributes are those of a program that dies with us on Linux, and that a signal of our terminal does not reach.
func Attributes() *syscall.SysProcAttr { return processAttributes() }

// PID is the process ID.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Done is closed when the program has ended.
func (p *Process) Done() <-chan struct{} { return p.done }

// ExitCode is valid once Done is closed; -1 means ended by a signal.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Usage returns the CPU time and, in bytes, the peak memory of a program that has ended.
func (p *Process) Usage() (cpu time.Duration, peak int64) {
	state := p.cmd.ProcessState
	if state == nil {
		return 0, 0
	}
	cpu = state.UserTime() + state.SystemTime()
	if usage, ok := state.SysUsage().(*syscall.Rusage); ok {
		peak = usage.Maxrss * maxrssUnit
	}
	return cpu, peak
}

// maxrssUnit: Linux counts kibibytes.
const maxrssUnit = 1024

// Signal sends a signal.
func (p *Process) Signal(s os.Signal) error { return p.cmd.Process.Signal(s) }

// Stop ends the program: politely first, by force after the grace period. It returns when the program has ended.
func (p *Process) Stop(grace time.Duration) {
	p.once.Do(func() {
		_ = p.Signal(syscall.SIGTERM) // it may have ended already
		select {
		case <-p.done:
		case <-time.After(grace):
			_ = p.Signal(syscall.SIGKILL)
			<-p.done
		}
	})
}

// Tail returns the last lines of the program's output.
func (p *Process) Tail(lines int) string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	all := strings.Split(strings.TrimRight(string(data), "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// waitFor calls check until it succeeds, the program ends, or the context does.
func (p *Process) waitFor(ctx context.Context, what string, check func(context.Context) error) error {
	for {
		last := check(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before %s:\n%s", p.Name, what, p.Tail(15))
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w; %s says:\n%s", what, last, p.Name, p.Tail(15))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// firstPort and lastPort bound the ports of what is started here. They lie below those that systems give to connections of their own
// choice: one of these takes a port that was free a moment ago.
const firstPort, lastPort = 10000, 32000

// webhookPort is the default of the framework's webhooks, which refuses to be another port of the program as well.
const webhookPort = 10260

// FreePorts returns n loopback ports that were free a moment ago. Somebody else may take one before it is used, so a
// start that fails is tried again with others.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for tries := 0; len(ports) < n; tries++ {
		port := firstPort + rand.IntN(lastPort-firstPort) //nolint:gosec // no secret: it spreads what runs at the same time
		if port == webhookPort {
			continue
		}
		address := net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
		l, err := net.Listen("tcp", address) //nolint:noctx // returns at once
		switch {
		case err == nil:
			defer l.Close() // all are held until the last is found, so that they differ
			ports = append(ports, port)
		case tries >= maxPortTries:
			return nil, fmt.Errorf("finding a free port between %d and %d: %w", firstPort, lastPort, err)
		}
	}
	return ports, nil
}

// maxPortTries is how many ports are tried before there seem to be none.
const maxPortTries = 100
