//go:build !slim || provider_linode

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/linode" // registers the provider
