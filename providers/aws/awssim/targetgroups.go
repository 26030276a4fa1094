package awssim

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
)

// TargetGroup is a set of targets.
type TargetGroup struct {
	ARN, Name, Protocol, Type, AddressType      string
	CheckProtocol, CheckPort, CheckPath         string
	Port, Interval, Timeout, Healthy, Unhealthy int
	Targets                                     []*Target
	Attributes                                  map[string]string
	Tags                                        Tags
	Created                                     time.Time

	// leaving are targets that were deregistered and still have connections.
	leaving []leavingTarget
}

// leavingTarget is a target that is drained, and until when.
type leavingTarget struct {
	Target
	until time.Time
}

// drain keeps a deregistered target for as long as the attribute of its target group says.
func (t *TargetGroup) drain(one *Target) {
	seconds, err := strconv.Atoi(t.Attributes["deregistration_delay.timeout_seconds"])
	if err != nil || seconds <= 0 {
		return
	}
	gone := *one
	gone.State = stateDraining
	t.leaving = append(t.leaving, leavingTarget{gone, time.Now().Add(time.Duration(seconds) * time.Second)})
}

// shown are the targets as the API shows them: those that are registered, and those that are drained.
func (t *TargetGroup) shown() []*Target {
	t.leaving = slices.DeleteFunc(t.leaving, func(l leavingTarget) bool { return !time.Now().Before(l.until) })
	list := slices.Clone(t.Targets)
	for i := range t.leaving {
		list = append(list, &t.leaving[i].Target)
	}
	return list
}

const stateDraining = "draining"

// Draining returns the instances that are drained, one for each of their targets.
func (s *Sim) Draining() []string {
	defer s.lock()()
	var list []string
	for _, t := range s.targets.All() {
		for _, one := range t.shown()[len(t.Targets):] {
			list = append(list, one.ID)
		}
	}
	return list
}

// Target is an instance and a port; State is initial, healthy or draining.
type Target struct {
	ID    string
	Port  int
	State string
}

// TargetGroups returns all target groups.
func (s *Sim) TargetGroups() []TargetGroup { return copies(s, &s.targets, TargetGroup.clone) }

// AddTargetGroup adds a target group that somebody else made.
func (s *Sim) AddTargetGroup(t TargetGroup) {
	defer s.lock()()
	t.ARN = s.arn("targetgroup/" + t.Name)
	s.targets.Put(t.ARN, &t)
}

// ghost is a deleted load balancer that a target group still shows, and until when.
type ghost struct {
	loadBalancer string
	until        time.Time
}

// goneLoadBalancer is the name of a load balancer in refusals after its deletion.
const goneLoadBalancer = "a load balancer that was deleted"

// haunt keeps a target group in use for a while after its load balancer is gone.
func (s *Sim) haunt(targetGroup, loadBalancer string) {
	s.ghosts[targetGroup] = ghost{loadBalancer, time.Now().Add(s.options.Release)}
}

// attached returns the load balancers that send to a target group, and the one that just did.
func (s *Sim) attached(arn string) []string {
	var list []string
	if g, haunted := s.ghosts[arn]; haunted && time.Now().Before(g.until) {
		list = append(list, g.loadBalancer)
	}
	for _, l := range s.listeners.All() {
		if l.TargetGroup == arn && !slices.Contains(list, l.LoadBalancer) {
			list = append(list, l.LoadBalancer)
		}
	}
	return list
}

func (s *Sim) describeTargetGroups(p *params) (answer, error) {
	arns, names, of := p.list("TargetGroupArns"), p.list("Names"), p.text("LoadBalancerArn")
	list := slices.DeleteFunc(s.targets.All(), func(t *TargetGroup) bool { return s.lagging(t.Created) })
	if len(arns)+len(names) > 0 {
		list = slices.DeleteFunc(list, func(t *TargetGroup) bool { return !slices.Contains(arns, t.ARN) && !slices.Contains(names, t.Name) })
		if len(list) < len(arns)+len(names) {
			return nil, refuse("TargetGroupNotFound", "One or more target groups not found")
		}
	}
	if of != "" {
		if s.networks.ByID[of] == nil {
			return nil, refuse("LoadBalancerNotFound", "Load balancer '%s' not found", of)
		}
		list = slices.DeleteFunc(list, func(t *TargetGroup) bool { return !slices.Contains(s.attached(t.ARN), of) })
	}
	list, next := page(s, p, list, "PageSize", "Marker", 400, 400)
	if err := p.finish(); err != nil {
		return nil, err
	}
	return answer{listOf("TargetGroups", "member", list, s.showTargetGroup), tx("NextMarker", next)}, nil
}

