package openstack

import (
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/providers/openstack/openstacksim"
)

// closesLater is why the lists of listeners do not close before their load balancer goes.
const closesLater = "listeners let in whom they do until they go with their load balancer; the nodes are closed before"

// scopeOf are a security group for each Service, and the ports of the nodes, which others give groups, too. With ovn the groups alone hold
// the source ranges.
func scopeOf(sim *openstacksim.Sim, name string) conformance.Scope {
	const own = "a Service has a security group of its own, and listeners of its own: what is there goes with it"
	number := 0
	return conformance.Scope{
		Name: name, Nodes: groupPrefix,
		Unfilled: "nobody else's rules stay in the group of a Service; the quota of rules is the project's",
		Rules: func() (lines []string) {
			names := map[string]string{}
			for _, g := range sim.SecurityGroups() {
				names[g.ID] = g.Name
				for _, r := range g.Rules {
					lines = append(lines, fmt.Sprint(g.Name, " ", r.Direction, r.EtherType, valueOf(r.Protocol), valueOf(r.Min), valueOf(r.Prefix)))
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
					if p.DeviceID == sim.Servers()[0].ID {
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
