package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/controlplane"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// Pages whose commands are run.
const (
	readme, installing, migrating   = "README.md", "docs/installing.md", "docs/migrating.md"
	observability, troubleshooting  = "docs/observability.md", "docs/troubleshooting.md"
	ownership, validating, hybrid   = "docs/load-balancer-ownership.md", "docs/validating-services.md", "docs/hybrid-clusters.md"
	quickStart                      = "docs/quickstart-kubeadm.md"
	oldCluster                      = "8c5a43de-0000-4000-8000-000000000000"
	firstRelease, clusterOnThePages = "cloud-controller-manager", "production"
)

// elsewhere are blocks of the pages that are no commands for this test, by their first words, and why.
var elsewhere = map[string]string{
	"make demo\nmake test":                         "they are what runs this test, and the demo, which CI runs",
	"make demo NODES=5":                            "CI runs the demo",
	"DO_ACCESS_TOKEN_FILE=/etc/digitalocean/token": "every end-to-end test starts the program by hand",
	"service.yaml:8: error:":                       "output",
	"0 to create, 1 to change,":                    "output",
	"doctl compute droplet create":                 "machines cost money",
	"kubeadm init":                                 "build/kubeadm has kubeadm and kubelet read the files",
	"kubeadm join":                                 "build/kubeadm has kubeadm and kubelet read the files",
	"kubectl apply -f https://":                    "there are no pods, and no internet",
}

// TestPages: an operator who reads the README and the pages, and types what stands there, gets what they say. On every cloud all their
// commands are run in this order, on a real API server; only names of places are replaced.
func TestPages(t *testing.T) {
	every := func(registry.Features) bool { return true }
	onEachCloud(t, every, func(t *testing.T, provider string, expected expectations.Cloud) {
		pages := []string{readme, installing, migrating, observability, troubleshooting, ownership, validating, hybrid}
		w := newWalk(t, provider, pages...)
		w.installs()
		w.readsTheReadme()
		w.migrates()
		w.observes()
		if w.provider.Features.LoadBalancers == registry.Done {
			if !w.provider.InCluster {
				w.triesAnOutage()
			}
			w.plans()
			w.looksForOrphans()
		}
		w.removes()
		w.requireAllTyped()
	})
}

// TestQuickStart: the quick start from the point where machines and Kubernetes are there.
func TestQuickStart(t *testing.T) {
	w := newWalk(t, harness.AnyProvider, quickStart)
	w.env = append(w.env, "KUBECONFIG="+filepath.Join(w.home, ".kube", "config")) // as step 2 ends
	out := w.types(quickStart, "4. The program", 0)
	assert.NotContains(t, out, "error")
	w.starts()
	out = w.types(quickStart, "4. The program", 1)
	assert.Regexp(t, `node-1 +digitalocean://\d+ `, out)
	assert.NotContains(t, out, "uninitialized")

	commands := w.find(quickStart, "5. A Service", 0)
	require.Contains(t, commands, " --watch\n")
	const plan = "bin/cloud-controller-manager plan"
	commands = strings.NewReplacer(" --watch\n", "\n", plan, "DO_ACCESS_TOKEN_FILE=token "+plan).Replace(commands) // as the page says below it
	out = w.must(commands)
	assert.Contains(t, out, "errors: 0")
	assert.Contains(t, out, "Service default/web:\n  create")
	_, err := w.c.WaitServed(t.Context(), "web", patience)
	require.NoError(t, err)

	w.types(quickStart, "6. The end", 0)
	w.requireAllTyped()
}

// walk is an operator at a terminal.
type walk struct {
	t        *testing.T
	c        *harness.Cluster
	provider registry.Provider
	// home is where commands are typed, and the home folder as well.
	home   string
	env    []string
	blocks []*block
	// port is where the program listens that the chart runs.
	port int
	ccm  *harness.CCM
}

// block is a fenced block of a page.
type block struct {
	page, heading, text string
	typed               bool
}

func newWalk(t *testing.T, provider string, pages ...string) *walk {
	t.Helper()
	w := walkOn(t, newClusterOn(t, provider, "--instances=2"), pages...)
	// Where the program has no nodes kubelet has initialized them.
	kubelets := w.provider.Features.Instances != registry.Done
	require.NoError(t, w.c.RegisterNodes(t.Context(), 1, 2, harness.NodeSpec{Ready: true, Initialized: kubelets}))
	return w
}

