package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file is about private link services: a Service may ask for one on its frontend, which then can be reached from other networks.

// ownerTag is the tag that names the Service of a private link service.
const ownerTag = "k8s-azure-owner-service"

// privateLink is the document of a private link service.
type privateLink struct {
	resource
	Properties struct {
		object
		State       string         `json:"provisioningState"`
		Fronts      []*subresource `json:"loadBalancerFrontendIpConfigurations"`
		Configs     []*linkConfig  `json:"ipConfigurations"`
		FQDNs       []string       `json:"fqdns"`
		Visibility  subscriptions  `json:"visibility"`
		Approval    subscriptions  `json:"autoApproval"`
		Proxy       *bool          `json:"enableProxyProtocol"`
		Connections []*subresource `json:"privateEndpointConnections"`
	} `json:"properties"`
}

type subscriptions struct {
	object
	IDs []string `json:"subscriptions"`
}

type linkConfig struct {
	subresource
	Properties linkConfigProperties `json:"properties"`
}

type linkConfigProperties struct {
	object
	Primary    bool        `json:"primary"`
	Version    string      `json:"privateIPAddressVersion"`
	Allocation string      `json:"privateIPAllocationMethod"`
	Address    string      `json:"privateIPAddress"`
	Subnet     subresource `json:"subnet"`
}

// subnet is the document of a subnet.
type subnet struct {
	subresource
	Properties struct {
		object
		Prefix       string   `json:"addressPrefix"`
		Prefixes     []string `json:"addressPrefixes"`
		LinkPolicies string   `json:"privateLinkServiceNetworkPolicies"`
	} `json:"properties"`
}

// linkSettings holds the annotations about a Service's private link service.
type linkSettings struct {
	Create, Proxy        bool
	Group, Name, Subnet  string
	Count                int
	IPs, FQDNs           string
	Visibility, Approval string
	// given is set if any annotation but that of Create is.
	given bool
}

// judge refuses combinations that Azure has not.
func (l *linkSettings) judge(service *v1.Service, s *settings) (err error) {
	if !l.Create {
		return nil
	}
	refuse := func(place, format string, args ...any) {
		err = errors.Join(err, &schema.Problem{Place: "annotation " + place, Reason: fmt.Sprintf(format, args...)})
	}
	if !s.Internal && !s.NoFloating {
		refuse(annotationPrivateLink, "needs an internal load balancer, or one without floating IP; set %s, or %s", annotationInternal, annotationNoFloating)
	}
	if !slices.Contains(families(service), false) {
		refuse(annotationPrivateLink, "is for addresses of IPv4; give the Service one, or remove the annotation")
	}
	ips := strings.Fields(l.IPs)
	for _, ip := range ips {
		if a, bad := netip.ParseAddr(ip); bad != nil || !a.Is4() {
			refuse(annotationLinkIPs, "%q is not an address of IPv4", ip)
		}
	}
	l.judgeNames(refuse)
	if bad := azurelimits.Name.WithName("the name of private link service " + l.Name).CheckText(l.Name); bad != nil {
		refuse(annotationLinkName, "%v", bad)
	}
	if len(ips) > l.Count {
		refuse(annotationLinkCount, "%d addresses are given, and %d may be there; set it to %d at least", len(ips), l.Count, len(ips))
	}
	return err
}

// desiredLink is the private link service that a Service asks for.
type desiredLink struct {
	id, front, subnet string
	// found is the existing document, or nil; fresh is the one to create if there is none.
	found, fresh *privateLink
	edit         func(*privateLink) error
	// closedSubnet is the subnet where it does not let private link services in yet.
	closedSubnet *subnet
}

// isOfCluster reports whether a controller of this cluster made a private link service.
func (l *privateLink) isOfCluster(cluster, mark string) bool {
	name, named := tag(l.Tags, nameTag)
	return named && strings.EqualFold(name, cluster) && !ownership.Foreign(mark, l.marks())
}

// linkOn finds the private link service of a frontend.
func linkOn(links []*privateLink, front string) *privateLink {
	return find(links, func(l *privateLink) bool { return l.isOn(front) })
}

// isOn reports whether a private link service is on a frontend.
func (l *privateLink) isOn(front string) bool {
	return slices.ContainsFunc(l.Properties.Fronts, func(f *subresource) bool { return front != "" && sameID(f.ID, front) })
}

// linkGroup is the resource group of the private link service of a Service.
func (c *Config) linkGroup(service *v1.Service) string {
	return groupNamed(service, annotationLinkGroup, c.LinkGroup)
}

