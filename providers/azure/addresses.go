package azure

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// This file is about the public addresses of Services.

func serviceName(s *v1.Service) string { return s.Namespace + "/" + s.Name }

// servicesOf are the Services that an address says it is for; given reports whether it says so at all. Users have tags called service of
// their own, which name no Service.
func servicesOf(a doc) (list []string, given bool) {
	text, given := tag(tagsOf(a), serviceTag)
	if !given {
		text, given = tag(tagsOf(a), legacyServiceTag)
		given = given && strings.Contains(text, "/")
	}
	if !given {
		return nil, false
	}
	for name := range strings.SplitSeq(text, ",") {
		if name = strings.TrimSpace(name); name != "" {
			list = append(list, name)
		}
	}
	return list, given
}

// clusterOf is the cluster that an address says it is of.
func clusterOf(a doc) string {
	if name, ok := tag(tagsOf(a), nameTag); ok {
		return name
	}
	name, _ := tag(tagsOf(a), legacyNameTag)
	return name
}

// servedBy reports whether an address is one that a controller made for a Service.
func servedBy(a doc, s *v1.Service, cluster string) bool {
	list, given := servicesOf(a)
	named := clusterOf(a)
	return given && (named == "" || strings.EqualFold(named, cluster)) &&
		slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, serviceName(s)) })
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
func (r *reconciler) externalFront(
	ctx context.Context, q services.Request, s *settings, o *observed, lb doc, f *front, suffix string,
) error {
	group := r.addressGroup(q.Service)
	inGroup := func(match func(doc) bool) doc {
		for _, a := range o.addresses {
			if strings.Contains(docID(a), "/resourcegroups/"+group+"/") && match(a) {
				return a
			}
		}
		return nil
	}
	name, prefixID := s.named(q.Service, f.six)
	ip := requestedIP(q.Service, s, f.six)
	a := &address{group: group, name: addressName(q.Cluster, baseName(q.Service), prefixID, suffix), managed: true}
	switch {
	case name != "":
		a.name, a.managed = name, false
		if a.found = inGroup(func(d doc) bool { return strings.EqualFold(str(d, "name"), name) }); a.found == nil {
			return fmt.Errorf("PublicIP from annotation azure-pip-name%s=%s for service %s doesn't exist", map[bool]string{true: "-IPv6"}[f.six], name, serviceName(q.Service))
		}
	case prefixID == "" && ip != "":
		if a.found = inGroup(func(d doc) bool { return str(d, "properties", "ipAddress") == ip }); a.found == nil {
			return fmt.Errorf("findMatchedPIPByLoadBalancerIP: cannot find public IP with IP address %s in resource group %s", ip, group)
		}
		a.name = str(a.found, "name")
		a.managed = servedBy(a.found, q.Service, q.Cluster)
	default:
		a.found = inGroup(func(d doc) bool { return strings.EqualFold(str(d, "name"), a.name) })
	}
	f.address = a
	f.shareWith(lb, baseName(q.Service))
	return r.wantAddress(ctx, q, s, a, f.six, prefixID)
}

// named are the public address and the prefix that annotations name for a family. A Service of IPv6 alone may use the names without suffix.
func (s *settings) named(service *v1.Service, six bool) (name, prefixID string) {
	name, prefixID = s.Name, s.PrefixID
	if !six {
		return name, prefixID
	}
	_, dual := families(service)
	if dual || s.Name6 != "" {
		name = s.Name6
	}
	if dual || s.PrefixID6 != "" {
		prefixID = s.PrefixID6
	}
	return name, prefixID
}

// shareWith makes a frontend that of another Service, where that has the address already.
func (f *front) shareWith(lb doc, base string) {
	if f.address.found == nil {
		return
	}
	for _, other := range docs(lb, "properties", "frontendIPConfigurations") {
		if sameID(str(other, "properties", "publicIPAddress", "id"), str(f.address.found, "id")) && !ownedBy(base, str(other, "name")) {
			f.name, f.foreign = str(other, "name"), true
		}
	}
}

