package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// networkReconciler reconciles network load balancers.
type networkReconciler struct {
	*shared
	// fixedChecks is set once the API has refused to change protocol or interval of a health check.
	fixedChecks atomic.Bool
}

var _ services.Reconciler[observed, desiredNetwork] = (*networkReconciler)(nil)

// Observe implements services.Reconciler.
func (c *networkReconciler) Observe(ctx context.Context, r services.Request) (o observed, err error) {
	if !mayBeGone(r) {
		return c.observeLiving(ctx, r)
	}
	// It is read by itself: what is not found then does not exist.
	o.network, err = c.records.networks.Get(ctx, loadBalancerName(r.Service), inventory.Query{MaxAge: deleteMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return observed{}, nil
	}
	return o, err
}

// CheckOwner implements services.Reconciler, and reads what the load balancer is made of.
func (c *networkReconciler) CheckOwner(
	ctx context.Context, r services.Request, o observed,
) (observed, []services.Finding, error) {
	return c.checkOwner(ctx, r, o, c.readParts)
}

func (c *networkReconciler) readParts(ctx context.Context, r services.Request, o observed) (observed, error) {
	var err error
	switch r.Purpose {
	case services.Delete, services.Lookup:
		if o.state.groups, err = c.targetGroups().groupsOf(ctx, r.Service, o.network, deleteMaxAge); err != nil {
			return o, err
		}
	case services.UpdateNodes:
		if o.network == nil {
			return o, nil
		}
		if o.state, err = c.readTargets(ctx, r.Service, o.network, updateTargetsMaxAge); err != nil {
			return o, fmt.Errorf("load balancer %s: %w", loadBalancerName(r.Service), err)
		}
	case services.Narrow: // rules alone
	default:
		if o, err = c.readState(ctx, r.Service, o); err != nil {
			return o, err
		}
	}
	unneeded := c.config.NoNodeGroupRules && c.config.NLBGroupMode != groupModeManaged
	if unneeded && !mayBeGone(r) {
		return o, nil
	}
	o.groups, err = c.groups.all(ctx)
	return o, err
}

// readTargets reads the target groups of a load balancer, and their targets.
func (c *networkReconciler) readTargets(
	ctx context.Context, service *v1.Service, lb *networkLoadBalancer, maxTargetsAge time.Duration,
) (networkState, error) {
	state := networkState{lb: *lb, targets: map[string][]target{}, targetAttributes: map[string]map[string]string{}}
	var err error
	if state.groups, err = c.targetGroups().groupsOf(ctx, service, lb, ensureMaxAge); err != nil {
		return state, err
	}
	for _, t := range state.groups {
		arn := aws.ToString(t.TargetGroupArn)
		found, err := c.records.targets.Get(ctx, arn, inventory.Query{MaxAge: maxTargetsAge})
		if err != nil {
			return state, notAbsence(err)
		}
		state.targets[arn] = found.value.targets()
	}
	return state, nil
}

// readState reads all that a load balancer is made of.
func (c *networkReconciler) readState(ctx context.Context, service *v1.Service, o observed) (observed, error) {
	if o.network == nil {
		return o, nil
	}
	arn, q := aws.ToString(o.network.LoadBalancerArn), inventory.Query{MaxAge: ensureMaxAge}
	listeners, err := c.records.listeners.Get(ctx, arn, q)
	if err != nil {
		return o, c.invalidateMissingNetwork(o.network, err)
	}
	attributes, err := c.records.networkAttributes.Get(ctx, arn, q)
	if err != nil {
		return o, c.invalidateMissingNetwork(o.network, err)
	}
	if o.state, err = c.readTargets(ctx, service, o.network, ensureMaxAge); err != nil {
		return o, err
	}
	o.state.listeners, o.state.attributes = listeners.value, attributes.value
	if len(o.settings.targetAttributes) == 0 {
		return o, nil
	}
	for _, t := range o.state.groups {
		arn := aws.ToString(t.TargetGroupArn)
		found, err := c.records.targetAttributes.Get(ctx, arn, q)
		if err != nil {
			return o, notAbsence(err)
		}
		o.state.targetAttributes[arn] = found.value
	}
	return o, nil
}

// invalidateMissingNetwork makes the next try read the load balancer again after an answer that it does not exist.
func (c *shared) invalidateMissingNetwork(lb *networkLoadBalancer, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		c.records.networks.Invalidate(aws.ToString(lb.LoadBalancerName))
	}
	return notAbsence(err)
}

