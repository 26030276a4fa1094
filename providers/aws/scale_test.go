package aws

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// TestClassicsOfManyInstancesAreListed: with 1,000 instances behind each, the most that they take, 400 classic load balancers would be more
// text than an answer may be. Their instances are in memory once.
func TestClassicsOfManyInstancesAreListed(t *testing.T) {
	t.Parallel()
	const balancers, instances = 2*classicPage + 20, 1000
	w := newTestWorld(t, "", awssim.Options{})
	ids := make([]string, instances)
	for i := range ids {
		ids[i] = fmt.Sprintf("i-0%016x", i)
	}
	for i := range balancers {
		w.sim.AddClassic(awssim.ClassicLB{Name: fmt.Sprintf("a%031x", i), Scheme: "internet-facing", Instances: ids})
	}
	w.server.ResetCalls()
	all, err := w.loadBalancers.records.classics.All(t.Context(), inventory.Query{})
	require.NoError(t, err)
	require.Len(t, all, balancers)
	assert.Equal(t, 3, w.server.Calls().Total)
	for _, lb := range all {
		require.Len(t, lb.Instances, instances)
		require.Same(t, &all[0].Instances[0], &lb.Instances[0], "one list in memory")
	}
}
