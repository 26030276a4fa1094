package gce

import (
	"context"
	"slices"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const indexGroup = "group"

func (p place) backend(name string) string { return p.regional("backendServices", name) }

func (p place) healthCheck(name string) string {
	return "projects/" + p.project + "/global/healthChecks/" + name
}

func (p place) group(id groupID) string {
	return "projects/" + p.project + "/zones/" + id.zone + "/instanceGroups/" + id.name
}

type groupID struct{ zone, name string }

// group is an instance group with the paths of its members.
type group struct {
	id      groupID
	members []string
}

// newGroups reads instance groups and their members one by one: each zone has one for all internal load balancers.
func newGroups(a *api) *inventory.Inventory[groupID, *group] {
	return inventory.New(inventory.Source[groupID, *group]{
		Kind: "instance group", ID: func(g *group) groupID { return g.id }, GetCalls: 2,
		Get: a.group,
	})
}

func (a *api) group(ctx context.Context, id groupID) (*group, error) {
	at, err := a.places.get(ctx)
	if err != nil {
		return nil, err
	}
	found, err := a.sdk.InstanceGroups.Get(at.project, id.zone, id.name).Context(ctx).Do()
	if err == nil && found.Name != id.name {
		err = errWrongAnswer
	}
	if err != nil {
		return nil, apiError(err, "reading instance group "+id.name)
	}
	members, err := a.members(ctx, at, id)
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	return &group{id: id, members: members}, nil
}

// members returns the instances of a group.
func (a *api) members(ctx context.Context, at place, id groupID) (all []string, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	for token := ""; ; {
		call := a.sdk.InstanceGroups.ListInstances(at.project, id.zone, id.name, &compute.InstanceGroupsListInstancesRequest{InstanceState: "ALL"}).
			MaxResults(pageSize).Context(ctx)
		if token != "" {
			call.PageToken(token)
		}
		l, err := call.Do()
		if err == nil && (l.Kind != "compute#instanceGroupsListInstances" || (l.Warning != nil && l.Warning.Code != noResults)) {
			err = errWrongAnswer
		}
		if err == nil {
			err = listing.Add(len(l.Items))
		}
		if err != nil {
			return nil, apiError(err, "listing the instances of group "+id.name)
		}
		for _, i := range l.Items {
			all = append(all, resource(i.Instance))
		}
		if token = l.NextPageToken; token == "" {
			return all, nil
		}
		if err := listing.Turn(token); err != nil {
			return nil, err
		}
	}
}

// groupsNamed returns the zones of the region that have an instance group of this name.
func (a *api) groupsNamed(ctx context.Context, at place, name string) (zones []string, err error) {
	ctx, listing := cloudapi.WatchListing(ctx)
	for token := ""; ; {
		call := a.sdk.InstanceGroups.AggregatedList(at.project).Filter("name eq " + name).MaxResults(pageSize).Context(ctx)
		if token != "" {
			call.PageToken(token)
		}
		l, err := call.Do()
		if err == nil && (l.Kind != "compute#instanceGroupAggregatedList" || len(l.Unreachables) > 0) {
			err = errWrongAnswer
		}
		if err != nil {
			return nil, cloudapi.NotAbsence(apiError(err, "listing the instance groups "+name))
		}
		for scope, list := range l.Items {
			if err := listing.Add(len(list.InstanceGroups)); err != nil {
				return nil, err
			}
			if zone := lastPart(scope); len(list.InstanceGroups) > 0 && regionOf(zone) == at.region {
				zones = append(zones, zone)
			}
		}
		if token = l.NextPageToken; token == "" {
			slices.Sort(zones)
			return slices.Compact(zones), nil
		}
		if err := listing.Turn(token); err != nil {
			return nil, err
		}
	}
}

func newBackends(a *api) *store[*compute.BackendService] {
	return newStore(a, collection[
		*compute.BackendService, *compute.BackendServiceList, *compute.RegionBackendServicesListCall, *compute.RegionBackendServicesGetCall,
	]{
		one: "backend service", many: "backend services", kind: "compute#backendServiceList",
		list: func(at place) *compute.RegionBackendServicesListCall {
			return a.sdk.RegionBackendServices.List(at.project, at.region)
		},
		get: func(at place, name string) *compute.RegionBackendServicesGetCall {
			return a.sdk.RegionBackendServices.Get(at.project, at.region, name)
		},
		page: func(l *compute.BackendServiceList) page[*compute.BackendService] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name: func(v *compute.BackendService) string { return v.Name },
		indexes: map[string]func(*compute.BackendService) []string{
			indexCheck: func(v *compute.BackendService) []string { return lastParts(v.HealthChecks) },
			indexGroup: func(v *compute.BackendService) (paths []string) {
				for _, b := range v.Backends {
					paths = append(paths, resource(b.Group))
				}
				return paths
			},
		},
	})
}

func newNodeChecks(a *api) *store[*compute.HealthCheck] {
	return newStore(a, collection[
		*compute.HealthCheck, *compute.HealthCheckList, *compute.HealthChecksListCall, *compute.HealthChecksGetCall,
	]{
		one: "health check", many: "health checks", kind: "compute#healthCheckList",
		list: func(at place) *compute.HealthChecksListCall { return a.sdk.HealthChecks.List(at.project) },
		get: func(at place, name string) *compute.HealthChecksGetCall {
			return a.sdk.HealthChecks.Get(at.project, name)
		},
		page: func(l *compute.HealthCheckList) page[*compute.HealthCheck] {
			return newPage(l.Items, l.NextPageToken, l.Kind, l.Warning)
		},
		name: func(v *compute.HealthCheck) string { return v.Name },
	})
}
