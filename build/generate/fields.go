package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// fieldTables show for each cloud how the fields of Services are handled.
func fieldTables(providers []registry.Provider) string {
	var b strings.Builder
	for _, p := range providers {
		if len(p.ServiceFields) == 0 {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n| field | with | becomes | why, or when |\n| --- | --- | --- | --- |\n", p.Title)
		for _, f := range schema.AllFields() {
			for _, row := range p.ServiceFields {
				if row.Field == f {
					fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", fieldCell(f), fieldCondition(row), fieldEffect(row), fieldWords(row))
				}
			}
		}
	}
	return b.String()
}

func fieldCell(f schema.Field) string {
	if strings.HasPrefix(string(f), "spec.") {
		return code(string(f))
	}
	return string(f)
}

func fieldCondition(row schema.FieldRow) string {
	var all []string
	for key, value := range row.With {
		all = append(all, code(key+": "+value))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

func fieldEffect(row schema.FieldRow) string {
	if row.Later != "" {
		return fmt.Sprintf("%s; changed later: %s", row.Becomes, row.Later)
	}
	return string(row.Becomes)
}

func fieldWords(row schema.FieldRow) string {
	if row.Only != "" {
		return cell("served where " + row.Only)
	}
	return cell(row.Words)
}
