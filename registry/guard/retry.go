package guard

import (
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// SetServiceRetry passes it to the cloud, and reports whether the cloud uses it.
func (c *Cloud) SetServiceRetry(retry func(waits func(*v1.Service) bool)) bool {
	retrier, ok := c.inner.(contract.ServiceRetrier)
	if ok {
		retrier.SetServiceRetry(retry)
	}
	return ok
}
