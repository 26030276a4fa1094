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

// attachment is a network interface of an instance; the API shows no address with it.
type attachment struct {
	Instance    string `json:"instanceId"`
	Compartment string `json:"compartmentId"`
	Domain      string `json:"availabilityDomain"`
	VNIC        string `json:"vnicId"`
	Subnet      string `json:"subnetId"`
	State       string `json:"lifecycleState"`
}

// vnic holds the fields of a network interface as the API shows them.
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
	// Domain is empty for one of the whole region.
	Domain string `json:"availabilityDomain"`
	// Four is absent, or holds "null", where the subnet has addresses of IPv6 alone.
	Four  string   `json:"cidrBlock"`
	Six   string   `json:"ipv6CidrBlock"`
	Sixes []string `json:"ipv6CidrBlocks"`
	Lists []string `json:"securityListIds"`
}

// networks are those of a subnet, by family.
func (s subnet) networks(four, six bool) (all []string) {
	if four && s.Four != "" && !strings.Contains(s.Four, "null") {
		all = append(all, s.Four)
	}
	if six {
		all = append(all, s.Sixes...)
		if s.Six != "" && !slices.Contains(all, s.Six) {
			all = append(all, s.Six)
		}
	}
	return all
}

// holds reports whether an address is one of the subnet.
func (s subnet) holds(address string) bool {
	ip, err := netip.ParseAddr(address)
	return err == nil && slices.ContainsFunc(s.networks(true, true), func(text string) bool {
		network, err := netip.ParsePrefix(text)
		return err == nil && network.Contains(ip)
	})
}

// network lists an instance's network interfaces.
type network struct {
	instance string
	vnics    []vnic
	// withoutIPv6 is set where nobody has looked for addresses of IPv6.
	withoutIPv6 bool
}

// vcn is the cloud network of the cluster.
type vcn struct {
	ID string `json:"id"`
}

// networks are the network interfaces of the instances. In bulk they cost a listing of attachments, one of private addresses for each
// subnet, and those of public addresses, so that the price is in subnets and pages, not in nodes.
type networks struct {
	api       *api
	instances *inventory.Inventory[string, instance]
	all       *inventory.Inventory[string, network]
	subnets   *inventory.Inventory[string, subnet]
	vcns      *inventory.Inventory[string, vcn]

	// primaries remembers which network interfaces are the primary ones of their instances, which never changes. hidden are the subnets of
	// which the latest listing could not read the addresses.
	mu        sync.Mutex
	primaries map[string]bool
	hidden    []string
}

func newNetworks(a *api, known *inventory.Inventory[string, instance]) *networks {
	n := &networks{api: a, instances: known, primaries: map[string]bool{}}
	n.all = inventory.New(inventory.Source[string, network]{
		Kind: "instance's network interfaces", ID: func(n network) string { return n.instance }, List: n.list, Get: n.get, GetCalls: 2, Narrowed: true,
	})
	n.subnets = inventory.New(inventory.Source[string, subnet]{
		Kind: "subnet", ID: func(s subnet) string { return s.ID },
		Get: func(ctx context.Context, id string) (s subnet, err error) {
			if err := a.get(ctx, "subnet "+id, "/subnets/"+url.PathEscape(id), &s); err != nil {
				return s, err
			}
			if s.ID != id {
				return s, cloudapi.Unclear("reading subnet "+id, "the answer is about another one")
			}
			return s, nil
		},
	})
	n.vcns = inventory.New(inventory.Source[string, vcn]{
		Kind: "virtual cloud network", ID: func(v vcn) string { return v.ID },
		Get: func(ctx context.Context, id string) (v vcn, err error) {
			return v, a.get(ctx, "virtual cloud network "+id, "/vcns/"+url.PathEscape(id), &v)
		},
	})
	return n
}

