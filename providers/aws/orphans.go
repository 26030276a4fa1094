package aws

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/ownership"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Kinds of orphans.
const (
	orphanClassic     = "classic load balancer"
	orphanNetwork     = "network load balancer"
	orphanTargetGroup = "target group"
	orphanGroup       = "security group"
)

// orphanFinder finds the orphans of one kind.
type orphanFinder func(context.Context, *identity, livingServices) ([]contract.Orphan, error)

// Orphans implements contract.OrphanFinder: objects with this cluster's tags and without a Service. Target groups and security groups count
// if no load balancer uses them, rules of nodes if their load balancer is gone. A load balancer with running targets that are not Nodes
// here belongs to another cluster with the same ID.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	living := c.livingOf(services)
	orphans := []contract.Orphan{}
	for _, find := range []orphanFinder{
		orphanLoadBalancers(c.classicCandidates), orphanLoadBalancers(c.networkCandidates),
		c.orphanTargetGroups, c.orphanGroups, c.orphanNodeRules,
	} {
		found, err := find(ctx, id, living)
		if err != nil {
			return nil, err
		}
		orphans = append(orphans, found...)
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

// livingServices holds names derived from Services: of load balancers, of Services in tags, and the prefixes of target groups and security
// groups of network load balancers.
type livingServices struct {
	all                     []*v1.Service
	loadBalancers, services map[string]bool
	// groups are the names of security groups of network load balancers, where --cluster-name is known by then; else prefixes are
	// how they begin.
	groups   map[string]bool
	prefixes []string
}

func (c *cloud) livingOf(services []*v1.Service) livingServices {
	cluster := c.loadBalancers.cluster.Load()
	l := livingServices{loadBalancers: map[string]bool{}, services: map[string]bool{}, groups: map[string]bool{}}
	for _, s := range services {
		if ownership.MayHave(s) {
			l.all = append(l.all, s)
			l.loadBalancers[loadBalancerName(s)], l.services[serviceName(s)] = true, true
			if cluster != nil {
				l.groups[managedGroupName(*cluster, s)] = true
			} else {
				l.prefixes = append(l.prefixes, targetGroupPrefix(s))
			}
		}
	}
	return l
}

// isServed reports whether a living Service has an orphan by now.
func (l livingServices) isServed(o contract.Orphan) bool {
	switch o.Kind {
	case orphanClassic:
		return l.loadBalancers[o.ID]
	case orphanNetwork:
		return l.loadBalancers[loadBalancerOfARN(o.ID)]
	case orphanTargetGroup:
		return l.services[o.Name]
	case orphanRules:
		_, name, _ := strings.Cut(o.ID, "/")
		return l.loadBalancers[name]
	}
	name, classic := strings.CutPrefix(o.Name, classicGroupPrefix)
	return (classic && l.loadBalancers[name]) || l.groups[o.Name] ||
		slices.ContainsFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(o.Name, p) })
}

// isUsedByOthers reports whether any of these instances runs and is no Node of this cluster.
func (c *cloud) isUsedByOthers(ctx context.Context, instanceIDs []string) (bool, error) {
	if c.kube == nil || len(instanceIDs) == 0 {
		return false, nil
	}
	nodes, err := c.kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return false, fmt.Errorf("listing Nodes, to tell orphans from load balancers of another cluster: %w", err)
	}
	known := map[string]bool{}
	for i := range nodes.Items {
		known[instanceKey(nodes.Items[i].Spec.ProviderID)] = true
	}
	for _, id := range instanceIDs {
		if known[id] {
			continue
		}
		one, err := c.instances.inventory.Get(ctx, id, inventory.Query{MaxAge: ownership.OrphanMaxAge, MaxMissAge: ownership.OrphanMaxAge})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil || one.state != stateTerminated {
			return err == nil, err
		}
	}
	return false, nil
}

// isNetworkUsedByOthers is isUsedByOthers of the targets of a network load balancer.
func (c *cloud) isNetworkUsedByOthers(ctx context.Context, arn string, maxAge time.Duration) (bool, error) {
	records := c.loadBalancers.records
	all, err := records.targetGroups.All(ctx, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return false, err
	}
	var ids []string
	for _, t := range all {
		if !slices.Contains(t.LoadBalancerArns, arn) {
			continue
		}
		found, err := records.targets.Get(ctx, aws.ToString(t.TargetGroupArn), inventory.Query{MaxAge: maxAge})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			return false, err
		}
		for _, one := range found.value.targets() {
			ids = append(ids, one.id)
		}
	}
	return c.isUsedByOthers(ctx, ids)
}

