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
)

// OtherOperation names what is no call of a provider's. Each provider has a fixed list of its calls, so that no label of a metric
// holds anything that somebody wrote into a Service or a Node.
const OtherOperation = "other"

// bounded is the second line behind the lists of the providers: names of operations do not grow without end, because each is a label of
// metrics, which live as long as the process.
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
			return OtherOperation
		}
		known[text] = struct{}{}
		return text
	}
}
