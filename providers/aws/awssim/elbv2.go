package awssim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// LoadBalancer is a network load balancer; Type tells where it is an application load balancer.
type LoadBalancer struct {
	ARN, Name, DNSName, Scheme, Type, AddressType string
	Mappings                                      []Mapping
	Groups                                        []string
	Tags                                          Tags
	Attributes                                    map[string]string
	// State overrides what the time since the creation says.
	State   string
	Created time.Time
}

// Mapping is a subnet of a load balancer and its fixed addresses there.
type Mapping struct{ Subnet, Allocation, PrivateIP string }

// Listener is a port of a load balancer.
type Listener struct {
	ARN, LoadBalancer, Protocol, Policy, TargetGroup string
	Port                                             int
	Certificates                                     []string
	Tags                                             Tags
}

// TargetGroup is a set of targets.
type TargetGroup struct {
	ARN, Name, Protocol, Type, AddressType      string
	CheckProtocol, CheckPort, CheckPath         string
	Port, Interval, Timeout, Healthy, Unhealthy int
	Targets                                     []*Target
	Attributes                                  map[string]string
	Tags                                        Tags
}

// Target is an instance and a port; State is initial, healthy or draining.
type Target struct {
	ID    string
	Port  int
	State string
}

// Networks returns all load balancers of the second generation.
func (s *Sim) Networks() []LoadBalancer { return copies(s, &s.networks, LoadBalancer.clone) }

// Listeners returns all listeners.
func (s *Sim) Listeners() []Listener { return copies(s, &s.listeners, Listener.clone) }

// TargetGroups returns all target groups.
func (s *Sim) TargetGroups() []TargetGroup { return copies(s, &s.targets, TargetGroup.clone) }

// ChangeNetwork alters a load balancer behind the API's back.
func (s *Sim) ChangeNetwork(name string, change func(*LoadBalancer)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, lb := range s.networks.all() {
		if lb.Name == name {
			change(lb)
		}
	}
}

// ChangeTargetGroup alters a target group behind the API's back.
func (s *Sim) ChangeTargetGroup(arn string, change func(*TargetGroup)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.targets.byID[arn])
}

// AddNetwork adds a load balancer that somebody else made.
func (s *Sim) AddNetwork(name, kind string, tags Tags) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.putNetwork(&LoadBalancer{Name: name, Type: kind, Scheme: "internet-facing", AddressType: "ipv4", Tags: tags})
}

// ImportNetwork adds a network load balancer as another controller made it. Each listener sends to the target group with
// the same index, and each target group to the instance.
func (s *Sim) ImportNetwork(name string, lb LoadBalancer, targets []TargetGroup, listeners []Listener, instance string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	lb.Name, lb.Type = name, "network"
	attributes := lb.Attributes
	s.putNetwork(&lb)
	lb.Attributes = attributes
	for i := range targets {
		t, l := targets[i], listeners[i]
		t.ARN, t.Targets = s.arn("targetgroup/"+t.Name), []*Target{{ID: instance, Port: t.Port, State: "healthy"}}
		s.targets.put(t.ARN, &t)
		l.ARN, l.LoadBalancer, l.TargetGroup = s.arn("listener/net/"+name), lb.ARN, t.ARN
		s.listeners.put(l.ARN, &l)
	}
}

// DeleteNetwork deletes a load balancer and its listeners behind the API's back.
func (s *Sim) DeleteNetwork(arn string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.listenersOf(arn) {
		s.listeners.remove(l.ARN)
	}
	s.networks.remove(arn)
}

// AddTargetGroup adds a target group that somebody else made.
func (s *Sim) AddTargetGroup(t TargetGroup) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t.ARN = s.arn("targetgroup/" + t.Name)
	s.targets.put(t.ARN, &t)
}

// AddElasticIP adds an elastic address and returns its allocation ID.
func (s *Sim) AddElasticIP() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	id := s.newID("eipalloc")
	s.eips[id] = ""
	return id
}

