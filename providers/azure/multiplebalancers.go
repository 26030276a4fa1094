package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file chooses among several standard load balancers, for Services and for nodes.

// standardLB is one of several standard load balancers.
type standardLB struct {
	Name         string                `json:"name"`
	PrimaryVMSet string                `json:"primaryVMSet"`
	Placement    *bool                 `json:"allowServicePlacement"`
	Services     *metav1.LabelSelector `json:"serviceLabelSelector"`
	Namespaces   *metav1.LabelSelector `json:"serviceNamespaceSelector"`
	Nodes        *metav1.LabelSelector `json:"nodeSelector"`

	services, namespaces, nodes labels.Selector
}

// selects reports whether the load balancer is for Services with certain labels.
func (l standardLB) selects() bool { return l.services != nil || l.namespaces != nil }

// isClosed reports whether the load balancer accepts no further Services.
func (l standardLB) isClosed() bool { return l.Placement != nil && !*l.Placement }

// parseLoadBalancers reads the list of several standard load balancers.
func parseLoadBalancers(text string) ([]standardLB, error) {
	if text == "" {
		return nil, nil
	}
	problem := func(format string, args ...any) error {
		return schema.BlameKey("multipleStandardLoadBalancerConfigurations", "", fmt.Sprintf(format, args...))
	}
	var list []standardLB
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, problem("is not a list of load balancers: %v", err)
	}
	var problems []error
	names, sets := map[string]bool{}, map[string]bool{}
	for i := range list {
		c := &list[i]
		name, set := strings.ToLower(c.Name), strings.ToLower(c.PrimaryVMSet)
		switch {
		case name == "" || set == "":
			problems = append(problems, problem("entry %d needs name and primaryVMSet", i+1))
		case names[name]:
			problems = append(problems, problem("name %s is there twice", c.Name))
		case sets[set]:
			problems = append(problems, problem("primaryVMSet %s is there twice", c.PrimaryVMSet))
		}
		names[name], sets[set] = true, true
		for _, s := range []struct {
			given *metav1.LabelSelector
			at    *labels.Selector
			key   string
		}{{c.Services, &c.services, "serviceLabelSelector"}, {c.Namespaces, &c.namespaces, "serviceNamespaceSelector"}, {c.Nodes, &c.nodes, "nodeSelector"}} {
			if s.given == nil {
				continue
			}
			selector, err := metav1.LabelSelectorAsSelector(s.given)
			if err != nil {
				problems = append(problems, problem("%s of %s: %v", s.key, c.Name, err))
			} else if !selector.Empty() {
				*s.at = selector
			}
		}
	}
	return list, errors.Join(problems...)
}

// checkStandardLBs demands that one of several load balancers is called like the cluster.
func (c *Config) checkStandardLBs(cluster string) error {
	if len(c.standardLBs) == 0 || slices.ContainsFunc(c.standardLBs, func(l standardLB) bool { return strings.EqualFold(l.Name, cluster) }) {
		return nil
	}
	return fmt.Errorf("multiple standard load balancers are enabled but no configuration named %q is found", cluster)
}

// trimInternal is the name of a load balancer without its kind.
func trimInternal(resource string) string {
	if isInternal(resource) {
		return resource[:len(resource)-len(internalSuffix)]
	}
	return resource
}

// isInternal reports whether a load balancer of this name is internal.
func isInternal(resource string) bool {
	return strings.HasSuffix(strings.ToLower(resource), internalSuffix)
}

// namesOf are the names that load balancers of a cluster may have.
func (c *Config) namesOf(cluster string) (names []string) {
	if len(c.standardLBs) == 0 {
		return []string{c.loadBalancerNameOf(cluster, false), c.loadBalancerNameOf(cluster, true)}
	}
	for _, l := range c.standardLBs {
		names = append(names, l.Name, l.Name+internalSuffix)
	}
	return names
}

// lbChoice holds the input for choosing a Service's load balancer.
type lbChoice struct {
	service *v1.Service
	// asked are the load balancers of the annotation, in lower case; namespace are the labels of the Service's namespace.
	asked     []string
	namespace labels.Set
	// lbs are the load balancers of the Service's kind by name in lower case, without the kind.
	lbs map[string]*loadBalancer
	// current is the load balancer of the Service, pinned that of its requested address; "" for none.
	current, pinned string
}

// matches reports whether a load balancer's selectors match a Service.
func (l standardLB) matches(p lbChoice) bool {
	byLabels := l.services == nil || l.services.Matches(labels.Set(p.service.Labels))
	return byLabels && (l.namespaces == nil || l.namespaces.Matches(p.namespace))
}

