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

// This file proves that a virtual machine is gone. What the API does not show may be in another project or account: an empty answer proves
// nothing by itself.

// proofMaxAge lets the questions about several machines share the listings that prove their absence, which each has a read of its own for.
const proofMaxAge = 2 * time.Second

// prove is cloudapi.ErrNotFound where a complete listing lacks a virtual machine as well, and there is no doubt about what it shows.
func (i *instances) prove(ctx context.Context, id string) error {
	what := "looking for virtual machine " + id
	_, err := i.inventory.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	all := i.lastListing()
	if err == nil && slices.ContainsFunc(all, func(v vm) bool { return v.ID == id }) {
		err = errors.New("it is listed")
	}
	if err == nil {
		err = i.doubt(ctx, id, all)
	}
	if err != nil {
		return cloudapi.Unclear(what, "it is not shown, which does not prove that it is gone: %s", err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	maps.DeleteFunc(i.absent, func(_ string, at time.Time) bool { return time.Since(at) > absentMaxAge })
	i.absent[id] = time.Now()
	return &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "there is none with this ID"}
}

// provedAbsent reports whether a virtual machine was proved to be gone a short while ago.
func (i *instances) provedAbsent(id string) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	at, known := i.absent[id]
	return known && time.Since(at) <= absentMaxAge
}

// doubt says why a listing that lacks a virtual machine does not prove that it is gone: a wrong project, and a user who may see less than
// before, show nothing, or others' machines. Something of the cluster must be shown as well: the machine of another node, or else what its
// Services have, or else the network of the machine. All nodes at once are the guard's to hold.
func (i *instances) doubt(ctx context.Context, id string, all []vm) error {
	cluster := i.nodes.Nodes()
	if i.listsNodeOf(cluster, all) || (len(cluster) == 0 && len(all) > 0) {
		return nil
	}
	shown, err := i.witness(ctx)
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
	if slices.ContainsFunc(networks, func(n network) bool { return i.homeOf(cluster, id, n) }) {
		return nil
	}
	return errors.New("neither a node of the cluster nor its network is listed; " + checkAccount)
}

const checkAccount = "check project-id, and the account of the user"

// listsNodeOf reports whether a listing shows the machine of a node of the cluster.
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

// homeOf reports whether a network that the user may see is the one of the cluster: machines of its nodes were seen in it, or else, as
// after a start, the node in question has an address of it. Shared networks say nothing, because other accounts see them too.
func (i *instances) homeOf(cluster []*v1.Node, id string, n network) bool {
	if n.Type == typeShared {
		return false
	}
	i.mu.Lock()
	known, home := len(i.homes) > 0, i.homes[n.ID]
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

// list lists the virtual machines, and remembers the networks of those that are nodes of the cluster.
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
		i.listed = slices.Clone(all)
	}
	for _, v := range all {
		for _, n := range v.NICs {
			if ours[v.ID] {
				i.homes[n.NetworkID] = true
			}
		}
	}
	return all, calls, err
}

// lastListing is the latest complete listing, as it was answered. The inventory adds machines to it that were read alone meanwhile: these
// would vouch for a listing that is empty by mistake.
func (i *instances) lastListing() []vm {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.listed
}

// testimony is whether load balancers of the cluster are to be seen: expected where a Service has an address on record, found where the
// user may see one. member is a virtual machine behind one: CloudStack takes those away that are expunged.
type testimony struct {
	expected, found bool
	member          string
}

// maxWitnesses is how many rules are asked for their members, of which each has all nodes of the cluster.
const maxWitnesses = 3

// testify looks for what the Services of the cluster have: a rule with the UID of one in its name, or the address that one has on record.
func (r *reconciler) testify(ctx context.Context) (t testimony, err error) {
	services, err := r.cluster.Services(ctx)
	if err != nil {
		return t, err
	}
	names, recorded := map[string]bool{}, map[string]bool{}
	for _, s := range services {
		if s.Spec.Type != v1.ServiceTypeLoadBalancer {
			continue
		}
		names[loadBalancerName("", s)] = true
		if known := recordOf(s.Annotations[annotationRecord]); known.id != "" {
			recorded[known.id], t.expected = true, true
		}
	}
	if len(names) == 0 {
		return t, nil
	}
	rules, err := r.rules.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	if err != nil {
		return t, err
	}
	rules = slices.DeleteFunc(rules, func(found rule) bool { return !names[found.owner()] })
	slices.SortFunc(rules, func(a, b rule) int { return strings.Compare(a.ID, b.ID) })
	for _, found := range rules[:min(len(rules), maxWitnesses)] {
		m, err := r.members.Get(ctx, found.ID, inventory.Query{MaxAge: proofMaxAge})
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
	addresses, err := r.addresses.All(ctx, inventory.Query{MaxAge: proofMaxAge})
	t.found = slices.ContainsFunc(addresses, func(a address) bool { return recorded[a.ID] && !a.free() })
	return t, err
}
