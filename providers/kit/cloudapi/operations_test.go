package cloudapi

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestLabelsOfMetricsDoNotGrowWithInput: an ID out of an annotation that a provider does not recognise as one would become a label,
// and labels are kept for as long as the process lives.
func TestLabelsOfMetricsDoNotGrowWithInput(t *testing.T) {
	t.Parallel()
	s := &script{answers: []func(*http.Request) (*http.Response, error){status(http.StatusOK)}}
	c, shown := newMeteredClient(s, func(c *Config) {
		c.Operation = func(r *http.Request) string { return r.Method + " " + r.URL.Path }
	})
	for n := range 2000 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, fmt.Sprintf("http://cloud.test/things/%d/%s", n, strings.Repeat("x", n)), nil)
		require.NoError(t, err)
		response, err := c.Do(request)
		require.NoError(t, err)
		response.Body.Close()
	}
	families, err := shown.Gather()
	require.NoError(t, err)
	seen := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				assert.LessOrEqual(t, len(l.GetValue()), 200)
				if f.GetName() == "anyccm_cloud_api_requests_total" && l.GetName() == "provider" {
					seen++
				}
			}
		}
	}
	assert.Positive(t, seen)
	assert.LessOrEqual(t, seen, maxOperations+1)
}

// TestNotAbsence: what is not found becomes a failure that passes, and every other error stays what it is.
func TestNotAbsence(t *testing.T) {
	t.Parallel()
	missing := fmt.Errorf("reading a subnet: %w", &Error{Class: ErrNotFound, Message: "no subnet x"})
	got := NotAbsence(missing)
	require.ErrorIs(t, got, ErrTransient)
	require.NotErrorIs(t, got, ErrNotFound)
	require.ErrorContains(t, got, "no subnet x")
	refused := &Error{Class: ErrUnauthorized, Message: "no"}
	require.Equal(t, error(refused), NotAbsence(refused))
	require.NoError(t, NotAbsence(nil))
}
