package awssim

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
)

// ClassicLB is a load balancer of the first generation.
type ClassicLB struct {
	Name, DNSName, Scheme, VPC string
	Listeners                  []*ClassicListener
	Subnets, Groups            []string
	Instances                  []string
	Tags                       Tags
	Check                      *HealthCheck
	Policies                   map[string]ClassicPolicy
	// Backends are the policies of instance ports.
	Backends   map[int][]string
	Attributes ClassicAttributes
	// NoCheck leaves the health check out of answers.
	NoCheck bool
	Created time.Time
}

// ClassicListener is a port of a classic load balancer.
type ClassicListener struct {
	Protocol, InstanceProtocol, Certificate string
	Port, InstancePort                      int
	Policies                                []string
}

// ClassicPolicy is a policy and what it says.
type ClassicPolicy struct {
	Type       string
	Attributes map[string]string
}

// HealthCheck of a classic load balancer.
type HealthCheck struct {
	Target                                string
	Interval, Timeout, Healthy, Unhealthy int
}

// ClassicAttributes of a classic load balancer.
type ClassicAttributes struct {
	CrossZone, AccessLog, Draining bool
	LogInterval                    int
	LogBucket, LogPrefix           string
	DrainingTimeout, IdleTimeout   int
}

// Classics returns all classic load balancers.
func (s *Sim) Classics() []ClassicLB { return copies(s, &s.classics, ClassicLB.clone) }

// AddClassic adds a classic load balancer as another controller made it.
func (s *Sim) AddClassic(lb ClassicLB) {
	defer s.lock()()
	lb.DNSName, lb.Created = lb.Name+"-1."+Region+".elb.amazonaws.com", time.Now()
	s.classics.Put(lb.Name, &lb)
}

// ChangeClassic alters a classic load balancer behind the API's back.
func (s *Sim) ChangeClassic(name string, change func(*ClassicLB)) {
	defer s.lock()()
	change(s.classics.ByID[name])
}

func classicOperations() map[string]handler {
	return map[string]handler{
		"DescribeLoadBalancers": (*Sim).describeClassics, "CreateLoadBalancer": (*Sim).createClassic, "DeleteLoadBalancer": (*Sim).deleteClassic,
		"DescribeLoadBalancerAttributes": (*Sim).describeClassicAttributes, "ModifyLoadBalancerAttributes": (*Sim).modifyClassicAttributes,
		"DescribeTags": (*Sim).describeClassicTags, "AddTags": (*Sim).addClassicTags,
		"RegisterInstancesWithLoadBalancer": (*Sim).registerInstances, "DeregisterInstancesFromLoadBalancer": (*Sim).deregisterInstances,
		"CreateLoadBalancerListeners": (*Sim).createClassicListeners, "DeleteLoadBalancerListeners": (*Sim).deleteClassicListeners,
		"CreateLoadBalancerPolicy": (*Sim).createPolicy, "DescribeLoadBalancerPolicies": (*Sim).describePolicies,
		"SetLoadBalancerPoliciesForBackendServer": (*Sim).setBackendPolicies, "SetLoadBalancerPoliciesOfListener": (*Sim).setListenerPolicies,
		"AttachLoadBalancerToSubnets": (*Sim).attachSubnets, "DetachLoadBalancerFromSubnets": (*Sim).detachSubnets,
		"ApplySecurityGroupsToLoadBalancer": (*Sim).applyGroups, "ConfigureHealthCheck": (*Sim).configureHealthCheck,
	}
}

func (s *Sim) classic(p *params) (*ClassicLB, error) {
	name := p.required("LoadBalancerName")
	lb := s.classics.ByID[name]
	if lb == nil {
		return nil, noClassic(name)
	}
	return lb, nil
}

func noClassic(name string) error {
	return refuse("LoadBalancerNotFound", "There is no ACTIVE Load Balancer named '%s'", name)
}

