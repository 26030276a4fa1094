package linode

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"

	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/providers/linode/linodesim"
)

// member puts a Node where the API server and the cache have it.
func (w *world) member(n *v1.Node) {
	w.T.Helper()
	n.UID = types.UID(n.Name)
	if _, err := w.Kube.CoreV1().Nodes().Create(w.T.Context(), n, metav1.CreateOptions{}); err != nil {
		_, err = w.Kube.CoreV1().Nodes().Update(w.T.Context(), n, metav1.UpdateOptions{})
		require.NoError(w.T, err)
	}
	w.Register(n)
}

// synced takes the Nodes over from the API server, as the informer does.
func (w *world) synced() map[string]*v1.Node {
	w.T.Helper()
	list, err := w.Kube.CoreV1().Nodes().List(w.T.Context(), metav1.ListOptions{})
	require.NoError(w.T, err)
	byName := map[string]*v1.Node{}
	for i := range list.Items {
		byName[list.Items[i].Name] = &list.Items[i]
		w.Register(&list.Items[i])
	}
	return byName
}

func TestNodeMetadata(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	w.member(w.addNode(linodesim.Spec{Label: "private", Private: true}))
	own := w.addNode(linodesim.Spec{Label: "own-choice", Private: true})
	own.Annotations = map[string]string{annotationPrivateIP: "10.7.7.7"}
	w.member(own)
	w.member(w.addNode(linodesim.Spec{Label: "public"}))
	foreign := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}, Spec: v1.NodeSpec{ProviderID: "aws:///x/i-1"}}
	w.member(foreign)
	assert.True(t, lacksMetadata(own))
	assert.False(t, lacksMetadata(foreign))

	m := &metadata{kube: w.Kube, instances: w.instances, nodes: w.Nodes(), maxAge: nodes.SweepMaxAge}
	w.server.ResetCalls()
	require.NoError(t, m.run(t.Context()))
	nodes := w.synced()
	assert.Regexp(t, `^[0-9a-f]{40}$`, nodes["private"].Labels[labelHostUUID])
	assert.Regexp(t, `^192\.168\.`, nodes["private"].Annotations[annotationPrivateIP])
	assert.Regexp(t, `^2001:db8::.*/128$`, nodes["private"].Annotations[annotationPublicIPv6])
	assert.Equal(t, "10.7.7.7", nodes["own-choice"].Annotations[annotationPrivateIP], "what somebody wrote stays")
	assert.NotContains(t, nodes["public"].Annotations, annotationPrivateIP)
	assert.Empty(t, nodes["foreign"].Labels)
	assert.LessOrEqual(t, w.server.Calls().Total, 1)
	assert.False(t, lacksMetadata(nodes["public"]))

	w.Kube.ClearActions()
	require.NoError(t, m.run(t.Context()))
	for _, a := range w.Kube.Actions() {
		assert.NotEqual(t, "patch", a.GetVerb(), "nothing differs, also for nodes without a private address")
	}
}

func TestIPv6Block(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		text string
		mask int
		want string
	}{
		{"2001:db8:1:2::/64", 112, "2001:db8:1:2:0:c::/112"},
		{"2001:db8:1:2::/64", 80, "2001:db8:1:2::/80"},
		{"2001:db8:1:2::/64", 56, ""},
		{"2001:db8:1:2:f::/112", 112, ""},
		{"nonsense", 112, ""},
	} {
		got, err := ipv6Block(c.text, c.mask)
		assert.Equal(t, c.want == "", err != nil, c.text)
		if err == nil {
			assert.Equal(t, netip.MustParsePrefix(c.want), got, c.text)
		}
	}
}

// ipamWorld is a world in a VPC whose nodes get pod ranges.
func ipamWorld(t *testing.T, flags map[string]string) (*world, *podranges.Controller, []int) {
	t.Helper()
	var subnets []int
	w := newTestWorld(t, map[string]string{"vpc-names": "cluster"}, func(s *linodesim.Sim) {
		_, subnets = s.AddVPC("cluster", [2]string{"default", "10.192.0.0/16"})
	})
	in := testInputs(w.url, w.flags, nil)
	maps.Copy(in.Flags, flags)
	in.ClusterCIDR, in.AllocateNodeCIDRs = "10.192.252.0/22", true
	c, _, err := parseConfig(in)
	require.NoError(t, err)
	a := newIPAM(c, w.loadBalancers.vpcs, w.instances)
	a.Kube, a.Events, a.Nodes = w.Kube, w.Recorder, w.Nodes()
	return w, a, subnets
}

