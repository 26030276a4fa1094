package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// cloudValues lists each cloud's values for the chart's page.
func cloudValues(providers []registry.Provider) string {
	var b strings.Builder
	for i, p := range providers {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n| value | on %s |\n| --- | --- |\n", p.Title, p.Title)
		fmt.Fprintf(&b, "| `cloudProvider` | `%s` |\n", p.Name)
		for _, c := range p.Installation.Credentials {
			optional := ""
			if c.Optional {
				optional = " Optional."
			}
			fmt.Fprintf(&b, "| `credentials.values.%s` | %s%s Key of the Secret: %s, or `credentials.keys.%s`. |\n",
				c.Name, cell(c.Help), optional, code(c.Key), c.Name)
		}
		fmt.Fprintf(&b, "| `cloudConfig` | %s |\n", configCell(p))
		fmt.Fprintf(&b, "| `options` | [The names in the columns environment and flag](../../docs/providers/%s.md#options). |\n", p.Name)
		if r := p.Installation.ReadsSecrets; r != "" {
			fmt.Fprintf(&b, "| `readSecrets` | For %s. |\n", cell(r))
		}
		for _, c := range p.Controllers {
			if c.Unneeded != "" {
				continue
			}
			fmt.Fprintf(&b, "| `controllers` | Also %s. |\n", code(c.Name))
		}
	}
	return b.String()
}

func configCell(p registry.Provider) string {
	c := p.Installation.Config
	if c.Format == registry.NoConfig {
		return "None."
	}
	text := fmt.Sprintf("%s, such as [this one](../../docs/providers/%s.md#sample-configuration).", c.Format, p.Name)
	if c.HoldsCredentials {
		text += fmt.Sprintf(" It holds the credentials; key of the Secret: %s, or `credentials.keys.%s`.", code(c.File), registry.ConfigCredential)
	}
	if c.Required {
		return text + " Required."
	}
	return text
}

// example shows the installation of a release on a cloud.
func example(p registry.Provider) string {
	lines, set := secretOf(p.Installation, "kube-system")
	return block(append(lines, helmInstall(p, "cloud-controller-manager", "kube-system", "production", append(set, p.Installation.Set...))...)...)
}

// secretOf is the command that makes the Secret of a release, and the value that names it; nothing where none is needed.
func secretOf(i registry.Installation, namespace string) (commands, set []string) {
	var files []string
	for _, c := range i.Credentials {
		if !c.Optional {
			files = append(files, fmt.Sprintf(" --from-file=%s=%s", c.Key, strings.ToLower(c.Name)))
		}
	}
	if i.Config.HoldsCredentials && i.Config.Required {
		files = append(files, " --from-file="+i.Config.File)
	}
	if len(files) == 0 {
		return nil, nil
	}
	return []string{"kubectl -n " + namespace + " create secret generic " + i.Secret + strings.Join(files, "")}, []string{"credentials.existingSecret=" + i.Secret}
}

// helmInstall are the lines that install a release with these values.
func helmInstall(p registry.Provider, release, namespace, cluster string, set []string) []string {
	var values strings.Builder
	for _, one := range slices.Concat([]string{"cloudProvider=" + p.Name}, set, []string{"clusterName=" + cluster}) {
		if strings.Contains(one, "[") { // zsh refuses what looks like a pattern and matches nothing
			one = "'" + one + "'"
		}
		values.WriteString(" --set " + one)
	}
	if c := p.Installation.Config; c.Required && !c.HoldsCredentials {
		values.WriteString(" --set-file extraCloudConfig=" + c.File)
	}
	return []string{
		"helm install " + release + " charts/cloud-controller-manager --namespace " + namespace + " \\",
		" " + values.String() + " \\",
		"  --set image.repository=registry.example.com/cloud-controller-manager --set image.tag=v1",
	}
}

// installations writes the cloud sections of the installation page.
func installations(providers []registry.Provider) string {
	var b strings.Builder
	for i, p := range providers {
		if i > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "## %s\n\n%s", p.Title, example(p))
		for _, n := range p.Installation.Notes {
			fmt.Fprintf(&b, "\n%s\n", n)
		}
		rights := ""
		if !p.InCluster {
			rights = fmt.Sprintf("; [rights of the credential](providers/%s.md#permissions)", p.Name)
		}
		fmt.Fprintf(&b, "\n[Options](providers/%s.md#options); [values](../charts/cloud-controller-manager/README.md#values-on-each-cloud)%s.\n", p.Name, rights)
	}
	return b.String()
}

// migrations is the table about migrating from each cloud's own controller.
func migrations(providers []registry.Provider) string {
	var b strings.Builder
	b.WriteString("| cloud | credentials | `clusterName` is | written at the change | differences | commands |\n| --- | --- | --- | --- | --- | --- |\n")
	for _, p := range providers {
		m := p.Installation.Migration
		fmt.Fprintf(&b, "| %s | %s | %s | %s | [list](providers/%s.md#differences-from-the-clouds-own-controller) | "+
			"[there and back](providers/%s.md#migrating) |\n", p.Title, cell(m.Credentials), cell(m.ClusterName), cell(m.Written), p.Name, p.Name)
	}
	return b.String()
}

// migrationNotes are the notes about single clouds.
func migrationNotes(providers []registry.Provider) string {
	var parts []string
	for _, p := range providers {
		parts = append(parts, p.Installation.Migration.Notes...)
	}
	return strings.Join(parts, "\n\n") + "\n"
}
