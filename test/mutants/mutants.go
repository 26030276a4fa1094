package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:embed *.yaml
var lists embed.FS

// mutant is a fault in one place of the sources, and the test that has to catch it.
type mutant struct {
	// Name says what the program does then.
	Name string `json:"name"`
	// Replace takes the place of Find, which the file has exactly once.
	File    string `json:"file"`
	Find    string `json:"find"`
	Replace string `json:"replace"`
	// Run names tests of Package, as go test -run does; Says matches what they print when they fail for the right reason.
	Package string `json:"package"`
	Run     string `json:"run"`
	Says    string `json:"says"`
	// Tier is "all" where only make test-all catches it, and Reason why.
	Tier   string `json:"tier"`
	Reason string `json:"reason"`

	area string
}

// load reads all lists; the name of a file is the area of its mutants.
func load() ([]mutant, error) {
	files, err := lists.ReadDir(".")
	if err != nil {
		return nil, err
	}
	var all []mutant
	for _, file := range files {
		text, err := lists.ReadFile(file.Name())
		if err != nil {
			return nil, err
		}
		var list []mutant
		if err := yaml.UnmarshalStrict(text, &list); err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		for _, m := range list {
			m.area = strings.TrimSuffix(file.Name(), ".yaml")
			all = append(all, m)
		}
	}
	return all, nil
}

// findRoot returns the folder of the module.
func findRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if filepath.Dir(dir) == dir {
			return "", errors.New("run this in a checkout: no folder above has a go.mod")
		}
		dir = filepath.Dir(dir)
	}
}

// problems lists faults that make mutants useless: changed source text, removed tests, names that are not unique.
func problems(root string, mutants []mutant) []error {
	var all []error
	seen := map[string]bool{}
	for _, m := range mutants {
		if seen[m.Name] {
			all = append(all, fmt.Errorf("%s: two are named %q", m.area, m.Name))
		}
		seen[m.Name] = true
		if _, err := m.apply(root); err != nil {
			all = append(all, fmt.Errorf("%s: %s: %w", m.area, m.Name, err))
		}
		if err := m.checkTest(root); err != nil {
			all = append(all, fmt.Errorf("%s: %s: %w", m.area, m.Name, err))
		}
	}
	return all
}

// apply returns the file with the fault in it.
func (m mutant) apply(root string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(root, m.File))
	if err != nil {
		return nil, err
	}
	if m.Find == "" || m.Find == m.Replace {
		return nil, errors.New("find and replace have to be two texts")
	}
	if n := bytes.Count(text, []byte(m.Find)); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times; exactly once is needed", m.File, m.Find, n)
	}
	return bytes.Replace(text, []byte(m.Find), []byte(m.Replace), 1), nil
}

var testName = regexp.MustCompile(`(?m)^func (Test\w+)\(`)

// checkTest sees that the test is there and that the row is complete.
func (m mutant) checkTest(root string) error {
	if m.Name == "" || m.Run == "" || m.Says == "" {
		return errors.New("name, run and says are needed")
	}
	if m.Tier != "" && (m.Tier != "all" || m.Reason == "") {
		return fmt.Errorf("tier %q: leave it out, or say all with the reason", m.Tier)
	}
	says, err := regexp.Compile(m.Says)
	switch {
	case err != nil:
		return err
	case says.MatchString(anyFailure), says.MatchString("--- FAIL: " + strings.NewReplacer("^", "", "$", "").Replace(m.Run) + " (0.00s)"):
		return fmt.Errorf("says %q: any failure of the test satisfies it; quote a value, a message or the assertion", m.Says)
	}
	if err := errors.Join(m.checkAssertion(root, says), m.checkTranscript(root, says)); err != nil {
		return err
	}
	top, err := m.topLevel()
	if err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(root, m.Package, "*_test.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		for _, found := range testName.FindAllSubmatch(text, -1) {
			if top.Match(found[1]) {
				return nil
			}
		}
	}
	return fmt.Errorf("%s has no test %s", m.Package, m.Run)
}

var assertion = regexp.MustCompile(`\b(assert|require)\\?\.`)

// checkAssertion sees that an assertion whose source the row quotes is still there, in the package or in the conformance suite.
func (m mutant) checkAssertion(root string, says *regexp.Regexp) error {
	if !assertion.MatchString(m.Says) {
		return nil
	}
	for _, pattern := range []string{filepath.Join(m.Package, "*_test.go"), "providers/kit/conformance/*.go"} {
		files, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		for _, file := range files {
			if text, err := os.ReadFile(file); err != nil || says.Match(text) {
				return err
			}
		}
	}
	return fmt.Errorf("says %q: no test has this assertion", m.Says)
}

var scenario = regexp.MustCompile(`\^Transcripts\$/\^([a-z0-9-]+)\$$`)

// checkTranscript refuses words of the transcript that the test expects, which is printed whatever differs from it.
func (m mutant) checkTranscript(root string, says *regexp.Regexp) error {
	name := scenario.FindStringSubmatch(m.Run)
	if name == nil {
		return nil
	}
	files, err := filepath.Glob(filepath.Join(root, m.Package, "testdata", "transcripts*", name[1]+".*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		if text, err := os.ReadFile(file); err != nil || says.Match(text) {
			return errors.Join(err, fmt.Errorf("says %q: the expected transcript has it; begin with (?m)^\\s+[-+] for a line that differs", m.Says))
		}
	}
	return nil
}

// topLevel matches the name of the test without its parts.
func (m mutant) topLevel() (*regexp.Regexp, error) {
	top, _, _ := strings.Cut(m.Run, "/")
	return regexp.Compile(top)
}

