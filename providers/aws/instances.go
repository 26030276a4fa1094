package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	providerIDPrefix = "aws://"

	// callPrice and minAge limit the cost of nodes that are not ready: one call serves all of them.
	callPrice = 2 * time.Second
	minAge    = 15 * time.Second
	// missMaxAge is how old the record may be of an instance that is missing.
	missMaxAge = nodes.MissMaxAge

	// pageSize is EC2's largest page; batchSize its limit on the values of a filter.
	pageSize  = 1000
	batchSize = 200

	indexDNS = "private DNS name"
	indexIP  = "private address"

	// annotationNodeIP is set by kubelet where it was given an address.
	annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"
)

// instance holds the fields of an EC2 instance that are needed after a listing.
type instance struct {
	id, kind, state, zone string
	vpc, subnet           string
	privateDNS, publicDNS string
	publicIP              string
	tags                  map[string]string
	groups                []string
	interfaces            []networkInterface
	// checksSource is set where packets of pods would be dropped for their addresses.
	checksSource bool
}

// networkInterface of an instance.
type networkInterface struct {
	id, status string
	// index is the device index; unattached ones have the largest.
	index int32
	// primary are the addresses of the interface itself; others may be those of pods.
	primary    []string
	privateIPs []string
	ipv6       []string
}

const unattached = 1 << 30

func newInstance(i *ec2types.Instance) instance {
	kept := instance{
		id: aws.ToString(i.InstanceId), kind: string(i.InstanceType), vpc: aws.ToString(i.VpcId), subnet: aws.ToString(i.SubnetId),
		privateDNS: aws.ToString(i.PrivateDnsName), publicDNS: aws.ToString(i.PublicDnsName), publicIP: aws.ToString(i.PublicIpAddress),
		tags:         mapOf(i.Tags, ec2Tag),
		checksSource: aws.ToBool(i.SourceDestCheck),
	}
	if i.State != nil {
		kept.state = string(i.State.Name)
	}
	if i.Placement != nil {
		kept.zone = aws.ToString(i.Placement.AvailabilityZone)
	}
	for _, g := range i.SecurityGroups {
		kept.groups = append(kept.groups, aws.ToString(g.GroupId))
	}
	for _, e := range i.NetworkInterfaces {
		one := networkInterface{id: aws.ToString(e.NetworkInterfaceId), status: string(e.Status), index: unattached}
		if e.Attachment != nil && e.Attachment.DeviceIndex != nil {
			one.index = *e.Attachment.DeviceIndex
		}
		for _, a := range e.PrivateIpAddresses {
			one.privateIPs = append(one.privateIPs, aws.ToString(a.PrivateIpAddress))
			if aws.ToBool(a.Primary) {
				one.primary = append(one.primary, aws.ToString(a.PrivateIpAddress))
			}
		}
		for _, a := range e.Ipv6Addresses {
			one.ipv6 = append(one.ipv6, aws.ToString(a.Ipv6Address))
			if aws.ToBool(a.IsPrimaryIpv6) {
				one.primary = append(one.primary, aws.ToString(a.Ipv6Address))
			}
		}
		if one.index == 0 && e.SourceDestCheck != nil {
			kept.checksSource = *e.SourceDestCheck // the interface that routes lead to
		}
		kept.interfaces = append(kept.interfaces, one)
	}
	slices.SortStableFunc(kept.interfaces, func(a, b networkInterface) int { return int(a.index) - int(b.index) })
	return kept
}

// States of an instance.
const (
	statePending      = string(ec2types.InstanceStateNamePending)
	stateRunning      = string(ec2types.InstanceStateNameRunning)
	stateShuttingDown = string(ec2types.InstanceStateNameShuttingDown)
	stateTerminated   = string(ec2types.InstanceStateNameTerminated)
	stateStopped      = string(ec2types.InstanceStateNameStopped)
)

// addresses are in the order that AWS's own controller reports them.
func (i instance) addresses(families []string) ([]v1.NodeAddress, error) {
	var list []v1.NodeAddress
	add := func(kind v1.NodeAddressType, address string) {
		if address != "" {
			list = append(list, v1.NodeAddress{Type: kind, Address: address})
		}
	}
	for _, family := range families {
		for _, e := range i.interfaces {
			if e.status != string(ec2types.NetworkInterfaceStatusInUse) {
				continue
			}
			if family == familyIPv4 {
				for _, ip := range e.privateIPs {
					add(v1.NodeInternalIP, ip)
				}
			} else if len(e.ipv6) > 0 {
				add(v1.NodeInternalIP, e.ipv6[0])
			}
		}
		if family == familyIPv4 {
			add(v1.NodeExternalIP, i.publicIP)
			add(v1.NodeInternalDNS, i.privateDNS)
			add(v1.NodeHostName, i.privateDNS)
			add(v1.NodeExternalDNS, i.publicDNS)
		}
	}
	return list, checkAddresses(i.id, list)
}