// wantAddress computes what an address should be.
func (r *reconciler) wantAddress(ctx context.Context, q services.Request, s *settings, a *address, six bool, prefixID string) error {
	list, tagged := servicesOf(a.found)
	owner := serviceName(q.Service)
	if a.found != nil && !tagged {
		a.managed = false
		a.want = a.found
		return nil // a user's: never written
	}
	var want doc
	tags := map[string]string{}
	if a.found == nil {
		zones, err := r.resources.zones(ctx)
		if err != nil {
			return err
		}
		want = r.newAddress(six, prefixID, zones)
		mark, err := r.cluster.Mark(ctx)
		if err != nil {
			return err
		}
		if uid, _ := ownership.Marked([]string{mark}); uid != "" {
			tags[clusterTag] = uid
		}
		tags[serviceTag], tags[nameTag] = owner, q.Cluster
	} else {
		want = cloneOf(a.found)
		if !slices.ContainsFunc(list, func(n string) bool { return strings.EqualFold(n, owner) }) {
			key := serviceTag
			if _, ok := tag(tagsOf(want), serviceTag); !ok {
				key = legacyServiceTag
			}
			tags[key] = strings.Join(append(list, owner), ",")
		}
	}
	for key, v := range r.config.tags {
		setTag(tags, key, v)
	}
	if err := wantLabel(want, s, owner, tags); err != nil {
		return err
	}
	if len(list) == 0 || strings.EqualFold(list[0], owner) { // the Services that share an address do not say how it is
		for key, v := range pairs(s.Tags) {
			setTag(tags, key, v)
		}
		if s.IPTagsGiven {
			wantIPTags(want, s.IPTags)
		}
	}
	upgrade(want)
	mergeTags(want, tags, r.config.SystemTags, clusterTag, "k8s-azure-", legacyServiceTag, "kubernetes-")
	a.want = want
	return nil
}

func (r *reconciler) newAddress(six bool, prefixID string, zones []any) doc {
	p := doc{"publicIPAllocationMethod": "Static", "publicIPAddressVersion": familyName(six)}
	d := doc{"location": r.config.Location, "sku": doc{"name": "Standard"}, "properties": p}
	if prefixID != "" {
		p["publicIPPrefix"] = doc{"id": prefixID}
	}
	if len(zones) > 0 {
		d["zones"] = zones
	}
	if r.config.EdgeName != "" {
		d["extendedLocation"] = doc{"name": r.config.EdgeName, "type": r.config.EdgeType}
	}
	return d
}

// wantLabel sets or removes the DNS label, which one Service alone has.
func wantLabel(want doc, s *settings, owner string, tags map[string]string) error {
	if !s.LabelGiven {
		return nil
	}
	have, ok := tag(tagsOf(want), labelTag)
	if !ok {
		have, _ = tag(tagsOf(want), legacyLabelTag)
	}
	if have != "" && !strings.EqualFold(have, owner) {
		return fmt.Errorf("there is an existing service %s consuming the DNS label on the public IP, so the service cannot set the DNS label annotation with this value", have)
	}
	p := props(want)
	switch {
	case s.Label == "":
		delete(p, "dnsSettings")
	case str(p, "dnsSettings", "domainNameLabel") != s.Label:
		p["dnsSettings"] = doc{"domainNameLabel": s.Label}
	}
	if s.Label != "" && have == "" {
		tags[labelTag] = owner
	}
	return nil
}

// wantIPTags sets the IP tags, where they differ as sets.
func wantIPTags(want doc, text string) {
	given := map[string]string{}
	for pair := range strings.SplitSeq(text, ",") {
		if k, v, ok := strings.Cut(pair, "="); ok && strings.TrimSpace(k) != "" {
			given[strings.TrimSpace(k)] = strings.TrimSpace(v)
		}
	}
	have := map[string]string{}
	for _, t := range docs(want, "properties", "ipTags") {
		have[str(t, "ipTagType")] = str(t, "tag")
	}
	if fmt.Sprint(have) == fmt.Sprint(given) {
		return
	}
	var list []doc
	for _, k := range sortedKeys(given) {
		list = append(list, doc{"ipTagType": k, "tag": given[k]})
	}
	setList(want, "ipTags", list)
}

