package aws

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// Defaults of AWS's own controller for network load balancers.
const (
	nlbThreshold, nlbInterval           = 3, 30
	nlbLocalThreshold, nlbLocalInterval = 2, 10

	// The time-outs of AWS's own for checks of target groups. HTTP has a shorter one.
	nlbTimeout, nlbTimeoutHTTP = 10, 6

	targetTypeInstance = "instance"

	protocolTLS = "TLS"
	// protocolBoth is TCP and UDP of one port, which one listener sends to one node port.
	protocolBoth = "TCP_UDP"
	// usualTLSPolicy is the one that AWS gives to a listener which is created without any.
	usualTLSPolicy = "ELBSecurityPolicy-2016-08"

	attributeCrossZone  = "load_balancing.cross_zone.enabled"
	attributeLogs       = "access_logs.s3.enabled"
	attributeLogsBucket = "access_logs.s3.bucket"
	attributeLogsPrefix = "access_logs.s3.prefix"

	reasonDraining = elbv2types.TargetHealthReasonEnumDeregistrationInProgress

	addressIPv4      = "ipv4"
	addressIPv6      = "ipv6"
	addressDualStack = "dualstack"
)

// healthCheck of a target group; a timeout of 0 is AWS's own.
type healthCheck struct {
	protocol, port, path         string
	interval, timeout            int32
	healthyCount, unhealthyCount int32
}

// desiredTargetGroup is the desired state of a port's target group.
type desiredTargetGroup struct {
	name, protocol, targetType, addressType string
	port                                    int32
	check                                   healthCheck
}

// desiredListener is the desired state of a port's listener.
type desiredListener struct {
	port                          int32
	protocol, certificate, policy string
	group                         desiredTargetGroup
}

// desiredNetwork is the desired state of a network load balancer.
type desiredNetwork struct {
	name, scheme, addressType string
	mappings                  []elbv2types.SubnetMapping
	desiredGroups
	// rules are those of nodes.
	rules nodeRules
	// kept are target groups that it does not need, and that are not the Service's to delete.
	kept             []string
	tags             map[string]string
	listeners        []desiredListener
	attributes       map[string]string
	targetAttributes map[string]string
	// targets are the instances that should serve, and eligible those that may go on doing so.
	targets, eligible []string
	// backends are all that may serve, those that do not run yet included.
	backends backends
	// fixedChecks is set where the API refuses to change protocol and interval of a health check.
	fixedChecks bool
	// subnetsIgnored is set where the annotation names fewer subnets than there are, or others where addresses are given.
	subnetsIgnored bool
}

// desireNetwork returns the state that a Service requests, without its subnets and security groups.
func desireNetwork(service *v1.Service, s settings, c Config, id *identity, b backends) desiredNetwork {
	running, eligible := b.ids()
	return desiredNetwork{
		name: loadBalancerName(service), scheme: s.scheme(), tags: tagsFor(id, service, s), attributes: desiredNetworkAttributes(s),
		targetAttributes: s.targetAttributes, targets: running, eligible: eligible, backends: b,
		listeners: networkListeners(id.clusterID, service, s, c),
	}
}

// placeIn chooses what a new load balancer in some subnets offers to clients.
func (d *desiredNetwork) placeIn(service *v1.Service, s settings, c Config, subnets []subnet) (findings []services.Finding, err error) {
	var required bool
	d.addressType, required = addressTypeOf(service, subnets)
	if hidden := unfilteredFamily(service, s, c); d.addressType == addressDualStack && hidden != "" {
		if required {
			return nil, problemf(annotationSourceRanges, "", "(or spec.loadBalancerSourceRanges) cannot keep clients out that come by %s: "+
				"a network load balancer hides them from nodes with the other family; set NLBSecurityGroupMode = Managed, "+
				"allow all of %s, or want one family alone", hidden, hidden)
		}
		d.addressType = addressIPv4
		findings = append(findings, services.Warning(eventSingleStack, "the load balancer gets IPv4 alone: without a security group "+
			"(NLBSecurityGroupMode = Managed) it would let everybody in by %s, whatever the source ranges say", hidden))
	} else if !required && d.addressType == addressIPv4 && slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) {
		findings = append(findings, services.Warning(eventSingleStack, "the load balancer gets IPv4 alone: IPv6 needs a CIDR block for it "+
			"in each of its subnets (%s) and no UDP port", strings.Join(idsOf(subnets), ", ")))
	}
	d.mappings, err = mappingsOf(subnets, s)
	return findings, err
}

