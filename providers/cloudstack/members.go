package cloudstack

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

type members struct {
	RuleID string
	IDs    []string
}

func (a *api) members(ctx context.Context, id string) (members, error) {
	l := listing{what: "listing the virtual machines behind load balancer rule " + id, command: "listLoadBalancerRuleInstances", key: "loadbalancerruleinstance"}
	found, _, err := listOnce(ctx, a, l, params{"id": id}, func(v vm) string { return v.ID })
	if err != nil {
		return members{}, cloudapi.NotAbsence(err)
	}
	m := members{RuleID: id}
	for _, v := range found {
		m.IDs = append(m.IDs, strings.ToLower(v.ID))
	}
	return m, nil
}

type machine struct {
	node *v1.Node
	vm   vm
}

// machinesOf finds the nodes' virtual machines in the shared listing. unknown holds IDs of machines not found, which may still exist.
func (i *instances) machinesOf(ctx context.Context, list []*v1.Node) (found []machine, unknown []string, err error) {
	for _, n := range list {
		if n.Spec.ProviderID == "" || instanceKey(n.Spec.ProviderID) == "" {
			continue // uninitialized, or of another cloud
		}
		v, err := i.findMember(ctx, n, len(list))
		switch {
		case errors.Is(err, cloudapi.ErrNotFound), errors.Is(err, cloudapi.ErrConflict):
			if id, bad := parseProviderID(n.Spec.ProviderID); bad == nil {
				unknown = append(unknown, id)
			}
		case err != nil:
			return nil, nil, err
		default:
			found = append(found, machine{n, v})
		}
	}
	return found, unknown, nil
}

// absentMaxAge is how long a proof of absence counts when members are computed.
const absentMaxAge = time.Minute

// findMember finds a node's virtual machine. One missing from the listing is read alone, because otherwise a faulty listing would leave
// the node without traffic.
func (i *instances) findMember(ctx context.Context, n *v1.Node, expected int) (vm, error) {
	v, err := i.Find(ctx, n, inventory.Query{MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.SweepMaxAge, Expected: expected})
	id, bad := parseProviderID(n.Spec.ProviderID)
	if bad != nil || !errors.Is(err, cloudapi.ErrNotFound) || i.isProvedAbsent(id) {
		return v, err
	}
	return i.Find(ctx, n, inventory.Query{MaxAge: nodes.SweepMaxAge})
}

// cannotServe reports states in which the API refuses a machine as member.
func (v vm) cannotServe() bool { return v.isDestroyed() || v.State == "Error" || v.State == "Unknown" }

// backendsOf returns the machines usable behind a network's rules. Machines in other networks are reported.
func backendsOf(machines []machine, unknown []string, networkID string) (b backends, findings []services.Finding) {
	b.doubtful = unknown
	var outside []string
	for _, m := range machines {
		switch {
		case m.vm.cannotServe():
			b.doubtful = append(b.doubtful, m.vm.ID)
		case !m.vm.isIn(networkID):
			outside = append(outside, m.node.Name)
		default:
			b.members = append(b.members, m.vm.ID)
		}
	}
	slices.Sort(b.members)
	b.members = slices.Compact(b.members)
	if len(outside) > 0 {
		slices.Sort(outside)
		findings = append(findings, services.Warning(eventOutside, "nodes %s are not in network %s of the load balancer and receive no traffic from it; "+
			"connect their virtual machines to it", services.JoinSome(outside), networkID))
	}
	return b, findings
}
