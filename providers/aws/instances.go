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
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodeview"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

const (
	providerIDPrefix = "aws://"

	// The age of the answer "this instance exists" spares reads for nodes that are not ready: one call, whoever asks.
	existsPerCall = 2 * time.Second
	existsLeast   = 15 * time.Second
	existsMost    = 45 * time.Second
	// sweepMaxAge serves the address loop, which asks about every node every 5 minutes.
	sweepMaxAge = 60 * time.Second
	// missMaxAge spares reads for a node that fails to initialise: the framework tries 9 times in the first second.
	missMaxAge = 5 * time.Second

	// namedMissAge is how long it is believed that the instance does not exist which a node without a provider ID is named after,
	// unless whoever asks demands more.
	namedMissAge = 30 * time.Second

	// pageSize is EC2's largest page; batchSize its limit on the values of a filter.
	pageSize  = 1000
	batchSize = 200

	indexDNS = "private DNS name"
	indexIP  = "private address"

	// annotationNodeIP is set by kubelet where it was given an address.
	annotationNodeIP = "alpha.kubernetes.io/provided-node-ip"
)

// instance is what the provider keeps of an EC2 instance.
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
	index      int32
	privateIPs []string
	ipv6       []string
}

const unattached = 1 << 30

func newInstance(i *ec2types.Instance) instance {
	kept := instance{
		id: aws.ToString(i.InstanceId), kind: string(i.InstanceType), vpc: aws.ToString(i.VpcId), subnet: aws.ToString(i.SubnetId),
		privateDNS: aws.ToString(i.PrivateDnsName), publicDNS: aws.ToString(i.PublicDnsName), publicIP: aws.ToString(i.PublicIpAddress), tags: keyed(i.Tags, ec2Tag),
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
		}
		for _, a := range e.Ipv6Addresses {
			one.ipv6 = append(one.ipv6, aws.ToString(a.Ipv6Address))
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

func checkAddresses(id string, list []v1.NodeAddress) error {
	for _, a := range list {
		if a.Type != v1.NodeInternalIP && a.Type != v1.NodeExternalIP {
			continue
		}
		if _, err := netip.ParseAddr(a.Address); err != nil {
			return fmt.Errorf("EC2 tells the address %q of %s, which is none", a.Address, id)
		}
	}
	return nil
}

// privateAddresses are all that the instance has in the VPC, by which a node can be told that has another name.
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

// toldAddresses are the addresses that kubelet tells before the node is initialised.
func toldAddresses(node *v1.Node) []string {
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

// instances implements cloudprovider.InstancesV2.
type instances struct {
	config Config
	api    *api
	all    *inventory.Inventory[string, instance]
	// starting is where load balancers wait for instances to run.
	starting *waiting.Room[string, instance]
	pods     *inventory.Inventory[string, podInterface]
	zones    *zones
	topology *topology
	nodes    *nodeview.View
	lister   listers.NodeLister
}

var _ cloudprovider.InstancesV2 = (*instances)(nil)

func newInstances(c Config, a *api) *instances {
	i := &instances{config: c, api: a, zones: &zones{api: a}, nodes: &nodeview.View{}}
	i.topology = newTopology(c, a)
	i.all = inventory.New(inventory.Source[string, instance]{
		Kind: "instance", ID: func(i instance) string { return i.id }, List: a.listInstances, Get: a.getInstance, GetMany: a.getInstances, BatchSize: batchSize,
		Indexes: map[string]func(instance) []string{indexDNS: func(i instance) []string {
			if i.state == stateTerminated {
				return nil // its name may be another one's by now
			}
			return []string{i.privateDNS}
		}, indexIP: instance.privateAddresses},
	})
	i.starting = waiting.New(i.all.Look, waiting.Pace{})
	i.pods = inventory.New(inventory.Source[string, podInterface]{
		Kind: "network interface", ID: func(e podInterface) string { return e.key }, Get: i.getPodInterface,
	})
	return i
}

// setLister gives the nodes, which tell who is likely asked about next.
func (i *instances) setLister(l listers.NodeLister) {
	i.lister = l
	i.nodes.SetLister(l)
}

// listInstances reads all instances with a tag of the cluster.
func (a *api) listInstances(ctx context.Context) ([]instance, int, error) {
	_, id, err := a.ready(ctx)
	if err != nil {
		return nil, 0, err
	}
	list, pages, err := a.pagesOfInstances(ctx, "listing instances", filter("tag-key", id.clusterTag(), legacyClusterTag))
	return slices.DeleteFunc(list, func(one instance) bool { return !id.ours(one.tags) }), pages, err
}

// getInstances reads instances by a filter, which answers with those that exist.
func (a *api) getInstances(ctx context.Context, ids []string) ([]instance, error) {
	list, _, err := a.pagesOfInstances(ctx, fmt.Sprintf("reading %d instances", len(ids)), filter("instance-id", ids...))
	return list, err
}

// pagesOfInstances reads all pages of instances that pass a filter, and tells how many there were.
func (a *api) pagesOfInstances(ctx context.Context, what string, f ec2types.Filter) (list []instance, pages int, err error) {
	in := &ec2.DescribeInstancesInput{MaxResults: aws.Int32(pageSize), Filters: []ec2types.Filter{f}}
	pages, err = everyPage(ctx, a, what, (*ec2.Client).DescribeInstances, in, func(out *ec2.DescribeInstancesOutput) (objects int, next *string) {
		for _, r := range out.Reservations {
			objects += len(r.Instances)
			for n := range r.Instances {
				if one := newInstance(&r.Instances[n]); one.id != "" {
					list = append(list, one)
				}
			}
		}
		return objects, out.NextToken
	}, func(token *string) { in.NextToken = token })
	return list, pages, err
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
	found, ok := only(out, id)
	if !ok {
		return instance{}, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading instance " + id, Message: "EC2 answered without the instance, which says nothing about it"}
	}
	return found, nil
}

func only(out *ec2.DescribeInstancesOutput, id string) (instance, bool) {
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

// InstanceExists reports whether the node's instance exists: everything but terminated does. Only EC2's own answer about
// that very instance counts as its absence; a node without a provider ID is never absent, for names can change, unless its name
// is the ID of its instance.
func (i *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if pod, ok := fargateKey(node.Spec.ProviderID); ok {
		_, err := i.pods.Get(ctx, pod, i.existsQuery())
		if errors.Is(err, cloudapi.ErrNotFound) {
			return false, nil
		}
		return err == nil, err
	}
	one, err := i.lookup(ctx, node, i.existsQuery())
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && (node.Spec.ProviderID != "" || namedByID(node)):
		return false, nil
	case err != nil:
		return false, err
	case one.state == "":
		return false, fmt.Errorf("EC2 does not tell the state of instance %s", one.id)
	case one.state == stateTerminated && node.Spec.ProviderID == "":
		return false, fmt.Errorf("instance %s is terminated, but node %s has no provider ID that proves it is its own", one.id, node.Name)
	}
	return one.state != stateTerminated, nil
}

// InstanceShutdown reports whether the node's instance is stopped. What runs on Fargate is never stopped.
func (i *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if _, ok := fargateKey(node.Spec.ProviderID); ok {
		return false, nil
	}
	one, err := i.lookup(ctx, node, i.existsQuery())
	return err == nil && one.state == stateStopped, err
}

func (i *instances) existsQuery() inventory.Query {
	return inventory.Query{MaxAge: i.all.Affordable(existsPerCall, existsLeast, existsMost), Expected: i.nodes.Counts().NotReady}
}

// InstanceMetadata returns what the node's instance tells about the node.
func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	query := inventory.Query{MaxAge: sweepMaxAge, MaxMissAge: missMaxAge, Expected: i.nodes.Counts().All}
	if guard.Uninitialized(node) {
		query.Expected = i.nodes.Counts().Uninitialized
	}
	if pod, ok := fargateKey(node.Spec.ProviderID); ok {
		return i.podMetadata(ctx, node, pod, query)
	}
	one, err := i.lookup(ctx, node, query)
	if err == nil && (one.zone == "" || len(one.interfaces) == 0) {
		// A listing may have caught the instance in the making.
		query.MaxAge = 0
		one, err = i.lookup(ctx, node, query)
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil, fmt.Errorf("node %s: %w: %w", node.Name, cloudprovider.InstanceNotFound, err)
	case err != nil:
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	case one.zone == "":
		return nil, fmt.Errorf("node %s: EC2 does not tell where instance %s runs", node.Name, one.id)
	}
	m := &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID, InstanceType: one.kind, Zone: one.zone}
	if m.ProviderID == "" {
		m.ProviderID = providerIDPrefix + "/" + one.zone + "/" + one.id
	}
	if m.NodeAddresses, err = one.addresses(i.config.NodeIPFamilies); err == nil {
		err = i.place(ctx, node, one, m)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if len(m.NodeAddresses) == 0 && guard.Uninitialized(node) {
		return nil, fmt.Errorf("node %s: instance %s has no address of the families %s; check NodeIPFamilies", node.Name, one.id, strings.Join(i.config.NodeIPFamilies, ", "))
	}
	return m, nil
}

// place adds the region, and for a node that is new the labels of its place, which count at initialisation alone.
func (i *instances) place(ctx context.Context, node *v1.Node, one instance, m *cloudprovider.InstanceMetadata) error {
	_, id, err := i.api.ready(ctx)
	if err != nil {
		return err
	}
	m.Region = id.region
	if !guard.Uninitialized(node) {
		return nil
	}
	m.AdditionalLabels = map[string]string{}
	if _, known := node.Labels[labelZoneID]; !known {
		z, err := i.zones.get(ctx, m.Zone)
		if err != nil {
			return err
		}
		m.AdditionalLabels[labelZoneID] = z.id
	}
	if _, known := node.Labels[labelNetworkLayer+"1"]; known || one.id == "" {
		return nil
	}
	layers, err := i.topology.of(ctx, one, i.newcomers)
	maps.Copy(m.AdditionalLabels, layers)
	return err
}

// newcomers are the instances of nodes that wait to be initialised.
func (i *instances) newcomers() []string {
	return i.idsOf(guard.Uninitialized)
}

// unready are the instances of nodes that the lifecycle loop asks about.
func (i *instances) unready() []string {
	return i.idsOf(func(n *v1.Node) bool { return !nodeview.Ready(n) })
}

func (i *instances) idsOf(chosen func(*v1.Node) bool) []string {
	if i.lister == nil {
		return nil
	}
	nodes, err := i.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	var ids []string
	for _, n := range nodes {
		if !chosen(n) {
			continue
		}
		if id, ok := i.knownID(n); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// knownID is the ID of a node's instance as far as it is known without a read: from the provider ID, from the name, or from the
// listing that has an instance of that DNS name.
func (i *instances) knownID(n *v1.Node) (string, bool) {
	if id, err := parseProviderID(n.Spec.ProviderID); err == nil || n.Spec.ProviderID != "" {
		return id, err == nil
	}
	if id, ok := idInName(n.Name); ok {
		return id, true
	}
	if found := i.all.PeekIndex(indexDNS, n.Name); len(found) == 1 {
		return found[0].id, true
	}
	return "", false
}

// lookup finds the instance of a node: by provider ID, else by a name that is the instance's ID, else by its private DNS
// name.
func (i *instances) lookup(ctx context.Context, node *v1.Node, q inventory.Query) (instance, error) {
	company := i.unready
	if guard.Uninitialized(node) {
		company = i.newcomers
	}
	ctx = inventory.Also(ctx, company)
	if node.Spec.ProviderID != "" {
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			return instance{}, err
		}
		return i.all.Get(ctx, id, q)
	}
	if id, ok := idInName(node.Name); ok {
		q.MaxMissAge = max(q.MaxMissAge, namedMissAge)
		return i.all.Get(ctx, id, q)
	}
	_, self, err := i.api.ready(ctx)
	if err != nil {
		return instance{}, err
	}
	if self.selfID != "" && node.Name == self.selfDNS {
		return i.all.Get(ctx, self.selfID, q)
	}
	if q.MaxMissAge == 0 {
		// Without a provider ID no answer deletes anything, so the absence of a name needs no read of its own.
		q.MaxMissAge = existsMost
	}
	found, err := i.byNameOrAddress(ctx, node, q)
	switch {
	case err != nil:
		return instance{}, err
	case len(found) == 0:
		return instance{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "finding the instance of the node", Message: fmt.Sprintf(
			"no instance with the tag %s has the private DNS name %s, nor an address of the node; tag the instance, name the node like it, or start kubelet with --provider-id=%s/<zone>/<instance ID>", self.clusterTag(), node.Name, providerIDPrefix)}
	case len(found) > 1:
		return instance{}, &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the instance of the node", Message: fmt.Sprintf(
			"%d instances have the private DNS name or an address of %s; start kubelet with --provider-id=%s/<zone>/<instance ID>", len(found), node.Name, providerIDPrefix)}
	}
	return found[0], nil
}

// byNameOrAddress finds instances with the private DNS name of a node, else with an address that its kubelet tells.
func (i *instances) byNameOrAddress(ctx context.Context, node *v1.Node, q inventory.Query) ([]instance, error) {
	found, err := i.all.Find(ctx, indexDNS, node.Name, q)
	for _, address := range toldAddresses(node) {
		if err != nil || len(found) > 0 {
			break
		}
		if found, err = i.all.Find(ctx, indexIP, address, q); err == nil && len(found) == 1 {
			err = i.checkTold(node, found[0], address)
		}
	}
	return found, err
}

// checkTold refuses an instance that is found by nothing but an address that the node's kubelet tells, where somebody else has a
// better claim: a kubelet must not become another node's instance by writing its address.
func (i *instances) checkTold(node *v1.Node, one instance, address string) error {
	refuse := func(reason string) error {
		return &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the instance of the node", Message: fmt.Sprintf(
			"instance %s has the address %s that kubelet tells, but %s; name the node like its instance, or start kubelet with --provider-id=%s/<zone>/<instance ID>", one.id, address, reason, providerIDPrefix)}
	}
	if len(one.interfaces) == 0 || one.interfaces[0].index != 0 || !slices.Contains(slices.Concat(one.interfaces[0].privateIPs, one.interfaces[0].ipv6), address) {
		return refuse("not on its first interface")
	}
	if i.lister == nil {
		return nil
	}
	nodes, err := i.lister.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("looking for other nodes of instance %s: %w", one.id, err)
	}
	for _, other := range nodes {
		if other.Name == node.Name {
			continue
		}
		if id, err := parseProviderID(other.Spec.ProviderID); (err == nil && id == one.id) || other.Name == one.privateDNS || strings.HasPrefix(other.Name, one.id) {
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

func namedByID(node *v1.Node) bool {
	_, named := idInName(node.Name)
	return named
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

// lastSegment is what a provider ID names. The form without a scheme is an older kubelet's.
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

// warm begins the first listing before the first question.
func (i *instances) warm(ctx context.Context) error {
	_, err := i.all.All(ctx, inventory.Query{MaxAge: existsLeast})
	return err
}
