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

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
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
// is taken when it is written on a Node, and free when no Node has it. All Nodes of the cluster count, also those that are
// another release's or another cloud's; they are read from the API server, for the informer may hold ours alone.
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

	// shared is set where another release may give ranges of the same network; each then claims a range before it gives it.
	shared bool
	// blocked counts how often a Node's claim met another one.
	blocked map[types.UID]int

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
		vpcs: v, instances: i, given: map[types.UID]grant{}, shared: c.Shared, blocked: map[types.UID]int{},
	}
	if c.ServiceCIDR != "" {
		a.excluded = append(a.excluded, netip.MustParsePrefix(strings.TrimSpace(c.ServiceCIDR)).Masked())
	}
	return a
}

func (a *ipam) job() loop.Job {
	return loop.Job{Name: "node-ipam", Period: ipamPeriod, Spacing: time.Second, Timeout: ipamTimeout, Run: a.run}
}

func (a *ipam) run(ctx context.Context) error {
	ours, err := a.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	slices.SortFunc(ours, func(x, y *v1.Node) int {
		return cmp.Or(x.CreationTimestamp.Compare(y.CreationTimestamp.Time), strings.Compare(x.Name, y.Name))
	})
	waiting := a.waiting(ours)
	if len(waiting) == 0 {
		return nil
	}
	all, err := a.everyNode(ctx)
	if err != nil {
		return err
	}
	waiting = slices.DeleteFunc(waiting, func(n *v1.Node) bool { return rangesOf(all, n.UID) })
	excluded, err := a.exclusions(ctx)
	if err != nil {
		return err
	}
	taken := a.taken(append(all, ours...))
	var failures []error
	fail := func(node *v1.Node, err error) {
		if err != nil {
			failures = append(failures, fmt.Errorf("node %s: %w", node.Name, err))
		}
	}
	var chosen []choice
	for _, node := range waiting {
		c, err := a.choose(ctx, node, taken, excluded, len(waiting))
		if err == nil && a.shared {
			err = a.claim(ctx, c)
		}
		if err == nil {
			chosen = append(chosen, c)
		}
		fail(node, err)
	}
	if a.shared && len(chosen) > 0 {
		// Whoever claims a range and then sees no other claim has it: of two claims the later one's look shows the earlier.
		if all, err = a.everyNode(ctx); err != nil {
			return errors.Join(append(failures, err)...)
		}
	}
	for _, c := range chosen {
		if err := a.contested(c, all); err != nil {
			fail(c.node, err)
			continue
		}
		fail(c.node, a.give(ctx, c))
	}
	return errors.Join(failures...)
}