// serviceOf returns the Service that tags name, if they say that the cluster owns the thing; else "".
func serviceOf(id *identity, tags map[string]string) string {
	if !id.isOwned(tags) {
		return ""
	}
	return tags[serviceTag]
}

// candidate is a load balancer of either kind that may be an orphan.
type candidate struct {
	kind, id, name, vpc string
	groups              []string
	created             *time.Time
	tags                *tagInventory
	// isUsedByOthers reports whether it has a running target that is no Node of this cluster.
	isUsedByOthers func() (bool, error)
}

func (c *cloud) classicCandidates(ctx context.Context, maxAge time.Duration) (list []candidate, err error) {
	records := c.loadBalancers.records
	all, err := records.classics.All(ctx, inventory.Query{MaxAge: maxAge})
	for _, lb := range all {
		name := aws.ToString(lb.LoadBalancerName)
		list = append(list, candidate{
			orphanClassic, name, name, aws.ToString(lb.VPCId), lb.SecurityGroups, lb.CreatedTime, records.classicTags,
			func() (bool, error) { return c.isUsedByOthers(ctx, classicTargets(lb)) },
		})
	}
	return list, err
}

func (c *cloud) networkCandidates(ctx context.Context, maxAge time.Duration) (list []candidate, err error) {
	records := c.loadBalancers.records
	all, err := records.networks.All(ctx, inventory.Query{MaxAge: maxAge})
	for _, lb := range all {
		arn, name := aws.ToString(lb.LoadBalancerArn), aws.ToString(lb.LoadBalancerName)
		list = append(list, candidate{
			orphanNetwork, arn, name, aws.ToString(lb.VpcId), lb.SecurityGroups, lb.CreatedTime, records.networkTags,
			func() (bool, error) { return c.isNetworkUsedByOthers(ctx, arn, maxAge) },
		})
	}
	return list, err
}

// orphanLoadBalancers returns a function that finds the load balancers of one kind without a Service.
func orphanLoadBalancers(list func(context.Context, time.Duration) ([]candidate, error)) orphanFinder {
	return func(ctx context.Context, id *identity, living livingServices) (orphans []contract.Orphan, err error) {
		all, err := list(ctx, ownership.OrphanMaxAge)
		if err != nil {
			return nil, err
		}
		for _, lb := range all {
			if !controllerName.MatchString(lb.name) || living.loadBalancers[lb.name] || lb.vpc != id.vpc {
				continue
			}
			tags, err := tagsIfThere(lb.tags.Get(ctx, lb.id, inventory.Query{MaxAge: tagsMaxAge}))
			if err != nil {
				return nil, err
			}
			service := serviceOf(id, tags)
			if service == "" {
				continue
			}
			others, err := lb.isUsedByOthers()
			if err != nil {
				return nil, err
			}
			if !others {
				orphans = append(orphans, contract.Orphan{Kind: lb.kind, ID: lb.id, Name: service, Created: createdAt(lb.created)})
			}
		}
		return orphans, nil
	}
}

// tagsIfThere are no tags where the thing is gone meanwhile.
func tagsIfThere(found keyedTexts, err error) (map[string]string, error) {
	if errors.Is(err, cloudapi.ErrNotFound) {
		return map[string]string{}, nil
	}
	return found.value, err
}

func createdAt(at *time.Time) string {
	if at == nil {
		return ""
	}
	return at.UTC().Format(time.RFC3339)
}

// orphanTargetGroups finds target groups that no load balancer uses.
func (c *cloud) orphanTargetGroups(ctx context.Context, id *identity, living livingServices) ([]contract.Orphan, error) {
	records := c.loadBalancers.records
	all, err := records.targetGroups.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []contract.Orphan
	for _, t := range all {
		used, err := c.isTargetGroupUsed(ctx, t, ownership.OrphanMaxAge)
		if err != nil {
			return nil, err
		}
		if used || aws.ToString(t.VpcId) != id.vpc {
			continue
		}
		arn := aws.ToString(t.TargetGroupArn)
		tags, err := tagsIfThere(records.networkTags.Get(ctx, arn, inventory.Query{MaxAge: tagsMaxAge}))
		if err != nil {
			return nil, err
		}
		if service := serviceOf(id, tags); service != "" && !living.services[service] {
			orphans = append(orphans, contract.Orphan{Kind: orphanTargetGroup, ID: arn, Name: service})
		}
	}
	return orphans, nil
}

