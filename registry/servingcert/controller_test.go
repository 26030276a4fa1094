package servingcert

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// toyCloud attests the machines web-1 and web-2.
type toyCloud struct {
	mu    sync.Mutex
	down  bool
	asked []time.Time
	// behind is called before each answer.
	behind func()
}

func (c *toyCloud) AttestInstance(ctx context.Context, n *v1.Node) (a contract.Attested, why string, err error) {
	c.mu.Lock()
	c.asked = append(c.asked, evidence.From(ctx).NotBefore)
	behind, down := c.behind, c.down
	c.mu.Unlock()
	behind()
	if down {
		return a, "", errors.New("the cloud is down")
	}
	number := c.InstanceKey(n.Spec.ProviderID)
	return contract.Attested{Names: []string{"web-" + number}, Addresses: contract.AttestedAddresses("10.0.0."+number, "198.51.100.9")}, "", nil
}

// set changes the cloud while it is asked.
func (c *toyCloud) set(change func(c *toyCloud)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c)
}

// readAsked returns from when on each answer had to be.
func (c *toyCloud) readAsked() []time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

func (c *toyCloud) IsOurs(n *v1.Node) bool {
	return n.Spec.ProviderID == "" || c.InstanceKey(n.Spec.ProviderID) != ""
}

func (*toyCloud) InstanceKey(id string) string {
	_, _, c := world()
	return c.InstanceKey(id)
}

// bench is a running controller.
type bench struct {
	*Controller

	t        *testing.T
	kube     *fake.Clientset
	cloud    *toyCloud
	events   *record.FakeRecorder
	nodes    cache.Indexer
	requests int
	// age is how old the next request is.
	age      time.Duration
	approved int
}

// onBench runs a test with a controller, in virtual time.
func onBench(t *testing.T, test func(t *testing.T, b *bench)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{
			t: t, kube: fake.NewClientset(), cloud: &toyCloud{behind: func() {}}, events: record.NewFakeRecorder(100),
			nodes: cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil),
		}
		services := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
		require.NoError(t, services.Add(&v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: v1.ServiceSpec{ClusterIP: "10.96.0.9", ClusterIPs: []string{"10.96.0.9"}},
			Status: v1.ServiceStatus{LoadBalancer: v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: "198.51.100.9"}}}},
		}))
		b.Controller = &Controller{
			Client: b.kube, Events: b.events, Cloud: b.cloud, Nodes: listers.NewNodeLister(b.nodes), Services: listers.NewServiceLister(services),
			Domain: "cluster.local", Approved: func() { b.approved++ },
		}
		for _, n := range []*v1.Node{node("web-1", "toy:///zone/1"), node("web-2", "toy:///zone/2"), node("elsewhere", "other://1"), node("new", "")} {
			b.addNode(n)
		}
		go func() { assert.NoError(t, b.Run(t.Context())) }()
		synctest.Wait()
		test(t, b)
		for _, a := range b.kube.Actions() {
			verb := a.GetVerb() + " " + a.GetSubresource()
			assert.Contains(t, []string{"create ", "get ", "list ", "watch ", "update approval", "update ", "delete "}, verb)
		}
		for _, csr := range b.listRequests() {
			for _, c := range csr.Status.Conditions {
				assert.Equal(t, certificatesv1.CertificateApproved, c.Type, "nothing is denied")
			}
		}
	})
}

func (b *bench) addNode(n *v1.Node) {
	n.UID = types.UID("uid of " + n.Name)
	require.NoError(b.t, b.nodes.Add(n))
	_, err := b.kube.CoreV1().Nodes().Create(b.t.Context(), n, metav1.CreateOptions{})
	require.NoError(b.t, err)
}

func (b *bench) listRequests() []certificatesv1.CertificateSigningRequest {
	list, err := b.kube.CertificatesV1().CertificateSigningRequests().List(b.t.Context(), metav1.ListOptions{})
	require.NoError(b.t, err)
	return list.Items
}

// ask makes a request of a node's kubelet and returns its name.
func (b *bench) ask(kubelet string, names []string, ips ...string) string {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(b.t, err)
	der, err := x509.CreateCertificateRequest(rand.Reader, requestTemplate(kubelet, names, ips...), key)
	require.NoError(b.t, err)
	return b.create(kubelet, encode(der))
}

func (b *bench) create(kubelet string, data []byte) string {
	b.requests++
	csr := &request{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("csr-%d", b.requests), UID: types.UID(strconv.Itoa(b.requests)),
			CreationTimestamp: metav1.NewTime(time.Now().Add(-b.age).Truncate(time.Second)),
		},
		Spec: certificatesv1.CertificateSigningRequestSpec{
			Request: data, SignerName: certificatesv1.KubeletServingSignerName, Username: userPrefix + kubelet, Groups: []string{nodesGroup},
			Usages: []certificatesv1.KeyUsage{certificatesv1.UsageDigitalSignature, certificatesv1.UsageServerAuth},
		},
	}
	_, err := b.kube.CertificatesV1().CertificateSigningRequests().Create(b.t.Context(), csr, metav1.CreateOptions{})
	require.NoError(b.t, err)
	return csr.Name
}

