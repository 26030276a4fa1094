package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file is about the public addresses of Services.

// publicIP is the document of a public address.
type publicIP struct {
	resource
	Properties publicIPProperties `json:"properties"`
}

type publicIPProperties struct {
	object
	State      string       `json:"provisioningState"`
	Address    string       `json:"ipAddress"`
	Version    string       `json:"publicIPAddressVersion"`
	Allocation string       `json:"publicIPAllocationMethod"`
	Prefix     subresource  `json:"publicIPPrefix"`
	DNS        *dnsSettings `json:"dnsSettings"`
	IPTags     []*ipTag     `json:"ipTags"`
	// User is the IP configuration that the address is bound to.
	User subresource `json:"ipConfiguration"`
}

type dnsSettings struct {
	object
	Label string `json:"domainNameLabel"`
}

type ipTag struct {
	object
	Type string `json:"ipTagType"`
	Tag  string `json:"tag"`
}

func serviceName(s *v1.Service) string { return s.Namespace + "/" + s.Name }

// services are those that an address says it is for; given reports whether it says so at all. Users have tags called service of their own,
// which name no Service.
func (a *publicIP) services() (list []string, given bool) {
	text, given := tag(a.Tags, serviceTag)
	if !given {
		text, given = tag(a.Tags, legacyServiceTag)
		given = given && strings.Contains(text, "/")
	}
	if !given {
		return nil, false
	}
	return splitList(text), given
}

// cluster is the one that an address says it is of.
func (a *publicIP) cluster() string {
	name, _ := tag(a.Tags, nameTag, legacyNameTag)
	return name
}

// isTaggedFor reports whether an address is one that a controller of this cluster made for a Service. One that is bound to a load balancer
// of another name is another cluster's, which may be called like this one.
func (c *Config) isTaggedFor(a *publicIP, s *v1.Service, cluster string) bool {
	list, given := a.services()
	named := a.cluster()
	return given && (named == "" || strings.EqualFold(named, cluster)) && !c.isBoundElsewhere(a, cluster) &&
		slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, serviceName(s)) })
}

// isAddressOf reports whether an address is the Service's. Without a mark it may be that of a Service of the same name in a cluster called
// alike: then it is at a frontend of no Service of this cluster.
func (r *observer) isAddressOf(q services.Request, o *observed, a *publicIP) bool {
	if !r.config.isTaggedFor(a, q.Service, q.Cluster) {
		return false
	}
	base := baseName(q.Service)
	return a.hasMark(o.mark) || !slices.ContainsFunc(o.lbs, func(lb *loadBalancer) bool {
		return slices.ContainsFunc(lb.Properties.Fronts, func(f *frontend) bool {
			at := sameID(f.Properties.PublicIP.ID, a.ID)
			return at && !ownedBy(base, f.Name) && !servesFrontend(lb, f, base) && !o.isOfKnownService(f)
		})
	})
}

// isOfKnownService reports whether a frontend has the name of one of a Service of the cluster.
func (o *observed) isOfKnownService(f *frontend) bool {
	return slices.ContainsFunc(o.services, func(s *v1.Service) bool { return ownedBy(baseName(s), f.Name) })
}

// isBoundElsewhere reports whether something other than this cluster's load balancers uses an address.
func (c *Config) isBoundElsewhere(a *publicIP, cluster string) bool {
	at := a.Properties.User.ID
	return at != "" && !slices.ContainsFunc(c.namesOf(cluster), func(name string) bool {
		return strings.HasPrefix(strings.ToLower(at), strings.ToLower(c.loadBalancerID(name))+"/")
	})
}

// addressName is the exact name of a public address that is made for a Service.
func addressName(cluster, base, prefixID, suffix string) string {
	name := cluster + "-" + base
	if prefixID != "" {
		name += "-" + nameOf(prefixID)
		name = name[:min(len(name), maxName)]
	}
	return name + suffix
}

