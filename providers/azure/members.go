package azure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// This file keeps the members of pools by network interface: Azure records them on the side of the machines.

// members writes memberships, one load balancer at a time.
type members struct {
	api       *api
	instances *instances
	resources *resources
	locks     keylock.Locks

	mu sync.Mutex
	// nodeMachines are the machines that were nodes since the start: one that is a node no more leaves.
	nodeMachines map[machineID]bool
}

// nicDocument is a network interface: a document of its own, or a part of a machine's or scale set's.
type nicDocument struct {
	resource
	Properties struct {
		object
		State   string       `json:"provisioningState"`
		Primary bool         `json:"primary"`
		Configs []*nicConfig `json:"ipConfigurations"`
	} `json:"properties"`
}

type nicConfig struct {
	subresource
	Properties struct {
		object
		Primary bool           `json:"primary"`
		Version string         `json:"privateIPAddressVersion"`
		Pools   []*subresource `json:"loadBalancerBackendAddressPools"`
	} `json:"properties"`
}

type networkProfile struct {
	object
	Interfaces []*nicDocument `json:"networkInterfaceConfigurations"`
}

// setModel is the document of a scale set, with the model of its machines.
type setModel struct {
	resource
	Properties struct {
		object
		State   string `json:"provisioningState"`
		Profile struct {
			object
			Network networkProfile `json:"networkProfile"`
		} `json:"virtualMachineProfile"`
	} `json:"properties"`
}

// setMachine is the document of a machine of a uniform scale set.
type setMachine struct {
	resource
	Properties struct {
		object
		State    string           `json:"provisioningState"`
		Hardware struct{ object } `json:"hardwareProfile"`
		Network  networkProfile   `json:"networkProfileConfiguration"`
	} `json:"properties"`
}

// labelExclude and the others mark nodes that receive no traffic of load balancers.
const labelExclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// eligibleNodes are the nodes that receive traffic.
func (c *Config) eligibleNodes(nodes []*v1.Node) []*v1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool {
		_, excluded := n.Labels[labelExclude]
		_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
		_, master := n.Labels["node-role.kubernetes.io/master"]
		control := plane || master || n.Labels["kubernetes.io/role"] == "master"
		group := strings.ToLower(n.Labels[labelGroup])
		elsewhereGroup := group != "" && group != c.Group
		id, err := parseProviderID(n.Spec.ProviderID)
		isOurs := err == nil && c.isOwnSubscription(id) && !isUnmanaged(n)
		return excluded || control && (c.ExcludeMaster || c.PoolType == poolIP) || elsewhereGroup || !isOurs
	})
}

// isOwnSubscription reports whether a machine is in the configured subscription.
func (c *Config) isOwnSubscription(id machineID) bool {
	return strings.HasPrefix(string(id), "/subscriptions/"+strings.ToLower(c.Subscription)+"/")
}

// membership lists the changes of a load balancer's pools.
type membership struct {
	join, leave []memberAt
}

// memberAt is a machine in a pool of a family.
type memberAt struct {
	machine machineID
	pool    string
	ipv6    bool
	// recreated is set where plan expects a new load balancer of the same ID, whose pools are empty.
	recreated bool
}

// machinesOf are the machines of all members of load balancers, by the IDs of their IP configurations.
func (m *members) machinesOf(ctx context.Context, lbs ...*loadBalancer) (map[string]machineID, error) {
	machines := map[string]machineID{}
	for _, lb := range lbs {
		for _, pool := range lb.Properties.Pools {
			for _, config := range pool.Properties.Configs {
				id, err := m.machineOf(ctx, config.ID)
				if err != nil {
					return nil, err
				}
				machines[config.ID] = id
			}
		}
	}
	return machines, nil
}

// recordNodes remembers which machines are those of nodes.
func (m *members) recordNodes(nodes []*v1.Node) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, n := range nodes {
		id, _ := parseProviderID(n.Spec.ProviderID) // eligible nodes have one
		m.nodeMachines[id] = true
	}
}

