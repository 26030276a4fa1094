package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/nodeview"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

const (
	providerIDPrefix = "digitalocean://"

	statusOff = "off"

	// The age of the answer "this droplet exists" spares 2 reads every 5 s for each node that is not ready, and keeps a
	// deleted droplet's Node that much longer. It grows with the account: at one call in 2.5 s, nodes that are down for
	// good cost 1,440 calls an hour at most, of 5,000.
	existsPerCall = 2500 * time.Millisecond
	existsLeast   = 10 * time.Second
	existsMost    = 45 * time.Second
	// sweepMaxAge serves the address loop, which asks about every node every 5 minutes.
	sweepMaxAge = 60 * time.Second
	// missMaxAge spares reads for a node that fails to initialise: the framework tries 9 times in the first second.
	missMaxAge = 5 * time.Second

	indexName = "name"
	indexTag  = "tag"
	indexIP   = "ip"
)

// droplet is what the provider keeps of a droplet: a few words of the several kilobytes that the API tells.
type droplet struct {
	id                            int
	name, status, size, region    string
	privateV4, publicV4, publicV6 string
}

func newDroplet(d *godo.Droplet) droplet {
	kept := droplet{id: d.ID, name: d.Name, status: d.Status, size: d.SizeSlug}
	if d.Region != nil {
		kept.region = d.Region.Slug
	}
	if d.Networks == nil {
		return kept
	}
	for _, n := range d.Networks.V4 {
		switch {
		case n.Type == "private" && kept.privateV4 == "":
			kept.privateV4 = n.IPAddress
		case n.Type == "public" && kept.publicV4 == "":
			kept.publicV4 = n.IPAddress
		}
	}
	for _, n := range d.Networks.V6 {
		if n.Type == "public" && kept.publicV6 == "" {
			kept.publicV6 = n.IPAddress
		}
	}
	return kept
}

func (d droplet) ips() []string {
	return slices.DeleteFunc([]string{d.privateV4, d.publicV4, d.publicV6}, func(ip string) bool { return ip == "" })
}

// addresses are in the order that DigitalOcean's own controller reports them.
func (d droplet) addresses() []v1.NodeAddress {
	list := []v1.NodeAddress{{Type: v1.NodeHostName, Address: d.name}, {Type: v1.NodeInternalIP, Address: d.privateV4}}
	for _, ip := range []string{d.publicV4, d.publicV6} {
		if ip != "" {
			list = append(list, v1.NodeAddress{Type: v1.NodeExternalIP, Address: ip})
		}
	}
	return list
}

// incomplete says what a droplet lacks to become a node, or "".
func (d droplet) incomplete() string {
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

// instances implements cloudprovider.InstancesV2.
type instances struct {
	droplets *inventory.Inventory[int, droplet]
	nodes    *nodeview.View
}

var _ cloudprovider.InstancesV2 = (*instances)(nil)

// InstanceExists reports whether the node's droplet exists, in whatever state. Only the API's own answer to a read of
// that very droplet counts as its absence; a node without a provider ID is never absent, for names can change.
func (i *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	_, err := i.lookup(ctx, node, i.existsQuery())
	if errors.Is(err, cloudapi.ErrNotFound) && node.Spec.ProviderID != "" {
		return false, nil
	}
	return err == nil, err
}

// InstanceShutdown reports whether the node's droplet is powered off.
func (i *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	d, err := i.lookup(ctx, node, i.existsQuery())
	if err != nil {
		return false, err
	}
	return d.status == statusOff, nil
}

func (i *instances) existsQuery() inventory.Query {
	return inventory.Query{MaxAge: i.droplets.Affordable(existsPerCall, existsLeast, existsMost), Expected: i.nodes.Counts().NotReady}
}

// InstanceMetadata returns what the node's droplet tells about the node.
func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	query := inventory.Query{MaxAge: sweepMaxAge, MaxMissAge: missMaxAge, Expected: i.nodes.Counts().All}
	if guard.Uninitialized(node) {
		query.Expected, query.Newcomer = i.nodes.Counts().Uninitialized, true
	}
	d, err := i.lookup(ctx, node, query)
	if err == nil && d.incomplete() != "" {
		// A listing may have caught the droplet in the making.
		query.MaxAge = 0
		d, err = i.lookup(ctx, node, query)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, fmt.Errorf("node %s: %w: %w", node.Name, cloudprovider.InstanceNotFound, err)
	}
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	if lack := d.incomplete(); lack != "" {
		return nil, fmt.Errorf("node %s: droplet %d cannot become a node: %s", node.Name, d.id, lack)
	}
	return &cloudprovider.InstanceMetadata{
		ProviderID: providerIDPrefix + strconv.Itoa(d.id), InstanceType: d.size, Region: d.region, NodeAddresses: d.addresses(),
	}, nil
}

// lookup finds the droplet of a node: by provider ID, or while it has none by name, then by address for nodes that are
// named by one.
func (i *instances) lookup(ctx context.Context, node *v1.Node, q inventory.Query) (droplet, error) {
	if node.Spec.ProviderID != "" {
		id, err := parseProviderID(node.Spec.ProviderID)
		if err != nil {
			return droplet{}, err
		}
		return i.droplets.Get(ctx, id, q)
	}
	if q.MaxMissAge == 0 {
		// Without a provider ID no answer deletes anything, so the absence of a name needs no read of its own.
		q.MaxMissAge = existsMost
	}
	found, err := i.droplets.Find(ctx, indexName, strings.ToLower(node.Name), q)
	if err == nil && len(found) == 0 {
		found, err = i.droplets.Find(ctx, indexIP, node.Name, q)
	}
	switch {
	case err != nil:
		return droplet{}, err
	case len(found) == 0:
		return droplet{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "finding the droplet of the node", Message: fmt.Sprintf(
			"no droplet is named %s; name the droplet like the node, or start kubelet with --provider-id=%s<droplet ID>", node.Name, providerIDPrefix)}
	case len(found) > 1:
		return droplet{}, &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: "finding the droplet of the node", Message: fmt.Sprintf(
			"%d droplets are named %s; rename all but one, or start kubelet with --provider-id=%s<droplet ID>", len(found), node.Name, providerIDPrefix)}
	}
	return found[0], nil
}

// parseProviderID returns the droplet ID of a provider ID.
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

// warm begins the first listing before the first question.
func (i *instances) warm(ctx context.Context) error {
	_, err := i.droplets.All(ctx, inventory.Query{MaxAge: existsLeast})
	return err
}