// externalFront finds the public address of a frontend, and the frontend where it is another Service's.
func (r *reconciler) externalFront(ctx context.Context, q services.Request, o *observed, lb *loadBalancer, f *desiredFront) error {
	group := r.config.addressGroup(q.Service)
	inGroup := func(match func(*publicIP) bool) *publicIP {
		return find(o.addresses, func(a *publicIP) bool { return strings.Contains(a.lowerID(), "/resourcegroups/"+group+"/") && match(a) })
	}
	name, prefixID := o.settings.namedAddress(q.Service, f.ipv6)
	ip := requestedIP(q.Service, &o.settings, f.ipv6)
	a := &desiredAddress{group: group, repair: true}
	switch {
	case name != "":
		a.name, a.repair = name, false
		named := func(d *publicIP) bool { return d.hasName(name) }
		if err := o.refuseForeign(named); err != nil {
			return err
		}
		if a.found = inGroup(named); a.found == nil {
			annotation := map[bool]string{true: annotationName6, false: annotationName}[f.ipv6]
			return fmt.Errorf("annotation %s: resource group %s has no public IP address %q; create it, or name another one", annotation, group, name)
		}
	case prefixID == "" && ip != "":
		at := func(d *publicIP) bool { return sameIP(d.Properties.Address, ip) }
		if err := o.refuseForeign(at); err != nil {
			return err
		}
		if a.found = inGroup(at); a.found == nil {
			return fmt.Errorf("resource group %s has no public IP address with the address %s; create it there, or name the group by annotation %s", group, ip, annotationGroup)
		}
		a.name = a.found.Name
		a.repair = r.config.isTaggedFor(a.found, q.Service, q.Cluster)
	default:
		named := func(suffix string) *publicIP {
			a.name = addressName(q.Cluster, baseName(q.Service), prefixID, suffix)
			return inGroup(func(d *publicIP) bool { return d.hasName(a.name) })
		}
		a.found = named(suffixFor(f.ipv6, isDual(q.Service), func(suffix string) (isSix, found bool) {
			have := named(suffix)
			return have != nil && have.isIPv6(), have != nil
		}))
		if err := azurelimits.Name.WithName("the name of public IP address " + a.name).CheckText(a.name); a.found == nil && err != nil {
			return err
		}
	}
	if a.found != nil && a.found.isIPv6() != f.ipv6 {
		return fmt.Errorf("public IP address %s is one of %s, and the Service needs one of %s: name another one", a.name, familyName(!f.ipv6), familyName(f.ipv6))
	}
	f.address = a
	f.shareWith(lb, baseName(q.Service))
	return r.desireAddress(ctx, q, o, a, f.ipv6, prefixID)
}

// isIPv6 reports whether a public address is one of IPv6.
func (a *publicIP) isIPv6() bool { return strings.EqualFold(a.Properties.Version, familyName(true)) }

// namedAddress are the public address and the prefix that annotations name for a family. A Service of IPv6 alone may use the names without
// suffix.
func (s *settings) namedAddress(service *v1.Service, ipv6 bool) (name, prefixID string) {
	name, prefixID = s.Name, s.PrefixID
	if !ipv6 {
		return name, prefixID
	}
	dual := isDual(service)
	if dual || s.Name6 != "" {
		name = s.Name6
	}
	if dual || s.PrefixID6 != "" {
		prefixID = s.PrefixID6
	}
	return name, prefixID
}

// shareWith makes a frontend that of another Service, where that has the address already.
func (f *desiredFront) shareWith(lb *loadBalancer, base string) {
	if f.address.found == nil {
		return
	}
	for _, other := range lb.Properties.Fronts {
		if sameID(other.Properties.PublicIP.ID, f.address.found.ID) && !ownedBy(base, other.Name) {
			f.name, f.isOthers = other.Name, true
		}
	}
}

// refuseForeign refuses an address that carries the mark of another cluster.
func (o *observed) refuseForeign(asked func(*publicIP) bool) error {
	if a := find(o.foreign, asked); a != nil {
		return ownership.Check("public IP address "+a.Name, o.mark, a.marks())
	}
	return nil
}

// desireAddress computes what an address should be.
func (r *reconciler) desireAddress(
	ctx context.Context, q services.Request, o *observed, a *desiredAddress, ipv6 bool, prefixID string,
) error {
	if a.found != nil {
		if _, tagged := a.found.services(); !tagged {
			a.want = a.found
			return nil // a user's: never written
		}
	}
	owner := serviceName(q.Service)
	if a.found == nil {
		zones, err := r.resources.zones(ctx)
		if err != nil {
			return err
		}
		mark, err := r.cluster.Mark(ctx)
		if err != nil {
			return err
		}
		a.fresh = r.config.newAddress(ipv6, prefixID, zones, mark)
		tags := map[string]string{serviceTag: owner, nameTag: q.Cluster}
		maps.Copy(tags, a.fresh.Tags)
		a.fresh.Tags = tags
	}
	a.edit = func(d *publicIP) error {
		if _, tagged := d.services(); !tagged {
			return errKeep // a user's by now
		}
		before := clone(d)
		if err := r.config.shapeAddress(d, &o.settings, owner); err != nil {
			return err
		}
		isNew := d.ID == "" // Azure has not seen it
		return keepUnless(isNew || !reflect.DeepEqual(before, d) || a.repair && hasFailed(d.Properties.State), nil)
	}
	a.want = clone(cmp.Or(a.found, a.fresh))
	return r.config.shapeAddress(a.want, &o.settings, owner)
}

