package azure

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file computes the desired state and the differences from a load balancer's document. It makes no calls.

const (
	internalSuffix = "-internal"
	suffixIPv6     = "-IPv6"
	suffixIPv4     = "-IPv4"
	maxName        = 75
	sharedProbe    = "cluster-service-shared-health-probe"
)

// desired is the desired state of a Service.
type desired struct {
	Base, LB               string
	Internal               bool
	Fronts                 []desiredFront
	Rules                  []*lbRule
	Probes                 []*probe
	NoSecurity, DenyAll    bool
	Ranges                 []netip.Prefix
	BadRanges, ServiceTags []string
	Additional             []string
	AccessPorts            []accessPort
	NodePorts              bool
	// Members are the members of pools by address: IP to node, by the pool's name in lower case.
	Members map[string]map[string]string
	// writes are the writes of members, by the load balancer's name in lower case. Only plan fills them in.
	writes map[string][]*poolWrite
	// Link is the private link service to make or change, nil if there is nothing to do.
	Link *desiredLink
}

// otherParts are the parts of a load balancer that stay or go with a Service although their names do not say so.
type otherParts struct {
	// inheritedFronts are frontends, by their IDs in lower case, that no other Service uses any more, to be deleted with this one.
	inheritedFronts []string
	// heldFronts maps the ID, in lower case, of a frontend that somebody else's private link service uses to the name of that.
	heldFronts map[string]string
	// ownPools are the names, in lower case, of pools that the Service may have for itself.
	ownPools []string
}

// userOf returns the user of a frontend that prevents its removal, or "".
func (a otherParts) userOf(lb *loadBalancer, f *frontend, base string) (why string) {
	if name, held := a.heldFronts[f.lowerID()]; held {
		return "private link service " + name
	}
	return otherUserOf(lb, f, base)
}

// hasFront reports whether the Service is to use a frontend, whoever made it.
func (d *desired) hasFront(name string) bool {
	return slices.ContainsFunc(d.Fronts, func(f desiredFront) bool { return strings.EqualFold(f.name, name) })
}

type accessPort struct {
	protocol string
	port     int32
}

// desiredFront is a frontend: the address of one family.
type desiredFront struct {
	ipv6       bool
	name, pool string
	// isOthers is set where the frontend is another Service's, whose address this one names.
	isOthers bool
	// subnet and ip are those of an internal frontend; address is the public address of another one.
	subnet, ip string
	address    *desiredAddress
	zones      []string
}

// desiredAddress is a public address that a Service has.
type desiredAddress struct {
	group, name string
	// repair is set where an address whose provisioning has failed is written again: not one that an annotation names.
	repair bool
	// found is the existing document, or nil.
	found, want *publicIP
	// fresh is the document to create if there is none; edit brings it, or the existing one, to the desired state. It is nil for a user's.
	fresh *publicIP
	edit  func(*publicIP) error
}

func (a *desiredAddress) id(c *Config) string {
	if a.found != nil {
		return a.found.ID
	}
	return c.networkPath(a.group, "publicIPAddresses/"+a.name)
}

// baseName begins the names of all that is a Service's own.
func baseName(service *v1.Service) string { return cloudprovider.DefaultLoadBalancerName(service) }

// loadBalancerNameOf is the name of the public or internal load balancer of all Services.
func (c *Config) loadBalancerNameOf(cluster string, internal bool) string {
	name := cmp.Or(c.LoadBalancerName, cluster)
	if internal {
		return name + internalSuffix
	}
	return name
}

func poolName(cluster string, ipv6 bool) string { return cluster + suffixOf(ipv6, true) }

// families are those of a Service, each by whether it is IPv6.
func families(service *v1.Service) (list []bool) {
	for _, f := range service.Spec.IPFamilies {
		list = append(list, f == v1.IPv6Protocol)
	}
	if len(list) == 0 {
		list = []bool{strings.Contains(service.Spec.ClusterIP, ":")}
	}
	return list
}

func isDual(service *v1.Service) bool { return len(families(service)) > 1 }

func suffixOf(ipv6, dual bool) string {
	if ipv6 && dual {
		return suffixIPv6
	}
	return ""
}