func (s *Sim) describeClassics(p *params) (answer, error) {
	names := p.list("LoadBalancerNames")
	list := slices.DeleteFunc(s.classics.All(), func(lb *ClassicLB) bool { return s.lagging(lb.Created) })
	if len(names) > 0 {
		list = nil
		for _, n := range names {
			lb := s.classics.ByID[n]
			if lb == nil || s.lagging(lb.Created) {
				return nil, noClassic(n)
			}
			list = append(list, lb)
		}
	}
	list, next := page(s, p, list, "PageSize", "Marker", 400, 400)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("LoadBalancerDescriptions", "member", list, func(lb *ClassicLB) []elem { return s.showClassic(lb) }), tx("NextMarker", next)}, nil
}

func (s *Sim) showClassic(lb *ClassicLB) []elem {
	check := elem{}
	if lb.Check != nil && !lb.NoCheck {
		check = el(
			"HealthCheck", tx("Target", lb.Check.Target), tx("Interval", lb.Check.Interval), tx("Timeout", lb.Check.Timeout),
			tx("HealthyThreshold", lb.Check.Healthy), tx("UnhealthyThreshold", lb.Check.Unhealthy),
		)
	}
	return []elem{
		tx("LoadBalancerName", lb.Name), tx("DNSName", lb.DNSName), tx("CanonicalHostedZoneNameID", "Z35SXDOTRQ7X7K"), tx("CreatedTime", lb.Created),
		tx("VPCId", cmp.Or(lb.VPC, VPC)), tx("Scheme", lb.Scheme),
		listOf("ListenerDescriptions", "member", anyOrder(s, lb.Listeners), func(l *ClassicListener) []elem {
			return []elem{
				el(
					"Listener", tx("Protocol", l.Protocol), tx("LoadBalancerPort", l.Port), tx("InstanceProtocol", l.InstanceProtocol), tx("InstancePort", l.InstancePort),
					tx("SSLCertificateId", l.Certificate),
				),
				texts("PolicyNames", "member", l.Policies),
			}
		}),
		el(
			"Policies", el("AppCookieStickinessPolicies"), el("LBCookieStickinessPolicies"),
			texts("OtherPolicies", "member", anyOrder(s, slices.Sorted(maps.Keys(lb.Policies)))),
		),
		listOf("BackendServerDescriptions", "member", anyOrder(s, slices.Sorted(maps.Keys(lb.Backends))), func(port int) []elem {
			return []elem{tx("InstancePort", port), texts("PolicyNames", "member", lb.Backends[port])}
		}),
		texts("AvailabilityZones", "member", anyOrder(s, s.zonesOf(lb.Subnets))), texts("Subnets", "member", anyOrder(s, lb.Subnets)),
		texts("SecurityGroups", "member", anyOrder(s, lb.Groups)),
		el("SourceSecurityGroup", tx("OwnerAlias", Account), tx("GroupName", "group")),
		listOf("Instances", "member", anyOrder(s, lb.Instances), func(id string) []elem { return []elem{tx("InstanceId", id)} }), check,
	}
}

func (s *Sim) zonesOf(subnets []string) []string {
	var zones []string
	for _, id := range subnets {
		if n := s.subnets.ByID[id]; n != nil {
			zones = append(zones, n.Zone)
		}
	}
	return zones
}

