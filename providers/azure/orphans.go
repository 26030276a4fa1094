package azure

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// orphans finds and deletes what Services that are gone left in Azure.
type orphans struct{ *reconciler }

var _ contract.OrphanFinder = orphans{}

const (
	kindFrontend = "frontend"
	kindAddress  = "public IP address"
	// kindRules are the load balancing rules of a Service that is gone on a frontend that stays, as others use it.
	kindRules = "load balancing rules"
)

// Orphans implements contract.OrphanFinder: objects with this cluster's mark and without a Service. Load balancers are shared by all
// Services, so their frontends count, and rules on frontends of others.
func (r orphans) Orphans(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
	mark, err := r.cluster.KnownMark(ctx)
	if err != nil {
		return nil, err
	}
	uid, _ := ownership.Marked([]string{mark})
	found := []contract.Orphan{}
	listed, err := r.resources.loadBalancers.All(ctx, inventory.Query{})
	if err != nil {
		return nil, err
	}
	lbs := parseAll[loadBalancer](listed)
	addresses, err := r.publicAddresses(ctx, lbs, list)
	if err != nil {
		return nil, err
	}
	for _, lb := range lbs {
		if lb.Tags[clusterTag] != uid {
			continue
		}
		for _, base := range basesIn(lb) {
			if slices.ContainsFunc(list, func(s *v1.Service) bool { return strings.EqualFold(baseName(s), base) }) {
				continue
			}
			parts, err := r.orphansIn(ctx, lb, base, list)
			if err != nil {
				return nil, err
			}
			found = append(found, parts...)
		}
	}
	for _, a := range addresses {
		named := func(s *v1.Service) bool { return isNamedFor(a, a.cluster(), s) }
		if (a.Tags[clusterTag] == uid || slices.ContainsFunc(list, named)) && r.config.addressIsOrphan(a, list) {
			found = append(found, contract.Orphan{Kind: kindAddress, ID: a.ID, Name: a.Name})
		}
	}
	return found, nil
}

// publicAddresses are those of the subscription. Where the credential may not ask for these, they are those of the resource groups that
// load balancers and Services name.
func (r orphans) publicAddresses(ctx context.Context, lbs []*loadBalancer, list []*v1.Service) (all []*publicIP, err error) {
	listed, _, err := r.resources.listSubscription(ctx)
	if !isSkippedGroup(err) {
		return parseAll[publicIP](listed), err
	}
	groups := []string{r.config.Group}
	for _, s := range list {
		groups = append(groups, r.config.addressGroup(s))
	}
	for _, f := range frontsOf(lbs...) {
		if id := f.Properties.PublicIP.lowerID(); id != "" {
			groups = append(groups, groupOf(id))
		}
	}
	slices.Sort(groups)
	for _, g := range slices.Compact(groups) {
		listed, err := r.resources.addressesOf(g).All(ctx, inventory.Query{})
		if err != nil && (g == r.config.Group || !isSkippedGroup(err)) {
			return nil, err
		}
		all = append(all, parseAll[publicIP](listed)...)
	}
	return all, nil
}

// basesIn are the base names of the Services that have a part of a load balancer.
func basesIn(lb *loadBalancer) []string {
	var names []string
	for _, f := range lb.Properties.Fronts {
		names = append(names, f.Name)
	}
	for _, rule := range lb.Properties.Rules {
		names = append(names, rule.Name)
	}
	found := map[string]bool{}
	for _, name := range names {
		if isGeneratedName(name) && ownedBy(name[:32], name) {
			found[name[:32]] = true
		}
	}
	return sortedKeys(found)
}

// orphansIn finds what a deleted Service has left in a load balancer: its frontends, or only rules if others use all its frontends.
func (r orphans) orphansIn(ctx context.Context, lb *loadBalancer, base string, list []*v1.Service) (found []contract.Orphan, err error) {
	for _, f := range lb.Properties.Fronts {
		if !ownedBy(base, f.Name) || otherUserOf(lb, f, base) != "" {
			continue
		}
		ip, err := r.addressAt(ctx, f)
		if err != nil {
			return nil, err
		}
		if slices.ContainsFunc(list, func(s *v1.Service) bool { return showsAddress(s, ip) }) {
			return nil, nil
		}
		found = append(found, contract.Orphan{Kind: kindFrontend, ID: f.ID, Name: f.Name})
	}
	if len(found) > 0 {
		return found, nil
	}
	for _, rule := range lb.Properties.Rules {
		if ownedBy(base, rule.Name) {
			return []contract.Orphan{{Kind: kindRules, ID: lb.ID + "/loadBalancingRules/" + base, Name: base}}, nil
		}
	}
	return nil, nil
}

// addressAt is the address of a frontend, in whichever resource group it is; "" where it is not known.
func (r *observer) addressAt(ctx context.Context, f *frontend) (string, error) {
	if ip := f.Properties.Address; ip != "" {
		return ip, nil
	}
	id := f.Properties.PublicIP.ID
	if id == "" {
		return "", nil
	}
	a, err := readAs[publicIP](ctx, r.resources, id, false)
	if a == nil {
		return "", err
	}
	return a.Properties.Address, err
}