func (c *networkReconciler) targetGroups() targetGroups { return targetGroups{c.shared} }
func (c *networkReconciler) nodeRules() networkRules    { return networkRules{c.shared} }

// Desire implements services.Reconciler.
func (c *networkReconciler) Desire(
	ctx context.Context, r services.Request, o observed,
) (d desiredNetwork, findings []services.Finding, err error) {
	b, err := c.targets.backendsOf(ctx, r.Nodes, o.settings)
	if err == nil {
		d, findings, err = c.desiredState(ctx, r, o, b)
	}
	return d, append(findings, configError(err)...), err
}

func (c *networkReconciler) desiredState(
	ctx context.Context, r services.Request, o observed, b backends,
) (d desiredNetwork, findings []services.Finding, err error) {
	s := o.settings
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return d, nil, err
	}
	d = desireNetwork(r.Service, s, c.config, id, b)
	d.fixedChecks = c.fixedChecks.Load()
	if findings, err = c.placeLoadBalancer(ctx, r.Service, s, o.network, &d); err != nil {
		return d, findings, err
	}
	if err := c.desireGroups(ctx, r, s, id, o, &d); err != nil || o.network == nil {
		return d, findings, err
	}
	findings = append(findings, rangesFindings(r.Service, s, c.config, entranceOf(r.Service, s, c.config, o.network), d.listeners)...)
	findings = append(findings, b.keptFindings(o.state.registered())...)
	rules, found, err := c.nodeRules().desiredRules(ctx, r.Service, s, o.network, d.listeners, b, o.groups)
	d.rules, findings = rules, append(findings, found...)
	if err != nil {
		return d, findings, err
	}
	d.kept, err = c.keptTargetGroups(ctx, r.Service, o.state, d)
	return d, findings, err
}

// keptTargetGroups are those that the load balancer does not need, and that were not made for the Service.
func (c *networkReconciler) keptTargetGroups(
	ctx context.Context, service *v1.Service, state networkState, d desiredNetwork,
) (kept []string, err error) {
	for _, s := range networkSteps(state, d) {
		del, ok := s.input.(*elbv2.DeleteTargetGroupInput)
		if !ok {
			continue
		}
		arn := aws.ToString(del.TargetGroupArn)
		n := slices.IndexFunc(state.groups, func(t elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) == arn })
		if ours, err := c.targetGroups().isMadeFor(ctx, service, &state.groups[n]); err != nil {
			return nil, err
		} else if !ours {
			kept = append(kept, arn)
		}
	}
	return kept, nil
}

// placeLoadBalancer sets the subnets and the addresses of the load balancer.
func (c *networkReconciler) placeLoadBalancer(
	ctx context.Context, service *v1.Service, s settings, lb *networkLoadBalancer, d *desiredNetwork,
) (findings []services.Finding, err error) {
	if lb == nil {
		subnets, err := c.vpc.chooseSubnets(ctx, s, s.internal)
		if err != nil {
			return nil, err
		}
		return d.placeIn(service, s, c.config, subnets)
	}
	d.scheme, d.addressType = string(lb.Scheme), string(lb.IpAddressType)
	findings = familyFindings(service, d.addressType)
	if len(s.Subnets) == 0 {
		return findings, nil
	}
	subnets, err := c.vpc.chooseSubnets(ctx, s, d.scheme == schemeInternal)
	if err != nil {
		return findings, err
	}
	return findings, d.addSubnets(s, lb, subnets)
}

