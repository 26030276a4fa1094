package nodes

import (
	"context"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"
)

// Split serves the nodes of a cloud that has instances of two kinds. The other kind's answers may come from anywhere.
type Split struct {
	// API serves the nodes of the common kind, and the check of the cloud's API.
	API
	// IsOther reports whether a node is of the other kind.
	IsOther func(*v1.Node) bool
	Other   API
}

var _ API = Split{}

func (s Split) of(node *v1.Node) API {
	if s.IsOther(node) {
		return s.Other
	}
	return s.API
}

// InstanceExists implements cloudprovider.InstancesV2.
func (s Split) InstanceExists(ctx context.Context, node *v1.Node) (bool, error) {
	return s.of(node).InstanceExists(ctx, node)
}

// InstanceShutdown implements cloudprovider.InstancesV2.
func (s Split) InstanceShutdown(ctx context.Context, node *v1.Node) (bool, error) {
	return s.of(node).InstanceShutdown(ctx, node)
}

// InstanceMetadata implements cloudprovider.InstancesV2.
func (s Split) InstanceMetadata(ctx context.Context, node *v1.Node) (*cloudprovider.InstanceMetadata, error) {
	return s.of(node).InstanceMetadata(ctx, node)
}

// VerifyInstance implements guard.InstanceVerifier.
func (s Split) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	return s.of(node).VerifyInstance(ctx, node)
}
