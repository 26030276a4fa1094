//go:build !slim || provider_gce

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/gce" // registers the provider
