package main

import (
	"bytes"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const root = "../.."

// TestANewProvider: a generated provider builds and passes vet and its conformance suite. Nothing else in the checkout changes, except
// for the generator's output.
func TestANewProvider(t *testing.T) {
	t.Parallel()
	const name = "untaken" // not toy, the name in the developers' page, which may exist
	dir := copied(t)
	files, err := Files(name)
	require.NoError(t, err)
	require.NoError(t, write(dir, files, "providers/"+name))
	require.ErrorContains(t, write(dir, files, "providers/"+name), "is there already")

	goTool(t, dir, "run", "./build/generate")
	goTool(t, dir, "vet", "./providers/"+name+"/...")
	goTool(t, dir, "build", "-tags=grpcnotrace,slim,provider_"+name, "-o", os.DevNull, "./cmd/cloud-controller-manager")
	goTool(t, dir, "test", "-run=^(TestConformance|TestGeneratedFilesAreFresh|TestEveryScenarioHasATest)$",
		"./providers/"+name, "./build/generate", "./test/scenarios")

	for _, path := range changed(t, dir) {
		written := files[path] != ""
		generated := slices.ContainsFunc([]string{
			"README.md", ".goreleaser.yaml", ".github/ISSUE_TEMPLATE/", "docs/", "charts/cloud-controller-manager/", "cmd/cloudsim/zz_generated.",
		}, func(p string) bool { return strings.HasPrefix(path, p) })
		assert.True(t, written || generated, "%s was changed", path)
	}
}

// TestNames: an invalid name is refused with an example, and sources for any valid name are formatted.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Toy", "toy-cloud", "1toy", "kit", "../toy"} {
		_, err := Files(name)
		require.ErrorContains(t, err, "make new-provider NAME=toy", name)
	}
	for _, name := range []string{"a", "toy", "zebra", "averyveryverylongname"} {
		files, err := Files(name)
		require.NoError(t, err)
		for path, text := range files {
			assert.NotContains(t, strings.ToLower(path+text), placeholder)
			assert.NotContains(t, text, "// template\n", "a line that the template alone has")
			if strings.HasSuffix(path, ".go") {
				formatted, err := format.Source([]byte(text))
				require.NoError(t, err, path)
				assert.Equal(t, string(formatted), text, path)
			}
		}
	}
}

// TestTheGuideHasTheCommands: what is printed for a new provider stands in the contributors' guide. Each line with tests there is about one
// cloud, without the race detector, and with the flags of make, so that results are shared.
func TestTheGuideHasTheCommands(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile(root + "/Makefile")
	require.NoError(t, err)
	flags := regexp.MustCompile(`(?m)^GOTEST +:= \$\(GO\) (test .*) -timeout`).FindSubmatch(makefile)
	tags := regexp.MustCompile(`(?m)^TAGS +:= (\S+)$`).FindSubmatch(makefile)
	require.NotNil(t, flags)
	require.NotNil(t, tags)
	tests := "go " + strings.ReplaceAll(string(flags[1]), "$(TAGS)", string(tags[1])) + " ./providers/"
	for _, page := range []string{"docs/developing-a-provider.md", "docs/developing.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join(root, page))
		require.NoError(t, err)
		lines := regexp.MustCompile(`(?m)^go test .*$`).FindAllString(string(text), -1)
		require.NotEmpty(t, lines, page)
		for _, line := range lines {
			assert.True(t, strings.HasPrefix(line, tests), "%s: %s", page, line)
		}
		if page == "docs/developing-a-provider.md" {
			assert.Contains(t, string(text), "```\nmake new-provider NAME=toy\n"+strings.Join(nextCommands("toy"), "\n")+"\n```\n")
		}
	}
}

// TestModuleOfItsOwn: a separate module's files contain its name, nothing of the template, and use this module from the checkout.
func TestModuleOfItsOwn(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	files, err := ModuleFiles("toy", "example.com/toy-ccm", root, dir)
	require.NoError(t, err)
	for path, text := range files {
		assert.NotContains(t, strings.ToLower(path+text), placeholder)
		assert.NotContains(t, path+text, program)
		assert.NotContains(t, strings.ReplaceAll(path, "testdata/transcripts", ""), "testdata")
	}
	assert.Contains(t, files["main.go"], "Command toy-ccm is")
	assert.Contains(t, files["main.go"], `_ "example.com/toy-ccm/toy"`)
	assert.Contains(t, files["toy/conformance_test.go"], `"example.com/toy-ccm/toy/toysim"`)
	_, replaced, ok := strings.Cut(files["go.mod"], "replace "+checkout+" => ")
	require.True(t, ok)
	assert.FileExists(t, filepath.Join(dir, strings.TrimSpace(replaced), "build", "newprovider", "main.go"))

	for _, wrong := range []string{"toy", "toy/ccm", "example.com", "example.com/toy ccm", "../toy"} {
		_, err := ModuleFiles("toy", wrong, root, dir)
		require.ErrorContains(t, err, "such as example.com/toy-ccm", wrong)
	}
	_, err = ModuleFiles("Toy", "example.com/toy-ccm", root, dir)
	require.ErrorContains(t, err, "make new-provider NAME=toy")
	_, err = run("toy", "example.com/toy-ccm", "")
	require.ErrorContains(t, err, "MODULE and DIR belong together")
}

// copied returns the folder of a copy of the sources.
func copied(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	walk(t, root, func(path string) {
		text, err := os.ReadFile(filepath.Join(root, path))
		require.NoError(t, err)
		to := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(to), 0o755))
		require.NoError(t, os.WriteFile(to, text, 0o600))
	})
	return dir
}

// changed returns the files of a copy that differ from the sources.
func changed(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	walk(t, dir, func(path string) {
		have, err := os.ReadFile(filepath.Join(dir, path))
		require.NoError(t, err)
		if was, err := os.ReadFile(filepath.Join(root, path)); err != nil || !bytes.Equal(was, have) {
			list = append(list, filepath.ToSlash(path))
		}
	})
	require.NotEmpty(t, list)
	return list
}

// walk visits the files of a checkout, except build results.
func walk(t *testing.T, dir string, visit func(path string)) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		switch {
		case entry.IsDir() && slices.Contains([]string{".git", "bin", "dist"}, relative):
			return fs.SkipDir
		case entry.Type().IsRegular() && relative != ".git":
			visit(relative)
		}
		return nil
	}))
}

// goTool runs the go command with the project's flags, so that it can use the build cache.
func goTool(t *testing.T, dir string, args ...string) {
	t.Helper()
	flags := []string{args[0], "-trimpath"}
	if !slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "-tags=") }) {
		flags = append(flags, "-tags=grpcnotrace")
	}
	cmd := exec.CommandContext(t.Context(), "go", append(flags, args[1:]...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "go %s\n%s", strings.Join(args, " "), out)
}