// eligibleLBs are those that a Service may be on, in the order of the configuration.
func (c *Config) eligibleLBs(p lbChoice) (list []standardLB, err error) {
	name := serviceName(p.service)
	known := slices.DeleteFunc(slices.Clone(c.standardLBs), func(l standardLB) bool {
		return len(p.asked) > 0 && !slices.Contains(p.asked, strings.ToLower(l.Name))
	})
	if len(known) == 0 {
		return nil, fmt.Errorf("service %q selects %d load balancers by annotation, but none of them is defined in cloud provider configuration", name, len(p.asked))
	}
	var selected, others []standardLB
	for _, l := range known {
		switch {
		case l.isClosed() && !strings.EqualFold(l.Name, p.current):
		case !l.selects():
			others = append(others, l)
		case l.matches(p):
			selected = append(selected, l)
		}
	}
	if len(selected) == 0 {
		selected = others
	}
	if len(selected) == 0 {
		return nil, fmt.Errorf("service %q may be on no load balancer: check annotation %s, and allowServicePlacement, serviceLabelSelector and "+
			"serviceNamespaceSelector of multipleStandardLoadBalancerConfigurations", name, annotationConfigs)
	}
	return selected, nil
}

// chooseStandardLB chooses the load balancer of a Service: where it is, or else one without rules, one that does not exist, or the one with
// the fewest rules.
func (c *Config) chooseStandardLB(p lbChoice) (string, error) {
	list, err := c.eligibleLBs(p)
	if err != nil {
		return "", err
	}
	holds := func(name string) bool {
		return slices.ContainsFunc(list, func(l standardLB) bool { return strings.EqualFold(l.Name, name) })
	}
	name := serviceName(p.service)
	switch {
	case p.pinned != "" && holds(p.pinned):
		return p.pinned, nil
	case p.pinned != "" && len(p.asked) > 0:
		return "", fmt.Errorf("service %q has conflicting load balancer configuration: the address that it names is on load balancer %q, and annotation %s says %s",
			name, p.pinned, annotationConfigs, strings.Join(p.asked, ","))
	case p.pinned != "":
		return "", fmt.Errorf("service %q specifies an IP that resides on load balancer %q, which is not in the eligible set of the configuration", name, p.pinned)
	case p.current != "" && holds(p.current):
		return p.current, nil
	}
	best, least := "", -1
	for _, l := range list {
		count := 0
		if lb, exists := p.lbs[strings.ToLower(l.Name)]; exists {
			count = len(lb.Properties.Rules) + 1
		}
		if count == 1 {
			return l.Name, nil // there, and without rules
		}
		if least < 0 || count < least {
			best, least = l.Name, count
		}
	}
	return best, nil
}

// chooseLoadBalancer is the name of the load balancer that a Service is to be on.
func (r *reconciler) chooseLoadBalancer(ctx context.Context, q services.Request, o *observed) (string, error) {
	s := &o.settings
	if len(r.config.standardLBs) == 0 {
		return r.config.loadBalancerNameOf(q.Cluster, s.Internal), nil
	}
	base := baseName(q.Service)
	p := lbChoice{service: q.Service, asked: splitList(strings.ToLower(s.Configs)), lbs: map[string]*loadBalancer{}}
	var own []*loadBalancer
	for _, lb := range o.lbs {
		if isInternal(lb.Name) != s.Internal {
			continue
		}
		p.lbs[strings.ToLower(trimInternal(lb.Name))] = lb
		if hasPart(lb, base) {
			p.current, own = trimInternal(lb.Name), append(own, lb)
		}
		if o.holdsAddress(q.Service, lb) {
			p.pinned = trimInternal(lb.Name)
		}
	}
	var err error
	if p.namespace, err = r.namespaceLabels(ctx, q.Service.Namespace); err != nil {
		return "", err
	}
	name, err := r.config.chooseStandardLB(p)
	if err != nil {
		return "", err
	}
	for _, lb := range own {
		for _, f := range lb.Properties.Fronts {
			if why := otherUserOf(lb, f, base); !strings.EqualFold(trimInternal(lb.Name), name) && ownedBy(base, f.Name) && why != "" {
				return "", fmt.Errorf("service %q cannot migrate from load balancer %q to %q because frontend IP %q is also referenced by other resources; it is %s",
					serviceName(q.Service), lb.Name, name, f.Name, why)
			}
		}
	}
	if s.Internal {
		name += internalSuffix
	}
	return name, nil
}

// holdsAddress reports whether a frontend of somebody else's on a load balancer has the address that a Service names.
func (o *observed) holdsAddress(service *v1.Service, lb *loadBalancer) bool {
	for _, ipv6 := range families(service) {
		ip := requestedIP(service, &o.settings, ipv6)
		name, _ := o.settings.namedAddress(service, ipv6)
		for _, f := range lb.Properties.Fronts {
			public := nameOf(f.Properties.PublicIP.ID)
			named := sameIP(o.ipOf(f), ip) || name != "" && strings.EqualFold(public, name)
			if named && !ownedBy(baseName(service), f.Name) {
				return true
			}
		}
	}
	return false
}