func TestNodeIPAM(t *testing.T) {
	t.Parallel()
	w, a, subnets := ipamWorld(t, nil)
	for i := range 3 {
		w.member(w.addNode(linodesim.Spec{Label: fmt.Sprint("n", i), SubnetID: subnets[0]}))
	}
	w.server.ResetCalls()
	require.NoError(t, a.Run(t.Context()))
	require.NoError(t, a.Run(t.Context()), "the cache shows nothing of it yet")
	nodes := w.synced()
	for i, want := range []string{"10.192.252.0/24", "10.192.253.0/24", "10.192.254.0/24"} {
		n := nodes[fmt.Sprint("n", i)]
		require.Len(t, n.Spec.PodCIDRs, 2)
		assert.Equal(t, want, n.Spec.PodCIDR)
		assert.Regexp(t, `:0:c::/112$`, n.Spec.PodCIDRs[1])
	}
	assert.LessOrEqual(t, w.server.Calls().Total, 3, "no call for each node")

	// The last block ends with the subnet, whose last address cannot be used.
	w.member(w.addNode(linodesim.Spec{Label: "n3", SubnetID: subnets[0]}))
	require.ErrorIs(t, a.Run(t.Context()), podranges.ErrNoFreeRange)
	assert.Contains(t, strings.Join(w.Events(), "\n"), "Warning CIDRNotAvailable no pod range is free in --cluster-cidr")

	// A node that goes frees its block for the one that waits.
	require.NoError(t, w.Kube.CoreV1().Nodes().Delete(t.Context(), "n1", metav1.DeleteOptions{}))
	w.Unregister(nodes["n1"])
	require.NoError(t, a.Run(t.Context()))
	assert.Equal(t, "10.192.253.0/24", w.synced()["n3"].Spec.PodCIDR)
}

// TestNodeIPAMLeaksNothing: a node that cannot get its IPv6 range takes no IPv4 block, however often it is tried.
func TestNodeIPAMLeaksNothing(t *testing.T) {
	t.Parallel()
	w, a, subnets := ipamWorld(t, nil)
	bad := &v1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "bad"},
		Spec:       v1.NodeSpec{ProviderID: fmt.Sprint(providerIDPrefix, w.sim.AddLinode(linodesim.Spec{Label: "bad"}))},
	}
	w.member(bad)
	for range 10 {
		require.ErrorContains(t, a.Run(t.Context()), "no IPv6 range in the VPC")
	}
	w.member(w.addNode(linodesim.Spec{Label: "good", SubnetID: subnets[0]}))
	require.Error(t, a.Run(t.Context()), "one bad node holds nobody else up")
	assert.Equal(t, "10.192.252.0/24", w.synced()["good"].Spec.PodCIDR)

	w, a, subnets = ipamWorld(t, map[string]string{"disable-ipv6-node-cidr-allocation": "true", "service-cluster-ip-range": "10.192.252.0/24"})
	w.member(w.addNode(linodesim.Spec{Label: "v4", SubnetID: subnets[0]}))
	failures := 0
	w.Kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) {
		failures++
		return failures < 3, nil, errors.New("timeout")
	})
	require.ErrorContains(t, a.Run(t.Context()), "timeout")
	w.member(w.addNode(linodesim.Spec{Label: "v4-b", SubnetID: subnets[0]}))
	require.Error(t, a.Run(t.Context()))
	require.NoError(t, a.Run(t.Context()))
	nodes := w.synced()
	assert.Equal(t, []string{"10.192.253.0/24"}, nodes["v4"].Spec.PodCIDRs, "a range whose write failed stays that node's")
	assert.Equal(t, []string{"10.192.254.0/24"}, nodes["v4-b"].Spec.PodCIDRs)
}

// TestNodeIPAMRespectsRangesOfOthers: Nodes that the informer does not hold have ranges too.
func TestNodeIPAMRespectsRangesOfOthers(t *testing.T) {
	t.Parallel()
	w, a, subnets := ipamWorld(t, map[string]string{"disable-ipv6-node-cidr-allocation": "true"})
	for name, cidr := range map[string]string{"other-cloud": "10.192.252.0/24", "other-release": "10.192.253.128/25"} {
		n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}, Spec: v1.NodeSpec{PodCIDR: cidr, PodCIDRs: []string{cidr}}}
		_, err := w.Kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	w.member(w.addNode(linodesim.Spec{Label: "ours", SubnetID: subnets[0]}))
	require.NoError(t, a.Run(t.Context()))
	n, err := w.Kube.CoreV1().Nodes().Get(t.Context(), "ours", metav1.GetOptions{})
	require.NoError(t, err)
	assert.Equal(t, "10.192.254.0/24", n.Spec.PodCIDR)
}

