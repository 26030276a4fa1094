package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Reasons of the events that the provider writes on Services.
const (
	// eventConfigError: the Service cannot be served as it asks.
	eventConfigError = "LoadBalancerConfigError"
	// eventIgnored: an annotation has no effect.
	eventIgnored = "LoadBalancerAnnotationIgnored"
	// eventNotOurs: the Service claims a load balancer of another cluster.
	eventNotOurs = "LoadBalancerNotOurs"
	// eventNoNodeGroup: a node has no security group that could be opened.
	eventNoNodeGroup = "LoadBalancerNodeSecurityGroupMissing"
	// eventRuleKept: a rule stays that AWS's own controller, or somebody else, made, or that another Service may need.
	eventRuleKept = "LoadBalancerSecurityRuleKept"
	// eventTargetsKept: no instance of a node is visible, so registered targets stay.
	eventTargetsKept = "LoadBalancerTargetsKept"
	// eventRangesIgnored: source ranges keep nobody out.
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	// eventSingleStack: the Service has both families, the load balancer one.
	eventSingleStack = "LoadBalancerSingleStack"
)

// shared is used by the reconcilers of both kinds of load balancers.
type shared struct {
	config  Config
	api     *api
	targets targetReader
	vpc     *vpcNetwork
	groups  *securityGroups
	records *records
	tags    *tagReader
	served  *servedServices
}

func newShared(c Config, a *api, i *instances, n *vpcNetwork) *shared {
	known, served := newRecords(a), &servedServices{}
	return &shared{
		config: c, api: a, targets: targetReader{a, i}, vpc: n, groups: newSecurityGroups(a), records: known,
		tags: &tagReader{records: known, served: served}, served: served,
	}
}

// problemf is a fault of an annotation that shows only in the cloud.
func problemf(annotation, value, reason string, args ...any) error {
	return &schema.Problem{Place: "annotation " + annotation, Value: value, Reason: fmt.Sprintf(reason, args...)}
}

// configError is the finding about a fault of the Service.
func configError(err error) []services.Finding {
	if _, fault := errors.AsType[*schema.Problem](err); !fault {
		return nil
	}
	return []services.Finding{services.Warning(eventConfigError, "%s", err)}
}

// Validate implements services.Reconciler.
func (c *shared) Validate(r services.Request) ([]services.Finding, error) {
	_, warnings, err := parseSettings(r.Service, c.config)
	return services.Judged(warnings, err), err
}

// observed holds AWS's objects for a Service: its load balancer of either kind, and what belongs to it.
type observed struct {
	bothKinds
	// settings are those of a Service that is not deleted, as far as they can be read; settingsErr is what Validate has reported.
	settings    settings
	settingsErr error
	// classicTags are empty where they may not be read.
	classicAttributes elbtypes.LoadBalancerAttributes
	classicTags       map[string]string
	// state holds the parts of a network load balancer. If it is gone and the Service is being deleted, it holds the target groups
	// created for the Service.
	state networkState
	// groups are the security groups of the VPC, where they are needed.
	groups map[string]securityGroup
	// foreign is set where the load balancer is somebody else's.
	foreign bool
	// waited is set once instances that are about to run were waited for.
	waited bool
}

// change is a change of a load balancer, or of what belongs to it.
type change = services.Change[observed]

// mayBeGone reports whether the Service of a request may be deleted, so that its load balancer is read by itself.
func mayBeGone(r services.Request) bool {
	return r.Purpose == services.Delete || r.Purpose == services.Lookup
}

// observeLiving finds the load balancers of a Service that is not deleted.
func (c *shared) observeLiving(ctx context.Context, r services.Request) (o observed, err error) {
	o.settings, _, o.settingsErr = parseSettings(r.Service, c.config)
	o.bothKinds, err = c.findLoadBalancers(ctx, r.Service)
	return o, err
}

