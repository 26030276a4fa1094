package azure

import (
	"crypto/md5" //nolint:gosec // part of names, as Azure's own controller makes them; nothing is protected by it
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
)

// This file computes the rules of the network security group: those of this program are shared by all Services with the same protocol,
// sources and ports, and each Service adds its addresses. Everything else in the group stays as it is.

const (
	rulePrefix    = "k8s-azure-lb"
	firstPriority = 500
	lastPriority  = 4096
)

// securityGroup is the document of a network security group.
type securityGroup struct {
	resource
	Properties struct {
		object
		State string          `json:"provisioningState"`
		Rules []*securityRule `json:"securityRules"`
	} `json:"properties"`
}

type securityRule struct {
	subresource
	Properties securityProperties `json:"properties"`
}

// securityProperties have fields in singular and in plural for the same values.
type securityProperties struct {
	object
	Description       string         `json:"description"`
	Direction         string         `json:"direction"`
	Priority          int            `json:"priority"`
	Access            string         `json:"access"`
	Protocol          string         `json:"protocol"`
	SourcePort        string         `json:"sourcePortRange"`
	SourcePorts       []string       `json:"sourcePortRanges"`
	Source            string         `json:"sourceAddressPrefix"`
	Sources           []string       `json:"sourceAddressPrefixes"`
	SourceGroups      []*subresource `json:"sourceApplicationSecurityGroups"`
	Port              string         `json:"destinationPortRange"`
	Ports             []string       `json:"destinationPortRanges"`
	Destination       string         `json:"destinationAddressPrefix"`
	Destinations      []string       `json:"destinationAddressPrefixes"`
	DestinationGroups []*subresource `json:"destinationApplicationSecurityGroups"`
}

func (r *securityRule) sources() []string { return valuesOf(r.Properties.Source, r.Properties.Sources) }

func (r *securityRule) ports() []string { return valuesOf(r.Properties.Port, r.Properties.Ports) }

func (r *securityRule) destinations() []string {
	return valuesOf(r.Properties.Destination, r.Properties.Destinations)
}

// valuesOf are the values of a field in singular and in plural.
func valuesOf(one string, many []string) []string {
	list := slices.Clone(many)
	if one != "" {
		list = append(list, one)
	}
	return list
}

func setValues(one *string, many *[]string, list []string) {
	list = slices.Compact(slices.Sorted(slices.Values(list)))
	*one, *many = "", list
	if len(list) == 1 {
		*one, *many = list[0], nil
	}
}

// access is one rule that a Service needs.
type access struct {
	deny         bool
	ipv6         bool
	protocol     string
	sources      []string
	ports        []string
	destinations []string
	// additional are the Service's additional addresses, some of which may be destinations.
	additional []string
}

// name is the exact name that Azure's own controller gives.
func (a access) name() string {
	if a.deny {
		return rulePrefix + "_deny-all_" + familyName(a.ipv6)
	}
	sources, ports := slices.Sorted(slices.Values(a.sources)), slices.Sorted(slices.Values(a.ports))
	sum := md5.Sum([]byte(a.protocol + "_" + strings.Join(sources, ",") + "_" + strings.Join(ports, ","))) //nolint:gosec // see above
	return rulePrefix + "_allow_" + familyName(a.ipv6) + "_" + hex.EncodeToString(sum[:])
}

// isManaged reports whether a rule is one of those that this program, or Azure's own, makes: by its priority or, where somebody has changed
// that, by its name.
func isManaged(rule *securityRule) bool {
	p := rule.Properties
	return strings.HasPrefix(rule.Name, rulePrefix) && strings.EqualFold(p.Direction, "Inbound") &&
		(p.Priority >= firstPriority && p.Priority <= lastPriority || rule.hasName(accessOf(rule).name()))
}

// accessOf parses a security rule.
func accessOf(rule *securityRule) access {
	destinations := rule.destinations()
	return access{
		deny: rule.denies(), ipv6: strings.Contains(strings.Join(destinations, ""), ":"), protocol: rule.Properties.Protocol,
		sources: rule.sources(), ports: rule.ports(), destinations: destinations,
	}
}

func (r *securityRule) denies() bool { return strings.EqualFold(r.Properties.Access, "Deny") }

// isOwnAddress reports whether the Service added an address to a rule, or a former Service that no longer needs it.
func (c claim) isOwnAddress(address string, rule *securityRule, onNodes bool) bool {
	return hasIP(c.ownIPs, address) || hasIP(additionalIn(rule, c.mark), address) ||
		onNodes && (hasIP(c.nodes, address) || slices.Contains(c.formerNodes[address], rule.Name))
}

