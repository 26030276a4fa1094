//go:build !slim || provider_aws

package linked

import _ "github.com/anyccm/cloud-controller-manager/providers/aws" // registers the provider
