package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacklimits"
)

// floatingIP is a Neutron floating address.
type floatingIP struct {
	ID          string `json:"id"`
	Address     string `json:"floating_ip_address"`
	NetworkID   string `json:"floating_network_id"`
	PortID      string `json:"port_id"`
	Description string `json:"description"`
}

// isMadeFor reports whether a controller created the address for the Service with this role, or for the one that the load balancer's name
// or mark names. The role may be empty.
func (f floatingIP) isMadeFor(as role, lb *loadBalancer) bool {
	who, cluster, mark := f.owner()
	if who == "" {
		return false
	}
	if mark != "" && (mark == as.serviceMark || slices.Contains(lb.Tags, mark)) {
		return true // the cluster name may be truncated
	}
	named := openstacklimits.Name.Cut(namePrefix + cluster + "_" + strings.Replace(who, "/", "_", 1))
	return named == as.name || named == lb.Name
}

// owner returns the Service, cluster and Service mark in the description of an address. Only addresses created by this program have a
// mark.
func (f floatingIP) owner() (who, cluster, mark string) {
	rest, made := strings.CutPrefix(f.Description, floatingDescription+" ")
	who, cluster, found := strings.Cut(rest, " from cluster ")
	if !made || !found {
		return "", "", ""
	}
	if plain, last, given := strings.Cut(cluster, " ("); given && ownership.IsMark(strings.TrimSuffix(last, ")")) {
		return who, plain, strings.TrimSuffix(last, ")")
	}
	return who, cluster, ""
}

// namesService reports whether the description names this Service.
func (f floatingIP) namesService(cluster string, s *v1.Service) bool {
	if _, _, mark := f.owner(); mark != "" {
		return mark == ownership.ServiceMark(s.UID)
	}
	return f.Description == floatingIPDescription(cluster, s)
}

type floatingIPRequest struct {
	NetworkID   string `json:"floating_network_id"`
	PortID      string `json:"port_id"`
	Description string `json:"description"`
	SubnetID    string `json:"subnet_id,omitempty"`
	Address     string `json:"floating_ip_address,omitempty"`
}

func newFloatingInventory(a *api) *inventory.Inventory[string, floatingIP] {
	return inventory.New(inventory.Source[string, floatingIP]{
		Kind: "floating address", ID: func(f floatingIP) string { return f.ID },
		List: func(ctx context.Context) ([]floatingIP, int, error) {
			return listAll[floatingIP](ctx, a, network, "floatingips", "floatingips", pageQuery())
		},
		Get: func(ctx context.Context, id string) (floatingIP, error) {
			f, err := get(ctx, a, network, "reading floating address "+id, "floatingips/"+id, "floatingip", func(f *floatingIP) bool { return f.ID == id })
			return valueOf(f), err
		},
		Indexes: map[string]func(floatingIP) []string{
			indexPort: func(f floatingIP) []string {
				if f.PortID == "" {
					return nil
				}
				return []string{f.PortID}
			},
			indexAddress: func(f floatingIP) []string { return []string{f.Address} },
			indexMark: func(f floatingIP) []string {
				if _, _, mark := f.owner(); mark != "" {
					return []string{mark}
				}
				return nil
			},
		},
	})
}

// attachmentQuery is for a load balancer that needs a floating address: somebody may have just attached one.
func attachmentQuery() inventory.Query {
	return inventory.Query{MaxAge: floatingMaxAge, MaxUnlistedAge: newMaxAge}
}