// planFor compares the members of a load balancer with the nodes, where this program fills its pools by network interface.
func (m *members) planFor(o *observed, name string, fronts []desiredFront, nodes []*v1.Node) (p membership) {
	c := m.api.config
	if lb := o.balancerNamed(name); lb.exists() && c.PoolType == poolNIC && c.fillsPools(isInternal(name)) {
		p = m.plan(lb, o.machines, fronts, c.eligibleNodes(nodes))
	}
	return p
}

// plan compares the members of a load balancer with the nodes. It makes no call.
func (m *members) plan(lb *loadBalancer, machines map[string]machineID, fronts []desiredFront, nodes []*v1.Node) (p membership) {
	wanted := map[machineID]bool{}
	for _, n := range nodes {
		id, _ := parseProviderID(n.Spec.ProviderID) // eligible nodes have one
		wanted[id] = true
	}
	if len(wanted) == 0 {
		return p // a pool is never emptied
	}
	seen := map[string]bool{}
	for _, f := range fronts {
		pool := lb.pool(f.pool)
		if pool == nil || seen[f.pool] {
			continue
		}
		seen[f.pool] = true
		have := map[machineID]bool{}
		for _, config := range pool.Properties.Configs {
			id := machines[config.ID]
			have[id] = true
			if id != "" && m.isNode(id) && !wanted[id] {
				p.leave = append(p.leave, memberAt{machine: id, pool: pool.ID, ipv6: f.ipv6})
			}
		}
		for _, id := range sortedKeys(wanted) {
			if !have[id] {
				p.join = append(p.join, memberAt{id, pool.ID, f.ipv6, lb.recreated})
			}
		}
	}
	return p
}

// isNode reports whether a machine is, or was since the start, that of a node: what somebody else put into a pool stays there.
func (m *members) isNode(id machineID) bool {
	m.mu.Lock()
	known := m.nodeMachines[id]
	m.mu.Unlock()
	isOf := func(n *v1.Node) bool { return instanceKey(n.Spec.ProviderID) == string(id) }
	return known || slices.ContainsFunc(m.instances.nodes.Nodes(), isOf)
}

// setMachineOf is the machine of a uniform scale set that an IP configuration, in lower case, is a part of.
func setMachineOf(config string) (id machineID, ok bool) {
	before, _, ok := strings.Cut(config, "/networkinterfaces/")
	return machineID(before), ok && strings.Contains(before, "/virtualmachinescalesets/")
}

// machineOf is the machine of an IP configuration, "" where it has none, or is in a resource group that the credential may not see: it is
// somebody else's then.
func (m *members) machineOf(ctx context.Context, config string) (machineID, error) {
	config = strings.ToLower(config)
	if id, ok := setMachineOf(config); ok {
		return id, nil
	}
	nicID := ownerOf(config)
	nic, err := m.instances.networks.nics.Get(ctx, nicID, queryMembers)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil
	case errors.Is(err, cloudapi.ErrUnauthorized) && !slices.Contains(m.instances.resourceGroups(), groupOf(nicID)):
		return "", nil
	case err != nil:
		return "", err
	case nic.Properties.Machine == nil:
		return "", nil
	}
	return machineID(strings.ToLower(nic.Properties.Machine.ID)), nil
}

// changeMembers brings the members of a load balancer in step with the nodes.
func (m *members) changeMembers(ctx context.Context, lb string, fronts []desiredFront, nodes []*v1.Node) error {
	unlock, err := m.locks.Lock(ctx, strings.ToLower(lb))
	if err != nil {
		return err
	}
	defer unlock()
	now, err := readAs[loadBalancer](ctx, m.resources, lb, false)
	if err != nil || now == nil {
		return err
	}
	machines, err := m.machinesOf(ctx, now)
	if err != nil {
		return err
	}
	p := m.plan(now, machines, fronts, nodes)
	if p.join, err = m.omitUnchangeable(ctx, p.join); err != nil {
		return err
	}
	last := p.keepLast(now, machines)
	if len(p.join)+len(p.leave) == 0 {
		return nil
	}
	defer m.resources.invalidate(lb)
	if err := m.changeMembership(ctx, p); err != nil {
		return err
	}
	if now, err = readAs[loadBalancer](ctx, m.resources, lb, true); err != nil || now == nil || len(last) == 0 {
		return err
	}
	if machines, err = m.machinesOf(ctx, now); err != nil {
		return err
	}
	second := membership{leave: last}
	second.keepLast(now, machines)
	return m.changeMembership(ctx, second)
}

