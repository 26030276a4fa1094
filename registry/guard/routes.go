package guard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// routes allows routes only to our Nodes, and only for ranges that may be theirs: a kubelet can write the range of its own Node when it
// registers.
type routes struct {
	inner        cloudprovider.Routes
	ownership    *ownership
	verification *verification
	reports      *reports
	// cluster holds the networks of the cluster's pods; nil if unknown: then every range is inside.
	cluster []netip.Prefix

	mu sync.Mutex
	// podRanges caches the ranges of nodes.
	podRanges *podRanges
	nodes     []*v1.Node
}

func (r *routes) routesItself(network netip.Prefix) bool {
	self, ok := r.inner.(contract.SelfRouter)
	return ok && self.RoutesItself(network)
}

// parseNetworks parses a list of networks such as --cluster-cidr; invalid ones were refused at start.
func parseNetworks(list string) []netip.Prefix {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			networks = append(networks, p.Masked())
		}
	}
	return networks
}

// podRanges are the accepted ranges of the cluster's Nodes, ours or not: inside the cluster's networks, and of two that overlap the older
// Node's. A refused range does not count against others.
type podRanges struct {
	cluster []netip.Prefix
	// anywhere reports ranges that may be outside of the cluster's networks.
	anywhere func(netip.Prefix) bool
	// owner maps each range to its Node; within maps each network around a range to the oldest Node with a range inside.
	owner, within map[netip.Prefix]*v1.Node
}

func newPodRanges(cluster []netip.Prefix, anywhere func(netip.Prefix) bool, nodes []*v1.Node) *podRanges {
	r := &podRanges{cluster: cluster, anywhere: anywhere, owner: map[netip.Prefix]*v1.Node{}, within: map[netip.Prefix]*v1.Node{}}
	byAge := slices.Clone(nodes)
	slices.SortFunc(byAge, func(a, b *v1.Node) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), strings.Compare(a.Name, b.Name))
	})
	for _, node := range byAge {
		for _, text := range node.Spec.PodCIDRs {
			if r.whyRefused(node, text) != "" {
				continue
			}
			network := netip.MustParsePrefix(text).Masked() // others were refused
			r.owner[network] = node
			for _, around := range networksAround(network) {
				if r.within[around] == nil {
					r.within[around] = node
				}
			}
		}
	}
	return r
}

// networksAround returns a network and all that contain it.
func networksAround(network netip.Prefix) []netip.Prefix {
	all := make([]netip.Prefix, 0, network.Bits()+1)
	for bits := network.Bits(); bits >= 0; bits-- {
		all = append(all, netip.PrefixFrom(network.Addr(), bits).Masked())
	}
	return all
}

// whyRefused says why a Node has no right to a range, or "" if it has.
func (r *podRanges) whyRefused(node *v1.Node, text string) string {
	wanted, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Sprintf("its pod range %q is not a network", text)
	}
	wanted = wanted.Masked()
	around := func(n netip.Prefix) bool { return n.Bits() <= wanted.Bits() && n.Contains(wanted.Addr()) }
	if len(r.cluster) > 0 && !slices.ContainsFunc(r.cluster, around) && !r.anywhere(wanted) {
		return fmt.Sprintf("its pod range %s is not inside --cluster-cidr", wanted)
	}
	holders := []*v1.Node{r.within[wanted]}
	for _, n := range networksAround(wanted) {
		holders = append(holders, r.owner[n])
	}
	for _, holder := range holders {
		if holder != nil && nodeKey(holder) != nodeKey(node) {
			return fmt.Sprintf("its pod range %s overlaps that of node %s, which is older", wanted, holder.Name)
		}
	}
	return ""
}

// rangesOn returns the ranges that are written on Nodes.
func rangesOn(nodes ...*v1.Node) map[netip.Prefix]bool {
	all := map[netip.Prefix]bool{}
	for _, node := range nodes {
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				all[p.Masked()] = true
			}
		}
	}
	return all
}

// isRouteTo reports whether a route's destination is one of the ranges.
func isRouteTo(ranges map[netip.Prefix]bool, route *cloudprovider.Route) bool {
	p, err := netip.ParsePrefix(route.DestinationCIDR)
	return err == nil && ranges[p.Masked()]
}

// ranges returns the ranges of the cluster's Nodes; they are computed again when the Nodes are listed again.
func (r *routes) ranges(nodes []*v1.Node) *podRanges {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.podRanges == nil || len(nodes) != len(r.nodes) || (len(nodes) > 0 && &nodes[0] != &r.nodes[0]) {
		r.podRanges, r.nodes = newPodRanges(r.cluster, r.routesItself, nodes), nodes
	}
	return r.podRanges
}

// whyRefused says why a Node is no next hop for a route, or "" if it is.
func (r *routes) whyRefused(ctx context.Context, taken *podRanges, node *v1.Node, cidr string) (string, error) {
	if why := taken.whyRefused(node, cidr); why != "" {
		return why, nil
	}
	return r.verification.whyUnverified(ctx, node)
}