// outcome is the result of a mutant.
type outcome string

const (
	caught   outcome = "caught"
	survived outcome = "SURVIVED"
	other    outcome = "OTHER"
	broken   outcome = "BROKEN"
)

type result struct {
	outcome outcome
	detail  string
}

// try seeds a fault and runs the test that is named for it; where that passes, all tests of the package.
func try(ctx context.Context, root string, m mutant, onlyNamed bool) result {
	dir, err := os.MkdirTemp("", "mutant-")
	if err != nil {
		return result{broken, err.Error()}
	}
	defer os.RemoveAll(dir)
	overlay, err := m.writeOverlay(root, dir)
	if err != nil {
		return result{broken, err.Error()}
	}
	output, err := m.runTests(ctx, root, overlay, m.Run)
	r := m.judge(quoteAssertions(root, output), err)
	if r.outcome != survived || onlyNamed {
		return r
	}
	output, err = m.runTests(ctx, root, overlay, "")
	if err == nil {
		return result{survived, "  no test of the package fails"}
	}
	return result{survived, fmt.Sprintf("  it is caught by another test: %s", strings.Join(failures(output), " "))}
}

// writeOverlay writes the file with the fault, and what makes go read it.
func (m mutant) writeOverlay(root, dir string) (string, error) {
	text, err := m.apply(root)
	if err != nil {
		return "", err
	}
	file := filepath.Join(dir, filepath.Base(m.File))
	if err := os.WriteFile(file, text, 0o600); err != nil {
		return "", err
	}
	document, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root, m.File): file}})
	if err != nil {
		return "", err
	}
	overlay := filepath.Join(dir, "overlay.json")
	return overlay, os.WriteFile(overlay, document, 0o600)
}

// anyFailure holds the words that assertions print for any failure, and which therefore identify none.
const anyFailure = `Not equal: expected: actual  : Should not be: Should be empty, but was Should be true Should be false Should be zero
An error is expected but got nil. Received unexpected error: should have 1 item(s), but has 0 should have 0 item(s) should have 2 item(s)
does not contain should not contain is not less than or equal to is not greater than elements differ Should be zero, but was 1
expected: true actual  : false expected: false expected: []string{ expected: 1 want`

var traceLine = regexp.MustCompile(`\s` + regexp.QuoteMeta("github.com/anyccm/cloud-controller-manager/") + `(\S+\.go):(\d+)`)

// quoteAssertions adds to the output of a test the source of what failed: an assertion that two things are equal tells nothing else of
// what it is about.
func quoteAssertions(root, output string) string {
	var quoted []string
	for _, at := range traceLine.FindAllStringSubmatch(output, -1) {
		text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(at[1])))
		number, numberErr := strconv.Atoi(at[2])
		lines := strings.Split(string(text), "\n")
		if err == nil && numberErr == nil && number > 0 && number <= len(lines) {
			quoted = append(quoted, at[1]+": "+strings.TrimSpace(lines[number-1]))
		}
	}
	slices.Sort(quoted)
	return output + "\n" + strings.Join(slices.Compact(quoted), "\n")
}

// runTests runs tests of the package in the mutant's tier. All but that package is compiled with the flags of make test, so that the build
// cache is shared.
func (m mutant) runTests(ctx context.Context, root, overlay, tests string) (string, error) {
	args := []string{
		"test", "-overlay=" + overlay, "-vet=off", "-trimpath", "-tags", "grpcnotrace", "-gcflags=-l -dwarf=false", "-ldflags=-w", "-failfast",
		"-v", "-count=1", "-timeout", "10m",
	}
	if tests != "" {
		args = append(args, "-run", tests)
	}
	cmd := exec.CommandContext(ctx, "go", append(args, "./"+m.Package)...)
	cmd.Dir = root
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "ANYCCM_TIER="+m.Tier)
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// progressLine matches lines that go test -v prints of a test whether it fails or not.
var progressLine = regexp.MustCompile(`(?m)^\s*(=== |--- PASS|--- SKIP).*$`)

// judge says what a run of the named test shows.
func (m mutant) judge(output string, err error) result {
	switch {
	case err == nil && !m.ran(output):
		return result{broken, "  no test matches " + m.Run}
	case err == nil:
		return result{survived, ""}
	case len(failures(output)) == 0: // it does not compile, or was interrupted
		return result{broken, lastLines(output)}
	case !regexp.MustCompile(m.Says).MatchString(progressLine.ReplaceAllString(output, "")):
		return result{other, lastLines(output)}
	}
	return result{caught, lastLines(output)}
}

var begunTest = regexp.MustCompile(`(?m)^=== RUN +(\S+)`)

// ran reports whether a test ran that is as deep as the one that is named: its parents run also where no part of them matches.
func (m mutant) ran(output string) bool {
	return slices.ContainsFunc(begunTest.FindAllStringSubmatch(output, -1), func(begun []string) bool {
		return strings.Count(begun[1], "/") >= strings.Count(m.Run, "/")
	})
}

var failedTest = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)`)

// failures are the names of the tests that failed.
func failures(output string) []string {
	var names []string
	for _, found := range failedTest.FindAllStringSubmatch(output, -1) {
		names = append(names, found[1])
	}
	return slices.Compact(names)
}

// shownLines is how much is shown of a test that failed for another reason.
const shownLines = 40

func lastLines(output string) string {
	lines := strings.Split(strings.TrimSpace(output), "\n")
	return "  " + strings.Join(lines[max(0, len(lines)-shownLines):], "\n  ")
}
