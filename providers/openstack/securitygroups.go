package openstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// securityGroup is a Neutron security group.
type securityGroup struct {
	ID    string         `json:"id"`
	Name  string         `json:"name"`
	Rules []securityRule `json:"security_group_rules"`
}

// securityRule lets traffic through.
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

// same reports whether two rules let the same through.
func (r securityRule) same(o securityRule) bool {
	r.ID, o.ID, r.GroupID, o.GroupID = "", "", "", ""
	r.Protocol, o.Protocol = strings.ToLower(r.Protocol), strings.ToLower(o.Protocol)
	return r == o
}

func newGroupInventory(a *api) *inventory.Inventory[string, securityGroup] {
	return inventory.New(inventory.Source[string, securityGroup]{
		Kind: "security group", ID: func(g securityGroup) string { return g.ID },
		List: func(ctx context.Context) ([]securityGroup, int, error) {
			return listAll[securityGroup](ctx, a, network, "security-groups", "security_groups", paged())
		},
		Get: func(ctx context.Context, id string) (securityGroup, error) {
			g, err := get(ctx, a, network, "reading security group "+id, "security-groups/"+id, "security_group", func(g *securityGroup) bool { return g.ID == id })
			return valueOf(g), err
		},
		Indexes: map[string]func(securityGroup) []string{indexName: func(g securityGroup) []string { return []string{g.Name} }},
	})
}

// securityGroups returns the security groups of a Service. Their name holds the Service's UID, so nobody else makes them; there are
// several where two processes made one each, or the answer to a creation came too late, and all but the first are to go.
func (l *loadBalancers) securityGroups(ctx context.Context, service *v1.Service, age time.Duration) ([]securityGroup, error) {
	found, err := l.groups.Find(ctx, indexName, securityGroupName(service), inventory.Query{MaxAge: age, MaxMissAge: age, MaxUnlistedAge: age})
	found = slices.Clone(found)
	slices.SortFunc(found, func(a, b securityGroup) int { return strings.Compare(a.ID, b.ID) })
	return found, err
}

// ensureSecurityGroup opens the node ports of a Service where the option asks for it, and else removes what it opened
// before.
func (l *loadBalancers) ensureSecurityGroup(
	ctx context.Context, r *services.Request, s settings, subnetID string, members []backend,
) error {
	service := r.Service
	if !l.config.LoadBalancer.ManageSecurityGroups {
		return l.removeSecurityGroup(ctx, service, networksMaxAge)
	}
	from, err := l.networks.subnet(ctx, subnetID)
	if err != nil {
		return cloudapi.NotAbsence(fmt.Errorf("finding the network that the load balancer reaches nodes from: %w", err))
	}
	groups, err := l.securityGroups(ctx, service, newMaxAge)
	if err != nil {
		return err
	}
	if len(groups) == 0 {
		g, err := l.createSecurityGroup(ctx, service)
		r.Asked(err)
		if err != nil {
			return err
		}
		groups = []securityGroup{*g}
	}
	wanted, err := wantedRules(service, s, from.CIDR, l.config.LoadBalancer.Provider, groups[0].Rules)
	if err != nil {
		return err
	}
	if err := l.syncRules(ctx, groups[0], wanted); err != nil {
		return err
	}
	if err := l.syncPorts(ctx, groups[0], subnetID, members); err != nil {
		return err
	}
	return l.dropGroups(ctx, groups[1:])
}

func (l *loadBalancers) createSecurityGroup(ctx context.Context, service *v1.Service) (*securityGroup, error) {
	body := map[string]string{"name": securityGroupName(service), "description": fmt.Sprintf("Security Group for %s/%s Service LoadBalancer in cluster", service.Namespace, service.Name)}
	g, err := neutron[securityGroup](ctx, l.api, "creating a security group", http.MethodPost, "security-groups", "security_group", body, http.StatusCreated)
	if err == nil && g.ID == "" {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "creating a security group", Message: errWrongAnswer.Error()}
	}
	if err != nil {
		l.groups.Invalidate("")
		return nil, cloudapi.NotAbsence(err)
	}
	l.groups.Put(*g)
	return g, nil
}

