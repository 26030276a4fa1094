package digitalocean

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file converts plans to changes, and makes them.

func (r *reconciler) creation(want *godo.LoadBalancerRequest, service *v1.Service) services.Change[observed] {
	st := creation(want, service)
	return services.Change[observed]{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "load balancer " + want.Name, Detail: fmt.Sprintf(
			"type %s, in %s, %s, %d droplets", want.Type, want.Region, describeRules(want.ForwardingRules), len(want.DropletIDs))},
		Replan: true, Creates: true, Compare: func() (before, after any) { return nil, want },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			lb, err := r.apply(ctx, nil, st)
			if err == nil {
				req.Service, err = r.record(ctx, req.Service, lb, "")
			}
			o = r.observe(req.Service, match{lb: lb, Decision: ownership.Decision{Verdict: ownership.Owned, Deletable: true}})
			o.created = true
			return o, err
		},
	}
}

func describeRules(rules []godo.ForwardingRule) string {
	texts := make([]string, len(rules))
	for i, r := range rules {
		texts[i] = fmt.Sprintf("%s/%d to %s/%d", r.EntryProtocol, r.EntryPort, r.TargetProtocol, r.TargetPort)
	}
	return strings.Join(texts, ", ")
}

// changes returns the calls of a plan. Each starts from the result of the previous one, without vanished droplets.
func (r *reconciler) changes(lb *godo.LoadBalancer, vanished []int, steps []step) []services.Change[observed] {
	var changes []services.Change[observed]
	for _, st := range steps {
		detail := fmt.Sprintf("%s: %s", st.kind, strings.Join(st.reasons, ", "))
		changes = append(changes, services.Change[observed]{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: detail},
			Compare: func() (before, after any) { return st.compare(withoutDroplets(lb, vanished)) },
			Make: func(ctx context.Context, _ *services.Request, o observed) (_ observed, err error) {
				o.lb, err = r.apply(ctx, withoutDroplets(o.lb, vanished), st)
				return o, err
			},
		})
	}
	return changes
}

func (r *reconciler) markChange(lb *godo.LoadBalancer, marks []string) services.Change[observed] {
	return services.Change[observed]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: "tag it as this Service's"},
		Compare: func() (before, after any) {
			others := slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool {
				return slices.Contains(marks, tag) || ownership.IsServiceMark(tag)
			})
			return services.Part(lb, "tags"), map[string]any{"tags": append(others, marks...)}
		},
		Make: func(ctx context.Context, req *services.Request, o observed) (_ observed, err error) {
			o.lb, err = r.writeMarks(ctx, req.Service, o.lb, marks)
			return o, err
		},
	}
}

// adoption tags a load balancer that was made by hand before the Service shows it: later it would look like one of DigitalOcean's own
// controller, and be deleted with the Service.
func (r *reconciler) adoption(lb *godo.LoadBalancer) services.Change[observed] {
	return services.Change[observed]{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + lb.ID, Detail: "tag it as one that stays when its Service goes"},
		Compare: func() (before, after any) {
			return services.Part(lb, "tags"), map[string]any{"tags": append(slices.Clone(lb.Tags), adoptedMark)}
		},
		Make: func(ctx context.Context, _ *services.Request, o observed) (_ observed, err error) {
			o.lb, err = r.tag(ctx, o.lb, adoptedMark)
			return o, err
		},
	}
}

// apply makes one call and returns the resulting load balancer. A failed call may have taken effect, so it is read again.
func (r *reconciler) apply(ctx context.Context, lb *godo.LoadBalancer, st step) (*godo.LoadBalancer, error) {
	id := ""
	if lb != nil {
		id = lb.ID
	}
	after, err := r.call(ctx, lb, st)
	if cloudapi.NotSent(err) {
		return nil, err
	}
	if err != nil {
		r.balancers.Doubt(id)
		if errors.Is(err, cloudapi.ErrInvalid) {
			// A droplet may have been deleted in the meantime.
			r.instances.droplets.InvalidateAll()
			r.backends.shared.Forget()
		}
		return nil, err
	}
	if after = r.keep(after); st.kind == create || st.kind == replace {
		r.balancers.Put(after)
	} else {
		r.balancers.PutPartial(after)
	}
	return after, nil
}

