package ownership

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/anyccm/cloud-controller-manager/registry"
)

func kubeSystem() *fake.Clientset {
	return fake.NewClientset(&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "u1"}})
}

func TestMark(t *testing.T) {
	t.Parallel()
	var c Cluster
	mark, err := c.Mark(t.Context())
	require.NoError(t, err)
	assert.Empty(t, mark, "nothing is known yet")
	client := kubeSystem()
	c.SetClient(client)
	for range 2 {
		mark, err = c.Mark(t.Context())
		require.NoError(t, err)
		assert.Equal(t, "anyccm:u1", mark)
	}
	assert.Len(t, client.Actions(), 1, "it is read once")
}

// TestMarkRefused: only a refusal means that there are no marks, and it is believed for a while.
func TestMarkRefused(t *testing.T) {
	t.Parallel()
	namespaces := schema.GroupResource{Resource: "namespaces"}
	for name, refusal := range map[string]error{
		"forbidden": apierrors.NewForbidden(namespaces, "kube-system", errors.New("no")), "not found": apierrors.NewNotFound(namespaces, "kube-system"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Cluster
			client := fake.NewClientset()
			client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, refusal })
			c.SetClient(client)
			for range 2 {
				mark, err := c.Mark(t.Context())
				require.NoError(t, err)
				assert.Empty(t, mark)
			}
			assert.Len(t, client.Actions(), 1)
		})
	}
}

// TestMarkFails: every other failure is an error, because whoever goes on without marks takes what is another cluster's; and
// the next question is asked again.
func TestMarkFails(t *testing.T) {
	t.Parallel()
	for name, failure := range map[string]error{
		"time-out": errors.New("etcdserver: request timed out"), "unauthorized": apierrors.NewUnauthorized("expired"),
		"overloaded": apierrors.NewTooManyRequests("later", 1), "cancelled": context.Canceled,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c Cluster
			client, broken := kubeSystem(), true
			client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) { return broken, nil, failure })
			c.SetClient(client)
			_, err := c.Mark(t.Context())
			require.ErrorIs(t, err, failure)
			broken = false
			mark, err := c.Mark(t.Context())
			require.NoError(t, err)
			assert.Equal(t, "anyccm:u1", mark)
		})
	}
}

// TestMarkHoldsNoLock: an API server that does not answer holds up nobody else.
func TestMarkHoldsNoLock(t *testing.T) {
	t.Parallel()
	var c Cluster
	client := kubeSystem()
	asked, answer := make(chan struct{}), make(chan struct{})
	client.PrependReactor("get", "namespaces", func(clienttesting.Action) (bool, runtime.Object, error) {
		close(asked)
		<-answer
		return false, nil, nil
	})
	c.SetClient(client)
	done := make(chan string)
	go func() {
		mark, _ := c.Mark(t.Context())
		done <- mark
	}()
	<-asked
	c.SetServices(lister(t))
	_, err := c.Services(t.Context())
	require.NoError(t, err, "Services are looked at meanwhile")
	close(answer)
	assert.Equal(t, "anyccm:u1", <-done)
}

func TestCheck(t *testing.T) {
	t.Parallel()
	require.NoError(t, Check("lb", "anyccm:u1", nil), "unmarked: as the cloud's own controller left it")
	require.NoError(t, Check("lb", "anyccm:u1", []string{"k8s:x", "anyccm:u1", "anyccm-svc:s"}))
	require.NoError(t, Check("lb", "", []string{"anyccm:u2"}), "who does not know itself cannot judge")
	err := Check("load balancer 7", "anyccm:u1", []string{"anyccm:u2"})
	require.ErrorContains(t, err, "load balancer 7 belongs to another cluster, whose namespace kube-system has the UID u2 and is left alone")
	_, ok := errors.AsType[*NotOursError](err)
	assert.True(t, ok)
	assert.LessOrEqual(t, len(ServiceMark("3c1f6b52-7a66-4b58-8b4b-0a61c1f9e0a1")), 50, "Linode's longest tag")
	cluster, svc := Marked([]string{"k8s:x", ClusterMark("c"), ServiceMark("s")})
	assert.Equal(t, []string{"c", "s"}, []string{cluster, svc})
}

