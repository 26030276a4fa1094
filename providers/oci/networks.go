package oci

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

const stateAttached = "ATTACHED"

// attachment says which network interface an instance has; the API shows no address with it.
type attachment struct {
	Instance    string `json:"instanceId"`
	Compartment string `json:"compartmentId"`
	Domain      string `json:"availabilityDomain"`
	VNIC        string `json:"vnicId"`
	Subnet      string `json:"subnetId"`
	State       string `json:"lifecycleState"`
}

// vnic is a network interface.
type vnic struct {
	ID        string   `json:"id"`
	Subnet    string   `json:"subnetId"`
	Hostname  string   `json:"hostnameLabel"`
	PrivateIP string   `json:"privateIp"`
	PublicIP  string   `json:"publicIp"`
	IPv6      []string `json:"ipv6Addresses"`
	Primary   bool     `json:"isPrimary"`
}

// subnet holds the fields of a subnet that we use.
type subnet struct {
	ID  string `json:"id"`
	VCN string `json:"vcnId"`
	// Domain is empty for a regional subnet.
	Domain string `json:"availabilityDomain"`
	// CIDR is absent, or contains "null", if the subnet has IPv6 alone.
	CIDR      string   `json:"cidrBlock"`
	IPv6CIDR  string   `json:"ipv6CidrBlock"`
	IPv6CIDRs []string `json:"ipv6CidrBlocks"`
	Lists     []string `json:"securityListIds"`
}

func (s subnet) id() string { return s.ID }

// cidrs returns the subnet's address ranges of the IP versions.
func (s subnet) cidrs(four, six bool) (all []string) {
	if four && s.CIDR != "" && !strings.Contains(s.CIDR, "null") {
		all = append(all, s.CIDR)
	}
	if six {
		all = append(all, s.IPv6CIDRs...)
		if s.IPv6CIDR != "" && !slices.Contains(all, s.IPv6CIDR) {
			all = append(all, s.IPv6CIDR)
		}
	}
	return all
}

// holds reports whether an address is in the subnet.
func (s subnet) holds(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(s.cidrs(true, true), func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err == nil && network.Contains(ip)
	})
}

// instanceVNICs are the network interfaces of an instance.
type instanceVNICs struct {
	instance string
	vnics    []vnic
	// withoutIPv6 is set if IPv6 addresses were not read.
	withoutIPv6 bool
}

// vcn is the cluster's virtual cloud network.
type vcn struct {
	ID string `json:"id"`
}

func (v vcn) id() string { return v.ID }

// networks reads network interfaces, subnets and virtual cloud networks. A listing of all interfaces takes one of attachments, one of
// private addresses for each subnet, and some of public addresses, so that its cost does not depend on the number of nodes.
type networks struct {
	api       *api
	instances *inventory.Inventory[string, instance]
	vnics     *inventory.Inventory[string, instanceVNICs]
	subnets   *inventory.Inventory[string, subnet]
	vcns      *inventory.Inventory[string, vcn]

	// primaries says which network interfaces are their instances' primary ones, which never changes. hidden are the subnets whose addresses
	// the last listing could not read.
	mu        sync.Mutex
	primaries map[string]bool
	hidden    []string
}

func newNetworks(a *api, known *inventory.Inventory[string, instance]) *networks {
	n := &networks{api: a, instances: known, primaries: map[string]bool{}}
	n.vnics = inventory.New(inventory.Source[string, instanceVNICs]{
		Kind: "instance's network interfaces", ID: func(n instanceVNICs) string { return n.instance }, List: n.list, Get: n.get, GetCalls: 2, Narrowed: true,
	})
	n.subnets = inventory.New(inventory.Source[string, subnet]{
		Kind: "subnet", ID: subnet.id,
		Get: func(ctx context.Context, id string) (subnet, error) {
			return getByID(ctx, a, "subnet", "/subnets", id, subnet.id)
		},
	})
	n.vcns = inventory.New(inventory.Source[string, vcn]{
		Kind: "virtual cloud network", ID: vcn.id,
		Get: func(ctx context.Context, id string) (vcn, error) {
			return getByID(ctx, a, "virtual cloud network", "/vcns", id, vcn.id)
		},
	})
	return n
}

