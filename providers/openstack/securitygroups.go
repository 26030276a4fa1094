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

func newGroupInventory(a *api) *inventory.Inventory[string, securityGroup] {
	return inventory.New(inventory.Source[string, securityGroup]{
		Kind: "security group", ID: func(g securityGroup) string { return g.ID },
		List: func(ctx context.Context) ([]securityGroup, int, error) {
			return listAll[securityGroup](ctx, a, network, "security-groups", "security_groups", pageQuery())
		},
		Get: func(ctx context.Context, id string) (securityGroup, error) {
			g, err := get(ctx, a, network, "reading security group "+id, "security-groups/"+id, "security_group", func(g *securityGroup) bool { return g.ID == id })
			return valueOf(g), err
		},
		Indexes: map[string]func(securityGroup) []string{indexName: func(g securityGroup) []string { return []string{g.Name} }},
	})
}

// securityGroups returns a Service's security groups. The name contains its UID. After a lost response or two concurrent processes there
// may be several; all but the first are deleted.
func (l *loadBalancers) securityGroups(ctx context.Context, service *v1.Service, age time.Duration) ([]securityGroup, error) {
	found, err := l.groups.Find(ctx, indexName, securityGroupName(service), inventory.Query{MaxAge: age, MaxMissAge: age, MaxUnlistedAge: age})
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
func (o observation) groupsMaxAge() time.Duration {
	if o.again || (o.parts != nil && o.parts.asOf == ours) {
		return updateMaxAge
	}
	return newMaxAge
}

// planGroups opens the Service's node ports if the option is set. Otherwise it removes earlier groups.
func (l *loadBalancers) planGroups(
	ctx context.Context, service *v1.Service, o observation, s settings, subnetID string, members []backend,
) (g groupChanges, err error) {
	if !l.config.LoadBalancer.ManageSecurityGroups {
		groups, err := l.securityGroups(ctx, service, networksMaxAge)
		g.closes = l.groupDeletions(groups)
		return g, err
	}
	from, err := l.networks.subnet(ctx, subnetID)
	if err != nil {
		return g, cloudapi.NotAbsence(fmt.Errorf("finding the network that the load balancer reaches nodes from: %w", err))
	}
	groups, err := l.securityGroups(ctx, service, o.groupsMaxAge())
	if err != nil {
		return g, err
	}
	if len(groups) == 0 && !o.isBlocked(securityGroupName(service)) {
		g.opens = []change{l.groupCreation(service)}
	}
	if len(groups) == 0 {
		return g, nil
	}
	provider := o.lb.providerOr(l.config.LoadBalancer.Provider)
	wanted, err := wantedRules(service, s, from.CIDR, provider)
	if err != nil {
		return g, err
	}
	if provider == providerOVN && s.sources.Partial() { // only narrowing is possible here
		used := clientPorts(service, o.parts, o.role)
		for _, have := range groups[0].Rules {
			if !used[have.kind()] && !slices.ContainsFunc(wanted, have.equals) {
				g.closes = append(g.closes, l.ruleClosing(groups[0], have))
			}
		}
		for _, c := range (narrowing{s.sources, false}).rules(groups[0], service, o.parts, o.role) {
			if what := "clients of " + texts(c.remove)[0]; !o.isBlocked(what) {
				g.opens = append(g.opens, blockOnly(l.ruleNarrowing(groups[0], c), what))
			}
		}
	} else {
		g.addRules(l, groups[0], wanted, o, service)
	}
	if err := g.addPorts(ctx, l, groups[0], members, o); err != nil {
		return g, err
	}
	g.closes = append(g.closes, l.groupDeletions(groups[1:])...)
	return g, nil
}

// groupCreation returns the change that creates a group. Its rules and ports follow.
func (l *loadBalancers) groupCreation(service *v1.Service) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "security group " + securityGroupName(service)},
		Replan:  true,
		Compare: func() (before, after any) { return nil, map[string]any{"name": securityGroupName(service)} },
		Make: func(ctx context.Context, r *services.Request, o observation) (observation, error) {
			err := l.createSecurityGroup(ctx, service)
			r.Asked(err)
			return o.withFailure(securityGroupName(service), nil, err)
		},
	}
}

func (l *loadBalancers) groupDeletions(groups []securityGroup) (changes []change) {
	for _, g := range groups {
		c := deletionOf("security group "+g.Name, func(ctx context.Context) error { return l.dropGroup(ctx, g) })
		c.Compare = func() (before, after any) { return map[string]any{"name": g.Name}, nil }
		changes = append(changes, c)
	}
	return changes
}

