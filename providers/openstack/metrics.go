package openstack

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

// Metrics with the names and labels of OpenStack's own controller, for existing dashboards.
var (
	requestDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "openstack_api_request_duration_seconds", Help: "Latency of calls of the OpenStack API, by request.", StabilityLevel: metrics.ALPHA,
	}, []string{"request"})
	requestsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "openstack_api_requests_total", Help: "Calls of the OpenStack API, by request.", StabilityLevel: metrics.ALPHA,
	}, []string{"request"})
	requestErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "openstack_api_request_errors_total", Help: "Failed calls of the OpenStack API, by request.", StabilityLevel: metrics.ALPHA,
	}, []string{"request"})
	reconcileDuration = metrics.NewHistogramVec(&metrics.HistogramOpts{
		Name: "cloudprovider_openstack_reconcile_duration_seconds", Help: "Time of one pass over a load balancer, by operation.", StabilityLevel: metrics.ALPHA,
		Buckets: []float64{
			0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0, 1000.0,
		},
	}, []string{"operation"})
	reconcileTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_openstack_reconcile_total", Help: "Passes over load balancers, by operation.", StabilityLevel: metrics.ALPHA,
	}, []string{"operation"})
	reconcileErrors = metrics.NewCounterVec(&metrics.CounterOpts{
		Name: "cloudprovider_openstack_reconcile_errors_total", Help: "Failed passes over load balancers, by operation.", StabilityLevel: metrics.ALPHA,
	}, []string{"operation"})
)

var registerMetrics = sync.OnceFunc(func() {
	legacyregistry.MustRegister(requestDuration, requestsTotal, requestErrors, reconcileDuration, reconcileTotal, reconcileErrors)
})

func countCall(operation string, began time.Time, err error) {
	name := metricName(operation)
	if name == "" {
		return
	}
	requestsTotal.WithLabelValues(name).Inc()
	requestDuration.WithLabelValues(name).Observe(time.Since(began).Seconds())
	if err != nil {
		requestErrors.WithLabelValues(name).Inc()
	}
}

// countReconcile counts an operation of the framework. A request to come back is no failure.
func countReconcile(operation string, began time.Time, err error) {
	reconcileTotal.WithLabelValues(operation).Inc()
	reconcileDuration.WithLabelValues(operation).Observe(time.Since(began).Seconds())
	if _, later := errors.AsType[*cloudproviderapi.RetryError](err); err != nil && !later {
		reconcileErrors.WithLabelValues(operation).Inc()
	}
}

// metricResources maps the last path segment to the label of OpenStack's own controller.
var metricResources = map[string]string{
	"servers": "server", "flavors": "flavor", "ports": "port", "networks": "network", "subnets": "subnet", "floatingips": "floating_ip",
	"security-groups": "security_group", "security-group-rules": "security_group_rule", "routers": "router", "extensions": "network_extension",
	"loadbalancers": "loadbalancer", "listeners": "loadbalancer_listener", "pools": "loadbalancer_pool", "members": "loadbalancer_member",
	"healthmonitors": "loadbalancer_healthmonitor", "tokens": "token", "containers": "container", "secrets": "secret",
}

// metricName returns the label "request" for an operation such as "GET /networking/v2.0/ports/{id}".
func metricName(operation string) string {
	method, path, _ := strings.Cut(operation, " ")
	segments := strings.Split(strings.Trim(path, "/"), "/")
	verb := map[string]string{http.MethodPost: "create", http.MethodPut: "update", http.MethodDelete: "delete", http.MethodGet: "list"}[method]
	for i, segment := range slices.Backward(segments) {
		resource, known := metricResources[segment]
		if !known {
			continue
		}
		one := i+1 < len(segments) && segments[i+1] == "{id}"
		switch {
		case verb == "list" && one:
			verb = "get"
		case verb == "update" && resource == "loadbalancer_member" && !one:
			resource = "loadbalancer_members"
		}
		return resource + "_" + verb
	}
	return ""
}