var epoch = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// service is a Service of type LoadBalancer that records the ID 7.
func service(name string, minute int, change func(*v1.Service)) *v1.Service {
	s := &v1.Service{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: name, UID: types.UID(name), CreationTimestamp: metav1.NewTime(epoch.Add(time.Duration(minute) * time.Minute)),
			Annotations: map[string]string{"id": "7"},
		},
		Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, Ports: []v1.ServicePort{{Port: 80, NodePort: 30080}}},
	}
	if change != nil {
		change(s)
	}
	return s
}

func lister(t *testing.T, services ...*v1.Service) listers.ServiceLister {
	t.Helper()
	indexer := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	for _, s := range services {
		require.NoError(t, indexer.Add(s))
	}
	return listers.NewServiceLister(indexer)
}

// TestMarkedBefore: where a handover broke off, the other cluster's mark counts, in whichever order the cloud lists the tags.
func TestMarkedBefore(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tags    []string
		cluster string
		service string
	}{
		"no mark":         {[]string{"k8s:x"}, "", ""},
		"ours":            {[]string{ClusterMark("m"), ServiceMark("s")}, "m", "s"},
		"another's":       {[]string{ClusterMark("z"), ServiceMark("s")}, "z", "s"},
		"both, ours last": {[]string{ClusterMark("a"), ClusterMark("m")}, "a", ""},
		"two Services":    {[]string{ClusterMark("z"), ClusterMark("m"), ServiceMark("a"), ServiceMark("b")}, "z", "b"},
	} {
		for range 2 {
			cluster, service := MarkedBefore(c.tags, ClusterMark("m"))
			assert.Equal(t, []string{c.cluster, c.service}, []string{cluster, service}, name)
			slices.Reverse(c.tags)
		}
	}
}

func rules(adopt registry.Adoption) Rules {
	return Rules{
		Adopt:  adopt,
		Names:  func(s *v1.Service) []string { return []string{"a-" + string(s.UID)} },
		Made:   func(name string) bool { return strings.HasPrefix(name, "a-") },
		Record: func(s *v1.Service) string { return s.Annotations["id"] },
	}
}

func showAddress(s *v1.Service) {
	s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.7"}}
}

// outcome holds the parts of a decision that tests compare.
type outcome struct {
	verdict   Verdict
	deletable bool
	who       string
}

var (
	owned   = outcome{Owned, true, ""}
	adopted = outcome{Adopted, false, ""}
	// nodePort are nodes of this cluster with the node port of the Service alone.
	nodePort = &Targets{All: 2, Ours: 2, Ports: []int32{30080}}
)

// made are the targets of a load balancer that a controller creates for the Service.
var made = &Targets{All: 2, Ours: 1, Ports: []int32{30080}, Made: true}

// chooses gives a Service the name of the load balancer of another one.
func chooses(s *v1.Service) { s.Annotations["name"] = "c-mine" }

func refusal(who string) outcome { return outcome{Refused, false, who} }

// recorded gives a Service a note of the load balancer's address.
func recorded(s *v1.Service) { s.Annotations["address"] = "192.0.2.7" }

// To whom a load balancer belongs that is refused, where that is not known.
const (
	ownerAlike = "another cluster of the same name, as far as can be told: it has this Service's name, but no mark of this cluster, " +
		"not the address in the Service's status, and no node of this cluster among its targets"
	ownerUnknown = "nobody that can be told: it carries no mark of this cluster, and neither its name nor its targets are this Service's"
	ownerChosen  = "somebody else, as far as can be told: an annotation of this Service chooses its name, but neither the Service's status shows it, nor was it made for this Service"
	ownerOther   = "another Service, as its name or its marks tell, which is gone or of another cluster"
)

// decisionCase describes a load balancer and its Services, and the expected decision.
type decisionCase struct {
	mine    func(*v1.Service)
	others  []*v1.Service
	object  Object
	targets *Targets
	adopt   registry.Adoption
	silent  bool // nothing is marked
	shares  bool // the other Services may have it, too
	mark    string
	want    outcome
}