func (l *loadBalancers) createSecurityGroup(ctx context.Context, service *v1.Service) error {
	body := map[string]string{"name": securityGroupName(service), "description": fmt.Sprintf("Security Group for %s/%s Service LoadBalancer in cluster", service.Namespace, service.Name)}
	g, err := neutron[securityGroup](ctx, l.api, "creating a security group", http.MethodPost, "security-groups", "security_group", body, http.StatusCreated)
	if err == nil && g.ID == "" {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "creating a security group", Message: errWrongAnswer.Error()}
	}
	if err != nil {
		l.groups.Invalidate("")
		return cloudapi.NotAbsence(err)
	}
	l.groups.Put(*g)
	return nil
}

// wantedRules open the node ports to the load balancer's network; with ovn, which keeps the client's address, to the source ranges.
func wantedRules(service *v1.Service, s settings, members, provider string) (rules []securityRule, err error) {
	from := []string{members}
	if provider == providerOVN {
		from = s.sources.Texts(allAddresses(familyOf(service) == v1.IPv6Protocol))
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
func (c *groupChanges) addRules(l *loadBalancers, g securityGroup, wanted []securityRule, o observation, service *v1.Service) {
	for i, w := range wanted {
		if !slices.ContainsFunc(g.Rules, w.equals) && !slices.ContainsFunc(wanted[:i], w.equals) && !o.isBlocked(w.text()) {
			c.opens = append(c.opens, blockOnly(l.ruleOpening(g, w), w.text(), o.unservedPorts(service, w.Min)...))
		}
	}
	for _, have := range g.Rules {
		if !slices.ContainsFunc(wanted, have.equals) {
			c.closes = append(c.closes, l.ruleClosing(g, have))
		}
	}
}

// blockOnly returns a change whose failure blocks only its dependants.
func blockOnly(c change, what string, holds ...string) change {
	carryOut := c.Make
	c.Make = func(ctx context.Context, r *services.Request, o observation) (observation, error) {
		_, err := carryOut(ctx, r, o)
		return o.withFailure(what, holds, err)
	}
	return c
}

// unservedPorts returns the Service's ports that need a node port not yet used by their pools.
func (o observation) unservedPorts(service *v1.Service, nodePort int) (ports []string) {
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
func (o observation) openBackends(members []backend) []backend {
	return slices.DeleteFunc(slices.Clone(members), func(b backend) bool {
		return o.isBlocked("server "+b.serverID) && !slices.ContainsFunc(o.parts.pools, func(p pool) bool {
			return slices.ContainsFunc(p.members.list(), func(m member) bool { return m.Address == b.address })
		})
	})
}

// ruleOpening returns the change that adds a rule.
func (l *loadBalancers) ruleOpening(g securityGroup, rule securityRule) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "security group " + g.Name, Detail: "open a port"},
		Compare: func() (before, after any) { return map[string]any{}, map[string]any{"rule": rule.text()} },
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			return o, l.openRule(ctx, g.ID, rule)
		},
	}
}

// ruleClosing returns the change that removes a rule.
func (l *loadBalancers) ruleClosing(g securityGroup, rule securityRule) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "security group " + g.Name, Detail: "close a port"},
		Compare: func() (before, after any) { return map[string]any{"rule": rule.text()}, map[string]any{} },
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			return o, l.closeRule(ctx, g.ID, rule)
		},
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

func (l *loadBalancers) openRule(ctx context.Context, groupID string, rule securityRule) error {
	rule.GroupID = groupID
	made, err := neutron[securityRule](ctx, l.api, "opening a port", http.MethodPost, "security-group-rules", "security_group_rule", rule, http.StatusCreated)
	if err != nil {
		l.groups.Doubt(groupID)
		return cloudapi.NotAbsence(err)
	}
	l.noteRules(groupID, func(rules []securityRule) []securityRule { return append(rules, *made) })
	return nil
}

func (l *loadBalancers) closeRule(ctx context.Context, groupID string, rule securityRule) error {
	_, err := request[struct{}](ctx, l.api, network, "removing a rule", http.MethodDelete, "security-group-rules/"+rule.ID, nil, "", http.StatusNoContent)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		l.groups.Doubt(groupID)
		return err
	}
	l.noteRules(groupID, func(rules []securityRule) []securityRule {
		return slices.DeleteFunc(rules, func(r securityRule) bool { return r.ID == rule.ID })
	})
	return nil
}

// noteRules updates the known rules of a group after a write.
func (l *loadBalancers) noteRules(groupID string, change func([]securityRule) []securityRule) {
	if g, known := l.groups.Peek(groupID); known {
		g.Rules = change(slices.Clone(g.Rules))
		l.groups.PutPartial(g)
	}
}

