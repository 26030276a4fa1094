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

// This file computes the rules of security lists and of network security groups, and calls nobody.

// The numbers of protocols, as rules have them.
const (
	numberTCP = "6"
	numberUDP = "17"

	ingressField = "ingressSecurityRules"
	egressField  = "egressSecurityRules"

	everybody, everybodySix = "0.0.0.0/0", "::/0"
)

// opening is a rule that lets traffic to one port in or out.
type opening struct {
	egress   bool
	protocol string
	port     int
	// network is the source, or the destination.
	network string
}

// text is the opening for messages.
func (o opening) text() string {
	word := " from "
	if o.egress {
		word = " to "
	}
	return map[string]string{numberTCP: "TCP", numberUDP: "UDP"}[o.protocol] + " port " + strconv.Itoa(o.port) + word + o.network
}

// openings is a set of them.
type openings map[opening]bool

func (o openings) sorted() []opening {
	side := map[bool]int{true: 1}
	return slices.SortedFunc(maps.Keys(o), func(a, b opening) int {
		return cmp.Or(
			side[a.egress]-side[b.egress], a.port-b.port, strings.Compare(a.network, b.network), strings.Compare(a.protocol, b.protocol),
		)
	})
}

// rulePort is a port of a load balancer, and that of the nodes behind it.
type rulePort struct {
	protocol   string
	port, node int
}

// access holds the openings that a Service needs, in lists and groups alike.
type access struct {
	ports  []rulePort
	health int
	// sources are the networks of the clients.
	sources []string
	// preserve is set where nodes see the addresses of clients.
	preserve bool
}

// portsOf are the ports of a Service, as rules have them.
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

// healthPort is the port of the nodes that health checks ask.
func healthPort(service *v1.Service) int {
	if service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort > 0 {
		return int(service.Spec.HealthCheckNodePort)
	}
	return kubeProxy
}

// sourcesOf are the networks of the clients of a Service, without bits of hosts.
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
		all = append(all, everybodySix)
	}
	return all, nil
}

// accessOf returns the openings that a Service needs.
func accessOf(service *v1.Service, preserve bool) (access, error) {
	sources, err := sourcesOf(service)
	return access{ports: portsOf(service), health: healthPort(service), sources: sources, preserve: preserve}, err
}