// walkOn is newWalk on a cluster that has its nodes, or gets them.
func walkOn(t *testing.T, c *harness.Cluster, pages ...string) *walk {
	t.Helper()
	require.FileExists(t, c.Programs.Kubectl, "run make tools-for-tests")
	p, err := registry.Linked().Lookup(c.Provider)
	require.NoError(t, err)
	w := &walk{t: t, c: c, provider: p, home: filepath.Join(c.Dir, "home")}
	for _, page := range pages {
		w.blocks = append(w.blocks, blocksOf(t, page)...)
	}
	// The cluster came with the chart's objects, which no release owns.
	objects, err := c.Install(t.Context(), firstRelease, nil)
	require.NoError(t, err)
	require.NoError(t, c.Delete(t.Context(), objects))
	w.furnish()
	return w
}

var heading = regexp.MustCompile(`^#+ (.*)$`)

// blocksOf returns what a page has between fences that name no language.
func blocksOf(t *testing.T, page string) []*block {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(page)))
	require.NoError(t, err)
	var all []*block
	var at *block
	title, inside := "", false
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch fence, isFence := strings.CutPrefix(line, "```"); {
		case isFence && inside:
			inside, at = false, nil
		case isFence:
			inside = true
			if fence == "" {
				at = &block{page: page, heading: title}
				all = append(all, at)
			}
		case at != nil:
			at.text += line + "\n"
		case !inside && heading.MatchString(line):
			title = heading.FindStringSubmatch(line)[1]
		}
	}
	require.NotEmpty(t, all, page)
	return all
}

// furnish lays out what the pages take for granted: the checkout with what was built, credentials, a kubeconfig, a Service to judge.
func (w *walk) furnish() {
	t := w.t
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(w.home, "bin"), 0o755))
	require.NoError(t, os.MkdirAll(filepath.Join(w.home, ".kube"), 0o755))
	for _, folder := range []string{"charts", "docs"} {
		require.NoError(t, os.Symlink(filepath.Join(root, folder), filepath.Join(w.home, folder)))
	}
	kubeconfig, err := os.ReadFile(w.c.Kubeconfig)
	require.NoError(t, err)
	w.write(".kube/config", string(kubeconfig), 0o600)
	w.write("service.yaml", `{apiVersion: v1, kind: Service, metadata: {name: web, namespace: default},
  spec: {type: LoadBalancer, ports: [{port: 80, nodePort: 30080}]}}`, 0o600)

	values, err := w.c.ChartValues(t.Context())
	require.NoError(t, err)
	ports, err := controlplane.FreePorts(1)
	require.NoError(t, err)
	env, options := w.credentials(), ""
	if config, err := w.c.Cloud.CloudConfig(t.Context()); assert.NoError(t, err) && config != "" {
		w.write(w.provider.Installation.Config.File, config, 0o600)
		// Of the commands those that ask the cloud take the controllers' cloud config, as the pages say.
		options = " --cloud-config=" + filepath.Join(w.home, w.provider.Installation.Config.File)
		if w.provider.Installation.Config.Required { // the page's commands give it
			delete(values, "extraCloudConfig")
		}
	}
	delete(values, "credentials")
	delete(values, "cloudProvider")
	w.port = ports[0]
	w.write("simulated.yaml", toYAML(t, values.Set("securePort", w.port)), 0o600)
	w.write("bin/cloud-controller-manager", "#!/bin/sh\ncase \"$1\" in preflight|plan|orphans|handover) set -- \"$@\""+options+
		" ;; esac\nexec "+w.c.Programs.CCM+" \"$@\"\n", 0o700)
	for name, path := range map[string]string{"helm": w.c.Programs.Helm, "kubectl": w.c.Programs.Kubectl} {
		require.NoError(t, os.Symlink(path, filepath.Join(w.home, "bin", name)))
	}
	env["HOME"], env["CLOUD"] = w.home, w.c.Cloud.URL
	env["PATH"] = filepath.Join(w.home, "bin") + string(os.PathListSeparator) + os.Getenv("PATH")
	if _, ok := env["AWS_EC2_METADATA_SERVICE_ENDPOINT"]; ok {
		env["AWS_EC2_METADATA_DISABLED"] = "true" // the operator's machine is no instance
	}
	for name, value := range env {
		w.env = append(w.env, name+"="+value)
	}
}

