package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	cloudproviderapi "k8s.io/cloud-provider/api"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
)

const (
	indexName = "name"
	// groupsMaxAge is how old the knowledge of security groups may be; our own writes are in it at once.
	groupsMaxAge = 60 * time.Second
	// groupsMaxMiss is how long the answer is believed that a named group does not exist.
	groupsMaxMiss = 10 * time.Second
	// groupReleasePause is the time between two looks whether a load balancer has let go of what it had.
	groupReleasePause = 3 * time.Second
	// groupVisiblePause is how long EC2 may take to show a new security group to itself.
	groupVisiblePause = 2 * time.Second

	protocolAll  = "-1"
	protocolICMP = "icmp"
	// protocolICMPv6 is ICMP for IPv6.
	protocolICMPv6 = "icmpv6"
	protocolTCP    = "tcp"
	protocolUDP    = "udp"
	// fragmentationType and fragmentationCode are ICMP's "fragmentation needed", which path MTU discovery lives on.
	fragmentationType = 3
	fragmentationCode = 4
	// tooBigType and tooBigCode are the same for IPv6, "packet too big".
	tooBigType = 2
	tooBigCode = 0

	descriptionClient = "kubernetes.io/rule/nlb/client="
	descriptionHealth = "kubernetes.io/rule/nlb/health="
	descriptionMTU    = "kubernetes.io/rule/nlb/mtu"
	// descriptionSelf is ours: a rule that lets the group of a classic load balancer in to nodes. Behind it stands "=" and the
	// load balancer's name; earlier releases wrote no name.
	descriptionSelf = "anyccm.io/rule/classic"
	// descriptionFront is ours: rules for IPv6 of the group of a load balancer itself.
	descriptionFront = "anyccm.io/rule/front="
)

// rule allows one source.
type rule struct {
	protocol    string
	from, to    int32
	source      ruleSource
	description string
}

// ruleSource is one of a network, a security group with its owner, and a prefix list.
type ruleSource struct{ cidr, group, prefixList string }

// key is the part of a rule that EC2 compares: not the description.
func (r rule) key() rule {
	r.description = ""
	return r
}

func (r rule) v6() bool { return strings.Contains(r.source.cidr, ":") }

// securityGroup of the VPC.
type securityGroup struct {
	id, name, description string
	tags                  map[string]string
	rules                 []rule
}

func newGroup(g *ec2types.SecurityGroup) securityGroup {
	kept := securityGroup{
		id: aws.ToString(g.GroupId), name: aws.ToString(g.GroupName), description: aws.ToString(g.Description), tags: mapOf(g.Tags, ec2Tag),
	}
	for _, p := range g.IpPermissions {
		base := rule{protocol: aws.ToString(p.IpProtocol), from: aws.ToInt32(p.FromPort), to: aws.ToInt32(p.ToPort)}
		add := func(source ruleSource, description *string) {
			one := base
			one.source, one.description = source, aws.ToString(description)
			kept.rules = append(kept.rules, one)
		}
		for _, r := range p.IpRanges {
			add(ruleSource{cidr: aws.ToString(r.CidrIp)}, r.Description)
		}
		for _, r := range p.Ipv6Ranges {
			add(ruleSource{cidr: aws.ToString(r.CidrIpv6)}, r.Description)
		}
		for _, r := range p.UserIdGroupPairs {
			add(ruleSource{group: aws.ToString(r.GroupId)}, r.Description)
		}
		for _, r := range p.PrefixListIds {
			add(ruleSource{prefixList: aws.ToString(r.PrefixListId)}, r.Description)
		}
	}
	return kept
}

// ipPermissions are rules in the form of EC2's API: those of the same protocol and ports together.
func ipPermissions(rules []rule) []ec2types.IpPermission {
	var list []ec2types.IpPermission
	places := map[rule]int{}
	for _, r := range rules {
		ports := rule{protocol: r.protocol, from: r.from, to: r.to}
		n, known := places[ports]
		if !known {
			p := ec2types.IpPermission{IpProtocol: aws.String(r.protocol)}
			if r.protocol != protocolAll {
				p.FromPort, p.ToPort = aws.Int32(r.from), aws.Int32(r.to)
			}
			list, n = append(list, p), len(list)
			places[ports] = n
		}
		about := nilIfEmpty(r.description)
		switch {
		case r.source.group != "":
			list[n].UserIdGroupPairs = append(list[n].UserIdGroupPairs, ec2types.UserIdGroupPair{
				GroupId: aws.String(r.source.group), Description: about,
			})
		case r.source.prefixList != "":
			list[n].PrefixListIds = append(list[n].PrefixListIds, ec2types.PrefixListId{
				PrefixListId: aws.String(r.source.prefixList), Description: about,
			})
		case r.v6():
			list[n].Ipv6Ranges = append(list[n].Ipv6Ranges, ec2types.Ipv6Range{CidrIpv6: aws.String(r.source.cidr), Description: about})
		default:
			list[n].IpRanges = append(list[n].IpRanges, ec2types.IpRange{CidrIp: aws.String(r.source.cidr), Description: about})
		}
	}
	return list
}

