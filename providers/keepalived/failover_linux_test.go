package keepalived

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/test/vrrp"
)

// This file tests the rendered file with real keepalived in network namespaces: nodes and a client on one switch. It needs neither root nor
// an installed package, and skips with a message where namespaces or the package are not available.

// patience bounds waits for keepalived on a busy machine.
const patience = 3 * time.Minute

func newNetwork(t *testing.T, names ...string) *vrrp.Network {
	t.Helper()
	root, err := vrrp.Unpacked(t.Context(), t.TempDir())
	if not, ok := errors.AsType[vrrp.NotHere](err); ok {
		t.Skip(not)
	}
	require.NoError(t, err)
	n, err := vrrp.New(t.Context(), vrrp.Options{
		Dir: t.TempDir(), Root: root, DaemonSet: filepath.Join("..", "..", "docs", "examples", "keepalived", "daemonset.yaml"), Names: names,
	})
	t.Cleanup(func() {
		n.Close()
		for title, text := range n.Logs() {
			if t.Failed() {
				t.Logf("%s:\n%s", title, text)
			}
		}
	})
	if not, ok := errors.AsType[vrrp.NotHere](err); ok {
		t.Skip(not)
	}
	require.NoError(t, err)
	return n
}

// published returns the files that the provider writes for a growing number of Services.
func published(t *testing.T) (texts []string) {
	t.Helper()
	env := map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24,fd98::/64"}
	onStage(t, env, func(t *testing.T, s *stage) {
		s.Register(node("n1", "10.99.0.11"))
		s.Register(node("n2", "10.99.0.12"))
		c := s.start()
		for number := range 3 {
			one := service("default", number)
			if number == 2 {
				one = service("default", number, policy(v1.IPFamilyPolicyRequireDualStack, v1.IPv4Protocol, v1.IPv6Protocol))
			}
			s.Apply(one)
			s.requireServed(c, one)
			texts = append(texts, s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration])
		}
	})
	return texts
}

// TestKeepalivedTakesFiles: keepalived accepts each file on the nodes named in it. On other nodes it refuses the file, and so holds no
// addresses.
func TestKeepalivedTakesFiles(t *testing.T) {
	t.Parallel()
	n := newNetwork(t, "n1")
	dir := t.TempDir()
	for _, c := range []struct{ n4, n6 int }{{0, 0}, {1, 0}, {2, 0}, {300, 0}, {1, 1}, {0, 2}, {3, 300}} {
		for i, nodes := range [][]*v1.Node{nil, threeNodes()[:1], threeNodes()} {
			text := render(testLayout(), addresses(c.n4, c.n6), nodes)
			file := filepath.Join(dir, fmt.Sprintf("%d-%d-%d.conf", c.n4, c.n6, i))
			require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
			for _, id := range []string{"node-1.example.com", "node-2", "node-3", "stranger"} {
				out, err := n.Check("n1", id, file)
				if strings.Contains(text, "vrrp_instance") && !strings.Contains(text, "@"+id+" interface ") {
					assert.Contains(t, out, "Unknown interface", "%s on %s: %v", filepath.Base(file), id, err)
					continue
				}
				assert.NoError(t, err, "%s on %s: %s", filepath.Base(file), id, out)
			}
		}
	}
}

// TestFailover: two nodes run keepalived with the published file. The address moves when a node stops and when it loses its link, and stays
// when the other one returns. A reload adds an address while the first one stays up.
func TestFailover(t *testing.T) {
	t.Parallel()
	texts := published(t)
	n := newNetwork(t, "n1", "n2", "n3")
	for _, name := range []string{"n1", "n2", "n3"} {
		require.NoError(t, n.Serve(name))
		require.NoError(t, n.Publish(name, texts[0]))
		require.NoError(t, n.Help(name))
	}
	require.NoError(t, n.Start("n1"))
	first := watch(t, n, "10.98.0.1")
	require.NoError(t, first.Until("n1", patience))
	require.NoError(t, n.Start("n2")) // a later node does not take over
	require.NoError(t, n.Start("n3")) // the file does not name it
	require.NoError(t, first.Stays("n1", 5*time.Second))

	for _, name := range []string{"n1", "n2", "n3"} {
		require.NoError(t, n.Publish(name, texts[2]))
	}
	second := watch(t, n, "10.98.0.2")
	require.NoError(t, second.Until("n1", patience))
	require.NoError(t, n.Until(patience, "the IPv6 address moves with the others", func() bool { return strings.Contains(n.Addresses("n1"), "fd98::") }))
	require.NoError(t, first.Stays("n1", 3*time.Second)) // during its reload n2 may miss n1's shutdown message
	assert.Less(t, first.Gap(), 2*time.Second, "a reload with more addresses interrupts none: another node takes over after 3 s at the earliest")
	assert.NotContains(t, n.Addresses("n3"), "10.98.", "a node that nobody talks to holds no address")

	require.NoError(t, n.Stop("n1"))
	require.NoError(t, first.Until("n2", patience))
	t.Logf("node n1 stops: %s without an answer", first.Gap())
	require.NoError(t, second.Until("n2", patience))
	assert.Less(t, second.Gap(), 10*time.Second)
	assert.Less(t, first.Gap(), 6*time.Second) // a busy machine may need as long as after a lost link
	require.NoError(t, n.Start("n1"))
	require.NoError(t, first.Stays("n2", 3*time.Second))

	first.Forget()
	require.NoError(t, n.Link("n2", false))
	require.NoError(t, first.Until("n1", patience))
	t.Logf("node n2 loses its link: %s without an answer", first.Gap())
	assert.Less(t, first.Gap(), 6*time.Second)
	require.NoError(t, n.Link("n2", true))
	require.NoError(t, first.Stays("n1", 3*time.Second))

	require.NoError(t, n.Publish("n1", "vrrp_instance broken {\n@n1 interface eth0\n"))
	require.NoError(t, first.Stays("n1", 5*time.Second))
	killed(t, n, first, texts)
}

func watch(t *testing.T, n *vrrp.Network, address string) *vrrp.Watcher {
	t.Helper()
	w, err := n.Watch(address)
	require.NoError(t, err)
	return w
}

// killed: keepalived is killed on the node that holds the addresses. The other node takes over; after its restart the first one also
// releases addresses removed from the file meanwhile.
func killed(t *testing.T, n *vrrp.Network, first *vrrp.Watcher, texts []string) {
	t.Helper()
	first.Forget()
	require.NoError(t, n.Kill("n1"))
	require.NoError(t, first.Until("n2", patience))
	assert.Less(t, first.Gap(), 15*time.Second)
	require.Contains(t, n.Addresses("n1"), "10.98.0.3/32", "they are there still")
	for _, name := range []string{"n1", "n2"} {
		require.NoError(t, n.Publish(name, texts[1]))
	}
	require.NoError(t, n.Until(patience, "the address leaves the other node", func() bool { return !strings.Contains(n.Addresses("n2"), "10.98.0.3/32") }))
	require.NoError(t, n.Start("n1"))
	require.NoError(t, n.Until(patience, "nothing is left of the addresses", func() bool {
		all := n.Addresses("n1")
		return !strings.Contains(all, "10.98.") && !strings.Contains(all, "fd98:")
	}))
	require.NoError(t, first.Stays("n2", 3*time.Second))
}
