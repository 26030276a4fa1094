package openstack

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
)

// partsReader reads the parts of load balancers: listeners, pools, members and monitors.
type partsReader struct {
	api           *api
	cluster       *ownership.Cluster
	loadBalancers *inventory.Inventory[string, *loadBalancer]
	details       *inventory.Inventory[string, *details]
	monitors      *inventory.Inventory[string, *monitor]
	pages         *partPages
	listed        *inventory.Inventory[string, *partsListing]
	memberLists   *inventory.Lists[memberRow]
	trees         treeSupport

	// readBefore holds the IDs of load balancers whose parts were read before.
	readBefore sync.Map
	// readAlone holds the IDs of load balancers whose parts never come from listings, because all details are needed.
	readAlone sync.Map
	// updating is the number of load balancers whose members are being changed.
	updating atomic.Int64
}

func newPartsReader(
	a *api, loadBalancers *inventory.Inventory[string, *loadBalancer], cluster *ownership.Cluster, i *instances,
) *partsReader {
	pages := &partPages{api: a, nodes: func() int { return i.nodes.Counts().All }}
	rd := &partsReader{
		api: a, cluster: cluster, loadBalancers: loadBalancers, pages: pages,
		monitors: inventory.New(sourceOf(a, loadBalancing, "health monitor", "lbaas/healthmonitors", func(m *monitor) string { return m.ID })),
		listed:   newListedPartsInventory(pages, loadBalancers), memberLists: inventory.NewLists[memberRow](),
	}
	rd.details = inventory.New(inventory.Source[string, *details]{
		Kind: "load balancer detail", ID: func(d *details) string { return d.loadBalancerID }, Get: rd.read,
	})
	return rd
}

// forget drops what is known of a load balancer that is gone.
func (rd *partsReader) forget(id string) {
	rd.loadBalancers.Forget(id)
	rd.details.Forget(id)
	rd.readBefore.Delete(id)
	rd.readAlone.Delete(id)
}

const (
	// firstMonitorsMaxAge lets all load balancers share one listing of monitors after a start.
	firstMonitorsMaxAge = time.Minute
	// monitorsMaxAge is for later reads, which follow a change. It is shorter than any change takes.
	monitorsMaxAge = 500 * time.Millisecond
)

// read reads the parts of a load balancer. The first read may use listings shared by all load balancers.
func (rd *partsReader) read(ctx context.Context, id string) (*details, error) {
	d := &details{loadBalancerID: id}
	age := monitorsMaxAge
	if _, before := rd.readBefore.LoadOrStore(id, struct{}{}); !before {
		age = firstMonitorsMaxAge
		if listed, err := rd.readAtStart(ctx, id); listed != nil || err != nil {
			return listed, err
		}
	}
	var err error
	if d.listeners, d.pools, _, err = rd.pages.list(ctx, "loadbalancer_id", id); err != nil {
		return nil, err
	}
	reads := rd.monitorReads(ctx, d, age)
	for i := range d.pools {
		p := &d.pools[i]
		reads = append(reads, func() (err error) { p.members, err = rd.readMembers(ctx, p.ID); return err })
	}
	d.forgetIDs()
	return d, waiting.Together(reads...)
}

func (rd *partsReader) monitorReads(ctx context.Context, d *details, age time.Duration) (reads []func() error) {
	for i := range d.pools {
		if p := &d.pools[i]; p.MonitorID != "" {
			reads = append(reads, func() (err error) {
				p.monitor, err = rd.monitors.Get(ctx, p.MonitorID, inventory.Query{MaxAge: age, Expected: len(d.pools)})
				return err
			})
		}
	}
	return reads
}

func membersPath(poolID string) string { return "lbaas/pools/" + poolID + "/members" }

func (rd *partsReader) readMembers(ctx context.Context, poolID string) (memberSet, error) {
	members, _, err := listAll[member](ctx, rd.api, loadBalancing, membersPath(poolID), "members", listQuery())
	return memberSetOf(members, rd.memberLists), err
}

// readWhole returns a load balancer's parts with all details.
func (rd *partsReader) readWhole(ctx context.Context, id string) (*details, error) {
	rd.readAlone.Store(id, struct{}{})
	d, err := rd.details.Get(ctx, id, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.listed {
		d, err = rd.reread(ctx, d)
	}
	return d, cloudapi.NotAbsence(err)
}

// reread returns the current parts. Listed parts are dropped first, because they are older than their read.
func (rd *partsReader) reread(ctx context.Context, d *details) (*details, error) {
	if d.listed {
		rd.details.Invalidate(d.loadBalancerID)
	}
	return rd.details.Get(ctx, d.loadBalancerID, inventory.Query{})
}

// readCurrent returns a load balancer's parts as the basis for changes. They are read again if updated_at has changed, even after our own
// changes, because somebody else may have changed it right afterwards.
func (rd *partsReader) readCurrent(ctx context.Context, lb *loadBalancer) (*details, error) {
	if _, err := rd.readWhole(ctx, lb.ID); err != nil {
		return nil, err
	}
	return rd.readListed(ctx, lb)
}

// readListed is readCurrent for read-only use: the parts may come from listings alone.
func (rd *partsReader) readListed(ctx context.Context, lb *loadBalancer) (*details, error) {
	d, err := rd.details.Get(ctx, lb.ID, inventory.Query{MaxAge: partsMaxAge})
	if err == nil && d.asOf != "" && d.asOf != lb.UpdatedAt {
		d, err = rd.reread(ctx, d)
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	if d.asOf != lb.UpdatedAt {
		d = d.clone()
		d.asOf = lb.UpdatedAt
		rd.details.PutPartial(d)
	}
	return d, nil
}

// readForUpdate returns the parts for a change of members. After our own changes they are read once more, because somebody else may have
// changed them right afterwards.
func (rd *partsReader) readForUpdate(ctx context.Context, lb *loadBalancer) (d *details, changed bool, err error) {
	if d, err = rd.details.Get(ctx, lb.ID, inventory.Query{MaxAge: updatePartsMaxAge}); err != nil {
		return nil, false, cloudapi.NotAbsence(err)
	}
	if d.asOf == asOfOwnChange {
		d, err = rd.readAfterChange(ctx, lb, d)
		return d, true, err
	}
	return d, false, nil
}

// findMemberID adds the ID of a member to remove, because IDs are not kept for large pools. If the member has changed, the step is planned
// again.
func (rd *partsReader) findMemberID(ctx context.Context, lb *loadBalancer, st step) (step, error) {
	if st.kind != removeMember || st.member.ID != "" {
		return st, nil
	}
	filter := listQuery("address", st.member.Address, "protocol_port", strconv.Itoa(st.member.Port))
	found, _, err := listAll[member](ctx, rd.api, loadBalancing, membersPath(st.id), "members", filter)
	if errors.Is(err, cloudapi.ErrInvalid) && !cloudapi.NotSent(err) { // this Octavia does not support the filter
		found, _, err = listAll[member](ctx, rd.api, loadBalancing, membersPath(st.id), "members", listQuery())
	}
	if err == nil {
		for _, m := range found {
			if m.ID != "" && m.key() == st.member.key() {
				st.member.ID = m.ID
				return st, nil
			}
		}
		m := st.member
		err = fmt.Errorf("%w: pool %s has no longer the member %s at %s:%d", errBusy, st.id, m.Name, m.Address, m.Port)
	}
	rd.details.Invalidate(lb.ID)
	return st, cloudapi.NotAbsence(err)
}

// ignoreError is for early reads: a later read reports the failure.
func ignoreError(error) error { return nil }
