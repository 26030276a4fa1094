package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	releaseFile = ".goreleaser.yaml"
	product     = "cloud-controller-manager"
)

// release writes one build and one archive for all providers together and for each one alone.
func release(root string, providers []string) (map[string][]byte, error) {
	config, err := os.ReadFile(filepath.Join(root, releaseFile))
	if err != nil {
		return nil, fmt.Errorf("reading the release's configuration: %w", err)
	}
	var builds, archives strings.Builder
	builds.WriteString("builds:\n")
	archives.WriteString("archives:\n")
	for i, provider := range append([]string{""}, providers...) {
		id, tags := product, "[grpcnotrace]"
		if provider != "" {
			id, tags = product+"-"+provider, fmt.Sprintf("[grpcnotrace, slim, provider_%s]", provider)
		}
		fmt.Fprintf(&builds, "- id: %s\n", id)
		fmt.Fprintf(&archives, "- id: %s\n  ids: [%s]\n  name_template: \"%s_{{ .Version }}_{{ .Os }}_{{ .Arch }}\"\n", id, id, id)
		if i == 0 {
			builds.WriteString(`  <<: &build
    main: ./cmd/cloud-controller-manager
    binary: cloud-controller-manager
    env: [CGO_ENABLED=0]
    goos: [linux]
    goarch: [amd64, arm64]
    flags: [-trimpath]
    ldflags:
    - -s -w
    - -X {{ .ModulePath }}/cmd/cloud-controller-manager/app.version=v{{ .Version }}
    - -X {{ .ModulePath }}/cmd/cloud-controller-manager/app.commit={{ .FullCommit }}
    mod_timestamp: "{{ .CommitTimestamp }}"
`)
			archives.WriteString(`  <<: &archive
    formats: [tar.gz]
    builds_info: {mtime: "{{ .CommitDate }}", owner: root, group: root, mode: 0o755}
    files:
    - {src: LICENSE, info: &file {mtime: "{{ .CommitDate }}", owner: root, group: root, mode: 0o644}}
    - {src: CHANGELOG.md, info: *file}
    - {src: dist/THIRD-PARTY-LICENSES, dst: THIRD-PARTY-LICENSES, info: *file}
`)
		} else {
			builds.WriteString("  <<: *build\n")
			archives.WriteString("  <<: *archive\n")
		}
		fmt.Fprintf(&builds, "  tags: %s\n", tags)
	}
	file, err := splice(config, "builds", builds.String()+archives.String()+"# ")
	if err != nil {
		return nil, fmt.Errorf("%s: %w", releaseFile, err)
	}
	return map[string][]byte{releaseFile: file}, nil
}
