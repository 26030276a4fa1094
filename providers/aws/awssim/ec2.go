package awssim

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"
	"time"
)

// Instance is a machine.
type Instance struct {
	ID         string
	Type       string
	State      string
	Zone       string
	VPC        string
	Subnet     string
	PrivateDNS string
	PublicDNS  string
	PublicIP   string
	Tags       Tags
	Interfaces []*Interface
	SourceDest bool
	// NoPlacement leaves out where it runs, as an answer without it.
	NoPlacement bool
	Launched    time.Time
}

// Interface is an elastic network interface, of an instance or alone.
type Interface struct {
	ID         string
	Status     string
	Attachment string
	// Index is the device index; -1 means that it is not attached.
	Index      int
	PrivateIPs []string
	IPv6       []string
	PrivateDNS string
	Subnet     string
	VPC        string
	Zone       string
	Groups     []string
	SourceDest bool
}

// Spec describes an instance to add; what is empty has a usual value.
type Spec struct {
	// Name is the private DNS name, which is the name of the node.
	Name, Type, State, Zone, PublicIP, PublicDNS string
	Tags                                         Tags
	Groups                                       []string
	Interfaces                                   []*Interface
	IPv6                                         []string
	// Untagged leaves out the tag of the cluster.
	Untagged bool
}

// AddInstance starts an instance and returns its ID.
func (s *Sim) AddInstance(spec Spec) string {
	defer s.lock()()
	id := s.newID("i")
	zone := cmp.Or(spec.Zone, s.zones[len(s.VMs.Order)%3].Name)
	subnet := s.subnets.ByID[s.subnets.Order[0]]
	for _, n := range s.subnets.All() {
		if n.Zone == zone && strings.HasPrefix(n.Tags["Name"], "private") {
			subnet = n
		}
	}
	tags := Tags{}
	maps.Copy(tags, spec.Tags)
	if !spec.Untagged {
		tags[clusterTag+ClusterID] = "owned"
	}
	n := len(s.VMs.Order) + 1
	ip := fmt.Sprintf("10.1.%d.%d", n/250, n%250+1)
	if spec.Groups == nil {
		spec.Groups = []string{NodeGroup}
	}
	if spec.Interfaces == nil {
		spec.Interfaces = []*Interface{{PrivateIPs: []string{ip}, IPv6: spec.IPv6, Groups: spec.Groups}}
	}
	interfaces := make([]*Interface, len(spec.Interfaces))
	for i, given := range spec.Interfaces {
		e := new(Interface)
		*e = *given
		interfaces[i] = e
		if e.Index == 0 && i > 0 && e.ID == "" {
			e.Index = i
		}
		e.ID, e.Status = cmp.Or(e.ID, s.newID("eni")), cmp.Or(e.Status, "in-use")
		e.Subnet, e.VPC, e.Zone, e.SourceDest = subnet.ID, VPC, zone, true
		if e.Groups == nil {
			e.Groups = spec.Groups
		}
	}
	s.VMs.Put(id, &Instance{
		ID: id, Type: cmp.Or(spec.Type, "m5.large"), State: cmp.Or(spec.State, "running"), Zone: zone, VPC: VPC, Subnet: subnet.ID,
		PrivateDNS: cmp.Or(spec.Name, "ip-"+strings.ReplaceAll(ip, ".", "-")+".ec2.internal"), PublicIP: spec.PublicIP, PublicDNS: spec.PublicDNS,
		Tags: tags, Interfaces: interfaces, SourceDest: true, Launched: time.Now(),
	})
	return id
}

// AddInterface adds a network interface that belongs to no instance, as Fargate's pods have.
func (s *Sim) AddInterface(e Interface) string {
	defer s.lock()()
	e.ID, e.Status, e.Attachment, e.VPC = s.newID("eni"), "in-use", cmp.Or(e.Attachment, "attached"), VPC
	s.interfaces.Put(e.ID, &e)
	return e.ID
}

// RemoveInterface takes it away.
func (s *Sim) RemoveInterface(id string) {
	defer s.lock()()
	s.interfaces.Remove(id)
}

// SetStatus changes the state of an instance, such as to stopped.
func (s *Sim) SetStatus(id, state string) error {
	return s.Change(id, func(i *Instance) {
		i.State = state
		if state == "terminated" {
			s.dropTargets(i)
		}
	})
}

// dropTargets takes an instance that is gone out of load balancers, as AWS does.
func (s *Sim) dropTargets(gone *Instance) {
	for _, lb := range s.classics.All() {
		lb.Instances = slices.DeleteFunc(lb.Instances, func(i string) bool { return i == gone.ID })
	}
	for _, tg := range s.targets.All() {
		tg.Targets = slices.DeleteFunc(tg.Targets, func(t *Target) bool { return t.ID == gone.ID })
	}
}

