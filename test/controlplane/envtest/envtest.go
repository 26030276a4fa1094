// Package envtest finds a control plane that is on this machine already.
package envtest

import (
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
)

// Variable names a folder with ready-made binaries, as the envtest tools use it.
const Variable = "KUBEBUILDER_ASSETS"

// Folder is where ready-made binaries of a control plane are: the folder that Variable names, or the newest one of setup-envtest that fits.
// It is empty where there are none.
func Folder() string { return cmp.Or(os.Getenv(Variable), installed(envtestFolders())) }

// Complete reports whether a folder has all programs of a control plane.
func Complete(dir string) bool {
	for _, name := range []string{"etcd", "kube-apiserver"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			return false
		}
	}
	return true
}

// The oldest and the newest minor version of Kubernetes that the tests are written for.
const minMinor, maxMinor = 34, 37

// envtestFolders are where setup-envtest keeps its binaries by default: the user's folder for data, by operating system.
func envtestFolders() []string {
	home, err := os.UserHomeDir()
	if err != nil {
		return nil
	}
	if runtime.GOOS == "darwin" {
		return []string{filepath.Join(home, "Library", "Application Support", "io.kubebuilder.envtest", "k8s")}
	}
	data := os.Getenv("XDG_DATA_HOME")
	if data == "" {
		data = filepath.Join(home, ".local", "share")
	}
	return []string{filepath.Join(data, "kubebuilder-envtest", "k8s")}
}

var envtestName = regexp.MustCompile(`^1\.(\d+)\.(\d+)-` + runtime.GOOS + "-" + runtime.GOARCH + "$")

// installed returns the newest complete version in the folders that the tests are written for, or nothing.
func installed(folders []string) string {
	var best string
	var bestMinor, bestPatch int
	for _, folder := range folders {
		entries, err := os.ReadDir(folder)
		if err != nil {
			continue // nothing was installed there
		}
		for _, e := range entries {
			m := envtestName.FindStringSubmatch(e.Name())
			if m == nil || !Complete(filepath.Join(folder, e.Name())) {
				continue
			}
			minor, _ := strconv.Atoi(m[1]) // digits, by the pattern
			patch, _ := strconv.Atoi(m[2])
			if minor < minMinor || minor > maxMinor || minor < bestMinor || minor == bestMinor && patch <= bestPatch && best != "" {
				continue
			}
			best, bestMinor, bestPatch = filepath.Join(folder, e.Name()), minor, patch
		}
	}
	return best
}
