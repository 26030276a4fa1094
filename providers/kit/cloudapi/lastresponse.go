package cloudapi

import (
	"context"
	"net/http"
	"sync"
)

// LastResponse keeps the last response to the calls of a context. Some SDKs return only the text of an error, without its class and the
// time to wait.
type LastResponse struct {
	mu        sync.Mutex
	operation string
	answer    *Answer
	err       error
}

// Answer holds a response without its body.
type Answer struct {
	Status int
	Header http.Header
}

type lastResponseKey struct{}

// RecordLastResponse returns a context that records its calls' last response.
func RecordLastResponse(ctx context.Context) (context.Context, *LastResponse) {
	c := &LastResponse{}
	return context.WithValue(ctx, lastResponseKey{}, c), c
}

// Last returns the last response, or the last error of the transport; both are nil before any call.
func (c *LastResponse) Last() (*Answer, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.answer, c.err
}

// Operation names the last call.
func (c *LastResponse) Operation() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.operation
}

func recordLastResponse(ctx context.Context, operation string, response *http.Response, err error) {
	if c, ok := ctx.Value(lastResponseKey{}).(*LastResponse); ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.operation, c.answer, c.err = operation, nil, err
		if response != nil {
			c.answer = &Answer{Status: response.StatusCode, Header: response.Header}
		}
	}
}
