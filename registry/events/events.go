// Package events writes events on Kubernetes objects for the guard and for providers.
package events

import (
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// perReason is how many events of one reason client-go writes on an object at once, before it writes one in five minutes.
const perReason = 25

// NewRecorder returns a recorder that writes as the component until stop is closed. client-go limits the events of each reason by
// themselves, and puts none of them together, so that none hides another one.
func NewRecorder(client kubernetes.Interface, component string, stop <-chan struct{}) record.EventRecorder {
	broadcaster := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{
		BurstSize: perReason, MaxEvents: perReason,
		SpamKeyFunc: func(e *v1.Event) string {
			o := e.InvolvedObject
			return strings.Join([]string{o.Kind, o.Namespace, o.Name, string(o.UID), e.Type, e.Reason}, " ")
		},
	}))
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	rescue.Go("writing events", func() {
		<-stop
		broadcaster.Shutdown()
	})
	return TellOnce(broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component}))
}
