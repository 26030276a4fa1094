package gce

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	compute "google.golang.org/api/compute/v1"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	providerIDPrefix = Name + "://"
	indexName        = "name"
	// callPrice limits reads of nodes that stay down to 60 calls a minute, of 1,500.
	callPrice = time.Second
)

type instanceID struct{ project, zone, name string }

func (i instanceID) String() string { return i.project + "/" + i.zone + "/" + i.name }

// link returns the partial link that calls take.
func (i instanceID) link() string { return "zones/" + i.zone + "/instances/" + i.name }

// path returns the resource path.
func (i instanceID) path() string { return "projects/" + i.project + "/" + i.link() }

// instance holds the few fields that we need, of several kilobytes.
type instance struct {
	id              instanceID
	number          uint64
	status, machine string
	tags            []string
	labels          map[string]string
	addresses       []v1.NodeAddress
	// interfaces is the number of network interfaces; alias is the first alias range of the first one.
	interfaces int
	alias      string
	ipv6       string
	// forwards: the instance may send and receive packets of other addresses, such as its pods'.
	forwards bool
	// ours: the instance is in the cluster's region, so that it can be found by name.
	ours bool
}

func newInstance(at location, i *compute.Instance) instance {
	kept := instance{
		id:     instanceID{at.project, lastPart(i.Zone), i.Name},
		number: i.Id, status: i.Status, machine: lastPart(i.MachineType), interfaces: len(i.NetworkInterfaces),
		labels: i.Labels, forwards: i.CanIpForward,
	}
	kept.ours = regionOf(kept.id.zone) == at.region
	if i.Tags != nil {
		kept.tags = slices.Clone(i.Tags.Items)
	}
	interfaces := slices.Clone(i.NetworkInterfaces)
	slices.SortStableFunc(interfaces, func(a, b *compute.NetworkInterface) int {
		return cmp.Or(cmp.Compare(len(a.Name), len(b.Name)), cmp.Compare(a.Name, b.Name)) // nic0 speaks for the instance
	})
	for _, n := range interfaces {
		kept.addresses = append(kept.addresses, addressesOf(n)...)
	}
	if len(interfaces) > 0 {
		first := interfaces[0]
		if len(first.AliasIpRanges) > 0 {
			kept.alias = first.AliasIpRanges[0].IpCidrRange
		}
		kept.ipv6 = ipv6Of(first)
	}
	return kept
}

// addressesOf returns the addresses of one interface, in the order of Google's own controller.
func addressesOf(n *compute.NetworkInterface) (list []v1.NodeAddress) {
	if n.NetworkIP != "" {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: n.NetworkIP})
	}
	for _, c := range n.AccessConfigs {
		if c.NatIP != "" { // a stopped instance has none
			list = append(list, v1.NodeAddress{Type: v1.NodeExternalIP, Address: c.NatIP})
		}
	}
	if ip := ipv6Of(n); ip != "" {
		list = append(list, v1.NodeAddress{Type: v1.NodeInternalIP, Address: ip})
	}
	return list
}

// ipv6Of returns an interface's internal IPv6 address, or else its external one; nodes show either as internal.
func ipv6Of(n *compute.NetworkInterface) (ip string) {
	if n.Ipv6Address != "" || n.Ipv6AccessType != "EXTERNAL" {
		return n.Ipv6Address
	}
	for _, c := range n.Ipv6AccessConfigs {
		ip = c.ExternalIpv6
	}
	return ip
}

// nodeAddresses returns the addresses, the preferred family first.
func (i instance) nodeAddresses(ipv6First bool) []v1.NodeAddress {
	list := slices.Clone(i.addresses)
	is6 := func(a v1.NodeAddress) int {
		ip, err := netip.ParseAddr(a.Address)
		if err == nil && ip.Is6() != ipv6First {
			return 1
		}
		return 0
	}
	slices.SortStableFunc(list, func(a, b v1.NodeAddress) int { return is6(a) - is6(b) })
	return list
}

type instances struct {
	*nodes.Instances[instanceID, instance]
	config   Config
	all      *inventory.Inventory[instanceID, instance]
	nodes    *nodecount.Counter
	arrivals *arrivals
	reported reportedMessages
}

func newInstances(c Config, a *api) *instances {
	i := &instances{config: c, nodes: &nodecount.Counter{}, arrivals: newArrivals()}
	i.all = inventory.New(inventory.Source[instanceID, instance]{
		Kind: "instance", ID: func(i instance) instanceID { return i.id },
		List: func(ctx context.Context) ([]instance, int, error) {
			all, pages, err := a.instances(ctx)
			i.arrivals.record(all...)
			if err == nil {
				i.arrivals.forgetOld(len(all), i.nodes.Nodes())
			}
			return all, pages, err
		},
		Get: func(ctx context.Context, id instanceID) (instance, error) {
			one, err := a.instance(ctx, id)
			if err == nil {
				i.arrivals.record(one)
			}
			return one, err
		},
		Indexes: map[string]func(instance) []string{indexName: func(i instance) []string {
			if !i.ours {
				return nil // clusters in other regions may use the same node names
			}
			return []string{i.id.name}
		}},
	})
	i.Instances = nodes.New(nodes.Cloud[instanceID, instance]{
		Kind: "instance", Nodes: i.nodes, Price: callPrice, Inventory: i.all,
		Form: providerIDPrefix + "<project>/<zone>/<instance name>", Parse: c.parseProviderID, Print: instance.providerID,
		Search: search, State: instance.state, Metadata: i.describe, Verify: verify, Attested: instance.attested,
		Tags: func(one instance) map[string]string { return one.labels },
	})
	return i
}

