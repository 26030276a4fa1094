package guard

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

type instances struct {
	inner     cloudprovider.InstancesV2
	facts     Facts
	meters    *meters
	ownership *ownership
	decider   *decider
	claims    *claims
	reports   *reports
	attempts  priority.Attempts
	observer  atomic.Pointer[Observer]
	withTags  atomic.Bool
}

// Observer gets the metadata of a Node of ours, and the tags of its instance. Its error keeps the Node uninitialized.
type Observer func(ctx context.Context, node *v1.Node, m *cloudprovider.InstanceMetadata, tags map[string]string) error

// ObserveMetadata passes all metadata of our Nodes to an observer from now on. On some clouds tags cost calls: without withTags there are
// none.
func (c *Cloud) ObserveMetadata(observe Observer, withTags bool) {
	if c.instances != nil {
		c.instances.withTags.Store(withTags)
		c.instances.observer.Store(&observe)
	}
}

// IsOurs reports whether a Node belongs to this cloud and matches --node-selector.
func (c *Cloud) IsOurs(node *v1.Node) bool { return c.ownership.whyForeign(node) == "" }

// InstanceKey returns the key of the instance behind a provider ID, and "" for one that is not the provider's.
func (c *Cloud) InstanceKey(providerID string) string { return c.facts.instanceKey(providerID) }

// InstanceExists implements cloudprovider.InstancesV2. A Node that is not ours counts as existing, and "gone" is returned only if the
// policy allows it; otherwise an error makes the framework keep the Node.
func (i *instances) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	if i.ownership.reportIfForeign(node) {
		return true, nil
	}
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	demand, ask, why, message := i.decider.nextQuestion(node)
	if ask {
		exists, err := i.decider.ask(ctx, node, demand)
		switch {
		case err != nil:
			return true, err
		case exists:
			i.recordExists(node)
			return true, nil
		}
		why, message = i.decider.decideGone(ctx, node, demand.OwnRead)
	}
	if why == holdNone {
		i.reports.endHold(node, "the Node is deleted now: what held it has ended")
		i.meters.deletionsAllowed.WithLabelValues(i.facts.Provider).Inc()
		return false, nil
	}
	i.meters.deletionsHeld.WithLabelValues(i.facts.Provider, string(why)).Inc()
	if why.isLasting() {
		i.reports.warnOfNode(node, EventNodeDeletionHeld, message)
	}
	return true, &heldError{node: node.Name, why: why, message: message}
}

// recordExists records that the instance of a Node exists.
func (i *instances) recordExists(node *v1.Node) {
	i.decider.recordExists(node)
	i.reports.endHold(node, "the Node stays: its instance was seen again")
}

// InstanceShutdown implements cloudprovider.InstancesV2. A Node that is not ours must not be tainted.
func (i *instances) InstanceShutdown(ctx context.Context, node *v1.Node) (shutdown bool, err error) {
	if i.ownership.whyForeign(node) != "" {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	defer recoverPanic(&err, "InstanceShutdown", node.Name)
	return i.inner.InstanceShutdown(ctx, node)
}

// InstanceMetadata implements cloudprovider.InstancesV2. It returns no nil that the framework would dereference, and reports a failed
// initialisation as an event: the framework only logs it.
func (i *instances) InstanceMetadata(ctx context.Context, node *v1.Node) (metadata *cloudprovider.InstanceMetadata, err error) {
	if i.ownership.reportIfForeign(node) {
		return foreignMetadata(node), nil
	}
	i.decider.recordNode(node)
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	observe, tags := i.observer.Load(), map[string]string(nil)
	if observe != nil && i.withTags.Load() {
		ctx = contract.WithTags(ctx, &tags)
	}
	if contract.Uninitialized(node) {
		var tried func(error)
		failures := i.attempts.Failures(string(node.UID) + " " + node.Name)
		ctx, tried = i.attempts.Urgent(ctx, string(node.UID)+" "+node.Name) // nothing runs on it until then
		defer func() { tried(err) }()
		metadata, err = i.waitForMetadata(ctx, node, failures)
	} else {
		metadata, err = i.metadata(ctx, node)
	}
	if errors.Is(err, cloudprovider.InstanceNotFound) && node.Spec.ProviderID != "" && isReady(node) {
		i.decider.recordAbsence(node)
	}
	if err == nil {
		err = i.claim(node, metadata.ProviderID)
	}
	if err == nil && observe != nil {
		err = (*observe)(ctx, node, metadata, tags)
	}
	if err != nil {
		if contract.Uninitialized(node) {
			i.meters.initializationsFailed.WithLabelValues(i.facts.Provider).Inc()
			i.reports.warnOfNode(node, EventNodeInitializationFailed, err.Error())
		}
		return nil, err
	}
	i.recordExists(node)
	i.reports.clear(node)
	if !contract.Uninitialized(node) && hasAddresses(node, metadata.NodeAddresses) {
		// The framework compares one address of each type, so a Node with two of a type always looks changed and is written in every cycle.
		// Without addresses it leaves the Node alone.
		metadata.NodeAddresses = nil
	}
	return metadata, nil
}

func (i *instances) metadata(ctx context.Context, node *v1.Node) (metadata *cloudprovider.InstanceMetadata, err error) {
	defer recoverPanic(&err, "InstanceMetadata", node.Name)
	metadata, err = i.inner.InstanceMetadata(ctx, node)
	switch {
	case err != nil:
		return nil, err
	case metadata == nil:
		return nil, fmt.Errorf("provider %s returned no metadata for node %s", i.facts.Provider, node.Name)
	case i.facts.instanceKey(metadata.ProviderID) == "":
		return nil, fmt.Errorf("provider %s returned provider ID %q for node %s, which does not begin with %s",
			i.facts.Provider, metadata.ProviderID, node.Name, strings.Join(i.facts.ProviderIDPrefixes, " or "))
	}
	chosen := *metadata
	chosen.NodeAddresses, err = i.facts.Policy.Addresses.choose(node, metadata.NodeAddresses)
	return &chosen, err
}

// foreignMetadata returns a result with which the framework leaves a Node unchanged. A tainted Node is skipped if there is no metadata; an
// untainted one keeps its addresses.
func foreignMetadata(node *v1.Node) *cloudprovider.InstanceMetadata {
	if contract.Uninitialized(node) {
		return nil
	}
	return &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID, NodeAddresses: node.Status.Addresses}
}