// addressChange writes a public address that is not as it should be.
func (r *reconciler) addressChange(_ services.Request, _ *observed, a *address) (c services.Change[*observed], due bool) {
	if a == nil || a.found != nil && sameDoc(a.found, a.want) && (!a.managed || !failed(a.found)) {
		return c, false
	}
	action := guard.PlanChange
	if a.found == nil {
		action = guard.PlanCreate
	}
	id := a.id(r.config)
	return services.Change[*observed]{
		Planned: guard.Planned{Action: action, Object: "public IP address " + a.name}, Replan: true,
		Compare: func() (before, after any) {
			if a.found == nil {
				return nil, a.want
			}
			return a.found, a.want
		},
		Make: func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
			target := document{id: id, what: "public IP address " + a.name, version: networkVersion, create: func() doc { return doc{} }}
			after, err := r.resources.documents.submit(ctx, target, func(d doc) error {
				clear(d)
				maps.Copy(d, cloneOf(a.want))
				return nil
			})
			if a.found == nil {
				q.Asked(err)
			}
			if err != nil {
				return o, err
			}
			return r.look(ctx, q, o, after)
		},
	}, true
}

func sameDoc(a, b doc) bool { return fmt.Sprint(a) == fmt.Sprint(b) }

// releases give up the public addresses that a Service has no more; d is nil for a Service that goes. What was not made by a controller
// stays.
func (r *reconciler) releases(q services.Request, o *observed, d *spec) []services.Change[*observed] {
	var list []services.Change[*observed]
	for _, a := range o.addresses {
		if !servedBy(a, q.Service, q.Cluster) {
			continue
		}
		wanted := d != nil && slices.ContainsFunc(d.Fronts, func(f front) bool {
			return f.address != nil && sameID(f.address.id(r.config), str(a, "id"))
		})
		if wanted {
			continue
		}
		list = append(list, r.release(a))
	}
	return list
}

func (r *reconciler) release(a doc) services.Change[*observed] {
	name := str(a, "name")
	return services.Change[*observed]{
		Planned: guard.Planned{Action: guard.PlanDelete, Object: "public IP address " + name},
		Compare: func() (before, after any) { return a, nil },
		Make: func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
			owner := serviceName(q.Service)
			after, err := r.resources.documents.submit(ctx, document{id: str(a, "id"), what: "public IP address " + name, version: networkVersion}, func(d doc) error {
				if d == nil {
					return errKeep
				}
				names, given := servicesOf(d)
				left := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return strings.EqualFold(n, owner) })
				switch {
				case !given || len(left) == len(names):
					return errKeep
				case len(left) == 0:
					return errRemove
				}
				tags := tagsOf(d)
				for _, key := range []string{serviceTag, legacyServiceTag} {
					if _, ok := tag(tags, key); ok {
						setTag(tags, key, strings.Join(left, ","))
					}
				}
				d["tags"] = asDoc(tags)
				return nil
			})
			if err != nil {
				return o, err
			}
			return r.look(ctx, q, o, after)
		},
	}
}

// inherited are the frontends that a Service, which goes, shares with no living one although another one made them.
func (r *reconciler) inherited(ctx context.Context, q services.Request, lbs []doc) (names []string, err error) {
	base := baseName(q.Service)
	for _, lb := range lbs {
		for _, f := range docs(lb, "properties", "frontendIPConfigurations") {
			if name := str(f, "name"); madeName(name) && !ownedBy(base, name) && serves(lb, f, base) {
				names = append(names, name)
			}
		}
	}
	if len(names) == 0 {
		return nil, nil
	}
	living, err := r.cluster.Living(ctx)
	return slices.DeleteFunc(names, func(name string) bool {
		return slices.ContainsFunc(living, func(s *v1.Service) bool { return s.DeletionTimestamp == nil && ownedBy(baseName(s), name) })
	}), err
}

// serves reports whether a Service has rules on a frontend.
func serves(lb, f doc, base string) bool {
	return slices.ContainsFunc(docs(lb, "properties", "loadBalancingRules"), func(rule doc) bool {
		return ownedBy(base, str(rule, "name")) && sameID(str(rule, "properties", "frontendIPConfiguration", "id"), str(f, "id"))
	})
}
