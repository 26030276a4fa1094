package ibm

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmsim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// world is a cluster on a simulated region, whose load balancers are busy for a while after each write.
type world struct {
	t      *testing.T
	sim    *ibmsim.Sim
	server *simkit.Server
	in     registry.Inputs
	config string
	cloud  *cloud
	events *record.FakeRecorder
	bench  *conformance.Bench
	nodes  []*v1.Node
}

// inWorld runs a test in virtual time, in a world with some nodes. edit changes the cloud config.
func inWorld(t *testing.T, nodes int, busy time.Duration, edit func(string) string, test func(*world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, bench: conformance.NewBench(t)}
		w.sim, w.server = ibmsim.New(testKey, busy)
		network := simkit.NewNetwork()
		address := network.Serve(t, w.server)
		w.config = w.sim.CloudConfig(address)
		if edit != nil {
			w.config = edit(w.config)
		}
		w.in = conformance.Inputs(nil, w.sim.Environment(address))
		w.in.Dial = network.Dial
		w.restart()
		for n := range nodes {
			w.addNode(fmt.Sprintf("worker-%d", n+1))
		}
		w.server.ResetCalls()
		test(w)
		w.cloud.HTTP.Close()
	})
}

func (w *world) restart() {
	w.t.Helper()
	w.in.File = []byte(w.config)
	var err error
	w.cloud, err = maker().New(w.in)
	require.NoError(w.t, err)
	w.events = record.NewFakeRecorder(1000)
	w.cloud.begin(cloudbase.Begun{Kube: w.bench.Kube, Events: w.events, Stop: w.t.Context().Done()})
	w.cloud.reconciler.finder.cluster.SetServices(w.bench.Services())
	w.cloud.instances.nodes.SetLister(w.bench.Nodes())
}

func (w *world) addNode(name string) {
	w.t.Helper()
	w.sim.AddInstance(name)
	time.Sleep(10 * time.Second) // or it was looked for a moment ago
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	m, err := w.cloud.instances.InstanceMetadata(w.t.Context(), n)
	require.NoError(w.t, err)
	n.Spec.ProviderID, n.Status.Addresses, n.Labels = m.ProviderID, m.NodeAddresses, map[string]string{v1.LabelTopologyZone: m.Zone}
	w.nodes = append(w.nodes, n)
	w.bench.Register(n)
}

func (w *world) ensure(s *v1.Service) error {
	w.bench.Apply(s.DeepCopy())
	status, err := w.cloud.loadBalancers.EnsureLoadBalancer(w.t.Context(), "", s.DeepCopy(), w.nodes)
	if err == nil {
		s.Status.LoadBalancer = *status
	}
	if now := w.bench.Current(s); len(now.Annotations) > 0 || len(s.Annotations) > 0 {
		s.Annotations = now.Annotations
	}
	return err
}

func (w *world) mustEnsure(s *v1.Service) {
	w.t.Helper()
	require.NoError(w.t, w.ensure(s))
}

// writes are the calls that changed something since the last time, in order.
func (w *world) writes() []string {
	list := []string{}
	for _, c := range w.server.Calls().Latest {
		if c.Write && c.Status < http.StatusBadRequest {
			list = append(list, c.Operation)
		}
	}
	w.server.ResetCalls()
	return list
}

// drainEvents are the events since the last time.
func (w *world) drainEvents() string {
	var all []string
	for {
		select {
		case e := <-w.events.Events:
			all = append(all, e)
		default:
			return strings.Join(all, "\n")
		}
	}
}

func web(annotations ...string) *v1.Service {
	given := map[string]string{}
	for n := 0; n < len(annotations); n += 2 {
		given[annotations[n]] = annotations[n+1]
	}
	return conformance.Service("web", given, conformance.Port("http", 80, 30080), conformance.Port("https", 443, 30443))
}

const (
	oneLB  = "/v1/load_balancers/{id}"
	put    = "PUT " + oneLB + "/pools/{id}/members"
	create = "POST /v1/load_balancers"
)

