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
	sixSuffix      = "-IPv6"
	fourSuffix     = "-IPv4"
	maxName        = 75
	sharedProbe    = "cluster-service-shared-health-probe"
)

// spec is the desired state of a Service.
type spec struct {
	Base, LB, Cluster      string
	Internal               bool
	Fronts                 []front
	Rules, Probes          []doc
	NoSecurity, DenyAll    bool
	Ranges                 []netip.Prefix
	BadRanges, ServiceTags []string
	Additional             []string
	AccessPorts            []accessPort
	NodePorts              bool
	Tags                   map[string]string
	Location               string
	// Members are those of pools by address: IP to node, by pool in lower case.
	Members map[string]map[string]string
	// Link is the private link service that is to be made or changed, nil where nothing is due.
	Link *link
}

// otherParts describes the parts of a load balancer that concern other Services.
type otherParts struct {
	// inherited are frontends, by their IDs in lower case, whose Services want them no more, and which go with the last Service on their
	// address.
	inherited []string
	// held are frontends, by their IDs in lower case, that somebody else's private link service uses, by its name.
	held map[string]string
	// pools are those, in lower case, that the Service may have for itself.
	pools []string
}

func (o *observed) otherParts() otherParts { return otherParts{o.inherited, o.held, o.pools} }

// userOf returns the user of a frontend that prevents its removal, or "".
func (a otherParts) userOf(lb, front doc, base string) (why string) {
	if name, held := a.held[strings.ToLower(str(front, "id"))]; held {
		return "private link service " + name
	}
	return isUsedByOthers(lb, front, base)
}

// front finds a frontend by its name, whoever made it.
func (d *spec) front(name string) *front {
	if i := slices.IndexFunc(d.Fronts, func(f front) bool { return strings.EqualFold(f.name, name) }); i >= 0 {
		return &d.Fronts[i]
	}
	return nil
}

type accessPort struct {
	protocol string
	port     int32
}

// front is a frontend: the address of one family.
type front struct {
	six        bool
	name, pool string
	// foreign is set where the frontend is another Service's, whose address this one names.
	foreign bool
	// subnet and ip are those of an internal frontend; address is the public address of another one.
	subnet, ip string
	address    *address
	zones      []string
}

// address is a public address that a Service has.
type address struct {
	group, name string
	// managed is set where this program makes and deletes it.
	managed bool
	// found is the existing document, or nil.
	found, want *publicIP
	// fresh is the document to create if there is none; edit brings it, or the existing one, to the desired state.
	fresh *publicIP
	edit  func(*publicIP) error
}

func (a *address) id(c *Config) string {
	if a.found != nil {
		return a.found.ID
	}
	return groupPath(c.NetworkSubscription, a.group, "Microsoft.Network") + "/publicIPAddresses/" + a.name
}

// baseName begins the names of all that is a Service's own.
func baseName(service *v1.Service) string { return cloudprovider.DefaultLoadBalancerName(service) }

// loadBalancerName is that of the load balancer of all Services of a kind.
func (c *Config) loadBalancerNameOf(cluster string, internal bool) string {
	name := cmp.Or(c.LoadBalancerName, cluster)
	if internal {
		return name + internalSuffix
	}
	return name
}

func (c *Config) loadBalancerID(name string) string {
	return groupPath(c.NetworkSubscription, c.LBGroup, "Microsoft.Network") + "/loadBalancers/" + name
}

func poolName(cluster string, six bool) string { return cluster + suffixOf(six, true) }

// families are those that a Service has; dual is set where there are two.
func families(service *v1.Service) (list []bool, dual bool) {
	for _, f := range service.Spec.IPFamilies {
		list = append(list, f == v1.IPv6Protocol)
	}
	if len(list) == 0 {
		list = []bool{strings.Contains(service.Spec.ClusterIP, ":")}
	}
	return list, len(list) > 1
}

func suffixOf(six, dual bool) string {
	if six && dual {
		return sixSuffix
	}
	return ""
}