func (r *reconciler) call(ctx context.Context, lb *godo.LoadBalancer, st step) (*godo.LoadBalancer, error) {
	switch st.kind {
	case create:
		return r.api.createLoadBalancer(ctx, st.request)
	case replace:
		return r.api.replaceLoadBalancer(ctx, lb.ID, st.request)
	case addDroplets, removeDroplets:
	}
	after := *lb
	after.DropletIDs = st.dropletsAfter(lb)
	if st.kind == addDroplets {
		return &after, r.api.addDroplets(ctx, lb.ID, st.droplets)
	}
	return &after, r.api.removeDroplets(ctx, lb.ID, st.droplets)
}

func (r *reconciler) delete(ctx context.Context, service *v1.Service, id string) error {
	klog.InfoS("Deleting load balancer", "service", klog.KObj(service), "loadBalancer", id)
	if err := r.api.deleteLoadBalancer(ctx, id); cloudapi.IgnoreNotFound(err) != nil {
		r.balancers.Doubt(id)
		return err
	}
	r.balancers.Forget(id)
	return nil
}

// writeMarks adds missing marks, and then removes stale ones. The API accepts tags in the request only at creation.
func (r *reconciler) writeMarks(
	ctx context.Context, service *v1.Service, lb *godo.LoadBalancer, marks []string,
) (*godo.LoadBalancer, error) {
	for _, tag := range marks {
		if slices.Contains(lb.Tags, tag) {
			continue
		}
		tagged, err := r.tag(ctx, lb, tag)
		if errors.Is(err, cloudapi.ErrUnauthorized) {
			klog.ErrorS(err, "A load balancer is not marked; grant tag:create, or set DO_OWNERSHIP_TAG=false", "service", klog.KObj(service), "loadBalancer", lb.ID)
			return lb, nil
		}
		if err != nil {
			return nil, err
		}
		lb = tagged
	}
	return r.removeMarks(ctx, lb, staleMarks(lb.Tags, marks))
}

// tag adds a tag to a load balancer, which it returns as it is then.
func (r *reconciler) tag(ctx context.Context, lb *godo.LoadBalancer, tag string) (*godo.LoadBalancer, error) {
	if err := r.api.tag(ctx, tag, []string{lb.ID}); err != nil {
		r.balancers.Invalidate(lb.ID)
		return nil, err
	}
	tagged := *lb
	tagged.Tags = append(slices.Clone(lb.Tags), tag)
	r.balancers.PutPartial(&tagged)
	return &tagged, nil
}

// staleMarks returns the marks of a deleted former owner among tags. It could otherwise claim the load balancer again.
func staleMarks(tags, marks []string) []string {
	return slices.DeleteFunc(slices.Clone(tags), func(tag string) bool {
		return len(marks) == 0 || !ownership.IsServiceMark(tag) || slices.Contains(marks, tag)
	})
}

func (r *reconciler) removeMarks(ctx context.Context, lb *godo.LoadBalancer, stale []string) (*godo.LoadBalancer, error) {
	if len(stale) == 0 {
		return lb, nil
	}
	for _, tag := range stale {
		if err := r.api.untagLoadBalancer(ctx, tag, lb.ID); cloudapi.IgnoreNotFound(err) != nil {
			r.balancers.Invalidate(lb.ID)
			return nil, err
		}
	}
	after := *lb
	after.Tags = slices.DeleteFunc(slices.Clone(lb.Tags), func(tag string) bool { return slices.Contains(stale, tag) })
	r.balancers.PutPartial(&after)
	return &after, nil
}