// TestCreation (20): one POST with exactly what IBM's own controller sends.
func TestCreation(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		var body string
		for _, c := range w.server.Calls().Latest {
			if c.Operation == create {
				body = c.Body
			}
		}
		subnets := w.sim.Subnets()
		pool := func(name, port string) string {
			return `{"algorithm":"round_robin","health_monitor":{"delay":5,"max_retries":2,"port":` + port + `,"timeout":2,"type":"tcp"},"members":[
				{"port":` + port + `,"target":{"address":"10.0.0.6"}},{"port":` + port + `,"target":{"address":"10.1.0.5"}}],"name":"` + name + `","protocol":"tcp","proxy_protocol":"disabled"}`
		}
		assert.JSONEq(w.t, `{"is_public":true,"listeners":[
			{"connection_limit":15000,"default_pool":{"name":"tcp-80-30080"},"port":80,"protocol":"tcp"},
			{"connection_limit":15000,"default_pool":{"name":"tcp-443-30443"},"port":443,"protocol":"tcp"}],
			"name":"kube-ocp4-8pxks-`+strings.ReplaceAll(string(s.UID), "-", "")+`",
			"pools":[`+pool("tcp-80-30080", "30080")+`,`+pool("tcp-443-30443", "30443")+`],
			"resource_group":{"id":"`+ibmsim.GroupID+`"},"subnets":[{"id":"`+subnets[0].ID+`"},{"id":"`+subnets[1].ID+`"}]}`, body)
		assert.Equal(w.t, []string{create}, w.writes())
		require.Len(w.t, s.Status.LoadBalancer.Ingress, 1)
		assert.NotEmpty(w.t, s.Status.LoadBalancer.Ingress[0].Hostname)
		assert.Empty(w.t, s.Status.LoadBalancer.Ingress[0].IP)
		w.mustEnsure(s) // 22
		assert.Empty(w.t, w.writes())
		w.restart() // 58: what is there is as IBM's own controller makes it
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
		assert.Empty(w.t, w.drainEvents())
	})
}

// TestBusy (23): the Service has its host name at once; changes wait one after the other, without a warning, and nobody else waits.
func TestBusy(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 30*time.Second, nil, func(w *world) {
		s, began := web(), time.Now()
		w.mustEnsure(s)
		assert.Less(w.t, time.Since(began), 5*time.Second)
		w.mustEnsure(s)
		assert.Equal(w.t, []string{create}, w.writes())
		w.addNode("worker-3") // 24
		w.addNode("worker-4")
		done := make(chan error)
		other := conformance.Service("other", nil, conformance.Port("http", 80, 30090))
		other.UID = "5b3f6b52-7a66-4b58-8b4b-0a61c1f9e0aa"
		go func() { done <- w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, w.nodes) }()
		started := time.Now()
		w.mustEnsure(other)
		assert.Less(w.t, time.Since(started), 5*time.Second, "another Service does not wait")
		require.NoError(w.t, <-done)
		assert.GreaterOrEqual(w.t, time.Since(began), 60*time.Second, "the second write waits for the first")
		assert.ElementsMatch(w.t, []string{put, put, create}, w.writes(), "one write a pool, whatever the number of nodes")
		assert.Empty(w.t, w.drainEvents())
		assert.Empty(w.t, w.server.Calls().Refused)
	})
}

// TestPorts (25, 26): pools come before their listeners, listeners go before their pools, and another node port changes the pool in place.
func TestPorts(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s := web(annotationFeatures, featureProxy)
		w.mustEnsure(s)
		w.writes()
		s.Spec.Ports = append(s.Spec.Ports, conformance.Port("alt", 8080, 30081))
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"POST " + oneLB + "/pools", "POST " + oneLB + "/listeners"}, w.writes())
		for _, p := range w.sim.LoadBalancers()[0].Pools {
			assert.Equal(w.t, "v1", p.Proxy, p.Name)
		}
		s.Spec.Ports[2].NodePort = 30099
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", put}, w.writes())
		s.Spec.Ports = s.Spec.Ports[:2]
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"DELETE " + oneLB + "/listeners/{id}", "DELETE " + oneLB + "/pools/{id}"}, w.writes())
		delete(s.Annotations, annotationFeatures) // 28
		w.mustEnsure(s)
		assert.Equal(w.t, []string{"PATCH " + oneLB + "/pools/{id}", "PATCH " + oneLB + "/pools/{id}"}, w.writes())
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000 // 27
		w.mustEnsure(s)
		assert.Len(w.t, w.writes(), 2)
		for _, p := range w.sim.LoadBalancers()[0].Pools {
			assert.Equal(w.t, []any{"http", 32000, "/"}, []any{p.Monitor.Type, *p.Monitor.Port, p.Monitor.Path})
		}
		s.Spec.ExternalTrafficPolicy, s.Spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyCluster, 0
		w.mustEnsure(s)
		assert.Len(w.t, w.writes(), 2)
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
	})
}

