package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.LoadBalancerHandover = (*cloud)(nil)

// MarkedLoadBalancers implements contract.LoadBalancerHandover. If the Service in the load balancer's name records it, other users do not
// count.
func (c *cloud) MarkedLoadBalancers(ctx context.Context, all []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	loadBalancers, err := c.reconciler.loadBalancers.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	marked := []contract.MarkedLoadBalancer{}
	for _, lb := range loadBalancers {
		cluster, uid := ownership.Marked(lb.Tags)
		if lb.isBeingDeleted() || (cluster == "" && uid == "") {
			continue
		}
		m := contract.MarkedLoadBalancer{ID: lb.ID, Name: lb.Name, Cluster: cluster, ServiceUID: uid}
		for _, s := range all {
			if s.Spec.Type != v1.ServiceTypeLoadBalancer || s.Annotations[annotationID] != lb.ID {
				continue
			}
			if strings.HasSuffix(lb.Name, "_"+s.Namespace+"_"+s.Name) {
				m.Claims = []string{s.Namespace + "/" + s.Name}
				break
			}
			m.Claims = append(m.Claims, s.Namespace+"/"+s.Name)
		}
		marked = append(marked, m)
	}
	slices.SortFunc(marked, func(a, b contract.MarkedLoadBalancer) int { return strings.Compare(a.ID, b.ID) })
	return marked, nil
}

// RemarkLoadBalancer implements contract.LoadBalancerHandover. Listeners come first, so that an interrupted handover can be repeated.
func (c *cloud) RemarkLoadBalancer(ctx context.Context, m contract.MarkedLoadBalancer, service types.UID) error {
	r := c.reconciler
	unlock, err := r.Lock(ctx, m.ID)
	if err != nil {
		return fmt.Errorf("waiting for somebody else who works on load balancer %s: %w", m.ID, err)
	}
	defer unlock()
	lb, err := r.loadBalancers.Get(ctx, m.ID, inventory.Query{})
	if err != nil {
		return err
	}
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	if cluster, uid := ownership.Marked(lb.Tags); cluster != m.Cluster || uid != m.ServiceUID {
		return fmt.Errorf("load balancer %s carries other marks by now; list them again", m.ID)
	}
	if lb.Status != statusActive {
		return fmt.Errorf("load balancer %s has the provisioning status %s, in which it cannot be changed; try again later", m.ID, lb.Status)
	}
	owner := &services.Request{Service: &v1.Service{ObjectMeta: metav1.ObjectMeta{UID: service}}}
	after, err := r.writer.applySteps(ctx, owner, lb, func(lb *loadBalancer, d *details) []step {
		return planRemark(lb, d, m.Cluster, mark, ownership.ServiceMark(service))
	})
	if err == nil && after == nil {
		err = errors.New("it went away meanwhile")
	}
	return err
}

// planRemark returns the steps that replace another cluster's marks by those of this cluster and Service.
func planRemark(lb *loadBalancer, d *details, other, mark, serviceMark string) []step {
	var steps []step
	for _, l := range d.listeners {
		if i := slices.Index(l.Tags, ownership.ClusterMark(other)); other != "" && i >= 0 && ownership.ClusterMark(other) != mark {
			tags := slices.Clone(l.Tags)
			tags[i] = mark
			steps = append(steps, step{kind: updateListener, id: l.ID, body: listenerUpdate{Tags: &tags}, reason: "handed over"})
		}
	}
	tags := slices.DeleteFunc(slices.Clone(lb.Tags), func(t string) bool { return t == "" || ownership.IsMark(t) })
	tags = append(tags, mark, serviceMark)
	if !services.SameSet(tags, lb.Tags) {
		steps = append(steps, step{kind: updateLoadBalancer, id: lb.ID, body: loadBalancerUpdate{Tags: &tags}, reason: "handed over"})
	}
	return steps
}
