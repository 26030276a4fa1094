package gce

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// purposeSharedVIP marks internal addresses that several forwarding rules may use.
const purposeSharedVIP = "SHARED_LOADBALANCER_VIP"

// isOwn reports whether this program reserved the address. A user may have reserved another one under the same name.
func isOwn(a *compute.Address, d *spec) bool {
	return a != nil && a.Name == d.name && a.Description == serviceDescription(d.service)
}

func (b *reconciler) desireAddress(ctx context.Context, service *v1.Service, o observation, d *spec) ([]services.Finding, error) {
	if !d.internal {
		d.tier = strings.ToUpper(d.settings.Tier)
	}
	asked := service.Spec.LoadBalancerIP
	if asked != "" {
		if err := b.desireRequested(ctx, asked, o, d); err != nil {
			return []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
		}
	}
	switch {
	case d.internal || d.tier != "":
	case o.rule != nil && o.rule.LoadBalancingScheme != schemeInternal:
		d.tier = o.rule.NetworkTier // keep the present tier if none is set
	case isOwn(o.address, d) && o.address.AddressType != schemeInternal:
		d.tier = o.address.NetworkTier
	}
	if asked == "" {
		if err := b.keepReserved(ctx, service, o, d); err != nil {
			return nil, err
		}
	}
	d.tier = cmp.Or(d.tier, tierPremium)
	return nil, nil
}

// desireRequested checks the requested address first, so that nothing is removed for an address that the cloud would refuse.
func (b *reconciler) desireRequested(ctx context.Context, asked string, o observation, d *spec) error {
	reserved, err := b.api.stores.addresses.Find(ctx, indexIP, asked, ensureQuery)
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	refuse := func(format string, args ...any) error {
		return &schema.Problem{Place: "spec.loadBalancerIP", Value: asked, Reason: fmt.Sprintf(format, args...)}
	}
	d.ip = asked
	if len(reserved) > 0 {
		d.ipIsUsers = !isOwn(reserved[0], d)
	}
	if d.ipIsUsers && d.tier == "" {
		d.tier = reserved[0].NetworkTier
	}
	has := o.rule != nil && o.rule.IPAddress == asked
	if len(reserved) == 0 && !d.internal && !has {
		return refuse("is neither reserved nor the load balancer's; reserve it in the region, or remove it")
	}
	if d.ipIsUsers {
		if why := d.unfitReason(reserved[0]); why != "" {
			return refuse("%s", why)
		}
	}
	user, err := b.userOf(ctx, asked, reserved, d)
	if err == nil && user != "" && !has {
		err = refuse("is in use by %s; use another address", user)
	}
	return err
}

// unfitReason explains why the load balancer cannot use a user's address, "" if it can.
func (d *spec) unfitReason(a *compute.Address) string {
	switch {
	case d.internal && a.AddressType != schemeInternal:
		return "is an external address; use one of the subnet"
	case d.internal && !d.legacy && resource(a.Subnetwork) != d.subnet:
		return fmt.Sprintf("is an address of subnet %s; the load balancer is in %s", lastPart(a.Subnetwork), lastPart(d.subnet))
	case !d.internal && a.AddressType == schemeInternal:
		return "is an internal address; use an external one, or an internal load balancer"
	case !d.internal && d.tier != "" && a.NetworkTier != d.tier:
		return fmt.Sprintf("belongs to the %s network tier; expected %s", a.NetworkTier, d.tier)
	}
	return ""
}

// keepReserved adopts the present or last address as the user's if somebody has reserved it. It cannot be reserved twice.
func (b *reconciler) keepReserved(ctx context.Context, service *v1.Service, o observation, d *spec) error {
	ip := ""
	if o.rule != nil {
		ip = o.rule.IPAddress
	} else if list := service.Status.LoadBalancer.Ingress; len(list) > 0 {
		ip = list[0].IP
	}
	if o.rule == nil && o.replacedIP != "" {
		ip = o.replacedIP
	}
	if ip == "" {
		return nil
	}
	reserved, err := b.api.stores.addresses.Find(ctx, indexIP, ip, ensureQuery)
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	if len(reserved) == 0 || isOwn(reserved[0], d) || d.unfitReason(reserved[0]) != "" {
		return nil
	}
	user, err := b.userOf(ctx, ip, reserved, d)
	if err == nil && user == "" {
		d.ip, d.ipIsUsers, d.tier = ip, true, cmp.Or(d.tier, reserved[0].NetworkTier)
	}
	return err
}

// userOf names another user of an address that conflicts with the load balancer; "" if there is none.
func (b *reconciler) userOf(ctx context.Context, ip string, reserved []*compute.Address, d *spec) (string, error) {
	shared := !d.internal
	for _, a := range reserved {
		shared = shared || a.Purpose == purposeSharedVIP
		for _, link := range a.Users {
			if strings.Contains(link, "/instances/") {
				return "instance " + lastPart(link), nil
			}
		}
	}
	rules, err := b.api.stores.rules.Find(ctx, indexIP, ip, ensureQuery)
	if err != nil {
		return "", cloudapi.NotAbsence(err)
	}
	for _, r := range rules {
		if r.Name != d.name && (!shared || (r.IPProtocol == d.protocol && sharePorts(r, d))) {
			return "forwarding rule " + r.Name, nil
		}
	}
	return "", nil
}

