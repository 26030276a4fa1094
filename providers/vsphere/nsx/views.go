package nsx

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file holds the listings of NSX's objects, and finds objects in them.

const (
	// ensureMaxAge is the maximum age of the observed state at a reconciliation. Our own writes are in it at once; the age only delays the
	// sight of changes that somebody else made.
	ensureMaxAge = 10 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
	// newMaxAge lets one listing serve many new Services: nobody else creates objects with their names.
	newMaxAge = 3 * time.Second
	// namedMaxAge is the maximum age of objects found by name: application profiles and IP pools.
	namedMaxAge = 10 * time.Minute
)

// ensureQuery is the query of a reconciliation.
func ensureQuery() inventory.Query {
	return inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: newMaxAge}
}

// updateQuery is the query of a change of nodes.
func updateQuery() inventory.Query {
	return inventory.Query{MaxAge: updateMaxAge, MaxMissAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
}

// namedQuery is the query for objects found by name.
func namedQuery() inventory.Query {
	return inventory.Query{MaxAge: namedMaxAge, MaxMissAge: newMaxAge, MaxUnlistedAge: newMaxAge}
}

// Kinds of objects, in messages and metrics.
const (
	kindServer     = "virtual server"
	kindPool       = "pool"
	kindMonitor    = "monitor profile"
	kindService    = "load balancer service"
	kindAllocation = "IP allocation"
	kindProfile    = "application profile"
	kindIPPool     = "IP pool"
)

// Indexes of the views.
const (
	indexService     = "service"
	indexGateway     = "gateway"
	indexLBService   = "load balancer service"
	indexDisplayName = "name"
	indexVIP         = "address"
)

// views holds the listings that all Services share: one for each kind.
type views struct {
	client      *client
	servers     view[*virtualServer]
	pools       view[*serverPool]
	monitors    view[*monitorProfile]
	allocations view[*ipAllocation]
	services    view[*lbService]
	profiles    view[*appProfile]
	ipPools     view[*ipPool]
	// classes are the classes of load balancers.
	classes map[string]loadBalancerClass

	mu sync.Mutex
	// allocated are the IDs of the pools whose allocations are listed.
	allocated []string
}

// holderKeys returns the values of an object in indexService; none without the tags of a cluster.
func holderKeys[T object](x T) []string {
	if h := holderOf(x); h.owner != "" && h.cluster != "" {
		return []string{h.key()}
	}
	return nil
}

// view is the shared view of the objects of one kind.
type view[T any] = *inventory.Inventory[string, T]

// newView creates the view of one collection.
func newView[V any, T objectOf[V]](
	n *client, kind, collection string, wrote func(known, listed T) bool, more map[string]func(T) []string,
) view[T] {
	indexes := map[string]func(T) []string{
		indexService:     holderKeys[T],
		indexDisplayName: func(o T) []string { return []string{o.common().DisplayName} },
	}
	maps.Copy(indexes, more)
	return inventory.New(inventory.Source[string, T]{
		Kind: kind, ID: func(o T) string { return o.common().ID }, Wrote: wrote, Indexes: indexes,
		List: func(ctx context.Context) ([]T, int, error) { return listObjects[V, T](ctx, n, kind, collection) },
		Get: func(ctx context.Context, id string) (T, error) {
			return readObject[V, T](ctx, n, kind, collection+"/"+id)
		},
	})
}

func newViews(n *client, classes map[string]loadBalancerClass) *views {
	v := &views{client: n, classes: classes}
	v.servers = newView[virtualServer](n, kindServer, pathServers, func(known, listed *virtualServer) bool {
		return known.ApplicationProfile == listed.ApplicationProfile && known.PoolPath == listed.PoolPath &&
			slices.Equal(known.MemberPorts, listed.MemberPorts) && slices.Equal(marksOf(known), marksOf(listed))
	}, map[string]func(*virtualServer) []string{
		indexLBService: func(s *virtualServer) []string { return []string{s.ServicePath} },
		indexVIP:       func(s *virtualServer) []string { return []string{s.IPAddress} },
	})
	v.pools = newView[serverPool](n, kindPool, pathPools, func(known, listed *serverPool) bool {
		return services.SameSet(memberAddresses(known), memberAddresses(listed)) && services.SameSet(known.Monitors, listed.Monitors)
	}, nil)
	v.monitors = newView[monitorProfile](n, kindMonitor, pathMonitors, func(known, listed *monitorProfile) bool {
		return known.MonitorPort == listed.MonitorPort
	}, nil)
	v.services = newView[lbService](n, kindService, pathServices, nil, map[string]func(*lbService) []string{
		indexGateway: func(s *lbService) []string { return []string{s.ConnectivityPath} },
	})
	v.profiles = newView[appProfile](n, kindProfile, pathAppProfiles, nil, nil)
	v.ipPools = newView[ipPool](n, kindIPPool, pathIPPools, nil, nil)
	v.allocations = inventory.New(inventory.Source[string, *ipAllocation]{
		Kind: kindAllocation, ID: (*ipAllocation).key, List: v.listAllocations, Get: v.getAllocation,
		Indexes: map[string]func(*ipAllocation) []string{indexService: holderKeys[*ipAllocation]},
	})
	return v
}

func memberAddresses(p *serverPool) []string {
	list := make([]string, len(p.Members))
	for i, m := range p.Members {
		list[i] = m.IPAddress
	}
	return list
}

// key returns the identity of an allocation among all pools.
func (a *ipAllocation) key() string { return a.pool + "/" + a.ID }

// allocationsOf returns the collection of a pool's allocations.
func allocationsOf(pool string) string { return pathIPPools + "/" + pool + "/ip-allocations" }

// watch adds a pool whose allocations are listed.
func (v *views) watch(pools ...string) {
	v.mu.Lock()
	added := false
	for _, p := range pools {
		if p != "" && !slices.Contains(v.allocated, p) {
			v.allocated, added = append(v.allocated, p), true
		}
	}
	v.mu.Unlock()
	if added {
		v.allocations.InvalidateAll()
	}
}

// listAllocations lists the allocations of all used pools. A missing pool has none.
func (v *views) listAllocations(ctx context.Context) (all []*ipAllocation, pages int, err error) {
	v.mu.Lock()
	pools := slices.Clone(v.allocated)
	v.mu.Unlock()
	for _, pool := range pools {
		list, n, err := listObjects[ipAllocation](ctx, v.client, kindAllocation, allocationsOf(pool))
		pages += n
		if err != nil {
			gone, why := v.isPoolGone(ctx, pool, err)
			if !gone {
				return nil, pages, errors.Join(err, why)
			}
			continue
		}
		for _, a := range list {
			a.pool = pool
		}
		all = append(all, list...)
	}
	return all, max(pages, 1), nil
}

// isPoolGone reports whether NSX itself says that a pool does not exist.
func (v *views) isPoolGone(ctx context.Context, pool string, listing error) (bool, error) {
	if said, ok := errors.AsType[*cloudapi.Error](listing); !ok || said.Status == 0 {
		return false, nil
	}
	_, err := readObject[ipPool](ctx, v.client, kindIPPool, pathIPPools+"/"+pool)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return true, nil
	}
	return false, err
}

