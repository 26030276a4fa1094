package imports

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/anyccm/cloud-controller-manager/"

// area is the part of the house that a package belongs to: "providers/kit", "providers/<name>", or its first folder.
func area(pkg string) string {
	first, rest, _ := strings.Cut(pkg, "/")
	second, _, _ := strings.Cut(rest, "/")
	switch {
	case first == "providers", pkg == "registry/linked":
		return first + "/" + second
	}
	return first
}

// forbidden says why a package may not import another one of this module; "" means that it may.
func forbidden(from, to string) string {
	a, b := area(from), area(to)
	provider := func(area string) bool { return strings.HasPrefix(area, "providers/") && area != "providers/kit" }
	switch {
	case provider(a) && provider(b) && a != b:
		return "a provider never imports another one; what two of them need belongs in providers/kit"
	case a == "providers/kit" && provider(b):
		return "what clouds are built from knows none of them"
	case a == "registry" && strings.HasPrefix(b, "providers/"):
		return "the registry imports no provider; only registry/linked names them"
	case strings.HasPrefix(a, "providers/") && (b == "cmd" || b == "registry/linked"):
		return "imports run from cmd to providers, never back"
	case provider(b) && a != b && a != "registry/linked" && from != "cmd/cloudsim":
		return "nothing outside a provider's folder asks which provider runs"
	case strings.HasSuffix(to, "providers/kit/simkit") && (a == "registry" || from == "cmd/cloud-controller-manager" || strings.HasPrefix(from, "cmd/cloud-controller-manager/")):
		return "simulators are for tests and cmd/cloudsim"
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
