// Command newprovider writes the folder of a new provider and the file that links it. Run it by `make new-provider NAME=x`. The result
// compiles and passes the conformance suite against a small simulator of an invented cloud. With -module and -dir it writes a separate
// module, for a cloud in another repository.
package main

import (
	"embed"
	"errors"
	"flag"
	"fmt"
	"go/format"
	"io/fs"
	"maps"
	"os"
	pathpkg "path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// template is a provider of a cloud that does not exist. It is a package of this module, so that it compiles and is tested like any
// other, but no program links it.
//
//go:embed xcloud xmain
var template embed.FS

const (
	// placeholder is the name of the provider in the template, in three spellings.
	placeholder = "xcloud"
	// program is the template of the main package of a module of its own.
	program  = "xmain"
	checkout = "github.com/anyccm/cloud-controller-manager"
	module   = checkout + "/"
)

var (
	// templateLine matches lines to drop from copies of the template.
	templateLine = regexp.MustCompile(`(?m)^.* // template\n`)

	validName   = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
	validModule = regexp.MustCompile(`^[a-z0-9][a-z0-9.-]*\.[a-z]+(/[A-Za-z0-9][A-Za-z0-9._-]*)+$`)
)

// reserved are folders in providers that are not clouds.
var reserved = []string{"internal", "kit", placeholder, program}

func main() {
	name := flag.String("name", "", "name of the provider: lower-case letters and digits")
	modulePath := flag.String("module", "", "path of a module of its own, such as example.com/toy-ccm")
	dir := flag.String("dir", "", "folder of that module")
	flag.Parse()
	next, err := run(*name, *modulePath, *dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
	fmt.Print(next)
}

// run writes the files, and returns what to do next.
func run(name, modulePath, dir string) (next string, err error) {
	if modulePath == "" && dir == "" {
		files, err := Files(name)
		if err == nil {
			err = write(".", files, "providers/"+name, "registry/linked/"+name+".go")
		}
		return fmt.Sprintf("providers/%s and registry/linked/%s.go are written. Go on with:\n\n  %s\n\n"+
			"docs/developing-a-provider.md says what a provider must do.\n", name, name, strings.Join(nextCommands(name), "\n  ")), err
	}
	if modulePath == "" || dir == "" {
		return "", errors.New("MODULE and DIR belong together, such as make new-provider NAME=toy MODULE=example.com/toy-ccm DIR=../toy-ccm")
	}
	files, err := ModuleFiles(name, modulePath, ".", dir)
	if err == nil {
		err = write(dir, files, "go.mod", name)
	}
	return fmt.Sprintf("The module %s is written to %s. docs/building.md says how it is tested and built.\n", modulePath, dir), err
}

// nextCommands are the commands for a provider that was just written.
func nextCommands(name string) []string {
	return []string{
		"make generate",
		"go test -vet=off -trimpath -tags grpcnotrace -ldflags=-w ./providers/" + name + "/...",
		"make test-chart TESTFLAGS=-update",
		"make demo PROVIDER=" + name + " ONESHOT=1",
	}
}

// Files returns the files of a new provider by their path from the root of the checkout.
func Files(name string) (map[string]string, error) {
	files := map[string]string{
		"registry/linked/" + name + ".go": fmt.Sprintf("//go:build !slim || provider_%s\n\npackage linked\n\nimport _ %q // registers the provider\n",
			name, module+"providers/"+name),
	}
	return files, instantiate(files, name, module+"providers/"+name, placeholder, "providers")
}

// ModuleFiles returns the files of a module of its own by their path in dir: the provider, its simulator, a program that runs it,
// and a go.mod that takes this module from the checkout.
func ModuleFiles(name, modulePath, root, dir string) (map[string]string, error) {
	if !validModule.MatchString(modulePath) {
		return nil, fmt.Errorf("MODULE %q: name a module with its host, such as example.com/toy-ccm", modulePath)
	}
	files := map[string]string{}
	for _, part := range []string{placeholder, program} {
		if err := instantiate(files, name, modulePath+"/"+name, part, ""); err != nil {
			return nil, err
		}
	}
	for path, text := range files {
		switch {
		case strings.HasPrefix(path, name+"/testdata/") && !strings.HasPrefix(path, name+"/testdata/transcripts/"):
			// used only by this repository's tests over all clouds
			delete(files, path)
		case path == program+"/main.go":
			delete(files, path)
			files["main.go"] = strings.ReplaceAll(text, "Command "+program, "Command "+pathpkg.Base(modulePath))
		}
	}
	requirements, err := requirements(modulePath, root, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(files, requirements)
	return files, nil
}

// requirements returns go.mod and go.sum with the versions that this module is tested with.
func requirements(modulePath, root, dir string) (map[string]string, error) {
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("reading the versions: %w", err)
	}
	sum, err := os.ReadFile(filepath.Join(root, "go.sum"))
	if err != nil {
		return nil, fmt.Errorf("reading the checksums: %w", err)
	}
	_, rest, ok := strings.Cut(string(mod), "module "+checkout+"\n")
	if !ok {
		return nil, errors.New("go.mod is not that of " + checkout + "; run this in its checkout")
	}
	from, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("DIR: %w", err)
	}
	to, err := filepath.Abs(root)
	if err != nil {
		return nil, fmt.Errorf("finding the checkout: %w", err)
	}
	back, err := filepath.Rel(from, to)
	if err != nil {
		return nil, fmt.Errorf("the way from %s to the checkout: %w", dir, err)
	}
	return map[string]string{
		"go.mod": fmt.Sprintf("module %s\n%s\nrequire %s v0.0.0\n\n// This line goes away once a version is required.\nreplace %s => %s\n",
			modulePath, rest, checkout, checkout, filepath.ToSlash(back)),
		"go.sum": string(sum),
	}, nil
}

// instantiate adds the files of one folder of the template, whose provider gets a name and an import path.
func instantiate(files map[string]string, name, importPath, part, to string) error {
	if !validName.MatchString(name) || slices.Contains(reserved, name) {
		return fmt.Errorf("NAME %q: use lower-case letters and digits, beginning with a letter, such as make new-provider NAME=toy", name)
	}
	title := strings.ToUpper(name[:1]) + name[1:]
	rename := strings.NewReplacer(module+"build/newprovider/"+placeholder, importPath, placeholder, name,
		strings.ToUpper(placeholder), strings.ToUpper(name), "Xcloud", title)
	return fs.WalkDir(template, part, func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := template.ReadFile(at)
		if err != nil {
			return err
		}
		path := rename.Replace(pathpkg.Join(to, at))
		renamed := []byte(rename.Replace(templateLine.ReplaceAllString(string(text), "")))
		if strings.HasSuffix(path, ".go") { // the name changes the order of imports
			if renamed, err = format.Source(renamed); err != nil {
				return fmt.Errorf("%s: %w", path, err)
			}
		}
		files[path] = string(renamed)
		return nil
	})
}

// write writes the files of a new provider. It fails if a path in unused exists, so that nothing is overwritten.
func write(root string, files map[string]string, unused ...string) error {
	for _, p := range unused {
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
