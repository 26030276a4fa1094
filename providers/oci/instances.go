package oci

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

const (
	// callPrice is how often nodes that stay down may cost a call.
	callPrice = time.Second

	indexName = "name"

	labelFaultDomain      = "oci.oraclecloud.com/fault-domain"
	labelIPv6             = "oci.oraclecloud.com/ip-family-ipv6"
	annotationCompartment = "oci.oraclecloud.com/compartment-id"
)

// instance holds the fields of an instance as the API shows them.
type instance struct {
	ID                 string `json:"id"`
	Name               string `json:"displayName"`
	Compartment        string `json:"compartmentId"`
	AvailabilityDomain string `json:"availabilityDomain"`
	FaultDomain        string `json:"faultDomain"`
	Region             string `json:"region"`
	Shape              string `json:"shape"`
	State              string `json:"lifecycleState"`

	Freeform map[string]string         `json:"freeformTags"`
	Defined  map[string]map[string]any `json:"definedTags"`
}

func (i instance) id() string { return i.ID }

// tags returns the free-form tags, and the defined ones as <namespace>.<key>. Free-form keys with a period are left out: Oracle allows
// none, and they could pass for defined tags, which fewer users may write.
func (i instance) tags() map[string]string {
	all := flatTags(i.Defined)
	for key, value := range i.Freeform {
		if !strings.Contains(key, ".") {
			all[key] = value
		}
	}
	return all
}

// isTerminated reports whether an instance will never run again.
func (i instance) isTerminated() bool { return i.State == "TERMINATING" || i.State == "TERMINATED" }

// instances reads the compute instances, and what they say about nodes.
type instances struct {
	*nodes.Instances[string, instance]
	api       *api
	inventory *inventory.Inventory[string, instance]
	networks  *networks
	nodes     *nodecount.Counter
}

func newInstances(a *api) *instances {
	i := &instances{api: a, nodes: a.nodes}
	i.inventory = inventory.New(inventory.Source[string, instance]{
		Kind: "instance", ID: instance.id, List: a.instances, Get: i.get,
		Indexes: nodes.NameIndexes(func(i instance) string { return i.Name }),
	})
	i.networks = newNetworks(a, i.inventory)
	i.Instances = nodes.New(nodes.Cloud[string, instance]{
		Kind: "instance", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<OCID of the instance>", Parse: parseProviderID, Print: func(i instance) string { return providerIDPrefix + i.ID },
		Search: i.search, State: instance.state, Metadata: i.describe, Verify: verifyName,
		Tags:       instance.tags,
		Unattested: "its addresses are those of its VNICs, which are read apart",
	})
	return i
}

