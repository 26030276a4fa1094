package digitalocean

import (
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceansim"
	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// needed are the reads without which nobody can be shut out.
var needed = []string{
	"GET /v2/load_balancers",
}

// scopeOf are the rules of each load balancer.
func scopeOf(sim *digitaloceansim.Sim) conformance.Scope {
	const own = "rules are a list of the load balancer itself, which is written as a whole and knows no version: what others write there goes"
	return conformance.Scope{
		NeededReads: needed,
		Unfilled:    "nobody else's rules stay in the list of a load balancer, which the published description bounds nowhere",
		OneClosing:  "the list of a load balancer names no ports",
		Annotation:  func(network string) (key, value string) { return annotationAllowRules, "cidr:" + network },
		NoSubnet:    "who may connect does not depend on subnets",
		OneFamily:   "DigitalOcean takes no networks of IPv6 in the list of a load balancer",
		Unprotected: "load balancers cannot be protected",
		Widen: func(network string) {
			for _, lb := range sim.LoadBalancers() {
				if slices.Contains(lb.Firewall.Allow, "cidr:"+network) {
					sim.ChangeLoadBalancer(lb.ID, func(lb *digitaloceansim.LoadBalancer) { lb.Firewall.Allow = []string{"cidr:0.0.0.0/0"} })
				}
			}
		},
		Rules: func() (lines []string) {
			for _, lb := range sim.LoadBalancers() {
				lines = append(lines, lb.Firewall.Allow...)
			}
			return lines
		},
		Remove: func() {
			for _, lb := range sim.LoadBalancers() {
				sim.ChangeLoadBalancer(lb.ID, func(lb *digitaloceansim.LoadBalancer) {
					lb.Firewall = digitaloceansim.Firewall{Allow: []string{}, Deny: []string{}}
				})
			}
		},
		Except: map[conformance.Writer]string{
			conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
		},
	}
}