// suffixFor returns the name suffix for a family. Existing objects keep their name, so that an address survives when its Service gains or
// loses a family. isOf returns the family of the object with a suffix, and whether it exists.
func suffixFor(ipv6, dual bool, isOf func(suffix string) (ipv6, found bool)) string {
	usual := suffixOf(ipv6, dual)
	for _, suffix := range []string{usual, "", suffixIPv6, suffixIPv4} {
		if family, found := isOf(suffix); found && family == ipv6 {
			return suffix
		}
	}
	if _, found := isOf(usual); !found {
		return usual
	}
	return map[bool]string{true: suffixIPv6, false: suffixIPv4}[ipv6]
}

// frontendSubnet is the subnet in the names of an internal frontend and its rules, if the Service names one.
func (s *settings) frontendSubnet() string {
	if s.Internal {
		return s.Subnet
	}
	return ""
}

// frontName is the exact name of a frontend. Only where it is cut, a last character that is no letter becomes an
// underscore.
func frontName(base, subnet, suffix string) string {
	name := base
	if subnet != "" {
		name = base + "-" + subnet
		if len(name) > maxName {
			name = name[:maxName]
			if last := name[maxName-1]; last != '_' && (last < 'A' || last > 'z' || last > 'Z' && last < 'a') {
				name = name[:maxName-1] + "_"
			}
		}
	}
	return name + suffix
}

// ruleName is the exact name of the rule of a port.
func ruleName(base, subnet string, p v1.ServicePort, suffix string) string {
	end := fmt.Sprintf("-%s-%d", p.Protocol, p.Port)
	if subnet == "" {
		return base + end + suffix
	}
	room := maxName - len(base) - len(end) - 1
	if len(subnet) > room {
		subnet = subnet[:room]
	}
	return base + "-" + subnet + end + suffix
}

// ownedBy reports whether the name of a part belongs to a Service.
func ownedBy(base, name string) bool {
	return len(name) >= len(base) && strings.EqualFold(name[:len(base)], base) &&
		(len(name) == len(base) || name[len(base)] == '-' || name[len(base)] == '_')
}

// isLocal reports whether a Service sends traffic only to nodes with an endpoint.
func isLocal(service *v1.Service) bool {
	return service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort > 0
}

// addRules adds the rules and probes of a frontend.
func (d *desired) addRules(c *Config, service *v1.Service, s *settings, f desiredFront, suffix, lbID string) error {
	subnet := s.frontendSubnet()
	all := s.Internal && s.AllPorts
	for i, p := range service.Spec.Ports {
		if !s.hasRule(i, p.Port) {
			continue
		}
		name := ruleName(d.Base, subnet, p, suffix)
		checkName := ruleName(d.Base, subnet, v1.ServicePort{Protocol: v1.ProtocolTCP, Port: service.Spec.HealthCheckNodePort}, suffix)
		probe, err := d.addProbe(c, service, s, p, name, checkName)
		if err != nil {
			return err
		}
		rule := ruleOf(c, service, s, p, f, all)
		rule.Front.ID, rule.Pool.ID = lbID+"/frontendIPConfigurations/"+f.name, lbID+"/backendAddressPools/"+f.pool
		if probe != "" && (!s.ports[p.Port].NoProbe || all) {
			rule.Probe.ID = lbID + "/probes/" + probe
		}
		if rule.BackPort == 0 && !all {
			return fmt.Errorf("port %d has no node port, which it needs where floating IP is off: set spec.allocateLoadBalancerNodePorts", p.Port)
		}
		d.Rules = append(d.Rules, &lbRule{subresource{Name: name}, rule})
	}
	return nil
}

// ruleOf returns a rule without its references.
func ruleOf(c *Config, service *v1.Service, s *settings, p v1.ServicePort, f desiredFront, all bool) lbRuleProperties {
	protocol := map[v1.Protocol]string{v1.ProtocolTCP: "Tcp", v1.ProtocolUDP: "Udp", v1.ProtocolSCTP: "All"}[p.Protocol]
	floating, back := true, int(p.Port)
	if s.NoFloating && !all || s.Internal && f.ipv6 {
		floating, back = false, int(p.NodePort)
	}
	rule := lbRuleProperties{
		Protocol: protocol, FrontPort: int(p.Port), BackPort: back, Floating: floating, Distribution: "Default", Idle: s.Idle,
		NoSNAT: c.DisableOutboundSNAT,
	}
	if all {
		rule.Protocol, rule.FrontPort, rule.BackPort = "All", 0, 0
	}
	if p.Protocol == v1.ProtocolTCP {
		rule.Reset = new(!s.NoReset)
	}
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		rule.Distribution = "SourceIP"
	}
	return rule
}

