package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	indexName = "name"
	// callPrice is how often nodes that are down for good may cost a call.
	callPrice = time.Second
	// minAge is the least age of an answer about them: a listing lacks the state of some machines, which then takes a read for each.
	minAge = 10 * time.Second
	// labelGroup names the resource group of a node whose machine is in another one than the cluster's; labelManaged is "false" on nodes
	// whose machines Azure does not have.
	labelGroup   = "kubernetes.azure.com/resource-group"
	labelManaged = "kubernetes.azure.com/managed"
)

// machine holds the fields of a virtual machine of either kind, as Azure shows them.
type machine struct {
	ID         string                `json:"id"`
	Name       string                `json:"name"`
	Location   string                `json:"location"`
	Zones      []string              `json:"zones"`
	Tags       map[string]string     `json:"tags"`
	SKU        struct{ Name string } `json:"sku"`
	Properties struct {
		State    string `json:"provisioningState"`
		Hardware struct {
			Size string `json:"vmSize"`
		} `json:"hardwareProfile"`
		OS struct {
			ComputerName string `json:"computerName"`
		} `json:"osProfile"`
		Network struct {
			Interfaces []struct {
				ID         string `json:"id"`
				Properties struct {
					Primary bool `json:"primary"`
				} `json:"properties"`
			} `json:"networkInterfaces"`
		} `json:"networkProfile"`
		View *instanceView `json:"instanceView"`
		Set  *struct {
			ID string `json:"id"`
		} `json:"virtualMachineScaleSet"`
		Availability *struct {
			ID string `json:"id"`
		} `json:"availabilitySet"`
	} `json:"properties"`
}

// instanceView is the state of a machine at run time.
type instanceView struct {
	FaultDomain *int `json:"platformFaultDomain"`
	Statuses    []struct {
		Code string `json:"code"`
	} `json:"statuses"`
}

// id is "" if this is no machine.
func (m machine) id() machineID {
	id, err := parseProviderID(providerIDPrefix + m.ID)
	if err != nil {
		return ""
	}
	return id
}

// primaryInterface is the ID of the primary network interface, else of the first.
func (m machine) primaryInterface() string {
	list := m.Properties.Network.Interfaces
	for _, nic := range list {
		if nic.Properties.Primary {
			return nic.ID
		}
	}
	if len(list) > 0 {
		return list[0].ID
	}
	return ""
}

// scaleSet holds the fields of a scale set that we use.
type scaleSet struct {
	Name       string `json:"name"`
	Properties struct {
		Mode string `json:"orchestrationMode"`
	} `json:"properties"`
}

func (s scaleSet) uniform() bool { return !strings.EqualFold(s.Properties.Mode, "Flexible") }

// instances are the virtual machines, and what they say about nodes.
type instances struct {
	nodes.API
	machines  *nodes.Instances[machineID, machine]
	inventory *inventory.Inventory[machineID, machine]
	networks  *interfaces
	api       *api
	nodes     *nodecount.Counter
}

func newInstances(a *api) *instances {
	i := &instances{api: a, nodes: &nodecount.Counter{}}
	i.networks = newInterfaces(a, i.resourceGroups)
	i.inventory = inventory.New(inventory.Source[machineID, machine]{
		Kind: "virtual machine", ID: machine.id, List: i.list, Get: i.get,
		Indexes: map[string]func(machine) []string{indexName: machine.matchNames},
	})
	i.machines = nodes.New(nodes.Cloud[machineID, machine]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, MinAge: minAge, Inventory: i.inventory,
		Form:  providerIDPrefix + "/subscriptions/<ID>/resourceGroups/<name>/providers/Microsoft.Compute/…",
		Parse: parseProviderID, Print: func(m machine) string { return canonicalMachineID(m.ID) },
		Search: search, State: machine.state, Metadata: i.describe, Verify: verify,
		Tags:       func(m machine) map[string]string { return m.Tags },
		Unattested: "the name of its computer is what its guest was given, and its interfaces are read apart",
	})
	i.API = nodes.Split{API: i.machines, IsOther: isUnmanaged, Other: nodes.Unmanaged{}}
	return i
}

