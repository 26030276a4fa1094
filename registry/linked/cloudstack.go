//go:build !slim || provider_cloudstack

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/cloudstack" // registers the provider
