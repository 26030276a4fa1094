package main

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// sample is the part of a provider's page with a cloud config to begin with: as values of the chart, and as the file that it writes.
func sample(p registry.Provider) (string, error) {
	c := p.Installation.Config
	if c.Format == registry.NoConfig {
		lines := make([]string, len(p.Installation.Set))
		for i, set := range p.Installation.Set {
			key, value, _ := strings.Cut(strings.TrimPrefix(set, "options."), "=")
			lines[i] = "  " + key + ": " + value + "\n"
		}
		return "There is no cloud config. In the values of the chart:\n\n```yaml\noptions:\n" + strings.Join(lines, "") + "```\n", nil
	}
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte("{"+c.Example+"}"), &values); err != nil {
		return "", fmt.Errorf("Installation.Config.Example of %s: %w", p.Name, err)
	}
	written, err := yaml.Marshal(map[string]any{"cloudConfig": values})
	if err != nil {
		return "", fmt.Errorf("writing the example of %s: %w", p.Name, err)
	}
	var language, file string
	if c.Format == registry.INI {
		language, file = "ini", ini(values)
	} else {
		text, err := yaml.Marshal(values)
		if err != nil {
			return "", fmt.Errorf("writing the example of %s: %w", p.Name, err)
		}
		language, file = "yaml", string(text)
	}
	return fmt.Sprintf("In the values of the chart:\n\n```yaml\n%s```\n\nThe file %s of `--cloud-config`:\n\n```%s\n%s```\n", written, code(c.File), language, file), nil
}

// ini writes sections as the chart does.
func ini(sections map[string]any) string {
	var parts []string
	for _, section := range slices.Sorted(maps.Keys(sections)) {
		keys, _ := sections[section].(map[string]any)
		lines := []string{"[" + section + "]\n"}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			lines = append(lines, fmt.Sprintf("%s = %q\n", key, fmt.Sprint(keys[key])))
		}
		parts = append(parts, strings.Join(lines, ""))
	}
	return strings.Join(parts, "\n")
}

// servicesOf is the part of a provider's page with a public and an internal Service, and what they give.
func (w *writer) servicesOf(p registry.Provider) string {
	if p.Features.LoadBalancers != registry.Done {
		return noLoadBalancers
	}
	here := expectations.ReadForDocs(w.root, p.Name).Page
	var b strings.Builder
	for i, name := range expectations.PageNames(p) {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "```yaml\n%s```\n\nIt gives %s.\n", manifest(name, here[name].Annotations), cell(here[name].Gives))
	}
	if p.Features.Internal != registry.Done {
		b.WriteString("\nA Service cannot ask for an internal load balancer here.\n")
	}
	return b.String()
}

func manifest(name string, annotations map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata:\n  name: %s\n", name)
	if len(annotations) > 0 {
		b.WriteString("  annotations:\n")
	}
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		fmt.Fprintf(&b, "    %s: %q\n", key, annotations[key])
	}
	b.WriteString("spec:\n  type: LoadBalancer\n  selector: {app: web}\n  ports:\n  - {name: http, port: 80, targetPort: 8080}\n")
	return b.String()
}

// costsOf is the table of calls that the tests hold the program to.
func (w *writer) costsOf(p registry.Provider) string {
	if p.InCluster {
		return "There is no cloud to call.\n"
	}
	costs := expectations.ReadForDocs(w.root, p.Name).Costs
	var b strings.Builder
	b.WriteString("| measured on a simulated cloud | reads at most | writes |\n| --- | --- | --- |\n")
	row := func(what string, reads any, writes int) { fmt.Fprintf(&b, "| %s | %v | %d |\n", what, reads, writes) }
	for _, name := range slices.Sorted(maps.Keys(costs.Nodes)) {
		kind := ""
		if name != "plain" {
			kind = ", " + name
		}
		n := costs.Nodes[name]
		row("1,000 new nodes at once"+kind, n.Start, n.Writes)
		row("a minute with all their addresses looked at, and 50 of them not ready"+kind, n.Minute+n.Once, 0)
	}
	if s := costs.Services; p.Features.LoadBalancers == registry.Done {
		row("a node that joins 20 Services of two ports", s.Join.MostReads(), s.Join.Writes)
		row("one of them looked at without a change", s.Unchanged, 0)
		row("all of them after a restart", s.Restart, 0)
		b.WriteString(w.transcribedCalls(p))
	}
	return b.String()
}
