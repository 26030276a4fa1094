package gce

import (
	"context"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	compute "google.golang.org/api/compute/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/gce/gcelimits"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
)

const schemeInternal = "INTERNAL"

// forwardingRules are the load balancers' own objects, with address and ports.
type forwardingRules struct {
	*writer

	// unmarked: the credential may not label forwarding rules.
	unmarked atomic.Bool
}

// replacementReason explains why a forwarding rule must be replaced, "" if not. The target of an external one can be changed in place.
func (d *desired) replacementReason(rule *compute.ForwardingRule) string {
	switch {
	case rule == nil:
		return ""
	case d.internal:
		return d.internalReplacementReason(rule)
	case d.ip != "" && rule.IPAddress != d.ip:
		return "address " + d.ip
	case rule.PortRange != d.portRange:
		return "ports " + d.portRange
	case rule.IPProtocol != d.protocol:
		return "protocol " + d.protocol
	case rule.NetworkTier != d.tier:
		return "network tier " + d.tier
	}
	return ""
}

func (d *desired) internalReplacementReason(rule *compute.ForwardingRule) string {
	switch {
	case rule.LoadBalancingScheme != schemeInternal:
		return "scheme internal"
	case d.ip != "" && rule.IPAddress != d.ip:
		return "address " + d.ip
	case rule.IPProtocol != d.protocol:
		return "protocol " + d.protocol
	case rule.AllPorts != d.allPorts() || (!d.allPorts() && !services.SameSet(rule.Ports, d.rulePorts())):
		return "ports"
	case rule.AllowGlobalAccess != d.globalAccess:
		return "global access"
	case resource(rule.Subnetwork) != d.subnet:
		return "subnet " + lastPart(d.subnet)
	case lastPart(rule.BackendService) != d.backend:
		return "backend service " + d.backend
	}
	return ""
}

func (d *desired) rulePorts() (ports []string) {
	for _, p := range d.ports {
		ports = append(ports, strconv.Itoa(int(p.Port)))
	}
	return ports
}

// allPorts reports whether there are more ports than a rule can list. Then it takes all ports, and the firewall restricts them.
func (d *desired) allPorts() bool { return len(d.ports) > gcelimits.RulePorts.Max }

// forwardingRule returns the desired rule.
func (d *desired) forwardingRule() *compute.ForwardingRule {
	rule := &compute.ForwardingRule{Name: d.name, Description: serviceDescription(d.service), IPProtocol: d.protocol, IPAddress: d.ip}
	if !d.internal {
		rule.PortRange, rule.NetworkTier, rule.Target = d.portRange, d.tier, d.at.regional("targetPools", d.name)
		return rule
	}
	rule.LoadBalancingScheme, rule.BackendService = schemeInternal, d.at.backend(d.backend)
	rule.Network, rule.Subnetwork, rule.AllowGlobalAccess = d.at.network, d.subnet, d.globalAccess
	if rule.AllPorts = d.allPorts(); !rule.AllPorts {
		rule.Ports = d.rulePorts()
	}
	return rule
}

// expectedRule returns the address of a forwarding rule that does not exist yet, for the changes that depend on it.
func (d *desired) expectedRule(o observed) *compute.ForwardingRule {
	ip := d.addressToReserve(o.rule)
	if ip == "" && isOurAddress(o.address, d) {
		ip = o.address.Address
	}
	return &compute.ForwardingRule{IPAddress: ip}
}

func (f *forwardingRules) creation(d desired) change {
	rule := d.forwardingRule()
	if d.internal {
		rule.Description = ""
		return f.create("forwarding rule "+d.name, "internal, "+d.protocol+" "+strings.Join(d.rulePorts(), ", "), rule, f.put(d))
	}
	return f.create("forwarding rule "+d.name, d.protocol+" "+d.portRange, map[string]any{
		"name": d.name, "IPProtocol": d.protocol, "portRange": d.portRange, "networkTier": d.tier, "IPAddress": d.ip, "target": d.name,
	}, f.put(d))
}

