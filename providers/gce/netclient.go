package gce

import (
	"context"
	"errors"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const (
	indexIP    = "ip"
	indexCheck = "check"
)

// store is the shared view of the objects of one collection, by their names.
type store[T any] = inventory.Inventory[string, T]

// stores are the objects that load balancers are made of.
type stores struct {
	rules     *store[*compute.ForwardingRule]
	pools     *store[*compute.TargetPool]
	checks    *store[*compute.HttpHealthCheck]
	firewalls *store[*compute.Firewall]
	addresses *store[*compute.Address]
	// These belong to internal load balancers.
	backends   *store[*compute.BackendService]
	nodeChecks *store[*compute.HealthCheck]
	groups     *inventory.Inventory[groupID, *group]
}

// page is one of a listing.
type page[T any] struct {
	items         []T
	next          string
	kind, warning string
}

// listAll reads all pages of a collection. Every one must be whole.
func listAll[T any](
	ctx context.Context, a *api, what, kind string, read func(ctx context.Context, at place, token string) (page[T], error),
) (all []T, pages int, err error) {
	at, err := a.places.get(ctx)
	if err != nil {
		return nil, 0, err
	}
	ctx, listing := cloudapi.WatchListing(ctx)
	for token := ""; ; {
		pages++
		p, err := read(ctx, at, token)
		if err == nil && p.kind != kind {
			err = errWrongAnswer
		}
		if err == nil && p.warning != "" && p.warning != noResults {
			err = &cloudapi.Error{Class: cloudapi.ErrTransient, Message: "a partial listing: " + p.warning}
		}
		if err == nil {
			err = listing.Add(len(p.items))
		}
		if err != nil {
			return nil, pages, apiError(err, "listing "+what)
		}
		all = append(all, p.items...)
		if token = p.next; token == "" {
			return all, pages, nil
		}
		if err := listing.Turn(token); err != nil {
			return nil, pages, err
		}
	}
}

// readOne reads one object, and refuses another one.
func readOne[T any](ctx context.Context, a *api, what, name string, read func(at place) (T, string, error)) (T, error) {
	var none T
	at, err := a.places.get(ctx)
	if err != nil {
		return none, err
	}
	v, got, err := read(at)
	if err == nil && got != name {
		err = errWrongAnswer
	}
	if err != nil {
		return none, apiError(err, "reading "+what+" "+name)
	}
	return v, nil
}

func newStores(a *api) *stores {
	return &stores{
		rules: newRules(a), pools: newPools(a), checks: newChecks(a), firewalls: newFirewalls(a), addresses: newAddresses(a),
		backends: newBackends(a), nodeChecks: newNodeChecks(a), groups: newGroups(a),
	}
}

func newRules(a *api) *store[*compute.ForwardingRule] {
	return inventory.New(inventory.Source[string, *compute.ForwardingRule]{
		Kind: "forwarding rule", ID: func(v *compute.ForwardingRule) string { return v.Name },
		List: func(ctx context.Context) ([]*compute.ForwardingRule, int, error) {
			return listAll(ctx, a, "forwarding rules", "compute#forwardingRuleList",
				func(ctx context.Context, at place, token string) (p page[*compute.ForwardingRule], err error) {
					call := a.sdk.ForwardingRules.List(at.project, at.region).MaxResults(pageSize).Context(ctx)
					if token != "" {
						call.PageToken(token)
					}
					l, err := call.Do()
					if err != nil {
						return p, err //nolint:wrapcheck // named by listAll
					}
					if l.Warning != nil {
						p.warning = l.Warning.Code
					}
					p.items, p.next, p.kind = l.Items, l.NextPageToken, l.Kind
					return p, nil
				})
		},
		Get: func(ctx context.Context, name string) (*compute.ForwardingRule, error) {
			return readOne(ctx, a, "forwarding rule", name, func(at place) (*compute.ForwardingRule, string, error) {
				v, err := a.sdk.ForwardingRules.Get(at.project, at.region, name).Context(ctx).Do()
				if err != nil {
					return nil, "", err //nolint:wrapcheck // named by readOne
				}
				return v, v.Name, nil
			})
		},
		Indexes: map[string]func(*compute.ForwardingRule) []string{
			indexName: func(v *compute.ForwardingRule) []string { return []string{v.Name} },
		},
	})
}

func newPools(a *api) *store[*compute.TargetPool] {
	return inventory.New(inventory.Source[string, *compute.TargetPool]{
		Kind: "target pool", ID: func(v *compute.TargetPool) string { return v.Name },
		List: func(ctx context.Context) ([]*compute.TargetPool, int, error) {
			return listAll(ctx, a, "target pools", "compute#targetPoolList",
				func(ctx context.Context, at place, token string) (p page[*compute.TargetPool], err error) {
					call := a.sdk.TargetPools.List(at.project, at.region).MaxResults(pageSize).Context(ctx)
					if token != "" {
						call.PageToken(token)
					}
					l, err := call.Do()
					if err != nil {
						return p, err //nolint:wrapcheck // named by listAll
					}
					if l.Warning != nil {
						p.warning = l.Warning.Code
					}
					p.items, p.next, p.kind = l.Items, l.NextPageToken, l.Kind
					return p, nil
				})
		},
		Get: func(ctx context.Context, name string) (*compute.TargetPool, error) {
			return readOne(ctx, a, "target pool", name, func(at place) (*compute.TargetPool, string, error) {
				v, err := a.sdk.TargetPools.Get(at.project, at.region, name).Context(ctx).Do()
				if err != nil {
					return nil, "", err //nolint:wrapcheck // named by readOne
				}
				return v, v.Name, nil
			})
		},
		Indexes: map[string]func(*compute.TargetPool) []string{
			indexName: func(v *compute.TargetPool) []string { return []string{v.Name} },
			indexCheck: func(v *compute.TargetPool) (names []string) {
				for _, c := range v.HealthChecks {
					names = append(names, lastPart(c))
				}
				return names
			},
		},
	})
}

func newChecks(a *api) *store[*compute.HttpHealthCheck] {
	return inventory.New(inventory.Source[string, *compute.HttpHealthCheck]{
		Kind: "HTTP health check", ID: func(v *compute.HttpHealthCheck) string { return v.Name },
		List: func(ctx context.Context) ([]*compute.HttpHealthCheck, int, error) {
			return listAll(ctx, a, "HTTP health checks", "compute#httpHealthCheckList",
				func(ctx context.Context, at place, token string) (p page[*compute.HttpHealthCheck], err error) {
					call := a.sdk.HttpHealthChecks.List(at.project).MaxResults(pageSize).Context(ctx)
					if token != "" {
						call.PageToken(token)
					}
					l, err := call.Do()
					if err != nil {
						return p, err //nolint:wrapcheck // named by listAll
					}
					if l.Warning != nil {
						p.warning = l.Warning.Code
					}
					p.items, p.next, p.kind = l.Items, l.NextPageToken, l.Kind
					return p, nil
				})
		},
		Get: func(ctx context.Context, name string) (*compute.HttpHealthCheck, error) {
			return readOne(ctx, a, "HTTP health check", name, func(at place) (*compute.HttpHealthCheck, string, error) {
				v, err := a.sdk.HttpHealthChecks.Get(at.project, name).Context(ctx).Do()
				if err != nil {
					return nil, "", err //nolint:wrapcheck // named by readOne
				}
				return v, v.Name, nil
			})
		},
		Indexes: map[string]func(*compute.HttpHealthCheck) []string{
			indexName: func(v *compute.HttpHealthCheck) []string { return []string{v.Name} },
		},
	})
}

func newFirewalls(a *api) *store[*compute.Firewall] {
	return inventory.New(inventory.Source[string, *compute.Firewall]{
		Kind: "firewall rule", ID: func(v *compute.Firewall) string { return v.Name },
		List: func(ctx context.Context) ([]*compute.Firewall, int, error) {
			return listAll(ctx, a, "firewall rules", "compute#firewallList",
				func(ctx context.Context, at place, token string) (p page[*compute.Firewall], err error) {
					call := a.sdk.Firewalls.List(at.networkProject).MaxResults(pageSize).Context(ctx)
					if token != "" {
						call.PageToken(token)
					}
					l, err := call.Do()
					if err != nil {
						return p, err //nolint:wrapcheck // named by listAll
					}
					if l.Warning != nil {
						p.warning = l.Warning.Code
					}
					p.items, p.next, p.kind = l.Items, l.NextPageToken, l.Kind
					return p, nil
				})
		},
		Get: func(ctx context.Context, name string) (*compute.Firewall, error) {
			return readOne(ctx, a, "firewall rule", name, func(at place) (*compute.Firewall, string, error) {
				v, err := a.sdk.Firewalls.Get(at.networkProject, name).Context(ctx).Do()
				if err != nil {
					return nil, "", err //nolint:wrapcheck // named by readOne
				}
				return v, v.Name, nil
			})
		},
		Indexes: map[string]func(*compute.Firewall) []string{indexName: func(v *compute.Firewall) []string { return []string{v.Name} }},
	})
}

func newAddresses(a *api) *store[*compute.Address] {
	return inventory.New(inventory.Source[string, *compute.Address]{
		Kind: "address", ID: func(v *compute.Address) string { return v.Name },
		List: func(ctx context.Context) ([]*compute.Address, int, error) {
			return listAll(ctx, a, "addresses", "compute#addressList",
				func(ctx context.Context, at place, token string) (p page[*compute.Address], err error) {
					call := a.sdk.Addresses.List(at.project, at.region).MaxResults(pageSize).Context(ctx)
					if token != "" {
						call.PageToken(token)
					}
					l, err := call.Do()
					if err != nil {
						return p, err //nolint:wrapcheck // named by listAll
					}
					if l.Warning != nil {
						p.warning = l.Warning.Code
					}
					p.items, p.next, p.kind = l.Items, l.NextPageToken, l.Kind
					return p, nil
				})
		},
		Get: func(ctx context.Context, name string) (*compute.Address, error) {
			return readOne(ctx, a, "address", name, func(at place) (*compute.Address, string, error) {
				v, err := a.sdk.Addresses.Get(at.project, at.region, name).Context(ctx).Do()
				if err != nil {
					return nil, "", err //nolint:wrapcheck // named by readOne
				}
				return v, v.Name, nil
			})
		},
		Indexes: map[string]func(*compute.Address) []string{
			indexName: func(v *compute.Address) []string { return []string{v.Name} },
			indexIP:   func(v *compute.Address) []string { return []string{v.Address} },
		},
	})
}

// find returns the object of a name, or the zero value where a listing shows that there is none.
func find[T any](ctx context.Context, s *store[T], name string, q inventory.Query) (v T, err error) {
	found, err := s.Find(ctx, indexName, name, q)
	if err != nil || len(found) == 0 {
		return v, err
	}
	return found[0], nil
}

// made makes or changes an object, and returns it as it then is. like is what is asked for: what failed may have taken effect, so the
// next look reads it, also where an object of the name was deleted before.
func made[T any](
	ctx context.Context, a *api, s *store[T], like T, path, what string, make func(request string) (*compute.Operation, error),
) (v T, err error) {
	err = a.change(ctx, path, what, make)
	s.Put(like)
	s.Invalidate(lastPart(path))
	if err != nil {
		return v, err
	}
	return s.Get(ctx, lastPart(path), inventory.Query{})
}

// removed deletes an object; one that is not there any more is deleted.
func removed[T any](
	ctx context.Context, a *api, s *store[T], path, what string, make func(request string) (*compute.Operation, error),
) error {
	name := lastPart(path)
	err := a.change(ctx, path, what, make)
	if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
		s.Forget(name)
		return nil
	}
	s.Invalidate(name)
	return err
}
