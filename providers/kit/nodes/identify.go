package nodes

import (
	"context"
	"errors"
	"slices"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

// Identified are nodes that may receive traffic, and what is known of their instances.
type Identified struct {
	// Nodes have provider IDs wherever an instance was found.
	Nodes []*v1.Node
	// Unknown are the names of those of which no instance is known.
	Unknown []string
	// None is set where no node of the cluster has been known since the start, so that nothing tells whose the backends are.
	None bool
}

// Identify finds the instances of nodes that have no provider ID and wait for none, as where kubelets run without
// --cloud-provider=external: by the search that initialises a new Node. Load balancers of the cloud's own controller have them behind
// them.
func (i *Instances[ID, T]) Identify(ctx context.Context, list []*v1.Node) (Identified, error) {
	result := Identified{Nodes: list}
	if slices.ContainsFunc(list, unidentified) {
		if err := i.identifyAll(ctx, &result); err != nil {
			return result, err
		}
	}
	known := func(n *v1.Node) bool { return n.Spec.ProviderID != "" }
	if slices.ContainsFunc(result.Nodes, known) || (!i.known.Load() && slices.ContainsFunc(i.cloud.Nodes.Nodes(), known)) {
		i.known.Store(true)
	}
	result.None = !i.known.Load()
	return result, nil
}

// unidentified reports whether nobody is going to give a node a provider ID.
func unidentified(n *v1.Node) bool { return n.Spec.ProviderID == "" && !guard.Uninitialized(n) }

func (i *Instances[ID, T]) identifyAll(ctx context.Context, result *Identified) error {
	taken := map[ID]bool{} // an instance is one Node's alone
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
			return err // it may have an instance, behind which there would be no traffic
		}
	}
	return nil
}
