package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// ensureMaxAge is how old the picture of load balancers and of what they are made of may be when a Service is
	// reconciled. Our own writes are in it at once; the age only delays the sight of changes that somebody else made.
	ensureMaxAge = 60 * time.Second
	// updateMaxAge serves a change of nodes, which concerns every load balancer at about the same time.
	updateMaxAge = 60 * time.Second
	// updateTargetsMaxAge is for registered targets when nodes change: nobody else registers them, and AWS takes those out
	// that are terminated.
	updateTargetsMaxAge = 24 * time.Hour
	// otherKindMaxAge is how old the proof may be that a Service has no load balancer of the other kind.
	otherKindMaxAge = 10 * time.Minute
	// tagsMaxAge is for the tags of load balancers, which nobody changes.
	tagsMaxAge = 10 * time.Minute
	// deleteMaxAge is how old the picture of what is left may be when a Service goes.
	deleteMaxAge = 10 * time.Second
	// backendMaxAge is for the instances behind nodes: their groups and addresses hardly change, and one that went
	// meanwhile makes AWS refuse it, after which they are read anew.
	backendMaxAge = 10 * time.Minute
)

// Reasons of the events that the provider writes on Services.
const (
	// eventConfigError: the Service cannot be served as it wishes.
	eventConfigError = "LoadBalancerConfigError"
	// eventIgnored: an annotation has no effect.
	eventIgnored = "LoadBalancerAnnotationIgnored"
	// eventFixed: the wish differs from what was fixed when the load balancer was created.
	eventFixed = "LoadBalancerAnnotationFixed"
	// eventNotOurs: the Service claims a load balancer of another cluster.
	eventNotOurs = "LoadBalancerNotOurs"
	// eventNoNodeGroup: a node has no security group that could be opened.
	eventNoNodeGroup = "LoadBalancerNodeSecurityGroupMissing"
	// eventRuleKept: a rule stays that AWS's own controller, or somebody else, made.
	eventRuleKept = "LoadBalancerSecurityRuleKept"
	// eventTargetsKept: none of the nodes' instances shows, so that what is registered stays.
	eventTargetsKept = "LoadBalancerTargetsKept"
	// eventRangesIgnored: source ranges keep nobody out.
	eventRangesIgnored = "LoadBalancerSourceRangesIgnored"
	// eventSingleStack: the Service has both families, the load balancer one.
	eventSingleStack = "LoadBalancerSingleStack"
)

// loadBalancers implements cloudprovider.LoadBalancer.
type loadBalancers struct {
	config    Config
	api       *api
	instances *instances
	network   *network
	groups    *securityGroups
	balancers *balancers
	// fixedChecks is set once the API has refused to change protocol or interval of a health check.
	fixedChecks atomic.Bool
	// tagsRefused is when the permission to read tags was refused, and tagsWarned tells of it once.
	tagsRefused atomic.Pointer[time.Time]
	tagsWarned  sync.Once

	// cluster is the value of --cluster-name, once a Service was reconciled.
	cluster atomic.Pointer[string]

	services listers.ServiceLister
	// Set by Initialize, before any call of the framework.
	events record.EventRecorder
}

var _ cloudprovider.LoadBalancer = (*loadBalancers)(nil)

func newLoadBalancers(c Config, a *api, i *instances, n *network) *loadBalancers {
	return &loadBalancers{config: c, api: a, instances: i, network: n, groups: newSecurityGroups(a), balancers: newBalancers(a)}
}

// problemf is a fault of an annotation that shows only in the cloud.
func problemf(annotation, value, reason string, args ...any) error {
	return &schema.Problem{Place: "annotation " + annotation, Value: value, Reason: fmt.Sprintf(reason, args...)}
}

// GetLoadBalancerName implements cloudprovider.LoadBalancer.
func (*loadBalancers) GetLoadBalancerName(_ context.Context, _ string, service *v1.Service) string {
	return balancerName(service)
}