// checkOwner decides whether the load balancers belong to the Service, and reads what they are made of. Somebody else's stays untouched.
func (c *shared) checkOwner(
	ctx context.Context, r services.Request, o observed, read func(context.Context, services.Request, observed) (observed, error),
) (observed, []services.Finding, error) {
	err := c.refuseForeign(ctx, o.bothKinds)
	_, notOurs := errors.AsType[*ownership.NotOursError](err)
	claims := r.Purpose == services.Ensure || r.Purpose == services.Plan
	switch {
	case notOurs && claims:
		return o, []services.Finding{services.Warning(eventNotOurs, "%s", err)}, err
	case notOurs:
		klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(r.Service), "reason", err.Error())
		return observed{foreign: true}, nil, nil
	case err == nil && claims:
		err = kindChanged(r.Service, o.bothKinds)
	}
	if err != nil {
		return o, configError(err), err
	}
	o, err = read(ctx, r, o)
	return o, nil, err
}

// refuseForeign returns a NotOursError where tags give a load balancer to another cluster. One without such tags is as its
// users left it, and is adopted.
func (c *shared) refuseForeign(ctx context.Context, have bothKinds) error {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return err
	}
	check := func(object string, tags map[string]string) error {
		if other := id.otherOwner(tags); other != "" {
			return &ownership.NotOursError{
				Object: object, Owner: fmt.Sprintf("another cluster, %q by its tags; this one is %q", other, id.clusterID),
			}
		}
		return nil
	}
	if have.classic != nil {
		tags, err := c.tags.classicTags(ctx, have.classic)
		if err == nil {
			err = check("classic load balancer "+aws.ToString(have.classic.LoadBalancerName), tags)
		}
		if err != nil && !c.tags.isUnreadable(err) {
			return err
		}
	}
	if have.network == nil {
		return nil
	}
	name := aws.ToString(have.network.LoadBalancerName)
	if have.network.Type != elbv2types.LoadBalancerTypeEnumNetwork {
		return &ownership.NotOursError{
			Object: "load balancer " + name, Owner: "somebody else: it is of the type " + string(have.network.Type),
		}
	}
	tags, err := c.tags.networkTags(ctx, aws.ToString(have.network.LoadBalancerArn))
	if c.tags.isUnreadable(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return check("network load balancer "+name, tags)
}

// kindChanged refuses a Service that asks for another kind of load balancer than it has: the new one would have another
// address, and the old one would be left behind.
func kindChanged(service *v1.Service, have bothKinds) error {
	network, _ := kindOf(service)
	kind := ""
	switch {
	case network && have.classic != nil:
		kind = "a classic load balancer"
	case !network && have.network != nil:
		kind = "a network load balancer"
	}
	if kind == "" {
		return nil
	}
	return problemf(annotationType, service.Annotations[annotationType], "differs from the load balancer that the Service has, which is "+
		"%s; change it back, or delete and create the Service", kind)
}

// host is the name by which clients find a load balancer; "" where it has failed.
func (b bothKinds) host() string {
	switch {
	case b.classic != nil:
		return aws.ToString(b.classic.DNSName)
	case b.network.State != nil && b.network.State.Code == elbv2types.LoadBalancerStateEnumFailed:
		return ""
	}
	return aws.ToString(b.network.DNSName)
}

func (b bothKinds) status() *v1.LoadBalancerStatus {
	if b.host() == "" {
		return &v1.LoadBalancerStatus{}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: b.host()}}}
}

// statusOrFailed is the status of a load balancer that was reconciled.
func (b bothKinds) statusOrFailed(service *v1.Service) (*v1.LoadBalancerStatus, error) {
	if b.host() == "" {
		return nil, fmt.Errorf("load balancer %s has the state failed; delete it in AWS to have it made again, or delete the Service",
			loadBalancerName(service))
	}
	return b.status(), nil
}

// exists returns the status of a load balancer. It exists as long as anything of it is left.
func exists(
	ctx context.Context, r services.Request, o observed, find func(context.Context, services.Request, observed) (leftovers, error),
) (*v1.LoadBalancerStatus, bool, error) {
	switch {
	case o.foreign:
		return nil, false, nil
	case !o.isEmpty():
		return o.status(), true, nil
	}
	left, err := find(ctx, r, o)
	return &v1.LoadBalancerStatus{}, err == nil && left.isPresent(), err
}

