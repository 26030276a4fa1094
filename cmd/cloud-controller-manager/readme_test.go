package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestReadme: the README answers a newcomer's questions in this order, and links every page in one of its groups.
func TestReadme(t *testing.T) {
	t.Parallel()
	readme := filepath.Join(root, "README.md")
	var headings, groups []string
	for _, line := range prose(t, readme) {
		if h, found := strings.CutPrefix(line, "## "); found {
			headings = append(headings, h)
		}
		if group := regexp.MustCompile(`^([A-Z][A-Za-z ]+):$`).FindStringSubmatch(line); group != nil {
			groups = append(groups, group[1])
		}
	}
	assert.Equal(t, []string{"Two commands", "Why not my cloud's own controller", "Five-minute tour", "Portable annotations", "Status", "Documentation"}, headings)
	assert.Equal(t, []string{"Install", "Operate", "Write Services", "Develop"}, groups)
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	_, list, found := strings.Cut(string(text), "\n## Documentation\n")
	require.True(t, found)
	for _, pattern := range []string{"docs/*.md", "*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		for _, page := range found {
			path, err := filepath.Rel(root, page)
			require.NoError(t, err)
			assert.True(t, path == "README.md" || strings.Contains(list, "]("+filepath.ToSlash(path)+")"), "%s is in no group of the README", path)
		}
	}
}

// TestChangelog: the first release is told in 40 lines, and every change after it in one.
func TestChangelog(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(root, "CHANGELOG.md"))
	require.NoError(t, err)
	releases := strings.Split(string(text), "\n## ")[1:]
	require.NotEmpty(t, releases)
	for i, release := range releases {
		_, changes, _ := strings.Cut(release, "\n")
		lines := strings.Split(strings.TrimSpace(strings.ReplaceAll(changes, "\n\n", "\n")), "\n")
		if i == len(releases)-1 {
			assert.LessOrEqual(t, len(lines), 40)
			continue
		}
		for _, line := range lines {
			assert.True(t, strings.HasPrefix(line, "- "), "one line a change: %s", line)
		}
	}
}

var (
	command    = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(?:(?:bin/)?cloud-controller-manager|curl|go|helm|kubectl|make) `)
	quoted     = regexp.MustCompile(`'[^']*'|"[^"]*"`)
	surprising = regexp.MustCompile(`[][*?{}]|\s#`)
)

// TestCommandsInAnyShell: commands are typed, or copied, as they stand there. zsh takes the mark of a comment behind a command for an
// argument, and refuses patterns without a match; bash makes two words of a list in braces.
func TestCommandsInAnyShell(t *testing.T) {
	t.Parallel()
	commands := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for i, block := range strings.Split(string(text), "```") {
			language, body, _ := strings.Cut(block, "\n")
			if i%2 == 0 || language != "" {
				continue
			}
			for line := range strings.Lines(strings.ReplaceAll(body, "\\\n", " ")) {
				line = strings.TrimSpace(line)
				if command.MatchString(line) {
					commands++
					assert.NotRegexp(t, surprising, quoted.ReplaceAllString(line, ""), page)
				}
			}
		}
	}
	assert.Greater(t, commands, 100)
}
