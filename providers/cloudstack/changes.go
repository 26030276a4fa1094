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

type lbChange = services.Change[*loadBalancer]

// newChange returns a change that is complete when do returns nil.
func newChange(action, what, detail string, do func(ctx context.Context, q *services.Request, lb *loadBalancer) error) lbChange {
	return lbChange{
		Planned: contract.Planned{Action: action, Object: what, Detail: detail},
		Make: func(ctx context.Context, q *services.Request, lb *loadBalancer) (*loadBalancer, error) {
			return lb, do(ctx, q, lb)
		},
	}
}

// withCompare adds the object before and after the change, for plan.
func withCompare(c lbChange, before, after any) lbChange {
	c.Compare = func() (any, any) { return before, after }
	return c
}

// machineFields returns a rule's machines as the API names them.
func machineFields(ids []string) map[string]any { return map[string]any{"virtualmachineids": ids} }

// Changes implements services.Reconciler. Additions come before deletions.
func (r *reconciler) Changes(q services.Request, lb *loadBalancer, d spec) ([]lbChange, error) {
	var list []lbChange
	addressID := ""
	if lb.address == nil {
		list = append(list, r.addressAcquisition(q, d))
	} else {
		addressID = lb.address.ID
	}
	serving, obsolete := matchRules(lb.rules, addressID, d.rules)
	for _, w := range d.rules {
		if lb.isRefused(w.Port) {
			continue
		}
		list = append(list, r.ruleChanges(lb, d, w, serving)...)
		list = append(list, r.accessOpening(lb, d, w)...)
	}
	return append(list, r.ruleRemovals(lb, obsolete, d.rules)...), nil
}

// ruleRemovals returns the changes that close the ports of obsolete rules, unless others need these ports, and delete the rules. Each
// closing is tried before a rule is deleted by which it is found. A rule without closings lets clients in itself, so its deletion is one.
func (r *reconciler) ruleRemovals(lb *loadBalancer, obsolete []rule, others []wantedRule) []lbChange {
	var closings, deletions []lbChange
	for _, o := range obsolete {
		var closing []lbChange
		if !slices.ContainsFunc(others, func(w wantedRule) bool {
			return w.Port == o.port() && transport(w.Protocol) == o.transport() && lb.address != nil && o.AddressID == lb.address.ID
		}) {
			closing = r.accessClosing(lb, o)
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
func (r *reconciler) ruleChanges(lb *loadBalancer, d spec, w wantedRule, serving map[int]rule) []lbChange {
	found, there := serving[w.Port]
	if !there {
		return append([]lbChange{r.ruleCreation(d, w), r.memberAssignment(w, d.backends.members)}, r.policyChanges(lb, d, w, "")...)
	}
	differs, again := found.fits(w, d.inPlace)
	if again {
		list := []lbChange{
			failPortOnly(w.Port, r.ruleDeletion(lb, found)), r.ruleCreation(d, w), r.memberAssignment(w, d.backends.members),
		}
		return append(list, r.policyChanges(lb, d, w, "")...)
	}
	var list []lbChange
	if len(differs) > 0 {
		list = append(list, r.ruleUpdate(d, found, w, strings.Join(differs, ", ")))
	}
	list = append(list, r.memberChanges(lb, found, d.backends)...)
	return append(list, r.policyChanges(lb, d, w, found.ID)...)
}

// failPortOnly makes a failed change the failure of its port, so that the networks of other ports change nevertheless.
func failPortOnly(port int, c lbChange) lbChange {
	do := c.Make
	c.Make = func(ctx context.Context, q *services.Request, lb *loadBalancer) (*loadBalancer, error) {
		lb, err := do(ctx, q, lb)
		if err == nil || ctx.Err() != nil {
			return lb, err
		}
		lb.failures[port] = err
		return lb, nil
	}
	return c
}

// isPortRefused reports whether CloudStack permanently refused something about one port. Other ports are still served.
func isPortRefused(err error) bool {
	return errors.Is(err, cloudapi.ErrInvalid) || errors.Is(err, cloudapi.ErrConflict)
}

// ruleCreation creates a rule. A refused port is reported at the end.
func (r *reconciler) ruleCreation(d spec, w wantedRule) lbChange {
	c := newChange(contract.PlanCreate, "load balancer rule "+w.Name, "", func(ctx context.Context, q *services.Request, lb *loadBalancer) error {
		if lb.isRefused(w.Port) {
			return nil // its former rule is still there
		}
		made, err := r.createRule(ctx, lb, d, w)
		if err != nil {
			r.rules.Invalidate("") // it may have been created
			if isPortRefused(err) {
				q.Report(services.Warning(eventRefused, "port %d: %v", w.Port, err))
				lb.failures[w.Port] = err
				return nil
			}
			return err
		}
		lb.rules = append(lb.rules, made)
		lb.members[made.ID] = nil
		return nil
	})
	c.Creates = true
	c.Compare = func() (before, after any) { return nil, w }
	return c
}

func (r *reconciler) createRule(ctx context.Context, lb *loadBalancer, d spec, w wantedRule) (made rule, err error) {
	if lb.address == nil {
		return made, errors.New("there is no address yet")
	}
	c := change{
		network: d.network.key(), owner: d.name, what: "creating load balancer rule " + w.Name, command: "createLoadBalancerRule", key: "loadbalancer", out: &made,
		params: params{
			"name": w.Name, "description": d.description, "algorithm": w.Algorithm, "protocol": w.Protocol, "publicipid": lb.address.ID,
			"networkid": d.network.ID, "publicport": strconv.Itoa(w.Port), "privateport": strconv.Itoa(w.NodePort), "cidrlist": strings.Join(w.CIDRs, ","),
			"openfirewall": "false",
		},
	}
	if err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) }); err != nil {
		return made, err
	}
	if made.ID == "" || made.Name != w.Name {
		return made, cloudapi.Unclear(c.what, "the answer is about another rule")
	}
	r.rules.Put(made)
	r.members.Put(members{RuleID: made.ID})
	return made, nil
}

