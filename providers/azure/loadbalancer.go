package azure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// observeMaxAge is how old what is observed may be: writes go by ETags, and our own are seen at once.
const observeMaxAge = 30 * time.Second

// queryMembers is for network interfaces, which keep their machines.
var queryMembers = inventory.Query{MaxAge: time.Hour, MaxMissAge: time.Minute}

// Tags of load balancers and public addresses.
const (
	clusterTag       = "anyccm-cluster"
	serviceTag       = "k8s-azure-service"
	legacyServiceTag = "service"
	nameTag          = "k8s-azure-cluster-name"
	legacyNameTag    = "kubernetes-cluster-name"
	labelTag         = "k8s-azure-dns-label-service"
	legacyLabelTag   = "kubernetes-dns-label-service"
)

// observed holds a Service's settings, and Azure's objects for it.
type observed struct {
	// settings have faults that Validate reports. Such faults prevent neither changes of nodes, narrowing nor deletion.
	settings    settings
	settingsErr error
	// lbs are the load balancers of this cluster's names.
	lbs       []*loadBalancer
	addresses []*publicIP
	group     *securityGroup
	mark      string
	// machines are the members of pools by network interface, by the IDs of their IP configurations.
	machines map[string]machineID
	// links are the private link services, where they were read.
	links     []*privateLink
	linksRead bool
	// basic are basic load balancers of this cluster's names, which are to be deleted.
	basic   []*loadBalancer
	cluster string
	// nodes are those that receive traffic, with the addresses that their machines confirm; read only if addresses matter.
	nodes []*v1.Node
	// namedNodes are addresses in rules of the security group that are a node's, as its machine confirms. formerNodes are those of former
	// nodes, each with the names of the rules that still contain it.
	namedNodes  []string
	formerNodes map[string][]string
	// sets are the names of the machines' scale sets or availability sets, if there are several load balancers. ownPool begins the names of
	// the pools of this Service alone.
	sets    map[machineID]string
	ownPool string
	otherParts
	// formerIPs are the addresses that the Service's frontends had before this reconciliation changed them.
	formerIPs []string
	// deletedLBs are load balancers, by their IDs in lower case, that plan expects to be deleted.
	deletedLBs []string
	// foreign are public addresses that carry the mark of another cluster. Nothing is done with them.
	foreign []*publicIP
	// services are the Services of the cluster.
	services []*v1.Service
}

// change is a step from the observed state to the desired one.
type change = services.Change[*observed]

// reconciler implements services.Reconciler.
type reconciler struct {
	observer
	endpoints *endpoints
}

var _ services.Reconciler[*observed, *desired] = (*reconciler)(nil)

// Validate judges the Service by itself.
func (r *reconciler) Validate(q services.Request) ([]services.Finding, error) {
	s, warnings, err := parseSettings(q.Service)
	err = errors.Join(err, r.config.checkStandardLBs(q.Cluster))
	warnings = errors.Join(warnings, s.warnUnconfigured(r.config), s.warnUnprobed(q.Service, r.config.ProbeMode))
	findings := services.Judged(warnings, err)
	if err != nil {
		return findings, err
	}
	return append(findings, s.clientFindings(q.Service)...), nil
}

// addressGroup is the resource group of a Service's public addresses.
func (c *Config) addressGroup(service *v1.Service) string {
	return groupNamed(service, annotationGroup, c.Group)
}

// groupNamed is the resource group that an annotation names, else the usual one.
func groupNamed(service *v1.Service, annotation, usual string) string {
	if g := service.Annotations[annotation]; g != "" && resourceName.Holds(g) {
		return strings.ToLower(g)
	}
	return usual
}

// groupDocument is the network security group.
func (c *Config) groupDocument() document {
	id := c.networkPath(c.SecurityGroupGroup, "networkSecurityGroups/"+c.SecurityGroup)
	return document{id: id, what: "network security group " + c.SecurityGroup}
}

