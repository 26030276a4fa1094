package gce

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"

	compute "google.golang.org/api/compute/v1"
	"google.golang.org/api/googleapi"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const (
	indexIP    = "ip"
	indexCheck = "check"
	indexGroup = "group"
)

// store is the shared view of a collection, by name.
type store[T any] = inventory.Inventory[string, T]

// stores are the collections of objects that make up load balancers.
type stores struct {
	rules     *store[*compute.ForwardingRule]
	firewalls *store[*compute.Firewall]
	addresses *store[*compute.Address]
	networks  *store[network]
	// External load balancers only.
	pools      *store[*compute.TargetPool]
	httpChecks *store[*compute.HealthCheck]
	// Internal load balancers only.
	backends *store[*compute.BackendService]
	checks   *store[*compute.HealthCheck]
	groups   *inventory.Inventory[groupID, *group]
}

// forget has the objects of a load balancer read again.
func (s *stores) forget(name string) {
	s.rules.Invalidate(name)
	s.addresses.Invalidate(name)
	s.pools.Invalidate(name)
	s.pools.Invalidate(nextPoolName(name))
	s.httpChecks.Invalidate(name)
	s.backends.Invalidate(name)
	s.checks.Invalidate(name)
	for _, firewall := range ownFirewallNames(name) {
		s.firewalls.Invalidate(firewall)
	}
}

// listCall has the common methods of the SDK's calls that list objects.
type listCall[C, L any] interface {
	MaxResults(most int64) C
	PageToken(token string) C
	Context(ctx context.Context) C
	Do(options ...googleapi.CallOption) (L, error)
}

// collection describes how the objects of one kind are read.
type collection[T, L any, C listCall[C, L]] struct {
	// one and many are for messages; kind identifies a page's content.
	one, many, kind string
	list            func(at location) C
	page            func(L) (items []T, next, kind string, warning any)
	get             func(ctx context.Context, at location, name string) (T, error)
	name            func(T) string
	// perPage is the page size, by default pageSize. A smaller one also raises the limit of a listing's size.
	perPage int64
	// keep replaces an object before it is stored, to share equal content.
	keep func(T) T
	// indexes are those besides the names.
	indexes map[string]func(T) []string
}

func newStore[T, L any, C listCall[C, L]](a *api, c collection[T, L, C]) *store[T] {
	indexes := map[string]func(T) []string{indexName: func(v T) []string { return []string{c.name(v)} }}
	maps.Copy(indexes, c.indexes)
	return inventory.New(inventory.Source[string, T]{
		Kind: c.one, ID: c.name, Indexes: indexes, Keep: c.keep,
		List: func(ctx context.Context) ([]T, int, error) { return listAll(ctx, a, c) },
		Get:  func(ctx context.Context, name string) (T, error) { return readOne(ctx, a, c, name) },
	})
}

// listAll reads all pages of a collection. It fails if a page is incomplete.
func listAll[T, L any, C listCall[C, L]](ctx context.Context, a *api, c collection[T, L, C]) (all []T, pages int, err error) {
	at, err := a.locator.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	call := func() C { return c.list(at).MaxResults(cmp.Or(c.perPage, pageSize)) }
	pages, err = readPages(ctx, "listing "+c.many, c.perPage != 0, call, func(l L) (int, string, error) {
		items, next, kind, warning := c.page(l)
		switch code := warningCode(warning); {
		case kind != c.kind:
			return 0, "", cloudapi.ErrWrongAnswer
		case code != "" && code != noResults:
			return 0, "", &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "a partial listing: " + code}
		}
		for _, v := range items {
			if c.keep != nil { // share equal content early, to save memory
				v = c.keep(v)
			}
			all = append(all, v)
		}
		return len(items), next, nil
	})
	if err != nil {
		return nil, pages, err
	}
	return all, pages, nil
}

// warningCode returns the code of a listing's warning: the SDK has a type for each listing.
func warningCode(warning any) string {
	var w struct{ Code string }
	text, _ := json.Marshal(warning) // it came from JSON
	_ = json.Unmarshal(text, &w)     // likewise
	return w.Code
}

