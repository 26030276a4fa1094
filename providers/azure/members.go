package azure

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

// This file keeps the members of pools by network interface: Azure records them on the side of the machines.

// members writes memberships, one load balancer at a time.
type members struct {
	api       *api
	instances *instances
	resources *resources
	locks     keylock.Locks

	mu sync.Mutex
	// were are the machines that were nodes since the start: one that is a node no more leaves.
	were map[machineID]bool
}

// labelExclude and the others mark nodes that receive no traffic of load balancers.
const labelExclude = "node.kubernetes.io/exclude-from-external-load-balancers"

// eligible are the nodes that receive traffic.
func (c *Config) eligible(nodes []*v1.Node) []*v1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool {
		_, excluded := n.Labels[labelExclude]
		_, plane := n.Labels["node-role.kubernetes.io/control-plane"]
		_, master := n.Labels["node-role.kubernetes.io/master"]
		control := plane || master || n.Labels["kubernetes.io/role"] == "master"
		group := strings.ToLower(n.Labels[labelGroup])
		elsewhereGroup := group != "" && group != c.Group
		_, err := parseProviderID(n.Spec.ProviderID)
		return excluded || control && (c.ExcludeMaster || c.PoolType == poolIP) || elsewhereGroup || unmanaged(n) || err != nil
	})
}

// membership is what is to be done about the pools of a load balancer.
type membership struct {
	join, leave []memberAt
}

// memberAt is a machine in a pool of a family.
type memberAt struct {
	machine machineID
	pool    string
	six     bool
}

// compare is what leaves the pools, and what joins them.
func (p membership) compare() (before, after any) {
	texts := func(list []memberAt) any {
		byPool := map[string][]string{}
		for _, m := range list {
			byPool[m.pool] = append(byPool[m.pool], string(m.machine))
		}
		return map[string]any{"backendAddressPools": byPool}
	}
	return texts(p.leave), texts(p.join)
}

// machinesOf are the machines of all members of load balancers, by the IDs of their IP configurations.
func (m *members) machinesOf(ctx context.Context, lbs ...doc) (map[string]machineID, error) {
	machines := map[string]machineID{}
	for _, lb := range lbs {
		for _, pool := range docs(lb, "properties", "backendAddressPools") {
			for _, config := range docs(pool, "properties", "backendIPConfigurations") {
				id, err := m.machineOf(ctx, str(config, "id"))
				if err != nil {
					return nil, err
				}
				machines[str(config, "id")] = id
			}
		}
	}
	return machines, nil
}

// plan compares the members of a load balancer with the nodes. It makes no call.
func (m *members) plan(lb doc, machines map[string]machineID, fronts []front, nodes []*v1.Node) (p membership) {
	wanted := map[machineID]bool{}
	m.mu.Lock()
	if m.were == nil {
		m.were = map[machineID]bool{}
	}
	for _, n := range nodes {
		id, _ := parseProviderID(n.Spec.ProviderID) // eligible nodes have one
		wanted[id], m.were[id] = true, true
	}
	were := m.were
	m.mu.Unlock()
	if len(wanted) == 0 {
		return p // a pool is never emptied
	}
	seen := map[string]bool{}
	for _, f := range fronts {
		pool := byName(docs(lb, "properties", "backendAddressPools"), f.pool)
		if pool == nil || seen[f.pool] {
			continue
		}
		seen[f.pool] = true
		have := map[machineID]bool{}
		for _, config := range docs(pool, "properties", "backendIPConfigurations") {
			id := machines[str(config, "id")]
			have[id] = true
			if m.isNode(id, were) && !wanted[id] {
				p.leave = append(p.leave, memberAt{id, str(pool, "id"), f.six})
			}
		}
		for _, id := range sortedIDs(wanted) {
			if !have[id] {
				p.join = append(p.join, memberAt{id, str(pool, "id"), f.six})
			}
		}
	}
	return p
}

func sortedIDs(set map[machineID]bool) []machineID {
	var list []machineID
	for id := range set {
		list = append(list, id)
	}
	slices.Sort(list)
	return list
}

// isNode reports whether a machine is, or was since the start, that of a node: what somebody else put into a pool stays there.
func (m *members) isNode(id machineID, were map[machineID]bool) bool {
	m.mu.Lock()
	known := were[id]
	m.mu.Unlock()
	return known || slices.ContainsFunc(m.instances.known(), func(n *v1.Node) bool { return instanceKey(n.Spec.ProviderID) == string(id) })
}