// isUnmanaged reports whether the machine of a node is not Azure's.
func isUnmanaged(node *v1.Node) bool {
	return strings.EqualFold(node.Labels[labelManaged], "false") || isOtherAzureResource(node.Spec.ProviderID)
}

// matchNames returns the names that match a node: the computer's, and outside of uniform scale sets the machine's.
func (m machine) matchNames() []string {
	var list []string
	if name := strings.ToLower(m.Properties.OS.ComputerName); name != "" {
		list = append(list, name)
	}
	if _, uniform := m.id().uniform(); !uniform && !slices.Contains(list, strings.ToLower(m.Name)) {
		list = append(list, strings.ToLower(m.Name))
	}
	return list
}

// resourceGroups returns the groups that contain machines of nodes.
func (i *instances) resourceGroups() []string {
	groups := []string{i.api.config.Group}
	for _, n := range i.nodes.Nodes() {
		if g := strings.ToLower(n.Labels[labelGroup]); g != "" && !slices.Contains(groups, g) {
			groups = append(groups, g)
		}
	}
	slices.Sort(groups[1:])
	return groups
}

// list reads all machines: one listing of a resource group, one of its scale sets, one of each uniform scale set.
func (i *instances) list(ctx context.Context) (all []machine, pages int, err error) {
	l := listing{
		what: "virtual machines", setWhat: "machines", path: "Microsoft.Compute/virtualMachines", version: computeVersion, setVersion: computeVersion,
	}
	if !i.api.config.WithoutView {
		l.setQuery = []string{"$expand", "instanceView"}
	}
	return listAll[machine](ctx, i.networks, l)
}

// get reads one machine, with what Azure knows of it at run time.
func (i *instances) get(ctx context.Context, id machineID) (m machine, err error) {
	what := "virtual machine " + nameOf(string(id))
	if !i.api.config.isOwnSubscription(id) {
		return m, &cloudapi.Error{Class: cloudapi.ErrInvalid, Operation: "reading " + what, Message: "it is in another subscription than subscriptionId says"}
	}
	err = i.api.get(ctx, what, string(id), computeVersion, &m, "$expand", "instanceView")
	if err == nil && m.id() != id {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading " + what, Message: "the answer is about another machine"}
	}
	if err == nil && m.Properties.View == nil {
		m.Properties.View = &instanceView{}
	}
	return m, err
}

// search finds the machine of a node without a provider ID.
func search(_ context.Context, node *v1.Node) (nodes.Search[machineID, machine], error) {
	return nodes.Search[machineID, machine]{Keys: []nodes.Key[machine]{{Index: indexName, Value: strings.ToLower(node.Name)}}}, nil
}

// isShutDown reports whether a machine with this power state does not run.
func isShutDown(power string) bool {
	return slices.Contains([]string{"stopped", "deallocated", "deallocating"}, power)
}

// state says what matters to Kubernetes about the states of a machine. One that is being deleted never runs again.
func (m machine) state() (nodes.State, error) {
	switch {
	case strings.EqualFold(m.Properties.State, "Deleting"):
		return nodes.Terminated, nil
	case m.Properties.View == nil:
		return nodes.Existing, &nodes.Incomplete{Reason: "the listing of virtual machines has no power state"}
	case strings.EqualFold(m.Properties.State, "Succeeded") && isShutDown(m.powerState()):
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

func (m machine) powerState() string {
	if m.Properties.View == nil {
		return ""
	}
	for _, s := range m.Properties.View.Statuses {
		if state, ok := strings.CutPrefix(strings.ToLower(s.Code), "powerstate/"); ok {
			return state
		}
	}
	return ""
}

// describe returns what a machine says about its node.
func (i *instances) describe(ctx context.Context, node *v1.Node, m machine, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	nicID := m.primaryInterface()
	if nicID == "" || m.Properties.OS.ComputerName == "" {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("virtual machine %s cannot become a node yet: it has no network interface or no computer name", m.Name)}
	}
	nic, err := i.networks.nics.Get(ctx, strings.ToLower(nicID), q)
	if err != nil {
		return nil, err
	}
	addresses := []v1.NodeAddress{{Type: v1.NodeHostName, Address: node.Name}}
	for _, version := range []string{"IPv4", "IPv6"} {
		config := nic.primary(version)
		if config == nil {
			continue
		}
		addresses = append(addresses, v1.NodeAddress{Type: v1.NodeInternalIP, Address: config.Properties.Address})
		if public := config.Properties.Public; public != nil {
			p, err := i.networks.addresses.Get(ctx, strings.ToLower(public.ID), q)
			if err != nil {
				return nil, err
			}
			if ip := p.Properties.Address; ip != "" {
				addresses = append(addresses, v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip})
			}
		}
	}
	if len(addresses) == 1 {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("virtual machine %s cannot become a node yet: its network interface has no address", m.Name)}
	}
	zone, err := i.zone(ctx, node, m)
	if err != nil {
		return nil, err
	}
	return &cloudprovider.InstanceMetadata{
		InstanceType: cmp.Or(m.SKU.Name, m.Properties.Hardware.Size), Region: strings.ToLower(m.Location), Zone: zone, NodeAddresses: addresses,
	}, nil
}

