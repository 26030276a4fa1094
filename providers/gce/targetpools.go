package gce

import (
	"context"
	"fmt"
	"slices"

	compute "google.golang.org/api/compute/v1"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// targetPools hold the instances of external load balancers.
type targetPools struct{ *writer }

// membersOf returns the paths of a pool's instances; none without a pool.
func membersOf(pool *compute.TargetPool) (paths []string) {
	if pool == nil {
		return nil
	}
	for _, l := range pool.Instances {
		paths = append(paths, resource(l))
	}
	return paths
}

func (t *targetPools) creation(d desired, name, detail string) change {
	shown := namedLinks("instances", d.members)
	shown["name"], shown["sessionAffinity"], shown["healthChecks"] = name, d.affinity, []string{d.checkName()}
	return t.create("target pool "+name, detail, shown, t.put(d, name))
}

func (t *targetPools) put(d desired, name string) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) error {
		first := d.members[:min(len(d.members), gcelimits.PoolCreation.Max)]
		pool := &compute.TargetPool{
			Name: name, Description: serviceDescription(d.service), SessionAffinity: d.affinity, Instances: links(first),
			HealthChecks: []string{o.at.httpCheck(d.checkName())},
		}
		have, err := putOne(ctx, t.api, t.api.stores.pools, pool, o.at.regional("targetPools", name), "creating target pool "+name,
			request(t.api.sdk.TargetPools.Insert(o.at.project, o.at.region, pool)))
		for chunk := range slices.Chunk(d.members[len(first):], gcelimits.PoolChange.Max) {
			if err == nil {
				have, err = t.addMembers(ctx, o.at, have, chunk)
			}
		}
		*o.poolAt(name) = have
		return err
	}
}

func (t *targetPools) deletion(name, why string, before any) change {
	return t.remove("target pool "+name, why, before, func(ctx context.Context, _ *services.Request, o *observed) error {
		err := deleteOne(ctx, t.api, t.api.stores.pools, o.at.regional("targetPools", name), "deleting target pool "+name,
			request(t.api.sdk.TargetPools.Delete(o.at.project, o.at.region, name)))
		if err == nil {
			*o.poolAt(name) = nil
		}
		return err
	})
}

// poolAt returns the field for the target pool of this name.
func (o *observed) poolAt(name string) **compute.TargetPool {
	if name == o.name {
		return &o.pool
	}
	return &o.nextPool
}

// memberChanges update the instances of a pool, 1,000 per call.
func (t *targetPools) memberChanges(pool *compute.TargetPool, members []string) (list []change) {
	add, remove := diffMembers(membersOf(pool), members)
	object := "target pool " + pool.Name
	for chunk := range slices.Chunk(add, gcelimits.PoolChange.Max) {
		list = append(list, t.update(object, fmt.Sprint("add ", len(chunk), " instances"), nil, namedLinks("instances", chunk),
			func(ctx context.Context, _ *services.Request, o *observed) (err error) {
				o.pool, err = t.addMembers(ctx, o.at, o.pool, chunk)
				return err
			}))
	}
	for chunk := range slices.Chunk(remove, gcelimits.PoolChange.Max) {
		list = append(list, t.update(object, fmt.Sprint("remove ", len(chunk), " instances"), namedLinks("instances", chunk), nil,
			func(ctx context.Context, _ *services.Request, o *observed) (err error) {
				o.pool, err = t.removeMembers(ctx, o.at, o.pool, chunk)
				return err
			}))
	}
	return list
}

// addMembers adds instances to a pool, and returns the result without a read.
func (t *targetPools) addMembers(ctx context.Context, at location, pool *compute.TargetPool, paths []string) (*compute.TargetPool, error) {
	body := &compute.TargetPoolsAddInstanceRequest{Instances: references(paths)}
	after := *pool
	after.Instances = append(slices.Clone(pool.Instances), links(paths)...)
	return t.changeTo(ctx, at, &after, fmt.Sprintf("adding %d instances to target pool %s", len(paths), pool.Name),
		request(t.api.sdk.TargetPools.AddInstance(at.project, at.region, pool.Name, body)))
}

func (t *targetPools) removeMembers(
	ctx context.Context, at location, pool *compute.TargetPool, paths []string,
) (*compute.TargetPool, error) {
	body := &compute.TargetPoolsRemoveInstanceRequest{Instances: references(paths)}
	after := *pool
	after.Instances = slices.DeleteFunc(slices.Clone(pool.Instances), func(l string) bool { return slices.Contains(paths, resource(l)) })
	return t.changeTo(ctx, at, &after, fmt.Sprintf("removing %d instances from target pool %s", len(paths), pool.Name),
		request(t.api.sdk.TargetPools.RemoveInstance(at.project, at.region, pool.Name, body)))
}

// changeTo makes a change whose result is known, so that the pool need not be read.
func (t *targetPools) changeTo(
	ctx context.Context, at location, after *compute.TargetPool, what string, call requestFunc,
) (*compute.TargetPool, error) {
	if err := t.api.sendAndWait(ctx, at.regional("targetPools", after.Name), what, call); err != nil {
		t.api.stores.pools.Doubt(after.Name)
		return after, err
	}
	t.api.stores.pools.Put(after)
	return after, nil
}

// checkChanges set the pool's health check. A pool takes one only, so the old one goes first; without any, all instances count as healthy.
func (t *targetPools) checkChanges(pool *compute.TargetPool, name string) (list []change) {
	found := false
	for _, l := range pool.HealthChecks {
		if lastPart(l) == name {
			found = true
			continue
		}
		list = append(list, t.update("target pool "+pool.Name, "health check instead of "+lastPart(l), namedLinks("healthChecks", []string{l}), nil,
			func(ctx context.Context, _ *services.Request, o *observed) (err error) {
				body := &compute.TargetPoolsRemoveHealthCheckRequest{HealthChecks: []*compute.HealthCheckReference{{HealthCheck: l}}}
				after := *o.pool
				after.HealthChecks = slices.DeleteFunc(slices.Clone(after.HealthChecks), func(h string) bool { return h == l })
				o.pool, err = t.changeTo(ctx, o.at, &after, "taking a health check off target pool "+o.name,
					request(t.api.sdk.TargetPools.RemoveHealthCheck(o.at.project, o.at.region, o.name, body)))
				return err
			}))
	}
	if found {
		return list
	}
	return append(list, t.update("target pool "+pool.Name, "health check "+name, nil, field("healthChecks", name),
		func(ctx context.Context, _ *services.Request, o *observed) (err error) {
			link := o.at.httpCheck(name)
			body := &compute.TargetPoolsAddHealthCheckRequest{HealthChecks: []*compute.HealthCheckReference{{HealthCheck: link}}}
			after := *o.pool
			after.HealthChecks = append(slices.Clone(after.HealthChecks), links([]string{link})...)
			o.pool, err = t.changeTo(ctx, o.at, &after, "giving target pool "+o.name+" a health check",
				request(t.api.sdk.TargetPools.AddHealthCheck(o.at.project, o.at.region, o.name, body)))
			return err
		}))
}
