package linode

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/linode/linodego"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

func nodeOf(id int, address, label string) linodego.NodeBalancerNode {
	return linodego.NodeBalancerNode{ID: id, Address: address, Label: label, Weight: nodeWeight, Mode: modeAccept}
}

// TestNodeSets: what is packed comes out again, whatever others have made of the nodes.
func TestNodeSets(t *testing.T) {
	t.Parallel()
	for name, list := range map[string][]linodego.NodeBalancerNode{
		"none":                nil,
		"one":                 {nodeOf(7, "192.168.128.1:30000", "a")},
		"IDs in any order":    {nodeOf(900000000123, "192.168.128.1:30000", "a"), nodeOf(2, "192.168.128.10:30000", "b"), nodeOf(500, "192.168.128.9:30000", "c")},
		"IPv6":                {nodeOf(1, "[2001:db8::1]:30000", "a"), nodeOf(2, "[2001:db8::2]:30000", "b")},
		"several ports":       {nodeOf(1, "192.168.128.1:30000", "a"), nodeOf(2, "192.168.128.1:30001", "b"), nodeOf(3, "192.168.128.2:30000", "c")},
		"an address twice":    {nodeOf(1, "192.168.128.1:30000", "a"), nodeOf(2, "192.168.128.1:30000", "b")},
		"what is no address":  {nodeOf(1, "192.168.128.1:30000", "a"), nodeOf(2, "nowhere", "b"), nodeOf(3, "", "c")},
		"other modes, labels": {{ID: 1, Address: "192.168.128.1:80", Label: "x", Weight: 3, Mode: "drain"}, {ID: 2, Address: "192.168.128.2:80", Mode: "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			set := nodeSetOf(list, inventory.NewLists[nodeRow]())
			var want []nodeOptions
			for _, n := range list {
				want = append(want, nodeOptions{ID: n.ID, Address: n.Address, Label: n.Label, Weight: n.Weight, Mode: string(n.Mode)})
			}
			assert.ElementsMatch(t, want, slices.Collect(set.entries()))
			text, err := json.Marshal(rebuildFields{Nodes: set})
			require.NoError(t, err)
			var sent struct{ Nodes *[]nodeOptions }
			require.NoError(t, json.Unmarshal(text, &sent))
			require.NotNil(t, sent.Nodes, "a rebuild without nodes takes all away, and says so")
			assert.ElementsMatch(t, want, *sent.Nodes)
		})
	}
	text, err := json.Marshal(configFields{})
	require.NoError(t, err)
	assert.NotContains(t, string(text), "nodes")
}

// TestNodeDifferences compares sets with a simple comparison by address, over random sets.
func TestNodeDifferences(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 2))
	lists := inventory.NewLists[nodeRow]()
	for range 3000 {
		var have []linodego.NodeBalancerNode
		twice := 0
		seen := map[string]linodego.NodeBalancerNode{}
		for id := range random.IntN(6) {
			port := 30000
			if random.IntN(8) == 0 {
				port++
			}
			n := nodeOf(id+1, fmt.Sprintf("192.168.128.%d:%d", random.IntN(6), port), fmt.Sprint("n", random.IntN(2)))
			if _, ok := seen[n.Address]; ok {
				twice++
			}
			seen[n.Address], have = n, append(have, n)
		}
		var backends []backend
		for i := range 6 {
			if random.IntN(2) == 0 {
				backends = append(backends, backend{node: "n0", address: netip.AddrFrom4([4]byte{192, 168, 128, byte(i)})})
			}
		}
		want := newWantedNodes(backends).atPort(protocolTCP, 30000)
		add, kept := 0, 0
		for n := range want.entries() {
			if _, ok := seen[n.Address]; ok {
				kept++
			} else {
				add++
			}
		}
		set := nodeSetOf(have, lists)
		d := set.compareWith(want)
		require.Len(t, d.add, add, "%v, %v", have, backends)
		require.Len(t, d.remove, len(seen)-kept+twice, "%v, %v", have, backends)
		for _, i := range d.add {
			require.NotContains(t, seen, want.nodeAt(i).Address)
		}
		left := slices.Collect(set.entries())
		for _, i := range slices.Backward(d.remove) {
			left = slices.Delete(left, i, i+1)
		}
		require.Len(t, left, kept)
		labels := 0
		for _, n := range left {
			require.True(t, slices.ContainsFunc(backends, func(b backend) bool { return b.address.String()+":30000" == n.Address }))
			if n.Label != nodeLabel("n0") {
				labels++
			}
		}
		require.Equal(t, labels, d.change)
	}
}

// TestNodesShareMemory: ports that have the same nodes keep one list of them, also after a node joined or left.
func TestNodesShareMemory(t *testing.T) {
	t.Parallel()
	const nodes = 1000
	lists := inventory.NewLists[nodeRow]()
	backends := func(n int) (list []backend) {
		for i := range n {
			list = append(list, backend{node: fmt.Sprintf("worker-%04d", i), address: netip.AddrFrom4([4]byte{192, 168, byte(128 + i/250), byte(i % 250)})})
		}
		return list
	}
	var before []linodego.NodeBalancerNode
	for n := range newWantedNodes(backends(nodes)).atPort(protocolTCP, 30000).entries() {
		before = append(before, nodeOf(1000+3*len(before), n.Address, n.Label))
	}
	one := nodeSetOf(before, lists)
	for i := range before { // another port, with other IDs
		before[i].ID += 123456
	}
	other := nodeSetOf(before, lists)
	assert.Same(t, &one.rows[0], &other.rows[0])

	more := newWantedNodes(backends(nodes + 1))
	for _, mode := range []string{modeAccept, "none"} { // as asked for, and as the API may show it
		last := nodeSet{}
		for i, set := range []nodeSet{one, other} {
			want := more.atPort(protocolTCP, 30000)
			d := set.compareWith(want)
			require.Equal(t, 1, d.count())
			added := want.nodeAt(d.add[0])
			n := nodeOf(7_000_000+i, added.Address, added.Label)
			n.Mode = linodego.NodeMode(mode)
			joined := set.insert(n, lists)
			assert.Zero(t, set.compareWith(more.atPort(protocolTCP, 30001)).change)
			assert.Equal(t, append(set.ids, 0)[0], joined.ids[0])
			assert.Contains(t, joined.ids, 7_000_000+i)
			assert.Len(t, slices.Collect(set.entries()), nodes, "the set of before is what it was")
			if i > 0 {
				assert.Same(t, &last.rows[0], &joined.rows[0])
			}
			last = joined
			left := joined.removeNode(7_000_000+i, lists)
			assert.ElementsMatch(t, slices.Collect(set.entries()), slices.Collect(left.entries()))
			assert.Equal(t, joined, joined.removeNode(1, lists), "of what is gone nothing changes")
		}
	}
}

// TestNodeWithTwoNames: two Nodes of one Linode are one node of a config, the same at each look.
func TestNodeWithTwoNames(t *testing.T) {
	t.Parallel()
	address := netip.MustParseAddr("192.168.128.1")
	backends := []backend{{node: "worker-new", address: address}, {node: "worker-old", address: address}, {node: "x-other", address: address.Next()}}
	for range 2 {
		slices.Reverse(backends[:2])
		for _, protocol := range []string{protocolTCP, protocolUDP} {
			var got []string
			for n := range newWantedNodes(backends).atPort(protocol, 30000).entries() {
				got = append(got, n.Address+" "+n.Label)
			}
			assert.Equal(t, []string{"192.168.128.1:30000 worker-new", "192.168.128.2:30000 x-other"}, got)
		}
	}
}
