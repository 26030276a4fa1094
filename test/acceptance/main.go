// Command acceptance tries an installed release on a cluster of anyone's: black box, by what the cluster shows, by the program's metrics
// and by its own read-only commands. It names no cloud: what a cloud can do comes from the registry.
package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // whose descriptions say what each cloud can do
)

const (
	formatText, formatJSON = "text", "json"
	// exitFailed is the status where something did not hold, exitUsage that of a call that was not understood.
	exitFailed, exitUsage = 1, 2
)

// errUsage is a call that was not understood.
var errUsage = errors.New("nothing was tried")

func main() { os.Exit(status()) }

// status runs the suite and returns the exit status.
func status() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	// A second signal ends the program at once, also while it cleans up.
	context.AfterFunc(ctx, stop)
	switch err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); {
	case err == nil || errors.Is(err, flag.ErrHelp):
		return 0
	case errors.Is(err, errUsage):
		fmt.Fprintln(os.Stderr, "Error:", err)
		return exitUsage
	default:
		fmt.Fprintln(os.Stderr, "Error:", err)
		return exitFailed
	}
}

// Options say what is tried, and how.
type Options struct {
	Provider, Kubeconfig, Program string
	// Namespace and Workload are those of the release.
	Namespace, Workload string
	// MetricsURL is where the program serves metrics; empty means by a forwarded port of its pod.
	MetricsURL string
	// RestartCommand restarts the program where it runs in no pod.
	RestartCommand string
	// Image answers HTTP on port 8080, for the step traffic; empty leaves it out.
	Image string
	// Annotations are on every Service of the run.
	Annotations settings
	// Values are those of portable annotations that need something of the user's, such as an address.
	Values settings
	// Args and Env are further arguments and variables of the program's commands.
	Args []string
	Env  settings
	Skip []string
	// KeepGoing tries the other steps after one that failed.
	KeepGoing bool
	// CleanUp removes what earlier runs left, and does nothing else.
	CleanUp bool
	Yes     bool
	Output  string
	// Results is the file of the first report, with which later ones are compared.
	Results string
	// Patience is how long something may stay as it is that is waited for, StepPatience the same for the waits of a step.
	Patience     time.Duration
	StepPatience map[string]time.Duration
}

// settings are KEY=VALUE from the command line.
type settings map[string]string

// String implements flag.Value.
func (s settings) String() string { return "" }

// Set implements flag.Value.
func (s settings) Set(text string) error {
	key, value, found := strings.Cut(text, "=")
	if !found || key == "" {
		return errors.New("use KEY=VALUE")
	}
	s[key] = value
	return nil
}

func parse(args []string, stderr io.Writer) (Options, error) {
	o := Options{Annotations: settings{}, Values: settings{}, Env: settings{}, StepPatience: map[string]time.Duration{}}
	fs := flag.NewFlagSet("acceptance", flag.ContinueOnError)
	fs.SetOutput(stderr)
	fs.StringVar(&o.Provider, "provider", "", "the cloud, as --cloud-provider names it")
	fs.StringVar(&o.Kubeconfig, "kubeconfig", os.Getenv("KUBECONFIG"), "an administrator's kubeconfig of the cluster")
	fs.StringVar(&o.Program, "program", "bin/cloud-controller-manager", "the program, for its read-only commands")
	fs.StringVar(&o.Namespace, "namespace", "kube-system", "the namespace of the release")
	fs.StringVar(&o.Workload, "workload", "", "the DaemonSet or Deployment of the release, where the namespace has several for the cloud")
	fs.StringVar(&o.MetricsURL, "metrics-url", "", "where the program serves metrics, such as https://127.0.0.1:10258; by default its pod is reached by kubectl port-forward")
	fs.StringVar(&o.RestartCommand, "restart-command", "", "a shell command that restarts the program, where it runs in no pod")
	fs.StringVar(&o.Image, "image", "registry.k8s.io/e2e-test-images/agnhost:2.53", "an image for the step traffic that answers `agnhost netexec`; empty leaves the step out")
	fs.Var(o.Annotations, "annotation", "KEY=VALUE of an annotation that every Service of the run has; may be repeated")
	fs.Var(o.Values, "value", "KEY=VALUE of a portable annotation that needs something of yours, such as a reserved address; may be repeated")
	fs.Var(o.Env, "env", "NAME=VALUE for the program's commands; may be repeated")
	fs.Func("arg", "a further argument for the program's commands; may be repeated", func(a string) error {
		o.Args = append(o.Args, a)
		return nil
	})
	fs.Func("skip", "steps to leave out, separated by commas; a name stands for all steps that begin with it", func(list string) error {
		o.Skip = append(o.Skip, strings.Split(list, ",")...)
		return nil
	})
	fs.BoolVar(&o.KeepGoing, "keep-going", false, "try the other steps after one that failed")
	fs.BoolVar(&o.CleanUp, "clean-up", false, "only remove what earlier runs left in the cluster")
	fs.BoolVar(&o.Yes, "yes", false, "do not ask")
	fs.StringVar(&o.Output, "o", formatText, "output: text or json")
	fs.StringVar(&o.Results, "results", "", "file of the first report; a run without it writes it, and later ones are compared with it")
	fs.DurationVar(&o.Patience, "patience", 5*time.Minute, "how long to wait for anything that makes no progress")
	fs.Func("step-patience", "STEP=TIME: how long to wait in one step; may be repeated", func(text string) (err error) {
		step, patience, _ := strings.Cut(text, "=")
		o.StepPatience[step], err = time.ParseDuration(patience)
		return err
	})
	if err := fs.Parse(args); err != nil {
		return o, errors.Join(errUsage, err)
	}
	switch {
	case fs.NArg() > 0:
		return o, fmt.Errorf("%w: %q is no flag", errUsage, fs.Arg(0))
	case o.Kubeconfig == "":
		return o, fmt.Errorf("%w: -kubeconfig is missing; name the file of the cluster that is tried", errUsage)
	case !slices.Contains([]string{formatText, formatJSON}, o.Output):
		return o, fmt.Errorf("%w: -o %s: use text or json", errUsage, o.Output)
	case o.Patience <= 0:
		return o, fmt.Errorf("%w: -patience %s: use a time such as 5m", errUsage, o.Patience)
	}
	return o, nil
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	provider, err := registry.Linked().Lookup(o.Provider)
	if err != nil {
		return fmt.Errorf("%w: -provider: %w", errUsage, err)
	}
	// What is written for people goes where it does not spoil the report.
	progress := stdout
	if o.Output == formatJSON {
		progress = stderr
	}
	s, err := newSuite(o, provider, progress)
	if err != nil {
		return err
	}
	if o.CleanUp {
		return s.removeLeftovers(ctx)
	}
	if err := s.connect(ctx); err != nil {
		return err
	}
	defer s.close()
	s.announce()
	if !o.Yes {
		if err := ask(stdin, progress); err != nil {
			return err
		}
	}
	report := s.run(ctx)
	if err := s.compare(&report); err != nil {
		return err
	}
	if err := report.print(stdout, o.Output); err != nil {
		return err
	}
	return report.err()
}

// ask lets nothing begin without a word.
func ask(stdin io.Reader, w io.Writer) error {
	fmt.Fprint(w, "Type yes to begin: ")
	line, err := bufio.NewReader(stdin).ReadString('\n')
	if strings.TrimSpace(line) == "yes" {
		return nil
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return errors.Join(fmt.Errorf("%w: the answer was not yes; -yes does not ask", errUsage), err)
}
