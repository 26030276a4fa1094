package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocisim"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// limitsElsewhere are the limits that no Service's life meets, with the test that does.
func limitsElsewhere() map[string]string {
	return map[string]string{
		ocilimits.GroupRules.String(): "TestNarrowingOfAFullGroup", ocilimits.Backends.String(): "TestLimitsOfWhatIsThere",
		ocilimits.ListName.String(): "TestLimitsOfWhatIsThere",
	}
}

// unlimited are the texts and lists that have no limit.
func unlimited() map[string]string {
	const unbounded = "Oracle's API reference bounds it nowhere"
	return map[string]string{
		"*urlPath": unbounded, "*responseBodyRegex": unbounded, "*ruleSetNames": unbounded, "*items[].header": unbounded, "*items[].value": unbounded,
	}
}

// TestManyPorts: more ports than an account may have at first are a warning, because the account may have been given more.
func TestManyPorts(t *testing.T) {
	t.Parallel()
	for most, annotations := range map[int]map[string]string{ocilimits.Listeners.Max: nil, ocilimits.NetworkListeners.Max: ofNetwork()} {
		s := conformance.Service("web", annotations)
		for n := range most + 1 {
			s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Name: fmt.Sprint("p", n), Port: int32(8000 + n), NodePort: int32(30000 + n)})
		}
		parse := map[bool]func() (settings, error, error){
			false: func() (settings, error, error) { return parseSettings(s, "") }, true: func() (settings, error, error) { return parseNLB(s) },
		}[annotations != nil]
		_, warnings, err := parse()
		require.NoError(t, err)
		require.ErrorContains(t, warnings, fmt.Sprintf("load balancer would have %d listeners, and the cloud takes at most %d unless it was raised", most+1, most))
		s.Spec.Ports = s.Spec.Ports[:most]
		_, warnings, err = parse()
		require.NoError(t, errors.Join(warnings, err))
	}
}

// TestLimitsOfWhatIsThere: the simulated cloud counts what a load balancer has already.
func TestLimitsOfWhatIsThere(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		other := conformance.Service("network", ofNetwork(), web())
		other.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
		for _, s := range []*v1.Service{conformance.Service("web", nil, web()), other} {
			w.serving(s)
			w.requireServed(s, nodes)
		}
		ofBalancer, ofNetwork := "/20170115/loadBalancers/"+w.balancer().ID, "/20200501/networkLoadBalancers/"+w.nlb().ID
		post := func(path string, d document) *httptest.ResponseRecorder {
			time.Sleep(time.Minute) // no other change is under way
			return w.call(http.MethodPost, path, d)
		}
		set := func(name string, backends int) document {
			var all []document
			for i := range backends {
				all = append(all, document{"ipAddress": fmt.Sprintf("10.1.%d.%d", i>>8, i&0xff), "port": 80})
			}
			return document{"name": name, "policy": "ROUND_ROBIN", "healthChecker": document{"protocol": "TCP", "port": 80}, "backends": all}
		}
		full := func(l limits.Limit, have int, add func(n int) *httptest.ResponseRecorder) {
			for n := have + 1; n <= l.Max; n++ {
				answer := add(n)
				require.Less(w, answer.Code, http.StatusBadRequest, "%s: %s", l, answer.Body)
			}
			answer := add(l.Max + 1)
			assert.Equal(w, l.String(), answer.Header().Get(simkit.LimitHeader), "%s", answer.Body)
			assert.Equal(w, http.StatusBadRequest, answer.Code)
		}
		listener := func(path, name string, n int) *httptest.ResponseRecorder {
			return post(path+"/listeners", document{"name": fmt.Sprint("more-", n), "defaultBackendSetName": name, "port": 8000 + n, "protocol": "TCP"})
		}
		full(ocilimits.Listeners, 1, func(n int) *httptest.ResponseRecorder { return listener(ofBalancer, "TCP-80", n) })
		post(ofBalancer+"/backendSets", set("half", 512))
		post(ofBalancer+"/backendSets", set("rest", 500))
		conformance.TryLimit(w.T, ocilimits.Backends, func(n int) *httptest.ResponseRecorder {
			return post(ofBalancer+"/backendSets", set("last", n-1013)) // the Service has one
		})
		full(ocilimits.BackendSets, 4, func(n int) *httptest.ResponseRecorder {
			return post(ofBalancer+"/backendSets", set(fmt.Sprint("set-", n), 0))
		})
		full(ocilimits.NetworkListeners, 1, func(n int) *httptest.ResponseRecorder {
			name := fmt.Sprint("more-", n)
			created := document{"name": name, "policy": "FIVE_TUPLE", "healthChecker": document{"protocol": "TCP", "port": 80}}
			require.Less(w, post(ofNetwork+"/backendSets", created).Code, http.StatusBadRequest)
			return listener(ofNetwork, name, n)
		})
		conformance.TryLimit(w.T, ocilimits.ListName, func(n int) *httptest.ResponseRecorder {
			return w.call(http.MethodPut, "/20160918/securityLists/"+ocisim.BalancerList, document{"displayName": strings.Repeat("x", n)})
		})
	})
}

