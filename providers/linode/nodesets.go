package linode

import (
	"cmp"
	"encoding/json"
	"iter"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/linode/linodego"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// Each port of each NodeBalancer has an object for each node: 5,000 nodes and 500 NodeBalancers with two ports have 5 million. All but
// their IDs is the same for many ports, and stored once.

// nodeRow holds the fields of a node that are equal in all configs: everything but its port and its ID.
type nodeRow struct {
	// host is the address without its port, in brackets for IPv6. Text that is not an address stays unchanged.
	host, label string
	weight      int
	mode        string
}

func compareRows(a, b nodeRow) int {
	return cmp.Or(strings.Compare(a.host, b.host), strings.Compare(a.label, b.label))
}

// nodeSet holds the nodes of a config, in order. It must not be changed.
type nodeSet struct {
	rows []nodeRow
	// port is that of all nodes. If they differ, ports holds each, and 0 for text that is not an address.
	port  uint16
	ports []uint16
	// ids of the nodes, 0 for a new one; nil if all are new.
	ids []int
	// subnetID is the requested subnet of the addresses; for addresses in another subnet of the VPC, that one.
	subnetID int
	subnets  []subnet
}

// nodeSetOf packs a list from the API.
func nodeSetOf(list []linodego.NodeBalancerNode, lists *inventory.Lists[nodeRow]) nodeSet {
	type node struct {
		row  nodeRow
		port uint16
		id   int
	}
	all := make([]node, len(list))
	for i, n := range list {
		host, port := splitAddress(n.Address)
		all[i] = node{nodeRow{host: host, label: n.Label, weight: n.Weight, mode: string(n.Mode)}, port, n.ID}
	}
	slices.SortFunc(all, func(a, b node) int {
		return cmp.Or(compareRows(a.row, b.row), cmp.Compare(a.port, b.port), cmp.Compare(a.id, b.id))
	})
	rows, ports, ids := make([]nodeRow, len(all)), make([]uint16, len(all)), make([]int, len(all))
	for i, n := range all {
		rows[i], ports[i], ids[i] = n.row, n.port, n.id
	}
	return nodeSet{rows: lists.Same(rows), ids: ids}.withPorts(ports)
}

// splitAddress splits a node's address into host and port.
func splitAddress(text string) (host string, port uint16) {
	a, err := netip.ParseAddrPort(text)
	if err != nil {
		return text, 0
	}
	return hostOf(a.Addr()), a.Port()
}

func hostOf(a netip.Addr) string {
	if a.Is6() {
		return "[" + a.String() + "]"
	}
	return a.String()
}

func (s nodeSet) withPorts(ports []uint16) nodeSet {
	s.port, s.ports = 0, nil
	if len(ports) == 0 {
		return s
	}
	if slices.ContainsFunc(ports, func(p uint16) bool { return p != ports[0] }) {
		s.ports = ports
	} else {
		s.port = ports[0]
	}
	return s
}

func (s nodeSet) portAt(i int) uint16 {
	if s.ports != nil {
		return s.ports[i]
	}
	return s.port
}

// nodeAt returns a node in the form of a request.
func (s nodeSet) nodeAt(i int) nodeOptions {
	row := s.rows[i]
	o := nodeOptions{Address: row.host, Label: row.label, Weight: row.weight, Mode: row.mode, SubnetID: s.subnetWith(row.host)}
	if port := s.portAt(i); port != 0 {
		o.Address += ":" + strconv.Itoa(int(port))
	}
	if s.ids != nil {
		o.ID = s.ids[i]
	}
	return o
}

// subnetWith returns the subnet for reaching an address.
func (s nodeSet) subnetWith(host string) int {
	address, err := netip.ParseAddr(host)
	at := slices.IndexFunc(s.subnets, func(n subnet) bool { return n.id == s.subnetID })
	if err != nil || at < 0 {
		return s.subnetID
	}
	for _, n := range s.subnets {
		if network, err := netip.ParsePrefix(n.ipv4); err == nil && n.vpcID == s.subnets[at].vpcID && network.Contains(address) {
			return n.id
		}
	}
	return s.subnetID
}

// entries iterates over the nodes.
func (s nodeSet) entries() iter.Seq[nodeOptions] {
	return func(yield func(nodeOptions) bool) {
		for i := range s.rows {
			if !yield(s.nodeAt(i)) {
				return
			}
		}
	}
}

// IsZero omits an empty set from a request.
func (s nodeSet) IsZero() bool { return len(s.rows) == 0 }

// MarshalJSON implements json.Marshaler: a list of nodes, as in requests.
func (s nodeSet) MarshalJSON() ([]byte, error) {
	return json.Marshal(append([]nodeOptions{}, slices.Collect(s.entries())...)) //nolint:wrapcheck // of our own types
}

// difference is the change from an observed list of rows to a desired one: positions to add from the desired list, positions to remove from
// the observed one, and the number of rows that stay with other values.
type difference struct {
	add, remove []int
	change      int
}

func (d difference) count() int { return len(d.add) + len(d.remove) + d.change }

func differs(have, want nodeRow) bool {
	return have.label != want.label || have.weight != want.weight || (want.mode != "" && have.mode != want.mode)
}

// compareWith returns the difference to a desired set, whose nodes have one port, and each address once. Both are in the order of hosts.
func (s nodeSet) compareWith(want nodeSet) (d difference) {
	next := 0
	for i, row := range s.rows {
		for next < len(want.rows) && want.rows[next].host < row.host {
			d.add = append(d.add, next)
			next++
		}
		if next == len(want.rows) || want.rows[next].host != row.host || s.portAt(i) != want.port {
			d.remove = append(d.remove, i)
			continue
		}
		if differs(row, want.rows[next]) {
			d.change++
		}
		next++
	}
	for ; next < len(want.rows); next++ {
		d.add = append(d.add, next)
	}
	return d
}

// insert returns the set with one more node.
func (s nodeSet) insert(n linodego.NodeBalancerNode, lists *inventory.Lists[nodeRow]) nodeSet {
	host, port := splitAddress(n.Address)
	row := nodeRow{host: host, label: n.Label, weight: n.Weight, mode: string(n.Mode)}
	at, _ := slices.BinarySearchFunc(s.rows, row, compareRows)
	ports := slices.Insert(s.portList(), at, port)
	s.rows = lists.Same(slices.Insert(slices.Clone(s.rows), at, row))
	s.ids = slices.Insert(slices.Clone(s.ids), at, n.ID)
	return s.withPorts(ports)
}

// removeNode returns the set without a node.
func (s nodeSet) removeNode(id int, lists *inventory.Lists[nodeRow]) nodeSet {
	at := slices.Index(s.ids, id)
	if at < 0 {
		return s
	}
	ports := slices.Delete(s.portList(), at, at+1)
	s.rows = lists.Same(slices.Delete(slices.Clone(s.rows), at, at+1))
	s.ids = slices.Delete(slices.Clone(s.ids), at, at+1)
	return s.withPorts(ports)
}

func (s nodeSet) portList() []uint16 {
	if s.ports != nil {
		return slices.Clone(s.ports)
	}
	return slices.Repeat([]uint16{s.port}, len(s.rows))
}

// wantedNodes holds the desired nodes of a NodeBalancer's ports, without the node port. UDP nodes have no mode.
type wantedNodes struct {
	datagrams, streams nodeSet
}

// isEmpty reports whether there is no node.
func (w wantedNodes) isEmpty() bool { return len(w.streams.rows) == 0 }

func newWantedNodes(backends []backend) wantedNodes {
	var w wantedNodes
	for _, b := range backends {
		row := nodeRow{host: hostOf(b.address), label: nodeLabel(b.node), weight: nodeWeight}
		w.datagrams.rows = append(w.datagrams.rows, row)
		row.mode = modeAccept
		w.streams.rows = append(w.streams.rows, row)
		w.datagrams.subnetID, w.streams.subnetID = b.subnetID, b.subnetID
	}
	for _, s := range []*nodeSet{&w.datagrams, &w.streams} {
		slices.SortFunc(s.rows, compareRows)
		// A Linode that registered under another name has two Nodes for a while; an address may occur once on a port.
		s.rows = slices.CompactFunc(s.rows, func(a, b nodeRow) bool { return a.host == b.host })
	}
	return w
}

// atPort returns the nodes for a port of the NodeBalancer.
func (w wantedNodes) atPort(protocol string, nodePort int32) nodeSet {
	s := w.streams
	if protocol == protocolUDP {
		s = w.datagrams
	}
	s.port = uint16(nodePort) //nolint:gosec // a port of the API server
	return s
}