// sharePorts reports whether a forwarding rule and the load balancer have ports in common.
func sharePorts(r *compute.ForwardingRule, d *spec) bool {
	all := slices.DeleteFunc(append(slices.Clone(r.Ports), r.PortRange), func(p string) bool { return p == "" })
	theirs, mine := numbersOf(all), numbersOf([]string{d.portRange})
	if r.AllPorts || len(theirs) == 0 {
		return true
	}
	return slices.ContainsFunc(theirs, func(p int) bool { return slices.Contains(mine, p) })
}

// heldAddress is the address to reserve while the forwarding rule is replaced: the requested or the present one; "" lets the cloud choose.
func (d *spec) heldAddress(rule *compute.ForwardingRule) string {
	switch {
	case d.ip != "":
		return d.ip
	case rule == nil, (rule.LoadBalancingScheme == schemeInternal) != d.internal:
		return ""
	case d.internal && resource(rule.Subnetwork) != d.subnet, !d.internal && rule.NetworkTier != d.tier:
		return ""
	}
	return rule.IPAddress
}

// checkReservable refuses to replace the forwarding rule if a user's address has the name under which its address would be reserved.
func (d *spec) checkReservable(o observation) error {
	if o.rule == nil || o.address == nil || isOwn(o.address, d) || d.legacy || d.ipIsUsers || d.heldAddress(o.rule) == "" {
		return nil
	}
	why := ruleChange(o.rule, *d)
	if d.internal {
		why = internalRuleChange(o.rule, *d, d.backend)
	}
	if why == "" {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrConflict, Operation: "making forwarding rule " + d.name + " again for " + why,
		Message: "its address is held by an address of its name meanwhile, and there is one of somebody else's; delete or rename address " + d.name,
	}
}

// addressChanges reserve the address while the forwarding rule is replaced. A new address is reserved too, so that the cloud reports a
// missing subnet, tier or address before the old forwarding rule is deleted.
func (b *reconciler) addressChanges(o observation, d spec, replace bool) []change {
	held, wanted := isOwn(o.address, &d), d.heldAddress(o.rule)
	fits := held && !d.ipIsUsers && d.unfitReason(o.address) == "" && (wanted == "" || o.address.Address == wanted)
	// The forwarding rule's own address is released after all other changes.
	released := o.rule != nil && !replace && o.address != nil && o.address.Address == o.rule.IPAddress
	useless := !fits || (o.rule != nil && !replace) // another address is wanted or in use
	switch {
	case held && useless && !released:
		return []change{withCompare(b.step(contract.PlanDelete, "address "+d.name, "it is not the wanted one", b.deleteAddress), planFields(o.address), nil)}
	case !replace || d.ipIsUsers || o.address != nil:
		return nil
	}
	return []change{withCompare(b.step(contract.PlanCreate, "address "+d.name, cmp.Or(wanted, "a new one")+", while the forwarding rule is replaced",
		b.holdAddress(d, wanted)), nil, field("address", wanted))}
}

func (b *reconciler) addressRelease(o observation, d spec, replaced bool) []change {
	held := isOwn(o.address, &d)
	if d.ipIsUsers || !replaced && (!held || o.address.Address != o.rule.IPAddress) || replaced && !held && o.address != nil {
		return nil
	}
	return []change{withCompare(
		b.step(contract.PlanDelete, "address "+d.name, "the forwarding rule keeps it", b.deleteAddress), field("address", o.rule.IPAddress), nil)}
}

func (b *reconciler) holdAddress(d spec, ip string) writeFunc {
	return func(ctx context.Context, _ *services.Request, at place, o *observation) (err error) {
		a := &compute.Address{Name: d.name, Description: serviceDescription(d.service), Address: ip, NetworkTier: d.tier}
		if d.internal {
			a.AddressType, a.Subnetwork, a.NetworkTier = schemeInternal, d.subnet, ""
		}
		o.address, err = putOne(ctx, b.api, b.api.stores.addresses, a, at.regional("addresses", d.name), "holding address "+cmp.Or(ip, d.name),
			func(id string) (*compute.Operation, error) {
				return b.api.sdk.Addresses.Insert(at.project, at.region, a).RequestId(id).Context(ctx).Do()
			})
		if err != nil {
			return err
		}
		for _, link := range o.address.Users { // the cloud also reserves addresses in use
			if lastPart(link) != d.name {
				user := lastPart(link)
				if err := b.deleteAddress(ctx, nil, at, o); err != nil {
					return err
				}
				return &cloudapi.Error{
					Class: cloudapi.ErrInvalid, Operation: "holding address " + ip, Message: "it is in use by " + user + "; use another address",
				}
			}
		}
		return nil
	}
}

func (b *reconciler) deleteAddress(ctx context.Context, _ *services.Request, at place, o *observation) error {
	err := deleteOne(ctx, b.api, b.api.stores.addresses, at.regional("addresses", o.name), "releasing address "+o.name,
		func(id string) (*compute.Operation, error) {
			return b.api.sdk.Addresses.Delete(at.project, at.region, o.name).RequestId(id).Context(ctx).Do()
		})
	if err == nil {
		o.address = nil
	}
	return err
}
