package keepalived

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	netutils "k8s.io/utils/net"
)

// This file chooses the addresses of a Service. It is pure: all input is passed in.

// holder is an owner of an address, or a Service that requests one.
type holder struct {
	name string
	// service is nil for other owners and for deleted Services.
	service *v1.Service
	// wants: the Service requests the address and does not have it yet. excess: the object lists more addresses than it can have. Such
	// addresses are assigned last, and block nobody.
	wants, excess bool
}

// usage maps addresses to their holders.
type usage map[netip.Addr][]holder

func (u usage) add(a netip.Addr, h holder) {
	if a.IsValid() && !a.IsUnspecified() {
		u[a] = append(u[a], h)
	}
}

// addList adds the addresses that one object lists, of which at most limit can be its own.
func (u usage) addList(list []netip.Addr, limit int, h holder) {
	for i, a := range list {
		h.excess = i >= limit
		u.add(a, h)
	}
}

// firmHolders returns the holders that have an address or request it, without those in excess.
func (u usage) firmHolders(a netip.Addr) []holder {
	return slices.DeleteFunc(slices.Clone(u[a]), func(h holder) bool { return h.excess })
}

// holdersWith returns the holders that have an address, without those that only request it.
func (u usage) holdersWith(a netip.Addr) []holder {
	return slices.DeleteFunc(u.firmHolders(a), func(h holder) bool { return h.wants })
}

type allocator struct {
	pools    pools
	services []*v1.Service
	nodes    []*v1.Node
	entries  []entry
	// foreign are addresses in use for other reasons: keys of a shared ConfigMap that are not ours.
	foreign []netip.Addr
	// annotated: the annotation with the addresses is also their record.
	annotated bool
	// exclusive: the announcer allows one Service per address. v4: it supports only IPv4.
	exclusive, v4 bool
	// pooled: Services may request only addresses of their pool.
	pooled bool
}

// usageWithout returns the usage of addresses, without one Service.
func (w allocator) usageWithout(self types.UID) usage {
	u := usage{}
	byUID := map[string]*v1.Service{}
	for _, s := range w.services {
		byUID[string(s.UID)] = s
		if s.UID != self {
			w.addService(u, s)
		}
	}
	for _, e := range w.entries {
		if e.UID == string(self) {
			continue
		}
		for _, a := range e.addresses() {
			u.add(a, holder{name: cmp.Or(e.title(), "a Service that is gone"), service: byUID[e.UID]})
		}
	}
	for _, n := range w.nodes {
		var list []netip.Addr
		for _, a := range n.Status.Addresses {
			list = append(list, parseLenient(a.Address))
		}
		u.addList(slices.DeleteFunc(list, func(a netip.Addr) bool { return !a.IsValid() }), maxNodeAddresses, holder{name: "Node " + n.Name})
	}
	for _, a := range w.foreign {
		u.add(a, holder{name: "another key of the ConfigMap"})
	}
	return u
}

// addService adds a Service's present and requested addresses. Requests count only for load balancers, and only if they are possible.
func (w allocator) addService(u usage, s *v1.Service) {
	h := holder{name: "Service " + s.Namespace + "/" + s.Name, service: s}
	var list []netip.Addr
	for _, text := range s.Spec.ExternalIPs {
		list = append(list, parseLenient(text))
	}
	u.addList(list, maxAddresses, h)
	if s.Spec.Type != v1.ServiceTypeLoadBalancer {
		return
	}
	for _, a := range statusAddresses(s) {
		u.add(a, h)
	}
	h.wants = !w.annotated
	if list := lenientList(s.Annotations[annotationIPs]); w.annotated || len(list) <= maxAddresses {
		u.addList(list, maxAddresses, h)
	}
	h.wants = true
	u.add(parseAddress(s.Spec.LoadBalancerIP), h)
}

const (
	// maxAddresses is the maximum number of a Service's addresses: one of each family.
	maxAddresses = 2
	// maxNodeAddresses is the maximum for a Node: an internal and an external one of each family.
	maxNodeAddresses = 2 * maxAddresses
)

// parseAddress parses an address; the result is invalid for other text. The form is canonical, because ::ffff:10.0.0.1 and 10.0.0.1 must
// not be assigned twice. Zones are refused: they are free text, which must not reach any file.
func parseAddress(text string) netip.Addr {
	a, err := netip.ParseAddr(strings.TrimSpace(text))
	if err != nil || a.Zone() != "" {
		return netip.Addr{}
	}
	return a.Unmap()
}