// refusals are Services that are told what is wrong.
var refusals = map[string]struct {
	annotations []string
	change      func(*v1.Service)
	words       string
}{
	"UDP (36)":  {change: func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP }, words: "application load balancers take TCP alone"},
	"SCTP (36)": {change: func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolSCTP }, words: "is not a protocol of IBM's load balancers"},
	"no node port (36)": {change: func(s *v1.Service) {
		s.Spec.AllocateLoadBalancerNodePorts, s.Spec.Ports[0].NodePort = new(false), 0
	}, words: "send to node ports; remove it"},
	"11 ports (37)": {change: func(s *v1.Service) {
		for n := range int32(9) {
			s.Spec.Ports = append(s.Spec.Ports, conformance.Port(fmt.Sprint("p", n), 1000+n, 31000+n))
		}
	}, words: "11 listeners, and the cloud takes at most 10"},
	"source ranges (38)": {change: func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"2001:db8::/32"} }, words: "is no network of IPv4"},
	"ranges and groups": {
		annotations: []string{annotationGroups, "web"}, words: "cannot be enforced beside",
		change: func(s *v1.Service) { s.Spec.LoadBalancerSourceRanges = []string{"192.0.2.0/24"} },
	},
	"too many ranges": {change: func(s *v1.Service) {
		for n := range 125 {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, fmt.Sprintf("10.0.%d.0/24", n))
		}
	}, words: "a security group takes 250 rules"},
	"unknown group":       {annotations: []string{annotationGroups, "web,nope"}, words: "there is no security group nope"},
	"empty group":         {annotations: []string{annotationGroups, "web,"}, words: "is no list of names"},
	"too many groups":     {annotations: []string{annotationGroups, "a,b,c,d,e,f"}, words: "5 security groups at most"},
	"too many subnets":    {annotations: []string{annotationSubnets, "a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p"}, words: "16 subnets, and the cloud takes at most 15"},
	"unknown zone (30)":   {annotations: []string{annotationZone, "us-south-9"}, words: "\"us-south-9\" the cluster has no subnet in this zone"},
	"unknown subnet (31)": {annotations: []string{annotationSubnets, "lb-subnet,nope"}, words: `names "nope", which is no subnet in the VPC of the cluster`},
	"empty subnet (31)":   {annotations: []string{annotationSubnets, "lb-subnet,"}, words: `names "", which is no subnet`},
	"private, no subnet (52)": {
		annotations: []string{annotationFeatures, featureNLB, annotationIPType, typePrivate}, words: "private network load balancer",
	},
	"private, two subnets (52)": {
		annotations: []string{annotationFeatures, featureNLB, annotationIPType, typePrivate, annotationSubnets, "a,b"}, words: "private network load balancer",
	},
	"private, cluster subnet (52)": {
		annotations: []string{annotationFeatures, featureNLB, annotationIPType, typePrivate, annotationSubnets, ibmsim.Cluster + "-subnet-1"},
		words:       "private network load balancer",
	},
	"delay (53)": {annotations: []string{annotationCheckDelay, "5", annotationCheckTimeout, "5"}, words: "is not shorter than the time between two health checks, 5 s"},
	"path (53)":  {annotations: []string{annotationCheckProtocol, protocolHTTP, annotationCheckPath, "/a b"}, words: "is no path"},
	"port (53)":  {annotations: []string{annotationCheckProtocol, protocolHTTP, annotationCheckPort, "65536"}, words: "out of range"},
	"UDP check (54)": {
		annotations: []string{annotationFeatures, featureNLB}, change: func(s *v1.Service) { s.Spec.Ports[0].Protocol = v1.ProtocolUDP },
		words: "is required with UDP and externalTrafficPolicy Cluster",
	},
	"range of an ALB (55)":  {annotations: []string{annotationPortRange, "80-90"}, words: "is for public network load balancers alone"},
	"range of no port (55)": {annotations: []string{annotationFeatures, featureNLB, annotationPortRange, "81-90"}, words: "no port of the Service is 81"},
	"ranges overlap (55)":   {annotations: []string{annotationFeatures, featureNLB, annotationPortRange, "80-500,443-450"}, words: "overlaps"},
	"range backwards (55)":  {annotations: []string{annotationFeatures, featureNLB, annotationPortRange, "80-80"}, words: "is no range"},
	"proxy of an NLB":       {annotations: []string{annotationFeatures, "nlb,proxy-protocol"}, words: "sends no header"},
	"half a DNS zone":       {annotations: []string{annotationIPType, typePrivate, annotationDNSZone, "a"}, words: "goes together with"},
}

