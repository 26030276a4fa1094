package main

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance/situations"
	"github.com/anyccm/cloud-controller-manager/registry"
)

// access writes who may connect in each situation, for each cloud with source ranges.
func (w *writer) access(providers []registry.Provider) {
	providers = slices.DeleteFunc(slices.Clone(providers), func(p registry.Provider) bool {
		return p.InCluster || p.Features.SourceRanges != registry.Done
	})
	clouds := map[string]situations.Exceptions{}
	for _, p := range providers {
		text, err := os.ReadFile(filepath.Join(w.root, "providers", p.Name, filepath.FromSlash(situations.File)))
		if err == nil {
			all := situations.Exceptions{}
			err = yaml.UnmarshalStrict(text, &all)
			clouds[p.Name] = all
		}
		if err != nil {
			w.problem(fmt.Errorf("reading who may connect: %w", err))
		}
	}
	w.page("docs/security.md", "", map[string]string{"clouds": accessTable(providers, clouds)})
}

// accessTable has a row for each situation, a column for each cloud, and the reasons of exceptions as notes.
func accessTable(providers []registry.Provider, clouds map[string]situations.Exceptions) string {
	var b, reasons strings.Builder
	fmt.Fprint(&b, "| case | test |")
	for _, p := range providers {
		fmt.Fprintf(&b, " %s |", p.Title)
	}
	fmt.Fprintf(&b, "\n| --- | --- |%s\n", strings.Repeat(" --- |", len(providers)))
	numbers := map[string]int{} // by reason
	for _, s := range situations.All() {
		fmt.Fprintf(&b, "| %s | `TestConformance/%s` |", cell(s.Text), s.Case)
		for _, p := range providers {
			scopes := map[string][]string{} // by reason
			held := 0
			for _, scope := range slices.Sorted(maps.Keys(clouds[p.Name])) {
				if why := clouds[p.Name][scope][s.Case]; why != "" {
					scopes[why] = append(scopes[why], scope)
					continue
				}
				held++
			}
			var marks []string
			if held > 0 {
				marks = append(marks, "✓")
			}
			for _, why := range slices.Sorted(maps.Keys(scopes)) {
				reason := fmt.Sprintf("%s%s: %s", p.Title, formatScopes(scopes[why], len(clouds[p.Name])), why)
				if numbers[reason] == 0 {
					numbers[reason] = len(numbers) + 1
					fmt.Fprintf(&reasons, "%d. %s\n", numbers[reason], reason)
				}
				marks = append(marks, fmt.Sprintf("[%d]", numbers[reason]))
			}
			fmt.Fprintf(&b, " %s |", strings.Join(marks, ", "))
		}
		b.WriteString("\n")
	}
	return b.String() + "\n" + reasons.String()
}

// formatScopes lists some of a cloud's scopes, or "" for all.
func formatScopes(scopes []string, all int) string {
	if len(scopes) == all {
		return ""
	}
	return " (" + strings.Join(scopes, "; ") + ")"
}
