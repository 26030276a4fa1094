package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	v1 "k8s.io/api/core/v1"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// classicReconciler reconciles classic load balancers.
type classicReconciler struct{ *shared }

var _ services.Reconciler[observed, desiredClassic] = (*classicReconciler)(nil)

// Observe implements services.Reconciler.
func (c *classicReconciler) Observe(ctx context.Context, r services.Request) (o observed, err error) {
	if !mayBeGone(r) {
		return c.observeLiving(ctx, r)
	}
	// It is read by itself: what is not found then does not exist.
	o.classic, err = c.records.classics.Get(ctx, loadBalancerName(r.Service), inventory.Query{MaxAge: deleteMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return observed{}, nil
	}
	return o, err
}

// CheckOwner implements services.Reconciler, and reads what the load balancer is made of.
func (c *classicReconciler) CheckOwner(
	ctx context.Context, r services.Request, o observed,
) (observed, []services.Finding, error) {
	return c.checkOwner(ctx, r, o, c.readParts)
}

func (c *classicReconciler) readParts(ctx context.Context, r services.Request, o observed) (observed, error) {
	var err error
	if o.groups, err = c.groups.all(ctx); err != nil || o.classic == nil || (r.Purpose != services.Ensure && r.Purpose != services.Plan) {
		return o, err
	}
	attributes, err := c.records.classicAttributes.Get(ctx, loadBalancerName(r.Service), inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return o, notAbsence(err)
	}
	o.classicAttributes = attributes.value
	if o.classicTags, err = c.tags.classicTags(ctx, o.classic); err != nil && !c.tags.isUnreadable(err) {
		return o, notAbsence(err)
	}
	return o, nil
}

// Desire implements services.Reconciler.
func (c *classicReconciler) Desire(
	ctx context.Context, r services.Request, o observed,
) (d desiredClassic, findings []services.Finding, err error) {
	b, err := c.targets.backendsOf(ctx, r.Nodes, o.settings)
	if err == nil {
		d, findings, err = c.desiredState(ctx, r.Service, o, b)
	}
	return d, append(findings, configError(err)...), err
}

// Fixed implements services.Fixer.
func (c *classicReconciler) Fixed(_ context.Context, r services.Request, o observed, _ desiredClassic) ([]services.Fixed, error) {
	if o.classic == nil {
		return nil, nil
	}
	return []services.Fixed{o.settings.fixedScheme(aws.ToString(o.classic.Scheme))}, nil
}

func (c *classicReconciler) desiredState(
	ctx context.Context, service *v1.Service, o observed, b backends,
) (d desiredClassic, findings []services.Finding, err error) {
	s := o.settings
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return d, nil, err
	}
	scheme := s.scheme()
	if o.classic != nil {
		scheme = aws.ToString(o.classic.Scheme)
	}
	subnets, err := c.vpc.chooseSubnets(ctx, s, scheme == schemeInternal)
	if err != nil {
		return d, findings, err
	}
	d = desireClassic(service, s, c.config, id, scheme, idsOf(subnets), b)
	if o.classic != nil {
		if d.zones, err = c.vpc.zonesOf(ctx); err != nil {
			return d, findings, err
		}
		findings = append(findings, onlySubnetFindings(o.classic, d)...)
		findings = append(findings, b.keptFindings(len(o.classic.Instances))...)
		d.instances = stayingInstances(o.classic, b)
		d.tags = s.tags // those that say whose it is were given at its creation
	}
	findings = append(findings, rangesFindings(service, s, c.config, entrance{}, nil)...)
	if err := c.groups.check(ctx, service, o.attachedGroups(), namedClassicGroups(s, c.config)); err != nil {
		return d, findings, err
	}
	if err := d.desireGroups(service, s, c.config, id, o.groups); err != nil {
		return d, findings, err
	}
	rules, found, err := c.nodeRules(ctx, service, o, d.groups[0], b)
	d.rules = rules
	return d, append(findings, found...), err
}

// Changes implements services.Reconciler. Openings of nodes come before the instances, or the first checks of their health fail.
func (c *classicReconciler) Changes(r services.Request, o observed, d desiredClassic) ([]change, error) {
	changes := c.groups.ownGroupChanges(d.own, o.groups)
	changes = append(changes, c.groups.nodeRuleChanges(d.rules.nodeRules(), opening)...)
	if o.classic == nil {
		return append(changes, c.creationChange(d)), nil
	}
	steps := classicSteps(o.classic, o.classicAttributes, o.classicTags, d)
	changes = append(changes, stepChanges("classic load balancer "+d.name, steps, c.run, c.rereadAll)...)
	changes = append(changes, c.groups.nodeRuleChanges(d.rules.nodeRules(), closing)...)
	changes = append(changes, c.groups.obsoleteGroupChanges(d.obsolete)...)
	return append(changes, c.targets.waitChanges(o, d.backends, c.readParts)...), nil
}

