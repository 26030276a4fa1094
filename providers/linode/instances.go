package linode

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/linode/linodego"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	providerIDPrefix = "linode://"

	// callPrice: listings have their own limit, 200 a minute for each kind; a page per second is a third of it.
	callPrice = time.Second

	indexLabel = "label"
	indexIP    = "ip"
)

// vpcAddresses are the addresses of one Linode in the VPCs of the cluster.
type vpcAddresses struct {
	ipv4, internalV6, externalV6 []string
	// ranges and rangesV6 are routed to the interface; configID is set for interfaces of the older generation.
	ranges, rangesV6      []string
	interfaceID, configID int
	// inOneVPC is set if the cluster has a single VPC. Several may have the same addresses.
	inOneVPC bool
}

// instance holds the fields of a Linode that are needed after a listing.
type instance struct {
	id                                    int
	label, region, plan, status, hostUUID string
	ipv4                                  []string
	ipv6                                  string // with its /128, as the API shows it
	tags                                  []string
	vpc                                   *vpcAddresses // nil if it has no address in the cluster's VPCs
}

func newInstance(i *linodego.Instance) instance {
	kept := instance{
		id: i.ID, label: i.Label, region: i.Region, plan: i.Type, status: string(i.Status), hostUUID: i.HostUUID, ipv6: i.IPv6, tags: i.Tags,
	}
	for _, ip := range i.IPv4 {
		if ip != nil {
			kept.ipv4 = append(kept.ipv4, ip.String())
		}
	}
	return kept
}

// isPrivate reports whether an address is private and outside of the network that counts as external.
func isPrivate(ip string, external netip.Prefix) bool {
	a, err := netip.ParseAddr(ip)
	return err == nil && a.IsPrivate() && (!external.IsValid() || !external.Contains(a))
}

// addresses returns the addresses in the order of Linode's own controller.
func (i instance) addresses(external netip.Prefix) []v1.NodeAddress {
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: i.label}}
	add := func(kind v1.NodeAddressType, ips ...string) {
		for _, ip := range ips {
			list = append(list, v1.NodeAddress{Type: kind, Address: ip})
		}
	}
	if i.vpc != nil {
		add(v1.NodeInternalIP, i.vpc.ipv4...)
	}
	for _, ip := range i.ipv4 {
		if isPrivate(ip, external) {
			add(v1.NodeInternalIP, ip)
		} else {
			add(v1.NodeExternalIP, ip)
		}
	}
	if i.vpc != nil {
		add(v1.NodeExternalIP, i.vpc.externalV6...)
		add(v1.NodeInternalIP, i.vpc.internalV6...)
	}
	if ip := strings.TrimSuffix(i.ipv6, "/128"); ip != "" {
		add(v1.NodeExternalIP, ip)
	}
	return list
}

// ipTexts returns the addresses of the Linode, with or without those in VPCs.
func (i instance) ipTexts(inVPCs bool) []string {
	texts := append(slices.Clone(i.ipv4), strings.TrimSuffix(i.ipv6, "/128"))
	if i.vpc != nil && inVPCs {
		texts = slices.Concat(texts, i.vpc.ipv4, i.vpc.internalV6, i.vpc.externalV6)
	}
	return texts
}

// ips returns all known addresses of the Linode.
func (i instance) ips() []netip.Addr {
	var list []netip.Addr
	for _, text := range i.ipTexts(true) {
		if a, err := netip.ParseAddr(text); err == nil {
			list = append(list, a)
		}
	}
	return list
}

// attested returns the label and the addresses that Linode assigned. In several VPCs an address is not one Linode's alone.
func (i instance) attested() contract.Attested {
	ips := i.ipTexts(i.vpc != nil && i.vpc.inOneVPC)
	return contract.Attested{Names: []string{i.label}, Addresses: contract.AttestedAddresses(ips...)}
}

// privateIPv4 returns the first private address outside of VPCs, or "".
func (i instance) privateIPv4() string {
	n := slices.IndexFunc(i.ipv4, func(ip string) bool { return isPrivate(ip, netip.Prefix{}) })
	if n < 0 {
		return ""
	}
	return i.ipv4[n]
}

func (i instance) publicIPs(external netip.Prefix) []string {
	return slices.DeleteFunc(slices.Clone(i.ipv4), func(ip string) bool { return isPrivate(ip, external) })
}

// instances holds the Linodes as the source of nodes' metadata.
type instances struct {
	*nodes.Instances[int, instance]
	linodes  *inventory.Inventory[int, instance]
	nodes    *nodecount.Counter
	vpcs     *vpcs
	external netip.Prefix
	inVPC    bool
}

func newInstances(c Config, a *api, v *vpcs) *instances {
	i := &instances{nodes: &nodecount.Counter{}, vpcs: v, inVPC: c.inVPC()}
	if c.ExternalSubnet != "" {
		i.external = netip.MustParsePrefix(strings.TrimSpace(c.ExternalSubnet)) // checked by the table
	}
	i.linodes = inventory.New(inventory.Source[int, instance]{
		Kind: "Linode", ID: func(l instance) int { return l.id }, GetCalls: v.callsPerLinode(),
		List: func(ctx context.Context) ([]instance, int, error) { return listInstances(ctx, a, v, c.TagFilter) },
		Get:  func(ctx context.Context, id int) (instance, error) { return getInstance(ctx, a, v, id) },
		Indexes: map[string]func(instance) []string{
			indexLabel: func(l instance) []string { return []string{strings.ToLower(l.label)} },
			indexIP:    func(l instance) []string { return l.publicIPs(i.external) },
		},
	})
	i.Instances = nodes.New(nodes.Cloud[int, instance]{
		Kind: "Linode", Inventory: i.linodes, Nodes: i.nodes, Price: callPrice,
		Form: providerIDPrefix + "<Linode ID>", Parse: parseProviderID, Print: instance.providerID,
		Names:  func(providerID string) bool { return strings.HasPrefix(providerID, providerIDPrefix) },
		Search: i.search, State: instance.state, Metadata: i.describe, Verify: i.verify, Attested: instance.attested,
		Tags: func(l instance) map[string]string { return nodes.BareTags(l.tags) },
	})
	return i
}

