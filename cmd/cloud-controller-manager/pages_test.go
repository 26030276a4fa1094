package main

import (
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/cmd/cloud-controller-manager/app"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// pages lists the documentation pages.
func pages(t *testing.T) (all []string) {
	t.Helper()
	for _, pattern := range []string{"docs/*.md", "docs/providers/*.md", "*.md", "charts/*/README.md", ".github/*.md"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		require.NoError(t, err)
		all = append(all, found...)
	}
	return all
}

// call matches a line that calls the program, alone or at the end of a pipe.
var call = regexp.MustCompile(`^(?:[A-Z_]+=\S+ )*(?:[^#]*\| )?(?:bin/)?cloud-controller-manager( [^#|>]*)`)

// callVariable holds the arguments, one a line, that make the test binary act as the program.
const callVariable = "ANYCCM_TEST_CALL"

// TestCallsOfPages: every call of the program in a page has a known command and known flags. Each runs in its own process, because the
// program can run only once in one.
func TestCallsOfPages(t *testing.T) {
	if args, ok := os.LookupEnv(callVariable); ok {
		os.Exit(app.Main(registry.Linked(), strings.Split(args, "\n"), os.Stdout, os.Stderr))
	}
	t.Parallel()
	calls := 0
	for _, page := range pages(t) {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		for line := range strings.Lines(strings.ReplaceAll(string(text), "\\\n", " ")) {
			m := call.FindStringSubmatch(strings.TrimSpace(line))
			if m == nil {
				continue
			}
			calls++
			args := strings.Fields(strings.NewReplacer("<cloud>", registry.Linked().Names()[0], "...", "").Replace(m[1]))
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestCallsOfPages$")
			cmd.Env = append(os.Environ(), callVariable+"="+strings.Join(append(args, "--help"), "\n"))
			said, err := cmd.CombinedOutput()
			assert.NoError(t, err, "%s: %s\n%s", page, line, said)
		}
	}
	assert.Greater(t, calls, 12)
}

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	literal  = regexp.MustCompile("`[^`]*`")
	title    = regexp.MustCompile(`^#+ (.*)`)
	unspoken = regexp.MustCompile(`[^\p{L}\p{N}_\- ]`)
)

// prose returns the lines of a page outside code blocks.
func prose(t *testing.T, page string) (lines []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	fenced := false
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			fenced = !fenced
		} else if !fenced {
			lines = append(lines, strings.TrimSpace(line))
		}
	}
	return lines
}

// anchors returns the link targets that a page's headings create.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	all := map[string]bool{}
	for _, line := range prose(t, page) {
		if m := title.FindStringSubmatch(line); m != nil {
			anchor := strings.ReplaceAll(unspoken.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-")
			for n, again := 1, anchor; all[anchor]; n++ {
				anchor = again + "-" + strconv.Itoa(n)
			}
			all[anchor] = true
		}
	}
	return all
}

// TestLinks: links between pages, to files and to headings have a target.
func TestLinks(t *testing.T) {
	t.Parallel()
	count := 0
	for _, page := range pages(t) {
		for _, line := range prose(t, page) {
			for _, m := range link.FindAllStringSubmatch(literal.ReplaceAllString(line, ""), -1) {
				path, anchor, _ := strings.Cut(m[1], "#")
				if strings.Contains(path, ":") {
					continue
				}
				count++
				target := page
				if path != "" {
					target = filepath.Join(filepath.Dir(page), path)
				}
				if _, err := os.Stat(target); !assert.NoError(t, err, "%s: %s", page, m[1]) {
					continue
				}
				assert.True(t, anchor == "" || anchors(t, target)[anchor], "%s: %s: there is no such heading", page, m[1])
			}
		}
	}
	assert.Greater(t, count, 200)
}

// groupsOfDifferences are the headings of differences, in order.
var groupsOfDifferences = []string{"Nodes", "Load balancers", "Addresses", "Firewalls", "Routes and pod ranges", "Settings and calls"}

// TestDifferencesHaveOneHeading: each cloud's page lists its differences only under the heading that other pages link to. Each is in a
// group, and everything that the cloud serves has one.
func TestDifferencesHaveOneHeading(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		lines := prose(t, filepath.Join(root, "docs", "providers", p.Name+".md"))
		var found, groups []string
		items, inside := map[string]int{}, false
		for _, line := range lines {
			if m := title.FindStringSubmatch(line); m != nil {
				if strings.HasPrefix(m[1], "Differences from") {
					found = append(found, m[1])
				}
				if inside = inside && strings.HasPrefix(line, "### "); inside {
					groups = append(groups, m[1])
				}
				inside = inside || strings.HasPrefix(line, "## Differences from")
			} else if inside && strings.HasPrefix(line, "- ") {
				items[strings.Join(groups[max(0, len(groups)-1):], "")]++
			}
		}
		assert.Equal(t, []string{"Differences from the cloud's own controller"}, found, p.Name)
		want := slices.DeleteFunc(slices.Clone(groupsOfDifferences), func(group string) bool { return !slices.Contains(groups, group) })
		assert.Equal(t, want, groups, "%s: groups of differences are %q, in this order", p.Name, groupsOfDifferences)
		assert.ElementsMatch(t, groups, slices.Collect(maps.Keys(items)), "%s: each difference is in a group, and each group has one", p.Name)
		for group, feature := range map[string]registry.Support{"Nodes": p.Features.Instances, "Load balancers": p.Features.LoadBalancers} {
			assert.True(t, feature != registry.Done || slices.Contains(groups, group), "%s: nothing is said of %s", p.Name, group)
		}
	}
}

