package aws

import (
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

// leftover is an orphan, and how it is removed.
type leftover struct {
	contract.Orphan

	remove func(context.Context) error
}

// orphanSearch says what is looked for: all orphans of a kind, in listings of some age, or the one with an ID, by what there is now.
type orphanSearch struct {
	id     *identity
	living livingServices
	maxAge time.Duration
	only   string
}

// orphanFinder finds the orphans of one kind. Where the only one that it looks for is gone, the error is cloudapi.ErrNotFound.
type orphanFinder struct {
	kind string
	find func(context.Context, orphanSearch) ([]leftover, error)
}

func (c *cloud) orphanFinders() []orphanFinder {
	return []orphanFinder{
		{orphanClassic, orphanLoadBalancers(c.classicCandidates)},
		{orphanNetwork, orphanLoadBalancers(c.networkCandidates)},
		{orphanTargetGroup, c.orphanTargetGroups},
		{orphanGroup, c.orphanGroups},
		{orphanRules, c.orphanNodeRules},
	}
}

// Orphans implements contract.OrphanFinder: objects with this cluster's tags and without a Service. Target groups and security groups count
// if no load balancer uses them, rules of nodes if their load balancer is gone. A load balancer with running targets that are not Nodes
// here belongs to another cluster with the same ID.
func (c *cloud) Orphans(ctx context.Context, services []*v1.Service) ([]contract.Orphan, error) {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return nil, err
	}
	search := orphanSearch{id: id, living: c.livingOf(services), maxAge: ownership.OrphanMaxAge}
	orphans := []contract.Orphan{}
	for _, finder := range c.orphanFinders() {
		found, err := finder.find(ctx, search)
		if err != nil {
			return nil, err
		}
		for _, o := range found {
			orphans = append(orphans, o.Orphan)
		}
	}
	slices.SortFunc(orphans, func(a, b contract.Orphan) int { return strings.Compare(a.Kind+a.ID, b.Kind+b.ID) })
	return orphans, nil
}

// errNotOrphan is the answer where what was an orphan has an owner by now.
var errNotOrphan = errors.New("is not the cluster's any more, or in use; it is left alone")