// isTargetGroupUsed reports whether a target group has a load balancer. AWS keeps showing some that were deleted; those of other
// controllers count as living, because they are not known here.
func (c *cloud) isTargetGroupUsed(ctx context.Context, t *elbv2types.TargetGroup, maxAge time.Duration) (bool, error) {
	for _, arn := range t.LoadBalancerArns {
		name := loadBalancerOfARN(arn)
		if !controllerName.MatchString(name) {
			return true, nil
		}
		lb, err := c.loadBalancers.records.networks.Get(ctx, name, inventory.Query{MaxAge: maxAge, MaxMissAge: maxAge})
		switch {
		case errors.Is(err, cloudapi.ErrNotFound):
		case err != nil:
			return false, err
		case aws.ToString(lb.LoadBalancerArn) == arn:
			return true, nil
		}
	}
	return false, nil
}

// managedGroupForm is the form of the names of the security groups of network load balancers.
var managedGroupForm = regexp.MustCompile(`^k8s-[a-zA-Z0-9]{0,8}-[a-zA-Z0-9]{0,8}-[0-9a-f]{10}$`)

// orphanGroups finds the security groups of load balancers of no Service.
func (c *cloud) orphanGroups(ctx context.Context, id *identity, living livingServices) ([]contract.Orphan, error) {
	all, err := c.loadBalancers.groups.inventory.All(ctx, inventory.Query{MaxAge: ownership.OrphanMaxAge})
	if err != nil {
		return nil, err
	}
	var orphans []contract.Orphan
	for _, g := range all {
		o := contract.Orphan{Kind: orphanGroup, ID: g.id, Name: g.name}
		if !madeForLoadBalancer(id, g) || living.isServed(o) {
			continue
		}
		used, err := c.groupInUse(ctx, g.id, living, ownership.OrphanMaxAge)
		if err != nil {
			return nil, err
		}
		if !used {
			orphans = append(orphans, o)
		}
	}
	return orphans, nil
}

// madeForLoadBalancer reports whether a security group was made for one load balancer. AWS's other controller gives names and
// descriptions of the same form, besides tags of its own.
func madeForLoadBalancer(id *identity, g securityGroup) bool {
	if !id.isOwned(g.tags) {
		return false
	}
	if name, classic := strings.CutPrefix(g.name, classicGroupPrefix); classic {
		return controllerName.MatchString(name)
	}
	for key := range g.tags {
		if strings.Contains(key, ".k8s.aws/") {
			return false
		}
	}
	return g.description == managedGroupDescription && managedGroupForm.MatchString(g.name)
}

// groupInUse reports whether a load balancer that is no orphan has a security group.
func (c *cloud) groupInUse(ctx context.Context, groupID string, living livingServices, maxAge time.Duration) (bool, error) {
	for _, list := range []func(context.Context, time.Duration) ([]candidate, error){c.classicCandidates, c.networkCandidates} {
		all, err := list(ctx, maxAge)
		if err != nil {
			return false, err
		}
		for _, lb := range all {
			if !slices.Contains(lb.groups, groupID) {
				continue
			}
			if living.loadBalancers[lb.name] {
				return true, nil
			}
			if others, err := lb.isUsedByOthers(); err != nil || others {
				return others, err
			}
		}
	}
	return false, nil
}

// errNotOrphan is the answer where what was an orphan has an owner by now.
var errNotOrphan = errors.New("is not the cluster's any more, or in use; it is left alone")

func notOrphanError(o contract.Orphan) error {
	return fmt.Errorf("%s %s %w", o.Kind, o.ID, errNotOrphan)
}

// DeleteOrphan implements contract.OrphanFinder. What was found is looked at again first: people may have taken it over.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return err
	}
	l := c.loadBalancers
	living, err := c.currentServices(ctx)
	if err == nil && living.isServed(o) {
		err = notOrphanError(o)
	}
	if err != nil {
		return err
	}
	switch o.Kind {
	case orphanClassic:
		if err = checkStillOrphan(ctx, id, o, l.records.classicTags); err == nil {
			err = c.deleteOrphanClassic(ctx, id, o)
		}
	case orphanNetwork:
		if err = checkStillOrphan(ctx, id, o, l.records.networkTags); err == nil {
			err = c.deleteOrphanNetwork(ctx, id, o)
		}
	case orphanTargetGroup:
		err = c.deleteOrphanTargetGroup(ctx, id, o)
	case orphanGroup:
		err = c.deleteOrphanGroup(ctx, id, o)
	case orphanRules:
		err = c.deleteOrphanRules(ctx, id, o)
	default:
		return fmt.Errorf("%s %s is of no kind that is known here", o.Kind, o.ID)
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil
	}
	return err
}

