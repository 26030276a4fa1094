package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	kitnodes "github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// observer reads the cloud's objects, and remembers addresses of former nodes.
type observer struct {
	config    *Config
	resources *resources
	members   *members
	instances *instances
	cluster   ownership.Cluster
	former    formerNodes
	uses      *inventory.Inventory[string, addressUse]
	kube      kubernetes.Interface
	// latest is the framework's last request, for changes that the framework does not see.
	latest atomic.Pointer[services.Request]
	// translate shows a Service of the API server as the framework's calls show it: with the annotations that portable ones, and the
	// defaults of its class, stand for.
	translate func(*v1.Service) *v1.Service
}

// Observe reads the load balancers, the public addresses and the security group, which all Services share.
func (r *observer) Observe(ctx context.Context, q services.Request) (*observed, error) {
	lbs, err := r.balancersOf(ctx, q.Cluster)
	if err != nil {
		return nil, err
	}
	o := &observed{cluster: q.Cluster, lbs: lbs}
	o.settings, _, o.settingsErr = parseSettings(q.Service)
	if q.Purpose == services.Ensure || q.Purpose == services.UpdateNodes {
		r.latest.Store(&q)
	}
	if err := r.observePools(ctx, q.Service, o); err != nil {
		return nil, err
	}
	if q.Purpose != services.Narrow {
		if err := r.observeNodes(ctx, q, o); err != nil {
			return nil, err
		}
	}
	if q.Purpose == services.UpdateNodes && (!o.usesNodePorts() || o.settings.NoSecurity) {
		return o, nil
	}
	if err := r.observeAddresses(ctx, q, o); err != nil {
		return nil, err
	}
	if q.Purpose == services.Lookup && r.hasLoadBalancers(q, o) {
		return o, nil // whatever rules it has
	}
	return o, r.observeGroup(ctx, q, o)
}

// balancersOf are the load balancers of a cluster's names, in the order of their IDs.
func (r *observer) balancersOf(ctx context.Context, cluster string) ([]*loadBalancer, error) {
	all, err := r.resources.loadBalancers.All(ctx, inventory.Query{MaxAge: observeMaxAge})
	names := r.config.namesOf(cluster)
	lbs := slices.DeleteFunc(parseAll[loadBalancer](all), func(lb *loadBalancer) bool { return !slices.ContainsFunc(names, lb.hasName) })
	slices.SortFunc(lbs, func(a, b *loadBalancer) int { return strings.Compare(a.lowerID(), b.lowerID()) })
	return lbs, err
}

// hasLoadBalancers reports whether a Service has a part of a load balancer, or a public address.
func (r *observer) hasLoadBalancers(q services.Request, o *observed) bool {
	base := baseName(q.Service)
	return slices.ContainsFunc(o.lbs, func(lb *loadBalancer) bool { return hasPart(lb, base) }) ||
		slices.ContainsFunc(o.addresses, func(a *publicIP) bool { return r.isAddressOf(q, o, a) })
}

// observeNodes reads the machines of members, with several load balancers the sets of machines, and where needed the addresses of nodes.
func (r *observer) observeNodes(ctx context.Context, q services.Request, o *observed) (err error) {
	if needsMembers := q.Purpose != services.Lookup && q.Purpose != services.Delete; needsMembers && r.config.PoolType == poolNIC {
		r.members.recordNodes(r.config.eligibleNodes(q.Nodes))
		if o.machines, err = r.members.machinesOf(ctx, o.lbs...); err != nil {
			return err
		}
	}
	if len(r.config.standardLBs) > 0 && len(q.Nodes) > 0 {
		if err = r.readSets(ctx, o, q.Nodes); err != nil {
			return err
		}
	}
	inPools := r.config.PoolType == poolIP && q.Purpose != services.Delete
	if q.Purpose != services.Lookup && (o.usesNodePorts() || inPools) {
		o.nodes, err = r.attestedNodes(ctx, r.config.eligibleNodes(q.Nodes))
	}
	return err
}

// usesNodePorts reports whether connections arrive at node ports, so that rules of the security group name the nodes. With faults in the
// annotations they do not change.
func (o *observed) usesNodePorts() bool { return o.settingsErr == nil && o.settings.NoFloating }

// attestedNodes are nodes with the addresses of their machines. Addresses of a Node alone do not count, because a kubelet may write any.
// With an error, those are left out whose machines cannot be read.
func (r *observer) attestedNodes(ctx context.Context, nodes []*v1.Node) (list []*v1.Node, failed error) {
	list = make([]*v1.Node, 0, len(nodes))
	for _, n := range nodes {
		has, err := r.instances.addressesOf(ctx, n)
		if err != nil {
			failed = cmp.Or(failed, fmt.Errorf("finding the addresses of node %s: %w", n.Name, cloudapi.NotAbsence(err)))
			continue
		}
		with := *n
		with.Status.Addresses = slices.DeleteFunc(kitnodes.Vouched(n.Status.Addresses, has), func(a v1.NodeAddress) bool {
			ipv6 := strings.Contains(a.Address, ":")
			return internalIP(n, ipv6) == "" && internalIP(n, !ipv6) != "" // it says that it serves the other family alone
		})
		list = append(list, &with)
	}
	return list, failed
}