// ruleChange lists the missing and the surplus rules of a security group.
type ruleChange struct {
	group       securityGroup
	add, remove []rule
	// partly is set where as much as fits is to be added, and what is removed never comes back.
	partly bool
	// doubted are rules that stay because a Service may need them whose needs are unknown.
	doubted []rule
	doubtOf string
}

func (c ruleChange) isEmpty() bool { return len(c.add)+len(c.remove) == 0 }

// result is the group after the change.
func (c ruleChange) result() securityGroup {
	g, gone := c.group, keysOf(c.remove)
	g.rules = slices.DeleteFunc(slices.Clone(g.rules), func(r rule) bool { return gone[r.key()] })
	g.rules = append(g.rules, c.add...)
	return g
}

// ruleKeys is a set of rules by what EC2 compares.
type ruleKeys map[rule]bool

func keysOf(rules []rule) ruleKeys {
	keys := make(ruleKeys, len(rules))
	for _, r := range rules {
		keys[r.key()] = true
	}
	return keys
}

// addIfNew adds a rule and reports whether it was missing.
func (k ruleKeys) addIfNew(r rule) bool {
	known := k[r.key()]
	k[r.key()] = true
	return !known
}

// exactChange computes the change that leaves only wanted rules. Rules that are not mine stay, and so do equal rules of others.
func exactChange(g securityGroup, want []rule, mine func(rule) bool) ruleChange {
	c := ruleChange{group: g}
	have, wanted := keysOf(g.rules), keysOf(want)
	for _, r := range want {
		if have.addIfNew(r) {
			c.add = append(c.add, r)
		}
	}
	for _, r := range g.rules {
		if !wanted[r.key()] && mine(r) {
			c.remove = append(c.remove, r)
		}
	}
	return c
}

// frontRules returns the ingress rules of a load balancer itself: its ports, and path MTU discovery. description marks those for IPv6,
// which people also create by hand.
func frontRules(ports []frontPort, ranges []netip.Prefix, description string) []rule {
	var list []rule
	for _, p := range ranges {
		about := ""
		if p.Addr().Is6() {
			about = description
		}
		for _, port := range ports {
			list = append(list, rule{port.protocol, port.number, port.number, ruleSource{cidr: p.String()}, about})
		}
		if p.Addr().Is4() {
			list = append(list, rule{protocolICMP, fragmentationType, fragmentationCode, ruleSource{cidr: p.String()}, ""})
		} else {
			list = append(list, rule{protocolICMPv6, tooBigType, tooBigCode, ruleSource{cidr: p.String()}, about})
		}
	}
	return list
}

// frontPort is a port that clients use.
type frontPort struct {
	protocol string
	number   int32
}

// ownFrontRule selects the rules of a load balancer's own group to keep exact: all but prefix lists and others' IPv6 rules.
func ownFrontRule(description string) func(rule) bool {
	return func(r rule) bool { return r.source.prefixList == "" && (!r.v6() || r.description == description) }
}

// nodeGroup chooses the security group of an instance that rules for load balancers go into: the one with the tag of the
// cluster, else its only one. Of several with the tag, the one that the cluster owns counts, then the smallest ID.
func nodeGroup(id *identity, attached []string, groups map[string]securityGroup) (string, error) {
	best, rank := "", 3
	for _, g := range slices.Sorted(slices.Values(attached)) {
		one := 2
		switch tags := groups[g].tags; {
		case id.isOwned(tags):
			one = 0
		case id.isTagged(tags):
			one = 1
		}
		if one < rank {
			best, rank = g, one
		}
	}
	if rank == 2 && len(attached) > 1 {
		return "", fmt.Errorf("its security groups %s all lack the tag %s; tag one of them", strings.Join(slices.Sorted(slices.Values(attached)), ", "), id.clusterTag())
	}
	return best, nil
}