// TestRefused: a Service that is told what is wrong gets and changes nothing.
func TestRefused(t *testing.T) {
	t.Parallel()
	for name, c := range refusals {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				s := web(c.annotations...)
				if c.change != nil {
					c.change(s)
				}
				require.ErrorContains(w.t, w.ensure(s), c.words)
				assert.Empty(w.t, w.writes())
				assert.Contains(w.t, w.drainEvents(), c.words)
				served := web()
				w.mustEnsure(served)
				w.writes()
				require.Error(w.t, w.ensure(s), "a Service that becomes so keeps what it has")
				assert.Empty(w.t, w.writes())
				assert.Len(w.t, w.sim.LoadBalancers(), 1)
			})
		})
	}
}

// TestKept: what cannot be changed later is told, and stays.
func TestKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before, after []string
		words         string
	}{
		"public becomes private (29)": {nil, []string{annotationIPType, typePrivate}, "the load balancer is public, which IBM Cloud never changes"},
		"private becomes public (29)": {[]string{annotationIPType, "Public"}, nil, "the load balancer is private, which IBM Cloud never changes"},
		"subnet of a network one (31)": {
			[]string{annotationFeatures, featureNLB}, []string{annotationFeatures, featureNLB, annotationSubnets, "lb-subnet"}, "the load balancer is in subnets",
		},
		"network (NLB)": {[]string{annotationFeatures, featureNLB}, nil, "the load balancer is network, which"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			inWorld(t, 1, 0, nil, func(w *world) {
				w.mustEnsure(web(c.before...))
				w.writes()
				require.ErrorContains(w.t, w.ensure(web(c.after...)), c.words)
				assert.Contains(w.t, w.drainEvents(), c.words)
				assert.Empty(w.t, w.writes())
			})
		})
	}
}

// TestKindKept (35): an application load balancer stays where a network one is asked for later.
func TestKindKept(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.mustEnsure(web())
		w.writes()
		w.mustEnsure(web(annotationFeatures, featureNLB))
		assert.Empty(w.t, w.writes())
		assert.Contains(w.t, w.drainEvents(), eventOtherKind)
	})
}

// TestOddValues (29, 33): what IBM's own controller takes for something else is taken so too, with a warning.
func TestOddValues(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 0, nil, func(w *world) {
		w.nodes[0].Labels["pool"] = "a"
		w.mustEnsure(web(annotationIPType, "internal", annotationFeatures, "fast", annotationNodeSelector, "pool=a"))
		lb := w.sim.LoadBalancers()[0]
		assert.False(w.t, lb.Public)
		assert.Len(w.t, lb.Pools[0].Members, 2)
		told := w.drainEvents()
		for _, words := range []string{"counts as private", "has no effect; known are proxy-protocol and nlb", "has no effect: the key is none of"} {
			assert.Contains(w.t, told, words)
		}
	})
}