// unfilteredFamily is the family that a new load balancer with both would hide from its nodes, where source ranges would not hold for
// it; "" where they do.
func unfilteredFamily(service *v1.Service, s settings, c Config) string {
	hidden := targetFamily(service) != addressIPv6
	if _, all := coverage(s.ranges, hidden); len(s.ranges) == 0 || all || c.NLBGroupMode == groupModeManaged {
		return ""
	}
	return familyName(hidden)
}

// addSubnets adds the subnets that the annotation gained. Removed ones have no effect.
func (d *desiredNetwork) addSubnets(s settings, lb *networkLoadBalancer, subnets []subnet) (err error) {
	have, addressed := subnetsOf(lb), len(s.EIPs) > 0 || len(s.PrivateAddresses) > 0
	d.subnetsIgnored = len(difference(have, idsOf(subnets))) > 0 || addressed && len(difference(idsOf(subnets), have)) > 0
	if !d.subnetsIgnored && !addressed {
		d.mappings, err = mappingsOf(subnets, s)
	}
	return err
}

// familyFindings report that a load balancer keeps the one family that it was made with.
func familyFindings(service *v1.Service, addressType string) []services.Finding {
	if addressType == addressDualStack || !slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol) {
		return nil
	}
	return []services.Finding{services.Warning(eventSingleStack, "the load balancer keeps IPv4 alone: its families are fixed when it is created; "+
		"delete and create the Service for both, where its subnets have IPv6 and it has no UDP port")}
}

func subnetsOf(lb *networkLoadBalancer) []string {
	var ids []string
	for _, z := range lb.AvailabilityZones {
		ids = append(ids, aws.ToString(z.SubnetId))
	}
	return ids
}

// fixedAddresses are those that a load balancer was made with. They stay the user's: none is ever released.
func fixedAddresses(s settings, lb *networkLoadBalancer) []services.Fixed {
	var elastic, private []string
	for _, z := range lb.AvailabilityZones {
		for _, a := range z.LoadBalancerAddresses {
			if id := aws.ToString(a.AllocationId); id != "" {
				elastic = append(elastic, id)
			}
			if ip := aws.ToString(a.PrivateIPv4Address); ip != "" {
				private = append(private, ip)
			}
		}
	}
	return []services.Fixed{
		{Place: annotationEIPs, Asked: s.EIPs, Has: elastic}, {Place: annotationPrivateAddresses, Asked: s.PrivateAddresses, Has: private},
	}
}

// networkCheck is the health check of a Service.
func networkCheck(service *v1.Service, s settings, c Config) healthCheck {
	local := service.Spec.ExternalTrafficPolicy == v1.ServiceExternalTrafficPolicyLocal
	h := healthCheck{protocol: "TCP", port: trafficPort, interval: nlbInterval, healthyCount: nlbThreshold, unhealthyCount: nlbThreshold}
	shared := !local && c.HealthProbeMode == probeShared
	switch {
	case local:
		h = healthCheck{
			protocol: "HTTP", port: strconv.Itoa(int(service.Spec.HealthCheckNodePort)), path: localCheckPath, interval: nlbLocalInterval,
			healthyCount: nlbLocalThreshold, unhealthyCount: nlbLocalThreshold,
		}
	case shared:
		h.protocol, h.port, h.path = "HTTP", strconv.Itoa(c.SharedProbePort), c.SharedProbePath
	}
	if !shared {
		h.protocol = cmp.Or(strings.ToUpper(s.CheckProtocol), h.protocol)
		h.port = cmp.Or(s.CheckPort, h.port)
		h.path = cmp.Or(s.CheckPath, h.path, "/")
		if h.protocol == "TCP" {
			h.path = ""
		}
	}
	or := func(n int, standard int32) int32 { return cmp.Or(int32(n), standard) } //nolint:gosec // the table bounds it
	h.interval, h.timeout = or(s.CheckInterval, h.interval), or(s.CheckTimeout, 0)
	h.healthyCount, h.unhealthyCount = or(s.Healthy, h.healthyCount), or(s.Unhealthy, h.unhealthyCount)
	return h
}