// additionalIn returns a cluster's additional addresses in a rule, according to the rule's description. Another cluster with the same
// security group may have added the same address.
func additionalIn(rule *securityRule, mark string) []string {
	list, ours := strings.CutPrefix(rule.Properties.Description, mark+" ")
	if mark == "" || !ours {
		return nil
	}
	packed, isPacked := strings.CutPrefix(list, packedNote)
	if !isPacked {
		return strings.Fields(list)
	}
	data, _ := base64.RawURLEncoding.DecodeString(packed) // a description that somebody has broken has no addresses
	width := net.IPv4len
	if accessOf(rule).ipv6 {
		width = net.IPv6len
	}
	var ips []string
	for part := range slices.Chunk(data, width) {
		if ip, ok := netip.AddrFromSlice(part); ok {
			ips = append(ips, ip.String())
		}
	}
	return ips
}

// packedNote begins a list of additional addresses that is too long as text: their bytes, in base64.
const packedNote = "base64:"

// packDescription returns a description with as many addresses as fit in base64.
func packDescription(mark string, list []string) string {
	text := mark + " " + packedNote
	var data []byte
	for _, s := range list {
		ip, err := netip.ParseAddr(s)
		more := slices.Concat(data, ip.AsSlice())
		if err == nil && len(text)+base64.RawURLEncoding.EncodedLen(len(more)) <= azurelimits.RuleDescription.Max {
			data = more
		}
	}
	return text + base64.RawURLEncoding.EncodeToString(data)
}

// recordAdditional records in a rule's description which additional addresses the cluster put into the rule, as many as fit. A description
// by somebody else stays.
func recordAdditional(rule *securityRule, mark string, list []string) {
	if mark == "" || rule.Properties.Description != "" && additionalIn(rule, mark) == nil {
		return
	}
	text := mark + " " + strings.Join(list, " ")
	if azurelimits.RuleDescription.CheckText(text) != nil {
		text = packDescription(mark, list)
	}
	if len(list) == 0 {
		text = ""
	}
	rule.Properties.Description = text
}

// isForNodePorts reports whether a rule is about the Service's ports on nodes alone.
func (c claim) isForNodePorts(protocol string, ports []string) bool {
	return len(ports) > 0 && !slices.ContainsFunc(ports, func(p string) bool {
		return !slices.Contains(c.nodePorts, strings.ToLower(protocol)+" "+p)
	})
}

// ownsNodesIn reports whether the nodes in a rule are there for the Service, or for none any more.
func (c claim) ownsNodesIn(rule *securityRule) bool {
	return c.isForNodePorts(rule.Properties.Protocol, rule.ports()) || c.isObsolete(rule)
}

// isObsolete reports whether a rule for nodes is obsolete: a controller made it, according to its name, and no Service has its ports.
func (c claim) isObsolete(rule *securityRule) bool {
	a := accessOf(rule)
	return c.takenNodePorts != nil && rule.hasName(a.name()) && !slices.ContainsFunc(a.ports, func(p string) bool {
		return c.takenNodePorts[strings.ToLower(a.protocol)+" "+p]
	})
}

// isDenied reports whether another Service denies all other clients at an address; if that is unknown, it does.
func (c claim) isDenied(ip string) bool {
	return c.living == nil || c.denies == nil || slices.ContainsFunc(c.living, func(s *v1.Service) bool { return c.denies(s, ip) })
}

// applyClaim changes the rules of a security group for one Service, and reports whether anything changed.
func applyClaim(group *securityGroup, c claim) (bool, error) {
	changed := false
	wanted := map[string][]string{}
	for _, a := range c.wanted {
		wanted[strings.ToLower(a.name())] = append(wanted[strings.ToLower(a.name())], a.destinations...)
	}
	kept := []*securityRule{}
	var split []access
	for _, rule := range group.Properties.Rules {
		if !isManaged(rule) {
			kept = append(kept, rule)
			continue
		}
		stays, parts, touched := withdrawFromRule(rule, c, wanted[strings.ToLower(rule.Name)])
		split = append(split, parts...)
		changed = changed || touched
		if stays {
			kept = append(kept, rule)
		}
	}
	for _, a := range append(split, c.wanted...) {
		var before []string
		if rule := findByName(kept, a.name()); rule != nil {
			before = rule.destinations()
		}
		var added bool
		var err error
		if kept, added, err = grantAccess(kept, a); err != nil {
			return false, err
		}
		if added {
			rule := findByName(kept, a.name())
			put := slices.DeleteFunc(slices.Clone(a.additional), func(ip string) bool { return hasIP(before, ip) || !hasIP(a.destinations, ip) })
			recordAdditional(rule, c.mark, append(additionalIn(rule, c.mark), put...))
		}
		changed = changed || added
	}
	if !changed {
		return false, nil
	}
	group.Properties.Rules = kept
	if len(c.wanted) == 0 {
		return true, nil // a Service that leaves makes room
	}
	return true, checkSize(kept)
}

