package events

import (
	"crypto/sha256"
	"encoding/json"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/client-go/tools/record"
)

const (
	// kept is how long the API server keeps an event, unless it is told otherwise.
	kept = time.Hour
	// maxTold bounds the memory of events.
	maxTold = 20000
)

// TellOnce returns a recorder that writes lasting events about a Service once, however often the Service is tried: again after a change of
// its annotations or spec, and when the API server has dropped the event.
func TellOnce(inner record.EventRecorder) record.EventRecorder {
	o := &once{EventRecorder: inner, lasting: map[string]bool{}, told: cache.NewLRUExpireCache(maxTold)}
	for _, row := range Table() {
		o.lasting[row.Reason] = row.Lasting
	}
	return o
}

type once struct {
	record.EventRecorder
	lasting map[string]bool
	// told has the content of a Service by the event.
	told *cache.LRUExpireCache
}

// Event implements record.EventRecorder.
func (o *once) Event(object runtime.Object, kind, reason, message string) {
	if s, is := object.(*v1.Service); is && o.lasting[reason] {
		text, _ := json.Marshal([]any{s.Annotations, s.Spec}) // always possible
		event := struct {
			uid             types.UID
			reason, message string
		}{s.UID, reason, message}
		content := sha256.Sum256(text)
		if before, known := o.told.Get(event); known && before == content {
			return
		}
		o.told.Add(event, content, kept)
	}
	o.EventRecorder.Event(object, kind, reason, message)
}
