package cloudapi

import (
	"net/http"
	"sync"
)

const (
	// maxOperations is more than the number of calls of any provider. Further names must contain user input.
	maxOperations = 150
	// maxOperationName bounds one name.
	maxOperationName = 120
)

// OtherOperation stands for unknown calls. Each provider has a fixed list of its calls, so that no label of a metric contains text from a
// Service or a Node.
const OtherOperation = "other"

// boundNames limits the number of operation names as a second safeguard after the providers' lists, because each is a label of metrics,
// which are kept as long as the process runs.
func boundNames(name func(*http.Request) string) func(*http.Request) string {
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
			return OtherOperation
		}
		known[text] = struct{}{}
		return text
	}
}
