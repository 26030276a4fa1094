package azure

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file computes which access a Service claims in the network security group, and writes it. Rules are shared, so that what others need
// of them is looked up at each write: a Service that has come meanwhile may have its rules there already.

// claim holds what a Service has and wants in the security group, and what others need there. Ports have their protocol in lower case.
type claim struct {
	// ownIPs are all addresses that the Service has or had, and namedIPs those that it names or shows.
	ownIPs, namedIPs []string
	wanted           []access
	// nodes are the addresses of nodes, and nodePorts the ports there that are the Service's.
	nodes, nodePorts []string
	// formerNodes are addresses of former nodes, each with the names of the rules that still contain it.
	formerNodes map[string][]string
	// mark is the cluster's, where the Services of the cluster are known: rules record with it which additional addresses the cluster put
	// there.
	mark string
	// denies reports whether a Service denies all other clients at an address.
	denies func(s *v1.Service, ip string) bool

	// The others' part, for removals. sharedPorts are the ports that other Services have on an address, and orphanPorts those of load
	// balancers that stay without a Service.
	sharedPorts map[string][]string
	orphanPorts []string
	// living are the other Services of the cluster, and takenNodePorts their node ports; nil if unknown.
	living         []*v1.Service
	takenNodePorts map[string]bool
}

// securityChange writes the Service's part of the security group; d is nil for a Service that goes.
func (r *reconciler) securityChange(q services.Request, o *observed, d *desired) ([]change, error) {
	if o.group == nil {
		return nil, nil
	}
	k := r.claimOf(q, o, d)
	return r.groupChange(o, func(group *securityGroup, now clusterState) error {
		changed, err := applyClaim(group, k.sparingOthers(q, o, now))
		return keepUnless(changed || hasFailed(group.Properties.State) && d != nil, err)
	})
}

// clusterState holds the cluster's Services and load balancers while rules are written.
type clusterState struct {
	services []*v1.Service
	lbs      []*loadBalancer
}

// groupEdit changes the rules of a security group.
type groupEdit func(group *securityGroup, now clusterState) error

// groupChange writes the security group.
func (r *reconciler) groupChange(o *observed, e groupEdit) ([]change, error) {
	draft := clone(o.group)
	if err := e(draft, clusterState{o.services, o.lbs}); errors.Is(err, errKeep) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: r.config.groupDocument().what, Detail: "rules for the Service"},
		Compare: func() (before, after any) {
			return withoutAdded(format(o.group)), withoutAdded(format(draft))
		},
		Expect: func(o *observed) *observed {
			now := *o
			now.group, now.group.Properties.State = clone(draft), ""
			return &now
		},
		Make: r.thenObserve(func(ctx context.Context, q *services.Request, o *observed) error {
			return r.resources.submit(ctx, r.config.groupDocument(), editOf(func(group *securityGroup) error {
				var now clusterState
				var err error
				if now.services, err = r.cluster.Services(ctx); err == nil {
					now.lbs, err = r.balancersOf(ctx, q.Cluster)
				}
				if err != nil {
					return err
				}
				return e(group, now)
			}))
		}),
	}}, nil
}

// portKey is a port with its protocol in lower case, as claims have it.
func portKey(protocol string, port int) string {
	return strings.ToLower(protocol) + " " + strconv.Itoa(port)
}

// nodePortsOf are the node ports of a Service, each with its protocol in lower case.
func nodePortsOf(service *v1.Service) (ports []string) {
	for _, p := range service.Spec.Ports {
		if p.NodePort > 0 {
			ports = append(ports, portKey(securityProtocol(p.Protocol), int(p.NodePort)))
		}
	}
	return ports
}

// nodePortsTaken are the node ports of all Services but one, nil where that is not among them: then they are not known.
func nodePortsTaken(known []*v1.Service, s *v1.Service) map[string]bool {
	if !slices.ContainsFunc(known, func(other *v1.Service) bool { return other.UID == s.UID }) {
		return nil
	}
	taken := map[string]bool{}
	for _, other := range known {
		if other.UID != s.UID {
			for _, p := range nodePortsOf(other) {
				taken[p] = true
			}
		}
	}
	return taken
}

// otherPorts are the ports of a frontend that rules of others than a Service serve, each with its protocol.
func otherPorts(lb *loadBalancer, f *frontend, base string) (ports []string) {
	for _, rule := range lb.Properties.Rules {
		if sameID(rule.Properties.Front.ID, f.ID) && !ownedBy(base, rule.Name) {
			ports = append(ports, rule.portAt(rule.Properties.FrontPort))
		}
	}
	return ports
}

// portsIn are the ports of the rules of a Service, and those on nodes, each with its protocol.
func portsIn(lb *loadBalancer, base string) (ports []string) {
	for _, rule := range lb.Properties.Rules {
		if ownedBy(base, rule.Name) {
			ports = append(ports, rule.portAt(rule.Properties.FrontPort), rule.portAt(rule.Properties.BackPort))
		}
	}
	return ports
}

