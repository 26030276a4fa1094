package aws

import (
	"cmp"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file keeps the backends of load balancers so that memory grows with the number of nodes, and not with nodes times load balancers:
// nearly all load balancers have the same instances.

// targetSet holds the targets of a target group: the instances at one port, in order, and the few at other ports.
type targetSet struct {
	port   int32
	ids    []string
	others []target
}

// newTargetSet takes the port of the first target for that of most.
func newTargetSet(list []target) (s targetSet) {
	for n, t := range list {
		switch {
		case n == 0:
			s.port, s.ids = t.port, append(make([]string, 0, len(list)), t.id)
		case t.port == s.port:
			s.ids = append(s.ids, t.id)
		default:
			s.others = append(s.others, t)
		}
	}
	slices.Sort(s.ids)
	return s
}

// targets returns all targets as a new list in no particular order.
func (s targetSet) targets() []target {
	list := make([]target, 0, len(s.ids)+len(s.others))
	for _, id := range s.ids {
		list = append(list, target{id, s.port})
	}
	return append(list, s.others...)
}

// shareTargetLists returns a function that stores equal lists of instances of target groups once.
func shareTargetLists() func(keyedValue[targetSet]) keyedValue[targetSet] {
	lists := inventory.NewLists[string]()
	return func(v keyedValue[targetSet]) keyedValue[targetSet] {
		v.value.ids = lists.Same(v.value.ids)
		return v
	}
}

// shareInstanceLists returns a function that stores equal lists of instances of classic load balancers once, in order.
func shareInstanceLists() func(*classicLoadBalancer) *classicLoadBalancer {
	lists := inventory.NewListsFunc(func(a, b elbtypes.Instance) bool { return aws.ToString(a.InstanceId) == aws.ToString(b.InstanceId) })
	return func(lb *classicLoadBalancer) *classicLoadBalancer {
		kept := *lb
		kept.Instances = lists.Same(slices.SortedFunc(slices.Values(lb.Instances), func(a, b elbtypes.Instance) int {
			return cmp.Compare(aws.ToString(a.InstanceId), aws.ToString(b.InstanceId))
		}))
		return &kept
	}
}
