package aws

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"ELB DescribeLoadBalancers",
	"ELBv2 DescribeLoadBalancers",
	"EC2 DescribeSecurityGroups",
}

// byHand describes rules that somebody wrote by hand.
const byHand = "by hand"

// scopeOf is the security group of the nodes, beside those of load balancers.
func scopeOf(sim *awssim.Sim) conformance.Scope {
	// EC2 takes no rule twice, whatever its description: ours becomes that of whoever writes it.
	describe := func(change func(description string) string) func() {
		return func() {
			sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) {
				for i, r := range g.Rules {
					if strings.HasPrefix(r.Description, descriptionSelf) || strings.HasPrefix(r.Description, "kubernetes.io/rule/nlb/") {
						g.Rules[i].Description = change(r.Description)
					}
				}
			})
		}
	}
	return conformance.Scope{
		NeededReads: needed,
		Nodes:       "nodes: ",
		OneClosing:  "one call closes all ports of a group",
		Rules: func() (lines []string) {
			for _, g := range sim.Groups() {
				for _, r := range g.Rules {
					lines = append(lines, fmt.Sprintf("%s: %v", g.Name, r))
				}
			}
			return lines
		},
		Writes: map[conformance.Writer]func(){
			conformance.Stranger: describe(func(string) string { return byHand }),
			conformance.OtherCluster: describe(func(d string) string {
				mark, _, _ := strings.Cut(d, "=")
				return mark + "=another-cluster"
			}),
			conformance.Passerby: func() {
				sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) {
					g.Rules = append(g.Rules, awssim.Rule{Protocol: "tcp", From: 7, To: 7, CIDR: "192.0.2.9/32", Description: "echo"})
				})
			},
		},
		Full:    codeTooManyRules,
		Fill:    func(room int) (leave func()) { return fillNodes(sim, room) },
		Subnet:  func() string { return "subnet-00000000000000a0" },
		Protect: func(protected bool) { protectNetworks(sim, protected) },
		Widen:   func(network string) { widenGroups(sim, network) },
		Meddle: func(s, other *v1.Service) {
			s.Annotations[annotationCheckPort] = strconv.Itoa(int(other.Spec.Ports[0].NodePort))
		},
		Except: map[conformance.Writer]string{conformance.SecondProcess: "EC2 takes no rule twice"},
		Remove: func() { // groups that are in use cannot be deleted
			for _, g := range sim.Groups() {
				sim.ChangeGroup(g.ID, func(g *awssim.Group) { g.Rules = nil })
			}
		},
	}
}

// protectNetworks has somebody protect network load balancers from deletion, or take that back.
func protectNetworks(sim *awssim.Sim, protected bool) {
	for _, lb := range sim.Networks() {
		sim.ChangeNetwork(lb.Name, func(lb *awssim.LoadBalancer) { lb.Attributes[attributeProtected] = strconv.FormatBool(protected) })
	}
}

// widenGroups lets everybody in by the rules for a network.
func widenGroups(sim *awssim.Sim, network string) {
	for _, g := range sim.Groups() {
		sim.ChangeGroup(g.ID, func(g *awssim.Group) {
			for i := range g.Rules {
				if g.Rules[i].CIDR == network {
					g.Rules[i].CIDR = "0.0.0.0/0"
				}
			}
		})
	}
}

// fillNodes fills the group of the nodes, but for some room, until leave is called.
func fillNodes(sim *awssim.Sim, room int) (leave func()) {
	sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) {
		for n := len(g.Rules) + room; n < 60; n++ {
			g.Rules = append(g.Rules, awssim.Rule{Protocol: "tcp", From: 20000 + n, To: 20000 + n, CIDR: "192.0.2.9/32", Description: byHand})
		}
	})
	return func() {
		sim.ChangeGroup(awssim.NodeGroup, func(g *awssim.Group) {
			g.Rules = slices.DeleteFunc(g.Rules, func(r awssim.Rule) bool { return r.Description == byHand })
		})
	}
}
