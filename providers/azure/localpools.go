package azure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudbase"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file is about pools of a single Service. With several load balancers, a Service with externalTrafficPolicy Local has a pool of its
// own, with the nodes that have an endpoint, whichever load balancer they belong to.

// endpoints knows the nodes that have an endpoint of a Service.
type endpoints struct {
	list   func(labels.Selector) ([]*discovery.EndpointSlice, error)
	synced cache.InformerSynced
}

// nodesOf are the names of the nodes that have an endpoint of a Service, ready or not.
func (e *endpoints) nodesOf(service *v1.Service) (map[string]bool, error) {
	if e == nil || !e.synced() {
		return nil, cloudproviderapi.NewRetryError("the EndpointSlices of the cluster are not known yet: with several load balancers, Services with "+
			"externalTrafficPolicy Local need them; grant list and watch on endpointslices of discovery.k8s.io, as the chart does", 5*time.Second)
	}
	found, err := e.list(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: service.Name}))
	if err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, s := range found {
		for _, p := range s.Endpoints {
			if s.Namespace == service.Namespace && p.NodeName != nil {
				names[*p.NodeName] = true
			}
		}
	}
	return names, nil
}

// ownPoolName is the name of the pool of a family that a Service has alone.
func ownPoolName(name string, ipv6 bool) string { return name + strings.ToLower(suffixOf(ipv6, true)) }

func ownPoolNames(name string) []string {
	return []string{ownPoolName(name, false), ownPoolName(name, true)}
}

// joinedName is the name of Azure's own controller for such pools, which several Services may share; their baseName is unique.
func joinedName(service *v1.Service) string {
	return strings.ToLower(service.Namespace + "-" + service.Name)
}

// choosePools names the pools of a single Service as Azure's own controller does, unless a name is too long or taken by another Service.
func (c *Config) choosePools(service *v1.Service, known []*v1.Service, lbs []*loadBalancer) string {
	joined, base := joinedName(service), baseName(service)
	pools := ownPoolNames(joined)
	mine, theirs := pointsTo(lbs, pools, base)
	chosen, _ := pointsTo(lbs, ownPoolNames(base), base)
	if azurelimits.Name.CheckText(ownPoolName(joined, true)) != nil || chosen || theirs && !mine {
		return base
	}
	for _, other := range known {
		overlap := func(pool string) bool { return slices.Contains(pools, pool) }
		if baseName(other) >= base || !c.hasOwnPool(other) || !slices.ContainsFunc(ownPoolNames(joinedName(other)), overlap) {
			continue
		}
		if has, _ := pointsTo(lbs, pools, baseName(other)); has || !mine { // the first of several that have one name keeps it
			return base
		}
	}
	return joined
}

// pointsTo reports whether rules of a Service, and whether rules of others, lead to pools.
func pointsTo(lbs []*loadBalancer, pools []string, base string) (own, others bool) {
	for _, lb := range lbs {
		for _, rule := range lb.Properties.Rules {
			if slices.ContainsFunc(pools, func(name string) bool { return strings.EqualFold(name, nameOf(rule.Properties.Pool.ID)) }) {
				isOwn := ownedBy(base, rule.Name)
				own, others = own || isOwn, others || !isOwn
			}
		}
	}
	return own, others
}

// hasOwnPool reports whether a Service has a pool of its own.
func (c *Config) hasOwnPool(service *v1.Service) bool {
	return len(c.standardLBs) > 0 && service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
}

// poolOf is the name of the pool that a Service's rules of a family lead to.
func (o *observed) poolOf(c *Config, service *v1.Service, ipv6 bool) string {
	if c.hasOwnPool(service) {
		return ownPoolName(o.ownPool, ipv6)
	}
	return poolName(o.cluster, ipv6)
}

// observePools finds the pools that a Service may have for itself.
func (r *observer) observePools(ctx context.Context, service *v1.Service, o *observed) error {
	if len(r.config.standardLBs) == 0 {
		return nil
	}
	known, err := r.cluster.Services(ctx)
	if err != nil {
		return err
	}
	o.ownPool = r.config.choosePools(service, known, o.lbs)
	o.ownPools = slices.Concat(ownPoolNames(joinedName(service)), ownPoolNames(baseName(service)))
	return nil
}

// dropPools takes away pools of a Service alone that it needs no more, and that nobody else's rule leads to.
func dropPools(lb *loadBalancer, own []string, fronts []desiredFront) bool {
	if len(own) == 0 {
		return false
	}
	kept := []*pool{}
	all := lb.Properties.Pools
	for _, pool := range all {
		name := strings.ToLower(pool.Name)
		wanted := slices.ContainsFunc(fronts, func(f desiredFront) bool { return strings.EqualFold(f.pool, name) })
		used := slices.ContainsFunc(slices.Concat(lb.Properties.Rules, lb.Properties.OutboundRules), func(rule *lbRule) bool {
			return strings.EqualFold(nameOf(rule.Properties.Pool.ID), name)
		})
		if !slices.Contains(own, name) || wanted || used {
			kept = append(kept, pool)
		}
	}
	if len(kept) == len(all) {
		return false
	}
	lb.Properties.Pools = kept
	return true
}