// parseLenient is like parseAddress, but allows leading zeros like kube-proxy.
func parseLenient(text string) netip.Addr {
	if a := parseAddress(text); a.IsValid() {
		return a
	}
	a, _ := netip.AddrFromSlice(netutils.ParseIPSloppy(strings.TrimSpace(text))) // other text yields the invalid address
	return a.Unmap()
}

// unusableReason returns why no Service can have an address; "" if one can.
func unusableReason(a netip.Addr) string {
	switch {
	case a.IsLoopback():
		return "is a loopback address"
	case a.IsMulticast():
		return "is a multicast address"
	case a == netip.AddrFrom4([4]byte{255, 255, 255, 255}):
		return "is the broadcast address"
	}
	return ""
}

// lenientList parses the addresses in a list, without other text.
func lenientList(text string) []netip.Addr {
	var all []netip.Addr
	for part := range strings.SplitSeq(text, ",") {
		if a := parseAddress(part); a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// refusal is the error of a Service that gets no address, with the event's reason. Again: a later try may succeed.
type refusal struct {
	reason, message string
	again           bool
}

func (r *refusal) Error() string { return r.message }

func refuse(format string, args ...any) error {
	return &refusal{reason: eventConfigError, message: fmt.Sprintf(format, args...)}
}

func exhaustedError(reason, format string, args ...any) error {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...), again: true}
}

type choice struct {
	addresses []netip.Addr
	// outside are requested addresses that are in no pool.
	outside []netip.Addr
	// lacking names the family without an address; "" if none is missing.
	lacking string
}

// choose returns the addresses of a Service: the requested ones, else its present ones, else free ones.
func (w allocator) choose(s *v1.Service, asked, has []netip.Addr) (choice, error) {
	p, poolErr := w.pools.poolOf(s.Namespace)
	u := w.usageWithout(s.UID)
	var c choice
	if len(asked) > 0 {
		var err error
		if c, err = w.chooseRequested(s, asked, has, p, u); err != nil {
			return choice{}, err
		}
		has = slices.Concat(c.addresses, has)
	}
	families, strict, err := w.families(s, p, poolErr == nil, has)
	if err != nil {
		return choice{}, err
	}
	c.addresses = nil
	if len(asked) > 0 { // all of them, plus missing families
		families = addRequestedFamilies(families, asked)
	}
	var failures []error
	for _, v6 := range families {
		a, err := w.addressFor(s, v6, has, p, poolErr, u)
		if _, judged := errors.AsType[*refusal](err); err != nil && !judged {
			return choice{}, err // the pools are unknown
		}
		if err != nil {
			failures = append(failures, err)
			continue
		}
		c.addresses = append(c.addresses, a)
	}
	switch {
	case len(failures) == 0:
		return c, nil
	case strict:
		return choice{}, wrapRefusal("spec.ipFamilyPolicy RequireDualStack: an address is missing", failures, len(families) > 1)
	case len(c.addresses) == 0:
		return choice{}, wrapRefusal("spec.ipFamilyPolicy PreferDualStack: no family has an address", failures, len(families) > 1)
	}
	c.lacking = errors.Join(failures...).Error()
	return c, nil
}

// addRequestedFamilies adds the families of the requested addresses: a user may request both without a policy.
func addRequestedFamilies(families []bool, asked []netip.Addr) []bool {
	for _, a := range asked {
		if !slices.Contains(families, a.Is6()) {
			families = append(families, a.Is6())
		}
	}
	return families
}

func wrapRefusal(what string, failures []error, several bool) error {
	if !several {
		return failures[0]
	}
	texts := make([]string, len(failures))
	again := false
	for i, err := range failures {
		texts[i] = err.Error()
		if r, ok := errors.AsType[*refusal](err); ok {
			again = again || r.again
		}
	}
	return &refusal{reason: eventNoAddress, message: what + ": " + strings.Join(texts, "; "), again: again}
}

