// Command xmain is the cloud-controller-manager of Xcloud.
package main

import (
	"os"

	_ "golang.org/x/crypto/x509roots/fallback"            // certificate authorities, where the image has none
	_ "k8s.io/component-base/logs/json/register"          // --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // rest_client and workqueue metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // kubernetes_build_info

	_ "github.com/anyccm/cloud-controller-manager/build/newprovider/xcloud" // registers the provider
	"github.com/anyccm/cloud-controller-manager/cmd/cloud-controller-manager/app"
	"github.com/anyccm/cloud-controller-manager/registry"
)

func main() { os.Exit(app.Main(registry.Linked(), os.Args[1:], os.Stdout, os.Stderr)) }
