package azure

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file replaces basic load balancers, which Azure has retired, by standard ones.

// isBasic reports whether a load balancer or a public address is basic; Azure takes a missing SKU for basic.
func (r *resource) isBasic() bool { return !strings.EqualFold(r.SKU.Name, "Standard") }

// splitBasic sets basic load balancers apart if the Service is to be served.
func (o *observed) splitBasic(q services.Request) {
	if q.Purpose != services.Ensure && q.Purpose != services.Plan && q.Purpose != services.UpdateNodes {
		return
	}
	for _, lb := range o.lbs {
		if lb.isBasic() {
			o.basic = append(o.basic, lb)
		}
	}
	o.lbs = slices.DeleteFunc(slices.Clone(o.lbs), func(lb *loadBalancer) bool { return lb.isBasic() })
}

// checkBasic refuses to delete a basic load balancer on which others than Services have something.
func checkBasic(lbs []*loadBalancer) error {
	for _, lb := range lbs {
		why := ""
		for _, f := range lb.Properties.Fronts {
			if !isGeneratedName(f.Name) {
				why = "frontend " + f.Name
			}
		}
		for _, kind := range lb.otherRules() {
			for _, rule := range kind.rules {
				why = kind.name + " " + rule.Name
			}
		}
		if why != "" {
			return fmt.Errorf("load balancer %s is a basic one, which Azure has retired, and stands in the way of a standard one; it has %s, which no Service asked "+
				"for: delete the load balancer, or take that out of it", lb.Name, why)
		}
	}
	return nil
}

// removeBasic deletes the basic load balancers of the cluster's names: a standard one cannot be made of them.
func (r *reconciler) removeBasic(q services.Request, o *observed, d *desired) (list []change) {
	for _, lb := range o.basic {
		name := lb.Name
		list = append(append(list, d.memberWrites(name)...), r.documentChange(change{
			Planned: contract.Planned{Action: contract.PlanDelete, Detail: "a basic one, which Azure has retired"}, Replan: true,
			Compare: func() (before, after any) { return format(lb), nil },
			Expect:  func(o *observed) *observed { return o.afterBalancer(baseName(q.Service), lb, nil) },
		}, r.loadBalancerDocument(lb.ID, name), editOf(func(lb *loadBalancer) error {
			if !lb.isBasic() {
				return errKeep // it is another one by now
			}
			return cmp.Or(checkBasic([]*loadBalancer{lb}), errRemove)
		})))
	}
	return list
}

// upgradeToStandard makes a basic public address a standard one, which keeps its IP.
func upgradeToStandard(want *publicIP) {
	if want.isBasic() {
		want.SKU, want.Properties.Allocation = sku{Name: "Standard"}, "Static"
	}
}
