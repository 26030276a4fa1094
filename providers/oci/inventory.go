package oci

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/secrets"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// This file finds load balancers, and proves that one is gone.

// common holds the parts that both kinds of load balancers use.
type common struct {
	api       *api
	cluster   *ownership.Cluster
	adopt     registry.Adoption
	instances *instances
	networks  *networks
	lists     *securityLists
	groups    *securityGroups
	tokens    *retryTokens
	follower  secrets.Follower
	// kube is nil before the program leads.
	kube kubernetes.Interface

	mu sync.Mutex
	// secrets are those that each Service has named.
	secrets map[types.UID][]string
}

func newCommon(a *api, i *instances, adopt registry.Adoption) *common {
	c := &common{
		api: a, cluster: &ownership.Cluster{}, adopt: adopt, instances: i, networks: i.networks,
		tokens: &retryTokens{attempts: map[types.UID]attempt{}}, secrets: map[types.UID][]string{},
	}
	c.lists, c.groups = newSecurityLists(a, i, c.cluster), newSecurityGroups(a, i.networks, c.cluster, c.tokens)
	return c
}

// loadBalancers holds the load balancers of one kind, and the cloud's work on them.
type loadBalancers struct {
	*common
	kind  kind
	known *inventory.Inventory[string, *loadBalancer]
	// Callers wait in them for the state of a load balancer, for a work request, and until a load balancer has no work request left.
	states       *waiting.Room[string, *loadBalancer]
	works        *waiting.Room[string, workRequest]
	idle         *waiting.Room[string, bool]
	compartments *compartments[*loadBalancer]

	// knownIdle are the load balancers on which the cloud has ended our last change.
	idleMu    sync.Mutex
	knownIdle map[string]bool
}

func newLoadBalancers(c *common, k kind) *loadBalancers {
	b := &loadBalancers{common: c, kind: k, knownIdle: map[string]bool{}}
	b.compartments = &compartments[*loadBalancer]{
		api: b.api, cluster: b.cluster, what: k.title + "s", path: k.path, name: k.name,
		known: func() []*loadBalancer { return b.known.PeekAll() },
	}
	b.known = inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: k.title, ID: func(lb *loadBalancer) string { return lb.ID }, Get: b.get, List: b.list,
		Indexes: map[string]func(*loadBalancer) []string{indexName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})
	b.states = waiting.New(b.known.Look, pace())
	b.works = waiting.New(waiting.Each(b.readWork), pace())
	b.idle = waiting.New(waiting.Each(b.isIdle), pace())
	return b
}

// list reads all load balancers in the cluster's compartments. "Not found" is never an empty list.
func (r *loadBalancers) list(ctx context.Context) ([]*loadBalancer, int, error) {
	all, pages, err := r.compartments.list(ctx)
	if err != nil {
		return nil, pages, err
	}
	for _, lb := range all {
		if lb.ID == "" || lb.State == "" {
			return nil, pages, cloudapi.Unclear("listing "+r.compartments.what, "one of them has no ID or no state")
		}
	}
	// Those that are deleted are shown for a while.
	return slices.DeleteFunc(all, func(lb *loadBalancer) bool { return lb.State == stateDeleted }), pages, nil
}

func (r *loadBalancers) pathOf(id string) string { return r.kind.path + "/" + url.PathEscape(id) }

// get reads a load balancer. The cloud also says "not found" of load balancers that the user may not see, so that absence must be proved.
func (r *loadBalancers) get(ctx context.Context, id string) (*loadBalancer, error) {
	lb, what := &loadBalancer{}, "reading "+r.kind.title+" "+id
	header, err := r.api.call(ctx, what, http.MethodGet, r.pathOf(id), nil, lb, nil)
	if errors.Is(err, cloudapi.ErrNotFound) {
		if doubt := r.proveAbsence(ctx, id); doubt != nil {
			return nil, cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case lb.ID != id || lb.State == "":
		return nil, cloudapi.Unclear(what, "the answer is about another %s", r.kind.title)
	case lb.State == stateDeleted:
		return nil, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "it is deleted"}
	}
	lb.etag = header.Get("Etag")
	return lb, nil
}

// proveAbsence returns an error if the user may have lost the right to see a load balancer. Policies name load balancers apart from
// networks, and may allow to list what may not be read.
func (r *loadBalancers) proveAbsence(ctx context.Context, id string) error {
	if err := r.networks.checkVisible(ctx, proofMaxAge); err != nil {
		return err
	}
	all, _, err := r.compartments.list(ctx)
	if err != nil {
		return err
	}
	for _, lb := range all {
		if lb.ID == id && lb.State != stateDeleting && lb.State != stateDeleted {
			return errors.New("the listing shows it still; check the policies of the user")
		}
	}
	if before, known := r.known.Peek(id); known {
		if why, refused := r.compartments.refusalOf(before.Compartment); refused {
			return why.err
		}
	}
	return nil
}

// checkProtection refuses a load balancer that is protected from deletion by now, because it would outlast its rules.
func (r *loadBalancers) checkProtection(ctx context.Context, id string) error {
	if !r.kind.protectable {
		return nil
	}
	lb, err := r.known.Get(ctx, id, inventory.Query{MaxAge: protectionMaxAge})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err == nil && lb.Protected:
		r.known.Invalidate(id)
		return fmt.Errorf("%s %s stays, with the rules for it: its delete protection is enabled; disable it to have it deleted", r.kind.title, lb.Name)
	}
	return err
}

// find returns the load balancer with the Service's name, or nil. A working one takes precedence over failed ones.
func (r *loadBalancers) find(ctx context.Context, service *v1.Service, leaving bool) (*loadBalancer, error) {
	name := r.kind.name(service)
	found, err := r.known.Find(ctx, indexName, name, inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge})
	if err != nil {
		return nil, err
	}
	live := slices.DeleteFunc(slices.Clone(found), func(lb *loadBalancer) bool { return lb.State == stateFailed })
	if len(live) > 1 {
		return nil, fmt.Errorf("%d %ss have the name %s (%s, %s); delete those that nobody needs", len(live), r.kind.title, name, live[0].ID, live[1].ID)
	}
	if live = append(live, found...); len(live) > 0 {
		return live[0], nil
	}
	return nil, r.compartments.checkReadable(service, leaving)
}