// List returns all instances.
func (s *Sim) List() []Instance { return copies(s, &s.VMs, Instance.clone) }

// SetTopology makes instances of a type tell where they are in the network.
func (s *Sim) SetTopology(instanceType string, supported bool) {
	defer s.lock()()
	s.topologies[instanceType] = supported
}

func ec2Operations() map[string]handler {
	return map[string]handler{
		"DescribeInstances": (*Sim).describeInstances, "DescribeAvailabilityZones": (*Sim).describeZones, "DescribeInstanceTopology": (*Sim).describeTopology,
		"DescribeNetworkInterfaces": (*Sim).describeInterfaces, "DescribeSubnets": (*Sim).describeSubnets, "DescribeRouteTables": (*Sim).describeRouteTables,
		"DescribeSecurityGroups": (*Sim).describeGroups, "CreateSecurityGroup": (*Sim).createGroup, "DeleteSecurityGroup": (*Sim).deleteGroup,
		"AuthorizeSecurityGroupIngress": (*Sim).authorize, "RevokeSecurityGroupIngress": (*Sim).revoke, "CreateTags": (*Sim).createTags, "DeleteTags": (*Sim).deleteTags,
		"CreateRoute": (*Sim).createRoute, "ReplaceRoute": (*Sim).replaceRoute, "DeleteRoute": (*Sim).deleteRoute, "ModifyInstanceAttribute": (*Sim).modifyInstance,
		"ModifyNetworkInterfaceAttribute": (*Sim).modifyInterface,
	}
}

// condition is one filter of EC2.
type condition struct {
	name   string
	values []string
}

// maxFilterValues is EC2's limit on the values of one filter.
const maxFilterValues = 200

func (p *params) filters() []condition {
	var list []condition
	for _, f := range p.structs("Filter") {
		c := condition{f.required("Name"), f.list("Value")}
		if len(c.values) == 0 {
			p.note(refuse("InvalidParameterValue", "the filter %s has no values", c.name))
		}
		if len(c.values) > maxFilterValues {
			p.note(refuse("FilterLimitExceeded", "The maximum number of filter values specified on a single call is %d", maxFilterValues))
		}
		list = append(list, c)
	}
	return list
}

// pass reports whether an object with these attributes and tags passes all filters; values may hold wildcards.
func (p *params) pass(conditions []condition, tags Tags, attributes map[string][]string) bool {
	for _, c := range conditions {
		have, known := attributes[c.name]
		key, tagged := strings.CutPrefix(c.name, "tag:")
		switch {
		case tagged:
			have = nil
			if v, ok := tags[key]; ok {
				have = []string{v}
			}
		case c.name == "tag-key":
			have = slices.Collect(maps.Keys(tags))
		case !known:
			p.note(refuse("InvalidParameterValue", "The filter '%s' is invalid", c.name))
			return false
		}
		if !slices.ContainsFunc(have, func(v string) bool {
			return slices.ContainsFunc(c.values, func(pattern string) bool {
				if !strings.ContainsAny(pattern, "*?") {
					return pattern == v
				}
				ok, _ := path.Match(strings.ReplaceAll(pattern, "/", "\x00"), strings.ReplaceAll(v, "/", "\x00"))
				return ok
			})
		}) {
			return false
		}
	}
	return true
}

func (s *Sim) showTags(tags Tags) elem {
	return listOf(
		"tagSet", "item", anyOrder(s, slices.Sorted(maps.Keys(tags))), func(k string) []elem {
			return []elem{tx("key", k), {name: "value", text: tags[k]}}
		},
	)
}

func showGroups(ids []string) elem {
	return listOf("groupSet", "item", ids, func(id string) []elem { return []elem{tx("groupId", id)} })
}

func (s *Sim) lagging(since time.Time) bool { return time.Since(since) < s.options.Lag }

func (s *Sim) describeInstances(p *params) (answer, error) {
	ids, filters := p.list("InstanceId"), p.filters()
	var list []*Instance
	if len(ids) > 0 && p.isSet("MaxResults") {
		return nil, refuse("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if err := s.checkIDs(ids); err != nil {
		return nil, err
	}
	for _, i := range s.VMs.All() {
		if (len(ids) > 0 && !slices.Contains(ids, i.ID)) || s.blind || s.lagging(i.Launched) {
			continue
		}
		if p.pass(filters, i.Tags, map[string][]string{
			"instance-id": {i.ID}, "private-dns-name": {i.PrivateDNS}, "instance-state-name": {i.State}, "vpc-id": {i.VPC}, "instance-type": {i.Type},
		}) {
			list = append(list, i)
		}
	}
	list, next := page(s, p, list, "MaxResults", "NextToken", 1000, 1000)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("reservationSet", "item", list, func(i *Instance) []elem {
		return []elem{tx("reservationId", "r-"+i.ID[2:]), el("instancesSet", el("item", s.showInstance(i)...))}
	}), tx("nextToken", next)}, nil
}