// portAt is a port with the protocol of a rule in lower case, as rules of the security group have it.
func (r *lbRule) portAt(port int) string {
	if strings.EqualFold(r.Properties.Protocol, "All") {
		return portKey("*", port)
	}
	return portKey(r.Properties.Protocol, port)
}

// addressesFor are the public addresses of a Service alone. They identify its rules even if its load balancer is gone.
func (r *observer) addressesFor(q services.Request, o *observed) (list []string) {
	for _, a := range o.addresses {
		if names, _ := a.services(); len(names) == 1 && r.isAddressOf(q, o, a) {
			list = append(list, a.Properties.Address)
		}
	}
	return list
}

// claimOf returns a Service's claim, without the others' part. An address in an annotation is no proof that it is the Service's, nor is the
// status, which repeats it.
func (r *reconciler) claimOf(q services.Request, o *observed, d *desired) claim {
	base := baseName(q.Service)
	k := claim{nodes: o.namedNodes, formerNodes: o.formerNodes, nodePorts: nodePortsOf(q.Service), denies: r.denierAt(o.addresses)}
	if nodePortsTaken(o.services, q.Service) != nil {
		k.mark = o.mark
	}
	proven := r.addressesFor(q, o)
	var destinations []string
	for lb, f := range frontsOf(o.lbs...) {
		ip := o.ipOf(f)
		mine := ownedBy(base, f.Name) || servesFrontend(lb, f, base)
		if d != nil && lb.hasName(d.LB) && d.hasFront(f.Name) {
			destinations, mine = append(destinations, ip), true
		}
		if mine && ip != "" {
			proven = append(proven, ip)
		}
	}
	k.namedIPs = additionalAddresses(q.Service)
	for _, shown := range q.Service.Status.LoadBalancer.Ingress {
		k.namedIPs = append(k.namedIPs, shown.IP)
	}
	k.ownIPs = slices.Concat(proven, o.formerIPs, shownAddresses(q.Service, o.group.Properties.Rules, k.mark))
	if d == nil {
		return k
	}
	if d.NodePorts {
		destinations = o.frontsOnNodes(d)
	}
	destinations = append(destinations, d.Additional...)
	k.wanted = accesses(*d, slices.DeleteFunc(destinations, func(ip string) bool { return ip == "" }))
	return k
}

// sparingOthers adds what the others of the cluster need at a moment, for the removal of addresses from rules.
func (c claim) sparingOthers(q services.Request, o *observed, now clusterState) claim {
	base := baseName(q.Service)
	c.sharedPorts, c.orphanPorts = map[string][]string{}, nil
	for _, lb := range now.lbs {
		for _, f := range lb.Properties.Fronts {
			ip := o.ipOf(f)
			c.sharedPorts[ip] = append(c.sharedPorts[ip], otherPorts(lb, f, base)...)
		}
		for _, gone := range basesIn(lb) {
			if !slices.ContainsFunc(now.services, func(s *v1.Service) bool { return strings.EqualFold(baseName(s), gone) }) {
				c.orphanPorts = append(c.orphanPorts, portsIn(lb, gone)...)
			}
		}
	}
	return c.sparingServices(now.services, q.Service)
}

// sparingServices adds what the cluster's other Services need without a frontend. A deleted Service needs its ports as long as its load
// balancer stays.
func (c claim) sparingServices(known []*v1.Service, service *v1.Service) claim {
	c.takenNodePorts = nodePortsTaken(known, service)
	c.nodePorts, c.sharedPorts = slices.Clone(c.nodePorts), maps.Clone(c.sharedPorts)
	c.living = slices.DeleteFunc(slices.Clone(known), func(s *v1.Service) bool {
		return s.UID == service.UID || s.DeletionTimestamp != nil && !contract.Keeps(s) && !contract.IsDisowned(s)
	})
	c.sparePorts(c.living)
	return c
}

// sparePorts leaves ports to living Services that need no frontend for them: on nodes, and on additional addresses.
func (c *claim) sparePorts(living []*v1.Service) {
	for _, s := range living {
		taken := nodePortsOf(s)
		c.nodePorts = slices.DeleteFunc(c.nodePorts, func(p string) bool { return slices.Contains(taken, p) })
		for _, ip := range additionalAddresses(s) {
			for _, p := range s.Spec.Ports {
				protocol := securityProtocol(p.Protocol)
				c.sharedPorts[ip] = append(slices.Clip(c.sharedPorts[ip]), portKey(protocol, int(p.Port)), portKey(protocol, int(p.NodePort)))
			}
		}
	}
}

// denierAt returns whether a Service at an address denies all others there. One without an address yet may get any, and one with a fault is
// unknown. addresses are the public ones that may be requested by name.
func (r *observer) denierAt(addresses []*publicIP) func(s *v1.Service, ip string) bool {
	return func(s *v1.Service, ip string) bool {
		s = r.translate(s)
		a := &publicIP{Properties: publicIPProperties{Address: ip}}
		for _, known := range addresses {
			if sameIP(known.Properties.Address, ip) {
				a = known
			}
		}
		if s.Spec.Type != v1.ServiceTypeLoadBalancer || len(s.Status.LoadBalancer.Ingress) > 0 && !requestsAddress(s, a) {
			return false
		}
		given, _, err := parseSettings(s)
		d := newDesired(s, &given)
		return err != nil || d.denies() && !d.NoSecurity && len(d.deniable([]string{ip})) > 0
	}
}