// checkVisible returns an error if the user no longer sees the cluster's network. Whatever is not found may exist then.
func (n *networks) checkVisible(ctx context.Context, maxAge time.Duration) (err error) {
	q := inventory.Query{MaxAge: maxAge}
	switch {
	case n.api.config.VCN != "":
		_, err = n.vcns.Get(ctx, n.api.config.VCN, q)
	case n.api.config.Subnet1 != "":
		_, err = n.subnets.Get(ctx, n.api.config.Subnet1, q)
	default:
		err = errors.New("neither vcn nor loadBalancer.subnet1 is in the cloud config, by which it could be told whether the user sees anything")
	}
	return cloudapi.NotAbsence(err)
}

// vnicsOf returns an instance's network interfaces, with their IPv6 addresses if these matter.
func (n *networks) vnicsOf(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (instanceVNICs, error) {
	got, err := n.vnics.Get(ctx, in.ID, q)
	if err == nil && ipv6 && got.withoutIPv6 {
		return n.get(ctx, in.ID) // the Node has got its label since
	}
	return got, err
}

// errNoInterface says that the cloud shows no address of an instance, although every instance has one.
var errNoInterface = errors.New("the cloud shows no primary network interface of the instance that has an address")

// vnicsWithAddress is vnicsOf for an instance that must have an address. If none is known the interfaces are read again.
func (n *networks) vnicsWithAddress(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (instanceVNICs, error) {
	got, err := n.vnicsOf(ctx, in, ipv6, q)
	if err == nil && !got.hasAddress() {
		q.MaxAge, q.Expected = min(q.MaxAge, observedMaxAge), 0
		got, err = n.vnicsOf(ctx, in, ipv6, q)
	}
	if err == nil && !got.hasAddress() {
		err = errNoInterface
	}
	return got, err
}

func (n instanceVNICs) hasAddress() bool {
	return slices.ContainsFunc(n.vnics, func(v vnic) bool { return v.Primary && (v.PrivateIP != "" || len(v.IPv6) > 0) })
}

// primary returns the primary network interface of an instance, or nil.
func (n *networks) primary(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (*vnic, error) {
	got, err := n.vnicsOf(ctx, in, ipv6, q)
	if err != nil {
		return nil, err
	}
	for _, v := range got.vnics {
		if v.Primary {
			return &v, nil
		}
	}
	return nil, nil //nolint:nilnil // nil is an instance without one
}

// get reads the network interfaces of one instance.
func (n *networks) get(ctx context.Context, id string) (instanceVNICs, error) {
	in, known := n.instances.Peek(id)
	if !known {
		return instanceVNICs{}, cloudapi.Unclear("reading the network interfaces of instance "+id, "its compartment is not known")
	}
	query := url.Values{"compartmentId": {in.Compartment}, "instanceId": {id}}
	attached, _, err := list[attachment](ctx, n.api, "network interfaces of instance "+id, "/vnicAttachments", query)
	if err != nil {
		return instanceVNICs{}, err
	}
	got := instanceVNICs{instance: id}
	for _, a := range attached {
		if a.Instance != id || a.State != stateAttached || a.VNIC == "" {
			continue
		}
		v, err := n.readVNIC(ctx, a.VNIC)
		if err != nil {
			return instanceVNICs{}, cloudapi.NotAbsence(err)
		}
		got.vnics = append(got.vnics, v)
	}
	return got.sort(), nil
}

// readVNIC reads one network interface.
func (n *networks) readVNIC(ctx context.Context, id string) (v vnic, err error) {
	if v, err = getByID(ctx, n.api, "network interface", "/vnics", id, func(v vnic) string { return v.ID }); err != nil {
		return v, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.primaries[id] = v.Primary
	return v, nil
}

// sort orders the interfaces and their addresses in the same way after every kind of read.
func (n instanceVNICs) sort() instanceVNICs {
	slices.SortFunc(n.vnics, func(a, b vnic) int { return cmp.Compare(a.ID, b.ID) })
	for _, v := range n.vnics {
		slices.SortFunc(v.IPv6, compareAddresses)
	}
	return n
}

func compareAddresses(a, b string) int {
	left, err := netip.ParseAddr(a)
	right, other := netip.ParseAddr(b)
	if err != nil || other != nil {
		return cmp.Compare(a, b)
	}
	return left.Compare(right)
}

// privateIP is a private IPv4 address, or an IPv6 address, of a network interface.
type privateIP struct {
	ID       string `json:"id"`
	Address  string `json:"ipAddress"`
	VNIC     string `json:"vnicId"`
	Primary  bool   `json:"isPrimary"`
	Hostname string `json:"hostnameLabel"`
}

// publicIP is a public address, and the ID of its private one.
type publicIP struct {
	Address  string `json:"ipAddress"`
	Assigned string `json:"assignedEntityId"`
}

// list reads the network interfaces of all instances.
func (n *networks) list(ctx context.Context) (all []instanceVNICs, calls int, err error) {
	attached, calls, incomplete := listInCompartments[attachment](ctx, n.api, "attached network interfaces", "/vnicAttachments")
	if _, isPartial := errors.AsType[*inventory.Partial[string]](incomplete); incomplete != nil && !isPartial {
		return nil, calls, incomplete
	}
	attached = slices.DeleteFunc(attached, func(a attachment) bool { return a.State != stateAttached || a.VNIC == "" })
	cards, hidden, more, err := n.addresses(ctx, attached)
	calls += more
	if err != nil {
		return nil, calls, err
	}
	n.mu.Lock()
	n.hidden = sortedKeys(hidden)
	n.mu.Unlock()
	byInstance := map[string][]vnic{}
	unread := map[string]bool{} // these are read one by one when they are needed
	for _, a := range attached {
		unread[a.Instance] = unread[a.Instance] || hidden[a.Subnet]
		v := *cards[a.VNIC]
		v.ID, v.Subnet = a.VNIC, a.Subnet
		byInstance[a.Instance] = append(byInstance[a.Instance], v)
	}
	for id, vnics := range byInstance {
		if unread[id] {
			continue
		}
		more, shown, err := n.choosePrimary(ctx, vnics)
		calls += more
		if err != nil {
			return nil, calls, err
		}
		one := instanceVNICs{instance: id, vnics: vnics, withoutIPv6: !n.api.wantsIPv6()}.sort()
		if shown && one.hasAddress() { // listings of addresses may lag
			all = append(all, one)
		}
	}
	return all, calls, incomplete
}

// choosePrimary marks the primary network interface of an instance. Of several, each must be read once to know. shown is false if the cloud
// does not show one of them, for example because it was just detached.
func (n *networks) choosePrimary(ctx context.Context, vnics []vnic) (calls int, shown bool, err error) {
	for i := range vnics {
		if len(vnics) == 1 {
			vnics[i].Primary = true
			return 0, true, nil
		}
		n.mu.Lock()
		primary, known := n.primaries[vnics[i].ID]
		n.mu.Unlock()
		if !known {
			calls++
			v, err := n.readVNIC(ctx, vnics[i].ID)
			switch {
			case isUnreachable(err):
				return calls, false, nil
			case err != nil:
				return calls, false, err
			}
			primary = v.Primary
		}
		vnics[i].Primary = primary
	}
	return calls, true, nil
}

// hiddenSubnets returns the subnets whose addresses the last listing could not read.
func (n *networks) hiddenSubnets() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hidden
}

// addresses lists the addresses in all subnets with an attached network interface. A compartment may have other instances, in subnets that
// the user may not read: hidden are these.
func (n *networks) addresses(
	ctx context.Context, attached []attachment,
) (cards map[string]*vnic, hidden map[string]bool, calls int, err error) {
	subnets := map[string]bool{}
	hidden = map[string]bool{}
	cards = map[string]*vnic{}
	for _, a := range attached {
		subnets[a.Subnet] = true
		cards[a.VNIC] = &vnic{}
	}
	behind := map[string]*vnic{} // the interface of a private address that is the primary one
	for _, id := range sortedKeys(subnets) {
		private, pages, err := list[privateIP](ctx, n.api, "private addresses", "/privateIps", url.Values{"subnetId": {id}})
		calls += pages
		var six []privateIP
		if err == nil && n.api.wantsIPv6() {
			six, pages, err = list[privateIP](ctx, n.api, "addresses of IPv6", "/ipv6", url.Values{"subnetId": {id}})
			calls += pages
		}
		switch {
		case isHidden(err):
			hidden[id] = true
			continue
		case err != nil:
			return nil, nil, calls, err
		}
		for _, p := range private {
			if v := cards[p.VNIC]; v != nil && p.Primary {
				v.PrivateIP, v.Hostname = p.Address, p.Hostname
				behind[p.ID] = v
			}
		}
		for _, p := range six {
			if v := cards[p.VNIC]; v != nil {
				v.IPv6 = append(v.IPv6, p.Address)
			}
		}
	}
	public, more, err := n.publicAddresses(ctx, attached)
	calls += more
	for _, p := range public {
		if v := behind[p.Assigned]; v != nil {
			v.PublicIP = p.Address
		}
	}
	return cards, hidden, calls, err
}

// isHidden reports whether an error says that the cloud does not show a listing.
func isHidden(err error) bool {
	e, ok := errors.AsType[*cloudapi.Error](err)
	notFound := ok && e.Refused && errors.Is(err, cloudapi.ErrTransient) // as NotAbsence has it
	return ok && (e.Status == http.StatusForbidden || notFound)
}

// publicAddresses lists ephemeral addresses by availability domain, and reserved ones, in the compartments of the network interfaces.
func (n *networks) publicAddresses(ctx context.Context, attached []attachment) (all []publicIP, calls int, err error) {
	queries := map[string]url.Values{}
	for _, a := range attached {
		queries[a.Compartment] = url.Values{"scope": {"REGION"}, "lifetime": {"RESERVED"}, "compartmentId": {a.Compartment}}
		queries[a.Compartment+" "+a.Domain] = url.Values{
			"scope": {"AVAILABILITY_DOMAIN"}, "availabilityDomain": {a.Domain}, "compartmentId": {a.Compartment},
		}
	}
	for _, key := range sortedKeys(queries) {
		some, pages, err := list[publicIP](ctx, n.api, "public addresses", "/publicIps", queries[key])
		calls += pages
		if err != nil {
			return nil, calls, err
		}
		all = append(all, some...)
	}
	return all, calls, nil
}

// findByName finds instances by a network interface in the cluster's network whose host name or address is the node's name. The host name
// must be the whole name, or its first label.
func (n *networks) findByName(ctx context.Context, name string) ([]string, error) {
	all, err := n.vnics.All(ctx, inventory.Query{MaxAge: nodes.MissMaxAge})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, net := range all {
		for _, v := range net.vnics {
			if !v.hasName(name) {
				continue
			}
			here, err := n.isInCluster(ctx, v)
			if err != nil {
				return nil, err
			}
			if here && !slices.Contains(ids, net.instance) {
				ids = append(ids, net.instance)
			}
		}
	}
	slices.Sort(ids)
	return ids, nil
}

func (v vnic) hasName(name string) bool {
	first, _, _ := strings.Cut(name, ".")
	six := strings.ReplaceAll(name, "-", ":")
	return name == v.PrivateIP || name == v.PublicIP || (v.Hostname != "" && (v.Hostname == name || v.Hostname == first)) ||
		slices.Contains(v.IPv6, six)
}

// isInCluster reports whether a network interface is in the cluster's network. If none is configured, every interface is.
func (n *networks) isInCluster(ctx context.Context, v vnic) (bool, error) {
	if n.api.config.VCN == "" {
		return true, nil
	}
	s, err := n.subnets.Get(ctx, v.Subnet, inventory.Query{MaxAge: subnetMaxAge})
	if err != nil {
		return false, fmt.Errorf("network interface %s: %w", v.ID, cloudapi.NotAbsence(err))
	}
	return s.VCN == n.api.config.VCN, nil
}
