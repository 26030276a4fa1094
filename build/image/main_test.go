package main

import (
	"archive/tar"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// TestImage writes an image twice, compares the bytes, and runs its program from the unpacked layout.
func TestImage(t *testing.T) {
	bin := os.Getenv("ANYCCM_BIN")
	if bin == "" {
		t.Fatal("run this test by make test-image, which builds the program")
	}
	binary := filepath.Join(bin, program)
	var digests []v1.Hash
	folder := ""
	for range 2 {
		folder = filepath.Join(t.TempDir(), "layout")
		if err := run([]string{"-out", folder, "-version", "v1.2.3", runtime.GOARCH + "=" + binary, "arm=" + binary}); err != nil {
			t.Fatal(err)
		}
		index, err := layout.ImageIndexFromPath(folder)
		if err != nil {
			t.Fatal(err)
		}
		digest, err := index.Digest()
		if err != nil {
			t.Fatal(err)
		}
		digests = append(digests, digest)
		top, err := os.ReadFile(filepath.Join(folder, "index.json"))
		if err != nil {
			t.Fatal(err)
		}
		if sum := fmt.Sprintf("%x", sha256.Sum256(top)); sum != digest.Hex { // by which make publish signs
			t.Errorf("the layout's index.json has the sum %s, the image has the digest %s", sum, digest)
		}
	}
	if digests[0] != digests[1] {
		t.Errorf("the same sources gave %s and %s", digests[0], digests[1])
	}
	image := imageOf(t, folder, runtime.GOARCH)
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Config.User != user || config.Config.Labels["org.opencontainers.image.version"] != "v1.2.3" || config.Architecture != runtime.GOARCH {
		t.Errorf("the image's settings are %+v", config.Config)
	}
	root := unpack(t, image)
	out, err := exec.CommandContext(t.Context(), filepath.Join(root, config.Config.Entrypoint[0]), "--version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "providers") {
		t.Errorf("the image's program says %q, %v", out, err)
	}
}

func imageOf(t *testing.T, folder, arch string) v1.Image {
	t.Helper()
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range manifest.Manifests {
		if m.Platform != nil && m.Platform.Architecture == arch {
			image, err := index.Image(m.Digest)
			if err != nil {
				t.Fatal(err)
			}
			return image
		}
	}
	t.Fatalf("no image for %s", arch)
	return nil
}

// unpack writes the files of an image below a folder.
func unpack(t *testing.T, image v1.Image) string {
	t.Helper()
	root := t.TempDir()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers, %v", len(layers), err)
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	r := tar.NewReader(content)
	for {
		header, err := r.Next()
		if err == io.EOF {
			return root
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Name != program {
			t.Errorf("the image holds %s as well", header.Name)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(root, filepath.Base(header.Name)), data, os.FileMode(header.Mode)); err != nil {
			t.Fatal(err)
		}
	}
}
