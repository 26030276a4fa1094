// Package release looks at what `make snapshot` made. Run it by `make release-check`.
package release

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the providers that must be released
)

const product = "cloud-controller-manager"

func dist(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("ANYCCM_DIST")
	if folder == "" {
		t.Skip("ANYCCM_DIST is not set; run make release-check")
	}
	return folder
}

// products are the program with all clouds and with each one.
func products() map[string][]string {
	all := registry.Linked().Names()
	names := map[string][]string{product: all}
	for _, provider := range all {
		names[product+"-"+provider] = []string{provider}
	}
	return names
}

func TestEveryProductIsReleased(t *testing.T) {
	t.Parallel()
	folder := dist(t)
	for name, providers := range products() {
		for _, arch := range []string{"amd64", "arm64"} {
			t.Run(name+" "+arch, func(t *testing.T) {
				t.Parallel()
				archive := onlyFile(t, filepath.Join(folder, "release", name+"_[0-9]*_linux_"+arch+".tar.gz"))
				unpacked := unpack(t, archive)
				assert.FileExists(t, filepath.Join(unpacked, "LICENSE"))
				assert.FileExists(t, filepath.Join(unpacked, "CHANGELOG.md"))
				licences, err := os.ReadFile(filepath.Join(unpacked, "THIRD-PARTY-LICENSES"))
				require.NoError(t, err)
				assert.Contains(t, string(licences), "k8s.io/cloud-provider v")

				var bill struct {
					BomFormat  string
					Components []struct{ Name string }
				}
				decode(t, onlyFile(t, filepath.Join(folder, "release", name+"_[0-9]*_linux_"+arch+".tar.gz.cdx.json")), &bill)
				assert.Equal(t, "CycloneDX", bill.BomFormat)
				assert.Greater(t, len(bill.Components), 20)

				image := filepath.Join(folder, "image", name)
				assert.FileExists(t, filepath.Join(image, "index.json"))
				if runtime.GOOS != "linux" || runtime.GOARCH != arch {
					return
				}
				program := filepath.Join(unpacked, product)
				out, err := exec.CommandContext(t.Context(), program, "providers").Output()
				require.NoError(t, err)
				for _, provider := range registry.Linked().Names() {
					assert.Equal(t, slices.Contains(providers, provider), strings.Contains(string(out), provider), "%s among: %s", provider, out)
				}
				out, err = exec.CommandContext(t.Context(), program, "--version").Output()
				require.NoError(t, err)
				version := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(archive), name+"_"), "_linux_"+arch+".tar.gz")
				assert.Contains(t, string(out), "v"+version)
			})
		}
	}
}

func TestChecksums(t *testing.T) {
	t.Parallel()
	folder := dist(t)
	file, err := os.Open(filepath.Join(folder, "release", "checksums.txt"))
	require.NoError(t, err)
	defer file.Close()
	sums := map[string]string{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		sum, name, _ := strings.Cut(lines.Text(), "  ")
		sums[name] = sum
	}
	wanted := 0
	for _, pattern := range []string{"release/*.tar.gz", "release/*.cdx.json", "charts/*.tgz", "manifests/*.yaml"} {
		files, err := filepath.Glob(filepath.Join(folder, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, files, pattern)
		for _, f := range files {
			wanted++
			content, err := os.ReadFile(f)
			require.NoError(t, err)
			sum := sha256.Sum256(content)
			assert.Equal(t, hex.EncodeToString(sum[:]), sums[filepath.Base(f)], f)
		}
	}
	assert.Len(t, sums, wanted, "checksums of files that are not there")
}

// The chart of a release installs the image of that release.
func TestChartHasTheVersionOfTheImages(t *testing.T) {
	t.Parallel()
	folder := dist(t)
	chart, err := os.ReadFile(filepath.Join(unpack(t, onlyFile(t, filepath.Join(folder, "charts", "*.tgz"))), product, "Chart.yaml"))
	require.NoError(t, err)
	archive := filepath.Base(onlyFile(t, filepath.Join(folder, "release", product+"_[0-9]*_linux_amd64.tar.gz")))
	version := strings.TrimSuffix(strings.TrimPrefix(archive, product+"_"), "_linux_amd64.tar.gz")
	assert.Contains(t, string(chart), "version: "+version+"\n")
	assert.Contains(t, string(chart), "appVersion: "+version+"\n")
	assert.Contains(t, blobs(t, filepath.Join(folder, "image", product)), `"org.opencontainers.image.version":"`+version+`"`)
}

// blobs are the small files of an OCI layout: manifests and configurations.
func blobs(t *testing.T, layout string) string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(layout, "blobs", "sha256", "*"))
	require.NoError(t, err)
	var text strings.Builder
	for _, f := range files {
		stat, err := os.Stat(f)
		require.NoError(t, err)
		if stat.Size() > 1<<16 {
			continue
		}
		content, err := os.ReadFile(f)
		require.NoError(t, err)
		text.Write(content)
	}
	return text.String()
}

func onlyFile(t *testing.T, pattern string) string {
	t.Helper()
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.Len(t, files, 1, "files like %s", pattern)
	return files[0]
}

func decode(t *testing.T, path string, into any) {
	t.Helper()
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(content, into))
}

// unpack returns a folder with what is in the archive.
func unpack(t *testing.T, archive string) string {
	t.Helper()
	folder := t.TempDir()
	require.NoError(t, extract(t.Context(), archive, folder))
	return folder
}

func extract(ctx context.Context, archive, folder string) error {
	file, err := os.Open(archive)
	if err != nil {
		return fmt.Errorf("opening the archive: %w", err)
	}
	defer file.Close()
	plain, err := gzip.NewReader(file)
	if err != nil {
		return fmt.Errorf("opening %s: %w", archive, err)
	}
	for files := tar.NewReader(plain); ctx.Err() == nil; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		if header.Typeflag != tar.TypeReg || !filepath.IsLocal(header.Name) {
			continue
		}
		path := filepath.Join(folder, header.Name)
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			return fmt.Errorf("making a folder: %w", err)
		}
		content, err := io.ReadAll(files)
		if err != nil {
			return fmt.Errorf("reading %s: %w", archive, err)
		}
		if err := os.WriteFile(path, content, header.FileInfo().Mode().Perm()); err != nil {
			return fmt.Errorf("unpacking %s: %w", header.Name, err)
		}
	}
	return ctx.Err()
}
