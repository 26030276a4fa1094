package ibm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/ibm/ibmlimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file handles security groups. A Service with source ranges has a group of its own instead of all others; the rules of groups that an
// annotation names are never changed.

const (
	inbound, outbound = "inbound", "outbound"
	everybody         = "0.0.0.0/0"
	familyIPv4        = "ipv4"
)

// maxClusterInGroup leaves room for the whole UID in the name of a group.
func maxClusterInGroup() int { return ibmlimits.Name.Max - len(namePrefix) - 1 - uidDigits }

// securityGroup holds the fields of a security group that we use.
type securityGroup struct {
	ID      string          `json:"id"`
	Name    string          `json:"name"`
	Rules   []rule          `json:"rules"`
	Targets []boundResource `json:"targets"`
}

// boundResource is a resource that a security group is attached to.
type boundResource struct {
	reference

	Type string `json:"resource_type"`
}

const boundBalancer = "load_balancer"

// rule is a rule of a security group; without ports it covers all.
type rule struct {
	ID        string `json:"id,omitempty"`
	Direction string `json:"direction"`
	Family    string `json:"ip_version,omitempty"`
	PortMin   int    `json:"port_min,omitempty"`
	PortMax   int    `json:"port_max,omitempty"`
	Protocol  string `json:"protocol"`
	Remote    remote `json:"remote"`
}

// remote is the peer of a rule: a network, an address, or the members of a group.
type remote struct {
	CIDR    string `json:"cidr_block,omitempty"`
	Address string `json:"address,omitempty"`
	ID      string `json:"id,omitempty"`
}

// normalize makes rules with the same effect equal.
func (r rule) normalize() rule {
	r.ID, r.Family = "", familyIPv4
	if ip, err := netip.ParseAddr(r.Remote.Address); err == nil {
		r.Remote = remote{CIDR: netip.PrefixFrom(ip, ip.BitLen()).String()}
	}
	return r
}

// admits reports whether a rule lets any client reach a port.
func (r rule) admits(p port) bool {
	ports := (r.PortMin == 0 && r.PortMax == 0) || (r.PortMin <= p.port && p.max <= r.PortMax)
	return r.Direction == inbound && ports && slices.Contains([]string{p.protocol, "any", "all", "icmp_tcp_udp"}, r.Protocol)
}

// groupName is the name of a Service's own group. It holds the whole UID, which identifies the owner.
func groupName(cluster string, service *v1.Service) string {
	return namePrefix + cluster[:min(len(cluster), maxClusterInGroup())] + "-" + strings.ReplaceAll(string(service.UID), "-", "")
}

// access holds the desired security groups of a load balancer. The zero value changes nothing.
type access struct {
	// name and rules are desired for the Service's own group; own is the existing one, or nil.
	name  string
	rules []rule
	own   *securityGroup
	// wanted are all groups that the load balancer is to have, attached those that it has.
	wanted, attached []reference
	vpc              string
}

// sources returns the networks that may reach a Service, normalized and sorted.
func sources(service *v1.Service) (list []string, err error) {
	for _, text := range service.Spec.LoadBalancerSourceRanges {
		p, err := netip.ParsePrefix(strings.TrimSpace(text))
		if err != nil || !p.Addr().Is4() {
			return nil, fmt.Errorf("%q is no network of IPv4; use a form such as 192.0.2.0/24", text)
		}
		if one := p.Masked().String(); !slices.Contains(list, one) {
			list = append(list, one)
		}
	}
	slices.Sort(list)
	return list, nil
}

// rulesFor returns the rules of a Service's own group: networks reach its ports, and the load balancer reaches everything.
func rulesFor(ports []port, networks []string) (list []rule) {
	return append(clientRules(ports, networks), outboundRules()...)
}

func clientRules(ports []port, networks []string) (list []rule) {
	for _, p := range ports {
		for _, n := range networks {
			list = append(list, rule{
				Direction: inbound, Family: familyIPv4, PortMin: p.port, PortMax: p.max, Protocol: p.protocol, Remote: remote{CIDR: n},
			})
		}
	}
	return list
}

func outboundRules() (list []rule) {
	for _, protocol := range []string{protocolTCP, protocolUDP} {
		list = append(list, rule{Direction: outbound, Family: familyIPv4, Protocol: protocol, Remote: remote{CIDR: everybody}})
	}
	return list
}

