package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file is about the other Services of a cluster, which share openings of security lists: what one of them needs stays.

// findNeighbours returns the other Services that need, or may need, openings in security lists.
func (b *securityLists) findNeighbours(ctx context.Context, service *v1.Service) (all []neighbour, err error) {
	list, err := b.cluster.Services(ctx)
	if err != nil {
		return nil, err
	}
	list = slices.DeleteFunc(slices.Clone(list), func(s *v1.Service) bool { return s.UID == service.UID || ownership.Leaves(s) })
	if err := b.kinds.listOnce(ctx, list); err != nil {
		return nil, err
	}
	for _, s := range list {
		if n, needs := b.neighbour(s); needs {
			all = append(all, n)
		}
	}
	return all, nil
}

// neighbour returns a Service as one that shares openings. One without a known load balancer needs some only if we will create one, or if
// it has an address: a load balancer that a listing lacks may exist then.
func (b *securityLists) neighbour(service *v1.Service) (n neighbour, needs bool) {
	lb, hidden := b.kinds.peek(service)
	s, _, fault := parseByType(service, b.api.config.SecurityListMode)
	if fault == nil && b.needsNone(service, s, lb) {
		return n, false
	}
	asked, err := accessOf(service, s.preserve)
	n = neighbour{service: service, asked: asked, unread: err != nil, lb: lb}
	switch {
	case lb != nil:
		n.subnets, n.anywhere = lb.Subnets, len(lb.Subnets) == 0
		return n, true
	case service.Spec.LoadBalancerClass != nil:
		return n, false
	case hidden || isServed(service):
		n.anywhere = true
		return n, true
	}
	n.subnets = []string{cmp.Or(s.Subnet1, b.api.config.Subnet1), cmp.Or(s.Subnet2, b.api.config.Subnet2)}
	return n, fault == nil && s.managesLists() && !contract.IsDisowned(service)
}

// needsNone reports whether a Service has nothing in security lists, because its load balancer has the network security group with its
// rules. A Service that had rules in lists is checked again when they are closed.
func (b *securityLists) needsNone(service *v1.Service, s settings, lb *loadBalancer) bool {
	if s.mode != modeGroups || b.hasRules(service.UID) {
		return false
	}
	if lb == nil {
		return !isServed(service)
	}
	return slices.ContainsFunc(lb.Groups, func(id string) bool { return !slices.Contains(s.Groups, id) })
}

func isServed(service *v1.Service) bool { return len(service.Status.LoadBalancer.Ingress) > 0 }

// needsIn returns the neighbours' needs in a security list.
func (b *securityLists) needsIn(ctx context.Context, all []neighbour, list string) (neighbourNeeds, error) {
	o := neighbourNeeds{openings{}, map[int]string{}, map[int]bool{}}
	for _, n := range all {
		in, err := b.usesList(ctx, n, list)
		if err != nil {
			return o, err
		}
		o.addNeighbour(n, in, b.knownOpenings(n.service.UID, list))
	}
	return o, nil
}

// usesList reports whether a neighbour's clients pass a list. A subnet that cannot be read may have every list. For a load balancer that
// does not exist yet, only readable subnets count.
func (b *securityLists) usesList(ctx context.Context, n neighbour, list string) (bool, error) {
	if n.anywhere || n.lb != nil {
		here, err := b.anyHasList(ctx, n.subnets, list)
		if err != nil && ctx.Err() == nil {
			here, err = true, nil
		}
		return here || n.anywhere, err
	}
	return slices.ContainsFunc(n.subnets, func(id string) bool {
		if id == "" {
			return false
		}
		s, err := b.subnetOf(ctx, id)
		return err == nil && slices.Contains(s.Lists, list)
	}), nil
}

// subnetOf reads a subnet of another Service. A refusal is remembered, like a missing subnet.
func (b *securityLists) subnetOf(ctx context.Context, id string) (subnet, error) {
	b.mu.Lock()
	known := b.refused[id]
	b.mu.Unlock()
	if time.Since(known.at) < refusalMaxAge {
		return subnet{}, known.err
	}
	s, err := b.subnets.Get(ctx, id, inventory.Query{MaxAge: attachedMaxAge, MaxMissAge: attachedMaxAge})
	b.noteRefusal(id, err)
	return s, err
}

// noteRefusal stores whether a subnet may be read.
func (b *securityLists) noteRefusal(id string, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil {
		delete(b.refused, id)
	} else if errors.Is(err, cloudapi.ErrUnauthorized) && isLastingRefusal(err) {
		b.refused[id] = refusal{time.Now(), err}
	}
}