// readPages reads the pages of a listing. take takes one, and returns its number of objects and the token of the next page.
func readPages[C listCall[C, L], L any](
	ctx context.Context, what string, large bool, newCall func() C, take func(L) (objects int, next string, err error),
) (pages int, err error) {
	watch := cloudapi.WatchListing
	if large {
		watch = cloudapi.WatchLargeListing
	}
	ctx, listing := watch(ctx)
	for token := ""; ; {
		pages++
		call, objects := newCall().Context(ctx), 0
		if token != "" {
			call = call.PageToken(token)
		}
		l, err := call.Do()
		if err == nil {
			objects, token, err = take(l)
		}
		if err == nil {
			err = listing.Add(objects)
		}
		if err != nil {
			return pages, apiError(err, what)
		}
		if token == "" {
			return pages, nil
		}
		if err := listing.Turn(token); err != nil {
			return pages, err
		}
	}
}

// readOne reads one object, and fails if the response holds another one.
func readOne[T, L any, C listCall[C, L]](ctx context.Context, a *api, c collection[T, L, C], name string) (v T, err error) {
	var none T
	at, err := a.locator.get(ctx)
	if err != nil {
		return none, err
	}
	v, err = c.get(ctx, at, name)
	if err == nil && c.name(v) != name {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		return none, apiError(err, "reading "+c.one+" "+name)
	}
	return v, nil
}

func newStores(a *api) *stores {
	return &stores{
		rules: newRules(a), firewalls: newFirewalls(a), addresses: newAddresses(a), networks: newNetworks(a),
		pools: newPools(a), httpChecks: newHTTPChecks(a),
		backends: newBackends(a), checks: newChecks(a), groups: newGroups(a),
	}
}

