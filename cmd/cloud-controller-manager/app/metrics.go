package app

import (
	"runtime"
	"strings"
	"sync"

	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/registry"
)

var (
	buildInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Namespace: "anyccm", Name: "build_info", StabilityLevel: metrics.ALPHA,
		Help: "1, with what this program was built from, the providers that are part of it, and the one that runs.",
	}, []string{"version", "commit", "go_version", "providers", "provider"})

	// libraryInfo replaces the library's metric, which is set only in Kubernetes' own binaries.
	libraryInfo = metrics.NewGaugeVec(&metrics.GaugeOpts{
		Name: "kubernetes_build_info", StabilityLevel: metrics.BETA,
		Help: "1, with the version of the Kubernetes libraries in this program.",
	}, []string{"major", "minor", "git_version", "git_commit", "git_tree_state", "build_date", "go_version", "compiler", "platform"})

	registerBuildInfo = sync.OnceFunc(func() { legacyregistry.MustRegister(buildInfo, libraryInfo) })
)

// kubernetesVersion returns the Kubernetes release of a library version: v1.37.2 for v0.37.2.
func kubernetesVersion(library string) (version, major, minor string) {
	rest, ok := strings.CutPrefix(library, "v0.")
	if !ok {
		return "unknown", "", ""
	}
	minor, _, _ = strings.Cut(rest, ".")
	return "v1." + rest, "1", minor
}

// recordBuild adds build and provider to the metrics.
func recordBuild(providers *registry.Registry, running string) {
	registerBuildInfo()
	buildInfo.WithLabelValues(version, commit, runtime.Version(), strings.Join(providers.Names(), ","), running).Set(1)
	library, major, minor := kubernetesVersion(moduleVersions()["k8s.io/component-base"])
	libraryInfo.WithLabelValues(major, minor, library, "", "", "", runtime.Version(), runtime.Compiler, runtime.GOOS+"/"+runtime.GOARCH).Set(1)
}
