//go:build !slim || provider_azure

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/azure" // registers the provider
