package digitalocean

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"time"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// firewallMetrics keeps names, labels and buckets of DigitalOcean's own controller, for existing dashboards.
type firewallMetrics struct {
	operationDuration, syncDuration, reconcileDuration *metrics.HistogramVec
	operations, syncs, reconciles                      *metrics.CounterVec
}

// newFirewallMetrics registers the metrics once, if the firewall is managed.
var newFirewallMetrics = sync.OnceValue(func() *firewallMetrics {
	histogram := func(name, help string, buckets []float64, labels ...string) *metrics.HistogramVec {
		return metrics.NewHistogramVec(&metrics.HistogramOpts{Name: name, Help: help, Buckets: buckets, StabilityLevel: metrics.ALPHA}, labels)
	}
	counter := func(name, help string, labels ...string) *metrics.CounterVec {
		return metrics.NewCounterVec(&metrics.CounterOpts{Name: name, Help: help, StabilityLevel: metrics.ALPHA}, labels)
	}
	const buckets = 21
	short, long := metrics.LinearBuckets(1, 4.5, buckets), metrics.LinearBuckets(1, 15, buckets)
	m := &firewallMetrics{
		operationDuration: histogram("firewall_api_operation_duration_seconds", "Time of calls about the public access firewall.", short, "operation", "result", "http_response_code"),
		operations:        counter("firewall_api_operations_total", "Calls about the public access firewall.", "operation", "result", "http_response_code"),
		syncDuration:      histogram("firewall_resource_sync_duration_seconds", "Time of looking the public access firewall up.", long, "result"),
		syncs:             counter("firewall_resource_syncs_total", "Look-ups of the public access firewall.", "result"),
		reconcileDuration: histogram("firewall_reconcile_duration_seconds", "Time of reconciliations of the public access firewall.", long, "result", "error_type"),
		reconciles:        counter("firewall_reconciles_total", "Reconciliations of the public access firewall.", "result", "error_type"),
	}
	legacyregistry.MustRegister(m.operationDuration, m.operations, m.syncDuration, m.syncs, m.reconcileDuration, m.reconciles)
	return m
})

func (m *firewallMetrics) observeOperation(name string, began time.Time, err error) {
	result, code := "succeeded", "200"
	if name == "create" {
		code = "202"
	}
	if err != nil {
		result, code = "failed", "0"
		if e, ok := errors.AsType[*cloudapi.Error](err); ok {
			code = strconv.Itoa(e.Status)
		}
	}
	m.operationDuration.WithLabelValues(name, result, code).Observe(time.Since(began).Seconds())
	m.operations.WithLabelValues(name, result, code).Inc()
}

func (m *firewallMetrics) observeSync(began time.Time, err error) {
	result := "updated"
	switch {
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		result = "canceled"
	case err != nil:
		result = "failed"
	}
	m.syncDuration.WithLabelValues(result).Observe(time.Since(began).Seconds())
	m.syncs.WithLabelValues(result).Inc()
}

func (m *firewallMetrics) observeReconcile(began time.Time, changed bool, err error) {
	result, kind := "skipped", ""
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		result, kind = "failed", "timeout"
	case err != nil:
		result, kind = "failed", "generic"
	case changed:
		result = "reconciled"
	}
	m.reconcileDuration.WithLabelValues(result, kind).Observe(time.Since(began).Seconds())
	m.reconciles.WithLabelValues(result, kind).Inc()
}