// keepLast delays removals that would empty a pool until others have joined, which may fail.
func (p *membership) keepLast(lb *loadBalancer, machines map[string]machineID) (last []memberAt) {
	serving := map[string]bool{}
	for _, pool := range lb.Properties.Pools {
		for _, config := range pool.Properties.Configs {
			leaves := slices.ContainsFunc(p.leave, func(at memberAt) bool {
				return sameID(at.pool, pool.ID) && at.machine == machines[config.ID]
			})
			serving[pool.lowerID()] = serving[pool.lowerID()] || !leaves
		}
	}
	isLast := func(at memberAt) bool { return !serving[strings.ToLower(at.pool)] }
	for _, at := range p.leave {
		if isLast(at) {
			last = append(last, at)
		}
	}
	p.leave = slices.DeleteFunc(slices.Clone(p.leave), isLast)
	return last
}

// poolChange puts configurations of a family into a pool, or takes them out of it.
type poolChange struct {
	memberAt
	join bool
}

// changesOf groups changes by the ID of the resource that is written for them. ids has the order of the changes; "" leaves one out.
func (p membership) changesOf(of func(poolChange) string) (ids []string, changes map[string][]poolChange) {
	changes = map[string][]poolChange{}
	add := func(c poolChange) {
		id := of(c)
		if id == "" {
			return
		}
		if changes[id] == nil {
			ids = append(ids, id)
		}
		changes[id] = append(changes[id], c)
	}
	for _, at := range p.join {
		add(poolChange{at, true})
	}
	for _, at := range p.leave {
		add(poolChange{at, false})
	}
	return ids, changes
}

// resourceChanges are memberships as changes of the models of scale sets, and of machines, one for all pools of each.
func (m *members) resourceChanges(p membership) (models, machines []resourceChange) {
	sets, changes := p.changesOf(func(c poolChange) string {
		if set, uniform := c.machine.uniform(); c.join && uniform {
			return set
		}
		return ""
	})
	for _, set := range sets {
		models = append(models, m.editModel(set, changes[set]))
	}
	ids, changes := p.changesOf(func(c poolChange) string { return string(c.machine) })
	for _, id := range ids {
		machines = append(machines, m.editMachine(machineID(id), changes[id]))
	}
	return models, machines
}

// changeMembership makes memberships: first the models of scale sets, so that whatever comes meanwhile is not missed, then the machines.
func (m *members) changeMembership(ctx context.Context, p membership) error {
	var problems []error
	failed := map[string]bool{}
	models, machines := m.resourceChanges(p)
	for _, e := range models {
		err := m.makeChange(ctx, e)
		failed[e.id] = err != nil
		problems = append(problems, err)
	}
	machines = slices.DeleteFunc(machines, func(e resourceChange) bool {
		set, _ := machineID(e.id).uniform()
		return failed[set] // or nobody would miss the pool in the model
	})
	return errors.Join(append(problems, m.makeChanges(ctx, machines))...)
}

// resourceChange changes the pools of a scale set, a machine or a network interface. read returns what is to be written, or nil.
type resourceChange struct {
	id   string
	read func(ctx context.Context) (*poolWrite, error)
}

// poolWrite is the part of a document that has pools, before and after a write.
type poolWrite struct {
	what, id, version, etag string
	before, after           doc
}

// makeChange makes one change, and waits for its end.
func (m *members) makeChange(ctx context.Context, e resourceChange) error {
	return m.changeExclusively(ctx, e.id, func() error {
		w, err := e.read(ctx)
		if err != nil || w == nil {
			return err
		}
		return m.api.put(ctx, w.what, w.id, w.version, w.after, w.etag)
	})
}

