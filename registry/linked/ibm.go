//go:build !slim || provider_ibm

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/ibm" // registers the provider