// CheckOwner refuses load balancers that carry the mark of another cluster. If nothing is to be made, it leaves them out.
func (r *reconciler) CheckOwner(ctx context.Context, q services.Request, o *observed) (*observed, []services.Finding, error) {
	mark, err := r.cluster.Mark(ctx)
	if err != nil {
		return nil, nil, err
	}
	kept := *o
	kept.lbs, kept.mark = nil, mark
	for _, lb := range o.lbs {
		refusal := ownership.Check("load balancer "+lb.Name, mark, lb.marks())
		if refusal == nil {
			kept.lbs = append(kept.lbs, lb)
			continue
		}
		if q.Purpose == services.Ensure || q.Purpose == services.Plan {
			return nil, []services.Finding{services.Warning(ownership.EventNotOurs, "%v", refusal)}, refusal
		}
	}
	if len(kept.lbs) < len(o.lbs) { // another cluster of the same name: nothing by that name is ours
		kept.addresses, kept.group = nil, nil
	}
	if q.Purpose == services.Delete {
		if kept.inheritedFronts, err = r.inheritedFronts(ctx, q, kept.lbs, nil); err != nil {
			return nil, nil, err
		}
		if len(kept.droppedFronts(r.config, baseName(q.Service), nil)) > 0 {
			err = r.observeLinks(ctx, q.Service, &kept, false)
		}
	}
	kept.splitBasic(q)
	return &kept, nil, err
}

// balancerNamed finds a load balancer; one that does not exist is empty.
func (o *observed) balancerNamed(name string) *loadBalancer {
	return cmp.Or(findByName(o.lbs, name), &loadBalancer{})
}