// compartmentsOf returns the configured compartment, and those that Nodes name.
func compartmentsOf(configured string, nodes []*v1.Node) []string {
	all := []string{configured}
	for _, n := range nodes {
		if c := n.Annotations[annotationCompartment]; strings.HasPrefix(c, "ocid1.") && !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	slices.Sort(all[1:])
	return all
}

// instanceIDsOf returns the instances of nodes that name theirs.
func instanceIDsOf(nodes []*v1.Node) []string {
	var ids []string
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// wantsIPv6 reports whether a Node is to have its instance's IPv6 addresses.
func wantsIPv6(node *v1.Node) bool {
	_, wants := node.Labels[labelIPv6]
	return wants
}

func (a *api) wantsIPv6() bool { return slices.ContainsFunc(a.nodes.Nodes(), needsIPv6) }

// needsIPv6 reports whether the IPv6 addresses of a Node's instance matter.
func needsIPv6(node *v1.Node) bool { return wantsIPv6(node) || ipv6Of(node) != "" }

func (a *api) instances(ctx context.Context) (all []instance, pages int, err error) {
	all, pages, err = listInCompartments[instance](ctx, a, "instances", "/instances")
	return slices.DeleteFunc(all, instance.isTerminated), pages, err
}

// listInCompartments lists objects in the cluster's compartments. One that a Node names and that cannot be read affects nobody else: the
// error is an inventory.Partial then.
func listInCompartments[T any](ctx context.Context, a *api, what, path string) (all []T, pages int, err error) {
	where, err := a.location(ctx)
	if err != nil {
		return nil, 0, cloudapi.Describe(err, "listing "+what)
	}
	var failed []error
	var unread []string
	for n, c := range compartmentsOf(where.compartment, a.nodes.Nodes()) {
		some, calls, err := list[T](ctx, a, what+" of compartment "+c, path, url.Values{"compartmentId": {c}})
		pages += calls
		switch {
		case err != nil && n == 0:
			return nil, pages, err
		case err != nil:
			unread = append(unread, c)
			failed = append(failed, fmt.Errorf("a Node's annotation %s names it: %w", annotationCompartment, err))
		}
		all = append(all, some...)
	}
	if len(failed) > 0 {
		return all, pages, &inventory.Partial[string]{Lacks: func(id string) bool { return a.mayBeIn(id, unread) }, Err: errors.Join(failed...)}
	}
	return all, pages, nil
}

// mayBeIn reports whether an instance may be in one of some compartments. It is not if its Node names another one.
func (a *api) mayBeIn(id string, compartments []string) bool {
	for _, n := range a.nodes.Nodes() {
		if instanceKey(n.Spec.ProviderID) == id {
			return slices.Contains(compartments, n.Annotations[annotationCompartment])
		}
	}
	return true
}

// get reads one instance; a terminated one is cloudapi.ErrNotFound. The cloud also says "not found" of instances that the user may not see,
// so absence takes a listing as well.
func (i *instances) get(ctx context.Context, id string) (found instance, err error) {
	found, err = getByID(ctx, i.api, "instance", "/instances", id, instance.id)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return instance{}, i.inventory.Prove(ctx, id, func(all []instance) error { return i.checkListing(id, all) })
	case err != nil:
		return instance{}, err
	case found.isTerminated():
		return instance{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading instance " + id, Message: "it is " + found.State}
	}
	return found, nil
}

// checkListing returns an error if a listing does not prove that an instance is gone: without any other node of the cluster it may be all
// that the user is allowed to see.
func (i *instances) checkListing(id string, all []instance) error {
	members := instanceIDsOf(i.nodes.Nodes())
	if slices.ContainsFunc(all, func(o instance) bool { return o.ID != id && slices.Contains(members, o.ID) }) {
		return nil
	}
	return errors.New("cannot tell missing from forbidden: the listing shows no other node of this cluster; check the policies of the user")
}

func (i instance) state() (nodes.State, error) {
	switch i.State {
	case "STOPPING", "STOPPED":
		return nodes.ShutDown, nil
	case "TERMINATING", "TERMINATED":
		return nodes.Terminated, nil
	}
	return nodes.Existing, nil
}

// search finds the instance of a node without a provider ID: by its display name, or by a name or address of its network interfaces.
func (i *instances) search(ctx context.Context, node *v1.Node) (nodes.Search[string, instance], error) {
	s := nodes.Search[string, instance]{
		Keys:    nodes.NameKeys[instance](node),
		None:    fmt.Sprintf("no instance has the display name %s, and no network interface that host name or address; rename the instance, or", node.Name),
		Several: "too many instances returned for display name " + node.Name + ": %d; rename all but one, or",
	}
	query := inventory.Query{MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.MissMaxAge}
	named, err := i.inventory.Find(ctx, nodes.IndexLowerName, strings.ToLower(node.Name), query)
	if err != nil || len(named) > 0 {
		return s, err
	}
	ids, err := i.networks.findByName(ctx, node.Name)
	if err != nil {
		return s, err
	}
	if len(ids) > 1 {
		return s, &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the instance of the node", Message: fmt.Sprintf(
			"too many instances returned for node name %s: %s; start kubelet with --provider-id=%s<OCID>", node.Name, strings.Join(ids, ", "), providerIDPrefix)}
	}
	s.IDs = ids
	return s, nil
}

func (i *instances) describe(ctx context.Context, node *v1.Node, in instance, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	ipv6 := wantsIPv6(node)
	card, err := i.networks.primary(ctx, in, ipv6, q)
	if err != nil {
		return nil, err
	}
	if card == nil || card.PrivateIP == "" && len(card.IPv6) == 0 {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("instance %s cannot become a node yet: its primary network interface has no address", in.ID)}
	}
	m := &cloudprovider.InstanceMetadata{
		InstanceType: in.Shape, Zone: zoneOf(in.AvailabilityDomain), Region: in.Region, NodeAddresses: card.addresses(ipv6),
	}
	if in.FaultDomain != "" {
		m.AdditionalLabels = map[string]string{labelFaultDomain: in.FaultDomain}
	}
	return m, nil
}

// zoneOf returns the name of an availability domain without the prefix, which differs between tenancies.
func zoneOf(domain string) string {
	if _, zone, ok := strings.Cut(domain, ":"); ok {
		return zone
	}
	return domain
}

// addresses returns a node's addresses: the private and the public one, and those of IPv6 if the node wants them.
func (v vnic) addresses(ipv6 bool) []v1.NodeAddress {
	var all []v1.NodeAddress
	add := func(kind v1.NodeAddressType, address string) {
		if address != "" {
			all = append(all, v1.NodeAddress{Type: kind, Address: address})
		}
	}
	add(v1.NodeInternalIP, v.PrivateIP)
	add(v1.NodeExternalIP, v.PublicIP)
	if !ipv6 {
		return all
	}
	for _, address := range v.IPv6 {
		kind := v1.NodeExternalIP
		if ip, err := netip.ParseAddr(address); err == nil && ip.IsPrivate() { // fc00::/7
			kind = v1.NodeInternalIP
		}
		add(kind, address)
	}
	return all
}

// retryAddresses is the time until nodes whose addresses the cloud did not show are applied again.
const retryAddresses = time.Minute

