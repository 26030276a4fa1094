package linode

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/providers/kit/podranges"
)

const (
	defaultMaskIPv4 = 24
	defaultMaskIPv6 = 112
	// clusterMaskIPv6 is the mask whose range has a fixed place in the Linode's network.
	clusterMaskIPv6 = 112
)

// ipam defines the pod ranges of nodes: IPv4 from the cluster's network, IPv6 from the range of their Linode.
type ipam struct {
	cluster   netip.Prefix
	mask      int
	maskIPv6  int
	excluded  []netip.Prefix
	vpcs      *vpcs
	instances *instances
}

func newIPAM(c Config, v *vpcs, i *instances) *podranges.Controller {
	a := &ipam{
		cluster: netip.MustParsePrefix(c.ClusterCIDR).Masked(), // checked by the options
		mask:    cmp.Or(c.MaskIPv4, defaultMaskIPv4), maskIPv6: cmp.Or(c.MaskIPv6, defaultMaskIPv6), vpcs: v, instances: i,
	}
	if c.ServiceCIDR != "" {
		a.excluded = append(a.excluded, netip.MustParsePrefix(strings.TrimSpace(c.ServiceCIDR)).Masked())
	}
	families := []podranges.Family{{Network: a.cluster, Bits: a.mask}}
	if !c.NoIPv6NodeCIDR {
		families = append(families, podranges.Family{Of: a.ipv6Range})
	}
	return podranges.New(podranges.Settings{
		Families: families, Excluded: a.exclusions, Shared: c.Shared, Claim: podranges.Claim(Name),
		Ours: func(n *v1.Node) bool { return strings.HasPrefix(n.Spec.ProviderID, providerIDPrefix) },
	})
}

// exclusions returns ranges that no node may get: Service addresses, and the last block if the cluster's network ends with the VPC's
// subnet, because the last addresses of a subnet are unusable.
func (a *ipam) exclusions(ctx context.Context) ([]netip.Prefix, error) {
	own, err := a.vpcs.resolve(ctx, networkMaxAge)
	if err != nil {
		return nil, err
	}
	excluded := slices.Clone(a.excluded)
	if len(own) > 0 {
		if p, err := netip.ParsePrefix(own[0].ipv4); err == nil && podranges.Last(p) == podranges.Last(a.cluster) {
			excluded = append(excluded, netip.PrefixFrom(podranges.Last(a.cluster), a.mask).Masked())
		}
	}
	return excluded, nil
}

// ipv6Block derives the pod range of a node from a range of its Linode: at a fixed place for masks of 112, at the beginning for others.
func ipv6Block(text string, mask int) (netip.Prefix, error) {
	p, err := netip.ParsePrefix(text)
	if err != nil {
		return netip.Prefix{}, fmt.Errorf("reading the IPv6 range %q: %w", text, err)
	}
	b := p.Masked().Addr().As16()
	if mask == clusterMaskIPv6 {
		copy(b[8:14], []byte{0, 0, 0, 0xc, 0, 0})
	}
	block := netip.PrefixFrom(netip.AddrFrom16(b), mask).Masked()
	if mask < p.Bits() || !p.Contains(block.Addr()) {
		return netip.Prefix{}, fmt.Errorf("a range of /%d does not fit into the IPv6 range %s of the Linode", mask, p)
	}
	return block, nil
}

// ipv6Range returns the IPv6 range of a Node from its Linode. A listing may have shown the Linode during its creation, so that only a new
// read leads to an error.
func (a *ipam) ipv6Range(ctx context.Context, node *v1.Node, expected int) (netip.Prefix, error) {
	// The ranges of a Linode never change: the read at the node's initialisation is new enough.
	q := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: nodes.MissMaxAge, Expected: expected}
	l, err := a.instances.Find(ctx, node, q)
	if err == nil && (l.vpc == nil || len(l.vpc.rangesV6) == 0) {
		q.MaxAge = nodes.MissMaxAge
		l, err = a.instances.Find(ctx, node, q)
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	if l.vpc == nil || len(l.vpc.rangesV6) == 0 {
		return netip.Prefix{}, &podranges.NotAvailable{
			Reason: "its Linode has no IPv6 range in the VPC; give it one, or set --disable-ipv6-node-cidr-allocation",
		}
	}
	block, err := ipv6Block(l.vpc.rangesV6[0], a.maskIPv6)
	if err != nil {
		return netip.Prefix{}, &podranges.NotAvailable{Reason: err.Error()}
	}
	return block, nil
}