// pair are the load balancers of a Service, of which it has one at most; both are nil if it has none.
type pair struct {
	classic *classicBalancer
	network *elbv2types.LoadBalancer
}

func (p pair) none() bool { return p.classic == nil && p.network == nil }

// find returns the load balancers with the Service's name, from listings that all Services share.
func (l *loadBalancers) find(ctx context.Context, service *v1.Service, q, other inventory.Query) (pair, error) {
	network, _ := kindOf(service)
	classicQuery, networkQuery := q, other
	if network {
		classicQuery, networkQuery = other, q
	}
	var p pair
	name := balancerName(service)
	classics, err := l.balancers.classics.Find(ctx, indexName, name, classicQuery)
	if err != nil {
		return p, err
	}
	networks, err := l.balancers.networks.Find(ctx, indexName, name, networkQuery)
	if err != nil {
		return p, err
	}
	if len(classics) > 0 {
		p.classic = classics[0]
	}
	if len(networks) > 0 {
		p.network = networks[0]
	}
	return p, nil
}

// findSurely reads the load balancers with the Service's name by themselves: what is not found then does not exist.
func (l *loadBalancers) findSurely(ctx context.Context, service *v1.Service) (pair, error) {
	name := balancerName(service)
	classic, err := l.balancers.classics.Get(ctx, name, inventory.Query{MaxAge: deleteMaxAge})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return pair{}, err
	}
	network, err := l.balancers.networks.Get(ctx, name, inventory.Query{MaxAge: deleteMaxAge})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return pair{}, err
	}
	if classic == nil && network == nil {
		return pair{}, l.balancers.newBalancers.check(name, "load balancer "+name)
	}
	return pair{classic, network}, nil
}

// checkOwner returns a NotOursError where tags give a load balancer to another cluster. One without such tags is as its
// users left it, and is adopted.
func (l *loadBalancers) checkOwner(ctx context.Context, p pair) error {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return err
	}
	check := func(object string, tags map[string]string) error {
		if other := id.otherOwner(tags); other != "" {
			return &ownership.NotOursError{Object: object, Owner: fmt.Sprintf("another cluster, %q by its tags; this one is %q", other, id.clusterID)}
		}
		return nil
	}
	if p.classic != nil {
		tags, err := l.classicTags(ctx, p.classic)
		if err == nil {
			err = check("classic load balancer "+aws.ToString(p.classic.LoadBalancerName), tags)
		}
		if err != nil && !l.tagsUnknown(err) {
			return err
		}
	}
	if p.network != nil {
		if p.network.Type != elbv2types.LoadBalancerTypeEnumNetwork {
			return &ownership.NotOursError{Object: "load balancer " + aws.ToString(p.network.LoadBalancerName), Owner: "somebody else: it is of the type " + string(p.network.Type)}
		}
		tags, err := l.networkTags(ctx, aws.ToString(p.network.LoadBalancerArn))
		if l.tagsUnknown(err) {
			return nil
		}
		if err != nil {
			return err
		}
		return check("network load balancer "+aws.ToString(p.network.LoadBalancerName), tags)
	}
	return nil
}

// errTagsRefused is the answer about tags for a while after the permission to read them was refused.
var errTagsRefused = errors.New("the permission elasticloadbalancing:DescribeTags is refused")

// tagsRefusedFor is how long that is believed.
const tagsRefusedFor = 10 * time.Minute

// tagsUnknown reports whether tags could not be read for lack of a permission that AWS's own controller does not need. What has
// the name is the Service's all the same: the name carries its UID.
func (l *loadBalancers) tagsUnknown(err error) bool {
	if errors.Is(err, errTagsRefused) {
		return true
	}
	if !permissionRefused(err) {
		return false
	}
	l.tagsRefused.Store(new(time.Now()))
	l.tagsWarned.Do(func() {
		klog.Warning("Load balancers are told by their names alone, for their tags may not be read: allow elasticloadbalancing:DescribeTags")
	})
	return true
}

