package pins

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// oneCloud matches rows that are about what some clouds alone have. They name these.
var oneCloud = regexp.MustCompile(`^\| [^|]*(AWS|Azure|CloudStack|DigitalOcean|Google|IBM|Linode|OpenStack|Oracle|vSphere|NSX)`)

// TestSecurityPage: every defence names its tests, and these exist. Where it is about all clouds, a part of the suite or of the code that
// they share holds it, and of who may connect a part of the suite.
func TestSecurityPage(t *testing.T) {
	t.Parallel()
	page := read(t, "docs/security.md")
	begin, end := strings.Index(page, "## What is defended"), strings.Index(page, "## What is not defended")
	require.Less(t, begin, end)
	tests, cases, parts := testNames(t), conformanceCases(t), conformanceParts(t)
	name := regexp.MustCompile("`(Test[A-Za-z0-9]+)(?:/([A-Za-z]+))?(?:/([^`]+))?`")
	header, lines, connects := regexp.MustCompile(`^\| (defence|case|---) `), 0, false
	for line := range strings.Lines(page[begin:end]) {
		connects = connects || strings.HasPrefix(line, "## Who may connect")
		if !strings.HasPrefix(line, "| ") || header.MatchString(line) {
			continue
		}
		lines++
		found := name.FindAllStringSubmatch(line, -1)
		assert.NotEmpty(t, found, "no test holds: %s", line)
		shared := false
		for _, f := range found {
			ofAll, exists := tests[f[1]]
			suite := f[1] == "TestConformance"
			assert.True(t, exists, "there is no %s, which is to hold: %s", f[1], line)
			assert.True(t, !suite || parts[f[2]], "conformance has no part %q, which is to hold: %s", f[2], line)
			assert.True(t, f[3] == "" || cases.MatchString(f[3]), "conformance has no case %q, which is to hold: %s", f[3], line)
			shared = shared || suite || ofAll && !connects
		}
		assert.True(t, shared || oneCloud.MatchString(line), "only tests of some clouds hold: %s", line)
	}
	assert.Greater(t, lines, 12, "the page was read")
}

// testNames are the names of all tests of this repository. Those of code that clouds share, or that is about no cloud, are true.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	test := regexp.MustCompile(`(?m)^func (Test[A-Za-z0-9]+)\(t \*testing\.T\)`)
	names := map[string]bool{}
	require.NoError(t, filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && (entry.Name() == ".git" || entry.Name() == "bin" || entry.Name() == "dist"):
			return filepath.SkipDir
		case entry.IsDir() || !strings.HasSuffix(path, "_test.go"):
			return nil
		}
		text, err := os.ReadFile(path)
		for _, f := range test.FindAllStringSubmatch(string(text), -1) {
			names[f[1]] = names[f[1]] || !strings.Contains(path, "/providers/") || strings.Contains(path, "/providers/kit/")
		}
		return err
	}))
	return names
}

// conformanceParts are the names of the parts of the conformance suite.
func conformanceParts(t *testing.T) map[string]bool {
	t.Helper()
	parts := map[string]bool{"ServiceFields": true}
	for _, f := range regexp.MustCompile(`\{name: "([A-Za-z]+)"`).FindAllStringSubmatch(read(t, "providers/kit/conformance/conformance.go"), -1) {
		parts[f[1]] = true
	}
	return parts
}

// conformanceCases match the names of cases of the conformance suite: its texts, with anything for what is filled in.
func conformanceCases(t *testing.T) *regexp.Regexp {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "providers/kit/conformance/*.go"))
	require.NoError(t, err)
	var names []string
	for _, path := range files {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, f := range regexp.MustCompile(`"([A-Za-z][^"\\\n]+)"`).FindAllStringSubmatch(string(text), -1) {
			names = append(names, regexp.MustCompile(`%[dst]`).ReplaceAllString(regexp.QuoteMeta(f[1]), ".+"))
		}
	}
	return regexp.MustCompile("^(" + strings.Join(names, "|") + ")$")
}