// floatingIPOf returns the floating address of a load balancer, or nil.
func (l *loadBalancers) floatingIPOf(ctx context.Context, lb *loadBalancer, q inventory.Query) (*floatingIP, error) {
	found, err := l.floating.Find(ctx, indexPort, lb.VIPPortID, q)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// publish returns the address for the status, and attaches or detaches a floating address as needed.
func (l *loadBalancers) publish(ctx context.Context, r *services.Request, s settings, lb *loadBalancer, as role) (string, error) {
	if isIPv6(lb.VIPAddress) {
		if !s.internal {
			r.Report(services.Warning(eventFloatingSkipped, "an address of IPv6 needs no floating address, and gets none"))
		}
		return lb.VIPAddress, nil
	}
	if s.internal {
		if as.owner {
			if err := l.releaseFloatingIP(ctx, as, lb, s, true); err != nil {
				return "", err
			}
		}
		return lb.VIPAddress, nil
	}
	f, err := l.floatingIPOf(ctx, lb, attachmentQuery())
	switch {
	case err != nil:
		return "", err
	case f != nil:
		return f.Address, nil
	case !as.owner:
		return "", fmt.Errorf("load balancer %s has no floating address, and only the Service that it was made for can give it one", lb.ID)
	}
	return l.giveAddress(ctx, r, s, lb)
}

// giveAddress attaches a floating address: the requested one, the previous one or a new one.
func (l *loadBalancers) giveAddress(ctx context.Context, r *services.Request, s settings, lb *loadBalancer) (string, error) {
	wanted := r.Service.Spec.LoadBalancerIP
	if wanted == "" {
		if address, err := l.attachFormer(ctx, r, lb); err != nil || address != "" {
			return address, err
		}
		return l.createFloatingIP(ctx, r, s, lb, wanted)
	}
	have, err := l.floating.Find(ctx, indexAddress, wanted, inventory.Query{MaxUnlistedAge: newMaxAge})
	switch {
	case err != nil:
		return "", err
	case len(have) == 0:
		return l.createFloatingIP(ctx, r, s, lb, wanted)
	case have[0].PortID != "":
		return "", addressInUseError(r, have[0])
	}
	return wanted, l.claim(ctx, r, have[0], lb)
}

// attachFormer attaches the floating address of the Service's former load balancer, so that the address does not change. It returns "" if
// there is none.
func (l *loadBalancers) attachFormer(ctx context.Context, r *services.Request, lb *loadBalancer) (string, error) {
	left, err := l.unattachedIPs(ctx, r.Cluster, r.Service, attachmentQuery())
	if err != nil {
		return "", err
	}
	for _, known := range left {
		f, err := l.floating.Get(ctx, known.ID, inventory.Query{})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
			l.floating.Forget(known.ID)
			continue
		case err != nil:
			return "", err
		case f.PortID != "" || f.Description != known.Description:
			continue // somebody else uses it now
		}
		err = l.attach(ctx, f, lb)
		if err == nil {
			klog.InfoS("Attached the previous floating address", "service", klog.KObj(r.Service), "address", f.Address, "loadBalancer", lb.ID)
			return f.Address, nil
		}
		if !errors.Is(err, cloudapi.ErrNotFound) && !errors.Is(err, cloudapi.ErrInvalid) {
			return "", err
		}
		// Its network may not reach the new load balancer. The address is deleted with the Service.
		klog.InfoS("The previous floating address cannot be attached", "service", klog.KObj(r.Service), "address", f.Address, "reason", err.Error())
	}
	return "", nil
}

// floatingNetwork returns the network for a new floating address, or "".
func (l *loadBalancers) floatingNetwork(ctx context.Context, service *v1.Service, s settings) (string, error) {
	id := cmp.Or(s.serviceClass.FloatingNetworkID, s.FloatingNetworkID)
	if _, overruled := service.Annotations[annotationFloatingNetworkID]; id == "" && !overruled {
		id = l.config.LoadBalancer.FloatingNetworkID
	}
	if id != "" {
		return id, nil
	}
	return l.networks.externalNetwork(ctx)
}

// floatingSubnetChoice returns which subnets a new floating address may come from.
func floatingSubnetChoice(s settings, o loadBalancerConfig) subnetChoice {
	return cmp.Or(
		subnetChoice{s.serviceClass.FloatingSubnetID, s.serviceClass.FloatingSubnet, s.serviceClass.FloatingSubnetTags},
		subnetChoice{s.FloatingSubnetID, s.FloatingSubnet, s.FloatingTags},
		subnetChoice{o.FloatingSubnetID, o.FloatingSubnet, o.FloatingSubnetTags},
	)
}