// TestSampleConfigurations: the program starts with the cloud config of each page, and knows all of its keys.
func TestSampleConfigurations(t *testing.T) {
	t.Parallel()
	for _, p := range registry.Linked().Providers() {
		in := registry.Inputs{}
		in.LookupEnv = func(name string) (string, bool) { // what the Secret of the page about installing holds
			for _, c := range p.Installation.Credentials {
				if name == strings.TrimSuffix(c.Env, "_FILE") {
					return "secret", true
				}
			}
			for _, set := range p.Installation.Set {
				if value, found := strings.CutPrefix(set, "options."+name+"="); found {
					return value, true
				}
			}
			return "", false
		}
		if p.Installation.Config.Format != registry.NoConfig {
			language := strings.ToLower(string(p.Installation.Config.Format))
			blocks, err := expectations.PageBlocks(root, p.Name, "sample", language)
			require.NoError(t, err)
			require.NotEmpty(t, blocks, p.Name)
			in.File = []byte(blocks[len(blocks)-1])
		}
		assert.NoError(t, p.Validate(in), p.Name)
		in.File = append(in.File, "[No Such"...)
		assert.True(t, p.Installation.Config.Format == registry.NoConfig || p.Validate(in) != nil, "%s: what is no cloud config is taken", p.Name)
	}
}

// TestExamplesOfPages: the Services of each page are served, and nothing is told of them; values are the chart's, and defaults are legal.
func TestExamplesOfPages(t *testing.T) {
	t.Parallel()
	charts, err := os.ReadFile(filepath.Join(root, "charts", "cloud-controller-manager", "values.yaml"))
	require.NoError(t, err)
	known := keysOf(t, string(charts))
	var serving []registry.Provider
	for _, p := range registry.Linked().Providers() {
		if p.Features.LoadBalancers == registry.Done {
			serving = append(serving, p)
		}
	}
	found := map[string]int{}
	for _, page := range pages(t) {
		name := strings.TrimSuffix(filepath.Base(page), ".md")
		clouds, samples := serving, []string{}
		if p, err := registry.Linked().Lookup(name); err == nil && filepath.Base(filepath.Dir(page)) == "providers" {
			clouds = []registry.Provider{p}
			blocks, err := expectations.PageBlocks(root, name, "services", "yaml")
			require.NoError(t, err)
			require.Len(t, blocks, len(expectations.PageNames(p)), name)
			samples, err = expectations.PageBlocks(root, name, "sample", "yaml")
			require.NoError(t, err)
		}
		for _, text := range yamlBlocks(t, page) {
			var object metav1.TypeMeta
			_ = yaml.Unmarshal([]byte(text), &object) // a list has no kind
			switch {
			case object.Kind == "Service":
				found["Services"]++
				for _, p := range clouds {
					requireServed(t, p, text)
				}
			case object.Kind != "" || slices.Contains(samples, text): // TestSampleConfigurations has these, and test/chart
			case strings.HasPrefix(text, "- "):
				found["defaults"]++
				_, err := defaults.Parse([]byte(text), func(given map[string]string) (err error) {
					for _, p := range serving { // the page does not say whose they are
						if err = registry.CheckDefaults(p, registry.Inputs{}, given); err == nil {
							return nil
						}
					}
					return err
				})
				require.NoError(t, err, "%s: %s", page, text)
			default:
				assert.Subset(t, known, keysOf(t, text), "%s: %s", page, text)
			}
		}
	}
	assert.Greater(t, found["Services"], 30, "the generated ones, and those by hand")
	assert.Equal(t, 1, found["defaults"])
}

// yamlBlocks returns the blocks of a page whose fence names YAML.
func yamlBlocks(t *testing.T, page string) (blocks []string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	for _, block := range strings.Split(string(text), "```yaml\n")[1:] {
		block, _, _ = strings.Cut(block, "```")
		blocks = append(blocks, block)
	}
	return blocks
}

// keysOf returns the keys at the top of a document.
func keysOf(t *testing.T, text string) []string {
	t.Helper()
	var values map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &values), text)
	return slices.Collect(maps.Keys(values))
}

func requireServed(t *testing.T, p registry.Provider, text string) {
	t.Helper()
	s := &v1.Service{}
	require.NoError(t, yaml.UnmarshalStrict([]byte(text), s), text)
	registry.AsStored(s)
	warnings, err := registry.CheckServiceOf(p, registry.Inputs{}, s)
	require.NoError(t, err, text)
	assert.NoError(t, warnings, "%s: %s", p.Name, text)
}
