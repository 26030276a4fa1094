package aws

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	elbv2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

const (
	// loadBalancerPage is the largest page of load balancers, target groups and listeners. Each classic load balancer names up to 1,000
	// instances, 120 bytes each as Elastic Load Balancing writes it: 400 would be more text than an answer may be.
	loadBalancerPage, classicPage = 400, 100
	// tagBatch is the limit of names or ARNs of DescribeTags and DescribeLoadBalancers.
	tagBatch = 20

	indexLoadBalancer = "load balancer"
)

// keyedValue is a value with the name, or the ARN, that it was read by.
type keyedValue[V any] struct {
	key   string
	value V
}

type (
	keyedTexts = keyedValue[map[string]string]
	// tagInventory holds tags by the name of a classic load balancer, or the ARN of another resource.
	tagInventory = inventory.Inventory[string, keyedTexts]
)

// records caches AWS's objects for Services, as far as they were read.
type records struct {
	api               *api
	classics          *inventory.Inventory[string, *classicLoadBalancer]
	networks          *inventory.Inventory[string, *elbv2types.LoadBalancer]
	targetGroups      *inventory.Inventory[string, *elbv2types.TargetGroup]
	listeners         *inventory.Inventory[string, keyedValue[[]elbv2types.Listener]]
	targets           *inventory.Inventory[string, keyedValue[targetSet]]
	networkAttributes *tagInventory
	// targetAttributes are those of target groups, by ARN.
	targetAttributes  *tagInventory
	classicAttributes *inventory.Inventory[string, keyedValue[elbtypes.LoadBalancerAttributes]]
	classicTags       *tagInventory
	networkTags       *tagInventory
	// newListeners are listeners that were just made, by the ARN of the load balancer and the port.
	newListeners inventory.Recent[string]
}

func newRecords(a *api) *records {
	return &records{
		api: a, newListeners: inventory.Recent[string]{Within: showsWithin},
		classics: inventory.New(inventory.Source[string, *classicLoadBalancer]{
			Kind: "classic load balancer", ID: func(lb *classicLoadBalancer) string { return aws.ToString(lb.LoadBalancerName) }, List: a.listClassics, Get: a.getClassic,
			Lag: showsWithin, Own: withOwnWrites, Keep: shareInstanceLists(),
			Indexes: map[string]func(*classicLoadBalancer) []string{
				indexName: func(lb *classicLoadBalancer) []string { return []string{aws.ToString(lb.LoadBalancerName)} },
			},
		}),
		networks: inventory.New(inventory.Source[string, *elbv2types.LoadBalancer]{
			Kind: "network load balancer", ID: func(lb *elbv2types.LoadBalancer) string { return aws.ToString(lb.LoadBalancerName) }, List: a.listNetworks,
			Get: a.getNetwork, Lag: showsWithin,
			Indexes: map[string]func(*elbv2types.LoadBalancer) []string{
				indexName: func(lb *elbv2types.LoadBalancer) []string { return []string{aws.ToString(lb.LoadBalancerName)} },
			},
		}),
		targetGroups: inventory.New(inventory.Source[string, *elbv2types.TargetGroup]{
			Kind: "target group", ID: func(t *elbv2types.TargetGroup) string { return aws.ToString(t.TargetGroupArn) }, List: a.listTargetGroups,
			Lag: showsWithin,
			Indexes: map[string]func(*elbv2types.TargetGroup) []string{
				indexLoadBalancer: func(t *elbv2types.TargetGroup) []string { return t.LoadBalancerArns },
			},
		}),
		targets: inventory.New(inventory.Source[string, keyedValue[targetSet]]{
			Kind: "targets", ID: func(n keyedValue[targetSet]) string { return n.key }, Get: withKey(a.getTargets), Keep: shareTargetLists(),
			Lag: showsWithin, Own: func(known, _ keyedValue[targetSet]) keyedValue[targetSet] { return known },
		}),
		listeners:         newSingleInventory("listeners", a.getListeners),
		networkAttributes: newSingleInventory("load balancer attributes", a.getNetworkAttributes),
		targetAttributes:  newSingleInventory("target group attributes", a.getTargetAttributes),
		classicAttributes: newSingleInventory("classic load balancer attributes", a.getClassicAttributes),
		classicTags:       newBatchInventory("classic load balancer tags", a.getClassicTags),
		networkTags:       newBatchInventory("load balancer tags", a.getNetworkTags),
	}
}