func (s *Sim) arn(path string) string {
	s.serial++
	return fmt.Sprintf("arn:aws:elasticloadbalancing:%s:%s:%s/%016x", Region, Account, path, s.serial)
}

func (s *Sim) listenersOf(arn string) []*Listener {
	return slices.DeleteFunc(s.listeners.all(), func(l *Listener) bool { return l.LoadBalancer != arn })
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
		"DeleteTargetGroup": (*Sim).deleteTargetGroup, "DescribeTargetGroupAttributes": (*Sim).describeTargetGroupAttributes, "ModifyTargetGroupAttributes": (*Sim).modifyTargetGroupAttributes,
		"DescribeTargetHealth": (*Sim).describeTargetHealth, "RegisterTargets": (*Sim).registerTargets, "DeregisterTargets": (*Sim).deregisterTargets,
		"DescribeListeners": (*Sim).describeListeners, "CreateListener": (*Sim).createListener, "ModifyListener": (*Sim).modifyListener, "DeleteListener": (*Sim).deleteListener,
	}
}

func (s *Sim) network(p *params) (*LoadBalancer, error) {
	arn := p.required("LoadBalancerArn")
	lb := s.networks.byID[arn]
	if lb == nil {
		return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", arn)
	}
	return lb, nil
}

func (s *Sim) describeNetworks(p *params) (answer, error) {
	names, arns := p.list("Names"), p.list("LoadBalancerArns")
	list := s.networks.all()
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
	if err := p.done(); err != nil {
		return nil, err
	}
	return answer{listOf("LoadBalancers", "member", list, s.showNetwork), tx("NextMarker", next)}, nil
}