// checkAccess checks source ranges and security groups, without calls.
func (s settings) checkAccess(service *v1.Service) (problems []error) {
	ranges := service.Spec.LoadBalancerSourceRanges
	refuseRanges := func(value, reason string) {
		problems = append(problems, &schema.Problem{Place: "spec.loadBalancerSourceRanges", Value: value, Reason: reason})
	}
	networks, err := sources(service)
	switch groups := s.groupNames(); {
	case err != nil:
		refuseRanges(strings.Join(ranges, ","), err.Error())
	case len(ranges) > 0 && s.Groups != "":
		refuseRanges(strings.Join(ranges, ","), "cannot be enforced beside "+annotationGroups+", whose groups decide; leave one of the two out")
	case len(rulesFor(s.ports(service, s.isNetwork()), networks)) > ibmlimits.Rules.Max:
		refuseRanges(strconv.Itoa(len(ranges)), fmt.Sprintf("a security group takes %d rules, and each network needs one for each port", ibmlimits.Rules.Max))
	case s.Groups != "" && (len(groups) == 0 || slices.Contains(groups, "")):
		problems = append(problems, refuseFor(annotationGroups, s.Groups, "is no list of names or IDs of security groups"))
	case len(groups) > ibmlimits.Groups.Max:
		problems = append(problems, refuseFor(annotationGroups, s.Groups, "a load balancer has %d security groups at most", ibmlimits.Groups.Max))
	}
	return problems
}

func (s settings) groupNames() []string { return words(s.Groups) }

// securityGroups lists the security groups of the VPC.
func (a *api) securityGroups(ctx context.Context) ([]securityGroup, int, error) {
	return list[securityGroup](ctx, a, "security_groups", "/security_groups", url.Values{"vpc.name": {a.config.VPC}})
}

// securityGroup reads a security group.
func (b *reader) securityGroup(ctx context.Context, id string) (g securityGroup, err error) {
	what := "reading security group " + id
	err = b.read(ctx, what, "/security_groups/"+url.PathEscape(id), &g)
	if err == nil && (g.ID != id || g.Rules == nil) {
		err = cloudapi.Unclear(what, "the answer is about another group, or has no rules")
	}
	return g, err
}

// securityGroups decides who may connect to load balancers.
type securityGroups struct {
	*reader
	records *records
	writer  *writer
	// verified are IDs of groups and load balancers that this process has written or read individually: listings may lag behind.
	verified sync.Map
	// waitingSince is when the deletion of a group began to wait, because it still shows a detached load balancer.
	waitingSince sync.Map
}

// findToDelete finds the group of a Service to be deleted. A credential that may not read groups has created none.
func (sg *securityGroups) findToDelete(ctx context.Context, service *v1.Service, s settings) (*securityGroup, error) {
	g, err := sg.findVerified(ctx, service, inventory.Query{MaxAge: unlistedMaxAge})
	if errors.Is(err, cloudapi.ErrUnauthorized) && !s.ranged && !s.isRecorded(recordRanges) {
		return nil, nil //nolint:nilnil // nil is a group that does not exist
	}
	return g, err
}

// findListed finds the Service's own group; nil is none.
func (sg *securityGroups) findListed(ctx context.Context, service *v1.Service, q inventory.Query) (*securityGroup, error) {
	found, err := sg.groups.Find(ctx, indexName, groupName(sg.api.config.Cluster, service), q)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// findVerified finds the Service's own group, or nil. Unless this process has just written it, it is read individually once, because a
// listing may lag behind earlier writes.
func (sg *securityGroups) findVerified(ctx context.Context, service *v1.Service, q inventory.Query) (*securityGroup, error) {
	g, err := sg.findListed(ctx, service, q)
	if err != nil || g == nil {
		return nil, err
	}
	if _, known := sg.verified.Load(g.ID); known {
		return g, nil
	}
	now, err := sg.securityGroup(ctx, g.ID)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		sg.forget(g.ID)
		return nil, nil //nolint:nilnil // nil is a group that does not exist
	case err != nil:
		return nil, err
	}
	sg.storeVerified(now)
	return &now, nil
}

// storeVerified stores a group as just written or read. It takes precedence over listings for a while.
func (sg *securityGroups) storeVerified(g securityGroup) {
	sg.groups.Put(g)
	sg.verified.Store(g.ID, nil)
}

// invalidate marks the state of a group as unknown.
func (sg *securityGroups) invalidate(id string) {
	sg.groups.Doubt(id)
	sg.verified.Delete(id)
}

// forget records that a group is gone.
func (sg *securityGroups) forget(id string) {
	sg.groups.Forget(id)
	sg.verified.Delete(id)
	sg.waitingSince.Delete(id)
}

