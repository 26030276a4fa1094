package cloudstack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// This file proves that a virtual machine is gone. An empty response alone proves nothing, because the machine may be in another project
// or account.

// proofMaxAge lets questions about several machines share the listings that prove their absence.
const proofMaxAge = 2 * time.Second

// proveAbsence returns cloudapi.ErrNotFound if a complete listing lacks the machine too and nothing makes the listing doubtful.
func (i *instances) proveAbsence(ctx context.Context, id string) error {
	what := "looking for virtual machine " + id
	_, err := i.inventory.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	all := i.lastListing()
	if err == nil && slices.ContainsFunc(all, func(v vm) bool { return v.ID == id }) {
		err = errors.New("it is listed")
	}
	if err == nil {
		err = i.checkAbsence(ctx, id, all)
	}
	if err != nil {
		return cloudapi.Unclear(what, "it is not shown, which does not prove that it is gone: %s", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.provedAbsent, func(_ string, at time.Time) bool { return time.Since(at) > absentMaxAge })
	i.provedAbsent[id] = time.Now()
	return &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "there is none with this ID"}
}

// isProvedAbsent reports whether a machine was recently proved to be gone.
func (i *instances) isProvedAbsent(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, known := i.provedAbsent[id]
	return known && time.Since(at) <= absentMaxAge
}

// checkAbsence returns why a listing without the machine does not prove that it is gone: the project may be wrong, or the user may see less
// than before. So something of the cluster must be visible: another node's machine, a load balancer of its Services, or its network.
func (i *instances) checkAbsence(ctx context.Context, id string, all []vm) error {
	cluster := i.nodes.Nodes()
	if i.listsNodeOf(cluster, all) || (len(cluster) == 0 && len(all) > 0) {
		return nil
	}
	shown, err := i.findClusterObjects(ctx)
	if err != nil {
		return fmt.Errorf("no node of the cluster is listed, and its load balancers cannot be: %w", err)
	}
	switch {
	case shown.member != "":
		return fmt.Errorf("no node of the cluster is listed, but virtual machine %s is behind one of its load balancers", shown.member)
	case shown.found:
		return nil
	case shown.expected:
		return errors.New("neither a node of the cluster nor any of its load balancers is listed; " + checkAccount)
	}
	networks, err := i.networks.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	if err != nil {
		return fmt.Errorf("no node of the cluster is listed, and its network cannot be: %w", err)
	}
	if slices.ContainsFunc(networks, func(n network) bool { return i.isClusterNetwork(cluster, id, n) }) {
		return nil
	}
	return errors.New("neither a node of the cluster nor its network is listed; " + checkAccount)
}

const checkAccount = "check project-id, and the account of the user"

func (*instances) listsNodeOf(cluster []*v1.Node, all []vm) bool {
	shown := make(map[string]bool, len(all))
	for _, v := range all {
		shown[v.ID] = true
	}
	return slices.ContainsFunc(cluster, func(n *v1.Node) bool {
		id, err := parseProviderID(n.Spec.ProviderID)
		return err == nil && shown[id]
	})
}

// isClusterNetwork reports whether a visible network is the cluster's: its nodes' machines were seen in it, or, after a start, the Node has
// an address of it. Shared networks prove nothing, because other accounts see them too.
func (i *instances) isClusterNetwork(cluster []*v1.Node, id string, n network) bool {
	if n.Type == typeShared {
		return false
	}
	i.mu.Lock()
	known, home := len(i.nodeNetworks) > 0, i.nodeNetworks[n.ID]
	i.mu.Unlock()
	if known {
		return home
	}
	prefix, err := netip.ParsePrefix(n.CIDR)
	return err == nil && slices.ContainsFunc(cluster, func(node *v1.Node) bool {
		named, bad := parseProviderID(node.Spec.ProviderID)
		return bad == nil && named == id && slices.ContainsFunc(node.Status.Addresses, func(a v1.NodeAddress) bool {
			ip, err := netip.ParseAddr(a.Address)
			return a.Type == v1.NodeInternalIP && err == nil && prefix.Contains(ip)
		})
	})
}

// list lists the virtual machines and records the networks of this cluster's nodes.
func (i *instances) list(ctx context.Context) ([]vm, int, error) {
	all, calls, err := i.api.vms(ctx)
	ours := map[string]bool{}
	for _, n := range i.nodes.Nodes() {
		if id, bad := parseProviderID(n.Spec.ProviderID); bad == nil {
			ours[id] = true
		}
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err == nil {
		i.latestListing = slices.Clone(all)
	}
	for _, v := range all {
		for _, n := range v.NICs {
			if ours[v.ID] {
				i.nodeNetworks[n.NetworkID] = true
			}
		}
	}
	return all, calls, err
}

// lastListing returns the latest complete listing as received. The inventory also has machines that were read alone, which would vouch for
// a wrongly empty listing.
func (i *instances) lastListing() []vm {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.latestListing
}

// clusterObjects tells which load balancers of the cluster are visible: expected is set if a Service records an address, found if an object
// is visible. member is a machine behind a rule; CloudStack removes expunged machines from rules.
type clusterObjects struct {
	expected, found bool
	member          string
}

// maxWitnesses bounds the rules whose members are read. Each has all nodes of the cluster.
const maxWitnesses = 3

// findClusterObjects looks for objects of the cluster's Services: a rule with a Service's UID in its name, or a recorded address.
func (i *instances) findClusterObjects(ctx context.Context) (t clusterObjects, err error) {
	services, err := i.cluster.Services(ctx)
	if err != nil {
		return t, err
	}
	names, recorded := map[string]bool{}, map[string]bool{}
	for _, s := range services {
		if s.Spec.Type != v1.ServiceTypeLoadBalancer {
			continue
		}
		names[loadBalancerName("", s)] = true
		if known := recordOf(s); known.id != "" {
			recorded[known.id], t.expected = true, true
		}
	}
	if len(names) == 0 {
		return t, nil
	}
	rules, err := i.objects.rules.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	if err != nil {
		return t, err
	}
	rules = slices.DeleteFunc(rules, func(found rule) bool { return !names[found.owner()] })
	slices.SortFunc(rules, func(a, b rule) int { return strings.Compare(a.ID, b.ID) })
	for _, found := range rules[:min(len(rules), maxWitnesses)] {
		m, err := i.objects.members.Get(ctx, found.ID, inventory.Query{MaxAge: proofMaxAge})
		if err != nil {
			return t, err
		}
		t.found = true
		if len(m.IDs) > 0 {
			t.member = m.IDs[0]
			return t, nil
		}
	}
	if t.found || !t.expected {
		return t, nil
	}
	addresses, err := i.objects.addresses.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	t.found = slices.ContainsFunc(addresses, func(a address) bool { return recorded[a.ID] && !a.isFree() })
	return t, err
}
