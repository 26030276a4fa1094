package aws

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Defaults of AWS's own controller for classic load balancers.
const (
	classicHealthy   = 2
	classicUnhealthy = 6
	classicTimeout   = 5
	classicInterval  = 10
	classicIdle      = 60
	// maxClassicTimeout is AWS's bound on the time-out of a health check.
	maxClassicTimeout = 60
	// localCheckPath is where kube-proxy reports whether a node runs pods of a Service.
	localCheckPath = "/healthz"

	schemeInternal = "internal"
	schemePublic   = "internet-facing"
)

// classicLoadBalancer is a classic load balancer as the API shows it, listeners, instances and policies included.
type classicLoadBalancer = elbtypes.LoadBalancerDescription

// classicListener is a port of a classic load balancer.
type classicListener struct {
	port, instancePort         int32
	protocol, instanceProtocol string
	certificate                string
}

func (l classicListener) endsTLS() bool { return l.protocol == "SSL" || l.protocol == "HTTPS" }

func newClassicListener(l *elbtypes.Listener) classicListener {
	return classicListener{
		l.LoadBalancerPort, aws.ToInt32(l.InstancePort), strings.ToUpper(aws.ToString(l.Protocol)),
		cmp.Or(strings.ToUpper(aws.ToString(l.InstanceProtocol)), strings.ToUpper(aws.ToString(l.Protocol))), aws.ToString(l.SSLCertificateId),
	}
}

func (l classicListener) sdk() elbtypes.Listener {
	return elbtypes.Listener{
		LoadBalancerPort: l.port, InstancePort: aws.Int32(l.instancePort), Protocol: aws.String(l.protocol),
		InstanceProtocol: aws.String(l.instanceProtocol),
		SSLCertificateId: nilIfEmpty(l.certificate),
	}
}

// equals compares as AWS does: the ARN of a certificate counts in any case.
func (l classicListener) equals(o classicListener) bool {
	if !strings.EqualFold(l.certificate, o.certificate) {
		return false
	}
	l.certificate, o.certificate = "", ""
	return l == o
}

// desiredClassic is the desired state of a classic load balancer.
type desiredClassic struct {
	name, scheme string
	listeners    []classicListener
	subnets      []string
	// zones are those of all subnets of the VPC, by ID.
	zones map[string]string
	desiredGroups
	// rules are the rules in the nodes' groups; nil leaves those alone.
	rules      *classicRules
	check      elbtypes.HealthCheck
	attributes elbtypes.LoadBalancerAttributes
	// proxyPorts are the instance ports that get the PROXY protocol.
	proxyPorts []int32
	tlsPolicy  string
	tags       map[string]string
	instances  []string
	// backends are all that may serve, those that do not run yet included.
	backends backends
}

// desireClassic returns the state that a Service requests, without its security groups.
func desireClassic(
	service *v1.Service, s settings, c Config, id *identity, scheme string, subnets []string, b backends,
) desiredClassic {
	running, _ := b.ids()
	d := desiredClassic{
		name: loadBalancerName(service), scheme: scheme, listeners: classicListeners(service, s), subnets: subnets,
		attributes: desiredClassicAttributes(s), tags: tagsFor(id, service, s), tlsPolicy: s.TLSPolicy, instances: running, backends: b,
	}
	d.check = classicCheck(service, s, c, d.listeners)
	if s.ProxyProtocol == "" {
		return d
	}
	for _, port := range d.listeners {
		if !slices.Contains(d.proxyPorts, port.instancePort) {
			d.proxyPorts = append(d.proxyPorts, port.instancePort)
		}
	}
	return d
}

// desireGroups adds the security groups: those that annotations or the option name, else one of its own.
func (d *desiredClassic) desireGroups(service *v1.Service, s settings, c Config, id *identity, all map[string]securityGroup) error {
	name := classicGroupName(d.name)
	if d.groups = givenClassicGroups(s, c); len(d.groups) == 0 {
		if err := d.desireOwn(id, all, &ownGroup{
			name: name, description: classicGroupDescription(d.name, service), tags: mergeTags(s.tags, id.ownershipTags()),
			rules: classicFrontRules(*d, s), mine: ownFrontRule(descriptionFront + d.name),
		}); err != nil {
			return err
		}
	}
	for _, g := range s.ExtraGroups {
		if !slices.Contains(d.groups, g) {
			d.groups = append(d.groups, g)
		}
	}
	d.leaveOthers(id, all, func(g securityGroup) bool { return g.name == name })
	return nil
}

