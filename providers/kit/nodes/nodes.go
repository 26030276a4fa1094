// Package nodes implements everything about nodes for every cloud, from a description of the cloud's instances: cloudprovider.InstancesV2,
// the check of the cloud's API and the verification of instances.
//
// It is the only package that reports an instance as gone. It does so only for an instance that a Node names itself, by its provider ID or,
// where the cloud has such names, by its name. The proof is package inventory's: a read of that instance alone, or the guard's substitute
// (evidence.Absence), which the cloud answered with "not found". An error, an empty response and a name that is not found are never taken
// as proof.
package nodes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodecount"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
)

// Maximum ages of answers about nodes.
const (
	// minExistsAge and maxExistsAge bound the age of the answer "this instance exists". Between them it grows with the calls that a listing
	// takes, at Cloud.Price each. It saves 2 reads every 5 s for each node that is not ready, and delays the removal of a deleted
	// instance's Node as long.
	minExistsAge = 10 * time.Second
	maxExistsAge = 45 * time.Second
	// SweepMaxAge serves the framework's periodic update of all nodes' addresses, every 5 minutes.
	SweepMaxAge = 60 * time.Second
	// MissMaxAge saves reads for a node that fails to initialise: the framework tries 9 times in the first second.
	MissMaxAge = 5 * time.Second
	// namedMissAge does so for a node whose name is the ID of an instance that does not exist, unless the caller demands a newer answer.
	namedMissAge = 30 * time.Second
	// verifiedMaxAge serves the verification of instances, whose names and tags rarely change. A refusal rests on a newer read, so that a
	// corrected instance is accepted at once.
	verifiedMaxAge = 10 * time.Minute
)

// State is the state of an instance, reduced to the distinctions that Kubernetes makes.
type State int

// States of an instance.
const (
	// Existing is every state but the ones below: running, starting, stopping, broken.
	Existing State = iota
	// ShutDown instances do not run, and may be started again.
	ShutDown
	// Terminated instances are still shown by the cloud but will never run again. They count as gone.
	Terminated
)

// Cloud describes the instances of a cloud.
type Cloud[ID comparable, T any] struct {
	// Kind is the cloud's word for an instance, such as "droplet".
	Kind string
	// Inventory is the shared view that every answer comes from.
	Inventory *inventory.Inventory[ID, T]
	// Nodes counts the cluster's nodes, to predict further questions.
	Nodes *nodecount.Counter
	// Price is the time per call for nodes that are not ready: the share of the cloud's rate limit that permanently failed nodes may use.
	Price time.Duration
	// MinAge is the least age at which an answer about such nodes is still used; 0 means 10 s, or less if the framework checks more often
	// than by default (evidence.Demand.Within).
	MinAge time.Duration

	// Form is the form of provider IDs in messages, such as "digitalocean://<droplet ID>".
	Form string
	// Parse returns the ID of the instance in a provider ID, in every form that a Node of this cloud may carry. Two forms of one
	// instance give one ID.
	Parse func(providerID string) (ID, error)
	// Print returns the provider ID for a new Node. It is not needed where Metadata sets one.
	Print func(T) string
	// Names reports whether a provider ID names an instance; nil means that each non-empty one does. A Node whose provider ID does not is
	// treated as if it had none, and is never called gone.
	Names func(providerID string) bool
	// Search says how to find the instance of a Node without a provider ID; nil means not at all.
	Search func(ctx context.Context, node *v1.Node) (Search[ID, T], error)

	// State returns the state of an instance. An error means that it is unknown; an Incomplete one that listings do not show whether the
	// instance runs: it exists, and is read alone if necessary. A nil function means that every listed instance exists and is never shut
	// down.
	State func(T) (State, error)
	// Metadata returns the node's metadata from its instance: addresses, type, zone, region, additional labels. Further reads should use
	// the query that the instance satisfied. The error is an Incomplete if something is still missing.
	Metadata func(ctx context.Context, node *v1.Node, instance T, q inventory.Query) (*cloudprovider.InstanceMetadata, error)
	// Tags returns what the cloud calls tags, labels or metadata of an instance, without a call; an answer without any is no statement. A nil
	// function means that the reads of instances have none.
	Tags func(T) map[string]string
	// AllTags reads the tags of these instances by few calls, where Tags is nil: only while somebody asks for tags, and for all nodes at
	// once. It returns those that could be read, with an entry also for an instance without tags; nil means that there is no such call.
	AllTags func(ctx context.Context, ids []ID) (map[ID]map[string]string, error)
	// Verify says why an instance is not proved to be the node's, or "" if it is, from data that no kubelet can write. An error is no
	// verdict. A nil function means that instances cannot be verified.
	Verify func(ctx context.Context, node *v1.Node, instance T) (why string, err error)
	// Attested returns the names and addresses that the cloud alone gives an instance. It is nil where any comes from the guest, or from what
	// a Node says, for the reason in Unattested.
	Attested   func(T) contract.Attested
	Unattested string
	// Absent is the verdict on an ID without an instance, a format for the ID; "" means "<kind> <ID> does not exist".
	Absent string
	// BadID reports whether the error of a read says that the ID itself is wrong, which is a verdict too; nil means that none does.
	BadID func(error) bool
}

