package events

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
)

const ignored, refused = "LoadBalancerAnnotationIgnored", "LoadBalancerConfigError"

func service(annotations map[string]string) *v1.Service {
	return &v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "1", Annotations: annotations}}
}

// TestTellOnce: what lasts is told once for a Service's content, and a failure each time.
func TestTellOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := record.NewFakeRecorder(100)
		r := TellOnce(inner)
		count := func(s *v1.Service, reason, message string) int {
			r.Event(s, v1.EventTypeWarning, reason, message)
			n := len(inner.Events)
			for range n {
				<-inner.Events
			}
			return n
		}
		s := service(map[string]string{"a": "b"})
		assert.Equal(t, 1, count(s, ignored, "one"))
		assert.Equal(t, 1, count(s, ignored, "two"), "each message")
		stored := s.DeepCopy()
		stored.ResourceVersion, stored.Status.LoadBalancer.Ingress = "7", []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		assert.Equal(t, 0, count(stored, ignored, "one"), "a status is no content")
		assert.Equal(t, 1, count(s, refused, "one"))
		assert.Equal(t, 1, count(s, refused, "one"), "a failure is told at each attempt")
		for range 2 {
			assert.Equal(t, 1, count(s, "LoadBalancerSourceRangesIgnored", "one"), "the cloud may have changed meanwhile")
		}
		assert.Equal(t, 1, count(service(map[string]string{"a": "c"}), ignored, "one"), "another content")
		other := s.DeepCopy()
		other.UID = "2"
		assert.Equal(t, 1, count(other, ignored, "one"), "another Service of the same name")
		assert.Equal(t, 0, count(other, ignored, "one"))
		time.Sleep(kept + time.Second)
		assert.Equal(t, 1, count(other, ignored, "one"), "the API server has dropped the event")
		node := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}
		r.Event(node, v1.EventTypeWarning, ignored, "one")
		r.Event(node, v1.EventTypeWarning, ignored, "one")
		assert.Len(t, inner.Events, 2, "of Services alone")
	})
}

// TestNoReasonHidesAnother: a Service that is refused for hours, with annotations without effect, still gets the event of another failure.
func TestNoReasonHidesAnother(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kube, stop := fake.NewClientset(), make(chan struct{})
		r, s := NewRecorder(kube, "test", stop), service(nil)
		for range 60 {
			for i := range 15 {
				r.Event(s, v1.EventTypeWarning, ignored, fmt.Sprintf("annotation %d", i))
			}
			r.Event(s, v1.EventTypeWarning, refused, "why")
			time.Sleep(9 * time.Second) // in the end client-go has no event left that it would write
		}
		r.Event(s, v1.EventTypeWarning, "LoadBalancerNotOurs", "another failure")
		synctest.Wait()
		created := map[string]int{}
		for _, a := range kube.Actions() {
			if create, is := a.(clienttesting.CreateAction); is {
				event, _ := create.GetObject().(*v1.Event)
				created[event.Reason]++
			} else {
				assert.NotContains(t, string(a.(clienttesting.PatchAction).GetPatch()), "annotation", "a repetition")
			}
		}
		assert.Equal(t, map[string]int{ignored: 15, refused: 1, "LoadBalancerNotOurs": 1}, created)
		close(stop)
		synctest.Wait()
	})
}
