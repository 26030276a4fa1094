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
	// callPrice is how often nodes that are down for good may cost a call.
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

// tags returns the free-form tags, and the defined ones by namespace and key. A free-form key with a period is left out: Oracle has none,
// and it could be taken for a defined tag, which not everybody may write.
func (i instance) tags() map[string]string {
	all := flatTags(i.Defined)
	for key, value := range i.Freeform {
		if !strings.Contains(key, ".") {
			all[key] = value
		}
	}
	return all
}

// ended reports whether an instance is shown that never runs again.
func (i instance) ended() bool { return i.State == "TERMINATING" || i.State == "TERMINATED" }

// instances are the compute instances, and what they say about nodes.
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
		Kind: "instance", ID: func(i instance) string { return i.ID }, List: a.instances, Get: i.get,
		Indexes: nodes.NameIndexes(func(i instance) string { return i.Name }),
	})
	i.networks = newNetworks(a, i.inventory)
	i.Instances = nodes.New(nodes.Cloud[string, instance]{
		Kind: "instance", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<OCID of the instance>", Parse: parseProviderID, Print: func(i instance) string { return providerIDPrefix + i.ID },
		Search: i.search, State: instance.state, Metadata: i.describe, Verify: verify,
		Tags:       instance.tags,
		Unattested: "its addresses are those of its VNICs, which are read apart",
	})
	return i
}

// compartmentsOf are the configured compartment, and those that Nodes name.
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