// isApproved reports whether a request is approved after some time.
func (b *bench) isApproved(name string, after time.Duration) bool {
	time.Sleep(after)
	synctest.Wait()
	csr, err := b.kube.CertificatesV1().CertificateSigningRequests().Get(b.t.Context(), name, metav1.GetOptions{})
	require.NoError(b.t, err)
	return len(csr.Status.Conditions) > 0
}

// readEvents returns the events.
func (b *bench) readEvents() (list []string) {
	for len(b.events.Events) > 0 {
		list = append(list, <-b.events.Events)
	}
	return list
}

// TestApproval: what the cloud attests is approved, by an answer that began after the request was there.
func TestApproval(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		time.Sleep(300 * time.Millisecond) // the API server cuts this from the creation
		began := time.Now()
		csr := b.ask("web-1", []string{"WEB-1"}, "10.0.0.1")
		synctest.Wait()
		assert.Equal(t, 1, b.WaitingNodes())
		assert.True(t, b.isApproved(csr, 2*gatherTime))
		assert.Equal(t, 1, b.approved)
		assert.Zero(t, b.WaitingNodes())
		assert.Empty(t, b.readEvents())
		if assert.Len(t, b.cloud.readAsked(), 1) {
			assert.False(t, b.cloud.readAsked()[0].Before(began), "the cloud's answer begins after the request")
		}
	})
}

// TestWhatIsNotTheNodes: a kubelet asks for what is another's. It is told once, however often it asks.
func TestWhatIsNotTheNodes(t *testing.T) {
	for name, c := range map[string]struct {
		names []string
		ip    string
		why   string
	}{
		"another node's address": {[]string{"web-1"}, "10.0.0.2", "address 10.0.0.2 is not one of the instance"},
		"another node's name":    {[]string{"Web-2"}, "10.0.0.1", `name "Web-2" is not one of the instance`},
		"a former address":       {[]string{"web-1"}, "10.0.0.77", "address 10.0.0.77 is not one of the instance"},
		"the API server":         {[]string{"KUBERNETES.default.svc"}, "10.0.0.1", `name "KUBERNETES.default.svc" is never a node's`},
		"a Service":              {nil, "10.96.0.9", "address 10.96.0.9 is never a node's"},
		"a load balancer":        {nil, "198.51.100.9", "address 198.51.100.9 is never a node's"},
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				for range 3 {
					csr := b.ask("web-1", c.names, c.ip)
					assert.False(t, b.isApproved(csr, 15*time.Minute))
				}
				assert.Equal(t, 1, b.WaitingNodes(), "nodes, not requests")
				told := b.readEvents()
				if assert.Len(t, told, 1, "one event for each node and reason") {
					assert.Contains(t, told[0], "Warning "+EventServingCertificateNotApproved)
					assert.Contains(t, told[0], c.why)
				}
			})
		})
	}
}

// TestClaimedInstance: neither of two Nodes with one instance gets a certificate.
func TestClaimedInstance(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.addNode(node("thief", "toy:///elsewhere/1"))
		owners, thiefs := b.ask("web-1", []string{"web-1"}), b.ask("thief", []string{"web-1"})
		assert.False(t, b.isApproved(owners, time.Minute))
		assert.False(t, b.isApproved(thiefs, 0))
		assert.Len(t, b.readEvents(), 2)
	})
}

// TestNodesOfOthers: in a hybrid cluster another cloud's Nodes cost nothing, and nobody is told.
func TestNodesOfOthers(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		b.ask("elsewhere", []string{"elsewhere"})
		assert.False(t, b.isApproved(b.ask("nobody", []string{"web-1"}), time.Hour))
		assert.False(t, b.isApproved(b.ask("new", []string{"web-1"}), time.Hour), "it has no instance yet")
		assert.Empty(t, b.cloud.readAsked())
		assert.Empty(t, b.readEvents())
		assert.Equal(t, 1, b.WaitingNodes(), "the new one")
	})
}

// TestOutage: without an answer nothing is approved, a renewal neither; afterwards it is.
func TestOutage(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		assert.True(t, b.isApproved(b.ask("web-1", []string{"web-1"}), time.Minute))
		b.cloud.set(func(c *toyCloud) { c.down = true })
		renewal := b.ask("web-1", []string{"web-1"})
		assert.False(t, b.isApproved(renewal, 20*time.Minute))
		assert.Empty(t, b.readEvents(), "an outage is no fault of the node")
		b.cloud.set(func(c *toyCloud) { c.down = false })
		assert.True(t, b.isApproved(renewal, maxPause))
	})
}

