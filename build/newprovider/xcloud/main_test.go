package xcloud

import (
	"io"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

func TestMain(m *testing.M) {
	// The tests provoke thousands of failures; their log would hide the one that matters. Set -v to see it.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	if code := m.Run(); code != 0 {
		os.Exit(code)
	}
	if err := conformance.CheckOperations(Name); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
	if err := goleak.Find(goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1")); err != nil {
		_, _ = io.WriteString(os.Stderr, err.Error()+"\n")
		os.Exit(1)
	}
}