// startChange writes, and returns a wait for the end of Azure's operation. What is gone is gone with its memberships.
func (m *members) startChange(ctx context.Context, e resourceChange) (wait func() error, err error) {
	w, err := e.read(ctx)
	if err == nil && w != nil {
		wait, err = m.api.startPut(ctx, w.what, w.id, w.version, w.after, w.etag)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		wait, err = nil, nil
	}
	return wait, err
}

// maxBatch is how many changes begin before the end of others is waited for. Reads tell of each end, and their limits leave room for two
// batches under way.
const maxBatch = 75

// makeChanges makes all changes, even if some fail. The next batch is sent while Azure works on the previous one.
func (m *members) makeChanges(ctx context.Context, work []resourceChange) error {
	problems := make([]error, len(work))
	var underWay [2]sync.WaitGroup
	for first := 0; first < len(work); first += maxBatch {
		group, last := &underWay[first/maxBatch%len(underWay)], min(first+maxBatch, len(work))
		group.Wait()
		m.startChanges(ctx, work[first:last], problems[first:last], group)
	}
	for i := range underWay {
		underWay[i].Wait()
	}
	return errors.Join(problems...)
}

// startChanges sends changes, a few at a time, and leaves the wait for the end of each to a group.
func (m *members) startChanges(ctx context.Context, work []resourceChange, problems []error, group *sync.WaitGroup) {
	waits, starts := make([]func() error, len(work)), make([]func() error, len(work))
	for i, e := range work {
		starts[i] = func() error {
			return m.changeExclusively(ctx, e.id, func() (err error) {
				waits[i], err = m.startChange(ctx, e)
				return err
			})
		}
	}
	copy(problems, waiting.EachTogether(starts...))
	for i, e := range work {
		if problems[i] != nil || waits[i] == nil {
			continue
		}
		group.Add(1)
		rescue.Go("waiting for a change of "+nameOf(e.id), func() {
			defer group.Done()
			defer rescue.Into(&problems[i], "waiting for a change of "+nameOf(e.id))
			problems[i] = m.awaitChange(ctx, e, waits[i])
		})
	}
}

// awaitChange waits for the end of a change. What was refused because of somebody else's work is tried again.
func (m *members) awaitChange(ctx context.Context, e resourceChange, wait func() error) error {
	err := wait()
	if !errors.Is(err, cloudapi.ErrConflict) {
		return err
	}
	return m.changeExclusively(ctx, e.id, func() error {
		wait, err := m.startChange(ctx, e)
		if err != nil || wait == nil {
			return err
		}
		return wait()
	})
}

// stateAge is how old the state of a machine may be that is about to join: all Services ask for the same machines at the same time.
const stateAge = 10 * time.Second

// omitUnchangeable omits machines that cannot change because they are stopped, going or missing.
func (m *members) omitUnchangeable(ctx context.Context, list []memberAt) ([]memberAt, error) {
	accepts := map[machineID]*bool{}
	var reads []func() error
	for _, at := range list {
		if accepts[at.machine] == nil {
			answer := new(bool)
			accepts[at.machine] = answer
			reads = append(reads, func() (err error) {
				*answer, err = m.acceptsChange(ctx, at.machine)
				return err
			})
		}
	}
	if err := waiting.Together(reads...); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(slices.Clone(list), func(at memberAt) bool { return !*accepts[at.machine] }), nil
}

func (m *members) acceptsChange(ctx context.Context, id machineID) (bool, error) {
	machine, err := m.instances.inventory.Get(ctx, id, inventory.Query{MaxAge: stateAge, MaxMissAge: queryMembers.MaxMissAge})
	if _, uniform := id.uniform(); err == nil && uniform && machine.Properties.View == nil {
		machine, err = m.instances.get(ctx, id) // the listing has no power states
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return false, nil
	}
	state := machine.Properties.State
	return !strings.EqualFold(state, "Deleting") && !strings.EqualFold(state, "Unknown") && !refusesChange(machine.powerState()), err
}

