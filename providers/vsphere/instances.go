package vsphere

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/types"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

const (
	indexHost    = "host name"
	indexAddress = "address"
	indexID      = "UUID"
	// callPrice is the time per call for permanently failed nodes.
	callPrice = 5 * time.Second
	// addressMaxAge is the maximum age of a machine's addresses: the framework's periodic update refreshes them every few minutes while
	// vCenter answers, and otherwise load balancers use the last known ones.
	addressMaxAge = time.Hour
	// readCalls is how many calls a single read takes: a search and a read.
	readCalls = 2
)

// instances reads the virtual machines as the source of nodes' metadata.
type instances struct {
	*nodes.Instances[string, instance]
	api       *api
	config    Config
	nodes     *nodecount.Counter
	inventory *inventory.Inventory[string, instance]
}

func newInstances(c Config, a *api) *instances {
	i := &instances{api: a, config: c, nodes: &nodecount.Counter{}}
	i.inventory = inventory.New(inventory.Source[string, instance]{
		Kind: "virtual machine", ID: func(i instance) string { return i.ID }, List: a.listInstances, Get: a.readInstance, GetCalls: readCalls,
		Indexes: map[string]func(instance) []string{
			indexHost: hostNames, indexAddress: ipAddresses, indexID: func(i instance) []string { return []string{i.ID} },
		},
	})
	i.Instances = nodes.New(nodes.Cloud[string, instance]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<UUID>", Parse: a.parse, Print: printProviderID,
		Search: i.searchByName, State: stateOf, Metadata: i.readMetadata, Verify: verifyName, AllTags: a.machineTags,
		Unattested: "its addresses and the name of its host are what its guest reports",
	})
	return i
}

func printProviderID(i instance) string {
	if m, err := i.chooseMachine(""); err == nil {
		return providerIDPrefix + m.UUID
	}
	return providerIDPrefix + i.Machines[0].UUID // copies have the same
}

// hostNames returns the host names that the guests of an instance report, in the configured datacenters only: elsewhere names mean little.
func hostNames(i instance) []string {
	var list []string
	for _, m := range i.Machines {
		if m.HostName != "" && !m.Outside {
			list = append(list, strings.ToLower(m.HostName))
		}
	}
	return list
}

func ipAddresses(i instance) []string {
	var list []string
	add := func(text string) {
		if ip, err := netip.ParseAddr(text); err == nil && isUsable(ip) {
			list = append(list, ip.String())
		}
	}
	for _, m := range i.Machines {
		if m.Outside {
			continue
		}
		add(m.IPAddress)
		for _, nic := range m.NICs {
			for _, text := range nic.IpAddress {
				add(text)
			}
		}
	}
	return list
}

// searchByName finds the instance of a node without a provider ID: by the host name that its guest reports, or by the address in its name.
func (i *instances) searchByName(_ context.Context, node *v1.Node) (nodes.Search[string, instance], error) {
	if problem := i.api.datacenterProblem(); problem != nil {
		return nodes.Search[string, instance]{}, problem
	}
	check := func(found instance) error { return sameUUID(found, node) }
	proves := func(found instance) bool { return reportsUUID(found, node) }
	s := nodes.Search[string, instance]{
		Keys: []nodes.Key[instance]{{Index: indexHost, Value: strings.ToLower(node.Name), Check: check, Proves: proves}},
		None: fmt.Sprintf("the guest of no virtual machine reports the host name %q; start VMware Tools in it, give the guest the "+
			"node's name, or", node.Name),
	}
	if ip, err := netip.ParseAddr(node.Name); err == nil {
		s.Keys = append(s.Keys, nodes.Key[instance]{Index: indexAddress, Value: ip.String(), Check: check, Proves: proves})
	}
	s.Several = "%d virtual machines report the host name " + node.Name + i.pathsOf(node.Name) + "; rename all but one, or"
	return s, nil
}

// datacenterProblem returns the faults in the configured datacenters, as far as the vCenters have shown them.
func (a *api) datacenterProblem() error {
	var problems []error
	for _, v := range a.vcenters {
		v.known.Lock()
		if err := v.known.problem; err != nil {
			problems = append(problems, fmt.Errorf("vCenter %s: %w", v.config.Key, err))
		}
		v.known.Unlock()
	}
	return errors.Join(problems...)
}

// pathsOf returns the inventory paths of the virtual machines with a host name.
func (i *instances) pathsOf(name string) string {
	var list []string
	for _, v := range i.api.vcenters {
		v.known.Lock()
		for _, m := range v.known.shown {
			if strings.EqualFold(m.HostName, name) && !m.Outside && !m.Template {
				list = append(list, m.Path)
			}
		}
		v.known.Unlock()
	}
	if len(list) == 0 {
		return ""
	}
	return " (" + strings.ReplaceAll(strings.Join(list, ", "), "%", "%%") + ")"
}

// reportsUUID reports whether kubelet's system UUID is that of a virtual machine.
func reportsUUID(i instance, node *v1.Node) bool {
	reported := canonicalUUID(node.Status.NodeInfo.SystemUUID)
	return reported != "" && reported == i.ID
}

