package inventory

import (
	"errors"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

var (
	answersTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "anyccm", Subsystem: "inventory", Name: "answers_total", StabilityLevel: metrics.ALPHA,
		Help: "Questions about cloud objects, by whether they were answered from memory or had to wait for the cloud.",
	}, []string{"kind", "from"})
	readsTotal = metrics.NewCounterVec(&metrics.CounterOpts{
		Namespace: "anyccm", Subsystem: "inventory", Name: "reads_total", StabilityLevel: metrics.ALPHA,
		Help: "Reads of cloud objects: whole listings and single objects, by result.",
	}, []string{"kind", "read", "result"})

	registerOnce sync.Once
)

// registerMetrics creates the series of a kind, at 0.
func registerMetrics(kind string) {
	registerOnce.Do(func() { legacyregistry.MustRegister(answersTotal, readsTotal) })
	for _, from := range []string{"cloud", "memory"} {
		answersTotal.WithLabelValues(cloudapi.Label(kind), from).Add(0)
	}
	for _, read := range []string{"list", "get"} {
		for _, result := range []string{"success", "not_found", "error"} {
			readsTotal.WithLabelValues(cloudapi.Label(kind), read, result).Add(0)
		}
	}
}

func countAnswer(kind string, fromMemory bool) {
	from := "cloud"
	if fromMemory {
		from = "memory"
	}
	answersTotal.WithLabelValues(cloudapi.Label(kind), from).Inc()
}

func countRead(kind, read string, err error) {
	result := "success"
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		result = "not_found"
	case err != nil:
		result = "error"
	}
	readsTotal.WithLabelValues(cloudapi.Label(kind), read, result).Inc()
}
