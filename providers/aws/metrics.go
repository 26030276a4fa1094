package aws

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// The metrics of AWS's own controller, under its names and labels, for dashboards that exist.
var (
	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "cloudprovider_aws_api_request_duration_seconds", Help: "Latency of successful calls of AWS's API, by request.", StabilityLevel: metrics.ALPHA,
	}, []string{"request"})
	requestErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_aws_api_request_errors", Help: "Failed calls of AWS's API, by request.", StabilityLevel: metrics.ALPHA,
	}, []string{"request"})
	throttledTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_aws_api_throttled_requests_total", Help: "Calls of AWS's API that failed for the rate limit in the end, by operation.", StabilityLevel: metrics.ALPHA,
	}, []string{"operation_name"})
	statusTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_aws_api_response_status_total", Help: "Calls of AWS's API that failed in the end, by service, operation and status.", StabilityLevel: metrics.ALPHA,
	}, []string{"service", "operation", "status_code"})
	taggingErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_aws_tagging_controller_work_item_errors_total", Help: "Failures of the tagging controller, by kind.", StabilityLevel: metrics.ALPHA,
	}, []string{"error_type", "instance_id"})
	//nolint:misspell // the name is as AWS's own controller has it
	taggingDelay = metrics.NewHistogram(&metrics.HistogramOpts{
		Name: "tagging_controller_inital_node_tagging_delay_seconds", Help: "Time from the creation of a node until its instance was tagged for the first time.", StabilityLevel: metrics.ALPHA,
		Buckets: metrics.ExponentialBuckets(1, 4, 6),
	})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(requestDuration, requestErrors, throttledTotal, statusTotal, taggingErrors, taggingDelay)
})

// metricRequests are the calls whose latency AWS's own controller measures, under its names.
func metricRequests() map[string]string {
	return map[string]string{
		"EC2 DescribeInstances": "describe_instance", "EC2 DescribeSecurityGroups": "describe_security_groups", "EC2 DescribeRouteTables": "describe_route_tables",
		"EC2 DescribeNetworkInterfaces": "describe_network_interfaces", "EC2 CreateTags": "create_tags", "EC2 DeleteTags": "delete_tags",
	}
}

// countCall counts a call of the SDK that is over.
func countCall(last *cloudapi.LastResponse, began time.Time, err error) {
	name := last.Operation() // such as "EC2 DescribeInstances"
	if request, ok := metricRequests()[name]; ok && err == nil {
		requestDuration.WithLabelValues(request).Observe(time.Since(began).Seconds())
	} else if ok {
		requestErrors.WithLabelValues(request).Inc()
	}
	if err == nil || name == "" {
		return
	}
	space := strings.LastIndex(name, " ")
	service, operation := name[:max(space, 0)], name[space+1:]
	if answer, _ := last.Last(); answer != nil {
		statusTotal.WithLabelValues(service, operation, strconv.Itoa(answer.Status)).Inc()
	}
	if errors.Is(classOf(codeOf(err), 0), cloudapi.ErrRateLimited) {
		throttledTotal.WithLabelValues(operation).Inc()
	}
}