// TestReceivers (30, 33, 37): the nodes of the zone by either label, of the selector, for the edge, and no more than a pool takes.
func TestReceivers(t *testing.T) {
	t.Parallel()
	inWorld(t, 60, 0, nil, func(w *world) {
		members := func(annotations ...string) int {
			w.sim.RemoveLoadBalancers()
			w.restart()
			w.mustEnsure(web(annotations...))
			return len(w.sim.LoadBalancers()[0].Pools[0].Members)
		}
		assert.Equal(w.t, 50, members())
		assert.Contains(w.t, w.drainEvents(), eventTooMany)
		assert.Equal(w.t, 30, members(annotationZone, " us-south-1 "))
		assert.Equal(w.t, 30, members(annotationNodeSelector, "topology.kubernetes.io/zone = us-south-2"))
		assert.Equal(w.t, 16, members(annotationQuota, "8"))
		w.nodes[0].Labels[labelDedicated] = edge
		assert.Equal(w.t, 1, members())
	})
}

// TestSubnetNames (32): names of subnets count as a whole, and only in the VPC of the cluster.
func TestSubnetNames(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		w.mustEnsure(web())
		subnets := w.sim.Subnets()
		assert.ElementsMatch(w.t, []string{subnets[0].ID, subnets[1].ID}, w.sim.LoadBalancers()[0].Subnets)
		w.sim.RemoveLoadBalancers()
		w.restart()
		w.mustEnsure(web(annotationSubnets, subnets[2].ID+", lb-subnet, "+subnets[2].CIDR))
		assert.Equal(w.t, []string{subnets[2].ID}, w.sim.LoadBalancers()[0].Subnets)
	})
}

// TestOthers (34, 44, 45): what has our name in another VPC, or a name that only begins like ours, is never touched.
func TestOthers(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.sim.AddLoadBalancer(ownName(ibmsim.Cluster, s), "other-vpc")
		w.sim.AddLoadBalancer("kube-"+ibmsim.Cluster+"-x2-"+strings.Repeat("a", 27), ibmsim.VPC)
		w.sim.AddLoadBalancer("theirs", ibmsim.VPC)
		w.mustEnsure(s)
		assert.Equal(w.t, []string{create}, w.writes())
		orphans, err := w.cloud.Orphans(w.t.Context(), []*v1.Service{s})
		require.NoError(w.t, err)
		assert.Empty(w.t, orphans)
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Equal(w.t, []string{"DELETE " + oneLB}, w.writes())
		assert.Len(w.t, w.sim.LoadBalancers(), 3)
		claim := web(annotationName, "theirs")
		require.ErrorContains(w.t, w.ensure(claim), "belongs to")
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", claim))
		assert.Empty(w.t, w.writes())
	})
}

// TestByHand (39, 40): what somebody deletes is made again with an event, and what somebody changes is set right.
func TestByHand(t *testing.T) {
	t.Parallel()
	inWorld(t, 2, 30*time.Second, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		time.Sleep(time.Minute)
		before := snapshot(w.t, w.sim)
		require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) {
			lb.Pools, lb.Listeners = slices.Clone(lb.Pools), slices.Clone(lb.Listeners)
			lb.Pools[0].Name = "renamed"
			lb.Pools[1].Members = append(slices.Clone(lb.Pools[1].Members),
				ibmsim.Member{ID: "r006-x", Port: 30443, Target: ibmsim.Target{Address: "10.9.9.9"}})
			lb.Listeners = lb.Listeners[:1]
		}))
		time.Sleep(time.Minute)
		w.mustEnsure(s)
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
		w.drainEvents()
		w.sim.RemoveLoadBalancers()
		time.Sleep(time.Minute)
		w.mustEnsure(s)
		assert.Contains(w.t, w.drainEvents(), eventGone)
		assert.Len(w.t, w.sim.LoadBalancers(), 1)
	})
}

// TestNoNodes (50): nobody waits for nodes, and the members stay.
func TestNoNodes(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s, began := web(), time.Now()
		w.mustEnsure(s)
		before := snapshot(w.t, w.sim)
		w.nodes = nil
		require.ErrorContains(w.t, w.ensure(s), "no node can be a backend")
		require.ErrorContains(w.t, w.cloud.loadBalancers.UpdateLoadBalancer(w.t.Context(), "", s, nil), "no node can be a backend")
		assert.Less(w.t, time.Since(began), 5*time.Second)
		assert.Equal(w.t, before, snapshot(w.t, w.sim))
	})
}