// showsAddress reports whether the status of a Service has an address.
func showsAddress(s *v1.Service, ip string) bool {
	return slices.ContainsFunc(s.Status.LoadBalancer.Ingress, func(i v1.LoadBalancerIngress) bool { return sameIP(i.IP, ip) })
}

// addressIsOrphan reports whether a public address that a controller made is for Services alone that are gone, or that have theirs in
// another resource group by now. One that a living Service shows, or names, is about to be used.
func (c *Config) addressIsOrphan(a *publicIP, list []*v1.Service) bool {
	names, given := a.services()
	if !given || a.Properties.User.ID != "" {
		return false
	}
	return !slices.ContainsFunc(list, func(s *v1.Service) bool {
		group := groupOf(a.lowerID())
		looks := group == c.Group || group == c.addressGroup(s)
		named := func(text string) bool { return looks && strings.EqualFold(text, serviceName(s)) }
		return slices.ContainsFunc(names, named) || requestsAddress(s, a)
	})
}

// requestsAddress reports whether a Service shows a public address or requests it by IP or name.
func requestsAddress(s *v1.Service, a *publicIP) bool {
	ip, name := a.Properties.Address, a.Name
	asked := append(additionalAddresses(s), s.Spec.LoadBalancerIP, s.Annotations[annotationIPv4], s.Annotations[annotationIPv6])
	return showsAddress(s, ip) || ip != "" && hasIP(asked, ip) ||
		name != "" && (strings.EqualFold(s.Annotations[annotationName], name) || strings.EqualFold(s.Annotations[annotationName6], name))
}

// DeleteOrphan implements contract.OrphanFinder. It checks the orphan again with the present Services. The security group's rules go first,
// because only the orphan leads to them.
func (r orphans) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	var living []*v1.Service
	if err := r.cluster.StillOrphan(ctx, o, func(ctx context.Context, list []*v1.Service) ([]contract.Orphan, error) {
		for _, s := range list {
			living = append(living, r.translate(s))
		}
		return r.Orphans(ctx, living)
	}); err != nil {
		return err
	}
	if o.Kind == kindAddress {
		if err := r.closeAddress(ctx, o.ID, living); err != nil {
			return err
		}
		return r.resources.removeAddress(ctx, o.ID)
	}
	lb, err := readAs[loadBalancer](ctx, r.resources, ownerOf(o.ID), false)
	if err != nil || lb == nil {
		return err
	}
	base := o.Name[:32]
	if err := r.closeTo(ctx, lb, base, living); err != nil {
		return err
	}
	if err := r.unlinkOrphan(ctx, lb, base); err != nil {
		return err
	}
	without := editOf(r.config.withoutService(lb.Name, base, otherParts{}))
	if err := r.resources.submit(ctx, r.loadBalancerDocument(lb.ID, lb.Name), without); err != nil {
		return err
	}
	return r.releaseElsewhere(ctx, lb, base, living)
}

// unlinkOrphan removes the private link services of the frontends of a Service that is gone. One in a resource group that the Service alone
// named is not found: Azure then refuses to delete its frontend.
func (r orphans) unlinkOrphan(ctx context.Context, lb *loadBalancer, base string) error {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return err
	}
	o := &observed{lbs: []*loadBalancer{lb}, mark: mark}
	fronts := o.droppedFronts(r.config, base, nil)
	if len(fronts) == 0 {
		return nil
	}
	if err := r.observeLinks(ctx, &v1.Service{}, o, false); err != nil {
		return err
	}
	for _, id := range fronts {
		l := linkOn(o.links, id)
		if l == nil {
			continue
		}
		if !l.hasMark(mark) {
			return fmt.Errorf("private link service %s, which was not made for a Service of this cluster, uses frontend %s: remove it first",
				l.Name, nameOf(id))
		}
		if err := r.resources.removeLink(ctx, l); err != nil {
			return err
		}
		o.links = slices.DeleteFunc(o.links, func(gone *privateLink) bool { return gone.lowerID() == l.lowerID() })
	}
	return nil
}

// removeAddress deletes a public address.
func (r *resources) removeAddress(ctx context.Context, id string) error {
	return r.submit(ctx, document{id: id, what: "public IP address " + nameOf(id)}, deleteDocument)
}

// releaseElsewhere deletes public addresses outside of the usual resource group. Without a frontend, a credential limited to resource
// groups could not find them again.
func (r orphans) releaseElsewhere(ctx context.Context, before *loadBalancer, base string, living []*v1.Service) error {
	for _, f := range before.Properties.Fronts {
		id := f.Properties.PublicIP.ID
		usual := groupOf(strings.ToLower(id)) == r.config.Group
		if id == "" || usual || !ownedBy(base, f.Name) {
			continue
		}
		a, err := readAs[publicIP](ctx, r.resources, id, true)
		if err != nil {
			return err
		}
		if a == nil || a.Tags[clusterTag] != before.Tags[clusterTag] || !r.config.addressIsOrphan(a, living) {
			continue
		}
		if err := r.resources.removeAddress(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
