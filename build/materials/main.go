// Command materials says what a binary is made of: its software bill of materials, and the licences of the modules in it,
// read from the binary itself and from the module cache. It fails when a module has no licence, or one that does not go
// with this program's.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("materials", flag.ContinueOnError)
	sbom := fs.String("sbom", "", "file to write the software bill of materials to (CycloneDX 1.6)")
	licences := fs.String("licenses", "", "file to write the texts of all licences to")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if fs.NArg() != 1 || *sbom == "" && *licences == "" {
		return errors.New("usage: materials [-sbom FILE] [-licenses FILE] BINARY|ARCHIVE")
	}
	info, err := infoOf(fs.Arg(0))
	if err != nil {
		return err
	}
	modules, err := modulesOf(ctx, info)
	if err != nil {
		return err
	}
	if *sbom != "" {
		content, err := json.MarshalIndent(billOf(info, modules), "", "  ")
		if err != nil {
			return fmt.Errorf("encoding the bill of materials: %w", err)
		}
		if err := os.WriteFile(*sbom, append(content, '\n'), 0o644); err != nil { //nolint:gosec // it is published
			return fmt.Errorf("writing the bill of materials: %w", err)
		}
	}
	if *licences != "" {
		if err := os.WriteFile(*licences, []byte(textsOf(modules)), 0o644); err != nil { //nolint:gosec // it is published
			return fmt.Errorf("writing the licences: %w", err)
		}
	}
	return nil
}

// infoOf reads what Go wrote into a binary, which may be in an archive (.tar.gz) as we release them.
func infoOf(path string) (*debug.BuildInfo, error) {
	if !strings.HasSuffix(path, ".tar.gz") {
		info, err := buildinfo.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("reading what the binary is made of: %w", err)
		}
		return info, nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("opening the archive: %w", err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	for files := tar.NewReader(plain); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("there is no program in %s", path)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		if header.FileInfo().Mode().Perm()&0o111 == 0 || header.Typeflag != tar.TypeReg {
			continue
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", path, err)
		}
		info, err := buildinfo.Read(bytes.NewReader(content))
		if err != nil {
			return nil, fmt.Errorf("reading what %s in %s is made of: %w", header.Name, path, err)
		}
		return info, nil
	}
}

// module is a module in a binary, with its licences.
type module struct {
	Path, Version, Sum string
	// Licences are SPDX identifiers.
	Licences []string
	// Texts are the licence files, and notices, which Apache-2.0 wants to be handed on.
	Texts []string
}

// modulesOf finds the licences of all modules of a binary. Every fault is named.
func modulesOf(ctx context.Context, info *debug.BuildInfo) ([]module, error) {
	args := []string{"list", "-m", "-json=Path,Version,Dir"}
	for _, d := range info.Deps {
		args = append(args, d.Path)
	}
	out, err := exec.CommandContext(ctx, "go", args...).Output()
	if err != nil {
		return nil, fmt.Errorf("asking go where the modules lie: %w", err)
	}
	folders := map[debug.Module]string{} // by path and version
	for decoder := json.NewDecoder(strings.NewReader(string(out))); decoder.More(); {
		var m struct{ Path, Version, Dir string }
		if err := decoder.Decode(&m); err != nil {
			return nil, fmt.Errorf("reading where the modules lie: %w", err)
		}
		folders[debug.Module{Path: m.Path, Version: m.Version}] = m.Dir
	}
	var modules []module
	var problems []error
	for _, d := range info.Deps {
		m := module{Path: d.Path, Version: d.Version, Sum: d.Sum}
		if d.Replace != nil {
			problems = append(problems, fmt.Errorf("%s is replaced by %s; a release is made of published modules", d.Path, d.Replace.Path))
			continue
		}
		if err := m.read(folders[debug.Module{Path: d.Path, Version: d.Version}]); err != nil {
			problems = append(problems, fmt.Errorf("%s %s: %w", d.Path, d.Version, err))
		}
		modules = append(modules, m)
	}
	return modules, errors.Join(problems...)
}

// read takes the licences and notices from the module's folder.
func (m *module) read(folder string) error {
	if folder == "" {
		return errors.New("the module is not in the module cache, or the binary was built from another go.mod: run go mod download and build it again")
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return fmt.Errorf("looking for the licence: %w", err)
	}
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		licence := strings.HasPrefix(name, "LICENSE") || strings.HasPrefix(name, "LICENCE") || strings.HasPrefix(name, "COPYING")
		if e.IsDir() || strings.HasSuffix(name, ".GO") || !licence && !strings.HasPrefix(name, "NOTICE") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(folder, e.Name()))
		if err != nil {
			return fmt.Errorf("reading the licence: %w", err)
		}
		m.Texts = append(m.Texts, string(text))
		if !licence {
			continue
		}
		found := identify(string(text))
		if len(found) == 0 {
			return fmt.Errorf("%s is not among the licences that this program may be linked with; check it, then the list in build/materials", e.Name())
		}
		for _, id := range found {
			if !slices.Contains(m.Licences, id) {
				m.Licences = append(m.Licences, id)
			}
		}
	}
	if len(m.Licences) == 0 {
		return errors.New("there is no licence file")
	}
	return nil
}

