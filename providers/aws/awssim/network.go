package awssim

import (
	"cmp"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
)

// Subnet of the VPC.
type Subnet struct {
	ID, VPC, Zone, CIDR, CIDRv6 string
	Tags                        Tags
}

// RouteTable of the VPC.
type RouteTable struct {
	ID, VPC string
	Main    bool
	Subnets []string
	Routes  []*Route
	Tags    Tags
}

// Route of a table; its state is worked out from its target.
type Route struct{ CIDR, CIDRv6, Gateway, Instance, Interface string }

// Group is a security group.
type Group struct {
	ID, Name, Description, VPC string
	Tags                       Tags
	Rules                      []Rule
	Created                    time.Time
}

// Rule allows one source.
type Rule struct {
	Protocol                                     string
	From, To                                     int
	CIDR, CIDRv6, Group, PrefixList, Description string
}

func (r Rule) equals(o Rule) bool {
	r.Description, o.Description = "", ""
	return r == o
}

// AddSubnet adds a subnet, public or private by the table it is put into; an empty table means the main one.
func (s *Sim) AddSubnet(n Subnet, table string) string {
	defer s.lock()()
	n.ID, n.VPC = cmp.Or(n.ID, s.newID("subnet")), cmp.Or(n.VPC, VPC)
	if n.Tags == nil {
		n.Tags = Tags{}
	}
	s.subnets.Put(n.ID, &n)
	if t := s.tables.ByID[table]; t != nil {
		t.Subnets = append(t.Subnets, n.ID)
	}
	return n.ID
}

// Subnets returns all subnets.
func (s *Sim) Subnets() []Subnet { return copies(s, &s.subnets, Subnet.clone) }

// RemoveSubnets takes all subnets away.
func (s *Sim) RemoveSubnets() {
	defer s.lock()()
	s.subnets = simkit.Table[string, Subnet]{}
	for _, t := range s.tables.All() {
		t.Subnets = nil
	}
}

// PublicTable has the route to the internet.
const PublicTable = "rtb-0000000000000000a"

// ChangeTable alters a route table.
func (s *Sim) ChangeTable(id string, change func(*RouteTable)) {
	defer s.lock()()
	t := s.tables.ByID[id]
	if t == nil {
		t = &RouteTable{ID: id, VPC: VPC, Tags: Tags{}}
		s.tables.Put(id, t)
	}
	change(t)
}

// Routes returns the routes of all tables to instances and interfaces.
func (s *Sim) Routes() []Route {
	defer s.lock()()
	var list []Route
	for _, t := range s.tables.All() {
		for _, r := range t.Routes {
			if r.Gateway == "" {
				list = append(list, *r)
			}
		}
	}
	return list
}

// AddGroup adds a security group.
func (s *Sim) AddGroup(g Group) string {
	defer s.lock()()
	g.ID, g.VPC = cmp.Or(g.ID, s.newID("sg")), VPC
	if g.Tags == nil {
		g.Tags = Tags{}
	}
	s.groups.Put(g.ID, &g)
	return g.ID
}

// Groups returns all security groups.
func (s *Sim) Groups() []Group { return copies(s, &s.groups, Group.clone) }

// ChangeGroup alters a security group.
func (s *Sim) ChangeGroup(id string, change func(*Group)) {
	defer s.lock()()
	change(s.groups.ByID[id])
}

func (s *Sim) describeSubnets(p *params) (answer, error) {
	ids, filters := p.list("SubnetId"), p.filters()
	var list []*Subnet
	for _, id := range ids {
		if s.subnets.ByID[id] == nil {
			return nil, refuse("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", id)
		}
	}
	for _, n := range s.subnets.All() {
		if (len(ids) == 0 || slices.Contains(ids, n.ID)) && p.pass(filters, n.Tags, map[string][]string{"vpc-id": {n.VPC}, "subnet-id": {n.ID}}) {
			list = append(list, n)
		}
	}
	list, next := page(s, p, list, "MaxResults", "NextToken", 1000, 1000)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("subnetSet", "item", list, func(n *Subnet) []elem {
		v6 := []string{}
		if n.CIDRv6 != "" {
			v6 = []string{n.CIDRv6}
		}
		return []elem{
			tx("subnetId", n.ID), tx("vpcId", n.VPC), tx("availabilityZone", n.Zone), tx("cidrBlock", n.CIDR), tx("state", "available"), s.showTags(n.Tags),
			listOf("ipv6CidrBlockAssociationSet", "item", v6, func(c string) []elem {
				return []elem{tx("ipv6CidrBlock", c), el("ipv6CidrBlockState", tx("state", "associated"))}
			}),
		}
	}), tx("nextToken", next)}, nil
}