// Fixed implements services.Fixer. Tags are read for those alone that ask for them.
func (c *networkReconciler) Fixed(ctx context.Context, r services.Request, o observed, d desiredNetwork) ([]services.Fixed, error) {
	lb := o.network
	if lb == nil {
		return nil, nil
	}
	s := o.settings
	all := append(fixedAddresses(s, lb), s.fixedScheme(string(lb.Scheme)))
	if d.subnetsIgnored {
		all = append(all, services.Fixed{Place: annotationSubnets, Asked: s.Subnets, Has: subnetsOf(lb)})
	}
	if len(s.tags) == 0 {
		return all, nil
	}
	has, err := c.tags.networkTags(ctx, aws.ToString(lb.LoadBalancerArn))
	switch {
	case c.tags.isUnreadable(err):
		return all, nil
	case err != nil:
		return all, c.invalidateMissingNetwork(lb, err)
	}
	asked, present := []string{}, []string{}
	for key, value := range s.tags {
		asked = append(asked, key+"="+value)
		if v, ok := has[key]; ok {
			present = append(present, key+"="+v)
		}
	}
	return append(all, services.Fixed{Place: annotationTags, Asked: slices.Sorted(slices.Values(asked)), Has: present}), nil
}

// desireGroups adds the security groups: in the mode Managed, those that the annotation names or one of its own. A load
// balancer that was made without any can never get one. What was made for it under another value of --cluster-name is obsolete.
func (c *networkReconciler) desireGroups(
	ctx context.Context, r services.Request, s settings, id *identity, o observed, d *desiredNetwork,
) error {
	if c.config.NLBGroupMode != groupModeManaged {
		return nil
	}
	attached, name := o.attachedGroups(), managedGroupName(r.Cluster, r.Service)
	var err error
	switch {
	case o.network != nil && len(attached) == 0:
	case len(s.Groups) > 0:
		d.groups = s.Groups
		err = c.groups.check(ctx, r.Service, attached, groupNames{"annotation " + annotationGroups: s.Groups})
	default:
		err = d.desireOwn(id, o.groups, &ownGroup{
			name: name, description: managedGroupDescription, tags: mergeTags(s.tags, id.ownershipTags()),
			rules: networkFrontRules(*d, s), mine: ownFrontRule(descriptionFront + d.name),
		})
	}
	if err == nil && o.network != nil {
		d.leaveOthers(id, o.groups, madeForNetwork(id, r, attached))
	}
	return err
}

// madeForNetwork reports whether a security group was made for the network load balancer of a Service: now, or under another value of
// --cluster-name.
func madeForNetwork(id *identity, r services.Request, attached []string) func(securityGroup) bool {
	name := managedGroupName(r.Cluster, r.Service)
	return func(g securityGroup) bool {
		return g.name == name || (slices.Contains(attached, g.id) && madeForLoadBalancer(id, g) &&
			strings.HasPrefix(g.name, targetGroupPrefix(r.Service)))
	}
}

// Changes implements services.Reconciler. Openings of nodes come before the targets, or the first checks of their health fail. What
// is not needed any more is closed when the load balancer does not use it any more.
func (c *networkReconciler) Changes(r services.Request, o observed, d desiredNetwork) ([]change, error) {
	changes := c.groups.ownGroupChanges(d.own, o.groups)
	if o.network == nil {
		return append(changes, c.creationChange(d)...), nil
	}
	changes = append(changes, c.groups.nodeRuleChanges(d.rules, opening)...)
	steps, made := networkSteps(o.state, d), map[string]string{}
	run := func(ctx context.Context, r services.Request, s step) error {
		return c.run(ctx, r.Service, o.network, s, made)
	}
	reread := func(ctx context.Context, r services.Request, o observed) (observed, error) {
		return c.rereadPlace(ctx, r, o, steps)
	}
	changes = append(changes, stepChanges("network load balancer "+d.name, steps, run, reread)...)
	changes = append(changes, c.groups.nodeRuleChanges(d.rules, closing)...)
	changes = append(changes, c.groups.obsoleteGroupChanges(d.obsolete)...)
	return append(changes, c.targets.waitChanges(o, d.backends, c.readParts)...), nil
}