func newRules(a *api) *store[*compute.ForwardingRule] {
	return newStore(a, collection[*compute.ForwardingRule, *compute.ForwardingRuleList, *compute.ForwardingRulesListCall]{
		one: "forwarding rule", many: "forwarding rules", kind: "compute#forwardingRuleList",
		list: func(at location) *compute.ForwardingRulesListCall {
			return a.sdk.ForwardingRules.List(at.project, at.region)
		},
		get: func(ctx context.Context, at location, name string) (*compute.ForwardingRule, error) {
			return a.sdk.ForwardingRules.Get(at.project, at.region, name).Context(ctx).Do()
		},
		page: func(l *compute.ForwardingRuleList) ([]*compute.ForwardingRule, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name: func(v *compute.ForwardingRule) string { return v.Name },
		indexes: map[string]func(*compute.ForwardingRule) []string{
			indexIP: func(v *compute.ForwardingRule) []string { return []string{v.IPAddress} },
		},
	})
}

// poolsPerPage is the page size for target pools. Each lists up to 1,000 instances of 130 bytes, so that 500 would exceed the limit of a
// response.
const poolsPerPage = 100

// keepPool stores equal lists of instances, including their order, once.
func keepPool() func(*compute.TargetPool) *compute.TargetPool {
	lists := inventory.NewLists[string]()
	return func(v *compute.TargetPool) *compute.TargetPool {
		kept := *v
		kept.Instances = lists.Same(slices.Sorted(slices.Values(v.Instances)))
		return &kept
	}
}

func newPools(a *api) *store[*compute.TargetPool] {
	return newStore(a, collection[*compute.TargetPool, *compute.TargetPoolList, *compute.TargetPoolsListCall]{
		one: "target pool", many: "target pools", kind: "compute#targetPoolList",
		list: func(at location) *compute.TargetPoolsListCall { return a.sdk.TargetPools.List(at.project, at.region) },
		get: func(ctx context.Context, at location, name string) (*compute.TargetPool, error) {
			return a.sdk.TargetPools.Get(at.project, at.region, name).Context(ctx).Do()
		},
		page: func(l *compute.TargetPoolList) ([]*compute.TargetPool, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name:    func(v *compute.TargetPool) string { return v.Name },
		perPage: poolsPerPage, keep: keepPool(),
		indexes: map[string]func(*compute.TargetPool) []string{
			indexCheck: func(v *compute.TargetPool) []string { return lastParts(v.HealthChecks) },
		},
	})
}

// newHTTPChecks reads HTTP health checks as those of the newer kind.
func newHTTPChecks(a *api) *store[*compute.HealthCheck] {
	return newStore(a, collection[*compute.HealthCheck, *compute.HttpHealthCheckList, *compute.HttpHealthChecksListCall]{
		one: "HTTP health check", many: "HTTP health checks", kind: "compute#httpHealthCheckList",
		list: func(at location) *compute.HttpHealthChecksListCall { return a.sdk.HttpHealthChecks.List(at.project) },
		get: func(ctx context.Context, at location, name string) (*compute.HealthCheck, error) {
			v, err := a.sdk.HttpHealthChecks.Get(at.project, name).Context(ctx).Do()
			if err != nil {
				return nil, err
			}
			return fromHTTPCheck(v), nil
		},
		page: func(l *compute.HttpHealthCheckList) ([]*compute.HealthCheck, string, string, any) {
			items := make([]*compute.HealthCheck, len(l.Items))
			for i, v := range l.Items {
				items[i] = fromHTTPCheck(v)
			}
			return items, l.NextPageToken, l.Kind, l.Warning
		},
		name: func(v *compute.HealthCheck) string { return v.Name },
	})
}

func newFirewalls(a *api) *store[*compute.Firewall] {
	return newStore(a, collection[*compute.Firewall, *compute.FirewallList, *compute.FirewallsListCall]{
		one: "firewall rule", many: "firewall rules", kind: "compute#firewallList",
		list: func(at location) *compute.FirewallsListCall { return a.sdk.Firewalls.List(at.networkProject) },
		get: func(ctx context.Context, at location, name string) (*compute.Firewall, error) {
			return a.sdk.Firewalls.Get(at.networkProject, name).Context(ctx).Do()
		},
		page: func(l *compute.FirewallList) ([]*compute.Firewall, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name: func(v *compute.Firewall) string { return v.Name },
	})
}

func newAddresses(a *api) *store[*compute.Address] {
	return newStore(a, collection[*compute.Address, *compute.AddressList, *compute.AddressesListCall]{
		one: "address", many: "addresses", kind: "compute#addressList",
		list: func(at location) *compute.AddressesListCall { return a.sdk.Addresses.List(at.project, at.region) },
		get: func(ctx context.Context, at location, name string) (*compute.Address, error) {
			return a.sdk.Addresses.Get(at.project, at.region, name).Context(ctx).Do()
		},
		page: func(l *compute.AddressList) ([]*compute.Address, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name:    func(v *compute.Address) string { return v.Name },
		indexes: map[string]func(*compute.Address) []string{indexIP: func(v *compute.Address) []string { return []string{v.Address} }},
	})
}

func newBackends(a *api) *store[*compute.BackendService] {
	return newStore(a, collection[*compute.BackendService, *compute.BackendServiceList, *compute.RegionBackendServicesListCall]{
		one: "backend service", many: "backend services", kind: "compute#backendServiceList",
		list: func(at location) *compute.RegionBackendServicesListCall {
			return a.sdk.RegionBackendServices.List(at.project, at.region)
		},
		get: func(ctx context.Context, at location, name string) (*compute.BackendService, error) {
			return a.sdk.RegionBackendServices.Get(at.project, at.region, name).Context(ctx).Do()
		},
		page: func(l *compute.BackendServiceList) ([]*compute.BackendService, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
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

func newChecks(a *api) *store[*compute.HealthCheck] {
	return newStore(a, collection[*compute.HealthCheck, *compute.HealthCheckList, *compute.HealthChecksListCall]{
		one: "health check", many: "health checks", kind: "compute#healthCheckList",
		list: func(at location) *compute.HealthChecksListCall { return a.sdk.HealthChecks.List(at.project) },
		get: func(ctx context.Context, at location, name string) (*compute.HealthCheck, error) {
			return a.sdk.HealthChecks.Get(at.project, name).Context(ctx).Do()
		},
		page: func(l *compute.HealthCheckList) ([]*compute.HealthCheck, string, string, any) {
			return l.Items, l.NextPageToken, l.Kind, l.Warning
		},
		name: func(v *compute.HealthCheck) string { return v.Name },
	})
}

// newGroups reads instance groups and their members one by one: each zone has one for all internal load balancers.
func newGroups(a *api) *inventory.Inventory[groupID, *group] {
	return inventory.New(inventory.Source[groupID, *group]{
		Kind: "instance group", ID: func(g *group) groupID { return g.id }, GetCalls: 2, Get: a.group,
	})
}

func (a *api) group(ctx context.Context, id groupID) (*group, error) {
	at, err := a.locator.get(ctx)
	if err != nil {
		return nil, err
	}
	found, err := a.sdk.InstanceGroups.Get(at.project, id.zone, id.name).Context(ctx).Do()
	if err == nil && found.Name != id.name {
		err = cloudapi.ErrWrongAnswer
	}
	if err != nil {
		return nil, apiError(err, "reading instance group "+id.name)
	}
	members, err := a.members(ctx, at, id)
	if err != nil {
		return nil, err
	}
	return &group{id: id, members: members}, nil
}

// members returns the instances of a group.
func (a *api) members(ctx context.Context, at location, id groupID) (all []string, err error) {
	_, err = readPages(ctx, "listing the instances of group "+id.name, false, func() *compute.InstanceGroupsListInstancesCall {
		state := &compute.InstanceGroupsListInstancesRequest{InstanceState: "ALL"}
		return a.sdk.InstanceGroups.ListInstances(at.project, id.zone, id.name, state).MaxResults(pageSize)
	}, func(l *compute.InstanceGroupsListInstances) (int, string, error) {
		if l.Kind != "compute#instanceGroupsListInstances" || (l.Warning != nil && l.Warning.Code != noResults) {
			return 0, "", cloudapi.ErrWrongAnswer
		}
		for _, i := range l.Items {
			all = append(all, resource(i.Instance))
		}
		return len(l.Items), l.NextPageToken, nil
	})
	return all, cloudapi.NotAbsence(err)
}

// groupsNamed returns the zones of the region that have an instance group of this name.
func (a *api) groupsNamed(ctx context.Context, at location, name string) (zones []string, err error) {
	_, err = readPages(ctx, "listing the instance groups "+name, false, func() *compute.InstanceGroupsAggregatedListCall {
		return a.sdk.InstanceGroups.AggregatedList(at.project).Filter("name eq " + name).MaxResults(pageSize)
	}, func(l *compute.InstanceGroupAggregatedList) (objects int, next string, err error) {
		if l.Kind != "compute#instanceGroupAggregatedList" || len(l.Unreachables) > 0 {
			return 0, "", cloudapi.ErrWrongAnswer
		}
		for scope, list := range l.Items {
			objects += len(list.InstanceGroups)
			if zone := lastPart(scope); len(list.InstanceGroups) > 0 && regionOf(zone) == at.region {
				zones = append(zones, zone)
			}
		}
		return objects, l.NextPageToken, nil
	})
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	slices.Sort(zones)
	return slices.Compact(zones), nil
}

func lastParts(links []string) []string {
	names := make([]string, len(links))
	for i, l := range links {
		names[i] = lastPart(l)
	}
	return names
}

// find returns the object of this name, or the zero value if it is proved to be missing.
func find[T any](ctx context.Context, s *store[T], name string, q inventory.Query) (v T, err error) {
	found, err := s.Find(ctx, indexName, name, q)
	if err != nil || len(found) == 0 {
		return v, err
	}
	return found[0], nil
}

// putOne creates or changes an object, and returns the result. After a failure the object is in doubt, because the call may have taken
// effect.
func putOne[T any](ctx context.Context, a *api, s *store[T], like T, path, what string, call requestFunc) (v T, err error) {
	err = a.sendAndWait(ctx, path, what, call)
	s.Put(like)
	if err != nil {
		s.Doubt(lastPart(path))
		return v, err
	}
	s.Invalidate(lastPart(path))
	return s.Get(ctx, lastPart(path), inventory.Query{})
}

// deleteOne deletes an object; a missing one counts as deleted.
func deleteOne[T any](ctx context.Context, a *api, s *store[T], path, what string, call requestFunc) error {
	name := lastPart(path)
	err := a.sendAndWait(ctx, path, what, call)
	if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
		s.Forget(name)
		return nil
	}
	s.Doubt(name)
	return err
}

// isInUse reports whether the cloud refused a deletion because another object refers to it.
func isInUse(err error) bool {
	said, ok := errors.AsType[*cloudapi.Error](err)
	return ok && errors.Is(err, cloudapi.ErrConflict) && strings.Contains(said.Message, "being used by")
}
