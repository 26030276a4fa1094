package digitalocean

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/digitalocean/digitaloceanlimits"
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

// firewallCase are the rules of the public firewall alone, which a loop writes.
func firewallCase(f *conformance.Fixture, sim *digitaloceansim.Sim, env map[string]string) conformance.FeatureCase {
	const own = "the firewall is one document of the cluster, which is written as a whole and knows no version: what others write there goes"
	s := scopeOf(sim)
	s.NeededReads = []string{"GET /v2/firewalls", "GET /v2/firewalls/{id}"}
	s.Joins, s.OneClosing = true, "the firewall is written as a whole"
	s.Unfilled, s.Overflow, s.Full = "", digitaloceanlimits.RuleSources.Max, "a rule of a firewall would have"
	s.Rules = func() []string { return firewallLines(sim) }
	s.Widen = func(network string) {
		for _, f := range sim.Firewalls() {
			sim.ChangeFirewall(f.ID, func(f *digitaloceansim.CloudFirewall) {
				for i, r := range f.InboundRules {
					if slices.Contains(r.Sources.Addresses, network) {
						f.InboundRules[i].Sources = &digitaloceansim.Peers{Addresses: allNetworks()}
					}
				}
			})
		}
	}
	s.Remove = func() {
		for _, f := range sim.Firewalls() {
			sim.RemoveFirewall(f.ID)
		}
	}
	s.Except = map[conformance.Writer]string{
		conformance.Stranger: own, conformance.OtherCluster: own, conformance.SecondProcess: own, conformance.Passerby: own,
	}
	return conformance.FeatureCase{
		Prepare: func() {
			env[envFirewallName], env[envFirewallTags] = "public-access", "worker"
			sim.AddDroplet(digitaloceansim.Spec{Name: "spare", Tags: []string{"worker"}}) // by which the tag exists
			f.Snapshot = func() string {
				var all strings.Builder
				for _, f := range sim.Firewalls() {
					if len(f.InboundRules) > 0 { // else it has nothing of a Service
						fmt.Fprintln(&all, f.Name, f.Tags, len(f.OutboundRules), strings.Join(firewallLines(sim), "\n"))
					}
				}
				return all.String()
			}
		},
		Settles:     5 * firewallSpacing,
		ClosesLater: "a loop writes the firewall as the Services there are ask, and drops a Service's ports once that is gone",
		Scope:       s,
	}
}

// firewallLines are the rules of the firewalls, with words for the identities of load balancers.
func firewallLines(sim *digitaloceansim.Sim) (lines []string) {
	for _, f := range sim.Firewalls() {
		for _, r := range f.InboundRules {
			from := slices.Sorted(slices.Values(r.Sources.Addresses))
			for range r.Sources.LoadBalancerUIDs {
				from = append(from, "load-balancer")
			}
			lines = append(lines, r.Protocol+" "+r.Ports+" "+strings.Join(from, " "))
		}
	}
	slices.Sort(lines)
	return lines
}