func (s *Sim) showNetwork(lb *LoadBalancer) []elem {
	groups := texts("SecurityGroups", "member", lb.Groups)
	if len(lb.Groups) == 0 {
		groups = elem{}
	}
	return []elem{
		tx("LoadBalancerArn", lb.ARN), tx("LoadBalancerName", lb.Name), tx("DNSName", lb.DNSName), tx("CanonicalHostedZoneId", "Z26RNL4JYFTOTI"), tx("CreatedTime", lb.Created),
		tx("Scheme", lb.Scheme), tx("Type", lb.Type), tx("VpcId", VPC), tx("IpAddressType", lb.AddressType), el("State", tx("Code", s.stateOf(lb))), groups,
		listOf("AvailabilityZones", "member", lb.Mappings, func(m Mapping) []elem {
			zone := ""
			if n := s.subnets.byID[m.Subnet]; n != nil {
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
	s.networks.put(lb.ARN, lb)
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
	if err := p.done(); err != nil {
		return nil, err
	}
	lb.Scheme, lb.AddressType = cmp.Or(lb.Scheme, "internet-facing"), cmp.Or(lb.AddressType, "ipv4")
	if !balancerNameForm.MatchString(lb.Name) || strings.HasPrefix(lb.Name, "internal-") || lb.Type != "network" {
		return nil, refuse("ValidationError", "the name %q or type %q is not valid", lb.Name, lb.Type)
	}
	for _, have := range s.networks.all() {
		if have.Name != lb.Name {
			continue
		}
		if !have.sameAs(lb) {
			return nil, refuse("DuplicateLoadBalancerName", "A load balancer with the same name '%s' exists, but with different settings", lb.Name)
		}
		return answer{listOf("LoadBalancers", "member", []*LoadBalancer{have}, s.showNetwork)}, nil
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

// sameAs reports whether the settings are those of another creation, which then answers with what exists.
func (lb *LoadBalancer) sameAs(o *LoadBalancer) bool {
	return lb.Scheme == o.Scheme && lb.Type == o.Type && lb.AddressType == o.AddressType && slices.Equal(lb.Groups, o.Groups) && slices.Equal(lb.Mappings, o.Mappings) && maps.Equal(lb.Tags, o.Tags)
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
		case m.PrivateIP != "" && lb.Scheme != "internal":
			return refuse("InvalidConfigurationRequest", "Private addresses are for internal load balancers")
		}
		if n := s.subnets.byID[m.Subnet]; n != nil && lb.AddressType == "dualstack" && n.CIDRv6 == "" {
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
	if err := p.done(); err != nil {
		return nil, err
	}
	lb := s.networks.byID[arn]
	if lb == nil { // "If the load balancer does not exist or has already been deleted, the call succeeds."
		return nil, nil
	}
	if lb.Attributes["deletion_protection.enabled"] == "true" {
		return nil, refuse("OperationNotPermitted", "Load balancer '%s' cannot be deleted because deletion protection is enabled", arn)
	}
	for _, l := range s.listenersOf(arn) {
		s.listeners.remove(l.ARN)
	}
	for _, m := range lb.Mappings {
		if m.Allocation != "" {
			s.eips[m.Allocation] = ""
		}
	}
	s.hold(lb.Groups)
	s.networks.remove(arn)
	return nil, nil
}

func showAttributes(a map[string]string) elem {
	return listOf("Attributes", "member", slices.Sorted(maps.Keys(a)), func(k string) []elem { return []elem{tx("Key", k), {name: "Value", text: a[k]}} })
}

func (p *params) attributes(known map[string]string) map[string]string {
	changed := map[string]string{}
	for _, in := range p.structs("Attributes") {
		key := in.required("Key")
		if _, ok := known[key]; !ok {
			p.note(refuse("ValidationError", "Attribute key '%s' is not recognized", key))
		}
		changed[key] = in.text("Value")
		if strings.HasSuffix(key, "enabled") && changed[key] != "true" && changed[key] != "false" {
			p.note(refuse("ValidationError", "the value of %s must be true or false", key))
		}
	}
	return changed
}

func (s *Sim) describeNetworkAttributes(p *params) (answer, error) {
	lb, err := s.network(p)
	if err == nil {
		err = p.done()
	}
	if err != nil {
		return nil, err
	}
	return answer{showAttributes(lb.Attributes)}, nil
}

func (s *Sim) modifyNetworkAttributes(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	changed := p.attributes(lb.Attributes)
	if err := p.done(); err != nil {
		return nil, err
	}
	wanted := maps.Clone(lb.Attributes)
	maps.Copy(wanted, changed)
	if wanted["access_logs.s3.enabled"] == "true" && wanted["access_logs.s3.bucket"] == "" {
		return nil, refuse("InvalidConfigurationRequest", "The value of 'access_logs.s3.bucket' cannot be empty")
	}
	lb.Attributes = wanted
	return answer{showAttributes(lb.Attributes)}, nil
}

func (s *Sim) setGroups(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	groups := p.list("SecurityGroups")
	if err := p.done(); err != nil {
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
	if err := p.done(); err != nil {
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
	if lb := s.networks.byID[arn]; lb != nil {
		return lb.Tags, nil
	}
	if t := s.targets.byID[arn]; t != nil {
		return t.Tags, nil
	}
	if l := s.listeners.byID[arn]; l != nil {
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
	if err := p.done(); err != nil {
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
	return answer{listOf("TagDescriptions", "member", arns, func(arn string) []elem {
		tags, _ := s.tagged(arn)
		return []elem{tx("ResourceArn", arn), showELBTags(tags)}
	})}, nil
}

func (s *Sim) addNetworkTags(p *params) (answer, error) {
	arns, tags := p.list("ResourceArns"), p.tags("Tags")
	if err := p.done(); err != nil {
		return nil, err
	}
	for _, arn := range arns {
		have, err := s.tagged(arn)
		if err != nil {
			return nil, err
		}
		maps.Copy(have, tags)
	}
	return nil, nil
}

// attached returns the load balancers that send to a target group.
func (s *Sim) attached(arn string) []string {
	var list []string
	for _, l := range s.listeners.all() {
		if l.TargetGroup == arn && !slices.Contains(list, l.LoadBalancer) {
			list = append(list, l.LoadBalancer)
		}
	}
	return list
}

func (s *Sim) describeTargetGroups(p *params) (answer, error) {
	arns, names, of := p.list("TargetGroupArns"), p.list("Names"), p.text("LoadBalancerArn")
	list := s.targets.all()
	if len(arns)+len(names) > 0 {
		list = slices.DeleteFunc(list, func(t *TargetGroup) bool { return !slices.Contains(arns, t.ARN) && !slices.Contains(names, t.Name) })
		if len(list) < len(arns)+len(names) {
			return nil, refuse("TargetGroupNotFound", "One or more target groups not found")
		}
	}
	if of != "" {
		if s.networks.byID[of] == nil {
			return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", of)
		}
		list = slices.DeleteFunc(list, func(t *TargetGroup) bool { return !slices.Contains(s.attached(t.ARN), of) })
	}
	list, next := page(s, p, list, "PageSize", "Marker", 400, 400)
	if err := p.done(); err != nil {
		return nil, err
	}
	return answer{listOf("TargetGroups", "member", list, s.showTargetGroup), tx("NextMarker", next)}, nil
}

func (s *Sim) showTargetGroup(t *TargetGroup) []elem {
	return []elem{
		tx("TargetGroupArn", t.ARN), tx("TargetGroupName", t.Name), tx("Protocol", t.Protocol), tx("Port", t.Port), tx("VpcId", VPC), tx("TargetType", t.Type), tx("IpAddressType", t.AddressType),
		tx("HealthCheckEnabled", true), tx("HealthCheckProtocol", t.CheckProtocol), tx("HealthCheckPort", t.CheckPort), tx("HealthCheckPath", t.CheckPath),
		tx("HealthCheckIntervalSeconds", t.Interval), tx("HealthCheckTimeoutSeconds", t.Timeout), tx("HealthyThresholdCount", t.Healthy), tx("UnhealthyThresholdCount", t.Unhealthy),
		texts("LoadBalancerArns", "member", s.attached(t.ARN)),
	}
}

// healthCheck reads the settings of a health check into a target group.
func (p *params) healthCheck(t *TargetGroup) {
	if v := p.choice("HealthCheckProtocol", "TCP", "HTTP", "HTTPS"); v != "" {
		if v != t.CheckProtocol {
			t.CheckPath, t.Timeout = "", 10
			if v == "HTTP" {
				t.Timeout = 6
			}
		}
		t.CheckProtocol = v
	}
	if v := p.text("HealthCheckPort"); v != "" {
		if n, err := strconv.Atoi(v); v != "traffic-port" && (err != nil || n < 1 || n > 65535) {
			p.note(refuse("ValidationError", "Health check port '%s' is not valid", v))
		}
		t.CheckPort = v
	}
	if v := p.text("HealthCheckPath"); v != "" {
		if t.CheckProtocol == "TCP" {
			p.note(refuse("ValidationError", "Health check path is not supported for health checks with the protocol TCP"))
		}
		if !strings.HasPrefix(v, "/") {
			p.note(refuse("ValidationError", "Health check path '%s' must begin with a '/' character", v))
		}
		t.CheckPath = v
	}
	if t.CheckProtocol != "TCP" && t.CheckPath == "" {
		t.CheckPath = "/"
	}
	for name, n := range map[string]struct {
		at          *int
		least, most int
	}{
		"HealthCheckIntervalSeconds": {&t.Interval, 5, 300}, "HealthCheckTimeoutSeconds": {&t.Timeout, 2, 120},
		"HealthyThresholdCount": {&t.Healthy, 2, 10}, "UnhealthyThresholdCount": {&t.Unhealthy, 2, 10},
	} {
		if v := p.within(name, n.least, n.most); v != nil {
			*n.at = *v
		}
	}
}

func (s *Sim) createTargetGroup(p *params) (answer, error) {
	t := &TargetGroup{
		Name: p.required("Name"), Protocol: p.choice("Protocol", "TCP", "UDP", "TLS", "TCP_UDP"), Port: *orZero(p.within("Port", 1, 65535)), Type: p.choice("TargetType", "instance"),
		AddressType: p.choice("IpAddressType", "ipv4", "ipv6"), CheckProtocol: "TCP", CheckPort: "traffic-port", Interval: 30, Timeout: 10, Healthy: 5, Unhealthy: 2, Tags: p.tags("Tags"),
		Attributes: map[string]string{"proxy_protocol_v2.enabled": "false", "preserve_client_ip.enabled": "true", "deregistration_delay.timeout_seconds": "300", "stickiness.enabled": "false"},
	}
	p.healthCheck(t)
	vpc := p.required("VpcId")
	if err := p.done(); err != nil {
		return nil, err
	}
	t.AddressType = cmp.Or(t.AddressType, "ipv4")
	if !balancerNameForm.MatchString(t.Name) || vpc != VPC || t.Protocol == "" {
		return nil, refuse("ValidationError", "the name %q, the VPC %s or the protocol %q is not valid", t.Name, vpc, t.Protocol)
	}
	for _, have := range s.targets.all() {
		if have.Name != t.Name {
			continue
		}
		if have.settings() != t.settings() {
			return nil, refuse("DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings", t.Name)
		}
		return answer{listOf("TargetGroups", "member", []*TargetGroup{have}, s.showTargetGroup)}, nil
	}
	t.ARN = s.arn("targetgroup/" + t.Name)
	s.targets.put(t.ARN, t)
	return answer{listOf("TargetGroups", "member", []*TargetGroup{t}, s.showTargetGroup)}, nil
}

// settings are what must be equal for a creation to answer with what exists.
func (t *TargetGroup) settings() string {
	return fmt.Sprint(t.Protocol, t.Port, t.CheckProtocol, t.CheckPort, t.CheckPath, t.Interval, t.Healthy, t.Unhealthy, t.AddressType)
}

func (s *Sim) targetGroup(p *params) (*TargetGroup, error) {
	arn := p.required("TargetGroupArn")
	t := s.targets.byID[arn]
	if t == nil {
		return nil, refuse("TargetGroupNotFound", "Target groups '%s' not found", arn)
	}
	return t, nil
}

func (s *Sim) modifyTargetGroup(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	changed := *t
	p.healthCheck(&changed)
	if err := p.done(); err != nil {
		return nil, err
	}
	if s.options.FixedHealthChecks && (changed.CheckProtocol != t.CheckProtocol || changed.Interval != t.Interval) {
		return nil, refuse("InvalidConfigurationRequest", "You cannot change the health check protocol or interval for a target group with the %s protocol", t.Protocol)
	}
	*t = changed
	return answer{listOf("TargetGroups", "member", []*TargetGroup{t}, s.showTargetGroup)}, nil
}

func (s *Sim) deleteTargetGroup(p *params) (answer, error) {
	arn := p.required("TargetGroupArn")
	if err := p.done(); err != nil {
		return nil, err
	}
	if len(s.attached(arn)) > 0 {
		return nil, refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", arn)
	}
	s.targets.remove(arn)
	return nil, nil
}

func (s *Sim) describeTargetGroupAttributes(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err == nil {
		err = p.done()
	}
	if err != nil {
		return nil, err
	}
	return answer{showAttributes(t.Attributes)}, nil
}

func (s *Sim) modifyTargetGroupAttributes(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	changed := p.attributes(t.Attributes)
	if err := p.done(); err != nil {
		return nil, err
	}
	if changed["preserve_client_ip.enabled"] == "false" && strings.Contains(t.Protocol, "UDP") {
		return nil, refuse("InvalidConfigurationRequest", "Client IP preservation cannot be disabled for UDP")
	}
	maps.Copy(t.Attributes, changed)
	return answer{showAttributes(t.Attributes)}, nil
}

func (s *Sim) describeTargetHealth(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err == nil {
		err = p.done()
	}
	if err != nil {
		return nil, err
	}
	return answer{listOf("TargetHealthDescriptions", "member", t.Targets, func(one *Target) []elem {
		health := el("TargetHealth", tx("State", one.State))
		if one.State == "draining" {
			health.kids = append(health.kids, tx("Reason", "Target.DeregistrationInProgress"))
		}
		return []elem{el("Target", tx("Id", one.ID), tx("Port", one.Port)), tx("HealthCheckPort", one.Port), health}
	})}, nil
}

const maxTargets = 500

func (p *params) targets(t *TargetGroup) []*Target {
	var list []*Target
	for _, in := range p.structs("Targets") {
		one := &Target{ID: in.required("Id"), Port: t.Port, State: "healthy"}
		if n := in.within("Port", 1, 65535); n != nil {
			one.Port = *n
		}
		list = append(list, one)
	}
	return list
}

func (s *Sim) registerTargets(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	list := p.targets(t)
	if err := p.done(); err != nil {
		return nil, err
	}
	for _, one := range list {
		if i := s.instances.byID[one.ID]; i == nil || i.State != "running" {
			return nil, refuse("InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", one.ID)
		}
	}
	for _, one := range list {
		t.Targets = slices.DeleteFunc(t.Targets, func(have *Target) bool { return have.ID == one.ID && have.Port == one.Port })
	}
	if len(t.Targets)+len(list) > maxTargets {
		return nil, refuse("TooManyTargets", "The maximum number of targets per target group has been reached")
	}
	t.Targets = append(t.Targets, list...)
	return nil, nil
}

func (s *Sim) deregisterTargets(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	list := p.targets(t)
	if err := p.done(); err != nil {
		return nil, err
	}
	t.Targets = slices.DeleteFunc(t.Targets, func(have *Target) bool {
		return slices.ContainsFunc(list, func(one *Target) bool { return one.ID == have.ID && one.Port == have.Port })
	})
	return nil, nil
}

func (s *Sim) describeListeners(p *params) (answer, error) {
	of := p.text("LoadBalancerArn")
	if s.networks.byID[of] == nil {
		return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", of)
	}
	list, next := page(s, p, s.listenersOf(of), "PageSize", "Marker", 400, 400)
	if err := p.done(); err != nil {
		return nil, err
	}
	return answer{listOf("Listeners", "member", list, showListener), tx("NextMarker", next)}, nil
}

func showListener(l *Listener) []elem {
	return []elem{
		tx("ListenerArn", l.ARN), tx("LoadBalancerArn", l.LoadBalancer), tx("Port", l.Port), tx("Protocol", l.Protocol), tx("SslPolicy", l.Policy),
		listOf("Certificates", "member", l.Certificates, func(c string) []elem { return []elem{tx("CertificateArn", c)} }),
		el("DefaultActions", el("member", tx("Type", "forward"), tx("Order", 1), tx("TargetGroupArn", l.TargetGroup))),
	}
}

// readListener reads what a call wishes of a listener.
func (s *Sim) readListener(p *params, l *Listener) {
	if n := p.within("Port", 1, 65535); n != nil {
		l.Port = *n
	}
	if v := p.choice("Protocol", "TCP", "UDP", "TLS", "TCP_UDP"); v != "" {
		l.Protocol = v
	}
	if p.has("SslPolicy") {
		l.Policy = p.text("SslPolicy")
	}
	if in := p.structs("Certificates"); in != nil || p.has("Certificates") {
		l.Certificates = nil
		for _, c := range in {
			l.Certificates = append(l.Certificates, c.required("CertificateArn"))
		}
	}
	for _, a := range p.structs("DefaultActions") {
		a.choice("Type", "forward")
		a.number("Order")
		l.TargetGroup = a.required("TargetGroupArn")
	}
	if l.Protocol != "TLS" {
		l.Policy, l.Certificates = "", nil
	} else if l.Policy == "" {
		l.Policy = "ELBSecurityPolicy-2016-08"
	}
}

func (s *Sim) checkListener(l *Listener) error {
	t := s.targets.byID[l.TargetGroup]
	if t == nil {
		return refuse("TargetGroupNotFound", "Target groups '%s' not found", l.TargetGroup)
	}
	for _, have := range s.listenersOf(l.LoadBalancer) {
		if have.Port == l.Port && have.ARN != l.ARN {
			return refuse("DuplicateListener", "A listener already exists on this port for this load balancer '%s'", l.LoadBalancer)
		}
	}
	for _, other := range s.attached(l.TargetGroup) {
		if other != l.LoadBalancer {
			return refuse("TargetGroupAssociationLimit", "The target group is used by another load balancer")
		}
	}
	return s.checkProtocols(l, t)
}

// checkProtocols refuses what does not go together of a listener, its target group and its load balancer.
func (s *Sim) checkProtocols(l *Listener, t *TargetGroup) error {
	fits := map[string][]string{"TCP": {"TCP"}, "UDP": {"UDP"}, "TLS": {"TCP", "TLS"}, "TCP_UDP": {"TCP_UDP"}}
	lb := s.networks.byID[l.LoadBalancer]
	switch {
	case !slices.Contains(fits[l.Protocol], t.Protocol):
		return refuse("IncompatibleProtocols", "The listener protocol %s does not go with the target group protocol %s", l.Protocol, t.Protocol)
	case l.Protocol == "TLS" && len(l.Certificates) != 1:
		return refuse("ValidationError", "A certificate must be specified for TLS listeners")
	case l.Protocol == "TLS" && !strings.HasPrefix(l.Policy, "ELBSecurityPolicy-"):
		return refuse("SSLPolicyNotFound", "SSL policy '%s' not found", l.Policy)
	case l.Protocol == "TLS" && !strings.HasPrefix(l.Certificates[0], "arn:"):
		return refuse("CertificateNotFound", "Certificate '%s' not found", l.Certificates[0])
	case strings.Contains(l.Protocol, "UDP") && lb.AddressType == "dualstack":
		return refuse("InvalidConfigurationRequest", "A dualstack load balancer does not support the protocol %s here", l.Protocol)
	case t.AddressType == "ipv6" && lb.AddressType != "dualstack":
		return refuse("InvalidConfigurationRequest", "An ipv6 target group needs a dualstack load balancer")
	}
	return nil
}

func (s *Sim) createListener(p *params) (answer, error) {
	lb, err := s.network(p)
	if err != nil {
		return nil, err
	}
	l := &Listener{LoadBalancer: lb.ARN, Tags: p.tags("Tags")}
	s.readListener(p, l)
	if err := p.done(); err != nil {
		return nil, err
	}
	if err := s.checkListener(l); err != nil {
		return nil, err
	}
	l.ARN = s.arn(strings.TrimPrefix(strings.SplitN(lb.ARN, ":", 6)[5], "loadbalancer/"))
	l.ARN = strings.Replace(l.ARN, ":net/", ":listener/net/", 1)
	s.listeners.put(l.ARN, l)
	return answer{listOf("Listeners", "member", []*Listener{l}, showListener)}, nil
}

func (s *Sim) modifyListener(p *params) (answer, error) {
	l := s.listeners.byID[p.required("ListenerArn")]
	if l == nil {
		return nil, refuse("ListenerNotFound", "One or more listeners not found")
	}
	changed := *l
	s.readListener(p, &changed)
	if err := p.done(); err != nil {
		return nil, err
	}
	if err := s.checkListener(&changed); err != nil {
		return nil, err
	}
	*l = changed
	return answer{listOf("Listeners", "member", []*Listener{l}, showListener)}, nil
}

func (s *Sim) deleteListener(p *params) (answer, error) {
	arn := p.required("ListenerArn")
	if err := p.done(); err != nil {
		return nil, err
	}
	if s.listeners.byID[arn] == nil {
		return nil, refuse("ListenerNotFound", "One or more listeners not found")
	}
	s.listeners.remove(arn)
	return nil, nil
}
