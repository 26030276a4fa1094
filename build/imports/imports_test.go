package imports

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/anyccm/cloud-controller-manager/"

// area is the part of the repository that contains a package: "providers/kit", "providers/<name>", or its first folder.
func area(pkg string) string {
	first, rest, _ := strings.Cut(pkg, "/")
	second, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "providers", pkg == "registry/linked":
		return first + "/" + second
	}
	return first
}

// rules are the forbidden directions of imports, with the reason.
var rules = []struct {
	broken func(from, to string) bool
	why    string
}{
	{
		func(from, to string) bool { return provider(from) && provider(to) && area(from) != area(to) },
		"a provider never imports another one; what two of them need belongs in providers/kit",
	},
	{
		func(from, to string) bool { return area(from) == "providers/kit" && provider(to) },
		"what clouds are built from knows none of them",
	},
	{
		func(from, to string) bool { return area(from) == "registry" && strings.HasPrefix(to, "providers/") },
		"the registry imports no provider; only registry/linked names them",
	},
	{
		func(from, to string) bool {
			return strings.HasPrefix(from, "providers/") && (area(to) == "cmd" || area(to) == "registry/linked")
		},
		"imports run from cmd to providers, never back",
	},
	{
		func(from, to string) bool {
			return provider(to) && area(from) != area(to) && area(from) != "registry/linked" && from != "cmd/cloudsim"
		},
		"nothing outside a provider's folder asks which provider runs",
	},
	{
		func(from, to string) bool {
			return to == "providers/kit/simkit" && (area(from) == "registry" || strings.HasPrefix(from, "cmd/cloud-controller-manager"))
		},
		"simulators are for tests and cmd/cloudsim",
	},
}

// provider reports whether a package belongs to a cloud.
func provider(pkg string) bool {
	return strings.HasPrefix(area(pkg), "providers/") && area(pkg) != "providers/kit"
}

// forbidden explains why a package may not import another one of this module; "" if it may.
func forbidden(from, to string) string {
	for _, r := range rules {
		if r.broken(from, to) {
			return r.why
		}
	}
	return ""
}

// TestImports asks go list for the imports of every package, those of tests included.
func TestImports(t *testing.T) {
	t.Parallel()
	cmd := exec.CommandContext(t.Context(), "go", "list", "-f",
		`{{.ImportPath}}{{range .Imports}} {{.}}{{end}}{{range .TestImports}} {{.}}{{end}}{{range .XTestImports}} {{.}}{{end}}`, "./...")
	cmd.Dir = "../.."
	out, err := cmd.Output()
	require.NoError(t, err)
	edges := 0
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		from, ours := strings.CutPrefix(fields[0], module)
		require.True(t, ours, fields[0])
		for _, imported := range fields[1:] {
			if to, ours := strings.CutPrefix(imported, module); ours {
				edges++
				assert.Empty(t, forbidden(from, to), "%s imports %s", from, to)
			}
		}
	}
	assert.Greater(t, edges, 100, "the imports were really read")
}

func TestForbidden(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		from, to string
		allowed  bool
	}{
		"provider to provider":         {"providers/aws", "providers/linode", false},
		"simulator to provider":        {"providers/aws/awssim", "providers/linode", false},
		"provider to its simulator":    {"providers/aws", "providers/aws/awssim", true},
		"provider to kit":              {"providers/aws", "providers/kit/inventory", true},
		"kit to provider":              {"providers/kit/inventory", "providers/aws", false},
		"kit to registry":              {"providers/kit/inventory", "registry/guard", true},
		"registry to provider":         {"registry/guard", "providers/aws", false},
		"registry to kit":              {"registry/guard", "providers/kit/inventory", false},
		"linked to provider":           {"registry/linked", "providers/aws", true},
		"program to provider":          {"cmd/cloud-controller-manager/app", "providers/aws", false},
		"program to linked":            {"cmd/cloud-controller-manager", "registry/linked", true},
		"cloudsim to simulator":        {"cmd/cloudsim", "providers/aws/awssim", true},
		"program to simulators":        {"cmd/cloud-controller-manager/app", "providers/kit/simkit", false},
		"kit to program":               {"providers/kit/loop", "cmd/cloud-controller-manager/app", false},
		"end-to-end tests to provider": {"test/e2e", "providers/aws", false},
		"generator to linked":          {"build/generate", "registry/linked", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			assert.Equal(t, tc.allowed, forbidden(tc.from, tc.to) == "")
		})
	}
}
