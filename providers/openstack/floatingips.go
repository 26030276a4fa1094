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
func (f floatingIP) isMadeFor(r role, lb *loadBalancer) bool {
	who, cluster, mark := f.owner()
	if who == "" {
		return false
	}
	if mark != "" && (mark == r.serviceMark || slices.Contains(lb.Tags, mark)) {
		return true // the cluster name may be truncated
	}
	named := openstacklimits.Name.Cut(namePrefix + cluster + "_" + strings.Replace(who, "/", "_", 1))
	return named == r.name || named == lb.Name
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

// floatingIPs gives load balancers floating addresses, and releases them.
type floatingIPs struct {
	*inventory.Inventory[string, floatingIP]

	config   Config
	api      *api
	networks *networks
	cluster  *ownership.Cluster
}

func newFloatingIPs(c Config, a *api, n *networks, cluster *ownership.Cluster) *floatingIPs {
	source := sourceOf(a, network, "floating address", "floatingips", func(f floatingIP) string { return f.ID })
	source.Indexes = map[string]func(floatingIP) []string{
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
	}
	return &floatingIPs{Inventory: inventory.New(source), config: c, api: a, networks: n, cluster: cluster}
}

// attachmentQuery is for a load balancer that needs a floating address: somebody may have just attached one.
func attachmentQuery() inventory.Query {
	return inventory.Query{MaxAge: floatingMaxAge, MaxUnlistedAge: newMaxAge}
}

// findAt returns the floating address of a load balancer, or nil.
func (ips *floatingIPs) findAt(ctx context.Context, lb *loadBalancer, q inventory.Query) (*floatingIP, error) {
	found, err := ips.Find(ctx, indexPort, lb.VIPPortID, q)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// readAgain reads an address right before it is written, because somebody may use it by now.
func (ips *floatingIPs) readAgain(ctx context.Context, known floatingIP) (f floatingIP, gone bool, err error) {
	if f, err = ips.Get(ctx, known.ID, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		ips.Forget(known.ID)
		return f, true, nil
	}
	return f, false, err
}

// listAddresses returns the addresses of a load balancer that a Service's status may show.
func (ips *floatingIPs) listAddresses(ctx context.Context, lb *loadBalancer, q inventory.Query) ([]string, error) {
	addresses := append([]string{lb.VIPAddress}, furtherAddresses(lb)...)
	f, err := ips.findAt(ctx, lb, q)
	if f != nil {
		addresses = append(addresses, f.Address)
	}
	return addresses, err
}

// publish returns the address for the status, and attaches or detaches a floating address as needed.
func (ips *floatingIPs) publish(ctx context.Context, req *services.Request, o observed) (string, error) {
	switch {
	case isIPv6(o.lb.VIPAddress):
		if !o.settings.internal {
			req.Report(services.Warning(eventFloatingSkipped, "an address of IPv6 needs no floating address, and gets none"))
		}
		return o.lb.VIPAddress, nil
	case o.settings.internal && o.role.owner:
		return o.lb.VIPAddress, ips.release(ctx, o, true)
	case o.settings.internal:
		return o.lb.VIPAddress, nil
	}
	f, err := ips.findAt(ctx, o.lb, attachmentQuery())
	switch {
	case err != nil:
		return "", err
	case f != nil:
		return f.Address, nil
	case !o.role.owner:
		return "", fmt.Errorf("load balancer %s has no floating address, and only the Service that it was made for can give it one", o.lb.ID)
	}
	return ips.give(ctx, req, o.settings, o.lb)
}

// give attaches a floating address: the requested one, the previous one or a new one.
func (ips *floatingIPs) give(ctx context.Context, req *services.Request, s settings, lb *loadBalancer) (string, error) {
	wanted := req.Service.Spec.LoadBalancerIP
	if wanted == "" {
		if address, err := ips.attachFormer(ctx, req, lb); err != nil || address != "" {
			return address, err
		}
		return ips.create(ctx, req, s, lb)
	}
	have, err := ips.Find(ctx, indexAddress, wanted, inventory.Query{MaxUnlistedAge: newMaxAge})
	switch {
	case err != nil:
		return "", err
	case len(have) == 0:
		return ips.create(ctx, req, s, lb)
	case have[0].PortID != "":
		return "", addressInUseError(req, have[0])
	}
	return wanted, ips.claim(ctx, req, have[0], lb)
}

// attachFormer attaches the floating address of the Service's former load balancer, so that the address does not change. It returns "" if
// there is none.
func (ips *floatingIPs) attachFormer(ctx context.Context, req *services.Request, lb *loadBalancer) (string, error) {
	left, err := ips.findUnattached(ctx, req.Cluster, req.Service, attachmentQuery())
	if err != nil {
		return "", err
	}
	for _, known := range left {
		f, gone, err := ips.readAgain(ctx, known)
		switch {
		case err != nil:
			return "", err
		case gone || f.PortID != "" || f.Description != known.Description:
			continue // somebody else uses it now
		}
		err = ips.setPort(ctx, f, "attaching", lb.VIPPortID)
		if err == nil {
			klog.InfoS("Attached the previous floating address", "service", klog.KObj(req.Service), "address", f.Address, "loadBalancer", lb.ID)
			return f.Address, nil
		}
		if !errors.Is(err, cloudapi.ErrNotFound) && !errors.Is(err, cloudapi.ErrInvalid) {
			return "", err
		}
		// Its network may not reach the new load balancer. The address is deleted with the Service.
		klog.InfoS("The previous floating address cannot be attached", "service", klog.KObj(req.Service), "address", f.Address, "reason", err.Error())
	}
	return "", nil
}

// chooseNetwork returns the network for a new floating address, or "".
func (ips *floatingIPs) chooseNetwork(ctx context.Context, service *v1.Service, s settings) (string, error) {
	id := cmp.Or(s.serviceClass.FloatingNetworkID, s.FloatingNetworkID)
	if _, overruled := service.Annotations[annotationFloatingNetworkID]; id == "" && !overruled {
		id = ips.config.LoadBalancer.FloatingNetworkID
	}
	if id != "" {
		return id, nil
	}
	return ips.networks.externalNetwork(ctx)
}

// floatingSubnetChoice returns which subnets a new floating address may come from.
func floatingSubnetChoice(s settings, o loadBalancerConfig) subnetChoice {
	return cmp.Or(
		subnetChoice{s.serviceClass.FloatingSubnetID, s.serviceClass.FloatingSubnet, s.serviceClass.FloatingSubnetTags},
		subnetChoice{s.FloatingSubnetID, s.FloatingSubnet, s.FloatingTags},
		subnetChoice{o.FloatingSubnetID, o.FloatingSubnet, o.FloatingSubnetTags},
	)
}

// create creates a floating address already attached, so that it is found even if the response is lost.
func (ips *floatingIPs) create(ctx context.Context, req *services.Request, s settings, lb *loadBalancer) (string, error) {
	wanted := req.Service.Spec.LoadBalancerIP
	networkID, err := ips.chooseNetwork(ctx, req.Service, s)
	if err != nil {
		return "", err
	}
	if networkID == "" {
		req.Report(services.Warning(eventForcedInternal, "there is no external network to take a floating address from; the Service shows "+
			"the internal address. Set the option floating-network-id or %s", annotationFloatingNetworkID))
		return lb.VIPAddress, nil
	}
	candidates := []subnet{{}}
	if choice := floatingSubnetChoice(s, ips.config.LoadBalancer); choice != (subnetChoice{}) && (wanted == "" || choice.id != "") {
		if candidates, err = ips.networks.findSubnets(ctx, networkID, choice); err != nil {
			req.Report(configFinding(err))
			return "", err
		}
	}
	for _, c := range candidates {
		var made *floatingIP
		made, err = ips.request(ctx, floatingIPRequest{
			NetworkID: networkID, PortID: lb.VIPPortID, Description: markedDescription(req.Cluster, req.Service, ips.config.OwnershipTag),
			SubnetID: c.ID, Address: wanted,
		})
		req.Asked(err)
		if err == nil {
			klog.InfoS("Created floating address", "service", klog.KObj(req.Service), "address", made.Address, "loadBalancer", lb.ID)
			return made.Address, nil
		}
		if !errors.Is(err, cloudapi.ErrQuota) && !errors.Is(err, cloudapi.ErrInvalid) {
			break // another subnet would not help
		}
	}
	if errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrQuota) || errors.Is(err, cloudapi.ErrNotFound) {
		req.Report(configFinding(err))
	}
	return "", cloudapi.NotAbsence(err)
}

func (ips *floatingIPs) request(ctx context.Context, r floatingIPRequest) (*floatingIP, error) {
	made, err := neutron(ctx, ips.api, "creating a floating address", http.MethodPost, "floatingips", "floatingip", r,
		func(f *floatingIP) bool { return f.Address != "" })
	if err != nil {
		if !cloudapi.NotSent(err) {
			ips.Invalidate("")
		}
		return nil, err
	}
	ips.Put(*made)
	return made, nil
}

// claim attaches the requested floating address unless another Service has it by its description or status. It is read immediately before:
// Neutron would detach it from any port.
func (ips *floatingIPs) claim(ctx context.Context, req *services.Request, known floatingIP, lb *loadBalancer) error {
	f, err := ips.Get(ctx, known.ID, inventory.Query{})
	if err != nil {
		return cloudapi.NotAbsence(err)
	}
	if f.PortID != "" {
		return addressInUseError(req, f)
	}
	all, err := ips.cluster.Services(ctx)
	if err != nil {
		return fmt.Errorf("looking whose floating address %s is: %w", f.Address, err)
	}
	for _, s := range all {
		if s.UID != req.Service.UID && ownership.MayHave(s) && (f.namesService(req.Cluster, s) || showsAddress(s, f.Address)) {
			d := ownership.Refuse("floating address "+f.Address, fmt.Sprintf("Service %s/%s", s.Namespace, s.Name), s, "choose another loadBalancerIP")
			req.Report(services.Refused(req.Service, d)...)
			return d.Err()
		}
	}
	return cloudapi.NotAbsence(ips.setPort(ctx, f, "attaching", lb.VIPPortID))
}

func showsAddress(s *v1.Service, address string) bool {
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(in v1.LoadBalancerIngress) bool { return in.IP == address })
}

