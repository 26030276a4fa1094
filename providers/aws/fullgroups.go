package aws

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

// This file changes security groups that have no room for all that is asked for.

// dominantUser returns the load balancer with the most rules in a group.
func (g securityGroup) dominantUser() string {
	largest, of := "", map[string]int{}
	for _, r := range g.rules {
		if name, _ := ruleOf(r); name != "" {
			of[name]++
			if of[name] > of[largest] || (of[name] == of[largest] && name < largest) {
				largest = name
			}
		}
	}
	told := fmt.Sprintf("security group %s (%s) has %d rules, for %d network load balancers", g.id, g.name, len(g.rules), len(of))
	if largest != "" {
		told += fmt.Sprintf(", %d of them for %s alone", of[largest], largest)
	}
	return told + "; use fewer ports and source ranges, raise the quota of rules, or open the node ports yourself and set DisableSecurityGroupIngress"
}

// codeTooManyRules is EC2's refusal of a rule for which a group has no room.
const codeTooManyRules = "RulesPerSecurityGroupLimitExceeded"

// replaceRules makes room in a full group first. If the new rules do not fit, the removed ones are restored, or as many as fit are added.
func (s *securityGroups) replaceRules(ctx context.Context, c ruleChange) error {
	if err := s.revoke(ctx, c.group.id, c.remove); err != nil {
		return err
	}
	if c.partly || len(c.remove) == 0 {
		return s.authorizeByPriority(ctx, c.group.id, c.add)
	}
	err := s.authorize(ctx, c.group.id, c.add)
	if err == nil {
		return nil
	}
	if back := s.authorize(context.WithoutCancel(ctx), c.group.id, c.remove); back != nil {
		return errors.Join(err, fmt.Errorf("putting back the %d rules that made room: %w", len(c.remove), back))
	}
	return err
}

// isPathMTU reports whether a rule lets no client in, but messages about sizes of packets.
func (r rule) isPathMTU() bool {
	return r.protocol == protocolICMP && r.from == fragmentationType || r.protocol == protocolICMPv6 && r.from == tooBigType
}

// authorizeByPriority adds the rules that fit: health checks first, then clients together with path MTU rules. EC2 counts IPv4 and IPv6
// separately.
func (s *securityGroups) authorizeByPriority(ctx context.Context, groupID string, rules []rule) error {
	var failed []error
	for _, v6 := range []bool{false, true} {
		var checks, clients, sizes [][]rule
		for _, r := range rules {
			switch _, health := ruleOf(r); {
			case r.v6() != v6:
			case health:
				checks = append(checks, []rule{r})
			case r.isPathMTU():
				sizes = append(sizes, []rule{r})
			default:
				clients = append(clients, []rule{r})
			}
		}
		for i, c := range clients {
			if n := slices.IndexFunc(sizes, func(m []rule) bool { return m[0].source == c[0].source }); n >= 0 {
				clients[i], sizes = append(c, sizes[n]...), slices.Delete(sizes, n, n+1)
			}
		}
		_, err := services.AddWhatFits(slices.Concat(checks, clients, sizes), func(some [][]rule) error {
			return s.authorize(ctx, groupID, slices.Concat(some...))
		})
		failed = append(failed, err)
	}
	return errors.Join(failed...)
}
