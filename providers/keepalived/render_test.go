package keepalived

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const roundTrip = 20 * time.Millisecond

func node(name string, addresses ...string) *v1.Node {
	n := &v1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: a})
	}
	return n
}

func threeNodes() []*v1.Node {
	return []*v1.Node{node("node-2", "10.99.0.12", "fd00::12"), node("node-1.example.com", "10.99.0.11", "fd00::11"), node("node-3", "10.99.0.13", "fd00::13")}
}

func testLayout() layout { return layout{Interface: "eth0", RouterID: 50, Advert: 1, Unicast: true} }

func addresses(n4, n6 int) (all []netip.Addr) {
	for i := range n6 {
		all = append(all, netip.MustParseAddr(fmt.Sprintf("fd01::%x", i+1)))
	}
	for i := range n4 {
		all = append(all, netip.MustParseAddr(fmt.Sprintf("10.98.%d.%d", i/250, i%250+1)))
	}
	return all
}

func TestRender(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ n4, n6 int }{{0, 0}, {1, 0}, {2, 0}, {300, 0}, {1, 1}, {0, 2}, {3, 300}} {
		for _, nodes := range [][]*v1.Node{nil, threeNodes()[:1], threeNodes()} {
			text := render(testLayout(), addresses(c.n4, c.n6), nodes)
			require.NoError(t, verify(text), text)
			there := c.n4+c.n6 > 0 && len(nodes) > 0
			assert.Equal(t, there, strings.Contains(text, "vrrp_instance"), "an instance without an address is an error, and one that every node has a danger")
			for _, a := range addresses(c.n4, c.n6) {
				assert.Equal(t, map[bool]int{true: 1}[there], strings.Count(text, " "+netip.PrefixFrom(a, a.BitLen()).String()+"\n"))
			}
		}
	}
}

// lacking returns the lines of a that b lacks.
func lacking(a, b string) (all []string) {
	for line := range strings.Lines(a) {
		if !strings.Contains(b, line) {
			all = append(all, strings.TrimSpace(line))
		}
	}
	return all
}

// TestRenderedDifferences: another node changes only conditional lines, and another address adds one line.
func TestRenderedDifferences(t *testing.T) {
	t.Parallel()
	before, joined := render(testLayout(), addresses(2, 0), threeNodes()[:2]), render(testLayout(), addresses(2, 0), threeNodes())
	for _, line := range append(lacking(joined, before), lacking(before, joined)...) {
		assert.True(t, strings.HasPrefix(line, "@"), line)
	}
	more := render(testLayout(), addresses(3, 0), threeNodes())
	assert.Equal(t, []string{"10.98.0.3/32"}, lacking(more, joined))
	assert.Empty(t, lacking(joined, more))
	all := threeNodes()
	assert.Equal(t, joined, render(testLayout(), addresses(2, 0), []*v1.Node{all[2], all[0], all[1]}), "the same in any order")
}

// TestBrokenFileIsNotPublished: files that keepalived would refuse are never written.
func TestBrokenFileIsNotPublished(t *testing.T) {
	t.Parallel()
	good := render(testLayout(), addresses(2, 1), threeNodes())
	for what, change := range map[string][2]string{
		"a block that is not closed":    {"    virtual_ipaddress_excluded {\n", "    virtual_ipaddress_excluded {\n    virtual_ipaddress {\n"},
		"a block too few":               {"}\n", ""},
		"a statement that there is not": {"nopreempt", "preempt_now"},
		"an interface":                  {"@node-3 interface eth0", "@node-3 interface eth0;reboot"},
		"a router":                      {"virtual_router_id 50", "virtual_router_id 256"},
		"a priority":                    {"priority 254", "priority 0"},
		"an address":                    {"10.98.0.1/32", "10.98.0.1/24"},
		"no address":                    {"        10.98.0.1/32\n", ""},
		"an address twice":              {"10.98.0.2/32", "10.98.0.1/32"},
		"a peer of the other family":    {"10.99.0.12", "fd00::12"},
		"a script":                      {"    nopreempt\n", "    notify /bin/sh\n"},
	} {
		broken := strings.Replace(good, change[0], change[1], 1)
		require.NotEqual(t, good, broken, what)
		require.Error(t, verify(broken), what)
	}
}

