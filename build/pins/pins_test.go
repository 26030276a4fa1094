package pins

import (
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

const root = "../.."

func read(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, path))
	require.NoError(t, err)
	return string(text)
}

type step struct {
	Uses string            `json:"uses"`
	Run  string            `json:"run"`
	With map[string]any    `json:"with"`
	Env  map[string]string `json:"env"`
}

type job struct {
	Needs       []string          `json:"needs"`
	Environment string            `json:"environment"`
	Permissions map[string]string `json:"permissions"`
	Steps       []step            `json:"steps"`
	// Uses calls another workflow, which none does.
	Uses string `json:"uses"`
}

type workflow struct {
	Permissions map[string]string `json:"permissions"`
	Jobs        map[string]job    `json:"jobs"`
}

func workflows(t *testing.T) map[string]workflow {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, ".github/workflows/*"))
	require.NoError(t, err)
	require.Len(t, files, 5)
	all := map[string]workflow{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		var w workflow
		require.NoError(t, yaml.Unmarshal(text, &w))
		all[filepath.Base(file)] = w
	}
	return all
}

// TestActionsAndImages: actions are named by commit, base images by digest, modules by version.
func TestActionsAndImages(t *testing.T) {
	t.Parallel()
	commit := regexp.MustCompile(`^[a-z-]+/[a-z-]+@[0-9a-f]{40}$`)
	for name, w := range workflows(t) {
		for _, j := range w.Jobs {
			assert.Empty(t, j.Uses, name)
			for _, s := range j.Steps {
				if s.Uses != "" {
					assert.Regexp(t, commit, s.Uses, name)
				}
			}
		}
	}
	image := regexp.MustCompile(`(?m)^FROM (?:--platform=\S+ )?(\S+)`)
	found := image.FindAllStringSubmatch(read(t, "build/Dockerfile"), -1)
	require.Len(t, found, 2)
	for _, f := range found {
		if f[1] != "scratch" {
			assert.Regexp(t, `@sha256:[0-9a-f]{64}$`, f[1])
		}
	}
	modules := regexp.MustCompile(`(?:go|\$\(GO\)) (?:run|install) (\w\S*\.\S+/\S+)`).FindAllStringSubmatch(read(t, "Makefile"), -1)
	require.NotEmpty(t, modules)
	for _, module := range modules {
		assert.Regexp(t, `@v[0-9]+\.[0-9]+\.[0-9]+$`, module[1])
	}
}

// TestReleaseRights: what runs tests can neither sign nor publish, and what signs and publishes runs no tests, waits for them,
// and stands in a protected environment.
func TestReleaseRights(t *testing.T) {
	t.Parallel()
	all := workflows(t)
	assert.Contains(t, read(t, ".github/workflows/release.yaml"), "\non:\n  push: {tags: [\"v*\"]}\n", "a tag alone becomes a release")
	for name, w := range all {
		text := read(t, ".github/workflows/"+name)
		assert.NotRegexp(t, "pull_request_target|workflow_run|issue_comment", text, "%s: strangers' code would run with rights", name)
		require.NotNil(t, w.Permissions, "%s: without permissions, a workflow has those of the repository's settings", name)
		for _, right := range w.Permissions {
			assert.Equal(t, "read", right, name)
		}
		for id, j := range w.Jobs {
			writes := false
			for _, right := range j.Permissions {
				writes = writes || right == "write"
			}
			for _, s := range j.Steps {
				tests := strings.Contains(s.Run, ".ci/run") || strings.Contains(s.Run, "make test") || strings.Contains(s.Run, "make vuln")
				assert.False(t, tests && (writes || j.Environment != ""), "%s: job %s runs tests with rights", name, id)
				assert.NotContains(t, s.Run, "${{", "%s: job %s: a name of somebody's choice becomes a part of the script", name, id)
				for _, value := range s.Env {
					assert.False(t, strings.Contains(value, "secrets.") && j.Environment != "release", "%s: job %s has a secret", name, id)
				}
				if strings.HasPrefix(s.Uses, "actions/checkout@") {
					kept := s.With["persist-credentials"]
					assert.Equal(t, false, kept, "%s: job %s keeps the token where every program finds it", name, id)
				}
			}
			if writes {
				assert.Equal(t, "release", j.Environment, "%s: job %s", name, id)
			}
		}
	}
	assert.ElementsMatch(t, []string{"test", "vulnerabilities"}, all["release.yaml"].Jobs["release"].Needs)
}