// addressesOf are the addresses of the machine's primary network interface; none if Azure has no such machine. They are read again if the
// Node reports another address.
func (i *instances) addressesOf(ctx context.Context, node *v1.Node) ([]v1.NodeAddress, error) {
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return nil, nil //nolint:nilerr // another cloud's node, which is behind no load balancer
	}
	nics, err := i.networks.nics.Find(ctx, indexMachine, string(id), queryMembers)
	if err == nil && len(nics) == 0 {
		nics, err = i.interfacesElsewhere(ctx, id)
	}
	if err != nil || len(nics) == 0 {
		return nil, err
	}
	has := nics[0].addresses()
	told := slices.ContainsFunc(node.Status.Addresses, func(a v1.NodeAddress) bool {
		return a.Type == v1.NodeInternalIP && !slices.ContainsFunc(has, func(h v1.NodeAddress) bool { return sameIP(h.Address, a.Address) })
	})
	if !told {
		return has, nil
	}
	nic, err := i.networks.nics.Get(ctx, strings.ToLower(nics[0].ID), inventory.Query{MaxAge: observeMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil
	}
	return nic.addresses(), err
}

// interfacesElsewhere reads a machine's primary network interface if its resource group is not listed.
func (i *instances) interfacesElsewhere(ctx context.Context, id machineID) ([]networkInterface, error) {
	m, err := i.inventory.Get(ctx, id, queryMembers)
	nicID := m.primaryInterface()
	if errors.Is(err, cloudapi.ErrNotFound) || err == nil && nicID == "" {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	nic, err := i.networks.nics.Get(ctx, strings.ToLower(nicID), queryMembers)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil
	}
	return []networkInterface{nic}, err
}

// zone is the availability zone, else the fault domain, which never changes: a Node that has it needs no read.
func (i *instances) zone(ctx context.Context, node *v1.Node, m machine) (string, error) {
	if len(m.Zones) > 0 {
		return strings.ToLower(m.Location) + "-" + m.Zones[0], nil
	}
	view := m.Properties.View
	if known := node.Labels[v1.LabelTopologyZone]; view == nil && known != "" && !contract.Uninitialized(node) {
		return known, nil
	}
	if view == nil || view.FaultDomain == nil {
		view = &instanceView{}
		what := "the fault domain of " + m.Name
		if err := i.api.get(ctx, what, string(m.id())+"/instanceView", computeVersion, view); err != nil {
			return "", cloudapi.NotAbsence(err)
		}
	}
	if view.FaultDomain == nil {
		return "0", nil // a machine that stands alone
	}
	return strconv.Itoa(*view.FaultDomain), nil
}

// verify compares names: control of a kubelet is not enough to rename a machine.
func verify(_ context.Context, node *v1.Node, m machine) (why string, err error) {
	if !slices.Contains(m.matchNames(), strings.ToLower(node.Name)) {
		return fmt.Sprintf("the virtual machine %s has the computer name %q", m.Name, m.Properties.OS.ComputerName), nil
	}
	return "", nil
}
