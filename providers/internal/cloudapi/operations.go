package cloudapi

import (
	"net/http"
	"sync"
)

const (
	// maxOperations is more than any provider has calls. What comes after are names with something of a user's in them.
	maxOperations = 150
	// maxOperationName bounds one name.
	maxOperationName = 120
	// otherOperation stands for them all.
	otherOperation = "other"
)

// bounded keeps names of operations from growing with input: each is a label of metrics, which live as long as the process.
func bounded(name func(*http.Request) string) func(*http.Request) string {
	var mu sync.Mutex
	known := map[string]struct{}{}
	return func(r *http.Request) string {
		text := name(r)
		mu.Lock()
		defer mu.Unlock()
		if _, ok := known[text]; ok {
			return text
		}
		if len(known) >= maxOperations || len(text) > maxOperationName {
			return otherOperation
		}
		known[text] = struct{}{}
		return text
	}
}