// newSingleInventory returns an inventory of objects that are read one at a time.
func newSingleInventory[V any](kind string, get func(context.Context, string) (V, error)) *inventory.Inventory[string, keyedValue[V]] {
	return inventory.New(inventory.Source[string, keyedValue[V]]{
		Kind: kind, ID: func(n keyedValue[V]) string { return n.key }, Get: withKey(get), Lag: showsWithin,
	})
}

// withKey adds the key to the result of a read.
func withKey[V any](get func(context.Context, string) (V, error)) func(context.Context, string) (keyedValue[V], error) {
	return func(ctx context.Context, key string) (keyedValue[V], error) {
		v, err := get(ctx, key)
		return keyedValue[V]{key, v}, err
	}
}

// withOwnWrites is a classic load balancer as it was read, with the instances that we know to be registered, and the policies of
// instance ports that we know to be set.
func withOwnWrites(known, read *classicLoadBalancer) *classicLoadBalancer {
	merged := *read
	merged.Instances, merged.BackendServerDescriptions = known.Instances, known.BackendServerDescriptions
	return &merged
}

// newBatchInventory returns an inventory of objects that are read several at a time.
func newBatchInventory[V any](
	kind string, get func(context.Context, []string) ([]keyedValue[V], error),
) *inventory.Inventory[string, keyedValue[V]] {
	return inventory.New(inventory.Source[string, keyedValue[V]]{
		Kind: kind, ID: func(n keyedValue[V]) string { return n.key }, GetMany: get, BatchSize: tagBatch, Lag: showsWithin,
		Get: func(ctx context.Context, key string) (keyedValue[V], error) {
			list, err := get(ctx, []string{key})
			if err == nil && (len(list) != 1 || list[0].key != key) {
				err = fmt.Errorf("reading %s of %s: %w", kind, key, errIncomplete)
			}
			if err != nil {
				return keyedValue[V]{}, err
			}
			return list[0], nil
		},
	})
}

// listClassics lists all classic load balancers, of whose pages little is kept.
func (a *api) listClassics(ctx context.Context) (list []*classicLoadBalancer, pages int, err error) {
	in := &elb.DescribeLoadBalancersInput{PageSize: aws.Int32(classicPage)}
	return listPages(ctx, a, cloudapi.WatchLargeListing, "listing classic load balancers", (*elb.Client).DescribeLoadBalancers, in, &in.Marker,
		func(out *elb.DescribeLoadBalancersOutput) ([]classicLoadBalancer, *string) {
			return out.LoadBalancerDescriptions, out.NextMarker
		}, shareInstanceLists())
}

func (a *api) getClassic(ctx context.Context, name string) (*classicLoadBalancer, error) {
	what := "reading classic load balancer " + name
	out, err := call(ctx, a, what, (*elb.Client).DescribeLoadBalancers, &elb.DescribeLoadBalancersInput{LoadBalancerNames: []string{name}})
	if err != nil {
		return nil, err
	}
	if len(out.LoadBalancerDescriptions) != 1 || aws.ToString(out.LoadBalancerDescriptions[0].LoadBalancerName) != name {
		return nil, incompleteError(what)
	}
	return &out.LoadBalancerDescriptions[0], nil
}

// incompleteError is returned for an answer that lacks required parts.
func incompleteError(what string) error {
	return &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: errIncomplete.Error(), Cause: errIncomplete}
}

// controllerName is the form of the names that controllers give load balancers: "a" and the UID of the Service.
var controllerName = regexp.MustCompile(`^a[0-9a-zA-Z]{1,31}$`)

