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
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// purposeSharedVIP marks internal addresses that several forwarding rules may use.
const purposeSharedVIP = "SHARED_LOADBALANCER_VIP"

// addresses are reserved addresses: those of users, and those of this program while it replaces a forwarding rule.
type addresses struct{ *writer }

// isOurAddress reports whether this program reserved the address. A user may have reserved another one under the same name.
func isOurAddress(a *compute.Address, d *desired) bool {
	return a != nil && a.Name == d.name && a.Description == serviceDescription(d.service)
}

// desire sets the address and the network tier.
func (a *addresses) desire(ctx context.Context, service *v1.Service, o observed, d *desired) ([]services.Finding, error) {
	if !d.internal {
		d.tier = strings.ToUpper(d.settings.Tier)
	}
	asked := service.Spec.LoadBalancerIP
	if asked != "" {
		if err := a.desireRequested(ctx, asked, o, d); err != nil {
			return []services.Finding{services.Warning(eventConfigError, "%s", err)}, err
		}
	}
	switch {
	case d.internal || d.tier != "":
	case o.rule != nil && o.rule.LoadBalancingScheme != schemeInternal:
		d.tier = o.rule.NetworkTier // keep the present tier if none is set
	case isOurAddress(o.address, d) && o.address.AddressType != schemeInternal:
		d.tier = o.address.NetworkTier
	}
	if asked == "" {
		if err := a.keepReserved(ctx, service, o, d); err != nil {
			return nil, err
		}
	}
	d.tier = cmp.Or(d.tier, tierPremium)
	return nil, nil
}