// networkListeners are the listeners of a Service: one for each port, also where it is of TCP and of UDP. A port without a node port has
// none.
func networkListeners(clusterID string, service *v1.Service, s settings, c Config) []desiredListener {
	var list []desiredListener
	check := networkCheck(service, s, c)
	for _, p := range service.Spec.Ports {
		if p.NodePort == 0 {
			continue
		}
		protocol := string(cmp.Or(p.Protocol, v1.ProtocolTCP))
		if slices.ContainsFunc(list, func(l desiredListener) bool { return l.port == p.Port }) {
			continue // the first of the two is for both
		}
		if slices.ContainsFunc(service.Spec.Ports, func(o v1.ServicePort) bool { return o.Port == p.Port && o.Protocol != p.Protocol }) {
			protocol = protocolBoth
		}
		l := desiredListener{
			port: p.Port, protocol: protocol,
			group: desiredTargetGroup{
				protocol: protocol, targetType: targetTypeInstance, addressType: targetFamily(service), port: p.NodePort, check: check,
			},
		}
		if s.endsTLS(p) && protocol != protocolBoth {
			l.protocol, l.certificate, l.policy = protocolTLS, s.Certificate, s.TLSPolicy
			if s.BackendProtocol == textSSL {
				l.group.protocol = protocolTLS
			}
		}
		l.group.name = targetGroupName(clusterID, service, p.Port, l.group)
		list = append(list, l)
	}
	return list
}

// targetFamily is the family by which a Service's node ports are reached: its first one.
func targetFamily(service *v1.Service) string {
	if len(service.Spec.IPFamilies) > 0 && service.Spec.IPFamilies[0] == v1.IPv6Protocol {
		return addressIPv6
	}
	return addressIPv4
}

// addressTypeOf returns the address type of a new load balancer: dual-stack if the Service has both families and the subnets allow it.
// required is set if a single family is not enough.
func addressTypeOf(service *v1.Service, subnets []subnet) (kind string, required bool) {
	v6 := slices.Contains(service.Spec.IPFamilies, v1.IPv6Protocol)
	policy := service.Spec.IPFamilyPolicy
	required = v6 && (targetFamily(service) == addressIPv6 || (policy != nil && *policy == v1.IPFamilyPolicyRequireDualStack))
	udp := slices.ContainsFunc(service.Spec.Ports, func(p v1.ServicePort) bool { return p.Protocol == v1.ProtocolUDP })
	able := len(subnets) > 0 && !udp && !slices.ContainsFunc(subnets, func(s subnet) bool { return len(s.cidrs6) == 0 })
	if v6 && (able || required) {
		return addressDualStack, required
	}
	return addressIPv4, required
}

// desiredNetworkAttributes are the attributes that are kept as the annotations have them. Bucket and prefix count while there are
// logs.
func desiredNetworkAttributes(s settings) map[string]string {
	a := map[string]string{attributeCrossZone: strconv.FormatBool(s.CrossZone), attributeLogs: strconv.FormatBool(s.AccessLog)}
	if s.AccessLog {
		a[attributeLogsBucket], a[attributeLogsPrefix] = s.AccessLogBucket, s.AccessLogPrefix
	}
	return a
}

// mappingsOf pairs subnets with the addresses that annotations fix.
func mappingsOf(subnets []subnet, s settings) ([]elbv2types.SubnetMapping, error) {
	for key, addresses := range map[string][]string{annotationEIPs: s.EIPs, annotationPrivateAddresses: s.PrivateAddresses} {
		if len(addresses) > 0 && len(addresses) != len(subnets) {
			return nil, problemf(
				key, strings.Join(addresses, ","), "names %d addresses for %d subnets (%s); name one for each, and the subnets by %s", len(addresses), len(subnets), strings.Join(idsOf(subnets), ", "), annotationSubnets,
			)
		}
	}
	list := make([]elbv2types.SubnetMapping, len(subnets))
	for i, n := range subnets {
		list[i].SubnetId = aws.String(n.id)
		if len(s.EIPs) > 0 {
			list[i].AllocationId = aws.String(s.EIPs[i])
		}
		if len(s.PrivateAddresses) > 0 {
			list[i].PrivateIPv4Address = aws.String(s.PrivateAddresses[i])
		}
	}
	return list, nil
}

// networkLoadBalancer is a network load balancer as the API shows it.
type networkLoadBalancer = elbv2types.LoadBalancer