// withAddresses returns the nodes with addresses that their instances have. Those that only the Node reports do not count, because anybody
// who controls a kubelet can write them; a Node without any gets its instance's. A Node about which the cloud shows nothing keeps the
// addresses that the load balancer has; without any, a finding schedules another try.
func (i *instances) withAddresses(
	ctx context.Context, list []*v1.Node, has map[string]bool,
) (all []*v1.Node, waiting []services.Finding, err error) {
	for _, n := range list {
		addresses, err := i.addressesOf(ctx, n, len(list))
		switch {
		case err != nil && isAboutOneObject(err):
			klog.V(2).InfoS("Not knowing at which addresses a node is reached", "node", n.Name, "reason", err.Error())
			if addresses = filterKnown(n.Status.Addresses, has); len(addresses) == 0 {
				waiting = []services.Finding{{Again: retryAddresses}}
			}
		case err != nil:
			return nil, nil, fmt.Errorf("finding the addresses of node %s: %w", n.Name, cloudapi.NotAbsence(err))
		}
		if !slices.Equal(addresses, n.Status.Addresses) {
			other := *n
			other.Status.Addresses = addresses
			n = &other
		}
		all = append(all, n)
	}
	return all, waiting, nil
}

// filterKnown returns the reported addresses that a load balancer has.
func filterKnown(told []v1.NodeAddress, has map[string]bool) (all []v1.NodeAddress) {
	for _, a := range told {
		if ip, err := netip.ParseAddr(a.Address); err == nil && has[ip.String()] {
			all = append(all, a)
		}
	}
	return all
}

// addressesOf returns the addresses at which load balancers may reach a node, none if its instance is gone.
func (i *instances) addressesOf(ctx context.Context, node *v1.Node, expected int) ([]v1.NodeAddress, error) {
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil, nil //nolint:nilerr // no instance of this cloud
	}
	q := inventory.Query{MaxAge: attachedMaxAge, MaxMissAge: observedMaxAge, Expected: expected}
	in, err := i.inventory.Get(ctx, id, q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	net, err := i.networks.vnicsWithAddress(ctx, in, needsIPv6(node), q)
	if err != nil {
		return nil, err
	}
	return net.confirmedAddresses(node.Status.Addresses, wantsIPv6(node)), nil
}

// isAboutOneObject reports whether an error is about an object that the cloud does not show, and not about the cloud.
func isAboutOneObject(err error) bool {
	return isUnreachable(err) || isHidden(err) || errors.Is(err, errNoInterface)
}

// confirmedAddresses returns the reported addresses that the instance has. For a family without any it adds those of the primary network
// interface.
func (n instanceVNICs) confirmedAddresses(told []v1.NodeAddress, ipv6 bool) (all []v1.NodeAddress) {
	var has, primary []v1.NodeAddress
	for _, v := range n.vnics {
		has = append(has, v.addresses(true)...)
		if v.Primary {
			primary = v.addresses(ipv6)
		}
	}
	family := map[bool]bool{}
	for _, a := range told {
		ip, err := netip.ParseAddr(a.Address)
		if err == nil && slices.ContainsFunc(has, func(h v1.NodeAddress) bool { return h.Type == a.Type && sameAddress(h.Address, ip) }) {
			all = append(all, a)
			family[ip.Is6()] = family[ip.Is6()] || ip.Is6() || a.Type == v1.NodeInternalIP
		}
	}
	for _, h := range primary {
		if ip, err := netip.ParseAddr(h.Address); err == nil && !family[ip.Is6()] && !slices.Contains(all, h) {
			all = append(all, h)
		}
	}
	return all
}

func sameAddress(text string, ip netip.Addr) bool {
	parsed, err := netip.ParseAddr(text)
	return err == nil && parsed == ip
}

func backendAddresses(lb *loadBalancer) map[string]bool {
	all := map[string]bool{}
	for _, b := range lb.backends() {
		if ip, err := netip.ParseAddr(b.ip); err == nil {
			all[ip.String()] = true
		}
	}
	return all
}

// verifyName compares names, because control of a kubelet alone does not allow to rename an instance.
func verifyName(_ context.Context, node *v1.Node, in instance) (why string, err error) {
	if !strings.EqualFold(in.Name, node.Name) {
		return fmt.Sprintf("the instance %s has the display name %q", in.ID, in.Name), nil
	}
	return "", nil
}

const ocidPattern = `ocid1\.[a-z0-9]+\.[a-z0-9-]+\.[a-zA-Z0-9-]*\.[a-zA-Z0-9._-]+`

var ocid = regexp.MustCompile(`^` + ocidPattern + `$`)

// parseProviderID returns the OCID of a provider ID, which may be the bare OCID.
func parseProviderID(text string) (string, error) {
	id := strings.TrimPrefix(text, providerIDPrefix)
	switch {
	case text == "":
		return "", errors.New("provider ID is empty")
	case !ocid.MatchString(id):
		return "", fmt.Errorf("provider ID %q is not of the form %s<OCID of the instance>", text, providerIDPrefix)
	}
	return id, nil
}

// instanceKey identifies the instance of a provider ID in both forms; "" is none.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id
	}
	if strings.HasPrefix(providerID, providerIDPrefix) || strings.HasPrefix(providerID, bareIDPrefix) {
		return providerID // an error about it says so
	}
	return ""
}