// membersOf are the instances of the cluster's nodes, as far as these name them.
func membersOf(nodes []*v1.Node) []string {
	var ids []string
	for _, n := range nodes {
		if id, err := parseProviderID(n.Spec.ProviderID); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// wantsIPv6 reports whether a Node is to have the addresses of IPv6 that its instance has.
func wantsIPv6(node *v1.Node) bool {
	_, wants := node.Labels[labelIPv6]
	return wants
}

// wantsIPv6 reports whether addresses of IPv6 matter of any Node's instance.
func (a *api) wantsIPv6() bool { return slices.ContainsFunc(a.nodes.Nodes(), tellsIPv6) }

// tellsIPv6 reports whether addresses of IPv6 matter of a Node's instance.
func tellsIPv6(node *v1.Node) bool { return wantsIPv6(node) || sixOf(node) != "" }

// instances lists those that may run, in every compartment that holds any of the cluster.
func (a *api) instances(ctx context.Context) (all []instance, pages int, err error) {
	all, pages, err = inCompartments[instance](ctx, a, "instances", "/instances")
	return slices.DeleteFunc(all, instance.ended), pages, err
}

// inCompartments lists what is in the compartments of the cluster. One that a Node names and that cannot be read holds up nobody else: the
// error is an inventory.Partial then, by which nothing is missing.
func inCompartments[T any](ctx context.Context, a *api, what, path string) (all []T, pages int, err error) {
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

// mayBeIn reports whether an instance may be in one of some compartments: those of Nodes that say otherwise are not.
func (a *api) mayBeIn(id string, compartments []string) bool {
	for _, n := range a.nodes.Nodes() {
		if instanceKey(n.Spec.ProviderID) == id {
			return slices.Contains(compartments, n.Annotations[annotationCompartment])
		}
	}
	return true
}

// get reads one instance. It is cloudapi.ErrNotFound where the cloud shows that it is terminated. The cloud says "not found" also of what
// the user may not see, which is a proof only together with a listing.
func (i *instances) get(ctx context.Context, id string) (found instance, err error) {
	what := "instance " + id
	switch err = i.api.get(ctx, what, "/instances/"+url.PathEscape(id), &found); {
	case errors.Is(err, cloudapi.ErrNotFound):
		return instance{}, i.inventory.Prove(ctx, id, func(all []instance) error { return i.doubt(id, all) })
	case err != nil:
		return instance{}, err
	case found.ID != id:
		return instance{}, cloudapi.Unclear("reading "+what, "the answer is about another instance")
	case found.ended():
		return instance{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading " + what, Message: "it is " + found.State}
	}
	return found, nil
}

// doubt says why a listing that lacks an instance does not prove that it is gone: an empty one, or one without any other node of the
// cluster, may be all that the user is allowed to see.
func (i *instances) doubt(id string, all []instance) error {
	members := membersOf(i.nodes.Nodes())
	if slices.ContainsFunc(all, func(o instance) bool { return o.ID != id && slices.Contains(members, o.ID) }) {
		return nil
	}
	return errors.New("cannot tell missing from forbidden: the listing shows no other node of this cluster; check the policies of the user")
}

// state says what matters to Kubernetes about the states of an instance.
func (i instance) state() (nodes.State, error) {
	switch i.State {
	case "STOPPING", "STOPPED":
		return nodes.ShutDown, nil
	case "TERMINATING", "TERMINATED":
		return nodes.Terminated, nil
	}
	return nodes.Existing, nil
}

// search finds the instance of a node without a provider ID: by its display name, or else by what its network interfaces are called.
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
	ids, err := i.networks.called(ctx, node.Name)
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

// describe returns what an instance says about its node.
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

// zoneOf is the name of an availability domain without the prefix that each tenancy has for itself.
func zoneOf(domain string) string {
	if _, zone, ok := strings.Cut(domain, ":"); ok {
		return zone
	}
	return domain
}

// addresses are those of a node: the private and the public one, and those of IPv6 where the node is to have them.
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

// doubtAgain is when nodes are applied again of which the cloud showed no address.
const doubtAgain = time.Minute

// reached are nodes with the addresses at which load balancers reach them: those that their instances have. What a Node tells alone does
// not count, because whoever controls a kubelet may write there what he likes; and one that tells nothing yet has those of its instance,
// because the framework does not come back for addresses. A Node about which alone nothing can be found out holds up nobody else: it
// keeps what the load balancer has of it, and where that is nothing, a finding has it tried again. has are the addresses of the load
// balancer's backends.
func (i *instances) reached(
	ctx context.Context, list []*v1.Node, has map[string]bool,
) (all []*v1.Node, waiting []services.Finding, err error) {
	for _, n := range list {
		addresses, err := i.addressesOf(ctx, n, len(list))
		switch {
		case err != nil && aboutOne(err):
			klog.V(2).InfoS("Not knowing at which addresses a node is reached", "node", n.Name, "reason", err.Error())
			if addresses = keepKnown(n.Status.Addresses, has); len(addresses) == 0 {
				waiting = []services.Finding{{Again: doubtAgain}}
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

// keepKnown are the addresses that a Node tells and a load balancer has.
func keepKnown(told []v1.NodeAddress, has map[string]bool) (all []v1.NodeAddress) {
	for _, a := range told {
		if ip, err := netip.ParseAddr(a.Address); err == nil && has[ip.String()] {
			all = append(all, a)
		}
	}
	return all
}

// addressesOf are the addresses of one node at which load balancers may reach it; one whose instance is gone has none.
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
	net, err := i.networks.shown(ctx, in, tellsIPv6(node), q)
	if err != nil {
		return nil, err
	}
	return net.vouched(node.Status.Addresses, wantsIPv6(node)), nil
}

// aboutOne reports whether an error is about one object that the cloud does not show, not about the cloud.
func aboutOne(err error) bool {
	return unreachable(err) || hides(err) || errors.Is(err, errNoInterface)
}

// vouched are those addresses that a Node tells and its instance has, and where it tells none of a family, those of the primary network
// interface.
func (n network) vouched(told []v1.NodeAddress, ipv6 bool) (all []v1.NodeAddress) {
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

// backendAddresses are the addresses of a load balancer's backends; lb may be nil.
func backendAddresses(lb *loadBalancer) map[string]bool {
	all := map[string]bool{}
	for _, b := range lb.backends() {
		if ip, err := netip.ParseAddr(b.ip); err == nil {
			all[ip.String()] = true
		}
	}
	return all
}

// verify compares names: nobody who controls a kubelet alone can rename an instance.
func verify(_ context.Context, node *v1.Node, in instance) (why string, err error) {
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

// instanceKey identifies the instance of a provider ID in either of its forms; "" is none.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id
	}
	if strings.HasPrefix(providerID, providerIDPrefix) || strings.HasPrefix(providerID, bareIDPrefix) {
		return providerID // an error about it says so
	}
	return ""
}