// networkState is a network load balancer with all that it is made of, as the API shows it.
type networkState struct {
	lb         elbv2types.LoadBalancer
	listeners  []elbv2types.Listener
	groups     []elbv2types.TargetGroup // those of the load balancer, and those of its Service that no load balancer uses
	attributes map[string]string
	// targets and targetAttributes are by the ARN of the target group.
	targets          map[string][]target
	targetAttributes map[string]map[string]string
}

// registered is how many targets there are.
func (s networkState) registered() (n int) {
	for _, list := range s.targets {
		n += len(list)
	}
	return n
}

// movesLoadBalancer reports whether a step changes security groups or subnets.
func (s step) movesLoadBalancer() bool {
	switch s.input.(type) {
	case *elbv2.SetSecurityGroupsInput, *elbv2.SetSubnetsInput:
		return true
	}
	return false
}

// target of a target group that serves or is about to; those that are leaving are none.
type target struct {
	id   string
	port int32
}

func checkOf(t *elbv2types.TargetGroup) healthCheck {
	return healthCheck{
		string(t.HealthCheckProtocol), aws.ToString(t.HealthCheckPort), aws.ToString(t.HealthCheckPath),
		aws.ToInt32(t.HealthCheckIntervalSeconds),
		aws.ToInt32(t.HealthCheckTimeoutSeconds), aws.ToInt32(t.HealthyThresholdCount), aws.ToInt32(t.UnhealthyThresholdCount),
	}
}

// fittingTimeout is the time-out that has to be given to a new target group: the wanted one, or one that fits where AWS's own does
// not, because a check must be over before the next one begins; 0 leaves it to AWS.
func (h healthCheck) fittingTimeout() int32 {
	usual := int32(nlbTimeout)
	if h.protocol == "HTTP" {
		usual = nlbTimeoutHTTP
	}
	if h.timeout == 0 && usual >= h.interval {
		return h.interval - 1
	}
	return h.timeout
}

// changed is the wanted check with the time-out that has to be given for a target group that has another one. What AWS or
// somebody else chose stays where it fits.
func (h healthCheck) changed(have healthCheck) healthCheck {
	if fitting := h.fittingTimeout(); h.timeout == 0 && (have.timeout >= h.interval || have.protocol != h.protocol) {
		h.timeout = fitting
	}
	return h
}

// differs reports whether a health check has to be changed to be as wanted.
func (h healthCheck) differs(have healthCheck) bool {
	if h.timeout == 0 {
		have.timeout = 0
	}
	if h.protocol == "TCP" {
		have.path = ""
	}
	return h != have
}

// serves reports whether a target group can become the wanted one, by a change of its health check at most.
func (d desiredNetwork) serves(t *elbv2types.TargetGroup, g desiredTargetGroup) bool {
	if aws.ToInt32(t.Port) != g.port || string(t.Protocol) != g.protocol || string(t.TargetType) != g.targetType ||
		cmp.Or(string(t.IpAddressType), addressIPv4) != g.addressType {
		return false
	}
	have := checkOf(t)
	return !d.fixedChecks || (have.protocol == g.check.protocol && have.interval == g.check.interval)
}

// match finds the target group of each wanted listener among those that exist; it is "" where one has to be made.
func (d desiredNetwork) match(state networkState) []string {
	arns := make([]string, len(d.listeners))
	taken := map[string]bool{}
	current := map[int32]string{}
	for _, l := range state.listeners {
		current[aws.ToInt32(l.Port)] = forwardsTo(&l)
	}
	for _, sameName := range []bool{false, true} {
		for i, l := range d.listeners {
			for n := range state.groups {
				t := &state.groups[n]
				arn := aws.ToString(t.TargetGroupArn)
				preferred := arn == current[l.port] || sameName || aws.ToString(t.TargetGroupName) == l.group.name
				if arns[i] == "" && !taken[arn] && preferred && d.serves(t, l.group) {
					arns[i], taken[arn] = arn, true
				}
			}
		}
	}
	return arns
}

// forwardsTo is the target group that a listener sends to.
func forwardsTo(l *elbv2types.Listener) string {
	for _, a := range l.DefaultActions {
		if a.TargetGroupArn != nil {
			return *a.TargetGroupArn
		}
	}
	return ""
}