// givenClassicGroups are the security groups that the annotation or the option names; without any it has one of its own.
func givenClassicGroups(s settings, c Config) []string {
	if len(s.Groups) == 0 && c.ClassicGroup != "" {
		return []string{c.ClassicGroup}
	}
	return slices.Clone(s.Groups)
}

// classicFrontRules returns the ingress rules of a classic load balancer.
func classicFrontRules(d desiredClassic, s settings) []rule {
	ports := make([]frontPort, len(d.listeners))
	for i, p := range d.listeners {
		ports[i] = frontPort{protocolTCP, p.port}
	}
	return frontRules(ports, rangesOf(s, false), descriptionFront+d.name)
}

// stayingInstances are the instances that run, and those that are registered and may stay.
func stayingInstances(lb *classicLoadBalancer, b backends) []string {
	running, eligible := b.ids()
	want := slices.Clone(running)
	for _, i := range lb.Instances {
		if id := aws.ToString(i.InstanceId); (b.keepRegistered || slices.Contains(eligible, id)) && !slices.Contains(want, id) {
			want = append(want, id)
		}
	}
	return want
}

// onlySubnetFindings report a subnet that AWS does not replace.
func onlySubnetFindings(lb *classicLoadBalancer, d desiredClassic) []services.Finding {
	if len(lb.Subnets) != 1 || len(d.subnets) != 1 || lb.Subnets[0] == d.subnets[0] || d.zones[lb.Subnets[0]] != d.zones[d.subnets[0]] {
		return nil
	}
	return []services.Finding{services.Warning(services.EventFixed, "the load balancer stays in subnet %s: AWS does not replace the only subnet by "+
		"another one of the same zone, %s; name one of another zone as well in %s", lb.Subnets[0], d.subnets[0], annotationSubnets)}
}

// classicListeners are the listeners of a Service. A port without a node port has none.
func classicListeners(service *v1.Service, s settings) []classicListener {
	var list []classicListener
	for _, p := range service.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		l := classicListener{port: p.Port, instancePort: p.NodePort, protocol: "TCP", instanceProtocol: "TCP"}
		switch {
		case s.endsTLS(p):
			l.protocol, l.certificate = "SSL", s.Certificate
			switch s.BackendProtocol {
			case textSSL:
				l.instanceProtocol = "SSL"
			case textHTTP, textHTTPS:
				l.protocol, l.instanceProtocol = "HTTPS", strings.ToUpper(s.BackendProtocol)
			}
		case s.BackendProtocol == textHTTP:
			l.protocol, l.instanceProtocol = "HTTP", "HTTP"
		}
		list = append(list, l)
	}
	return list
}

// classicCheck is the health check of a Service.
func classicCheck(service *v1.Service, s settings, c Config, listeners []classicListener) elbtypes.HealthCheck {
	protocol, path := "TCP", ""
	port := int32(0)
	if len(listeners) > 0 {
		port = listeners[0].instancePort
	}
	first := port
	if backend := strings.ToLower(s.BackendProtocol); backend == textHTTPS || backend == textSSL {
		protocol = "SSL"
	}
	local := service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal && service.Spec.HealthCheckNodePort != 0
	switch {
	case local:
		protocol, port, path = "HTTP", service.Spec.HealthCheckNodePort, localCheckPath
	case c.HealthProbeMode == probeShared:
		protocol, port, path = "HTTP", int32(c.SharedProbePort), c.SharedProbePath //nolint:gosec // the table bounds it
	}
	if s.CheckProtocol != "" {
		protocol = strings.ToUpper(s.CheckProtocol)
	}
	if s.CheckPort == trafficPort {
		port = first
	} else if n, err := strconv.ParseInt(s.CheckPort, 10, 32); err == nil {
		port = int32(n)
	}
	path = cmp.Or(s.CheckPath, path, "/")
	if protocol != "HTTP" && protocol != "HTTPS" {
		path = ""
	}
	or := func(n, standard int) *int32 { return aws.Int32(int32(cmp.Or(n, standard))) } //nolint:gosec // the table bounds it
	return elbtypes.HealthCheck{
		Target: aws.String(fmt.Sprintf("%s:%d%s", protocol, port, path)), HealthyThreshold: or(s.Healthy, classicHealthy),
		UnhealthyThreshold: or(s.Unhealthy, classicUnhealthy),
		Timeout:            or(s.CheckTimeout, classicTimeout), Interval: or(s.CheckInterval, classicInterval),
	}
}

