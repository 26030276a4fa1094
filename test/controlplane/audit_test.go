package controlplane

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestUnsettled: the log has settled once it has the mark and the end of each request that came before it; one that came later, and one
// that watches, is not waited for.
func TestUnsettled(t *testing.T) {
	t.Parallel()
	const done = "ResponseComplete"
	line := func(id, stage, verb string) Request { return Request{ID: id, Stage: stage, Verb: verb, URI: "/" + id} }
	lines := []Request{
		line("patched", received, "patch"), line("watched", received, "watch"), line("watched", "ResponseStarted", "watch"),
		line("mark", received, "get"), line("later", received, "get"), line("mark", done, "get"),
	}
	require.EqualError(t, unsettled(lines[:3], "/mark"), "it has no end of patch /patched by ")
	require.EqualError(t, unsettled(lines, "/mark"), "it has no end of patch /patched by ")
	lines = append(lines, line("patched", done, "patch"))
	require.NoError(t, unsettled(lines, "/mark"))
	assert.EqualError(t, unsettled(lines, "/mark2"), "it has no end of get /later by ")
	assert.EqualError(t, unsettled(append(lines, line("later", done, "get")), "/mark2"), "it has no /mark2")
}