// withdrawFromRule removes a Service's addresses from an unwanted rule, except those that other Services need.
func withdrawFromRule(rule *securityRule, c claim, wanted []string) (stays bool, split []access, touched bool) {
	a := accessOf(rule)
	before := a.destinations
	var after []string
	onNodes := a.deny || c.ownsNodesIn(rule) // no rule may deny all to a node
	for _, d := range before {
		if !c.isOwnAddress(d, rule, onNodes) || hasIP(wanted, d) {
			after = append(after, d)
			continue
		}
		others := c.sharedPorts[canonicalIP(d)]
		if hasIP(additionalIn(rule, c.mark), d) && !hasIP(c.namedIPs, d) {
			others = slices.Concat(others, c.orphanPorts)
		}
		if a.deny && len(others) > 0 && c.isDenied(d) {
			after = append(after, d)
			continue
		}
		needed := portsInUse(a.ports, a.protocol, others)
		switch {
		case len(needed) == 0:
		case len(needed) == len(a.ports):
			after = append(after, d)
		default:
			split = append(split, access{
				ipv6: strings.Contains(d, ":"), protocol: a.protocol, sources: a.sources, ports: needed, destinations: []string{d},
				additional: additionalIn(rule, c.mark),
			})
		}
	}
	if len(after) == len(before) {
		return true, nil, false
	}
	if len(after) > 0 {
		recordAdditional(rule, c.mark, slices.DeleteFunc(additionalIn(rule, c.mark), func(ip string) bool { return !hasIP(after, ip) }))
		setValues(&rule.Properties.Destination, &rule.Properties.Destinations, after)
	}
	return len(after) > 0 || len(rule.Properties.DestinationGroups) > 0, split, true
}

// portsInUse are those of ports that others have, of a protocol or of any ("*").
func portsInUse(ports []string, protocol string, others []string) (needed []string) {
	for _, p := range ports {
		samePort := func(o string) bool { return strings.HasSuffix(o, " "+p) }
		if slices.Contains(others, strings.ToLower(protocol)+" "+p) || protocol == "*" && slices.ContainsFunc(others, samePort) {
			needed = append(needed, p)
		}
	}
	return needed
}

// grantAccess adds addresses to the rule of an access, which is made where it does not exist.
func grantAccess(rules []*securityRule, a access) (after []*securityRule, changed bool, err error) {
	if len(a.destinations) == 0 {
		return rules, false, nil
	}
	if rule := findByName(rules, a.name()); rule != nil {
		have := rule.destinations()
		all := slices.Clone(have)
		for _, d := range a.destinations {
			if !hasIP(all, d) {
				all = append(all, d)
			}
		}
		said := a.isWrittenIn(rule)
		if !said {
			a.write(&rule.Properties)
		}
		if len(all) == len(have) || slices.Contains(have, "*") {
			return rules, !said, nil
		}
		setValues(&rule.Properties.Destination, &rule.Properties.Destinations, all)
		return rules, true, nil
	}
	priority, err := freePriority(rules, a.deny)
	if err != nil {
		return rules, false, err
	}
	rule := &securityRule{subresource{Name: a.name()}, securityProperties{Direction: "Inbound", Priority: priority}}
	a.write(&rule.Properties)
	setValues(&rule.Properties.Destination, &rule.Properties.Destinations, a.destinations)
	return append(rules, rule), true, nil
}

// write makes the properties of a rule what its name stands for.
func (a access) write(p *securityProperties) {
	p.SourcePort, p.SourcePorts, p.SourceGroups, p.Port, p.Ports = "*", nil, nil, "", nil
	p.Protocol, p.Access = a.protocol, "Allow"
	if a.deny {
		p.Protocol, p.Access, p.Port = "*", "Deny", "*"
		setValues(&p.Source, &p.Sources, []string{"*"})
		return
	}
	setValues(&p.Source, &p.Sources, a.sources)
	p.Ports = slices.Sorted(slices.Values(a.ports))
}