// namespaceLabels are the labels of a namespace, where a selector needs them. The name of a namespace is a label that each one has.
func (r *observer) namespaceLabels(ctx context.Context, namespace string) (labels.Set, error) {
	known := labels.Set{v1.LabelMetadataName: namespace}
	needed := slices.ContainsFunc(r.config.standardLBs, func(l standardLB) bool {
		if l.namespaces == nil {
			return false
		}
		requirements, _ := l.namespaces.Requirements()
		return slices.ContainsFunc(requirements, func(q labels.Requirement) bool { return q.Key() != v1.LabelMetadataName })
	})
	if !needed {
		return known, nil
	}
	if r.kube == nil {
		return nil, errors.New("the labels of namespaces cannot be read before the program has begun")
	}
	n, err := r.kube.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("serviceNamespaceSelector needs the labels of namespace %s; grant get on namespaces, as the chart does: %w", namespace, err)
	}
	return n.Labels, nil
}

// placeNodes assigns each node to a load balancer: by its set, by a selector, by where it is already, else the one with the fewest nodes.
// setOf returns the set of a node; has reports whether a load balancer has an address.
func (c *Config) placeNodes(
	nodes []*v1.Node, setOf func(*v1.Node) string, has func(lb, ip string) bool,
) (placed map[string]string, unplaced []string) {
	placed = map[string]string{}
	count := map[string]int{}
	put := func(n *v1.Node, name string) {
		placed[n.Name] = strings.ToLower(name)
		count[strings.ToLower(name)]++
	}
	nodes = slices.SortedFunc(slices.Values(nodes), func(a, b *v1.Node) int { return strings.Compare(a.Name, b.Name) })
	choices := map[string][]standardLB{}
	for _, n := range nodes {
		list := c.lbsFor(n, setOf(n))
		choices[n.Name] = list
		at := slices.IndexFunc(list, func(l standardLB) bool {
			return slices.ContainsFunc([]bool{false, true}, func(ipv6 bool) bool {
				ip := internalIP(n, ipv6)
				return ip != "" && has(l.Name, ip)
			})
		})
		switch {
		case len(list) == 1:
			put(n, list[0].Name)
		case at >= 0:
			put(n, list[at].Name)
		}
	}
	for _, n := range nodes {
		if placed[n.Name] != "" {
			continue
		}
		best := ""
		for _, l := range choices[n.Name] {
			if best == "" || count[strings.ToLower(l.Name)] < count[strings.ToLower(best)] {
				best = l.Name
			}
		}
		if best == "" {
			unplaced = append(unplaced, n.Name)
			continue
		}
		put(n, best)
	}
	return placed, unplaced
}

// lbsFor are the load balancers that a node may be on.
func (c *Config) lbsFor(n *v1.Node, set string) []standardLB {
	var selected, others []standardLB
	for _, l := range c.standardLBs {
		switch {
		case set != "" && strings.EqualFold(set, l.PrimaryVMSet):
			return []standardLB{l}
		case l.nodes == nil:
			others = append(others, l)
		case l.nodes.Matches(labels.Set(n.Labels)):
			selected = append(selected, l)
		}
	}
	if len(selected) > 0 {
		return selected
	}
	return others
}

// readSets finds the scale sets or availability sets of nodes. Only provider IDs of uniform scale sets contain them.
func (r *observer) readSets(ctx context.Context, o *observed, nodes []*v1.Node) error {
	o.sets = map[machineID]string{}
	for _, n := range r.config.eligibleNodes(nodes) {
		id, err := parseProviderID(n.Spec.ProviderID)
		if err != nil {
			continue // eligible nodes have one
		}
		if set, uniform := id.uniform(); uniform {
			o.sets[id] = nameOf(set)
			continue
		}
		m, err := r.instances.inventory.Get(ctx, id, queryMembers)
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil:
			return err
		case m.Properties.Set != nil:
			o.sets[id] = nameOf(m.Properties.Set.ID)
		case m.Properties.Availability != nil:
			o.sets[id] = nameOf(m.Properties.Availability.ID)
		}
	}
	return nil
}

// nodesBehind are the nodes that are behind a load balancer, and those that are behind none.
func (c *Config) nodesBehind(q services.Request, o *observed, lb string) (on []*v1.Node, unplaced []string) {
	nodes := slices.Clone(o.nodes)
	if len(c.standardLBs) == 0 {
		return nodes, nil
	}
	has := func(name, ip string) bool {
		for _, lb := range o.lbs {
			for _, ipv6 := range []bool{false, true} {
				if strings.EqualFold(trimInternal(lb.Name), name) && slices.Contains(lb.pool(poolName(q.Cluster, ipv6)).ips(), ip) {
					return true
				}
			}
		}
		return false
	}
	setOf := func(n *v1.Node) string {
		id, _ := parseProviderID(n.Spec.ProviderID)
		return o.sets[id]
	}
	placed, unplaced := c.placeNodes(nodes, setOf, has)
	return slices.DeleteFunc(nodes, func(n *v1.Node) bool { return placed[n.Name] != strings.ToLower(trimInternal(lb)) }), unplaced
}
