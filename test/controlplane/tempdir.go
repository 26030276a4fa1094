package controlplane

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// tempPrefix begins the names of the folders that belong to runs of tests, demo and benchmarks.
const tempPrefix = "anyccm-"

// TempDir makes a temporary folder for one run, and removes those of runs that crashed. The name holds our process ID;
// the processes of a crashed run died with it.
func TempDir(what string) (string, error) {
	sweep(os.TempDir())
	dir, err := os.MkdirTemp("", fmt.Sprintf("%s%s-%d-", tempPrefix, what, os.Getpid()))
	if err != nil {
		return "", fmt.Errorf("making a temporary folder: %w", err)
	}
	return dir, nil
}

func sweep(root string) {
	found, err := filepath.Glob(filepath.Join(root, tempPrefix+"*-*-*"))
	if err != nil {
		return
	}
	for _, dir := range found {
		fields := strings.Split(filepath.Base(dir), "-")
		pid, err := strconv.Atoi(fields[len(fields)-2])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			_ = os.RemoveAll(dir) // somebody else's, if it fails
		}
	}
}
