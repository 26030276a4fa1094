//go:build !slim || provider_openstack

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/openstack" // registers the provider