func (c *cloud) currentServices(ctx context.Context) (livingServices, error) {
	if c.kube == nil {
		return livingServices{}, nil
	}
	list, err := c.kube.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return livingServices{}, fmt.Errorf("listing Services, to look again whether one has an orphan: %w", err)
	}
	services := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		services[i] = c.translate(&list.Items[i])
	}
	return c.livingOf(services), nil
}

func (c *cloud) deleteOrphanClassic(ctx context.Context, id *identity, o contract.Orphan) error {
	records := c.loadBalancers.records
	lb, err := records.classics.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if aws.ToString(lb.VPCId) != id.vpc {
		return notOrphanError(o)
	}
	if others, err := c.isUsedByOthers(ctx, classicTargets(lb)); err != nil || others {
		return cmp.Or(err, notOrphanError(o))
	}
	// The nodes are closed first: a load balancer that could not be deleted is listed again.
	if err := c.closeNodes(ctx, id, o.ID, lb.SecurityGroups); err != nil {
		return err
	}
	return records.deleteClassic(ctx, o.ID)
}

func (c *cloud) deleteOrphanNetwork(ctx context.Context, id *identity, o contract.Orphan) error {
	records := c.loadBalancers.records
	lb, err := records.networks.Get(ctx, loadBalancerOfARN(o.ID), inventory.Query{})
	if err != nil {
		return err
	}
	if aws.ToString(lb.LoadBalancerArn) != o.ID || aws.ToString(lb.VpcId) != id.vpc {
		return notOrphanError(o)
	}
	if others, err := c.isNetworkUsedByOthers(ctx, o.ID, 0); err != nil || others {
		return cmp.Or(err, notOrphanError(o))
	}
	if err := records.checkProtection(ctx, lb); err != nil {
		return fmt.Errorf("%s %s: %w", o.Kind, o.ID, err)
	}
	// The nodes are closed first: a load balancer that could not be deleted is listed again.
	if err := c.closeNodes(ctx, id, loadBalancerOfARN(o.ID), nil); err != nil {
		return err
	}
	defer records.networks.Forget(loadBalancerOfARN(o.ID))
	return records.deleteNetwork(ctx, o.ID)
}

// checkStillOrphan reads the tags of something that is about to be deleted.
func checkStillOrphan(
	ctx context.Context, id *identity, o contract.Orphan, tags *tagInventory,
) error {
	found, err := tags.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	if service := serviceOf(id, found.value); service == "" || service != o.Name {
		return notOrphanError(o)
	}
	return nil
}

func (c *cloud) deleteOrphanTargetGroup(ctx context.Context, id *identity, o contract.Orphan) error {
	records := c.loadBalancers.records
	all, err := records.targetGroups.All(ctx, inventory.Query{})
	if err != nil {
		return err
	}
	n := slices.IndexFunc(all, func(t *elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) == o.ID })
	if n < 0 {
		return nil
	}
	if err := checkStillOrphan(ctx, id, o, records.networkTags); err != nil {
		return err
	}
	used, err := c.isTargetGroupUsed(ctx, all[n], 0)
	if err != nil {
		return err
	}
	if used {
		return notOrphanError(o)
	}
	return records.run(ctx, deleteTargetGroupStep(o.ID, aws.String(o.ID)), nil)
}

func (c *cloud) deleteOrphanGroup(ctx context.Context, id *identity, o contract.Orphan) error {
	groups := c.loadBalancers.groups
	g, err := groups.inventory.Get(ctx, o.ID, inventory.Query{})
	if err != nil {
		return err
	}
	living, err := c.currentServices(ctx)
	if err != nil {
		return err
	}
	used, err := c.groupInUse(ctx, o.ID, living, 0)
	if err != nil {
		return err
	}
	if used || !madeForLoadBalancer(id, g) || g.name != o.Name {
		return notOrphanError(o)
	}
	if err := groups.closeGroupTo(ctx, o.ID); err != nil {
		return err
	}
	return groups.remove(ctx, g)
}
