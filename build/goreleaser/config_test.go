// Package goreleaser checks the configuration of releases with goreleaser's own types, and makes one of its programs by it. That costs
// seconds; `make release-check` makes all of them with goreleaser itself.
package goreleaser

import (
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const (
	root    = "../.."
	product = "cloud-controller-manager"
)

func load(t *testing.T) config.Project {
	t.Helper()
	project, err := config.Load(filepath.Join(root, ".goreleaser.yaml")) // unknown keys are errors
	if err != nil {
		t.Fatal(err)
	}
	return project
}

// TestConfiguration: what each part names is there, and every cloud has a program and an archive.
func TestConfiguration(t *testing.T) {
	t.Parallel()
	project := load(t)
	builds, archived := map[string]config.Build{}, []string{}
	for _, b := range project.Builds {
		if _, twice := builds[b.ID]; twice {
			t.Errorf("two builds have the ID %s", b.ID)
		}
		builds[b.ID] = b
		if b.Main == "" || !slices.Contains(b.Goos, "linux") || !slices.Equal(b.Goarch, []string{"amd64", "arm64"}) {
			t.Errorf("%s: main %q for %v on %v", b.ID, b.Main, b.Goos, b.Goarch)
		}
		if !slices.Contains(b.Tags, "grpcnotrace") || !slices.Contains(b.Env, "CGO_ENABLED=0") || !slices.Contains(b.Flags, "-trimpath") {
			t.Errorf("%s is not built as the Makefile does it: tags %v, environment %v, flags %v", b.ID, b.Tags, b.Env, b.Flags)
		}
	}
	for _, a := range project.Archives {
		archived = append(archived, a.IDs...)
		for _, id := range a.IDs {
			if _, ok := builds[id]; !ok {
				t.Errorf("archive %s has a build %s, which is not there", a.ID, id)
			}
		}
	}
	folders, err := filepath.Glob(filepath.Join(root, "providers", "*", "provider.go"))
	if err != nil || len(folders) == 0 {
		t.Fatalf("the providers: %v, %v", folders, err)
	}
	wanted := []string{product}
	for _, f := range folders {
		wanted = append(wanted, product+"-"+filepath.Base(filepath.Dir(f)))
	}
	for _, id := range wanted {
		if _, ok := builds[id]; !ok {
			t.Errorf("there is no build %s; run make generate", id)
		}
		if !slices.Contains(archived, id) {
			t.Errorf("build %s is in no archive", id)
		}
	}
	if len(project.Signs) == 0 || len(project.SBOMs) == 0 {
		t.Error("nothing is signed, or has no bill of materials")
	}
}

// TestOnePlatform makes the program of a release for this machine, by the configuration, and asks it for its version.
func TestOnePlatform(t *testing.T) {
	t.Parallel()
	project := load(t)
	i := slices.IndexFunc(project.Builds, func(b config.Build) bool { return b.ID == product })
	if i < 0 {
		t.Fatal("there is no build " + product)
	}
	b := project.Builds[i]
	fill := strings.NewReplacer("{{ .ModulePath }}", "github.com/anyccm/cloud-controller-manager", "{{ .Version }}", "1.2.3", "{{ .FullCommit }}", "0123456789ab")
	ldflags := fill.Replace(strings.Join(b.Ldflags, " "))
	if strings.Contains(ldflags, "{{") {
		t.Fatalf("this test cannot fill in the template %s", ldflags)
	}
	program := filepath.Join(t.TempDir(), b.Binary)
	args := append([]string{"build", "-C", root, "-tags", strings.Join(b.Tags, ","), "-ldflags", ldflags, "-o", program}, b.Flags...)
	cmd := exec.CommandContext(t.Context(), "go", append(args, b.Main)...)
	cmd.Env = append(cmd.Environ(), b.Env...)
	cmd.Env = append(cmd.Env, "GOOS="+runtime.GOOS, "GOARCH="+runtime.GOARCH, "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	out, err := exec.CommandContext(t.Context(), program, "version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v1.2.3") || !strings.Contains(string(out), "0123456789ab") {
		t.Fatalf("%v: %s", err, out)
	}
}
