package nsx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/vsphere/nsxlimits"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

var _ contract.LoadBalancerHandover = (*Parts)(nil)

// markedGroup holds the objects of one Service with the mark of one cluster.
type markedGroup struct {
	contract.MarkedLoadBalancer
	group
}

// MarkedLoadBalancers implements contract.LoadBalancerHandover.
func (p *Parts) MarkedLoadBalancers(ctx context.Context, services []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	if p.loadBalancers == nil {
		return nil, contract.ErrNoHandover
	}
	mark, err := p.loadBalancers.cluster.Mark(ctx)
	if err != nil {
		return nil, err
	}
	found, err := p.loadBalancers.listMarked(ctx, mark, ensureMaxAge)
	if err != nil {
		return nil, err
	}
	// A Service that has a load balancer of this cluster's under another cluster name does not claim one of the same name.
	served := map[string]string{}
	for _, m := range found {
		if mark != "" && ownership.ClusterMark(m.Cluster) == mark {
			served[m.service] = m.cluster
		}
	}
	list := []contract.MarkedLoadBalancer{}
	for _, m := range found {
		for _, s := range services {
			named, elsewhere := serviceKey(s) == m.service, served[m.service] != "" && served[m.service] != m.cluster
			if named && !elsewhere && s.Spec.Type == v1.ServiceTypeLoadBalancer {
				m.Claims = append(m.Claims, m.service)
			}
		}
		list = append(list, m.MarkedLoadBalancer)
	}
	return list, nil
}

// listMarked groups objects with marks. If a load balancer has marks of several clusters, as after an interrupted handover, each cluster's
// part is separate.
func (r *reconciler) listMarked(ctx context.Context, mark string, age time.Duration) (found []markedGroup, err error) {
	all, err := r.readGroups(ctx, age)
	for _, g := range all {
		found = append(found, g.splitByMark(mark)...)
	}
	return found, err
}

// splitByMark splits a group by the clusters in the marks.
func (g group) splitByMark(mark string) []markedGroup {
	found := map[string]*markedGroup{}
	for _, x := range g.objects.objects() {
		cluster, uid := ownership.MarkedBefore(marksOf(x), mark)
		if a, ok := x.(*ipAllocation); (cluster == "" && uid == "") || (ok && wasHandedOver(a, g.objects, mark)) {
			continue
		}
		m := found[cluster]
		if m == nil {
			m = &markedGroup{group: group{g.holder, g.objects.filter(func(x object) bool {
				has, _ := ownership.MarkedBefore(marksOf(x), mark)
				return has == cluster && len(marksOf(x)) > 0
			})}, MarkedLoadBalancer: contract.MarkedLoadBalancer{ID: g.id(), Name: g.name(), Cluster: cluster}}
			found[cluster] = m
		}
		m.ServiceUID = cmp.Or(m.ServiceUID, uid)
	}
	var list []markedGroup
	for _, cluster := range slices.Sorted(maps.Keys(found)) {
		list = append(list, *found[cluster])
	}
	return list
}

// isForeign reports whether an object of a Service belongs to another cluster.
func (o observed) isForeign(x object, mark string) bool {
	a, ok := x.(*ipAllocation)
	return ownership.Foreign(mark, marksOf(x)) && (!ok || !wasHandedOver(a, o, mark))
}

// wasHandedOver reports whether an address was handed over with its virtual servers. NSX cannot change the tags of an allocation, so that
// it keeps its first mark; the objects with this cluster's mark show the handover, by their address or by their former mark.
func wasHandedOver(a *ipAllocation, o observed, mark string) bool {
	if mark == "" || !ownership.Foreign(mark, marksOf(a)) {
		return false
	}
	return slices.ContainsFunc(o.objects(), func(x object) bool {
		if !slices.Contains(marksOf(x), mark) {
			return false
		}
		s, ok := x.(*virtualServer)
		return ok && s.IPAddress == a.address() || slices.Contains(marksOf(a), x.common().tag(scopeWas))
	})
}

// RemarkLoadBalancer implements contract.LoadBalancerHandover. The load balancer service is first, because it is deleted with the last
// virtual server. While any object has the former marks, an interrupted handover is listed, and can be repeated.
func (p *Parts) RemarkLoadBalancer(ctx context.Context, m contract.MarkedLoadBalancer, service types.UID) error {
	if p.loadBalancers == nil {
		return contract.ErrNoHandover
	}
	l := p.loadBalancers
	mark, err := l.cluster.KnownMark(ctx)
	if err != nil {
		return err
	}
	found, err := l.listMarked(ctx, mark, 0)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(found, func(f markedGroup) bool {
		return f.ID == m.ID && f.Cluster == m.Cluster && f.ServiceUID == m.ServiceUID
	})
	if i < 0 {
		return fmt.Errorf("load balancer %s carries other marks by now; list them again", m.ID)
	}
	o := found[i].objects
	if len(o.servers)+len(o.pools)+len(o.monitors) == 0 {
		return fmt.Errorf("only %s is left of it, whose tags NSX does not change; delete it there", pathOf(o.allocations[0]))
	}
	klog.InfoS("Handing over load balancer", "name", m.Name, "from", m.Cluster, "service", service)
	to := remark{from: m.Cluster, mark: mark, marks: []string{mark}}
	// Load balancer services without marks are shared.
	own, err := l.views.services.Find(ctx, indexService, holder{owner: l.config.owner(), cluster: found[i].cluster}.key(), inventory.Query{})
	if err == nil {
		err = remarkAll(ctx, l.client, l.views.services, own, to)
	}
	to.marks = append(to.marks, ownership.ServiceMark(service))
	if err == nil {
		err = remarkAll(ctx, l.client, l.views.monitors, o.monitors, to)
	}
	if err == nil {
		err = remarkAll(ctx, l.client, l.views.pools, o.pools, to)
	}
	if err == nil {
		err = remarkAll(ctx, l.client, l.views.servers, o.servers, to)
	}
	return err
}

// remark is the replacement of another cluster's marks.
type remark struct {
	from, mark string
	marks      []string
}

// remarkAll changes the marks of those objects that have the former ones, based on their present state.
func remarkAll[V any, T objectOf[V]](ctx context.Context, n *client, known view[T], list []T, to remark) error {
	hasFormer := func(x T) bool {
		has, _ := ownership.MarkedBefore(marksOf(x), to.mark)
		return has == to.from
	}
	for _, x := range list {
		if !hasFormer(x) {
			continue
		}
		now, err := rewrite(ctx, n, known, withoutRevision(x), marking{marks: to.marks}, func(x T) string {
			if !hasFormer(x) {
				return ""
			}
			x.common().noteBefore(ownership.ClusterMark(to.from), len(to.marks))
			return "its marks"
		})
		switch {
		case errors.Is(err, services.ErrGone), errors.Is(err, cloudapi.ErrNotFound):
		case err != nil:
			return err
		case ownership.Foreign(to.mark, marksOf(now)):
			return fmt.Errorf("%s carries other marks by now, or has no room for ours among its %d tags", titleOf(now), nsxlimits.Tags.Max)
		}
	}
	return nil
}

// noteBefore records the former mark of an object, if there is room for another tag.
func (o *commonFields) noteBefore(mark string, marks int) {
	kept := slices.DeleteFunc(slices.Clone(o.Tags), func(t tag) bool { return t.Scope == scopeWas })
	if len(kept)-len(marksOf(o))+marks < nsxlimits.Tags.Max {
		kept = append(kept, tag{Scope: scopeWas, Tag: mark})
	}
	o.Tags = kept
}
