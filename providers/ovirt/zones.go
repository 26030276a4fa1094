package ovirt

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"time"

	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/restapi"
)

const (
	// placesMaxAge is how old the listings of what virtual machines refer to may be.
	placesMaxAge = 10 * time.Minute
	// placesMinAge is how old they may be where one does not have what is looked for.
	placesMinAge = time.Minute
)

// place is an object that virtual machines refer to: a cluster, a data center or an instance type.
type place struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	DataCenter *ref   `json:"data_center"`
}

// list is a listing of places that is kept for a while. A listing that the user may not read is empty.
type list struct {
	kind      string
	inventory *inventory.Inventory[string, place]
	warned    sync.Once
}

// places are the listings.
type places struct{ clusters, dataCenters, types *list }

func newPlaces(a *api) places {
	return places{
		clusters: a.list("clusters", "cluster"), dataCenters: a.list("datacenters", "data_center"), types: a.list("instancetypes", "instance_type"),
	}
}

func (a *api) list(path, item string) *list {
	l := &list{kind: path}
	l.inventory = inventory.New(inventory.Source[string, place]{Kind: item, ID: func(p place) string { return p.ID }, List: func(
		ctx context.Context,
	) (all []place, calls int, err error) {
		err = a.keeper.Do(ctx, func(s restapi.Tokens) error {
			var answer map[string]json.RawMessage
			err := cloudapi.NotAbsence(a.get(ctx, s, "listing "+path, "/"+path, &answer))
			if err != nil || answer[item] == nil {
				return err
			}
			if err := json.Unmarshal(answer[item], &all); err != nil {
				return cloudapi.Unclear("listing "+path, "the answer is not that of the engine; "+checkAddress)
			}
			return nil
		})
		if errors.Is(err, errDenied) {
			return nil, 1, nil // find warns
		}
		return all, 1, err
	}})
	return l
}

// find returns the place with an ID, and false where the listing does not show it: a filtered user sees those on which he has a
// permission.
func (l *list) find(ctx context.Context, id string) (place, bool, error) {
	if id == "" {
		return place{}, false, nil
	}
	for _, age := range []time.Duration{placesMaxAge, placesMinAge} {
		all, err := l.inventory.All(ctx, inventory.Query{MaxAge: age})
		if err != nil {
			return place{}, false, err
		}
		for _, p := range all {
			if (&ref{p.ID}).id() == id {
				return p, true, nil
			}
		}
	}
	l.warned.Do(func() {
		klog.InfoS("The user may not see an object that virtual machines refer to; nodes do not get the label that comes from it", "listing", l.kind, "id", id)
	})
	return place{}, false, nil
}

// zone returns the zone and the region of a virtual machine: its cluster and its data center. What the user may not see is "".
func (a *api) zone(ctx context.Context, v vm) (zone, region string, err error) {
	if a.config.Zones == zonesOff {
		return "", "", nil
	}
	text := func(p place) string {
		if a.config.Zones == zonesByID {
			return p.ID
		}
		return label(p.Name, p.ID)
	}
	cluster, found, err := a.places.clusters.find(ctx, v.Cluster.id())
	if err != nil || !found {
		return "", "", err
	}
	center, found, err := a.places.dataCenters.find(ctx, cluster.DataCenter.id())
	if err != nil || !found {
		return text(cluster), "", err
	}
	return text(cluster), text(center), nil
}

// instanceType returns the name of a virtual machine's instance type, "" where it has none.
func (a *api) instanceType(ctx context.Context, v vm) (string, error) {
	t, found, err := a.places.types.find(ctx, v.InstanceType.id())
	if err != nil || !found {
		return "", err
	}
	return label(t.Name, t.ID), nil
}