// asRead keeps an object as the API shows it.
func asRead[T any](object *T) *T { return object }

func (a *api) listNetworks(ctx context.Context) (list []*elbv2types.LoadBalancer, pages int, err error) {
	in := &elbv2.DescribeLoadBalancersInput{PageSize: aws.Int32(loadBalancerPage)}
	list, pages, err = listPages(ctx, a, cloudapi.WatchListing, "listing network load balancers", (*elbv2.Client).DescribeLoadBalancers, in, &in.Marker,
		func(out *elbv2.DescribeLoadBalancersOutput) ([]networkLoadBalancer, *string) {
			return out.LoadBalancers, out.NextMarker
		}, asRead)
	return slices.DeleteFunc(list, func(lb *networkLoadBalancer) bool {
		return !controllerName.MatchString(aws.ToString(lb.LoadBalancerName))
	}), pages, err
}

func (a *api) getNetwork(ctx context.Context, name string) (*elbv2types.LoadBalancer, error) {
	what := "reading network load balancer " + name
	out, err := call(ctx, a, what, (*elbv2.Client).DescribeLoadBalancers, &elbv2.DescribeLoadBalancersInput{Names: []string{name}})
	if err != nil {
		return nil, err
	}
	if len(out.LoadBalancers) != 1 || aws.ToString(out.LoadBalancers[0].LoadBalancerName) != name {
		return nil, incompleteError(what)
	}
	return &out.LoadBalancers[0], nil
}

func (a *api) listTargetGroups(ctx context.Context) (list []*elbv2types.TargetGroup, pages int, err error) {
	in := &elbv2.DescribeTargetGroupsInput{PageSize: aws.Int32(loadBalancerPage)}
	list, pages, err = listPages(ctx, a, cloudapi.WatchListing, "listing target groups", (*elbv2.Client).DescribeTargetGroups, in, &in.Marker,
		func(out *elbv2.DescribeTargetGroupsOutput) ([]elbv2types.TargetGroup, *string) {
			return out.TargetGroups, out.NextMarker
		}, asRead)
	return slices.DeleteFunc(list, func(t *elbv2types.TargetGroup) bool {
		return !strings.HasPrefix(aws.ToString(t.TargetGroupName), "k8s-")
	}), pages, err
}

func (a *api) getListeners(ctx context.Context, arn string) (list []elbv2types.Listener, err error) {
	in := &elbv2.DescribeListenersInput{LoadBalancerArn: aws.String(arn)}
	list, _, err = listPages(ctx, a, cloudapi.WatchListing, "reading the listeners of "+arn, (*elbv2.Client).DescribeListeners, in, &in.Marker,
		func(out *elbv2.DescribeListenersOutput) ([]elbv2types.Listener, *string) {
			return out.Listeners, out.NextMarker
		},
		func(l *elbv2types.Listener) elbv2types.Listener { return *l })
	return list, err
}

func (a *api) getTargets(ctx context.Context, arn string) (targetSet, error) {
	out, err := call(ctx, a, "reading the targets of "+arn, (*elbv2.Client).DescribeTargetHealth, &elbv2.DescribeTargetHealthInput{TargetGroupArn: aws.String(arn)})
	if err != nil {
		return targetSet{}, err
	}
	var list []target
	for _, d := range out.TargetHealthDescriptions {
		if d.Target != nil && (d.TargetHealth == nil || d.TargetHealth.Reason != reasonDraining) {
			list = append(list, target{aws.ToString(d.Target.Id), aws.ToInt32(d.Target.Port)})
		}
	}
	return newTargetSet(list), nil
}

func (a *api) getNetworkAttributes(ctx context.Context, arn string) (map[string]string, error) {
	what := "reading the attributes of " + arn
	out, err := call(ctx, a, what, (*elbv2.Client).DescribeLoadBalancerAttributes, &elbv2.DescribeLoadBalancerAttributesInput{
		LoadBalancerArn: aws.String(arn),
	})
	if err != nil {
		return nil, err
	}
	return attributeMap(what, out.Attributes, func(a elbv2types.LoadBalancerAttribute) (key, value *string) { return a.Key, a.Value })
}