func (r *reconciler) ruleUpdate(d spec, found rule, w wantedRule, detail string) lbChange {
	c := newChange(contract.PlanChange, "load balancer rule "+found.Name, detail, func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
		p := params{"id": found.ID, "name": w.Name, "algorithm": w.Algorithm, "protocol": w.Protocol}
		if !slices.Equal(cidrs(found.CIDRs), w.CIDRs) {
			p["cidrlist"] = strings.Join(w.CIDRs, ",")
		}
		var after rule
		c := change{
			network: d.network.key(), owner: d.name, what: "changing load balancer rule " + found.Name,
			command: "updateLoadBalancerRule", key: "loadbalancer", params: p, out: &after,
		}
		if err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) }); err != nil {
			return r.forgetMissing(found.ID, err)
		}
		if after.ID != found.ID {
			r.rules.Invalidate(found.ID)
			return cloudapi.Unclear(c.what, "the answer is about another rule")
		}
		if differs, again := after.fits(w, d.inPlace); len(differs) > 0 || again {
			r.rules.Invalidate(found.ID)
			return cloudapi.Unclear(c.what, "%s did not change", strings.Join(differs, ", "))
		}
		r.rules.Put(after)
		lb.replaceRule(after)
		return nil
	})
	c.Compare = func() (before, after any) {
		return wantedRule{
			Name: found.Name, Protocol: found.Protocol, Algorithm: found.Algorithm, Port: w.Port,
			NodePort: w.NodePort, CIDRs: cidrs(found.CIDRs),
		}, w
	}
	return c
}

// forgetMissing handles a failed change of a rule. If the rule is missing, everything is observed again.
func (r *reconciler) forgetMissing(id string, err error) error {
	if errors.Is(err, cloudapi.ErrNotFound) {
		r.rules.Forget(id)
		r.members.Forget(id)
		return services.ErrGone
	}
	r.rules.Invalidate(id)
	r.members.Invalidate(id)
	return err
}

// memberAssignment adds machines to a new rule.
func (r *reconciler) memberAssignment(w wantedRule, ids []string) lbChange {
	if len(ids) == 0 {
		none := func(context.Context, *services.Request, *loadBalancer) error { return nil }
		c := newChange(contract.PlanChange, "load balancer rule "+w.Name, "no virtual machines", none)
		c.Wait = true
		return c
	}
	c := newChange(contract.PlanChange, "load balancer rule "+w.Name, fmt.Sprintf("%d virtual machines behind it", len(ids)),
		func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
			at := slices.IndexFunc(lb.rules, func(found rule) bool {
				return found.Name == w.Name && lb.address != nil && found.AddressID == lb.address.ID
			})
			if lb.isRefused(w.Port) || at < 0 {
				return nil // its creation was refused
			}
			return r.moveMembers(ctx, lb, lb.rules[at], "assignToLoadBalancerRule", ids)
		})
	return withCompare(c, machineFields(nil), machineFields(ids))
}