// TestMoreNodesThanASetTakes: those that a backend set has keep their places, the others wait for one, and an event says so. No write is
// refused. A load balancer that would have more backends in all than accounts may have at first is tried, and told with the number.
func TestMoreNodesThanASetTakes(t *testing.T) {
	t.Parallel()
	const most = 512
	for selector, annotations := range map[string]map[string]string{annotationSelector: nil, nlbSelector: ofNetwork()} {
		t.Run(selector, func(t *testing.T) {
			inWorld(t, func(w *testWorld) {
				for n := range most + 2 {
					w.joinAt(fmt.Sprint("n", n), fmt.Sprintf("10.0.%d.%d", 1+n>>8, n&0xff))
				}
				w.start()
				events := record.NewFakeRecorder(100)
				w.cloud.loadBalancers.setEvents(events)
				s := conformance.Service("web", annotations, web())
				address := func(n int) string { return w.Nodes[n].Status.Addresses[0].Address }
				w.requireServed(s, w.Nodes[1:][:most])
				require.Len(w, w.backends(), most)
				assert.Empty(w, events.Events)
				w.Server.ResetCalls()
				w.requireServed(s, w.Nodes)
				assert.Empty(w, w.writes(), "it is full")
				assert.Contains(w, <-events.Events, "LoadBalancerMembersLimited a backend set takes 512 backends at most, so that 2 nodes receive no traffic; choose nodes by "+selector)
				require.NoError(w, w.cloud.loadBalancers.UpdateLoadBalancer(w.Context(), "kubernetes", s, append(w.Nodes[2:], w.Nodes[0])))
				assert.Len(w, w.writes(), 1)
				have := w.backends()
				assert.Len(w, have, most)
				assert.Contains(w, have, address(0), "the first by address of those that waited")
				assert.NotContains(w, have, address(1), "it is no node any more")
				assert.NotContains(w, have, address(most+1))
				if annotations != nil {
					return
				}
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("more", 81, 30081))
				w.requireServed(s, w.Nodes)
				s.Spec.Ports = append(s.Spec.Ports, conformance.Port("most", 82, 30082))
				const told = "ask the cloud for a higher limit or remove what is not used; " +
					"a load balancer would have 1536 backends, and the cloud takes at most 1024 unless it was raised for this account; each port of"
				_, err := w.ensure(s, w.Nodes)
				require.ErrorContains(w, err, told)
				other := s.DeepCopy()
				other.Name, other.UID = "other", "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
				_, err = w.ensure(other, w.Nodes)
				require.ErrorContains(w, err, told)
			})
		})
	}
}

