// Command generate writes the files derived from the providers' folders. Run it by `make generate`; a test fails when they are stale.
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

// run writes all possible files, and returns an error for everything that is missing.
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

// Files returns the generated files by path from the checkout's root, and an error for everything that is missing.
func Files(root string, providers []registry.Provider) (map[string][]byte, error) {
	w := &writer{root: root, files: map[string][]byte{}}
	folders, err := folders(root)
	if err != nil {
		return nil, err
	}
	w.problem(checkLinked(folders, providers))
	for _, p := range providers {
		w.problem(p.Missing())
		w.problem(missingFiles(root, p))
	}
	w.reference(providers)
	w.providerPages(providers)
	w.support(providers)
	w.limits(providers)
	w.page("docs/node-labels.md", "", map[string]string{"tags": tagsTable(providers)})
	w.access(providers)
	w.forms(providers)
	w.realClouds()
	w.chart(providers)
	w.release(folders)
	w.simulators(folders)
	return w.files, errors.Join(w.problems...)
}

// writer collects files and errors.
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

// add adds a file, or its error.
func (w *writer) add(path string, content []byte, err error) {
	if err != nil {
		w.problem(fmt.Errorf("%s: %w", path, err))
		return
	}
	w.files[path] = content
}

// read returns the present content of a file, or start if it does not exist.
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

// page writes the generated parts of a page; a new page begins with start.
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

// checkLinked returns an error for each provider folder that no file in registry/linked imports.
func checkLinked(folders []string, linked []registry.Provider) error {
	var problems []error
	for _, name := range folders {
		if !slices.ContainsFunc(linked, func(p registry.Provider) bool { return p.Name == name }) {
			problems = append(problems, fmt.Errorf(
				"registry/linked/%s.go is missing, or does not import providers/%s; copy one of its neighbours", name, name))
		}
	}
	return errors.Join(problems...)
}

// missingFiles returns an error for each missing file that tests outside the provider's folder need.
func missingFiles(root string, p registry.Provider) error {
	var problems []error
	provider := p.Name
	simulator := p.Name + "sim"
	if p.InCluster {
		simulator = "" // the API server needs no simulator
	}
	for _, f := range []struct{ path, holds string }{
		{simulator, "the simulator"}, // without a simulator the folder itself
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
