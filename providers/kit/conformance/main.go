package conformance

import (
	"fmt"
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Main runs the tests of a provider's package and ends the program. Afterwards every call to the cloud must have been one that the
// provider names, no goroutine may be left, and the provider's own checks must pass.
func Main(m *testing.M, provider string, checks ...func() error) {
	// The tests provoke thousands of failures; their log would hide the one that matters. Set -v to see it.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	for _, check := range append([]func() error{func() error { return CheckOperations(provider) }, leaks}, checks...) {
		if err := check(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	os.Exit(0)
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
	return registry.Inputs{Version: "test", Sources: schema.Sources{Flags: flags, LookupEnv: lookup}}
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
