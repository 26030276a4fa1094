package linode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/internal/loop"
)

const (
	defaultMaskIPv4 = 24
	defaultMaskIPv6 = 112
	// clusterMaskIPv6 is the mask for which the range has a place of its own in the Linode's network.
	clusterMaskIPv6 = 112

	ipamPeriod  = 5 * time.Minute
	ipamTimeout = 2 * time.Minute

	// eventNoCIDR and eventCIDRFailed are those of Linode's own controller.
	eventNoCIDR     = "CIDRNotAvailable"
	eventCIDRFailed = "CIDRAssignmentFailed"
)

// errNoFreeRange: every block of the cluster's network is taken.
var errNoFreeRange = errors.New("no pod range is free in --cluster-cidr; remove nodes, or use a longer --node-cidr-mask-size-ipv4 in a new cluster")

// ipam gives nodes their pod ranges. What is taken is read from the Nodes at each run, so that nothing can leak: a range
// is taken when it is written on a Node, and free when no Node has it.
type ipam struct {
	cluster   netip.Prefix
	mask      int
	maskIPv6  int
	dualStack bool
	excluded  []netip.Prefix
	vpcs      *vpcs
	instances *instances

	kube   kubernetes.Interface
	events record.EventRecorder
	nodes  listers.NodeLister

	// given are ranges that the cache may not show yet. One whose write failed may have been written all the same: it stays
	// that node's.
	given map[types.UID]grant
}

type grant struct {
	block   netip.Prefix
	written bool
}

func newIPAM(c Config, v *vpcs, i *instances) *ipam {
	a := &ipam{
		cluster: netip.MustParsePrefix(c.ClusterCIDR).Masked(), // the options have checked it
		mask:    cmp.Or(c.MaskIPv4, defaultMaskIPv4), maskIPv6: cmp.Or(c.MaskIPv6, defaultMaskIPv6), dualStack: !c.NoIPv6NodeCIDR,
		vpcs: v, instances: i, given: map[types.UID]grant{},
	}
	if c.ServiceCIDR != "" {
		a.excluded = append(a.excluded, netip.MustParsePrefix(strings.TrimSpace(c.ServiceCIDR)).Masked())
	}
	return a
}

func (a *ipam) job() loop.Job {
	return loop.Job{Name: "node-ipam", Period: ipamPeriod, Timeout: ipamTimeout, Run: a.run}
}

func (a *ipam) run(ctx context.Context) error {
	all, err := a.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(all, func(x, y *v1.Node) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
	})
	var waiting []*v1.Node
	taken := a.taken(all, &waiting)
	if len(waiting) == 0 {
		return nil
	}
	excluded, err := a.exclusions(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, node := range waiting {
		if err := a.give(ctx, node, taken, excluded, len(waiting)); err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
		}
	}
	return errors.Join(failures...)
}

// taken returns the ranges that Nodes have, and appends the Nodes that wait for one.
func (a *ipam) taken(all []*v1.Node, waiting *[]*v1.Node) map[netip.Prefix]bool {
	taken, known := map[netip.Prefix]bool{}, map[types.UID]bool{}
	for _, node := range all {
		known[node.UID] = true
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				taken[p.Masked()] = true
			}
		}
		switch {
		case len(node.Spec.PodCIDRs) > 0:
			delete(a.given, node.UID)
		case node.DeletionTimestamp == nil && strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix):
			if !a.given[node.UID].written {
				*waiting = append(*waiting, node)
			}
		}
	}
	for uid, g := range a.given {
		if !known[uid] {
			delete(a.given, uid)
			continue
		}
		taken[g.block] = true
	}
	return taken
}