// addressInUseError reports that the requested address is in use.
func addressInUseError(req *services.Request, f floatingIP) error {
	err := fmt.Errorf("floating IP %s is not available: it is attached to port %s; detach it there, or choose another loadBalancerIP", f.Address, f.PortID)
	req.Report(configFinding(err))
	return err
}

// setPort attaches an address to a port; nil detaches it.
func (ips *floatingIPs) setPort(ctx context.Context, f floatingIP, doing string, portID any) error {
	after, err := neutron(ctx, ips.api, doing+" floating address "+f.Address, http.MethodPut, "floatingips/"+f.ID, "floatingip",
		map[string]any{"port_id": portID}, func(after *floatingIP) bool { return after.ID == f.ID })
	if err != nil {
		ips.Invalidate(f.ID)
		return err
	}
	ips.Put(*after)
	return nil
}

// release deletes the load balancer's floating address if it was created for the Service or load balancer and is not to be kept. Others
// are detached on request, or when the load balancer is deleted.
func (ips *floatingIPs) release(ctx context.Context, o observed, detach bool) error {
	known, err := ips.findAt(ctx, o.lb, withinAge(floatingMaxAge))
	if err != nil || known == nil {
		return err
	}
	f, gone, err := ips.readAgain(ctx, *known)
	switch {
	case err != nil || gone:
		return err
	case f.PortID != o.lb.VIPPortID:
		klog.InfoS("Leaving a floating address alone that now belongs to somebody else", "address", f.Address, "port", f.PortID, "loadBalancer", o.lb.ID)
		return nil
	case f.isMadeFor(o.role, o.lb) && !o.settings.keepFloatingIP:
		return ips.delete(ctx, f)
	case detach:
		return cloudapi.NotAbsence(ips.setPort(ctx, f, "detaching", nil))
	}
	return nil
}