// TestFullListHoldsUpNoOtherEdit: of edits that are joined into one write, one with more rules than a list takes is refused alone, and the
// cloud is not asked for it.
func TestFullListHoldsUpNoOtherEdit(t *testing.T) {
	marking(t, []string{"a"}, func(w *testWorld, _ []*v1.Node, _ *record.FakeRecorder) {
		book := w.cloud.loadBalancers.lists
		add := func(first, n int) error {
			edit := func(_ context.Context, l securityList) (securityList, error) {
				l.doc = maps.Clone(l.doc)
				for port := range n {
					rule := opening{false, numberTCP, first + port, everybody}.rule("")
					l.doc[ingressField] = append(slices.Clone(fieldOf[[]any](l.doc, ingressField)), rule)
				}
				return l, nil
			}
			_, err := book.writer.Submit(w.Context(), book.target(ocisim.BalancerList), edit)
			return err
		}
		writes := w.Server.Calls().ByOperation[putList]
		var large, small error
		var both sync.WaitGroup
		both.Go(func() { large = add(20000, ocilimits.IngressRules.Max) })
		both.Go(func() { small = add(30000, 1) })
		both.Wait()
		require.ErrorContains(w, large, "ingress rules, and the cloud takes at most 200")
		require.NoError(w, small)
		assert.Equal(w, writes+1, w.Server.Calls().ByOperation[putList])
	})
}

// TestTagsBeyondTheLimits: tags that Oracle would refuse are refused before a load balancer is made. One that exists is served on, and the
// mark of the cluster is left out where it would be one too many.
func TestTagsBeyondTheLimits(t *testing.T) {
	tagsOf := func(n, key, value int) string {
		all := map[string]string{}
		for i := range n {
			all[fmt.Sprint(strings.Repeat("k", key-1), i)] = strings.Repeat("v", value)
		}
		text, err := json.Marshal(all)
		require.NoError(t, err)
		return string(text)
	}
	excess := map[string]string{
		tagsOf(11, 99, 1): "would have 11 free-form tags, and the cloud takes at most 10", tagsOf(1, 101, 1): "would have 101 characters",
		tagsOf(1, 1, 257): "would have 257 characters",
	}
	for text, want := range excess {
		_, warnings, err := judged(whole(t) + `tags: {loadBalancer: {freeform: ` + text + `}}`)
		require.NoError(t, err, "the program starts: other things are served")
		require.ErrorContains(t, warnings, want)
	}
	marking(t, []string{"a"}, func(w *testWorld, nodes []*v1.Node, _ *record.FakeRecorder) {
		s := conformance.Service("web", map[string]string{}, web())
		w.serving(s)
		for text, want := range excess {
			w.Server.ResetCalls()
			s.Annotations[annotationFreeform] = text
			_, err := w.ensure(s, nodes)
			require.ErrorContains(w, err, want)
			assert.Zero(w, w.Server.Calls().Writes)
			_, err = checkService(registry.Inputs{}, s)
			require.ErrorContains(w, err, want, "validate says so, too")
		}
		s.Annotations[annotationFreeform] = tagsOf(10, 100, 256)
		events := record.NewFakeRecorder(10)
		w.cloud.loadBalancers.setEvents(events)
		w.requireServed(s, nodes)
		assert.Contains(w, <-events.Events, eventUnmarked+" the load balancer is made without tag "+tagCluster)
		for _, text := range append(slices.Collect(maps.Keys(excess)), tagsOf(10, 100, 256)) {
			w.start()
			w.serving(s)
			w.Server.ResetCalls()
			s.Annotations[annotationFreeform] = text
			w.requireServed(s, nodes)
			assert.Zero(w, w.Server.Calls().Writes, "tags count when it is made")
		}
		w.deleted(s)
		assert.Empty(w, w.sim.LoadBalancers())
		assert.Empty(w, w.sim.SecurityRules(ocisim.BalancerList))
	})
}