// attestedIdentity omits the tag Name, and secondary addresses, which pods may have.
func (i instance) attestedIdentity() contract.Attested {
	a := contract.Attested{Names: []string{i.privateDNS, i.publicDNS}, Addresses: contract.AttestedAddresses(i.publicIP)}
	for _, e := range i.interfaces {
		a.Addresses = append(a.Addresses, contract.AttestedAddresses(e.primary...)...)
	}
	return a
}

func checkAddresses(id string, list []v1.NodeAddress) error {
	for _, a := range list {
		if a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP {
			continue
		}
		if _, err := netip.ParseAddr(a.Address); err != nil {
			return fmt.Errorf("EC2 reports the address %q of %s, which is not an address", a.Address, id)
		}
	}
	return nil
}

// privateAddresses are all that the instance has in the VPC. They find the instance of a node that has another name.
func (i instance) privateAddresses() []string {
	if i.state == stateTerminated {
		return nil
	}
	var all []string
	for _, e := range i.interfaces {
		all = append(append(all, e.privateIPs...), e.ipv6...)
	}
	return all
}

// reportedAddresses returns the addresses that the kubelet reports before the node is initialised.
func reportedAddresses(node *v1.Node) []string {
	var all []string
	for told := range strings.SplitSeq(node.Annotations[annotationNodeIP], ",") {
		all = append(all, strings.TrimSpace(told))
	}
	for _, a := range node.Status.Addresses {
		if a.Type == v1.NodeInternalIP {
			all = append(all, a.Address)
		}
	}
	return slices.DeleteFunc(all, func(a string) bool { return a == "" })
}

// instances are the instances, the pods on Fargate, and what they say about nodes.
type instances struct {
	nodes.Split
	// byNode finds the instances of nodes that are not on Fargate.
	byNode    *nodes.Instances[string, instance]
	config    Config
	api       *api
	inventory *inventory.Inventory[string, instance]
	// starting is where load balancers wait for instances to run.
	starting *waiting.Room[string, instance]
	zones    *zones
	topology *topology
	nodes    *nodecount.Counter
}

func newInstances(c Config, a *api) *instances {
	i := &instances{config: c, api: a, zones: &zones{api: a}, nodes: &nodecount.Counter{}}
	i.topology = newTopology(c, a)
	i.inventory = inventory.New(inventory.Source[string, instance]{
		Kind: "instance", ID: func(i instance) string { return i.id },
		List: a.listInstances, Get: a.getInstance, GetMany: a.getInstances, BatchSize: batchSize,
		Indexes: map[string]func(instance) []string{indexDNS: func(i instance) []string {
			if i.state == stateTerminated || a.isOtherVPC(i.vpc) {
				return nil // its name may be another one's by now, or is another one's here
			}
			return []string{i.privateDNS}
		}, indexIP: func(i instance) []string {
			if a.isOtherVPC(i.vpc) {
				return nil
			}
			return i.privateAddresses()
		}},
	})
	i.starting = waiting.New(i.inventory.Look, waiting.Pace{})
	i.byNode = nodes.New(nodes.Cloud[string, instance]{
		Kind: "instance", Inventory: i.inventory, Nodes: i.nodes, Price: callPrice, MinAge: minAge,
		Form: providerIDPrefix + "/<zone>/<instance ID>", Parse: parseProviderID, Print: instance.providerID,
		Search: i.search, State: instance.nodeState, Metadata: i.describe,
		Tags:   func(one instance) map[string]string { return one.tags },
		Verify: i.verifyNode, Attested: instance.attestedIdentity, Absent: "EC2 knows no instance %s",
		BadID: func(err error) bool { return errors.Is(err, cloudapi.ErrInvalid) },
	})
	i.Split = nodes.Split{API: i.byNode, IsOther: isOnFargate, Other: newFargate(i)}
	return i
}

// listInstances reads all instances with a tag of the cluster.
func (a *api) listInstances(ctx context.Context) ([]instance, int, error) {
	_, id, err := a.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	list, pages, err := a.describeInstances(ctx, "listing instances", filter("tag-key", id.clusterTag(), legacyClusterTag))
	return slices.DeleteFunc(list, func(one instance) bool { return !id.isTagged(one.tags) }), pages, err
}

