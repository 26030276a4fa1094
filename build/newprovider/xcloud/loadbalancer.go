package xcloud

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	statusActive = "active"
	// lookAgain is the pause between reads of a load balancer that is being set up.
	lookAgain = 3 * time.Second
	// creationShows is how long a new load balancer may be hidden if its creation was not answered.
	creationShows = 45 * time.Second
	// observedMaxAge is the maximum age of an observed load balancer. Our own writes are in it at once.
	observedMaxAge = 10 * time.Second
	// unlistedMaxAge lets one listing serve many new Services: nobody else creates load balancers with their names.
	unlistedMaxAge = 3 * time.Second

	indexBalancerName = "name"
)

// errExists: the name is taken by a load balancer that was created before and does not show yet.
var errExists = errors.New("it exists")

// reconciler implements services.Reconciler. One object holds all of a load balancer, so that each change is one call.
type reconciler struct {
	api     *api
	adopt   registry.Adoption
	cluster ownership.Cluster
	// attest returns nodes with the addresses of their instances; nil where the provider has no nodes.
	attest func(context.Context, []*v1.Node) ([]*v1.Node, error)
	// known caches load balancers with our own writes, which listings may not show yet.
	known *inventory.Inventory[string, *loadBalancer]
}

func newReconciler(a *api, adopt registry.Adoption) *reconciler {
	return &reconciler{api: a, adopt: adopt, known: inventory.New(inventory.Source[string, *loadBalancer]{
		Kind: "load balancer", ID: func(lb *loadBalancer) string { return lb.ID }, List: a.loadBalancers, Get: a.loadBalancer,
		Wrote:   func(known, listed *loadBalancer) bool { return len(differences(known.spec, listed.spec)) == 0 },
		Indexes: map[string]func(*loadBalancer) []string{indexBalancerName: func(lb *loadBalancer) []string { return []string{lb.Name} }},
	})}
}

var _ services.Reconciler[*loadBalancer, spec] = (*reconciler)(nil)

// newLoadBalancers wraps a reconciler. Leave out Repeat if names are not unique in your cloud.
func newLoadBalancers(r *reconciler) *services.LoadBalancer[*loadBalancer, spec] {
	return &services.LoadBalancer[*loadBalancer, spec]{
		Reconciler: r, Name: loadBalancerName, Creations: &services.Creations{Shows: creationShows, Repeat: true},
	}
}

// Validate checks the Service without calls.
func (*reconciler) Validate(q services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(q.Service)
	return services.Judged(warnings, err), err
}

// Observe reads the load balancer by its name, which holds the UID of the Service.
func (r *reconciler) Observe(ctx context.Context, q services.Request) (*loadBalancer, error) {
	found, err := r.known.Find(
		ctx, indexBalancerName, loadBalancerName(q.Cluster, q.Service), inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge},
	)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	if lb := found[0]; lb.Status == statusActive {
		return lb, nil
	}
	lb, err := r.known.Get(ctx, found[0].ID, inventory.Query{}) // it is being set up
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil //nolint:nilnil // nil is a load balancer that does not exist
	}
	return lb, err
}

func (r *reconciler) rules() ownership.Rules {
	return ownership.Rules{Adopt: r.adopt, Names: func(s *v1.Service) []string { return []string{loadBalancerName("", s)} }}
}

func objectOf(lb *loadBalancer) ownership.Object {
	return ownership.Object{Title: "load balancer " + lb.ID, ID: lb.ID, Name: lb.Name, Marks: lb.Tags, Addresses: []string{lb.Address}}
}

// CheckOwner refuses a load balancer of another owner.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, lb *loadBalancer) (*loadBalancer, []services.Finding, error) {
	if lb == nil {
		return nil, nil, nil
	}
	decision, err := r.cluster.Judge(ctx, q.Service, objectOf(lb), r.rules(), nil)
	if err != nil {
		return nil, nil, err
	}
	refusal := decision.Err()
	if refusal == nil {
		return lb, nil, nil
	}
	if q.Purpose != services.Ensure && q.Purpose != services.Plan {
		return nil, nil, nil
	}
	return nil, []services.Finding{services.Warning(ownership.EventNotOurs, "%v", refusal)}, refusal
}

// attestNodes returns the nodes whose addresses become backends.
func (r *reconciler) attestNodes(ctx context.Context, list []*v1.Node) ([]*v1.Node, error) {
	if r.attest == nil {
		return list, nil
	}
	return r.attest(ctx, list)
}

// Desire computes the desired load balancer.
func (r *reconciler) Desire(ctx context.Context, q services.Request, _ *loadBalancer) (spec, []services.Finding, error) {
	s, _, err := parseSettings(q.Service) // Validate has checked them
	if err != nil {
		return spec{}, nil, err
	}
	tags := ownership.ServiceMarks(q.Service)
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return spec{}, nil, err
	}
	if mark != "" {
		tags = append([]string{mark}, tags...)
	}
	nodes, err := r.attestNodes(ctx, q.Nodes)
	if err != nil {
		return spec{}, nil, err
	}
	return desire(q.Service, nodes, s, tags), nil, nil
}

// Changes returns the differences between observed and desired state.
func (r *reconciler) Changes(_ services.Request, lb *loadBalancer, desired spec) ([]services.Change[*loadBalancer], error) {
	if lb == nil {
		return []services.Change[*loadBalancer]{{
			Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + desired.Name},
			Creates: true,
			Compare: func() (before, after any) { return nil, desired },
			Make: func(ctx context.Context, q *services.Request, _ *loadBalancer) (*loadBalancer, error) {
				lb, err := r.api.create(ctx, desired)
				if err != nil {
					r.known.Invalidate("") // it may have been created
					if errors.Is(err, cloudapi.ErrConflict) {
						q.Asked(errExists)
					}
					return nil, err
				}
				r.known.Put(lb)
				return lb, nil
			},
		}}, nil
	}
	return r.changesTo(lb, desired), nil
}