// suffixFor returns the name suffix for a family. Existing objects keep their name, so that an address survives when its Service gains or
// loses a family. isOf returns the family of the object with a suffix, and whether it exists.
func suffixFor(six, dual bool, isOf func(suffix string) (six, found bool)) string {
	usual := suffixOf(six, dual)
	for _, suffix := range []string{usual, "", sixSuffix, fourSuffix} {
		if family, found := isOf(suffix); found && family == six {
			return suffix
		}
	}
	if _, found := isOf(usual); !found {
		return usual
	}
	return map[bool]string{true: sixSuffix, false: fourSuffix}[six]
}

// frontName is the exact name of a frontend. Only where it is cut, a last character that is no letter becomes a line.
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

// rulesFor adds the rules and probes of a frontend.
func (d *spec) rulesFor(c *Config, service *v1.Service, s *settings, f front, suffix, lbID string) error {
	subnet := ""
	if s.Internal {
		subnet = s.Subnet
	}
	all := s.Internal && s.AllPorts
	for i, p := range service.Spec.Ports {
		if !s.hasRule(i, p.Port) {
			continue
		}
		name := ruleName(d.Base, subnet, p, suffix)
		checkName := ruleName(d.Base, subnet, v1.ServicePort{Protocol: v1.ProtocolTCP, Port: service.Spec.HealthCheckNodePort}, suffix)
		probe, err := d.probeFor(c, service, s, p, name, checkName)
		if err != nil {
			return err
		}
		rule := ruleOf(c, service, s, p, f, all)
		rule["frontendIPConfiguration"] = doc{"id": lbID + "/frontendIPConfigurations/" + f.name}
		rule["backendAddressPool"] = doc{"id": lbID + "/backendAddressPools/" + f.pool}
		if probe != "" && (!s.ports[p.Port].NoProbe || all) {
			rule["probe"] = doc{"id": lbID + "/probes/" + probe}
		}
		if rule["backendPort"] == 0 && !all {
			return fmt.Errorf("port %d has no node port, which it needs where floating IP is off: set spec.allocateLoadBalancerNodePorts", p.Port)
		}
		d.Rules = append(d.Rules, doc{"name": name, "properties": rule})
	}
	return nil
}

// ruleOf returns a rule without its references.
func ruleOf(c *Config, service *v1.Service, s *settings, p v1.ServicePort, f front, all bool) doc {
	protocol := map[v1.Protocol]string{v1.ProtocolTCP: "Tcp", v1.ProtocolUDP: "Udp", v1.ProtocolSCTP: "All"}[p.Protocol]
	floating, back := true, int(p.Port)
	if s.NoFloating && !all || s.Internal && f.six {
		floating, back = false, int(p.NodePort)
	}
	rule := doc{
		"protocol": protocol, "frontendPort": int(p.Port), "backendPort": back, "enableFloatingIP": floating, "loadDistribution": "Default",
		"idleTimeoutInMinutes": s.Idle, "disableOutboundSnat": c.DisableOutboundSNAT,
	}
	if all {
		rule["protocol"], rule["frontendPort"], rule["backendPort"] = "All", 0, 0
	}
	if p.Protocol == v1.ProtocolTCP {
		rule["enableTcpReset"] = !s.NoReset
	}
	if service.Spec.SessionAffinity == v1.ServiceAffinityClientIP {
		rule["loadDistribution"] = "SourceIP"
	}
	return rule
}

