package digitalocean

import (
	"encoding/json"
	"errors"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// TestMarks: a new load balancer carries the marks of cluster and Service; one that DigitalOcean's own controller made gets
// them with the first change.
func TestMarks(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, shown := w.ensure(s)
	marks := slices.Concat([]string{"k8s:c1"}, ownership.ServiceMarks(s), []string{"anyccm:test-cluster"})
	assert.Equal(t, marks, w.sim.LoadBalancers()[0].Tags)

	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Tags = nil })
	s = w.SetStatus(s, shown)
	w.restart()
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "a takeover writes nothing")
	s = s.DeepCopy()
	s.Annotations[annotationName] = "front"
	w.Apply(s)
	s, _ = w.ensure(s)
	assert.Subset(t, w.sim.LoadBalancers()[0].Tags, marks[1:], "it is known by more than its name from now on")
	w.restart()
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.Empty(t, w.sim.LoadBalancers())
}

// TestPreviousLoadBalancer: the one that served a Service before its annotation moved to another one is deleted.
func TestPreviousLoadBalancer(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	w.loadBalancers.owners.adopt = "any"
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	first, other := s.Annotations[annotationID], byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)
	s = s.DeepCopy()
	s.Annotations[annotationID] = other
	w.Apply(s)
	s, _ = w.ensure(s)
	all := w.sim.LoadBalancers()
	require.Len(t, all, 1)
	assert.Equal(t, other, all[0].ID)
	assert.NotEqual(t, first, other)
	assert.Equal(t, "by-hand", all[0].Name, "it gets no name by which it would pass for a controller's")
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.Len(t, w.sim.LoadBalancers(), 1, "a user's load balancer stays")
	assert.Contains(t, strings.Join(w.Events(), "\n"), contract.EventLoadBalancerRetained)
}

// TestPreviousIsKept: the annotations that keep a load balancer keep the one that served before, too.
func TestPreviousIsKept(t *testing.T) {
	t.Parallel()
	for _, annotation := range []string{contract.AnnotationRetain, contract.AnnotationProtect} {
		w := lbWorld(t)
		w.loadBalancers.owners.adopt = "any"
		s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
		w.Apply(s)
		s, _ = w.ensure(s)
		first := s.Annotations[annotationID]
		s = s.DeepCopy()
		s.Annotations[annotationID] = byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)
		s.Annotations[annotation] = "true"
		w.Apply(s)
		w.ensure(s)
		all := w.sim.LoadBalancers()
		require.Len(t, all, 2, annotation)
		assert.Equal(t, first, all[0].ID)
	}
}

// TestUsersLoadBalancerKeepsItsName: under the Service's own name it would pass for a controller's, and be deleted with the
// Service, also where an annotation asks for that name.
func TestUsersLoadBalancerKeepsItsName(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		w := lbWorld(t)
		w.loadBalancers.owners.adopt = "any"
		s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
		s.Annotations = map[string]string{annotationID: byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)}
		if asked {
			s.Annotations[annotationName] = defaultName(s)
		}
		w.Apply(s)
		s, _ = w.ensure(s)
		w.restart()
		w.loadBalancers.owners.adopt = "any"
		s, _ = w.ensure(s)
		require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
		all := w.sim.LoadBalancers()
		require.Len(t, all, 1)
		assert.Equal(t, "by-hand", all[0].Name)
	}
}

// TestUnprovenStaysWithAnEvent: what only the status gave to a Service stays when the Service changes its type, by which the API server
// clears the status, and an event says so.
func TestUnprovenStaysWithAnEvent(t *testing.T) {
	t.Parallel()
	for name, chosen := range map[string]map[string]string{"": {}, "a chosen name that nothing has": {annotationName: "chosen"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			s := aged(service("", chosen, port("http", 80, 30080)), "web", 1)
			id := byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)
			metav1.SetMetaDataAnnotation(&s.ObjectMeta, annotationID, id)
			s.Spec.Type = v1.ServiceTypeClusterIP
			w.Apply(s)
			_, exists, err := w.loadBalancers.GetLoadBalancer(t.Context(), "kubernetes", s)
			require.NoError(t, err)
			assert.True(t, exists, "its deletion is asked for")
			require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
			assert.Equal(t, []string{
				"Normal LoadBalancerRetained load balancer " + id + " stays in the cloud, for nothing shows that a controller made it; delete it there if it is not needed",
			}, w.Events())
			assert.Len(t, w.sim.LoadBalancers(), 1)
		})
	}
}

