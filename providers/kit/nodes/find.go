package nodes

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Search says how to find the instance of a Node without a provider ID.
type Search[ID comparable, T any] struct {
	// IDs are instances that the Node can be, known without a search; the first that exists is its own.
	IDs []ID
	// Proves says that the IDs come from the Node's name, so that the Node is deleted with its instance. Other IDs prove nothing.
	Proves bool
	// Keys are tried in order if there are no IDs, until one of them is found.
	Keys []Key[T]
	// None is the error if no instance is found, Several if there is more than one, with "%d" for their number. " start kubelet with
	// --provider-id=…" is added to both. "" means that the keys are names of instances.
	None, Several string
}

// Key is one value of an index by which an instance may be found.
type Key[T any] struct {
	Index, Value string
	// Check refuses an instance that is found by this key, unless it is nil.
	Check func(T) error
	// Proves selects the node's instance among several with this key; nil selects none. It counts only if it holds for exactly one.
	Proves func(T) bool
}

// selectProved returns the instances that Proves selects.
func (k Key[T]) selectProved(all []T) []T {
	if k.Proves == nil || len(all) < 2 {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(all), func(instance T) bool { return !k.Proves(instance) })
}

// identity is the kind of evidence that links a node to its instance.
type identity int

const (
	// byKey: names and addresses can be reused, so that no response proves that the node's instance is gone.
	byKey identity = iota
	// byName: the name of the node contains the ID of its instance.
	byName
	byProviderID
)

type found[T any] struct {
	instance T
	identity identity
}

// Find returns the instance of a node: by provider ID, or by Cloud.Search if the node has none.
func (i *Instances[ID, T]) Find(ctx context.Context, node *v1.Node, q inventory.Query) (T, error) {
	f, err := i.find(ctx, node, q)
	return f.instance, err
}

func (i *Instances[ID, T]) find(ctx context.Context, node *v1.Node, q inventory.Query) (found[T], error) {
	if i.cloud.Inventory.ReadsBatches() {
		asker := ctx
		ctx = inventory.WithPrefetch(asker, func() []ID { return i.likelyNext(asker, node) })
	}
	if i.hasProviderID(node) {
		id, err := i.cloud.Parse(node.Spec.ProviderID)
		if err != nil {
			return found[T]{}, cloudapi.NotAbsence(err)
		}
		instance, err := i.cloud.Inventory.Get(ctx, id, q)
		return found[T]{instance, byProviderID}, err
	}
	s, err := i.search(ctx, node)
	switch {
	case err != nil:
		return found[T]{}, cloudapi.NotAbsence(err)
	case s.Proves:
		q.MaxMissAge = max(q.MaxMissAge, namedMissAge)
		instance, err := i.firstOf(ctx, s.IDs, q)
		return found[T]{instance, byName}, err
	}
	if q.MaxMissAge == 0 {
		// Nothing is deleted because of this result, so absence needs no read of its own.
		q.MaxMissAge = maxExistsAge
	}
	if len(s.IDs) > 0 {
		instance, err := i.firstOf(ctx, s.IDs, q)
		return found[T]{instance, byKey}, err
	}
	instance, err := i.byKeys(ctx, node, s, q)
	return found[T]{instance, byKey}, err
}

func (i *Instances[ID, T]) hasProviderID(node *v1.Node) bool {
	id := node.Spec.ProviderID
	return id != "" && (i.cloud.Names == nil || i.cloud.Names(id))
}

func (i *Instances[ID, T]) search(ctx context.Context, node *v1.Node) (Search[ID, T], error) {
	if i.cloud.Search == nil {
		return Search[ID, T]{}, fmt.Errorf("node %s has no provider ID of the form %s", node.Name, i.cloud.Form)
	}
	return i.cloud.Search(ctx, node)
}

// firstOf returns the first instance that exists. The error is cloudapi.ErrNotFound only if each of them is proved not to.
func (i *Instances[ID, T]) firstOf(ctx context.Context, ids []ID, q inventory.Query) (instance T, err error) {
	err = fmt.Errorf("no %s is known of the node", i.cloud.Kind)
	for _, id := range ids {
		instance, err = i.cloud.Inventory.Get(ctx, id, q)
		if !errors.Is(err, cloudapi.ErrNotFound) {
			break
		}
	}
	return instance, err
}

