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
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// callPrice limits the calls for nodes that stay down.
	callPrice = 2 * time.Second
	indexName = "name"

	// details limits what the API returns about a virtual machine: statistics are slow.
	details = "min,nics,servoff"
)

// instances describes nodes by their virtual machines.
type instances struct {
	*nodes.Instances[string, vm]
	api       *api
	inventory *inventory.Inventory[string, vm]
	nodes     *nodecount.Counter

	// objects and cluster show load balancers of the cluster, which prove that the user still sees it.
	objects *inventories
	cluster *ownership.Cluster
	// networks holds listings only: networks that were read by ID would vouch for a wrongly empty listing.
	networks *inventory.Inventory[string, network]

	mu sync.Mutex
	// nodeNetworks holds networks in which nodes of the cluster were seen.
	nodeNetworks  map[string]bool
	latestListing []vm
	// provedAbsent holds when virtual machines were proved to be gone, by ID.
	provedAbsent map[string]time.Time
}

func newInstances(a *api) *instances {
	i := &instances{
		api: a, nodes: &nodecount.Counter{}, objects: newInventories(a), cluster: &ownership.Cluster{},
		nodeNetworks: map[string]bool{}, provedAbsent: map[string]time.Time{},
	}
	i.networks = inventory.New(networkSource(a))
	i.inventory = inventory.New(inventory.Source[string, vm]{
		Kind: "virtual machine", ID: func(v vm) string { return v.ID }, List: i.list, Get: i.read,
		Indexes: map[string]func(vm) []string{indexName: names},
	})
	i.Instances = nodes.New(nodes.Cloud[string, vm]{
		Kind: "virtual machine", Nodes: i.nodes, Price: callPrice, Inventory: i.inventory,
		Form: providerIDPrefix + "<UUID>", Parse: parseProviderID, Print: func(v vm) string { return providerIDPrefix + v.ID }, Names: namesInstance,
		Search: search, State: vm.state, Metadata: i.describe, Verify: verify, Attested: vm.attested, Tags: vm.tags,
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

// read reads one virtual machine. The API answers alike for an expunged and an invisible one, so a complete listing must confirm the
// absence.
func (i *instances) read(ctx context.Context, id string) (vm, error) {
	l := listing{what: "reading virtual machine " + id, command: "listVirtualMachines", key: "virtualmachine", scope: true}
	found, _, err := list[vm](ctx, i.api, l, params{"id": id, "details": details})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && len(found) == 0:
		return vm{}, i.proveAbsence(ctx, id)
	case err != nil:
		return vm{}, err
	case len(found) != 1 || !strings.EqualFold(found[0].ID, id):
		return vm{}, cloudapi.Unclear(l.what, "the answer is about another virtual machine")
	}
	found[0].ID = strings.ToLower(found[0].ID)
	return found[0], nil
}

// attested returns the name and addresses known to the management server.
func (v vm) attested() contract.Attested {
	a := contract.Attested{Names: []string{v.Name}, Addresses: contract.AttestedAddresses(v.PublicIP)}
	for _, n := range v.NICs {
		a.Addresses = append(a.Addresses, contract.AttestedAddresses(n.IP)...)
	}
	return a
}

// search finds the virtual machine of a Node without provider ID by the Node's name or its first label. Machine names contain no dots and
// are case-insensitive.
func search(_ context.Context, node *v1.Node) (nodes.Search[string, vm], error) {
	full := strings.ToLower(node.Name)
	keys := []nodes.Key[vm]{{Index: indexName, Value: full}}
	if label, _, dotted := strings.Cut(full, "."); dotted {
		keys = append(keys, nodes.Key[vm]{Index: indexName, Value: label})
	}
	return nodes.Search[string, vm]{Keys: keys}, nil
}