// TestPublishedFile: the file is written together with the entry, other keys stay, and an unchanged file is not written again.
func TestPublishedFile(t *testing.T) {
	t.Parallel()
	env := map[string]string{envAnnouncer: announcerKeepalived, envServiceCIDR: "10.98.0.0/24", envSelector: "edge=yes"}
	onStage(t, env, func(t *testing.T, s *stage) {
		for _, n := range threeNodes() {
			n.Labels = map[string]string{"edge": "yes"}
			s.Register(n)
		}
		s.Register(node("inner", "10.99.0.99"))
		c, web := s.start(), service("default", 1)
		s.Apply(web)
		assert.Equal(t, "10.98.0.1", s.requireServed(c, web))
		book := func() *v1.ConfigMap { return s.api.ConfigMap(defaultNamespace, defaultBook) }
		text := book().Data[keyConfiguration]
		require.NoError(t, verify(text))
		assert.Contains(t, text, "@node-3 priority 252\n")
		assert.NotContains(t, text, "inner")
		assert.Equal(t, "stays", book().Data["mine"])
		require.NoError(t, c.republish(t.Context()))
		assert.Equal(t, 1, s.writes())
		joined := node("node-4", "10.99.0.14")
		joined.Labels = map[string]string{"edge": "yes"}
		s.Register(joined)
		require.NoError(t, c.republish(t.Context()))
		assert.Equal(t, 2, s.writes())
		assert.Contains(t, book().Data[keyConfiguration], "@^node-4 10.99.0.14\n")
		require.NoError(t, s.Remove(c.loadBalancers, "", web))
		assert.NotContains(t, book().Data[keyConfiguration], "vrrp_instance")
	}, configMap(defaultNamespace, defaultBook, map[string]string{"mine": "stays"}))
}

// TestNoTextReachesAFile: user input reaches files and values only as an address or a name.
func TestNoTextReachesAFile(t *testing.T) {
	t.Parallel()
	const evil = "DR\n  notify /bin/sh"
	for announcer, env := range map[string]map[string]string{announcerVIP: vipEnv, announcerKeepalived: confEnv} {
		onStage(t, env, func(t *testing.T, s *stage) {
			s.Register(node("n1", "10.99.0.11"))
			c, web := s.start(), service("default", 1)
			web.Annotations = map[string]string{annotationMethod: evil, annotationInterface: "eth0\n notify x", annotationHost: evil}
			web.Labels = map[string]string{labelImplementation: "x"}
			web.Spec.Ports = []v1.ServicePort{{Name: "virtual-ipaddress", Port: 80}}
			s.Apply(web)
			address := s.requireServed(c, web)
			if announcer == announcerVIP {
				assert.Equal(t, "default/s1", s.vips().Data[address])
				return
			}
			text := s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]
			require.NoError(t, verify(text))
			assert.NotContains(t, text, "notify")
		})
	}
}

// TestForeignFileIsReplaced: a foreign file in the ConfigMap is replaced, even if no Service has an address.
func TestForeignFileIsReplaced(t *testing.T) {
	t.Parallel()
	onStage(t, confEnv, func(t *testing.T, s *stage) {
		s.Register(node("n1", "10.99.0.11"))
		c, web := s.start(), service("default", 1)
		require.NoError(t, c.republish(t.Context()))
		assert.Nil(t, s.api.ConfigMap(defaultNamespace, defaultBook), "nothing is announced, and nothing written")
		s.Apply(web)
		s.requireServed(c, web)
		for range 2 {
			cm := s.api.ConfigMap(defaultNamespace, defaultBook)
			cm.Data[keyConfiguration] = "vrrp_instance {"
			s.api.Put(cm)
			c.reconciler.book.observe(s.api.ConfigMap(defaultNamespace, defaultBook))
			require.NoError(t, c.republish(t.Context()))
			require.NoError(t, verify(s.api.ConfigMap(defaultNamespace, defaultBook).Data[keyConfiguration]))
			require.NoError(t, s.Remove(c.loadBalancers, "", web))
		}
	})
}