var decisions = map[string]decisionCase{
	"its mark": {object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:mine"}}, want: owned},
	"its mark, which an older Service's annotation names": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:mine"}}, others: []*v1.Service{service("older", 0, showAddress)}, want: owned,
	},
	"the mark of a younger Service": {
		object: Object{
			Marks: []string{"anyccm:u1", "anyccm-svc:other"},
		}, others: []*v1.Service{service("other", 9, nil)}, mine: showAddress, want: refusal("Service ns/other"),
	},
	"the mark of a Service that is no load balancer now and keeps its own": {
		object: Object{Marks: []string{"anyccm-svc:other"}}, mark: "-", targets: nodePort,
		others: []*v1.Service{service("other", 9, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })}, want: refusal("Service ns/other"),
	},
	"another cluster's": {
		object: Object{Marks: []string{"anyccm:u2"}, Name: "a-mine"}, mine: showAddress, adopt: registry.AdoptAny,
		want: refusal("another cluster, whose namespace kube-system has the UID u2"),
	},
	"a Service of another cluster": {
		object: Object{Marks: []string{"anyccm-svc:far"}}, targets: nodePort, adopt: registry.AdoptAny,
		want: refusal("a Service with the UID far, which is not of this cluster"),
	},
	"its default name": {object: Object{Name: "a-mine"}, adopt: registry.AdoptNone, want: owned},
	"its default name, and another's mark": {
		object: Object{Name: "a-mine", Marks: []string{"anyccm-svc:other"}}, others: []*v1.Service{service("other", 9, nil)},
		want: refusal("Service ns/other"),
	},
	"another's default name": {
		object: Object{Name: "a-other"}, others: []*v1.Service{service("other", 9, nil)}, targets: nodePort,
		adopt: registry.AdoptAny, want: refusal("Service ns/other"),
	},
	"a likely name alone":                      {object: Object{Name: "l-mine"}, targets: &Targets{All: 2, Ports: []int32{30080}}, want: refusal(ownerAlike)},
	"a likely name, targets unknown":           {object: Object{Name: "l-mine"}, want: refusal(ownerAlike)},
	"a likely name, no targets":                {object: Object{Name: "l-mine"}, targets: &Targets{}, want: refusal(ownerAlike)},
	"a likely name, no targets, recorded":      {object: Object{Name: "l-mine"}, targets: &Targets{}, mine: recorded, want: owned},
	"a likely name, others' targets, recorded": {object: Object{Name: "l-mine"}, targets: &Targets{All: 1}, mine: recorded, want: refusal(ownerAlike)},
	"a likely name, one of our nodes":          {object: Object{Name: "l-mine"}, targets: &Targets{All: 2, Ours: 1}, adopt: registry.AdoptNone, want: owned},
	"a likely name, in its status":             {object: Object{Name: "l-mine"}, mine: showAddress, adopt: registry.AdoptNone, want: owned},
	"a likely name, of this cluster":           {object: Object{Name: "l-mine", Marks: []string{"anyccm:u1", "anyccm-svc:gone"}}, want: owned},
	"a likely name, another cluster's": {
		object: Object{Name: "l-mine", Marks: []string{"anyccm:u2"}}, mine: showAddress,
		want: refusal("another cluster, whose namespace kube-system has the UID u2"),
	},
	"a likely name, any adopted": {object: Object{Name: "l-mine"}, targets: &Targets{All: 1}, adopt: registry.AdoptAny, want: adopted},
	"another's likely name": {
		object: Object{Name: "l-other"}, others: []*v1.Service{service("other", 9, nil)}, targets: nodePort, mine: showAddress,
		adopt: registry.AdoptAny, want: refusal("Service ns/other"),
	},
	"a chosen name, a user's to its node port":           {object: Object{Name: "c-mine"}, targets: nodePort, want: refusal(ownerChosen)},
	"a chosen name, a user's to its node port, recorded": {object: Object{Name: "c-mine"}, mine: recorded, targets: nodePort, want: refusal(ownerChosen)},
	"a chosen name, made alike, not recorded":            {object: Object{Name: "c-mine"}, targets: made, want: refusal(ownerChosen)},
	"a chosen name, made alike, on others' nodes":        {object: Object{Name: "c-mine"}, mine: recorded, targets: &Targets{All: 2, Made: true}, want: refusal(ownerChosen)},
	"a chosen name, recorded and made":                   {object: Object{Name: "c-mine"}, mine: recorded, targets: made, adopt: registry.AdoptNone, want: owned},
	"a chosen name, in its status":                       {object: Object{Name: "c-mine"}, mine: showAddress, adopt: registry.AdoptNone, want: owned},
	"a chosen name, any adopted":                         {object: Object{Name: "c-mine"}, targets: nodePort, adopt: registry.AdoptAny, want: adopted},
	"a chosen name, in another's status, any adopted": {
		object: Object{Name: "c-mine"},
		others: []*v1.Service{service("other", 9, showAddress)}, adopt: registry.AdoptAny, want: refusal("Service ns/other"),
	},
	"a chosen name, any adopted, chosen by an older one": {
		object: Object{Name: "c-mine"},
		others: []*v1.Service{service("older", 0, chooses)}, adopt: registry.AdoptAny, want: refusal("Service ns/older"),
	},
	"a chosen name, recorded, chosen by an older one": {object: Object{Name: "c-mine"}, mine: recorded, targets: made, others: []*v1.Service{service("older", 0, chooses)}, want: owned},
	"a chosen name that is a gone Service's own": {
		object: Object{Name: "a-gone"},
		mine:   func(s *v1.Service) { recorded(s); s.Annotations["name"] = "a-gone" }, targets: made, want: refusal(ownerChosen),
	},
	"a chosen name that is a living Service's own": {
		object: Object{Name: "a-other"},
		mine:   func(s *v1.Service) { showAddress(s); s.Annotations["name"] = "a-other" },
		others: []*v1.Service{service("other", 9, nil)}, want: refusal("Service ns/other"),
	},
	"unmarked, in its status":                {mine: showAddress, want: outcome{Owned, false, ""}},
	"unmarked, in its status, none adopted":  {mine: showAddress, adopt: registry.AdoptNone, want: refusal(ownerUnknown)},
	"of this cluster, in its status":         {mine: showAddress, object: Object{Marks: []string{"anyccm:u1"}}, adopt: registry.AdoptNone, want: owned},
	"where nothing is marked, in its status": {mine: showAddress, silent: true, want: owned},
	"in its status, recorded elsewhere": {
		mine: func(s *v1.Service) { showAddress(s); s.Annotations["id"] = "8" }, want: refusal(ownerUnknown),
	},
	"in a younger Service's status": {
		others: []*v1.Service{service("other", 9, showAddress)}, adopt: registry.AdoptAny, want: refusal("Service ns/other"),
	},
	"in both statuses": {
		mine: showAddress, others: []*v1.Service{service("other", 9, showAddress)}, want: outcome{Owned, false, ""},
	},
	"a user's":                                {targets: &Targets{All: 1, Ours: 0, Ports: []int32{80}}, want: refusal(ownerUnknown)},
	"a user's, any adopted":                   {adopt: registry.AdoptAny, want: adopted},
	"a user's, any adopted, nothing marked":   {adopt: registry.AdoptAny, silent: true, want: refusal(ownerUnknown)},
	"a user's, any adopted, asked for before": {adopt: registry.AdoptAny, others: []*v1.Service{service("older", 0, nil)}, want: refusal("Service ns/older")},
	"a user's, any adopted, asked for in the same second": {
		adopt: registry.AdoptAny, others: []*v1.Service{service("later", 5, nil)}, mine: func(s *v1.Service) { s.UID = "z" },
		want: refusal("Service ns/later"),
	},
	"a user's, any adopted, asked for in the same second by a greater UID": {
		adopt: registry.AdoptAny, others: []*v1.Service{service("later", 5, nil)}, mine: func(s *v1.Service) { s.UID = "a" }, want: adopted,
	},
	"in both statuses, made in the same second": {
		mine: func(s *v1.Service) { showAddress(s); s.UID = "z" }, others: []*v1.Service{service("later", 5, showAddress)}, want: refusal("Service ns/later"),
	},
	"in both statuses, made in the same second, by a greater UID": {
		mine:   func(s *v1.Service) { showAddress(s); s.UID = "a" },
		others: []*v1.Service{service("later", 5, showAddress)}, want: outcome{Owned, false, ""},
	},
	"a user's, any adopted, shared with an older one": {
		adopt: registry.AdoptAny, others: []*v1.Service{service("older", 0, showAddress)}, shares: true, want: adopted,
	},
	"its node port on our nodes":               {targets: nodePort, want: adopted},
	"its node port on our nodes, none adopted": {targets: nodePort, adopt: registry.AdoptNone, want: refusal(ownerUnknown)},
	"its node port, partly on other machines":  {targets: &Targets{All: 2, Ours: 1, Ports: []int32{30080}}, want: refusal(ownerUnknown)},
	"its node port and another Service's": {
		targets: &Targets{All: 1, Ours: 1, Ports: []int32{30080, 30081}}, want: refusal(ownerUnknown),
		others: []*v1.Service{service("other", 0, func(s *v1.Service) { s.Annotations, s.Spec.Ports[0].NodePort = nil, 30081 })},
	},
	"no targets": {targets: &Targets{}, want: refusal(ownerUnknown)},
	"a gone Service's": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone"}}, targets: &Targets{},
		want: refusal("a Service of this cluster that is gone"),
	},
	"a gone Service's, any adopted": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone"}}, adopt: registry.AdoptAny, want: adopted,
	},
	"a gone Service's, any adopted, without the mark of the UID": {object: Object{Marks: []string{"anyccm:u1"}}, adopt: registry.AdoptAny, want: adopted},
	"a gone Service's, which it was allowed to have and shows": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone", NameMark("ns", "other")}}, mine: showAddress, want: outcome{Owned, false, ""},
	},
	"a gone Service's of the same name, which it shows": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone", NameMark("ns", "mine")}}, mine: showAddress, want: owned,
	},
	"a gone Service's, by its freed node port": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone"}}, targets: nodePort, want: refusal("a Service of this cluster that is gone"),
	},
	"a gone Service's, by its freed node port, without the mark of the UID": {
		object: Object{Marks: []string{"anyccm:u1"}}, targets: nodePort, want: refusal("a Service of this cluster that is gone"),
	},
	"a gone Service's of the same name": {object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone", NameMark("ns", "mine")}}, adopt: registry.AdoptNone, want: owned},
	"a gone Service's of the same name, which another Service has now": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone", NameMark("ns", "mine")}},
		others: []*v1.Service{service("other", 9, showAddress)}, want: refusal("Service ns/other"),
	},
	"a gone Service's of another name": {
		object: Object{Marks: []string{"anyccm:u1", "anyccm-svc:gone", NameMark("ns", "other")}}, targets: nodePort, want: refusal("a Service of this cluster that is gone"),
	},
	"a gone Service's of the same name in another cluster": {
		object: Object{Marks: []string{"anyccm:u2", "anyccm-svc:gone", NameMark("ns", "mine")}}, targets: nodePort, adopt: registry.AdoptAny,
		want: refusal("another cluster, whose namespace kube-system has the UID u2"),
	},
	"of the same name, by whom nobody can tell": {
		object: Object{Marks: []string{NameMark("ns", "mine")}}, targets: nodePort, want: refusal(ownerOther),
	},
	"a gone Service's by its name, on its freed node port": {object: Object{Name: "a-gone"}, targets: nodePort, want: refusal(ownerOther)},
	"its node port and one that nobody has":                {targets: &Targets{All: 1, Ours: 1, Ports: []int32{30080, 30081}}, want: refusal(ownerUnknown)},
	"two of its node ports": {
		targets: &Targets{All: 1, Ours: 1, Ports: []int32{30080, 30081}}, want: adopted,
		mine: func(s *v1.Service) { s.Spec.Ports = append(s.Spec.Ports, v1.ServicePort{Port: 443, NodePort: 30081}) },
	},
	"no port": {targets: &Targets{All: 1, Ours: 1}, mine: func(s *v1.Service) { s.Spec.Ports[0].NodePort = 0 }, want: refusal(ownerUnknown)},
}