// TestVerification: the documented verification names the workflow and the tag, and covers all that is signed.
func TestVerification(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/releasing.md")
	assert.Contains(t, page, "/.github/workflows/release.yaml@refs/tags/v1.2.3")
	assert.NotContains(t, page, "identity-regexp")
	for _, what := range []string{
		"verify-blob checksums.txt", "cosign verify registry.example.com/anyccm/cloud-controller-manager:",
		"cosign verify registry.example.com/anyccm/charts/cloud-controller-manager:",
		"cosign verify-attestation --type cyclonedx registry.example.com/anyccm/cloud-controller-manager:",
		"gh attestation verify oci://registry.example.com/anyccm/cloud-controller-manager:",
	} {
		assert.Contains(t, page, what)
	}
	assert.Contains(t, read(t, ".goreleaser.yaml"), `- artifacts: checksum
  cmd: cosign
  signature: "${artifact}.sigstore.json"
  args: ["sign-blob", "--yes",`)
	makefile := read(t, "Makefile")
	assert.Contains(t, makefile, "digest=$$(sha256sum < $$layout/index.json | cut -d' ' -f1)")
	assert.Contains(t, makefile, "cosign sign --yes $$image@sha256:$$digest")
	assert.Contains(t, makefile, "cosign attest --yes --type cyclonedx --predicate $$bill $$image@sha256:$$digest")
	var provenance []any
	for _, s := range workflows(t)["release.yaml"].Jobs["release"].Steps {
		if strings.HasPrefix(s.Uses, "actions/attest-build-provenance@") {
			provenance = append(provenance, s.With["subject-checksums"])
		}
	}
	assert.Equal(t, []any{"dist/release/checksums.txt", "dist/images.sha256"}, provenance)
	assert.Contains(t, makefile, "cosign sign --yes $(REGISTRY)/charts/cloud-controller-manager@$$digest")
}

// TestVulnerabilities: they are looked for in the public workflows, and not where there may be no way to their database.
func TestVulnerabilities(t *testing.T) {
	t.Parallel()
	assert.NotContains(t, read(t, ".ci/run"), "vuln")
	for _, name := range []string{"ci.yaml", "release.yaml"} {
		w := workflows(t)[name]
		var runs strings.Builder
		for _, j := range w.Jobs {
			for _, s := range j.Steps {
				runs.WriteString(s.Run + "\n")
			}
		}
		assert.Contains(t, runs.String(), "make vuln", name)
	}
	_, target, _ := strings.Cut(read(t, "Makefile"), "\nvuln: ")
	target, _, _ = strings.Cut(target, "\n\n")
	assert.Equal(t, 2, strings.Count(target, "echo $(NOT_CHECKED); exit 2; }"), "where it cannot look it says so, and fails")
	assert.Contains(t, read(t, "Makefile"), "NOT CHECKED")
}

// TestScheduledChecks: what becomes wrong without a change of ours is looked for every week at least, and what .ci/run has no time for.
func TestScheduledChecks(t *testing.T) {
	t.Parallel()
	for name, runs := range map[string][]string{
		"ci.yaml": {"make vuln"}, "versions.yaml": {"make test-oldest", "make release-check"}, "scorecard.yaml": nil,
		"nightly.yaml": {"make clients", "ANYCCM_PYTHON=$PWD/bin/.python/bin/python make test-all", "make mutants"},
	} {
		text := read(t, ".github/workflows/"+name)
		assert.Regexp(t, `(?m)^  schedule: \[\{cron: "\d+ \d+ \* \* [\d*]"\}\]`, text, name)
		for _, one := range runs {
			assert.Contains(t, text, "- run: "+one+"\n", name)
		}
	}
	assert.Contains(t, read(t, ".github/workflows/scorecard.yaml"), "ossf/scorecard-action@")
}