// knownOpenings returns all openings of a Service in a list, or nil if this process does not know them.
func (b *securityLists) knownOpenings(uid types.UID, list string) openings {
	b.mu.Lock()
	defer b.mu.Unlock()
	if held := b.held[uid][list]; held.known {
		return held.openings
	}
	return nil
}

// explainOpen says why an opening of a list stays.
func (c claim) explainOpen(list string, o opening) error {
	return fmt.Errorf("security list %s lets in %s as long as nobody can tell who the clients of Service %s are, which has that port: "+
		"correct its source ranges, or what keeps its load balancer from being changed", list, o.text(), c.others.fronts[o.port])
}

// findDoubts returns the openings at a Service's ports that a claim leaves only because another Service's clients are unknown.
func (c claim) findDoubts(l securityList) (all []error) {
	_, _, closed := c.apply(l.doc)
	sure := c
	sure.others.fronts = nil
	_, _, more := sure.apply(l.doc)
	for _, o := range subtractOpenings(more, closed) {
		if c.listeners[rulePort{protocol: o.protocol, port: o.port}] {
			all = append(all, c.explainOpen(l.ID, o))
		}
	}
	return all
}

// findStrangers makes a claim leave the rules without a description at ports that others have, and returns these rules. If nobody may look,
// all rules without a description stay.
func (b *securityLists) findStrangers(ctx context.Context, c *claim, l securityList) (left []opening, err error) {
	if c.mark == "" || c.strangers != nil {
		return nil, nil
	}
	if left = c.findUndescribed(l.doc); len(left) == 0 {
		return nil, nil
	}
	switch c.strangers, err = b.readStrangers(ctx, *c, l.ID); {
	case isUnreachable(err):
		c.unmarked = false
		return left, nil
	case err != nil:
		return nil, err
	}
	return slices.DeleteFunc(left, func(o opening) bool { return !c.strangers[rulePort{protocol: o.protocol, port: o.port}] }), nil
}

// readStrangers returns the ports that others have where a security list applies. They belong to load balancers whose rules this cluster
// does not manage, and to instances that are no nodes, which may have any port of this Service.
func (b *securityLists) readStrangers(ctx context.Context, c claim, list string) (map[rulePort]bool, error) {
	ours, err := b.cluster.Services(ctx)
	if err != nil {
		return nil, err
	}
	ours = slices.DeleteFunc(slices.Clone(ours), func(service *v1.Service) bool {
		s, _, _ := parseByType(service, b.api.config.SecurityListMode)
		return !s.managesLists()
	})
	beside, err := b.kinds.listOthers(ctx, append(ours, c.service))
	if err != nil {
		return nil, err
	}
	all := map[rulePort]bool{}
	for _, lb := range beside {
		here, err := b.anyHasList(ctx, lb.Subnets, list)
		if err != nil {
			return nil, err
		}
		for _, p := range presentAccess(lb, nil).ports {
			all[rulePort{protocol: p.protocol, port: p.node}] = true
			if here {
				all[rulePort{protocol: p.protocol, port: p.port}] = true
			}
		}
	}
	hosts, err := b.otherSubnets(ctx)
	if err != nil {
		return nil, err
	}
	here, err := b.anyHasList(ctx, hosts, list)
	if here {
		maps.Copy(all, c.listeners)
	}
	return all, err
}

// otherSubnets returns the subnets of instances that are no nodes.
func (b *securityLists) otherSubnets(ctx context.Context) (subnets []string, err error) {
	all, _, err := listInCompartments[attachment](ctx, b.api, "attached network interfaces", "/vnicAttachments")
	nodes := map[string]bool{}
	for _, n := range b.instances.nodes.Nodes() {
		nodes[instanceKey(n.Spec.ProviderID)] = true
	}
	for _, a := range all {
		if a.State == stateAttached && !nodes[a.Instance] {
			subnets = append(subnets, a.Subnet)
		}
	}
	return subnets, err
}

// anyHasList reports whether one of some subnets has a security list. One that may not be read may have it.
func (b *securityLists) anyHasList(ctx context.Context, subnets []string, list string) (bool, error) {
	for _, id := range subnets {
		s, err := b.subnetOf(ctx, id)
		if isUnreachable(err) || slices.Contains(s.Lists, list) {
			return true, nil
		}
		if err != nil {
			return false, err
		}
	}
	return false, nil
}