func (w *walk) write(name, text string, mode os.FileMode) {
	w.t.Helper()
	require.NoError(w.t, os.WriteFile(filepath.Join(w.home, name), []byte(text), mode))
}

func toYAML(t *testing.T, values harness.Values) string {
	t.Helper()
	text, err := yaml.Marshal(values)
	require.NoError(t, err)
	return string(text)
}

// credentials puts each credential that the cloud needs into a file of its name, as the pages do, and returns the environment of a
// controller with the paths in the place of the values.
func (w *walk) credentials() map[string]string {
	w.t.Helper()
	env, err := w.c.Cloud.Environment(w.t.Context())
	require.NoError(w.t, err)
	for _, c := range w.provider.Installation.Credentials {
		variable := strings.TrimSuffix(c.Env, "_FILE")
		if value := env[variable]; !c.Optional && value != "" {
			w.write(strings.ToLower(c.Name), value, 0o600)
			delete(env, variable)
			env[variable+"_FILE"] = strings.ToLower(c.Name)
		}
	}
	return env
}

// prelude stands for what an operator does before: programs are built, and a chart's values say where a simulated cloud is.
const prelude = `set -euo pipefail
make() { test "$1" = build; }
doctl() { echo "doctl $*"; }
helm() { case "$1 $2" in *" cloud-controller-manager"|*" anyccm") command helm "$@" --values simulated.yaml;; *) command helm "$@";; esac; }
`

// sh runs commands and returns what they print.
func (w *walk) sh(ctx context.Context, commands, input string) (string, error) {
	cmd := exec.CommandContext(ctx, "bash", "-c", prelude+commands)
	cmd.Dir, cmd.Env, cmd.Stdin = w.home, w.env, strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w:\n%s\n%s", err, commands, out)
	}
	return string(out), err
}

// find returns the n-th block below a heading, as it is typed on this cloud.
func (w *walk) find(page, heading string, n int) string {
	w.t.Helper()
	for _, b := range w.blocks {
		if b.page != page || b.heading != heading {
			continue
		}
		if n--; n >= 0 {
			continue
		}
		return w.asTyped(b)
	}
	require.Fail(w.t, "no such block", "%s, %s", page, heading)
	return ""
}

// asTyped is a block as it is typed on this cloud.
func (w *walk) asTyped(b *block) string {
	b.typed = true
	text := b.text
	if w.provider.Name != harness.AnyProvider {
		text = strings.ReplaceAll(text, "--cloud-provider="+harness.AnyProvider, "--cloud-provider="+w.provider.Name)
		text = strings.ReplaceAll(text, "DO_ACCESS_TOKEN_FILE=token ", "")
	}
	return strings.NewReplacer("<cloud>", w.provider.Name, "admin.conf", "$HOME/.kube/config").Replace(text)
}

// typesRest types what a page has below a heading and nobody typed yet; an empty heading stands for all.
func (w *walk) typesRest(page, heading string) {
	w.t.Helper()
	for _, b := range w.blocks {
		if b.page == page && !b.typed && (heading == "" || b.heading == heading) {
			assert.NotContains(w.t, w.must(w.asTyped(b)), "error", b.text)
		}
	}
}

// types runs a block of a page and returns what it prints; it succeeds.
func (w *walk) types(page, heading string, n int) string {
	w.t.Helper()
	return w.must(w.find(page, heading, n))
}

// installs follows the page about installing; the program then runs from what the release holds.
func (w *walk) installs() {
	t := w.t
	t.Helper()
	assert.NotContains(t, w.types(installing, "Installing", 0), "error")
	w.types(installing, w.provider.Title, 0)
	w.typesRest(installing, w.provider.Title)
	w.starts()
	out := w.types(installing, "Verify", 0)
	assert.Regexp(t, `cloud-controller-manager +\S+_`, out, "the lease has a holder")
	assert.Regexp(t, `(?s)node-1 .*node-2 `, out)
	assert.Contains(t, out, "No resources found", "no Node failed")
}

// starts runs the program from what the first release holds, until it leads and both nodes are initialized.
func (w *walk) starts() {
	w.t.Helper()
	w.runs(firstRelease, metav1.NamespaceSystem, nil)
	require.NoError(w.t, w.ccm.WaitLeading(w.t.Context(), patience))
	if w.provider.Features.Instances == registry.Done {
		require.NoError(w.t, w.c.WaitInitialized(w.t.Context(), 2, patience))
	}
}