// observeLinks reads the private link services. A credential that may not see them has made none, and a missing resource group has none;
// Azure protects frontends that others' need. Both are errors if the Service requests one.
func (r *observer) observeLinks(ctx context.Context, service *v1.Service, o *observed, asked bool) error {
	o.links, o.linksRead = nil, true
	for _, g := range slices.Compact([]string{r.config.linkGroup(service), r.config.LinkGroup}) {
		list, err := r.resources.linksOf(g).All(ctx, inventory.Query{MaxAge: observeMaxAge})
		if g != r.config.LinkGroup && isSkippedGroup(err) {
			r.resources.forgetGroup(g)
		}
		isMissing := g != r.config.LinkGroup && strings.EqualFold(codeOf(err), codeNoGroup)
		if !asked && (isMissing || errors.Is(err, cloudapi.ErrUnauthorized)) {
			continue
		}
		if err != nil {
			return err
		}
		o.links = append(o.links, parseAll[privateLink](list)...)
	}
	slices.SortFunc(o.links, func(a, b *privateLink) int { return strings.Compare(a.lowerID(), b.lowerID()) })
	o.heldFronts = map[string]string{}
	for _, l := range o.links {
		if l.isOfCluster(o.cluster, o.mark) {
			continue
		}
		for _, f := range l.Properties.Fronts {
			o.heldFronts[f.lowerID()] = l.Name
		}
	}
	return nil
}

// mayBeLinked reports whether a frontend may have a private link service: an internal one, or one whose rules have no floating IP.
func mayBeLinked(lb *loadBalancer, f *frontend) bool {
	return f.Properties.Subnet.ID != "" || slices.ContainsFunc(lb.Properties.Rules, func(rule *lbRule) bool {
		return sameID(rule.Properties.Front.ID, f.ID) && !rule.Properties.Floating
	})
}

// droppedFronts returns the IDs of frontends that a Service gives up; d is nil for a deleted Service.
func (o *observed) droppedFronts(c *Config, base string, d *desired) (ids []string) {
	for lb, f := range frontsOf(o.lbs...) {
		kept := d != nil && lb.hasName(d.LB) && slices.ContainsFunc(d.Fronts, func(w desiredFront) bool {
			return strings.EqualFold(w.name, f.Name) && (w.isOthers || sameFront(f, w, c))
		})
		goes := ownedBy(base, f.Name) || slices.Contains(o.inheritedFronts, f.lowerID())
		if goes && !kept && mayBeLinked(lb, f) && otherUserOf(lb, f, base) == "" {
			ids = append(ids, f.ID)
		}
	}
	return ids
}

// removeLinks removes the private link services of frontends that go, which Azure keeps as long as they have one.
func (r *reconciler) removeLinks(q services.Request, o *observed, d *desired) (list []change) {
	seen := map[string]bool{}
	for _, id := range o.droppedFronts(r.config, baseName(q.Service), d) {
		l := linkOn(o.links, id)
		if l == nil || seen[l.lowerID()] || !l.isOfCluster(q.Cluster, o.mark) {
			continue
		}
		seen[l.lowerID()] = true
		for _, c := range l.Properties.Connections {
			if q.Purpose == services.Plan { // they go with it
				list = append(list, change{
					Planned: contract.Planned{Action: contract.PlanDelete, Object: "private endpoint connection " + c.Name},
					Compare: func() (before, after any) { return format(c), nil },
				})
			}
		}
		list = append(list, change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: "private link service " + l.Name}, Replan: true,
			Compare: func() (before, after any) { return format(l), nil },
			Expect:  func(o *observed) *observed { return o.withoutLink(baseName(q.Service), l) },
			Make: r.thenObserve(func(ctx context.Context, _ *services.Request, _ *observed) error {
				return r.resources.removeLink(ctx, l)
			}),
		})
	}
	return list
}

// removeLink deletes a private link service, after the private endpoints that are connected to it.
func (r *resources) removeLink(ctx context.Context, l *privateLink) error {
	defer r.forgetFronts(l)
	target := document{id: l.ID, what: "private link service " + l.Name, beforeRemoval: func(ctx context.Context, d doc) error {
		var problems []error
		for _, c := range parse[privateLink](d).Properties.Connections {
			problems = append(problems, r.api.remove(ctx, "private endpoint connection "+c.Name, c.ID, networkVersion, ""))
		}
		return errors.Join(problems...)
	}}
	return r.submit(ctx, target, deleteDocument)
}

// forgetFronts invalidates the load balancers of a private link service, whose changes give them new ETags.
func (r *resources) forgetFronts(l *privateLink) {
	for _, f := range l.Properties.Fronts {
		r.invalidate(ownerOf(f.ID))
	}
}

