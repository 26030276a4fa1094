package oci

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
	"github.com/anyccm/cloud-controller-manager/providers/oci/ocilimits"
)

// This file computes the rules of security lists and network security groups, without any call.

// The numbers of protocols in rules.
const (
	numberTCP = "6"
	numberUDP = "17"

	ingressField = "ingressSecurityRules"
	egressField  = "egressSecurityRules"

	everybody, everybodyIPv6 = "0.0.0.0/0", "::/0"
)

// opening is a rule that lets traffic to one port in or out.
type opening struct {
	egress   bool
	protocol string
	port     int
	// network is the source, or the destination.
	network string
}

// text describes the opening in messages.
func (o opening) text() string {
	word := " from "
	if o.egress {
		word = " to "
	}
	return map[string]string{numberTCP: "TCP", numberUDP: "UDP"}[o.protocol] + " port " + strconv.Itoa(o.port) + word + o.network
}

type openings map[opening]bool

func (o openings) sorted() []opening {
	side := map[bool]int{true: 1}
	return slices.SortedFunc(maps.Keys(o), func(a, b opening) int {
		return cmp.Or(
			side[a.egress]-side[b.egress], a.port-b.port, strings.Compare(a.network, b.network), strings.Compare(a.protocol, b.protocol),
		)
	})
}

// rulePort is a port of a load balancer, and the port of the nodes behind it.
type rulePort struct {
	protocol   string
	port, node int
}

// access holds what a Service needs opened, in lists or groups.
type access struct {
	ports  []rulePort
	health int
	// sources are the networks of the clients.
	sources []string
	// preserve is set if nodes see the addresses of clients.
	preserve bool
}

func portsOf(service *v1.Service) (all []rulePort) {
	for _, p := range service.Spec.Ports {
		protocol := numberTCP
		if p.Protocol == v1.ProtocolUDP {
			protocol = numberUDP
		}
		all = append(all, rulePort{protocol, int(p.Port), int(p.NodePort)})
	}
	return all
}

// healthPort returns the nodes' port for health checks.
func healthPort(service *v1.Service) int {
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort > 0 {
		return int(service.Spec.HealthCheckNodePort)
	}
	return kubeProxy
}

// sourcesOf returns the networks of a Service's clients, without host bits.
func sourcesOf(service *v1.Service) ([]string, error) {
	set, err := sources.ForService(service, v1.AnnotationLoadBalancerSourceRangesKey)
	if set.Partial() {
		return nil, cmp.Or(err, sources.Check(service.Annotations[v1.AnnotationLoadBalancerSourceRangesKey]))
	}
	if texts := set.Texts(everybody); len(texts) != 1 || texts[0] != everybody { // which alone stands for everybody of all families
		return texts, nil
	}
	families := service.Spec.IPFamilies
	var all []string
	if len(families) == 0 || slices.Contains(families, v1.IPv4Protocol) {
		all = append(all, everybody)
	}
	if slices.Contains(families, v1.IPv6Protocol) {
		all = append(all, everybodyIPv6)
	}
	return all, nil
}

// accessOf returns the access that a Service needs.
func accessOf(service *v1.Service, preserve bool) (access, error) {
	sources, err := sourcesOf(service)
	return access{ports: portsOf(service), health: healthPort(service), sources: sources, preserve: preserve}, err
}

// portsLeft returns the node ports that ports in both accesses use now, and will not use with the other access.
func (a access) portsLeft(asked access) (all []int) {
	used := []int{asked.health}
	for _, p := range asked.ports {
		used = append(used, p.node)
	}
	all = append(all, a.health)
	for _, p := range a.ports {
		if slices.ContainsFunc(asked.ports, func(q rulePort) bool { return q.protocol == p.protocol && q.port == p.port }) {
			all = append(all, p.node)
		}
	}
	return slices.DeleteFunc(all, func(port int) bool { return port == 0 || slices.Contains(used, port) })
}

// hasPort reports whether an opening is for a port at which clients connect.
func (a access) hasPort(o opening) bool {
	return slices.ContainsFunc(a.ports, func(p rulePort) bool { return p.protocol == o.protocol && p.port == o.port })
}

// hasNodePort reports whether an opening is for a node port that serves clients.
func (a access) hasNodePort(o opening) bool {
	return slices.ContainsFunc(a.ports, func(p rulePort) bool { return p.protocol == o.protocol && p.node == o.port })
}

// subtractPorts returns the ports that another access does not have. 0 stands for a port that it has.
func (a access) subtractPorts(asked access) (left access) {
	for _, p := range a.ports {
		for _, q := range asked.ports {
			if q.protocol == p.protocol && q.port == p.port {
				p.port = 0
			}
			if q.protocol == p.protocol && q.node == p.node {
				p.node = 0
			}
		}
		left.ports = append(left.ports, p)
	}
	return left
}

