package e2e

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// TestMigrationPages: an operator who types what a cloud's page has about migrating comes from the cloud's own installation to ours and
// back. Ours waits for the old lease, starts from the Secret and the cloud config that are there, and writes nothing in the cloud;
// workloads, Nodes and Services are in the end as they were.
func TestMigrationPages(t *testing.T) {
	every := func(registry.Features) bool { return true }
	onEachCloud(t, every, func(t *testing.T, provider string, _ expectations.Cloud) {
		p, err := registry.Linked().Lookup(provider)
		require.NoError(t, err)
		from := p.Installation.Migration.Origin
		if len(from.Workloads) == 0 { // a part of Kubernetes: its page has no commands, as test/chart holds
			return
		}
		page := "docs/providers/" + provider + ".md"
		l := leftBehind(t, p)
		var w *walk
		if l != nil {
			w = walkOn(t, l.c, page)
		} else {
			w = newWalk(t, provider, page)
		}
		w.leaveOldInstallation(from)
		m := &migration{walk: w, page: page, from: from}
		if l == nil {
			m.goes(nil)
			m.comesBack()
		} else {
			m.takesOver(l)
		}
		w.requireAllTyped()
	})
}

// leftBehind is a cluster with Services as the cloud's own controller leaves them, or nil where they are not written down as data.
func leftBehind(t *testing.T, p registry.Provider) *leftCluster {
	t.Helper()
	if !hasNodesAndLoadBalancers(p.Features) {
		return nil
	}
	is, err := expectations.ReadTakeover(filepath.Join("..", ".."), p)
	require.NoError(t, err)
	if is.None != "" || is.HeldBy != "" {
		return nil
	}
	l := newLeftCluster(t, p.Name, "", is)
	l.registerNodes()
	l.createOthers()
	l.leaveServices()
	return l
}

// migration is the walk along one cloud's page.
type migration struct {
	*walk
	page   string
	from   registry.Origin
	before string
}

func (m *migration) types(n int) string {
	m.t.Helper()
	return m.must(m.find(m.page, "Migrating", n))
}

func (m *migration) specs() string {
	m.t.Helper()
	return m.must(fmt.Sprintf("kubectl -n %s get %s -o jsonpath='{.items[*].spec}{.spec}'", m.from.Namespace, strings.Join(m.from.Workloads, " ")))
}

// takesOver goes and comes back with Services, which stay as they are but for the records that the documentation announces.
func (m *migration) takesOver(l *leftCluster) {
	m.t.Helper()
	left := l.state()
	services, nodes := listServices(m.t.Context(), m.t, l.c), listNodes(m.t.Context(), m.t, l.c)
	require.NoError(m.t, l.c.Cloud.ResetCalls(m.t.Context()))
	m.goes(l.cluster.Environment)
	l.waitRecords()
	l.waitWork(m.ccm, len(l.balanced())+l.recorded())
	l.requireUnchanged(left, nodes)
	l.requireServices(services)
	m.comesBack()
	assert.Equal(m.t, left, l.state())
}

// goes follows the page until ours leads.
func (m *migration) goes(env map[string]string) {
	t := m.t
	t.Helper()
	m.before = m.specs()
	assert.NotContains(t, m.types(0), "error:")
	if m.from.Lease == "" {
		m.types(1)
		assert.NotEqual(t, m.before, m.specs(), "the old workloads have no pods")
		m.types(2)
		m.runs("anyccm", m.from.Namespace, env)
	} else {
		m.types(1)
		m.runs("anyccm", m.from.Namespace, env)
		m.types(2)
		assert.NotEqual(t, m.before, m.specs(), "the old workloads have no pods")
		m.must(fmt.Sprintf(`kubectl -n %s patch lease %s -p '{"spec":{"leaseDurationSeconds":1}}'`, m.from.Namespace, m.from.Lease))
	}
	require.NoError(t, m.ccm.WaitLeading(t.Context(), patience))
	assert.NotRegexp(t, `(?m)^\S+ +old_`, m.types(3), "the lease has another holder")
	if m.from.Lease != "" {
		lease, err := m.c.Kube.CoordinationV1().Leases(m.from.Namespace).Get(t.Context(), m.from.Lease, metav1.GetOptions{})
		require.NoError(t, err)
		assert.EqualValues(t, 1, *lease.Spec.LeaseTransitions, "it came from the old holder: %+v", lease.Spec)
	}
}

// comesBack follows the page's last block.
func (m *migration) comesBack() {
	m.t.Helper()
	m.ccm.Stop(patience)
	m.types(4)
	assert.Equal(m.t, m.before, m.specs(), "as they were")
}

// oldWorkload is one of the cloud's own installation, as far as its commands see it.
const oldWorkload = `kubectl apply -f - <<EOF
apiVersion: apps/v1
kind: %[1]s
metadata: {name: %[2]s, namespace: %[3]s}
spec:
  %[4]s
  selector: {matchLabels: {app: %[2]s}}
  template:
    metadata: {labels: {app: %[2]s}}
    spec:
      nodeSelector: {node-role.kubernetes.io/control-plane: ""}
      containers: [{name: ccm, image: "registry.example.com/old:v1", args: [%[5]s]}]
EOF
`

// leaveOldInstallation makes what the manifest of the cloud's own controller makes, and the lease that it holds.
func (w *walk) leaveOldInstallation(from registry.Origin) {
	w.t.Helper()
	if from.Namespace != metav1.NamespaceSystem {
		w.must("kubectl create namespace " + from.Namespace)
	}
	w.must("kubectl -n " + from.Namespace + " create serviceaccount cloud-controller-manager")
	var args []string
	for _, f := range from.Flags {
		args = append(args, strconv.Quote(f.Flag))
	}
	for _, workload := range from.Workloads {
		kind, name, _ := strings.Cut(workload, "/")
		given := strings.ReplaceAll(strings.Join(args, ", "), "$", `\$`) // the shell's own
		if kind == "deployment" {
			w.must(fmt.Sprintf(oldWorkload, "Deployment", name, from.Namespace, fmt.Sprintf("replicas: %d", max(from.Replicas, 1)), given))
		} else {
			w.must(fmt.Sprintf(oldWorkload, "DaemonSet", name, from.Namespace, "", given))
		}
	}
	if from.Lease != "" {
		holder, hour, now := "old_1", int32(time.Hour/time.Second), metav1.NowMicro()
		_, err := w.c.Kube.CoordinationV1().Leases(from.Namespace).Create(w.t.Context(), &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: from.Lease},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseDurationSeconds: &hour, AcquireTime: &now, RenewTime: &now},
		}, metav1.CreateOptions{})
		require.NoError(w.t, err)
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
	var files []string
	for _, c := range i.Credentials {
		key := c.Key
		if at := slices.IndexFunc(from.Keys, func(k string) bool { return strings.HasPrefix(k, c.Name+"=") }); at >= 0 {
			key = strings.TrimPrefix(from.Keys[at], c.Name+"=")
		}
		w.write("old-"+key, env[strings.TrimSuffix(c.Env, "_FILE")], 0o600)
		files = append(files, " --from-file="+key+"=old-"+key)
	}
	if i.Config.HoldsCredentials {
		files = append(files, " --from-file="+i.Config.File)
	}
	w.must("kubectl -n " + from.Namespace + " create secret generic " + from.Secret + strings.Join(files, ""))
}
