package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// examplesTables describe the manifests that all clouds serve, and the default annotations of their classes. The end-to-end tests check the
// same data.
func examplesTables(root string, providers []registry.Provider) (map[string]string, error) {
	names, err := expectations.Examples(root)
	if err != nil {
		return map[string]string{}, err
	}
	providers = slices.DeleteFunc(slices.Clone(providers), func(p registry.Provider) bool { return p.Features.LoadBalancers != registry.Done })
	var head strings.Builder
	gives, sets, classes := map[string][]string{}, map[string][]string{}, map[string]bool{}
	for _, p := range providers {
		fmt.Fprintf(&head, " [%s](providers/%s.md) |", p.Title, p.Name)
		here := expectations.ReadForDocs(root, p.Name).Portable
		for _, name := range names {
			gives[name] = append(gives[name], exampleCell(here.Examples[name]))
		}
		for _, d := range here.Defaults {
			classes[d.LoadBalancerClass] = true
		}
	}
	for _, p := range providers {
		here := expectations.ReadForDocs(root, p.Name).Portable
		for class := range classes {
			sets[class] = append(sets[class], defaultsCell(here.Defaults, class))
		}
	}
	table := func(first string, names []string, show func(string) string, cells map[string][]string) string {
		var b strings.Builder
		fmt.Fprintf(&b, "| %s |%s\n| --- |%s\n", first, head.String(), strings.Repeat(" --- |", len(providers)))
		for _, name := range names {
			fmt.Fprintf(&b, "| %s | %s |\n", show(name), strings.Join(cells[name], " | "))
		}
		return b.String()
	}
	link := func(name string) string { return fmt.Sprintf("[%s](examples/portable/%s.yaml)", name, name) }
	return map[string]string{
		"examples": table("manifest", names, link, gives), "example defaults": table("class", slices.Sorted(maps.Keys(classes)), code, sets),
	}, nil
}

func exampleCell(e expectations.Example) string {
	switch {
	case e.Refused != "":
		return "**refused**: " + code(e.Refused)
	case e.Gives == "":
		return "not tried"
	}
	return cell(e.Gives)
}

func defaultsCell(all []expectations.Default, class string) string {
	var texts []string
	for _, d := range all {
		for _, key := range slices.Sorted(maps.Keys(d.Annotations)) {
			if d.LoadBalancerClass == class {
				texts = append(texts, code(key+": "+d.Annotations[key]))
			}
		}
	}
	if len(texts) == 0 {
		return "no annotations"
	}
	return strings.Join(texts, ", ")
}
