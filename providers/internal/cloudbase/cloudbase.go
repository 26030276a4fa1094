// Package cloudbase has what the clouds of this program answer alike, for their types to embed.
package cloudbase

import (
	"time"

	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
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