// tagsReadable returns errTagsRefused while the refusal is believed.
func (l *loadBalancers) tagsReadable() error {
	if at := l.tagsRefused.Load(); at != nil && time.Since(*at) < tagsRefusedFor {
		return errTagsRefused
	}
	return nil
}

// classicTags reads tags; those of the other load balancers that Services have come along.
func (l *loadBalancers) classicTags(ctx context.Context, lb *classicBalancer) (map[string]string, error) {
	if err := l.tagsReadable(); err != nil {
		if known, ok := l.balancers.classicTags.Peek(aws.ToString(lb.LoadBalancerName)); ok {
			return known.value, nil // what we gave it ourselves
		}
		return nil, err
	}
	ctx = inventory.WithPrefetch(ctx, func() []string {
		return l.ofServices(func(name string) string {
			if _, known := l.balancers.classics.Peek(name); known {
				return name
			}
			return ""
		})
	})
	found, err := l.balancers.classicTags.Get(ctx, aws.ToString(lb.LoadBalancerName), inventory.Query{MaxAge: tagsMaxAge})
	return found.value, err
}

func (l *loadBalancers) networkTags(ctx context.Context, arn string) (map[string]string, error) {
	if err := l.tagsReadable(); err != nil {
		return nil, err
	}
	ctx = inventory.WithPrefetch(ctx, func() []string {
		return l.ofServices(func(name string) string {
			if lb, known := l.balancers.networks.Peek(name); known {
				return aws.ToString(lb.LoadBalancerArn)
			}
			return ""
		})
	})
	found, err := l.balancers.networkTags.Get(ctx, arn, inventory.Query{MaxAge: tagsMaxAge})
	return found.value, err
}

// ofServices collects something about the load balancer of every Service.
func (l *loadBalancers) ofServices(about func(name string) string) []string {
	var all []string
	for _, s := range l.served() {
		if v := about(balancerName(s)); v != "" {
			all = append(all, v)
		}
	}
	return all
}

// served are the Services of type LoadBalancer.
func (l *loadBalancers) served() []*v1.Service {
	if l.services == nil {
		return nil
	}
	all, err := l.services.List(labels.Everything())
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(s *v1.Service) bool { return s.Spec.Type != v1.ServiceTypeLoadBalancer })
}

// GetLoadBalancer implements cloudprovider.LoadBalancer. A load balancer exists as long as anything of it is left, so that
// its Service stays until all of it is gone.
func (l *loadBalancers) GetLoadBalancer(ctx context.Context, cluster string, service *v1.Service) (*v1.LoadBalancerStatus, bool, error) {
	var p pair
	err := patiently(ctx, func() (err error) {
		p, err = l.findSurely(ctx, service)
		return err
	})
	if err != nil {
		return nil, false, err
	}
	if err := l.checkOwner(ctx, p); err != nil {
		if _, notOurs := errors.AsType[*ownership.NotOursError](err); notOurs {
			klog.InfoS("Leaving a load balancer alone", "service", klog.KObj(service), "reason", err.Error())
			return nil, false, nil
		}
		return nil, false, err
	}
	if !p.none() {
		return status(p), true, nil
	}
	left, err := l.leftovers(ctx, cluster, service, p)
	return &v1.LoadBalancerStatus{}, err == nil && left.any(), err
}

// status is what a Service shows of its load balancer.
func status(p pair) *v1.LoadBalancerStatus {
	host := ""
	switch {
	case p.classic != nil:
		host = aws.ToString(p.classic.DNSName)
	case p.network != nil && (p.network.State == nil || p.network.State.Code != elbv2types.LoadBalancerStateEnumFailed):
		host = aws.ToString(p.network.DNSName)
	}
	if host == "" {
		return &v1.LoadBalancerStatus{}
	}
	return &v1.LoadBalancerStatus{Ingress: []v1.LoadBalancerIngress{{Hostname: host}}}
}

