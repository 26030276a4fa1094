package keepalived

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
)

// This file renders keepalived.conf, one file for all nodes. A line starting with @<name> applies only to that node, one with @^<name> to
// all others.

const (
	maxPriority = 254 // 255 is for the address's owner
	minPriority = 1
)

// instanceName is the name of the only VRRP instance.
const instanceName = "anyccm_1"

// layout holds the settings for rendering the file.
type layout struct {
	Interface string
	RouterID  int
	Advert    int
	Unicast   bool
}

// reload_check_config is not set: with it, keepalived 2.2.7 reads a new file but keeps the old addresses. The documentation says how to
// check the file before a reload.

// render returns the file for addresses and nodes. Only the first address is advertised and all others move with it, so that an additional
// one does not change the VRRP messages.
func render(l layout, addresses []netip.Addr, nodes []*v1.Node) string {
	var b strings.Builder
	b.WriteString("# Written by AnyCCM, which overwrites whatever else is written here.\nglobal_defs {\n    vrrp_version 3\n}\n")
	addresses = slices.Clone(addresses)
	slices.SortFunc(addresses, netip.Addr.Compare) // IPv4 first
	addresses = slices.Compact(addresses)
	if len(addresses) == 0 {
		return b.String() // an instance needs an address
	}
	line := func(indent int, format string, args ...any) {
		b.WriteString(strings.Repeat("    ", indent))
		fmt.Fprintf(&b, format+"\n", args...)
	}
	peers, _ := peersOf(nodes, addresses)
	if len(peers) == 0 {
		return b.String() // an instance needs a node
	}
	line(0, "vrrp_instance %s {", instanceName)
	line(1, "state BACKUP")
	line(1, "nopreempt")
	// Other nodes get no interface and so refuse the file: without the peers' messages they would hold the addresses too.
	for _, p := range peers {
		line(1, "@%s interface %s", p.name, l.Interface)
	}
	line(1, "virtual_router_id %d", l.RouterID)
	line(1, "advert_int %d", l.Advert)
	for i, p := range peers {
		line(1, "@%s priority %d", p.name, max(maxPriority-i, minPriority))
	}
	if l.Unicast && len(peers) > 1 {
		for _, p := range peers {
			line(1, "@%s unicast_src_ip %s", p.name, p.address)
		}
		line(1, "unicast_peer {")
		for _, p := range peers {
			line(2, "@^%s %s", p.name, p.address)
		}
		line(1, "}")
	}
	line(1, "virtual_ipaddress {")
	line(2, "%s", netip.PrefixFrom(addresses[0], addresses[0].BitLen()))
	line(1, "}")
	if len(addresses) > 1 {
		line(1, "virtual_ipaddress_excluded {")
		for _, a := range addresses[1:] {
			line(2, "%s", netip.PrefixFrom(a, a.BitLen()))
		}
		line(1, "}")
	}
	line(0, "}")
	return b.String()
}

var (
	// interfaceName matches names that both Linux and keepalived's syntax accept.
	interfaceName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:@-]{0,14}$`)
	// All lines of a file have one of these forms.
	inFile     = regexp.MustCompile(`^(global_defs|vrrp_instance anyccm_1) \{$`)
	inGlobals  = regexp.MustCompile(`^vrrp_version 3$`)
	inInstance = regexp.MustCompile(`^(state BACKUP|nopreempt|interface \S+|virtual_router_id \d+|advert_int \d+|priority \d+|unicast_src_ip \S+|` +
		`(unicast_peer|virtual_ipaddress|virtual_ipaddress_excluded) \{)$`)
	inList    = regexp.MustCompile(`^[^\s{}]+$`)
	condition = regexp.MustCompile(`^@\^?([a-z0-9]([-a-z0-9.]*[a-z0-9])?) `)
)

// statementOf matches the statements of a block; "" is the file itself.
func statementOf(block string) *regexp.Regexp {
	switch block {
	case "":
		return inFile
	case "global_defs":
		return inGlobals
	case "vrrp_instance":
		return inInstance
	}
	return inList // the other blocks of an instance list addresses
}

// verify parses a file like keepalived and returns its faults, because keepalived would exit when it reads a broken one.
func verify(text string) error {
	block, blocks := "", []string{}
	found := map[string][]string{}
	for number, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		line = line[len(condition.FindString(line)):]
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if line == "}" {
			if len(blocks) == 0 {
				return fmt.Errorf("line %d closes a block that nothing opened", number+1)
			}
			block, blocks = blocks[len(blocks)-1], blocks[:len(blocks)-1]
			continue
		}
		if !statementOf(block).MatchString(line) {
			return fmt.Errorf("line %d, %q, is no statement of %s", number+1, line, cmp.Or(block, "the file"))
		}
		word, value, _ := strings.Cut(line, " ")
		if strings.HasSuffix(line, "{") {
			found[word] = append(found[word], "")
			blocks, block = append(blocks, block), word
			continue
		}
		found[block+" "+word] = append(found[block+" "+word], value)
		if strings.HasPrefix(block, "virtual_ip") || block == "unicast_peer" {
			found["in "+block] = append(found["in "+block], word)
		}
	}
	if len(blocks) > 0 {
		return fmt.Errorf("the block %s is never closed", block)
	}
	return verifyInstance(found)
}

func verifyInstance(found map[string][]string) error {
	if len(found["vrrp_instance"]) == 0 {
		return nil
	}
	first, excluded := found["in virtual_ipaddress"], found["in virtual_ipaddress_excluded"]
	names := slices.Compact(slices.Sorted(slices.Values(found["vrrp_instance interface"])))
	switch {
	case len(found["vrrp_instance"]) > 1:
		return fmt.Errorf("there are %d instances of one name", len(found["vrrp_instance"]))
	case len(first) != 1:
		return fmt.Errorf("%d addresses are advertised instead of one", len(first))
	case len(names) != 1 || !interfaceName.MatchString(names[0]):
		return fmt.Errorf("%q is no name of an interface", strings.Join(names, " "))
	}
	for _, what := range []string{"virtual_router_id", "priority", "advert_int"} {
		for _, text := range found["vrrp_instance "+what] {
			if n, err := strconv.Atoi(text); err != nil || n < 1 || n > 255 {
				return fmt.Errorf("%s %s is not from 1 to 255", what, text)
			}
		}
	}
	return verifyAddresses(first, excluded, slices.Concat(found["in unicast_peer"], found["vrrp_instance unicast_src_ip"]))
}

func verifyAddresses(first, excluded, nodes []string) error {
	seen := map[netip.Prefix]bool{}
	for _, text := range slices.Concat(first, excluded) {
		p, err := netip.ParsePrefix(text)
		if err != nil || !p.IsSingleIP() || seen[p] {
			return fmt.Errorf("%q is not one address, or there twice", text)
		}
		seen[p] = true
	}
	v6 := netip.MustParsePrefix(first[0]).Addr().Is6()
	for _, text := range nodes {
		if a := parseAddress(text); !a.IsValid() || a.Is6() != v6 {
			return fmt.Errorf("%q is no address of the family of %s", text, first[0])
		}
	}
	return nil
}
