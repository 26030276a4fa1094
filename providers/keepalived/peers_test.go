package keepalived

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeWithoutAddress: a node that the others cannot reach is left out of the file, because it would hold the addresses too. An event on
// it gives the reason once.
func TestNodeWithoutAddress(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		bad *v1.Node
		why string
	}{
		"none":                  {node("bare"), "no address of type InternalIP and family IPv4 of its own"},
		"the other family":      {node("six", "fd00::99"), "no address of type InternalIP and family IPv4 of its own"},
		"that of another node":  {node("twin", "10.99.0.11"), "Node node-1.example.com, which is older, has its InternalIP 10.99.0.11 as well"},
		"one that it announces": {node("vip", "10.98.0.1"), "no address of type InternalIP and family IPv4 of its own"},
		"text":                  {node("evil", "10.99.0.77\n    notify /bin/sh"), "no address of type InternalIP"},
		"loopback":              {node("lo", "127.0.0.1"), "no address of type InternalIP"},
	} {
		env := map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24"}
		onStage(t, env, func(t *testing.T, s *stage) {
			for _, n := range threeNodes() {
				s.Register(n)
			}
			c0, web := s.start(), service("default", 1)
			c0.reconciler.setEvents(s.Recorder)
			s.Apply(web)
			assert.Equal(t, "10.98.0.1", s.requireServed(c0, web))
			good := s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]
			s.Register(c.bad)
			for range 2 {
				require.NoError(t, c0.republish(t.Context()))
			}
			assert.Equal(t, good, s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration], name)
			events := strings.Join(s.Events(), "\n")
			assert.Equal(t, 1, strings.Count(events, eventNodeLeftOut), "%s: %s", name, events)
			assert.Contains(t, events, c.why, name)
		})
	}
}

// TestZoneIsNoPeer: netip accepts zones, which are free text that a kubelet can write.
func TestZoneIsNoPeer(t *testing.T) {
	t.Parallel()
	zoned := "fe80::1%eth0\n    }\n    notify /bin/sh\n    unicast_peer {"
	_, err := netip.ParseAddr(zoned)
	require.NoError(t, err, "it is one for the standard library")
	text := render(testLayout(), addresses(0, 1), append(threeNodes(), node("evil", zoned)))
	require.NoError(t, verify(text))
	assert.NotContains(t, text, "notify")
	assert.NotContains(t, text, "evil")
}

// TestStrangersHoldNothing: on a node that the file does not name the instance has no interface.
func TestStrangersHoldNothing(t *testing.T) {
	t.Parallel()
	for _, unicast := range []bool{true, false} {
		l := testLayout()
		l.Unicast = unicast
		for line := range strings.Lines(render(l, addresses(2, 0), threeNodes())) {
			if strings.Contains(line, "interface ") {
				assert.Regexp(t, `^ +@node-[-a-z0-9.]+ interface eth0\n$`, line)
			}
		}
	}
}

// TestCommandKnowsNodes: a command that runs beside the program has no cache of Nodes, but publishes a file that names them.
func TestCommandKnowsNodes(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24"}
	onStage(t, env, func(t *testing.T, s *stage) {
		for _, n := range threeNodes() {
			s.Register(n)
			_, err := s.Kube.CoreV1().Nodes().Create(t.Context(), n, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		c, web, gone := s.start(), service("default", 1), service("default", 2)
		s.Apply(web, gone)
		s.requireServed(c, web)
		s.requireServed(c, gone)
		require.NoError(t, s.Kube.CoreV1().Services("default").Delete(t.Context(), gone.Name, metav1.DeleteOptions{}))
		command := s.start()
		command.reconciler.setNodes(nil)
		found, err := command.Orphans(t.Context(), []*v1.Service{web})
		require.NoError(t, err)
		require.Len(t, found, 1)
		require.NoError(t, command.DeleteOrphan(t.Context(), found[0]))
		text := s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]
		assert.Contains(t, text, "@node-3 priority 252\n")
		assert.NotContains(t, text, "10.98.0.2/32")
	})
}

// TestClaimedAddress: a kubelet that reports another node's address removes only its own node from the file, whatever its name.
func TestClaimedAddress(t *testing.T) {
	t.Parallel()
	created := func(n *v1.Node, second int64) *v1.Node {
		n.CreationTimestamp = metav1.Unix(second, 0)
		return n
	}
	honest, other, claimant := created(node("worker-1", "10.0.0.1"), 1), created(node("worker-2", "10.0.0.2"), 3), created(node("a", "10.0.0.1"), 2)
	peers, left := peersOf([]*v1.Node{claimant, other, honest}, addresses(1, 0))
	assert.Equal(t, []peer{{"worker-1", netip.MustParseAddr("10.0.0.1")}, {"worker-2", netip.MustParseAddr("10.0.0.2")}}, peers)
	require.Len(t, left, 1)
	assert.Equal(t, excludedNode{claimant, "Node worker-1, which is older, has its InternalIP 10.0.0.1 as well"}, left[0])
}
