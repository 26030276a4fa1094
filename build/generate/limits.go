package main

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/limits"
)

// limits writes the limits of each cloud.
func (w *writer) limits(providers []registry.Provider) {
	w.page("docs/limits.md", "", map[string]string{"limits": limitTables(providers)})
}

// limitTables returns a table for each cloud, with a row for each limit.
func limitTables(providers []registry.Provider) string {
	var b strings.Builder
	for _, p := range providers {
		if len(p.Limits) == 0 {
			continue
		}
		fmt.Fprintf(&b, "## %s\n\n| what | at most | more than that | source |\n| --- | --- | --- | --- |\n", p.Title)
		for _, l := range p.Limits {
			fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(l.String()), formatMaximum(l), cmp.Or(l.Program, "the cloud refuses it"), cell(l.Source))
		}
		b.WriteString("\n")
	}
	return b.String()
}

// formatMaximum returns the maximum, with a note if accounts may differ.
func formatMaximum(l limits.Limit) string {
	if l.Soft {
		return fmt.Sprintf("%d, or what the account was given", l.Max)
	}
	return strconv.Itoa(l.Max)
}
