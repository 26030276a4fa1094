//go:build !slim || provider_photon

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/photon" // registers the provider