// desiredClassicAttributes are the attributes of a Service; those that are nil stay as they are.
func desiredClassicAttributes(s settings) elbtypes.LoadBalancerAttributes {
	number := func(n int) *int32 {
		if n == 0 {
			return nil
		}
		return aws.Int32(int32(n)) //nolint:gosec // the table bounds it
	}
	a := elbtypes.LoadBalancerAttributes{
		AccessLog:              &elbtypes.AccessLog{Enabled: s.AccessLog},
		ConnectionDraining:     &elbtypes.ConnectionDraining{Enabled: s.Draining, Timeout: number(s.DrainingTimeout)},
		ConnectionSettings:     &elbtypes.ConnectionSettings{IdleTimeout: number(cmp.Or(s.IdleTimeout, classicIdle))},
		CrossZoneLoadBalancing: &elbtypes.CrossZoneLoadBalancing{Enabled: s.CrossZone},
	}
	if s.AccessLog {
		a.AccessLog.EmitInterval = number(s.AccessLogInterval)
		a.AccessLog.S3BucketName, a.AccessLog.S3BucketPrefix = nilIfEmpty(s.AccessLogBucket), nilIfEmpty(s.AccessLogPrefix)
	}
	return a
}

// sameAttributes reports whether attributes are as wanted; what is not wanted does not count.
func sameAttributes(want, have elbtypes.LoadBalancerAttributes) bool {
	number := func(want, have *int32) bool { return want == nil || (have != nil && *want == *have) }
	text := func(want, have *string) bool { return aws.ToString(want) == aws.ToString(have) }
	if have.AccessLog == nil || have.ConnectionDraining == nil || have.ConnectionSettings == nil || have.CrossZoneLoadBalancing == nil {
		return false
	}
	logs := want.AccessLog.Enabled == have.AccessLog.Enabled
	if want.AccessLog.Enabled {
		logs = logs && text(want.AccessLog.S3BucketName, have.AccessLog.S3BucketName) &&
			text(want.AccessLog.S3BucketPrefix, have.AccessLog.S3BucketPrefix) && number(want.AccessLog.EmitInterval, have.AccessLog.EmitInterval)
	}
	draining := want.ConnectionDraining.Enabled == have.ConnectionDraining.Enabled &&
		(!want.ConnectionDraining.Enabled || number(want.ConnectionDraining.Timeout, have.ConnectionDraining.Timeout))
	return logs && draining && number(want.ConnectionSettings.IdleTimeout, have.ConnectionSettings.IdleTimeout) &&
		want.CrossZoneLoadBalancing.Enabled == have.CrossZoneLoadBalancing.Enabled
}

// sameCheck reports whether a health check is as wanted; an answer without one is not.
func sameCheck(want elbtypes.HealthCheck, have *elbtypes.HealthCheck) bool {
	return have != nil && aws.ToString(want.Target) == aws.ToString(have.Target) &&
		aws.ToInt32(want.HealthyThreshold) == aws.ToInt32(have.HealthyThreshold) &&
		aws.ToInt32(want.UnhealthyThreshold) == aws.ToInt32(have.UnhealthyThreshold) && aws.ToInt32(want.Timeout) == aws.ToInt32(have.Timeout) &&
		aws.ToInt32(want.Interval) == aws.ToInt32(have.Interval)
}

// step is one call that changes a load balancer.
type step struct {
	// what names the step in logs and errors.
	what string
	// input is the call's input, and send makes the call.
	input any
	send  func(context.Context, *api) (output any, err error)
	// group is the name of the target group whose ARN the input gets; it may be one that an earlier step makes.
	group string
	// loadBalancer is the ARN of the load balancer that a target group is made for.
	loadBalancer string
	// before holds the present values of the input's fields, under the same names, for plan.
	before any
}