// Incomplete is the error of Cloud.Metadata for an instance that lacks something a node needs. A listing may have shown it during its
// creation, so the instance is read again before this becomes an error.
type Incomplete struct {
	// Reason says what is missing, and how to fix it.
	Reason string
	// Metadata is returned nevertheless for an initialised Node; nil means that none is.
	Metadata *cloudprovider.InstanceMetadata
	// Refresh is called before the instance is read again, unless it is nil.
	Refresh func(context.Context) error
}

// Error implements error.
func (i *Incomplete) Error() string { return i.Reason }

// API is implemented by a cloud for its nodes.
type API interface {
	cloudprovider.InstancesV2
	contract.InstanceVerifier
	contract.InstanceAttester
	// CheckAPI asks the cloud a question that needs an accepted credential.
	CheckAPI(ctx context.Context) error
}

// Instances implements API for the instances of a cloud.
type Instances[ID comparable, T any] struct {
	cloud Cloud[ID, T]
	// known is set once a node of the cluster had an instance.
	known atomic.Bool
	tags  tagView[ID]
}

var _ API = (*Instances[string, string])(nil)

// New returns the API for the nodes of a cloud.
func New[ID comparable, T any](c Cloud[ID, T]) *Instances[ID, T] {
	if c.Absent == "" {
		c.Absent = c.Kind + " %v does not exist"
	}
	return &Instances[ID, T]{cloud: c}
}

// InstanceExists reports whether the node's instance exists, in whatever state.
func (i *Instances[ID, T]) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	found, err := i.find(ctx, node, i.existsQuery(ctx))
	state := Existing
	if err == nil {
		state, err = i.stateOf(found.instance)
		if _, lacks := errors.AsType[*Incomplete](err); lacks {
			state, err = Existing, nil
		}
	}
	switch absent := errors.Is(err, cloudapi.ErrNotFound); {
	case (absent && found.identity != byKey) || (state == Terminated && found.identity == byProviderID):
		return false, nil // gone
	case err != nil:
		return false, err
	case state == Terminated:
		return false, fmt.Errorf("%s %v is terminated, but node %s has no provider ID that proves it is its own",
			i.cloud.Kind, i.cloud.Inventory.ID(found.instance), node.Name)
	}
	return true, nil
}

// InstanceShutdown reports whether the node's instance is shut down.
func (i *Instances[ID, T]) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	if i.cloud.State == nil {
		return false, nil
	}
	found, err := i.find(ctx, node, i.existsQuery(ctx))
	if err != nil {
		return false, err
	}
	state, err := i.stateOf(found.instance)
	if _, lacks := errors.AsType[*Incomplete](err); lacks {
		instance, readErr := i.cloud.Inventory.Get(ctx, i.cloud.Inventory.ID(found.instance), inventory.Query{})
		if readErr != nil {
			return false, readErr
		}
		state, err = i.stateOf(instance)
	}
	return state == ShutDown, err
}

// stateOf keeps an error about the state from being taken for the absence of the instance.
func (i *Instances[ID, T]) stateOf(instance T) (State, error) {
	if i.cloud.State == nil {
		return Existing, nil
	}
	state, err := i.cloud.State(instance)
	if err != nil {
		return Existing, cloudapi.NotAbsence(err)
	}
	return state, nil
}