// shapeAddress makes the document of a public address what a Service asks for.
func (c *Config) shapeAddress(d *publicIP, s *settings, owner string) error {
	list, _ := d.services()
	tags := map[string]string{}
	if !slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, owner) }) {
		key := serviceTag
		if _, ok := tag(d.Tags, serviceTag); !ok {
			key = legacyServiceTag
		}
		list = append(slices.Clone(list), owner)
		tags[key] = strings.Join(list, ",")
		if err := azurelimits.TagValue.WithName("the value of tag " + key).CheckText(tags[key]); err != nil {
			return fmt.Errorf("public IP address %s is to be for %d Services, and %w: give this Service an address of its own", d.Name, len(list), err)
		}
	}
	for key, v := range c.tags {
		setTag(tags, key, v)
	}
	if err := setLabel(d, s, owner, tags); err != nil {
		return err
	}
	if len(list) == 0 || strings.EqualFold(list[0], owner) { // the Services that share an address do not say how it is
		for key, v := range pairs(s.Tags) {
			setTag(tags, key, v)
		}
		if s.IPTagsGiven {
			setIPTags(d, s.IPTags)
		}
	}
	upgradeToStandard(d)
	if _, err := d.mergeTags(tags, c.SystemTags, clusterTag, "k8s-azure-", legacyServiceTag, "kubernetes-"); err != nil {
		return fmt.Errorf("public IP address %s: %w", d.Name, err)
	}
	return nil
}

func (c *Config) newAddress(ipv6 bool, prefixID string, zones []string, mark string) *publicIP {
	a := &publicIP{resource: c.newResource(mark), Properties: publicIPProperties{
		Allocation: "Static", Version: familyName(ipv6), Prefix: subresource{ID: prefixID},
	}}
	a.SKU.Name, a.Zones = "Standard", zones
	return a
}

// setLabel sets or removes the DNS label, which one Service alone has.
func setLabel(want *publicIP, s *settings, owner string, tags map[string]string) error {
	if !s.LabelGiven {
		return nil
	}
	have, _ := tag(want.Tags, labelTag, legacyLabelTag)
	if have != "" && !strings.EqualFold(have, owner) {
		return fmt.Errorf("annotation %s: Service %s has set the DNS label of this public IP address, and only one Service may; remove it from one of them",
			annotationLabel, have)
	}
	p := &want.Properties
	switch {
	case s.Label == "":
		p.DNS = nil
	case p.DNS == nil || p.DNS.Label != s.Label:
		p.DNS = &dnsSettings{Label: s.Label}
	}
	if s.Label != "" && have == "" {
		tags[labelTag] = owner
	}
	return nil
}