// probeFor adds the probe of a port and returns its name, "" if there is none. rule names the port's rule and probe; checkName is the name
// of the single probe for local traffic.
func (d *spec) probeFor(c *Config, service *v1.Service, s *settings, p v1.ServicePort, rule, checkName string) (string, error) {
	own := s.ports[p.Port]
	interval, number := s.probeTimes(p.Port)
	add := func(name string, probe doc) string {
		if byName(d.Probes, name) == nil {
			d.Probes = append(d.Probes, doc{"name": name, "properties": probe})
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
		return add(checkName, doc{
			"protocol": "Http", "port": int(port), "requestPath": "/healthz", "intervalInSeconds": interval, "probeThreshold": number,
		}), nil
	case c.ProbeMode == probeShared && !stays:
		return add(sharedProbe, doc{
			"protocol": "Http", "port": c.SharedProbePort, "requestPath": c.SharedProbePath, "intervalInSeconds": 5, "probeThreshold": 2,
		}), nil
	case p.Protocol != v1.ProtocolTCP || own.NoProbe:
		return "", nil
	}
	port, err := probePort(service, p, own.Port)
	if err != nil || port == 0 {
		return "", err
	}
	given := cmp.Or(own.Protocol, ptr.Deref(p.AppProtocol, s.ProbeProtocol))
	probe := doc{"protocol": "Tcp", "port": port, "intervalInSeconds": interval, "probeThreshold": number}
	if protocol := strings.ToLower(given); protocol == "http" || protocol == "https" {
		probe["protocol"] = map[string]string{"http": "Http", "https": "Https"}[protocol]
		probe["requestPath"] = cmp.Or(own.Path, s.ProbePath, "/")
	}
	return add(rule, probe), nil
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
func sameRule(have, want doc) bool {
	for _, key := range []string{"frontendIPConfiguration", "backendAddressPool", "probe"} {
		if !sameID(str(have, "properties", key, "id"), str(want, "properties", key, "id")) {
			return false
		}
	}
	h, w := have["properties"], want["properties"]
	tcp := str(w, "protocol") == "Tcp"
	distribution := cmp.Or(str(h, "loadDistribution"), "Default")
	return str(h, "protocol") == str(w, "protocol") && distribution == str(w, "loadDistribution") &&
		num(h, "frontendPort") == num(w, "frontendPort") && num(h, "backendPort") == num(w, "backendPort") &&
		flag(h, "enableFloatingIP") == flag(w, "enableFloatingIP") && flag(h, "disableOutboundSnat") == flag(w, "disableOutboundSnat") &&
		(!tcp || flag(h, "enableTcpReset") == flag(w, "enableTcpReset")) &&
		(value(h, "idleTimeoutInMinutes") == nil || num(h, "idleTimeoutInMinutes") == num(w, "idleTimeoutInMinutes"))
}

// sameProbe compares probes; older ones say by numberOfProbes what newer ones say by probeThreshold.
func sameProbe(have, want doc) bool {
	h, w := have["properties"], want["properties"]
	threshold := cmp.Or(num(h, "probeThreshold"), num(h, "numberOfProbes"))
	return num(h, "port") == num(w, "port") && strings.EqualFold(str(h, "protocol"), str(w, "protocol")) &&
		strings.EqualFold(str(h, "requestPath"), str(w, "requestPath")) && num(h, "intervalInSeconds") == num(w, "intervalInSeconds") &&
		threshold == num(w, "probeThreshold")
}

// sameFront reports whether a frontend leads where it should.
func sameFront(have doc, f front, c *Config) bool {
	if f.address != nil {
		return sameID(str(have, "properties", "publicIPAddress", "id"), f.address.id(c))
	}
	return sameID(str(have, "properties", "subnet", "id"), f.subnet) && (f.ip == "" || sameIP(f.ip, str(have, "properties", "privateIPAddress")))
}

// body is a new frontend.
func (f front) body(c *Config) doc {
	p := doc{}
	out := doc{"name": f.name, "properties": p}
	if f.address != nil {
		p["publicIPAddress"] = doc{"id": f.address.id(c)}
		return out
	}
	p["subnet"] = doc{"id": f.subnet}
	p["privateIPAllocationMethod"] = "Dynamic"
	if f.six {
		p["privateIPAddressVersion"] = "IPv6"
	}
	if f.ip != "" {
		p["privateIPAllocationMethod"], p["privateIPAddress"] = "Static", f.ip
	}
	if len(f.zones) > 0 {
		out["zones"] = anyList(f.zones)
	}
	return out
}

// isUsedByOthers reports whether another Service uses one of the Service's frontends.
func isUsedByOthers(lb doc, front doc, base string) (why string) {
	id := str(front, "id")
	for _, kind := range []string{"loadBalancingRules", "outboundRules", "inboundNatRules", "inboundNatPools"} {
		for _, r := range docs(lb, "properties", kind) {
			refs := append(docs(r, "properties", "frontendIPConfigurations"), doc{"id": str(r, "properties", "frontendIPConfiguration", "id")})
			for _, ref := range refs {
				if id != "" && sameID(str(ref, "id"), id) && (kind != "loadBalancingRules" || !ownedBy(base, str(r, "name"))) {
					return kind + " " + str(r, "name")
				}
			}
		}
	}
	return ""
}

// applyService makes a load balancer's document what a Service asks for; d is nil for a Service that goes. It reports whether anything
// changed.
func applyService(lb doc, base string, d *spec, c *Config, a otherParts) (bool, error) {
	var want spec
	if d != nil {
		want = *d
	}
	if err := conflicts(lb, base, want); err != nil {
		return false, err
	}
	changed := ensurePools(lb, want)
	changed = applyFronts(lb, base, want, c, a) || changed
	changed = replaceOwn(lb, "loadBalancingRules", want.Rules, sameRule, func(r doc) bool { return ownedBy(base, str(r, "name")) }) || changed
	changed = replaceOwn(lb, "probes", want.Probes, sameProbe, func(p doc) bool {
		return ownedBy(base, str(p, "name")) || strings.EqualFold(str(p, "name"), sharedProbe) && !referenced(lb, p)
	}) || changed
	changed = dropPools(lb, a.pools, want.Fronts) || changed
	if d == nil {
		return changed, nil
	}
	tagged, err := mergeTags(lb, want.Tags, c.SystemTags, clusterTag)
	return tagged || changed, err
}

func referenced(lb, probe doc) bool {
	return slices.ContainsFunc(docs(lb, "properties", "loadBalancingRules"), func(r doc) bool {
		return strings.EqualFold(nameOf(str(r, "properties", "probe", "id")), str(probe, "name"))
	})
}

func ensurePools(lb doc, d spec) bool {
	pools, changed := docs(lb, "properties", "backendAddressPools"), false
	for _, f := range d.Fronts {
		if byName(pools, f.pool) == nil {
			pools, changed = append(pools, doc{"name": f.pool, "properties": doc{}}), true
		}
	}
	if changed {
		setList(lb, "backendAddressPools", pools)
	}
	return changed
}

func applyFronts(lb doc, base string, d spec, c *Config, others otherParts) bool {
	var kept []doc
	changed := false
	for _, have := range docs(lb, "properties", "frontendIPConfigurations") {
		at := slices.IndexFunc(d.Fronts, func(f front) bool { return !f.foreign && strings.EqualFold(f.name, str(have, "name")) })
		switch {
		case !ownedBy(base, str(have, "name")) && !slices.Contains(others.inherited, docID(have)), at >= 0 && sameFront(have, d.Fronts[at], c):
			kept = append(kept, have)
		case at < 0 && others.userOf(lb, have, base) != "":
			kept = append(kept, have)
		default:
			changed = true
		}
	}
	for _, f := range d.Fronts {
		if f.foreign || byName(kept, f.name) != nil {
			continue
		}
		made := f.body(c)
		if have := byName(docs(lb, "properties", "frontendIPConfigurations"), f.name); have != nil {
			if delete(made, "zones"); have["zones"] != nil {
				made["zones"] = have["zones"] // nobody can change them
			}
		}
		kept, changed = append(kept, made), true
	}
	if changed {
		setList(lb, "frontendIPConfigurations", kept)
	}
	return changed
}

// replaceOwn makes the parts of a kind that are a Service's what they should be; what is the same stays as it is.
func replaceOwn(lb doc, key string, wanted []doc, same func(have, want doc) bool, own func(doc) bool) bool {
	var kept []doc
	changed := false
	for _, have := range docs(lb, "properties", key) {
		want := byName(wanted, str(have, "name"))
		switch {
		case want != nil && same(have, want), want == nil && !own(have):
			kept = append(kept, have)
		default:
			changed = true
		}
	}
	for _, want := range wanted {
		if byName(kept, str(want, "name")) == nil {
			kept, changed = append(kept, want), true
		}
	}
	if changed {
		setList(lb, key, kept)
	}
	return changed
}

// conflicts refuses a port that somebody else has on the same address.
func conflicts(lb doc, base string, d spec) error {
	for _, rule := range d.Rules {
		for _, other := range docs(lb, "properties", "loadBalancingRules") {
			same := sameID(str(rule, "properties", "frontendIPConfiguration", "id"), str(other, "properties", "frontendIPConfiguration", "id"))
			if !same || ownedBy(base, str(other, "name")) || num(rule, "properties", "frontendPort") != num(other, "properties", "frontendPort") ||
				str(rule, "properties", "protocol") != str(other, "properties", "protocol") {
				continue
			}
			return fmt.Errorf("rule %s needs port %d, which rule %s of another Service has for %s at the same frontend %s: "+
				"choose another port, or another address", str(rule, "name"), num(rule, "properties", "frontendPort"),
				str(other, "name"), str(other, "properties", "protocol"), str(other, "properties", "frontendIPConfiguration", "id"))
		}
	}
	return nil
}

// unlikePool refuses to mix the two kinds of members in the pools of frontends. byAddress is what the configuration says.
func unlikePool(lb doc, fronts []front, byAddress bool) error {
	for _, f := range fronts {
		pool := byName(docs(lb, "properties", "backendAddressPools"), f.pool)
		has := slices.ContainsFunc(docs(pool, "properties", "loadBalancerBackendAddresses"), func(a doc) bool { return str(a, "properties", "ipAddress") != "" })
		interfaces := !has && len(docs(pool, "properties", "backendIPConfigurations")) > 0
		if byAddress && interfaces || !byAddress && has {
			kind := map[bool]string{true: "addresses", false: "network interfaces"}[has]
			return fmt.Errorf("backend pool %s of load balancer %s has %s as its members, which loadBalancerBackendPoolConfigurationType does not say: "+
				"set it back, or take the members out of the pool first", f.pool, str(lb, "name"), kind)
		}
	}
	return nil
}

// applyAddresses makes the members of pools by address what they should be. Pools that are not
// named stay as they are.
func applyAddresses(lb doc, wanted map[string]map[string]string, network string) bool {
	changed := false
	for _, pool := range docs(lb, "properties", "backendAddressPools") {
		want, ours := wanted[strings.ToLower(str(pool, "name"))]
		if !ours {
			continue
		}
		have := map[string]bool{}
		for _, a := range docs(pool, "properties", "loadBalancerBackendAddresses") {
			have[canonicalIP(str(a, "properties", "ipAddress"))] = true
		}
		if slices.Equal(sortedKeys(have), sortedKeys(want)) {
			continue
		}
		var list []doc
		for _, ip := range sortedKeys(want) {
			list = append(list, doc{"name": want[ip], "properties": doc{"ipAddress": ip}})
		}
		setList(pool, "loadBalancerBackendAddresses", list)
		if str(pool, "properties", "virtualNetwork", "id") == "" {
			props(pool)["virtualNetwork"] = doc{"id": network}
		}
		changed = true
	}
	return changed
}

// isEmpty reports whether a load balancer serves nobody any more.
func isEmpty(lb doc) bool {
	for _, key := range []string{"frontendIPConfigurations", "loadBalancingRules", "outboundRules", "inboundNatRules", "inboundNatPools"} {
		if len(docs(lb, "properties", key)) > 0 {
			return false
		}
	}
	return true
}
