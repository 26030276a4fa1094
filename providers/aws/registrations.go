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

// registered are the targets of a target group: the instances at one port, in order, and the few at other ports.
type registered struct {
	port   int32
	ids    []string
	others []target
}

// registeredOf takes the port of the first target for that of most.
func registeredOf(list []target) (r registered) {
	for n, t := range list {
		switch {
		case n == 0:
			r.port, r.ids = t.port, append(make([]string, 0, len(list)), t.id)
		case t.port == r.port:
			r.ids = append(r.ids, t.id)
		default:
			r.others = append(r.others, t)
		}
	}
	slices.Sort(r.ids)
	return r
}

// targets returns all targets as a new list in no particular order.
func (r registered) targets() []target {
	list := make([]target, 0, len(r.ids)+len(r.others))
	for _, id := range r.ids {
		list = append(list, target{id, r.port})
	}
	return append(list, r.others...)
}

// keepTargets returns targets whose instances are those of all other target groups that have the same ones.
func keepTargets() func(keyedValue[registered]) keyedValue[registered] {
	lists := inventory.NewLists[string]()
	return func(v keyedValue[registered]) keyedValue[registered] {
		v.value.ids = lists.Same(v.value.ids)
		return v
	}
}

// keepInstances returns a classic load balancer whose instances, in order, are those of all others that have the same ones.
func keepInstances() func(*classicLoadBalancer) *classicLoadBalancer {
	lists := inventory.NewListsFunc(func(a, b elbtypes.Instance) bool { return aws.ToString(a.InstanceId) == aws.ToString(b.InstanceId) })
	return func(lb *classicLoadBalancer) *classicLoadBalancer {
		kept := *lb
		kept.Instances = lists.Same(slices.SortedFunc(slices.Values(lb.Instances), func(a, b elbtypes.Instance) int {
			return cmp.Compare(aws.ToString(a.InstanceId), aws.ToString(b.InstanceId))
		}))
		return &kept
	}
}
