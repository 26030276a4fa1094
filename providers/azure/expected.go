package azure

import (
	"cmp"
	"slices"
	"strings"
)

// This file returns the state as changes should leave it, for plan: IDs follow from names, and addresses are not known before Azure gives
// them.

// unknownAddress is in the place of an address that Azure has not given yet. As in addresses, the colon tells the family.
func unknownAddress(six bool) string {
	if six {
		return "not yet known: IPv6"
	}
	return "not yet known"
}

// expectPart returns the state after a change of what a Service has at one place.
func (o *observed) expectPart(base string) *observed {
	now := *o
	now.left = slices.Concat(o.left, o.servedAddresses(base))
	return &now
}

// expectLoadBalancer returns the state after one load balancer is replaced by another; nil is one that is deleted.
func (o *observed) expectLoadBalancer(base string, before, after *loadBalancer) *observed {
	now := o.expectPart(base)
	is := func(lb *loadBalancer) bool { return sameID(lb.ID, before.ID) }
	now.basic, now.lbs = slices.DeleteFunc(slices.Clone(o.basic), is), slices.DeleteFunc(slices.Clone(o.lbs), is)
	if after != nil {
		now.lbs = append(now.lbs, after)
	}
	return now
}

// expect returns a load balancer once it is written.
func (lb *loadBalancer) expect(id string) *loadBalancer {
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

// expectAddress returns the state after a public address is written.
func (o *observed) expectAddress(base string, after *publicIP) *observed {
	now := o.expectPart(base)
	now.addresses = append(slices.DeleteFunc(slices.Clone(o.addresses), func(a *publicIP) bool { return sameID(a.ID, after.ID) }), after)
	return now
}

// expect returns a public address once it is written.
func (a *publicIP) expect(id string) *publicIP {
	after := clone(a)
	after.ID, after.Name, after.Properties.State = id, nameOf(id), ""
	after.Properties.Address = cmp.Or(after.Properties.Address, unknownAddress(after.isSix()))
	return clone(after) // it compares as one that was read
}

// expectWithoutLink returns the state after a private link service is deleted.
func (o *observed) expectWithoutLink(base string, l *privateLink) *observed {
	now := o.expectPart(base)
	now.links = slices.DeleteFunc(slices.Clone(o.links), func(other *privateLink) bool { return other == l })
	return now
}
