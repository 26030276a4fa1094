package main

import (
	"bytes"
	"debug/elf"
	"encoding/json"
	"fmt"
	"go/build/constraint"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
)

const module = "github.com/anyccm/cloud-controller-manager"

var root = filepath.Join("..", "..")

// goTool runs the go command in the checkout's root with the project's environment.
func goTool(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), stderr.String())
	return string(out)
}

func providers(t *testing.T) []string {
	t.Helper()
	entries, err := os.ReadDir(filepath.Join(root, "providers"))
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "kit" {
			names = append(names, e.Name())
		}
	}
	require.NotEmpty(t, names)
	return names
}

func slimTags(provider string) string { return "-tags=grpcnotrace,slim,provider_" + provider }

// TestLinkFiles: folder, file in registry/linked, build tag, import and registered name agree.
func TestLinkFiles(t *testing.T) {
	t.Parallel()
	names := providers(t)
	assert.Equal(t, names, registry.Linked().Names(), "without tags every provider is linked, under the name of its folder")
	files, err := filepath.Glob(filepath.Join(root, "registry", "linked", "*.go"))
	require.NoError(t, err)
	var linked []string
	for _, path := range files {
		name := strings.TrimSuffix(filepath.Base(path), ".go")
		if name == "doc" {
			continue
		}
		linked = append(linked, name)
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		line, _, _ := strings.Cut(string(source), "\n")
		expr, err := constraint.Parse(line)
		require.NoError(t, err, path)
		assert.Equal(t, "!slim || provider_"+name, expr.String(), path)
		file, err := parser.ParseFile(token.NewFileSet(), path, source, parser.ImportsOnly)
		require.NoError(t, err)
		require.Len(t, file.Imports, 1, path)
		assert.Equal(t, fmt.Sprintf("%q", module+"/providers/"+name), file.Imports[0].Path.Value)
	}
	assert.Equal(t, names, linked, "one file in registry/linked for each folder in providers")
}

// TestSlimPrograms: each slim program imports its own cloud and SDK, and no other cloud, simulator or test library. It links nothing; `make
// size` builds the programs.
func TestSlimPrograms(t *testing.T) {
	t.Parallel()
	all := registry.Linked().Providers()
	for _, p := range all {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			deps := strings.Fields(goTool(t, "list", "-deps", slimTags(p.Name), "./cmd/cloud-controller-manager"))
			holds := func(path string) bool {
				return slices.ContainsFunc(deps, func(d string) bool { return d == path || strings.HasPrefix(d, path+"/") })
			}
			for _, other := range all {
				assert.Equal(t, other.Name == p.Name, holds(module+"/providers/"+other.Name), other.Name)
				if other.SDK != "" { // otherwise it has its own client
					assert.Equal(t, other.Name == p.Name, holds(other.SDK), "packages of %s", other.SDK)
				}
			}
			assert.False(t, holds(module+"/providers/"+p.Name+"/"+p.Name+"sim"), "a simulator is never part of the program")
			assert.False(t, holds(module+"/providers/kit/simkit"), "nor is what simulators are made of")
			assert.False(t, holds("github.com/stretchr/testify"))
		})
	}
}

// TestNoProvider: a program without any cloud says so.
func TestNoProvider(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "none")
	goTool(t, "build", "-trimpath", "-tags=grpcnotrace,slim", "-ldflags=-s -w", "-o", binary, "./cmd/cloud-controller-manager")
	out, err := exec.CommandContext(t.Context(), binary).CombinedOutput()
	require.Error(t, err)
	assert.Equal(t, "Error: this program was built without any cloud provider; build it without the tag slim or with a tag provider_<name>\n", string(out))
}

const (
	// pruned is an unused method of an SDK. It is in the program only if the linker must keep all methods, because a dependency looks
	// methods up by name at run time.
	pruned = "github.com/digitalocean/godo.(*AppsServiceOp).ListAlerts"
	kept   = "github.com/digitalocean/godo.(*LoadBalancersServiceOp).Delete"
)

// TestProgram looks at the program with its symbols, which takes seconds to link.
func TestProgram(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "stamped")
	goTool(
		t, "build", "-trimpath", "-tags=grpcnotrace",
		"-ldflags=-X "+module+"/cmd/cloud-controller-manager/app.version=v0.1.0 -X "+module+"/cmd/cloud-controller-manager/app.commit=abc",
		"-o", binary, "./cmd/cloud-controller-manager",
	)
	t.Run("the linker drops unused methods", func(t *testing.T) { requirePruned(t, binary) })
	t.Run("version", func(t *testing.T) { requireVersion(t, binary) })
}

// requirePruned keeps the program small: a single dependency that calls reflect's Method or MethodByName with a variable name doubles its
// size.
func requirePruned(t *testing.T, binary string) {
	t.Helper()
	if runtime.GOOS != "linux" {
		t.Skip("reads the symbol table of an ELF file")
	}
	f, err := elf.Open(binary)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, f.Close()) })
	symbols, err := f.Symbols()
	require.NoError(t, err)
	has := func(name string) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name })
	}
	require.True(t, has(kept), "the symbol table is there and holds what is called")
	if has(pruned) {
		t.Errorf("%s is linked although nothing calls it; functions that keep all methods alive:\n%s", pruned, culprits(t))
	}
}

// culprits asks the linker which functions made it keep every method.
func culprits(t *testing.T) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "build", "-trimpath", "-tags=grpcnotrace", "-ldflags=-dumpdep", "-o", os.DevNull, "./cmd/cloud-controller-manager")
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return err.Error()
	}
	var found []string
	for line := range strings.Lines(string(out)) {
		if from, _, ok := strings.Cut(line, " -> "); ok && strings.Contains(from, "<ReflectMethod>") && !slices.Contains(found, from) {
			found = append(found, from)
		}
	}
	return strings.Join(found, "\n")
}

// requireVersion: the version is shown, and the framework's feature gates still work.
func requireVersion(t *testing.T, binary string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), binary, "--version").Output()
	require.NoError(t, err)
	for _, want := range []string{"AnyCCM v0.1.0 (commit abc, ", "Kubernetes libraries v0.37.", "Linked providers: " + strings.Join(registry.Linked().Names(), ", ")} {
		assert.Contains(t, string(out), want)
	}
	listed, err := exec.CommandContext(t.Context(), binary, "providers", "-o", "json").Output()
	require.NoError(t, err)
	var list []struct{ Name, SDK, SDKVersion string }
	require.NoError(t, json.Unmarshal(listed, &list))
	require.Len(t, list, len(registry.Linked().Names()))
	for _, p := range list {
		assert.Equal(t, p.SDK != "", p.SDKVersion != "", "the version of %q, which %s uses", p.SDK, p.Name)
	}
	help, err := exec.CommandContext(t.Context(), binary, "--help").Output()
	require.NoError(t, err)
	assert.Contains(t, string(help), "CloudControllerManagerWatchBasedRoutesReconciliation", "a product version must not switch feature gates off")
	refused, err := exec.CommandContext(t.Context(), binary, "--cloud-provider=nosuch", "--logging-format=json").CombinedOutput()
	require.Error(t, err)
	assert.Contains(t, string(refused), `unknown --cloud-provider "nosuch"`)
}
