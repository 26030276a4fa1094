// Package chart tests what the Helm chart renders, without any cluster. The end-to-end tests install it.
package chart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
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
	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry"
	_ "github.com/anyccm/cloud-controller-manager/registry/linked" // the providers to install
	"github.com/anyccm/cloud-controller-manager/registry/schema"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

const folder = "../../charts/cloud-controller-manager"

// helm runs helm as it was built for the tests. It returns what helm prints, or what it says to a failure.
func helm(t *testing.T, values string, args ...string) (stdout string, err error) {
	t.Helper()
	stdout, stderr, err := helmSays(t, values, args...)
	if err != nil {
		return stderr, err
	}
	return stdout, nil
}

// helmSays is helm with all that it says.
func helmSays(t *testing.T, values string, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	bin := os.Getenv("ANYCCM_BIN")
	require.NotEmpty(t, bin, "run these tests by make test-chart, which builds helm")
	if values != "" {
		file := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
		args = append(args, "--values="+file)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "helm"), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=/nonexistent", "GOGC=off"} // it ends before it collects anything
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	err = cmd.Run()
	return out.String(), fault.String(), err
}

func render(t *testing.T, release, values string) string {
	t.Helper()
	return renderOf(t, folder, release, values)
}

// renderOf renders the chart in a folder.
func renderOf(t *testing.T, folder, release, values string) string {
	t.Helper()
	out, err := helm(t, values, "template", release, folder, "--namespace=ccm", "--api-versions=monitoring.coreos.com/v1")
	require.NoError(t, err, out)
	return out
}

// objects returns the rendered objects of the kinds that this program's own packages know, by kind and name.
func objects(t *testing.T, rendered string) map[string]any {
	t.Helper()
	all := map[string]any{}
	for text := range strings.SplitSeq(rendered, "\n---\n") {
		var head struct {
			Kind     string
			Metadata struct{ Name string }
		}
		require.NoError(t, yaml.Unmarshal([]byte(text), &head))
		if head.Kind == "" {
			continue
		}
		o, _, err := scheme.Codecs.UniversalDeserializer().Decode([]byte(text), nil, nil)
		if err != nil {
			require.Contains(t, []string{"ServiceMonitor", "PodMonitor", "PrometheusRule"}, head.Kind)
			var any map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(text), &any))
			all[head.Kind+"/"+head.Metadata.Name] = any
			continue
		}
		all[head.Kind+"/"+head.Metadata.Name] = o
	}
	return all
}

// clouds are the linked providers.
func clouds() []registry.Provider { return registry.Linked().Providers() }

// installedValues are the values of a release for a cloud whose credentials are in a Secret already.
func installedValues(p registry.Provider) string {
	values := "cloudProvider: " + p.Name + "\n"
	if p.Installation.Secret != "" {
		values += "credentials: {existingSecret: mine}\n"
	}
	if c := p.Installation.Config; c.Required && !c.HoldsCredentials {
		values += "cloudConfig: {" + c.Example + "}\n"
	}
	return values
}

