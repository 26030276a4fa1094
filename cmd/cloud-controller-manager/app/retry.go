package app

import (
	"strconv"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	frameworkapp "k8s.io/cloud-provider/app"
	"k8s.io/cloud-provider/app/config"

	"github.com/anyccm/cloud-controller-manager/registry/views"
)

// retried is an annotation that counts repetitions, so that a Service appears changed to the framework.
const retried = "anyccm.io/service-retry"

// withRetry lets a cloud have Services reconciled again at once.
func withRetry(inner frameworkapp.ControllerInitFuncConstructor) frameworkapp.ControllerInitFuncConstructor {
	construct := inner.Constructor
	inner.Constructor = func(
		i frameworkapp.ControllerInitContext, c *config.CompletedConfig, cloud cloudprovider.Interface,
	) frameworkapp.InitFunc {
		a := &serviceNotifier{}
		setter, ok := cloud.(interface {
			SetServiceRetry(retry func(waits func(*v1.Service) bool)) bool
		})
		if !ok || !setter.SetServiceRetry(retry(a)) {
			return construct(i, c, cloud)
		}
		a.setLister(c.SharedInformers.Core().V1().Services().Lister())
		return construct(i, withInformers(c, views.Services(c.SharedInformers, a.watchServices())), cloud)
	}
	return inner
}

// retry returns a function that presents the selected Services to the framework again.
func retry(a *serviceNotifier) func(waits func(*v1.Service) bool) {
	var times atomic.Int64
	return func(waits func(*v1.Service) bool) {
		now := times.Add(1)
		a.notify(retried, func(s *v1.Service) (string, string, bool) {
			return strconv.FormatInt(now-1, 10), strconv.FormatInt(now, 10), waits(s)
		})
	}
}