// networkSteps returns the calls that make a network load balancer what it should be. Target groups come before the
// listeners that use them, and those that nothing uses go last.
func networkSteps(state networkState, want desiredNetwork) []step {
	var steps []step
	lbARN := state.lb.LoadBalancerArn
	if want.groups != nil && len(state.lb.SecurityGroups) > 0 && !services.SameSet(want.groups, state.lb.SecurityGroups) {
		in := &elbv2.SetSecurityGroupsInput{LoadBalancerArn: lbARN, SecurityGroups: want.groups}
		steps = append(steps, newStep("setting security groups", (*elbv2.Client).SetSecurityGroups, in).replacing(state.lb))
	}
	if grown := grownSubnets(state.lb, want); grown != nil {
		steps = append(steps, newStep("adding subnets", (*elbv2.Client).SetSubnets, &elbv2.SetSubnetsInput{LoadBalancerArn: lbARN, Subnets: grown}))
	}
	arns := want.match(state)
	for i, l := range want.listeners {
		steps = append(steps, want.groupSteps(state, arns[i], l.group)...)
	}
	for i, l := range want.listeners {
		steps = append(steps, listenerSteps(state, arns[i], l, want.tags)...)
	}
	for n := range state.listeners {
		l := &state.listeners[n]
		if !slices.ContainsFunc(want.listeners, func(w desiredListener) bool { return w.port == aws.ToInt32(l.Port) }) {
			what := fmt.Sprintf("deleting the listener of port %d", aws.ToInt32(l.Port))
			in := &elbv2.DeleteListenerInput{ListenerArn: l.ListenerArn}
			steps = append(steps, newStep(what, (*elbv2.Client).DeleteListener, in).replacing(l))
		}
	}
	for _, t := range state.groups {
		if arn := aws.ToString(t.TargetGroupArn); !slices.Contains(arns, arn) && !slices.Contains(want.kept, arn) {
			steps = append(steps, deleteTargetGroupStep(aws.ToString(t.TargetGroupName), t.TargetGroupArn).replacing(t))
		}
	}
	if changed := missingTags(want.attributes, state.attributes); len(changed) > 0 {
		list := pairsOf(changed, func(key, value *string) elbv2types.LoadBalancerAttribute {
			return elbv2types.LoadBalancerAttribute{Key: key, Value: value}
		})
		in := &elbv2.ModifyLoadBalancerAttributesInput{LoadBalancerArn: lbARN, Attributes: list}
		steps = append(steps, newStep("changing attributes", (*elbv2.Client).ModifyLoadBalancerAttributes, in).
			replacing(attributesOf(changed, state.attributes)))
	}
	return steps
}

func deleteTargetGroupStep(name string, arn *string) step {
	return newStep("deleting target group "+name, (*elbv2.Client).DeleteTargetGroup, &elbv2.DeleteTargetGroupInput{TargetGroupArn: arn})
}

// attributesOf are the attributes that are about to change, as an input has them: a change leaves all others as they are.
func attributesOf(changed, attributes map[string]string) any {
	list := make([]elbv2types.LoadBalancerAttribute, 0, len(changed))
	for _, k := range slices.Sorted(maps.Keys(changed)) {
		if have, ok := attributes[k]; ok {
			list = append(list, elbv2types.LoadBalancerAttribute{Key: aws.String(k), Value: aws.String(have)})
		}
	}
	return map[string]any{"Attributes": list}
}

// grownSubnets are the subnets of a load balancer that gets more of them; nil where it does not. Subnets with fixed
// addresses cannot be named this way.
func grownSubnets(lb elbv2types.LoadBalancer, want desiredNetwork) []string {
	have, wanted := subnetsOf(&lb), []string{}
	for _, m := range want.mappings {
		if m.AllocationId != nil || m.PrivateIPv4Address != nil {
			return nil
		}
		wanted = append(wanted, aws.ToString(m.SubnetId))
	}
	if len(difference(have, wanted)) > 0 || len(difference(wanted, have)) == 0 {
		return nil
	}
	return wanted
}