// access computes the security groups of a Service's load balancer. For a Service that never restricted clients it reads nothing.
func (sg *securityGroups) access(
	ctx context.Context, req services.Request, o observed, ports []port,
) (a access, findings []services.Finding, err error) {
	s := o.settings
	holds := s.isRecorded(recordRanges) || o.lb.hasGroup(groupName(sg.api.config.Cluster, req.Service))
	taken := o.lb != nil && s.isRecorded(annotationGroups) // by an annotation that may be gone
	if !s.ranged && s.Groups == "" && !holds && !taken {
		return a, nil, nil
	}
	if err = o.lb.takesGroups(); err != nil {
		return a, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	query := inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge}
	var have *securityGroup
	if s.ranged || holds {
		have, err = sg.findOwn(ctx, req.Service, s, o.lb, query)
	}
	switch {
	case err != nil:
	case s.Groups != "":
		a, findings, err = sg.namedGroups(ctx, s, ports, query)
	case s.ranged:
		a, err = sg.ownAccess(ctx, req.Service, have, ports)
	case o.lb != nil: // nobody asks any more
		a, err = sg.defaultAccess(ctx)
	}
	a.own = have
	if err == nil {
		a.attached, err = sg.groupsOf(ctx, o.lb, a.wantedGroups())
	}
	return a, findings, err
}

// findOwn finds the Service's own group in listings or at its load balancer; nil if there is none.
func (sg *securityGroups) findOwn(
	ctx context.Context, service *v1.Service, s settings, lb *loadBalancer, q inventory.Query,
) (*securityGroup, error) {
	g, err := sg.findVerified(ctx, service, q)
	if err != nil || g != nil || lb == nil {
		return g, err
	}
	return sg.findUnlisted(ctx, service, s, lb)
}

// groupsOf returns the groups attached to a load balancer that is to have some. It is read individually once, because listings may lag
// behind.
func (sg *securityGroups) groupsOf(ctx context.Context, lb *loadBalancer, wanted []reference) ([]reference, error) {
	if lb == nil || len(wanted) == 0 {
		return nil, nil
	}
	if _, seen := sg.verified.Load(lb.ID); seen {
		if known, ok := sg.loadBalancers.Peek(lb.ID); ok { // may be newer than lb
			return known.Groups, nil
		}
	}
	now, err := sg.loadBalancer(ctx, lb.ID)
	if err != nil {
		return nil, err
	}
	sg.loadBalancers.Put(now)
	sg.verified.Store(lb.ID, nil)
	return now.Groups, nil
}

// findUnlisted finds the Service's own group by its load balancer, or nil: a listing may not show a group created before a restart yet.
func (sg *securityGroups) findUnlisted(ctx context.Context, service *v1.Service, s settings, lb *loadBalancer) (*securityGroup, error) {
	name := groupName(sg.api.config.Cluster, service)
	if !s.ranged && !s.isRecorded(recordRanges) {
		return nil, nil //nolint:nilnil // nil is a group that does not exist
	}
	groups, err := sg.groupsOf(ctx, lb, []reference{{Name: name}})
	at := slices.IndexFunc(groups, func(n reference) bool { return n.Name == name })
	if errors.Is(err, cloudapi.ErrNotFound) || (err == nil && at < 0) {
		return nil, nil //nolint:nilnil // nil is a group that does not exist
	}
	if err != nil {
		return nil, err
	}
	g, err := sg.securityGroup(ctx, groups[at].ID)
	if err != nil {
		return nil, cloudapi.NotAbsence(err) // the load balancer has it
	}
	sg.storeVerified(g)
	return &g, nil
}

// hasGroup reports whether a load balancer, if there is one, has a security group.
func (lb *loadBalancer) hasGroup(group string) bool {
	return lb != nil && slices.ContainsFunc(lb.Groups, func(n reference) bool { return n.Name == group })
}

// takesGroups returns an error if a load balancer does not support security groups.
func (lb *loadBalancer) takesGroups() error {
	if lb == nil || lb.GroupsSupported == nil || *lb.GroupsSupported {
		return nil
	}
	return fmt.Errorf("load balancer %s takes no security groups, so that neither source ranges nor %s can be enforced; make the Service again", lb.Name, annotationGroups)
}