// rereadPlace reads a load balancer whose security groups or subnets were changed.
func (c *networkReconciler) rereadPlace(ctx context.Context, r services.Request, o observed, steps []step) (observed, error) {
	if !slices.ContainsFunc(steps, step.movesLoadBalancer) {
		return o, nil
	}
	name := loadBalancerName(r.Service)
	lb, err := c.records.networks.Get(ctx, name, inventory.Query{})
	if err != nil {
		c.records.networks.Invalidate(name)
		return o, notAbsence(err)
	}
	o.network = lb
	return o, nil
}

// creationChange creates the load balancer; its parts follow.
func (c *networkReconciler) creationChange(d desiredNetwork) []change {
	var subnets []string
	for _, m := range d.mappings {
		subnets = append(subnets, aws.ToString(m.SubnetId))
	}
	changes := []change{{
		Planned: contract.Planned{
			Action: contract.PlanCreate, Object: "network load balancer " + d.name,
			Detail: fmt.Sprintf("%s, %s, subnets %s", d.scheme, d.addressType, strings.Join(subnets, ", ")),
		},
		Replan: true, Creates: true, Compare: func() (before, after any) { return nil, createNetwork(d) },
		Make: func(ctx context.Context, r *services.Request, o observed) (observed, error) {
			lb, err := c.create(ctx, d)
			if err != nil {
				return o, err
			}
			o.network = lb
			return c.readParts(ctx, *r, o)
		},
	}}
	for _, p := range d.listeners {
		changes = append(changes, change{
			Planned: contract.Planned{
				Action: contract.PlanCreate, Object: fmt.Sprintf("listener %s/%d", p.protocol, p.port),
				Detail: fmt.Sprintf("target group %s, %s/%d, %d targets", p.group.name, p.group.protocol, p.group.port, len(d.targets)),
			},
			Compare: func() (before, after any) { return nil, d.plannedListener(p) },
		})
	}
	return changes
}

// plannedListener is a new listener with its target group, as plan shows it.
func (d desiredNetwork) plannedListener(l desiredListener) any {
	group := services.Part(createTargetGroup(l.group, "", nil), "Name", "Port", "Protocol", "TargetType", "HealthCheckProtocol",
		"HealthCheckPort", "HealthCheckPath", "HealthCheckIntervalSeconds", "HealthCheckTimeoutSeconds", "HealthyThresholdCount",
		"UnhealthyThresholdCount", "IpAddressType")
	group["Targets"], group["Attributes"] = d.targets, d.targetAttributes
	return map[string]any{"Port": l.port, "Protocol": l.protocol, "SslPolicy": l.policy, "CertificateArn": l.certificate, "TargetGroup": group}
}

func (c *networkReconciler) create(ctx context.Context, d desiredNetwork) (*networkLoadBalancer, error) {
	what := "creating network load balancer " + d.name
	out, err := call(ctx, c.api, what, (*elbv2.Client).CreateLoadBalancer, createNetwork(d))
	if err == nil && (len(out.LoadBalancers) != 1 || out.LoadBalancers[0].LoadBalancerArn == nil) {
		err = incompleteError(what)
	}
	if err != nil {
		c.records.networks.InvalidateAll() // it may exist all the same, made by a call whose answer was lost
		if codeOf(err) == "InvalidSecurityGroup" && d.own != nil {
			return nil, retryIfHidden(&cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: err.Error()}, d.groups[0])
		}
		return nil, err
	}
	lb := &out.LoadBalancers[0]
	arn := aws.ToString(lb.LoadBalancerArn)
	c.records.networks.Put(lb)
	c.records.listeners.Made(arn)
	c.records.networkAttributes.Made(arn)
	c.records.networkTags.Put(keyedTexts{arn, d.tags})
	return lb, nil
}