// groupSteps makes one target group, or what it should be.
func (d desiredNetwork) groupSteps(state networkState, arn string, g desiredTargetGroup) []step {
	var steps []step
	var have []target
	var attributes map[string]string
	if arn == "" {
		in := createTargetGroup(g, aws.ToString(state.lb.VpcId), d.tags)
		create := newStep("creating target group "+g.name, (*elbv2.Client).CreateTargetGroup, in).onGroup(g.name)
		create.loadBalancer = aws.ToString(state.lb.LoadBalancerArn)
		steps = append(steps, create)
		attributes = map[string]string{attributeProxyV2: textFalse}
		if g.protocol == "TCP" || g.protocol == protocolTLS {
			attributes[attributePreserveClient] = textTrue
		}
	} else {
		t := state.groups[slices.IndexFunc(state.groups, func(t elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) == arn })]
		if check := checkOf(&t); g.check.differs(check) {
			what := "changing the health check of target group " + aws.ToString(t.TargetGroupName)
			steps = append(steps, newStep(what, (*elbv2.Client).ModifyTargetGroup, modifyTargetGroup(arn, g.check.changed(check))).replacing(t))
		}
		have, attributes = state.targets[arn], state.targetAttributes[arn]
	}
	if changed := missingTags(d.targetAttributes, attributes); len(changed) > 0 {
		list := pairsOf(changed, func(key, value *string) elbv2types.TargetGroupAttribute {
			return elbv2types.TargetGroupAttribute{Key: key, Value: value}
		})
		in := &elbv2.ModifyTargetGroupAttributesInput{TargetGroupArn: nilIfEmpty(arn), Attributes: list}
		steps = append(steps, newStep("changing attributes of target group "+g.name, (*elbv2.Client).ModifyTargetGroupAttributes, in).
			onGroup(g.name).replacing(attributesOf(changed, attributes)))
	}
	return append(steps, targetSteps(arn, g, have, d.targets, d.eligible, d.backends.keepRegistered)...)
}

// targetsAtOnce is how many targets one call registers or deregisters.
const targetsAtOnce = 100

// targetSteps removes targets first, because a full target group or a refused target would block the removal. If no target would be left,
// it registers first while there is room, so that the port keeps serving. Eligible targets stay and are not registered again.
func targetSteps(arn string, g desiredTargetGroup, have []target, want, eligible []string, keep bool) []step {
	var gone, fresh []elbv2types.TargetDescription
	known := map[string]bool{}
	for _, t := range have {
		if t.port == g.port && (keep || slices.Contains(want, t.id) || slices.Contains(eligible, t.id)) {
			known[t.id] = true
			continue
		}
		gone = append(gone, elbv2types.TargetDescription{Id: aws.String(t.id), Port: aws.Int32(t.port)})
	}
	for _, id := range want {
		if !known[id] {
			fresh = append(fresh, elbv2types.TargetDescription{Id: aws.String(id), Port: aws.Int32(g.port)})
		}
	}
	var leave, join []step
	for chunk := range slices.Chunk(gone, targetsAtOnce) {
		in := &elbv2.DeregisterTargetsInput{TargetGroupArn: nilIfEmpty(arn), Targets: chunk}
		leave = append(leave, newStep("deregistering targets", (*elbv2.Client).DeregisterTargets, in).onGroup(g.name))
	}
	for chunk := range slices.Chunk(fresh, targetsAtOnce) {
		in := &elbv2.RegisterTargetsInput{TargetGroupArn: nilIfEmpty(arn), Targets: chunk}
		join = append(join, newStep("registering targets", (*elbv2.Client).RegisterTargets, in).onGroup(g.name))
	}
	if len(known) == 0 && len(have)+len(fresh) <= awslimits.Targets.Max {
		return append(join, leave...)
	}
	return append(leave, join...)
}

