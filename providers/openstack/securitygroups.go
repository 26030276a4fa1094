package openstack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/waiting"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

type securityGroup struct {
	ID    string         `json:"id"`
	Name  string         `json:"name"`
	Rules []securityRule `json:"security_group_rules"`
}

const etherTypeV4, etherTypeV6 = "IPv4", "IPv6"

type securityRule struct {
	ID        string `json:"id,omitempty"`
	GroupID   string `json:"security_group_id"`
	Direction string `json:"direction"`
	EtherType string `json:"ethertype"`
	Protocol  string `json:"protocol,omitempty"`
	Min       int    `json:"port_range_min,omitempty"`
	Max       int    `json:"port_range_max,omitempty"`
	Prefix    string `json:"remote_ip_prefix,omitempty"`
}

// equals ignores IDs and the case of the protocol.
func (r securityRule) equals(o securityRule) bool {
	r.ID, o.ID, r.GroupID, o.GroupID = "", "", "", ""
	r.Protocol, o.Protocol = strings.ToLower(r.Protocol), strings.ToLower(o.Protocol)
	return r == o
}

// securityGroups opens the node ports of Services by a group for each, and closes them.
type securityGroups struct {
	*inventory.Inventory[string, securityGroup]

	config    loadBalancerConfig
	api       *api
	networks  *networks
	instances *instances
	// locks serialize the changes of a port, which Services share.
	locks keylock.Locks
}

func newSecurityGroups(c loadBalancerConfig, a *api, n *networks, i *instances) *securityGroups {
	source := sourceOf(a, network, "security group", "security-groups", func(g securityGroup) string { return g.ID })
	source.Indexes = map[string]func(securityGroup) []string{indexName: func(g securityGroup) []string { return []string{g.Name} }}
	return &securityGroups{Inventory: inventory.New(source), config: c, api: a, networks: n, instances: i}
}

// findFor returns a Service's security groups, by the UID in their name. After a lost response there may be several; all but the first are
// deleted.
func (sg *securityGroups) findFor(ctx context.Context, service *v1.Service, age time.Duration) ([]securityGroup, error) {
	found, err := sg.Find(ctx, indexName, securityGroupName(service), withinAge(age))
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b securityGroup) int { return strings.Compare(a.ID, b.ID) })
	return found, err
}

// groupChanges holds the changes of a Service's security groups. opens come before traffic reaches new ports, closes after it has stopped.
type groupChanges struct{ opens, closes []change }

// wrap wraps the changes of a load balancer in those of its security groups. After a failure nothing closes, and each closing is tried.
func (c groupChanges) wrap(changes []change) []change {
	return slices.Concat(c.opens, changes, []change{failureChange()}, services.EachTried(c.closes))
}

// groupsMaxAge is for security groups. They may be older if only our own changes can have happened since.
func (o observed) groupsMaxAge() time.Duration {
	if o.changedByUs || (o.parts != nil && o.parts.asOf == asOfOwnChange) {
		return updateMaxAge
	}
	return newMaxAge
}

// plan opens the Service's node ports if the option is set. Otherwise it removes earlier groups.
func (sg *securityGroups) plan(
	ctx context.Context, service *v1.Service, o observed, members []backend,
) (g groupChanges, err error) {
	if !sg.config.ManageSecurityGroups {
		groups, err := sg.findFor(ctx, service, networksMaxAge)
		g.closes = sg.deletions(groups)
		return g, err
	}
	from, err := sg.networks.subnet(ctx, memberSubnet(o.settings, sg.config, o.lb.VIPSubnetID))
	if err != nil {
		return g, cloudapi.NotAbsence(fmt.Errorf("finding the network that the load balancer reaches nodes from: %w", err))
	}
	groups, err := sg.findFor(ctx, service, o.groupsMaxAge())
	switch {
	case err != nil:
		return g, err
	case len(groups) == 0 && o.isBlocked(securityGroupName(service)):
		return g, nil
	case len(groups) == 0:
		g.opens = []change{sg.creation(service)}
		return g, nil
	}
	wanted, err := wantedRules(service, o, from.CIDR)
	if err != nil {
		return g, err
	}
	if o.features.isOVN() && o.settings.sources.Partial() { // only narrowing is possible here
		used := clientPorts(service, o.parts, o.role)
		for _, have := range groups[0].Rules {
			if !used[have.kind()] && !slices.ContainsFunc(wanted, have.equals) {
				g.closes = append(g.closes, sg.closing(groups[0], have))
			}
		}
		for _, c := range (narrowing{o.settings.sources, false}).rules(groups[0], service, o.parts, o.role) {
			if what := "clients of " + texts(c.remove)[0]; !o.isBlocked(what) {
				g.opens = append(g.opens, blockOnly(sg.narrowing(groups[0], c), what))
			}
		}
	} else {
		sg.addRules(&g, groups[0], wanted, o, service)
	}
	if err := sg.addPorts(ctx, &g, groups[0], members, o); err != nil {
		return g, err
	}
	g.closes = append(g.closes, sg.deletions(groups[1:])...)
	return g, nil
}