// ownAccess returns the access for source ranges. A group that does not exist yet is not attached.
func (sg *securityGroups) ownAccess(ctx context.Context, service *v1.Service, have *securityGroup, ports []port) (a access, err error) {
	networks, err := sources(service)
	if err == nil {
		a = access{name: groupName(sg.api.config.Cluster, service), rules: rulesFor(ports, networks)}
		a.vpc, err = sg.instances.vpc(ctx)
	}
	if have != nil {
		a.wanted = []reference{{ID: have.ID, Name: a.name}}
	}
	return a, err
}

// defaultAccess returns the groups of a load balancer without any setting: the default group of the VPC.
func (sg *securityGroups) defaultAccess(ctx context.Context) (a access, err error) {
	vpc, err := sg.instances.vpc(ctx)
	if err != nil {
		return a, err
	}
	const what = "reading the default security group of the VPC"
	var g reference
	err = sg.api.call(ctx, request{what: what, method: http.MethodGet, path: "/vpcs/" + url.PathEscape(vpc) + "/default_security_group"}, &g)
	if err == nil && g.ID == "" {
		err = cloudapi.Unclear(what, "the answer has no ID")
	}
	return access{wanted: []reference{g}}, cloudapi.NotAbsence(err)
}

// serviceGroupForm matches names of groups that are created for Services.
var serviceGroupForm = regexp.MustCompile(`^` + namePrefix + `.*-[0-9a-f]{32}$`)

// namedGroups returns the groups of the annotation. A Service's own group is refused, because it is deleted with its Service.
func (sg *securityGroups) namedGroups(
	ctx context.Context, s settings, ports []port, q inventory.Query,
) (a access, findings []services.Finding, err error) {
	all, err := sg.groups.All(ctx, q)
	if err != nil {
		return a, nil, err
	}
	var rules []rule
	for _, one := range s.groupNames() {
		at := slices.IndexFunc(all, func(g securityGroup) bool { return g.ID == one || g.Name == one })
		switch {
		case at < 0:
			err = refuseFor(annotationGroups, s.Groups, "there is no security group %s in the VPC of the cluster", one)
		case serviceGroupForm.MatchString(all[at].Name):
			err = refuseFor(annotationGroups, s.Groups, "the security group %s is that of a Service with source ranges; name one of your own", one)
		}
		if err != nil {
			return a, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
		}
		n := reference{ID: all[at].ID, Name: all[at].Name}
		if !slices.Contains(a.wanted, n) {
			a.wanted = append(a.wanted, n)
			rules = append(rules, all[at].Rules...)
		}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.admits(p) }) {
			findings = append(findings, services.Warning(eventClosed, "no rule of the security groups %s lets anybody reach port %d of %s; add one",
				s.Groups, p.port, strings.ToUpper(p.protocol)))
		}
	}
	return a, findings, nil
}

// ownGroupChanges returns the changes of the Service's own group. They come first, because changes of the load balancer take minutes; rules
// are added before others are removed, as far as the group has room.
func (sg *securityGroups) ownGroupChanges(d desired) []change {
	a := d.access
	switch {
	case a.name == "":
		return nil
	case a.own == nil:
		return []change{sg.creation(a)}
	}
	var added, removed []change
	for _, want := range missingRules(a.rules, a.own.Rules) {
		c := sg.ruleCreation(*a.own, want)
		c.Opens = want.ports()
		added = append(added, c)
	}
	for _, extra := range missingRules(a.own.Rules, a.rules) {
		c := sg.ruleDeletion(*a.own, extra)
		c.Closes = extra.ports()
		removed = append(removed, c)
	}
	room := min(len(added), max(0, ibmlimits.Rules.Max-len(a.own.Rules)))
	return slices.Concat(added[:room], services.EachTried(removed), added[room:])
}

// wantedGroups returns the desired groups, including one to be created that has no ID yet.
func (a access) wantedGroups() []reference {
	if a.name != "" && a.own == nil {
		return []reference{{Name: a.name}}
	}
	return a.wanted
}

// bindings returns the changes that attach and detach groups. A load balancer must always have one, so a group is detached before another
// is attached only if there is no room.
func (sg *securityGroups) bindings(d desired) (all []change) {
	wanted := d.access.wantedGroups() // a group without an ID is for plan only: its creation plans again
	if len(wanted) == 0 {
		return nil
	}
	without := func(list, other []reference) []reference {
		return slices.DeleteFunc(slices.Clone(list), func(g reference) bool {
			return slices.ContainsFunc(other, func(n reference) bool { return n.ID == g.ID })
		})
	}
	missing, extra := without(wanted, d.access.attached), without(d.access.attached, wanted)
	for has := len(d.access.attached); len(missing)+len(extra) > 0; {
		if len(missing) > 0 && (has < ibmlimits.Groups.Max || len(extra) == 0) {
			all, missing, has = append(all, sg.groupBinding(http.MethodPut, missing[0])), missing[1:], has+1
			continue
		}
		all, extra, has = append(all, sg.groupBinding(http.MethodDelete, extra[0])), extra[1:], has-1
	}
	return all
}

