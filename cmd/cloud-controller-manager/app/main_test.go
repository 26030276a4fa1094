package app

import (
	"os"
	"testing"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// TestMain leaves out the framework's pause between two errors: it counts from the error before, which is of another clock in virtual time,
// so that a worker that meets an error would sleep for years.
func TestMain(m *testing.M) {
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}