// run makes one call, and keeps what is known of the load balancer true. made are the target groups that earlier calls made.
func (c *networkReconciler) run(ctx context.Context, service *v1.Service, lb *networkLoadBalancer, s step, made map[string]string) error {
	name, arn := loadBalancerName(service), aws.ToString(lb.LoadBalancerArn)
	err := c.records.run(ctx, s, made)
	if err != nil {
		err = fmt.Errorf("load balancer %s: %w", name, err)
	}
	attached := ""
	switch in := s.input.(type) {
	case *elbv2.CreateListenerInput:
		attached = aws.ToString(in.DefaultActions[0].TargetGroupArn)
	case *elbv2.ModifyListenerInput:
		attached = aws.ToString(in.DefaultActions[0].TargetGroupArn)
	case *elbv2.DeleteListenerInput:
		c.records.listeners.Invalidate(arn)
	case *elbv2.SetSecurityGroupsInput, *elbv2.SetSubnetsInput:
		if err != nil {
			c.records.networks.Invalidate(name)
		}
	case *elbv2.ModifyTargetGroupInput:
		if codeOf(err) == "InvalidConfigurationRequest" && c.fixedChecks.CompareAndSwap(false, true) {
			return cloudproviderapi.NewRetryError("AWS does not change this health check; the target group is replaced", groupVisiblePause)
		}
	}
	if codeOf(err) == "DuplicateListener" {
		err = cloudproviderapi.NewRetryError("AWS does not show all listeners of load balancer "+name+" yet", groupVisiblePause)
	}
	if attached != "" {
		c.records.listeners.Invalidate(arn)
		c.targetGroups().noteAttached(attached, arn, err)
	}
	if err != nil {
		return c.invalidateAfterFailure(err, func() { c.records.listeners.Invalidate(arn) })
	}
	return nil
}

// Complete implements services.Reconciler: nothing is due besides the changes.
func (*networkReconciler) Complete(_ context.Context, _ *services.Request, o observed, _ desiredNetwork) (observed, error) {
	return o, nil
}

// Status implements services.Reconciler.
func (*networkReconciler) Status(r services.Request, o observed, _ desiredNetwork) (*v1.LoadBalancerStatus, error) {
	return o.statusOrFailed(r.Service)
}

// NodeChanges implements services.Reconciler: targets and what nodes let in, and only where they differ. Faults in annotations do not
// keep nodes from joining or leaving.
func (c *networkReconciler) NodeChanges(
	ctx context.Context, r services.Request, o observed,
) (changes []change, findings []services.Finding, err error) {
	if o.network == nil {
		return nil, nil, nil
	}
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	s := o.settings
	b, err := c.targets.backendsOf(ctx, r.Nodes, s)
	if err != nil {
		return nil, nil, err
	}
	var rules nodeRules
	if o.settingsErr == nil {
		listeners := networkListeners(id.clusterID, r.Service, s, c.config)
		if rules, findings, err = c.nodeRules().desiredRules(ctx, r.Service, s, o.network, listeners, b, o.groups); err != nil {
			return nil, findings, err
		}
	}
	changes = c.groups.nodeRuleChanges(rules, opening)
	run := func(ctx context.Context, r services.Request, s step) error {
		return c.run(ctx, r.Service, o.network, s, nil)
	}
	same := func(_ context.Context, _ services.Request, o observed) (observed, error) { return o, nil }
	running, eligible := b.ids()
	for _, t := range o.state.groups {
		arn := aws.ToString(t.TargetGroupArn)
		targets := o.state.targets[arn]
		findings = append(findings, b.keptFindings(len(targets))...)
		g := desiredTargetGroup{name: aws.ToString(t.TargetGroupName), port: aws.ToInt32(t.Port)}
		steps := targetSteps(arn, g, targets, running, eligible, b.keepRegistered)
		changes = append(changes, stepChanges("target group "+g.name, steps, run, same)...)
	}
	changes = append(changes, c.groups.nodeRuleChanges(rules, closing)...)
	return append(changes, c.targets.waitChanges(o, b, c.readParts)...), findings, nil
}