// newStep returns the step that makes one call.
func newStep[C client, Option, In, Out any](
	what string, do func(C, context.Context, *In, ...func(*Option)) (*Out, error), in *In,
) step {
	return step{what: what, input: in, send: func(ctx context.Context, a *api) (any, error) { return call(ctx, a, what, do, in) }}
}

// replacing adds the present values that the step changes.
func (s step) replacing(before any) step {
	s.before = before
	return s
}

// onGroup makes the input get the ARN of a target group by its name.
func (s step) onGroup(name string) step {
	s.group = name
	return s
}

// compare returns the fields that the step changes, before and after it.
func (s step) compare() (before, after any) {
	switch {
	case !s.deletes():
	case s.before != nil:
		return s.before, nil
	default:
		return s.input, nil
	}
	after = s.input
	if in, ok := after.(*elbv2.ModifyListenerInput); ok && s.group != "" && in.DefaultActions[0].TargetGroupArn == nil {
		shown := *in // the target group has yet to be made, and is shown by its name
		shown.DefaultActions = slices.Clone(in.DefaultActions)
		shown.DefaultActions[0].TargetGroupArn = aws.String(s.group)
		after = &shown
	}
	return services.Within(s.before, after), after
}

// deletes reports whether the step takes a part of the load balancer away.
func (s step) deletes() bool {
	verb, _, _ := strings.Cut(s.what, " ")
	return slices.Contains([]string{"deleting", "deregistering", "detaching"}, verb)
}

// classicSteps returns the calls that make a classic load balancer what it should be.
func classicSteps(lb *classicLoadBalancer, attributes elbtypes.LoadBalancerAttributes, tags map[string]string, want desiredClassic) []step {
	name := lb.LoadBalancerName
	steps := classicSubnetSteps(lb, want)
	if len(want.groups) > 0 && !services.SameSet(lb.SecurityGroups, want.groups) {
		in := &elb.ApplySecurityGroupsToLoadBalancerInput{LoadBalancerName: name, SecurityGroups: want.groups}
		steps = append(steps, newStep("setting security groups", (*elb.Client).ApplySecurityGroupsToLoadBalancer, in).replacing(lb))
	}
	steps = append(steps, classicListenerSteps(lb, want)...)
	steps = append(steps, proxySteps(lb, want)...)
	if missing := missingTags(want.tags, tags); len(missing) > 0 {
		in := &elb.AddTagsInput{LoadBalancerNames: []string{aws.ToString(name)}, Tags: elbTags(missing)}
		steps = append(steps, newStep("adding tags", (*elb.Client).AddTags, in))
	}
	if !sameAttributes(want.attributes, attributes) {
		in := &elb.ModifyLoadBalancerAttributesInput{LoadBalancerName: name, LoadBalancerAttributes: &want.attributes}
		steps = append(steps, newStep("changing attributes", (*elb.Client).ModifyLoadBalancerAttributes, in).
			replacing(map[string]any{"LoadBalancerAttributes": attributes}))
	}
	steps = append(steps, tlsPolicySteps(lb, want)...)
	if len(want.listeners) > 0 && !sameCheck(want.check, lb.HealthCheck) {
		in := &elb.ConfigureHealthCheckInput{LoadBalancerName: name, HealthCheck: &want.check}
		steps = append(steps, newStep("setting the health check", (*elb.Client).ConfigureHealthCheck, in).replacing(lb))
	}
	return append(steps, classicInstanceSteps(lb, want.instances)...)
}