// creation returns the change that creates a group. Its rules and ports follow.
func (sg *securityGroups) creation(service *v1.Service) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "security group " + securityGroupName(service)},
		Replan:  true,
		Compare: func() (before, after any) { return nil, map[string]any{"name": securityGroupName(service)} },
		Make: func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			err := sg.create(ctx, service)
			req.Asked(err)
			return o.withFailure(securityGroupName(service), nil, err)
		},
	}
}

func (sg *securityGroups) deletions(groups []securityGroup) (changes []change) {
	for _, g := range groups {
		c := deletionOf("security group "+g.Name, func(ctx context.Context) error { return sg.drop(ctx, g) })
		c.Compare = func() (before, after any) { return map[string]any{"name": g.Name}, nil }
		changes = append(changes, c)
	}
	return changes
}

func (sg *securityGroups) create(ctx context.Context, service *v1.Service) error {
	body := map[string]string{"name": securityGroupName(service), "description": fmt.Sprintf("Security Group for %s/%s Service LoadBalancer in cluster", service.Namespace, service.Name)}
	g, err := neutron(ctx, sg.api, "creating a security group", http.MethodPost, "security-groups", "security_group", body,
		func(g *securityGroup) bool { return g.ID != "" })
	if err != nil {
		sg.Invalidate("")
		return cloudapi.NotAbsence(err)
	}
	sg.Put(*g)
	return nil
}

// wantedRules open the node ports to the load balancer's network; with ovn, which keeps the client's address, to the source ranges.
func wantedRules(service *v1.Service, o observed, members string) (rules []securityRule, err error) {
	from := []string{members}
	if o.features.isOVN() {
		from = o.settings.sources.Texts(allAddresses(familyOf(service) == v1.IPv6Protocol))
	}
	add := func(protocol string, port int, prefix string) error {
		p, err := netip.ParsePrefix(prefix)
		if err != nil {
			return fmt.Errorf("network %q: %w", prefix, err)
		}
		family := etherTypeV4
		if p.Addr().Is6() {
			family = etherTypeV6
		}
		rules = append(rules, securityRule{Direction: "ingress", EtherType: family, Protocol: protocol, Min: port, Max: port, Prefix: prefix})
		return nil
	}
	if n := int(service.Spec.HealthCheckNodePort); n != 0 {
		if err := add("tcp", n, members); err != nil {
			return nil, err
		}
	}
	for _, p := range service.Spec.Ports {
		for _, prefix := range from {
			if p.NodePort == 0 {
				continue
			}
			if err := add(strings.ToLower(string(p.Protocol)), int(p.NodePort), prefix); err != nil {
				return nil, err
			}
		}
	}
	return rules, nil
}

// addRules adds the changes between a group's rules and the wanted ones.
func (sg *securityGroups) addRules(c *groupChanges, g securityGroup, wanted []securityRule, o observed, service *v1.Service) {
	for i, w := range wanted {
		if !slices.ContainsFunc(g.Rules, w.equals) && !slices.ContainsFunc(wanted[:i], w.equals) && !o.isBlocked(w.text()) {
			c.opens = append(c.opens, blockOnly(sg.opening(g, w), w.text(), o.unservedPorts(service, w.Min)...))
		}
	}
	for _, have := range g.Rules {
		if !slices.ContainsFunc(wanted, have.equals) {
			c.closes = append(c.closes, sg.closing(g, have))
		}
	}
}

// blockOnly returns a change whose failure blocks only its dependants.
func blockOnly(c change, what string, holds ...string) change {
	carryOut := c.Make
	c.Make = func(ctx context.Context, r *services.Request, o observed) (observed, error) {
		_, err := carryOut(ctx, r, o)
		return o.withFailure(what, holds, err)
	}
	return c
}

// unservedPorts returns the Service's ports that need a node port not yet used by their pools.
func (o observed) unservedPorts(service *v1.Service, nodePort int) (ports []string) {
	for _, p := range service.Spec.Ports {
		key := listenerRequest{Protocol: string(p.Protocol), Port: int(p.Port)}.key()
		leads := slices.ContainsFunc(o.parts.listeners, func(l listener) bool {
			pool := o.parts.poolOf(l)
			return pool != nil && listenerRequest{Protocol: l.Protocol, Port: l.Port}.key() == key &&
				slices.ContainsFunc(pool.members.list(), func(m member) bool { return m.Port == nodePort })
		})
		if int(p.NodePort) == nodePort && !leads {
			ports = append(ports, key)
		}
	}
	return ports
}

