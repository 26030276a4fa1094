// Command kubectl is Kubernetes' own, for tests of what the documentation tells its readers to type. It is built where none is on the
// PATH, with the versions of the product, so that both share one build cache.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubectl/pkg/cmd"
)

func main() { os.Exit(cli.Run(cmd.NewDefaultKubectlCommand())) }