// changeExclusively makes one change at a time of a machine, a scale set or an interface, because load balancers share them. change reads
// before it writes.
func (m *members) changeExclusively(ctx context.Context, id string, change func() error) error {
	unlock, err := m.locks.Lock(ctx, strings.ToLower(id))
	if err != nil {
		return err
	}
	defer unlock()
	return retryWhile(ctx, change, func(err error) bool { return errors.Is(err, cloudapi.ErrConflict) })
}

// decouple takes all members out of the pools of a load balancer that is about to be deleted.
func (m *members) decouple(ctx context.Context, d doc) error {
	lb := parse[loadBalancer](d)
	problems := []error{m.makeChanges(ctx, m.memberRemovals(lb))}
	models, err := m.modelRemovals(ctx, lb)
	problems = append(problems, err)
	for _, e := range models {
		problems = append(problems, m.makeChange(ctx, e))
	}
	return errors.Join(problems...)
}

// memberRemovals are the changes that take all members out of the pools of a load balancer.
func (m *members) memberRemovals(lb *loadBalancer) (work []resourceChange) {
	out := map[string][]poolChange{}
	for _, pool := range lb.Properties.Pools {
		for _, config := range pool.Properties.Configs {
			id := strings.ToLower(config.ID)
			if machine, ok := setMachineOf(id); ok {
				id = string(machine)
			} else {
				id = ownerOf(id)
			}
			out[id] = append(out[id], poolChange{memberAt: memberAt{pool: pool.ID}})
		}
	}
	for _, id := range sortedKeys(out) {
		e := resourceChange{id, func(ctx context.Context) (*poolWrite, error) { return m.readInterface(ctx, id, out[id]) }}
		if _, uniform := machineID(id).uniform(); uniform {
			e = m.editMachine(machineID(id), out[id])
		}
		work = append(work, e)
	}
	return work
}

// modelRemovals are the changes that take the models of scale sets out of the pools of a load balancer.
func (m *members) modelRemovals(ctx context.Context, lb *loadBalancer) (models []resourceChange, err error) {
	path := groupPath(m.api.config.Subscription, m.api.config.Group, "Microsoft.Compute") + "/virtualMachineScaleSets"
	sets, _, err := list[doc](ctx, m.api, "scale sets", path, computeVersion)
	for _, set := range parseAll[setModel](sets) {
		var changes []poolChange
		for _, pool := range lb.Properties.Pools {
			changes = append(changes, poolChange{memberAt: memberAt{pool: pool.ID}})
		}
		if !set.isGoing() && changePools(set.Properties.Profile.Network.Interfaces, changes) {
			models = append(models, m.editModel(set.ID, changes))
		}
	}
	return models, err
}

// editModel changes the model of a scale set, so that new machines come with the pool. Only the network profile goes over the wire: what is
// absent stays as it is.
func (m *members) editModel(id string, changes []poolChange) resourceChange {
	return resourceChange{id, func(ctx context.Context) (*poolWrite, error) {
		set, err := getAs[setModel](ctx, m.api, "scale set "+nameOf(id), id, computeVersion)
		if err != nil || set.isGoing() {
			return nil, err
		}
		w := poolWrite{what: "scale set " + set.Name, id: set.ID, version: computeVersion, etag: set.ETag}
		return w.changePools(set.Properties.Profile.Network.Interfaces, changes, func() doc {
			body := &setModel{resource: resource{Location: set.Location, Edge: set.Edge}}
			body.Properties.Profile.Network.Interfaces = set.Properties.Profile.Network.Interfaces
			return format(body)
		}), nil
	}}
}

// changePools changes network interfaces, of which part returns what is sent, and returns the write, or nil where nothing changed.
func (w poolWrite) changePools(nics []*nicDocument, changes []poolChange, part func() doc) *poolWrite {
	for _, c := range changes {
		if c.recreated {
			changePool(nics, c.memberAt, false)
		}
	}
	w.before = part()
	if !changePools(nics, changes) {
		return nil
	}
	w.after = part()
	return &w
}

func (s *setModel) isGoing() bool { return strings.EqualFold(s.Properties.State, "Deleting") }

// refusesChange reports whether a machine in this power state accepts no change and needs none.
func refusesChange(power string) bool {
	return slices.Contains([]string{"stopped", "stopping", "deallocated", "deallocating", "unknown"}, power)
}