// wantedRules open the node ports to the network of the load balancer; with ovn, which keeps the client's address, to the
// source ranges. Where some of those cannot be read, only what is open already is wanted.
func wantedRules(service *v1.Service, s settings, members, provider string, have []securityRule) ([]securityRule, error) {
	from, frozen := []string{members}, false
	if provider == providerOVN {
		from, frozen = s.sources.Texts(everybody(familyOf(service) == v1.IPv6Protocol)), s.sources.Partial()
	}
	var rules []securityRule
	add := func(protocol string, port int, prefix string) error {
		p, err := netip.ParsePrefix(prefix)
		if err != nil {
			return fmt.Errorf("network %q: %w", prefix, err)
		}
		family := "IPv4"
		if p.Addr().Is6() {
			family = "IPv6"
		}
		r := securityRule{Direction: "ingress", EtherType: family, Protocol: protocol, Min: port, Max: port, Prefix: prefix}
		if !frozen || prefix == members || slices.ContainsFunc(have, r.same) {
			rules = append(rules, r)
		}
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

// syncRules makes the rules of a group be the wanted ones: new ones first, so that nothing is shut that is to stay open.
func (l *loadBalancers) syncRules(ctx context.Context, g securityGroup, wanted []securityRule) error {
	after := g
	after.Rules = slices.Clone(g.Rules)
	for _, w := range wanted {
		if slices.ContainsFunc(after.Rules, w.same) {
			continue
		}
		w.GroupID = g.ID
		made, err := neutron[securityRule](ctx, l.api, "opening a port", http.MethodPost, "security-group-rules", "security_group_rule", w, http.StatusCreated)
		if err != nil {
			l.groups.Invalidate(g.ID)
			return cloudapi.NotAbsence(err)
		}
		after.Rules = append(after.Rules, *made)
		l.groups.Put(after)
	}
	for _, have := range g.Rules {
		if slices.ContainsFunc(wanted, have.same) {
			continue
		}
		_, err := request[struct{}](ctx, l.api, network, "removing a rule", http.MethodDelete, "security-group-rules/"+have.ID, nil, "", http.StatusNoContent)
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			l.groups.Invalidate(g.ID)
			return err
		}
		after.Rules = slices.DeleteFunc(slices.Clone(after.Rules), func(r securityRule) bool { return r.ID == have.ID })
		l.groups.Put(after)
	}
	return nil
}

// syncPorts puts the group on the ports of the members, and takes it off all others.
func (l *loadBalancers) syncPorts(ctx context.Context, g securityGroup, subnetID string, members []backend) error {
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
			if at := p.subnetOf(m.address); p.secured() && at != "" && (subnetID == "" || at == subnetID) {
				wanted[p.ID] = p
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(wanted)) {
		if p := wanted[id]; !slices.Contains(p.SecurityGroups, g.ID) {
			if err := l.setGroups(ctx, p, append(slices.Clone(p.SecurityGroups), g.ID)); err != nil {
				return err
			}
		}
	}
	return l.takeOff(ctx, g, updateMaxAge, func(p *port) bool { return wanted[p.ID] == nil })
}

// takeOff takes a group off those ports that have it and that the condition names.
func (l *loadBalancers) takeOff(ctx context.Context, g securityGroup, age time.Duration, condition func(*port) bool) error {
	having, err := l.instances.ports.Find(ctx, indexGroup, g.ID, inventory.Query{MaxAge: age, MaxMissAge: age, MaxUnlistedAge: age})
	if err != nil {
		return err
	}
	slices.SortFunc(having, func(a, b *port) int { return strings.Compare(a.ID, b.ID) })
	for _, p := range having {
		if condition(p) {
			if err := l.setGroups(
				ctx, p, slices.DeleteFunc(slices.Clone(p.SecurityGroups), func(id string) bool { return id == g.ID }),
			); err != nil {
				return err
			}
		}
	}
	return nil
}

// setGroups writes the groups of a port, unless somebody else changed the port since it was read. A port that is gone
// needs none.
func (l *loadBalancers) setGroups(ctx context.Context, p *port, groups []string) error {
	klog.InfoS("Changing the security groups of a port", "port", p.ID, "device", p.DeviceID, "groups", groups)
	after, err := neutron[port](ifRevision(ctx, p.Revision), l.api, "changing the security groups of port "+p.ID, http.MethodPut, "ports/"+p.ID, "port", map[string]any{
		"security_groups": groups,
	}, http.StatusOK, http.StatusCreated)
	if err == nil && after.ID != p.ID {
		err = &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: "changing the security groups of port " + p.ID, Message: errWrongAnswer.Error()}
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound) && strings.Contains(err.Error(), p.ID):
		l.instances.ports.Forget(p.ID) // its machine may have gone while its Node is still kept
		return nil
	case err != nil:
		l.instances.ports.Invalidate(p.ID)
		return err
	}
	l.instances.ports.Put(after)
	return nil
}

// removeSecurityGroup takes the security group of a Service off all ports and deletes it, if there is one.
func (l *loadBalancers) removeSecurityGroup(ctx context.Context, service *v1.Service, age time.Duration) error {
	groups, err := l.securityGroups(ctx, service, age)
	if err != nil {
		return err
	}
	return l.dropGroups(ctx, groups)
}

func (l *loadBalancers) dropGroups(ctx context.Context, groups []securityGroup) error {
	for _, g := range groups {
		if err := l.dropGroup(ctx, g); err != nil {
			return err
		}
	}
	return nil
}

// dropGroupsOf deletes the security groups of a Service that is gone, also where the option is off by now.
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

func (l *loadBalancers) dropGroup(ctx context.Context, g securityGroup) error {
	if err := l.takeOff(ctx, g, ensureMaxAge, func(*port) bool { return true }); err != nil {
		return err
	}
	if now, err := l.groups.Get(ctx, g.ID, inventory.Query{}); errors.Is(err, cloudapi.ErrNotFound) {
		l.groups.Forget(g.ID)
		return nil
	} else if err != nil || now.Name != g.Name {
		return err // somebody gave it another name, and with it another purpose
	}
	klog.InfoS("Deleting security group", "group", g.ID, "name", g.Name)
	_, err := request[struct{}](ctx, l.api, network, "deleting security group "+g.Name, http.MethodDelete, "security-groups/"+g.ID, nil, "", http.StatusNoContent)
	switch {
	case errors.Is(err, cloudapi.ErrConflict):
		l.instances.ports.InvalidateAll() // a port has it that was not seen with it
		return err
	case err != nil && !errors.Is(err, cloudapi.ErrNotFound):
		l.groups.Invalidate(g.ID)
		return err
	}
	l.groups.Forget(g.ID)
	return nil
}