var balancerNameForm = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,30}[a-zA-Z0-9])?$`)

func (s *Sim) classicListeners(p *params) ([]*ClassicListener, error) {
	var list []*ClassicListener
	protocols := []string{"HTTP", "HTTPS", "TCP", "SSL"}
	for _, in := range p.structs("Listeners") {
		l := &ClassicListener{
			Protocol: strings.ToUpper(in.required("Protocol")), InstanceProtocol: strings.ToUpper(in.text("InstanceProtocol")),
			Certificate: in.text("SSLCertificateId"),
			Port:        *orZero(in.within("LoadBalancerPort", 1, 65535)), InstancePort: *orZero(in.within("InstancePort", 1, 65535)),
		}
		if l.InstanceProtocol == "" {
			l.InstanceProtocol = l.Protocol
		}
		layer7 := func(p string) bool { return strings.HasPrefix(p, "HTTP") }
		switch {
		case !slices.Contains(protocols, l.Protocol) || !slices.Contains(
			protocols, l.InstanceProtocol,
		) || layer7(l.Protocol) != layer7(l.InstanceProtocol):
			return nil, refuse("ValidationError", "the protocols %s and %s do not go together", l.Protocol, l.InstanceProtocol)
		case (l.Protocol == "HTTPS" || l.Protocol == "SSL") != (l.Certificate != ""):
			return nil, refuse("ValidationError", "a certificate is for HTTPS and SSL, which need one")
		case l.Certificate != "" && !strings.HasPrefix(l.Certificate, "arn:"):
			return nil, refuse("CertificateNotFound", "Server Certificate not found for the key: %s", l.Certificate)
		}
		list = append(list, l)
	}
	return list, nil
}

func orZero(n *int) *int {
	if n == nil {
		return new(int)
	}
	return n
}

func (s *Sim) checkPlaces(subnets, groups []string) error {
	zones := map[string]bool{}
	for _, id := range subnets {
		n := s.subnets.ByID[id]
		if n == nil {
			return refuse("SubnetNotFound", "The subnet ID '%s' does not exist", id)
		}
		if zones[n.Zone] {
			return refuse("InvalidConfigurationRequest", "A load balancer cannot be attached to multiple subnets in the same Availability Zone")
		}
		zones[n.Zone] = true
	}
	if err := awslimits.ClassicGroups.CheckNumber(len(groups)); err != nil {
		return err
	}
	for _, id := range groups {
		if g := s.groups.ByID[id]; g == nil || s.lagging(g.Created) {
			return refuse("InvalidSecurityGroup", "One or more security groups are invalid: %s", id)
		}
	}
	return nil
}

func (s *Sim) createClassic(p *params) (answer, error) {
	listeners, err := s.classicListeners(p)
	if err != nil {
		return nil, err
	}
	name := p.required("LoadBalancerName")
	lb := &ClassicLB{
		Name: name, Scheme: p.choice("Scheme", "internal", "internet-facing"), Listeners: listeners, Subnets: p.list("Subnets"),
		Groups: p.list("SecurityGroups"), Tags: p.tags("Tags"),
		Policies: map[string]ClassicPolicy{}, Backends: map[int][]string{}, Attributes: ClassicAttributes{IdleTimeout: 60, DrainingTimeout: 300},
		Created: time.Now(),
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	switch {
	case !balancerNameForm.MatchString(name):
		return nil, refuse("ValidationError", "LoadBalancer name %q is not valid", name)
	case s.classics.ByID[name] != nil:
		return nil, refuse("DuplicateLoadBalancerName", "The specified load balancer name already exists for this account: %s", name)
	case len(listeners) == 0 || len(lb.Subnets) == 0:
		return nil, refuse("ValidationError", "Listeners and Subnets must not be empty")
	}
	if err := s.checkPlaces(lb.Subnets, lb.Groups); err != nil {
		return nil, err
	}
	if lb.Scheme == "" {
		lb.Scheme = "internet-facing"
	}
	prefix := ""
	if lb.Scheme == "internal" {
		prefix = "internal-"
	}
	s.serial++
	lb.DNSName = fmt.Sprintf("%s%s-%d.%s.elb.amazonaws.com", prefix, name, 1000000000+s.serial, Region)
	lb.Check = &HealthCheck{fmt.Sprintf("TCP:%d", listeners[0].InstancePort), 30, 5, 10, 2}
	s.classics.Put(name, lb)
	return answer{tx("DNSName", lb.DNSName)}, nil
}

func (s *Sim) deleteClassic(p *params) (answer, error) {
	name := p.required("LoadBalancerName")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if lb := s.classics.ByID[name]; lb != nil { // "If the load balancer does not exist, the call succeeds"
		s.hold(lb.Groups)
		s.classics.Remove(name)
	}
	return nil, nil
}

// hold keeps security groups in use until the interfaces of a load balancer are gone.
func (s *Sim) hold(groups []string) {
	for _, g := range groups {
		s.holds[g] = time.Now().Add(s.options.Release)
	}
}

func (s *Sim) describeClassicAttributes(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	return answer{s.showClassicAttributes(lb)}, nil
}

func (*Sim) showClassicAttributes(lb *ClassicLB) elem {
	a := lb.Attributes
	log := el("AccessLog", tx("Enabled", a.AccessLog))
	if a.AccessLog {
		log.kids = append(log.kids, tx("S3BucketName", a.LogBucket), tx("S3BucketPrefix", a.LogPrefix), tx("EmitInterval", a.LogInterval))
	}
	return el("LoadBalancerAttributes", el("CrossZoneLoadBalancing", tx("Enabled", a.CrossZone)), log,
		el("ConnectionDraining", tx("Enabled", a.Draining), tx("Timeout", a.DrainingTimeout)), el("ConnectionSettings", tx("IdleTimeout", a.IdleTimeout)))
}

func (s *Sim) modifyClassicAttributes(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	a := lb.Attributes
	if in := p.inside("LoadBalancerAttributes"); in != nil {
		if c := in.inside("CrossZoneLoadBalancing"); c != nil {
			a.CrossZone = c.flag("Enabled")
		}
		if c := in.inside("AccessLog"); c != nil {
			a.AccessLog = c.flag("Enabled")
			a.LogBucket, a.LogPrefix, a.LogInterval = c.text("S3BucketName"), c.text("S3BucketPrefix"), 60
			if n := c.number("EmitInterval"); n != nil {
				a.LogInterval = *n
			}
			if err := a.checkLog(); err != nil {
				return nil, err
			}
		}
		if c := in.inside("ConnectionDraining"); c != nil {
			a.Draining = c.flag("Enabled")
			if n := c.within("Timeout", 1, 3600); n != nil {
				a.DrainingTimeout = *n
			}
		}
		if c := in.inside("ConnectionSettings"); c != nil {
			if n := c.within("IdleTimeout", 1, awslimits.ClassicIdle); n != nil {
				a.IdleTimeout = *n
			}
		}
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	lb.Attributes = a
	return answer{tx("LoadBalancerName", lb.Name), s.showClassicAttributes(lb)}, nil
}

func (a ClassicAttributes) checkLog() error {
	switch {
	case !bucketForm.MatchString(a.LogBucket) || !prefixForm.MatchString(a.LogPrefix):
		return refuse("InvalidConfigurationRequest", "The bucket %q or its prefix %q is not valid", a.LogBucket, a.LogPrefix)
	case a.AccessLog && (a.LogBucket == "" || (a.LogInterval != 5 && a.LogInterval != 60)):
		return refuse("InvalidConfigurationRequest", "Access log needs a bucket and an interval of 5 or 60")
	}
	return nil
}

const maxTagged = 20

func (s *Sim) showELBTags(tags Tags) elem {
	return listOf(
		"Tags", "member", anyOrder(s, slices.Sorted(maps.Keys(tags))), func(k string) []elem {
			return []elem{tx("Key", k), {name: "Value", text: tags[k]}}
		},
	)
}

func (s *Sim) describeClassicTags(p *params) (answer, error) {
	names := p.list("LoadBalancerNames")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if len(names) == 0 || len(names) > maxTagged {
		return nil, refuse("ValidationError", "1 to %d names", maxTagged)
	}
	for _, n := range names {
		if s.classics.ByID[n] == nil {
			return nil, noClassic(n)
		}
	}
	return answer{listOf("TagDescriptions", "member", anyOrder(s, names), func(n string) []elem {
		return []elem{tx("LoadBalancerName", n), s.showELBTags(s.classics.ByID[n].Tags)}
	})}, nil
}

func (s *Sim) addClassicTags(p *params) (answer, error) {
	names, tags := p.list("LoadBalancerNames"), p.tags("Tags")
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, n := range names {
		if s.classics.ByID[n] == nil {
			return nil, noClassic(n)
		}
	}
	for _, n := range names {
		if err := addTags(s.classics.ByID[n].Tags, tags); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

func (p *params) instanceIDs() []string {
	var ids []string
	for _, in := range p.structs("Instances") {
		ids = append(ids, in.required("InstanceId"))
	}
	return ids
}

func showInstanceIDs(ids []string) elem {
	return listOf("Instances", "member", ids, func(id string) []elem { return []elem{tx("InstanceId", id)} })
}

func (s *Sim) registerInstances(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	ids := p.instanceIDs()
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if i := s.VMs.ByID[id]; i == nil || i.State == "terminated" {
			return nil, refuse("InvalidInstance", "Could not find EC2 instance %s.", id)
		} else if i.VPC != VPC {
			return nil, refuse("InvalidInstance", "EC2 instance %s is not in the same VPC as ELB.", id)
		}
	}
	for _, id := range ids {
		if !slices.Contains(lb.Instances, id) {
			lb.Instances = append(lb.Instances, id)
		}
	}
	return answer{showInstanceIDs(lb.Instances)}, nil
}

func (s *Sim) deregisterInstances(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	ids := p.instanceIDs()
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, id := range ids {
		if s.VMs.ByID[id] == nil {
			return nil, refuse("InvalidInstance", "Could not find EC2 instance %s.", id)
		}
	}
	lb.Instances = slices.DeleteFunc(lb.Instances, func(id string) bool { return slices.Contains(ids, id) })
	return answer{showInstanceIDs(lb.Instances)}, nil
}

func (s *Sim) createClassicListeners(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	listeners, err := s.classicListeners(p)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	for _, l := range listeners {
		for _, have := range lb.Listeners {
			if have.Port == l.Port {
				return nil, refuse("DuplicateListener", "A listener already exists for %s with LoadBalancerPort %d, but with a different InstancePort, Protocol, or SSLCertificateId", lb.Name, l.Port)
			}
		}
	}
	lb.Listeners = append(lb.Listeners, listeners...)
	return nil, nil
}

func (s *Sim) deleteClassicListeners(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	var ports []int
	for _, text := range p.list("LoadBalancerPorts") {
		n, err := strconv.Atoi(text)
		if err != nil {
			return nil, refuse("ValidationError", "%q is not a port", text)
		}
		if n < 1 || n > 65535 {
			return nil, refuse("ValidationError", "Port %d is out of range", n)
		}
		ports = append(ports, n)
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	lb.Listeners = slices.DeleteFunc(lb.Listeners, func(l *ClassicListener) bool { return slices.Contains(ports, l.Port) })
	used := map[int]bool{}
	for _, l := range lb.Listeners {
		used[l.InstancePort] = true
	}
	return nil, nil
}

var policyNameForm = regexp.MustCompile(`^[a-zA-Z0-9-]+$`)

func (s *Sim) createPolicy(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	name, policy := p.required("PolicyName"), ClassicPolicy{Type: p.required("PolicyTypeName"), Attributes: map[string]string{}}
	for _, in := range p.structs("PolicyAttributes") {
		policy.Attributes[in.required("AttributeName")] = in.text("AttributeValue")
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	if !policyNameForm.MatchString(name) {
		return nil, refuse("ValidationError", "Policy name '%s' must contain only letters, digits and dashes", name)
	}
	if have, exists := lb.Policies[name]; exists && (have.Type != policy.Type || !maps.Equal(have.Attributes, policy.Attributes)) {
		return nil, refuse("DuplicatePolicyName", "Policy %s already exists for LoadBalancer %s", name, lb.Name)
	}
	switch {
	case policy.Type == "ProxyProtocolPolicyType" && policy.Attributes["ProxyProtocol"] == "true":
	case policy.Type == "SSLNegotiationPolicyType" && strings.HasPrefix(policy.Attributes["Reference-Security-Policy"], "ELBSecurityPolicy-"):
	default:
		return nil, refuse("InvalidConfigurationRequest", "the policy %v is not valid", policy)
	}
	lb.Policies[name] = policy
	return nil, nil
}

func (s *Sim) describePolicies(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	names := p.list("PolicyNames")
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, n := range names {
		if _, exists := lb.Policies[n]; !exists {
			return nil, refuse("PolicyNotFound", "There is no policy with name %s for load balancer %s", n, lb.Name)
		}
	}
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(lb.Policies))
	}
	return answer{listOf("PolicyDescriptions", "member", names, func(n string) []elem {
		return []elem{tx("PolicyName", n), tx(
			"PolicyTypeName", lb.Policies[n].Type,
		), listOf("PolicyAttributeDescriptions", "member", slices.Sorted(maps.Keys(lb.Policies[n].Attributes)), func(k string) []elem {
			return []elem{tx("AttributeName", k), tx("AttributeValue", lb.Policies[n].Attributes[k])}
		})}
	})}, nil
}

func (lb *ClassicLB) knowsPolicies(names []string) error {
	for _, n := range names {
		if _, exists := lb.Policies[n]; !exists {
			return refuse("PolicyNotFound", "There is no policy with name %s for load balancer %s", n, lb.Name)
		}
	}
	return nil
}

func (s *Sim) setBackendPolicies(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	port, names := *orZero(p.within("InstancePort", 1, 65535)), p.list("PolicyNames")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := lb.knowsPolicies(names); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(lb.Listeners, func(l *ClassicListener) bool { return l.InstancePort == port }) && len(names) > 0 {
		return nil, refuse("InvalidConfigurationRequest", "no listener has the instance port %d", port)
	}
	if len(names) == 0 {
		delete(lb.Backends, port)
	} else {
		lb.Backends[port] = names
	}
	return nil, nil
}

func (s *Sim) setListenerPolicies(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	port, names := *orZero(p.within("LoadBalancerPort", 1, 65535)), p.list("PolicyNames")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := lb.knowsPolicies(names); err != nil {
		return nil, err
	}
	for _, l := range lb.Listeners {
		if l.Port == port {
			l.Policies = names
			return nil, nil
		}
	}
	return nil, refuse("ListenerNotFound", "There is no listener on port %d", port)
}

func (s *Sim) attachSubnets(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	add := p.list("Subnets")
	if err := p.finish(); err != nil {
		return nil, err
	}
	wanted := slices.Concat(lb.Subnets, slices.DeleteFunc(slices.Clone(add), func(id string) bool { return slices.Contains(lb.Subnets, id) }))
	if err := s.checkPlaces(wanted, nil); err != nil {
		return nil, err
	}
	lb.Subnets = wanted
	return answer{texts("Subnets", "member", lb.Subnets)}, nil
}

func (s *Sim) detachSubnets(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	gone := p.list("Subnets")
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, id := range gone {
		if s.subnets.ByID[id] == nil {
			return nil, refuse("InvalidConfigurationRequest", "The subnet ID '%s' does not exist", id)
		}
	}
	left := slices.DeleteFunc(slices.Clone(lb.Subnets), func(id string) bool { return slices.Contains(gone, id) })
	if len(left) == 0 {
		return nil, refuse("InvalidConfigurationRequest", "Cannot detach all subnets")
	}
	lb.Subnets = left
	return answer{texts("Subnets", "member", lb.Subnets)}, nil
}

func (s *Sim) applyGroups(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	groups := p.list("SecurityGroups")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := s.checkPlaces(nil, groups); err != nil {
		return nil, err
	}
	if len(groups) == 0 {
		return nil, &fault{http.StatusBadRequest, "InvalidConfigurationRequest", "at least one security group"}
	}
	lb.Groups = groups
	return answer{texts("SecurityGroups", "member", groups)}, nil
}

var checkForm = regexp.MustCompile(`^(TCP|SSL):[0-9]+$|^(HTTP|HTTPS):[0-9]+/[!-~]*$`)

func (s *Sim) configureHealthCheck(p *params) (answer, error) {
	lb, err := s.classic(p)
	if err != nil {
		return nil, err
	}
	in := p.inside("HealthCheck")
	if in == nil {
		return nil, refuse("ValidationError", "HealthCheck is missing")
	}
	c := &HealthCheck{
		Target: in.required("Target"), Interval: *orZero(in.within("Interval", 5, 300)), Timeout: *orZero(in.within("Timeout", 2, 60)),
		Healthy: *orZero(in.within("HealthyThreshold", 2, 10)), Unhealthy: *orZero(in.within("UnhealthyThreshold", 2, 10)),
	}
	if err := p.finish(); err != nil {
		return nil, err
	}
	kind, rest, _ := strings.Cut(c.Target, ":")
	c.Target = strings.ToUpper(kind) + ":" + rest
	if !checkForm.MatchString(c.Target) || c.Timeout >= c.Interval {
		return nil, refuse("ValidationError", "HealthCheck %v is not valid", *c)
	}
	lb.Check = c
	return answer{el("HealthCheck", tx("Target", c.Target))}, nil
}
