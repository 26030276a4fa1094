package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

type lbChange = services.Change[*observed]

// machineFields returns a rule's machines as the API names them.
func machineFields(ids []string) map[string]any { return map[string]any{"virtualmachineids": ids} }

// newChange returns a change that is complete when do returns nil. before and after are the object, for plan.
func newChange(
	action, what, detail string, before, after any, do func(ctx context.Context, req *services.Request, lb *observed) error,
) lbChange {
	return lbChange{
		Planned: contract.Planned{Action: action, Object: what, Detail: detail},
		Compare: func() (any, any) { return before, after },
		Make: func(ctx context.Context, req *services.Request, lb *observed) (*observed, error) {
			return lb, do(ctx, req, lb)
		},
	}
}

// Changes implements services.Reconciler. Additions come before deletions.
func (r *reconciler) Changes(req services.Request, lb *observed, d desired) ([]lbChange, error) {
	var list []lbChange
	addressID := ""
	if lb.address == nil {
		list = append(list, r.ips.acquisition(lb.network, lb.settings.Address))
	} else {
		addressID = lb.address.ID
	}
	serving, obsolete := matchRules(lb.rules, addressID, d.rules)
	for _, w := range d.rules {
		if lb.isRefused(w.Port) {
			continue
		}
		list = append(list, r.ruleChanges(lb, d, w, serving)...)
		for _, c := range r.access.portOpening(lb, d.sources, transport(w.Protocol), w.Port) {
			list = append(list, unlessKept(w.Port, c))
		}
	}
	return append(list, r.ruleRemovals(lb, obsolete, d.rules)...), nil
}

// ruleRemovals returns the changes that close the ports of obsolete rules, and then delete the rules, by which open ports are found. The
// deletion of a rule that nothing filters counts as closing.
func (r *reconciler) ruleRemovals(lb *observed, obsolete []rule, others []wantedRule) []lbChange {
	var closings, deletions []lbChange
	for _, o := range obsolete {
		var closing []lbChange
		if !slices.ContainsFunc(others, func(w wantedRule) bool {
			return w.Port == o.port() && transport(w.Protocol) == o.transport() && lb.address != nil && o.AddressID == lb.address.ID
		}) {
			closing = r.access.portClosing(lb, o)
		}
		if len(closing) == 0 {
			closings = append(closings, r.ruleDeletion(lb, o))
			continue
		}
		closings = append(closings, closing...)
		deletions = append(deletions, r.ruleDeletion(lb, o))
	}
	return slices.Concat(services.EachTried(closings), deletions)
}

// ruleChanges returns the changes of one port's rule and of its machines.
func (r *reconciler) ruleChanges(lb *observed, d desired, w wantedRule, serving map[int]rule) []lbChange {
	found, exists := serving[w.Port]
	differs, recreate := found.compare(w, d.cidrsInPlace)
	if exists && !recreate {
		var list []lbChange
		if len(differs) > 0 {
			list = append(list, r.ruleUpdate(d.cidrsInPlace, found, w, strings.Join(differs, ", ")))
		}
		list = append(list, r.memberChanges(lb, found, d.backends)...)
		return append(list, r.stickiness.policyChanges(lb, w, found.ID)...)
	}
	list := []lbChange{r.ruleCreation(d, w)}
	if exists {
		list = []lbChange{failPortOnly(w.Port, r.ruleDeletion(lb, found)), list[0]}
	}
	if len(d.backends.members) > 0 {
		list = append(list, r.memberAssignment(w, d.backends.members))
	}
	return append(list, r.stickiness.policyChanges(lb, w, "")...)
}

// failPortOnly makes a failed change the failure of its port, so that the networks of other ports change nevertheless.
func failPortOnly(port int, c lbChange) lbChange {
	do := c.Make
	c.Make = func(ctx context.Context, req *services.Request, lb *observed) (*observed, error) {
		lb, err := do(ctx, req, lb)
		if err == nil || ctx.Err() != nil {
			return lb, err
		}
		lb.failures[port] = err
		return lb, nil
	}
	return c
}

// unlessKept leaves the clients of a port as they are while its former rule could not be deleted; who is not asked for any more was shut
// out before.
func unlessKept(port int, c lbChange) lbChange {
	do := c.Make
	c.Make = func(ctx context.Context, req *services.Request, lb *observed) (*observed, error) {
		if lb.isRefused(port) && slices.ContainsFunc(lb.rules, func(o rule) bool { return o.port() == port && o.AddressID == lb.address.ID }) {
			return lb, nil
		}
		return do(ctx, req, lb)
	}
	return c
}

