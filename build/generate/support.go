package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// kubernetesFolder has a module file for each supported Kubernetes minor version: go.mod for the newest, names such as 1.34.mod for older
// ones.
const kubernetesFolder = "build/kubernetes"

var apiVersion = regexp.MustCompile(`k8s\.io/api v0\.(\d+)\.`)

// minors are the supported minor versions of Kubernetes, the oldest first.
func minors(root string) ([]int, error) {
	files, err := filepath.Glob(filepath.Join(root, filepath.FromSlash(kubernetesFolder), "*.mod"))
	if err != nil {
		return nil, fmt.Errorf("listing %s: %w", kubernetesFolder, err)
	}
	var all []int
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", file, err)
		}
		m := apiVersion.FindSubmatch(text)
		if m == nil {
			return nil, fmt.Errorf("%s names no version of k8s.io/api", file)
		}
		minor, _ := strconv.Atoi(string(m[1])) // the pattern allows only digits
		all = append(all, minor)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no module file, so that nobody knows the versions of Kubernetes", kubernetesFolder)
	}
	slices.Sort(all)
	return slices.Compact(all), nil
}

func (w *writer) support(providers []registry.Provider) {
	list, err := minors(w.root)
	if err != nil {
		w.problem(err)
		return
	}
	w.page("docs/support.md", "", map[string]string{"matrix": supportTable(providers, list)})
}

// tagsTable has a row for each cloud whose instances have tags.
func tagsTable(providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud | tags of instances | served | labels of the cloud's own |\n| --- | --- | --- | --- |\n")
	for _, p := range providers {
		is, served := p.InstanceTags, "yes, with the reads of instances"
		switch {
		case is.Called == "":
			continue
		case is.Elsewhere != "":
			served = "no: " + is.Elsewhere
		case is.Call != "":
			served = "yes, with another call: " + is.Call
		}
		own := make([]string, len(p.NodeLabels))
		for i, label := range p.NodeLabels {
			own[i] = "`" + label + "`"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", p.Title, is.Called, served, strings.Join(own, ", "))
	}
	return b.String()
}

// supportTable has a row for each cloud and a column for each minor version of Kubernetes.
func supportTable(providers []registry.Provider, minors []int) string {
	var b strings.Builder
	b.WriteString("| cloud | level |")
	for _, minor := range minors {
		fmt.Fprintf(&b, " Kubernetes 1.%d |", minor)
	}
	b.WriteString("\n| --- | --- |" + strings.Repeat(" --- |", len(minors)) + "\n")
	for _, p := range providers {
		fmt.Fprintf(&b, "| [%s](providers/%s.md) | %s |", p.Title, p.Name, p.Stability)
		for i := range minors {
			fmt.Fprintf(&b, " %s |", map[bool]string{true: "end to end", false: "API types"}[i == len(minors)-1])
		}
		b.WriteString("\n")
	}
	return b.String()
}
