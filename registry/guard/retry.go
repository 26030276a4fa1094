package guard

import v1 "k8s.io/api/core/v1"

// ServiceRetrier is implemented by clouds that learn that Services which failed can be served now, and ask for them to be tried again
// at once.
type ServiceRetrier interface {
	// SetServiceRetry gives what has the Services looked at for which a function is true.
	SetServiceRetry(retry func(waits func(*v1.Service) bool))
}

// SetServiceRetry hands it on, and reports whether the cloud makes use of it.
func (c *Cloud) SetServiceRetry(retry func(waits func(*v1.Service) bool)) bool {
	retrier, ok := c.inner.(ServiceRetrier)
	if ok {
		retrier.SetServiceRetry(retry)
	}
	return ok
}
