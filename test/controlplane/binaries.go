// Package controlplane runs a real kube-apiserver and etcd on loopback ports, for tests, benchmarks and the demo.
package controlplane

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/anyccm/cloud-controller-manager/build/gobuild"
	"github.com/anyccm/cloud-controller-manager/test/controlplane/envtest"
)

// binary is one program of the control plane and the package that it is built from.
type binary struct{ name, pkg string }

var binaries = []binary{
	{"etcd", "go.etcd.io/etcd/server/v3"},
	{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"},
}

// Binaries returns the folder that holds etcd and kube-apiserver. They come from KUBEBUILDER_ASSETS if that is set, or from
// where setup-envtest keeps them if there is a version that fits; else they are built once from source, through the Go
// module proxy, into the user's cache folder. Progress goes to w.
func Binaries(ctx context.Context, w io.Writer) (string, error) {
	named := os.Getenv(envtest.Variable)
	switch dir := envtest.Folder(); {
	case named != "" && !envtest.Complete(named):
		return "", fmt.Errorf("%s=%s: it lacks etcd or kube-apiserver", envtest.Variable, named)
	case named == "" && dir != "":
		fmt.Fprintf(w, "Using the control plane of setup-envtest: %s\n", dir)
		return dir, nil
	case dir != "":
		return dir, nil
	}
	source, err := sourceDir()
	if err != nil {
		return "", err
	}
	cache, err := cacheDir(source)
	if err != nil {
		return "", err
	}
	if envtest.Complete(cache) {
		return cache, nil
	}
	unlock, err := lock(ctx, cache+".lock", w)
	if err != nil {
		return "", err
	}
	defer unlock()
	if envtest.Complete(cache) {
		return cache, nil
	}
	return cache, build(ctx, source, cache, w)
}

// sourceDir is build/controlplane of the checkout that this package was compiled from, or of the working folder when
// paths were trimmed.
func sourceDir() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("finding the checkout: %w", err)
	}
	for {
		candidate := filepath.Join(dir, "build", "controlplane")
		if _, err := os.Stat(filepath.Join(candidate, "go.mod")); err == nil {
			return candidate, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("finding build/controlplane: run this inside the checkout, or set " + envtest.Variable)
		}
		dir = parent
	}
}

// cacheDir is one folder for each set of versions and toolchain.
func cacheDir(source string) (string, error) {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOOS, runtime.GOARCH, buildFlags())
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", fmt.Errorf("reading the control plane's versions: %w", err)
		}
		sum.Write(data)
	}
	root, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("finding the user's cache folder: %w", err)
	}
	return filepath.Join(root, "anyccm", "controlplane-"+hex.EncodeToString(sum.Sum(nil))[:12]), nil
}

// kubeVersion is the version that the API server reports; it is stamped, because modules do not carry it.
const kubeVersion = "v1.37.1"

// buildFlags are those of the product, so that both share the packages that they have in common in the build cache.
func buildFlags() []string {
	return gobuild.Flags(nil, []string{"-X k8s.io/component-base/version.gitVersion=" + kubeVersion})
}

func build(ctx context.Context, source, cache string, w io.Writer) error {
	fmt.Fprintln(w, "Building etcd and kube-apiserver from source; this happens once and takes some minutes.")
	staging := cache + ".partial"
	if err := os.MkdirAll(staging, 0o755); err != nil {
		return fmt.Errorf("making the cache folder: %w", err)
	}
	defer os.RemoveAll(staging)
	began := time.Now()
	for _, b := range binaries {
		err := gobuild.Build{
			Name: b.name, Dir: source, Env: append(gobuild.Env(), "GOFLAGS=-buildvcs=false", "GOWORK=off"),
			Flags: buildFlags(), Output: filepath.Join(staging, b.name), Packages: []string{b.pkg},
		}.Run(ctx, w)
		if err != nil {
			return err
		}
	}
	fmt.Fprintf(w, "Built in %s: %s\n", time.Since(began).Round(time.Second), cache)
	if err := os.Rename(staging, cache); err != nil {
		return fmt.Errorf("keeping the binaries: %w", err)
	}
	return nil
}
