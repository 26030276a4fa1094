// Command affected prints the additional make arguments for .ci/run, one call a line. It compares the working folder with the commit where
// it left the main branch, and the main branch with its state a day before. If either is unknown, everything runs.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/anyccm/cloud-controller-manager/build/selection"
)

// baseVariable names a commit or branch to compare with instead of the main branch.
const baseVariable = "CI_BASE"

func main() {
	if err := run(context.Background(), ".", os.Getenv(baseVariable), os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir, base string, out, log io.Writer) error {
	clouds, err := cloudsIn(dir)
	if err != nil {
		return err
	}
	s := choose(ctx, dir, base, clouds)
	fmt.Fprintf(log, "Besides make test: %s.\n", s.Why)
	for _, line := range s.Lines() {
		fmt.Fprintln(out, line)
	}
	return nil
}

// choose never fails: whatever it cannot determine leads to testing everything.
func choose(ctx context.Context, dir, base string, clouds []string) selection.Selection {
	commit, err := mergeBase(ctx, dir, base)
	if err != nil {
		return selection.Everything(clouds, "everything, because "+err.Error())
	}
	changed, err := changedFiles(ctx, dir, commit)
	if err != nil {
		return selection.Everything(clouds, "everything, because "+err.Error())
	}
	if len(changed) > 0 {
		return selection.Decide(changed, clouds)
	}
	return mainBranch(ctx, dir, clouds)
}

// recently is the age of the commit with which the main branch is compared.
const recently = 24 * time.Hour

// mainBranch selects the tests for recent changes of the main branch itself.
func mainBranch(ctx context.Context, dir string, clouds []string) selection.Selection {
	before, err := commitBefore(ctx, dir, recently)
	if err != nil {
		return selection.Everything(clouds, "everything, because "+err.Error())
	}
	changed, err := changedFiles(ctx, dir, before)
	if err != nil {
		return selection.Everything(clouds, "everything, because "+err.Error())
	}
	return selection.Decide(changed, clouds)
}

// commitBefore returns the newest commit before all those of the given period up to HEAD. Only first parents count, because merged commits
// may be older than their merge.
func commitBefore(ctx context.Context, dir string, age time.Duration) (string, error) {
	out, err := git(ctx, dir, "log", "--first-parent", "--format=%H %ct", "HEAD")
	if err != nil {
		return "", err
	}
	lines := strings.Fields(string(out))
	var newest int64
	before := ""
	for i := 0; i+1 < len(lines); i += 2 {
		seconds, err := strconv.ParseInt(lines[i+1], 10, 64)
		if err != nil {
			return "", fmt.Errorf("the time of commit %s: %w", lines[i], err)
		}
		switch {
		case i == 0:
			newest = seconds
		case newest-seconds < int64(age.Seconds()):
			before = "" // a later one is recent
		case before == "":
			before = lines[i]
		}
	}
	if before == "" {
		return "", fmt.Errorf("no commit is known that is %s older than this one", age)
	}
	return before, nil
}

// cloudsIn returns the folders of clouds.
func cloudsIn(dir string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(dir, "providers"))
	if err != nil {
		return nil, fmt.Errorf("listing the providers: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "kit" {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// mergeBase returns the commit where the working folder left the base. A base from the environment is the only candidate, so that a typo is
// not hidden.
func mergeBase(ctx context.Context, dir, base string) (string, error) {
	candidates := []string{"refs/remotes/origin/main", "refs/heads/main"}
	if base != "" {
		candidates = []string{base}
	}
	for _, c := range candidates {
		if out, err := git(ctx, dir, "merge-base", "HEAD", c); err == nil && len(out) > 0 {
			return strings.TrimSpace(string(out)), nil
		}
	}
	return "", errors.New("no common commit is known with any of: " + strings.Join(candidates, ", "))
}

// changedFiles returns the paths that differ from a commit, including untracked ones.
func changedFiles(ctx context.Context, dir, commit string) ([]string, error) {
	tracked, err := git(ctx, dir, "diff", "--name-only", "--no-renames", "--no-ext-diff", "--ignore-submodules=none", "-z", commit)
	if err != nil {
		return nil, err
	}
	untracked, err := git(ctx, dir, "ls-files", "--others", "--exclude-standard", "-z")
	if err != nil {
		return nil, err
	}
	var paths []string
	for path := range bytes.SplitSeq(append(tracked, untracked...), []byte{0}) {
		if len(path) > 0 {
			paths = append(paths, string(path))
		}
	}
	return paths, nil
}

func git(ctx context.Context, dir string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, "git", args...) //nolint:gosec // the arguments are ours, and a base that the caller chose
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return out, nil
}