// createFloatingIP creates a floating address already attached, so that it is found even if the response is lost.
func (l *loadBalancers) createFloatingIP(
	ctx context.Context, r *services.Request, s settings, lb *loadBalancer, wanted string,
) (string, error) {
	networkID, err := l.floatingNetwork(ctx, r.Service, s)
	if err != nil {
		return "", err
	}
	if networkID == "" {
		r.Report(services.Warning(eventForcedInternal, "there is no external network to take a floating address from; the Service shows "+
			"the internal address. Set the option floating-network-id or %s", annotationFloatingNetworkID))
		return lb.VIPAddress, nil
	}
	candidates := []subnet{{}}
	if choice := floatingSubnetChoice(s, l.config.LoadBalancer); choice != (subnetChoice{}) && (wanted == "" || choice.id != "") {
		if candidates, err = l.networks.findSubnets(ctx, networkID, choice); err != nil {
			r.Report(services.Warning(eventConfigError, "%s", err))
			return "", err
		}
	}
	for _, c := range candidates {
		var made *floatingIP
		made, err = l.requestFloatingIP(ctx, floatingIPRequest{
			NetworkID: networkID, PortID: lb.VIPPortID, Description: markedDescription(r.Cluster, r.Service, l.config.OwnershipTag),
			SubnetID: c.ID, Address: wanted,
		})
		r.Asked(err)
		if err == nil {
			klog.InfoS("Created floating address", "service", klog.KObj(r.Service), "address", made.Address, "loadBalancer", lb.ID)
			return made.Address, nil
		}
		if !errors.Is(err, cloudapi.ErrQuota) && !errors.Is(err, cloudapi.ErrInvalid) {
			break // another subnet would not help
		}
	}
	if errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrQuota) || errors.Is(err, cloudapi.ErrNotFound) {
		r.Report(services.Warning(eventConfigError, "%s", err))
	}
	return "", cloudapi.NotAbsence(err)
}

func (l *loadBalancers) requestFloatingIP(ctx context.Context, r floatingIPRequest) (*floatingIP, error) {
	const doing = "creating a floating address"
	made, err := neutron[floatingIP](ctx, l.api, doing, http.MethodPost, "floatingips", "floatingip", r, http.StatusCreated)
	if err == nil && made.Address == "" {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: errWrongAnswer.Error()}
	}
	if err != nil {
		if !cloudapi.NotSent(err) {
			l.floating.Invalidate("")
		}
		return nil, err
	}
	l.floating.Put(*made)
	return made, nil
}

// neutron calls Neutron with the same key for request and response.
func neutron[T any](ctx context.Context, a *api, doing, method, at, key string, body any, accepted ...int) (*T, error) {
	return request[T](ctx, a, network, doing, method, at, underKey(key, body), key, accepted...)
}

// claim attaches the requested floating address unless another Service has it by its description or status. It is read immediately before:
// Neutron would detach it from any port.
func (l *loadBalancers) claim(ctx context.Context, r *services.Request, known floatingIP, lb *loadBalancer) error {
	f, err := l.floating.Get(ctx, known.ID, inventory.Query{})
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	if f.PortID != "" {
		return addressInUseError(r, f)
	}
	all, err := l.cluster.Services(ctx)
	if err != nil {
		return fmt.Errorf("looking whose floating address %s is: %w", f.Address, err)
	}
	for _, s := range all {
		if s.UID != r.Service.UID && ownership.MayHave(s) && (f.namesService(r.Cluster, s) || showsAddress(s, f.Address)) {
			d := ownership.Refuse("floating address "+f.Address, fmt.Sprintf("Service %s/%s", s.Namespace, s.Name), s, "choose another loadBalancerIP")
			r.Report(services.Refused(r.Service, d)...)
			return d.Err()
		}
	}
	return cloudapi.NotAbsence(l.attach(ctx, f, lb))
}

func showsAddress(s *v1.Service, address string) bool {
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == address })
}

// addressInUseError reports that the requested address is in use.
func addressInUseError(r *services.Request, f floatingIP) error {
	err := fmt.Errorf("floating IP %s is not available: it is attached to port %s; detach it there, or choose another loadBalancerIP", f.Address, f.PortID)
	r.Report(services.Warning(eventConfigError, "%s", err))
	return err
}

func (l *loadBalancers) attach(ctx context.Context, f floatingIP, lb *loadBalancer) error {
	after, err := neutron[floatingIP](
		ctx, l.api, "attaching floating address "+f.Address, http.MethodPut, "floatingips/"+f.ID, "floatingip", map[string]any{"port_id": lb.VIPPortID}, http.StatusOK,
	)
	if err == nil && after.ID != f.ID {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "attaching floating address " + f.Address, Message: errWrongAnswer.Error()}
	}
	if err != nil {
		l.floating.Invalidate(f.ID)
		return err
	}
	l.floating.Put(*after)
	return nil
}

