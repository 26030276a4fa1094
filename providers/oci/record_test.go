package oci

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
)

// inOtherCompartment tries both kinds of load balancers with a Service that names another compartment, and is stored.
func inOtherCompartment(t *testing.T, test func(w *testWorld, s *v1.Service, nodes []*v1.Node, events *record.FakeRecorder)) {
	t.Helper()
	t.Parallel()
	for kind, annotations := range map[string]map[string]string{typeBalancer: byHand(), typeNLB: ofNetwork()} {
		t.Run(kind, func(t *testing.T) {
			marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, events *record.FakeRecorder) {
				w.sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = otherCompartment })
				annotations[annotationCompartment] = otherCompartment
				s := conformance.Service("web", annotations, web())
				s, err := w.kube.CoreV1().Services(s.Namespace).Create(w.Context(), s, metav1.CreateOptions{})
				require.NoError(w, err)
				w.serving(s)
				test(w, s, nodes, events)
			})
		})
	}
}

// stored is a Service as the API server has it.
func (w *testWorld) stored(s *v1.Service) *v1.Service {
	w.Helper()
	s, err := w.kube.CoreV1().Services(s.Namespace).Get(w.Context(), s.Name, metav1.GetOptions{})
	require.NoError(w, err)
	return s
}

// TestCompartmentOfBefore: a load balancer of ours is found in the compartment where it was made, whatever its Service asks for when the
// next process starts; none is made beside it, and it is deleted with the Service.
func TestCompartmentOfBefore(t *testing.T) {
	inOtherCompartment(t, func(w *testWorld, s *v1.Service, nodes []*v1.Node, events *record.FakeRecorder) {
		status := w.requireServed(s, nodes)
		s = w.stored(s)
		assert.Equal(w, otherCompartment, s.Annotations[annotationPlaced])
		s.Status.LoadBalancer = *status
		delete(s.Annotations, annotationCompartment)
		w.start()
		w.cloud.loadBalancers.setEvents(events)
		w.serving(s)
		time.Sleep(time.Hour)
		w.Server.ResetCalls()
		assert.Equal(w, status, w.requireServed(s, nodes))
		assert.Empty(w, w.writes())
		assert.Len(w, w.sim.Holdings(), 1)
		w.deleted(s)
		assert.Empty(w, w.sim.Holdings())
	})
}

// TestCompartmentUnknown: a Service that was served, and of which nothing is in the compartment that it names, may have named another one:
// no second load balancer is made until somebody says so. One that this process has seen, and that is gone, is made again.
func TestCompartmentUnknown(t *testing.T) {
	inOtherCompartment(t, func(w *testWorld, s *v1.Service, nodes []*v1.Node, events *record.FakeRecorder) {
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		_, err := w.ensure(s, nodes)
		require.ErrorContains(w, err, "the Service shows 192.0.2.1, and no load balancer with its name is in compartment "+otherCompartment)
		assert.Contains(w, <-events.Events, eventConfigError)
		assert.Empty(w, w.sim.Holdings())

		s.Annotations[annotationPlaced] = otherCompartment
		w.serving(s)
		s.Status.LoadBalancer = *w.requireServed(s, nodes)
		assert.Len(w, w.sim.Holdings(), 1)
		delete(s.Annotations, annotationPlaced)
		w.serving(s)
		time.Sleep(time.Minute)
		w.sim.RemoveLoadBalancers()
		w.sim.RemoveNetworkLoadBalancers()
		time.Sleep(time.Minute)
		w.requireServed(s, nodes)
		assert.Len(w, w.sim.Holdings(), 1)
	})
}

// TestRecordOfPlaces: what the record says, by where a load balancer is.
func TestRecordOfPlaces(t *testing.T) {
	t.Parallel()
	at := func(compartment string, ours bool) *loadBalancer {
		lb := &loadBalancer{Compartment: compartment, Tags: map[string]string{}}
		if ours {
			lb.Tags[tagCluster] = "a"
		}
		return lb
	}
	for name, c := range map[string]struct {
		lb                *loadBalancer
		compartment, asks string
		want              string
	}{
		"to be made where the cloud config says":       {nil, "home", "home", ""},
		"to be made elsewhere":                         {nil, "other", "other", "other"},
		"ours, where the cloud config says":            {at("home", true), "home", "home", ""},
		"ours, elsewhere":                              {at("other", true), "other", "other", "other"},
		"of Oracle's own controller, elsewhere":        {at("other", false), "other", "other", ""},
		"of Oracle's own controller, no longer asked":  {at("other", false), "other", "home", "other"},
		"at home, and the Service asks for another":    {at("home", true), "home", "other", "home"},
		"between two others":                           {at("other", false), "other", "third", "other"},
		"whose compartment the cloud does not say yet": {at("", true), "", "home", ""},
	} {
		assert.Equal(t, c.want, placement{compartment: c.compartment, asked: c.asks, configured: "home", mark: "a"}.record(c.lb), name)
	}
	p := placement{compartment: "other", asked: "other", configured: "home", recorded: "other", mark: "a"}
	assert.Equal(t, "other", p.record(at("other", false)), "made without a mark, and recorded before that")
}

// TestUnreadableCompartmentHoldsUpNoOtherService: a Service that names a compartment which the user may not read holds up no other Service.
func TestUnreadableCompartmentHoldsUpNoOtherService(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		hostile := other(byHand(annotationCompartment, "ocid1.compartment.oc1..nobodys"), web())
		for round, annotations := range []map[string]string{
			{}, ofNetwork(), {annotationRuleMode: modeGroups, annotationBackGroups: ocisim.GroupID(1)},
		} {
			s := conformance.Service("web", annotations, web())
			w.serving(s, hostile)
			w.requireServed(s, nodes)
			time.Sleep(time.Minute)
			w.deleted(s)
			_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.Context(), "kubernetes", s)
			require.NoError(w, err, round)
			assert.False(w, exists)
			assert.Empty(w, w.sim.LoadBalancers())
			assert.Empty(w, w.sim.NetworkLoadBalancers())
			assert.Empty(w, w.managed())
		}
		_, err := w.ensure(hostile, nodes)
		require.Error(w, err)
		w.deleted(hostile) // it never had one
		hostile.Annotations[annotationCompartment] = ocisim.Compartment
		w.requireServed(hostile, nodes)
	})
}

// TestCompartmentChanges: a load balancer is not lost from sight when its Service names another compartment, or none any more.
func TestCompartmentChanges(t *testing.T) {
	const compartment = "ocid1.compartment.oc1..aaaaother"
	for name, annotations := range map[string]map[string]string{typeBalancer: byHand(), typeNLB: ofNetwork()} {
		t.Run(name, func(t *testing.T) {
			balancing(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
				w.sim.Add("elsewhere", func(i *ocisim.Instance) { i.Compartment = compartment })
				annotations[annotationCompartment] = compartment
				s := conformance.Service("web", annotations, web())
				_, err := w.kube.CoreV1().Services(s.Namespace).Create(w.Context(), s, metav1.CreateOptions{})
				require.NoError(w, err)
				w.serving(s)
				status := w.requireServed(s, nodes)
				s = s.DeepCopy()
				delete(s.Annotations, annotationCompartment)
				w.serving(s)
				time.Sleep(time.Hour)
				assert.Equal(w, status, w.requireServed(s, nodes), "it stays where it is")
				assert.Len(w, w.sim.Holdings(), 1)
				time.Sleep(time.Hour)
				w.deleted(s)
				assert.Empty(w, w.sim.Holdings())
			})
		})
	}
}
