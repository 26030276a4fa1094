// Package goreleaser checks the configuration of releases with goreleaser's own types; `make release-check` makes the programs with
// goreleaser itself.
package goreleaser

import (
	"path/filepath"
	"slices"
	"testing"

	"github.com/goreleaser/goreleaser/v2/pkg/config"
)

const (
	root    = "../.."
	product = "cloud-controller-manager"
	stamp   = "-X {{ .ModulePath }}/cmd/cloud-controller-manager/app."
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
		if !slices.Equal(b.Ldflags, []string{"-s -w", stamp + "version=v{{ .Version }}", stamp + "commit={{ .FullCommit }}"}) {
			t.Errorf("%s is not stamped as the Makefile does it: %v", b.ID, b.Ldflags)
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
