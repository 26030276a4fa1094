package nodes

import (
	"context"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Split combines the nodes of a cloud with instances of two kinds. The other kind's API may be any.
type Split struct {
	// API serves the nodes of the common kind, and the check of the cloud's API.
	API
	// IsOther reports whether a node is of the other kind.
	IsOther func(*v1.Node) bool
	Other   API
}

var _ API = Split{}

func (s Split) apiOf(node *v1.Node) API {
	if s.IsOther(node) {
		return s.Other
	}
	return s.API
}

// InstanceExists implements cloudprovider.InstancesV2.
func (s Split) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	return s.apiOf(node).InstanceExists(ctx, node)
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (s Split) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return s.apiOf(node).InstanceShutdown(ctx, node)
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (s Split) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return s.apiOf(node).InstanceMetadata(ctx, node)
}

// VerifyInstance implements contract.InstanceVerifier.
func (s Split) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	return s.apiOf(node).VerifyInstance(ctx, node)
}

// AttestInstance implements contract.InstanceAttester.
func (s Split) AttestInstance(ctx context.Context, node *v1.Node) (a contract.Attested, why string, err error) {
	return s.apiOf(node).AttestInstance(ctx, node)
}

// Unmanaged answers about Nodes whose machines the cloud does not have, such as those of an operator's own data centre. They exist as far
// as anybody can say, run, and keep what they have.
type Unmanaged struct{}

var _ API = Unmanaged{}

// InstanceExists implements cloudprovider.InstancesV2.
func (Unmanaged) InstanceExists(context.Context, *v1.Node) (bool, error) { return true, nil }

// InstanceShutdown implements cloudprovider.InstancesV2.
func (Unmanaged) InstanceShutdown(context.Context, *v1.Node) (bool, error) { return false, nil }

// InstanceMetadata implements cloudprovider.InstancesV2.
func (Unmanaged) InstanceMetadata(_ context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return &cloudprovider.InstanceMetadata{ProviderID: node.Spec.ProviderID, NodeAddresses: node.Status.Addresses}, nil
}

// VerifyInstance implements contract.InstanceVerifier.
func (Unmanaged) VerifyInstance(_ context.Context, node *v1.Node) (ok bool, why string, err error) {
	return false, "the cloud has no instance of node " + node.Name, nil
}

// AttestInstance implements contract.InstanceAttester.
func (u Unmanaged) AttestInstance(ctx context.Context, node *v1.Node) (a contract.Attested, why string, err error) {
	_, why, err = u.VerifyInstance(ctx, node)
	return a, why, err
}

// CheckAPI implements API: there is nothing to ask.
func (Unmanaged) CheckAPI(context.Context) error { return nil }