func (a *api) getTargetAttributes(ctx context.Context, arn string) (map[string]string, error) {
	what := "reading the attributes of " + arn
	out, err := call(ctx, a, what, (*elbv2.Client).DescribeTargetGroupAttributes, &elbv2.DescribeTargetGroupAttributesInput{
		TargetGroupArn: aws.String(arn),
	})
	if err != nil {
		return nil, err
	}
	return attributeMap(what, out.Attributes, func(a elbv2types.TargetGroupAttribute) (key, value *string) { return a.Key, a.Value })
}

// attributeMap makes a map of attributes; everything has some, so that none is no answer.
func attributeMap[A any](what string, attributes []A, of func(A) (key, value *string)) (map[string]string, error) {
	if len(attributes) == 0 {
		return nil, incompleteError(what)
	}
	return mapOf(attributes, of), nil
}

// mapOf makes a map of what the SDK has as a list of keys and values.
func mapOf[T any](list []T, of func(T) (key, value *string)) map[string]string {
	values := make(map[string]string, len(list))
	for _, one := range list {
		key, value := of(one)
		values[aws.ToString(key)] = aws.ToString(value)
	}
	return values
}

func classicTag(t elbtypes.Tag) (key, value *string)   { return t.Key, t.Value }
func networkTag(t elbv2types.Tag) (key, value *string) { return t.Key, t.Value }
func ec2Tag(t ec2types.Tag) (key, value *string)       { return t.Key, t.Value }

func (a *api) getClassicAttributes(ctx context.Context, name string) (elbtypes.LoadBalancerAttributes, error) {
	what := "reading the attributes of classic load balancer " + name
	out, err := call(ctx, a, what, (*elb.Client).DescribeLoadBalancerAttributes, &elb.DescribeLoadBalancerAttributesInput{
		LoadBalancerName: aws.String(name),
	})
	if err == nil && out.LoadBalancerAttributes == nil {
		err = incompleteError(what)
	}
	if err != nil {
		return elbtypes.LoadBalancerAttributes{}, err
	}
	return *out.LoadBalancerAttributes, nil
}

func (a *api) getClassicTags(ctx context.Context, names []string) ([]keyedTexts, error) {
	out, err := call(ctx, a, "reading the tags of "+strings.Join(names, ", "), (*elb.Client).DescribeTags, &elb.DescribeTagsInput{LoadBalancerNames: names})
	if err != nil {
		return nil, err
	}
	var list []keyedTexts
	for _, d := range out.TagDescriptions {
		list = append(list, keyedTexts{aws.ToString(d.LoadBalancerName), mapOf(d.Tags, classicTag)})
	}
	return list, nil
}

func (a *api) getNetworkTags(ctx context.Context, arns []string) ([]keyedTexts, error) {
	out, err := call(ctx, a, "reading the tags of "+strings.Join(arns, ", "), (*elbv2.Client).DescribeTags, &elbv2.DescribeTagsInput{ResourceArns: arns})
	if err != nil {
		return nil, err
	}
	var list []keyedTexts
	for _, d := range out.TagDescriptions {
		list = append(list, keyedTexts{aws.ToString(d.ResourceArn), mapOf(d.Tags, networkTag)})
	}
	return list, nil
}

// deleteClassic deletes a classic load balancer; one that is gone already is no error.
func (r *records) deleteClassic(ctx context.Context, name string) error {
	_, err := call(ctx, r.api, "deleting classic load balancer "+name, (*elb.Client).DeleteLoadBalancer, &elb.DeleteLoadBalancerInput{LoadBalancerName: aws.String(name)})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		r.classics.Invalidate(name)
		return err
	}
	r.classics.Forget(name)
	r.classicAttributes.Forget(name)
	r.classicTags.Forget(name)
	return nil
}