// adoptable is a Service of REGIONAL type, whose targets are node ports.
func adoptable(namespace string, n int, annotations map[string]string) *v1.Service {
	s := aged(service("", nil, port("http", 80, 30080)), "web", n)
	s.Namespace, s.Annotations = namespace, map[string]string{annotationType: typeRegional}
	maps.Copy(s.Annotations, annotations)
	return s
}

// TestRetainedLoadBalancer: who takes the freed node port of a Service has nothing of what it retained, unless the operator
// allows it. Then it serves that Service, and stays when that one goes, because its author wanted it kept and has it back.
func TestRetainedLoadBalancer(t *testing.T) {
	t.Parallel()
	for adopt, refused := range map[registry.Adoption]bool{registry.AdoptEvidence: true, registry.AdoptNone: true, registry.AdoptAny: false} {
		t.Run(string(adopt), func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			w.loadBalancers.owners.adopt = adopt
			first := adoptable("victims", 1, nil)
			w.Apply(first)
			first, _ = w.ensure(first)
			w.Withdraw(first)
			id := map[string]string{annotationID: first.Annotations[annotationID]}
			tenant := adoptable("tenant", 2, id)
			tenant.Spec.Ports[0].Port = 8080
			w.Apply(tenant)
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", tenant, w.nodes)
			_, isNotOurs := errors.AsType[*ownership.NotOursError](err)
			require.Equal(t, refused, isNotOurs, "%v", err)
			again := adoptable("victims", 3, id)
			if !refused {
				tenant, status := w.ensure(tenant)
				w.SetStatus(tenant, status)
				assert.Equal(t, 8080, w.sim.LoadBalancers()[0].ForwardingRules[0].EntryPort)
				w.Apply(again)
				_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", again, w.nodes)
				require.ErrorContains(t, err, "belongs to Service tenant/web", "a living Service shows it")
				w.restart()
				w.loadBalancers.owners.adopt = registry.AdoptEvidence // the operator allowed it for once
			}
			assert.Subset(t, w.sim.LoadBalancers()[0].Tags, ownership.ServiceMarks(first), "its marks stay, by which its author has it back")
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", w.Current(tenant)))
			require.Len(t, w.sim.LoadBalancers(), 1, "who wanted it kept has it kept")
			w.Apply(again)
			w.ensure(again)
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", w.Current(again)))
			assert.Empty(t, w.sim.LoadBalancers())
		})
	}
}

// TestAdoptedByTargets: a load balancer made by hand for the node ports of a Service serves it, and stays when the Service goes,
// also after its address came into the status. One port that is not the Service's is one too many, and a controller's name is
// another Service's.
func TestAdoptedByTargets(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change  func(*digitaloceansim.LoadBalancer)
		refused bool
	}{
		"its port": {func(*digitaloceansim.LoadBalancer) {}, false},
		"a port more": {func(lb *digitaloceansim.LoadBalancer) {
			more := lb.ForwardingRules[0]
			more.EntryPort, more.TargetPort = 81, 30081
			lb.ForwardingRules = append(lb.ForwardingRules, more)
		}, true},
		"a controller's name": {func(lb *digitaloceansim.LoadBalancer) { lb.Name = "a3c1f6b527a664b588b4b0a61c1f9e0a" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			id := byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)
			droplet, err := parseProviderID(w.nodes[0].Spec.ProviderID)
			require.NoError(t, err)
			w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) {
				lb.DropletIDs, lb.ForwardingRules[0].TargetPort = []int{droplet}, 30080
				c.change(lb)
			})
			s := adoptable("default", 1, map[string]string{annotationID: id})
			w.Apply(s)
			if c.refused {
				_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
				_, isNotOurs := errors.AsType[*ownership.NotOursError](err)
				require.True(t, isNotOurs, "%v", err)
				return
			}
			s, shown := w.ensure(s)
			s = w.SetStatus(s, shown)
			w.restart()
			s, _ = w.ensure(s)
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
			assert.Len(t, w.sim.LoadBalancers(), 1)
			assert.Contains(t, strings.Join(w.Events(), "\n"), contract.EventLoadBalancerRetained)
		})
	}
}

