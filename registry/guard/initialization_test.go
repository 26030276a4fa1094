package guard

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cloudprovider "k8s.io/cloud-provider"
)

// silence is the error of a cloud that does not answer.
type silence struct{ permanent bool }

func (silence) Error() string     { return "connection refused" }
func (s silence) Temporary() bool { return !s.permanent }

// initialise asks about a new Node as the framework does, which pauses twice as long after each failure, until there is an answer.
func initialise(t *testing.T, c *cloud) (asked int) {
	t.Helper()
	in, _ := guarded(c).InstancesV2()
	n := node("", true)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 1000*time.Second) {
		asked++
		m, err := in.InstanceMetadata(t.Context(), n)
		if err == nil {
			require.Equal(t, "alpha://1", m.ProviderID)
			return asked
		}
		require.ErrorContains(t, err, "connection refused")
		time.Sleep(pause)
	}
}

// TestNewNodeAfterAnOutage: a node that joins while the cloud is away is initialised within 10 s of its return, however long it was away.
func TestNewNodeAfterAnOutage(t *testing.T) {
	t.Parallel()
	for _, seconds := range []int{1, 11, 30, 47, 95, 300} {
		away := time.Duration(seconds) * time.Second
		t.Run(away.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				began, calls := time.Now(), 0
				initialise(t, &cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) {
					calls++
					if time.Since(began) < away {
						return nil, fmt.Errorf("listing: %w", silence{})
					}
					return &cloudprovider.InstanceMetadata{ProviderID: "alpha://1"}, nil
				}})
				assert.LessOrEqual(t, time.Since(began)-away, 10*time.Second)
				assert.LessOrEqual(t, calls, 10+int(away/outagePause))
			})
		})
	}
}

// TestOnlyAnOutageIsWaitedFor: what is wrong with a node itself is told at once, each time, and so are the first failures of an outage.
func TestOnlyAnOutageIsWaitedFor(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		failure := error(silence{permanent: true})
		in, _ := guarded(&cloud{metadata: func(context.Context) (*cloudprovider.InstanceMetadata, error) { return nil, failure }}).InstancesV2()
		n := node("", true)
		ask := func() time.Duration {
			began := time.Now()
			_, err := in.InstanceMetadata(t.Context(), n)
			require.ErrorIs(t, err, failure)
			return time.Since(began)
		}
		for range 10 {
			assert.Zero(t, ask())
		}
		failure = silence{}
		assert.LessOrEqual(t, ask(), outagePatience)
		n = node("", true)
		n.UID = "another"
		for range outageAfter {
			assert.Zero(t, ask())
		}
		assert.Positive(t, ask())
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		began := time.Now()
		_, err := in.InstanceMetadata(ctx, n)
		require.ErrorIs(t, err, failure)
		assert.Equal(t, 3*time.Second, time.Since(began), "who asks has gone")
	})
}