func (s *Sim) describeRouteTables(p *params) (answer, error) {
	filters := p.filters()
	var list []*RouteTable
	for _, t := range s.tables.All() {
		if p.pass(filters, t.Tags, map[string][]string{"vpc-id": {t.VPC}, "route-table-id": {t.ID}}) {
			list = append(list, t)
		}
	}
	list, next := page(s, p, list, "MaxResults", "NextToken", 100, 100)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("routeTableSet", "item", list, func(t *RouteTable) []elem {
		var associations []elem
		if t.Main {
			associations = append(associations, el("item", tx("routeTableAssociationId", "rtbassoc-main"), tx("routeTableId", t.ID), tx("main", true)))
		}
		for _, n := range t.Subnets {
			associations = append(associations, el("item", tx("routeTableAssociationId", "rtbassoc-"+n), tx("routeTableId", t.ID), tx("subnetId", n), tx("main", false)))
		}
		return []elem{
			tx("routeTableId", t.ID), tx("vpcId", t.VPC), s.showTags(t.Tags), el("associationSet", anyOrder(s, associations)...),
			listOf("routeSet", "item", anyOrder(s, t.Routes), func(r *Route) []elem {
				return []elem{
					tx("destinationCidrBlock", r.CIDR), tx("destinationIpv6CidrBlock", r.CIDRv6), tx("gatewayId", r.Gateway), tx("instanceId", r.Instance),
					tx("networkInterfaceId", r.Interface), tx("state", s.routeState(r)), tx("origin", "CreateRoute"),
				}
			}),
		}
	}), tx("nextToken", next)}, nil
}

func (s *Sim) routeState(r *Route) string {
	if r.Gateway != "" {
		return "active"
	}
	if i := s.VMs.ByID[r.Instance]; i != nil && i.State == "running" {
		return "active"
	}
	return "blackhole"
}

// readRoute reads the table and the route of a call.
func (s *Sim) readRoute(p *params) (*RouteTable, *Route, error) {
	table, r := p.required("RouteTableId"), &Route{
		CIDR: p.text("DestinationCidrBlock"), CIDRv6: p.text("DestinationIpv6CidrBlock"), Instance: p.text("InstanceId"), Interface: p.text("NetworkInterfaceId"),
	}
	if err := p.finish(); err != nil {
		return nil, nil, err
	}
	t := s.tables.ByID[table]
	if t == nil {
		return nil, nil, refuse("InvalidRouteTableID.NotFound", "The routeTable ID '%s' does not exist", table)
	}
	destination, err := netip.ParsePrefix(r.CIDR + r.CIDRv6)
	if err != nil || destination != destination.Masked() || destination.Addr().Is6() != (r.CIDRv6 != "") {
		return nil, nil, refuse("InvalidParameterValue", "Value (%s) for parameter destinationCidrBlock is invalid. This is not a valid CIDR block.", r.CIDR+r.CIDRv6)
	}
	return t, r, nil
}

func (s *Sim) replaceRoute(p *params) (answer, error) {
	t, r, err := s.readRoute(p)
	if err != nil {
		return nil, err
	}
	n := slices.IndexFunc(t.Routes, func(have *Route) bool { return have.CIDR == r.CIDR && have.CIDRv6 == r.CIDRv6 })
	if n < 0 || t.Routes[n].Gateway == "local" {
		return nil, refuse("InvalidParameterValue", "There is no route defined for '%s' in the route table. Use CreateRoute instead.", r.CIDR+r.CIDRv6)
	}
	if err := s.resolveTarget(r); err != nil {
		return nil, err
	}
	t.Routes[n] = r
	return answer{tx("return", true)}, nil
}

func (s *Sim) createRoute(p *params) (answer, error) {
	t, r, err := s.readRoute(p)
	if err != nil {
		return nil, err
	}
	for _, other := range t.Routes {
		if other.CIDR == r.CIDR && other.CIDRv6 == r.CIDRv6 {
			return nil, refuse("RouteAlreadyExists", "The route identified by %s already exists.", r.CIDR+r.CIDRv6)
		}
	}
	if err := s.resolveTarget(r); err != nil {
		return nil, err
	}
	t.Routes = append(t.Routes, r)
	return answer{tx("return", true)}, nil
}