// TestBotsSeeEveryVersion: each tool that the Makefile runs by its module path, and each module file.
func TestBotsSeeEveryVersion(t *testing.T) {
	t.Parallel()
	var renovate struct {
		CustomManagers []struct {
			ManagerFilePatterns, MatchStrings []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/renovate.json")), &renovate))
	require.Len(t, renovate.CustomManagers, 1)
	assert.Equal(t, []string{"/^Makefile$/"}, renovate.CustomManagers[0].ManagerFilePatterns)
	found := map[string]string{}
	seen := regexp.MustCompile(renovate.CustomManagers[0].MatchStrings[0])
	for _, m := range seen.FindAllStringSubmatch(read(t, "Makefile"), -1) {
		found[m[1]] = m[2]
	}
	versions := regexp.MustCompile(`@v\d`).FindAllString(read(t, "Makefile"), -1)
	assert.Len(t, found, len(versions), "%v", found)
	for _, module := range []string{
		"golang.org/x/vuln", "github.com/google/go-containerregistry", "sigs.k8s.io/controller-runtime/tools/setup-envtest",
	} {
		assert.NotEmpty(t, found[module], "%v", found)
	}
	var dependabot struct {
		Updates []struct {
			Ecosystem   string `json:"package-ecosystem"`
			Directories []string
		}
	}
	require.NoError(t, yaml.Unmarshal([]byte(read(t, ".github/dependabot.yml")), &dependabot))
	require.Equal(t, "gomod", dependabot.Updates[0].Ecosystem)
	var want []string
	for _, module := range modules(t) {
		want = append(want, strings.TrimSuffix("/"+module, "."))
	}
	assert.ElementsMatch(t, want, dependabot.Updates[0].Directories)
}

// modules are the folders of all modules of the checkout, "." among them.
func modules(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, file := range files(t) {
		if path.Base(file) == "go.mod" {
			found = append(found, path.Dir(file))
		}
	}
	require.Greater(t, len(found), 10)
	return found
}

// files are those of the checkout but for what is built, with slashes.
func files(t *testing.T) []string {
	t.Helper()
	var found []string
	require.NoError(t, filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		built := relative == "bin" || relative == "dist" || (strings.HasPrefix(relative, ".") && relative != ".")
		switch {
		case d.IsDir() && built:
			return fs.SkipDir
		case !d.IsDir():
			found = append(found, filepath.ToSlash(relative))
		}
		return nil
	}))
	return found
}

// TestModulesAreVerified: `make verify` compares the sources of every module with its checksums, and a module that comes is not forgotten.
func TestModulesAreVerified(t *testing.T) {
	t.Parallel()
	out, err := runMake(t, "-n", "verify")
	require.NoError(t, err, "%s", out)
	loop := regexp.MustCompile(`printf '%s\\n' (.*) \| xargs .* \S+ -C % mod verify `).FindSubmatch(out)
	require.NotNil(t, loop, "%s", out)
	var got []string
	for module := range strings.FieldsSeq(string(loop[1])) {
		got = append(got, path.Clean(module))
	}
	assert.ElementsMatch(t, modules(t), got)
}

// TestWorkflowsRunWhatThereIs: the targets of make that they name are there.
func TestWorkflowsRunWhatThereIs(t *testing.T) {
	t.Parallel()
	named := 0
	for name, w := range workflows(t) {
		for _, j := range w.Jobs {
			for _, s := range j.Steps {
				for _, m := range regexp.MustCompile(`(?m)(?:^|&& )make ([a-z-]+)`).FindAllStringSubmatch(s.Run, -1) {
					named++
					assert.Regexp(t, `(?m)^`+m[1]+`:.* ## `, read(t, "Makefile"), name)
				}
			}
		}
	}
	assert.GreaterOrEqual(t, named, 5)
}

// TestOldestKubernetes: the end-to-end tests run on the oldest version that the chart and the support matrix promise.
func TestOldestKubernetes(t *testing.T) {
	t.Parallel()
	out, err := runMake(t, "-n", "test-oldest")
	require.NoError(t, err, "%s", out)
	oldest := regexp.MustCompile(`setup-envtest@v[0-9.]+ use (1\.\d+)\.x -p path`).FindSubmatch(out)
	require.NotNil(t, oldest, "%s", out)
	assert.Contains(t, read(t, "charts/cloud-controller-manager/Chart.yaml"), "kubeVersion: \">="+string(oldest[1])+".0-0\"")
	assert.Contains(t, read(t, "docs/support.md"), "| cloud | level | Kubernetes "+string(oldest[1])+" |")
}