// sameUUID refuses a virtual machine whose UUID differs from kubelet's system UUID: another one has the node's host name.
func sameUUID(i instance, node *v1.Node) error {
	reported := node.Status.NodeInfo.SystemUUID
	if reported == "" || reportsUUID(i, node) {
		return nil
	}
	names := make([]string, len(i.Machines))
	for n, m := range i.Machines {
		names[n] = fmt.Sprintf("%s with UUID %s", m, m.UUID)
	}
	return fmt.Errorf("kubelet reports the system UUID %q, but the virtual machine with the host name %s is %s; rename that one, or start kubelet with "+
		"--provider-id=%s<UUID>", reported, node.Name, strings.Join(names, ", "), providerIDPrefix)
}

// stateOf maps the power state of a virtual machine.
func stateOf(i instance) (nodes.State, error) {
	m, err := i.chooseMachine("")
	if err != nil {
		return nodes.Existing, err
	}
	switch m.Power {
	case types.VirtualMachinePowerStatePoweredOff, types.VirtualMachinePowerStateSuspended:
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

// readMetadata returns a node's metadata from its instance.
func (i *instances) readMetadata(
	ctx context.Context, node *v1.Node, found instance, _ inventory.Query,
) (*cloudprovider.InstanceMetadata, error) {
	m, err := found.chooseMachine(node.Name)
	if err != nil {
		return nil, err
	}
	v := i.api.vcenter(m.VCenter)
	metadata := &cloudprovider.InstanceMetadata{
		ProviderID: node.Spec.ProviderID, InstanceType: instanceType(m), AdditionalLabels: i.config.NodeLabels,
	}
	if metadata.ProviderID == "" {
		metadata.ProviderID = providerIDPrefix + m.UUID
	}
	if i.config.Labels.isEnabled() {
		if metadata.Zone, metadata.Region, err = v.readZone(ctx, m, i.config.Labels); err != nil {
			return nil, err
		}
	}
	metadata.NodeAddresses, err = i.config.Nodes.addresses(m, node.Name, v.config.IPFamilies)
	if errors.Is(err, errIncomplete) {
		return nil, &nodes.Incomplete{Reason: err.Error()}
	}
	if err != nil {
		return nil, err
	}
	return metadata, nil
}

// addressesOf returns the addresses of a node. The fault of one node, whose kubelet or guest may cause it, is no error, because load
// balancers and routes of all others would wait. A vCenter that does not answer is one.
func (i *instances) addressesOf(ctx context.Context, node *v1.Node) ([]v1.NodeAddress, error) {
	unknown := func(reason error) ([]v1.NodeAddress, error) {
		klog.V(2).InfoS("Not knowing at which addresses a node is reached", "node", node.Name, "reason", reason.Error())
		return nil, nil
	}
	if node.Spec.ProviderID == "" {
		return unknown(errors.New("it is not initialized"))
	}
	id, err := i.api.parse(node.Spec.ProviderID)
	if err != nil {
		return unknown(err)
	}
	// A listing is enough: a proof of absence would cost a full listing, and change nothing here.
	found, err := i.inventory.Find(ctx, indexID, id, inventory.Query{
		MaxAge: addressMaxAge, MaxMissAge: nodes.MissMaxAge, Expected: i.nodes.Counts().All,
	})
	if err == nil && len(found) == 0 {
		if err = i.api.listingErrors(); err == nil {
			return unknown(errors.New("no vCenter shows its virtual machine"))
		}
	}
	if err != nil {
		return nil, fmt.Errorf("finding the addresses of node %s: %w", node.Name, cloudapi.NotAbsence(err))
	}
	m, err := found[0].chooseMachine(node.Name)
	if err != nil {
		return unknown(err)
	}
	has, err := i.config.Nodes.addresses(m, node.Name, i.api.vcenter(m.VCenter).config.IPFamilies)
	if err != nil {
		return unknown(err)
	}
	return nodes.Vouched(node.Status.Addresses, has), nil
}

// listingErrors returns why vCenters did not answer the last listing.
func (a *api) listingErrors() error {
	var problems []error
	for _, v := range a.vcenters {
		v.known.Lock()
		problems = append(problems, v.known.failed)
		v.known.Unlock()
	}
	return errors.Join(problems...)
}

// vcenter returns the vCenter of a machine by its key.
func (a *api) vcenter(key string) *vcenter {
	return a.vcenters[slices.IndexFunc(a.vcenters, func(v *vcenter) bool { return v.config.Key == key })]
}

// verifyName compares the name in vCenter's inventory, which no guest can change, with the node's.
func verifyName(_ context.Context, node *v1.Node, i instance) (why string, err error) {
	m, err := i.chooseMachine(node.Name)
	if err != nil {
		return "", err
	}
	if strings.EqualFold(m.Name, node.Name) {
		return "", nil
	}
	return fmt.Sprintf("the virtual machine %s is named %q", m.Ref.Value, m.Name), nil
}
