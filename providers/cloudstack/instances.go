package cloudstack

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// callPrice is how often nodes that are down for good may cost a call.
	callPrice = 2 * time.Second
	indexName = "name"

	// details are those of a virtual machine that are asked for. Statistics are slow, and all of them together show what the server encodes
	// in different ways.
	details = "min,nics,servoff"
)

// instances are the virtual machines, and what they say about nodes.
type instances struct {
	*nodes.Instances[string, vm]
	api       *api
	inventory *inventory.Inventory[string, vm]
	networks  *inventory.Inventory[string, network]
	nodes     *nodecount.Counter

	// witness looks for what belongs to the Services of the cluster.
	witness func(ctx context.Context) (testimony, error)

	mu sync.Mutex
	// homes are networks that machines of the cluster's nodes were seen in.
	homes map[string]bool
	// listed is the latest complete listing.
	listed []vm
	// absent is when virtual machines were proved to be gone, by their IDs.
	absent map[string]time.Time
}

func newInstances(a *api) *instances {
	i := &instances{
		api: a, nodes: &nodecount.Counter{}, homes: map[string]bool{}, absent: map[string]time.Time{},
		witness: func(context.Context) (testimony, error) { return testimony{}, nil },
	}
	i.networks = inventory.New(inventory.Source[string, network]{
		Kind: "network", ID: func(n network) string { return n.ID }, List: a.networks, Get: a.network,
	})
	i.inventory = inventory.New(inventory.Source[string, vm]{
		Kind: "virtual machine", ID: func(v vm) string { return v.ID }, List: i.list, Get: i.read,
		Indexes: map[string]func(vm) []string{indexName: names},
	})
	i.Instances = nodes.New(nodes.Cloud[string, vm]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<UUID>", Parse: parseProviderID, Print: func(v vm) string { return providerIDPrefix + v.ID }, Names: namesInstance,
		Search: search, State: vm.state, Metadata: i.describe, Verify: verify, Attested: vm.attested,
	})
	return i
}

func (a *api) vms(ctx context.Context) ([]vm, int, error) {
	l := listing{what: "listing virtual machines", command: "listVirtualMachines", key: "virtualmachine", scope: true}
	all, calls, err := listOnce(ctx, a, l, params{"details": details}, func(v vm) string { return v.ID })
	for n := range all {
		all[n].ID = strings.ToLower(all[n].ID)
	}
	return all, calls, err
}

// read reads one virtual machine. One that was expunged is not shown, and neither is one that the user may not see; of an ID that was never
// given the API says so. None of it proves that the machine is gone, which a complete listing has to show as well.
func (i *instances) read(ctx context.Context, id string) (vm, error) {
	l := listing{what: "reading virtual machine " + id, command: "listVirtualMachines", key: "virtualmachine", scope: true}
	found, _, err := list[vm](ctx, i.api, l, params{"id": id, "details": details})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && len(found) == 0:
		return vm{}, i.prove(ctx, id)
	case err != nil:
		return vm{}, err
	case len(found) != 1 || !strings.EqualFold(found[0].ID, id):
		return vm{}, cloudapi.Unclear(l.what, "the answer is about another virtual machine")
	}
	found[0].ID = strings.ToLower(found[0].ID)
	return found[0], nil
}

// attested are the name and the addresses that the management server knows.
func (v vm) attested() contract.Attested {
	a := contract.Attested{Names: []string{v.Name}, Addresses: contract.AttestedAddresses(v.PublicIP)}
	for _, n := range v.NICs {
		a.Addresses = append(a.Addresses, contract.AttestedAddresses(n.IP)...)
	}
	return a
}

// search finds the virtual machine of a node that names none: by its name, or by the first label of that. Names of virtual machines have no
// dots, and their case does not count.
func search(_ context.Context, node *v1.Node) (nodes.Search[string, vm], error) {
	full := strings.ToLower(node.Name)
	keys := []nodes.Key[vm]{{Index: indexName, Value: full}}
	if label, _, dotted := strings.Cut(full, "."); dotted {
		keys = append(keys, nodes.Key[vm]{Index: indexName, Value: label})
	}
	return nodes.Search[string, vm]{Keys: keys}, nil
}