// TestDecide: the Service "mine" asks for the object 7; what it may do with it.
func TestDecide(t *testing.T) {
	t.Parallel()
	for name, c := range decisions {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c.object.Title, c.object.ID, c.object.Addresses = "load balancer 7", "7", []string{"192.0.2.7", ""}
			if c.mark == "" {
				c.mark = "anyccm:u1"
			}
			r := rules(c.adopt)
			r.Unmarked = c.silent
			r.Likely = func(s *v1.Service) []string { return []string{"l-" + s.Name} }
			r.Chosen = func(s *v1.Service) []string { return []string{cmp.Or(s.Annotations["name"], "c-"+s.Name)} }
			r.Recorded = func(s *v1.Service) bool { return s.Annotations["address"] == "192.0.2.7" }
			r.Shares = func(*v1.Service) bool { return c.shares }
			d := Decide(Facts{Service: service("mine", 5, c.mine), Mark: c.mark, Object: c.object, Targets: c.targets, Others: c.others, Rules: r})
			assert.Equal(t, c.want, outcome{d.Verdict, d.Deletable, d.Who})
			assert.Equal(t, c.want.verdict == Refused, d.Err() != nil)
		})
	}
}

// TestJudge: the targets are read only where they matter, and a failure to read them is no verdict.
func TestJudge(t *testing.T) {
	t.Parallel()
	var c Cluster
	c.SetClient(kubeSystem())
	mine, other := service("mine", 5, nil), service("other", 9, nil)
	c.SetServices(lister(t, mine, other))
	reads := 0
	targets := func(context.Context) (Targets, error) {
		reads++
		return Targets{All: 1, Ours: 1, Ports: []int32{30080}}, nil
	}
	other.Spec.Ports[0].NodePort = 30081
	d, err := c.Judge(t.Context(), mine, Object{Title: "lb", ID: "7", Marks: []string{ServiceMark("mine")}}, rules(""), targets)
	require.NoError(t, err)
	assert.Equal(t, Owned, d.Verdict)
	assert.Zero(t, reads)
	d, err = c.Judge(t.Context(), mine, Object{Title: "lb", ID: "7"}, rules(""), targets)
	require.NoError(t, err)
	assert.Equal(t, Adopted, d.Verdict)
	assert.Equal(t, 1, reads)
	broken := errors.New("no answer")
	_, err = c.Judge(
		t.Context(), mine, Object{Title: "lb", ID: "7"}, rules(""),
		func(context.Context) (Targets, error) { return Targets{}, broken },
	)
	require.ErrorIs(t, err, broken)

	d, err = c.Judge(t.Context(), mine, Object{Title: "lb 7", ID: "7", Marks: []string{ServiceMark("other")}}, rules(""), targets)
	require.NoError(t, err)
	require.EqualError(t, d.Err(), "lb 7 belongs to Service ns/other and is left alone; choose another name or ID, or remove it from there first")
	require.NotNil(t, d.Owner)
	assert.Equal(t, "Service ns/mine claims lb 7, which is this Service's, by its annotations or its name; that is refused", ClaimOf(mine, d))
}