// securityGroups reads and writes the security groups of the VPC.
type securityGroups struct {
	api       *api
	inventory *inventory.Inventory[string, securityGroup]
	// writing keeps two load balancers from changing the same group on the basis of the same record.
	writing keylock.Locks
	// added are rules that were just added, which listings may lack.
	added inventory.Recent[addedRule]
}

// addedRule is a rule that was added to a group.
type addedRule struct {
	group string
	rule
}

// noteRules notes a change of rules that was made.
func (s *securityGroups) noteRules(c ruleChange) {
	for _, r := range c.add {
		s.added.Add(addedRule{c.group.id, r})
	}
	gone := keysOf(c.remove)
	s.added.Remove(func(a addedRule) bool { return a.group == c.group.id && gone[a.key()] })
}

// retryWhileHidden asks for more time while groups lack recently added rules that are mine.
func (s *securityGroups) retryWhileHidden(groups map[string]securityGroup, mine func(rule) bool) error {
	for _, a := range s.added.All() {
		if g, ok := groups[a.group]; ok && mine(a.rule) && !keysOf(g.rules)[a.key()] {
			return cloudproviderapi.NewRetryError("EC2 does not show all rules of security group "+a.group+" yet", groupVisiblePause)
		}
	}
	return nil
}

func newSecurityGroups(a *api) *securityGroups {
	groups := inventory.New(inventory.Source[string, securityGroup]{
		Kind: "security group", ID: func(g securityGroup) string { return g.id }, List: a.listGroups, Get: a.getGroup,
		Lag: showsWithin, Own: func(known, read securityGroup) securityGroup {
			read.rules = known.rules
			return read
		},
		Indexes: map[string]func(securityGroup) []string{indexName: func(g securityGroup) []string { return []string{g.name} }},
	})
	return &securityGroups{api: a, inventory: groups, added: inventory.Recent[addedRule]{Within: showsWithin}}
}

func (a *api) listGroups(ctx context.Context) ([]securityGroup, int, error) {
	_, id, err := a.connect(ctx)
	if err != nil {
		return nil, 0, err
	}
	in := &ec2.DescribeSecurityGroupsInput{MaxResults: aws.Int32(pageSize), Filters: []ec2types.Filter{filter("vpc-id", id.vpc)}}
	list, pages, err := listPages(ctx, a, cloudapi.WatchListing, "listing security groups", (*ec2.Client).DescribeSecurityGroups, in, &in.NextToken,
		func(out *ec2.DescribeSecurityGroupsOutput) ([]ec2types.SecurityGroup, *string) {
			return out.SecurityGroups, out.NextToken
		}, newGroup)
	if err == nil && len(list) == 0 { // each VPC has its default group
		err = fmt.Errorf("listing security groups of %s: %w", id.vpc, errIncomplete)
	}
	return list, pages, err
}

func (a *api) getGroup(ctx context.Context, id string) (securityGroup, error) {
	out, err := call(ctx, a, "reading security group "+id, (*ec2.Client).DescribeSecurityGroups, &ec2.DescribeSecurityGroupsInput{GroupIds: []string{id}})
	if err != nil {
		return securityGroup{}, err
	}
	if len(out.SecurityGroups) != 1 || aws.ToString(out.SecurityGroups[0].GroupId) != id {
		return securityGroup{}, fmt.Errorf("reading security group %s: %w", id, errIncomplete)
	}
	_, self, err := a.connect(ctx)
	if err != nil {
		return securityGroup{}, err
	}
	if vpc := aws.ToString(out.SecurityGroups[0].VpcId); vpc != self.vpc {
		return securityGroup{}, &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: "reading security group " + id, Message: "it belongs to the VPC " + vpc}
	}
	return newGroup(&out.SecurityGroups[0]), nil
}

// all returns the groups by their IDs.
func (s *securityGroups) all(ctx context.Context) (map[string]securityGroup, error) {
	list, err := s.inventory.All(ctx, inventory.Query{MaxAge: groupsMaxAge})
	if err != nil {
		return nil, err
	}
	byID := make(map[string]securityGroup, len(list))
	for _, g := range list {
		byID[g.id] = g
	}
	return byID, nil
}