func listInstances(ctx context.Context, a *api, v *vpcs, tag string) ([]instance, int, error) {
	filter := "{}"
	if tag != "" {
		filter = body(map[string]any{"tags": map[string]string{"+contains": tag}})
	}
	all, pages, err := listAll[linodego.Instance](ctx, a, "Linodes", "linode/instances", filter)
	if err != nil {
		return nil, pages, err
	}
	addresses, more, err := v.addresses(ctx, 0)
	if err != nil {
		return nil, pages + more, err
	}
	list := make([]instance, len(all))
	for n := range all {
		list[n] = newInstance(&all[n])
		list[n].vpc = addresses[list[n].id]
	}
	return list, pages + more, nil
}

func getInstance(ctx context.Context, a *api, v *vpcs, id int) (instance, error) {
	doing, isIt := fmt.Sprintf("reading Linode %d", id), func(l *linodego.Instance) bool { return l.ID == id }
	l, err := read(ctx, doing, isIt, func(ctx context.Context) (*linodego.Instance, error) { return a.sdk.GetInstance(ctx, id) })
	if err != nil {
		return instance{}, err
	}
	addresses, _, err := v.addresses(ctx, id)
	if err != nil {
		return instance{}, cloudapi.NotAbsence(err) // a missing VPC says nothing about the Linode
	}
	kept := newInstance(l)
	kept.vpc = addresses[id]
	return kept, nil
}

// search finds a Linode by its label, else by a public address.
func (*instances) search(_ context.Context, node *v1.Node) (nodes.Search[int, instance], error) {
	keys := []nodes.Key[instance]{{Index: indexLabel, Value: strings.ToLower(node.Name)}}
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeExternalIP || a.Type == v1.NodeInternalIP {
			keys = append(keys, nodes.Key[instance]{Index: indexIP, Value: a.Address})
		}
	}
	return nodes.Search[int, instance]{
		Keys:    keys,
		None:    fmt.Sprintf("no Linode has the label %s, nor a public address of the node; give the Linode that label, or", node.Name),
		Several: "%d Linodes could be " + node.Name + ";",
	}, nil
}

// state treats a Linode that is about to be powered off as shut down.
func (i instance) state() (nodes.State, error) {
	if i.status == string(linodego.InstanceOffline) || i.status == string(linodego.InstanceShuttingDown) {
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

func (i instance) providerID() string { return providerIDPrefix + strconv.Itoa(i.id) }

// describe returns the metadata of a Linode's node.
func (i *instances) describe(_ context.Context, node *v1.Node, l instance, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if lack := i.missingData(l); lack != "" {
		e := &nodes.Incomplete{Reason: fmt.Sprintf("Linode %d cannot become a node: %s", l.id, lack)}
		if l.vpc == nil {
			// Its subnet may have been created again, with another ID.
			e.Refresh = func(ctx context.Context) error {
				_, err := i.vpcs.resolve(ctx, i.vpcs.missMaxAge)
				return err
			}
		}
		return nil, e
	}
	return &cloudprovider.InstanceMetadata{
		InstanceType: l.plan, Region: l.region, NodeAddresses: addKubeletAddresses(node, l.addresses(i.external)),
	}, nil
}

// verify compares the label with the node's name. Labels are unique in an account, and no kubelet can change them.
func (*instances) verify(_ context.Context, node *v1.Node, l instance) (why string, err error) {
	if strings.EqualFold(l.label, node.Name) {
		return "", nil
	}
	return fmt.Sprintf("Linode %d has the label %s, which is not the name of the node; give it that label, or correct --provider-id of kubelet",
		l.id, l.label), nil
}

// missingData names what a Linode still lacks for its node, or "".
func (i *instances) missingData(l instance) string {
	switch {
	case i.inVPC && l.vpc == nil:
		return "it has no address in the VPC and subnets of the cluster (--vpc-names, --subnet-names)"
	case len(l.addresses(i.external)) == 1:
		return "it has no IP addresses"
	}
	return ""
}

// addKubeletAddresses adds internal addresses that only kubelet knows, such as those of a VLAN.
func addKubeletAddresses(node *v1.Node, addresses []v1.NodeAddress) []v1.NodeAddress {
	for _, a := range node.Status.Addresses {
		known := slices.ContainsFunc(addresses, func(b v1.NodeAddress) bool { return b.Address == a.Address })
		if a.Type == v1.NodeInternalIP && !known {
			addresses = append(addresses, a)
		}
	}
	return addresses
}

// parseProviderID returns the Linode ID of a provider ID.
func parseProviderID(text string) (int, error) {
	number, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok {
		return 0, fmt.Errorf("provider ID %q does not begin with %s", text, providerIDPrefix)
	}
	id, err := strconv.Atoi(number)
	if err != nil || id < 1 || strconv.Itoa(id) != number {
		return 0, fmt.Errorf("provider ID %q: %q is not a Linode ID, which is a positive whole number", text, number)
	}
	return id, nil
}