// instanceFields selects the fields that the API returns.
const instanceFields = "name,zone,id,status,machineType,canIpForward,labels,tags/items,networkInterfaces(name,networkIP,accessConfigs/natIP,ipv6Address,ipv6AccessType," +
	"ipv6AccessConfigs/externalIpv6,aliasIpRanges/ipCidrRange)"

// instances lists the instances of all zones. The listing names the zones that did not answer.
func (a *api) instances(ctx context.Context) (all []instance, pages int, err error) {
	at, err := a.locator.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	zones := coverage{lacking: map[string]string{}, shown: map[string]int{}}
	pages, err = readPages(ctx, listingInstances, false, func() *compute.InstancesAggregatedListCall {
		return a.sdk.Instances.AggregatedList(at.project).MaxResults(pageSize).
			Fields("items/*/instances("+instanceFields+")", "items/*/warning", "nextPageToken", "unreachables", "warning", "kind")
	}, func(page *compute.InstanceAggregatedList) (objects int, next string, err error) {
		for _, scope := range page.Items {
			for _, i := range scope.Instances {
				all = append(all, newInstance(at, i))
			}
			objects += len(scope.Instances)
		}
		return objects, page.NextPageToken, zones.add(page)
	})
	if err != nil {
		return nil, pages, err
	}
	return all, pages, zones.err()
}

func (a *api) instance(ctx context.Context, id instanceID) (instance, error) {
	what := "reading instance " + id.String()
	at, err := a.locator.get(ctx)
	if err != nil {
		return instance{}, err
	}
	if id.project != at.project {
		return instance{}, &cloudapi.Error{
			Class: cloudapi.ErrInvalid, Operation: what, Message: "it is of another project than " + at.project + ", which this program manages",
		}
	}
	i, err := a.sdk.Instances.Get(id.project, id.zone, id.name).Context(ctx).Fields(instanceFields).Do()
	if err == nil && (i.Name != id.name || lastPart(i.Zone) != id.zone) {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		mapped := apiError(err, what)
		if !isAboutInstance(err, id) {
			mapped = cloudapi.NotAbsence(mapped) // the zone or the project may be missing instead
		}
		return instance{}, mapped
	}
	return newInstance(at, i), nil
}

// search finds the instance of a node without a provider ID by the first label of its name.
func search(_ context.Context, node *v1.Node) (nodes.Search[instanceID, instance], error) {
	return nodes.Search[instanceID, instance]{Keys: []nodes.Key[instance]{{Index: indexName, Value: firstLabel(node.Name)}}}, nil
}

func firstLabel(name string) string {
	first, _, _ := strings.Cut(name, ".")
	return first
}

// state maps the cloud's status. Instances that are stopping may still have volumes attached.
func (i instance) state() (nodes.State, error) {
	switch i.status {
	case "TERMINATED", "STOPPED", "SUSPENDED":
		return nodes.ShutDown, nil
	case "":
		return nodes.Existing, fmt.Errorf("the API does not say the status of instance %s", i.id)
	}
	return nodes.Existing, nil
}

func (s *instances) describe(_ context.Context, _ *v1.Node, i instance, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if i.interfaces == 0 || len(i.addresses) == 0 {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("instance %s cannot become a node: it has no network interface with an address yet", i.id)}
	}
	return &cloudprovider.InstanceMetadata{
		InstanceType: i.machine, Zone: i.id.zone, Region: regionOf(i.id.zone), NodeAddresses: i.nodeAddresses(s.config.StackType == stackIPv6),
	}, nil
}

// verify compares names: a kubelet's credentials do not suffice to rename an instance.
func verify(_ context.Context, node *v1.Node, i instance) (why string, err error) {
	return nodes.VerifyName(node, "instance "+i.id.String(), i.id.name), nil
}

// attested returns the addresses of the interfaces, and the instance's names in the cloud's DNS.
func (i instance) attested() contract.Attested {
	a := contract.Attested{Names: []string{i.id.name}}
	if !strings.Contains(i.id.project, ":") { // domain-scoped projects have other names
		domain := ".c." + i.id.project + ".internal"
		a.Names = append(a.Names, i.id.name+domain, i.id.name+"."+i.id.zone+domain)
	}
	for _, one := range i.addresses {
		a.Addresses = append(a.Addresses, contract.AttestedAddresses(one.Address)...)
	}
	return a
}

func (i instance) providerID() string { return providerIDPrefix + i.id.String() }

var partForm = regexp.MustCompile(`^[-a-z0-9.:]{1,100}$`)

func parseProviderID(text string) (instanceID, error) {
	rest, ok := strings.CutPrefix(text, providerIDPrefix)
	parts := strings.Split(rest, "/")
	bad := func(p string) bool { return !partForm.MatchString(p) }
	if !ok || len(parts) != 3 || slices.ContainsFunc(parts, bad) {
		return instanceID{}, fmt.Errorf("provider ID %q is not of the form %s<project>/<zone>/<instance name>", text, providerIDPrefix)
	}
	return instanceID{parts[0], parts[1], firstLabel(parts[2])}, nil
}

// parseProviderID also rejects projects other than the configured one.
func (c Config) parseProviderID(text string) (instanceID, error) {
	id, err := parseProviderID(text)
	if err == nil && c.Project != "" && !projectNumber.MatchString(c.Project) && id.project != c.Project {
		return id, fmt.Errorf("provider ID %q is of another project than %s, which this program manages", text, c.Project)
	}
	return id, err
}

// instanceKey returns the same key for all spellings of a provider ID; an invalid ID is its own key.
func instanceKey(providerID string) string {
	if id, err := parseProviderID(providerID); err == nil {
		return id.String()
	}
	if strings.HasPrefix(providerID, providerIDPrefix) {
		return providerID
	}
	return ""
}
