//go:build !slim || provider_keepalived

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/keepalived" // registers the provider