// classicSubnetSteps replaces subnets. A load balancer always has one, and no two of a zone: subnets of zones that it does not
// have yet come first, then the others take the places of their zones one by one, and what is left over goes last. The only
// subnet cannot be replaced by another one of its zone.
func classicSubnetSteps(lb *classicLoadBalancer, want desiredClassic) []step {
	if len(want.subnets) == 0 {
		return nil
	}
	var steps []step
	attach := func(ids ...string) {
		in := &elb.AttachLoadBalancerToSubnetsInput{LoadBalancerName: lb.LoadBalancerName, Subnets: ids}
		steps = append(steps, newStep("attaching subnets", (*elb.Client).AttachLoadBalancerToSubnets, in))
	}
	detach := func(ids ...string) {
		in := &elb.DetachLoadBalancerFromSubnetsInput{LoadBalancerName: lb.LoadBalancerName, Subnets: ids}
		steps = append(steps, newStep("detaching subnets", (*elb.Client).DetachLoadBalancerFromSubnets, in))
	}
	gone, fresh := difference(lb.Subnets, want.subnets), difference(want.subnets, lb.Subnets)
	slices.Sort(gone)
	inTheWay := func(id string) int {
		return slices.IndexFunc(gone, func(g string) bool { return want.zones[g] != "" && want.zones[g] == want.zones[id] })
	}
	free := slices.DeleteFunc(slices.Clone(fresh), func(id string) bool { return inTheWay(id) >= 0 })
	if len(free) > 0 {
		attach(free...)
	}
	attached := len(lb.Subnets) + len(free)
	for _, id := range difference(fresh, free) {
		if n := inTheWay(id); n >= 0 && attached > 1 {
			detach(gone[n])
			attach(id)
			gone = slices.Delete(gone, n, n+1)
		}
	}
	if len(gone) > 0 && len(gone) < attached {
		detach(gone...)
	}
	return steps
}

func classicListenerSteps(lb *classicLoadBalancer, want desiredClassic) []step {
	var gone []int32
	var fresh []elbtypes.Listener
	for _, d := range lb.ListenerDescriptions {
		if d.Listener != nil && !slices.ContainsFunc(want.listeners, newClassicListener(d.Listener).equals) {
			gone = append(gone, d.Listener.LoadBalancerPort)
		}
	}
	for _, l := range want.listeners {
		if !slices.ContainsFunc(lb.ListenerDescriptions, func(d elbtypes.ListenerDescription) bool {
			return d.Listener != nil && newClassicListener(d.Listener).equals(l)
		}) {
			fresh = append(fresh, l.sdk())
		}
	}
	var steps []step
	if len(gone) > 0 {
		in := &elb.DeleteLoadBalancerListenersInput{LoadBalancerName: lb.LoadBalancerName, LoadBalancerPorts: gone}
		steps = append(steps, newStep("deleting listeners", (*elb.Client).DeleteLoadBalancerListeners, in))
	}
	if len(fresh) > 0 {
		in := &elb.CreateLoadBalancerListenersInput{LoadBalancerName: lb.LoadBalancerName, Listeners: fresh}
		steps = append(steps, newStep("creating listeners", (*elb.Client).CreateLoadBalancerListeners, in))
	}
	return steps
}

// proxySteps switches the PROXY protocol of instance ports.
func proxySteps(lb *classicLoadBalancer, want desiredClassic) []step {
	has := map[int32][]string{}
	for _, b := range lb.BackendServerDescriptions {
		has[aws.ToInt32(b.InstancePort)] = b.PolicyNames
	}
	var steps []step
	set := func(what string, port int32, policies []string) {
		in := &elb.SetLoadBalancerPoliciesForBackendServerInput{
			LoadBalancerName: lb.LoadBalancerName, InstancePort: aws.Int32(port), PolicyNames: policies,
		}
		steps = append(steps, newStep(what, (*elb.Client).SetLoadBalancerPoliciesForBackendServer, in).
			replacing(map[string]any{"PolicyNames": has[port]}))
	}
	for _, port := range want.proxyPorts {
		if slices.Contains(has[port], policyProxy) {
			continue
		}
		if steps == nil && !hasPolicy(lb, policyProxy) {
			steps = append(steps, newPolicyStep(lb, "creating the policy of the PROXY protocol", policyProxy, "ProxyProtocolPolicyType", "ProxyProtocol", textTrue))
		}
		set("switching on the PROXY protocol", port, append(slices.Clone(has[port]), policyProxy))
	}
	for _, port := range slices.Sorted(maps.Keys(has)) {
		if slices.Contains(has[port], policyProxy) && !slices.Contains(want.proxyPorts, port) {
			set("switching off the PROXY protocol", port, append([]string{}, difference(has[port], []string{policyProxy})...))
		}
	}
	return steps
}

func hasPolicy(lb *classicLoadBalancer, name string) bool {
	return lb.Policies != nil && slices.Contains(lb.Policies.OtherPolicies, name)
}

