// Command cloud-controller-manager runs the cloud-specific controllers of Kubernetes for the cloud named by --cloud-provider.
package main

import (
	"os"

	_ "golang.org/x/crypto/x509roots/fallback"            // certificate authorities, where the image has none
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client and workqueue metrics

	"github.com/anyccm/cloud-controller-manager/cmd/cloud-controller-manager/app"
	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the clouds of this binary
)

func main() {
	os.Exit(app.Main(registry.Linked(), os.Args[1:], os.Stdout, os.Stderr))
}
