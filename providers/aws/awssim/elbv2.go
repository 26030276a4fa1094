package awssim

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
)

// LoadBalancer is a network load balancer; Type tells where it is an application load balancer.
type LoadBalancer struct {
	ARN, Name, DNSName, Scheme, Type, AddressType, VPC string
	Mappings                                           []Mapping
	Groups                                             []string
	Tags                                               Tags
	Attributes                                         map[string]string
	// State overrides what the time since the creation says.
	State   string
	Created time.Time
}

// Mapping is a subnet of a load balancer and its fixed addresses there.
type Mapping struct{ Subnet, Allocation, PrivateIP string }

// Networks returns all load balancers of the second generation.
func (s *Sim) Networks() []LoadBalancer { return copies(s, &s.networks, LoadBalancer.clone) }

// ChangeNetwork alters a load balancer behind the API's back.
func (s *Sim) ChangeNetwork(name string, change func(*LoadBalancer)) {
	defer s.lock()()
	for _, lb := range s.networks.All() {
		if lb.Name == name {
			change(lb)
		}
	}
}

// AddNetwork adds a load balancer that somebody else made.
func (s *Sim) AddNetwork(name, kind string, tags Tags) {
	defer s.lock()()
	s.putNetwork(&LoadBalancer{Name: name, Type: kind, Scheme: "internet-facing", AddressType: "ipv4", Tags: tags})
}

// ImportNetwork adds a network load balancer as another controller made it. Each listener sends to the target group with
// the same index, and each target group to the instance.
func (s *Sim) ImportNetwork(name string, lb LoadBalancer, targets []TargetGroup, listeners []Listener, instance string) {
	defer s.lock()()
	lb.Name, lb.Type = name, "network"
	attributes := lb.Attributes
	s.putNetwork(&lb)
	lb.Attributes = attributes
	for i := range targets {
		t, l := targets[i], listeners[i]
		t.ARN, t.Targets = s.arn("targetgroup/"+t.Name), []*Target{{ID: instance, Port: t.Port, State: "healthy"}}
		s.targets.Put(t.ARN, &t)
		l.ARN, l.LoadBalancer, l.TargetGroup = s.arn("listener/net/"+name), lb.ARN, t.ARN
		s.listeners.Put(l.ARN, &l)
	}
}

// DeleteNetwork deletes a load balancer and its listeners behind the API's back.
func (s *Sim) DeleteNetwork(arn string) {
	defer s.lock()()
	for _, l := range s.listenersOf(arn) {
		s.listeners.Remove(l.ARN)
	}
	s.networks.Remove(arn)
}

// AddElasticIP adds an elastic address and returns its allocation ID.
func (s *Sim) AddElasticIP() string {
	defer s.lock()()
	id := s.newID("eipalloc")
	s.eips[id] = ""
	return id
}

// ElasticIPs returns the elastic addresses, and the load balancers that use them.
func (s *Sim) ElasticIPs() map[string]string {
	defer s.lock()()
	return maps.Clone(s.eips)
}

// AttachTargetGroup makes the listener of a port forward to another target group, as people do by hand.
func (s *Sim) AttachTargetGroup(name string, port int, targetGroup string) {
	defer s.lock()()
	for _, l := range s.listeners.All() {
		if lb := s.networks.ByID[l.LoadBalancer]; lb.Name == name && l.Port == port {
			l.TargetGroup = targetGroup
		}
	}
}

func (s *Sim) arn(path string) string {
	s.serial++
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s/%016x", Region, Account, path, s.serial)
}

func (s *Sim) stateOf(lb *LoadBalancer) string {
	switch {
	case lb.State != "":
		return lb.State
	case time.Since(lb.Created) < s.options.Activation:
		return "provisioning"
	}
	return "active"
}