// findUnproven reports additional addresses that stay in rules although the Service no longer wants them, because nothing shows that they
// were put there for it. d is nil for a deleted Service.
func (r *reconciler) findUnproven(q services.Request, o *observed, d *desired) (findings []services.Finding) {
	additional := additionalAddresses(q.Service)
	if shown, served := q.Service.Status.LoadBalancer.Ingress, len(q.Service.Spec.IPFamilies); len(shown) > max(served, 1) {
		for _, in := range shown { // the annotation may have named them
			additional = append(additional, canonicalIP(in.IP))
		}
	}
	if len(additional) == 0 || o.group == nil {
		return nil
	}
	k := r.claimOf(q, o, d).sparingOthers(q, o, clusterState{o.services, o.lbs})
	for _, p := range q.Service.Spec.Ports { // a rule is about the ports of the Service, or about its node ports
		k.nodePorts = append(k.nodePorts, portKey(securityProtocol(p.Protocol), int(p.Port)))
	}
	for _, rule := range o.group.Properties.Rules {
		if !isManaged(rule) || !k.isForNodePorts(rule.Properties.Protocol, rule.ports()) {
			continue
		}
		for _, ip := range additional {
			if !hasIP(rule.destinations(), ip) || k.isOwnAddress(ip, rule, false) || len(k.sharedPorts[ip]) > 0 || k.wants(ip, rule) {
				continue
			}
			findings = append(findings, services.Warning(eventRuleKept, "rule %s of network security group %s still names %s of annotation %s: nothing shows "+
				"that it was put there for this Service, and another cluster may need it; remove it there if nobody does",
				rule.Name, r.config.SecurityGroup, ip, annotationAdditional))
		}
	}
	return findings
}

// wants reports whether a Service wants an address in a rule.
func (c claim) wants(ip string, rule *securityRule) bool {
	return slices.ContainsFunc(c.wanted, func(a access) bool {
		return rule.hasName(a.name()) && hasIP(a.destinations, ip)
	})
}

// frontsOnNodes are the addresses of the nodes in each family that a Service is served in: where traffic goes to node ports.
func (o *observed) frontsOnNodes(d *desired) (list []string) {
	for _, n := range o.nodes {
		for _, f := range d.Fronts {
			list = append(list, internalIP(n, f.ipv6))
		}
	}
	return list
}

// checkAdditional refuses additional addresses that would open something of others: a node, or a port of another Service on its address,
// which may admit fewer clients.
func (r *reconciler) checkAdditional(q services.Request, o *observed, d *desired) error {
	for _, ip := range d.Additional {
		blame := func(format string, args ...any) error {
			return &schema.Problem{Place: "annotation " + annotationAdditional, Value: ip, Reason: fmt.Sprintf(format, args...)}
		}
		if a := o.isOfAnotherCluster(ip); a != nil {
			return blame("is public IP address %s of another cluster", a.Name)
		}
		for _, n := range slices.Concat(r.instances.nodes.Nodes(), q.Nodes) {
			if slices.ContainsFunc([]bool{false, true}, func(ipv6 bool) bool { return sameIP(internalIP(n, ipv6), ip) }) {
				return blame("is an address of node %s", n.Name)
			}
		}
		for lb, f := range frontsOf(o.lbs...) {
			if !sameIP(o.ipOf(f), ip) || ownedBy(d.Base, f.Name) {
				continue
			}
			taken := otherPorts(lb, f, d.Base)
			for _, p := range d.AccessPorts {
				if slices.Contains(taken, portKey(p.protocol, int(p.port))) {
					return blame("is the address of another Service, which has port %d there", p.port)
				}
			}
		}
	}
	return nil
}

// isOfAnotherCluster finds a public address that another cluster's controller made.
func (o *observed) isOfAnotherCluster(ip string) *publicIP {
	for _, a := range slices.Concat(o.foreign, o.addresses) {
		cluster := a.cluster()
		if sameIP(a.Properties.Address, ip) && (slices.Contains(o.foreign, a) || cluster != "" && !strings.EqualFold(cluster, o.cluster)) {
			return a
		}
	}
	return nil
}

// checkSharedFronts refuses to give a frontend another address while other Services have rules on it: theirs would follow.
func (c *Config) checkSharedFronts(lb *loadBalancer, d *desired) error {
	for _, f := range d.Fronts {
		have := lb.front(f.name)
		if f.isOthers || have == nil || sameFront(have, f, c) {
			continue
		}
		for _, rule := range lb.Properties.Rules {
			name := rule.Name
			if sameID(rule.Properties.Front.ID, have.ID) && isGeneratedName(name) && !ownedBy(d.Base, name) {
				return fmt.Errorf("frontend %s of load balancer %s is to change its address, and rule %s of another Service uses it: give that Service another "+
					"address first", f.name, lb.Name, name)
			}
		}
	}
	return nil
}