func (f *forwardingRules) put(d desired) writeFunc {
	return func(ctx context.Context, req *services.Request, o *observed) (err error) {
		rule := d.forwardingRule()
		if rule.IPAddress == "" && isOurAddress(o.address, &d) {
			rule.IPAddress = o.address.Address
		}
		o.rule, err = putOne(ctx, f.api, f.api.stores.rules, rule, o.at.regional("forwardingRules", d.name), "creating forwarding rule "+d.name,
			request(f.api.sdk.ForwardingRules.Insert(o.at.project, o.at.region, rule)))
		if err == nil && d.lacksMark(o.rule) {
			err = f.mark(d)(ctx, req, o)
		}
		return err
	}
}

// targetChange points a forwarding rule at another target pool.
func (f *forwardingRules) targetChange(name, pool string) change {
	return f.update("forwarding rule "+name, "target pool "+pool, nil, field("target", pool),
		func(ctx context.Context, _ *services.Request, o *observed) (err error) {
			target := &compute.TargetReference{Target: o.at.regional("targetPools", pool)}
			o.rule, err = putOne(ctx, f.api, f.api.stores.rules, o.rule, o.at.regional("forwardingRules", name), "pointing forwarding rule "+name+" at "+pool,
				request(f.api.sdk.ForwardingRules.SetTarget(o.at.project, o.at.region, name, target)))
			return err
		})
}

func (f *forwardingRules) deletion(name, why string, before any) change {
	return f.remove("forwarding rule "+name, why, before, func(ctx context.Context, _ *services.Request, o *observed) error {
		err := deleteOne(ctx, f.api, f.api.stores.rules, o.at.regional("forwardingRules", name), "deleting forwarding rule "+name,
			request(f.api.sdk.ForwardingRules.Delete(o.at.project, o.at.region, name)))
		if err == nil && o.rule != nil {
			o.replacedIP, o.rule = o.rule.IPAddress, nil
		}
		return err
	})
}

// lacksMark reports whether a forwarding rule has no mark of a cluster.
func (d *desired) lacksMark(rule *compute.ForwardingRule) bool {
	return d.clusterUID != "" && rule != nil && rule.Labels[labelCluster] == ""
}

// mark labels a forwarding rule with the cluster's identity. The API takes no labels at creation.
func (f *forwardingRules) mark(d desired) writeFunc {
	return func(ctx context.Context, _ *services.Request, o *observed) error {
		labels := maps.Clone(o.rule.Labels)
		if labels == nil {
			labels = map[string]string{}
		}
		labels[labelCluster] = d.clusterUID
		body := &compute.RegionSetLabelsRequest{LabelFingerprint: o.rule.LabelFingerprint, Labels: labels}
		rule, err := putOne(ctx, f.api, f.api.stores.rules, o.rule, o.at.regional("forwardingRules", d.name), "labelling forwarding rule "+d.name,
			request(f.api.sdk.ForwardingRules.SetLabels(o.at.project, o.at.region, d.name, body)))
		if isForbidden(err) { // the load balancer works without
			klog.ErrorS(err, "Grant compute.forwardingRules.setLabels, so that the forwarding rule shows which cluster made it", "forwardingRule", d.name)
			f.unmarked.Store(true)
			return nil
		}
		if err == nil {
			o.rule = rule
		}
		return err
	}
}

// addMark adds the mark to a forwarding rule that changes anyway, because its creation may have been interrupted. Unchanged ones of
// Google's own controller, which does not mark, are not written.
func (f *forwardingRules) addMark(o observed, d desired, list []change) []change {
	inCloud := func(c change) bool { return !strings.HasPrefix(c.Object, objectService) }
	// Narrowing was a change too, though it is not in the list any more.
	if !o.narrowed && !slices.ContainsFunc(list, inCloud) || !d.lacksMark(o.rule) || f.unmarked.Load() {
		return list
	}
	mark := f.update("forwarding rule "+d.name, "label "+labelCluster, nil, field(labelCluster, d.clusterUID), f.mark(d))
	return append([]change{mark}, list...)
}
