package aws

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/component-base/metrics/testutil"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// TestMetrics: metrics have the names and labels of AWS's own controller. Other tests count too, so only the increase is compared.
func TestMetrics(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, "", awssim.Options{})
	require.NoError(t, w.CheckAPI(t.Context()))
	measured, err := testutil.GetHistogramMetricCount(requestDuration.WithLabelValues("describe_instance"))
	require.NoError(t, err)
	assert.Positive(t, measured)

	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 403, Operation: "EC2 DescribeRouteTables"})
	require.NoError(t, err)
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: 429, Operation: "ELB DescribeTags"})
	require.NoError(t, err)
	_, err = w.routes.ListRoutes(t.Context(), "kubernetes")
	require.Error(t, err)
	_, err = w.api.getClassicTags(t.Context(), []string{"a1"})
	require.Error(t, err)
	failed, err := testutil.GetCounterMetricValue(requestErrors.WithLabelValues("describe_route_tables"))
	require.NoError(t, err)
	assert.Positive(t, failed)
	throttled, err := testutil.GetCounterMetricValue(throttledTotal.WithLabelValues("DescribeTags"))
	require.NoError(t, err)
	assert.Positive(t, throttled)
	refused, err := testutil.GetCounterMetricValue(statusTotal.WithLabelValues("EC2", "DescribeRouteTables", "403"))
	require.NoError(t, err)
	assert.Positive(t, refused)
	slow, err := testutil.GetCounterMetricValue(statusTotal.WithLabelValues("Elastic Load Balancing", "DescribeTags", "400"))
	require.NoError(t, err)
	assert.Positive(t, slow, "service and operation are taken apart at the last blank")
}