// Complete implements services.Reconciler: nothing is due besides the changes.
func (*classicReconciler) Complete(_ context.Context, _ *services.Request, o observed, _ desiredClassic) (observed, error) {
	return o, nil
}

// Status implements services.Reconciler.
func (*classicReconciler) Status(r services.Request, o observed, _ desiredClassic) (*v1.LoadBalancerStatus, error) {
	return o.statusOrFailed(r.Service)
}

// NodeChanges implements services.Reconciler: instances and what nodes let in, and only where they differ. Faults in annotations do
// not keep nodes from joining or leaving.
func (c *classicReconciler) NodeChanges(
	ctx context.Context, r services.Request, o observed,
) ([]change, []services.Finding, error) {
	if o.classic == nil {
		return nil, nil, nil
	}
	s := o.settings
	b, err := c.targets.backendsOf(ctx, r.Nodes, s)
	if err != nil {
		return nil, nil, err
	}
	rules, findings, err := c.nodeRules(ctx, r.Service, o, classicSource(s, c.config, o.classic, o.groups), b)
	if err != nil {
		return nil, findings, err
	}
	findings = append(findings, b.keptFindings(len(o.classic.Instances))...)
	changes := c.groups.nodeRuleChanges(rules.nodeRules(), opening)
	steps := classicInstanceSteps(o.classic, stayingInstances(o.classic, b))
	known := func(_ context.Context, r services.Request, o observed) (observed, error) {
		if lb, ok := c.records.classics.Peek(loadBalancerName(r.Service)); ok {
			o.classic = lb // with what was registered
		}
		return o, nil
	}
	changes = append(changes, stepChanges("classic load balancer "+loadBalancerName(r.Service), steps, c.run, known)...)
	changes = append(changes, c.groups.nodeRuleChanges(rules.nodeRules(), closing)...)
	return append(changes, c.targets.waitChanges(o, b, c.readParts)...), findings, nil
}

// Deletions implements services.Reconciler: rules of nodes, the load balancer, its security group. A rule for a group of it that is
// neither marked nor for a group that was made for it may be how other machines reach the nodes, or nodes each other; removing
// that would cut them off, so that it is a finding instead.
func (c *classicReconciler) Deletions(
	ctx context.Context, r services.Request, o observed,
) ([]change, []services.Finding, error) {
	if o.foreign {
		return nil, nil, nil
	}
	if err := c.groups.retryWhileHidden(o.groups, classicRuleOf(r.Service, o.attachedGroups())); err != nil {
		return nil, nil, err
	}
	left, err := c.leftovers(ctx, r, o)
	if err != nil {
		return nil, nil, err
	}
	var changes []change
	if len(left.opened) > 0 {
		changes = append(changes, c.groups.closingChange(left))
	}
	name := loadBalancerName(r.Service)
	if o.classic != nil {
		changes = append(changes, change{
			Planned: contract.Planned{Action: contract.PlanDelete, Object: "classic load balancer " + name},
			Make: func(ctx context.Context, _ *services.Request, o observed) (observed, error) {
				return o, c.records.deleteClassic(ctx, name)
			},
		})
	}
	return append(changes, c.groups.deletionChanges(left.groups)...), left.findings, nil
}

// Exists implements services.Reconciler.
func (c *classicReconciler) Exists(ctx context.Context, r services.Request, o observed) (*v1.LoadBalancerStatus, bool, error) {
	return exists(ctx, r, o, c.leftovers)
}

// leftovers returns a Service's objects besides its classic load balancer. It searches names, descriptions and tags, so that it also works
// after the load balancer is gone.
func (c *classicReconciler) leftovers(ctx context.Context, r services.Request, o observed) (left leftovers, err error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return left, err
	}
	name := loadBalancerName(r.Service)
	for _, g := range groupsByID(o.groups) {
		if g.name == classicGroupName(name) && id.isOwned(g.tags) && !isNamedByUser(r.Service, c.config, g.id) {
			left.groups = append(left.groups, g)
		}
	}
	if c.config.NoNodeGroupRules {
		return left, nil
	}
	// Rules for what is left over are removed first, and nobody else needs them.
	rules := classicRules{id: id, all: removeRulesFrom(o.groups, left.groups), name: name}
	if o.classic != nil {
		rules.sources = classicSources(r.Service, c.config, o.classic)
	}
	if err := c.keepSharedRules(ctx, &rules); err != nil {
		return left, err
	}
	left.opened, left.decide = left.groupsToClose(o.groups, rules.change), rules.change
	left.findings = rules.keptFindings()
	return left, nil
}

// creationChange creates the load balancer.
func (c *classicReconciler) creationChange(d desiredClassic) change {
	ports := make([]string, len(d.listeners))
	for i, p := range d.listeners {
		ports[i] = fmt.Sprintf("%s/%d to %s/%d", p.protocol, p.port, p.instanceProtocol, p.instancePort)
	}
	return change{
		Planned: contract.Planned{Action: contract.PlanCreate, Object: "classic load balancer " + d.name, Detail: fmt.Sprintf(
			"%s, %s, subnets %s, %d instances", d.scheme, strings.Join(ports, ", "), strings.Join(d.subnets, ", "), len(d.instances))},
		Replan: true, Creates: true, Compare: func() (before, after any) { return nil, d.plannedBalancer() },
		Make: func(ctx context.Context, r *services.Request, o observed) (observed, error) {
			if err := c.create(ctx, d); err != nil {
				return o, err
			}
			return c.rereadAll(ctx, *r, o)
		},
	}
}