// DeleteOrphan implements contract.OrphanFinder. What was found is looked for again first: people may have taken it over.
func (c *cloud) DeleteOrphan(ctx context.Context, o contract.Orphan) error {
	_, id, err := c.api.connect(ctx)
	if err != nil {
		return err
	}
	finders := c.orphanFinders()
	kind := slices.IndexFunc(finders, func(f orphanFinder) bool { return f.kind == o.Kind })
	if kind < 0 {
		return fmt.Errorf("%s %s is of no kind that is known here", o.Kind, o.ID)
	}
	living, err := c.currentServices(ctx)
	if err != nil {
		return err
	}
	found, err := finders[kind].find(ctx, orphanSearch{id: id, living: living, only: o.ID})
	if err == nil {
		n := slices.IndexFunc(found, func(f leftover) bool { return f.ID == o.ID && f.Name == o.Name })
		if n < 0 {
			return fmt.Errorf("%s %s %w", o.Kind, o.ID, errNotOrphan)
		}
		err = found[n].remove(ctx)
	}
	return cloudapi.IgnoreNotFound(err)
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

// hasLoadBalancer reports whether a load balancer has the name of a living Service's, or a status shows it: a Service that was restored has
// another name.
func (l livingServices) hasLoadBalancer(lb candidate) bool {
	return l.loadBalancers[lb.name] || ownership.IsShown(l.all, lb.host)
}

// hasGroup reports whether a security group has the name of a living Service's.
func (l livingServices) hasGroup(name string) bool {
	lb, classic := strings.CutPrefix(name, classicGroupPrefix)
	return (classic && l.loadBalancers[lb]) || l.groups[name] ||
		slices.ContainsFunc(l.prefixes, func(p string) bool { return strings.HasPrefix(name, p) })
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

// serviceOf returns the Service that the tags of something name, if they say that the cluster owns it; else "".
func (s orphanSearch) serviceOf(ctx context.Context, tags *tagInventory, key string) (string, error) {
	found, err := tagsIfThere(tags.Get(ctx, key, inventory.Query{MaxAge: s.maxAge}))
	if err != nil || !s.id.isOwned(found) {
		return "", err
	}
	return found[serviceTag], nil
}

// candidate is a load balancer of either kind that may be an orphan.
type candidate struct {
	// host is the name that the status of a Service shows.
	kind, id, name, host, vpc string
	groups                    []string
	created                   *time.Time
	tags                      *tagInventory
	// isUsedByOthers reports whether it has a running target that is no Node of this cluster.
	isUsedByOthers func() (bool, error)
	remove         func(context.Context, *identity) error
}

// readFor returns all objects, or the only one with a key.
func readFor[V any](ctx context.Context, from *inventory.Inventory[string, V], only string, maxAge time.Duration) ([]V, error) {
	if only == "" {
		return from.All(ctx, inventory.Query{MaxAge: maxAge})
	}
	one, err := from.Get(ctx, only, inventory.Query{MaxAge: maxAge})
	if err != nil {
		return nil, err
	}
	return []V{one}, nil
}

func (c *cloud) classicCandidates(ctx context.Context, only string, maxAge time.Duration) (list []candidate, err error) {
	records := c.loadBalancers.records
	all, err := readFor(ctx, records.classics, only, maxAge)
	for _, lb := range all {
		name := aws.ToString(lb.LoadBalancerName)
		list = append(list, candidate{
			orphanClassic, name, name, aws.ToString(lb.DNSName), aws.ToString(lb.VPCId), lb.SecurityGroups, lb.CreatedTime, records.classicTags,
			func() (bool, error) { return c.isUsedByOthers(ctx, classicTargets(lb)) },
			func(ctx context.Context, id *identity) error {
				// The nodes are closed first: a load balancer that could not be deleted is listed again.
				if err := c.closeNodes(ctx, id, name, lb.SecurityGroups); err != nil {
					return err
				}
				return records.deleteClassic(ctx, name)
			},
		})
	}
	return list, err
}

func (c *cloud) networkCandidates(ctx context.Context, only string, maxAge time.Duration) (list []candidate, err error) {
	records := c.loadBalancers.records
	all, err := readFor(ctx, records.networks, loadBalancerOfARN(only), maxAge)
	for _, lb := range all {
		arn, name := aws.ToString(lb.LoadBalancerArn), aws.ToString(lb.LoadBalancerName)
		list = append(list, candidate{
			orphanNetwork, arn, name, aws.ToString(lb.DNSName), aws.ToString(lb.VpcId), lb.SecurityGroups, lb.CreatedTime, records.networkTags,
			func() (bool, error) { return c.isNetworkUsedByOthers(ctx, arn, maxAge) },
			func(ctx context.Context, id *identity) error {
				if err := records.checkProtection(ctx, lb); err != nil {
					return fmt.Errorf("%s %s: %w", orphanNetwork, arn, err)
				}
				// The nodes are closed first: a load balancer that could not be deleted is listed again.
				if err := c.closeNodes(ctx, id, name, nil); err != nil {
					return err
				}
				defer records.networks.Forget(name)
				return records.deleteNetwork(ctx, arn)
			},
		})
	}
	return list, err
}

// orphanLoadBalancers returns a function that finds the load balancers of one kind without a Service.
func orphanLoadBalancers(
	list func(context.Context, string, time.Duration) ([]candidate, error),
) func(context.Context, orphanSearch) ([]leftover, error) {
	return func(ctx context.Context, s orphanSearch) (orphans []leftover, err error) {
		all, err := list(ctx, s.only, s.maxAge)
		if err != nil {
			return nil, err
		}
		for _, lb := range all {
			if !controllerName.MatchString(lb.name) || s.living.hasLoadBalancer(lb) || lb.vpc != s.id.vpc {
				continue
			}
			service, err := s.serviceOf(ctx, lb.tags, lb.id)
			if err != nil {
				return nil, err
			}
			if service == "" {
				continue
			}
			others, err := lb.isUsedByOthers()
			if err != nil {
				return nil, err
			}
			if !others {
				orphans = append(orphans, leftover{
					contract.Orphan{Kind: lb.kind, ID: lb.id, Name: service, Created: createdAt(lb.created)},
					func(ctx context.Context) error { return lb.remove(ctx, s.id) },
				})
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
func (c *cloud) orphanTargetGroups(ctx context.Context, s orphanSearch) (orphans []leftover, err error) {
	records := c.loadBalancers.records
	all, err := records.targetGroups.All(ctx, inventory.Query{MaxAge: s.maxAge})
	if err != nil {
		return nil, err
	}
	if s.only != "" {
		all = slices.DeleteFunc(all, func(t *elbv2types.TargetGroup) bool { return aws.ToString(t.TargetGroupArn) != s.only })
		if len(all) == 0 {
			return nil, cloudapi.ErrNotFound
		}
	}
	for _, t := range all {
		used, err := c.isTargetGroupUsed(ctx, t, s.maxAge)
		if err != nil {
			return nil, err
		}
		if used || aws.ToString(t.VpcId) != s.id.vpc {
			continue
		}
		arn := aws.ToString(t.TargetGroupArn)
		service, err := s.serviceOf(ctx, records.networkTags, arn)
		if err != nil {
			return nil, err
		}
		if service != "" && !s.living.services[service] {
			orphans = append(orphans, leftover{
				contract.Orphan{Kind: orphanTargetGroup, ID: arn, Name: service},
				func(ctx context.Context) error {
					return records.run(ctx, deleteTargetGroupStep(arn, t.TargetGroupArn), nil)
				},
			})
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
func (c *cloud) orphanGroups(ctx context.Context, s orphanSearch) (orphans []leftover, err error) {
	groups := c.loadBalancers.groups
	all, err := readFor(ctx, groups.inventory, s.only, s.maxAge)
	if err != nil {
		return nil, err
	}
	for _, g := range all {
		if !madeForLoadBalancer(s.id, g) || s.living.hasGroup(g.name) {
			continue
		}
		used, err := c.groupInUse(ctx, g.id, s)
		if err != nil {
			return nil, err
		}
		if used {
			continue
		}
		orphans = append(orphans, leftover{
			contract.Orphan{Kind: orphanGroup, ID: g.id, Name: g.name},
			func(ctx context.Context) error {
				if err := groups.closeGroupTo(ctx, g.id); err != nil {
					return err
				}
				return groups.remove(ctx, g)
			},
		})
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
func (c *cloud) groupInUse(ctx context.Context, groupID string, s orphanSearch) (bool, error) {
	all, err := c.allCandidates(ctx, s.maxAge)
	for _, lb := range all {
		if !slices.Contains(lb.groups, groupID) {
			continue
		}
		if s.living.hasLoadBalancer(lb) {
			return true, nil
		}
		if others, err := lb.isUsedByOthers(); err != nil || others {
			return others, err
		}
	}
	return false, err
}

// allCandidates are the load balancers of both kinds.
func (c *cloud) allCandidates(ctx context.Context, maxAge time.Duration) ([]candidate, error) {
	classics, err := c.classicCandidates(ctx, "", maxAge)
	if err != nil {
		return nil, err
	}
	networks, err := c.networkCandidates(ctx, "", maxAge)
	if err != nil {
		return nil, err
	}
	return slices.Concat(classics, networks), nil
}

// currentServices are those that the API server has now.
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