func (i *Instances[ID, T]) minAge() time.Duration { return cmp.Or(i.cloud.MinAge, minExistsAge) }

func (i *Instances[ID, T]) existsQuery(ctx context.Context) inventory.Query {
	least := i.minAge()
	if within := evidence.From(ctx).Within; within > 0 && i.cloud.MinAge == 0 {
		least = min(least, max(within, i.cloud.Inventory.MinAge()))
	}
	age := i.cloud.Inventory.MaxAgeWithinBudget(i.cloud.Price, least, maxExistsAge)
	return demanded(ctx, inventory.Query{MaxAge: age, Expected: i.cloud.Nodes.Counts().NotReady, PerSingle: i.cloud.Price})
}

// demanded returns a query for an instance as the caller demands it.
func demanded(ctx context.Context, q inventory.Query) inventory.Query {
	d := evidence.From(ctx)
	q.NotBefore, q.Absence = d.NotBefore, d.Absence
	q.Expected, q.IsExpectedExact = max(q.Expected, d.Together), d.Together > 0
	return q
}

// InstanceMetadata returns what the node's instance says about the node.
func (i *Instances[ID, T]) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	m, err := i.metadata(ctx, node)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", node.Name, err)
	}
	return m, nil
}

func (i *Instances[ID, T]) metadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	query := inventory.Query{MaxAge: SweepMaxAge, MaxMissAge: MissMaxAge, Expected: i.cloud.Nodes.Counts().All, PerSingle: i.cloud.Price}
	if contract.Uninitialized(node) {
		query.PerSingle = 0
		// If one call reads several instances, the batch includes those of other new nodes; otherwise questions about new nodes wait for
		// each other.
		query.Expected, query.Uninitialized = i.cloud.Nodes.Counts().Uninitialized, !i.cloud.Inventory.ReadsBatches()
	}
	m, err := i.describe(ctx, node, query)
	incomplete, lacks := errors.AsType[*Incomplete](err)
	if lacks && incomplete.Refresh != nil {
		if err := incomplete.Refresh(ctx); err != nil {
			return nil, err
		}
	}
	if lacks {
		query.MaxAge = 0
		m, err = i.describe(ctx, node, query)
		incomplete, lacks = errors.AsType[*Incomplete](err)
	}
	if lacks && incomplete.Metadata != nil && !contract.Uninitialized(node) {
		return incomplete.Metadata, nil
	}
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, fmt.Errorf("%w: %w", cloudprovider.InstanceNotFound, err)
	}
	return m, err
}

// Describe finds a node's instance and returns its metadata, as far as the instance has any, for questions of the cloud's own.
func (i *Instances[ID, T]) Describe(ctx context.Context, node *v1.Node, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	m, err := i.describe(ctx, node, q)
	if incomplete, ok := errors.AsType[*Incomplete](err); ok && incomplete.Metadata != nil {
		return incomplete.Metadata, nil
	}
	return m, err
}

// describe returns metadata with a provider ID. An error that is cloudapi.ErrNotFound is about the instance, and nothing else.
func (i *Instances[ID, T]) describe(ctx context.Context, node *v1.Node, q inventory.Query) (*cloudprovider.InstanceMetadata, error) {
	found, err := i.find(ctx, node, q)
	if err != nil {
		return nil, err
	}
	if err := i.tellTags(ctx, node, found.instance); err != nil {
		return nil, err
	}
	m, err := i.cloud.Metadata(ctx, node, found.instance, q)
	incomplete, lacks := errors.AsType[*Incomplete](err)
	if lacks && incomplete.Metadata != nil {
		incomplete.Metadata = i.identified(incomplete.Metadata, found.instance)
	}
	if err != nil {
		return nil, cloudapi.NotAbsence(err)
	}
	return i.identified(m, found.instance), nil
}

func (i *Instances[ID, T]) identified(m *cloudprovider.InstanceMetadata, instance T) *cloudprovider.InstanceMetadata {
	if m.ProviderID == "" {
		m.ProviderID = i.cloud.Print(instance)
	}
	return m
}

// CheckAPI lists the instances, which also serves the first questions about nodes.
func (i *Instances[ID, T]) CheckAPI(ctx context.Context) error {
	_, err := i.cloud.Inventory.All(ctx, inventory.Query{MaxAge: i.minAge()})
	return err
}