// ListRoutes implements cloudprovider.Routes. Routes of other Nodes are left out, so that the framework ignores them. A route to our Node
// that would be refused today is removed here: the framework would keep it, or ignores it outside of the cluster's networks.
func (r *routes) ListRoutes(ctx context.Context, cluster string) (list []*cloudprovider.Route, err error) {
	ctx, cancel := context.WithTimeout(ctx, routeDeadline)
	defer cancel()
	list, err = r.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes := r.ownership.allNodes()
	taken, byName := r.ranges(nodes), map[string]*v1.Node{}
	var foreign []*v1.Node
	for _, node := range nodes {
		byName[node.Name] = node
		if r.ownership.whyForeign(node) != "" {
			foreign = append(foreign, node)
		}
	}
	others := rangesOn(foreign...)
	var shown []*cloudprovider.Route
	for _, route := range list {
		target := byName[string(route.TargetNode)]
		if (target != nil && r.ownership.whyForeign(target) != "") || (target == nil && isRouteTo(others, route)) {
			continue
		}
		keep, err := r.removeIfRefused(ctx, cluster, taken, target, route)
		if err != nil {
			return nil, err
		}
		if keep {
			shown = append(shown, route)
		}
	}
	return shown, nil
}

func (r *routes) list(ctx context.Context, cluster string) (list []*cloudprovider.Route, err error) {
	defer recoverPanic(&err, "ListRoutes", cluster)
	list, err = r.inner.ListRoutes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if slices.Contains(list, nil) {
		return nil, errors.New("the provider returned an empty route")
	}
	return list, nil
}

// removeIfRefused removes a route that is refused. Only a route for a range that is written on its Node is ours.
func (r *routes) removeIfRefused(
	ctx context.Context, cluster string, taken *podRanges, target *v1.Node, route *cloudprovider.Route,
) (stays bool, err error) {
	if target == nil || !isRouteTo(rangesOn(target), route) {
		return true, nil
	}
	why, err := r.whyRefused(ctx, taken, target, route.DestinationCIDR)
	if err != nil || why == "" {
		return true, nil //nolint:nilerr // what cannot be verified now stays as it is
	}
	r.reports.warnOfNode(target, EventRouteRefused, "the Node gets no route: "+why)
	if err := r.DeleteRoute(ctx, cluster, route); err != nil {
		return false, fmt.Errorf("removing the route %s to node %s, which is refused (%s): %w", route.DestinationCIDR, target.Name, why, err)
	}
	klog.InfoS("Removed a route that is refused", "node", target.Name, "range", route.DestinationCIDR, "why", why)
	return false, nil
}

// refusedRoute is the error of a refused route; retries are useless.
type refusedRoute struct{ node, why string }

// Error implements error.
func (e refusedRoute) Error() string { return fmt.Sprintf("node %s gets no route: %s", e.node, e.why) }

// Temporary stops the retries.
func (refusedRoute) Temporary() bool { return false }

// CreateRoute implements cloudprovider.Routes. The framework may retry a failed creation only when a node changes, so it is retried here. A
// Node that is not ours gets no route, without an error.
func (r *routes) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	target, known, err := r.ownership.nodeByName(string(route.TargetNode))
	if err != nil {
		return fmt.Errorf("no route is made to a Node that is not known: %w", err)
	}
	if known {
		if r.ownership.whyForeign(target) != "" {
			return nil
		}
		why, err := r.whyRefused(ctx, r.ranges(r.ownership.allNodes()), target, route.DestinationCIDR)
		if err != nil {
			return err
		}
		if why != "" {
			r.reports.warnOfNode(target, EventRouteRefused, "the Node gets no route: "+why)
			return refusedRoute{target.Name, why}
		}
	}
	return retry(ctx, func(ctx context.Context) (err error) {
		defer recoverPanic(&err, "CreateRoute", route.DestinationCIDR)
		return r.inner.CreateRoute(ctx, cluster, hint, route)
	})
}

// DeleteRoute implements cloudprovider.Routes, and retries like CreateRoute.
func (r *routes) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	return retry(ctx, func(ctx context.Context) (err error) {
		defer recoverPanic(&err, "DeleteRoute", route.DestinationCIDR)
		return r.inner.DeleteRoute(ctx, cluster, route)
	})
}

// routeBackoff returns the pauses between the tries; they end well before the deadline.
func routeBackoff() []time.Duration {
	return []time.Duration{time.Second, 4 * time.Second, 15 * time.Second}
}

// retry calls until success, a failure that says that it is not temporary, or the end of the pauses.
func retry(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, routeDeadline)
	defer cancel()
	pauses := routeBackoff()
	for i := 0; ; i++ {
		err := call(ctx)
		if err == nil || i == len(pauses) || !mayBeTemporary(err) {
			return err
		}
		timer := time.NewTimer(pauses[i])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// mayBeTemporary returns an error's own statement; without one it may be temporary, unless it was a panic.
func mayBeTemporary(err error) bool {
	if errors.Is(err, errPanic) {
		return false
	}
	is, stated := isTemporary(err)
	return is || !stated
}