// TestFlood: a kubelet that asks all the time costs a few looks, each at its newest request; what is no request costs the cloud nothing.
func TestFlood(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		for range 120 {
			b.create("web-1", []byte("x"))
			b.ask("web-2", []string{"web-1"})
			time.Sleep(500 * time.Millisecond)
		}
		assert.LessOrEqual(t, len(b.cloud.readAsked()), 6)
		time.Sleep(maxPause)
		b.cloud.set(func(c *toyCloud) { c.asked = nil })
		assert.True(t, b.isApproved(b.ask("web-2", []string{"web-2"}), maxPause+gatherTime))
		assert.Len(t, b.cloud.readAsked(), 1)
	})
}

// TestOlderSeenLater: a restart shows requests in any order.
func TestOlderSeenLater(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		assert.True(t, b.isApproved(b.ask("web-1", []string{"web-1"}), time.Minute))
		b.age = time.Hour
		assert.False(t, b.isApproved(b.ask("web-1", []string{"web-1"}), time.Hour))
	})
}

// TestOnlyTheNewest: a request that a newer one replaced stays as it is.
func TestOnlyTheNewest(t *testing.T) {
	onBench(t, func(t *testing.T, b *bench) {
		older := b.ask("web-1", []string{"web-1"}, "10.0.0.1")
		time.Sleep(time.Second)
		newer := b.ask("web-1", []string{"web-1"})
		assert.True(t, b.isApproved(newer, time.Minute))
		assert.False(t, b.isApproved(older, time.Hour))
		assert.Zero(t, b.WaitingNodes())
		require.NoError(t, b.kube.CertificatesV1().CertificateSigningRequests().Delete(t.Context(), newer, metav1.DeleteOptions{}))
		synctest.Wait()
		assert.Empty(t, b.newest, "Kubernetes deletes requests after some time")
		assert.Zero(t, b.queue.NumRequeues("web-1"))
	})
}

// TestReplacedNode: the Node is read after the cloud answered, so that the answer is about it.
func TestReplacedNode(t *testing.T) {
	for name, change := range map[string]func(*v1.Node){
		"another one": func(n *v1.Node) { n.UID = "another" },
		"an instance": func(n *v1.Node) { n.Spec.ProviderID = "toy:///zone/7" },
		"it leaves":   func(n *v1.Node) { n.DeletionTimestamp, n.Finalizers = new(metav1.Now()), []string{"x/y"} },
	} {
		t.Run(name, func(t *testing.T) {
			onBench(t, func(t *testing.T, b *bench) {
				replace := func() {
					n := node("web-1", "toy:///zone/1")
					n.UID = "uid of web-1"
					change(n)
					_, err := b.kube.CoreV1().Nodes().Update(t.Context(), n, metav1.UpdateOptions{})
					assert.NoError(t, err)
				}
				b.cloud.set(func(c *toyCloud) { c.behind = replace })
				assert.False(t, b.isApproved(b.ask("web-1", []string{"web-1"}), time.Minute))
				assert.NotEmpty(t, b.cloud.readAsked())
			})
		})
	}
}

// TestWhatIsKept: of decided requests and of those that no kubelet makes the bytes are dropped.
func TestWhatIsKept(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		csr  request
		kept int
	}{
		"a request": {request{}, 1000},
		"approved": {request{Status: certificatesv1.CertificateSigningRequestStatus{
			Certificate: []byte("x"), Conditions: []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateApproved}},
		}}, 0},
		"too large": {request{Spec: certificatesv1.CertificateSigningRequestSpec{Request: bytes.Repeat([]byte("x"), 1<<20)}}, 0},
	} {
		c.csr.Spec.SignerName = certificatesv1.KubeletServingSignerName
		if c.csr.Spec.Request == nil {
			c.csr.Spec.Request = bytes.Repeat([]byte("x"), 1000)
		}
		_, err := trim(&c.csr)
		require.NoError(t, err)
		assert.Len(t, c.csr.Spec.Request, c.kept, name)
		assert.Empty(t, c.csr.Status.Certificate, name)
	}
}

// TestSupersedes: of two requests of one second the one that waits counts.
func TestSupersedes(t *testing.T) {
	t.Parallel()
	at := func(second int, decided bool) *request {
		csr := &request{Spec: certificatesv1.CertificateSigningRequestSpec{SignerName: certificatesv1.KubeletServingSignerName}}
		csr.CreationTimestamp = metav1.Unix(int64(second), 0)
		if decided {
			csr.Status.Conditions = make([]certificatesv1.CertificateSigningRequestCondition, 1)
		}
		return csr
	}
	assert.True(t, Supersedes(at(2, true), at(1, false)))
	assert.False(t, Supersedes(at(1, false), at(2, true)))
	assert.True(t, Supersedes(at(1, false), at(1, true)))
	assert.False(t, Supersedes(at(1, true), at(1, false)))
	assert.True(t, Supersedes(at(1, false), at(1, false)), "the one that is seen later")
}
