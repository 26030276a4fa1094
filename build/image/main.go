// Command image writes container images as OCI layouts: a static binary and nothing else, for every architecture, reproducible. It needs
// neither a container runtime nor a registry.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	program = "cloud-controller-manager"
	// user has no permissions; distroless images call it nonroot.
	user = "65532:65532"
)

// epoch is the time of everything in the images, for reproducibility.
var epoch = time.Unix(0, 0).UTC()

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	out := fs.String("out", "", "folder of the OCI layout, which is replaced")
	version := fs.String("version", "dev", "version, for the labels")
	revision := fs.String("revision", "unknown", "commit, for the labels")
	if err := fs.Parse(args); err != nil {
		return err
	}
	if *out == "" || fs.NArg() == 0 {
		return errors.New("usage: image -out FOLDER ARCHITECTURE=BINARY…")
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, arg := range fs.Args() {
		arch, binary, ok := strings.Cut(arg, "=")
		if !ok {
			return fmt.Errorf("%q is not of the form ARCHITECTURE=BINARY", arg)
		}
		image, err := build(arch, binary, map[string]string{
			"org.opencontainers.image.title": program, "org.opencontainers.image.version": *version, "org.opencontainers.image.revision": *revision,
			"org.opencontainers.image.licenses": "Apache-2.0", "org.opencontainers.image.source": "https://github.com/anyccm/cloud-controller-manager",
		})
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		index = mutate.AppendManifests(
			index,
			mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: arch}}},
		)
	}
	if err := os.RemoveAll(*out); err != nil {
		return fmt.Errorf("removing the old layout: %w", err)
	}
	if _, err := layout.Write(*out, index); err != nil {
		return fmt.Errorf("writing the layout: %w", err)
	}
	digest, err := index.Digest()
	if err != nil {
		return fmt.Errorf("naming the image: %w", err)
	}
	fmt.Printf("%s %s\n", *out, digest)
	return nil
}

// build creates the image of one architecture with only the binary.
func build(arch, binary string, labels map[string]string) (v1.Image, error) {
	content, err := os.ReadFile(binary)
	if err != nil {
		return nil, fmt.Errorf("reading the binary: %w", err)
	}
	var files bytes.Buffer
	w := tar.NewWriter(&files)
	header := &tar.Header{Name: program, Mode: 0o755, Size: int64(len(content)), ModTime: epoch, Format: tar.FormatPAX, Typeflag: tar.TypeReg}
	if err := errors.Join(w.WriteHeader(header), write(w, content), w.Close()); err != nil {
		return nil, fmt.Errorf("packing the binary: %w", err)
	}
	layer, err := tarball.LayerFromOpener(
		func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(files.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer),
	)
	if err != nil {
		return nil, fmt.Errorf("packing the binary: %w", err)
	}
	image, err := mutate.AppendLayers(
		mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON), layer,
	)
	if err != nil {
		return nil, fmt.Errorf("adding the layer: %w", err)
	}
	return mutate.ConfigFile(image, configOf(image, arch, labels))
}

func write(w io.Writer, content []byte) error {
	_, err := w.Write(content)
	return err
}

func configOf(image v1.Image, arch string, labels map[string]string) *v1.ConfigFile {
	config, err := image.ConfigFile()
	if err != nil {
		panic(err) // built in memory by this program
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", arch, v1.Time{Time: epoch}
	config.Config = v1.Config{User: user, Entrypoint: []string{filepath.Join("/", program)}, WorkingDir: "/", Labels: labels}
	for i := range config.History {
		config.History[i].Created = v1.Time{Time: epoch}
	}
	return config
}