// poolMembers are the members that pools by address should have: IP to node, by pool. A pool that is not to be touched is not there.
func (r *reconciler) poolMembers(
	q services.Request, o *observed, lb string, internal bool, fronts []desiredFront,
) (wanted map[string]map[string]string, findings []services.Finding, err error) {
	if r.config.PoolType != poolIP || !r.config.fillsPools(internal) {
		return nil, nil, nil
	}
	on, unplaced := r.config.nodesBehind(q, o, lb)
	if len(unplaced) > 0 {
		findings = append(findings, services.Warning(eventNoPlace, "nodes %s are behind no load balancer: they match neither primaryVMSet nor "+
			"nodeSelector of multipleStandardLoadBalancerConfigurations", strings.Join(unplaced, ", ")))
	}
	several := len(r.config.standardLBs) > 0 && len(o.nodes) > 0
	wanted = map[string]map[string]string{}
	for _, f := range fronts {
		nodes := on
		if r.config.hasOwnPool(q.Service) && strings.EqualFold(f.pool, ownPoolName(o.ownPool, f.ipv6)) {
			with, err := r.endpoints.nodesOf(q.Service)
			if err != nil {
				return nil, nil, err
			}
			nodes = slices.DeleteFunc(slices.Clone(o.nodes), func(n *v1.Node) bool { return !with[n.Name] })
		}
		ips := namesByIP(nodes, f.ipv6)
		if leftOut := fitPool(o.balancerNamed(lb).pool(f.pool), ips); leftOut > 0 {
			findings = append(findings, services.LeftOut(eventTooMany, azurelimits.PoolAddresses, leftOut, "label nodes with "+labelExclude+" to choose"))
		}
		// A pool is never emptied, but of nodes that are behind another load balancer now, and where no rule leads to it.
		shared := several && strings.EqualFold(f.pool, poolName(q.Cluster, f.ipv6))
		_, serving := pointsTo([]*loadBalancer{o.balancerNamed(lb)}, []string{f.pool}, "")
		switch {
		case len(ips) > 0 || shared && !serving:
			wanted[strings.ToLower(f.pool)] = ips
		case shared && len(o.balancerNamed(lb).pool(f.pool).ips()) > 0:
			findings = append(findings, services.Warning(eventNoPlace, "no node is behind load balancer %s by primaryVMSet and nodeSelector of "+
				"multipleStandardLoadBalancerConfigurations: pool %s, which serves, keeps the members that it has", lb, f.pool))
		}
	}
	return wanted, findings, nil
}

// namesByIP returns the names of nodes by their addresses of a family.
func namesByIP(nodes []*v1.Node, ipv6 bool) map[string]string {
	names := map[string]string{}
	for _, n := range nodes {
		if ip := internalIP(n, ipv6); ip != "" {
			names[canonicalIP(ip)] = n.Name
		}
	}
	return names
}

// localPools brings the pools of Services alone in step with their endpoints.
func (c *cloud) localPools(ctx context.Context) error {
	q := c.reconciler.latest.Load()
	if q == nil {
		return nil // the framework has not begun: it brings each Service in step when it does
	}
	list, err := c.reconciler.cluster.Living(ctx)
	if err != nil {
		return err
	}
	var problems []error
	for _, s := range list {
		if !c.reconciler.config.hasOwnPool(s) || s.DeletionTimestamp != nil || contract.IsDisowned(s) {
			continue
		}
		if err := c.loadBalancers.UpdateLoadBalancer(ctx, q.Cluster, s, q.Nodes); err != nil {
			err = fmt.Errorf("updating the pool of Service %s: %w", serviceName(s), err)
			problems = append(problems, err)
			c.loadBalancers.Events.Event(s, v1.EventTypeWarning, eventPoolFailed, err.Error())
		}
	}
	return errors.Join(problems...)
}

// watchEndpoints follows the endpoints of Services, where there are several load balancers.
func (c *cloud) watchEndpoints(factory informers.SharedInformerFactory) {
	if len(c.reconciler.config.standardLBs) == 0 {
		return
	}
	all := factory.Discovery().V1().EndpointSlices()
	c.reconciler.endpoints = &endpoints{list: all.Lister().List, synced: all.Informer().HasSynced}
	in := cloudbase.Informers{Interface: factory.Core().V1(), Stop: c.stop}
	in.RunOnChanges(loop.Job{
		Name: "azure-local-pools", Period: 10 * time.Minute, Spacing: 2 * time.Second, Timeout: writeDeadline, Run: c.localPools,
	}, all.Informer(), nil)
}