// getInstances reads instances by a filter, which answers with those that exist.
func (a *api) getInstances(ctx context.Context, ids []string) ([]instance, error) {
	list, _, err := a.describeInstances(ctx, fmt.Sprintf("reading %d instances", len(ids)), filter("instance-id", ids...))
	return list, err
}

// describeInstances reads all pages of instances that pass a filter.
func (a *api) describeInstances(ctx context.Context, what string, f ec2types.Filter) (list []instance, pages int, err error) {
	in := &ec2.DescribeInstancesInput{MaxResults: aws.Int32(pageSize), Filters: []ec2types.Filter{f}}
	list, pages, err = listPages(ctx, a, cloudapi.WatchListing, what, (*ec2.Client).DescribeInstances, in, &in.NextToken,
		func(out *ec2.DescribeInstancesOutput) (all []ec2types.Instance, next *string) {
			for _, r := range out.Reservations {
				all = append(all, r.Instances...)
			}
			return all, out.NextToken
		}, newInstance)
	return slices.DeleteFunc(list, func(i instance) bool { return i.id == "" }), pages, err
}

// getInstance reads one instance by its ID. EC2 says of an ID that it does not know that it does not exist; an answer
// without the instance says nothing.
func (a *api) getInstance(ctx context.Context, id string) (instance, error) {
	out, err := call(ctx, a, "reading instance "+id, (*ec2.Client).DescribeInstances, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
	if err != nil {
		if e, ok := errors.AsType[*cloudapi.Error](err); ok && errors.Is(err, cloudapi.ErrNotFound) && !strings.Contains(e.Message, id) {
			e.Class = cloudapi.ErrTransient // it is about another one
		}
		return instance{}, err
	}
	found, ok := instanceIn(out, id)
	if !ok {
		return instance{}, cloudapi.Unclear("reading instance "+id, "EC2 answered without the instance, which says nothing about it")
	}
	return found, nil
}

func instanceIn(out *ec2.DescribeInstancesOutput, id string) (instance, bool) {
	for _, r := range out.Reservations {
		for n := range r.Instances {
			if aws.ToString(r.Instances[n].InstanceId) == id {
				return newInstance(&r.Instances[n]), true
			}
		}
	}
	return instance{}, false
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}

// nodeState is gone for terminated instances alone, which EC2 shows for about an hour.
func (i instance) nodeState() (nodes.State, error) {
	switch i.state {
	case "":
		return nodes.Existing, fmt.Errorf("EC2 does not tell the state of instance %s", i.id)
	case stateTerminated:
		return nodes.Terminated, nil
	case stateStopped:
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

func (i instance) providerID() string { return providerIDPrefix + "/" + i.zone + "/" + i.id }

// describe returns what an instance says about its node. A provider ID stays in the form that the Node has.
func (i *instances) describe(ctx context.Context, node *v1.Node, one instance, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if one.zone == "" {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("EC2 does not tell where instance %s runs", one.id)}
	}
	list, err := one.addresses(i.config.NodeIPFamilies)
	if err != nil {
		return nil, err
	}
	_, id, err := i.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	m := &cloudprovider.InstanceMetadata{
		ProviderID: node.Spec.ProviderID, InstanceType: one.kind, Zone: one.zone, Region: id.region, NodeAddresses: list,
	}
	lack := fmt.Sprintf("instance %s has no address of the families %s; check NodeIPFamilies",
		one.id, strings.Join(i.config.NodeIPFamilies, ", "))
	switch {
	case len(one.interfaces) == 0:
		return nil, &nodes.Incomplete{Reason: lack, Metadata: m}
	case !contract.Uninitialized(node):
		return m, nil
	case len(list) == 0:
		return nil, errors.New(lack)
	}
	m.AdditionalLabels, err = i.labelsOf(ctx, node, one)
	return m, err
}

// labelsOf returns the labels of an instance's place, which count at initialisation alone.
func (i *instances) labelsOf(ctx context.Context, node *v1.Node, one instance) (map[string]string, error) {
	labels := map[string]string{}
	if _, known := node.Labels[labelZoneID]; !known {
		z, err := i.zones.get(ctx, one.zone)
		if err != nil {
			return nil, err
		}
		labels[labelZoneID] = z.id
	}
	if _, known := node.Labels[labelNetworkLayer+"1"]; known || one.id == "" {
		return labels, nil
	}
	layers, err := i.topology.labelsOf(ctx, one, func() []string { return i.byNode.Uninitialized(ctx) })
	maps.Copy(labels, layers)
	return labels, err
}

// search finds an instance by a name that is its ID, else by its private DNS name, else by an address that kubelet reports.
func (i *instances) search(ctx context.Context, node *v1.Node) (nodes.Search[string, instance], error) {
	if id, ok := idInName(node.Name); ok {
		return nodes.Search[string, instance]{IDs: []string{id}, Proves: true}, nil
	}
	_, self, err := i.api.connect(ctx)
	if err != nil {
		return nodes.Search[string, instance]{}, err
	}
	if self.selfID != "" && node.Name == self.selfDNS {
		return nodes.Search[string, instance]{IDs: []string{self.selfID}}, nil
	}
	keys := []nodes.Key[instance]{{Index: indexDNS, Value: node.Name}}
	for _, address := range reportedAddresses(node) {
		claim := func(one instance) error { return i.checkReportedAddress(node, one, address) }
		keys = append(keys, nodes.Key[instance]{Index: indexIP, Value: address, Check: claim})
	}
	return nodes.Search[string, instance]{
		Keys: keys,
		None: fmt.Sprintf("no instance with the tag %s has the private DNS name %s, nor an address of the node; "+
			"tag the instance, name the node like it, or", self.clusterTag(), node.Name),
		Several: "%d instances have the private DNS name or an address of " + node.Name + ";",
	}, nil
}

// checkReportedAddress refuses an instance found only by an address that the kubelet reports, if another Node is that instance or the
// address is not on its first interface: a kubelet must not become another node's instance by writing its address.
func (i *instances) checkReportedAddress(node *v1.Node, one instance, address string) error {
	refuse := func(reason string) error {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the instance of the node", Message: fmt.Sprintf(
			"instance %s has the address %s that kubelet tells, but %s; name the node like its instance, or start kubelet with --provider-id=%s/<zone>/<instance ID>", one.id, address, reason, providerIDPrefix)}
	}
	if len(one.interfaces) == 0 || one.interfaces[0].index != 0 ||
		!slices.Contains(slices.Concat(one.interfaces[0].privateIPs, one.interfaces[0].ipv6), address) {
		return refuse("not on its first interface")
	}
	for _, other := range i.nodes.Nodes() {
		if other.Name == node.Name {
			continue
		}
		if id, err := parseProviderID(other.Spec.ProviderID); (err == nil && id == one.id) || other.Name == one.privateDNS ||
			strings.HasPrefix(other.Name, one.id) {
			return refuse("node " + other.Name + " is that instance")
		}
	}
	return nil
}

