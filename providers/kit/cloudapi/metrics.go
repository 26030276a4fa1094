package cloudapi

import (
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
)

const namespace = "anyccm"

// meters are the metrics of calls. They count after they are registered.
type meters struct {
	requestsTotal, retriesTotal                                     *metrics.CounterVec
	requestDuration, limiterWait                                    *metrics.HistogramVec
	requestsInFlight, budgetRemaining, budgetLimit, up, lastSuccess *metrics.GaugeVec
}

func newMeters() *meters {
	return &meters{
		requestsTotal: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "requests_total", StabilityLevel: metrics.ALPHA,
			Help: "Calls to the cloud's API by operation and HTTP code; code is empty where no answer came.",
		}, []string{"provider", "operation", "code"}),
		requestDuration: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "request_duration_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time from sending a call until its whole answer was read, each retry counted by itself.",
			Buckets: []float64{0.025, 0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 12.8, 25.6},
		}, []string{"provider", "operation"}),
		requestsInFlight: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "requests_in_flight", StabilityLevel: metrics.ALPHA,
			Help: "Calls to the cloud's API that wait for their answer.",
		}, []string{"provider"}),
		retriesTotal: metrics.NewCounterVec(&metrics.CounterOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "retries_total", StabilityLevel: metrics.ALPHA,
			Help: "Calls that were sent again after a failure.",
		}, []string{"provider", "operation"}),
		limiterWait: metrics.NewHistogramVec(&metrics.HistogramOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "limiter_wait_seconds", StabilityLevel: metrics.ALPHA,
			Help:    "Time that a call was held back by the client-side limit or by a pause that the cloud asked for.",
			Buckets: []float64{0.001, 0.01, 0.1, 0.5, 1, 2, 5, 10, 30},
		}, []string{"provider"}),
		budgetRemaining: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "rate_limit_remaining", StabilityLevel: metrics.ALPHA,
			Help: "Calls left in the cloud's rate limit, as its last answer said.",
		}, []string{"provider"}),
		budgetLimit: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "rate_limit", StabilityLevel: metrics.ALPHA,
			Help: "Calls that the cloud's rate limit allows, as its last answer said.",
		}, []string{"provider"}),
		up: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "up", StabilityLevel: metrics.ALPHA,
			Help: "1 if the last call got a useful answer, 0 if the API failed, was unreachable or refused the credential.",
		}, []string{"provider"}),
		lastSuccess: metrics.NewGaugeVec(&metrics.GaugeOpts{
			Namespace: namespace, Subsystem: "cloud_api", Name: "last_success_timestamp_seconds", StabilityLevel: metrics.ALPHA,
			Help: "When the last useful answer came, in seconds since 1970; 0 before the first one.",
		}, []string{"provider"}),
	}
}

// programMeters are the metrics that the program shows. They are registered when the first client is made, so that a program that only
// prints its version has none.
var programMeters = sync.OnceValue(func() *meters {
	m := newMeters()
	m.register(legacyregistry.MustRegister)
	return m
})

func (m *meters) register(mustRegister func(...metrics.Registerable)) {
	mustRegister(m.requestsTotal, m.requestDuration, m.requestsInFlight, m.retriesTotal, m.limiterWait,
		m.budgetRemaining, m.budgetLimit, m.up, m.lastSuccess)
}

// show creates the series that have no label but the provider, at 0: an increase is invisible if the series first appears with it.
func (m *meters) show(provider string) {
	m.requestsInFlight.WithLabelValues(provider).Add(0)
	m.limiterWait.WithLabelValues(provider)
	m.lastSuccess.WithLabelValues(provider).Add(0)
}

// Label turns a text into a label's value: without blanks, which every query would have to quote.
func Label(text string) string { return strings.ReplaceAll(text, " ", "_") }
