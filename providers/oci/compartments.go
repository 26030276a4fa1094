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

// refusedFor is how long it is believed that a compartment which a Service names cannot be read.
const refusedFor = time.Minute

// placed is something of a Service that is in a compartment.
type placed interface {
	comparable
	// at is its name and its compartment.
	at() (name, compartment string)
}

// compartments are those in which something of Services may be, of one kind: the one of the cloud config, those that Services name, and
// those in which something of a Service was seen before. Who writes a Service chooses what it names: one that cannot be read holds up that
// Service alone.
type compartments[T placed] struct {
	api     *api
	cluster *ownership.Cluster
	// what names the kind in messages, path is that of its listing, name is the name that it has for a Service.
	what, path string
	name       func(*v1.Service) string
	// known returns the items seen without a listing.
	known func() []T

	mu sync.Mutex
	// held are the compartments of what was seen, by its name; refused are those that could not be read.
	held map[string]string
	// seen are the names of what was seen since the program began.
	seen    map[string]bool
	refused map[string]refusal
}

// refusal is why a compartment could not be read, and when that was.
type refusal struct {
	at  time.Time
	err error
}

// list reads what is in all of them. It fails where the compartment of the cloud config cannot be read.
func (c *compartments[T]) list(ctx context.Context) (all []T, pages int, err error) {
	where, err := c.api.location(ctx)
	if err != nil {
		return nil, 0, cloudapi.Describe(err, "listing "+c.what)
	}
	services, err := c.cluster.Services(ctx)
	if err != nil {
		return nil, 0, err
	}
	names := c.note(c.known(), services)
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
	c.keep(all, names, read, refused)
	return all, pages, nil
}

// keep notes what a listing showed: all there is in the compartments that were read.
func (c *compartments[T]) keep(all []T, names map[string]bool, read []string, refused map[string]refusal) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refused = refused
	for name, id := range c.held {
		if slices.Contains(read, id) && !slices.ContainsFunc(all, func(one T) bool { is, _ := one.at(); return is == name }) {
			delete(c.held, name)
		}
	}
	for _, one := range all {
		if name, id := one.at(); names[name] {
			c.held[name], c.seen[name] = id, true
		}
	}
}

// note notes where something of a Service was seen, and returns the names that Services give.
func (c *compartments[T]) note(seen []T, services []*v1.Service) map[string]bool {
	names := map[string]bool{}
	for _, s := range services {
		names[c.name(s)] = true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held == nil {
		c.held, c.seen = map[string]string{}, map[string]bool{}
	}
	maps.DeleteFunc(c.seen, func(name string, _ bool) bool { return !names[name] })
	for _, one := range seen {
		if name, id := one.at(); names[name] && ocid.MatchString(id) {
			c.held[name], c.seen[name] = id, true
		}
	}
	return names
}

// compartmentsOf are the compartments, that of the cloud config first.
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
	for name, id := range c.held {
		if names[name] {
			add(id)
		} else {
			delete(c.held, name)
		}
	}
	slices.Sort(all[1:])
	return all
}

// saw reports whether something with a name was seen since the program began.
func (c *compartments[T]) saw(name string) bool {
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

// doubt is an error where something of a Service may be in a compartment that could not be read. A Service that goes, and was never
// served, has nothing in one that it only names: else a fault in an annotation would keep it for ever.
func (c *compartments[T]) doubt(service *v1.Service, goes bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	held, seen := c.held[c.name(service)]
	ids := []string{held}
	if named := service.Annotations[annotationCompartment]; !goes || seen || len(service.Status.LoadBalancer.Ingress) > 0 {
		ids = append(ids, named, service.Annotations[annotationPlaced])
	}
	for _, id := range ids {
		if r, refused := c.refused[id]; refused {
			return cloudapi.NotAbsence(fmt.Errorf("%w; annotation %s names it, or did", r.err, annotationCompartment))
		}
	}
	return nil
}
