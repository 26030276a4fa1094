package guard

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"
)

// routes lets routes be made only to Nodes of ours, and only for ranges that may be theirs: a kubelet can write the range of
// its own Node when it registers.
type routes struct {
	inner        cloudprovider.Routes
	ownership    *ownership
	verification *verification
	reports      *reports
	// cluster are the networks of the cluster's pods; where they are not known, every range is inside.
	cluster []netip.Prefix
}

// parseNetworks reads a list of networks such as --cluster-cidr; what is none was refused at start.
func parseNetworks(list string) []netip.Prefix {
	var networks []netip.Prefix
	for text := range strings.SplitSeq(list, ",") {
		if p, err := netip.ParsePrefix(strings.TrimSpace(text)); err == nil {
			networks = append(networks, p.Masked())
		}
	}
	return networks
}

// podRange is a range of a Node.
type podRange struct {
	network netip.Prefix
	node    *v1.Node
}

// podRanges are the ranges of all Nodes of the cluster, ours or not.
func podRanges(nodes []*v1.Node) []podRange {
	var all []podRange
	for _, node := range nodes {
		for _, text := range node.Spec.PodCIDRs {
			if p, err := netip.ParsePrefix(text); err == nil {
				all = append(all, podRange{p.Masked(), node})
			}
		}
	}
	return all
}

// older reports whether a Node registered before another one.
func older(a, b *v1.Node) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// refuseRange says why a Node gets no route for a range, or "" if it does.
func refuseRange(cluster []netip.Prefix, taken []podRange, node *v1.Node, text string) string {
	wanted, err := netip.ParsePrefix(text)
	if err != nil {
		return fmt.Sprintf("its pod range %q is no network", text)
	}
	wanted = wanted.Masked()
	within := func(n netip.Prefix) bool { return n.Bits() <= wanted.Bits() && n.Contains(wanted.Addr()) }
	if len(cluster) > 0 && !slices.ContainsFunc(cluster, within) {
		return fmt.Sprintf("its pod range %s is not inside --cluster-cidr", wanted)
	}
	for _, other := range taken {
		if key(other.node) != key(node) && other.network.Overlaps(wanted) && older(other.node, node) {
			return fmt.Sprintf("its pod range %s overlaps %s of node %s, which is older", wanted, other.network, other.node.Name)
		}
	}
	return ""
}

// has reports whether a range is written on a Node.
func has(node *v1.Node, route *cloudprovider.Route) bool {
	wanted, err := netip.ParsePrefix(route.DestinationCIDR)
	return err == nil && slices.ContainsFunc(podRanges([]*v1.Node{node}), func(r podRange) bool { return r.network == wanted.Masked() })
}

// refused says why a Node is no next hop for a route, or "" if it is.
func (r *routes) refused(ctx context.Context, taken []podRange, node *v1.Node, cidr string) (string, error) {
	if why := refuseRange(r.cluster, taken, node, cidr); why != "" {
		return why, nil
	}
	return r.verification.check(ctx, node)
}

