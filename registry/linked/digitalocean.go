//go:build !slim || provider_digitalocean

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/digitalocean" // registers the provider