// openBackends removes backends whose port could not be opened, except present members.
func (o observed) openBackends(members []backend) []backend {
	return slices.DeleteFunc(slices.Clone(members), func(b backend) bool {
		return o.isBlocked("server "+b.serverID) && !slices.ContainsFunc(o.parts.pools, func(p pool) bool {
			return slices.ContainsFunc(p.members.list(), func(m member) bool { return m.Address == b.address })
		})
	})
}

// opening returns the change that adds a rule.
func (sg *securityGroups) opening(g securityGroup, rule securityRule) change {
	return changeOf(g, "open a port", map[string]any{}, map[string]any{"rule": rule.text()},
		func(ctx context.Context) error { return sg.openRule(ctx, g.ID, rule) })
}

// closing returns the change that removes a rule.
func (sg *securityGroups) closing(g securityGroup, rule securityRule) change {
	return changeOf(g, "close a port", map[string]any{"rule": rule.text()}, map[string]any{},
		func(ctx context.Context) error { return sg.closeRule(ctx, g.ID, rule) })
}

// changeOf returns a change of a group's rules.
func changeOf(g securityGroup, detail string, before, after map[string]any, do func(context.Context) error) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "security group " + g.Name, Detail: detail},
		Compare: func() (any, any) { return before, after },
		Make:    func(ctx context.Context, _ *services.Request, o observed) (observed, error) { return o, do(ctx) },
	}
}

// text is a rule's form in plans.
func (r securityRule) text() string {
	protocol, port := cmp.Or(strings.ToLower(r.Protocol), "all protocols"), ""
	if r.Min != 0 {
		port = fmt.Sprint(" ", r.Min)
	}
	from := cmp.Or(r.Prefix, allAddresses(r.EtherType == etherTypeV6))
	if r.Direction == "egress" {
		return fmt.Sprintf("%s%s to %s", protocol, port, from)
	}
	return fmt.Sprintf("%s%s from %s", protocol, port, from)
}

func (sg *securityGroups) openRule(ctx context.Context, groupID string, rule securityRule) error {
	rule.GroupID = groupID
	made, err := neutron(ctx, sg.api, "opening a port", http.MethodPost, "security-group-rules", "security_group_rule", rule,
		func(made *securityRule) bool { return made.ID != "" })
	if err != nil {
		sg.Doubt(groupID)
		return cloudapi.NotAbsence(err)
	}
	sg.noteRules(groupID, func(rules []securityRule) []securityRule { return append(rules, *made) })
	return nil
}

func (sg *securityGroups) closeRule(ctx context.Context, groupID string, rule securityRule) error {
	_, err := request[struct{}](ctx, sg.api, network, "removing a rule", http.MethodDelete, "security-group-rules/"+rule.ID, nil, "", http.StatusNoContent)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		sg.Doubt(groupID)
		return err
	}
	sg.noteRules(groupID, func(rules []securityRule) []securityRule {
		return slices.DeleteFunc(rules, func(r securityRule) bool { return r.ID == rule.ID })
	})
	return nil
}

// noteRules updates the known rules of a group after a write.
func (sg *securityGroups) noteRules(groupID string, change func([]securityRule) []securityRule) {
	if g, known := sg.Peek(groupID); known {
		g.Rules = change(slices.Clone(g.Rules))
		sg.PutPartial(g)
	}
}

// addPorts adds the changes that put the group on the members' ports and remove it from others.
func (sg *securityGroups) addPorts(ctx context.Context, c *groupChanges, g securityGroup, members []backend, o observed) error {
	q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: len(members)}
	wanted := map[string]*port{}
	for _, m := range members {
		if m.serverID == "" {
			continue
		}
		ports, err := sg.instances.portsOf(ctx, m.serverID, q)
		if err != nil {
			return err
		}
		for _, p := range ports {
			if p.hasPortSecurity() && p.hasAddress(m.address) {
				wanted[p.ID] = p
			}
		}
	}
	var joining []*port
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if p := wanted[id]; !slices.Contains(p.SecurityGroups, g.ID) && !o.isBlocked("port "+id) {
			joining = append(joining, p)
		}
	}
	for i, change := range sg.portChanges(joining, g, "add", (*port).groupsWith) {
		c.opens = append(c.opens, blockOnly(change, "port "+joining[i].ID, "server "+joining[i].DeviceID))
	}
	current, err := sg.findPorts(ctx, g, updateMaxAge)
	leaving := slices.DeleteFunc(current, func(p *port) bool { return wanted[p.ID] != nil })
	c.closes = append(c.closes, sg.portChanges(leaving, g, "remove", (*port).groupsWithout)...)
	return err
}