// desireLink decides which private link service a Service has, and which are deleted with its frontends.
func (r *reconciler) desireLink(ctx context.Context, q services.Request, o *observed, d *desired) error {
	asks := o.settings.Link.Create
	if !asks && len(o.droppedFronts(r.config, d.Base, d)) == 0 {
		return nil
	}
	if !o.linksRead {
		if err := r.observeLinks(ctx, q.Service, o, asks); err != nil {
			return err
		}
	}
	for _, id := range o.droppedFronts(r.config, d.Base, d) {
		same := func(f desiredFront) bool { return strings.EqualFold(f.name, nameOf(id)) }
		if name, held := o.heldFronts[strings.ToLower(id)]; held && slices.ContainsFunc(d.Fronts, same) {
			return fmt.Errorf("frontend %s is to change, and private link service %s, which was not made for a Service of this cluster, uses it: remove that first",
				nameOf(id), name)
		}
	}
	at := slices.IndexFunc(d.Fronts, func(f desiredFront) bool { return !f.ipv6 })
	if !asks || at < 0 {
		return nil
	}
	l := &desiredLink{front: r.config.loadBalancerID(d.LB) + "/frontendIPConfigurations/" + d.Fronts[at].name}
	if l.found = linkOn(o.links, l.front); l.found != nil {
		mine, err := ownLink(q, o, l.found)
		if err != nil || !mine {
			return err
		}
	}
	r.computeLink(q, o, l, d.Fronts[at].name)
	if l.found != nil && errors.Is(l.edit(clone(l.found)), errKeep) {
		return nil
	}
	d.Link = l
	return r.checkLinkSubnet(ctx, q, l)
}

// ownLink reports whether the private link service of a frontend is the Service's to change.
func ownLink(q services.Request, o *observed, found *privateLink) (bool, error) {
	name, service, s := found.Name, serviceName(q.Service), &o.settings
	if !found.isOfCluster(q.Cluster, o.mark) {
		return false, fmt.Errorf("the frontend of Service %s has private link service %s, which this program did not make: remove that, or "+
			"the annotation %s", service, name, annotationPrivateLink)
	}
	owner, _ := tag(found.Tags, ownerTag)
	switch {
	case !strings.EqualFold(owner, service) && s.Link.given:
		return false, fmt.Errorf("the frontend of Service %s has private link service %s, which belongs to Service %s: "+
			"set the annotations there", service, name, owner)
	case !strings.EqualFold(owner, service):
		return false, nil
	case s.Link.Name != "" && !strings.EqualFold(s.Link.Name, name):
		return false, fmt.Errorf("the private link service of Service %s is called %s, and a name cannot be changed: set "+
			"annotation %s to it", service, name, annotationLinkName)
	}
	return true, nil
}

// computeLink computes a private link service.
func (r *reconciler) computeLink(q services.Request, o *observed, l *desiredLink, frontName string) {
	c, s := r.config, &o.settings
	name := cmp.Or(s.Link.Name, "pls-"+frontName)
	l.id = r.resources.linkPath(c.linkGroup(q.Service)) + "/" + name
	if l.found != nil {
		name, l.id = l.found.Name, l.found.ID
	}
	subnet := cmp.Or(s.Link.Subnet, s.Subnet, c.Subnet)
	l.subnet = r.config.networkID() + "/subnets/" + subnet
	tags := map[string]string{}
	maps.Copy(tags, c.tags)
	tags[ownerTag], tags[nameTag] = serviceName(q.Service), q.Cluster
	l.fresh = &privateLink{resource: c.newResource(o.mark)}
	configs := linkConfigs(name, subnet, l.subnet, &s.Link)
	made := l.found == nil
	l.edit = func(p *privateLink) error {
		if made && len(p.Properties.Fronts) > 0 && !p.isOn(l.front) {
			return fmt.Errorf("private link service %s exists already, for other frontends: choose another name by annotation %s", name, annotationLinkName)
		}
		return keepUnless(applyLink(p, l.front, configs, &s.Link, tags, c.SystemTags))
	}
}

// linkConfigs are the IP configurations of a private link service, under the names that Azure's own controller gives.
func linkConfigs(link, subnet, subnetID string, s *linkSettings) (list []*linkConfig) {
	begin := subnet + "-" + link
	ips := strings.Fields(s.IPs)
	for i := range max(s.Count, 1) {
		p := linkConfigProperties{Primary: i == 0, Allocation: "Dynamic", Version: "IPv4", Subnet: subresource{ID: subnetID}}
		end := fmt.Sprintf("-dynamic-%d", i-len(ips))
		if i < len(ips) {
			end = "-static-" + ips[i]
			p.Allocation, p.Address = "Static", ips[i]
		}
		list = append(list, &linkConfig{subresource{Name: begin[:min(len(begin), azurelimits.Name.Max-len(end))] + end}, p})
	}
	return list
}