func networkOperations() map[string]handler {
	return map[string]handler{
		"DescribeLoadBalancers": (*Sim).describeNetworks, "CreateLoadBalancer": (*Sim).createNetwork, "DeleteLoadBalancer": (*Sim).deleteNetwork,
		"DescribeLoadBalancerAttributes": (*Sim).describeNetworkAttributes, "ModifyLoadBalancerAttributes": (*Sim).modifyNetworkAttributes,
		"SetSecurityGroups": (*Sim).setGroups, "SetSubnets": (*Sim).setSubnets, "DescribeTags": (*Sim).describeNetworkTags, "AddTags": (*Sim).addNetworkTags,
		"DescribeTargetGroups": (*Sim).describeTargetGroups, "CreateTargetGroup": (*Sim).createTargetGroup, "ModifyTargetGroup": (*Sim).modifyTargetGroup,
		"DeleteTargetGroup": (*Sim).deleteTargetGroup, "DescribeTargetGroupAttributes": (*Sim).describeTargetGroupAttributes,
		"ModifyTargetGroupAttributes": (*Sim).modifyTargetGroupAttributes,
		"DescribeTargetHealth":        (*Sim).describeTargetHealth, "RegisterTargets": (*Sim).registerTargets, "DeregisterTargets": (*Sim).deregisterTargets,
		"DescribeListeners": (*Sim).describeListeners, "CreateListener": (*Sim).createListener, "ModifyListener": (*Sim).modifyListener,
		"DeleteListener": (*Sim).deleteListener,
	}
}

func (s *Sim) network(p *params) (*LoadBalancer, error) {
	arn := p.required("LoadBalancerArn")
	lb := s.networks.ByID[arn]
	if lb == nil {
		return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	}
	return lb, nil
}

func (s *Sim) describeNetworks(p *params) (answer, error) {
	names, arns := p.list("Names"), p.list("LoadBalancerArns")
	list := slices.DeleteFunc(s.networks.All(), func(lb *LoadBalancer) bool { return s.lagging(lb.Created) })
	if len(names)+len(arns) > 0 {
		if len(names) > maxTagged || len(arns) > maxTagged || len(names)*len(arns) > 0 {
			return nil, refuse("ValidationError", "at most %d names or ARNs", maxTagged)
		}
		list = slices.DeleteFunc(list, func(lb *LoadBalancer) bool { return !slices.Contains(names, lb.Name) && !slices.Contains(arns, lb.ARN) })
		if len(list) < len(names)+len(arns) {
			return nil, refuse("LoadBalancerNotFound", "One or more load balancers not found")
		}
	}
	list, next := page(s, p, list, "PageSize", "Marker", 400, 400)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("LoadBalancers", "member", list, s.showNetwork), tx("NextMarker", next)}, nil
}

func (s *Sim) showNetwork(lb *LoadBalancer) []elem {
	groups := texts("SecurityGroups", "member", anyOrder(s, lb.Groups))
	if len(lb.Groups) == 0 {
		groups = elem{}
	}
	return []elem{
		tx("LoadBalancerArn", lb.ARN), tx("LoadBalancerName", lb.Name), tx("DNSName", lb.DNSName), tx("CanonicalHostedZoneId", "Z26RNL4JYFTOTI"),
		tx("CreatedTime", lb.Created),
		tx("Scheme", lb.Scheme), tx("Type", lb.Type), tx("VpcId", cmp.Or(lb.VPC, VPC)), tx("IpAddressType", lb.AddressType),
		el("State", tx("Code", s.stateOf(lb))), groups,
		listOf("AvailabilityZones", "member", anyOrder(s, lb.Mappings), func(m Mapping) []elem {
			zone := ""
			if n := s.subnets.ByID[m.Subnet]; n != nil {
				zone = n.Zone
			}
			addresses := elem{}
			if m.Allocation != "" || m.PrivateIP != "" {
				addresses = el("LoadBalancerAddresses", el("member", tx("AllocationId", m.Allocation), tx("PrivateIPv4Address", m.PrivateIP)))
			}
			return []elem{tx("ZoneName", zone), tx("SubnetId", m.Subnet), addresses}
		}),
	}
}