// resolveTarget finds the instance of an interface, and the interface of an instance, that a route leads to.
func (s *Sim) resolveTarget(r *Route) error {
	for _, i := range s.VMs.All() {
		for _, e := range i.Interfaces {
			if e.ID == r.Interface {
				r.Instance = i.ID
			}
		}
		if i.ID == r.Instance && len(i.Interfaces) > 1 && r.Interface == "" {
			return refuse("InvalidInstanceID", "There are multiple interfaces attached to instance '%s'. Please specify an interface ID for the operation instead.", i.ID)
		}
		if i.ID == r.Instance && r.Interface == "" {
			r.Interface = i.Interfaces[0].ID
		}
	}
	if s.VMs.ByID[r.Instance] == nil {
		return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", r.Instance)
	}
	return nil
}

func (s *Sim) deleteRoute(p *params) (answer, error) {
	table, v4, v6 := p.required("RouteTableId"), p.text("DestinationCidrBlock"), p.text("DestinationIpv6CidrBlock")
	if err := p.finish(); err != nil {
		return nil, err
	}
	t := s.tables.ByID[table]
	if t == nil {
		return nil, refuse("InvalidRouteTableID.NotFound", "The routeTable ID '%s' does not exist", table)
	}
	before := len(t.Routes)
	t.Routes = slices.DeleteFunc(t.Routes, func(r *Route) bool { return r.CIDR == v4 && r.CIDRv6 == v6 && r.Gateway == "" })
	if len(t.Routes) == before {
		return nil, refuse("InvalidRoute.NotFound", "no route with destination-cidr-block %s in route table %s", v4+v6, table)
	}
	return answer{tx("return", true)}, nil
}

