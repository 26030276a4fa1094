package awssim

import (
	"maps"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// copies returns the objects of a collection as they are now; nothing of them is shared with the simulator.
func copies[T any](s *Sim, c *simkit.Table[string, T], clone func(T) *T) []T {
	defer s.lock()()
	list := make([]T, len(c.Order))
	for i, one := range c.All() {
		list[i] = *clone(*one)
	}
	return list
}

func each[T any](list []*T, clone func(T) *T) []*T {
	out := make([]*T, len(list))
	for i, one := range list {
		out[i] = clone(*one)
	}
	return out
}

func (r *region) clone() region {
	machines := r.Machines
	machines.VMs = cloned(r.VMs, Instance.clone)
	return region{
		Machines: machines, interfaces: cloned(r.interfaces, Interface.clone),
		subnets: cloned(r.subnets, Subnet.clone),
		tables:  cloned(r.tables, RouteTable.clone), groups: cloned(r.groups, Group.clone), classics: cloned(r.classics, ClassicLB.clone),
		networks: cloned(r.networks, LoadBalancer.clone), listeners: cloned(r.listeners, Listener.clone),
		targets: cloned(r.targets, TargetGroup.clone),
	}
}

func cloned[T any](c simkit.Table[string, T], clone func(T) *T) simkit.Table[string, T] {
	out := simkit.Table[string, T]{ByID: make(map[string]*T, len(c.ByID)), Order: slices.Clone(c.Order)}
	for id, one := range c.ByID {
		out.ByID[id] = clone(*one)
	}
	return out
}

func (t RouteTable) clone() *RouteTable {
	t.Subnets, t.Routes, t.Tags = slices.Clone(t.Subnets), each(t.Routes, pointerTo), maps.Clone(t.Tags)
	return &t
}

func pointerTo[T any](v T) *T { return new(v) }

func (n Subnet) clone() *Subnet {
	n.Tags = maps.Clone(n.Tags)
	return &n
}

func (g Group) clone() *Group {
	g.Tags, g.Rules = maps.Clone(g.Tags), slices.Clone(g.Rules)
	return &g
}

func (e Interface) clone() *Interface {
	e.PrivateIPs, e.IPv6, e.Groups = slices.Clone(e.PrivateIPs), slices.Clone(e.IPv6), slices.Clone(e.Groups)
	return &e
}

func (i Instance) clone() *Instance {
	i.Tags, i.Interfaces = maps.Clone(i.Tags), each(i.Interfaces, Interface.clone)
	return &i
}

func (l ClassicListener) clone() *ClassicListener {
	l.Policies = slices.Clone(l.Policies)
	return &l
}

func (lb ClassicLB) clone() *ClassicLB {
	lb.Listeners, lb.Subnets, lb.Groups = each(lb.Listeners, ClassicListener.clone), slices.Clone(lb.Subnets), slices.Clone(lb.Groups)
	lb.Instances, lb.Tags = slices.Clone(lb.Instances), maps.Clone(lb.Tags)
	lb.Policies, lb.Backends = maps.Clone(lb.Policies), maps.Clone(lb.Backends)
	if lb.Check != nil {
		lb.Check = new(*lb.Check)
	}
	return &lb
}

func (lb LoadBalancer) clone() *LoadBalancer {
	lb.Mappings, lb.Groups = slices.Clone(lb.Mappings), slices.Clone(lb.Groups)
	lb.Tags, lb.Attributes = maps.Clone(lb.Tags), maps.Clone(lb.Attributes)
	return &lb
}

func (l Listener) clone() *Listener {
	l.Certificates, l.Tags = slices.Clone(l.Certificates), maps.Clone(l.Tags)
	return &l
}

func (t TargetGroup) clone() *TargetGroup {
	t.Targets, t.Attributes, t.Tags = each(t.Targets, pointerTo), maps.Clone(t.Attributes), maps.Clone(t.Tags)
	t.leaving = slices.Clone(t.leaving)
	return &t
}