// addressFor returns the address of a family: the Service's present one, a shared one, or a free one.
func (w allocator) addressFor(s *v1.Service, v6 bool, has []netip.Addr, p pool, poolErr error, u usage) (netip.Addr, error) {
	for _, a := range has {
		if a.Is6() == v6 {
			return a, nil // kept even if the pool changed
		}
	}
	if w.pools.err != nil {
		return netip.Addr{}, w.pools.err
	}
	if poolErr != nil {
		return netip.Addr{}, exhaustedError(eventNoAddress, "%s", poolErr)
	}
	if p.dynamic && !v6 && w.annotated {
		return netip.IPv4Unspecified(), nil
	}
	if !p.hasFamily(v6) {
		return netip.Addr{}, exhaustedError(eventNoAddress, "pool %s has no %s", p.key, familyName(v6))
	}
	if a, ok := w.shareableAddress(s, v6, p, u); ok {
		return a, nil
	}
	a, ok := p.next(v6, func(a netip.Addr) bool { return len(u[a]) > 0 })
	if !ok {
		a, ok = p.next(v6, func(a netip.Addr) bool { return len(u.firmHolders(a)) > 0 })
	}
	if !ok {
		return netip.Addr{}, exhaustedError(eventNoAddress, "no addresses available in %s [%s]: enlarge it, or delete Services of type LoadBalancer", p.key, p.text)
	}
	return a, nil
}

func familyName(v6 bool) v1.IPFamily {
	if v6 {
		return v1.IPv6Protocol
	}
	return v1.IPv4Protocol
}