// rangesOf are the networks that may come in; where none are given, everybody.
func rangesOf(s settings, v6 bool) []netip.Prefix {
	if len(s.ranges) > 0 {
		return s.ranges
	}
	everybody := []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0")}
	if v6 {
		everybody = append(everybody, netip.MustParsePrefix("::/0"))
	}
	return everybody
}

// nodeGroupsOf are the backends' security groups for rules. If no group of a node has the tag, the groups already used go on being used, so
// that adding another group blocks nobody. A node without any group is a finding.
func nodeGroupsOf(id *identity, all map[string]securityGroup, b backends) (list []string, findings []services.Finding) {
	for _, one := range b.list {
		g, err := nodeGroup(id, one.groups, all)
		used := slices.DeleteFunc(slices.Clone(one.groups), func(g string) bool {
			return !slices.ContainsFunc(all[g].rules, madeForLoadBalancers(all))
		})
		switch {
		case err != nil && len(used) > 0:
			list = append(list, used...)
			continue
		case err != nil:
			findings = append(findings, services.Warning(eventNoNodeGroup,
				"node %s (%s) lets the load balancer in only if its own rules do: %v", one.node, one.id, err))
			continue
		}
		if g != "" {
			list = append(list, g)
		}
	}
	slices.Sort(list)
	return slices.Compact(list), findings
}

// madeForLoadBalancers reports whether a rule of nodes was made for a load balancer, of any Service.
func madeForLoadBalancers(all map[string]securityGroup) func(rule) bool {
	return func(r rule) bool {
		network, _ := ruleOf(r)
		_, classic := classicMark(r)
		return network != "" || classic || strings.HasPrefix(all[r.source.group].name, classicGroupName(""))
	}
}

// tagsFor are the tags of what is made for a Service.
func tagsFor(id *identity, service *v1.Service, s settings) map[string]string {
	return mergeTags(s.tags, map[string]string{serviceTag: serviceName(service)}, id.ownershipTags())
}

func mergeTags(sets ...map[string]string) map[string]string {
	tags := map[string]string{}
	for _, set := range sets {
		maps.Copy(tags, set)
	}
	return tags
}

// pairsOf returns tags or attributes as a list of the SDK's type, in the order of their keys.
func pairsOf[T any](values map[string]string, pair func(key, value *string) T) (list []T) {
	for _, k := range slices.Sorted(maps.Keys(values)) {
		list = append(list, pair(aws.String(k), aws.String(values[k])))
	}
	return list
}

// scheme is that which a Service asks for.
func (s settings) scheme() string {
	if s.internal {
		return schemeInternal
	}
	return schemePublic
}

// fixedScheme is whether a load balancer is internal, which the annotation says only when it is made.
func (s settings) fixedScheme(scheme string) services.Fixed {
	return services.Single(annotationInternal, s.scheme(), scheme)
}

// stepChanges are the changes of a load balancer itself. after brings what is observed up to date when the last one is made.
func stepChanges(
	object string, steps []step, run func(context.Context, services.Request, step) error,
	after func(context.Context, services.Request, observed) (observed, error),
) []change {
	changes := make([]change, len(steps))
	for i, s := range steps {
		last := i == len(steps)-1
		_, creates := s.input.(*elbv2.CreateTargetGroupInput)
		changes[i] = change{
			Planned: contract.Planned{Action: contract.PlanChange, Object: object, Detail: s.what}, Creates: creates, Compare: s.compare,
			Make: func(ctx context.Context, r *services.Request, o observed) (observed, error) {
				if err := run(ctx, *r, s); err != nil || !last {
					return o, err
				}
				return after(ctx, *r, o)
			},
		}
	}
	return changes
}

// invalidateAfterFailure makes the next try read again what the failed write may have changed.
func (c *shared) invalidateAfterFailure(err error, invalidate func()) error {
	invalidate()
	if refusedTarget(err) {
		c.targets.instances.inventory.InvalidateAll()
	}
	return err
}
