// Command generate writes the files that follow from the providers' folders. Run it by `make generate`; a test fails
// when they are stale.
package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the providers to describe
)

func main() {
	if err := run("."); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// run writes what can be made, and returns everything that is missing.
func run(root string) error {
	files, missing := Files(root, registry.Linked().Providers())
	for path, content := range files {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // sources are for everybody
			return fmt.Errorf("making a folder: %w", err)
		}
		if err := os.WriteFile(path, content, 0o644); err != nil { //nolint:gosec // sources are for everybody
			return fmt.Errorf("writing %s: %w", path, err)
		}
	}
	return missing
}

// Files returns the generated files by their path from the root of the checkout, and everything that is missing for them.
func Files(root string, providers []registry.Provider) (map[string][]byte, error) {
	w := &writer{root: root, files: map[string][]byte{}}
	folders, err := folders(root)
	if err != nil {
		return nil, err
	}
	w.problem(unlinked(folders, providers))
	for _, p := range providers {
		w.problem(p.Missing())
		w.problem(missingFiles(root, p))
	}
	w.reference(providers)
	w.providerPages(providers)
	w.support(providers)
	w.limits(providers)
	w.access(providers)
	w.forms(providers)
	w.realClouds()
	w.chart(providers)
	w.release(folders)
	w.simulators(folders)
	return w.files, errors.Join(w.problems...)
}

// writer collects files and what is missing for them.
type writer struct {
	root     string
	files    map[string][]byte
	problems []error
}

func (w *writer) problem(err error) {
	if err != nil {
		w.problems = append(w.problems, err)
	}
}

// add takes a file unless it could not be made.
func (w *writer) add(path string, content []byte, err error) {
	if err != nil {
		w.problem(fmt.Errorf("%s: %w", path, err))
		return
	}
	w.files[path] = content
}

// read returns a file as it is so far, and start if there is none.
func (w *writer) read(path, start string) ([]byte, error) {
	if have, ok := w.files[path]; ok {
		return have, nil
	}
	text, err := os.ReadFile(filepath.Join(w.root, filepath.FromSlash(path)))
	if errors.Is(err, os.ErrNotExist) && start != "" {
		return []byte(start), nil
	}
	return text, err
}

// page writes the generated parts of a page; a page that is absent begins with start.
func (w *writer) page(path, start string, parts map[string]string) {
	page, err := w.read(path, start)
	if err == nil {
		page, err = spliceAll(page, parts)
	}
	w.add(path, page, err)
}

// folders returns the names of the provider folders, sorted.
func folders(root string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Join(root, "providers"))
	if err != nil {
		return nil, fmt.Errorf("listing the providers: %w", err)
	}
	var names []string
	for _, e := range entries {
		if e.IsDir() && e.Name() != "kit" {
			names = append(names, e.Name())
		}
	}
	slices.Sort(names)
	return names, nil
}

// unlinked returns an error for every folder of a provider that no file in registry/linked imports.
func unlinked(folders []string, linked []registry.Provider) error {
	var problems []error
	for _, name := range folders {
		if !slices.ContainsFunc(linked, func(p registry.Provider) bool { return p.Name == name }) {
			problems = append(problems, fmt.Errorf(
				"registry/linked/%s.go is missing, or does not import providers/%s; copy one of its neighbours", name, name))
		}
	}
	return errors.Join(problems...)
}

// missingFiles returns an error for every file that a provider's folder must have for tests outside of it.
func missingFiles(root string, p registry.Provider) error {
	var problems []error
	provider := p.Name
	simulator := p.Name + "sim"
	if p.InCluster {
		simulator = "" // the API server needs none
	}
	for _, f := range []struct{ path, holds string }{
		{simulator, "the simulator"}, // the folder itself where there is none
		{"testdata/chart", "values of the chart, which test/chart renders"},
		{"testdata/scenarios.yaml", "what the cloud's own controller is held to by tests, and our tests for it"},
		{"testdata/expectations.yaml", "what the tests over all clouds expect of this one"},
	} {
		path := filepath.Join("providers", provider, f.path)
		if _, err := os.Stat(filepath.Join(root, path)); err != nil {
			problems = append(problems, fmt.Errorf("%s is missing; it holds %s, see docs/developing-a-provider.md", path, f.holds))
		}
	}
	return errors.Join(problems...)
}