// observeAddresses reads the public addresses that a Service may have.
func (r *observer) observeAddresses(ctx context.Context, q services.Request, o *observed) error {
	var err error
	if o.mark, err = r.cluster.Mark(ctx); err != nil {
		return err
	}
	// The usual group comes first: its first listing shows addresses in others.
	var groups []string
	for _, g := range append([]string{r.config.Group, r.config.addressGroup(q.Service)}, groupsIn(o.lbs, baseName(q.Service))...) {
		if slices.Contains(groups, g) {
			continue
		}
		groups = append(groups, g)
		list, err := r.resources.addressesOf(g).All(ctx, inventory.Query{MaxAge: observeMaxAge})
		if g != r.config.Group && isSkippedGroup(err) {
			r.resources.forgetGroup(g)
		}
		if r.config.isGroupMissing(g, q, err) {
			continue
		}
		if err != nil {
			return err
		}
		found := parseAll[publicIP](list)
		r.resources.recordElsewhere(found...)
		for _, a := range found {
			if ownership.Foreign(o.mark, a.marks()) {
				o.foreign = append(o.foreign, a)
				continue
			}
			o.addresses = append(o.addresses, a)
		}
	}
	elsewhere, err := r.addressesElsewhere(ctx, q, o, groups)
	if err != nil {
		return err
	}
	o.addresses = append(o.addresses, elsewhere...)
	slices.SortFunc(o.addresses, func(a, b *publicIP) int { return strings.Compare(a.lowerID(), b.lowerID()) })
	return nil
}

// isGroupMissing reports whether a resource group is missing in which the Service requests no address: it has no objects there.
func (c *Config) isGroupMissing(group string, q services.Request, err error) bool {
	asked := group == c.addressGroup(q.Service) && q.Purpose != services.Delete && q.Purpose != services.Lookup
	return err != nil && !asked && group != c.Group && strings.EqualFold(codeOf(err), codeNoGroup)
}

// groupsIn are the resource groups of the public addresses of a Service's frontends.
func groupsIn(lbs []*loadBalancer, base string) (groups []string) {
	for lb, f := range frontsOf(lbs...) {
		id := f.Properties.PublicIP.lowerID()
		if id != "" && (ownedBy(base, f.Name) || servesFrontend(lb, f, base)) {
			groups = append(groups, groupOf(id))
		}
	}
	return groups
}

func (r *observer) observeGroup(ctx context.Context, q services.Request, o *observed) error {
	mayLack := q.Purpose == services.Delete || q.Purpose == services.Lookup
	known, err := r.cluster.Services(ctx)
	if err != nil {
		return err
	}
	o.services = known
	if r.config.SecurityGroup == "" {
		if mayLack {
			return nil
		}
		return &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: "reading the security group", Message: "securityGroupName is not configured"}
	}
	group, err := r.resources.singles.Get(ctx, strings.ToLower(r.config.groupDocument().id), inventory.Query{MaxAge: observeMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		if mayLack {
			return nil
		}
		return fmt.Errorf("nsg %q not found: %w", r.config.SecurityGroup, err)
	}
	if err != nil {
		return err
	}
	o.group = parse[securityGroup](group)
	if o.namedNodes, err = r.namedNodes(ctx, q, o.group); err != nil {
		return err
	}
	return r.findFormerNodes(ctx, q, o)
}

// namedNodes are the addresses of nodes that rules of the security group name, as far as their machines have them.
func (r *observer) namedNodes(ctx context.Context, q services.Request, group *securityGroup) ([]string, error) {
	named := map[string]bool{}
	for _, rule := range group.Properties.Rules {
		for _, ip := range rule.destinations() {
			named[ip] = isManaged(rule) || named[ip]
		}
	}
	nodes := slices.DeleteFunc(slices.Concat(r.instances.nodes.Nodes(), q.Nodes), func(n *v1.Node) bool {
		return !named[internalIP(n, false)] && !named[internalIP(n, true)]
	})
	vouched, err := r.attestedNodes(ctx, nodes)
	if err == nil || q.Purpose != services.Narrow {
		return nodeIPs(vouched), err
	}
	// A failed read does not keep the Service's other rules from being closed.
	unread := slices.DeleteFunc(nodes, func(n *v1.Node) bool {
		return slices.ContainsFunc(vouched, func(v *v1.Node) bool { return v.Name == n.Name })
	})
	return append(nodeIPs(vouched), r.former.seenAmong(nodeIPs(unread))...), nil
}