// frontOpenings returns the openings of a load balancer's subnets: clients come in, and traffic to nodes goes out. Without networks of
// nodes the way out is not managed.
func (a access) frontOpenings(nodes []string) openings {
	all := openings{}
	for _, p := range a.ports {
		for _, network := range a.sources {
			all[opening{false, p.protocol, p.port, network}] = true
		}
		for _, network := range nodes {
			all[opening{true, p.protocol, p.node, network}] = true
			all[opening{true, numberTCP, a.health, network}] = true
		}
	}
	maps.DeleteFunc(all, func(o opening, _ bool) bool { return o.port == 0 })
	return all
}

// backOpenings returns the openings of the nodes' subnets, for load balancers in some networks.
func (a access) backOpenings(balancers []string) openings {
	all := openings{}
	for _, p := range a.ports {
		for _, network := range balancers {
			all[opening{false, p.protocol, p.node, network}] = true
			all[opening{false, numberTCP, a.health, network}] = true
		}
		if a.preserve {
			for _, network := range a.sources {
				all[opening{false, p.protocol, p.node, network}] = true
			}
		}
	}
	maps.DeleteFunc(all, func(o opening, _ bool) bool { return o.port == 0 })
	return all
}

// neighbourNeeds holds the openings that the cluster's other Services need in a security list.
type neighbourNeeds struct {
	clients openings
	// fronts are ports whose clients are unknown, each with a Service that has it. backs are those at which load balancers reach nodes.
	fronts map[int]string
	backs  map[int]bool
}

// neighbour is another Service of the cluster, which may need openings of a security list.
type neighbour struct {
	service *v1.Service
	asked   access
	// unread is set if its clients are unknown.
	unread bool
	// lb is its load balancer, or nil. subnets are the load balancer's present or future ones; anywhere is set if they are unknown.
	lb       *loadBalancer
	subnets  []string
	anywhere bool
}

// accessNow returns the access that a neighbour has now, if that is known.
func (n neighbour) accessNow() access {
	switch {
	case n.lb != nil:
		return presentAccess(n.lb, nil)
	case n.anywhere:
		return n.asked
	}
	return access{}
}

// addNeighbour adds a neighbour's needs. passes is set if its clients pass the list. Ports that it still uses stay open until its load
// balancer is changed, to the clients of its present openings (held); nil is unknown.
func (o neighbourNeeds) addNeighbour(n neighbour, passes bool, held openings) {
	if maps.Copy(o.clients, n.asked.backOpenings(nil)); passes {
		maps.Copy(o.clients, n.asked.frontOpenings(nil))
	}
	keep := func(port int) {
		if held == nil {
			o.fronts[port] = n.service.Namespace + "/" + n.service.Name
		}
		for h := range held {
			if h.port == port && !h.egress {
				o.clients[h] = true
			}
		}
	}
	is := n.accessNow()
	for _, a := range []access{n.asked, is} {
		o.backs[a.health] = true
		for _, p := range a.ports {
			o.backs[p.node] = true
		}
	}
	for _, p := range is.ports {
		if passes && (n.unread || !slices.ContainsFunc(n.asked.ports, func(q rulePort) bool { return q.port == p.port })) {
			keep(p.port)
		}
		if is.preserve && (n.unread || !n.asked.preserve || !slices.Contains(n.asked.ports, p)) {
			keep(p.node)
		}
	}
}

// needs reports whether others need an opening. Load balancers reach nodes from the networks of subnets only.
func (o neighbourNeeds) needs(p opening) bool {
	return o.clients[p] || o.mayNeed(p) || o.backs[p.port] && (p.egress || p.mayBeSubnet())
}

// mayNeed reports whether others, whose clients are unknown, may need an opening.
func (o neighbourNeeds) mayNeed(p opening) bool {
	return !p.egress && !o.clients[p] && o.fronts[p.port] != ""
}

// The shortest prefixes of subnets.
const (
	shortestSubnet     = 16
	shortestIPv6Subnet = 64
)

// mayBeSubnet reports whether an opening's network may be that of a subnet.
func (o opening) mayBeSubnet() bool {
	p, err := netip.ParsePrefix(o.network)
	return err != nil || p.Addr().Is4() && p.Bits() >= shortestSubnet || p.Addr().Is6() && p.Bits() >= shortestIPv6Subnet
}

