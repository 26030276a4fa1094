package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// migratedRelease is a name that leaves the objects of clouds' own manifests alone: theirs are often called cloud-controller-manager.
const migratedRelease = "anyccm"

// usualCluster is the name of a cluster whose controllers are given none.
const usualCluster = "kubernetes"

// keptOff is a label that no node has, by which a DaemonSet that stays has no pods.
const keptOff = "anyccm.io/migrated"

// migration is the part of a provider's page that leads from its cloud's own installation to ours and back, in commands.
func migration(p registry.Provider) string {
	m := p.Installation.Migration
	from := m.Origin
	if len(from.Workloads) == 0 {
		return fmt.Sprintf("%s had no controller of its own to install: it was a part of Kubernetes, in kube-controller-manager and kubelets. Start both "+
			"with `--cloud-provider=external`, and install as [the page](../installing.md#%s) says. The way back is the former flag.\n",
			p.Title, strings.ReplaceAll(strings.ToLower(p.Title), " ", "-"))
	}
	workloads := make([]string, len(from.Workloads))
	for i, w := range from.Workloads {
		workloads[i] = code(w)
	}
	lease := "none"
	if from.Lease != "" {
		lease = code(from.Lease)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "| the cloud's own installation |  |\n| --- | --- |\n| namespace | %s |\n| workloads | %s |\n| lease | %s |\n", code(from.Namespace),
		strings.Join(workloads, ", "), lease)
	fmt.Fprintf(&b, "| credentials | %s |\n| `clusterName` is | %s |\n| written at the change | %s |\n", cell(m.Credentials), cell(m.ClusterName), cell(m.Written))
	b.WriteString("\n| flag of its manifest | here |\n| --- | --- |\n")
	for _, f := range from.Flags {
		fmt.Fprintf(&b, "| %s | %s |\n", code(f.Flag), cell(placeOf(f)))
	}
	if from.Before != "" {
		b.WriteString("\n" + from.Before + "\n")
	}
	b.WriteString("\nLook at the flags of the controller, and at what its Services ask for. [Migrating](../migrating.md) says where flags go in the chart, and how `plan` shows what would be written:\n\n" +
		block(checkSteps(p)...))
	install := "Install ours as another release, so that no object has the name of an old one. " +
		"`clusterName` is the old one's `--cluster-name`, which is " + code(usualCluster) + " where it has none."
	if from.Lease == "" {
		b.WriteString("\nStop the old controller, which takes no lease that ours could wait for. Nodes and load balancers go on working:\n\n" + block(stopSteps(from)...))
		fmt.Fprintf(&b, "\n%s It leads at once:\n\n%s", install, block(installBeside(p)...))
	} else {
		fmt.Fprintf(&b, "\n%s Its pods wait for the port and the lease of the old one:\n\n%s", install, block(installBeside(p)...))
		b.WriteString("\nStop the old controller. Ours leads when the lease has expired: within 17 seconds, unless the old one's " +
			"`--leader-elect-lease-duration` says otherwise. Nodes and load balancers go on working meanwhile:\n\n" + block(stopSteps(from)...))
	}
	b.WriteString("\nLook at the leader, at Services that fail and at the log. It has a line for each change:\n\n" + block(checkAfterSteps(from)...))
	b.WriteString("\nThe way back:\n\n" + block(rollbackSteps(from)...))
	fmt.Fprintf(&b, "\nWhen everything works, delete %s.", strings.Join(workloads, " and "))
	if from.Secret != "" {
		fmt.Fprintf(&b, " The Secret %s stays: do not uninstall a Helm release that made it.", code(from.Secret))
	}
	b.WriteString("\n")
	return b.String()
}

// placeOf says what takes the place of a flag.
func placeOf(f registry.OldFlag) string {
	var parts []string
	if strings.HasPrefix(f.Value, "extraArgs[0]=") {
		parts = append(parts, "goes on in `extraArgs`")
	} else if f.Value != "" {
		parts = append(parts, code("--set "+f.Value))
	}
	if f.Why != "" {
		parts = append(parts, f.Why)
	}
	if len(parts) == 0 {
		return "the same"
	}
	return strings.Join(parts, "; ")
}

func block(lines ...string) string { return "```\n" + strings.Join(lines, "\n") + "\n```\n" }

func checkSteps(p registry.Provider) []string {
	from := p.Installation.Migration.Origin
	return []string{
		fmt.Sprintf("kubectl -n %s get %s -o yaml > before.yaml", from.Namespace, strings.Join(from.Workloads, " ")),
		"kubectl get services -A -o yaml | bin/cloud-controller-manager validate --cloud-provider=" + p.Name + " -f -",
	}
}

func stopSteps(from registry.Origin) []string {
	return eachWorkload(from, "--replicas=0", `"true"`)
}

func rollbackSteps(from registry.Origin) []string {
	uninstall := fmt.Sprintf("helm -n %s uninstall %s", from.Namespace, migratedRelease)
	return slices.Concat([]string{uninstall}, eachWorkload(from, fmt.Sprintf("--replicas=%d", max(from.Replicas, 1)), "null"))
}

// eachWorkload scales Deployments, and puts a label that no node has into the selector of DaemonSets or takes it out.
func eachWorkload(from registry.Origin, replicas, label string) []string {
	lines := make([]string, len(from.Workloads))
	for i, w := range from.Workloads {
		lines[i] = fmt.Sprintf("kubectl -n %s scale %s %s", from.Namespace, w, replicas)
		if strings.HasPrefix(w, "daemonset/") {
			lines[i] = fmt.Sprintf(`kubectl -n %s patch %s -p '{"spec":{"template":{"spec":{"nodeSelector":{"%s":%s}}}}}'`, from.Namespace, w, keptOff, label)
		}
	}
	return lines
}

func checkAfterSteps(from registry.Origin) []string {
	lease := from.Lease
	if lease == "" {
		lease = migratedRelease + "-cloud-controller-manager"
	}
	return []string{
		fmt.Sprintf("kubectl -n %s get lease %s", from.Namespace, lease),
		"kubectl get events -A --field-selector reason=SyncLoadBalancerFailed",
		fmt.Sprintf("kubectl -n %s logs -l app.kubernetes.io/instance=%s --tail=-1", from.Namespace, migratedRelease),
	}
}

// installBeside are the commands that install a release beside the cloud's own controller, with the credentials that are there.
func installBeside(p registry.Provider) []string {
	i, from := p.Installation, p.Installation.Migration.Origin
	var lines []string
	if from.ConfigMap != "" {
		lines = append(lines, fmt.Sprintf(`kubectl -n %s get configmap %s -o jsonpath='{.data.%s}' > %s`, from.Namespace, from.ConfigMap,
			strings.ReplaceAll(from.ConfigKey, ".", `\.`), i.Config.File))
	}
	given := slices.Clone(i.Set)
	if from.Set != nil {
		given = slices.Clone(from.Set)
	}
	if secret := from.Secret; secret != "" {
		i.Secret = secret
		given = append(given, "credentials.existingSecret="+secret)
		for _, key := range from.Keys {
			given = append(given, "credentials.keys."+key)
		}
	} else {
		created, set := secretOf(i, from.Namespace)
		lines, given = append(lines, created...), append(given, set...)
	}
	if from.Lease != "" {
		given = append(given, "leaderElection.leaseName="+from.Lease)
	}
	return append(lines, helmInstall(p, migratedRelease, from.Namespace, usualCluster, given)...)
}