// runs starts the program from what a release holds.
func (w *walk) runs(release, namespace string, env map[string]string) {
	t := w.t
	t.Helper()
	manifest, err := w.sh(t.Context(), "helm -n "+namespace+" get manifest "+release, "")
	require.NoError(t, err)
	objects, err := harness.Decode([]byte(manifest))
	require.NoError(t, err)
	given := map[string]string{}
	maps.Copy(given, env)
	for _, c := range w.provider.Installation.Credentials {
		if c.Optional { // such as a role, which a simulated cloud does not give
			all, err := w.c.Cloud.Environment(t.Context())
			require.NoError(t, err)
			variable := strings.TrimSuffix(c.Env, "_FILE")
			given[variable] = all[variable]
		}
	}
	w.ccm, err = w.c.StartObjects(t.Context(), append(objects, w.secrets(namespace)...), w.c.Programs.CCM, w.port, nil, given)
	require.NoError(t, err)
}

func (w *walk) must(commands string) string {
	w.t.Helper()
	out, err := w.sh(w.t.Context(), commands, "")
	require.NoError(w.t, err)
	return out
}

// secrets are those of a namespace as the workload would mount them.
func (w *walk) secrets(namespace string) []*unstructured.Unstructured {
	w.t.Helper()
	list, err := w.c.Kube.CoreV1().Secrets(namespace).List(w.t.Context(), metav1.ListOptions{})
	require.NoError(w.t, err)
	var all []*unstructured.Unstructured
	for _, s := range list.Items {
		content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&s)
		require.NoError(w.t, err)
		o := &unstructured.Unstructured{Object: content}
		o.SetGroupVersionKind(v1.SchemeGroupVersion.WithKind("Secret"))
		all = append(all, o)
	}
	return all
}

func (w *walk) readsTheReadme() {
	t := w.t
	t.Helper()
	out := w.types(readme, "Five-minute tour", 2)
	for _, p := range registry.Linked().Providers() {
		assert.Contains(t, out, p.Name)
	}
	assert.NotContains(t, w.types(readme, "Five-minute tour", 3), "error")
	if w.provider.Features.LoadBalancers == registry.Done {
		assert.Contains(t, w.types(readme, "Five-minute tour", 5), "errors: 0")
		assert.Contains(t, w.types(validating, "Checking Services before they are applied", 0), "errors: 0")
	}
}

func (w *walk) migrates() {
	w.t.Helper()
	assert.NotContains(w.t, w.types(migrating, "Migrating from a cloud's own controller", 0), "error:")
}

func (w *walk) observes() {
	t := w.t
	t.Helper()
	w.must("kubectl create namespace monitoring; kubectl -n monitoring create serviceaccount prometheus")
	roles, scrape, found := strings.Cut(strings.ReplaceAll(w.find(observability, "Metrics", 0), "https://<node>:10258", w.ccm.URL), "curl ")
	require.True(t, found)
	w.must(roles)
	w.eventually("curl "+scrape, "anyccm_build_info{") // the API server hears of a new role a moment later
	w.typesRest(troubleshooting, "")
}

// eventually types commands again until what they print contains the words.
func (w *walk) eventually(commands, words string) {
	w.t.Helper()
	require.NoError(w.t, harness.Eventually(w.t.Context(), patience, words, func(ctx context.Context) error {
		out, err := w.sh(ctx, commands, "")
		if err == nil && !strings.Contains(out, words) {
			err = fmt.Errorf("it prints: %s", out)
		}
		return err
	}))
}

// triesAnOutage is the end of the tour: a Service is made while the cloud fails; its events say so, and it is served in the end.
func (w *walk) triesAnOutage() {
	t := w.t
	t.Helper()
	lines := strings.Split(strings.TrimSpace(w.find(readme, "Five-minute tour", 1)), "\n")
	require.Len(t, lines, 5)
	fail, create, describe, seen, end := lines[0], lines[1], lines[2], lines[3], lines[4]
	w.must(fail + "\n" + create)
	w.eventually(describe, "Warning  SyncLoadBalancerFailed")
	assert.Contains(t, w.must(seen), `"total"`)
	w.must(end)
	_, err := w.c.WaitServed(t.Context(), "late", patience)
	require.NoError(t, err)
	assert.Contains(t, w.must("kubectl get events --field-selector reason=EnsuredLoadBalancer"), "service/late")
}

