package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

const counted = `== created
  as in create.txt

== one joins
plan
  change pool (add node)
    address: worker-3
reads
  1 GET /pools
  12 GET /pools/{id} (2 again)
writes
  POST /pools/pool/80/members
    {"address": "worker-3"}
  POST /pools/pool/443/members
    as before
serves
  tcp/80 -> worker-3

== one leaves
writes
  DELETE /pools/pool/80/members/worker-3
`

// TestCountCalls: reads by their numbers, writes without their bodies, of one step alone.
func TestCountCalls(t *testing.T) {
	t.Parallel()
	for step, want := range map[string][2]int{"created": {0, 0}, "one joins": {13, 2}, "one leaves": {0, 1}} {
		reads, writes, err := countCalls(counted, step)
		require.NoError(t, err, step)
		assert.Equal(t, want, [2]int{reads, writes}, step)
	}
	_, _, err := countCalls(counted, "one jumps")
	require.EqualError(t, err, `there is no step "one jumps"`)
	_, _, err = countCalls("== a\nreads\n  GET /pools\n", "a")
	require.EqualError(t, err, `step "a": "GET /pools" begins with no number`)
}

// TestEachCloudHasItsCalls: the transcripts of each cloud have the steps that are counted. TestGeneratedFilesAreFresh compares the pages.
func TestEachCloudHasItsCalls(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		if p.InCluster || p.Features.LoadBalancers != registry.Done {
			continue
		}
		w := &writer{root: filepath.Join("..", "..")}
		assert.NotEmpty(t, w.transcribedCalls(p), p.Name)
		assert.Empty(t, w.problems)
	}
}
