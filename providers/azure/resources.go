package azure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/shared"
)

// resources reads and writes documents of the network. singles are those that are not listed, such as subnets.
type resources struct {
	api           *api
	loadBalancers *inventory.Inventory[string, doc]
	routeTables   *inventory.Inventory[string, doc]
	singles       *inventory.Inventory[string, doc]
	writer        shared.Writer[draft]

	mu sync.Mutex
	// byPath are the public addresses and private link services of resource groups, by the path of their listing.
	byPath    map[string]*inventory.Inventory[string, doc]
	zoneNames []string
	zonesRead bool
	// elsewhere are the last known public addresses for Services outside of the usual resource group, by their IDs in lower case; nil before
	// the first listing.
	elsewhere map[string]*publicIP
}

func newResources(a *api) *resources {
	r := &resources{api: a}
	usual := inventory.New(inventory.Source[string, doc]{Kind: "public address", ID: docID, Get: r.get, List: r.listUsual})
	r.byPath = map[string]*inventory.Inventory[string, doc]{r.addressPath(a.config.Group): usual}
	r.loadBalancers = r.inventory("load balancer", a.config.networkPath(a.config.LBGroup, "loadBalancers"))
	r.routeTables = r.inventory("route table", a.config.networkPath(a.config.RouteGroup, "routeTables"))
	r.singles = inventory.New(inventory.Source[string, doc]{Kind: "network resource", ID: docID, Get: r.get})
	return r
}

func docID(d doc) string { return strings.ToLower(textOf(d, "id")) }

func (r *resources) inventory(kind, path string) *inventory.Inventory[string, doc] {
	return inventory.New(inventory.Source[string, doc]{
		Kind: kind, ID: docID, Get: r.get, List: func(ctx context.Context) ([]doc, int, error) {
			return list[doc](ctx, r.api, kind+"s", path, networkVersion)
		},
	})
}

func (r *resources) get(ctx context.Context, id string) (d doc, err error) {
	err = r.api.get(ctx, "resource "+nameOf(id), id, networkVersion, &d)
	if err == nil && docID(d) != id {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "reading resource " + nameOf(id), Message: "the answer is about another resource"}
	}
	return d, err
}

// inventoryOf returns the inventory that a resource belongs to.
func (r *resources) inventoryOf(id string) *inventory.Inventory[string, doc] {
	switch id = strings.ToLower(id); {
	case strings.Contains(id, "/loadbalancers/"):
		return r.loadBalancers
	case strings.Contains(id, "/routetables/"):
		return r.routeTables
	case strings.Contains(id, "/publicipaddresses/"):
		return r.addressesOf(groupOf(id))
	case strings.Contains(id, "/privatelinkservices/"):
		return r.linksOf(groupOf(id))
	}
	return r.singles
}

// linksOf are the private link services of a resource group.
func (r *resources) linksOf(group string) *inventory.Inventory[string, doc] {
	return r.inventoryAt("private link service", r.linkPath(group))
}

// addressesOf are the public addresses of a resource group.
func (r *resources) addressesOf(group string) *inventory.Inventory[string, doc] {
	return r.inventoryAt("public address", r.addressPath(strings.ToLower(group)))
}

func (r *resources) inventoryAt(kind, path string) *inventory.Inventory[string, doc] {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.byPath[path] == nil {
		r.byPath[path] = r.inventory(kind, path)
	}
	return r.byPath[path]
}

// linkPath is where the private link services of a resource group are: in the subscription of the machines.
func (r *resources) linkPath(group string) string {
	return groupPath(r.api.config.Subscription, group, "Microsoft.Network") + "/privateLinkServices"
}

func (r *resources) addressPath(group string) string {
	return r.api.config.networkPath(group, "publicIPAddresses")
}

// forgetGroup forgets a resource group that is missing or not accessible, because annotations may name any.
func (r *resources) forgetGroup(group string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.byPath, r.addressPath(group))
	delete(r.byPath, r.linkPath(group))
}

// documentAge is the maximum age of a document to write: Azure refuses an old one by its ETag.
const documentAge = time.Minute

func (r *resources) read(ctx context.Context, id string, fresh bool) (doc, error) {
	q := inventory.Query{MaxAge: documentAge}
	if fresh {
		q = inventory.Query{}
	}
	d, err := r.inventoryOf(id).Get(ctx, strings.ToLower(id), q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil //nolint:nilnil // nil is a document that does not exist
	}
	return d, err
}

// readAs reads a document into a struct; nil is one that does not exist.
func readAs[T any](ctx context.Context, r *resources, id string, fresh bool) (*T, error) {
	d, err := r.read(ctx, id, fresh)
	return parse[T](d), err
}

func (r *resources) invalidate(id string) { r.inventoryOf(id).Invalidate(strings.ToLower(id)) }

// zones are those of the region, for what is made new.
func (r *resources) zones(ctx context.Context) ([]string, error) {
	if r.api.config.EdgeName != "" {
		return nil, nil
	}
	r.mu.Lock()
	known, read := r.zoneNames, r.zonesRead
	r.mu.Unlock()
	if read {
		return known, nil
	}
	var answer struct {
		Types []struct {
			Type  string `json:"resourceType"`
			Zones []struct {
				Location string   `json:"location"`
				Zones    []string `json:"zones"`
			} `json:"zoneMappings"`
		} `json:"resourceTypes"`
	}
	path := "/subscriptions/" + r.api.config.NetworkSubscription + "/providers/Microsoft.Compute"
	if err := r.api.get(ctx, "the zones of the region", path, zonesVersion, &answer); err != nil {
		return nil, err
	}
	plain := func(s string) string { return strings.ToLower(strings.ReplaceAll(s, " ", "")) }
	for _, t := range answer.Types {
		if !strings.EqualFold(t.Type, "virtualMachines") {
			continue
		}
		for _, z := range t.Zones {
			if plain(z.Location) == plain(r.api.config.Location) {
				known = slices.Sorted(slices.Values(z.Zones))
			}
		}
	}
	r.mu.Lock()
	r.zoneNames, r.zonesRead = known, true
	r.mu.Unlock()
	return known, nil
}