// claim holds a Service's desired rules in one security list.
type claim struct {
	service *v1.Service
	wanted  openings
	// former are openings that the Service had; known is set if these are all.
	former openings
	known  bool
	// neighbours are the other Services, and others are their needs in this list.
	neighbours []neighbour
	others     neighbourNeeds
	// mark is the description of this cluster's rules; "" if the cluster's identity is unknown.
	mark string
	// keep are node ports that the load balancer still uses.
	keep []int
	// narrowTo is set if some clients are to lose access at ports, and nothing else is to change. closes are the openings of such clients;
	// closesOnly is set if none is added for those that stay.
	narrowTo   *clients
	ports      map[rulePort]bool
	closes     openings
	closesOnly bool
	// ended are the directions, protocols and ports that a load balancer of Oracle's own controller leaves. Rules without a description go
	// with them, for any network.
	ended openings
	// served holds the openings for the ports that such a load balancer has now, listeners its ports for clients.
	served    openings
	listeners map[rulePort]bool
	// strangers are ports that others have; rules without a description stay there. It is nil before it is read.
	strangers map[rulePort]bool
	// closesNothing is set if a node's subnet is unknown, because existing openings may be for that node.
	closesNothing bool
	// unmarked is set if rules without a description may be the Service's, as Oracle's own controller makes them. Otherwise they are somebody
	// else's.
	unmarked bool
}

// presentAccess returns the access that a load balancer has now, for clients in some networks.
func presentAccess(lb *loadBalancer, sources []string) access {
	a := access{sources: sources}
	for _, name := range sortedKeys(lb.Listeners) {
		l := lb.Listeners[name]
		set := lb.BackendSets[fieldOf[string](l, "defaultBackendSetName")]
		if port := portIn(fieldOf[document](set, "healthChecker")); port != 0 {
			a.health = port
		}
		a.preserve = a.preserve || set["isPreserveSource"] == true
		for _, protocol := range protocolsOf(l) {
			p := rulePort{protocol: protocol, port: portIn(l)}
			for _, b := range documentsIn(set, "backends") {
				if node := portIn(b); node != p.node {
					p.node = node
					a.ports = append(a.ports, p)
				}
			}
			if p.node == 0 {
				a.ports = append(a.ports, p)
			}
		}
	}
	return a
}

func portIn(d document) int { return int(fieldOf[float64](d, "port")) }

// protocolsOf returns a listener's protocols, as rules have them.
func protocolsOf(listener document) []string {
	switch listener["protocol"] {
	case protocolUDP:
		return []string{numberUDP}
	case protocolBoth:
		return []string{numberTCP, numberUDP}
	}
	return []string{numberTCP}
}

// openingOf returns the opening of a rule about a single port.
func openingOf(rule document, egress bool) (o opening, ok bool) {
	side := "source"
	if egress {
		side = "destination"
	}
	o.egress = egress
	o.network = fieldOf[string](rule, side)
	for protocol, name := range map[string]string{numberTCP: "tcpOptions", numberUDP: "udpOptions"} {
		options := fieldOf[document](rule, name)
		ports := fieldOf[document](options, "destinationPortRange")
		from := fieldOf[float64](ports, "min")
		if from != 0 && from == fieldOf[float64](ports, "max") && options["sourcePortRange"] == nil {
			o.protocol, o.port = protocol, int(from)
			return o, o.network != ""
		}
	}
	return o, false
}

// rule returns the rule for an opening, as Oracle's own controller writes it except for the description.
func (o opening) rule(mark string) document {
	options, side := "tcpOptions", "source"
	if o.protocol == numberUDP {
		options = "udpOptions"
	}
	if o.egress {
		side = "destination"
	}
	d := document{
		"protocol": o.protocol, "isStateless": false, side: o.network,
		options: document{"destinationPortRange": document{"min": o.port, "max": o.port}},
	}
	if mark != "" {
		d["description"] = mark
	}
	return jsondoc.Clone(d)
}

// marksIn returns the marks in a description: clusters that share a subnet share rules. It is nil if the description has other words.
func (c claim) marksIn(rule document) []string {
	all := strings.Fields(fieldOf[string](rule, "description"))
	for _, m := range all {
		if m != c.mark && !ownership.IsMark(m) {
			return nil
		}
	}
	return all
}

// drops reports whether the cluster no longer needs a rule. Rules with other descriptions stay, and so do those with the marks of other
// clusters alone.
func (c claim) drops(rule document, o opening) bool {
	switch {
	case c.closesNothing || c.wanted[o] || c.others.needs(o) || slices.Contains(c.keep, o.port):
		return false
	case c.closes != nil && !c.closes[o]:
		return false
	case c.mark != "" && slices.Contains(c.marksIn(rule), c.mark):
		return true
	}
	of := o
	of.network = ""
	undescribed := fieldOf[string](rule, "description") == ""
	return undescribed && c.unmarked && !c.strangers[rulePort{protocol: o.protocol, port: o.port}] && (c.former[o] || c.ended[of])
}

// withoutMark returns a rule without this cluster's mark, or nil if no other cluster needs it.
func (c claim) withoutMark(rule document) document {
	others := slices.DeleteFunc(c.marksIn(rule), func(m string) bool { return m == c.mark })
	if len(others) == 0 {
		return nil
	}
	rule = jsondoc.Clone(rule)
	rule["description"] = strings.Join(others, " ")
	return rule
}