// isWrittenIn reports whether a rule still matches its name; whoever may write the security group may have changed it.
func (a access) isWrittenIn(rule *securityRule) bool {
	var want securityRule
	a.write(&want.Properties)
	have, wanted := accessOf(rule), accessOf(&want)
	return have.deny == wanted.deny && strings.EqualFold(have.protocol, wanted.protocol) &&
		sameTexts(have.sources, wanted.sources) && sameTexts(have.ports, wanted.ports) &&
		sameTexts(valuesOf(rule.Properties.SourcePort, rule.Properties.SourcePorts), []string{"*"})
}

// sameTexts compares lists as sets, whose case says nothing.
func sameTexts(a, b []string) bool {
	set := func(list []string) map[string]bool {
		found := map[string]bool{}
		for _, text := range list {
			found[strings.ToLower(text)] = true
		}
		return found
	}
	return maps.Equal(set(a), set(b))
}

// freePriority is the first free one: upwards for rules that allow, downwards for those that deny.
func freePriority(rules []*securityRule, deny bool) (int, error) {
	taken := map[int]bool{}
	for _, r := range rules {
		if strings.EqualFold(r.Properties.Direction, "Inbound") {
			taken[r.Properties.Priority] = true
		}
	}
	if deny {
		for p := lastPriority - 1; p >= firstPriority; p-- {
			if !taken[p] {
				return p, nil
			}
		}
	}
	for p := firstPriority; p < lastPriority; p++ {
		if !taken[p] {
			return p, nil
		}
	}
	return 0, fmt.Errorf("the network security group has no free priority from %d to %d", firstPriority, lastPriority)
}

// checkSize holds the limits of a security group before Azure does.
func checkSize(rules []*securityRule) error {
	destinations := 0
	for _, r := range rules {
		destinations += len(r.destinations())
	}
	return errors.Join(
		azurelimits.SecurityRules.CheckNumber(len(rules)), azurelimits.Sources.CheckNumber(countSources(rules)),
		azurelimits.Destinations.CheckNumber(destinations),
	)
}

func countSources(rules []*securityRule) (n int) {
	for _, r := range rules {
		n += len(r.sources())
	}
	return n
}

// accesses are the rules that a Service asks for.
func accesses(d desired, destinations []string) []access {
	var list []access
	for _, ipv6 := range []bool{false, true} {
		var own []string
		for _, a := range destinations {
			if ip, err := netip.ParseAddr(a); a == unknownAddress(ipv6) || err == nil && ip.Is6() == ipv6 {
				own = append(own, a)
			}
		}
		if len(own) == 0 || d.NoSecurity {
			continue
		}
		list = append(list, d.accessesOf(ipv6, own)...)
	}
	return list
}

// denies reports whether all others than those that may connect are denied, also from the network itself.
func (d desired) denies() bool { return len(d.BadRanges) > 0 || d.DenyAll && len(d.Ranges) > 0 }

// deniable are the destinations of a rule that denies all others. Nodes are none: it would cut them off from each other, and from the
// probes of all load balancers.
func (d desired) deniable(destinations []string) []string {
	if !d.NodePorts {
		return destinations
	}
	return slices.DeleteFunc(slices.Clone(destinations), func(ip string) bool { return !hasIP(d.Additional, ip) })
}

func (d desired) accessesOf(ipv6 bool, own []string) []access {
	var ranges []string
	for _, p := range d.Ranges {
		if p.Addr().Is6() == ipv6 {
			ranges = append(ranges, p.String())
		}
	}
	var sources [][]string
	for _, tag := range d.ServiceTags {
		sources = append(sources, []string{tag})
	}
	if len(ranges) > 0 {
		sources = append(sources, ranges)
	}
	if !d.Internal && len(d.ServiceTags) == 0 && len(d.Ranges) == 0 && len(d.BadRanges) == 0 {
		sources = append(sources, []string{"Internet"})
	}
	ports := map[string][]string{}
	for _, p := range d.AccessPorts {
		ports[p.protocol] = append(ports[p.protocol], strconv.Itoa(int(p.port)))
	}
	var list []access
	for _, protocol := range sortedKeys(ports) {
		for _, s := range sources {
			list = append(list, access{
				ipv6: ipv6, protocol: protocol, sources: s, ports: ports[protocol], destinations: own, additional: d.Additional,
			})
		}
	}
	if others := d.deniable(own); d.denies() && len(others) > 0 {
		list = append(list, access{deny: true, ipv6: ipv6, destinations: others, additional: d.Additional})
	}
	return list
}
