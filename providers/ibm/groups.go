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

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// A load balancer is reached only as its security groups allow. A Service with source ranges has a group of its own, which takes the place
// of all others; an annotation names groups of the user, whose rules are never changed.

const (
	inbound, outbound = "inbound", "outbound"
	everybody         = "0.0.0.0/0"
	familyIPv4        = "ipv4"
	// maxRules and maxGroups are the cloud's: rules of a group, and groups of a load balancer.
	maxRules, maxGroups = 250, 5
	// maxClusterInGroup leaves room for the whole UID in the name of a group.
	maxClusterInGroup = maxName - len(namePrefix) - 1 - 32
)

// securityGroup is what is used of a security group.
type securityGroup struct {
	ID      string  `json:"id"`
	Name    string  `json:"name"`
	Rules   []rule  `json:"rules"`
	Targets []named `json:"targets"`
}

// rule is a rule of a security group. Without ports it is about all of them.
type rule struct {
	ID        string `json:"id,omitempty"`
	Direction string `json:"direction"`
	Family    string `json:"ip_version,omitempty"`
	PortMin   int    `json:"port_min,omitempty"`
	PortMax   int    `json:"port_max,omitempty"`
	Protocol  string `json:"protocol"`
	Remote    remote `json:"remote"`
}

// remote is whom a rule is about: a network, an address, or the members of a group.
type remote struct {
	CIDR    string `json:"cidr_block,omitempty"`
	Address string `json:"address,omitempty"`
	ID      string `json:"id,omitempty"`
}

// plain is a rule without what tells it from others that mean the same.
func (r rule) plain() rule {
	r.ID, r.Family = "", familyIPv4
	if ip, err := netip.ParseAddr(r.Remote.Address); err == nil {
		r.Remote = remote{CIDR: netip.PrefixFrom(ip, ip.BitLen()).String()}
	}
	return r
}

// lets reports whether a rule lets somebody reach a port.
func (r rule) lets(p port) bool {
	ports := (r.PortMin == 0 && r.PortMax == 0) || (r.PortMin <= p.port && p.max <= r.PortMax)
	return r.Direction == inbound && ports && slices.Contains([]string{p.protocol, "any", "all", "icmp_tcp_udp"}, r.Protocol)
}

// groupName is that of a Service's own group. It holds the whole UID, so that it is known to be the Service's.
func groupName(cluster string, service *v1.Service) string {
	return namePrefix + cluster[:min(len(cluster), maxClusterInGroup)] + "-" + strings.ReplaceAll(string(service.UID), "-", "")
}

// access is who may reach a load balancer. Its zero value leaves that to whoever set it.
type access struct {
	// name is that of the Service's own group, and rules are those that it is to have; have is that group where it is there.
	name  string
	rules []rule
	have  *securityGroup
	// groups are all that the load balancer is to have.
	groups []named
	vpc    string
}

// sources are the networks that may reach a Service, in their usual form.
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

// rulesFor are those of a Service's own group: the networks reach its ports, and the load balancer reaches everything.
func rulesFor(ports []port, networks []string) (list []rule) {
	for _, p := range ports {
		for _, n := range networks {
			list = append(list, rule{
				Direction: inbound, Family: familyIPv4, PortMin: p.port, PortMax: p.max, Protocol: p.protocol, Remote: remote{CIDR: n},
			})
		}
	}
	for _, protocol := range []string{protocolTCP, protocolUDP} {
		list = append(list, rule{Direction: outbound, Family: familyIPv4, Protocol: protocol, Remote: remote{CIDR: everybody}})
	}
	return list
}