// checkSight returns an error where the user does not see the cluster's network any more: what is not found may exist then.
func (n *networks) checkSight(ctx context.Context, maxAge time.Duration) (err error) {
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

// networkOf are the network interfaces of an instance, with its addresses of IPv6 where these matter.
func (n *networks) networkOf(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (network, error) {
	got, err := n.all.Get(ctx, in.ID, q)
	if err == nil && ipv6 && got.withoutIPv6 {
		return n.get(ctx, in.ID) // the Node has got its label since
	}
	return got, err
}

// errNoInterface says that the cloud shows no address of an instance, which has one as long as it exists.
var errNoInterface = errors.New("the cloud shows no primary network interface of the instance that has an address")

// shown is the same of an instance that has addresses, as each has that is a node: what was seen without any is looked at again.
func (n *networks) shown(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (network, error) {
	got, err := n.networkOf(ctx, in, ipv6, q)
	if err == nil && !got.hasAddress() {
		q.MaxAge, q.Expected = min(q.MaxAge, observedMaxAge), 0
		got, err = n.networkOf(ctx, in, ipv6, q)
	}
	if err == nil && !got.hasAddress() {
		err = errNoInterface
	}
	return got, err
}

// hasAddress reports whether the primary network interface is shown with an address.
func (n network) hasAddress() bool {
	return slices.ContainsFunc(n.vnics, func(v vnic) bool { return v.Primary && (v.PrivateIP != "" || len(v.IPv6) > 0) })
}

// primary is the primary network interface of an instance; nil where there is none yet.
func (n *networks) primary(ctx context.Context, in instance, ipv6 bool, q inventory.Query) (*vnic, error) {
	got, err := n.networkOf(ctx, in, ipv6, q)
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
func (n *networks) get(ctx context.Context, id string) (network, error) {
	in, known := n.instances.Peek(id)
	if !known {
		return network{}, cloudapi.Unclear("reading the network interfaces of instance "+id, "its compartment is not known")
	}
	query := url.Values{"compartmentId": {in.Compartment}, "instanceId": {id}}
	attached, _, err := list[attachment](ctx, n.api, "network interfaces of instance "+id, "/vnicAttachments", query)
	if err != nil {
		return network{}, err
	}
	got := network{instance: id}
	for _, a := range attached {
		if a.Instance != id || a.State != stateAttached || a.VNIC == "" {
			continue
		}
		v, err := n.read(ctx, a.VNIC)
		if err != nil {
			return network{}, err
		}
		got.vnics = append(got.vnics, v)
	}
	return got.sorted(), nil
}

// read reads one network interface of an instance that is asked about.
func (n *networks) read(ctx context.Context, id string) (vnic, error) {
	v, err := n.card(ctx, id)
	return v, cloudapi.NotAbsence(err)
}

// card reads one network interface.
func (n *networks) card(ctx context.Context, id string) (v vnic, err error) {
	if err := n.api.get(ctx, "network interface "+id, "/vnics/"+url.PathEscape(id), &v); err != nil {
		return v, err
	}
	if v.ID != id {
		return v, cloudapi.Unclear("reading network interface "+id, "the answer is about another one")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.primaries[id] = v.Primary
	return v, nil
}

// sorted is a network in an order that does not depend on how it was read.
func (n network) sorted() network {
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

// privateIP is a private address, or one of IPv6, of a network interface.
type privateIP struct {
	ID       string `json:"id"`
	Address  string `json:"ipAddress"`
	VNIC     string `json:"vnicId"`
	Primary  bool   `json:"isPrimary"`
	Hostname string `json:"hostnameLabel"`
}

// publicIP is a public address, and the private one that it stands for.
type publicIP struct {
	Address  string `json:"ipAddress"`
	Assigned string `json:"assignedEntityId"`
}

// list reads the network interfaces of all instances.
func (n *networks) list(ctx context.Context) (all []network, calls int, err error) {
	attached, calls, err := inCompartments[attachment](ctx, n.api, "attached network interfaces", "/vnicAttachments")
	partial, isPartial := errors.AsType[*inventory.Partial[string]](err)
	if err != nil && !isPartial {
		return nil, calls, err
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
	unread := map[string]bool{} // who asks for them reads them one by one
	for _, a := range attached {
		unread[a.Instance] = unread[a.Instance] || hidden[a.Subnet]
		v := vnic{ID: a.VNIC, Subnet: a.Subnet}
		if known := cards[a.VNIC]; known != nil {
			v = *known
		}
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
		one := network{instance: id, vnics: vnics, withoutIPv6: !n.api.wantsIPv6()}.sorted()
		if shown && one.hasAddress() { // listings of addresses may lag
			all = append(all, one)
		}
	}
	if isPartial {
		return all, calls, partial
	}
	return all, calls, nil
}

// choosePrimary says which of an instance's network interfaces is the primary one. One alone is; of several the cloud shows it only one by
// one, and it is remembered. shown is false where one of them is not shown, as one that is just detached, or of somebody else.
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
			v, err := n.card(ctx, vnics[i].ID)
			switch {
			case unreachable(err):
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

// hiddenSubnets are those of which the latest listing could not read the addresses.
func (n *networks) hiddenSubnets() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.hidden
}

// addresses are those of the network interfaces in the subnets that hold any of them. A compartment may hold instances of others, in
// networks that the user may not read: hidden are those subnets.
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
		case hides(err):
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

// hides reports whether the cloud shows nothing of what was to be listed.
func hides(err error) bool {
	e, ok := errors.AsType[*cloudapi.Error](err)
	notFound := ok && e.Refused && errors.Is(err, cloudapi.ErrTransient) // as NotAbsence has it
	return ok && (e.Status == http.StatusForbidden || notFound)
}

// publicAddresses are the ephemeral ones of each availability domain, and the reserved ones, of the compartments that have network
// interfaces.
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

// called finds the instances of which a network interface in the network of the cluster has a host name or an address that is the name of
// a node. The host name must be the whole name, or its first label.
func (n *networks) called(ctx context.Context, name string) ([]string, error) {
	all, err := n.all.All(ctx, inventory.Query{MaxAge: nodes.MissMaxAge})
	if err != nil {
		return nil, err
	}
	var ids []string
	for _, net := range all {
		for _, v := range net.vnics {
			if !v.called(name) {
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

func (v vnic) called(name string) bool {
	first, _, _ := strings.Cut(name, ".")
	six := strings.ReplaceAll(name, "-", ":")
	return name == v.PrivateIP || name == v.PublicIP || (v.Hostname != "" && (v.Hostname == name || v.Hostname == first)) ||
		slices.Contains(v.IPv6, six)
}

// isInCluster reports whether a network interface is in the network of the cluster; where none is configured, each is.
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
