package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// providerPages returns the page of every provider with its tables made anew; more are further sections by provider.
func providerPages(root string, providers []registry.Provider, more map[string]map[string]string) (map[string][]byte, error) {
	pages := map[string][]byte{}
	for _, p := range providers {
		path := "docs/providers/" + p.Name + ".md"
		sections := map[string]string{"options": optionsTable(p.Options), "annotations": annotationsTable(p.Annotations), "permissions": permissionsTable(p.Permissions)}
		maps.Copy(sections, p.Sections)
		maps.Copy(sections, more[p.Name])
		page, err := spliced(root, path, sections)
		if err != nil {
			return nil, fmt.Errorf("provider %s: %w", p.Name, err)
		}
		pages[path] = page
	}
	return pages, nil
}

// ownershipPage returns the page with the annotations that mean the same on every cloud.
func ownershipPage(root string) (map[string][]byte, error) {
	const path = "docs/load-balancer-ownership.md"
	page, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	page, err = splice(page, "annotations", annotationsTable(guard.Annotations.Rows()))
	return map[string][]byte{path: page}, err
}

// splice replaces what stands between the markers of a section.
func splice(page []byte, section, content string) ([]byte, error) {
	begin, end := []byte("<!-- begin "+section+":"), []byte("<!-- end "+section+" -->")
	from, to := bytes.Index(page, begin), bytes.Index(page, end)
	if from < 0 || to < from {
		return nil, fmt.Errorf("the markers of section %s are missing", section)
	}
	line := bytes.IndexByte(page[from:], '\n')
	var out bytes.Buffer
	out.Write(page[:from+line+1])
	out.WriteString(content)
	out.Write(page[to:])
	return out.Bytes(), nil
}

func optionsTable(rows []schema.OptionRow) string {
	var b strings.Builder
	b.WriteString("| environment | key | flag | value | default | meaning |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		help := r.Help
		if r.Required {
			help = "**Required.** " + help
		}
		flag := ""
		if r.Flag != "" {
			flag = code("--" + r.Flag)
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s |\n", code(r.Env), code(r.FileKey), flag, values(r.Spec), defaultOf(r.Spec), cell(help))
	}
	return b.String()
}

func permissionsTable(rows []registry.Permission) string {
	var b strings.Builder
	b.WriteString("| for | rights | when |\n| --- | --- | --- |\n")
	for _, r := range rows {
		needs := make([]string, len(r.Needs))
		for i, n := range r.Needs {
			needs[i] = code(n)
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", cell(r.For), strings.Join(needs, ", "), cell(r.Only))
	}
	return b.String()
}

// migrationPage returns the page about coming from the clouds' own controllers with the rights that a credential made for them
// lacks.
func migrationPage(root string, providers []registry.Provider) (map[string][]byte, error) {
	const path = "docs/migrating.md"
	page, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return nil, fmt.Errorf("reading a page: %w", err)
	}
	page, err = splice(page, "more permissions", morePermissionsTable(providers))
	return map[string][]byte{path: page}, err
}

func morePermissionsTable(providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud | for | rights to add | when | without them |\n| --- | --- | --- | --- | --- |\n")
	for _, p := range providers {
		for _, r := range p.Permissions {
			if len(r.Beyond) == 0 {
				continue
			}
			rights := make([]string, len(r.Beyond))
			for i, n := range r.Beyond {
				rights[i] = code(n)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", p.Title, cell(r.For), strings.Join(rights, ", "), cell(r.Only), cell(r.Without))
		}
	}
	return b.String()
}

func annotationsTable(rows []schema.AnnotationRow) string {
	var b strings.Builder
	b.WriteString("| annotation | value | default | a later change | meaning |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range rows {
		value, help := values(r.Spec), r.Help
		if r.PresenceOnly {
			value = "any"
		}
		if r.Deprecated != "" {
			help += " Deprecated: " + r.Deprecated + "."
		}
		if r.Where != nil && len(r.Where.OneOf) == 1 {
			help += " It counts where " + code(r.Where.Key) + " is " + code(r.Where.OneOf[0]) + "."
		}
		if r.Lenient {
			help += " An illegal value counts as the default."
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s |\n", code(r.Key), value, defaultOf(r.Spec), r.Changes, cell(help))
	}
	return b.String()
}

func values(s schema.Spec) string {
	switch {
	case len(s.Choices) > 0:
		quoted := make([]string, len(s.Choices))
		for i, c := range s.Choices {
			quoted[i] = code(c)
		}
		return strings.Join(quoted, ", ")
	case s.Min != nil && s.Max != nil:
		return fmt.Sprintf("%s, %v to %v", kindNames[s.Kind], *s.Min, *s.Max)
	case s.Min != nil:
		return fmt.Sprintf("%s, %v or more", kindNames[s.Kind], *s.Min)
	}
	return kindNames[s.Kind]
}

var kindNames = map[schema.Kind]string{
	schema.KindString: "text", schema.KindBool: "`true` or `false`", schema.KindInt: "whole number", schema.KindFloat: "number",
	schema.KindDuration: "duration", schema.KindURL: "URL", schema.KindList: "list, separated by commas",
	schema.KindIntList: "whole numbers, separated by commas", schema.KindSecret: "secret",
}

func defaultOf(s schema.Spec) string {
	if s.Default != "" {
		return code(s.Default)
	}
	return cell(s.DefaultHelp)
}

func code(text string) string {
	if text == "" {
		return ""
	}
	return "`" + strings.ReplaceAll(text, "|", `\|`) + "`"
}

// cell is a text in a table: bars would end it, and what looks like a tag would not be shown. Code is not looked into for tags.
func cell(text string) string {
	parts := strings.Split(strings.ReplaceAll(text, "|", `\|`), "`")
	for i := 0; i < len(parts); i += 2 {
		parts[i] = strings.ReplaceAll(parts[i], "<", `\<`)
	}
	return strings.Join(parts, "`")
}