// memberChanges updates the machines of a rule: additions come before removals.
func (r *reconciler) memberChanges(lb *loadBalancer, found rule, b backends) (list []lbChange) {
	missing, surplus := b.memberDifference(lb.members[found.ID])
	for _, part := range []struct {
		command, detail string
		ids             []string
	}{{"assignToLoadBalancerRule", "%d virtual machines join", missing}, {"removeFromLoadBalancerRule", "%d virtual machines leave", surplus}} {
		if len(part.ids) > 0 {
			list = append(list, newChange(contract.PlanChange, "load balancer rule "+found.Name, fmt.Sprintf(part.detail, len(part.ids)),
				func(ctx context.Context, _ *services.Request, lb *loadBalancer) error {
					return r.moveMembers(ctx, lb, found, part.command, part.ids)
				}))
		}
	}
	return list
}

// moveMembers adds machines to a rule or removes them. CloudStack refuses a whole batch because of one machine without naming it, so after
// a failure the machines are read again.
func (r *reconciler) moveMembers(ctx context.Context, lb *loadBalancer, found rule, command string, ids []string) error {
	c := change{
		network: lb.network.key(), owner: lb.name, what: "changing the virtual machines behind load balancer rule " + found.Name, command: command,
		params: params{"id": found.ID, "virtualmachineids": strings.Join(ids, ",")},
	}
	if err := r.api.jobs.runInNetwork(ctx, c.network, func() error { return r.api.jobs.run(ctx, c) }); err != nil {
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
func (r *reconciler) ruleDeletion(lb *loadBalancer, found rule) lbChange {
	c := newChange(contract.PlanDelete, "load balancer rule "+found.Name, "", func(ctx context.Context, q *services.Request, _ *loadBalancer) error {
		if err := r.noteAddress(ctx, q, lb, found); err != nil {
			return err
		}
		c := change{
			network: lb.network.key(), owner: lb.name, what: "deleting load balancer rule " + found.Name,
			command: "deleteLoadBalancerRule", params: params{"id": found.ID},
		}
		err := r.api.jobs.runInNetwork(ctx, c.network, func() error {
			if err := r.deleteUnneededItems(ctx, lb, found); err != nil {
				return err
			}
			return r.api.jobs.run(ctx, c)
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
	return withCompare(c, found, nil)
}

func (lb *loadBalancer) replaceRule(after rule) {
	for n := range lb.rules {
		if lb.rules[n].ID == after.ID {
			lb.rules[n] = after
		}
	}
}

// NodeChanges implements services.Reconciler.
func (r *reconciler) NodeChanges(ctx context.Context, q services.Request, lb *loadBalancer) ([]lbChange, []services.Finding, error) {
	if len(lb.rules) == 0 {
		return nil, nil, nil
	}
	machines, unknown, err := r.instances.machinesOf(ctx, q.Nodes)
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
func (r *reconciler) Deletions(ctx context.Context, q services.Request, lb *loadBalancer) ([]lbChange, []services.Finding, error) {
	s, _, _ := parseSettings(q.Service) // an invalid annotation must not prevent the deletion
	if lb.foreign {
		return nil, nil, nil
	}
	list, err := r.leftoverItems(ctx, lb)
	if err != nil {
		return nil, nil, err
	}
	list = services.EachTried(list)
	if len(lb.rules) == 0 {
		a, err := r.unusedAddress(ctx, q.Service, s)
		if err != nil || a == nil {
			return list, nil, err
		}
		return append(list, r.addressRelease(*a)), nil, nil
	}
	list = append(list, r.ruleRemovals(lb, lb.rules, nil)...)
	if r.isAcquiredFor(q.Service, s, lb.rules, *lb.address) {
		return append(list, r.addressRelease(*lb.address)), nil, nil
	}
	if why := claimOf(q.Service, s, lb.rules, *lb.address); why != "" {
		return list, []services.Finding{services.Notice(eventAddressKept, "address %s stays: %s", lb.address.IP, why)}, nil
	}
	return list, nil, nil
}