// addProbe adds the probe of a port and returns its name, "" if there is none. rule names the port's rule and probe; checkName is the name
// of the single probe for local traffic.
func (d *desired) addProbe(c *Config, service *v1.Service, s *settings, p v1.ServicePort, rule, checkName string) (string, error) {
	own := s.ports[p.Port]
	interval, number := s.probeTimes(p.Port)
	add := func(name string, p probeProperties) string {
		if findByName(d.Probes, name) == nil {
			d.Probes = append(d.Probes, &probe{subresource{Name: name}, p})
		}
		return name
	}
	stays := s.keepsProbes(service)
	switch {
	case stays && own.Port == "":
		port := service.Spec.HealthCheckNodePort
		if at := s.ports[port]; at.Interval != 0 || at.Number != 0 {
			interval, number = s.probeTimes(port)
		}
		return add(checkName, probeProperties{Protocol: "Http", Port: int(port), Path: "/healthz", Interval: interval, Threshold: number}), nil
	case c.ProbeMode == probeShared && !stays:
		return add(sharedProbe, probeProperties{Protocol: "Http", Port: c.SharedProbePort, Path: c.SharedProbePath, Interval: 5, Threshold: 2}), nil
	case p.Protocol != v1.ProtocolTCP || own.NoProbe:
		return "", nil
	}
	port, err := probePort(service, p, own.Port)
	if err != nil || port == 0 {
		return "", err
	}
	given := cmp.Or(own.Protocol, ptr.Deref(p.AppProtocol, s.ProbeProtocol))
	made := probeProperties{Protocol: "Tcp", Port: port, Interval: interval, Threshold: number}
	if protocol := strings.ToLower(given); protocol == "http" || protocol == "https" {
		made.Protocol, made.Path = map[string]string{"http": "Http", "https": "Https"}[protocol], cmp.Or(own.Path, s.ProbePath, "/")
	}
	return add(rule, made), nil
}

// probePort is the port that is probed: a node port, or one that an annotation names.
func probePort(service *v1.Service, p v1.ServicePort, given string) (int, error) {
	if given == "" {
		return int(p.NodePort), nil
	}
	number, bad := strconv.Atoi(given)
	for _, other := range service.Spec.Ports {
		if other.Name == given || bad == nil && int(other.Port) == number {
			return int(other.NodePort), nil
		}
	}
	if bad != nil || number < 0 || number > 65535 {
		return 0, &schema.Problem{
			Place: "annotation " + keyOfPort(p.Port, "health-probe_port"), Value: given, Reason: "is neither a port of the Service nor a number up to 65535",
		}
	}
	return number, nil
}

// sameRule compares what Azure's own controller compares.
func sameRule(have, want *lbRule) bool {
	h, w := have.Properties, want.Properties
	return sameID(h.Front.ID, w.Front.ID) && sameID(h.Pool.ID, w.Pool.ID) && sameID(h.Probe.ID, w.Probe.ID) &&
		h.Protocol == w.Protocol && cmp.Or(h.Distribution, "Default") == w.Distribution &&
		h.FrontPort == w.FrontPort && h.BackPort == w.BackPort && h.Floating == w.Floating && h.NoSNAT == w.NoSNAT &&
		(w.Protocol != "Tcp" || ptr.Deref(h.Reset, false) == ptr.Deref(w.Reset, false)) && cmp.Or(h.Idle, w.Idle) == w.Idle
}

// sameProbe compares probes; older ones say by numberOfProbes what newer ones say by probeThreshold.
func sameProbe(have, want *probe) bool {
	h, w := have.Properties, want.Properties
	return h.Port == w.Port && strings.EqualFold(h.Protocol, w.Protocol) && strings.EqualFold(h.Path, w.Path) && h.Interval == w.Interval &&
		cmp.Or(h.Threshold, ptr.Deref(h.Number, 0)) == w.Threshold
}