// judgeAccess is about source ranges and security groups, as far as they are known without a look at the cloud.
func (s settings) judgeAccess(service *v1.Service) (problems []error) {
	const field = "spec.loadBalancerSourceRanges"
	ranges := service.Spec.LoadBalancerSourceRanges
	networks, err := sources(service)
	switch groups := s.groupNames(); {
	case err != nil:
		problems = append(problems, problemOf(field, strings.Join(ranges, ","), err.Error()))
	case len(ranges) > 0 && s.Groups != "":
		problems = append(problems, problemOf(field, strings.Join(ranges, ","), "cannot be enforced beside "+annotationGroups+", whose groups decide; leave one of the two out"))
	case len(rulesFor(s.ports(service), networks)) > maxRules:
		problems = append(problems, problemOf(field, strconv.Itoa(len(ranges)), fmt.Sprintf(
			"a security group takes %d rules, and each network needs one for each port", maxRules)))
	case s.Groups != "" && (len(groups) == 0 || slices.Contains(groups, "")):
		problems = append(problems, refuseFor(annotationGroups, s.Groups, "is no list of names or IDs of security groups"))
	case len(groups) > maxGroups:
		problems = append(problems, refuseFor(annotationGroups, s.Groups, "a load balancer has %d security groups at most", maxGroups))
	}
	return problems
}

func (s settings) groupNames() []string { return words(s.Groups) }

// securityGroups lists those of the VPC.
func (a *api) securityGroups(ctx context.Context) ([]securityGroup, int, error) {
	return list[securityGroup](ctx, a, "security_groups", "/security_groups", url.Values{"vpc.name": {a.config.VPC}})
}

// securityGroup reads one. It is gone only where the credential still sees the VPC.
func (b *balancers) securityGroup(ctx context.Context, id string) (g securityGroup, err error) {
	what := "reading security group " + id
	err = b.api.call(ctx, request{what: what, method: http.MethodGet, path: "/security_groups/" + url.PathEscape(id)}, &g)
	if errors.Is(err, cloudapi.ErrNotFound) {
		if doubt := b.sees(ctx, proofMaxAge); doubt != nil {
			return g, cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", doubt)
		}
		return g, err
	}
	if err == nil && (g.ID != id || g.Rules == nil) {
		err = cloudapi.Unclear(what, "the answer is about another group, or has no rules")
	}
	return g, err
}

// goingGroup finds it where the Service goes. A credential that may not look at groups has made none.
func (r *reconciler) goingGroup(ctx context.Context, service *v1.Service) (*securityGroup, error) {
	s, _, _ := parseSettings(service)
	g, err := r.ownGroup(ctx, service, inventory.Query{MaxAge: unlistedMaxAge})
	if errors.Is(err, cloudapi.ErrUnauthorized) && !s.ranged && !s.asked(recordRanges) {
		return nil, nil //nolint:nilnil // nil is a group that does not exist
	}
	return g, err
}

// ownGroup finds the Service's own group; nil is none.
func (r *reconciler) ownGroup(ctx context.Context, service *v1.Service, q inventory.Query) (*securityGroup, error) {
	found, err := r.groups.Find(ctx, indexName, groupName(r.config.Cluster, service), q)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return &found[0], nil
}

// access computes who may reach the load balancer of a Service. Nothing is read for one that never asked.
func (r *reconciler) access(
	ctx context.Context, q services.Request, s settings, o observation,
) (a access, findings []services.Finding, err error) {
	name := groupName(r.config.Cluster, q.Service)
	holds := s.asked(recordRanges) || o.lb.has(name)
	if !s.ranged && s.Groups == "" && !holds && (o.lb == nil || !s.asked(annotationGroups)) {
		return a, nil, nil
	}
	if err = o.lb.takesGroups(); err != nil {
		return a, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
	}
	query := inventory.Query{MaxAge: observedMaxAge, MaxUnlistedAge: unlistedMaxAge}
	var have *securityGroup
	if s.ranged || holds {
		if have, err = r.ownGroup(ctx, q.Service, query); err != nil {
			return a, nil, err
		}
	}
	switch {
	case s.Groups != "":
		a, findings, err = r.namedGroups(ctx, s, s.ports(q.Service), query)
	case s.ranged:
		a, err = r.ownAccess(ctx, q.Service, name, s.ports(q.Service))
		if have != nil {
			a.groups = []named{{ID: have.ID, Name: name}}
		}
	case o.lb != nil: // nobody asks any more
		a, err = r.defaultAccess(ctx)
	}
	a.have = have
	return a, findings, err
}