// newPolicyStep creates a policy with one attribute.
func newPolicyStep(lb *classicLoadBalancer, what, name, kind, attribute, value string) step {
	return newStep(what, (*elb.Client).CreateLoadBalancerPolicy, &elb.CreateLoadBalancerPolicyInput{
		LoadBalancerName: lb.LoadBalancerName, PolicyName: aws.String(name), PolicyTypeName: aws.String(kind),
		PolicyAttributes: []elbtypes.PolicyAttribute{{AttributeName: aws.String(attribute), AttributeValue: aws.String(value)}},
	})
}

// tlsPolicySteps sets the policy of TLS on every listener that ends it, those that are new included.
func tlsPolicySteps(lb *classicLoadBalancer, want desiredClassic) []step {
	if want.tlsPolicy == "" {
		return nil
	}
	policy := policyTLSPrefix + want.tlsPolicy
	has := map[int32]bool{}
	for _, d := range lb.ListenerDescriptions {
		// A listener that is made again has no policy yet.
		if d.Listener != nil && slices.ContainsFunc(want.listeners, newClassicListener(d.Listener).equals) {
			has[d.Listener.LoadBalancerPort] = slices.Contains(d.PolicyNames, policy)
		}
	}
	var steps []step
	for _, l := range want.listeners {
		if !l.endsTLS() || has[l.port] {
			continue
		}
		if steps == nil && !hasPolicy(lb, policy) {
			steps = append(steps, newPolicyStep(lb, "creating the policy of TLS", policy, "SSLNegotiationPolicyType", "Reference-Security-Policy", want.tlsPolicy))
		}
		in := &elb.SetLoadBalancerPoliciesOfListenerInput{
			LoadBalancerName: lb.LoadBalancerName, LoadBalancerPort: l.port, PolicyNames: []string{policy},
		}
		steps = append(steps, newStep("setting the policy of TLS", (*elb.Client).SetLoadBalancerPoliciesOfListener, in))
	}
	return steps
}

func classicInstanceSteps(lb *classicLoadBalancer, want []string) []step {
	have := classicTargets(lb)
	var steps []step
	if fresh := difference(want, have); len(fresh) > 0 {
		in := &elb.RegisterInstancesWithLoadBalancerInput{LoadBalancerName: lb.LoadBalancerName, Instances: elbInstances(fresh)}
		steps = append(steps, newStep("registering instances", (*elb.Client).RegisterInstancesWithLoadBalancer, in))
	}
	if gone := difference(have, want); len(gone) > 0 {
		in := &elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: lb.LoadBalancerName, Instances: elbInstances(gone)}
		steps = append(steps, newStep("deregistering instances", (*elb.Client).DeregisterInstancesFromLoadBalancer, in))
	}
	return steps
}

// classicTargets are the instances that a load balancer sends to.
func classicTargets(lb *classicLoadBalancer) []string {
	var ids []string
	for _, i := range lb.Instances {
		ids = append(ids, aws.ToString(i.InstanceId))
	}
	return ids
}

func elbInstances(ids []string) []elbtypes.Instance {
	list := make([]elbtypes.Instance, len(ids))
	for i, id := range ids {
		list[i] = elbtypes.Instance{InstanceId: aws.String(id)}
	}
	return list
}

func elbTags(tags map[string]string) []elbtypes.Tag {
	return pairsOf(tags, func(key, value *string) elbtypes.Tag { return elbtypes.Tag{Key: key, Value: value} })
}

// createClassic is the call that makes a classic load balancer.
func createClassic(want desiredClassic) *elb.CreateLoadBalancerInput {
	in := &elb.CreateLoadBalancerInput{
		LoadBalancerName: aws.String(want.name), Subnets: want.subnets, SecurityGroups: want.groups, Tags: elbTags(want.tags),
	}
	if want.scheme == schemeInternal {
		in.Scheme = aws.String(schemeInternal)
	}
	for _, l := range want.listeners {
		in.Listeners = append(in.Listeners, l.sdk())
	}
	return in
}

// difference returns what is in list and not in others, in its order.
func difference(list, others []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(v string) bool { return slices.Contains(others, v) })
}

// missingTags returns wanted tags that are absent or have another value.
func missingTags(want, have map[string]string) map[string]string {
	lacking := maps.Clone(want)
	maps.DeleteFunc(lacking, func(key, value string) bool {
		got, ok := have[key]
		return ok && got == value
	})
	return lacking
}