func (r *reconciler) changesTo(lb *loadBalancer, desired spec) []services.Change[*loadBalancer] {
	differs := differences(lb.spec, desired)
	if len(differs) == 0 {
		return nil
	}
	return []services.Change[*loadBalancer]{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.Name, Detail: strings.Join(differs, ", ")},
		Compare: func() (before, after any) { return lb.spec, desired },
		Make: func(ctx context.Context, _ *services.Request, lb *loadBalancer) (*loadBalancer, error) {
			after, err := r.api.update(ctx, lb.ID, desired)
			switch {
			case errors.Is(err, cloudapi.ErrNotFound):
				r.known.Forget(lb.ID)
				return nil, services.ErrGone // somebody deleted it
			case err != nil:
				r.known.Invalidate(lb.ID)
				return nil, err
			}
			r.known.Put(after)
			return after, nil
		},
	}}
}

// Complete implements services.Reconciler: nothing is recorded on the Service, and nothing waits.
func (*reconciler) Complete(_ context.Context, _ *services.Request, lb *loadBalancer, _ spec) (*loadBalancer, error) {
	return lb, nil
}

// Status returns the Service's status once the load balancer is active.
func (*reconciler) Status(_ services.Request, lb *loadBalancer, _ spec) (*v1.LoadBalancerStatus, error) {
	if lb.Status != statusActive || lb.Address == "" {
		return nil, cloudproviderapi.NewRetryError("the load balancer "+lb.Name+" is being set up", lookAgain)
	}
	return statusOf(lb), nil
}

func statusOf(lb *loadBalancer) *v1.LoadBalancerStatus {
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{IP: lb.Address}}}
}

// NodeChanges returns the changes that follow from the nodes only.
func (r *reconciler) NodeChanges(
	ctx context.Context, q services.Request, lb *loadBalancer,
) ([]services.Change[*loadBalancer], []services.Finding, error) {
	if lb == nil {
		return nil, nil, nil
	}
	nodes, err := r.attestNodes(ctx, q.Nodes)
	if err != nil {
		return nil, nil, err
	}
	desired := lb.spec
	desired.Backends = backends(nodes)
	return r.changesTo(lb, desired), nil, nil
}

// Deletions returns the changes that delete a Service's objects.
func (r *reconciler) Deletions(
	_ context.Context, _ services.Request, lb *loadBalancer,
) ([]services.Change[*loadBalancer], []services.Finding, error) {
	if lb == nil {
		return nil, nil, nil
	}
	return []services.Change[*loadBalancer]{{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "load balancer " + lb.Name},
		Compare: func() (before, after any) { return lb.spec, nil },
		Make: func(ctx context.Context, _ *services.Request, lb *loadBalancer) (*loadBalancer, error) {
			return nil, r.remove(ctx, lb.ID)
		},
	}}, nil, nil
}

// remove deletes a load balancer.
func (r *reconciler) remove(ctx context.Context, id string) error {
	if err := r.api.remove(ctx, id); err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		r.known.Invalidate(id)
		return err
	}
	r.known.Forget(id)
	return nil
}

// Exists implements services.Reconciler.
func (*reconciler) Exists(_ context.Context, _ services.Request, lb *loadBalancer) (*v1.LoadBalancerStatus, bool, error) {
	switch {
	case lb == nil:
		return nil, false, nil
	case lb.Address == "":
		return &v1.LoadBalancerStatus{}, true, nil
	}
	return statusOf(lb), true, nil
}

// isHeld reports whether a Service has a load balancer.
func (r *reconciler) isHeld(lb *loadBalancer, list []*v1.Service) bool {
	return slices.ContainsFunc(list, func(s *v1.Service) bool { return ownership.Holds(s, objectOf(lb), r.rules()) })
}

// check lists the load balancers of some name, for which any valid credential is enough.
func (a *api) check(ctx context.Context) error {
	_, _, err := list[*loadBalancer](ctx, a, "load balancers", "/v1/load_balancers", url.Values{"name": {"none"}})
	return err
}

// loadBalancers returns all load balancers and the number of calls.
func (a *api) loadBalancers(ctx context.Context) ([]*loadBalancer, int, error) {
	return list[*loadBalancer](ctx, a, "load balancers", "/v1/load_balancers", url.Values{})
}

func (a *api) loadBalancer(ctx context.Context, id string) (*loadBalancer, error) {
	lb, doing := &loadBalancer{}, "reading load balancer "+id
	err := a.call(ctx, doing, http.MethodGet, "/v1/load_balancers/"+url.PathEscape(id), nil, lb)
	if err == nil && lb.ID != id {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: doing, Message: "the answer is about another load balancer"}
	}
	return lb, err
}

func (a *api) create(ctx context.Context, s spec) (*loadBalancer, error) {
	lb := &loadBalancer{}
	return lb, a.call(ctx, "creating load balancer "+s.Name, http.MethodPost, "/v1/load_balancers", s, lb)
}

func (a *api) update(ctx context.Context, id string, s spec) (*loadBalancer, error) {
	lb := &loadBalancer{}
	return lb, a.call(ctx, "changing load balancer "+s.Name, http.MethodPut, "/v1/load_balancers/"+url.PathEscape(id), s, lb)
}

func (a *api) remove(ctx context.Context, id string) error {
	return a.call(ctx, "deleting load balancer "+id, http.MethodDelete, "/v1/load_balancers/"+url.PathEscape(id), nil, nil)
}