// desireRequested checks the requested address first, so that nothing is removed for an address that the cloud would refuse.
func (a *addresses) desireRequested(ctx context.Context, asked string, o observed, d *desired) error {
	reserved, err := a.api.stores.addresses.Find(ctx, indexIP, asked, ensureQuery)
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	refuse := func(format string, args ...any) error {
		return &schema.Problem{Place: "spec.loadBalancerIP", Value: asked, Reason: fmt.Sprintf(format, args...)}
	}
	d.ip = asked
	if len(reserved) > 0 {
		d.ipIsUsers = !isOurAddress(reserved[0], d)
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
	user, err := a.userOf(ctx, asked, reserved, d)
	if err == nil && user != "" && !has {
		err = refuse("is in use by %s; use another address", user)
	}
	return err
}

// unfitReason explains why the load balancer cannot use a user's address, "" if it can.
func (d *desired) unfitReason(a *compute.Address) string {
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
func (a *addresses) keepReserved(ctx context.Context, service *v1.Service, o observed, d *desired) error {
	ip := o.replacedIP
	if list := service.Status.LoadBalancer.Ingress; o.rule != nil {
		ip = o.rule.IPAddress
	} else if ip == "" && len(list) > 0 {
		ip = list[0].IP
	}
	if ip == "" {
		return nil
	}
	reserved, err := a.api.stores.addresses.Find(ctx, indexIP, ip, ensureQuery)
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	if len(reserved) == 0 || isOurAddress(reserved[0], d) || d.unfitReason(reserved[0]) != "" {
		return nil
	}
	user, err := a.userOf(ctx, ip, reserved, d)
	if err == nil && user == "" {
		d.ip, d.ipIsUsers, d.tier = ip, true, cmp.Or(d.tier, reserved[0].NetworkTier)
	}
	return err
}

// userOf names another user of an address that conflicts with the load balancer; "" if there is none.
func (a *addresses) userOf(ctx context.Context, ip string, reserved []*compute.Address, d *desired) (string, error) {
	shared := !d.internal
	for _, address := range reserved {
		shared = shared || address.Purpose == purposeSharedVIP
		for _, link := range address.Users {
			if strings.Contains(link, "/instances/") {
				return "instance " + lastPart(link), nil
			}
		}
	}
	rules, err := a.api.stores.rules.Find(ctx, indexIP, ip, ensureQuery)
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
func sharePorts(r *compute.ForwardingRule, d *desired) bool {
	all := slices.DeleteFunc(append(slices.Clone(r.Ports), r.PortRange), func(p string) bool { return p == "" })
	theirs, mine := numbersOf(all), numbersOf([]string{d.portRange})
	if r.AllPorts || len(theirs) == 0 {
		return true
	}
	return slices.ContainsFunc(theirs, func(p int) bool { return slices.Contains(mine, p) })
}

// addressToReserve is reserved while the forwarding rule is replaced: the requested or the present address; "" lets the cloud choose.
func (d *desired) addressToReserve(rule *compute.ForwardingRule) string {
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
func (d *desired) checkReservable(o observed) error {
	if o.rule == nil || o.address == nil || isOurAddress(o.address, d) || d.legacy || d.ipIsUsers || d.addressToReserve(o.rule) == "" {
		return nil
	}
	why := d.replacementReason(o.rule)
	if why == "" {
		return nil
	}
	return &cloudapi.Error{
		Class: cloudapi.ErrConflict, Operation: "making forwarding rule " + d.name + " again for " + why,
		Message: "its address is held by an address of its name meanwhile, and there is one of somebody else's; delete or rename address " + d.name,
	}
}

// changes reserve the address while the forwarding rule is replaced. A new address is reserved too, so that the cloud reports a missing
// subnet, tier or address before the old forwarding rule is deleted.
func (a *addresses) changes(o observed, d desired, replaces bool) []change {
	own, toReserve := isOurAddress(o.address, &d), d.addressToReserve(o.rule)
	matches := !d.ipIsUsers && own && d.unfitReason(o.address) == "" && (toReserve == "" || o.address.Address == toReserve)
	keepsRule := o.rule != nil && !replaces
	switch {
	case d.legacy:
		return nil
	case keepsRule && o.address != nil && o.address.Address == o.rule.IPAddress:
		return nil // release follows after all other changes
	case own && (keepsRule || !matches): // another address is in use or wanted
		return []change{a.deletion(d.name, "it is not the wanted one", o.address)}
	case !replaces || d.ipIsUsers || o.address != nil:
		return nil
	}
	return []change{a.create("address "+d.name, cmp.Or(toReserve, "a new one")+", while the forwarding rule is replaced", field("address", toReserve),
		a.reserve(d, toReserve))}
}

// release returns the change after which the forwarding rule alone holds the address.
func (a *addresses) release(o observed, d desired, replaces bool) []change {
	replaces = replaces && !d.legacy
	own := isOurAddress(o.address, &d)
	if d.ipIsUsers || !replaces && (!own || o.address.Address != o.rule.IPAddress) || replaces && !own && o.address != nil {
		return nil
	}
	return []change{a.deletion(d.name, "the forwarding rule keeps it", field("address", o.rule.IPAddress))}
}

// reserve reserves an address. The cloud also reserves one that is in use.
func (a *addresses) reserve(d desired, ip string) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) (err error) {
		address := &compute.Address{Name: d.name, Description: serviceDescription(d.service), Address: ip, NetworkTier: d.tier}
		if d.internal {
			address.AddressType, address.Subnetwork, address.NetworkTier = schemeInternal, d.subnet, ""
		}
		o.address, err = putOne(ctx, a.api, a.api.stores.addresses, address, o.at.regional("addresses", d.name), "holding address "+cmp.Or(ip, d.name),
			request(a.api.sdk.Addresses.Insert(o.at.project, o.at.region, address)))
		if err != nil {
			return err
		}
		for _, link := range o.address.Users {
			if user := lastPart(link); user != d.name {
				if err := a.delete(ctx, nil, o); err != nil {
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

func (a *addresses) deletion(name, why string, before any) change {
	return a.remove("address "+name, why, before, a.delete)
}

func (a *addresses) delete(ctx context.Context, _ *services.Request, o *observed) error {
	err := deleteOne(ctx, a.api, a.api.stores.addresses, o.at.regional("addresses", o.name), "releasing address "+o.name,
		request(a.api.sdk.Addresses.Delete(o.at.project, o.at.region, o.name)))
	if err == nil {
		o.address = nil
	}
	return err
}