// attributeProtected keeps a network load balancer from being deleted.
const attributeProtected = "deletion_protection.enabled"

// checkProtection refuses a network load balancer that somebody protects: it would stay, and reach no node any more.
func (r *records) checkProtection(ctx context.Context, lb *networkLoadBalancer) error {
	if lb == nil {
		return nil
	}
	attributes, err := r.networkAttributes.Get(ctx, aws.ToString(lb.LoadBalancerArn), inventory.Query{})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return nil
	case err == nil && attributes.value[attributeProtected] == textTrue:
		return fmt.Errorf("it is protected from deletion by its attribute %s and stays, with the rules of nodes for it; "+
			"take the attribute away to delete it", attributeProtected)
	}
	return err
}

// deleteNetwork deletes a network load balancer; one that is gone already is no error. What is known by its name is for the
// caller to forget.
func (r *records) deleteNetwork(ctx context.Context, arn string) error {
	_, err := call(ctx, r.api, "deleting network load balancer "+arn, (*elbv2.Client).DeleteLoadBalancer, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: aws.String(arn)})
	if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
		return err
	}
	r.listeners.Forget(arn)
	r.networkAttributes.Forget(arn)
	r.networkTags.Forget(arn)
	return nil
}

func (r *records) forgetTargetGroup(arn string) {
	r.targetGroups.Forget(arn)
	r.targets.Forget(arn)
	r.targetAttributes.Forget(arn)
	r.networkTags.Forget(arn)
}

// run carries out one step, and keeps the records true. made holds the ARNs of target groups that were made before it, by name.
func (r *records) run(ctx context.Context, s step, made map[string]string) error {
	fill := func(arn **string) {
		if *arn == nil {
			*arn = nilIfEmpty(made[s.group])
		}
	}
	switch in := s.input.(type) {
	case *elbv2.CreateTargetGroupInput:
		return r.makeTargetGroup(ctx, s, in, made)
	case *elbv2.ModifyTargetGroupAttributesInput:
		fill(&in.TargetGroupArn)
	case *elbv2.RegisterTargetsInput:
		fill(&in.TargetGroupArn)
	case *elbv2.CreateListenerInput:
		if r.newListeners.Has(listenerKey(in)) {
			return cloudproviderapi.NewRetryError("AWS does not show the listener of a port yet, which was just made", groupVisiblePause)
		}
		fill(&in.DefaultActions[0].TargetGroupArn)
	case *elbv2.ModifyListenerInput:
		fill(&in.DefaultActions[0].TargetGroupArn)
	case *elbv2.DeleteListenerInput:
		r.newListeners.Remove(func(string) bool { return true }) // the port may get another one
	case *elb.DeregisterInstancesFromLoadBalancerInput:
		err := r.deregister(ctx, s, in)
		r.noteInstances(aws.ToString(in.LoadBalancerName), nil, in.Instances, err)
		return err
	}
	out, err := s.send(ctx, r.api)
	r.noteClassic(s.input, err)
	return r.noteNetwork(s.input, out, err)
}

// listenerKey is the ARN of the load balancer and the port of a listener.
func listenerKey(in *elbv2.CreateListenerInput) string {
	return aws.ToString(in.LoadBalancerArn) + " " + strconv.Itoa(int(aws.ToInt32(in.Port)))
}

