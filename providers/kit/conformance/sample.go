package conformance

import (
	"hash/fnv"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// shareVariable says that one in so many cases of the largest parts is tried: those of the race detector are a sample, for all are tried
// without it.
const shareVariable = "ANYCCM_INTERRUPTIONS"

// sampleShare is one in how many cases is tried.
func sampleShare(t *testing.T) int {
	t.Helper()
	text := os.Getenv(shareVariable)
	if text == "" {
		return 1
	}
	share, err := strconv.Atoi(text)
	require.NoError(t, err, shareVariable)
	require.Positive(t, share, shareVariable)
	return share
}

// inSample reports whether a case is tried. It goes by the name, so that it is the same in every run, and spread over all that a name says.
func inSample(t *testing.T, name string) bool {
	t.Helper()
	h := fnv.New32a()
	_, _ = h.Write([]byte(name))
	return h.Sum32()%uint32(sampleShare(t)) == 0 //nolint:gosec // a small positive number
}

// sampled is virtual for parts with many cases.
func sampled(t *testing.T, name string, test func(t *testing.T)) {
	t.Helper()
	if inSample(t, name) {
		virtual(t, name, test)
	}
}