// portChanges returns the changes of several ports' groups, which the first of them makes side by side: Neutron has no call for several.
func (sg *securityGroups) portChanges(ports []*port, g securityGroup, action string, groups func(*port, securityGroup) []string) []change {
	var once sync.Once
	var failures []error
	makeAll := func(ctx context.Context) {
		work := make([]func() error, len(ports))
		for i, p := range ports {
			work[i] = func() error { return sg.setGroups(ctx, p, func(now *port) []string { return groups(now, g) }) }
		}
		failures = waiting.EachTogether(work...)
	}
	changes := make([]change, len(ports))
	for i, p := range ports {
		changes[i] = change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "port " + p.ID, Detail: action + " a security group"},
			Compare: func() (before, after any) {
				return map[string]any{"security_groups": p.SecurityGroups}, map[string]any{"security_groups": groups(p, g)}
			},
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				once.Do(func() { makeAll(ctx) })
				return o, failures[i]
			},
		}
	}
	return changes
}

func (p *port) groupsWith(g securityGroup) []string { return append(p.groupsWithout(g), g.ID) }

func (p *port) groupsWithout(g securityGroup) []string {
	return slices.DeleteFunc(slices.Clone(p.SecurityGroups), func(id string) bool { return id == g.ID })
}

func (sg *securityGroups) findPorts(ctx context.Context, g securityGroup, age time.Duration) ([]*port, error) {
	found, err := sg.instances.ports.Find(ctx, indexGroup, g.ID, withinAge(age))
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b *port) int { return strings.Compare(a.ID, b.ID) })
	return found, err
}

// setGroups writes a port's groups, unless the port has changed since the read or is gone. Services that share the node take turns.
func (sg *securityGroups) setGroups(ctx context.Context, p *port, change func(now *port) []string) error {
	unlock, err := sg.locks.Lock(ctx, p.ID)
	if err != nil {
		return fmt.Errorf("waiting for another Service that changes port %s: %w", p.ID, err)
	}
	defer unlock()
	if now, known := sg.instances.ports.Peek(p.ID); known {
		p = now
	}
	groups := change(p)
	klog.InfoS("Changing the security groups of a port", "port", p.ID, "device", p.DeviceID, "groups", groups)
	after, err := neutron(ifRevision(ctx, p.Revision), sg.api, "changing the security groups of port "+p.ID, http.MethodPut, "ports/"+p.ID, "port",
		map[string]any{"security_groups": groups}, p.isSame)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && faultOf(err) == "PortNotFound":
		sg.instances.ports.Forget(p.ID) // the machine may be gone before its Node
		return nil
	case errors.Is(err, cloudapi.ErrNotFound):
		sg.InvalidateAll() // somebody deleted a group
		sg.instances.ports.Invalidate(p.ID)
		return cloudapi.NotAbsence(err)
	case err != nil:
		sg.instances.ports.Doubt(p.ID)
		sg.instances.ports.InvalidateAll() // the write may have taken effect
		return err
	}
	sg.instances.ports.Put(after)
	return nil
}

// dropByUID deletes the security groups of a deleted Service, even if the option is now off.
func (sg *securityGroups) dropByUID(ctx context.Context, uid string) error {
	if uid == "" {
		return nil
	}
	all, err := sg.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return err
	}
	for _, g := range all {
		if strings.HasPrefix(g.Name, groupPrefix+uid+"-") {
			if err := sg.drop(ctx, g); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop takes a group off the ports that have it, each of which is tried, and deletes it.
func (sg *securityGroups) drop(ctx context.Context, g securityGroup) error {
	ports, err := sg.findPorts(ctx, g, ensureMaxAge)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range ports {
		failed = append(failed, sg.setGroups(ctx, p, func(now *port) []string { return now.groupsWithout(g) }))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if now, err := sg.Get(ctx, g.ID, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		sg.Forget(g.ID)
		return nil
	} else if err != nil || now.Name != g.Name {
		return err // somebody renamed it for another use
	}
	klog.InfoS("Deleting security group", "group", g.ID, "name", g.Name)
	_, err = request[struct{}](ctx, sg.api, network, "deleting security group "+g.Name, http.MethodDelete, "security-groups/"+g.ID, nil, "", http.StatusNoContent)
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		sg.instances.ports.InvalidateAll() // an unknown port uses it
		return err
	case err != nil && !errors.Is(err, cloudapi.ErrNotFound):
		sg.Invalidate(g.ID)
		return err
	}
	sg.Forget(g.ID)
	return nil
}
