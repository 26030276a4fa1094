// Command newprovider writes the folder of a new provider and the file that links it. Run it by `make new-provider NAME=x`. What it
// writes compiles and passes the conformance suite against a small simulator of a cloud that does not exist.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// template is a provider of a cloud that does not exist. It is a package of this module, so that it compiles and is tested like any
// other, but no program links it.
//
//go:embed xcloud
var template embed.FS

const (
	// placeholder is the name of the provider in the template, in three spellings.
	placeholder = "xcloud"
	module      = "github.com/anyccm/cloud-controller-manager/"
)

var validName = regexp.MustCompile(`^[a-z][a-z0-9]*$`)

// reserved are folders in providers that belong to no cloud.
var reserved = []string{"internal", "kit", placeholder}

func main() {
	name := flag.String("name", "", "name of the provider: lower-case letters and digits")
	flag.Parse()
	files, err := Files(*name)
	if err == nil {
		err = write(".", *name, files)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Printf("providers/%s and registry/linked/%s.go are written. Go on with:\n\n"+
		"  make generate\n  make test-unit\n  make test-chart TESTFLAGS=-update\n  make demo PROVIDER=%s ONESHOT=1\n\n"+
		"docs/developing-a-provider.md says what a provider must do.\n", *name, *name, *name)
}

// Files returns the files of a new provider by their path from the root of the checkout.
func Files(name string) (map[string]string, error) {
	if !validName.MatchString(name) || slices.Contains(reserved, name) {
		return nil, fmt.Errorf("NAME %q: use lower-case letters and digits, beginning with a letter, such as make new-provider NAME=toy", name)
	}
	title := strings.ToUpper(name[:1]) + name[1:]
	rename := strings.NewReplacer(module+"build/newprovider/"+placeholder, module+"providers/"+name, placeholder, name, strings.ToUpper(placeholder), strings.ToUpper(name), "Xcloud", title)
	files := map[string]string{
		"registry/linked/" + name + ".go": fmt.Sprintf("//go:build !slim || provider_%s\n\npackage linked\n\nimport _ %q // registers the provider\n",
			name, module+"providers/"+name),
	}
	err := fs.WalkDir(template, placeholder, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := template.ReadFile(at)
		if err != nil {
			return err
		}
		to := rename.Replace(path.Join("providers", at))
		renamed := []byte(rename.Replace(string(text)))
		if strings.HasSuffix(to, ".go") { // another name is another order of imports
			if renamed, err = format.Source(renamed); err != nil {
				return fmt.Errorf("%s: %w", to, err)
			}
		}
		files[to] = string(renamed)
		return nil
	})
	return files, err
}

// write writes the files of a new provider; it touches nothing that is there.
func write(root, name string, files map[string]string) error {
	for _, p := range []string{"providers/" + name, "registry/linked/" + name + ".go"} {
		if _, err := os.Stat(filepath.Join(root, filepath.FromSlash(p))); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is there already; choose another NAME, or remove it", p)
		}
	}
	for p, text := range files {
		to := filepath.Join(root, filepath.FromSlash(p))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil { //nolint:gosec // sources are for everybody
			return fmt.Errorf("making a folder: %w", err)
		}
		if err := os.WriteFile(to, []byte(text), 0o644); err != nil { //nolint:gosec // sources are for everybody
			return fmt.Errorf("writing %s: %w", p, err)
		}
	}
	return nil
}