// shareableAddress returns the lowest address of the pool that the Service may share with others.
func (w allocator) shareableAddress(s *v1.Service, v6 bool, p pool, u usage) (netip.Addr, bool) {
	if v6 || w.exclusive || !w.pools.shares(s.Namespace) {
		return netip.Addr{}, false
	}
	for _, a := range slices.SortedFunc(maps.Keys(u), netip.Addr.Compare) {
		if a.Is4() && p.contains(a) && len(u.firmHolders(a)) > 0 && w.obstacle(s, a, usage{a: u.firmHolders(a)}) == "" {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// obstacle returns why a Service cannot have an address; "" if it can.
func (w allocator) obstacle(s *v1.Service, a netip.Addr, u usage) string {
	for _, h := range u[a] {
		switch {
		case h.service == nil, w.exclusive, a.Is6():
			return "is in use by " + h.name
		case !w.pools.shares(s.Namespace) || !w.pools.shares(h.service.Namespace):
			return "is in use by " + h.name + ", and " + keyShare + s.Namespace + " of ConfigMap " + w.pools.where + " does not allow to share it"
		case portsOverlap(s, h.service):
			return "is in use by " + h.name + " with the same port"
		case (isLocal(s) || isLocal(h.service)) && !maps.Equal(s.Spec.Selector, h.service.Spec.Selector):
			return "is in use by " + h.name + ", and externalTrafficPolicy Local needs the same pods behind both"
		}
	}
	return ""
}

// portsOverlap reports whether two Services have a port in common.
func portsOverlap(a, b *v1.Service) bool {
	return slices.ContainsFunc(a.Spec.Ports, func(p v1.ServicePort) bool {
		return slices.ContainsFunc(b.Spec.Ports, func(q v1.ServicePort) bool {
			return p.Port == q.Port && cmp.Or(p.Protocol, v1.ProtocolTCP) == cmp.Or(q.Protocol, v1.ProtocolTCP)
		})
	})
}

func isLocal(s *v1.Service) bool {
	return s.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
}

// chooseRequested returns the requested addresses, in the Service's order of families.
func (w allocator) chooseRequested(s *v1.Service, asked, has []netip.Addr, p pool, u usage) (choice, error) {
	var c choice
	for _, a := range asked {
		if a.IsUnspecified() && a.Is4() && w.annotated {
			continue
		}
		if err := w.checkRequested(s, a); err != nil {
			return choice{}, err
		}
		if slices.Contains(has, a) {
			continue // this Service had the address first
		}
		holders := slices.Clone(u[a])
		if p.contains(a) { // other objects' excess addresses do not block it
			holders = u.firmHolders(a)
		}
		holders = slices.DeleteFunc(holders, func(h holder) bool { return (h.wants || w.wasGivenByKubeVIP(s, a)) && isOlder(s, h.service) })
		having := slices.DeleteFunc(slices.Clone(holders), func(h holder) bool { return h.wants })
		wanting := slices.DeleteFunc(holders, func(h holder) bool { return !h.wants })
		if why := w.obstacle(s, a, usage{a: append(having, wanting...)}); why != "" {
			return choice{}, exhaustedError(eventAddressInUse, "address %s %s; choose another one", a, why)
		}
		switch {
		case p.contains(a):
			continue
		case w.pooled && w.pools.err != nil:
			return choice{}, w.pools.err
		case w.pooled:
			return choice{}, exhaustedError(
				eventConfigError, "address %s is in no pool of namespace %s, and %s=%s; choose another one", a, s.Namespace, envRequested, requestedPools,
			)
		}
		c.outside = append(c.outside, a)
	}
	c.addresses = slices.Clone(asked)
	return c, nil
}

// wasGivenByKubeVIP reports whether kube-vip's own controller may have assigned an address to this Service and later to a younger one. The
// Service's author can write the annotation, but not the status.
func (w allocator) wasGivenByKubeVIP(s *v1.Service, a netip.Addr) bool {
	_, ours := s.Labels[labelImplementation]
	return w.annotated && !ours && slices.Contains(annotatedAddresses(s), a) && slices.Contains(statusAddresses(s), a)
}

// checkRequested refuses an address that this Service can never have.
func (w allocator) checkRequested(s *v1.Service, a netip.Addr) error {
	switch {
	case a.IsUnspecified():
		return refuse("address %s is no address; kube-vip alone asks a DHCP server for one", a)
	case w.v4 && a.Is6():
		return refuse("address %s cannot be announced: kube-keepalived-vip knows IPv4 alone", a)
	case len(s.Spec.IPFamilies) > 0 && !slices.Contains(s.Spec.IPFamilies, familyName(a.Is6())):
		return refuse("address %s is not of the families of the Service (%s); set spec.ipFamilies or choose another one", a, joinFamilies(s.Spec.IPFamilies))
	}
	return nil
}

func joinFamilies(families []v1.IPFamily) string {
	texts := make([]string, len(families))
	for i, f := range families {
		texts[i] = string(f)
	}
	return strings.Join(texts, ", ")
}

// isOlder reports whether a Service is older than another one. Creation times have seconds; the UID breaks the tie.
func isOlder(a, b *v1.Service) bool {
	if b == nil {
		return false
	}
	if c := a.CreationTimestamp.Compare(b.CreationTimestamp.Time); c != 0 {
		return c < 0
	}
	return a.UID < b.UID
}

// firstFamilies returns the Service's families, else that of its address, else that of the pool.
func firstFamilies(s *v1.Service, p pool, known bool, has []netip.Addr) (v6 []bool) {
	for _, f := range s.Spec.IPFamilies {
		v6 = append(v6, f == v1.IPv6Protocol)
	}
	switch {
	case len(v6) > 0:
		return v6
	case len(has) > 0:
		return []bool{has[0].Is6()}
	}
	return []bool{known && !p.hasFamily(false) && p.hasFamily(true)}
}

// families returns the families of the desired addresses (true is IPv6), and whether all of them are required.
func (w allocator) families(s *v1.Service, p pool, known bool, has []netip.Addr) (v6 []bool, strict bool, err error) {
	policy := v1.IPFamilyPolicySingleStack
	if s.Spec.IPFamilyPolicy != nil {
		policy = *s.Spec.IPFamilyPolicy
	}
	v6 = firstFamilies(s, p, known, has)
	if policy != v1.IPFamilyPolicySingleStack && len(v6) == 1 && (policy == v1.IPFamilyPolicyRequireDualStack || len(s.Spec.IPFamilies) == 0) {
		v6 = append(v6, !v6[0])
	}
	if policy == v1.IPFamilyPolicySingleStack {
		v6 = v6[:1]
	}
	if w.v4 { // the announcer supports only IPv4
		if !slices.Contains(v6, false) || policy == v1.IPFamilyPolicyRequireDualStack {
			return nil, false, refuse("spec.ipFamilies asks for IPv6, which kube-keepalived-vip cannot announce; use IPv4, or another announcer")
		}
		return []bool{false}, false, nil
	}
	if policy != v1.IPFamilyPolicyPreferDualStack || len(v6) < 2 {
		return v6, true, nil
	}
	return w.familiesWithPools(v6, p, known, has), false, nil
}

// familiesWithPools returns the families with addresses: a family without any pool is not awaited.
func (allocator) familiesWithPools(v6 []bool, p pool, known bool, has []netip.Addr) []bool {
	wanted := slices.DeleteFunc(slices.Clone(v6), func(six bool) bool {
		return known && !p.hasFamily(six) && !slices.ContainsFunc(has, func(a netip.Addr) bool { return a.Is6() == six })
	})
	if len(wanted) == 0 {
		return v6
	}
	return wanted
}