// noteNetwork notes the result of a call for a network load balancer. What is gone already is no error of a deletion.
func (r *records) noteNetwork(input, output any, err error) error {
	switch in := input.(type) {
	case *elbv2.ModifyTargetGroupInput:
		if out, ok := output.(*elbv2.ModifyTargetGroupOutput); ok && err == nil && len(out.TargetGroups) == 1 {
			r.targetGroups.Put(&out.TargetGroups[0])
		} else {
			r.targetGroups.Invalidate(aws.ToString(in.TargetGroupArn))
		}
	case *elbv2.ModifyTargetGroupAttributesInput:
		r.targetAttributes.Invalidate(aws.ToString(in.TargetGroupArn))
	case *elbv2.RegisterTargetsInput:
		r.noteTargets(aws.ToString(in.TargetGroupArn), in.Targets, nil, err)
	case *elbv2.DeregisterTargetsInput:
		r.noteTargets(aws.ToString(in.TargetGroupArn), nil, in.Targets, err)
	case *elbv2.DeleteTargetGroupInput:
		if err == nil || errors.Is(err, cloudapi.ErrNotFound) {
			r.forgetTargetGroup(aws.ToString(in.TargetGroupArn))
			return nil
		}
		r.targetGroups.Invalidate(aws.ToString(in.TargetGroupArn))
		return retryIfInUse(err, "target group "+aws.ToString(in.TargetGroupArn))
	case *elbv2.CreateListenerInput:
		if err == nil {
			r.newListeners.Add(listenerKey(in))
		}
	case *elbv2.DeleteListenerInput:
		if errors.Is(err, cloudapi.ErrNotFound) {
			return nil
		}
	case *elbv2.ModifyLoadBalancerAttributesInput:
		r.noteAttributes(in, err)
	}
	return err
}

// noteClassic notes the result of a call for a classic load balancer.
func (r *records) noteClassic(input any, err error) {
	switch in := input.(type) {
	case *elb.SetLoadBalancerPoliciesForBackendServerInput:
		r.noteBackendPolicies(in, err)
	case *elb.AddTagsInput:
		name := in.LoadBalancerNames[0]
		if _, known := r.classicTags.Peek(name); known || err != nil {
			r.classicTags.Invalidate(name)
		} else { // they cannot be read
			r.classicTags.Put(keyedTexts{name, mapOf(in.Tags, classicTag)})
		}
	case *elb.ModifyLoadBalancerAttributesInput:
		r.classicAttributes.Invalidate(aws.ToString(in.LoadBalancerName))
	case *elb.RegisterInstancesWithLoadBalancerInput:
		r.noteInstances(aws.ToString(in.LoadBalancerName), in.Instances, nil, err)
	}
}

// makeTargetGroup makes a target group. A call whose answer was lost has made it as well; the same call then returns it.
func (r *records) makeTargetGroup(ctx context.Context, s step, in *elbv2.CreateTargetGroupInput, made map[string]string) error {
	output, err := s.send(ctx, r.api)
	out, _ := output.(*elbv2.CreateTargetGroupOutput)
	if err == nil && (len(out.TargetGroups) != 1 || out.TargetGroups[0].TargetGroupArn == nil) {
		err = incompleteError(s.what)
	}
	if err != nil {
		r.targetGroups.InvalidateAll()
		return err
	}
	group := &out.TargetGroups[0]
	for _, user := range group.LoadBalancerArns {
		if loadBalancerOfARN(user) != loadBalancerOfARN(s.loadBalancer) { // no target of ours is registered there
			r.targetGroups.Invalidate(aws.ToString(group.TargetGroupArn))
			return &cloudapi.Error{Class: cloudapi.ErrConflict, Operation: s.what, Message: fmt.Sprintf("target group %s (%s) exists and is used by "+
				"another load balancer, %s; delete that one if nobody needs it, or change the name or the ports of the Service", aws.ToString(group.TargetGroupName), aws.ToString(group.TargetGroupArn), user)}
		}
	}
	arn := aws.ToString(group.TargetGroupArn)
	r.targetGroups.Put(group)
	r.targets.Made(arn)
	r.targetAttributes.Made(arn)
	made[s.group] = arn
	r.networkTags.Put(keyedTexts{arn, mapOf(in.Tags, networkTag)})
	return nil
}