// sameFront reports whether a frontend leads where it should.
func sameFront(have *frontend, f desiredFront, c *Config) bool {
	if f.address != nil {
		return sameID(have.Properties.PublicIP.ID, f.address.id(c))
	}
	return sameID(have.Properties.Subnet.ID, f.subnet) && (f.ip == "" || sameIP(f.ip, have.Properties.Address))
}

// document is a new frontend.
func (f desiredFront) document(c *Config) *frontend {
	made := &frontend{subresource: subresource{Name: f.name}}
	p := &made.Properties
	if f.address != nil {
		p.PublicIP.ID = f.address.id(c)
		return made
	}
	p.Subnet.ID, p.Allocation, made.Zones = f.subnet, "Dynamic", f.zones
	if f.ipv6 {
		p.Version = "IPv6"
	}
	if f.ip != "" {
		p.Allocation, p.Address = "Static", f.ip
	}
	return made
}

// otherUserOf returns the rule by which others use one of the Service's frontends, or "".
func otherUserOf(lb *loadBalancer, f *frontend, base string) (why string) {
	others := slices.DeleteFunc(slices.Clone(lb.Properties.Rules), func(r *lbRule) bool { return ownedBy(base, r.Name) })
	for _, kind := range append([]ruleKind{{"loadBalancingRules", others}}, lb.otherRules()...) {
		for _, r := range kind.rules {
			uses := func(ref *subresource) bool { return f.ID != "" && sameID(ref.ID, f.ID) }
			if uses(&r.Properties.Front) || slices.ContainsFunc(r.Properties.Fronts, uses) {
				return kind.name + " " + r.Name
			}
		}
	}
	return ""
}

// applyService makes a load balancer's document what a Service asks for; d is nil for a Service that goes. It reports whether anything
// changed.
func applyService(lb *loadBalancer, base string, d *desired, c *Config, a otherParts) (bool, error) {
	var want desired
	if d != nil {
		want = *d
	}
	if err := checkConflicts(lb, base, want); err != nil {
		return false, err
	}
	changed := ensurePools(lb, want)
	changed = applyFronts(lb, base, want, c, a) || changed
	changed = replaceOwn(&lb.Properties.Rules, want.Rules, sameRule, func(r *lbRule) bool { return ownedBy(base, r.Name) }) || changed
	changed = replaceOwn(&lb.Properties.Probes, want.Probes, sameProbe, func(p *probe) bool {
		return ownedBy(base, p.Name) || p.hasName(sharedProbe) && !referenced(lb, p)
	}) || changed
	changed = dropPools(lb, a.ownPools, want.Fronts) || changed
	if d == nil {
		return changed, nil
	}
	tagged, err := lb.mergeTags(c.tags, c.SystemTags, clusterTag)
	return tagged || changed, err
}

func referenced(lb *loadBalancer, p *probe) bool {
	return slices.ContainsFunc(lb.Properties.Rules, func(r *lbRule) bool {
		return p.hasName(nameOf(r.Properties.Probe.ID))
	})
}

func ensurePools(lb *loadBalancer, d desired) (changed bool) {
	for _, f := range d.Fronts {
		if lb.pool(f.pool) == nil {
			lb.Properties.Pools, changed = append(lb.Properties.Pools, &pool{subresource: subresource{Name: f.pool}}), true
		}
	}
	return changed
}

func applyFronts(lb *loadBalancer, base string, d desired, c *Config, others otherParts) bool {
	kept := []*frontend{}
	changed := false
	for _, have := range lb.Properties.Fronts {
		at := slices.IndexFunc(d.Fronts, func(f desiredFront) bool { return !f.isOthers && strings.EqualFold(f.name, have.Name) })
		switch {
		case !ownedBy(base, have.Name) && !slices.Contains(others.inheritedFronts, have.lowerID()), at >= 0 && sameFront(have, d.Fronts[at], c):
			kept = append(kept, have)
		case at < 0 && others.userOf(lb, have, base) != "":
			kept = append(kept, have)
		default:
			changed = true
		}
	}
	for _, f := range d.Fronts {
		if f.isOthers || findByName(kept, f.name) != nil {
			continue
		}
		made := f.document(c)
		if have := lb.front(f.name); have != nil {
			made.Zones = have.Zones // nobody can change them
		}
		kept, changed = append(kept, made), true
	}
	if changed {
		lb.Properties.Fronts = kept
	}
	return changed
}

