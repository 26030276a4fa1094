//go:build !slim || provider_vsphere

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/vsphere" // registers the provider