// sign is a sentence that stands in a licence and in no other of the list.
type sign struct{ id, sentence string }

// signs are of the licences that go with Apache-2.0 in a binary that is handed on.
func signs() []sign {
	return []sign{
		{"Apache-2.0", "apache license version 2.0"},
		{"MIT", "permission is hereby granted, free of charge, to any person obtaining a copy"},
		{"ISC", "permission to use, copy, modify, and or distribute this software for any purpose with or without fee is hereby granted"},
		{"ISC", "permission to use, copy, modify, and distribute this software for any purpose with or without fee is hereby granted"},
		{"BSD-3-Clause", "may be used to endorse or promote products derived from this software without specific prior written permission"},
		{"MPL-2.0", "mozilla public license version 2.0"},
		{"MPL-2.0", "mozilla public license, version 2.0"},
	}
}

// identify returns the SPDX identifiers of the licences in a text.
func identify(text string) []string {
	plain := regexp.MustCompile(`[\s*#/]+`).ReplaceAllString(strings.ToLower(text), " ")
	plain = strings.ReplaceAll(plain, "apache license, version 2.0", "apache license version 2.0")
	var found []string
	for _, s := range signs() {
		if strings.Contains(plain, s.sentence) && !slices.Contains(found, s.id) {
			found = append(found, s.id)
		}
	}
	if !slices.Contains(found, "BSD-3-Clause") && strings.Contains(plain, "redistributions in binary form must reproduce the above copyright notice") {
		found = append(found, "BSD-2-Clause")
	}
	return found
}

// textsOf is the file that goes with the binaries.
func textsOf(modules []module) string {
	var out strings.Builder
	out.WriteString("The program contains these modules, under these licences.\n")
	for _, m := range modules {
		fmt.Fprintf(&out, "\n%s\n%s %s (%s)\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, strings.Join(m.Licences, ", "), strings.Join(m.Texts, "\n"))
	}
	return out.String()
}

type (
	// bill is a bill of materials as https://cyclonedx.org/docs/1.6/json/ describes it.
	bill struct {
		Format     string      `json:"bomFormat"`
		Spec       string      `json:"specVersion"`
		Version    int         `json:"version"`
		Metadata   metadata    `json:"metadata"`
		Components []component `json:"components"`
	}
	metadata struct {
		Component component `json:"component"`
	}
	component struct {
		Type       string     `json:"type"`
		Ref        string     `json:"bom-ref"`
		Name       string     `json:"name"`
		Version    string     `json:"version"`
		PURL       string     `json:"purl"`
		Licences   []licence  `json:"licenses,omitempty"`
		Properties []property `json:"properties,omitempty"`
	}
	licence struct {
		Licence struct {
			ID string `json:"id"`
		} `json:"license"`
	}
	property struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	}
)

// billOf has the same bytes for the same binary: no time and no serial number.
func billOf(info *debug.BuildInfo, modules []module) bill {
	program := componentOf("application", module{Path: info.Main.Path, Version: info.Main.Version, Licences: []string{"Apache-2.0"}})
	program.Properties = append(program.Properties, property{"go:version", info.GoVersion})
	for _, s := range info.Settings {
		if s.Key == "GOOS" || s.Key == "GOARCH" || s.Key == "-tags" || s.Key == "vcs.revision" {
			program.Properties = append(program.Properties, property{"go:build:" + s.Key, s.Value})
		}
	}
	b := bill{Format: "CycloneDX", Spec: "1.6", Version: 1, Metadata: metadata{Component: program}, Components: []component{
		componentOf("library", module{Path: "std", Version: strings.TrimPrefix(info.GoVersion, "go"), Licences: []string{"BSD-3-Clause"}}),
	}}
	for _, m := range modules {
		b.Components = append(b.Components, componentOf("library", m))
	}
	return b
}

func componentOf(kind string, m module) component {
	c := component{Type: kind, Name: m.Path, Version: m.Version, PURL: "pkg:golang/" + m.Path + "@" + strings.ReplaceAll(m.Version, "+", "%2B")}
	c.Ref = c.PURL
	for _, id := range m.Licences {
		var l licence
		l.Licence.ID = id
		c.Licences = append(c.Licences, l)
	}
	if m.Sum != "" {
		c.Properties = append(c.Properties, property{"go:sum", m.Sum})
	}
	return c
}
