package ovirt

import (
	"context"
	"fmt"
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
	// callPrice is the time per call for permanently failed nodes.
	callPrice = 5 * time.Second
)

// instances reads the virtual machines as the source of nodes' metadata.
type instances struct {
	*nodes.Instances[string, vm]
	api       *api
	inventory *inventory.Inventory[string, vm]
	nodes     *nodecount.Counter
	states    newStates
}

func newInstances(a *api) *instances {
	i := &instances{api: a, nodes: &nodecount.Counter{}}
	a.members = func() []string { return membersOf(i.nodes.Nodes()) }
	i.inventory = inventory.New(inventory.Source[string, vm]{
		Kind: "virtual machine", ID: func(v vm) string { return v.ID }, List: a.instances, Get: a.instance, Narrowed: a.config.Filter != "",
		Indexes: map[string]func(vm) []string{indexName: vm.names},
	})
	i.Instances = nodes.New(nodes.Cloud[string, vm]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<UUID>", Parse: parseProviderID, Print: func(v vm) string { return a.config.ProviderIDForm + v.ID },
		Search: i.search, State: i.state, Metadata: i.describe, Verify: verify, AllTags: a.tags,
		Unattested: "its addresses are what its guest reports",
	})
	return i
}

// search finds the virtual machine of a node without a provider ID: by the node's name, or else by its first label.
func (i *instances) search(_ context.Context, node *v1.Node) (nodes.Search[string, vm], error) {
	first, _, _ := strings.Cut(node.Name, ".")
	s := nodes.Search[string, vm]{
		Keys: []nodes.Key[vm]{{Index: indexName, Value: node.Name, Check: func(v vm) error { return i.checkUnambiguous(v, node.Name, first) }}},
		None: fmt.Sprintf("no virtual machine has the name %s, and none that runs reports it as its FQDN; rename the virtual machine, or", node.Name),
	}
	if i.api.config.Filter != "" {
		s.None = strings.Replace(s.None, "no virtual machine", "no virtual machine of the filter vms", 1)
	}
	if first != node.Name {
		s.Keys = append(s.Keys, nodes.Key[vm]{Index: indexName, Value: first})
	}
	s.Several = "%d virtual machines have the name " + node.Name + i.idsOf(s.Keys) + "; rename all but one, or"
	return s, nil
}

// checkUnambiguous refuses a virtual machine found by its FQDN, which its guest chooses, if another one's name is the first label.
func (i *instances) checkUnambiguous(v vm, name, first string) error {
	for _, other := range i.inventory.PeekIndex(indexName, first) {
		if other.ID != v.ID && !strings.EqualFold(v.Name, name) && strings.EqualFold(other.Name, first) {
			return &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the virtual machine of the node", Message: fmt.Sprintf(
				"the guest of virtual machine %s reports the FQDN %s, and %s has its first label as its name; correct the FQDN or the name of one, or "+
					"start kubelet with --provider-id=%s<UUID>", v, name, other, providerIDPrefix)}
		}
	}
	return nil
}

// idsOf lists the virtual machines with the same key, for the message about several.
func (i *instances) idsOf(keys []nodes.Key[vm]) string {
	for _, k := range keys {
		if ids := i.inventory.PeekIndex(k.Index, k.Value); len(ids) > 0 {
			names := make([]string, len(ids))
			for n, v := range ids {
				names[n] = v.String()
			}
			return " (" + strings.ReplaceAll(strings.Join(names, ", "), "%", "%%") + ")"
		}
	}
	return ""
}

func (i *instances) state(v vm) (nodes.State, error) {
	return i.states.stateFor(v, i.api.seesHosts.Load()), nil
}

// describe returns a node's metadata from its virtual machine. Existing metadata of a Node is not changed.
func (i *instances) describe(ctx context.Context, node *v1.Node, v vm, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	m := &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID}
	var err error
	if m.InstanceType, err = i.api.instanceType(ctx, v); err != nil {
		return nil, err
	}
	if m.Zone, m.Region, err = i.api.zone(ctx, v); err != nil {
		return nil, err
	}
	keep := func(key string, value *string) {
		if has := node.Labels[key]; has != "" {
			*value = has
		}
	}
	keep(v1.LabelTopologyZone, &m.Zone)
	keep(v1.LabelTopologyRegion, &m.Region)
	addresses, missing := i.api.config.addresses(v, node)
	if missing != "" && contract.Uninitialized(node) {
		return nil, &nodes.Incomplete{Reason: missing}
	}
	m.NodeAddresses = addresses // none while the guest agent is silent, so that the Node's present ones stay
	return m, nil
}

// verify compares the name in the engine, which no guest can change, with the node's.
func verify(_ context.Context, node *v1.Node, v vm) (why string, err error) {
	return nodes.VerifyName(node, "virtual machine "+v.ID, v.Name), nil
}
