package cloudapi

import (
	"errors"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/testutil"
)

// TestLastSuccess: the age of the last useful answer is that of a useful one.
func TestLastSuccess(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func(*http.Request) (*http.Response, error){
		status(http.StatusOK), func(*http.Request) (*http.Response, error) { return nil, errors.New("broken") },
	}}
	c := newTestClient(s, func(c *Config) { c.Retries = -1 })
	at := func() float64 {
		value, err := testutil.GetGaugeMetricValue(c.transport.meters.lastSuccess.WithLabelValues("test"))
		require.NoError(t, err)
		return value
	}
	assert.Zero(t, at(), "it is there before the first answer")
	before := time.Now()
	resp, err := call(t, c, http.MethodGet, "")
	require.NoError(t, err)
	resp.Body.Close()
	first := at()
	assert.GreaterOrEqual(t, first, float64(before.Unix()))
	_, err = call(t, c, http.MethodGet, "")
	require.Error(t, err)
	assert.InDelta(t, first, at(), 0, "a failure is no useful answer")
}

// TestLabelsHaveNoBlanks: an operation that reads "GET /things" is GET_/things in the metrics.
func TestLabelsHaveNoBlanks(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func(*http.Request) (*http.Response, error){status(http.StatusOK)}}
	c, shown := newMeteredClient(s, nil)
	resp, err := call(t, c, http.MethodGet, "")
	require.NoError(t, err)
	resp.Body.Close()
	families, err := shown.Gather()
	require.NoError(t, err)
	seen := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "operation" {
					seen++
					assert.NotContains(t, l.GetValue(), " ", f.GetName())
				}
			}
		}
	}
	assert.Positive(t, seen)
}
