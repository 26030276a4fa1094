// Package cloudbase has what the clouds of this program answer alike, for their types to embed.
package cloudbase

import (
	"context"
	"time"

	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

// Cloud answers the parts of cloudprovider.Interface and registry.CloudAPI that do not depend on the cloud.
type Cloud struct {
	// Name is the value of --cloud-provider.
	Name string
	// HTTP is the client that every call to the cloud's API goes through.
	HTTP *cloudapi.Client
}

// APIHealth implements registry.CloudAPI.
func (c Cloud) APIHealth() error { return c.HTTP.Health() }

// ClockSkew implements registry.Clock.
func (c Cloud) ClockSkew() (time.Duration, bool) { return c.HTTP.ClockSkew() }

// ProviderName implements cloudprovider.Interface.
func (c Cloud) ProviderName() string { return c.Name }

// HasClusterID implements cloudprovider.Interface. The program need not wait for an ID to start; where one is needed, nothing
// is done before it is known.
func (Cloud) HasClusterID() bool { return true }

// Instances implements cloudprovider.Interface; the legacy interface is not offered.
func (Cloud) Instances() (cloudprovider.Instances, bool) { return nil, false }

// Zones implements cloudprovider.Interface; the legacy interface is not offered, for the metadata of instances carries zones.
func (Cloud) Zones() (cloudprovider.Zones, bool) { return nil, false }

// Clusters implements cloudprovider.Interface; the legacy interface is not offered.
func (Cloud) Clusters() (cloudprovider.Clusters, bool) { return nil, false }

// WithNodes answers the parts that a cloud with nodes has, for its type to embed beside Cloud.
type WithNodes struct {
	// NodeAPI answers the questions about nodes.
	NodeAPI nodes.API
}

// InstancesV2 implements cloudprovider.Interface.
func (w WithNodes) InstancesV2() (cloudprovider.InstancesV2, bool) { return w.NodeAPI, true }

// CheckAPI implements registry.CloudAPI.
func (w WithNodes) CheckAPI(ctx context.Context) error { return w.NodeAPI.CheckAPI(ctx) }

// VerifyInstance implements guard.InstanceVerifier.
func (w WithNodes) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	return w.NodeAPI.VerifyInstance(ctx, node)
}
