// Package events writes events on Kubernetes objects for the guard and for providers.
package events

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedv1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// NewRecorder returns a recorder that writes as the component until stop is closed.
func NewRecorder(client kubernetes.Interface, component string, stop <-chan struct{}) record.EventRecorder {
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedv1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	rescue.Go("writing events", func() {
		<-stop
		broadcaster.Shutdown()
	})
	return broadcaster.NewRecorder(scheme.Scheme, v1.EventSource{Component: component})
}
