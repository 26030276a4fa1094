package openstack

import (
	"fmt"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// needed are the reads without which nobody can be shut out. Members and monitors are read with the listeners, as parts of one load
// balancer, and members say which node ports it still uses.
var needed = []string{
	"POST /identity/v3/auth/tokens",
	"GET /load-balancer",
	"GET /networking",
	"GET /load-balancer/v2.0/lbaas/loadbalancers",
	"GET /load-balancer/v2.0/lbaas/listeners",
	"GET /load-balancer/v2.0/lbaas/pools",
	"GET /load-balancer/v2.0/lbaas/pools/{id}/members",
	"GET /load-balancer/v2.0/lbaas/healthmonitors",
	"GET /networking/v2.0/security-groups",
}

// closesLater is why the lists of listeners do not close before their load balancer goes.
const closesLater = "listeners let in whom they do until they go with their load balancer; the nodes are closed before"

// scopeOf are a security group for each Service, and the ports of the nodes, which others give groups, too. With ovn the groups alone hold
// the source ranges.
func scopeOf(sim *openstacksim.Sim, name string) conformance.Scope {
	const own = "a Service has a security group of its own, and listeners of its own: what is there goes with it"
	number := 0
	return conformance.Scope{
		NeededReads: needed,
		Name:        name, Nodes: groupPrefix,
		Subnet:      func() string { return firstSubnet },
		Unprotected: "load balancers cannot be protected",
		Full:        "(?i)quota", Fill: func(room int) (leave func()) { return fillProject(sim, room) },
		Widen: func(network string) { widenRules(sim, network) },
		Rules: func() (lines []string) {
			names := map[string]string{}
			for _, g := range sim.SecurityGroups() {
				names[g.ID] = g.Name
				for _, r := range g.Rules {
					lines = append(lines, fmt.Sprint(g.Name, " ", r.Direction, r.EtherType, deref(r.Protocol), deref(r.Min), deref(r.Prefix)))
				}
			}
			for _, l := range sim.Listeners() {
				for _, c := range l.AllowedCIDRs {
					lines = append(lines, fmt.Sprint(l.Name, " lets in ", c))
				}
			}
			for _, p := range sim.Ports() {
				for _, g := range p.SecurityGroups {
					lines = append(lines, fmt.Sprint("port of ", p.DeviceOwner, " has ", names[g]))
				}
			}
			return lines
		},
		Writes: map[conformance.Writer]func(){
			conformance.Passerby: func() {
				for _, p := range sim.Ports() {
					if p.DeviceID == sim.List()[0].ID {
						number++
						group := sim.AddSecurityGroup(fmt.Sprint("monitoring-", number))
						sim.ChangePort(p.ID, func(p *openstacksim.Port) { p.SecurityGroups = append(p.SecurityGroups, group) })
					}
				}
			},
		},
		Remove: func() {
			for _, g := range sim.SecurityGroups() {
				if g.Name != "default" {
					sim.DropSecurityGroup(g.ID)
				}
			}
		},
		Unlisted: "the name of a security group holds the UID of its Service and no cluster",
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: "Neutron takes no rule twice",
		},
	}
}

// listenersOf are the lists of listeners, where no groups are managed.
func listenersOf(sim *openstacksim.Sim) conformance.Scope {
	s := scopeOf(sim, "listeners")
	s.Nodes, s.Unlisted, s.Full, s.Fill = "", "", "", nil
	s.OneClosing = "what a listener lets in goes with it"
	s.Unfilled = "nobody else's networks stay in the list of a listener, in which Octavia counts none"
	s.Remove = func() {
		for _, l := range sim.Listeners() {
			sim.ChangeListener(l.ID, func(l *openstacksim.Listener) { l.AllowedCIDRs = []string{} })
		}
	}
	return s
}

// widenRules lets everybody in by the rules and listeners for a network.
func widenRules(sim *openstacksim.Sim, network string) {
	for _, g := range sim.SecurityGroups() {
		sim.ChangeSecurityGroup(g.ID, func(g *openstacksim.SecurityGroup) {
			for i, r := range g.Rules {
				if deref(r.Prefix) == network {
					g.Rules[i].Prefix = new("0.0.0.0/0")
				}
			}
		})
	}
	for _, l := range sim.Listeners() {
		if slices.Contains(l.AllowedCIDRs, network) {
			sim.ChangeListener(l.ID, func(l *openstacksim.Listener) { l.AllowedCIDRs = []string{} })
		}
	}
}

// fillProject bounds the security group rules of the project, but for some room, until leave is called.
func fillProject(sim *openstacksim.Sim, room int) (leave func()) {
	rules := 0
	for _, g := range sim.SecurityGroups() {
		rules += len(g.Rules)
	}
	sim.SetQuota("security_group_rule", rules+room)
	return func() { sim.SetQuota("security_group_rule", rules+1000) }
}
