package oci

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
)

// refusedFor is how long a compartment that a Service names, and that could not be read, is not read again.
const refusedFor = time.Minute

// placedObject is an object of a Service that is in a compartment.
type placedObject interface {
	comparable
	// place returns its name and its compartment.
	place() (name, compartment string)
}

// compartments holds the compartments that may contain objects of one kind: the configured one, those that Services name, and those where
// such an object was seen before. Users choose the compartments that Services name, so one that cannot be read only affects that Service.
type compartments[T placedObject] struct {
	api     *api
	cluster *ownership.Cluster
	// what is the kind in messages, path that of its listing, and name its name for a Service.
	what, path string
	name       func(*v1.Service) string
	// known returns the objects seen without a listing.
	known func() []T

	mu sync.Mutex
	// placeOf holds the compartments of the objects seen, by name; refused holds those that could not be read.
	placeOf map[string]string
	// seen holds the names of objects seen since the program began.
	seen    map[string]bool
	refused map[string]refusal
}

// refusal says why, and when, something could not be read.
type refusal struct {
	at  time.Time
	err error
}

// list reads the objects in all compartments. It fails if the configured one cannot be read.
func (c *compartments[T]) list(ctx context.Context) (all []T, pages int, err error) {
	where, err := c.api.location(ctx)
	if err != nil {
		return nil, 0, cloudapi.Describe(err, "listing "+c.what)
	}
	services, err := c.cluster.Services(ctx)
	if err != nil {
		return nil, 0, err
	}
	names := c.noteSeen(c.known(), services)
	refused := map[string]refusal{}
	var read []string
	for _, id := range c.compartmentsOf(where.compartment, services, names) {
		if before, known := c.refusalOf(id); known && time.Since(before.at) < refusedFor && id != where.compartment {
			refused[id] = before
			continue
		}
		some, calls, err := list[T](ctx, c.api, c.what+" of compartment "+id, c.path, url.Values{"compartmentId": {id}})
		pages += calls
		switch {
		case err != nil && (id == where.compartment || ctx.Err() != nil):
			return nil, pages, err
		case err != nil:
			refused[id] = refusal{time.Now(), err}
			continue
		}
		all, read = append(all, some...), append(read, id)
	}
	if slices.Contains(all, *new(T)) {
		return nil, pages, cloudapi.Unclear("listing "+c.what, "one of them is nothing")
	}
	c.noteListing(all, names, read, refused)
	return all, pages, nil
}

// noteListing stores what a listing showed: all objects in the compartments that were read.
func (c *compartments[T]) noteListing(all []T, names map[string]bool, read []string, refused map[string]refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = refused
	for name, id := range c.placeOf {
		if slices.Contains(read, id) && !slices.ContainsFunc(all, func(one T) bool { is, _ := one.place(); return is == name }) {
			delete(c.placeOf, name)
		}
	}
	for _, one := range all {
		if name, id := one.place(); names[name] {
			c.placeOf[name], c.seen[name] = id, true
		}
	}
}

// noteSeen stores where objects were seen, and returns the names for Services.
func (c *compartments[T]) noteSeen(seen []T, services []*v1.Service) map[string]bool {
	names := map[string]bool{}
	for _, s := range services {
		names[c.name(s)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.placeOf == nil {
		c.placeOf, c.seen = map[string]string{}, map[string]bool{}
	}
	maps.DeleteFunc(c.seen, func(name string, _ bool) bool { return !names[name] })
	for _, one := range seen {
		if name, id := one.place(); names[name] && ocid.MatchString(id) {
			c.placeOf[name], c.seen[name] = id, true
		}
	}
	return names
}

// compartmentsOf returns the compartments, the configured one first.
func (c *compartments[T]) compartmentsOf(configured string, services []*v1.Service, names map[string]bool) []string {
	all := []string{configured}
	add := func(id string) {
		if ocid.MatchString(id) && !slices.Contains(all, id) {
			all = append(all, id)
		}
	}
	for _, s := range services {
		if ownership.MayHave(s) {
			add(s.Annotations[annotationCompartment])
			add(s.Annotations[annotationPlaced])
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, id := range c.placeOf {
		if names[name] {
			add(id)
		} else {
			delete(c.placeOf, name)
		}
	}
	slices.Sort(all[1:])
	return all
}

// hasSeen reports whether an object of this name was seen since the program began.
func (c *compartments[T]) hasSeen(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.seen[name]
}

func (c *compartments[T]) refusalOf(id string) (refusal, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r, known := c.refused[id]
	return r, known
}

// checkReadable returns an error if an object of the Service may be in a compartment that could not be read. A Service that leaves without
// having been served has nothing in a compartment that it only names: otherwise a fault in the annotation would keep it for ever.
func (c *compartments[T]) checkReadable(service *v1.Service, leaving bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, seen := c.placeOf[c.name(service)]
	ids := []string{held}
	if named := service.Annotations[annotationCompartment]; !leaving || seen || len(service.Status.LoadBalancer.Ingress) > 0 {
		ids = append(ids, named, service.Annotations[annotationPlaced])
	}
	for _, id := range ids {
		if r, refused := c.refused[id]; refused {
			return cloudapi.NotAbsence(fmt.Errorf("%w; annotation %s names it, or did", r.err, annotationCompartment))
		}
	}
	return nil
}
