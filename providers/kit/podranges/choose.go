package podranges

import (
	"context"
	"errors"
	"net/netip"
	"slices"

	v1 "k8s.io/api/core/v1"
)

// choice holds the ranges that a Node will get.
type choice struct {
	node   *v1.Node
	ranges []netip.Prefix
}

// takenRanges returns the ranges that Nodes have or claim, and those that are being written to a Node.
func (a *Controller) takenRanges(all []*v1.Node) map[netip.Prefix]bool {
	taken := map[netip.Prefix]bool{}
	for _, node := range all {
		for _, p := range heldBy(node) {
			taken[p] = true
		}
	}
	for _, g := range a.grants {
		for _, p := range g.ranges {
			taken[p] = true
		}
	}
	return taken
}

// choose selects the ranges of a Node. None is assigned before all are known.
func (a *Controller) choose(
	ctx context.Context, node *v1.Node, taken map[netip.Prefix]bool, excluded []netip.Prefix, expected int,
) (choice, error) {
	c := choice{node: node, ranges: make([]netip.Prefix, len(a.Families))}
	for i, f := range a.Families {
		if f.Of == nil {
			continue
		}
		var err error
		if c.ranges[i], err = f.Of(ctx, node, expected); err != nil {
			if missing, ok := errors.AsType[*NotAvailable](err); ok {
				a.sendEvent(node, EventNone, missing)
			}
			return c, err
		}
	}
	before := a.grants[node.UID].ranges
	for i, f := range a.Families {
		switch {
		case f.Of != nil:
		case len(before) == len(a.Families):
			c.ranges[i] = before[i]
		default:
			var ok bool
			if c.ranges[i], ok = freeBlock(f.Network, f.Bits, taken, excluded); !ok {
				a.sendEvent(node, EventNone, ErrNoFreeRange)
				return c, ErrNoFreeRange
			}
		}
	}
	for _, p := range c.ranges {
		taken[p] = true
	}
	return c, nil
}

// freeBlock returns the first block of a network that is neither taken nor overlaps an excluded range.
func freeBlock(network netip.Prefix, bits int, taken map[netip.Prefix]bool, excluded []netip.Prefix) (netip.Prefix, bool) {
	// Nodes may have larger or smaller ranges if the cluster's mask was changed.
	odd := slices.Clone(excluded)
	for p := range taken {
		if p.Addr().Is4() == network.Addr().Is4() && p.Bits() != bits {
			odd = append(odd, p)
		}
	}
	for p := netip.PrefixFrom(network.Masked().Addr(), bits); network.Contains(p.Addr()); {
		if !taken[p] && !slices.ContainsFunc(odd, p.Overlaps) {
			return p, true
		}
		after := Last(p).Next()
		if !after.IsValid() {
			break
		}
		p = netip.PrefixFrom(after, bits)
	}
	return netip.Prefix{}, false
}

// Last returns the last address of a network.
func Last(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().AsSlice()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	last, _ := netip.AddrFromSlice(b) // the length is that of an address
	return last
}

// Same compares the texts of two pod ranges, ignoring notation.
func Same(a, b string) bool {
	one, errA := netip.ParsePrefix(a)
	other, errB := netip.ParsePrefix(b)
	return a == b || errA == nil && errB == nil && one.Masked() == other.Masked()
}