// Desire computes what should be there.
func (r *reconciler) Desire(ctx context.Context, q services.Request, o *observed) (*desired, []services.Finding, error) {
	d, err := r.computeDesired(ctx, q, o)
	if err == nil && q.Purpose == services.Plan {
		err = r.planMemberWrites(ctx, q, o, d)
	}
	if err != nil {
		return nil, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	findings := r.findUnproven(q, o, d)
	members, found, err := r.poolMembers(q, o, d.LB, d.Internal, d.Fronts)
	if err != nil {
		return nil, nil, err
	}
	d.Members = members
	return d, append(findings, found...), nil
}

func (r *reconciler) computeDesired(ctx context.Context, q services.Request, o *observed) (d *desired, err error) {
	if err = checkBasic(o.basic); err != nil {
		return nil, err
	}
	c, s := r.config, &o.settings
	d = newDesired(q.Service, s)
	if d.LB, err = r.chooseLoadBalancer(ctx, q, o); err != nil {
		return nil, err
	}
	lb := o.balancerNamed(d.LB)
	dual := isDual(q.Service)
	for _, ipv6 := range families(q.Service) {
		subnet := s.frontendSubnet()
		suffix := suffixFor(ipv6, dual, func(suffix string) (isSix, found bool) {
			have := lb.front(frontName(d.Base, subnet, suffix))
			if have == nil {
				return false, false
			}
			return o.isIPv6(have, ipv6 == (suffix == suffixOf(ipv6, dual))), true
		})
		f := desiredFront{ipv6: ipv6, pool: o.poolOf(c, q.Service, ipv6), name: frontName(d.Base, subnet, suffix)}
		if s.Internal {
			err = r.internalFront(ctx, q.Service, s, lb, &f)
		} else {
			err = r.externalFront(ctx, q, o, lb, &f)
		}
		if err != nil {
			return nil, err
		}
		d.Fronts = append(d.Fronts, f)
		if err = d.addRules(c, q.Service, s, f, suffix, c.loadBalancerID(d.LB)); err != nil {
			return nil, err
		}
	}
	if err = cmp.Or(
		d.checkNames(lb), d.checkNumbers(lb), checkConflicts(lb, d.Base, *d), c.checkPoolKind(lb, d.Internal, d.Fronts),
		c.checkSharedFronts(lb, d), r.checkAdditional(q, o, d),
	); err != nil {
		return nil, err
	}
	if o.inheritedFronts, err = r.inheritedFronts(ctx, q, o.lbs, d); err != nil {
		return nil, err
	}
	return d, r.desireLink(ctx, q, o, d)
}

// isIPv6 reports whether a frontend is of IPv6; guess is said of one whose public address was not read.
func (o *observed) isIPv6(f *frontend, guess bool) bool {
	public := f.Properties.PublicIP.ID
	if public == "" {
		return strings.EqualFold(f.Properties.Version, familyName(true))
	}
	if a := o.addressWithID(public); a != nil {
		return a.isIPv6()
	}
	return guess
}

// addressWithID finds a public address, nil for none.
func (o *observed) addressWithID(id string) *publicIP {
	return find(o.addresses, func(a *publicIP) bool { return sameID(a.ID, id) })
}

// securityProtocol is a protocol as security groups name it; they do not know SCTP.
func securityProtocol(p v1.Protocol) string {
	return map[v1.Protocol]string{v1.ProtocolTCP: "Tcp", v1.ProtocolUDP: "Udp", v1.ProtocolSCTP: "*"}[p]
}

// newDesired returns the part of the desired state that follows from a Service alone: who may connect to which ports.
func newDesired(service *v1.Service, s *settings) *desired {
	d := &desired{
		Base: baseName(service), Internal: s.Internal, NoSecurity: s.NoSecurity, DenyAll: s.DenyAll, NodePorts: s.NoFloating,
		ServiceTags: s.ServiceTags, Additional: additionalAddresses(service),
	}
	d.Ranges, d.BadRanges = s.ranges(service)
	for _, p := range service.Spec.Ports {
		port := p.Port
		if s.NoFloating {
			port = p.NodePort
		}
		d.AccessPorts = append(d.AccessPorts, accessPort{securityProtocol(p.Protocol), port})
	}
	return d
}

// requestedIP is the address that a Service names for a family.
func requestedIP(service *v1.Service, s *settings, ipv6 bool) string {
	ip := s.IPv4
	if ipv6 {
		ip = s.IPv6
	}
	if ip != "" {
		return canonicalIP(ip)
	}
	if a, err := netip.ParseAddr(service.Spec.LoadBalancerIP); err == nil && a.Is6() == ipv6 {
		return a.String()
	}
	return ""
}

func (r *reconciler) internalFront(ctx context.Context, service *v1.Service, s *settings, lb *loadBalancer, f *desiredFront) error {
	c := r.config
	name := cmp.Or(s.Subnet, c.Subnet)
	f.subnet, f.ip = r.config.networkID()+"/subnets/"+name, requestedIP(service, s, f.ipv6)
	have := lb.front(f.name)
	if have != nil && (s.Subnet == "" || sameID(have.Properties.Subnet.ID, f.subnet)) {
		if s.Subnet == "" {
			f.subnet = have.Properties.Subnet.ID
		}
		return nil
	}
	if f.ip != "" {
		for _, other := range lb.Properties.Fronts {
			if sameIP(other.Properties.Address, f.ip) && !ownedBy(baseName(service), other.Name) {
				f.name, f.isOthers = other.Name, true
				return nil
			}
		}
	}
	in, err := getAs[subnet](ctx, r.resources.api, "subnet "+name, f.subnet, networkVersion)
	if err != nil {
		if errors.Is(err, cloudapi.ErrNotFound) {
			return fmt.Errorf("load balancer %s: virtual network %s has no subnet %s; name one of its subnets by annotation %s or subnetName of the cloud config",
				lb.Name, c.Network, name, annotationSubnet)
		}
		return err
	}
	if f.ip == "" {
		f.ip = keptIP(service, in, f.ipv6)
	}
	f.zones, err = r.resources.zones(ctx)
	return err
}

// keptIP is the address that a Service has already, where a subnet has it.
func keptIP(service *v1.Service, in *subnet, ipv6 bool) string {
	networks := valuesOf(in.Properties.Prefix, in.Properties.Prefixes)
	for _, i := range service.Status.LoadBalancer.Ingress {
		ip, err := netip.ParseAddr(i.IP)
		if err == nil && ip.Is6() == ipv6 && slices.ContainsFunc(networks, func(n string) bool {
			p, err := netip.ParsePrefix(n)
			return err == nil && p.Contains(ip)
		}) {
			return i.IP
		}
	}
	return ""
}

// Changes returns the differences between observed and desired state.
func (r *reconciler) Changes(q services.Request, o *observed, d *desired) ([]change, error) {
	list := r.removeBasic(q, o, d)
	for i := range d.Fronts {
		list = append(list, r.addressChange(q, d.Fronts[i].address)...)
	}
	if len(list) > 0 {
		return list, nil // the frontends need the addresses
	}
	list = append(r.removeLinks(q, o, d), r.removals(q, o, d, true)...)
	if due, err := r.loadBalancerChange(o, d); err != nil || len(due) > 0 {
		return append(list, due...), err
	}
	if q.Purpose != services.Plan { // which shows the writes that it comes to
		list = append(list, r.memberChange(q, o, d.LB, d.Fronts)...)
	}
	list = append(list, d.memberWrites(d.LB)...)
	rules, refused := r.securityChange(q, o, d)
	if refused != nil {
		if q.Purpose == services.Plan || len(list) == 0 {
			return nil, refused
		}
		// It fails when it is its turn, and ends the rest: no node waits for room in the security group.
		fail := func(context.Context, *services.Request, *observed) (*observed, error) { return o, refused }
		rules = []change{{Wait: true, Make: fail}}
	}
	list = append(list, rules...)
	list = append(list, r.removals(q, o, d, false)...) // the other side serves until this one does
	list = append(list, r.releases(q, o, d)...)
	return append(list, r.linkChanges(d)...), nil
}

// removals take a Service out of the other load balancers of its kind, because an address can only be on one, or out of those of the other
// kind.
func (r *reconciler) removals(q services.Request, o *observed, d *desired, sameKind bool) (list []change) {
	for _, lb := range o.lbs {
		name := lb.Name
		if (isInternal(name) == d.Internal) == sameKind && !strings.EqualFold(name, d.LB) && hasPart(lb, d.Base) {
			c := r.removal(q, lb, o.otherParts)
			c.Replan = sameKind
			list = append(append(list, d.memberWrites(name)...), c)
		}
	}
	return list
}

// loadBalancerChange writes the Service's part of its load balancer.
func (r *reconciler) loadBalancerChange(o *observed, d *desired) ([]change, error) {
	lb := o.balancerNamed(d.LB)
	action, draft := contract.PlanChange, clone(lb)
	target := r.loadBalancerDocument(r.config.loadBalancerID(d.LB), d.LB)
	target.create = func() doc { return format(r.config.newLoadBalancer(o.mark)) }
	if !lb.exists() {
		action, draft = contract.PlanCreate, r.config.newLoadBalancer(o.mark)
	}
	e := r.config.partEdit(d, o.otherParts)
	if err := e(draft); errors.Is(err, errKeep) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	return []change{r.documentChange(change{
		Planned: contract.Planned{Action: action, Detail: "frontends, rules and probes of the Service"}, Replan: true,
		Compare: func() (before, after any) {
			if !lb.exists() {
				return nil, format(draft)
			}
			return withoutAdded(format(lb)), withoutAdded(format(draft))
		},
		Expect: func(o *observed) *observed { return o.afterBalancer(d.Base, lb, draft.afterWrite(target.id)) },
	}, target, editOf(e))}, nil
}

// partEdit is the edit of a load balancer for one Service, with the members of pools by address.
func (c *Config) partEdit(d *desired, a otherParts) func(*loadBalancer) error {
	return func(lb *loadBalancer) error {
		changed, err := applyService(lb, d.Base, d, c, a)
		changed = applyAddresses(lb, d.Members, c.networkID()) || changed
		return keepUnless(changed || hasFailed(lb.Properties.State), err)
	}
}

// fillsPools reports whether this program fills the pools of a kind of load balancers.
func (c *Config) fillsPools(internal bool) bool {
	switch c.Preconfigured {
	case "all":
		return false
	case "internal":
		return !internal
	case "external":
		return internal
	}
	return true
}

func (c *Config) newLoadBalancer(mark string) *loadBalancer {
	lb := &loadBalancer{resource: c.newResource(mark)}
	lb.SKU.Name = "Standard"
	return lb
}

// loadBalancerDocument is an existing load balancer.
func (r *reconciler) loadBalancerDocument(id, name string) document {
	return document{id: id, what: "load balancer " + name, beforeRemoval: r.members.decouple}
}

// thenObserve is a write after which the Service is observed again.
func (r *reconciler) thenObserve(
	write func(ctx context.Context, q *services.Request, o *observed) error,
) func(context.Context, *services.Request, *observed) (*observed, error) {
	return func(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
		if err := write(ctx, q, o); err != nil {
			return o, err
		}
		return r.reobserve(ctx, q, o)
	}
}

// reobserve observes again after a write and keeps earlier decisions.
func (r *reconciler) reobserve(ctx context.Context, q *services.Request, o *observed) (*observed, error) {
	now, err := r.Observe(ctx, *q)
	if err != nil {
		return o, err
	}
	now.mark, now.inheritedFronts = o.mark, o.inheritedFronts
	now.formerIPs = slices.Concat(o.formerIPs, o.servedAddresses(baseName(q.Service)))
	now.splitBasic(*q)
	if o.linksRead {
		err = r.observeLinks(ctx, q.Service, now, false)
	}
	return now, err
}

// hasPart reports whether a load balancer has a part of a Service.
func hasPart(lb *loadBalancer, base string) bool {
	return slices.ContainsFunc(lb.Properties.Fronts, func(f *frontend) bool { return ownedBy(base, f.Name) }) ||
		slices.ContainsFunc(lb.Properties.Rules, func(r *lbRule) bool { return ownedBy(base, r.Name) }) ||
		slices.ContainsFunc(lb.Properties.Probes, func(p *probe) bool { return ownedBy(base, p.Name) })
}

// memberChange adds nodes to pools by network interface, and removes former ones.
func (r *reconciler) memberChange(q services.Request, o *observed, name string, fronts []desiredFront) []change {
	lb, nodes := o.balancerNamed(name), r.config.eligibleNodes(q.Nodes)
	if p := r.members.planFor(o, name, fronts, q.Nodes); len(p.join)+len(p.leave) == 0 {
		return nil
	}
	return []change{{
		Planned: contract.Planned{Action: contract.PlanChange, Object: "load balancer " + name, Detail: "members of its pools"},
		Make: r.thenObserve(func(ctx context.Context, q *services.Request, o *observed) error {
			return r.members.changeMembers(ctx, lb.ID, fronts, nodes)
		}),
	}}
}

// Complete implements services.Reconciler.
func (*reconciler) Complete(_ context.Context, _ *services.Request, o *observed, _ *desired) (*observed, error) {
	return o, nil
}

// Status is that of the Service.
func (r *reconciler) Status(q services.Request, o *observed, d *desired) (*v1.LoadBalancerStatus, error) {
	var ips []string
	for _, f := range d.Fronts {
		ip := o.ipOf(o.balancerNamed(d.LB).front(f.name))
		if ip == "" {
			return nil, cloudproviderapi.NewRetryError("the address of load balancer "+d.LB+" is being made", 5*time.Second)
		}
		ips = append(ips, ip)
	}
	return statusOf(q.Service, ips), nil
}

// statusOf returns a status with addresses of frontends and the additional ones, in the order in which the Service shows them: Azure's own
// controller has that of the load balancer, which is not always that of the Service's families.
func statusOf(service *v1.Service, ips []string) *v1.LoadBalancerStatus {
	status := &v1.LoadBalancerStatus{}
	for _, ip := range append(ips, additionalAddresses(service)...) {
		status.Ingress = append(status.Ingress, v1.LoadBalancerIngress{IP: ip})
	}
	at := func(i v1.LoadBalancerIngress) int {
		return slices.IndexFunc(service.Status.LoadBalancer.Ingress, func(s v1.LoadBalancerIngress) bool { return s.IP == i.IP })
	}
	if !slices.ContainsFunc(status.Ingress, func(i v1.LoadBalancerIngress) bool { return at(i) < 0 }) {
		slices.SortStableFunc(status.Ingress, func(a, b v1.LoadBalancerIngress) int { return at(a) - at(b) })
	}
	return status
}

// ipOf is the address of a frontend; nil is one that does not exist.
func (o *observed) ipOf(f *frontend) string {
	if f == nil {
		return ""
	}
	if ip := f.Properties.Address; ip != "" {
		return ip
	}
	if a := o.addressWithID(f.Properties.PublicIP.ID); a != nil {
		return a.Properties.Address
	}
	return ""
}

// Deletions returns the changes that delete a Service's objects.
func (r *reconciler) Deletions(_ context.Context, q services.Request, o *observed) ([]change, []services.Finding, error) {
	base := baseName(q.Service)
	list, err := r.securityChange(q, o, nil)
	if err != nil {
		return nil, nil, err
	}
	findings := r.findUnproven(q, o, nil)
	list = append(list, r.removeLinks(q, o, nil)...)
	for _, lb := range o.lbs {
		if !hasPart(lb, base) && !isEmpty(lb) {
			continue
		}
		for _, f := range lb.Properties.Fronts {
			if why := o.userOf(lb, f, base); ownedBy(base, f.Name) && why != "" {
				findings = append(findings, services.Warning(eventFrontendKept, "frontend %s of load balancer %s is used by %s and stays", f.Name, lb.Name, why))
			}
		}
		if err := r.config.withoutService(lb.Name, base, o.otherParts)(clone(lb)); err == nil || errors.Is(err, errRemove) {
			list = append(list, r.removal(q, lb, o.otherParts))
		}
	}
	return append(list, r.releases(q, o, nil)...), findings, nil
}

// Exists implements services.Reconciler.
func (r *reconciler) Exists(_ context.Context, q services.Request, o *observed) (*v1.LoadBalancerStatus, bool, error) {
	if !r.hasLoadBalancers(q, o) {
		due, err := r.securityChange(q, o, nil) // rules are left where all else was deleted by hand
		return nil, len(due) > 0, err
	}
	base := baseName(q.Service)
	var ips []string
	for _, f := range frontsOf(o.lbs...) {
		if ip := o.ipOf(f); ownedBy(base, f.Name) && ip != "" {
			ips = append(ips, ip)
		}
	}
	// Azure promises no order of frontends: the Service's own is that of the status.
	list := families(q.Service)
	slices.SortStableFunc(ips, func(a, b string) int {
		return slices.Index(list, strings.Contains(a, ":")) - slices.Index(list, strings.Contains(b, ":"))
	})
	return statusOf(q.Service, ips), true, nil
}
