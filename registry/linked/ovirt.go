//go:build !slim || provider_ovirt

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/ovirt" // registers the provider