// releaseFloatingIP deletes the load balancer's floating address if it was created for the Service or load balancer and is not to be kept.
// Others are detached on request, or when the load balancer is deleted. It is read immediately before, because it may have moved.
func (l *loadBalancers) releaseFloatingIP(ctx context.Context, as role, lb *loadBalancer, s settings, detach bool) error {
	known, err := l.floatingIPOf(ctx, lb, inventory.Query{MaxAge: floatingMaxAge, MaxMissAge: floatingMaxAge, MaxUnlistedAge: floatingMaxAge})
	if err != nil || known == nil {
		return err
	}
	f, err := l.floating.Get(ctx, known.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		l.floating.Forget(known.ID)
		return nil
	case err != nil:
		return err
	case f.PortID != lb.VIPPortID:
		klog.InfoS("Leaving a floating address alone that now belongs to somebody else", "address", f.Address, "port", f.PortID, "loadBalancer", lb.ID)
		return nil
	}
	if f.isMadeFor(as, lb) && !s.keepFloatingIP {
		return l.deleteFloatingIP(ctx, f)
	}
	if !detach {
		return nil
	}
	after, err := neutron[floatingIP](
		ctx, l.api, "detaching floating address "+f.Address, http.MethodPut, "floatingips/"+f.ID, "floatingip", map[string]any{"port_id": nil}, http.StatusOK,
	)
	if err != nil {
		l.floating.Invalidate(f.ID)
		return cloudapi.NotAbsence(err)
	}
	l.floating.Put(*after)
	return nil
}

func (l *loadBalancers) deleteFloatingIP(ctx context.Context, f floatingIP) error {
	klog.InfoS("Deleting floating address", "address", f.Address)
	_, err := request[struct{}](
		ctx, l.api, network, "deleting floating address "+f.Address, http.MethodDelete, "floatingips/"+f.ID, nil, "", http.StatusNoContent, http.StatusAccepted,
	)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.floating.Invalidate(f.ID)
		return err
	}
	l.floating.Forget(f.ID)
	return nil
}

// unattachedIPs returns the Service's unattached floating addresses, first the one in its status. The mark in the description proves
// the owner; without a mark, description, record and status together do.
func (l *loadBalancers) unattachedIPs(ctx context.Context, cluster string, service *v1.Service, q inventory.Query) ([]floatingIP, error) {
	found, err := l.floating.Find(ctx, indexMark, ownership.ServiceMark(service.UID), q)
	if err != nil {
		return nil, err
	}
	address := service.Annotations[annotationAddress]
	// Users can edit the record, and a cluster of the same name has equal descriptions.
	if address != "" && showsAddress(service, address) {
		more, err := l.floating.Find(ctx, indexAddress, address, q)
		if err != nil {
			return nil, err
		}
		found = slices.DeleteFunc(slices.Concat(found, more), func(f floatingIP) bool {
			_, _, mark := f.owner()
			return mark == "" && !f.namesService(cluster, service)
		})
	}
	left := map[string]floatingIP{}
	for _, f := range found {
		_, _, mark := f.owner()
		if f.PortID == "" && (mark == "" || mark == ownership.ServiceMark(service.UID)) {
			left[f.ID] = f
		}
	}
	return slices.SortedFunc(maps.Values(left), func(a, b floatingIP) int {
		first, second := showsAddress(service, a.Address), showsAddress(service, b.Address)
		switch {
		case first && !second:
			return -1
		case second && !first:
			return 1
		}
		return strings.Compare(a.ID, b.ID)
	}), nil
}

// releaseQuery is for floating addresses to release.
func releaseQuery() inventory.Query {
	return inventory.Query{MaxAge: ensureMaxAge, MaxMissAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}
}

// releaseFormer deletes an unattached floating address. It is read immediately before, because somebody may use it now.
func (l *loadBalancers) releaseFormer(ctx context.Context, known floatingIP) error {
	f, err := l.floating.Get(ctx, known.ID, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		l.floating.Forget(known.ID)
		return nil
	case err != nil || f.PortID != "" || f.Description != known.Description:
		return err
	}
	return l.deleteFloatingIP(ctx, f)
}

// hasLeftovers reports whether objects of the Service remain without a load balancer.
func (l *loadBalancers) hasLeftovers(ctx context.Context, cluster string, service *v1.Service) (bool, error) {
	left, err := l.unattachedIPs(ctx, cluster, service, releaseQuery())
	if s, _ := l.settings(service, nil); err != nil || (len(left) > 0 && !s.keepFloatingIP) {
		return true, err
	}
	groups, err := l.securityGroups(ctx, service, ensureMaxAge)
	return len(groups) > 0, err
}