// has reports whether a load balancer, if there is one, has a security group.
func (lb *loadBalancer) has(group string) bool {
	return lb != nil && slices.ContainsFunc(lb.Groups, func(n named) bool { return n.Name == group })
}

// takesGroups is an error where a load balancer has none and takes none.
func (lb *loadBalancer) takesGroups() error {
	if lb == nil || lb.GroupsSupported == nil || *lb.GroupsSupported {
		return nil
	}
	return fmt.Errorf("load balancer %s takes no security groups, so that neither source ranges nor %s can be enforced; make the Service again", lb.Name, annotationGroups)
}

// vpc is the ID of the cluster's VPC.
func (r *reconciler) vpc(ctx context.Context) (string, error) {
	all, err := r.instances.subnets.All(ctx, inventory.Query{MaxAge: subnetsMaxAge})
	if err == nil && (len(all) == 0 || all[0].VPC.ID == "") {
		err = cloudapi.Unclear("looking for the VPC", "no subnet says which it is")
	}
	if err != nil {
		return "", err
	}
	return all[0].VPC.ID, nil
}

// ownAccess is that of source ranges.
func (r *reconciler) ownAccess(ctx context.Context, service *v1.Service, name string, ports []port) (a access, err error) {
	networks, err := sources(service)
	if err == nil {
		a = access{name: name, rules: rulesFor(ports, networks)}
		a.vpc, err = r.vpc(ctx)
	}
	return a, err
}

// defaultAccess is what a load balancer has for which nobody asks anything: the default group of the VPC.
func (r *reconciler) defaultAccess(ctx context.Context) (a access, err error) {
	vpc, err := r.vpc(ctx)
	if err != nil {
		return a, err
	}
	const what = "reading the default security group of the VPC"
	var g named
	err = r.api.call(ctx, request{what: what, method: http.MethodGet, path: "/vpcs/" + url.PathEscape(vpc) + "/default_security_group"}, &g)
	if err == nil && g.ID == "" {
		err = cloudapi.Unclear(what, "the answer has no ID")
	}
	return access{groups: []named{g}}, cloudapi.NotAbsence(err)
}

// serviceGroup is the form of the groups that are made for Services.
var serviceGroup = regexp.MustCompile(`^` + namePrefix + `.*-[0-9a-f]{32}$`)

// namedGroups are those of the annotation. The groups of Services change and go with them, and are nobody else's to use.
func (r *reconciler) namedGroups(
	ctx context.Context, s settings, ports []port, q inventory.Query,
) (a access, findings []services.Finding, err error) {
	all, err := r.groups.All(ctx, q)
	if err != nil {
		return a, nil, err
	}
	var rules []rule
	for _, one := range s.groupNames() {
		at := slices.IndexFunc(all, func(g securityGroup) bool { return g.ID == one || g.Name == one })
		switch {
		case at < 0:
			err = refuseFor(annotationGroups, s.Groups, "there is no security group %s in the VPC of the cluster", one)
		case serviceGroup.MatchString(all[at].Name):
			err = refuseFor(annotationGroups, s.Groups, "the security group %s is that of a Service with source ranges; name one of your own", one)
		}
		if err != nil {
			return a, []services.Finding{services.Warning(eventConfigError, "%v", err)}, err
		}
		n := named{ID: all[at].ID, Name: all[at].Name}
		if !slices.Contains(a.groups, n) {
			a.groups = append(a.groups, n)
			rules = append(rules, all[at].Rules...)
		}
	}
	for _, p := range ports {
		if !slices.ContainsFunc(rules, func(r rule) bool { return r.lets(p) }) {
			findings = append(findings, services.Warning(eventClosed, "no rule of the security groups %s lets anybody reach port %d of %s; add one",
				s.Groups, p.port, strings.ToUpper(p.protocol)))
		}
	}
	return a, findings, nil
}