// ensure finds or makes a group that belongs to a load balancer, and sees to it that its tags say so.
func (s *securityGroups) ensure(ctx context.Context, name, description string, tags map[string]string) (securityGroup, error) {
	_, id, err := s.api.connect(ctx)
	if err != nil {
		return securityGroup{}, err
	}
	found, err := s.inventory.Find(ctx, indexName, name, inventory.Query{MaxAge: groupsMaxAge, MaxUnlistedAge: groupsMaxAge})
	if err != nil {
		return securityGroup{}, err
	}
	wanted := mergeTags(tags, id.ownershipTags())
	if len(found) > 0 {
		return s.adopt(ctx, id, found[0], wanted)
	}
	what := "creating security group " + name
	klog.InfoS("Creating security group", "name", name)
	out, err := call(ctx, s.api, what, (*ec2.Client).CreateSecurityGroup, &ec2.CreateSecurityGroupInput{
		GroupName: aws.String(name), Description: aws.String(description), VpcId: aws.String(id.vpc),
		TagSpecifications: []ec2types.TagSpecification{{ResourceType: ec2types.ResourceTypeSecurityGroup, Tags: ec2Tags(wanted)}},
	})
	if err != nil {
		s.inventory.InvalidateAll() // it may exist all the same, made by a call whose answer was lost
		if codeOf(err) == "InvalidGroup.Duplicate" {
			err = cloudproviderapi.NewRetryError("EC2 does not show security group "+name+" yet, which exists", groupVisiblePause)
		}
		return securityGroup{}, err
	}
	g := securityGroup{id: aws.ToString(out.GroupId), name: name, description: description, tags: wanted}
	if g.id == "" {
		s.inventory.InvalidateAll()
		return securityGroup{}, fmt.Errorf("%s: %w", what, errIncomplete)
	}
	s.inventory.Put(g)
	return g, nil
}

func ec2Tags(tags map[string]string) []ec2types.Tag {
	return pairsOf(tags, func(key, value *string) ec2types.Tag { return ec2types.Tag{Key: key, Value: value} })
}

// adopt tags a group with the right name where nobody has.
func (s *securityGroups) adopt(ctx context.Context, id *identity, g securityGroup, wanted map[string]string) (securityGroup, error) {
	untagged, err := checkAdoptable(id, g)
	if err != nil || !untagged {
		return g, err
	}
	_, err = call(ctx, s.api, "tagging security group "+g.id, (*ec2.Client).CreateTags,
		&ec2.CreateTagsInput{Resources: []string{g.id}, Tags: ec2Tags(wanted)})
	if err != nil {
		s.inventory.Doubt(g.id)
		return g, err
	}
	g.tags = maps.Clone(g.tags)
	maps.Copy(g.tags, wanted)
	s.inventory.PutPartial(g)
	return g, nil
}

// closeGroupTo removes the rules of other groups that let a group in. Each is tried.
func (s *securityGroups) closeGroupTo(ctx context.Context, id string) error {
	all, err := s.all(ctx)
	if err != nil {
		return err
	}
	mine := func(r rule) bool { return r.source.group == id }
	var failed []error
	for _, g := range groupsByID(all) {
		if g.id != id && slices.ContainsFunc(g.rules, mine) {
			failed = append(failed, s.sync(ctx, g.id, nil, mine))
		}
	}
	return errors.Join(failed...)
}

func groupsByID(all map[string]securityGroup) []securityGroup {
	list := slices.Collect(maps.Values(all))
	slices.SortFunc(list, func(a, b securityGroup) int { return strings.Compare(a.id, b.id) })
	return list
}

// sync makes the rules of one group exact.
func (s *securityGroups) sync(ctx context.Context, groupID string, want []rule, mine func(rule) bool) error {
	return s.change(ctx, groupID, wholeChange, func(g securityGroup) ruleChange { return exactChange(g, want, mine) })
}

// changePhase says what of a change is carried out: what a load balancer needs is opened before it is changed, and what it
// does not need any more is closed afterwards.
type changePhase int

const (
	wholeChange changePhase = iota
	opening
	closing
)

// change carries out what is decided about one group in its present state.
func (s *securityGroups) change(ctx context.Context, groupID string, phase changePhase, decide func(securityGroup) ruleChange) error {
	unlock, err := s.writing.Lock(ctx, groupID)
	if err != nil {
		return fmt.Errorf("waiting for another change of security group %s: %w", groupID, err)
	}
	defer unlock()
	g, err := s.inventory.Get(ctx, groupID, inventory.Query{MaxAge: groupsMaxAge})
	if err != nil {
		return retryIfHidden(err, groupID)
	}
	return s.apply(ctx, decide(g), phase)
}

