package app

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// manifestFiles are the files and folders named by -f and arguments.
type manifestFiles struct {
	names     []string
	recursive bool
}

type content struct {
	name string
	data []byte
}

func (m *manifestFiles) addFlags(cmd *cobra.Command) {
	fs := cmd.Flags()
	fs.StringArrayVarP(&m.names, "filename", "f", nil,
		"A file of manifests as YAML or JSON, a folder of them, or - for standard input; may be repeated. Arguments count as well.")
	fs.BoolVarP(&m.recursive, "recursive", "R", false, "Also read subfolders.")
	cmd.Args = cobra.ArbitraryArgs
}

// addArguments adds the arguments, and requires at least one file.
func (m *manifestFiles) addArguments(args []string) error {
	m.names = append(m.names, args...)
	if len(m.names) == 0 {
		return usage(errors.New("--filename is missing; name a file of manifests, or - for standard input"))
	}
	return nil
}

// read returns all files in the given order, those of folders sorted by path.
func (m *manifestFiles) read(stdin io.Reader) ([]content, error) {
	var all []content
	for _, name := range m.names {
		paths, err := m.files(name)
		if err != nil {
			return nil, fmt.Errorf("--filename: %w", err)
		}
		for _, path := range paths {
			c := content{name: path}
			if path == "-" {
				c.data, err = io.ReadAll(stdin)
			} else {
				c.data, err = os.ReadFile(path)
			}
			if err != nil {
				return nil, fmt.Errorf("--filename: %w", err)
			}
			all = append(all, c)
		}
	}
	return all, nil
}

// files returns a file itself, or a folder's manifests.
func (m *manifestFiles) files(name string) ([]string, error) {
	if !isFolder(name) {
		return []string{name}, nil
	}
	var paths []string
	err := filepath.WalkDir(name, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != name && !m.recursive:
			return filepath.SkipDir
		case !entry.IsDir() && slices.Contains([]string{".yaml", ".yml", ".json"}, strings.ToLower(filepath.Ext(path))):
			paths = append(paths, path)
		}
		return nil
	})
	if err == nil && len(paths) == 0 {
		err = fmt.Errorf("the folder %s holds no .yaml, .yml or .json file; -R also reads its subfolders", name)
	}
	return paths, err
}

// isFolder is also false on errors, which reading reports.
func isFolder(name string) bool {
	info, err := os.Stat(name)
	return name != "-" && err == nil && info.IsDir()
}