func (s *Sim) describeGroups(p *params) (answer, error) {
	ids, filters := p.list("GroupId"), p.filters()
	for _, id := range ids {
		if g := s.groups.ByID[id]; g == nil || s.lagging(g.Created) {
			return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	var list []*Group
	for _, g := range s.groups.All() {
		if (len(ids) > 0 && !slices.Contains(ids, g.ID)) || s.lagging(g.Created) {
			continue
		}
		if p.pass(filters, g.Tags, map[string][]string{"vpc-id": {g.VPC}, "group-name": {g.Name}, "group-id": {g.ID}}) {
			list = append(list, g)
		}
	}
	list, next := page(s, p, list, "MaxResults", "NextToken", 1000, 1000)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("securityGroupInfo", "item", list, func(g *Group) []elem {
		return []elem{
			tx("groupId", g.ID), tx("groupName", g.Name), tx("groupDescription", g.Description), tx("vpcId", g.VPC), tx("ownerId", Account), s.showTags(g.Tags),
			el("ipPermissions", anyOrder(s, showRules(anyOrder(s, g.Rules)))...),
		}
	}), tx("nextToken", next)}, nil
}

// showRules puts rules of the same protocol and ports together, as EC2 does.
func showRules(rules []Rule) []elem {
	var list []elem
	done := map[string]bool{}
	for _, first := range rules {
		key := fmt.Sprint(first.Protocol, first.From, first.To)
		if done[key] {
			continue
		}
		done[key] = true
		var v4, v6, groups, prefixes []elem
		for _, r := range rules {
			if fmt.Sprint(r.Protocol, r.From, r.To) != key {
				continue
			}
			about := tx("description", r.Description)
			switch {
			case r.CIDR != "":
				v4 = append(v4, el("item", tx("cidrIp", r.CIDR), about))
			case r.CIDRv6 != "":
				v6 = append(v6, el("item", tx("cidrIpv6", r.CIDRv6), about))
			case r.Group != "":
				groups = append(groups, el("item", tx("userId", Account), tx("groupId", r.Group), about))
			default:
				prefixes = append(prefixes, el("item", tx("prefixListId", r.PrefixList), about))
			}
		}
		one := el("item", tx("ipProtocol", first.Protocol))
		if first.Protocol != "-1" {
			one.kids = append(one.kids, tx("fromPort", first.From), tx("toPort", first.To))
		}
		one.kids = append(one.kids, el("ipRanges", v4...), el("ipv6Ranges", v6...), el("groups", groups...), el("prefixListIds", prefixes...))
		list = append(list, one)
	}
	return list
}

var groupNameForm = regexp.MustCompile(`^[a-zA-Z0-9 ._:/()#,@\[\]+=&;{}!$*-]{1,255}$`)

func (s *Sim) createGroup(p *params) (answer, error) {
	name, about, vpc, tags := p.required("GroupName"), p.required("GroupDescription"), p.text("VpcId"), Tags{}
	for _, spec := range p.structs("TagSpecification") {
		if spec.text("ResourceType") != "security-group" {
			return nil, refuse("InvalidParameterValue", "the tags are for another kind of resource")
		}
		tags = spec.tags("Tag")
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if vpc != VPC {
		return nil, refuse("InvalidVpcID.NotFound", "The vpc ID '%s' does not exist", vpc)
	}
	if !groupNameForm.MatchString(name) || !groupNameForm.MatchString(about) || strings.HasPrefix(name, "sg-") {
		return nil, refuse("InvalidParameterValue", "Invalid security group name or description %q, %q", name, about)
	}
	for _, g := range s.groups.All() {
		if g.Name == name && g.VPC == vpc {
			return nil, refuse("InvalidGroup.Duplicate", "The security group '%s' already exists for VPC '%s'", name, vpc)
		}
	}
	if len(s.groups.All()) >= awslimits.Groups.Max {
		return nil, refuse("SecurityGroupLimitExceeded", "The maximum number of security groups has been reached.")
	}
	g := &Group{ID: s.newID("sg"), Name: name, Description: about, VPC: vpc, Tags: tags, Created: time.Now()}
	s.groups.Put(g.ID, g)
	return answer{tx("return", true), tx("groupId", g.ID), s.showTags(tags)}, nil
}

func (s *Sim) groupUse(id string) string {
	for _, i := range s.VMs.All() {
		for _, e := range i.Interfaces {
			if slices.Contains(e.Groups, id) && i.State != "terminated" {
				return "instance " + i.ID
			}
		}
	}
	for _, lb := range s.classics.All() {
		if slices.Contains(lb.Groups, id) {
			return "load balancer " + lb.Name
		}
	}
	for _, lb := range s.networks.All() {
		if slices.Contains(lb.Groups, id) {
			return "load balancer " + lb.Name
		}
	}
	for _, g := range s.groups.All() {
		if g.ID != id && slices.ContainsFunc(g.Rules, func(r Rule) bool { return r.Group == id }) {
			return "security group " + g.ID
		}
	}
	if time.Now().Before(s.holds[id]) {
		return "a network interface"
	}
	return ""
}

func (s *Sim) deleteGroup(p *params) (answer, error) {
	id := p.required("GroupId")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if s.groups.ByID[id] == nil {
		return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
	}
	if use := s.groupUse(id); use != "" {
		return nil, refuse("DependencyViolation", "resource %s has a dependent object: %s", id, use)
	}
	s.groups.Remove(id)
	return answer{tx("return", true)}, nil
}

// sources reads who a permission is for, as one rule each.
func (p *params) sources(r Rule) ([]Rule, error) {
	var list []Rule
	for _, one := range p.structs("IpRanges") {
		add := r
		add.CIDR, add.Description = one.required("CidrIp"), one.text("Description")
		if c, err := netip.ParsePrefix(add.CIDR); err != nil || !c.Addr().Is4() || c != c.Masked() {
			return nil, refuse("InvalidParameterValue", "CIDR block %s is malformed", add.CIDR)
		}
		list = append(list, add)
	}
	for _, one := range p.structs("Ipv6Ranges") {
		add := r
		add.CIDRv6, add.Description = one.required("CidrIpv6"), one.text("Description")
		if c, err := netip.ParsePrefix(add.CIDRv6); err != nil || !c.Addr().Is6() {
			return nil, refuse("InvalidParameterValue", "CIDR block %s is malformed", add.CIDRv6)
		}
		list = append(list, add)
	}
	for _, one := range p.structs("Groups") {
		add := r
		add.Group, add.Description = one.required("GroupId"), one.text("Description")
		one.text("UserId")
		list = append(list, add)
	}
	for _, one := range p.structs("PrefixListIds") {
		add := r
		add.PrefixList, add.Description = one.required("PrefixListId"), one.text("Description")
		list = append(list, add)
	}
	for _, r := range list {
		if r.Description != "" && !groupNameForm.MatchString(r.Description) {
			return nil, refuse("InvalidParameterValue", "Invalid rule description %q", r.Description)
		}
	}
	if len(list) == 0 {
		return nil, refuse("InvalidParameterValue", "a permission has no source")
	}
	return list, nil
}

// permissions reads IpPermissions, split by source.
func (s *Sim) permissions(p *params) (string, []Rule, error) {
	id := p.required("GroupId")
	var list []Rule
	for _, in := range p.structs("IpPermissions") {
		r := Rule{Protocol: in.required("IpProtocol")}
		if !slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6", "-1"}, r.Protocol) {
			return "", nil, refuse("InvalidParameterValue", "Invalid value '%s' for IP protocol. Unknown protocol.", r.Protocol)
		}
		if err := in.ports(&r); err != nil {
			return "", nil, err
		}
		sources, err := in.sources(r)
		if err != nil {
			return "", nil, err
		}
		list = append(list, sources...)
	}
	if err := p.finish(); err != nil {
		return "", nil, err
	}
	g := s.groups.ByID[id]
	if g == nil || s.lagging(g.Created) {
		return "", nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
	}
	if len(list) == 0 {
		return "", nil, refuse("MissingParameter", "no permissions")
	}
	return id, list, nil
}

// ports reads the ports of a rule, or the type and code of ICMP.
func (p *params) ports(r *Rule) error {
	from, to := p.number("FromPort"), p.number("ToPort")
	switch {
	case r.Protocol == "-1":
		return nil // "traffic on all ports is allowed, regardless of any port range that you specify"
	case from == nil || to == nil:
		return refuse("InvalidParameterValue", "Invalid value for portRange. Must specify both from and to ports with TCP/UDP.")
	case strings.HasPrefix(r.Protocol, "icmp") && (*from < -1 || *from > 255 || *to < -1 || *to > 255):
		return refuse("InvalidParameterValue", "ICMP code (%d) or type (%d) out of range", *to, *from)
	case !strings.HasPrefix(r.Protocol, "icmp") && (*from < 0 || *to > 65535 || *from > *to):
		return refuse("InvalidParameterValue", "Invalid TCP/UDP port range (%d:%d)", *from, *to)
	}
	r.From, r.To = *from, *to
	return nil
}

// countFamily counts rules for a family: those that name groups or prefix lists are for both.
func countFamily(rules []Rule, v6 bool) (n int) {
	for _, r := range rules {
		if v6 && r.CIDR == "" || !v6 && r.CIDRv6 == "" {
			n++
		}
	}
	return n
}

func (s *Sim) authorize(p *params) (answer, error) {
	id, rules, err := s.permissions(p)
	if err != nil {
		return nil, err
	}
	g := s.groups.ByID[id]
	for i, r := range rules {
		if slices.ContainsFunc(append(slices.Clone(g.Rules), rules[:i]...), r.equals) {
			return nil, refuse("InvalidPermission.Duplicate", "the specified rule \"%v\" already exists", r)
		}
		if r.Group != "" && s.groups.ByID[r.Group] == nil {
			return nil, refuse("InvalidGroup.NotFound", "The security group '%s' does not exist", r.Group)
		}
	}
	for _, v6 := range []bool{false, true} { // the quota is "enforced separately for IPv4 rules and IPv6 rules"
		after, more := countFamily(g.Rules, v6), countFamily(rules, v6)
		if more > 0 && after+more > cmp.Or(s.options.GroupRules, awslimits.GroupRules.Max) {
			return nil, refuse("RulesPerSecurityGroupLimitExceeded", "The maximum number of rules per security group has been reached.")
		}
	}
	g.Rules = append(g.Rules, rules...)
	return answer{tx("return", true)}, nil
}

func (s *Sim) revoke(p *params) (answer, error) {
	id, rules, err := s.permissions(p)
	if err != nil {
		return nil, err
	}
	g := s.groups.ByID[id]
	for _, r := range rules {
		if !slices.ContainsFunc(g.Rules, r.equals) {
			return nil, refuse("InvalidPermission.NotFound", "The specified rule does not exist in this security group: %v", r)
		}
	}
	g.Rules = slices.DeleteFunc(g.Rules, func(have Rule) bool { return slices.ContainsFunc(rules, have.equals) })
	return answer{tx("return", true)}, nil
}