// TestTakenOverByChosenName: a load balancer that DigitalOcean's own controller made under the name that a Service chooses goes with the
// Service, also after our controller changed it. Each thing that speaks against it leaves it in the cloud, with an event.
func TestTakenOverByChosenName(t *testing.T) {
	t.Parallel()
	type left struct {
		lb             *digitaloceansim.LoadBalancer
		service, other *v1.Service
	}
	for name, c := range map[string]struct {
		change func(l *left)
		stays  bool
	}{
		"all of it":                      {func(*left) {}, false},
		"another name":                   {func(l *left) { l.lb.Name = "back" }, true},
		"a target that is no node":       {func(l *left) { l.lb.DropletIDs = append(l.lb.DropletIDs, 42) }, true},
		"older than the Service":         {func(l *left) { l.service.CreationTimestamp = metav1.NewTime(time.Now().Add(time.Hour)) }, true},
		"adopted when it was":            {func(l *left) { l.lb.Tags = []string{adoptedMark} }, true},
		"a mark of a retained one":       {func(l *left) { l.lb.Tags = []string{"anyccm:test-cluster", ownership.ServiceMark("gone")} }, true},
		"another Service records it":     {func(l *left) { l.other.Annotations[annotationID] = l.lb.ID }, true},
		"another Service has that name":  {func(l *left) { l.other.Annotations[annotationName] = "front" }, true},
		"another Service has other ones": {func(l *left) { l.other.Annotations[annotationName] = "side" }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := lbWorld(t)
			s, other := adoptable("default", 1, map[string]string{annotationName: "front"}), adoptable("tenant", 2, nil)
			w.Apply(s)
			s, shown := w.ensure(s)
			s = w.SetStatus(s, shown).DeepCopy()
			w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) {
				lb.Name, lb.Tags = "front", nil // as that controller leaves it
				c.change(&left{lb, s, other})
			})
			w.Apply(other)
			w.Apply(s)
			w.SetStatus(s, &s.Status.LoadBalancer)
			w.restart()
			w.Register(w.nodes[0])
			w.instances.nodes.SetLister(w.Nodes())
			require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", w.Current(s)))
			assert.Equal(t, c.stays, len(w.sim.LoadBalancers()) == 1, "what is not proved to be its own stays, and no more")
			assert.Equal(t, c.stays, strings.Contains(strings.Join(w.Events(), "\n"), contract.EventLoadBalancerRetained))
		})
	}
}

// TestAdoptedByName: a load balancer made by hand serves the Service that chooses its name, and stays when the Service goes, although then
// all is as with one that was taken over. Until it is tagged, it is not adopted.
func TestAdoptedByName(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	id := byHand(t, strings.TrimSuffix(w.env["DO_OVERRIDE_URL"], "/"), nil)
	droplet, err := parseProviderID(w.nodes[0].Spec.ProviderID)
	require.NoError(t, err)
	w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) {
		lb.Tag, lb.DropletIDs, lb.ForwardingRules[0].TargetPort = "", []int{droplet}, 30080
	})
	s := adoptable("default", 1, map[string]string{annotationName: "by-hand"})
	s.CreationTimestamp = metav1.NewTime(time.Now())
	w.Apply(s)
	for _, refused := range []string{"POST /v2/tags/{name}/resources", "PUT /v2/load_balancers/{id}"} {
		_, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusForbidden, Operation: refused, Count: 1})
		require.NoError(t, err)
		shown, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
		require.ErrorIs(t, err, cloudapi.ErrUnauthorized, refused)
		assert.Nil(t, shown)
	}
	s, shown := w.ensure(s)
	w.SetStatus(s, shown)
	w.restart()
	w.Register(w.nodes[0])
	w.instances.nodes.SetLister(w.Nodes())
	s, _ = w.ensure(w.Current(s))
	require.NoError(t, w.Remove(w.loadBalancers, "kubernetes", s))
	assert.Len(t, w.sim.LoadBalancers(), 1, "it was there before the Service asked for it")
}

