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

// members are the virtual machines behind a rule.
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

// machine is the virtual machine of a node.
type machine struct {
	node *v1.Node
	vm   vm
}

// machinesOf finds the virtual machines of nodes, from the listing that all Services share. Those of nodes that have none are left out, and
// the IDs that their nodes name are returned: nobody knows whether they are gone.
func (i *instances) machinesOf(ctx context.Context, list []*v1.Node) (found []machine, unknown []string, err error) {
	for _, n := range list {
		if n.Spec.ProviderID == "" || instanceKey(n.Spec.ProviderID) == "" {
			continue // it is not initialised, or another cloud's
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

// absentMaxAge is how long a virtual machine that was proved to be gone is taken for gone where members are computed.
const absentMaxAge = time.Minute

// findMember finds the virtual machine of a node. One that the shared listing lacks is looked for by itself: a listing that lacks it by
// mistake would leave the node without traffic until somebody changes the Service.
func (i *instances) findMember(ctx context.Context, n *v1.Node, expected int) (vm, error) {
	v, err := i.Find(ctx, n, inventory.Query{MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.SweepMaxAge, Expected: expected})
	id, bad := parseProviderID(n.Spec.ProviderID)
	if bad != nil || !errors.Is(err, cloudapi.ErrNotFound) || i.provedAbsent(id) {
		return v, err
	}
	return i.Find(ctx, n, inventory.Query{MaxAge: nodes.SweepMaxAge})
}

// cannotServe are states in which the API takes no virtual machine behind a rule.
func (v vm) cannotServe() bool { return v.destroyed() || v.State == "Error" || v.State == "Unknown" }

// backendsOf are the virtual machines that can be behind the rules of a network. Those in other networks are left out, which the user is
// told.
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
			"connect their virtual machines to it", some(outside), networkID))
	}
	return b, findings
}

// some are names for a message.
func some(list []string) string {
	const most = 5
	text := strings.Join(list[:min(len(list), most)], ", ")
	if len(list) > most {
		text += ", …"
	}
	return text
}