// settings reads the annotations and tells the Service what is wrong with them.
func (l *loadBalancers) settings(service *v1.Service) (settings, error) {
	s, warnings, err := parseSettings(service, l.config)
	for _, w := range schema.Problems(warnings) {
		l.event(service, eventIgnored, w.Error())
	}
	if err != nil {
		l.event(service, eventConfigError, err.Error())
	}
	return s, err
}

// EnsureLoadBalancer implements cloudprovider.LoadBalancer: observe, desire, plan, apply.
func (l *loadBalancers) EnsureLoadBalancer(ctx context.Context, cluster string, service *v1.Service, nodes []*v1.Node) (status *v1.LoadBalancerStatus, err error) {
	l.cluster.Store(&cluster)
	if _, elsewhere := kindOf(service); elsewhere {
		l.reportPrevious(service)
		return nil, cloudprovider.ImplementedElsewhere
	}
	s, err := l.settings(service)
	if err != nil {
		return nil, err
	}
	err = patiently(ctx, func() error {
		status, err = l.ensure(ctx, cluster, service, s, nodes)
		return err
	})
	return status, err
}

// reportPrevious tells of the load balancer that a Service had before another controller was to serve it. It costs no call.
func (l *loadBalancers) reportPrevious(service *v1.Service) {
	name := balancerName(service)
	_, classic := l.balancers.classics.Peek(name)
	_, network := l.balancers.networks.Peek(name)
	if classic || network {
		l.event(service, eventFixed, fmt.Sprintf("load balancer %s, which was made before annotation %s was %q, stays as it is and gets no "+
			"changes of nodes; it goes with the Service", name, annotationType, service.Annotations[annotationType]))
	}
}

func (l *loadBalancers) ensure(ctx context.Context, cluster string, service *v1.Service, s settings, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	q := inventory.Query{MaxAge: ensureMaxAge, MaxUnlistedAge: ensureMaxAge}
	p, err := l.find(ctx, service, q, inventory.Query{MaxAge: otherKindMaxAge, MaxUnlistedAge: otherKindMaxAge})
	if err != nil {
		return nil, err
	}
	if p.none() { // it may not show yet
		if later := l.balancers.newBalancers.check(balancerName(service), "load balancer "+balancerName(service)); later != nil {
			l.balancers.classics.InvalidateAll()
			l.balancers.networks.InvalidateAll()
			return nil, later
		}
	}
	if err := l.checkOwner(ctx, p); err != nil {
		l.event(service, eventNotOurs, err.Error())
		return nil, err
	}
	if err := kindChanged(service, s, p); err != nil {
		l.event(service, eventConfigError, err.Error())
		return nil, err
	}
	backends, err := l.targetsOf(ctx, nodes, &s)
	if err != nil {
		return nil, err
	}
	ensure := func(backends []backend) (err error) {
		if s.network {
			p.network, err = l.ensureNetwork(ctx, cluster, service, s, p.network, backends)
		} else {
			p.classic, err = l.ensureClassic(ctx, service, s, p.classic, backends)
		}
		return err
	}
	if err = ensure(backends); err == nil {
		err = l.withStarted(ctx, backends, ensure)
	}
	if err != nil {
		if _, fault := errors.AsType[*schema.Problem](err); fault {
			l.event(service, eventConfigError, err.Error())
		}
		return nil, err
	}
	shown := status(p)
	if len(shown.Ingress) == 0 {
		return nil, fmt.Errorf("load balancer %s has the state failed; delete it in AWS to have it made anew, or delete the Service", balancerName(service))
	}
	return shown, nil
}

// kindChanged refuses a Service that wants another kind of load balancer than it has: the new one would have another
// address, and the old one would be left behind.
func kindChanged(service *v1.Service, s settings, p pair) error {
	have := ""
	switch {
	case s.network && p.classic != nil:
		have = "a classic load balancer"
	case !s.network && p.network != nil:
		have = "a network load balancer"
	}
	if have == "" {
		return nil
	}
	return problemf(annotationType, service.Annotations[annotationType], "differs from the load balancer that the Service has, which is %s; change it back, or delete and create the Service", have)
}