// TestOrphanOfALivingService: each of what leads from a living Service to a load balancer keeps it from being an orphan.
func TestOrphanOfALivingService(t *testing.T) {
	t.Parallel()
	const other = "4de7ac8b-495b-4884-9a69-1050c6793cd6"
	for name, c := range map[string]struct {
		lb     func(*digitaloceansim.LoadBalancer)
		change func(*v1.Service)
		orphan bool
	}{
		"all of it":           {nil, func(*v1.Service) {}, false},
		"a moved ID":          {nil, func(s *v1.Service) { s.Annotations[annotationID] = other }, false},
		"no load balancer":    {nil, func(s *v1.Service) { s.Spec.Type, s.Status = v1.ServiceTypeClusterIP, v1.ServiceStatus{} }, false},
		"its name alone":      {stripped("a000000017a664b588b4b0a61c1f9e0a"), func(s *v1.Service) { s.Annotations[annotationID], s.Status = other, v1.ServiceStatus{} }, false},
		"its record alone":    {stripped("other"), func(s *v1.Service) { s.Status = v1.ServiceStatus{} }, false},
		"its address alone":   {stripped("other"), func(s *v1.Service) { s.Annotations[annotationID] = other }, false},
		"nothing leads there": {stripped("other"), func(s *v1.Service) { s.Annotations[annotationID], s.Status = other, v1.ServiceStatus{} }, true},
	} {
		hostnames := []string{"", "web.example.com"}
		if name == "its address alone" {
			hostnames = hostnames[:1] // a status that shows a name alone holds no address
		}
		for _, hostname := range hostnames {
			t.Run(name+" "+hostname, func(t *testing.T) {
				t.Parallel()
				w := lbWorld(t)
				s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
				if hostname != "" {
					s.Annotations[annotationHostname] = hostname
				}
				w.Apply(s)
				s, shown := w.ensure(s)
				id := s.Annotations[annotationID]
				s = w.SetStatus(s, shown).DeepCopy()
				orphan := contract.Orphan{Kind: "load balancer", ID: id, Name: defaultName(s)}
				if c.lb != nil {
					w.sim.ChangeLoadBalancer(id, c.lb)
				}
				c.change(s)
				w.Apply(s)
				w.restart()
				found, err := w.Orphans(t.Context(), []*v1.Service{s})
				require.NoError(t, err)
				assert.Equal(t, c.orphan, len(found) == 1)
				if !c.orphan {
					require.ErrorContains(t, w.DeleteOrphan(t.Context(), orphan), "is no longer an orphan")
				}
				assert.Len(t, w.sim.LoadBalancers(), 1)
			})
		}
	}
}

// stripped leaves a load balancer the mark of the cluster alone, and another name.
func stripped(name string) func(*digitaloceansim.LoadBalancer) {
	return func(lb *digitaloceansim.LoadBalancer) { lb.Name, lb.Tags = name, []string{"anyccm:test-cluster"} }
}

// TestOrphanIsLookedAtAgain: between the search and the deletion somebody may have given it away.
func TestOrphanIsLookedAtAgain(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	w.Withdraw(s)
	found, err := w.Orphans(t.Context(), nil)
	require.NoError(t, err)
	require.Len(t, found, 1)
	w.Apply(s)
	require.ErrorContains(t, w.DeleteOrphan(t.Context(), found[0]), "is no longer an orphan")
	w.Withdraw(s)
	require.ErrorContains(t, w.DeleteOrphan(t.Context(), found[0]), "is no longer an orphan", "the API server has it")
	require.NoError(t, w.Kube.CoreV1().Services(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{}))
	id := found[0].ID
	w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) { lb.Tags = []string{"anyccm:other"} })
	require.ErrorContains(t, w.DeleteOrphan(t.Context(), found[0]), "is no longer an orphan")
	w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) { lb.Tags = []string{"anyccm:test-cluster"} })
	require.NoError(t, w.DeleteOrphan(t.Context(), found[0]))
	assert.Empty(t, w.sim.LoadBalancers())
}

// TestDeletionLooksAgain: nothing is deleted on a picture from before.
func TestDeletionLooksAgain(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) { lb.Tags = []string{"anyccm:other"} })
	require.NoError(t, w.loadBalancers.EnsureLoadBalancerDeleted(t.Context(), "kubernetes", s))
	assert.Len(t, w.sim.LoadBalancers(), 1, "it was handed to another cluster meanwhile")
}

