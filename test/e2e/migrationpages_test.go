package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// migrationPages are the pages with the commands from the cloud's own installation to ours.
func migrationPages(t *testing.T, provider string) []string {
	t.Helper()
	p, err := registry.Linked().Lookup(provider)
	require.NoError(t, err)
	if len(p.Installation.Migration.From.Workloads) == 0 {
		return nil
	}
	return []string{"docs/providers/" + provider + ".md"}
}

// oldWorkload is one of the cloud's own installation, as far as its commands see it.
const oldWorkload = `kubectl apply -f - <<EOF
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s, namespace: %[3]s}
spec:
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      containers: [{name: ccm, image: "registry.example.com/old:v1"}]
EOF
`

// movesHereAndBack follows the cloud's page from its own installation to ours and back: the program starts from the Secret and the cloud
// config that are there, holds the old one's lease, and the workloads are in the end as they were.
func (w *walk) movesHereAndBack() {
	t := w.t
	t.Helper()
	from := w.provider.Installation.Migration.From
	if len(from.Workloads) == 0 {
		return
	}
	const section = "Migrating"
	page := migrationPages(t, w.provider.Name)[0]
	w.leaveOldInstallation(from)
	specs := func() string {
		return w.must(fmt.Sprintf("kubectl -n %s get %s -o jsonpath='{.items[*].spec}{.spec}'", from.Namespace, strings.Join(from.Workloads, " ")))
	}
	before := specs()
	assert.NotContains(t, w.types(page, section, 0), "error:")
	install, stop := 1, 2
	if from.Lease == "" {
		install, stop = stop, install
	}
	for n := 1; n <= 2; n++ {
		w.types(page, section, n)
		if n == stop {
			assert.NotEqual(t, before, specs(), "the old workloads have no pods")
		}
		if n == install {
			w.starts("anyccm", from.Namespace)
		}
	}
	assert.Regexp(t, `-controller-manager +\S+_`, w.types(page, section, 3), "the lease has a holder")
	w.ccm.Stop(patience)
	w.types(page, section, 4)
	assert.Equal(t, before, specs(), "as they were")
	w.must(fmt.Sprintf("kubectl -n %s delete %s", from.Namespace, strings.Join(from.Workloads, " ")))
	w.must(fmt.Sprintf("kubectl -n %s delete secret --all; kubectl -n %[1]s delete lease --all; kubectl -n %[1]s delete serviceaccount cloud-controller-manager",
		from.Namespace))
}

// leaveOldInstallation makes what the manifest of the cloud's own controller makes.
func (w *walk) leaveOldInstallation(from registry.Origin) {
	w.t.Helper()
	if from.Namespace != metav1.NamespaceSystem {
		w.must("kubectl create namespace " + from.Namespace)
	}
	w.must("kubectl -n " + from.Namespace + " create serviceaccount cloud-controller-manager")
	for _, workload := range from.Workloads {
		kind, name, _ := strings.Cut(workload, "/")
		kind = map[string]string{"daemonset": "DaemonSet", "deployment": "Deployment"}[kind]
		w.must(fmt.Sprintf(oldWorkload, kind, name, from.Namespace))
	}
	i := w.provider.Installation
	if from.ConfigMap != "" {
		w.must(fmt.Sprintf("kubectl -n %s create configmap %s --from-file=%s=%s", from.Namespace, from.ConfigMap, from.ConfigKey, i.Config.File))
	}
	if from.Secret == "" {
		return
	}
	env, err := w.c.Cloud.Environment(w.t.Context())
	require.NoError(w.t, err)
	files := ""
	for _, c := range i.Credentials {
		key := c.Key
		if at := slices.IndexFunc(from.Keys, func(k string) bool { return strings.HasPrefix(k, c.Name+"=") }); at >= 0 {
			key = strings.TrimPrefix(from.Keys[at], c.Name+"=")
		}
		w.write("old-"+key, env[strings.TrimSuffix(c.Env, "_FILE")], 0o600)
		files += " --from-file=" + key + "=old-" + key
	}
	if i.Config.HoldsCredentials {
		files += " --from-file=" + i.Config.File
	}
	w.must("kubectl -n " + from.Namespace + " create secret generic " + from.Secret + files)
}