// editMachine changes the pools of one machine, unless it is going.
func (m *members) editMachine(id machineID, changes []poolChange) resourceChange {
	return resourceChange{string(id), func(ctx context.Context) (*poolWrite, error) {
		if _, uniform := id.uniform(); uniform {
			return m.readInstance(ctx, id, changes)
		}
		machine, err := m.instances.inventory.Get(ctx, id, queryMembers)
		if err != nil {
			return nil, err
		}
		return m.readInterface(ctx, machine.primaryInterface(), changes)
	}}
}

// readInterface returns what a network interface is to be, whether it has a machine or not.
func (m *members) readInterface(ctx context.Context, id string, changes []poolChange) (*poolWrite, error) {
	w := poolWrite{what: "network interface " + nameOf(id), id: id, version: networkVersion}
	nic, err := getAs[nicDocument](ctx, m.api, w.what, id, networkVersion)
	if err != nil {
		return nil, err
	}
	w.etag = nic.ETag
	if hasFailed(nic.Properties.State) {
		changes = slices.DeleteFunc(slices.Clone(changes), func(c poolChange) bool { return c.join })
	}
	return w.changePools([]*nicDocument{nic}, changes, func() doc { return format(nic) }), nil
}

func (m *members) readInstance(ctx context.Context, id machineID, changes []poolChange) (*poolWrite, error) {
	set, _ := id.uniform()
	w := poolWrite{what: "machine " + nameOf(string(id)) + " of scale set " + nameOf(set), id: string(id), version: computeVersion}
	machine, err := getAs[setMachine](ctx, m.api, w.what, w.id, w.version)
	if err != nil || strings.EqualFold(machine.Properties.State, "Deleting") {
		return nil, err
	}
	w.etag = machine.ETag
	p := machine.Properties
	return w.changePools(p.Network.Interfaces, changes, func() doc {
		body := &setMachine{resource: resource{Location: machine.Location}}
		body.Properties.Hardware, body.Properties.Network.Interfaces = p.Hardware, p.Network.Interfaces
		return format(body)
	}), nil
}

// changePools makes several changes of pools, and reports whether anything changed.
func changePools(nics []*nicDocument, changes []poolChange) (changed bool) {
	for _, c := range changes {
		changed = changePool(nics, c.memberAt, c.join) || changed
	}
	return changed
}

// changePool puts the primary configuration of a family into a pool, or takes every configuration out of it.
func changePool(nics []*nicDocument, at memberAt, in bool) (changed bool) {
	isPool := func(p *subresource) bool { return sameID(p.ID, at.pool) }
	for _, nic := range nics {
		if len(nics) > 1 && !nic.Properties.Primary {
			continue
		}
		for _, config := range nic.Properties.Configs {
			pools := config.Properties.Pools
			has := slices.ContainsFunc(pools, isPool)
			switch {
			case !in && has:
				pools = slices.DeleteFunc(pools, isPool)
			case in && !has && nic.configOf(at.ipv6) == config && !isOnOtherLB(pools, at.pool):
				pools = append(pools, &subresource{ID: at.pool})
			default:
				continue
			}
			config.Properties.Pools, changed = pools, true
		}
	}
	return changed
}

// isOnOtherLB reports whether a configuration is in a pool of another load balancer of the same kind.
func isOnOtherLB(pools []*subresource, pool string) bool {
	kind := func(id string) bool { return isInternal(nameOf(ownerOf(id))) }
	return slices.ContainsFunc(pools, func(other *subresource) bool {
		return !sameID(ownerOf(other.ID), ownerOf(pool)) && kind(other.ID) == kind(pool)
	})
}

// configOf is the configuration that serves a family: the primary one IPv4, the first one of the family IPv6.
func (n *nicDocument) configOf(ipv6 bool) (serving *nicConfig) {
	for _, c := range n.Properties.Configs {
		if strings.EqualFold(c.Properties.Version, "IPv6") == ipv6 && (serving == nil || !ipv6 && c.Properties.Primary) {
			serving = c
		}
	}
	return serving
}