// TestVerifyInstance: the Linode behind a provider ID is the node's if it has its name.
func TestVerifyInstance(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	node := w.addNode(linodesim.Spec{Label: "Worker-1"})
	other := providerIDPrefix + strconv.Itoa(w.sim.AddLinode(linodesim.Spec{Label: "data-base"}))
	for name, c := range map[string]struct{ node, id, why string }{
		"its own":       {"worker-1", node.Spec.ProviderID, ""},
		"another one's": {"worker-1", other, "has the label data-base, which is not the name of the node"},
		"nobody's":      {"worker-1", providerIDPrefix + "999999", "Linode 999999 does not exist"},
		"no number":     {"worker-1", providerIDPrefix + "../1", "is not a Linode ID"},
		"another form":  {"worker-1", strings.Replace(node.Spec.ProviderID, providerIDPrefix, providerIDPrefix+"0", 1), "is not a Linode ID"},
	} {
		ok, why, err := w.VerifyInstance(t.Context(), &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.node}, Spec: v1.NodeSpec{ProviderID: c.id}})
		require.NoError(t, err, name)
		assert.Equal(t, c.why == "", ok, name)
		assert.Contains(t, why, c.why, name)
	}
	id, err := w.server.AddFault(simkit.Fault{Kind: simkit.FaultStatus, Status: http.StatusServiceUnavailable, Operation: "GET /v4/linode/instances"})
	require.NoError(t, err)
	w.restart()
	_, _, err = w.VerifyInstance(t.Context(), node)
	require.Error(t, err, "a failure is no verdict")
	w.server.RemoveFault(id)
}

// newSecret is a TLS Secret with a certificate of its own.
func newSecret(t testing.TB, name string, serial int64) *v1.Secret {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	require.NoError(t, err)
	der, err := x509.CreateCertificate(
		rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(serial), NotAfter: time.Now().Add(time.Hour)},
		&x509.Certificate{SerialNumber: big.NewInt(serial)}, &key.PublicKey, key,
	)
	require.NoError(t, err)
	private, err := x509.MarshalECPrivateKey(key)
	require.NoError(t, err)
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, ResourceVersion: strconv.FormatInt(serial, 10)},
		Data: map[string][]byte{
			v1.TLSCertKey:       pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
			v1.TLSPrivateKeyKey: pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: private}),
		},
	}
}

func TestTLSRotation(t *testing.T) {
	t.Parallel()
	w := newTestWorld(t, nil, nil)
	w.addNode(linodesim.Spec{Label: "worker", Private: true})
	secrets := w.Kube.CoreV1().Secrets("default")
	first := newSecret(t, "web-tls", 1)
	_, err := secrets.Create(t.Context(), first, metav1.CreateOptions{})
	require.NoError(t, err)
	s := service("web", map[string]string{annotationPort + "443": `{"protocol": "https", "tls-secret-name": "web-tls"}`}, port("https", 443, 30443))
	w.Apply(s)
	shows, asked := watch.NewFakeWithChanSize(1, false), make(chan bool, 1)
	w.Kube.PrependWatchReactor("secrets", clienttesting.DefaultWatchReactor(shows, nil))
	w.SetServiceRetry(func(waits func(*v1.Service) bool) { asked <- waits(s) })
	s, _ = w.ensure(s)
	shown := func() string { return w.sim.NodeBalancers()[0].Configs()[0].SSLFingerprint }
	assert.Equal(t, fingerprint(string(first.Data[v1.TLSCertKey])), shown())
	w.server.ResetCalls()
	w.ensure(s)
	assert.Zero(t, w.server.Calls().Writes, "the same certificate is not sent again")

	second := newSecret(t, "web-tls", 2)
	_, err = secrets.Update(t.Context(), second, metav1.UpdateOptions{})
	require.NoError(t, err)
	shows.Modify(second)
	require.True(t, <-asked)
	assert.Zero(t, w.server.Calls().Writes, "only a reconciliation writes")
	w.ensure(s)
	assert.Equal(t, fingerprint(string(second.Data[v1.TLSCertKey])), shown(), "a renewed certificate reaches the NodeBalancer by itself")
	assert.Equal(t, 1, w.server.Calls().Writes)
	assert.Equal(t, 1, w.server.Calls().ByOperation["PUT /v4/nodebalancers/{id}/configs/{id}"])
	for _, c := range w.server.Calls().Latest {
		assert.NotContains(t, c.URL, "KEY")
	}

	broken := second.DeepCopy()
	broken.Data[v1.TLSCertKey] = []byte("nonsense")
	_, err = secrets.Update(t.Context(), broken, metav1.UpdateOptions{})
	require.NoError(t, err)
	_, err = w.loadBalancers.EnsureLoadBalancer(t.Context(), "kubernetes", w.Current(s), w.nodes)
	require.ErrorContains(t, err, "the secret web-tls holds no certificate and key under tls.crt and tls.key")
	assert.Equal(t, fingerprint(string(second.Data[v1.TLSCertKey])), shown())
}