// everyNode lists all Nodes of the cluster. Where another release writes too, only what the API server knows for certain
// will do.
func (a *ipam) everyNode(ctx context.Context) ([]*v1.Node, error) {
	o := metav1.ListOptions{ResourceVersion: "0"}
	if a.shared {
		o.ResourceVersion = ""
	}
	list, err := a.kube.CoreV1().Nodes().List(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("listing all nodes of the cluster: %w", err)
	}
	all := make([]*v1.Node, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// rangesOf reports whether a Node has its ranges by now.
func rangesOf(all []*v1.Node, uid types.UID) bool {
	return slices.ContainsFunc(all, func(n *v1.Node) bool { return n.UID == uid && len(n.Spec.PodCIDRs) > 0 })
}

// waiting returns the Nodes that wait for a range.
func (a *ipam) waiting(ours []*v1.Node) []*v1.Node {
	var waiting []*v1.Node
	for _, node := range ours {
		if len(node.Spec.PodCIDRs) == 0 && node.DeletionTimestamp == nil && strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) &&
			!a.given[node.UID].written {
			waiting = append(waiting, node)
		}
	}
	return waiting
}

// taken returns the ranges that Nodes have or claim.
func (a *ipam) taken(all []*v1.Node) map[netip.Prefix]bool {
	taken, known := map[netip.Prefix]bool{}, map[types.UID]bool{}
	for _, node := range all {
		known[node.UID] = true
		for _, p := range heldBy(node) {
			taken[p] = true
		}
	}
	for _, node := range all {
		if len(node.Spec.PodCIDRs) > 0 {
			delete(a.given, node.UID)
			delete(a.blocked, node.UID)
		}
	}
	for uid, g := range a.given {
		if !known[uid] {
			delete(a.given, uid)
			delete(a.blocked, uid)
			continue
		}
		taken[g.block] = true
	}
	return taken
}

// exclusions are ranges that no node may get: Service addresses, and the last block where the cluster's network ends with
// the subnet of the VPC, for the last addresses of a subnet cannot be used.
func (a *ipam) exclusions(ctx context.Context) ([]netip.Prefix, error) {
	own, err := a.vpcs.resolve(ctx, networkMaxAge)
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

// choice is what a Node is going to get.
type choice struct {
	node  *v1.Node
	block netip.Prefix
	v6    string
}

// choose finds the ranges of a Node. Nothing is taken before all of them are known.
func (a *ipam) choose(
	ctx context.Context, node *v1.Node, taken map[netip.Prefix]bool, excluded []netip.Prefix, expected int,
) (choice, error) {
	c := choice{node: node}
	if a.dualStack {
		block, err := a.ipv6Range(ctx, node, expected)
		if err != nil {
			return c, err
		}
		c.v6 = block.String()
	}
	c.block = a.given[node.UID].block
	if !c.block.IsValid() {
		var ok bool
		if c.block, ok = freeBlock(a.cluster, a.mask, taken, excluded); !ok {
			a.tell(node, eventNoCIDR, errNoFreeRange)
			return c, errNoFreeRange
		}
	}
	taken[c.block] = true
	return c, nil
}

// ipv6Range derives the IPv6 range of a Node from its Linode. A listing may have caught the Linode in the making, so that
// only a look of right now is a reason to complain.
func (a *ipam) ipv6Range(ctx context.Context, node *v1.Node, expected int) (netip.Prefix, error) {
	// The ranges of a Linode stay: what was read when its node was initialised will do, however slowly nodes arrive.
	q := inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge, Expected: expected}
	l, err := a.instances.Find(ctx, node, q)
	if err == nil && (l.vpc == nil || len(l.vpc.rangesV6) == 0) {
		q.MaxAge = missMaxAge
		l, err = a.instances.Find(ctx, node, q)
	}
	if err != nil {
		return netip.Prefix{}, err
	}
	var block netip.Prefix
	if l.vpc == nil || len(l.vpc.rangesV6) == 0 {
		err = errors.New("its Linode has no IPv6 range in the VPC; give it one, or set --disable-ipv6-node-cidr-allocation")
	} else {
		block, err = ipv6Block(l.vpc.rangesV6[0], a.maskIPv6)
	}
	if err != nil {
		a.tell(node, eventNoCIDR, err)
	}
	return block, err
}

// give writes ranges on a Node, and takes the claim back in the same write.
func (a *ipam) give(ctx context.Context, c choice) error {
	node := c.node
	ranges := []string{c.block.String()}
	if c.v6 != "" {
		ranges = append(ranges, c.v6)
	}
	meta := map[string]any{"uid": node.UID}
	if a.shared {
		meta["annotations"] = map[string]any{annotationClaim: nil}
	}
	patch, err := json.Marshal(map[string]any{"metadata": meta, "spec": map[string]any{"podCIDR": ranges[0], "podCIDRs": ranges}})
	if err != nil {
		return fmt.Errorf("encoding its pod ranges: %w", err)
	}
	a.given[node.UID] = grant{block: c.block}
	klog.InfoS("Giving a node its pod ranges", "node", node.Name, "ranges", ranges)
	if _, err := a.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		a.tell(node, eventCIDRFailed, err)
		return fmt.Errorf("writing its pod ranges: %w", err)
	}
	a.given[node.UID] = grant{block: c.block, written: true}
	return nil
}

func (a *ipam) tell(node *v1.Node, reason string, err error) {
	if a.events != nil {
		a.events.Event(node, v1.EventTypeWarning, reason, err.Error())
	}
}
