package azure

import (
	"errors"
	"fmt"
	"slices"

	"github.com/anyccm/cloud-controller-manager/providers/azure/azurelimits"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// checkNames refuses a load balancer and pools of a Service that would be made under names which Azure refuses. Other parts have names that
// are cut.
func (d *desired) checkNames(lb *loadBalancer) error {
	if !lb.exists() {
		if err := azurelimits.Name.WithName("the name of load balancer " + d.LB).CheckText(d.LB); err != nil {
			return err
		}
	}
	for _, f := range d.Fronts {
		if lb.pool(f.pool) == nil {
			if err := azurelimits.Name.WithName("the name of backend pool " + f.pool).CheckText(f.pool); err != nil {
				return err
			}
		}
	}
	return nil
}

// checkNumbers refuses a Service that would give a load balancer more frontends or rules than Azure takes. One that adds none is served
// whatever is there.
func (d *desired) checkNumbers(lb *loadBalancer) error {
	fronts, rules := len(d.Fronts), len(d.Rules)
	for _, f := range lb.Properties.Fronts {
		if !ownedBy(d.Base, f.Name) && !d.hasFront(f.Name) {
			fronts++
		}
	}
	for _, r := range lb.Properties.Rules {
		if !ownedBy(d.Base, r.Name) {
			rules++
		}
	}
	if err := azurelimits.Frontends.CheckNumber(fronts); err != nil && fronts > len(lb.Properties.Fronts) {
		return err
	}
	if err := azurelimits.BalancerRules.CheckNumber(rules); err != nil && rules > len(lb.Properties.Rules) {
		return err
	}
	return nil
}

// fitPool leaves out of the addresses of a backend pool what it has no room for, and returns how many. Those of before keep their places.
func fitPool(pool *pool, ips map[string]string) (leftOut int) {
	have := map[string]bool{}
	for _, ip := range pool.ips() {
		have[canonicalIP(ip)] = true
	}
	all := sortedKeys(ips)
	fit := limits.Fit(azurelimits.PoolAddresses, all, func(ip string) bool { return have[ip] })
	for _, ip := range all {
		if _, fits := slices.BinarySearch(fit, ip); !fits {
			delete(ips, ip)
			leftOut++
		}
	}
	return leftOut
}

// checkTagSizes refuses tags that Azure would refuse.
func checkTagSizes(tags map[string]string) error {
	if err := azurelimits.Tags.CheckNumber(len(tags)); err != nil {
		return err
	}
	for _, key := range sortedKeys(tags) {
		err := errors.Join(
			azurelimits.TagName.WithName(fmt.Sprintf("the name of tag %.20s…", key)).CheckText(key),
			azurelimits.TagValue.WithName("the value of tag "+key).CheckText(tags[key]),
		)
		if err != nil {
			return err
		}
	}
	return nil
}