// accessBefore are the changes that come before all others: a group is made, and its rules are set, before the load balancer changes, which
// takes minutes. What is allowed longer comes first, unless the group has no room for both.
func (r *reconciler) accessBefore(d spec) []change {
	a := d.access
	switch {
	case a.name == "":
		return nil
	case a.have == nil:
		return []change{r.creatingGroup(a)}
	}
	var added, removed []change
	for _, want := range missingRules(a.rules, a.have.Rules) {
		added = append(added, r.addingRule(*a.have, want))
	}
	for _, extra := range missingRules(a.have.Rules, a.rules) {
		removed = append(removed, r.removingRule(*a.have, extra))
	}
	if len(a.have.Rules)+len(added) > maxRules {
		return append(removed, added...)
	}
	return append(added, removed...)
}

// bindings are the changes of the groups that a load balancer has.
func (r *reconciler) bindings(o observation, d spec) (all []change) {
	has := func(list []named, id string) bool {
		return slices.ContainsFunc(list, func(n named) bool { return n.ID == id })
	}
	wanted := d.access.groups
	for _, g := range wanted {
		if !has(o.lb.Groups, g.ID) {
			all = append(all, r.binding(http.MethodPut, g))
		}
	}
	for _, g := range o.lb.Groups {
		if len(wanted) > 0 && !has(wanted, g.ID) {
			all = append(all, r.binding(http.MethodDelete, g))
		}
	}
	return all
}

// accessAfter is the change that comes last: the end of a group that nobody asks for any more.
func (r *reconciler) accessAfter(d spec) []change {
	if a := d.access; a.have != nil && a.name == "" {
		return []change{r.deletingGroup(*a.have)}
	}
	return nil
}

// missingRules are those of a list that another one lacks.
func missingRules(list, other []rule) []rule {
	return slices.DeleteFunc(slices.Clone(list), func(r rule) bool {
		return slices.ContainsFunc(other, func(o rule) bool { return o.plain() == r.plain() })
	})
}

func (r *reconciler) creatingGroup(a access) change {
	what := "creating security group " + a.name
	asked := map[string]any{"name": a.name, "rules": a.rules, "vpc": named{ID: a.vpc}}
	return change{
		Planned: guard.Planned{Action: guard.PlanCreate, Object: "security group " + a.name}, Creates: true, Replan: true,
		Compare: func() (before, after any) { return nil, asked },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			// By the record it is found when nobody asks for it any more.
			if err := r.noteBefore(ctx, q, o); err != nil {
				return o, err
			}
			group, err := r.resourceGroup(ctx)
			if err != nil {
				return o, err
			}
			asked["resource_group"] = named{ID: group}
			var made securityGroup
			err = r.api.call(ctx, request{what: what, method: http.MethodPost, path: "/security_groups", in: asked}, &made)
			if err == nil && (made.ID == "" || made.Rules == nil) {
				err = cloudapi.Unclear(what, "the answer has no ID")
			}
			if err != nil {
				r.groups.InvalidateAll() // it may have been made
				if errors.Is(err, errDuplicate) {
					q.Asked(errExists)
				}
				return o, cloudapi.NotAbsence(err)
			}
			r.groups.Put(made)
			return o, nil
		},
	}
}

// changingGroup is a write on a group, after which it is read again.
func (r *reconciler) changingGroup(action, detail string, g securityGroup, before, after any, write request) change {
	return change{
		Planned: guard.Planned{Action: action, Object: "security group " + g.Name, Detail: detail},
		Compare: func() (any, any) { return before, after },
		Make: func(ctx context.Context, _ *services.Request, o observation) (observation, error) {
			write.what = "changing security group " + g.Name
			err := r.api.call(ctx, write, nil)
			r.groups.Invalidate(g.ID)
			if write.method == http.MethodDelete && errors.Is(err, cloudapi.ErrNotFound) {
				err = nil
			}
			return o, cloudapi.NotAbsence(err)
		},
	}
}

