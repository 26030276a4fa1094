package gce

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// Values of --cidr-allocator-type. The latter two date from 2017; Google's own controller still accepts them.
const (
	rangeAllocator  = "RangeAllocator"
	cloudAllocator  = "CloudAllocator"
	ipamFromCluster = "IPAMFromCluster"
	ipamFromCloud   = "IPAMFromCloud"
)

const (
	ipamController = "node-ipam-controller"
	// classController serves the Services of Google's two legacy classes.
	classController = "gke-service-lb-controller"

	// labelUnmanaged is on Nodes that are not instances of the project although their provider IDs say so.
	labelUnmanaged = "components.gke.io/gke-unmanaged-node"

	defaultMask4 = 24
	defaultMask6 = 64
	// cloudMask6 is the length of the pod prefix in the IPv6 network of an interface.
	cloudMask6 = 112
)

// controllers are the additional controllers of Google's own program, under its names for them.
func controllers() []registry.Controller {
	return []registry.Controller{
		{Name: ipamController, Aliases: []string{"nodeipam"}, PodRanges: true, Rights: []registry.Right{
			{Resources: []string{"nodes", "nodes/status"}, Verbs: []string{"patch"}},
		}},
		{Name: classController, Aliases: []string{"gke-service"}, Classes: []string{classExternal, classInternal}, Rights: []registry.Right{}},
		{Name: "gkenetworkparamset", Unneeded: "multiple networks are not served yet"},
		{Name: "gke-tenant-controller-manager", Aliases: []string{"gke-tenant"}, Unneeded: "it is for GKE's own control plane"},
	}
}

// StartController implements registry.ControllerRunner.
func (c *cloud) StartController(_ context.Context, name string) (bool, error) {
	switch name {
	case classController:
		return true, nil // the framework's controller serves these Services
	case ipamController:
		if c.config.PodRanges.allocator == "" {
			return false, nil
		}
		a := newPodRanges(c.config, c.instances)
		nodes := c.informers.Nodes()
		a.Kube, a.Events, a.Nodes = c.kube, c.events, nodes.Lister()
		c.informers.RunOnChanges(a.Job(), nodes.Informer(), nil) //nolint:contextcheck // the loop ends with the program, as the context does
		return true, nil
	}
	return false, nil
}

// whyUnmanaged implements registry.Provider.Unmanaged.
func whyUnmanaged(node *v1.Node) string {
	if node.Labels[labelUnmanaged] == "true" {
		return "it has the label " + labelUnmanaged
	}
	return ""
}

type podRangeOptions struct {
	Services           []string
	Mask, Mask4, Mask6 int

	// allocator is rangeAllocator, cloudAllocator, or empty if nodes get no ranges.
	allocator string
	// clusters and services are the networks of pods and Services.
	clusters, services []netip.Prefix
}

// resolve validates the settings together and selects the allocator.
func (o *podRangeOptions) resolve(in registry.Inputs) (warning, err error) {
	var problems []error
	o.services = parseNetworks(strings.Join(o.Services, ","))
	if !onePerFamily(o.services) {
		problems = append(problems, &schema.Problem{
			Place: "flag --service-cluster-ip-range", Value: strings.Join(o.Services, ","), Reason: "must be one network, or one of each family",
		})
	}
	if !in.AllocateNodeCIDRs {
		return nil, errors.Join(problems...)
	}
	place := "flag --cidr-allocator-type"
	switch in.CIDRAllocator {
	case "", rangeAllocator:
		o.allocator = rangeAllocator
		problems = append(problems, o.ranges(in))
	case cloudAllocator:
		o.allocator = cloudAllocator
	case ipamFromCloud:
		o.allocator = cloudAllocator
		warning = &schema.Problem{Place: place, Value: in.CIDRAllocator, Reason: "is served as CloudAllocator, which does the same", Warning: true}
	case ipamFromCluster:
		warning = &schema.Problem{
			Place: place, Value: in.CIDRAllocator, Warning: true,
			Reason: "has no effect: ranges of instances are never written; give instances alias ranges and use CloudAllocator, or use RangeAllocator",
		}
	default:
		problems = append(problems, &schema.Problem{
			Place: place, Value: in.CIDRAllocator, Reason: "is not one of RangeAllocator, CloudAllocator",
		})
	}
	return warning, errors.Join(problems...)
}

// ranges validates the settings of RangeAllocator.
func (o *podRangeOptions) ranges(in registry.Inputs) error {
	var problems []error
	report := func(broken bool, place, reason string) {
		if broken {
			problems = append(problems, &schema.Problem{Place: place, Reason: reason})
		}
	}
	o.clusters = parseNetworks(in.ClusterCIDR)
	if len(o.clusters) == 0 || !onePerFamily(o.clusters) {
		return &schema.Problem{
			Place: "flag --cluster-cidr", Value: in.ClusterCIDR, Reason: "must be one network, or one of each family, with --allocate-node-cidrs, such as 10.244.0.0/16",
		}
	}
	report(o.Mask > 0 && len(o.clusters) > 1, "flag --node-cidr-mask-size", "is for one network; use --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6")
	report(o.Mask > 0 && (o.Mask4 > 0 || o.Mask6 > 0), "flag --node-cidr-mask-size",
		"excludes --node-cidr-mask-size-ipv4 and --node-cidr-mask-size-ipv6; keep those")
	for _, p := range o.clusters {
		bits := o.bits(p)
		report(p.Bits() > bits, "flag --cluster-cidr", fmt.Sprintf("%s is smaller than the range of one node, /%d; use a longer node CIDR mask", p, bits))
		report(bits > p.Addr().BitLen(), "flag --node-cidr-mask-size", fmt.Sprintf("is longer than an address of %s", p))
		report(bits-p.Bits() > maxBlockBits, "flag --cluster-cidr",
			fmt.Sprintf("%s has more than 2^%d ranges of /%d; use a shorter node CIDR mask", p, maxBlockBits, bits))
	}
	return errors.Join(problems...)
}

