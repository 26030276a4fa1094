package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Identified holds nodes that may receive traffic, and which of them have known instances.
type Identified struct {
	// Nodes have a provider ID if their instance was found.
	Nodes []*v1.Node
	// Unknown are the names of nodes without a known instance.
	Unknown []string
	// None is set if no node of the cluster has been known since the start, so that the backends' owners are unknown. One that is found by a
	// search does not count while others have a provider ID of another cloud.
	None bool
}

// Identify finds the instances of nodes that have no provider ID and will not get one, as with kubelets without --cloud-provider=external.
// It uses the search that initialises new Nodes. Such nodes are backends under the clouds' own controllers too.
func (i *Instances[ID, T]) Identify(ctx context.Context, list []*v1.Node) (Identified, error) {
	result := Identified{Nodes: list}
	told := slices.ContainsFunc(list, i.isOfCloud) || !i.known.Load() && slices.ContainsFunc(i.cloud.Nodes.Nodes(), i.isOfCloud)
	if slices.ContainsFunc(list, unidentified) {
		if err := i.identifyAll(ctx, &result); err != nil {
			return result, err
		}
	}
	// Where other Nodes have another controller's provider ID, their instances may be backends, so that a search that finds some is no proof.
	foreign := contract.HasForeignNodes(ctx) ||
		slices.ContainsFunc(list, func(n *v1.Node) bool { return n.Spec.ProviderID != "" && !i.isOfCloud(n) })
	if told || !foreign && slices.ContainsFunc(result.Nodes, i.isOfCloud) {
		i.known.Store(true)
	}
	result.None = !i.known.Load()
	return result, nil
}

// isOfCloud reports whether a Node's provider ID is this cloud's, also that of a kind of instance that is described elsewhere.
func (i *Instances[ID, T]) isOfCloud(n *v1.Node) bool {
	scheme, _, _ := strings.Cut(i.cloud.Form, ":")
	_, err := i.cloud.Parse(n.Spec.ProviderID)
	return i.hasProviderID(n) && (err == nil || strings.HasPrefix(n.Spec.ProviderID, scheme+":"))
}

// unidentified reports whether a node has no provider ID and will not get one.
func unidentified(n *v1.Node) bool { return n.Spec.ProviderID == "" && !contract.Uninitialized(n) }

func (i *Instances[ID, T]) identifyAll(ctx context.Context, result *Identified) error {
	taken := map[ID]bool{} // an instance belongs to one Node alone
	for _, n := range slices.Concat(result.Nodes, i.cloud.Nodes.Nodes()) {
		if i.hasProviderID(n) {
			if id, err := i.cloud.Parse(n.Spec.ProviderID); err == nil {
				taken[id] = true
			}
		}
	}
	query := inventory.Query{MaxAge: SweepMaxAge, MaxMissAge: SweepMaxAge, Expected: len(result.Nodes)}
	list := result.Nodes
	result.Nodes = make([]*v1.Node, 0, len(list))
	for _, n := range list {
		if !unidentified(n) {
			result.Nodes = append(result.Nodes, n)
			continue
		}
		m, err := i.Describe(ctx, n, query)
		var id ID
		if err == nil {
			id, err = i.cloud.Parse(m.ProviderID)
		}
		switch {
		case err == nil && !taken[id]:
			taken[id] = true
			identified := *n
			identified.Spec.ProviderID = m.ProviderID
			result.Nodes = append(result.Nodes, &identified)
		case err == nil, i.cloud.Search == nil, errors.Is(err, cloudapi.ErrNotFound), errors.Is(err, cloudapi.ErrConflict):
			result.Unknown = append(result.Unknown, n.Name)
		default:
			return err // it may have an instance, which would lose its traffic
		}
	}
	return nil
}