func (ips *floatingIPs) delete(ctx context.Context, f floatingIP) error {
	klog.InfoS("Deleting floating address", "address", f.Address)
	_, err := request[struct{}](
		ctx, ips.api, network, "deleting floating address "+f.Address, http.MethodDelete, "floatingips/"+f.ID, nil, "", http.StatusNoContent, http.StatusAccepted,
	)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		ips.Invalidate(f.ID)
		return err
	}
	ips.Forget(f.ID)
	return nil
}

// findUnattached returns the Service's unattached floating addresses, first the one in its status. The mark in the description proves
// the owner; without a mark, description, record and status together do.
func (ips *floatingIPs) findUnattached(ctx context.Context, cluster string, service *v1.Service, q inventory.Query) ([]floatingIP, error) {
	found, err := ips.Find(ctx, indexMark, ownership.ServiceMark(service.UID), q)
	if err != nil {
		return nil, err
	}
	address := service.Annotations[annotationAddress]
	// Users can edit the record, and a cluster of the same name has equal descriptions.
	if address != "" && showsAddress(service, address) {
		more, err := ips.Find(ctx, indexAddress, address, q)
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
	rank := func(f floatingIP) int {
		if showsAddress(service, f.Address) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Values(left), func(a, b floatingIP) int { return cmp.Or(rank(a)-rank(b), strings.Compare(a.ID, b.ID)) }), nil
}

// releaseUnattached deletes an unattached floating address.
func (ips *floatingIPs) releaseUnattached(ctx context.Context, known floatingIP) error {
	f, gone, err := ips.readAgain(ctx, known)
	if err != nil || gone || f.PortID != "" || f.Description != known.Description {
		return err
	}
	return ips.delete(ctx, f)
}