// noteTargets keeps the knowledge of the targets of a group true after a write.
func (r *records) noteTargets(arn string, added, removed []elbv2types.TargetDescription, err error) {
	if err != nil {
		r.targets.Invalidate(arn)
		return
	}
	known, ok := r.targets.Peek(arn)
	if !ok {
		return
	}
	changed := slices.DeleteFunc(known.value.targets(), func(t target) bool {
		same := func(d elbv2types.TargetDescription) bool {
			return aws.ToString(d.Id) == t.id && aws.ToInt32(d.Port) == t.port
		}
		return slices.ContainsFunc(added, same) || slices.ContainsFunc(removed, same)
	})
	for _, d := range added {
		changed = append(changed, target{aws.ToString(d.Id), aws.ToInt32(d.Port)})
	}
	r.targets.PutPartial(keyedValue[targetSet]{arn, newTargetSet(changed)})
}

func (r *records) noteAttributes(in *elbv2.ModifyLoadBalancerAttributesInput, err error) {
	arn := aws.ToString(in.LoadBalancerArn)
	known, ok := r.networkAttributes.Peek(arn)
	if err != nil || !ok {
		r.networkAttributes.Invalidate(arn)
		return
	}
	changed := maps.Clone(known.value)
	for _, a := range in.Attributes {
		changed[aws.ToString(a.Key)] = aws.ToString(a.Value)
	}
	r.networkAttributes.PutPartial(keyedTexts{arn, changed})
}

// deregister takes instances out of a classic load balancer. AWS refuses all of them for one that exists no longer, which it has taken
// out by itself.
func (r *records) deregister(ctx context.Context, s step, in *elb.DeregisterInstancesFromLoadBalancerInput) error {
	_, err := s.send(ctx, r.api)
	switch {
	case codeOf(err) != "InvalidInstance":
		return err
	case len(in.Instances) == 1:
		return nil
	}
	for _, i := range in.Instances {
		one := &elb.DeregisterInstancesFromLoadBalancerInput{LoadBalancerName: in.LoadBalancerName, Instances: []elbtypes.Instance{i}}
		_, err := newStep(s.what, (*elb.Client).DeregisterInstancesFromLoadBalancer, one).send(ctx, r.api)
		if err != nil && codeOf(err) != "InvalidInstance" {
			return err
		}
	}
	return nil
}

// noteBackendPolicies keeps the knowledge of the policies of instance ports true after a write: what was read for a while after it
// may lack it, and a policy that is not seen would stay when it is to go.
func (r *records) noteBackendPolicies(in *elb.SetLoadBalancerPoliciesForBackendServerInput, err error) {
	known, ok := r.classics.Peek(aws.ToString(in.LoadBalancerName))
	if err != nil || !ok {
		r.classics.Invalidate(aws.ToString(in.LoadBalancerName))
		return
	}
	changed := *known
	samePort := func(d elbtypes.BackendServerDescription) bool {
		return aws.ToInt32(d.InstancePort) == aws.ToInt32(in.InstancePort)
	}
	changed.BackendServerDescriptions = slices.DeleteFunc(slices.Clone(known.BackendServerDescriptions), samePort)
	if len(in.PolicyNames) > 0 {
		changed.BackendServerDescriptions = append(changed.BackendServerDescriptions, elbtypes.BackendServerDescription{
			InstancePort: in.InstancePort, PolicyNames: in.PolicyNames,
		})
	}
	r.classics.PutPartial(&changed)
}

// noteInstances keeps the knowledge of the instances of a classic load balancer true after a write.
func (r *records) noteInstances(name string, added, removed []elbtypes.Instance, err error) {
	known, ok := r.classics.Peek(name)
	if err != nil || !ok {
		r.classics.Invalidate(name)
		return
	}
	changed := *known
	changed.Instances = slices.DeleteFunc(slices.Clone(known.Instances), func(i elbtypes.Instance) bool {
		return slices.ContainsFunc(removed, func(r elbtypes.Instance) bool { return aws.ToString(r.InstanceId) == aws.ToString(i.InstanceId) })
	})
	changed.Instances = append(changed.Instances, added...)
	r.classics.PutPartial(&changed)
}
