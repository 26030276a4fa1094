package guard

import v1 "k8s.io/api/core/v1"

// ServiceRetrier is implemented by clouds that notice when failed Services can succeed, and request an immediate retry.
type ServiceRetrier interface {
	// SetServiceRetry sets the function that retries the Services which satisfy a condition.
	SetServiceRetry(retry func(waits func(*v1.Service) bool))
}

// SetServiceRetry passes it to the cloud, and reports whether the cloud uses it.
func (c *Cloud) SetServiceRetry(retry func(waits func(*v1.Service) bool)) bool {
	retrier, ok := c.inner.(ServiceRetrier)
	if ok {
		retrier.SetServiceRetry(retry)
	}
	return ok
}
