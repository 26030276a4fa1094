//go:build !slim || provider_oci

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/oci" // registers the provider
