package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repository is a git repository with two clouds and a kit, on a branch that left main. It has no settings of this machine's user.
func repository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	command(t, dir, "init", "-q", "-b", "main")
	for _, path := range []string{"providers/kit/kit.go", "providers/aws/aws.go", "providers/linode/linode.go", "README.md", "Makefile"} {
		edit(t, dir, path)
	}
	commit(t, dir)
	command(t, dir, "checkout", "-q", "-b", "change")
	return dir
}

func command(t *testing.T, dir string, args ...string) {
	t.Helper()
	commandAt(t, dir, time.Date(2026, 1, 10, 12, 0, 0, 0, time.UTC), args...)
}

// commandAt is command at a time of its own.
func commandAt(t *testing.T, dir string, now time.Time, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", append([]string{"-c", "user.name=x", "-c", "user.email=x@example.com", "-c", "commit.gpgsign=false"}, args...)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "GIT_COMMITTER_DATE="+now.Format(time.RFC3339))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func commit(t *testing.T, dir string) {
	t.Helper()
	command(t, dir, "add", "-A")
	command(t, dir, "commit", "-q", "-m", "x")
}

// edit changes a file, or writes it.
func edit(t *testing.T, dir, path string) {
	t.Helper()
	path = filepath.Join(dir, path)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	was, err := os.ReadFile(path)
	if err != nil {
		was = nil
	}
	require.NoError(t, os.WriteFile(path, append(was, 'x'), 0o600))
}

func printed(t *testing.T, dir, base string) string {
	t.Helper()
	var out, log strings.Builder
	require.NoError(t, run(t.Context(), dir, base, &out, &log))
	assert.Contains(t, log.String(), "Besides make test: ")
	return out.String()
}

const (
	aws        = "test-cloud CLOUD=aws\n"
	linode     = "test-cloud CLOUD=linode\n"
	builds     = "test-builds\n"
	everything = aws + linode + builds
)

// TestAffected: what a branch changed since it left main is looked at, committed or not.
func TestAffected(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	edit(t, dir, "providers/linode/linode.go")
	assert.Equal(t, linode, printed(t, dir, ""), "not committed")
	commit(t, dir)
	assert.Equal(t, linode, printed(t, dir, ""), "committed")
	edit(t, dir, "providers/aws/new.go")
	assert.Equal(t, aws+linode, printed(t, dir, ""), "both clouds, one of them by a file that git does not know")
	require.NoError(t, os.Remove(filepath.Join(dir, "providers/aws/new.go")))

	command(t, dir, "mv", "providers/linode/linode.go", "providers/kit/linode.go")
	assert.Equal(t, linode+builds, printed(t, dir, ""), "a file that moved counts at both ends")
	command(t, dir, "reset", "-q", "--hard")
	edit(t, dir, "README.md")
	command(t, dir, "checkout", "-q", "main")
	command(t, dir, "checkout", "-q", "-b", "words")
	assert.Empty(t, printed(t, dir, ""), "words alone")
}

// TestMainBranch: the main branch is compared with what it was a day before.
func TestMainBranch(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	command(t, dir, "checkout", "-q", "main")
	assert.Equal(t, everything, printed(t, dir, ""), "nothing is known that is older")
	began := time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		after time.Duration
		path  string
		want  string
	}{
		{0, "providers/aws/aws.go", aws},
		{20 * time.Hour, "providers/linode/linode.go", aws + linode},
		{30 * time.Hour, "README.md", linode},
		{60 * time.Hour, "Makefile", builds},
	} {
		edit(t, dir, step.path)
		command(t, dir, "add", "-A")
		commandAt(t, dir, began.Add(step.after), "commit", "-q", "-m", "x")
		assert.Equal(t, step.want, printed(t, dir, ""), step.path)
	}

	command(t, dir, "checkout", "-q", "-b", "old", "HEAD~1")
	edit(t, dir, "providers/aws/aws.go")
	command(t, dir, "add", "-A")
	commandAt(t, dir, began.Add(31*time.Hour), "commit", "-q", "-m", "x")
	command(t, dir, "checkout", "-q", "main")
	commandAt(t, dir, began.Add(61*time.Hour), "merge", "-q", "--no-ff", "-m", "x", "old")
	assert.Equal(t, aws+builds, printed(t, dir, ""), "an old commit that was merged just now")

	edit(t, dir, "providers/linode/linode.go")
	command(t, dir, "add", "-A")
	commandAt(t, dir, began.Add(62*time.Hour), "commit", "-q", "-m", "x")
	edit(t, dir, "README.md")
	command(t, dir, "add", "-A")
	commandAt(t, dir, began, "commit", "-q", "-m", "x")
	edit(t, dir, "README.md")
	command(t, dir, "add", "-A")
	commandAt(t, dir, began.Add(63*time.Hour), "commit", "-q", "-m", "x")
	assert.Equal(t, everything, printed(t, dir, ""), "a commit whose time is wrong is not the base")
}

// TestAnUnknownBaseLeavesNothingOut: without history, on the main branch, outside of git, or with a base that does not exist.
func TestAnUnknownBaseLeavesNothingOut(t *testing.T) {
	t.Parallel()
	dir := repository(t)
	assert.Equal(t, everything, printed(t, dir, ""), "this is the main branch, of which nothing older is known")
	edit(t, dir, "providers/linode/linode.go")
	commit(t, dir)
	assert.Equal(t, everything, printed(t, dir, "nosuch"), "the base that was asked for does not exist")
	assert.Equal(t, linode, printed(t, dir, "main"))

	shallow := t.TempDir()
	command(t, shallow, "clone", "-q", "--depth=1", "--branch=change", "file://"+filepath.ToSlash(dir), "clone")
	assert.Equal(t, everything, printed(t, filepath.Join(shallow, "clone"), ""), "a clone without history")

	command(t, dir, "branch", "-f", "main", "change")
	assert.Equal(t, everything, printed(t, dir, ""), "the main branch itself, of which nothing older is known")

	command(t, dir, "checkout", "-q", "--orphan", "other")
	commit(t, dir)
	assert.Equal(t, everything, printed(t, dir, ""), "no common commit")

	plain := t.TempDir()
	edit(t, plain, "providers/aws/aws.go")
	var out, log strings.Builder
	require.NoError(t, run(context.WithoutCancel(t.Context()), plain, "", &out, &log))
	assert.Equal(t, aws+builds, out.String(), "sources without git")
}