// TestIDsAreChecked: what is no UUID never becomes part of a request.
func TestIDsAreChecked(t *testing.T) {
	t.Parallel()
	for _, id := range []string{"../account", "..%2faccount", "x?y=z", "4de7ac8b-495b-4884-9a69-1050c6793cd6/droplets"} {
		for _, key := range []string{annotationID, annotationCertificateID} {
			w := lbWorld(t)
			s := aged(service("", map[string]string{key: id, annotationType: typeRegional}, port("http", 80, 30080)), "web", 1)
			w.Apply(s)
			w.server.ResetCalls()
			_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
			require.ErrorContains(t, err, "is not a UUID")
			assert.Zero(t, w.server.Calls().Total)
			_, _, err = w.loadBalancers.GetLoadBalancer(t.Context(), "kubernetes", s)
			require.NoError(t, err)
			assert.Equal(t, map[string]int{"GET /v2/load_balancers": 1}, w.server.Calls().ByOperation, "the names alone are looked for")
		}
	}
}

// TestOperations: no input makes the names of operations grow.
func TestOperations(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"/v2/droplets/17": "GET /v2/droplets/{id}", "/v2/load_balancers/x": "GET /v2/load_balancers/{id}", "/v2/load_balancers/../account": "GET /v2/account",
		"/v2/load_balancers/a/b/c": "GET other", "/v2/certificates/x": "GET other", "/": "GET other", "/v2/tags/k8s:c1/resources": "GET /v2/tags/{name}/resources",
	} {
		assert.Equal(t, want, operation(httptest.NewRequest(http.MethodGet, "http://api"+path, nil)), path)
	}
}

// TestNameOfAnother: no Service may take the name by which another one's load balancer is known.
func TestNameOfAnother(t *testing.T) {
	t.Parallel()
	s := aged(service("", map[string]string{annotationName: "a3c1f6b527a664b588b4b0a61c1f9e0a"}, port("http", 80, 30080)), "web", 1)
	_, err := validate(s, typeNetwork)
	require.ErrorContains(t, err, "has the form of names that other Services' load balancers get")
	s.Annotations[annotationName] = defaultName(s)
	_, err = validate(s, typeNetwork)
	require.NoError(t, err)
}

// TestVerifyInstance: the droplet has the Node's name.
func TestVerifyInstance(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	ok, _, err := w.VerifyInstance(t.Context(), w.nodes[0])
	require.NoError(t, err)
	assert.True(t, ok)
	for name, c := range map[string]struct{ name, id, why string }{
		"another's droplet": {"node-2", w.nodes[0].Spec.ProviderID, `is named "node-1"`},
		"no droplet":        {"node-1", providerIDPrefix + "999999999", "there is no droplet"}, "no ID": {"node-1", providerIDPrefix + "x", "provider ID"},
	} {
		ok, why, err := w.VerifyInstance(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name}, Spec: v1.NodeSpec{ProviderID: c.id}})
		require.NoError(t, err, name)
		assert.False(t, ok, name)
		assert.Contains(t, why, c.why, name)
	}
	_, err = w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable})
	require.NoError(t, err)
	w.restart()
	_, _, err = w.VerifyInstance(t.Context(), w.nodes[0])
	require.Error(t, err, "a failure is no verdict")
}

// TestHandover: a load balancer of a cluster that was restored with another identity gets the new marks.
func TestHandover(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	id := s.Annotations[annotationID]
	w.sim.ChangeLoadBalancer(id, func(lb *digitaloceansim.LoadBalancer) { lb.Tags = nil })
	for _, tag := range []string{"anyccm:before", "anyccm-svc:before"} {
		require.NoError(t, w.api.tag(t.Context(), tag, []string{id}))
	}
	w.restart()
	_, err := w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.ErrorContains(t, err, "belongs to another cluster")
	other, gone := service("other", nil, port("http", 80, 30081)), service("gone", map[string]string{annotationID: id}, port("http", 80, 30082))
	gone.Spec.Type = v1.ServiceTypeClusterIP
	marked, err := w.MarkedLoadBalancers(t.Context(), []*v1.Service{other, gone, s})
	require.NoError(t, err)
	require.Len(t, marked, 1)
	assert.Equal(
		t, contract.MarkedLoadBalancer{ID: id, Name: defaultName(s), Cluster: "before", ServiceUID: "before", Claims: []string{"default/web"}},
		marked[0],
	)
	require.NoError(t, w.api.tag(t.Context(), "anyccm:test-cluster", []string{id})) // one that broke off
	w.restart()
	again, err := w.MarkedLoadBalancers(t.Context(), []*v1.Service{s})
	require.NoError(t, err)
	require.Equal(t, marked, again)
	require.NoError(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID))
	assert.ElementsMatch(t, []string{"anyccm:test-cluster", ownership.ServiceMark(s.UID)}, w.sim.LoadBalancers()[0].Tags)
	require.ErrorContains(t, w.RemarkLoadBalancer(t.Context(), marked[0], s.UID), "carries other marks by now")
	w.ensure(s)
}