// idForm is the form of instance IDs; those of 8 digits are from before 2016. Anything else would be a pattern to EC2's filters.
var idForm = regexp.MustCompile(`^i-[0-9a-f]{8}([0-9a-f]{9})?$`)

// idInName returns the ID in the name of a node that is named after its instance, with or without a domain.
func idInName(name string) (string, bool) {
	id, _, _ := strings.Cut(name, ".")
	return id, idForm.MatchString(id)
}

// parseProviderID returns the instance ID of a provider ID: the last part of its path.
func parseProviderID(text string) (string, error) {
	id, err := lastSegment(text)
	if err == nil && !idForm.MatchString(id) {
		err = fmt.Errorf("provider ID %q: %q is not the ID of an instance", text, id)
	}
	return id, err
}

// instanceKey is the ID of the instance behind a provider ID in any of its forms, "" for another cloud's, and for what names no
// instance of ours the ID itself.
func instanceKey(text string) string {
	if !slices.ContainsFunc([]string{providerIDPrefix, "i-", "/"}, func(p string) bool { return strings.HasPrefix(text, p) }) {
		return ""
	}
	if id, err := lastSegment(text); err == nil && id != "" {
		return id
	}
	return text
}

// lastSegment returns the instance ID in a provider ID. The form without a scheme is an older kubelet's.
func lastSegment(text string) (string, error) {
	path, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok && strings.Contains(text, "://") {
		return "", fmt.Errorf("provider ID %q does not begin with %s", text, providerIDPrefix)
	}
	if ok && !strings.Contains(path, "/") {
		return "", fmt.Errorf("provider ID %q does not have the form %s/<zone>/<instance ID>", text, providerIDPrefix)
	}
	path = strings.Trim(path, "/")
	return path[strings.LastIndex(path, "/")+1:], nil
}