// machineOf is the machine of an IP configuration, "" where it has none.
func (m *members) machineOf(ctx context.Context, config string) (machineID, error) {
	config = strings.ToLower(config)
	if set, _, ok := strings.Cut(config, "/networkinterfaces/"); ok && strings.Contains(set, "/virtualmachinescalesets/") {
		return machineID(set), nil
	}
	nic := ownerOf(config)
	card, err := m.instances.networks.all.Get(ctx, nic, queryMembers)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case card.Properties.Machine == nil:
		return "", nil
	}
	return machineID(strings.ToLower(card.Properties.Machine.ID)), nil
}

// apply makes memberships, and tells the load balancer's newest document.
func (m *members) apply(ctx context.Context, lb string, compute func(lb doc, machines map[string]machineID) membership) (doc, error) {
	unlock, err := m.locks.Lock(ctx, strings.ToLower(lb))
	if err != nil {
		return nil, err
	}
	defer unlock()
	now, err := m.resources.read(ctx, lb, false)
	if err != nil || now == nil {
		return now, err
	}
	machines, err := m.machinesOf(ctx, now)
	if err != nil {
		return nil, err
	}
	p := compute(now, machines)
	if len(p.join)+len(p.leave) == 0 {
		return now, nil
	}
	defer m.resources.wrote(lb, nil)
	var problems []error
	models := map[string]error{}
	for _, at := range p.join {
		set, uniform := at.machine.uniform()
		if _, done := models[set+at.pool]; uniform && !done {
			models[set+at.pool] = m.editModel(ctx, set, at, true)
			problems = append(problems, models[set+at.pool])
		}
		if models[set+at.pool] == nil { // or nobody would miss the pool in the model
			problems = append(problems, m.edit(ctx, at, true))
		}
	}
	for _, at := range p.leave {
		problems = append(problems, m.edit(ctx, at, false))
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	return m.resources.read(ctx, lb, true)
}

// alone makes one change of a machine, a scale set or an interface at a time, for two load balancers have the same machines. change reads
// again what it writes.
func (m *members) alone(ctx context.Context, id string, change func() error) error {
	unlock, err := m.locks.Lock(ctx, strings.ToLower(id))
	if err != nil {
		return err
	}
	defer unlock()
	return patiently(ctx, change, func(err error) bool { return errors.Is(err, cloudapi.ErrConflict) })
}

// decouple takes all members out of the pools of a load balancer that is about to be deleted.
func (m *members) decouple(ctx context.Context, lb doc) error {
	var problems []error
	for _, pool := range docs(lb, "properties", "backendAddressPools") {
		for _, config := range docs(pool, "properties", "backendIPConfigurations") {
			id, err := m.machineOf(ctx, str(config, "id"))
			if err == nil && id != "" {
				err = m.edit(ctx, memberAt{machine: id, pool: str(pool, "id")}, false)
			}
			problems = append(problems, err)
		}
	}
	path := groupPath(m.api.config.Subscription, m.api.config.Group, "Microsoft.Compute") + "/virtualMachineScaleSets"
	sets, _, err := list[doc](ctx, m.api, "scale sets", path, computeVersion)
	problems = append(problems, err)
	for _, set := range sets {
		for _, pool := range docs(lb, "properties", "backendAddressPools") {
			at := memberAt{pool: str(pool, "id")}
			if _, changes := modelWith(set, at, false); changes {
				problems = append(problems, m.editModel(ctx, str(set, "id"), at, false))
			}
		}
	}
	return errors.Join(problems...)
}

func (m *members) editModel(ctx context.Context, set string, at memberAt, in bool) error {
	return m.alone(ctx, set, func() error {
		var d doc
		if err := m.api.get(ctx, "scale set "+nameOf(set), set, computeVersion, &d); err != nil {
			return err
		}
		return m.editSet(ctx, d, at, in)
	})
}

// modelWith is a copy of a scale set whose model has a pool, or has it no more, and whether that is a change.
func modelWith(set doc, at memberAt, in bool) (doc, bool) {
	set = cloneOf(set)
	cards := docs(set, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
	return set, !strings.EqualFold(str(set, "properties", "provisioningState"), "Deleting") && changePool(cards, at, in)
}

// editSet changes the model of a scale set, so that new machines come with the pool. Only the network profile goes over the wire:
// what is absent stays as it is.
func (m *members) editSet(ctx context.Context, set doc, at memberAt, in bool) error {
	set, changed := modelWith(set, at, in)
	if !changed {
		return nil
	}
	cards := docs(set, "properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations")
	body := doc{"location": str(set, "location"), "properties": doc{"virtualMachineProfile": doc{"networkProfile": doc{
		"networkInterfaceConfigurations": anyList(cards),
	}}}}
	if value(set, "extendedLocation") != nil {
		body["extendedLocation"] = set["extendedLocation"]
	}
	return m.api.put(ctx, "scale set "+str(set, "name"), str(set, "id"), computeVersion, body, str(set, "etag"))
}

// skipped reports whether a machine with this power state takes no change, and needs none.
func skipped(power string) bool {
	return slices.Contains([]string{"stopped", "stopping", "deallocated", "deallocating", "unknown"}, power)
}

// edit changes the pools of one machine. One that is going, or stopped, is left out.
func (m *members) edit(ctx context.Context, at memberAt, in bool) error {
	machine, err := m.instances.get(ctx, at.machine)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	state := machine.Properties.State
	if strings.EqualFold(state, "Deleting") || in && (strings.EqualFold(state, "Unknown") || skipped(machine.power())) {
		return nil
	}
	if _, uniform := at.machine.uniform(); uniform {
		return m.alone(ctx, string(at.machine), func() error { return m.editInstance(ctx, at, in) })
	}
	id := machine.primaryInterface()
	return m.alone(ctx, id, func() error {
		var nic doc
		if err := m.api.get(ctx, "network interface "+nameOf(id), id, networkVersion, &nic); err != nil {
			return err
		}
		if in && strings.EqualFold(str(nic, "properties", "provisioningState"), "Failed") || !changePool([]doc{nic}, at, in) {
			return nil
		}
		return m.api.put(ctx, "network interface "+nameOf(id), id, networkVersion, nic, str(nic, "etag"))
	})
}

func (m *members) editInstance(ctx context.Context, at memberAt, in bool) error {
	var d doc
	what := "machine " + nameOf(string(at.machine)) + " of its scale set"
	if err := m.api.get(ctx, what, string(at.machine), computeVersion, &d); err != nil {
		return err
	}
	cards := docs(d, "properties", "networkProfileConfiguration", "networkInterfaceConfigurations")
	if !changePool(cards, at, in) {
		return nil
	}
	body := doc{"location": str(d, "location"), "properties": doc{
		"hardwareProfile":             value(d, "properties", "hardwareProfile"),
		"networkProfileConfiguration": doc{"networkInterfaceConfigurations": anyList(cards)},
	}}
	return m.api.put(ctx, what, string(at.machine), computeVersion, body, str(d, "etag"))
}

// changePool puts the primary configuration of a family into a pool, or takes every configuration out of it.
func changePool(cards []doc, at memberAt, in bool) bool {
	const key = "loadBalancerBackendAddressPools"
	changed := false
	for _, card := range cards {
		if len(cards) > 1 && !flag(card, "properties", "primary") {
			continue
		}
		for _, config := range docs(card, "properties", "ipConfigurations") {
			pools := docs(config, "properties", key)
			has := slices.ContainsFunc(pools, func(p doc) bool { return sameID(str(p, "id"), at.pool) })
			switch {
			case !in && has:
				pools = slices.DeleteFunc(pools, func(p doc) bool { return sameID(str(p, "id"), at.pool) })
			case in && !has && rightConfig(card, config, at.six) && !onOther(pools, at.pool):
				pools = append(pools, doc{"id": at.pool})
			default:
				continue
			}
			setList(config, key, pools)
			changed = true
		}
	}
	return changed
}

// onOther reports whether a configuration is in a pool of another load balancer of the same kind.
func onOther(pools []doc, pool string) bool {
	kind := func(id string) bool { return strings.HasSuffix(strings.ToLower(nameOf(ownerOf(id))), internalSuffix) }
	return slices.ContainsFunc(pools, func(p doc) bool {
		other := str(p, "id")
		return !sameID(ownerOf(other), ownerOf(pool)) && kind(other) == kind(pool)
	})
}

// rightConfig: the primary configuration serves IPv4, the first one of the family IPv6.
func rightConfig(card, config doc, six bool) bool {
	var right doc
	for _, c := range docs(card, "properties", "ipConfigurations") {
		if strings.EqualFold(str(c, "properties", "privateIPAddressVersion"), "IPv6") != six {
			continue
		}
		if right == nil || !six && flag(c, "properties", "primary") {
			right = c
		}
	}
	return right != nil && str(right, "name") == str(config, "name")
}