// text is a rule in a few words.
func (r rule) text() string {
	ports := "all ports"
	if r.PortMin != 0 {
		ports = strconv.Itoa(r.PortMin) + "-" + strconv.Itoa(r.PortMax)
	}
	return fmt.Sprintf("%s %s %s %s", r.Direction, r.Protocol, ports, cmp.Or(r.Remote.CIDR, r.Remote.Address, r.Remote.ID))
}

func (r *reconciler) addingRule(g securityGroup, want rule) change {
	return r.changingGroup(guard.PlanChange, "rule "+want.text(), g, nil, want,
		request{method: http.MethodPost, path: "/security_groups/" + url.PathEscape(g.ID) + "/rules", in: want})
}

func (r *reconciler) removingRule(g securityGroup, extra rule) change {
	return r.changingGroup(guard.PlanChange, "rule "+extra.text(), g, extra, nil,
		request{method: http.MethodDelete, path: "/security_groups/" + url.PathEscape(g.ID) + "/rules/" + url.PathEscape(extra.ID)})
}

// binding adds a load balancer to a group, or takes it away. The cloud works on the load balancer then as after each other write.
func (r *reconciler) binding(method string, g named) change {
	add := method == http.MethodPut
	detail := map[bool]string{true: "attached", false: "detached"}[add]
	return r.change(guard.PlanChange, "security group "+cmp.Or(g.Name, g.ID), detail, func() (any, any) {
		return map[string]any{"attached": !add}, map[string]any{"attached": add}
	}, func(ctx context.Context, _ string, o observation) (observation, error) {
		path := "/security_groups/" + url.PathEscape(g.ID) + "/targets/" + url.PathEscape(o.lb.ID)
		err := r.api.call(ctx, request{what: "security group " + cmp.Or(g.Name, g.ID) + " of load balancer " + o.lb.Name, method: method, path: path}, nil)
		if err != nil {
			return o, cloudapi.NotAbsence(err)
		}
		r.groups.Invalidate(g.ID)
		lb := *o.lb
		lb.Groups = slices.DeleteFunc(slices.Clone(lb.Groups), func(n named) bool { return n.ID == g.ID })
		if add {
			lb.Groups = append(lb.Groups, g)
		}
		o.lb = &lb
		return o, nil
	})
}

// deletingGroup is the end of a Service's own group, once its load balancer has gone.
func (r *reconciler) deletingGroup(g securityGroup) change {
	return change{
		Planned: guard.Planned{Action: guard.PlanDelete, Object: "security group " + g.Name},
		Compare: func() (before, after any) { return g, nil },
		Make: func(ctx context.Context, q *services.Request, o observation) (observation, error) {
			used, err := r.removeGroup(ctx, g.ID, g.Name)
			if used != "" {
				q.Report(services.Warning(eventLeft, "security group %s stays: %s still has it", g.Name, used))
			}
			o.group = nil
			return o, err
		},
	}
}

// removeGroup deletes a group that nothing has, and else says what has it.
func (r *reconciler) removeGroup(ctx context.Context, id, name string) (used string, err error) {
	now, err := r.groups.Get(ctx, id, inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return "", nil
	case err != nil:
		return "", err
	case len(now.Targets) > 0:
		return cmp.Or(now.Targets[0].Name, now.Targets[0].ID), nil
	}
	err = r.api.call(ctx, request{what: "deleting security group " + name, method: http.MethodDelete, path: "/security_groups/" + url.PathEscape(id)}, nil)
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		r.groups.Invalidate(id)
		return "", err
	}
	r.groups.Forget(id)
	return "", nil
}
