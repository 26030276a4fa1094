package openstack

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// After a start all load balancers are checked, and most are up to date. Listings of all parts show that, with one status tree for each
// load balancer, because Octavia lists members only by pool.

// firstPartsMaxAge lets all load balancers share one listing of parts after a start.
const firstPartsMaxAge = time.Minute

// statusTree is the response of Octavia's status call. Its members lack the subnet and the health check port.
type statusTree struct {
	LoadBalancer struct {
		ID        string `json:"id"`
		Listeners []struct {
			ID    string     `json:"id"`
			Pools []treePool `json:"pools"`
		} `json:"listeners"`
	} `json:"loadbalancer"`
}

type treePool struct {
	ID      string `json:"id"`
	Members []struct {
		member
		Operating string `json:"operating_status"`
	} `json:"members"`
}

// operatingOnline is the status of a member that passes its health checks.
const operatingOnline = "ONLINE"

func (a *api) statusTree(ctx context.Context, id string) (*statusTree, error) {
	return get(ctx, a, loadBalancing, "reading the status tree of load balancer "+id, "lbaas/loadbalancers/"+id+"/status", "statuses",
		func(t *statusTree) bool { return t.LoadBalancer.ID == id })
}

// treeSupport records whether the cloud offers status trees, so that a refusal is not repeated for each load balancer.
type treeSupport struct{ state atomic.Int32 }

func (s *treeSupport) isUnsupported() bool { return s.state.Load() < 0 }

func (s *treeSupport) record(err error) {
	switch {
	case err == nil:
		s.state.CompareAndSwap(0, 1)
	case cloudapi.Refused(err) && !cloudapi.NotSent(err) && !errors.Is(err, cloudapi.ErrRateLimited):
		s.state.CompareAndSwap(0, -1)
	}
}

// pools returns the tree's pools by ID; nil if its listeners differ from the listing.
func (t *statusTree) pools(listed []listener) map[string]treePool {
	pools, same := map[string]treePool{}, len(t.LoadBalancer.Listeners) == len(listed)
	for _, l := range t.LoadBalancer.Listeners {
		same = same && slices.ContainsFunc(listed, func(have listener) bool { return have.ID == l.ID })
		for _, p := range l.Pools {
			pools[p.ID] = p
		}
	}
	if !same {
		return nil
	}
	return pools
}

// suffices reports whether the tree suffices for a listed pool: it has the same members, and with a monitor at least one is online. It does
// not show the port of HTTP checks.
func (t treePool) suffices(p *pool) bool {
	all := make([]member, len(t.Members))
	online := len(t.Members) == 0
	for i, m := range t.Members {
		all[i], online = m.member, online || m.Operating == operatingOnline
	}
	switch {
	case slices.ContainsFunc(all, func(m member) bool { return m.ID == "" || m.Address == "" }), !p.MemberIDs.matches(looseMemberSet(all)):
		return false
	case p.MonitorID == "":
		return true
	}
	return p.monitor != nil && p.monitor.Type != protocolHTTP && online
}

// timesOfChange returns the known updated_at of load balancers.
func timesOfChange(observed *inventory.Inventory[string, *loadBalancer]) map[string]string {
	times := map[string]string{}
	for _, lb := range observed.PeekAll() {
		times[lb.ID] = lb.UpdatedAt
	}
	return times
}

// readAtStart returns a load balancer's parts from listings and its status tree; nil if these do not suffice.
func (rd *partsReader) readAtStart(ctx context.Context, id string) (*details, error) {
	if _, alone := rd.readAlone.Load(id); alone || rd.trees.isUnsupported() || rd.pages.tooLarge() || !rd.hasSeveralServices(ctx) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	o, err := rd.listed.Get(ctx, id, inventory.Query{MaxAge: firstPartsMaxAge, Expected: expectedAtStart})
	if err != nil || o.asOf == "" {
		return nil, ignoreError(err) // it is then read alone
	}
	d := &details{loadBalancerID: id, listed: true, asOf: o.asOf, listeners: slices.Clone(o.listeners), pools: slices.Clone(o.pools)}
	if err := waiting.Together(rd.monitorReads(ctx, d, firstMonitorsMaxAge)...); err != nil {
		return nil, ignoreError(err)
	}
	var tree map[string]treePool
	if len(d.pools) > 1 { // reading the members of a single pool takes one call too
		t, err := rd.api.statusTree(ctx, id)
		if err == nil {
			tree = t.pools(d.listeners)
		}
		rd.trees.record(err)
		if tree == nil {
			return nil, ignoreError(err)
		}
	}
	var reads []func() error
	for i := range d.pools {
		p := &d.pools[i]
		if t, shown := tree[p.ID]; shown && t.suffices(p) {
			shown := make([]member, len(t.Members))
			for i, m := range t.Members {
				shown[i] = m.member
			}
			p.members = memberSetOf(shown, rd.memberLists)
			continue
		}
		reads = append(reads, func() (err error) { p.members, err = rd.readMembers(ctx, p.ID); return err })
	}
	d.forgetIDs()
	return d, waiting.Together(reads...)
}

// expectedAtStart is the number of questions expected after a start, so that listings are used.
const expectedAtStart = 1000

// hasSeveralServices reports whether the cluster has more than one Service of type LoadBalancer.
func (rd *partsReader) hasSeveralServices(ctx context.Context) bool {
	all, err := rd.cluster.Services(ctx)
	n := 0
	for _, s := range all {
		if s.Spec.Type == v1.ServiceTypeLoadBalancer {
			n++
		}
	}
	return err == nil && n > 1
}