// isPortRefused reports whether CloudStack permanently refused something about one port. Other ports are still served.
func isPortRefused(err error) bool {
	return errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrConflict)
}

// ruleCreation creates a rule. A refused port is reported at the end.
func (r *reconciler) ruleCreation(d desired, w wantedRule) lbChange {
	c := newChange(contract.PlanCreate, "load balancer rule "+w.Name, "", nil, w, func(ctx context.Context, req *services.Request, lb *observed) error {
		if lb.isRefused(w.Port) {
			return nil // its former rule is still there
		}
		made, err := r.createRule(ctx, lb, d, w)
		switch {
		case err == nil:
			lb.rules = append(lb.rules, made)
			lb.members[made.ID] = nil
			return nil
		case isPortRefused(err):
			req.Report(services.Warning(eventRefused, "port %d: %v", w.Port, err))
			lb.failures[w.Port], err = err, nil
		}
		r.rules.Invalidate("") // it may have been created
		return err
	})
	c.Creates = true
	return c
}

func (r *reconciler) createRule(ctx context.Context, lb *observed, d desired, w wantedRule) (made rule, err error) {
	if lb.address == nil {
		return made, errors.New("there is no address yet")
	}
	c := lb.command("creating load balancer rule "+w.Name, "createLoadBalancerRule", params{
		"name": w.Name, "description": d.description, "algorithm": w.Algorithm, "protocol": w.Protocol, "publicipid": lb.address.ID,
		"networkid": lb.network.ID, "publicport": strconv.Itoa(w.Port), "privateport": strconv.Itoa(w.NodePort), "cidrlist": strings.Join(w.CIDRs, ","),
		"openfirewall": "false",
	})
	c.key, c.out = "loadbalancer", &made
	if err := r.api.jobs.run(ctx, c); err != nil {
		return made, err
	}
	if made.ID == "" || made.Name != w.Name {
		return made, cloudapi.Unclear(c.what, "the answer is about another rule")
	}
	r.rules.Put(made)
	r.members.Put(members{RuleID: made.ID})
	return made, nil
}

// ruleUpdate changes a rule in place: its networks too if the API can do that.
func (r *reconciler) ruleUpdate(inPlace bool, found rule, w wantedRule, detail string) lbChange {
	before := wantedRule{
		Name: found.Name, Protocol: found.Protocol, Algorithm: found.Algorithm, Port: w.Port, NodePort: w.NodePort, CIDRs: cidrs(found.CIDRs),
	}
	what := "load balancer rule " + found.Name
	return newChange(contract.PlanChange, what, detail, before, w, func(ctx context.Context, _ *services.Request, lb *observed) error {
		p := params{"id": found.ID, "name": w.Name, "algorithm": w.Algorithm, "protocol": w.Protocol}
		if !slices.Equal(before.CIDRs, w.CIDRs) {
			p["cidrlist"] = strings.Join(w.CIDRs, ",")
		}
		var after rule
		c := lb.command("changing "+what, "updateLoadBalancerRule", p)
		c.key, c.out = "loadbalancer", &after
		if err := r.api.jobs.run(ctx, c); err != nil {
			return r.forgetMissing(found.ID, err)
		}
		if after.ID != found.ID {
			r.rules.Invalidate(found.ID)
			return cloudapi.Unclear(c.what, "the answer is about another rule")
		}
		if differs, recreate := after.compare(w, inPlace); len(differs) > 0 || recreate {
			r.rules.Invalidate(found.ID)
			return cloudapi.Unclear(c.what, "%s did not change", strings.Join(differs, ", "))
		}
		r.rules.Put(after)
		lb.rules[slices.IndexFunc(lb.rules, func(o rule) bool { return o.ID == after.ID })] = after
		return nil
	})
}

// memberAssignment adds machines to a new rule.
func (r *reconciler) memberAssignment(w wantedRule, ids []string) lbChange {
	return newChange(contract.PlanChange, "load balancer rule "+w.Name, fmt.Sprintf("%d virtual machines behind it", len(ids)),
		machineFields(nil), machineFields(ids), func(ctx context.Context, _ *services.Request, lb *observed) error {
			made, there := lb.findRule(w)
			if !there {
				return nil // its creation was refused
			}
			return r.moveMembers(ctx, lb, made, "assignToLoadBalancerRule", ids)
		})
}

