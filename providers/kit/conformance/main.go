package conformance

import (
	"fmt"
	"maps"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Main runs the tests of a provider's package and ends the program. Afterwards every call to the cloud must have been one that the
// provider names, no goroutine may be left, nothing may have crashed, and the provider's own checks must pass.
func Main(m *testing.M, provider string, checks ...func() error) {
	// The tests provoke thousands of failures; their log would hide the one that matters. Set -v to see it.
	klog.LogToStderr(false)
	if given := debug.SetGCPercent(gcPercent); given != usualPercent { // GOGC says otherwise
		debug.SetGCPercent(given)
	}
	crashed := &crashLog{}
	klog.SetOutput(crashed)
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	for _, check := range append([]func() error{func() error { return CheckOperations(provider) }, leaks, crashed.check}, checks...) {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(0)
}

// gcPercent lets the garbage collector run less often than by default: thousands of small clouds are made and dropped, and it would take
// a fifth of the time.
const gcPercent = 300

// usualPercent is Go's default of GOGC. The variable itself is not read, because go's cache would keep separate results for its values.
const usualPercent = 100

// crashLog takes the log, and keeps what it says of crashes. A crash becomes an error, which a test that expects one may take for it.
type crashLog struct {
	mu    sync.Mutex
	found []string
}

// crashLines are logged when this program or the framework recovers from a panic.
var crashLines = []string{"Recovered from a panic", "Observed a panic"}

// maxCrashes bounds what is kept of them.
const maxCrashes = 3

// Write implements io.Writer.
func (l *crashLog) Write(line []byte) (int, error) {
	text := string(line)
	if slices.ContainsFunc(crashLines, func(c string) bool { return strings.Contains(text, c) }) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if len(l.found) < maxCrashes {
			l.found = append(l.found, text)
		}
	}
	return len(line), nil
}

// check returns an error where something crashed.
func (l *crashLog) check() error {
	klog.Flush()
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.found) == 0 {
		return nil
	}
	return fmt.Errorf("the tests passed, but something crashed, which is a bug:\n%s", strings.Join(l.found, "\n"))
}

// leaks finds goroutines that are left. Shared reads outlive their callers; one whose cloud went with its test is tried again for
// some seconds.
func leaks() (err error) {
	for range 10 {
		if err = goleak.Find(goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")); err == nil {
			return nil
		}
	}
	return err
}

// Inputs are those of a provider with the given flags and environment.
func Inputs(flags, env map[string]string) registry.Inputs {
	lookup := func(key string) (string, bool) {
		value, ok := env[key]
		return value, ok
	}
	names := func() []string { return slices.Sorted(maps.Keys(env)) }
	return registry.Inputs{Version: "test", Sources: schema.Sources{Flags: flags, LookupEnv: lookup, EnvNames: names}}
}

// Service is a Service of type LoadBalancer.
func Service(name string, annotations map[string]string, ports ...v1.ServicePort) *v1.Service {
	if annotations == nil {
		annotations = map[string]string{}
	}
	return &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: metav1.NamespaceDefault, Name: name, UID: "3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1", Annotations: annotations,
		},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: ports},
	}
}

// Port is a port of a Service.
func Port(name string, number, nodePort int32) v1.ServicePort {
	return v1.ServicePort{Name: name, Protocol: v1.ProtocolTCP, Port: number, NodePort: nodePort}
}