// checkIDs refuses IDs that are malformed, or of no instance.
func (s *Sim) checkIDs(ids []string) error {
	var missing []string
	for _, id := range ids {
		if !strings.HasPrefix(id, "i-") || strings.Trim(id[2:], "0123456789abcdef") != "" || (len(id) != 10 && len(id) != 19) {
			return refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
		if i := s.VMs.ByID[id]; i == nil || s.blind || s.lagging(i.Launched) {
			missing = append(missing, id)
		}
	}
	switch {
	case len(missing) == 1:
		return refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", missing[0])
	case len(missing) > 1:
		return refuse("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(missing, ", "))
	}
	return nil
}

func (s *Sim) showInstance(i *Instance) []elem {
	placement := el("placement", tx("availabilityZone", i.Zone), tx("tenancy", "default"))
	if i.NoPlacement {
		placement = elem{}
	}
	state := el("instanceState", tx("code", 16), tx("name", i.State))
	if i.State == "" {
		state = elem{}
	}
	primary := ""
	for _, e := range i.Interfaces {
		if e.Index == 0 && len(e.PrivateIPs) > 0 {
			primary = e.PrivateIPs[0]
		}
	}
	return []elem{
		tx("instanceId", i.ID), state, tx("privateDnsName", i.PrivateDNS),
		{name: "dnsName", text: i.PublicDNS},
		tx("instanceType", i.Type), placement,
		tx("launchTime", i.Launched), tx("subnetId", i.Subnet), tx("vpcId", i.VPC), tx("privateIpAddress", primary), tx("ipAddress", i.PublicIP),
		tx("sourceDestCheck", i.SourceDest), s.showTags(i.Tags),
		listOf("networkInterfaceSet", "item", anyOrder(s, i.Interfaces), func(e *Interface) []elem {
			attachment := el("attachment", tx("attachmentId", "eni-attach-1"), tx("deviceIndex", e.Index), tx("status", "attached"))
			if e.Index < 0 {
				attachment = elem{}
			}
			return []elem{
				tx("networkInterfaceId", e.ID), tx("status", e.Status), tx("subnetId", e.Subnet), tx("vpcId", e.VPC), attachment, showGroups(e.Groups),
				tx("sourceDestCheck", e.SourceDest),
				listOf("privateIpAddressesSet", "item", e.PrivateIPs, func(ip string) []elem {
					return []elem{tx("privateIpAddress", ip), tx("primary", ip == e.PrivateIPs[0])}
				}),
				listOf("ipv6AddressesSet", "item", e.IPv6, func(ip string) []elem { return []elem{tx("ipv6Address", ip)} }),
			}
		}),
		showGroups(func() []string {
			if len(i.Interfaces) > 0 {
				return i.Interfaces[0].Groups
			}
			return nil
		}()),
	}
}

func (s *Sim) describeZones(p *params) (answer, error) {
	all, names := p.flag("AllAvailabilityZones"), p.list("ZoneName")
	if err := p.finish(); err != nil {
		return nil, err
	}
	_ = all // every zone here is opted in
	list := slices.DeleteFunc(slices.Clone(s.zones), func(z Zone) bool { return len(names) > 0 && !slices.Contains(names, z.Name) })
	return answer{listOf("availabilityZoneInfo", "item", anyOrder(s, list), func(z Zone) []elem {
		return []elem{tx("zoneName", z.Name), tx("zoneId", z.ID), tx("zoneType", z.Type), tx("zoneState", "available"), tx("regionName", Region)}
	})}, nil
}

// maxTopologyIDs is the limit of DescribeInstanceTopology.
const maxTopologyIDs = 100

func (s *Sim) describeTopology(p *params) (answer, error) {
	ids := p.list("InstanceId")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if len(ids) > maxTopologyIDs {
		return nil, refuse("InvalidParameterValue", "more than %d instance IDs", maxTopologyIDs)
	}
	var list []*Instance
	for _, id := range ids {
		if s.VMs.ByID[id] == nil {
			return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		}
	}
	for _, i := range s.VMs.All() {
		if slices.Contains(ids, i.ID) && s.topologies[i.Type] {
			list = append(list, i)
		}
	}
	return answer{listOf("instanceSet", "item", anyOrder(s, list), func(i *Instance) []elem {
		return []elem{
			tx("instanceId", i.ID), tx("instanceType", i.Type), tx("availabilityZone", i.Zone),
			texts("networkNodeSet", "item", []string{"nn-1111111111example", "nn-2222222222example", "nn-" + i.ID[len(i.ID)-4:]}),
		}
	})}, nil
}

func (s *Sim) describeInterfaces(p *params) (answer, error) {
	filters := p.filters()
	p.within("MaxResults", 5, 1000)
	p.text("NextToken")
	var list, known []*Interface
	for _, i := range s.VMs.All() {
		for _, e := range i.Interfaces {
			one := *e
			one.Attachment = "attached"
			known = append(known, &one)
		}
	}
	for _, e := range append(known, s.interfaces.All()...) {
		if p.pass(filters, nil, map[string][]string{"attachment.status": {e.Attachment}, "vpc-id": {e.VPC}, "private-ip-address": e.PrivateIPs}) {
			list = append(list, e)
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("networkInterfaceSet", "item", anyOrder(s, list), func(e *Interface) []elem {
		first := ""
		if len(e.PrivateIPs) > 0 {
			first = e.PrivateIPs[0]
		}
		return []elem{
			tx("networkInterfaceId", e.ID), tx("subnetId", e.Subnet), tx("vpcId", e.VPC), tx("availabilityZone", e.Zone), tx("status", e.Status),
			tx("privateIpAddress", first), tx("privateDnsName", e.PrivateDNS),
			listOf("ipv6AddressesSet", "item", e.IPv6, func(ip string) []elem { return []elem{tx("ipv6Address", ip)} }),
		}
	})}, nil
}

// taggable returns the tags of an object of EC2; nil if there is no such object.
func (s *Sim) taggable(id string) (tags Tags, kind string) {
	switch {
	case strings.HasPrefix(id, "i-"):
		if i := s.VMs.ByID[id]; i != nil && !s.blind {
			return i.Tags, "Instance"
		}
		return nil, "Instance"
	case strings.HasPrefix(id, "sg-"):
		if g := s.groups.ByID[id]; g != nil {
			return g.Tags, "Group"
		}
	case strings.HasPrefix(id, "subnet-"):
		if n := s.subnets.ByID[id]; n != nil {
			return n.Tags, "Subnet"
		}
	}
	return nil, ""
}

// eachTagged finds all objects before any of them is changed.
func (s *Sim) eachTagged(ids []string) ([]Tags, error) {
	var list []Tags
	for _, id := range ids {
		tags, kind := s.taggable(id)
		switch {
		case tags != nil:
			list = append(list, tags)
		case kind == "Instance" && strings.Trim(id[2:], "0123456789abcdef") != "":
			return nil, refuse("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		case kind == "Instance":
			return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
		default:
			return nil, refuse("InvalidID", "The ID '%s' is not valid", id)
		}
	}
	return list, nil
}

func (s *Sim) createTags(p *params) (answer, error) {
	ids, tags := p.list("ResourceId"), p.tags("Tag")
	if err := p.finish(); err != nil {
		return nil, err
	}
	all, err := s.eachTagged(ids)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		if err := addTags(t, tags); err != nil {
			return nil, err
		}
	}
	return answer{tx("return", true)}, nil
}

func (s *Sim) deleteTags(p *params) (answer, error) {
	ids, tags := p.list("ResourceId"), p.tags("Tag")
	if err := p.finish(); err != nil {
		return nil, err
	}
	all, err := s.eachTagged(ids)
	if err != nil {
		return nil, err
	}
	for _, t := range all {
		maps.DeleteFunc(t, func(k, v string) bool { want, named := tags[k]; return named && want == v })
	}
	return answer{tx("return", true)}, nil
}

func (s *Sim) modifyInstance(p *params) (answer, error) {
	id := p.required("InstanceId")
	value := p.choice("SourceDestCheck.Value", "true", "false")
	if err := p.finish(); err != nil {
		return nil, err
	}
	i := s.VMs.ByID[id]
	switch {
	case i == nil:
		return nil, refuse("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", id)
	case len(i.Interfaces) > 1:
		return nil, refuse("InvalidInstanceID", "There are multiple interfaces attached to instance '%s'. Please specify an interface ID for the operation instead.", id)
	}
	i.SourceDest = value == "true"
	i.Interfaces[0].SourceDest = i.SourceDest
	return answer{tx("return", true)}, nil
}

func (s *Sim) modifyInterface(p *params) (answer, error) {
	id := p.required("NetworkInterfaceId")
	value := p.choice("SourceDestCheck.Value", "true", "false")
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, i := range s.VMs.All() {
		for _, e := range i.Interfaces {
			if e.ID == id {
				e.SourceDest = value == "true"
				if e.Index == 0 {
					i.SourceDest = e.SourceDest
				}
				return answer{tx("return", true)}, nil
			}
		}
	}
	return nil, &fault{http.StatusBadRequest, "InvalidNetworkInterfaceID.NotFound", "The networkInterface ID '" + id + "' does not exist"}
}