// cases are the values in a provider's folder, by name.
func cases(t *testing.T, p registry.Provider) map[string]string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../../providers", p.Name, "testdata/chart/*/values.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, files, "provider %s has no values for these tests; write providers/%s/testdata/chart/<case>/values.yaml", p.Name, p.Name)
	all := map[string]string{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		all[filepath.Dir(file)] = string(text)
	}
	return all
}

// TestSnapshots shows every change of what is rendered to whoever reviews it. -update writes them again.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	everything := "kind: Deployment\nadmissionPolicy: {enabled: true, refuseAdoption: true}\nnetworkPolicy: {enabled: true}\nimagePullSecrets: [{name: registry}]\nserviceAccount: {annotations: {a: b}}\n" +
		"metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}, podMonitor: {enabled: true}, rules: {enabled: true}}\nroutes: {clusterCIDR: 10.244.0.0/16, allocateNodeCIDRs: true}\n" +
		"serviceDefaults:\n- {loadBalancerClass: \"\", annotations: {anyccm.io/load-balancer-proxy-protocol: none, example.com/note: \"it's\"}}\n" +
		"- {loadBalancerClass: example.com/internal, annotations: {anyccm.io/load-balancer-scheme: internal}}\n- {loadBalancerClass: example.com/plain}\n"
	adopts := slices.IndexFunc(clouds(), func(p registry.Provider) bool {
		return slices.ContainsFunc(p.Annotations, schema.AnnotationRow.Adopting)
	})
	all := map[string]string{"testdata/everything": installedValues(clouds()[adopts]) + everything}
	for _, p := range clouds() {
		maps.Copy(all, cases(t, p))
	}
	for dir, values := range all {
		t.Run(dir, func(t *testing.T) {
			t.Parallel()
			have := render(t, "cloud-controller-manager", values)
			file := filepath.Join(dir, "rendered.yaml")
			if *conformance.Update {
				require.NoError(t, os.MkdirAll(dir, 0o755))
				require.NoError(t, os.WriteFile(file, []byte(have), 0o600))
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.Equal(t, string(want), have, "if this is as it should be, run make test-chart TESTFLAGS=-update")
		})
	}
}

func container(t *testing.T, all map[string]any) (v1.PodSpec, v1.Container) {
	t.Helper()
	for _, o := range all {
		if w, ok := o.(*appsv1.DaemonSet); ok {
			return w.Spec.Template.Spec, w.Spec.Template.Spec.Containers[0]
		}
	}
	t.Fatal("no DaemonSet is rendered")
	return v1.PodSpec{}, v1.Container{}
}

// TestBareControlPlane: the pod runs before there is a pod network, a DNS and an initialised node, without any privilege.
func TestBareControlPlane(t *testing.T) {
	t.Parallel()
	pod, c := container(t, objects(t, render(t, "x", installedValues(clouds()[0]))))
	assert.True(t, pod.HostNetwork)
	assert.Equal(t, v1.DNSDefault, pod.DNSPolicy)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	for _, key := range []string{
		"node.cloudprovider.kubernetes.io/uninitialized", "node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready",
		"node.kubernetes.io/network-unavailable",
	} {
		assert.True(
			t,
			slices.ContainsFunc(pod.Tolerations, func(x v1.Toleration) bool { return x.Key == key && x.Operator == v1.TolerationOpExists }),
			key,
		)
	}
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Equal(t, v1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	assert.Equal(t, v1.Capabilities{Drop: []v1.Capability{"ALL"}}, *c.SecurityContext.Capabilities)
	assert.Nil(t, c.SecurityContext.Privileged)
	assert.False(t, pod.HostPID || pod.HostIPC)
	assert.Contains(t, c.Args, "--bind-address=127.0.0.1")
	assert.Equal(t, "127.0.0.1", c.LivenessProbe.HTTPGet.Host)
	assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	_, scraped := container(t, objects(t, render(t, "x", installedValues(clouds()[0])+"metrics: {podMonitor: {enabled: true}}\n")))
	assert.Contains(t, scraped.Args, "--bind-address=0.0.0.0")
	assert.Empty(t, scraped.LivenessProbe.HTTPGet.Host)
}

// TestRights: roles grant what the controllers need, without wildcards, and no Secrets unless that is asked for.
func TestRights(t *testing.T) {
	t.Parallel()
	verbs := func(values, resource string) []string {
		var list []string
		for _, o := range objects(t, render(t, "x", values)) {
			role, ok := o.(*rbacv1.ClusterRole)
			if !ok {
				continue
			}
			for _, r := range role.Rules {
				assert.NotContains(t, append(append(r.Verbs, r.Resources...), r.APIGroups...), "*")
				if slices.Contains(r.Resources, resource) {
					list = append(list, r.Verbs...)
				}
			}
		}
		slices.Sort(list)
		return slices.Compact(list)
	}
	for _, p := range clouds() {
		assert.Equal(t, []string{"delete", "get", "list", "patch", "update", "watch"}, verbs(installedValues(p), "nodes"), p.Name)
		assert.Empty(t, verbs(installedValues(p), "secrets"), p.Name)
		assert.Empty(t, verbs(installedValues(p), "certificatesigningrequests"), p.Name)
		if p.Installation.ReadsSecrets != "" {
			assert.Equal(t, []string{"get", "list", "watch"}, verbs(installedValues(p)+"readSecrets: true\n", "secrets"), p.Name)
		}
	}
	one := installedValues(clouds()[0])
	services := one + "controllers: [service-lb-controller]\n"
	assert.Equal(t, []string{"get", "list", "watch"}, verbs(services, "nodes"))
	assert.Equal(t, []string{"list", "patch", "watch"}, verbs(services, "services"))
	nodes := one + "controllers: [cloud-node-controller]\n"
	assert.Equal(t, []string{"list", "watch"}, verbs(nodes, "services"))
	assert.NotContains(t, verbs(nodes, "nodes"), "delete")
	for name := range objects(t, render(t, "x", one+"rbac: {create: false}\nserviceAccount: {create: false, name: mine}\n")) {
		assert.NotRegexp(t, `^(ClusterRole|Role|ServiceAccount)`, name)
	}
}

// TestServingCertificates: nothing about them is said to the program unless they are approved.
func TestServingCertificates(t *testing.T) {
	t.Parallel()
	attests := slices.IndexFunc(clouds(), func(p registry.Provider) bool { return p.Features.ServingCertificates == registry.Done })
	for values, want := range map[string][]string{
		"{reserved: [api.example.com]}": nil,
		"{approve: true, reserved: [api.example.com, 192.0.2.1]}": {
			"--controllers=service-lb-controller,kubelet-serving-approver,cloud-api", "--kubelet-serving-cluster-domain=cluster.local",
			"--kubelet-serving-reserved=api.example.com,192.0.2.1",
		},
	} {
		values = installedValues(clouds()[attests]) + "controllers: [service-lb-controller]\nkubeletServingCertificates: " + values + "\n"
		_, c := container(t, objects(t, render(t, "x", values)))
		said := slices.DeleteFunc(c.Args, func(arg string) bool { return !strings.Contains(arg, "kubelet-serving") })
		assert.ElementsMatch(t, want, said)
	}
}

// boundRoles are those of every release.
var boundRoles = []string{
	"ClusterRole ccm:x-cloud-controller-manager", "ClusterRole ccm:x-cloud-controller-manager:metrics", "ClusterRole system:auth-delegator",
	"Role extension-apiserver-authentication-reader", "Role x-cloud-controller-manager",
}

// approverRights are those of the controller that approves certificates of kubelets.
var approverRights = map[string]string{
	"certificates.k8s.io certificatesigningrequests":            "get list watch",
	"certificates.k8s.io certificatesigningrequests/approval":   "update",
	"certificates.k8s.io signers kubernetes.io/kubelet-serving": "approve",
}

// TestPermissionsDoNotGrow holds every right of the chart with everything switched on. What is added here gives a program that
// holds a cloud's credential more power over the cluster.
func TestPermissionsDoNotGrow(t *testing.T) {
	t.Parallel()
	everything := "controllers: [cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-route-controller%s]\nadmissionPolicy: {enabled: true}\n" +
		"kind: Deployment\nroutes: {clusterCIDR: 10.244.0.0/16, allocateNodeCIDRs: true}\nmetrics: {serviceMonitor: {enabled: true}}\n"
	cluster := map[string]string{
		"nodes": "delete get list patch update watch", "nodes/status": "patch", "services": "list patch watch", "services/status": "patch",
		"events": "create patch update", "namespaces kube-system": "get",
	}
	const leases = "ccm: coordination.k8s.io leases"
	namespaced := map[string]string{leases: "create", leases + " x-cloud-controller-manager": "get update"}
	for _, p := range clouds() {
		names := []string{""}
		for _, c := range p.Controllers {
			if c.Unneeded == "" {
				names = append(names, c.Name)
			}
		}
		further := strings.Join(names, ", ")
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			inCluster, inNamespaces, roles := map[string]string{}, map[string]string{}, []string{}
			values, cluster := installedValues(p)+fmt.Sprintf(everything, further), maps.Clone(cluster)
			if p.Features.ServingCertificates == registry.Done {
				values += "kubeletServingCertificates: {approve: true}\n"
				maps.Copy(cluster, approverRights)
			}
			for _, o := range objects(t, render(t, "x", values)) {
				switch o := o.(type) {
				case *rbacv1.ClusterRole:
					if o.Name == "ccm:x-cloud-controller-manager:metrics" { // another account's
						assert.Equal(t, []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}, o.Rules)
						continue
					}
					grants(inCluster, o.Rules)
				case *rbacv1.Role:
					within := map[string]string{}
					grants(within, o.Rules)
					for what, verbs := range within {
						inNamespaces[o.Namespace+": "+what] += verbs
					}
				case *rbacv1.ClusterRoleBinding:
					own := o.RoleRef.Name != "ccm:x-cloud-controller-manager:metrics"
					assert.Equal(t, own, o.Subjects[0].Name == "x-cloud-controller-manager", "the program does not read its own metrics, and the scraper nothing else")
					roles = append(roles, o.RoleRef.Kind+" "+o.RoleRef.Name)
				case *rbacv1.RoleBinding:
					roles = append(roles, o.RoleRef.Kind+" "+o.RoleRef.Name)
				}
			}
			assert.Equal(t, withServiceRights(t, p, cluster), inCluster)
			want, wantRoles := maps.Clone(namespaced), boundRoles
			if more := systemRights(t, p); len(more) > 0 {
				maps.Copy(want, more)
				wantRoles = append(slices.Clone(boundRoles), "Role ccm:x-cloud-controller-manager:service-controller")
			}
			assert.Equal(t, want, inNamespaces)
			assert.ElementsMatch(t, wantRoles, roles)
		})
	}
}

// TestRightsOfEachController: with an account for each controller, an account has what its controller needs, and the program reads, and
// writes what the cloud's own part does.
func TestRightsOfEachController(t *testing.T) {
	t.Parallel()
	const events, name = "create patch update", "x-cloud-controller-manager"
	for _, p := range clouds() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			expected, err := expectations.Read("../..", p)
			require.NoError(t, err)
			want := map[string]map[string]string{
				name:                         {"nodes": "get list watch", "services": "list watch", "events": events, "namespaces kube-system": "get"},
				name + "-node-controller":    {"nodes": "delete get patch update", "nodes/status": "patch", "events": events},
				name + "-service-controller": {"services": "patch", "services/status": "patch", "events": events},
				name + "-route-controller":   {"nodes/status": "patch", "events": events},
			}
			for _, more := range []map[string]string{expected.ProgramRights, expected.ServiceRights} {
				for what, verbs := range more {
					all := append(strings.Fields(want[name][what]), strings.Fields(verbs)...)
					slices.Sort(all)
					want[name][what] = strings.Join(all, " ")
				}
			}
			all := objects(t, render(t, "x", installedValues(p)+"serviceAccount: {perController: true}\n"))
			have := map[string]map[string]string{}
			for key, o := range all {
				b, ok := o.(*rbacv1.ClusterRoleBinding)
				if !ok || b.RoleRef.Name == "system:auth-delegator" {
					continue
				}
				account := b.Subjects[0]
				assert.Contains(t, all, "ServiceAccount/"+account.Name, key)
				assert.Equal(t, "ccm", account.Namespace)
				role, ok := all["ClusterRole/"+b.RoleRef.Name].(*rbacv1.ClusterRole)
				require.True(t, ok)
				have[account.Name] = map[string]string{}
				grants(have[account.Name], role.Rules)
			}
			assert.Equal(t, want, have)
			role, ok := all["Role/"+name+":controllers"].(*rbacv1.Role)
			require.True(t, ok)
			tokens := map[string]string{}
			grants(tokens, role.Rules)
			accounts := strings.Join([]string{name + "-node-controller", name + "-service-controller", name + "-route-controller"}, ",")
			assert.Equal(t, map[string]string{"serviceaccounts " + accounts: "get", "serviceaccounts/token " + accounts: "create"}, tokens)
			_, c := container(t, all)
			assert.Subset(t, c.Args, []string{"--use-service-account-credentials=true", "--controller-accounts=ccm/" + name})
		})
	}
}

// systemRights are the rights in kube-system that a cloud alone has.
func systemRights(t *testing.T, p registry.Provider) map[string]string {
	t.Helper()
	expected, err := expectations.Read("../..", p)
	require.NoError(t, err)
	rights := map[string]string{}
	for what, verbs := range expected.SystemRights {
		rights["kube-system: "+what] = verbs
	}
	return rights
}

// withServiceRights adds the rights in the whole cluster that a cloud alone has.
func withServiceRights(t *testing.T, p registry.Provider, common map[string]string) map[string]string {
	t.Helper()
	expected, err := expectations.Read("../..", p)
	require.NoError(t, err)
	rights := maps.Clone(common)
	maps.Copy(rights, expected.ServiceRights)
	return rights
}

// grants collects the verbs of rules by group, resource and name.
func grants(into map[string]string, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		for _, group := range r.APIGroups {
			for _, resource := range r.Resources {
				key := strings.Join(strings.Fields(group+" "+resource+" "+strings.Join(r.ResourceNames, ",")), " ")
				verbs := append(strings.Fields(into[key]), r.Verbs...)
				slices.Sort(verbs)
				into[key] = strings.Join(slices.Compact(verbs), " ")
			}
		}
	}
}

// TestNoHashOfCredentials: nothing that is rendered outside of the Secret depends on a credential, so that nobody who sees pods
// can try out guesses. What the program reads only at its start makes the pods start again.
func TestNoHashOfCredentials(t *testing.T) {
	t.Parallel()
	// outside is a sum of what is rendered but for Secrets; the texts themselves would be a long message.
	outside := func(rendered string) string {
		var kept []string
		for text := range strings.SplitSeq(rendered, "\n---\n") {
			if !strings.Contains(text, "kind: Secret\n") {
				kept = append(kept, text)
			}
		}
		sum := sha256.Sum256([]byte(strings.Join(kept, "\n---\n")))
		return hex.EncodeToString(sum[:])
	}
	for _, p := range clouds() {
		replaced := 0
		for name, values := range cases(t, p) {
			other, n := otherCredentials(t, p, values)
			if n == 0 {
				continue
			}
			replaced += n
			before, after := render(t, "x", values), render(t, "x", other)
			assert.Equal(t, outside(before), outside(after), "it shows outside of the Secret: %s", name)
			assert.NotEqual(t, before, after)
		}
		if len(p.Installation.Credentials) > 0 || p.Installation.Config.HoldsCredentials {
			assert.NotZero(t, replaced, "no case of provider %s has credentials in its values", p.Name)
		}
	}
}

// otherCredentials replaces the credentials in values of the chart, and counts them.
func otherCredentials(t *testing.T, p registry.Provider, text string) (other string, n int) {
	t.Helper()
	var values struct {
		Credentials struct{ Values map[string]any }
	}
	var all map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &values))
	require.NoError(t, yaml.Unmarshal([]byte(text), &all))
	for name := range values.Credentials.Values {
		require.NoError(t, unstructured.SetNestedField(all, "another", "credentials", "values", name))
		n++
	}
	for _, o := range p.Options {
		if o.Kind != schema.KindSecret || o.FileKey == "" {
			continue
		}
		path := strings.Split(o.FileKey, ".")
		if section, key, ok := strings.Cut(strings.TrimPrefix(o.FileKey, "["), "] "); ok {
			path = []string{section, key}
		}
		path = append([]string{"cloudConfig"}, path...)
		if _, found, err := unstructured.NestedFieldNoCopy(all, path...); found && err == nil {
			require.NoError(t, unstructured.SetNestedField(all, "another", path...))
			n++
		}
	}
	out, err := yaml.Marshal(all)
	require.NoError(t, err)
	return string(out), n
}

// TestAdoptionPolicy: the value by itself makes the policy that refuses what asks for existing load balancers, for each cloud where
// an annotation does so; without it nothing is refused.
func TestAdoptionPolicy(t *testing.T) {
	t.Parallel()
	const name = "ValidatingAdmissionPolicy/ccm-cloud-controller-manager-service-adoption"
	asking := ""
	for _, p := range clouds() {
		expected, err := expectations.Read("../..", p)
		require.NoError(t, err)
		values, keys := installedValues(p), expected.Adoption.Annotations
		for _, without := range []string{"", "admissionPolicy: {enabled: true, action: Deny}\n"} {
			require.NotContains(t, objects(t, render(t, "cloud-controller-manager", values+without)), name)
		}
		all := objects(t, render(t, "cloud-controller-manager", values+"admissionPolicy: {refuseAdoption: true}\n"))
		if keys == nil {
			require.NotContains(t, all, name, "a policy without any rule would be refused")
			continue
		}
		asking = values
		require.Contains(t, all, name)
		policy, ok := all[name].(*admissionv1.ValidatingAdmissionPolicy)
		require.True(t, ok)
		require.Len(t, policy.Spec.Validations, len(keys))
		for i, key := range keys {
			assert.Contains(t, policy.Spec.Validations[i].Expression, "variables.annotations[?'"+key+"']")
		}
		assert.Equal(t, admissionv1.Fail, *policy.Spec.FailurePolicy)
		binding, ok := all[strings.Replace(name, "Policy/", "PolicyBinding/", 1)].(*admissionv1.ValidatingAdmissionPolicyBinding)
		require.True(t, ok)
		assert.Equal(t, []admissionv1.ValidationAction{admissionv1.Deny}, binding.Spec.ValidationActions)
		assert.NotContains(t, all, strings.Replace(name, "adoption", "annotation-errors", 1), "judging the values is another switch")
	}
	named := render(t, "cloud-controller-manager", asking+"admissionPolicy: {refuseAdoption: true}\nserviceAccount: {name: mine}\nloadBalancerClassMode: named\nloadBalancerClass: example.com/lb\n")
	assert.Contains(t, named, "request.userInfo.username in ['system:serviceaccount:ccm:mine'] ||")
	exempt := render(t, "cloud-controller-manager", asking+"admissionPolicy: {refuseAdoption: true, exemptUsers: ['system:serviceaccount:kube-system:other']}\n")
	assert.Contains(t, exempt, "request.userInfo.username in ['system:serviceaccount:ccm:cloud-controller-manager', 'system:serviceaccount:kube-system:other'] ||")
	assert.Contains(t, named, "object.spec.type != 'LoadBalancer' || (object.spec.type == 'LoadBalancer' && has(object.spec.loadBalancerClass) && object.spec.loadBalancerClass == 'example.com/lb')")
}

// TestReleases: two releases share no name, no lease and no account.
func TestReleases(t *testing.T) {
	t.Parallel()
	names := func(release string) []string {
		var list []string
		for name := range objects(t, render(t, release, installedValues(clouds()[0])+"kind: Deployment\nadmissionPolicy: {enabled: true, refuseAdoption: true}\n")) {
			list = append(list, name)
		}
		return list
	}
	first := names("cloud-controller-manager")
	for _, name := range names("second") {
		assert.NotContains(t, first, name)
	}
	_, c := container(t, objects(t, render(t, "second", installedValues(clouds()[0]))))
	assert.Contains(t, c.Args, "--leader-elect-resource-name=second-cloud-controller-manager")
	_, c = container(t, objects(t, render(t, "cloud-controller-manager", installedValues(clouds()[0]))))
	assert.Contains(t, c.Args, "--leader-elect-resource-name=cloud-controller-manager", "it waits for the cloud's own controller")
}

// TestLease: the notes say by name and namespace whether a release waits for the cloud's own controller, and rights follow the lease.
func TestLease(t *testing.T) {
	t.Parallel()
	const own, warning = "leaderElection: {namespace: kube-system, leaseName: cloud-controller-manager}\n", "it does not wait for them"
	for name, c := range map[string]struct {
		release, namespace, values string
		lease                      string
		waits                      bool
	}{
		"as the pages say":  {release: "cloud-controller-manager", namespace: "kube-system", lease: "kube-system/cloud-controller-manager", waits: true},
		"another name":      {release: "second", namespace: "kube-system", lease: "kube-system/second-cloud-controller-manager"},
		"another namespace": {release: "cloud-controller-manager", namespace: "ccm", lease: "ccm/cloud-controller-manager"},
		"told to wait":      {release: "second", namespace: "ccm", values: own, lease: "kube-system/cloud-controller-manager", waits: true},
		"namespace overridden": {
			release: "cloud-controller-manager", namespace: "ccm", values: "namespaceOverride: kube-system\n",
			lease: "kube-system/cloud-controller-manager", waits: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out, err := helm(t, installedValues(clouds()[0])+c.values, "install", c.release, folder, "--dry-run=client", "--namespace="+c.namespace)
			require.NoError(t, err, out)
			manifests, notes, found := strings.Cut(out, "\nNOTES:\n")
			require.True(t, found)
			assert.Equal(t, c.waits, !strings.Contains(notes, warning), notes)
			namespace, lease, _ := strings.Cut(c.lease, "/")
			assert.Contains(t, notes, "kubectl -n "+namespace+" get lease "+lease+"\n")
			assert.Contains(t, manifests, "--leader-elect-resource-name="+lease+"\n")
			assert.Contains(t, manifests, "--leader-elect-resource-namespace="+namespace+"\n")
			role := regexp.MustCompile(`(?s)kind: Role\n[^#]*?  namespace: (\S+)\n[^#]*?resources: \[leases\], resourceNames: \[(\S+)\]`).FindStringSubmatch(manifests)
			require.NotNil(t, role)
			assert.Equal(t, []string{namespace, lease}, role[1:])
		})
	}
}

func TestImages(t *testing.T) {
	t.Parallel()
	p := clouds()[0]
	for values, want := range map[string]string{
		"image: {repository: r.example/ccm, tag: v1}\n":                                                      "r.example/ccm:v1",
		"image: {repository: r.example/ccm, tag: v1, slim: true}\n":                                          "r.example/ccm-" + p.Name + ":v1",
		"image: {repository: r.example/ccm, tag: v1, digest: 'sha256:" + strings.Repeat("a", 64) + "'}\n":    "r.example/ccm@sha256:" + strings.Repeat("a", 64) + "",
		"image: {repository: r.example/ccm, digest: 'sha256:" + strings.Repeat("a", 64) + "', slim: true}\n": "r.example/ccm-" + p.Name + "@sha256:" + strings.Repeat("a", 64) + "",
	} {
		_, c := container(t, objects(t, render(t, "x", installedValues(p)+values)))
		assert.Equal(t, want, c.Image)
	}
}

func requireRefusal(t *testing.T, values, want string) {
	t.Helper()
	out, err := helm(t, values, "template", "x", folder)
	require.Error(t, err, values)
	assert.Contains(t, out, want, values)
}

// TestRefusals: what cannot work is refused with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	names := registry.Linked().Names()
	requireRefusal(t, "", `cloudProvider is ""; set it to one of `+strings.Join(names, ", "))
	requireRefusal(t, "cloudProvider: nowhere\n", "value must be one of '', '"+strings.Join(names, "', '")+"'")
	one := installedValues(clouds()[0])
	requireRefusal(t, one+"replica: 3\n", "additional properties 'replica' not allowed")
	requireRefusal(t, one+"kind: StatefulSet\n", "value must be one of 'DaemonSet', 'Deployment'")
	requireRefusal(t, one+names[0]+": {options: {}}\n", "additional properties '"+names[0]+"' not allowed")
}

// TestRefusalsOfEachCloud: the values of one cloud are not those of another, and every name that it does not have is refused
// with those that it has.
func TestRefusalsOfEachCloud(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		t.Run(p.Name, func(t *testing.T) {
			t.Parallel()
			i, has, values := p.Installation, "none", "cloudProvider: "+p.Name+"\n"
			if len(i.Credentials) > 0 {
				list := make([]string, len(i.Credentials))
				for k, c := range i.Credentials {
					list[k] = c.Name
				}
				slices.Sort(list)
				has = strings.Join(list, ", ")
			}
			requireRefusal(t, values+"credentials: {values: {nonesuch: x}}\n", "at '/credentials/values/nonesuch': value must be 'absent: "+p.Title+" has no such credential; it has "+has+"'")
			requireRefusal(t, values+"credentials: {keys: {nonesuch: x}}\n", "at '/credentials/keys/nonesuch': value must be 'absent: "+p.Title+" has no such credential; it has ")
			requireRefusal(t, installedValues(p)+"options: {NONESUCH: x}\n", "at '/options/NONESUCH': value must be 'absent: "+p.Title+" has no such option; it has ")
			requireRefusal(t, values+"cloudConfig: {nonesuch: {a: b}}\n", "at '/cloudConfig/nonesuch': value must be 'absent: the cloud config of "+p.Title+" has no such key; it has ")
			requireRefusal(t, installedValues(p)+"controllers: [nonesuch]\n", "at '/controllers/0': value must be one of ")
			if i.ReadsSecrets == "" {
				requireRefusal(t, installedValues(p)+"readSecrets: true\n", "at '/readSecrets': value must be false")
			}
			if !p.InstanceTags.Served() {
				requireRefusal(t, installedValues(p)+"nodeLabelsFromTags: [team=team]\n", "at '/nodeLabelsFromTags': maxItems: got 1, want 0")
			}
			if p.Features.ServingCertificates != registry.Done {
				requireRefusal(t, installedValues(p)+"kubeletServingCertificates: {approve: true}\n", "at '/kubeletServingCertificates/approve': value must be false")
			}
			if i.Config.Format == registry.NoConfig {
				requireRefusal(t, installedValues(p)+"extraCloudConfig: x\n", "at '/extraCloudConfig': value must be ''")
			}
			if i.Config.HoldsCredentials && i.Config.Required {
				requireRefusal(t, values, p.Name+": cloudConfig must be set, or credentials.existingSecret with the key "+i.Config.File)
			}
			if i.Config.HoldsCredentials {
				requireRefusal(t, installedValues(p)+"extraCloudConfig: x\n", "credentials.existingSecret holds the cloud config: leave cloudConfig and extraCloudConfig empty")
			}
			for k, c := range i.Credentials {
				if !c.Optional {
					requireRefusal(t, values, p.Name+": credentials.values."+c.Name+" must be set, or credentials.existingSecret with the key "+c.Key)
				} else if k > 0 {
					requireRefusal(t, values+"credentials: {values: {"+i.Credentials[0].Name+": x}}\n", "credentials.values."+c.Name+" must be set")
				}
			}
			if len(i.Credentials) > 0 {
				requireRefusal(t, values+"credentials: {existingSecret: mine, values: {"+i.Credentials[0].Name+": x}}\n", "credentials.existingSecret and credentials.values are both set; keep one")
			}
		})
	}
}

// TestLint: helm finds nothing to complain of.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		out, err := helm(t, installedValues(p), "lint", "--strict", folder)
		require.NoError(t, err, out)
	}
}

// TestRules: the alerts and the dashboard name only metrics that the program's pages list.
func TestRules(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	metric := regexp.MustCompile(`anyccm_[a-z_]+`)
	for _, file := range []string{"rules.yaml", "dashboard.json"} {
		text, err := os.ReadFile(filepath.Join(folder, "files", file))
		require.NoError(t, err)
		found := metric.FindAllString(string(text), -1)
		require.NotEmpty(t, found)
		for _, name := range found {
			assert.Contains(t, string(page), strings.TrimSuffix(name, "_bucket"), file)
		}
	}
}