// Deletions implements services.Reconciler: the rules of nodes, the load balancer, its target groups, its security group. One that is
// protected from deletion keeps serving.
func (c *networkReconciler) Deletions(
	ctx context.Context, r services.Request, o observed,
) ([]change, []services.Finding, error) {
	if o.foreign {
		return nil, nil, nil
	}
	name := loadBalancerName(r.Service)
	if err := c.groups.retryWhileHidden(o.groups, func(one rule) bool { return belongsToLoadBalancer(one, name) }); err != nil {
		return nil, nil, err
	}
	if err := c.targetGroups().checkListed(ctx, o.network, o.state.groups); err != nil {
		return nil, nil, err
	}
	left, err := c.leftovers(ctx, r, o)
	if err != nil {
		return nil, nil, err
	}
	var changes []change
	if len(left.opened) > 0 {
		if err := c.records.checkProtection(ctx, o.network); err != nil {
			return nil, nil, fmt.Errorf("load balancer %s: %w", name, err)
		}
		changes = append(changes, c.groups.closingChange(left))
	}
	if o.network != nil {
		changes = append(changes, c.deletionChange(name, aws.ToString(o.network.LoadBalancerArn)))
	}
	for _, t := range left.targetGroups {
		if ours, err := c.targetGroups().isMadeFor(ctx, r.Service, &t); err != nil {
			return nil, nil, err
		} else if ours {
			changes = append(changes, c.targetGroupDeletionChange(t))
		}
	}
	return append(changes, c.groups.deletionChanges(left.groups)...), left.findings, nil
}

func (c *networkReconciler) deletionChange(name, arn string) change {
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "network load balancer " + name},
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			if err := c.records.deleteNetwork(ctx, arn); err != nil {
				c.records.networks.Invalidate(name)
				return o, err
			}
			c.records.networks.Forget(name)
			return o, nil
		},
	}
}

// targetGroupDeletionChange deletes a target group, which AWS allows some time after the load balancer's deletion.
func (c *networkReconciler) targetGroupDeletionChange(t elbv2types.TargetGroup) change {
	name := aws.ToString(t.TargetGroupName)
	del := deleteTargetGroupStep(name, t.TargetGroupArn)
	return change{
		Planned: contract.Planned{Action: contract.PlanDelete, Object: "target group " + name},
		Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
			return o, services.Patiently(ctx, patience, func() error { return c.records.run(ctx, del, nil) })
		},
	}
}

// Exists implements services.Reconciler.
func (c *networkReconciler) Exists(ctx context.Context, r services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	return exists(ctx, r, o, c.leftovers)
}

// leftovers returns a Service's objects besides its network load balancer. It searches names, descriptions and tags, so that it also works
// after the load balancer is gone.
func (c *networkReconciler) leftovers(ctx context.Context, r services.Request, o observed) (left leftovers, err error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return left, err
	}
	left.targetGroups = o.state.groups
	made := madeForNetwork(id, r, o.attachedGroups())
	for _, g := range groupsByID(o.groups) {
		if made(g) && id.isOwned(g.tags) && !isNamedByUser(r.Service, c.config, g.id) {
			left.groups = append(left.groups, g)
		}
	}
	if c.config.NoNodeGroupRules {
		return left, nil
	}
	name := loadBalancerName(r.Service)
	left.decide = c.nodeRules().changes(ctx, id, noNodeRules(name, c.config), nil, nil).decide
	left.opened = left.groupsToClose(o.groups, func(g securityGroup) ruleChange {
		// What others left behind is cleaned up as well, but keeps no Service from going.
		if hasRuleOf(g, name) || (r.Purpose == services.Delete && id.isTagged(g.tags)) {
			c := left.decide(g)
			left.findings = append(left.findings, c.doubtFindings()...)
			return c
		}
		return ruleChange{}
	})
	return left, nil
}