// byKeys returns the only instance with the first of the search's keys that any instance has.
func (i *Instances[ID, T]) byKeys(ctx context.Context, node *v1.Node, s Search[ID, T], q inventory.Query) (T, error) {
	var all []T
	for _, k := range s.Keys {
		var err error
		if all, err = i.cloud.Inventory.Find(ctx, k.Index, k.Value, q); err != nil {
			return *new(T), err
		}
		if proved := k.selectProved(all); len(proved) == 1 {
			all = proved
		}
		if len(all) == 1 && k.Check != nil {
			err = k.Check(all[0])
		}
		if err != nil {
			return *new(T), cloudapi.NotAbsence(err)
		}
		if len(all) > 0 {
			break
		}
	}
	switch len(all) {
	case 0:
		if s.None == "" {
			s.None = fmt.Sprintf("no %s is named %s; name the %s like the node, or", i.cloud.Kind, node.Name, i.cloud.Kind)
		}
		return *new(T), i.undecidedError(cloudapi.ErrNotFound, s.None)
	case 1:
		return all[0], nil
	}
	if s.Several == "" {
		s.Several = "%d " + i.cloud.Kind + "s are named " + node.Name + "; rename all but one, or"
	}
	return *new(T), i.undecidedError(cloudapi.ErrConflict, fmt.Sprintf(s.Several, len(all)), all...)
}

// undecidedError returns the error of a search, with the remedy that always helps: it names the instances that the node may be.
func (i *Instances[ID, T]) undecidedError(class error, message string, candidates ...T) error {
	const most = 5
	message += " start kubelet with --provider-id=" + i.cloud.Form
	if i.cloud.Print != nil && len(candidates) > 0 {
		names := make([]string, 0, most)
		for _, c := range candidates[:min(len(candidates), most)] {
			names = append(names, i.cloud.Print(c))
		}
		slices.Sort(names)
		message += ": " + strings.Join(names, ", ")
		if len(candidates) > most {
			message += ", …"
		}
	}
	return &cloudapi.Error{Class: class, Operation: "finding the " + i.cloud.Kind + " of the node", Message: message}
}

// likelyNext returns the instances of nodes that will likely be checked next: the other uninitialized nodes, or the other nodes that are
// not ready.
func (i *Instances[ID, T]) likelyNext(ctx context.Context, node *v1.Node) []ID {
	if contract.Uninitialized(node) {
		return i.Uninitialized(ctx)
	}
	return i.idsOf(ctx, func(n *v1.Node) bool { return !nodecount.Ready(n) })
}

// Uninitialized returns the instances of uninitialized nodes, as far as they are known without a read.
func (i *Instances[ID, T]) Uninitialized(ctx context.Context) []ID {
	return i.idsOf(ctx, contract.Uninitialized)
}

func (i *Instances[ID, T]) idsOf(ctx context.Context, chosen func(*v1.Node) bool) []ID {
	var ids []ID
	for _, n := range i.cloud.Nodes.Nodes() {
		if !chosen(n) {
			continue
		}
		if id, ok := i.knownID(ctx, n); ok {
			ids = append(ids, id)
		}
	}
	return ids
}

// knownID returns the ID of a node's instance without a read: from the provider ID, from the name, or because exactly one known instance
// has the first key.
func (i *Instances[ID, T]) knownID(ctx context.Context, node *v1.Node) (id ID, ok bool) {
	if i.hasProviderID(node) {
		id, err := i.cloud.Parse(node.Spec.ProviderID)
		return id, err == nil
	}
	s, err := i.search(ctx, node)
	switch {
	case err != nil:
		return id, false
	case len(s.IDs) > 0:
		return s.IDs[0], true
	case len(s.Keys) == 0:
		return id, false
	}
	if all := i.cloud.Inventory.PeekIndex(s.Keys[0].Index, s.Keys[0].Value); len(all) == 1 {
		return i.cloud.Inventory.ID(all[0]), true
	}
	return id, false
}