func (s *Sim) putNetwork(lb *LoadBalancer) {
	short := map[string]string{"network": "net", "application": "app"}[lb.Type]
	lb.ARN = s.arn("loadbalancer/" + short + "/" + lb.Name)
	prefix := ""
	if lb.Scheme == "internal" {
		prefix = "internal-"
	}
	lb.DNSName = fmt.Sprintf("%s%s-%016x.elb.%s.amazonaws.com", prefix, lb.Name, s.serial, Region)
	lb.Created = time.Now()
	lb.Attributes = map[string]string{
		"load_balancing.cross_zone.enabled": "false", "access_logs.s3.enabled": "false", "access_logs.s3.bucket": "", "access_logs.s3.prefix": "",
		"deletion_protection.enabled": "false",
	}
	s.networks.Put(lb.ARN, lb)
}

func (s *Sim) createNetwork(p *params) (answer, error) {
	lb := &LoadBalancer{
		Name: p.required("Name"), Scheme: p.choice("Scheme", "internal", "internet-facing"), Type: p.choice("Type", "network", "application"),
		AddressType: p.choice("IpAddressType", "ipv4", "dualstack"), Groups: p.list("SecurityGroups"), Tags: p.tags("Tags"),
	}
	for _, m := range p.structs("SubnetMappings") {
		lb.Mappings = append(lb.Mappings, Mapping{m.required("SubnetId"), m.text("AllocationId"), m.text("PrivateIPv4Address")})
	}
	for _, n := range p.list("Subnets") {
		lb.Mappings = append(lb.Mappings, Mapping{Subnet: n})
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	lb.Scheme, lb.AddressType = cmp.Or(lb.Scheme, "internet-facing"), cmp.Or(lb.AddressType, "ipv4")
	if !balancerNameForm.MatchString(lb.Name) || strings.HasPrefix(lb.Name, "internal-") || lb.Type != "network" {
		return nil, refuse("ValidationError", "the name %q or type %q is not valid", lb.Name, lb.Type)
	}
	for _, have := range s.networks.All() {
		if have.Name != lb.Name {
			continue
		}
		if !have.sameAs(lb) {
			return nil, refuse("DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings", lb.Name)
		}
		return answer{listOf("LoadBalancers", "member", []*LoadBalancer{have}, s.showNetwork)}, nil
	}
	if len(s.networks.All()) >= awslimits.NetworkLoadBalancers.Max {
		return nil, refuse("TooManyLoadBalancers", "The maximum number of load balancers has been reached")
	}
	if err := s.checkMappings(lb); err != nil {
		return nil, err
	}
	for _, m := range lb.Mappings {
		if m.Allocation != "" {
			s.eips[m.Allocation] = lb.Name
		}
	}
	s.putNetwork(lb)
	return answer{listOf("LoadBalancers", "member", []*LoadBalancer{lb}, s.showNetwork)}, nil
}

// sameAs reports whether another creation has equal settings; it then returns the existing load balancer.
func (lb *LoadBalancer) sameAs(o *LoadBalancer) bool {
	return lb.Scheme == o.Scheme && lb.Type == o.Type && lb.AddressType == o.AddressType && slices.Equal(lb.Groups, o.Groups) &&
		slices.Equal(lb.Mappings, o.Mappings) && maps.Equal(lb.Tags, o.Tags)
}

func (s *Sim) checkMappings(lb *LoadBalancer) error {
	var subnets []string
	for _, m := range lb.Mappings {
		subnets = append(subnets, m.Subnet)
		user, known := s.eips[m.Allocation]
		switch {
		case m.Allocation != "" && !known:
			return refuse("AllocationIdNotFound", "The allocation IDs '%s' do not exist", m.Allocation)
		case m.Allocation != "" && (user != "" && user != lb.Name || lb.Scheme == "internal"):
			return refuse("InvalidConfigurationRequest", "The allocation ID '%s' cannot be used", m.Allocation)
		case m.PrivateIP != "" && net.ParseIP(m.PrivateIP) == nil:
			return refuse("ValidationError", "'%s' is not a valid IP address", m.PrivateIP)
		case m.PrivateIP != "" && lb.Scheme != "internal":
			return refuse("InvalidConfigurationRequest", "Private addresses are for internal load balancers")
		}
		if n := s.subnets.ByID[m.Subnet]; n != nil && lb.AddressType == "dualstack" && n.CIDRv6 == "" {
			return refuse("InvalidConfigurationRequest", "Subnet %s has no IPv6 CIDR block", m.Subnet)
		}
	}
	if len(subnets) == 0 {
		return refuse("ValidationError", "At least one subnet must be specified")
	}
	return s.checkPlaces(subnets, lb.Groups)
}

func (s *Sim) deleteNetwork(p *params) (answer, error) {
	arn := p.required("LoadBalancerArn")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := checkARN(arn, "loadbalancer/"); err != nil {
		return nil, err
	}
	lb := s.networks.ByID[arn]
	if lb == nil { // "If the load balancer does not exist or has already been deleted, the call succeeds."
		return nil, nil
	}
	if lb.Attributes["deletion_protection.enabled"] == "true" {
		return nil, refuse("OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled", arn)
	}
	s.removeNetworkLocked(lb)
	return nil, nil
}

// checkARN refuses what is no ARN of a kind of thing.
func checkARN(arn, kind string) error {
	if parts := strings.SplitN(arn, ":", 6); len(parts) < 6 || parts[0] != "arn" || !strings.HasPrefix(parts[5], kind) {
		return refuse("ValidationError", "'%s' is not a valid %s ARN", arn, strings.TrimSuffix(kind, "/"))
	}
	return nil
}

// The forms of where access logs go: a bucket, and a prefix of the characters that are safe in the names of objects.
var (
	bucketForm = regexp.MustCompile(`^([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])?$`)
	prefixForm = regexp.MustCompile(`^[a-zA-Z0-9!_.*'()/-]*$`)
)

// removeNetworkLocked removes a load balancer with its listeners. Its target groups stay.
func (s *Sim) removeNetworkLocked(lb *LoadBalancer) {
	for _, l := range s.listenersOf(lb.ARN) {
		s.haunt(l.TargetGroup, lb.ARN)
		s.listeners.Remove(l.ARN)
	}
	for _, m := range lb.Mappings {
		if m.Allocation != "" {
			s.eips[m.Allocation] = ""
		}
	}
	s.hold(lb.Groups)
	s.networks.Remove(lb.ARN)
}

// RemoveLoadBalancers deletes all load balancers of both kinds, as somebody does by hand. Their target groups and security groups stay.
func (s *Sim) RemoveLoadBalancers() {
	defer s.lock()()
	for _, lb := range slices.Clone(s.networks.All()) {
		s.removeNetworkLocked(lb)
	}
	for _, lb := range slices.Clone(s.classics.All()) {
		s.hold(lb.Groups)
		s.classics.Remove(lb.Name)
	}
}

func (s *Sim) showAttributes(a map[string]string) elem {
	return listOf(
		"Attributes", "member", anyOrder(s, slices.Sorted(maps.Keys(a))), func(k string) []elem {
			return []elem{tx("Key", k), {name: "Value", text: a[k]}}
		},
	)
}

func (p *params) attributes(known map[string]string) map[string]string {
	changed := map[string]string{}
	for _, in := range p.structs("Attributes") {
		key := in.required("Key")
		if _, ok := known[key]; !ok {
			p.note(refuse("ValidationError", "Attribute key '%s' is not recognized", key))
		}
		changed[key] = in.text("Value")
		if err := awslimits.AttributeValue.CheckText(changed[key]); err != nil {
			p.note(err)
		}
		if (strings.HasSuffix(key, ".bucket") && !bucketForm.MatchString(changed[key])) ||
			(strings.HasSuffix(key, ".prefix") && !prefixForm.MatchString(changed[key])) {
			p.note(refuse("ValidationError", "the value of %s is not valid", key))
		}
		if n, err := strconv.Atoi(changed[key]); strings.HasSuffix(key, "_seconds") && (err != nil || n < 0 || n > 3600) {
			p.note(refuse("ValidationError", "the value of %s must be a number from 0 to 3600", key))
		}
		if strings.HasSuffix(key, "enabled") && changed[key] != "true" && changed[key] != "false" {
			p.note(refuse("ValidationError", "the value of %s must be true or false", key))
		}
	}
	return changed
}

func (s *Sim) describeNetworkAttributes(p *params) (answer, error) {
	lb, err := s.network(p)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	return answer{s.showAttributes(lb.Attributes)}, nil
}

func (s *Sim) modifyNetworkAttributes(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	changed := p.attributes(lb.Attributes)
	if err := p.finish(); err != nil {
		return nil, err
	}
	wanted := maps.Clone(lb.Attributes)
	maps.Copy(wanted, changed)
	if wanted["access_logs.s3.enabled"] == "true" && wanted["access_logs.s3.bucket"] == "" {
		return nil, refuse("InvalidConfigurationRequest", "The value of 'access_logs.s3.bucket' cannot be empty")
	}
	lb.Attributes = wanted
	return answer{s.showAttributes(lb.Attributes)}, nil
}

func (s *Sim) setGroups(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	groups := p.list("SecurityGroups")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if len(lb.Groups) == 0 || len(groups) == 0 {
		return nil, refuse("InvalidConfigurationRequest", "You cannot add or remove all security groups of a load balancer of type network")
	}
	if err := s.checkPlaces(nil, groups); err != nil {
		return nil, err
	}
	lb.Groups = groups
	return answer{texts("SecurityGroupIds", "member", groups)}, nil
}

func (s *Sim) setSubnets(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	changed := *lb
	changed.Mappings = nil
	for _, n := range p.list("Subnets") {
		changed.Mappings = append(changed.Mappings, Mapping{Subnet: n})
	}
	if kind := p.choice("IpAddressType", "ipv4", "dualstack"); kind != "" {
		changed.AddressType = kind
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := s.checkMappings(&changed); err != nil {
		return nil, err
	}
	for i, m := range changed.Mappings {
		for _, have := range lb.Mappings {
			if have.Subnet == m.Subnet {
				changed.Mappings[i] = have
			}
		}
	}
	lb.Mappings, lb.AddressType = changed.Mappings, changed.AddressType
	return answer{tx("IpAddressType", lb.AddressType)}, nil
}

// tagged finds the tags of what has an ARN; nil if there is no such thing.
func (s *Sim) tagged(arn string) (Tags, error) {
	if lb := s.networks.ByID[arn]; lb != nil {
		return lb.Tags, nil
	}
	if t := s.targets.ByID[arn]; t != nil {
		return t.Tags, nil
	}
	if l := s.listeners.ByID[arn]; l != nil {
		return l.Tags, nil
	}
	code := "LoadBalancerNotFound"
	if strings.Contains(arn, ":targetgroup/") {
		code = "TargetGroupNotFound"
	}
	return nil, refuse(code, "'%s' not found", arn)
}

func (s *Sim) describeNetworkTags(p *params) (answer, error) {
	arns := p.list("ResourceArns")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if len(arns) == 0 || len(arns) > maxTagged {
		return nil, refuse("ValidationError", "1 to %d ARNs", maxTagged)
	}
	for _, arn := range arns {
		if _, err := s.tagged(arn); err != nil {
			return nil, err
		}
	}
	return answer{listOf("TagDescriptions", "member", anyOrder(s, arns), func(arn string) []elem {
		tags, _ := s.tagged(arn)
		return []elem{tx("ResourceArn", arn), s.showELBTags(tags)}
	})}, nil
}

func (s *Sim) addNetworkTags(p *params) (answer, error) {
	arns, tags := p.list("ResourceArns"), p.tags("Tags")
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, arn := range arns {
		have, err := s.tagged(arn)
		if err != nil {
			return nil, err
		}
		if err := addTags(have, tags); err != nil {
			return nil, err
		}
	}
	return nil, nil
}