// configsOf returns IP configurations for comparison, without their names and the addresses that Azure chose.
func configsOf(list []*linkConfig) (forms []string) {
	for _, c := range list {
		form := c.Properties.Subnet.lowerID() + fmt.Sprintf(" %t ", c.Properties.Primary)
		if strings.EqualFold(c.Properties.Allocation, "Static") {
			form += c.Properties.Address
		}
		forms = append(forms, form)
	}
	slices.Sort(forms)
	return forms
}

// applyLink makes a private link service's document what a Service asks for, and reports whether it is to be written.
func applyLink(
	p *privateLink, front string, configs []*linkConfig, s *linkSettings, tags map[string]string, system string,
) (changed bool, err error) {
	in := &p.Properties
	changed = hasFailed(in.State)
	if !p.isOn(front) {
		in.Fronts, changed = []*subresource{{ID: front}}, true
	}
	if !slices.Equal(configsOf(in.Configs), configsOf(configs)) {
		in.Configs, changed = configs, true
	}
	set := func(at *[]string, text string) {
		want := strings.Fields(text)
		slices.Sort(want)
		want = slices.Compact(want)
		if !slices.EqualFunc(slices.Sorted(slices.Values(*at)), want, strings.EqualFold) {
			*at, changed = want, true
		}
	}
	set(&in.FQDNs, s.FQDNs)
	set(&in.Visibility.IDs, s.Visibility)
	set(&in.Approval.IDs, s.Approval)
	if ptr.Deref(in.Proxy, false) != s.Proxy {
		in.Proxy, changed = &s.Proxy, true
	}
	tagged, err := p.mergeTags(tags, system, clusterTag)
	return tagged || changed, err
}

// checkLinkSubnet looks whether the subnet lets private link services in.
func (r *observer) checkLinkSubnet(ctx context.Context, q services.Request, l *desiredLink) error {
	in, err := readAs[subnet](ctx, r.resources, l.subnet, false)
	if err != nil {
		return err
	}
	if in == nil {
		return fmt.Errorf("the private link service of Service %s: there is no subnet %s in network %s: correct annotation %s", serviceName(q.Service),
			nameOf(l.subnet), r.config.Network, annotationLinkSubnet)
	}
	if !in.allowsLinks() {
		l.closedSubnet = in
	}
	return nil
}

// allowLinks lets private link services into a subnet.
func (s *subnet) allowLinks() error {
	if s.allowsLinks() {
		return errKeep
	}
	s.Properties.LinkPolicies = "Disabled"
	return nil
}

// allowsLinks reports whether a subnet lets private link services in.
func (s *subnet) allowsLinks() bool { return strings.EqualFold(s.Properties.LinkPolicies, "Disabled") }

// linkChanges make the private link service of a Service what it should be.
func (r *reconciler) linkChanges(d *desired) (list []change) {
	l := d.Link
	if l == nil {
		return nil
	}
	if l.closedSubnet != nil {
		list = append(list, change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: "subnet " + nameOf(l.subnet), Detail: "network policies of private link services: off"},
			Compare: func() (before, after any) {
				draft := clone(l.closedSubnet)
				_ = draft.allowLinks()
				return format(l.closedSubnet), format(draft)
			},
			Make: func(ctx context.Context, _ *services.Request, o *observed) (*observed, error) {
				target := document{id: l.subnet, what: "subnet " + nameOf(l.subnet)}
				return o, r.resources.submit(ctx, target, editOf((*subnet).allowLinks))
			},
		})
	}
	action, draft := contract.PlanChange, clone(cmp.Or(l.found, l.fresh))
	if l.found == nil {
		action = contract.PlanCreate
	}
	c := r.documentChange(change{
		Planned: contract.Planned{Action: action},
		Compare: func() (before, after any) {
			_ = l.edit(draft) // computeLink's caller has tried it
			return format(l.found), format(draft)
		},
	}, document{id: l.id, what: "private link service " + nameOf(l.id), create: func() doc { return format(l.fresh) }}, editOf(l.edit))
	write := c.Make
	c.Make = func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
		defer r.resources.invalidate(ownerOf(l.front)) // it has another ETag then
		return write(ctx, q, o)
	}
	return append(list, c)
}