// TestServicesWithoutInformer: a command has no informer, and asks the API server.
func TestServicesWithoutInformer(t *testing.T) {
	t.Parallel()
	var c Cluster
	c.SetClient(fake.NewClientset(service("a", 1, nil)))
	all, err := c.Services(t.Context())
	require.NoError(t, err)
	assert.Len(t, all, 1)
}

// TestHolds: each trace of a living Service is enough for what it has to be no orphan.
func TestHolds(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		object Object
		change func(*v1.Service)
		want   bool
	}{
		"its mark":                       {Object{ID: "8", Marks: []string{ServiceMark("web")}}, nil, true},
		"its mark, recorded elsewhere":   {Object{ID: "8", Marks: []string{ServiceMark("web")}, Addresses: []string{"192.0.2.8"}}, showAddress, true},
		"its mark, no load balancer now": {Object{ID: "8", Marks: []string{ServiceMark("web")}}, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP }, true},
		"its name":                       {Object{ID: "8", Name: "a-web"}, nil, true},
		"its record":                     {Object{ID: "7"}, nil, true},
		"its address":                    {Object{ID: "8", Addresses: []string{"192.0.2.7"}}, showAddress, true},
		"nothing": {
			Object{ID: "8", Name: "a-other", Marks: []string{ServiceMark("other")}, Addresses: []string{"192.0.2.8"}}, showAddress, false,
		},
		"nothing known": {Object{}, func(s *v1.Service) { s.Annotations = nil }, false},
	} {
		assert.Equal(t, c.want, Holds(service("web", 1, c.change), c.object, rules("")), name)
	}
}

// TestNameMark: it fits everywhere, and namespace and name are told apart.
func TestNameMark(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 63)
	assert.LessOrEqual(t, len(NameMark(long, long)), 50, "Linode's longest tag")
	assert.NotEqual(t, NameMark("a", "b"), NameMark("b", "a"))
	assert.NotEqual(t, NameMark("a", "b"), NameMark("a", "c"))
	for _, m := range append(ServiceMarks(service("a", 1, nil)), ClusterMark("c"), "anyccm-other:1") {
		assert.True(t, IsMark(m), m)
	}
	assert.False(t, IsServiceMark(ClusterMark("c")))
	assert.False(t, IsMark("k8s:anyccm"))
	cluster, uid := Marked([]string{NameMark("a", "b")})
	assert.Empty(t, cluster+uid)
}