// TestFailed (46, 48): a load balancer that failed is told of and only deleted, and a status that nobody knows is one of work.
func TestFailed(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 0, nil, func(w *world) {
		s := web()
		w.mustEnsure(s)
		set := func(status string) {
			require.NoError(w.t, w.sim.EditLoadBalancer(ownName(ibmsim.Cluster, s), func(lb *ibmsim.LoadBalancer) { lb.Provisioning = status }))
			time.Sleep(time.Minute)
		}
		w.writes()
		set("new_pending")
		w.mustEnsure(s)
		w.addNode("worker-2")
		done := make(chan error)
		go func() { done <- w.ensure(s) }()
		time.Sleep(time.Minute)
		assert.Empty(w.t, w.writes())
		set("")
		require.NoError(w.t, <-done)
		assert.Equal(w.t, []string{put, put}, w.writes())
		set("failed")
		w.drainEvents()
		require.ErrorContains(w.t, w.ensure(s), "made again when it, or the Service, is deleted")
		assert.Contains(w.t, w.drainEvents(), eventFailed)
		assert.Empty(w.t, w.writes())
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.Empty(w.t, w.sim.LoadBalancers())
	})
}

// TestDeletion (42): a deletion waits its turn, counts when the load balancer is gone, and an empty answer is no absence.
func TestDeletion(t *testing.T) {
	t.Parallel()
	inWorld(t, 1, 30*time.Second, nil, func(w *world) {
		s, began := web(), time.Now()
		w.mustEnsure(s)
		id, err := w.server.AddFault(simkit.Fault{Kind: "empty-object"})
		require.NoError(w.t, err)
		time.Sleep(time.Minute)
		require.Error(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		w.server.RemoveFault(id)
		require.NoError(w.t, w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s))
		assert.GreaterOrEqual(w.t, time.Since(began), 90*time.Second)
		assert.Empty(w.t, w.sim.LoadBalancers())
		_, exists, err := w.cloud.loadBalancers.GetLoadBalancer(w.t.Context(), "", s)
		require.NoError(w.t, err)
		assert.False(w.t, exists)
	})
}

// TestNetwork (51, 55): a network load balancer in one subnet, with instances behind it; its status has the address as well.
func TestNetwork(t *testing.T) {
	t.Parallel()
	inWorld(t, 3, 30*time.Second, nil, func(w *world) {
		s := web(annotationFeatures, "NLB", annotationPortRange, "443-450")
		w.mustEnsure(s)
		lb := w.sim.LoadBalancers()[0]
		assert.True(w.t, lb.Network)
		assert.Equal(w.t, []string{w.sim.Subnets()[1].ID}, lb.Subnets, "the zone with two of the three nodes")
		assert.Len(w.t, lb.Pools[0].Members, 3)
		assert.NotEmpty(w.t, lb.Pools[0].Members[0].Target.ID)
		assert.Contains(w.t, []string{lb.Pools[0].Name, lb.Pools[1].Name}, "tcp-443x450-30443")
		in := s.Status.LoadBalancer.Ingress
		require.Len(w.t, in, 1)
		assert.NotEmpty(w.t, in[0].Hostname)
		assert.NotEmpty(w.t, in[0].IP)
		w.writes()
		w.mustEnsure(s)
		assert.Empty(w.t, w.writes())
	})
}

// TestMemberKinds (49): a target of a kind that nobody knows is replaced.
func TestMemberKinds(t *testing.T) {
	t.Parallel()
	var m member
	require.NoError(t, json.Unmarshal([]byte(`{"id":"x","port":80,"target":{"fqdn":"a.example.com"}}`), &m))
	assert.False(t, services.SameSet([]member{m}, []member{{Port: 80, Target: target{Address: "10.0.0.1"}}}))
}

// remove deletes the load balancer of a Service.
func (w *world) remove(s *v1.Service) error {
	return w.cloud.loadBalancers.EnsureLoadBalancerDeleted(w.t.Context(), "", s.DeepCopy())
}
