// Package charts holds the Helm chart, for the tests and the demo, which install it.
package charts

import "embed"

// Files are the chart's files under the folder cloud-controller-manager.
//
//go:embed all:cloud-controller-manager
var Files embed.FS