func (v *views) getAllocation(ctx context.Context, key string) (*ipAllocation, error) {
	pool, id, _ := strings.Cut(key, "/")
	a, err := readObject[ipAllocation](ctx, v.client, kindAllocation, allocationsOf(pool)+"/"+id)
	if err == nil {
		a.pool = pool
	}
	return a, err
}

// findProfile returns the path of the application profile of a class.
func (v *views) findProfile(ctx context.Context, path, name, kind string) (string, error) {
	if path != "" {
		return path, nil
	}
	found, err := v.profiles.Find(ctx, indexDisplayName, name, namedQuery())
	if err != nil {
		return "", err
	}
	found = filterObjects(found, func(o object) bool { return o.common().ResourceType == kind })
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no application profile %s of type %s; correct the name in the section loadBalancer or the class", name, kind)
	case 1:
		return pathIn(pathAppProfiles, found[0]), nil
	}
	return "", fmt.Errorf("%d application profiles of type %s are named %s; give the path instead", len(found), kind, name)
}

// findPoolID returns the ID of the IP pool of a class.
func (v *views) findPoolID(ctx context.Context, c loadBalancerClass) (string, error) {
	if c.IPPoolID != "" {
		return c.IPPoolID, nil
	}
	found, err := v.ipPools.Find(ctx, indexDisplayName, c.IPPoolName, namedQuery())
	if err != nil {
		return "", err
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("there is no IP pool %s; correct ipPoolName in the section loadBalancer or the class", c.IPPoolName)
	case 1:
		return found[0].ID, nil
	}
	return "", fmt.Errorf("%d IP pools are named %s; give ipPoolId instead", len(found), c.IPPoolName)
}

// watchPools adds the pools that may have an allocation of the Service: those of all classes, and those named by its virtual servers, which
// a class may have used before. A missing pool affects only the Services of its class.
func (v *views) watchPools(ctx context.Context, o observed) error {
	ids, err := v.findClassPools(ctx)
	if err != nil {
		return err
	}
	v.watch(ids...)
	for _, s := range o.servers {
		v.watch(s.tag(scopePool))
	}
	return nil
}

