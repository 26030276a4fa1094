package cloudstack

import (
	"context"
	"slices"
	"strconv"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/providers/kit/sources"
)

// This file shuts out clients that a Service no longer allows, before other changes.

var _ services.Narrower[*observed] = (*reconciler)(nil)

// noClients is a documentation network: a rule without networks would admit everybody.
const noClients = "192.0.2.0/32"

// Narrowing implements services.Narrower: in the firewall or ACL list, and in the rules' own networks.
func (r *reconciler) Narrowing(ctx context.Context, req services.Request, lb *observed) (list []lbChange, err error) {
	if len(lb.rules) == 0 || lb.foreign || lb.address == nil {
		return nil, nil
	}
	asked, _ := sources.Parse(sources.Field, req.Service.Spec.LoadBalancerSourceRanges)
	var allDesired []string // all desired networks, if the Service is valid
	if req.Purpose != services.Narrow {
		allDesired = allowedNetworks(req.Service)
	}
	seen := map[string]bool{}
	for _, found := range lb.rules {
		port := found.transport() + found.PublicPort
		if found.AddressID == lb.address.ID && !seen[port] {
			list = append(list, r.access.narrowPort(lb, found, asked.Families(true, false), allDesired, asksFor(req.Service, found))...)
		}
		seen[port] = true
	}
	more, err := r.narrowRules(ctx, req, lb)
	return append(list, more...), err
}

// asksFor reports whether a Service has the port of a rule.
func asksFor(service *v1.Service, found rule) bool {
	return slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool {
		return int(p.Port) == found.port() && strings.EqualFold(string(p.Protocol), found.transport())
	})
}

// narrowPort narrows the clients that the network's filter admits to a rule's port. A wanted port without firewall rule comes from an
// interrupted change, and is opened again for allowed clients.
func (a *access) narrowPort(lb *observed, found rule, asked sources.Set, allDesired []string, wanted bool) []lbChange {
	allowed := allDesired
	if allDesired == nil {
		allowed = asked.Texts(everybody)
	}
	protocol, port := found.transport(), found.port()
	behindFirewall := lb.network.filter() == byFirewall
	have, closing, hasRule := a.listOpenings(lb, found)
	if behindFirewall && !hasRule && wanted && len(allowed) > 0 {
		return a.portOpening(lb, allowed, protocol, port)
	}
	texts, narrower := narrow(asked, have, allDesired)
	switch {
	case !narrower:
		return nil
	case len(texts) > 0:
		return a.portOpening(lb, texts, protocol, port)
	case behindFirewall:
		c := a.firewallRuleCreation([]string{noClients}, protocol, port) // shows that the port stays closed
		c.Opens = ""
		return append(closing, c)
	}
	return closing
}

// listOpenings returns the clients that the filter admits to a rule's port, the changes that close it, and whether the firewall has a rule
// for it.
func (a *access) listOpenings(lb *observed, found rule) (have []string, closing []lbChange, hasRule bool) {
	switch lb.network.filter() {
	case byFirewall:
		_, all := firewallOf(lb.firewall, found.AddressID, found.transport(), found.port(), nil)
		for _, f := range all {
			if f.CIDRs != noClients {
				have = append(have, cidrs(f.CIDRs)...)
				closing = append(closing, a.firewallRuleDeletion(f))
			}
		}
		hasRule = len(all) > 0
	case byACL:
		if lb.acl.shared {
			return nil, nil, false
		}
		v := aclOf(lb.acl.items, lb.name, found.transport(), found.port(), nil)
		for _, i := range v.surplus {
			if i.allows() {
				have = append(have, cidrs(i.CIDRs)...)
				closing = append(closing, a.aclItemDeletion(lb.network, i))
			}
		}
	case open:
	}
	return have, closing, hasRule
}

// narrowRules narrows the networks of rules, if CloudStack can change them.
func (r *reconciler) narrowRules(ctx context.Context, req services.Request, lb *observed) (list []lbChange, err error) {
	asked, _ := sources.ParseList(req.Service.Annotations[annotationSourceCIDRs])
	var allDesired []string
	if req.Purpose != services.Narrow {
		allDesired = cidrs(strings.Join(lb.settings.SourceCIDRs, ","))
	}
	for _, found := range lb.rules {
		have := cidrs(found.CIDRs)
		texts, narrower := narrow(asked.Families(true, false), have, allDesired)
		if len(texts) == 0 {
			texts = []string{noClients}
		}
		if !narrower || slices.Equal(texts, have) {
			continue
		}
		inPlace, err := r.api.changesNetworks(ctx)
		if err != nil || !inPlace {
			return list, err
		}
		nodePort, _ := strconv.Atoi(found.PrivatePort) // a number from CloudStack
		w := wantedRule{
			Name: found.Name, Protocol: found.Protocol, Algorithm: found.Algorithm, Port: found.port(), NodePort: nodePort, CIDRs: texts,
		}
		list = append(list, r.ruleUpdate(true, found, w, "networks that may reach it"))
	}
	return list, nil
}

// narrow returns the networks to admit, and whether that excludes any client.
func narrow(asked sources.Set, have, allDesired []string) (texts []string, narrower bool) {
	texts, narrower = asked.NarrowTexts(have, false)
	if allDesired != nil {
		return allDesired, narrower
	}
	return texts, narrower
}