// ownGroupDeletion returns the deletion of a group that the Service no longer asks for. It comes last.
func (sg *securityGroups) ownGroupDeletion(d desired) []change {
	if a := d.access; a.own != nil && a.name == "" {
		return []change{sg.deletion(*a.own)}
	}
	return nil
}

// missingRules returns the rules of list that other lacks.
func missingRules(list, other []rule) []rule {
	return slices.DeleteFunc(slices.Clone(list), func(r rule) bool {
		return slices.ContainsFunc(other, func(o rule) bool { return o.normalize() == r.normalize() })
	})
}

func (sg *securityGroups) creation(a access) change {
	object := "security group " + a.name
	what := "creating " + object
	asked := map[string]any{"name": a.name, "rules": a.rules, "vpc": reference{ID: a.vpc}}
	c := newChange(contract.PlanCreate, object, "", nil, asked,
		func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			// The record finds the group when the Service no longer asks for it.
			if err := sg.records.noteBefore(ctx, req, o); err != nil {
				return o, err
			}
			group, err := sg.resourceGroup(ctx)
			if err != nil {
				return o, err
			}
			asked["resource_group"] = reference{ID: group}
			var made securityGroup
			err = sg.api.call(ctx, request{what: what, method: http.MethodPost, path: "/security_groups", in: asked}, &made)
			if err == nil && (made.ID == "" || made.Rules == nil) {
				err = cloudapi.Unclear(what, "the answer has no ID")
			}
			if err != nil {
				err = cloudapi.ExplainLimit(err, ibmlimits.VPCGroups, len(sg.groups.PeekAll())+1)
				sg.groups.InvalidateAll() // it may have been made
				if errors.Is(err, errDuplicate) {
					req.Asked(errExists)
				}
				return o, cloudapi.NotAbsence(err)
			}
			sg.storeVerified(made)
			return o, nil
		})
	c.Replan = true
	return c
}

// update writes one rule of a group. apply returns the resulting rules, which are stored because listings may lag behind.
func (sg *securityGroups) update(
	g securityGroup, detail string, before, after any, write request, apply func([]rule, rule) []rule,
) change {
	object := "security group " + g.Name
	write.what = "changing " + object
	return newChange(contract.PlanChange, object, detail, before, after,
		func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			var made rule
			var answer any
			if write.method == http.MethodPost {
				answer = &made
			}
			err := sg.api.call(ctx, write, answer)
			if err == nil && answer != nil && made.ID == "" {
				err = cloudapi.Unclear(write.what, "the answer has no ID")
			}
			known, ok := sg.groups.Peek(g.ID)
			if err != nil || !ok {
				sg.invalidate(g.ID)
			} else {
				known.Rules = apply(slices.Clone(known.Rules), made)
				sg.groups.PutPartial(known)
			}
			if errors.Is(err, cloudapi.ErrNotFound) { // somebody else has changed the group, or it is gone
				return o, services.ErrGone
			}
			return o, err
		})
}

// ports describes the ports of a rule for messages.
func (r rule) ports() string {
	ports := "all ports"
	if r.PortMin != 0 {
		ports = strconv.Itoa(r.PortMin) + "-" + strconv.Itoa(r.PortMax)
	}
	return r.Direction + " " + r.Protocol + " " + ports
}

// text describes a rule for messages.
func (r rule) text() string {
	return r.ports() + " " + cmp.Or(r.Remote.CIDR, r.Remote.Address, r.Remote.ID)
}

func (sg *securityGroups) ruleCreation(g securityGroup, want rule) change {
	return sg.update(g, "rule "+want.text(), nil, want,
		request{method: http.MethodPost, path: "/security_groups/" + url.PathEscape(g.ID) + "/rules", in: want},
		func(rules []rule, made rule) []rule { return append(rules, made) })
}

func (sg *securityGroups) ruleDeletion(g securityGroup, extra rule) change {
	return sg.update(g, "rule "+extra.text(), extra, nil,
		request{method: http.MethodDelete, path: "/security_groups/" + url.PathEscape(g.ID) + "/rules/" + url.PathEscape(extra.ID)},
		func(rules []rule, _ rule) []rule {
			return slices.DeleteFunc(rules, func(o rule) bool { return o.ID == extra.ID })
		})
}