// replaceOwn makes the parts of a kind that are a Service's what they should be; what is the same stays as it is.
func replaceOwn[P named](list *[]P, wanted []P, same func(have, want P) bool, own func(P) bool) bool {
	kept := []P{}
	changed := false
	for _, have := range *list {
		at := slices.IndexFunc(wanted, func(want P) bool { return want.hasName(have.name()) })
		switch {
		case at >= 0 && same(have, wanted[at]), at < 0 && !own(have):
			kept = append(kept, have)
		default:
			changed = true
		}
	}
	for _, want := range wanted {
		if !slices.ContainsFunc(kept, func(have P) bool { return have.hasName(want.name()) }) {
			kept, changed = append(kept, want), true
		}
	}
	if changed {
		*list = kept
	}
	return changed
}

// checkConflicts refuses a port that somebody else has on the same address.
func checkConflicts(lb *loadBalancer, base string, d desired) error {
	for _, rule := range d.Rules {
		for _, other := range lb.Properties.Rules {
			same := sameID(rule.Properties.Front.ID, other.Properties.Front.ID)
			if !same || ownedBy(base, other.Name) || rule.Properties.FrontPort != other.Properties.FrontPort ||
				rule.Properties.Protocol != other.Properties.Protocol {
				continue
			}
			return fmt.Errorf("rule %s needs port %d, which rule %s of another Service has for %s at the same frontend %s: "+
				"choose another port, or another address", rule.Name, rule.Properties.FrontPort,
				other.Name, other.Properties.Protocol, other.Properties.Front.ID)
		}
	}
	return nil
}

// checkPoolKind refuses to mix the two kinds of members in the pools of frontends that this program fills.
func (c *Config) checkPoolKind(lb *loadBalancer, internal bool, fronts []desiredFront) error {
	if !c.fillsPools(internal) {
		return nil
	}
	byAddress := c.PoolType == poolIP
	for _, f := range fronts {
		pool := lb.pool(f.pool)
		has := len(pool.ips()) > 0
		interfaces := !has && pool != nil && len(pool.Properties.Configs) > 0
		if byAddress && interfaces || !byAddress && has {
			kind := map[bool]string{true: "addresses", false: "network interfaces"}[has]
			return fmt.Errorf("backend pool %s of load balancer %s has %s as its members, which loadBalancerBackendPoolConfigurationType does not say: "+
				"set it back, or take the members out of the pool first", f.pool, lb.Name, kind)
		}
	}
	return nil
}

// applyAddresses makes the members of pools by address what they should be. Pools that are not named stay as they are.
func applyAddresses(lb *loadBalancer, wanted map[string]map[string]string, network string) bool {
	changed := false
	for _, pool := range lb.Properties.Pools {
		want, ours := wanted[strings.ToLower(pool.Name)]
		if !ours {
			continue
		}
		have := map[string]bool{}
		for _, a := range pool.Properties.Members {
			have[canonicalIP(a.Properties.IP)] = true
		}
		if slices.Equal(sortedKeys(have), sortedKeys(want)) {
			continue
		}
		pool.Properties.Members = []*poolMember{}
		for _, ip := range sortedKeys(want) {
			member := &poolMember{subresource{Name: want[ip]}, poolMemberProperties{IP: ip}}
			pool.Properties.Members = append(pool.Properties.Members, member)
		}
		if pool.Properties.Network.ID == "" {
			pool.Properties.Network = subresource{ID: network}
		}
		changed = true
	}
	return changed
}

// isEmpty reports whether a load balancer serves nobody any more.
func isEmpty(lb *loadBalancer) bool {
	return len(lb.Properties.Fronts)+len(lb.Properties.Rules) == 0 &&
		!slices.ContainsFunc(lb.otherRules(), func(kind ruleKind) bool { return len(kind.rules) > 0 })
}

// isGeneratedName reports whether a name has the form of controllers: "a" and a UID without dashes, cut at 32 characters.
func isGeneratedName(name string) bool {
	if len(name) < 32 || name[0] != 'a' {
		return false
	}
	return strings.Trim(name[1:32], "0123456789abcdef") == ""
}
