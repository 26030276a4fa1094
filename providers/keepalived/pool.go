package keepalived

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// This file computes with ranges of addresses. It never enumerates a range, which may be an IPv6 network.

// span is a range of addresses of one family, both ends included.
type span struct{ from, to netip.Addr }

func (s span) String() string { return s.from.String() + "-" + s.to.String() }

func (s span) contains(a netip.Addr) bool { return s.from.Compare(a) <= 0 && a.Compare(s.to) <= 0 }

// pool is a set of addresses for Services.
type pool struct {
	// key is the pool's origin, for messages; text is its value.
	key, text string
	// spans are sorted and do not overlap.
	spans []span
	// down: the highest address is assigned first.
	down bool
	// whole: IPv4 addresses ending in .0 and .255 are assigned too.
	whole bool
	// dynamic: the announcer gets the IPv4 address by DHCP.
	dynamic bool
}

// hasFamily reports whether the pool has any addresses of a family.
func (p pool) hasFamily(v6 bool) bool {
	return slices.ContainsFunc(p.spans, func(s span) bool { return s.from.Is6() == v6 })
}

// contains reports whether the pool contains an address.
func (p pool) contains(a netip.Addr) bool {
	return p.gives(a) && slices.ContainsFunc(p.spans, func(s span) bool { return s.contains(a) })
}

// gives reports whether an address inside the spans may be assigned: many networks do not route the ends of a /24.
func (p pool) gives(a netip.Addr) bool {
	if a.IsUnspecified() {
		return false
	}
	if p.whole || !a.Is4() {
		return true
	}
	last := a.As4()[3]
	return last != 0 && last != 255
}

// next returns the first free address of a family. It checks only a few more addresses than are taken.
func (p pool) next(v6 bool, taken func(netip.Addr) bool) (netip.Addr, bool) {
	spans := p.spans
	if p.down {
		spans = slices.Clone(spans)
		slices.Reverse(spans)
	}
	for _, s := range spans {
		if s.from.Is6() != v6 {
			continue
		}
		at, last, step := s.from, s.to, netip.Addr.Next
		if p.down {
			at, last, step = s.to, s.from, netip.Addr.Prev
		}
		for {
			if p.gives(at) && !taken(at) {
				return at, true
			}
			if at == last {
				break
			}
			at = step(at)
		}
	}
	return netip.Addr{}, false
}

// parseSpans parses a list of CIDRs and of ranges first-last. With skipEnds, the first and the last address of each IPv4 network are left
// out, after adjacent networks are joined.
func parseSpans(text string, skipEnds bool) ([]span, error) {
	var networks, ranges []span
	for part := range strings.SplitSeq(text, ",") {
		part = strings.TrimSpace(part)
		if strings.Contains(part, "/") {
			prefix, err := netip.ParsePrefix(part)
			if err != nil || prefix.Addr().Is4In6() {
				return nil, fmt.Errorf("%q is not a network; use a form such as 192.0.2.0/24", part)
			}
			networks = append(networks, spanOf(prefix))
			continue
		}
		first, last, ok := strings.Cut(part, "-")
		from, err1 := netip.ParseAddr(strings.TrimSpace(first))
		to, err2 := netip.ParseAddr(strings.TrimSpace(last))
		if !ok || err1 != nil || err2 != nil || from.Zone()+to.Zone() != "" || from.Is4In6() || from.Is4() != to.Is4() || to.Less(from) {
			return nil, fmt.Errorf("%q is not a range of addresses; use a form such as 192.0.2.10-192.0.2.20", part)
		}
		ranges = append(ranges, span{from, to})
	}
	networks = mergeSpans(networks)
	if skipEnds {
		networks = removeEnds(networks)
	}
	return mergeSpans(append(networks, ranges...)), nil
}

// spanOf returns a network as a span.
func spanOf(prefix netip.Prefix) span {
	from := prefix.Masked().Addr()
	end := from.AsSlice()
	for i := prefix.Bits(); i < from.BitLen(); i++ {
		end[i/8] |= 1 << (7 - i%8)
	}
	to, _ := netip.AddrFromSlice(end) // its length is valid
	return span{from, to}
}

// mergeSpans returns the same addresses in the fewest spans, sorted.
func mergeSpans(spans []span) []span {
	slices.SortFunc(spans, func(a, b span) int { return a.from.Compare(b.from) })
	var all []span
	for _, s := range spans {
		if n := len(all); n > 0 && all[n-1].from.Is4() == s.from.Is4() {
			last := &all[n-1]
			if follows := last.to.Next(); !last.to.Less(s.from) || follows == s.from {
				if last.to.Less(s.to) {
					last.to = s.to
				}
				continue
			}
		}
		all = append(all, s)
	}
	return all
}

// removeEnds removes the first and the last address of each IPv4 network in the spans, except of a /31 and a /32.
func removeEnds(spans []span) []span {
	var all []span
	for _, s := range spans {
		if !s.from.Is4() {
			all = append(all, s)
			continue
		}
		for from := s.from; ; {
			network, bits := networkFrom(from, s.to)
			from = network.to.Next()
			last := network.to == s.to
			if bits < 31 {
				network.from, network.to = network.from.Next(), network.to.Prev()
			}
			all = append(all, network)
			if last {
				break
			}
		}
	}
	return all
}

// networkFrom returns the largest network that begins with an IPv4 address and ends at or before another one, and its prefix length.
func networkFrom(from, to netip.Addr) (network span, bits int) {
	for ; ; bits++ {
		network = spanOf(netip.PrefixFrom(from, bits))
		if network.from == from && !to.Less(network.to) {
			return network, bits
		}
	}
}
