package cloudstack

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// checkNetwork reports what a Service asks for and its network does not support. It refuses a new load balancer that would admit too many
// clients.
func checkNetwork(d *desired, lb *observed) (findings []services.Finding, err error) {
	fresh := len(lb.rules) == 0
	if fresh && !lb.network.offers(serviceLB) {
		err := fmt.Errorf("network %s (%s), which the nodes are in, offers no load balancing; give it an offering with the service Lb", lb.network.Name, lb.network.ID)
		return []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	findings, err = d.removeUDP(lb)
	if err != nil {
		return findings, err
	}
	sticky, err := checkStickiness(lb)
	if findings = append(findings, sticky...); err != nil {
		return findings, err
	}
	told, tooOpen := d.filterFindings(lb)
	findings = append(findings, told...)
	if tooOpen == "" {
		return findings, nil
	}
	problem := &schema.Problem{Place: "spec.loadBalancerSourceRanges", Value: strings.Join(d.sources, ","), Reason: "cannot be enforced: " + tooOpen, Warning: !fresh}
	if !fresh {
		return append(findings, services.Warning(eventRangesIgnored, "%v", problem)), nil
	}
	return append(findings, services.Warning(eventConfigError, "%v", problem)), problem
}

// removeUDP removes UDP ports that virtual routers refuse.
func (d *desired) removeUDP(lb *observed) ([]services.Finding, error) {
	if !lb.network.refusesUDP() {
		return nil, nil
	}
	var refused []string
	d.rules = slices.DeleteFunc(d.rules, func(w wantedRule) bool {
		if w.Protocol == protocolUDP {
			refused = append(refused, strconv.Itoa(w.Port))
		}
		return w.Protocol == protocolUDP
	})
	if len(refused) == 0 {
		return nil, nil
	}
	problem := &schema.Problem{
		Place: "spec.ports", Value: strings.Join(refused, ","), Reason: "cannot be served: UDP is refused by the virtual router of network " + lb.network.ID,
	}
	if len(d.rules) == 0 && len(lb.rules) == 0 {
		return []services.Finding{services.Warning(eventConfigError, "%v", problem)}, problem
	}
	return []services.Finding{services.Warning(eventRefused, "%v", problem)}, nil
}

// filterFindings reports how the network's filter differs from the request. tooOpen is set if it admits more than the source ranges.
func (d *desired) filterFindings(lb *observed) (findings []services.Finding, tooOpen string) {
	restricted := !slices.Equal(d.sources, []string{everybody})
	switch lb.network.filter() {
	case byFirewall:
		return nil, ""
	case open:
		if restricted {
			tooOpen = "network " + lb.network.ID + " has neither a firewall nor network ACLs; use " + annotationSourceCIDRs
		}
		return nil, tooOpen
	case byACL:
	}
	if lb.acl.name == listOpen {
		if restricted {
			tooOpen = "the tier has the network ACL list " + listOpen + "; give it a list of its own, or use " + annotationSourceCIDRs
		}
		return nil, tooOpen
	}
	for _, w := range d.rules {
		v := aclOf(lb.acl.items, lb.name, transport(w.Protocol), w.Port, d.sources)
		switch {
		case v.manual != nil && v.manual.allowsEverybody() && restricted:
			tooOpen = fmt.Sprintf("network ACL item %s lets everybody in; remove it, or use %s", v.manual.ID, annotationSourceCIDRs)
		case v.manual != nil && !v.manual.allowsEverybody():
			findings = append(findings, services.Warning(eventBlocked, "port %d: network ACL item %s (%s %s) decides who gets in; it was made by hand and stays",
				w.Port, v.manual.ID, strings.ToLower(v.manual.Action), v.manual.CIDRs))
		case v.missing && lb.acl.shared:
			findings = append(findings, services.Warning(eventBlocked, "port %d is closed: the tier has the network ACL list %s, which belongs to no VPC and is not "+
				"changed; give the tier a list of its own", w.Port, lb.acl.name))
		}
	}
	return findings, tooOpen
}