// groupBinding attaches a group to a load balancer, or detaches it. Like any write, it keeps the load balancer busy.
func (sg *securityGroups) groupBinding(method string, g reference) change {
	add := method == http.MethodPut
	detail := map[bool]string{true: "attached", false: "detached"}[add]
	before, after := map[string]any{"attached": !add}, map[string]any{"attached": add}
	return sg.writer.change(contract.PlanChange, "security group "+cmp.Or(g.Name, g.ID), detail, before, after,
		func(ctx context.Context, _ string, o observed) (observed, error) {
			path := "/security_groups/" + url.PathEscape(g.ID) + "/targets/" + url.PathEscape(o.lb.ID)
			err := sg.api.call(ctx, request{what: "security group " + cmp.Or(g.Name, g.ID) + " of load balancer " + o.lb.Name, method: method, path: path}, nil)
			if err != nil {
				sg.verified.Delete(o.lb.ID)
				return o, err
			}
			lb := *o.lb
			lb.Groups = slices.DeleteFunc(slices.Clone(lb.Groups), func(n reference) bool { return n.ID == g.ID })
			if add {
				lb.Groups = append(lb.Groups, g)
			}
			o.lb = &lb
			return o, nil
		})
}

// deletion deletes a Service's own group once its load balancer is gone.
func (sg *securityGroups) deletion(g securityGroup) change {
	return newChange(contract.PlanDelete, "security group "+g.Name, "", g, nil,
		func(ctx context.Context, req *services.Request, o observed) (observed, error) {
			used, err := sg.remove(ctx, g.ID, g.Name)
			if used != "" {
				req.Report(services.Warning(eventLeft, "security group %s stays: %s still has it", g.Name, used))
			}
			o.group = nil
			return o, err
		})
}

// remove deletes a group, or returns who uses it.
func (sg *securityGroups) remove(ctx context.Context, id, name string) (used string, err error) {
	now, err := sg.securityGroup(ctx, id)
	if err == nil {
		used, err = sg.userOf(ctx, now)
	}
	if err == nil && used == "" {
		path := "/security_groups/" + url.PathEscape(id)
		err = sg.api.call(ctx, request{what: "deleting security group " + name, method: http.MethodDelete, path: path}, nil)
	}
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err == nil && used == "":
		sg.forget(id)
		return "", nil
	case errors.Is(err, cloudapi.ErrConflict):
		if used, other := sg.findReferrer(ctx, id); used != "" || other != nil {
			return used, other
		}
	}
	sg.invalidate(id)
	return used, err
}

// userOf returns who uses a group, or "". A detached or deleted load balancer may still show for a while; that is waited for.
func (sg *securityGroups) userOf(ctx context.Context, g securityGroup) (used string, err error) {
	still := ""
	for _, t := range g.Targets {
		name := cmp.Or(t.Name, t.ID)
		if t.Type != boundBalancer {
			return name, nil
		}
		lb, err := sg.loadBalancer(ctx, t.ID)
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return "", err
		}
		if err == nil && lb.Provisioning != stateDeleting && slices.ContainsFunc(lb.Groups, func(n reference) bool { return n.ID == g.ID }) {
			return name, nil
		}
		still = name
	}
	if still == "" {
		return "", nil
	}
	since, _ := sg.waitingSince.LoadOrStore(g.ID, time.Now())
	if time.Since(since.(time.Time)) > busyPatience { //nolint:forcetypeassert // always one
		return still, nil // perhaps this credential does not see it
	}
	return "", cloudproviderapi.NewRetryError("security group "+g.Name+" still shows load balancer "+still, lookAgain)
}

// findReferrer returns the group whose rule names a group and so prevents its deletion; "" if there is none.
func (sg *securityGroups) findReferrer(ctx context.Context, id string) (string, error) {
	all, err := sg.groups.All(ctx, inventory.Query{MaxAge: observedMaxAge})
	if err != nil {
		return "", err
	}
	if at := slices.IndexFunc(all, func(g securityGroup) bool { return g.refersTo(id) }); at >= 0 {
		return "a rule of security group " + cmp.Or(all[at].Name, all[at].ID), nil
	}
	return "", nil
}

// refersTo reports whether a rule is about the members of another group.
func (g securityGroup) refersTo(id string) bool {
	return g.ID != id && slices.ContainsFunc(g.Rules, func(r rule) bool { return r.Remote.ID == id })
}