func (s *Sim) showTargetGroup(t *TargetGroup) []elem {
	return []elem{
		tx("TargetGroupArn", t.ARN), tx("TargetGroupName", t.Name), tx("Protocol", t.Protocol), tx("Port", t.Port), tx("VpcId", VPC), tx("TargetType", t.Type),
		tx("IpAddressType", t.AddressType),
		tx("HealthCheckEnabled", true), tx("HealthCheckProtocol", t.CheckProtocol), tx("HealthCheckPort", t.CheckPort), tx("HealthCheckPath", t.CheckPath),
		tx("HealthCheckIntervalSeconds", t.Interval), tx("HealthCheckTimeoutSeconds", t.Timeout), tx("HealthyThresholdCount", t.Healthy),
		tx("UnhealthyThresholdCount", t.Unhealthy),
		texts("LoadBalancerArns", "member", s.attached(t.ARN)),
	}
}

// usualTimeout is the time-out of a check whose creator gives none.
func usualTimeout(protocol string) int {
	if protocol == "HTTP" {
		return 6
	}
	return 10
}

// healthCheck reads the settings of a health check into a target group.
func (p *params) healthCheck(t *TargetGroup) {
	if v := p.choice("HealthCheckProtocol", "TCP", "HTTP", "HTTPS"); v != "" {
		if v != t.CheckProtocol {
			t.CheckPath, t.Timeout = "", usualTimeout(v)
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
		at              *int
		lowest, highest int
	}{
		"HealthCheckIntervalSeconds": {&t.Interval, 5, 300}, "HealthCheckTimeoutSeconds": {&t.Timeout, 2, 120},
		"HealthyThresholdCount": {&t.Healthy, 2, 10}, "UnhealthyThresholdCount": {&t.Unhealthy, 2, 10},
	} {
		if v := p.within(name, n.lowest, n.highest); v != nil {
			*n.at = *v
		}
	}
}

func (s *Sim) createTargetGroup(p *params) (answer, error) {
	t := &TargetGroup{
		Name: p.required("Name"), Protocol: p.choice("Protocol", "TCP", "UDP", "TLS", "TCP_UDP"), Port: *orZero(p.within("Port", 1, 65535)),
		Type:        p.choice("TargetType", "instance"),
		AddressType: p.choice("IpAddressType", "ipv4", "ipv6"), CheckProtocol: "TCP", CheckPort: "traffic-port", Interval: 30, Timeout: 10, Healthy: 5,
		Unhealthy: 2, Tags: p.tags("Tags"),
		Attributes: map[string]string{
			"proxy_protocol_v2.enabled": "false", "preserve_client_ip.enabled": "true", "deregistration_delay.timeout_seconds": "300", "stickiness.enabled": "false",
		},
	}
	p.healthCheck(t)
	vpc := p.required("VpcId")
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := t.checkTimes(); err != nil {
		return nil, err
	}
	t.AddressType = cmp.Or(t.AddressType, "ipv4")
	if !balancerNameForm.MatchString(t.Name) || vpc != VPC || t.Protocol == "" {
		return nil, refuse("ValidationError", "the name %q, the VPC %s or the protocol %q is not valid", t.Name, vpc, t.Protocol)
	}
	for _, have := range s.targets.All() {
		if have.Name != t.Name {
			continue
		}
		if have.settings() != t.settings() {
			return nil, refuse("DuplicateTargetGroupName", "A target group with the same name '%s' exists, but with different settings", t.Name)
		}
		return answer{listOf("TargetGroups", "member", []*TargetGroup{have}, s.showTargetGroup)}, nil
	}
	if len(s.targets.All()) >= awslimits.TargetGroups.Max {
		return nil, refuse("TooManyTargetGroups", "You've reached the limit on the number of target groups for your account")
	}
	t.ARN, t.Created = s.arn("targetgroup/"+t.Name), time.Now()
	s.targets.Put(t.ARN, t)
	return answer{listOf("TargetGroups", "member", []*TargetGroup{t}, s.showTargetGroup)}, nil
}

// checkTimes refuses checks that are not over when the next one begins, whoever chose their times.
func (t *TargetGroup) checkTimes() error {
	if t.Timeout >= t.Interval {
		return refuse("ValidationError", "Health check interval must be greater than the timeout")
	}
	return nil
}

// settings returns the fields that must be equal for a creation to return the existing group.
func (t *TargetGroup) settings() string {
	return fmt.Sprint(t.Protocol, t.Port, t.CheckProtocol, t.CheckPort, t.CheckPath, t.Interval, t.Healthy, t.Unhealthy, t.AddressType)
}

func (s *Sim) targetGroup(p *params) (*TargetGroup, error) {
	arn := p.required("TargetGroupArn")
	t := s.targets.ByID[arn]
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
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := changed.checkTimes(); err != nil {
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
	if err := p.finish(); err != nil {
		return nil, err
	}
	if err := checkARN(arn, "targetgroup/"); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(s.listeners.All(), func(l *Listener) bool { return l.TargetGroup == arn }) {
		return nil, refuse("ResourceInUse", "Target group '%s' is currently in use by a listener or a rule", arn)
	}
	if len(s.attached(arn)) > 0 {
		return nil, refuse("ResourceInUse", "Target group '%s' is currently in use by %s", arn, goneLoadBalancer)
	}
	s.targets.Remove(arn)
	return nil, nil
}

func (s *Sim) describeTargetGroupAttributes(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	return answer{s.showAttributes(t.Attributes)}, nil
}

func (s *Sim) modifyTargetGroupAttributes(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	changed := p.attributes(t.Attributes)
	if err := p.finish(); err != nil {
		return nil, err
	}
	if changed["preserve_client_ip.enabled"] == "false" && strings.Contains(t.Protocol, "UDP") {
		return nil, refuse("InvalidConfigurationRequest", "Client IP preservation cannot be disabled for UDP")
	}
	maps.Copy(t.Attributes, changed)
	return answer{s.showAttributes(t.Attributes)}, nil
}

func (s *Sim) describeTargetHealth(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err == nil {
		err = p.finish()
	}
	if err != nil {
		return nil, err
	}
	return answer{listOf("TargetHealthDescriptions", "member", anyOrder(s, t.shown()), func(one *Target) []elem {
		state, reason := one.State, ""
		switch {
		case state == stateDraining:
			reason = "Target.DeregistrationInProgress"
		case s.usedBy(t) == nil:
			state, reason = "unused", "Target.NotInUse"
		case !s.checked(t, one):
			state, reason = "unhealthy", "Target.FailedHealthChecks"
		}
		health := el("TargetHealth", tx("State", state), tx("Reason", reason))
		return []elem{el("Target", tx("Id", one.ID), tx("Port", one.Port)), tx("HealthCheckPort", one.Port), health}
	})}, nil
}

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
	if err := p.finish(); err != nil {
		return nil, err
	}
	for _, one := range list {
		if i := s.VMs.ByID[one.ID]; i == nil || i.State != "running" {
			return nil, refuse("InvalidTarget", "The following targets are not in a running state and cannot be registered: '%s'", one.ID)
		} else if i.VPC != VPC {
			return nil, refuse("InvalidTarget", "The following targets are not in the target group VPC '%s': '%s'", VPC, one.ID)
		}
	}
	again := func(have *Target) bool {
		return slices.ContainsFunc(list, func(one *Target) bool { return have.ID == one.ID && have.Port == one.Port })
	}
	after := slices.Concat(slices.DeleteFunc(slices.Clone(t.Targets), again), list)
	if len(after) > awslimits.Targets.Max {
		return nil, refuse("TooManyTargets", "The maximum number of targets per target group has been reached")
	}
	t.Targets = after
	t.leaving = slices.DeleteFunc(t.leaving, func(l leavingTarget) bool { return again(&l.Target) })
	return nil, nil
}

func (s *Sim) deregisterTargets(p *params) (answer, error) {
	t, err := s.targetGroup(p)
	if err != nil {
		return nil, err
	}
	list := p.targets(t)
	if err := p.finish(); err != nil {
		return nil, err
	}
	inUse := s.usedBy(t) != nil // nothing is drained where no load balancer sends anything
	t.Targets = slices.DeleteFunc(t.Targets, func(have *Target) bool {
		goes := slices.ContainsFunc(list, func(one *Target) bool { return one.ID == have.ID && one.Port == have.Port })
		if goes && inUse {
			t.drain(have)
		}
		return goes
	})
	return nil, nil
}