// memberChanges updates the machines of a rule: additions come before removals.
func (r *reconciler) memberChanges(lb *observed, found rule, b backends) (list []lbChange) {
	missing, surplus := b.memberDifference(lb.members[found.ID])
	for _, part := range []struct {
		command, detail string
		ids             []string
	}{{"assignToLoadBalancerRule", "%d virtual machines join", missing}, {"removeFromLoadBalancerRule", "%d virtual machines leave", surplus}} {
		if len(part.ids) > 0 {
			list = append(list, newChange(contract.PlanChange, "load balancer rule "+found.Name, fmt.Sprintf(part.detail, len(part.ids)), nil, nil,
				func(ctx context.Context, _ *services.Request, lb *observed) error {
					return r.moveMembers(ctx, lb, found, part.command, part.ids)
				}))
		}
	}
	return list
}

// moveMembers adds machines to a rule or removes them. CloudStack refuses a whole batch because of one machine without naming it, so after
// a failure the machines are read again.
func (r *reconciler) moveMembers(ctx context.Context, lb *observed, found rule, command string, ids []string) error {
	c := lb.command("changing the virtual machines behind load balancer rule "+found.Name, command, params{
		"id": found.ID, "virtualmachineids": strings.Join(ids, ","),
	})
	if err := r.api.jobs.run(ctx, c); err != nil {
		r.instances.inventory.InvalidateAll()
		return r.forgetMissing(found.ID, err)
	}
	left := slices.DeleteFunc(slices.Clone(lb.members[found.ID]), func(id string) bool { return slices.Contains(ids, id) })
	if command == "assignToLoadBalancerRule" {
		left = append(left, ids...)
	}
	lb.members[found.ID] = left
	r.members.Put(members{RuleID: found.ID, IDs: left})
	return nil
}

// ruleDeletion deletes a rule. The address is recorded before, because later no rule refers to it.
func (r *reconciler) ruleDeletion(lb *observed, found rule) lbChange {
	what := "load balancer rule " + found.Name
	return newChange(contract.PlanDelete, what, "", found, nil, func(ctx context.Context, req *services.Request, _ *observed) error {
		if err := r.records.noteBeforeDeletion(ctx, req, lb, found); err != nil {
			return err
		}
		c := lb.command("deleting "+what, "deleteLoadBalancerRule", params{"id": found.ID})
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error {
			if err := r.access.deleteUnneededItems(ctx, lb, found); err != nil {
				return err
			}
			return r.api.jobs.runLocked(ctx, c)
		})
		if err != nil && !errors.Is(err, cloudapi.ErrNotFound) {
			r.rules.Invalidate(found.ID)
			return err
		}
		r.rules.Forget(found.ID)
		r.members.Forget(found.ID)
		lb.rules = slices.DeleteFunc(lb.rules, func(o rule) bool { return o.ID == found.ID })
		return nil
	})
}

// NodeChanges implements services.Reconciler.
func (r *reconciler) NodeChanges(ctx context.Context, req services.Request, lb *observed) ([]lbChange, []services.Finding, error) {
	if len(lb.rules) == 0 {
		return nil, nil, nil
	}
	machines, unknown, err := r.instances.machinesOf(ctx, req.Nodes)
	if err != nil {
		return nil, nil, err
	}
	b, findings := backendsOf(machines, unknown, lb.network.ID)
	var list []lbChange
	for _, found := range lb.rules {
		list = append(list, r.memberChanges(lb, found, b)...)
	}
	return list, findings, nil
}

// Deletions implements services.Reconciler: ACL items and firewall rules, then the rules, then the address if it was acquired for the
// Service.
func (r *reconciler) Deletions(ctx context.Context, req services.Request, lb *observed) ([]lbChange, []services.Finding, error) {
	if lb.foreign {
		return nil, nil, nil
	}
	list, err := r.access.leftoverItems(ctx, lb)
	if err != nil {
		return nil, nil, err
	}
	list = services.EachTried(list)
	if len(lb.rules) == 0 {
		a, err := r.ips.unusedAddress(ctx, req.Service, lb.settings)
		if err != nil || a == nil {
			return list, nil, err
		}
		return append(list, r.ips.release(*a)), nil, nil
	}
	list = append(list, r.ruleRemovals(lb, lb.rules, nil)...)
	if r.records.isAcquiredFor(req.Service, lb.settings, lb.rules, *lb.address) {
		return append(list, r.ips.release(*lb.address)), nil, nil
	}
	if why := claimOf(req.Service, lb.settings, lb.rules, *lb.address); why != "" {
		return list, []services.Finding{services.Notice(eventAddressKept, "address %s stays: %s", lb.address.IP, why)}, nil
	}
	return list, nil, nil
}