// exclusions are ranges that no node may get: Service addresses, and the last block where the cluster's network ends with
// the subnet of the VPC, for the last addresses of a subnet cannot be used.
func (a *ipam) exclusions(ctx context.Context) ([]netip.Prefix, error) {
	own, err := a.vpcs.resolve(ctx)
	if err != nil {
		return nil, err
	}
	excluded := slices.Clone(a.excluded)
	if len(own) > 0 {
		if p, err := netip.ParsePrefix(own[0].ipv4); err == nil && lastOf(p) == lastOf(a.cluster) {
			excluded = append(excluded, netip.PrefixFrom(lastOf(a.cluster), a.mask).Masked())
		}
	}
	return excluded, nil
}

// lastOf is the last address of an IPv4 network.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	for bit := p.Bits(); bit < len(b)*8; bit++ {
		b[bit/8] |= 1 << (7 - bit%8)
	}
	return netip.AddrFrom4(b)
}

// freeBlock returns the first block of a network that is neither taken nor overlaps what is excluded.
func freeBlock(cluster netip.Prefix, mask int, taken map[netip.Prefix]bool, excluded []netip.Prefix) (netip.Prefix, bool) {
	// Larger or smaller ranges than today's may be on Nodes of a cluster whose mask was changed.
	var odd []netip.Prefix
	for p := range taken {
		if p.Addr().Is4() && p.Bits() != mask {
			odd = append(odd, p)
		}
	}
	overlaps := func(p netip.Prefix) bool {
		return slices.ContainsFunc(slices.Concat(excluded, odd), p.Overlaps)
	}
	for p := netip.PrefixFrom(cluster.Addr(), mask); cluster.Contains(p.Addr()); {
		if !taken[p] && !overlaps(p) {
			return p, true
		}
		after := lastOf(p).Next()
		if !after.IsValid() {
			break
		}
		p = netip.PrefixFrom(after, mask)
	}
	return netip.Prefix{}, false
}

// ipv6Block derives the pod range of a node from a range of its Linode: its place in it is fixed for masks of 112, and
// at the beginning for others.
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

// give writes ranges on a Node. Nothing is taken before all of them are known.
func (a *ipam) give(ctx context.Context, node *v1.Node, taken map[netip.Prefix]bool, excluded []netip.Prefix, expected int) error {
	var v6 string
	if a.dualStack {
		l, err := a.instances.lookup(ctx, node, inventory.Query{MaxAge: sweepMaxAge, MaxMissAge: missMaxAge, Expected: expected})
		if err != nil {
			return err
		}
		if l.vpc == nil || len(l.vpc.rangesV6) == 0 {
			err := errors.New("its Linode has no IPv6 range in the VPC; give it one, or set --disable-ipv6-node-cidr-allocation")
			a.tell(node, eventNoCIDR, err)
			return err
		}
		block, err := ipv6Block(l.vpc.rangesV6[0], a.maskIPv6)
		if err != nil {
			a.tell(node, eventNoCIDR, err)
			return err
		}
		v6 = block.String()
	}
	block := a.given[node.UID].block
	if !block.IsValid() {
		var ok bool
		if block, ok = freeBlock(a.cluster, a.mask, taken, excluded); !ok {
			a.tell(node, eventNoCIDR, errNoFreeRange)
			return errNoFreeRange
		}
	}
	ranges := []string{block.String()}
	if v6 != "" {
		ranges = append(ranges, v6)
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": node.UID}, "spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}})
	if err != nil {
		return fmt.Errorf("encoding its pod ranges: %w", err)
	}
	taken[block] = true
	a.given[node.UID] = grant{block: block}
	klog.InfoS("Giving a node its pod ranges", "node", node.Name, "ranges", ranges)
	if _, err := a.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		a.tell(node, eventCIDRFailed, err)
		return fmt.Errorf("writing its pod ranges: %w", err)
	}
	a.given[node.UID] = grant{block: block, written: true}
	return nil
}

func (a *ipam) tell(node *v1.Node, reason string, err error) {
	if a.events != nil {
		a.events.Event(node, v1.EventTypeWarning, reason, err.Error())
	}
}