// TestFirewallFollowsTheLoadBalancer: an annotation that has no effect on a load balancer has none on its ports.
func TestFirewallFollowsTheLoadBalancer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]map[string]string{
		"network": {annotationNetwork: godo.LoadBalancerNetworkTypeInternal}, "type": {annotationType: typeRegional},
		"illegal": {annotationNetwork: "nowhere"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, f := firewallWorld(t)
			s := aged(service("", nil, port("http", 80, 30081)), "web", 2)
			w.Apply(s)
			s, _ = w.ensure(s)
			w.converge(f)
			open := w.inbound()
			require.NotEmpty(t, open)
			s = s.DeepCopy()
			maps.Copy(s.Annotations, change)
			w.Apply(s)
			w.converge(f)
			assert.Equal(t, open, w.inbound())
		})
	}
}

// TestFirewallLaggingListing: a load balancer that one listing lacks is not gone; only a read of it would prove that.
func TestFirewallLaggingListing(t *testing.T) {
	t.Parallel()
	var hidden atomic.Pointer[string]
	env := map[string]string{envFirewallName: "public-access", envFirewallTags: "worker, gpu"}
	w := newTestWorldBehind(t, env, func(server http.Handler, _ func() bool) http.Handler { return withoutListed(server, &hidden) })
	w.addNode(digitaloceansim.Spec{Name: "node-1", Tags: []string{"worker", "gpu"}})
	f := w.firewall()
	a, b := aged(service("", nil, port("http", 80, 30081)), "a", 1), aged(service("", nil, port("http", 81, 30082)), "b", 2)
	w.Apply(a)
	a, _ = w.ensure(a)
	w.converge(f)
	require.NoError(t, w.api.deleteLoadBalancer(t.Context(), a.Annotations[annotationID])) // by hand
	w.Apply(b)
	b, _ = w.ensure(b)
	id := b.Annotations[annotationID]
	hidden.Store(&id)
	w.converge(f)
	assert.Contains(t, w.inbound(), "tcp 10256 "+id)
	assert.NotContains(t, strings.Join(w.inbound(), " "), a.Annotations[annotationID], "this one is really gone")
}

// withoutListed leaves a load balancer out of listings, as an API server that lags behind.
func withoutListed(server http.Handler, hidden *atomic.Pointer[string]) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		id := hidden.Load()
		if id == nil || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/v2/load_balancers") {
			server.ServeHTTP(rw, r)
			return
		}
		answer := httptest.NewRecorder()
		server.ServeHTTP(answer, r)
		var body struct {
			LoadBalancers []map[string]any `json:"load_balancers"`
			Meta          map[string]any   `json:"meta"`
		}
		_ = json.Unmarshal(answer.Body.Bytes(), &body) // the simulator's own
		body.LoadBalancers = slices.DeleteFunc(body.LoadBalancers, func(lb map[string]any) bool { return lb["id"] == *id })
		body.Meta = map[string]any{"total": len(body.LoadBalancers)}
		rw.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(rw).Encode(body) // a client that is gone needs no answer
	})
}

// TestPlanOfVanishedDroplet: the cloud takes a destroyed droplet out by itself, so that is nothing to plan.
func TestPlanOfVanishedDroplet(t *testing.T) {
	t.Parallel()
	w := lbWorld(t)
	w.addNode(digitaloceansim.Spec{Name: "node-2"})
	s := aged(service("", nil, port("http", 80, 30080)), "web", 1)
	w.Apply(s)
	s, _ = w.ensure(s)
	id, err := parseProviderID(w.nodes[1].Spec.ProviderID)
	require.NoError(t, err)
	w.sim.Remove(id)
	w.sim.ChangeLoadBalancer(s.Annotations[annotationID], func(lb *digitaloceansim.LoadBalancer) {
		if !slices.Contains(lb.DropletIDs, id) { // the API shows it for a while
			lb.DropletIDs = append(slices.Clone(lb.DropletIDs), id)
		}
	})
	w.nodes = w.nodes[:1]
	w.restart()
	plan, err := w.PlanLoadBalancer(t.Context(), "kubernetes", s, w.nodes)
	require.NoError(t, err)
	planned := plan.Changes
	assert.Empty(t, planned)
}