// leftFor are the ports of nodes that what keeps serving uses, and that it leaves for those of another access.
func (a access) leftFor(asked access) (all []int) {
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

// serves reports whether an opening is about a port at which clients come in.
func (a access) serves(o opening) bool {
	return slices.ContainsFunc(a.ports, func(p rulePort) bool { return p.protocol == o.protocol && p.port == o.port })
}

// servesBy reports whether an opening is for one of the ports of nodes by which clients are served.
func (a access) servesBy(o opening) bool {
	return slices.ContainsFunc(a.ports, func(p rulePort) bool { return p.protocol == o.protocol && p.node == o.port })
}

// subtractPorts returns the ports that another access does not have; 0 stands for those that it has.
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

// frontOpenings are those of the subnets of a load balancer: its clients come in, and what it sends reaches the nodes. Without networks of
// nodes the way out is somebody else's.
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

// backOpenings are those of the subnets of the nodes, which the load balancers' subnets reach.
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

// others holds the openings that the cluster's other Services need in a security list.
type others struct {
	clients openings
	// fronts are ports of which nobody knows what clients may come in, each with a Service that has it. backs are those at which load
	// balancers reach nodes.
	fronts map[int]string
	backs  map[int]bool
}

// neighbour is another Service of the cluster that may need what a security list opens.
type neighbour struct {
	service *v1.Service
	asked   access
	// unread is set where nobody can tell who its clients are.
	unread bool
	// lb is its load balancer, nil where it has none yet. subnets are where that is, or is to be; anywhere is set where they are not known.
	lb       *loadBalancer
	subnets  []string
	anywhere bool
}

// presentAccess is the access that a neighbour has now, as far as that is known.
func (n neighbour) presentAccess() access {
	switch {
	case n.lb != nil:
		return accessThere(n.lb, nil)
	case n.anywhere:
		return n.asked
	}
	return access{}
}

// add adds what a neighbour needs: in is set where its clients come in by the list. Ports that it still uses stay open until its load
// balancer is changed, to those for whom held shows them open; nil is not known.
func (o others) add(n neighbour, in bool, held openings) {
	if maps.Copy(o.clients, n.asked.backOpenings(nil)); in {
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
	is := n.presentAccess()
	for _, a := range []access{n.asked, is} {
		o.backs[a.health] = true
		for _, p := range a.ports {
			o.backs[p.node] = true
		}
	}
	for _, p := range is.ports {
		if in && (n.unread || !slices.ContainsFunc(n.asked.ports, func(q rulePort) bool { return q.port == p.port })) {
			keep(p.port)
		}
		if is.preserve && (n.unread || !n.asked.preserve || !slices.Contains(n.asked.ports, p)) {
			keep(p.node)
		}
	}
}

// need reports whether others need an opening: load balancers reach nodes from the networks of subnets alone.
func (o others) need(p opening) bool {
	return o.clients[p] || o.doubt(p) || o.backs[p.port] && (p.egress || p.mayBeSubnet())
}

// doubt reports whether others may need an opening, and nobody can tell.
func (o others) doubt(p opening) bool { return !p.egress && !o.clients[p] && o.fronts[p.port] != "" }

// The shortest prefixes of subnets.
const (
	shortestSubnet    = 16
	shortestSubnetSix = 64
)

// mayBeSubnet reports whether what a rule opens to may be a subnet.
func (o opening) mayBeSubnet() bool {
	p, err := netip.ParsePrefix(o.network)
	return err != nil || p.Addr().Is4() && p.Bits() >= shortestSubnet || p.Addr().Is6() && p.Bits() >= shortestSubnetSix
}

// claim holds a Service's desired rules in one security list.
type claim struct {
	wanted openings
	// former are openings that the Service had.
	former openings
	// neighbours are the other Services, and others is what they need in this list.
	neighbours []neighbour
	others     others
	// mark is the description of rules that this cluster made; "" where the identity of the cluster is not known.
	mark string
	// keep are ports of nodes that the load balancer still uses.
	keep []int
	// lets are set where clients are to lose access, and nothing else is to change; ports are those that clients use. closes are the openings
	// of such clients, and closesOnly is set where those that stay get no opening of their own.
	lets  *clients
	ports map[rulePort]bool
	// ended are the directions, protocols and ports that a load balancer of Oracle's own controller has, and leaves: rules without a
	// description go with them, for whatever network they are.
	ended      openings
	closes     openings
	closesOnly bool
	// served holds what is asked for at the ports that such a load balancer has now, listeners those at which its clients come in.
	served    openings
	listeners map[rulePort]bool
	// strangers are ports that others are seen to have: rules without a description stay there. It is nil before anybody has looked.
	strangers map[rulePort]bool
	// closesNothing is set where a node's subnet is not known: what is open may be for it.
	closesNothing bool
	// service is whose claim it is, and unmarked is set where the Service may have rules without a description, as Oracle's own controller
	// makes them. Otherwise those are somebody else's.
	service  *v1.Service
	unmarked bool
	// known is set where former has all that the Service has.
	known bool
}

// accessThere returns the openings that a load balancer uses now, for clients from some networks.
func accessThere(lb *loadBalancer, sources []string) access {
	a := access{sources: sources}
	for _, name := range sortedKeys(lb.Listeners) {
		l := lb.Listeners[name]
		port, _ := l["port"].(float64)
		to, _ := l["defaultBackendSetName"].(string)
		set := lb.BackendSets[to]
		checker, _ := set["healthChecker"].(document)
		if n, _ := checker["port"].(float64); n != 0 {
			a.health = int(n)
		}
		a.preserve = a.preserve || set["isPreserveSource"] == true
		for _, protocol := range protocolsOf(l) {
			p := rulePort{protocol: protocol, port: int(port)}
			for _, b := range listOf(set["backends"]) {
				backend, _ := b.(document)
				if n, _ := backend["port"].(float64); int(n) != p.node {
					p.node = int(n)
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

// protocolsOf are those of a listener, as rules have them.
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
	o.network, _ = rule[side].(string)
	for protocol, name := range map[string]string{numberTCP: "tcpOptions", numberUDP: "udpOptions"} {
		options, _ := rule[name].(document)
		ports, _ := options["destinationPortRange"].(document)
		from, _ := ports["min"].(float64)
		to, _ := ports["max"].(float64)
		if from != 0 && from == to && options["sourcePortRange"] == nil {
			o.protocol, o.port = protocol, int(from)
			return o, o.network != ""
		}
	}
	return o, false
}

// rule is the rule that makes an opening, as Oracle's own controller writes it, but for the description.
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

// marksIn are the marks that a description consists of: clusters that share a subnet share rules. It is nil where somebody has written
// something else.
func (c claim) marksIn(rule document) []string {
	said, _ := rule["description"].(string)
	all := strings.Fields(said)
	for _, m := range all {
		if m != c.mark && !ownership.IsMark(m) {
			return nil
		}
	}
	return all
}

// drops reports whether the cluster needs a rule no more. What somebody has described by hand stays, and so does what other clusters alone
// have marked.
func (c claim) drops(rule document, o opening) bool {
	said, _ := rule["description"].(string)
	switch {
	case c.closesNothing || c.wanted[o] || c.others.need(o) || slices.Contains(c.keep, o.port):
		return false
	case c.closes != nil && !c.closes[o]:
		return false
	case c.mark != "" && slices.Contains(c.marksIn(rule), c.mark):
		return true
	}
	of := o
	of.network = ""
	return said == "" && c.unmarked && !c.strangers[rulePort{protocol: o.protocol, port: o.port}] && (c.former[o] || c.ended[of])
}

// withoutMark is a rule without the mark of this cluster; nil where no other cluster needs it.
func (c claim) withoutMark(rule document) document {
	others := slices.DeleteFunc(c.marksIn(rule), func(m string) bool { return m == c.mark })
	if len(others) == 0 {
		return nil
	}
	rule = jsondoc.Clone(rule)
	rule["description"] = strings.Join(others, " ")
	return rule
}

// join adds the mark of this cluster to a rule that other clusters have made, so that it stays when these need it no more.
func (c claim) join(rules []any, o opening) bool {
	for _, v := range rules {
		rule, _ := v.(document)
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

// isLasting reports whether a rule stays as long as this cluster needs it: not where other clusters alone have marked it.
func (c claim) isLasting(rule document) bool {
	marks := c.marksIn(rule)
	return c.mark == "" || len(marks) == 0 || slices.Contains(marks, c.mark)
}

// apply is a security list as it should be for a Service: the rest stays as it is. It is nil where nothing changes.
func (c claim) apply(list document) (after document, added, removed []opening) {
	if c = c.withFormer(list); c.lets != nil {
		c = c.narrowed(list)
	}
	have, foreign := openings{}, openings{}
	after = document{}
	for field, egress := range map[string]bool{ingressField: false, egressField: true} {
		kept := []any{}
		for _, v := range listOf(list[field]) {
			rule, _ := v.(document)
			o, single := openingOf(rule, egress)
			if single && c.drops(rule, o) {
				removed = append(removed, o)
				if rule = c.withoutMark(rule); rule != nil {
					kept = append(kept, rule)
				}
				continue
			}
			have[o] = have[o] || single && c.isLasting(rule)
			foreign[o] = foreign[o] || single && !c.isLasting(rule)
			kept = append(kept, jsondoc.CloneValue(v))
		}
		after[field] = kept
	}
	if added = c.add(after, have, foreign); len(added)+len(removed) == 0 {
		return nil, nil, nil
	}
	return after, added, removed
}

// add adds what is wanted to a security list: have are rules that are there, foreign those that other clusters have made.
func (c claim) add(after document, have, foreign openings) (added []opening) {
	for _, o := range c.wanted.sorted() {
		field := ingressField
		if o.egress {
			field = egressField
		}
		switch {
		case have[o]:
			continue
		case foreign[o] && c.join(listOf(after[field]), o):
		case foreign[o]: // the description has no room for one more
			continue
		default:
			after[field] = append(listOf(after[field]), any(o.rule(c.mark)))
		}
		added = append(added, o)
	}
	return added
}

// Rules without a description are made by Oracle's own controller, and by people. They go only where the cloud shows that a load balancer
// which that controller made had them, and nobody else who has their port.

// includes reports whether an opening lets in all whom another one lets in.
func (o opening) includes(other opening) bool {
	wide, err := netip.ParsePrefix(o.network)
	narrow, bad := netip.ParsePrefix(other.network)
	o.network = other.network
	return err == nil && bad == nil && o == other && wide.Bits() <= narrow.Bits() && wide.Contains(narrow.Addr())
}

// withFormer adds the openings of a list that source ranges narrow: each includes one that is asked for and is not there. For source ranges
// that Oracle's own controller has seen, all are there, so that a takeover closes nothing.
func (c claim) withFormer(list document) claim {
	if c.mark == "" || len(c.served) == 0 {
		return c
	}
	there := openings{}
	for _, v := range listOf(list[ingressField]) {
		rule, _ := v.(document)
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

// serve has claims know what is asked for at the ports that a load balancer has now.
func (r ruleRequest) serve(all map[string]*claim, front, back []subnetList) {
	for _, p := range front {
		maps.Copy(all[p.list].served, r.former.frontOpenings(nil))
	}
	for _, p := range back {
		maps.Copy(all[p.list].served, r.former.backOpenings(nil))
	}
}

// listeners are the ports at which clients come in, or did.
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

// subtractOpenings returns a list of openings without those of another one, each as often as it is there.
func subtractOpenings(all, some []opening) []opening {
	for _, o := range some {
		if at := slices.Index(all, o); at >= 0 {
			all = slices.Delete(all, at, at+1)
		}
	}
	return all
}