// joinRule adds this cluster's mark to a rule of other clusters, so that it stays when these no longer need it.
func (c claim) joinRule(rules []document, o opening) bool {
	for _, rule := range rules {
		marks := c.marksIn(rule)
		if is, single := openingOf(rule, o.egress); !single || is != o || len(marks) == 0 {
			continue
		}
		if text := strings.Join(append(marks, c.mark), " "); ocilimits.RuleDescription.CheckText(text) == nil {
			rule["description"] = text
			return true
		}
	}
	return false
}

// staysForUs reports whether other clusters cannot remove a rule that this cluster needs.
func (c claim) staysForUs(rule document) bool {
	marks := c.marksIn(rule)
	return c.mark == "" || len(marks) == 0 || slices.Contains(marks, c.mark)
}

// apply returns the security list as the Service needs it, or nil if nothing changes.
func (c claim) apply(list document) (after document, added, removed []opening) {
	if c = c.withFormer(list); c.narrowTo != nil {
		c = c.narrowed(list)
	}
	have, foreign := openings{}, openings{}
	after = document{}
	for field, egress := range map[string]bool{ingressField: false, egressField: true} {
		kept := []any{}
		for _, rule := range documentsIn(list, field) {
			o, single := openingOf(rule, egress)
			if single && c.drops(rule, o) {
				removed = append(removed, o)
				if rule = c.withoutMark(rule); rule != nil {
					kept = append(kept, rule)
				}
				continue
			}
			have[o] = have[o] || single && c.staysForUs(rule)
			foreign[o] = foreign[o] || single && !c.staysForUs(rule)
			kept = append(kept, jsondoc.CloneValue(rule))
		}
		after[field] = kept
	}
	if added = c.add(after, have, foreign); len(added)+len(removed) == 0 {
		return nil, nil, nil
	}
	return after, added, removed
}

// add adds the wanted rules to a list. have are those that are there, foreign those of other clusters.
func (c claim) add(after document, have, foreign openings) (added []opening) {
	for _, o := range c.wanted.sorted() {
		field := ingressField
		if o.egress {
			field = egressField
		}
		switch {
		case have[o]:
			continue
		case foreign[o] && c.joinRule(documentsIn(after, field), o):
		case foreign[o]: // the description has no room for one more
			continue
		default:
			after[field] = append(fieldOf[[]any](after, field), any(o.rule(c.mark)))
		}
		added = append(added, o)
	}
	return added
}

// Rules without a description are made by Oracle's own controller, and by people. They are removed only if the cloud shows that a load
// balancer of that controller had them, and that nobody else has their port.

// includes reports whether an opening admits all that another one admits.
func (o opening) includes(other opening) bool {
	wide, err := netip.ParsePrefix(o.network)
	narrow, bad := netip.ParsePrefix(other.network)
	o.network = other.network
	return err == nil && bad == nil && o == other && wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}

// withFormer adds the openings of a list that source ranges narrow: those that include a requested opening which is not there. After a
// takeover all requested ones are there, so that it closes nothing.
func (c claim) withFormer(list document) claim {
	if c.mark == "" || len(c.served) == 0 {
		return c
	}
	there := openings{}
	for _, rule := range documentsIn(list, ingressField) {
		if o, single := openingOf(rule, false); single {
			there[o] = true
		}
	}
	c.former = maps.Clone(c.former)
	for asked := range c.served {
		for o := range there {
			if !there[asked] && o.includes(asked) {
				c.former[o] = true
			}
		}
	}
	return c
}

// noteServed tells claims the requested openings at the ports that a load balancer has now.
func (r ruleRequest) noteServed(all map[string]*claim, front, back []subnetList) {
	for _, p := range front {
		maps.Copy(all[p.list].served, r.former.frontOpenings(nil))
	}
	for _, p := range back {
		maps.Copy(all[p.list].served, r.former.backOpenings(nil))
	}
}

// listeners returns the present and former ports for clients.
func (r ruleRequest) listeners() map[rulePort]bool {
	all := map[rulePort]bool{}
	for _, p := range slices.Concat(r.access.ports, r.former.ports) {
		all[rulePort{protocol: p.protocol, port: p.port}] = true
	}
	return all
}

// findUndescribed returns the rules without a description that a claim removes from a list.
func (c claim) findUndescribed(list document) []opening {
	_, _, all := c.apply(list)
	c.unmarked = false
	_, _, described := c.apply(list)
	return subtractOpenings(all, described)
}

// subtractOpenings removes openings from a list, each as often as it occurs in the other list.
func subtractOpenings(all, some []opening) []opening {
	for _, o := range some {
		if at := slices.Index(all, o); at >= 0 {
			all = slices.Delete(all, at, at+1)
		}
	}
	return all
}