// plans asks what a Service would give, and before a migration, what would be written; nothing is.
func (w *walk) plans() {
	t := w.t
	t.Helper()
	require.NoError(t, w.c.Cloud.ResetCalls(t.Context()))
	assert.Contains(t, w.types(validating, "What would happen", 0), "Service default/web:\n  create")
	assert.Contains(t, w.types(migrating, "Migrating from a cloud's own controller", 1), "0 to create, 0 to change, 0 to delete\n")
	assert.Zero(t, calls(t, w.c).Writes)
}

// looksForOrphans: there is none, and nothing of another cluster.
func (w *walk) looksForOrphans() {
	t := w.t
	t.Helper()
	require.NoError(t, w.c.Cloud.ResetCalls(t.Context()))
	named := func(n string, index int) string {
		text := strings.ReplaceAll(w.find(ownership, n, index), "8c5a43de-…", oldCluster)
		return strings.ReplaceAll(text, "--cluster-name=prod", "--cluster-name="+clusterOnThePages)
	}
	out, err := w.sh(t.Context(), named("Orphans", 0), clusterOnThePages+"\n")
	require.NoError(t, err)
	assert.Contains(t, out, "There are no orphans")
	out, err = w.sh(t.Context(), named("After a cluster was restored", 0), clusterOnThePages+"\n")
	if w.hands() {
		require.NoError(t, err)
	} else {
		require.Error(t, err)
		assert.Contains(t, out, "cannot hand load balancers over")
	}
	assert.Zero(t, calls(t, w.c).Writes)
}

// hands says whether the page lists the cloud among those that support handover.
func (w *walk) hands() bool {
	w.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", filepath.FromSlash(ownership)))
	require.NoError(w.t, err)
	_, list, found := strings.Cut(string(text), "would keep working on its own load balancers. ")
	require.True(w.t, found)
	list, _, found = strings.Cut(list, "support this")
	require.True(w.t, found)
	return strings.Contains(list, strings.Fields(w.provider.Title)[0])
}

// removes: what is uninstalled leaves nodes and load balancers as they are; then the same is installed without Helm.
func (w *walk) removes() {
	t := w.t
	t.Helper()
	before := holdings(t, w.c)
	w.write("ca.crt", "", 0o600)
	w.types(installing, "A private CA, and other files", 0)
	mounted := w.must("kubectl -n kube-system get daemonset " + firstRelease + " -o jsonpath='{..volumeMounts}{..volumes}'")
	assert.Regexp(t, `"mountPath":"/etc/cloud","name":"files".*"configMap":{[^}]*"name":"cloud-files"`, mounted)
	w.ccm.Stop(patience)
	w.must("helm -n kube-system uninstall " + firstRelease)
	w.types(installing, "Without Helm", 0)
	w.must("kubectl apply -f cloud-controller-manager.yaml && kubectl delete -f cloud-controller-manager.yaml")
	if w.provider.Name == harness.AnyProvider {
		w.types(hybrid, "Nodes of several clouds in one cluster", 0)
	}
	assert.Equal(t, before, holdings(t, w.c))
	nodes, err := w.c.Kube.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	assert.Len(t, nodes.Items, 2)
}

// aboutServices is set for what only clouds with load balancers are asked.
func (b *block) aboutServices() bool {
	if b.page == ownership || b.page == validating {
		return true
	}
	words := []string{"create service loadbalancer", "-f service.yaml", "manager plan "}
	return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(b.text, w) })
}

// requireAllTyped: no command of the pages is left out.
func (w *walk) requireAllTyped() {
	w.t.Helper()
	others := map[string]bool{"Nodes of several clouds in one cluster": w.provider.Name != harness.AnyProvider}
	for _, p := range registry.Linked().Providers() {
		others[p.Title] = p.Name != w.provider.Name
	}
	serves := w.provider.Features.LoadBalancers == registry.Done
	for _, b := range w.blocks {
		noCloud := w.provider.InCluster && strings.Contains(b.text, "$CLOUD/")
		if b.typed || others[b.heading] || (b.aboutServices() && !serves) || noCloud {
			continue
		}
		why := ""
		for first, reason := range elsewhere {
			if strings.HasPrefix(b.text, first) {
				why = reason
			}
		}
		assert.NotEmpty(w.t, why, "%s, %s: nobody types\n%s", b.page, b.heading, b.text)
	}
}