// addPorts adds the changes that put the group on the members' ports and remove it from others.
func (c *groupChanges) addPorts(
	ctx context.Context, l *loadBalancers, g securityGroup, members []backend, o observation,
) error {
	q := inventory.Query{MaxAge: updateMaxAge, MaxMissAge: missMaxAge, Expected: len(members)}
	wanted := map[string]*port{}
	for _, m := range members {
		if m.serverID == "" {
			continue
		}
		ports, err := l.instances.portsOf(ctx, m.serverID, q)
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
	for i, change := range l.portChanges(joining, g, "add", (*port).groupsWith) {
		c.opens = append(c.opens, blockOnly(change, "port "+joining[i].ID, "server "+joining[i].DeviceID))
	}
	having, err := l.portsWith(ctx, g, updateMaxAge)
	leaving := slices.DeleteFunc(having, func(p *port) bool { return wanted[p.ID] != nil })
	c.closes = append(c.closes, l.portChanges(leaving, g, "remove", (*port).groupsWithout)...)
	return err
}

// portChanges returns the changes of several ports' groups, which the first of them makes side by side: Neutron has no call for several.
func (l *loadBalancers) portChanges(ports []*port, g securityGroup, action string, groups func(*port, securityGroup) []string) []change {
	var once sync.Once
	var failures []error
	makeAll := func(ctx context.Context) {
		work := make([]func() error, len(ports))
		for i, p := range ports {
			work[i] = func() error { return l.setGroups(ctx, p, func(now *port) []string { return groups(now, g) }) }
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
			Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
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

func (l *loadBalancers) portsWith(ctx context.Context, g securityGroup, age time.Duration) ([]*port, error) {
	having, err := l.instances.ports.Find(ctx, indexGroup, g.ID, inventory.Query{MaxAge: age, MaxMissAge: age, MaxUnlistedAge: age})
	having = slices.Clone(having)
	slices.SortFunc(having, func(a, b *port) int { return strings.Compare(a.ID, b.ID) })
	return having, err
}

// setGroups writes a port's groups unless it has changed since the read. A missing port is skipped. Services that share the node take
// turns.
func (l *loadBalancers) setGroups(ctx context.Context, p *port, change func(now *port) []string) error {
	unlock, err := l.Lock(ctx, "port "+p.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if now, known := l.instances.ports.Peek(p.ID); known {
		p = now
	}
	groups := change(p)
	klog.InfoS("Changing the security groups of a port", "port", p.ID, "device", p.DeviceID, "groups", groups)
	after, err := neutron[port](ifRevision(ctx, p.Revision), l.api, "changing the security groups of port "+p.ID, http.MethodPut, "ports/"+p.ID, "port", map[string]any{
		"security_groups": groups,
	}, http.StatusOK, http.StatusCreated)
	if err == nil && after.ID != p.ID {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "changing the security groups of port " + p.ID, Message: errWrongAnswer.Error()}
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && faultOf(err) == "PortNotFound":
		l.instances.ports.Forget(p.ID) // the machine may be gone before its Node
		return nil
	case errors.Is(err, cloudapi.ErrNotFound):
		l.groups.InvalidateAll() // somebody deleted a group
		l.instances.ports.Invalidate(p.ID)
		return cloudapi.NotAbsence(err)
	case err != nil:
		l.instances.ports.Doubt(p.ID)
		l.instances.ports.InvalidateAll() // the write may have taken effect
		return err
	}
	l.instances.ports.Put(after)
	return nil
}

func (l *loadBalancers) dropGroups(ctx context.Context, groups []securityGroup) error {
	for _, g := range groups {
		if err := l.dropGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// dropGroupsOf deletes the security groups of a deleted Service, even if the option is now off.
func (l *loadBalancers) dropGroupsOf(ctx context.Context, uid string) error {
	if uid == "" {
		return nil
	}
	all, err := l.groups.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return err
	}
	return l.dropGroups(ctx, slices.DeleteFunc(all, func(g securityGroup) bool { return !strings.HasPrefix(g.Name, groupPrefix+uid+"-") }))
}

// dropGroup takes a group off the ports that have it, each of which is tried, and deletes it.
func (l *loadBalancers) dropGroup(ctx context.Context, g securityGroup) error {
	having, err := l.portsWith(ctx, g, ensureMaxAge)
	if err != nil {
		return err
	}
	var failed []error
	for _, p := range having {
		failed = append(failed, l.setGroups(ctx, p, func(now *port) []string { return now.groupsWithout(g) }))
	}
	if err := errors.Join(failed...); err != nil {
		return err
	}
	if now, err := l.groups.Get(ctx, g.ID, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		l.groups.Forget(g.ID)
		return nil
	} else if err != nil || now.Name != g.Name {
		return err // somebody renamed it for another use
	}
	klog.InfoS("Deleting security group", "group", g.ID, "name", g.Name)
	_, err = request[struct{}](ctx, l.api, network, "deleting security group "+g.Name, http.MethodDelete, "security-groups/"+g.ID, nil, "", http.StatusNoContent)
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		l.instances.ports.InvalidateAll() // an unknown port uses it
		return err
	case err != nil && !errors.Is(err, cloudapi.ErrNotFound):
		l.groups.Invalidate(g.ID)
		return err
	}
	l.groups.Forget(g.ID)
	return nil
}
