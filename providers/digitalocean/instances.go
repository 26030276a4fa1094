package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	providerIDPrefix = "digitalocean://"

	statusOff = "off"

	// callPrice limits nodes that stay down to 1,440 of 5,000 calls an hour.
	callPrice = 2500 * time.Millisecond

	indexName = "name"
	indexTag  = "tag"
	indexIP   = "ip"
)

// droplet keeps the few fields that we need of several kilobytes.
type droplet struct {
	id                            int
	name, status, size, region    string
	privateV4, publicV4, publicV6 string
	tags                          []string
}

func newDroplet(d *godo.Droplet) droplet {
	kept := droplet{id: d.ID, name: d.Name, status: d.Status, size: d.SizeSlug, tags: d.Tags}
	if d.Region != nil {
		kept.region = d.Region.Slug
	}
	kept.privateV4, _ = d.PrivateIPv4() // an error means that it has no networks yet
	kept.publicV4, _ = d.PublicIPv4()
	kept.publicV6, _ = d.PublicIPv6()
	return kept
}

func (d droplet) ips() []string {
	return slices.DeleteFunc([]string{d.privateV4, d.publicV4, d.publicV6}, func(ip string) bool { return ip == "" })
}

// addresses returns the addresses in the order of DigitalOcean's own controller.
func (d droplet) addresses() []v1.NodeAddress {
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: d.name}, {Type: v1.NodeInternalIP, Address: d.privateV4}}
	for _, ip := range []string{d.publicV4, d.publicV6} {
		if ip != "" {
			list = append(list, v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip})
		}
	}
	return list
}

// missingData returns what a droplet lacks to become a node, or "".
func (d droplet) missingData() string {
	switch {
	case d.privateV4 == "":
		return "it has no private IPv4 address yet; every node needs one, so check that it is in a VPC"
	case d.region == "":
		return "the API does not tell its region"
	}
	return ""
}

func newDropletInventory(a *api) *inventory.Inventory[int, droplet] {
	return inventory.New(inventory.Source[int, droplet]{
		Kind: "droplet", ID: func(d droplet) int { return d.id }, List: a.droplets, Get: a.droplet,
		Indexes: map[string]func(droplet) []string{
			indexName: func(d droplet) []string { return []string{strings.ToLower(d.name)} },
			indexIP:   droplet.ips,
		},
	})
}

// instances describes nodes by their droplets.
type instances struct {
	*nodes.Instances[int, droplet]
	droplets *inventory.Inventory[int, droplet]
	nodes    *nodecount.Counter
}

func newInstances(a *api) *instances {
	i := &instances{droplets: newDropletInventory(a), nodes: &nodecount.Counter{}}
	i.Instances = nodes.New(nodes.Cloud[int, droplet]{
		Kind: "droplet", Inventory: i.droplets, Nodes: i.nodes, Price: callPrice,
		Form: providerIDPrefix + "<droplet ID>", Parse: parseProviderID, Print: droplet.providerID,
		Search: i.search, State: droplet.state, Metadata: i.describe,
		Tags:   func(d droplet) map[string]string { return nodes.BareTags(d.tags) },
		Verify: i.verify, Attested: droplet.attested, Absent: "there is no droplet %d",
	})
	return i
}

// search finds a droplet by name, then by address, because some nodes are named after one.
func (*instances) search(_ context.Context, node *v1.Node) (nodes.Search[int, droplet], error) {
	return nodes.Search[int, droplet]{Keys: []nodes.Key[droplet]{
		{Index: indexName, Value: strings.ToLower(node.Name)},
		{Index: indexIP, Value: node.Name},
	}}, nil
}

func (d droplet) state() (nodes.State, error) {
	if d.status == statusOff {
		return nodes.ShutDown, nil
	}
	return nodes.Existing, nil
}

func (*instances) describe(_ context.Context, _ *v1.Node, d droplet, _ inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	if lack := d.missingData(); lack != "" {
		return nil, &nodes.Incomplete{Reason: fmt.Sprintf("droplet %d cannot become a node: %s", d.id, lack)}
	}
	return &cloudprovider.InstanceMetadata{InstanceType: d.size, Region: d.region, NodeAddresses: d.addresses()}, nil
}

// verify compares names: controlling a kubelet does not allow renaming the droplet.
func (*instances) verify(_ context.Context, node *v1.Node, d droplet) (why string, err error) {
	if d.name != node.Name {
		return fmt.Sprintf("the droplet %d is named %q", d.id, d.name), nil
	}
	return "", nil
}

// attested returns all names and addresses: DigitalOcean assigns the addresses, and a guest cannot rename the droplet.
func (d droplet) attested() contract.Attested {
	return contract.Attested{Names: []string{d.name}, Addresses: contract.AttestedAddresses(d.ips()...)}
}

func (d droplet) providerID() string { return providerIDPrefix + strconv.Itoa(d.id) }

func parseProviderID(text string) (int, error) {
	number, ok := strings.CutPrefix(text, providerIDPrefix)
	if !ok {
		return 0, fmt.Errorf("provider ID %q does not begin with %s", text, providerIDPrefix)
	}
	if number == "" {
		return 0, fmt.Errorf("provider ID %q has no droplet ID after %s", text, providerIDPrefix)
	}
	id, err := strconv.Atoi(number)
	if err != nil || id < 1 {
		return 0, fmt.Errorf("provider ID %q: %q is not a droplet ID, which is a positive whole number", text, number)
	}
	return id, nil
}