// setIPTags sets the IP tags, where they differ as sets.
func setIPTags(want *publicIP, text string) {
	given := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok && strings.TrimSpace(k) != "" {
			given[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	have := map[string]string{}
	for _, t := range want.Properties.IPTags {
		have[t.Type] = t.Tag
	}
	if maps.Equal(have, given) {
		return
	}
	want.Properties.IPTags = []*ipTag{}
	for _, k := range sortedKeys(given) {
		want.Properties.IPTags = append(want.Properties.IPTags, &ipTag{Type: k, Tag: given[k]})
	}
}

// addressChange writes a public address that is not as it should be.
func (r *reconciler) addressChange(q services.Request, a *desiredAddress) []change {
	if a == nil || a.edit == nil ||
		a.found != nil && reflect.DeepEqual(a.found, a.want) && (!a.repair || !hasFailed(a.found.Properties.State)) {
		return nil
	}
	target := document{id: a.id(r.config), what: "public IP address " + a.name}
	c := change{
		Planned: contract.Planned{Action: contract.PlanChange}, Replan: true,
		Compare: func() (before, after any) { return format(a.found), format(a.want) },
		Expect:  func(o *observed) *observed { return o.afterAddress(baseName(q.Service), a.want.afterWrite(target.id)) },
	}
	if a.found == nil {
		c.Action, target.create = contract.PlanCreate, func() doc {
			r.resources.recordElsewhere(&publicIP{resource: resource{subresource: subresource{ID: target.id, Name: a.name}, Tags: a.fresh.Tags}})
			return format(a.fresh)
		}
	}
	return []change{r.documentChange(c, target, editOf(a.edit))}
}

// releases give up the public addresses that a Service has no more; d is nil for a Service that goes. What was not made by a controller
// stays.
func (r *reconciler) releases(q services.Request, o *observed, d *desired) (list []change) {
	for _, a := range o.addresses {
		wanted := d != nil && slices.ContainsFunc(d.Fronts, func(f desiredFront) bool {
			return f.address != nil && sameID(f.address.id(r.config), a.ID)
		})
		if !wanted && r.isAddressOf(q, o, a) {
			list = append(list, r.release(q, a))
		}
	}
	return list
}

// release takes a Service out of the tag of a public address, which goes with the last one.
func (r *reconciler) release(q services.Request, a *publicIP) change {
	owner := serviceName(q.Service)
	draft, action := clone(a), contract.PlanChange
	if errors.Is(draft.leave(owner), errRemove) {
		draft, action = nil, contract.PlanDelete
	}
	return r.documentChange(change{
		Planned: contract.Planned{Action: action},
		Compare: func() (before, after any) { return format(a), format(draft) },
	}, document{id: a.ID, what: "public IP address " + a.Name}, editOf(func(d *publicIP) error { return d.leave(owner) }))
}

// leave takes a Service out of the tag of a public address.
func (a *publicIP) leave(owner string) error {
	names, given := a.services()
	left := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.EqualFold(n, owner) })
	switch {
	case !given || len(left) == len(names):
		return errKeep
	case len(left) == 0:
		return errRemove
	}
	for _, key := range []string{serviceTag, legacyServiceTag} {
		if _, ok := tag(a.Tags, key); ok {
			setTag(a.Tags, key, strings.Join(left, ","))
		}
	}
	return nil
}

// inheritedFronts are the frontends that a Service leaves and that their creator no longer wants, by lower-case ID. d is nil for a deleted
// Service.
func (r *observer) inheritedFronts(ctx context.Context, q services.Request, lbs []*loadBalancer, d *desired) (ids []string, err error) {
	base := baseName(q.Service)
	readServices := sync.OnceValues(func() ([]*v1.Service, error) { return r.cluster.Living(ctx) })
	for lb, f := range frontsOf(lbs...) {
		name := f.Name
		stays := d != nil && lb.hasName(d.LB) && d.hasFront(name)
		if !isGeneratedName(name) || ownedBy(base, name) || !servesFrontend(lb, f, base) || stays {
			continue
		}
		living, err := readServices()
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(living, func(s *v1.Service) bool {
			return s.DeletionTimestamp == nil && wantsFront(r.translate(s), isInternal(lb.Name), name)
		}) {
			ids = append(ids, f.lowerID())
		}
	}
	return ids, nil
}

// wantsFront reports whether a Service asks for a frontend of this name on a load balancer of a kind. In doubt it does.
func wantsFront(service *v1.Service, internal bool, name string) bool {
	base := baseName(service)
	if !ownedBy(base, name) {
		return false
	}
	s, _, err := parseSettings(service)
	if err != nil || service.Spec.Type != v1.ServiceTypeLoadBalancer {
		return err != nil
	}
	list := families(service)
	is := func(suffix string) bool { return strings.EqualFold(frontName(base, s.frontendSubnet(), suffix), name) }
	return s.Internal == internal &&
		(is("") || is(suffixIPv6) && slices.Contains(list, true) || is(suffixIPv4) && slices.Contains(list, false))
}

// servesFrontend reports whether a Service has rules on a frontend.
func servesFrontend(lb *loadBalancer, f *frontend, base string) bool {
	return slices.ContainsFunc(lb.Properties.Rules, func(rule *lbRule) bool {
		return ownedBy(base, rule.Name) && sameID(rule.Properties.Front.ID, f.ID)
	})
}