// rangesOf are the networks that may come in; without a wish, everybody.
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

// UpdateLoadBalancer implements cloudprovider.LoadBalancer: targets and what nodes let in, and only where they differ.
// Nothing is created here, and faults in annotations do not keep nodes from joining or leaving.
func (l *loadBalancers) UpdateLoadBalancer(ctx context.Context, _ string, service *v1.Service, nodes []*v1.Node) error {
	if _, elsewhere := kindOf(service); elsewhere {
		return cloudprovider.ImplementedElsewhere
	}
	q := inventory.Query{MaxAge: updateMaxAge, MaxUnlistedAge: updateMaxAge}
	p, err := l.find(ctx, service, q, inventory.Query{MaxAge: otherKindMaxAge, MaxUnlistedAge: otherKindMaxAge})
	if err != nil || p.none() {
		return err
	}
	if err := l.checkOwner(ctx, p); err != nil {
		if _, notOurs := errors.AsType[*ownership.NotOursError](err); notOurs {
			return nil
		}
		return err
	}
	s, _, faults := parseSettings(service, l.config)
	backends, err := l.targetsOf(ctx, nodes, &s)
	if err != nil {
		return err
	}
	update := func(backends []backend) error {
		if p.network != nil {
			return l.updateNetwork(ctx, service, s, faults == nil, p.network, backends)
		}
		name := aws.ToString(p.classic.LoadBalancerName)
		if known, ok := l.balancers.classics.Peek(name); ok {
			p.classic = known // with what an earlier round has registered
		}
		return l.updateClassic(ctx, service, s, p.classic, backends)
	}
	if err := update(backends); err != nil {
		return err
	}
	return l.withStarted(ctx, backends, update)
}

// nodeGroups are the security groups of backends that rules go into. A node that has none tells its Service.
func (l *loadBalancers) nodeGroups(ctx context.Context, service *v1.Service, backends []backend) ([]string, error) {
	_, id, err := l.api.ready(ctx)
	if err != nil {
		return nil, err
	}
	all, err := l.groups.all(ctx)
	if err != nil {
		return nil, err
	}
	var list []string
	for _, b := range backends {
		g, err := nodeGroup(id, b.groups, all)
		if err != nil {
			l.event(service, eventNoNodeGroup, fmt.Sprintf("node %s (%s) lets the load balancer in only if its own rules do: %v", b.node, b.id, err))
			continue
		}
		if g != "" && !slices.Contains(list, g) {
			list = append(list, g)
		}
	}
	slices.Sort(list)
	return list, nil
}

// tagsFor are the tags of what is made for a Service.
func (l *loadBalancers) tagsFor(id *identity, service *v1.Service, s settings) map[string]string {
	tags := maps.Clone(s.tags)
	if tags == nil {
		tags = map[string]string{}
	}
	tags[serviceTag] = serviceName(service)
	maps.Copy(tags, id.ownershipTags())
	return tags
}

// reportFixed tells of wishes that came too late.
func (l *loadBalancers) reportFixed(service *v1.Service, key, wanted, have string) {
	l.event(service, eventFixed, fmt.Sprintf("annotation %s: %q has no effect, it stays %q: it is fixed when the load balancer is created; delete and create the Service to change it", key, wanted, have))
}

func (l *loadBalancers) reportScheme(service *v1.Service, s settings, scheme string) {
	if s.internal != (scheme == schemeInternal) {
		l.reportFixed(service, annotationInternal, service.Annotations[annotationInternal], scheme)
	}
}

func (l *loadBalancers) event(service *v1.Service, reason, message string) {
	if l.events != nil {
		l.events.Event(service, v1.EventTypeWarning, reason, message)
	}
}

// refusedTarget reports whether AWS refused an instance that is gone, or not running any more.
func refusedTarget(err error) bool {
	code := codeOf(err)
	return strings.HasPrefix(code, "InvalidTarget") || strings.HasPrefix(code, "InvalidInstance")
}