// apply carries out a change of rules. The lock of the group is held.
func (s *securityGroups) apply(ctx context.Context, c ruleChange, phase changePhase) error {
	later := c.remove
	if c = c.limitTo(phase); c.isEmpty() {
		return nil
	}
	err := s.authorize(ctx, c.group.id, c.add)
	switch {
	case codeOf(err) == codeTooManyRules:
		c.remove = later
		err = s.replaceRules(ctx, c)
	case err == nil:
		err = s.revoke(ctx, c.group.id, c.remove)
	}
	if err != nil {
		s.inventory.Doubt(c.group.id)
		if codeOf(err) == codeTooManyRules {
			return fmt.Errorf("%w; %s", err, c.group.dominantUser())
		}
		if code := codeOf(err); code == "InvalidPermission.Duplicate" || code == "InvalidPermission.NotFound" {
			err = cloudproviderapi.NewRetryError("EC2 shows the rules of security group "+c.group.id+" late", groupVisiblePause)
		}
		return err
	}
	s.noteRules(c)
	s.inventory.PutPartial(c.result())
	return nil
}

func (s *securityGroups) authorize(ctx context.Context, groupID string, rules []rule) error {
	if len(rules) == 0 {
		return nil
	}
	_, err := call(
		ctx, s.api, "adding rules to security group "+groupID, (*ec2.Client).AuthorizeSecurityGroupIngress,
		&ec2.AuthorizeSecurityGroupIngressInput{GroupId: aws.String(groupID), IpPermissions: ipPermissions(rules)},
	)
	err = retryIfHidden(err, groupID)
	for _, r := range rules {
		if s.inventory.JustMade(r.source.group) {
			err = retryIfHidden(err, r.source.group)
		}
	}
	return err
}

func (s *securityGroups) revoke(ctx context.Context, groupID string, rules []rule) error {
	if len(rules) == 0 {
		return nil
	}
	bare := make([]rule, len(rules))
	for i, r := range rules {
		bare[i] = r.key()
	}
	slices.SortFunc(bare, func(a, b rule) int { return strings.Compare(a.text(), b.text()) }) // EC2 lists them in any order
	_, err := call(
		ctx, s.api, "removing rules from security group "+groupID, (*ec2.Client).RevokeSecurityGroupIngress,
		&ec2.RevokeSecurityGroupIngressInput{GroupId: aws.String(groupID), IpPermissions: ipPermissions(bare)},
	)
	return err
}

// retryIfHidden turns "not found" for a group that exists into a retry: EC2 shows new groups after a delay.
func retryIfHidden(err error, groupID string) error {
	if errors.Is(err, cloudapi.ErrNotFound) && strings.Contains(err.Error(), groupID) {
		return cloudproviderapi.NewRetryError(fmt.Sprintf("EC2 does not show security group %s yet", groupID), groupVisiblePause)
	}
	return err
}

// remove deletes a group. Interfaces of a load balancer that was deleted hold it for a while, which is waited for without
// keeping a worker.
func (s *securityGroups) remove(ctx context.Context, g securityGroup) error {
	klog.InfoS("Deleting security group", "group", g.id, "name", g.name)
	_, err := call(ctx, s.api, "deleting security group "+g.id, (*ec2.Client).DeleteSecurityGroup, &ec2.DeleteSecurityGroupInput{GroupId: aws.String(g.id)})
	switch {
	case err == nil, errors.Is(err, cloudapi.ErrNotFound):
		s.inventory.Forget(g.id)
		return nil
	}
	s.inventory.Doubt(g.id)
	return retryIfInUse(err, fmt.Sprintf("security group %s (%s)", g.id, g.name))
}

// retryIfInUse turns a refusal to delete into a retry: a deleted load balancer releases its objects after a while.
func retryIfInUse(err error, object string) error {
	if code := codeOf(err); code == "DependencyViolation" || code == "ResourceInUse" || code == "InvalidGroup.InUse" {
		return cloudproviderapi.NewRetryError(object+" is still in use; it is deleted when the load balancer has let go of it", groupReleasePause)
	}
	return err
}