// listenerSteps makes one listener, or what it should be. A port that changes its protocol keeps its listener.
func listenerSteps(state networkState, groupARN string, l desiredListener, tags map[string]string) []step {
	var certificates []elbv2types.Certificate
	if l.certificate != "" {
		certificates = []elbv2types.Certificate{{CertificateArn: aws.String(l.certificate)}}
	}
	actions := []elbv2types.Action{{Type: elbv2types.ActionTypeEnumForward, TargetGroupArn: nilIfEmpty(groupARN)}}
	for n := range state.listeners {
		have := &state.listeners[n]
		if aws.ToInt32(have.Port) != l.port {
			continue
		}
		certificate := ""
		if len(have.Certificates) > 0 {
			certificate = aws.ToString(have.Certificates[0].CertificateArn)
		}
		// Where no policy is asked for, AWS's own choice stands.
		samePolicy := l.policy == "" || aws.ToString(have.SslPolicy) == l.policy
		if string(have.Protocol) == l.protocol && samePolicy && strings.EqualFold(certificate, l.certificate) && groupARN != "" &&
			forwardsTo(have) == groupARN {
			return nil
		}
		policy := l.policy
		if l.protocol == protocolTLS && aws.ToString(have.SslPolicy) == "" {
			policy = cmp.Or(policy, usualTLSPolicy) // AWS has a default at the creation alone
		}
		change := newStep(fmt.Sprintf("changing the listener of port %d", l.port), (*elbv2.Client).ModifyListener, &elbv2.ModifyListenerInput{
			ListenerArn: have.ListenerArn, Port: aws.Int32(l.port), Protocol: elbv2types.ProtocolEnum(l.protocol), SslPolicy: nilIfEmpty(policy),
			Certificates: certificates, DefaultActions: actions,
		})
		return []step{change.onGroup(l.group.name).replacing(have)}
	}
	create := newStep(fmt.Sprintf("creating the listener of port %d", l.port), (*elbv2.Client).CreateListener, &elbv2.CreateListenerInput{
		LoadBalancerArn: state.lb.LoadBalancerArn, Port: aws.Int32(l.port), Protocol: elbv2types.ProtocolEnum(l.protocol),
		SslPolicy: nilIfEmpty(l.policy), Certificates: certificates, DefaultActions: actions, Tags: elbv2Tags(tags),
	})
	return []step{create.onGroup(l.group.name)}
}

func createTargetGroup(g desiredTargetGroup, vpc string, tags map[string]string) *elbv2.CreateTargetGroupInput {
	in := &elbv2.CreateTargetGroupInput{
		Name: aws.String(g.name), Port: aws.Int32(g.port), Protocol: elbv2types.ProtocolEnum(g.protocol),
		TargetType: elbv2types.TargetTypeEnum(g.targetType), VpcId: aws.String(vpc), Tags: elbv2Tags(tags),
		HealthCheckProtocol: elbv2types.ProtocolEnum(g.check.protocol), HealthCheckPort: aws.String(g.check.port),
		HealthCheckPath:            nilIfEmpty(g.check.path),
		HealthCheckIntervalSeconds: aws.Int32(g.check.interval), HealthyThresholdCount: aws.Int32(g.check.healthyCount),
		UnhealthyThresholdCount: aws.Int32(g.check.unhealthyCount),
	}
	if timeout := g.check.fittingTimeout(); timeout > 0 {
		in.HealthCheckTimeoutSeconds = aws.Int32(timeout)
	}
	if g.addressType == addressIPv6 {
		in.IpAddressType = elbv2types.TargetGroupIpAddressTypeEnumIpv6
	}
	return in
}

func modifyTargetGroup(arn string, c healthCheck) *elbv2.ModifyTargetGroupInput {
	in := &elbv2.ModifyTargetGroupInput{
		TargetGroupArn: aws.String(arn), HealthCheckProtocol: elbv2types.ProtocolEnum(c.protocol), HealthCheckPort: aws.String(c.port),
		HealthCheckPath:            nilIfEmpty(c.path),
		HealthCheckIntervalSeconds: aws.Int32(c.interval), HealthyThresholdCount: aws.Int32(c.healthyCount),
		UnhealthyThresholdCount: aws.Int32(c.unhealthyCount),
	}
	if c.timeout > 0 {
		in.HealthCheckTimeoutSeconds = aws.Int32(c.timeout)
	}
	return in
}

func elbv2Tags(tags map[string]string) []elbv2types.Tag {
	return pairsOf(tags, func(key, value *string) elbv2types.Tag { return elbv2types.Tag{Key: key, Value: value} })
}

// createNetwork is the call that makes a network load balancer.
func createNetwork(want desiredNetwork) *elbv2.CreateLoadBalancerInput {
	in := &elbv2.CreateLoadBalancerInput{
		Name: aws.String(want.name), Type: elbv2types.LoadBalancerTypeEnumNetwork, SubnetMappings: want.mappings, SecurityGroups: want.groups,
		Tags: elbv2Tags(want.tags),
	}
	if want.scheme == schemeInternal {
		in.Scheme = elbv2types.LoadBalancerSchemeEnumInternal
	}
	if want.addressType == addressDualStack {
		in.IpAddressType = elbv2types.IpAddressTypeDualstack
	}
	return in
}
