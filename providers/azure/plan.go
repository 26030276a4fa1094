package azure

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file is for plan alone, which makes no change: the state that each change should leave, and the writes of members. IDs follow from
// names, and addresses are not known before Azure gives them.

// unknownAddress is in the place of an address that Azure has not given yet. As in addresses, the colon tells the family.
func unknownAddress(ipv6 bool) string {
	if ipv6 {
		return "not yet known: IPv6"
	}
	return "not yet known"
}

// afterChange begins the state after a change: the addresses that the Service's frontends have are former ones in it.
func (o *observed) afterChange(base string) *observed {
	now := *o
	now.formerIPs = slices.Concat(o.formerIPs, o.servedAddresses(base))
	return &now
}

// afterBalancer returns the state after a load balancer is written, or deleted if after is nil.
func (o *observed) afterBalancer(base string, before, after *loadBalancer) *observed {
	now := o.afterChange(base)
	is := func(lb *loadBalancer) bool { return sameID(lb.ID, before.ID) }
	now.basic, now.lbs = slices.DeleteFunc(slices.Clone(o.basic), is), slices.DeleteFunc(slices.Clone(o.lbs), is)
	if after == nil {
		now.deletedLBs = append(slices.Clone(o.deletedLBs), before.lowerID())
		return now
	}
	after.recreated = slices.Contains(o.deletedLBs, after.lowerID())
	now.lbs = append(now.lbs, after)
	return now
}

// afterWrite returns a load balancer as Azure should show it then.
func (lb *loadBalancer) afterWrite(id string) *loadBalancer {
	after := clone(lb)
	after.ID, after.Name, after.Properties.State = cmp.Or(lb.ID, id), nameOf(id), ""
	for _, f := range after.Properties.Fronts {
		f.ID = cmp.Or(f.ID, after.ID+"/frontendIPConfigurations/"+f.Name)
		if f.Properties.Subnet.ID != "" {
			f.Properties.Address = cmp.Or(f.Properties.Address, unknownAddress(strings.EqualFold(f.Properties.Version, familyName(true))))
		}
	}
	for _, p := range after.Properties.Pools {
		p.ID = cmp.Or(p.ID, after.ID+"/backendAddressPools/"+p.Name)
	}
	return after
}

// afterAddress returns the state after a public address is written.
func (o *observed) afterAddress(base string, after *publicIP) *observed {
	now := o.afterChange(base)
	now.addresses = append(slices.DeleteFunc(slices.Clone(o.addresses), func(a *publicIP) bool { return sameID(a.ID, after.ID) }), after)
	return now
}

// afterWrite returns a public address as Azure should show it then.
func (a *publicIP) afterWrite(id string) *publicIP {
	after := clone(a)
	after.ID, after.Name, after.Properties.State = id, nameOf(id), ""
	after.Properties.Address = cmp.Or(after.Properties.Address, unknownAddress(after.isIPv6()))
	return clone(after) // it compares as one that was read
}

// withoutLink returns the state after a private link service is deleted.
func (o *observed) withoutLink(base string, l *privateLink) *observed {
	now := o.afterChange(base)
	now.links = slices.DeleteFunc(slices.Clone(o.links), func(other *privateLink) bool { return other == l })
	return now
}

// writesOf returns the writes that changeMembers would make.
func (m *members) writesOf(ctx context.Context, lb *loadBalancer, machines map[string]machineID, p membership) ([]*poolWrite, error) {
	var err error
	if p.join, err = m.omitUnchangeable(ctx, p.join); err != nil {
		return nil, err
	}
	last := slices.DeleteFunc(p.keepLast(lb, machines), func(left memberAt) bool {
		return !slices.ContainsFunc(p.join, func(at memberAt) bool { return at.pool == left.pool })
	})
	models, work := m.resourceChanges(p)
	_, later := m.resourceChanges(membership{leave: last})
	return m.readWrites(ctx, slices.Concat(models, work, later))
}

// readWrites returns the writes that changes would make.
func (m *members) readWrites(ctx context.Context, list []resourceChange) ([]*poolWrite, error) {
	writes := make([]*poolWrite, len(list))
	reads := make([]func() error, len(list))
	for i, e := range list {
		reads[i] = func() (err error) {
			if writes[i], err = e.read(ctx); errors.Is(err, cloudapi.ErrNotFound) {
				return nil
			}
			return err
		}
	}
	err := waiting.Together(reads...)
	return slices.DeleteFunc(writes, func(w *poolWrite) bool { return w == nil }), err
}

// planMemberWrites fills in the writes of members, which come with the changes of load balancers. These do not say what machines and scale
// sets have, so that machines and scale sets are read.
func (r *reconciler) planMemberWrites(ctx context.Context, q services.Request, o *observed, d *desired) (err error) {
	d.writes = map[string][]*poolWrite{}
	going := slices.Clone(o.basic)
	if due, err := r.loadBalancerChange(o, d); err == nil && len(due) == 0 { // they are written after it
		p := r.members.planFor(o, d.LB, d.Fronts, q.Nodes)
		if d.writes[strings.ToLower(d.LB)], err = r.members.writesOf(ctx, o.balancerNamed(d.LB), o.machines, p); err != nil {
			return err
		}
		for _, lb := range o.lbs {
			goes := errors.Is(r.config.withoutService(lb.Name, d.Base, o.otherParts)(clone(lb)), errRemove)
			if goes && hasPart(lb, d.Base) && !lb.hasName(d.LB) {
				going = append(going, lb)
			}
		}
	}
	for _, lb := range going {
		models, err := r.members.modelRemovals(ctx, lb)
		if err != nil {
			return err
		}
		if d.writes[strings.ToLower(lb.Name)], err = r.members.readWrites(ctx, append(r.members.memberRemovals(lb), models...)); err != nil {
			return err
		}
	}
	return nil
}

// memberWrites shows the writes of members that come with a change of a load balancer.
func (d *desired) memberWrites(lb string) (list []change) {
	for _, w := range d.writes[strings.ToLower(lb)] {
		list = append(list, change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: w.what, Detail: "pools of load balancer " + lb},
			Compare: func() (before, after any) { return w.before, w.after },
		})
	}
	return list
}