// findClassPools returns the existing pools of all classes.
func (v *views) findClassPools(ctx context.Context) (ids []string, err error) {
	for _, name := range slices.Sorted(maps.Keys(v.classes)) {
		id, err := v.findPoolID(ctx, v.classes[name])
		if _, failed := errors.AsType[*cloudapi.Error](err); failed {
			return nil, err
		}
		if err != nil {
			klog.ErrorS(err, "Allocations in the pool of a class are not looked for", "class", name)
			continue
		}
		ids = append(ids, id)
	}
	return ids, nil
}

// searchPools searches all pools for the address of a Service without virtual servers, which would name the pool: somebody deleted them, or
// a deletion was interrupted.
func (v *views) searchPools(ctx context.Context, of holder) error {
	pools, err := v.ipPools.All(ctx, inventory.Query{MaxAge: updateMaxAge})
	if err != nil {
		return err
	}
	for _, p := range pools {
		list, _, err := listObjects[ipAllocation](ctx, v.client, kindAllocation, allocationsOf(p.ID))
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), isForbidden(err):
			klog.InfoS("Not looking for an address in a pool", "pool", p.ID, "reason", err.Error()) // no address could have been allocated from it
			continue
		case err != nil:
			return err
		}
		if slices.ContainsFunc(list, func(a *ipAllocation) bool { return holderOf(a) == of }) {
			v.watch(p.ID)
		}
	}
	return nil
}

// isAddressTaken reports whether another owner's virtual server uses an allocated address.
func (v *views) isAddressTaken(o observed) bool {
	return slices.ContainsFunc(o.allocations, func(a *ipAllocation) bool {
		address := a.address()
		return address != "" && len(v.servers.PeekIndex(indexVIP, address)) > 0
	})
}

// servicePorts returns the ports of a Service, with the application profiles of its class.
func (v *views) servicePorts(ctx context.Context, service *v1.Service, class loadBalancerClass) (list []servicePort, err error) {
	for _, p := range service.Spec.Ports {
		port := servicePort{Protocol: cmp.Or(p.Protocol, v1.ProtocolTCP), Port: p.Port, NodePort: p.NodePort}
		path, name, kind := class.TCPAppProfilePath, class.TCPAppProfileName, typeTCPProfile
		if port.Protocol == v1.ProtocolUDP {
			path, name, kind = class.UDPAppProfilePath, class.UDPAppProfileName, typeUDPProfile
		}
		if port.Profile, err = v.findProfile(ctx, path, name, kind); err != nil {
			return nil, err
		}
		list = append(list, port)
	}
	return list, nil
}

// checkReferences handles a creation that refers to a missing object: everything is read again. NSX's error codes are not documented, so
// the referenced objects are read.
func (v *views) checkReferences(ctx context.Context, err error, objects []object, made []string) error {
	if !isInvalidWrite(err) && !errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	for _, path := range referencedPaths(objects) {
		if slices.Contains(made, path) {
			continue
		}
		missing := v.client.call(ctx, "reading "+path, http.MethodGet, path, nil, &struct{}{})
		if !errors.Is(missing, cloudapi.ErrNotFound) {
			continue
		}
		klog.InfoS("An object that a new one refers to is gone; looking again", "path", path, "reason", err.Error())
		v.services.InvalidateAll()
		v.pools.InvalidateAll()
		v.monitors.InvalidateAll()
		return services.ErrGone
	}
	return nil
}

// isUsed reports whether an object may be used by one that NSX shows, even by a field that this program does not know, such as a rule.
func (v *views) isUsed(ctx context.Context, path string) bool {
	servers, err := v.servers.All(ctx, inventory.Query{})
	pools, failed := v.pools.All(ctx, inventory.Query{})
	return err != nil || failed != nil || slices.ContainsFunc(observed{servers: servers, pools: pools}.objects(), func(x object) bool {
		data, err := encodeObject(x)
		return pathOf(x) != path && (err != nil || bytes.Contains(data, []byte(strconv.Quote(path))))
	})
}

// anyView is a view of objects of any kind.
type anyView interface {
	Invalidate(id string)
	Forget(id string)
}

// viewOf returns the view of an object, and its ID there.
func (v *views) viewOf(x object) (view anyView, id string) {
	switch x := x.(type) {
	case *virtualServer:
		return v.servers, x.ID
	case *serverPool:
		return v.pools, x.ID
	case *monitorProfile:
		return v.monitors, x.ID
	case *ipAllocation:
		return v.allocations, x.key()
	}
	return v.services, x.common().ID
}

// invalidate makes an object be read again after a write of unknown outcome.
func (v *views) invalidate(x object) {
	view, id := v.viewOf(x)
	view.Invalidate(id)
}