// plannedBalancer is a new load balancer with what the calls after its creation set, as plan shows it.
func (d desiredClassic) plannedBalancer() any {
	made := services.Part(createClassic(d), "LoadBalancerName", "Subnets", "SecurityGroups", "Tags", "Scheme", "Listeners")
	made["HealthCheck"], made["LoadBalancerAttributes"], made["Instances"] = d.check, d.attributes, d.instances
	return made
}

func (c *classicReconciler) create(ctx context.Context, d desiredClassic) error {
	what := "creating classic load balancer " + d.name
	_, err := call(ctx, c.api, what, (*elb.Client).CreateLoadBalancer, createClassic(d))
	duplicate := codeOf(err) == "DuplicateLoadBalancerName" // made by a call whose answer was lost, or it does not show yet
	if err == nil || duplicate {
		c.records.classics.PutPartial(&classicLoadBalancer{LoadBalancerName: &d.name, SecurityGroups: d.groups})
		c.records.classicAttributes.Made(d.name)
	}
	if err == nil {
		c.records.classicTags.Put(keyedTexts{d.name, d.tags})
		return nil
	}
	c.records.classics.InvalidateAll() // it may exist all the same, made by a call whose answer was lost
	switch {
	case codeOf(err) == "InvalidSecurityGroup" && d.own != nil: // the group exists: we made or found it
		return retryIfHidden(&cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: err.Error()}, d.groups[0])
	case duplicate:
		return cloudproviderapi.NewRetryError("AWS does not show classic load balancer "+d.name+" yet, which exists", groupVisiblePause)
	}
	return err
}

// run makes one call.
func (c *classicReconciler) run(ctx context.Context, r services.Request, s step) error {
	name := loadBalancerName(r.Service)
	if err := c.records.run(ctx, s, nil); err != nil {
		if codeOf(err) == "DuplicateListener" {
			err = cloudproviderapi.NewRetryError("AWS does not show all listeners of load balancer "+name+" yet", groupVisiblePause)
		}
		return c.invalidateAfterFailure(fmt.Errorf("load balancer %s: %w", name, err), func() { c.records.classics.Invalidate(name) })
	}
	return nil
}

// rereadAll reads a load balancer after a change. Where that fails, what is known of it is worth nothing.
func (c *classicReconciler) rereadAll(ctx context.Context, r services.Request, o observed) (observed, error) {
	name := loadBalancerName(r.Service)
	lb, err := c.records.classics.Get(ctx, name, inventory.Query{})
	if err != nil {
		c.records.classics.Invalidate(name)
		return o, notAbsence(err)
	}
	o.classic = lb
	return c.readParts(ctx, r, o)
}

// nodeRules are the rules of nodes for a load balancer that a security group stands for; nil where nothing is to be changed.
func (c *classicReconciler) nodeRules(
	ctx context.Context, service *v1.Service, o observed, from string, b backends,
) (*classicRules, []services.Finding, error) {
	if c.config.NoNodeGroupRules || from == "" || len(b.list) == 0 {
		return nil, nil, nil
	}
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, nil, err
	}
	opened, findings := nodeGroupsOf(id, o.groups, b)
	rules := &classicRules{id: id, all: o.groups, name: loadBalancerName(service), sources: []string{from}, from: from, opened: opened}
	return rules, findings, c.keepSharedRules(ctx, rules)
}

// keepSharedRules protects rules that other load balancers need; their nodes may be in other groups. It asks for them only before a
// removal.
func (c *classicReconciler) keepSharedRules(ctx context.Context, rules *classicRules) (err error) {
	if slices.ContainsFunc(rules.changes(), func(one ruleChange) bool { return len(one.remove) > 0 }) {
		rules.shared, err = c.sharedGroups(ctx, rules.name)
	}
	return err
}

// sharedGroups are the security groups of other Services' classic load balancers, as users may name them: the rules for them
// look the same.
func (c *classicReconciler) sharedGroups(ctx context.Context, name string) ([]string, error) {
	all, err := c.records.classics.All(ctx, inventory.Query{MaxAge: ensureMaxAge})
	if err != nil {
		return nil, err
	}
	living := map[string]bool{}
	for _, s := range c.served.all() {
		living[loadBalancerName(s)] = s.DeletionTimestamp == nil
	}
	var groups []string
	for _, lb := range all {
		if other := aws.ToString(lb.LoadBalancerName); other != name && living[other] {
			groups = append(groups, lb.SecurityGroups...)
		}
	}
	return groups, nil
}