// maxBlockBits bounds the number of ranges in a network, as in Kubernetes' allocators.
const maxBlockBits = 16

// bits returns the prefix length of a node's range in a network.
func (o *podRangeOptions) bits(network netip.Prefix) int {
	if network.Addr().Is4() {
		return cmp.Or(o.Mask4, o.Mask, defaultMask4)
	}
	return cmp.Or(o.Mask6, o.Mask, defaultMask6)
}

// parseNetworks skips invalid networks, which are reported elsewhere.
func parseNetworks(list string) (all []netip.Prefix) {
	for text := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			all = append(all, p.Masked())
		}
	}
	return all
}

func onePerFamily(list []netip.Prefix) bool {
	return len(list) < 2 || (len(list) == 2 && list[0].Addr().Is4() != list[1].Addr().Is4())
}

// newPodRanges assigns nodes blocks of the cluster's networks, or the ranges of their instances.
func newPodRanges(c Config, i *instances) *podranges.Controller {
	s := podranges.Settings{
		Shared: c.Shared, Claim: podranges.Claim(Name),
		Ours: func(n *v1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, providerIDPrefix) },
	}
	if c.PodRanges.allocator == cloudAllocator {
		s.Shared, s.Networked, s.Families = false, true, i.aliasFamilies(c.PodRanges.services)
		return podranges.New(s)
	}
	for _, p := range c.PodRanges.clusters {
		s.Families = append(s.Families, podranges.Family{Network: p, Bits: c.PodRanges.bits(p)})
	}
	s.Excluded = func(context.Context) ([]netip.Prefix, error) { return c.PodRanges.services, nil }
	return podranges.New(s)
}

// aliasFamilies returns the sources of instances' ranges, in the order of the Services' families.
func (i *instances) aliasFamilies(services []netip.Prefix) []podranges.Family {
	families := []podranges.Family{}
	for _, p := range services {
		of := i.aliasRange
		if p.Addr().Is6() {
			of = i.ipv6Range
		}
		families = append(families, podranges.Family{Of: of})
	}
	if len(families) == 0 {
		return []podranges.Family{{Of: i.aliasRange}}
	}
	return families
}

// aliasRange returns the first alias range of a node's instance.
func (i *instances) aliasRange(ctx context.Context, node *v1.Node, expected int) (netip.Prefix, error) {
	return i.rangeOf(ctx, node, expected, func(found instance) (netip.Prefix, error) {
		p, err := netip.ParsePrefix(found.alias)
		if err != nil || !p.Addr().Is4() {
			return p, fmt.Errorf("instance %s has no alias IP range on its interface nic0; give it one, of a secondary range of its subnet", found.id)
		}
		return p.Masked(), nil
	})
}

// ipv6Range returns the start of the IPv6 network of a node's instance.
func (i *instances) ipv6Range(ctx context.Context, node *v1.Node, expected int) (netip.Prefix, error) {
	return i.rangeOf(ctx, node, expected, func(found instance) (netip.Prefix, error) {
		ip, err := netip.ParseAddr(found.ipv6)
		if err != nil || !ip.Is6() {
			return netip.Prefix{}, fmt.Errorf("instance %s has no IPv6 address on its interface nic0; use a subnet with both families", found.id)
		}
		return netip.PrefixFrom(ip, cloudMask6).Masked(), nil
	})
}

// rangeOf reads a range from a node's instance. A Node keeps its range, so the answer must be newer than the Node, and a missing range is
// reported only after a fresh read.
func (i *instances) rangeOf(
	ctx context.Context, node *v1.Node, expected int, read func(instance) (netip.Prefix, error),
) (netip.Prefix, error) {
	q := inventory.Query{
		MaxAge: min(max(time.Since(node.CreationTimestamp.Time), 0), nodes.SweepMaxAge), MaxMissAge: nodes.MissMaxAge, Expected: expected,
	}
	found, err := i.Find(ctx, node, q)
	if err != nil {
		return netip.Prefix{}, err
	}
	p, err := read(found)
	if err == nil {
		return p, nil
	}
	q.MaxAge = min(q.MaxAge, nodes.MissMaxAge)
	if found, err = i.Find(ctx, node, q); err != nil {
		return netip.Prefix{}, err
	}
	if p, err = read(found); err != nil {
		return p, &podranges.NotAvailable{Reason: err.Error()}
	}
	return p, nil
}