// ListRoutes implements cloudprovider.Routes. Routes of Nodes that are not ours are not shown, so that the framework leaves
// them alone. A route to a Node of ours that would be refused today is removed: the framework takes it for wanted, or looks at
// routes inside the cluster's networks alone.
func (r *routes) ListRoutes(ctx context.Context, cluster string) (list []*cloudprovider.Route, err error) {
	ctx, cancel := context.WithTimeout(ctx, routeDeadline)
	defer cancel()
	list, err = r.list(ctx, cluster)
	if err != nil {
		return nil, err
	}
	nodes := r.ownership.everyone()
	taken, byName := podRanges(nodes), map[string]*v1.Node{}
	foreign := []*v1.Node{}
	for _, node := range nodes {
		byName[node.Name] = node
		if r.ownership.foreign(node) != "" {
			foreign = append(foreign, node)
		}
	}
	var shown []*cloudprovider.Route
	for _, route := range list {
		target := byName[string(route.TargetNode)]
		if slices.ContainsFunc(foreign, func(n *v1.Node) bool { return n == target || (target == nil && has(n, route)) }) {
			continue
		}
		keep, err := r.keep(ctx, cluster, taken, target, route)
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
	defer recovered(&err, "ListRoutes", cluster)
	list, err = r.inner.ListRoutes(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if slices.Contains(list, nil) {
		return nil, errors.New("the provider returned an empty route")
	}
	return list, nil
}

// keep removes a route that is refused. Only a route for a range that is written on its Node was made by us.
func (r *routes) keep(ctx context.Context, cluster string, taken []podRange, target *v1.Node, route *cloudprovider.Route) (bool, error) {
	if target == nil || !has(target, route) {
		return true, nil
	}
	why, err := r.refused(ctx, taken, target, route.DestinationCIDR)
	if err != nil || why == "" {
		return true, nil //nolint:nilerr // what cannot be verified now stays as it is
	}
	r.reports.warn(target, EventRouteRefused, "the Node gets no route: "+why)
	if err := r.DeleteRoute(ctx, cluster, route); err != nil {
		return false, fmt.Errorf("removing the route %s to node %s, which is refused (%s): %w", route.DestinationCIDR, target.Name, why, err)
	}
	klog.InfoS("Removed a route that is refused", "node", target.Name, "range", route.DestinationCIDR, "why", why)
	return false, nil
}

// refusedRoute is the answer to a wish for a route that is refused; trying again changes nothing.
type refusedRoute struct{ node, why string }

// Error implements error.
func (e refusedRoute) Error() string { return fmt.Sprintf("node %s gets no route: %s", e.node, e.why) }

// Temporary ends the tries.
func (refusedRoute) Temporary() bool { return false }

// CreateRoute implements cloudprovider.Routes. The framework may not come back for a route whose creation failed until a
// node changes, so it is tried again here. A Node that is not ours needs no route of ours: that is no failure.
func (r *routes) CreateRoute(ctx context.Context, cluster, hint string, route *cloudprovider.Route) error {
	nodes := r.ownership.everyone()
	i := slices.IndexFunc(nodes, func(n *v1.Node) bool { return n.Name == string(route.TargetNode) })
	if i >= 0 && r.ownership.foreign(nodes[i]) != "" {
		return nil
	}
	if i >= 0 {
		why, err := r.refused(ctx, podRanges(nodes), nodes[i], route.DestinationCIDR)
		if err != nil {
			return err
		}
		if why != "" {
			r.reports.warn(nodes[i], EventRouteRefused, "the Node gets no route: "+why)
			return refusedRoute{nodes[i].Name, why}
		}
	}
	return retry(ctx, func(ctx context.Context) (err error) {
		defer recovered(&err, "CreateRoute", route.DestinationCIDR)
		return r.inner.CreateRoute(ctx, cluster, hint, route)
	})
}

// DeleteRoute implements cloudprovider.Routes, and tries again as CreateRoute does.
func (r *routes) DeleteRoute(ctx context.Context, cluster string, route *cloudprovider.Route) error {
	return retry(ctx, func(ctx context.Context) (err error) {
		defer recovered(&err, "DeleteRoute", route.DestinationCIDR)
		return r.inner.DeleteRoute(ctx, cluster, route)
	})
}

// routeBackoff are the pauses between the tries; they end well before the deadline.
var routeBackoff = []time.Duration{time.Second, 4 * time.Second, 15 * time.Second}

// retry calls until success, a failure that says that it is not temporary, or the end of the pauses.
func retry(ctx context.Context, call func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, routeDeadline)
	defer cancel()
	for i := 0; ; i++ {
		err := call(ctx)
		if err == nil || i == len(routeBackoff) || !temporary(err) {
			return err
		}
		timer := time.NewTimer(routeBackoff[i])
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return err
		}
	}
}

// temporary believes what an error says of itself; one that says nothing may be temporary, a crash is not.
func temporary(err error) bool {
	if errors.Is(err, errPanic) {
		return false
	}
	said, ok := errors.AsType[interface {
		error
		Temporary() bool
	}](err)
	return !ok || said.Temporary()
}
