package digitalocean

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/digitalocean/godo"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// taggingPeriod is the interval of the search for load balancers without the cluster's tag. Some are older than the option, and the
	// API accepts tags in the request only at creation.
	taggingPeriod  = 15 * time.Minute
	taggingTimeout = 2 * time.Minute
)

// tagging puts the tag k8s:<cluster ID> on the cluster's load balancers.
type tagging struct {
	tag      string
	api      *api
	owners   *owners
	services listers.ServiceLister
}

func (t *tagging) job() loop.Job {
	return loop.Job{Name: "load-balancer-tags", Period: taggingPeriod, Timeout: taggingTimeout, Run: t.run}
}

// run makes no call without Services of type LoadBalancer, otherwise one listing, and writes only missing tags.
func (t *tagging) run(ctx context.Context) error {
	services, err := t.services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing Services: %w", err)
	}
	services = slices.DeleteFunc(services, func(s *v1.Service) bool {
		disowned, err := isDisowned(s)
		return s.Spec.Type != v1.ServiceTypeLoadBalancer || s.Spec.LoadBalancerClass != nil || err != nil || disowned || contract.IsDisowned(s)
	})
	if len(services) == 0 {
		return nil
	}
	all, err := t.owners.balancers.All(ctx, inventory.Query{MaxAge: updateMaxAge})
	if err != nil {
		return err
	}
	untagged, err := t.findUntagged(ctx, services, all)
	if err != nil {
		return err
	}
	if len(untagged) == 0 {
		return nil
	}
	ids := make([]string, len(untagged))
	for i, lb := range untagged {
		ids[i] = lb.ID
	}
	klog.InfoS("Tagging load balancers", "tag", t.tag, "loadBalancers", ids)
	if err := t.api.tag(ctx, t.tag, ids); err != nil {
		t.owners.balancers.InvalidateAll()
		return err
	}
	for _, lb := range untagged {
		tagged := *lb
		tagged.Tags = append(slices.Clone(lb.Tags), t.tag)
		t.owners.balancers.PutPartial(&tagged)
	}
	return nil
}

// findUntagged returns each of the cluster's load balancers that lacks the tag.
func (t *tagging) findUntagged(ctx context.Context, services []*v1.Service, all []*godo.LoadBalancer) ([]*godo.LoadBalancer, error) {
	var list []*godo.LoadBalancer
	for _, lb := range all {
		if slices.Contains(lb.Tags, t.tag) {
			continue
		}
		for _, s := range services {
			if !isServed(s, lb) {
				continue
			}
			found, err := t.owners.judge(ctx, s, lb, nil)
			if err != nil {
				return nil, err
			}
			if found.Verdict != ownership.Refused {
				list = append(list, lb)
				break
			}
		}
	}
	slices.SortFunc(list, compareAge)
	return list, nil
}
