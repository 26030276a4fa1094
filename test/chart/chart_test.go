// Package chart tests what the Helm chart renders, without any cluster. The end-to-end tests install it.
package chart

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"flag"
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
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the snapshots anew")

const folder = "../../charts/cloud-controller-manager"

// helm runs helm as it was built for the tests.
func helm(t *testing.T, values string, args ...string) (stdout string, err error) {
	t.Helper()
	bin := os.Getenv("ANYCCM_BIN")
	require.NotEmpty(t, bin, "run these tests by make test-chart, which builds helm")
	if values != "" {
		file := filepath.Join(t.TempDir(), "values.yaml")
		require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
		args = append(args, "--values="+file)
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(bin, "helm"), args...)
	cmd.Env = []string{"HOME=" + t.TempDir(), "KUBECONFIG=/nonexistent"}
	var out, fault bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &fault
	if err := cmd.Run(); err != nil {
		return fault.String(), err
	}
	return out.String(), nil
}

func render(t *testing.T, release, values string) string {
	t.Helper()
	out, err := helm(t, values, "template", release, folder, "--namespace=ccm")
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

const (
	digitalocean = "cloudProvider: digitalocean\ndigitalocean: {credentials: {token: secret-token}, options: {REGION: nyc3, DO_API_RATE_LIMIT_QPS: 3}}\n"
	linode       = "cloudProvider: linode\nlinode: {credentials: {existingSecret: mine, tokenKey: api}, options: {LINODE_REGION: us-sea, vpc-names: [a, b]}}\n"
	aws          = "cloudProvider: aws\naws: {cloudConfig: {Global: {KubernetesClusterID: one, NodeIPFamilies: [ipv6, ipv4]}}, options: {AWS_REGION: eu-central-1, tags: team=web}}\ncontrollers: [cloud-node-controller, tagging]\nserviceAccount: {annotations: {eks.amazonaws.com/role-arn: 'arn:aws:iam::123456789012:role/ccm'}}\n"
	awsKey       = "cloudProvider: aws\naws: {credentials: {accessKeyID: AKIA1, secretAccessKey: hush}}\n"
	openstack    = "cloudProvider: openstack\nopenstack: {cloudConfig: {Global: {auth-url: 'https://k/v3', password: 'a\"b\\c'}, Networking: {public-network-name: [ext1, ext2]}, LoadBalancer: {create-monitor: true}}, extraCloudConfig: \"[LoadBalancerClass \\\"edge\\\"]\\nsubnet-id = s\\n\", options: {OS_CCM_REGIONAL: true, user-agent: [p, q]}}\n"
)

// TestSnapshots shows every change of what is rendered to whoever reviews it. -update writes them anew.
func TestSnapshots(t *testing.T) {
	t.Parallel()
	everything := "kind: Deployment\nadmissionPolicy: {enabled: true, refuseAdoption: true}\nnetworkPolicy: {enabled: true}\nimagePullSecrets: [{name: registry}]\nserviceAccount: {annotations: {a: b}}\n" +
		"metrics: {serviceMonitor: {enabled: true, labels: {release: prometheus}}, podMonitor: {enabled: true}, rules: {enabled: true}}\nroutes: {clusterCIDR: 10.244.0.0/16, allocateNodeCIDRs: true}\n"
	for name, values := range map[string]string{"aws": aws, "aws-key": awsKey, "digitalocean": digitalocean, "linode": linode, "openstack": openstack, "everything": linode + everything} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			have := render(t, "cloud-controller-manager", values)
			file := filepath.Join("testdata", name+".yaml")
			if *update {
				require.NoError(t, os.MkdirAll("testdata", 0o755))
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
	pod, c := container(t, objects(t, render(t, "x", digitalocean)))
	assert.True(t, pod.HostNetwork)
	assert.Equal(t, v1.DNSDefault, pod.DNSPolicy)
	assert.Equal(t, "system-cluster-critical", pod.PriorityClassName)
	for _, key := range []string{"node.cloudprovider.kubernetes.io/uninitialized", "node-role.kubernetes.io/control-plane", "node.kubernetes.io/not-ready", "node.kubernetes.io/network-unavailable"} {
		assert.True(t, slices.ContainsFunc(pod.Tolerations, func(x v1.Toleration) bool { return x.Key == key && x.Operator == v1.TolerationOpExists }), key)
	}
	assert.True(t, *pod.SecurityContext.RunAsNonRoot)
	assert.Equal(t, v1.SeccompProfileTypeRuntimeDefault, pod.SecurityContext.SeccompProfile.Type)
	assert.True(t, *c.SecurityContext.ReadOnlyRootFilesystem)
	assert.False(t, *c.SecurityContext.AllowPrivilegeEscalation)
	assert.Equal(t, []v1.Capability{"ALL"}, c.SecurityContext.Capabilities.Drop)
	assert.Contains(t, c.Args, "--bind-address=127.0.0.1")
	assert.Equal(t, "127.0.0.1", c.LivenessProbe.HTTPGet.Host)
	assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	for _, a := range append(c.Args, c.Env[0].Value) {
		assert.NotContains(t, a, "secret-token")
	}
	_, scraped := container(t, objects(t, render(t, "x", digitalocean+"metrics: {podMonitor: {enabled: true}}\n")))
	assert.Contains(t, scraped.Args, "--bind-address=0.0.0.0")
	assert.Empty(t, scraped.LivenessProbe.HTTPGet.Host)
}

// TestOptions: options become flags or variables, and sections of cloud.conf.
func TestOptions(t *testing.T) {
	t.Parallel()
	_, c := container(t, objects(t, render(t, "x", linode)))
	assert.Contains(t, c.Args, "--vpc-names=a,b")
	assert.Contains(t, c.Env, v1.EnvVar{Name: "LINODE_REGION", Value: "us-sea"})
	assert.Contains(t, c.Env, v1.EnvVar{Name: "LINODE_API_TOKEN_FILE", Value: "/etc/anyccm/credentials/api"})
	all := objects(t, render(t, "x", openstack))
	_, c = container(t, all)
	assert.Contains(t, c.Args, "--user-agent=p,q")
	assert.Contains(t, c.Args, "--cloud-config=/etc/anyccm/credentials/cloud.conf")
	secret, _ := all["Secret/x-cloud-controller-manager-credentials"].(*v1.Secret)
	require.NotNil(t, secret)
	text := string(secret.Data["cloud.conf"])
	for _, line := range []string{`password = "a\"b\\c"`, `public-network-name = "ext1"`, `public-network-name = "ext2"`, `create-monitor = "true"`, `[LoadBalancerClass "edge"]`} {
		assert.Contains(t, text, line)
	}
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
	assert.Equal(t, []string{"delete", "get", "list", "patch", "update", "watch"}, verbs(linode, "nodes"))
	assert.Empty(t, verbs(linode, "secrets"))
	assert.Equal(t, []string{"get", "list", "watch"}, verbs(strings.Replace(linode, "linode: {", "linode: {readTLSSecrets: true, ", 1), "secrets"))
	services := digitalocean + "controllers: [service-lb-controller]\n"
	assert.Equal(t, []string{"get", "list", "watch"}, verbs(services, "nodes"))
	assert.Equal(t, []string{"list", "patch", "watch"}, verbs(services, "services"))
	nodes := digitalocean + "controllers: [cloud-node-controller]\n"
	assert.Equal(t, []string{"list", "watch"}, verbs(nodes, "services"))
	assert.NotContains(t, verbs(nodes, "nodes"), "delete")
	for name := range objects(t, render(t, "x", digitalocean+"rbac: {create: false}\nserviceAccount: {create: false, name: mine}\n")) {
		assert.NotRegexp(t, `^(ClusterRole|Role|ServiceAccount)`, name)
	}
}

// TestPermissionsDoNotGrow holds every right of the chart with everything switched on. What is added here gives a program that
// holds a cloud's credential more power over the cluster: docs/security.md says for what it needs each.
func TestPermissionsDoNotGrow(t *testing.T) {
	t.Parallel()
	everything := "controllers: [cloud-node-controller, cloud-node-lifecycle-controller, service-lb-controller, node-route-controller, tagging]\nadmissionPolicy: {enabled: true}\n" +
		"kind: Deployment\nroutes: {clusterCIDR: 10.244.0.0/16, allocateNodeCIDRs: true}\nmetrics: {serviceMonitor: {enabled: true}}\n"
	cluster := map[string]string{
		"nodes": "delete get list patch update watch", "nodes/status": "patch", "services": "list patch watch", "services/status": "patch",
		"events": "create patch update", "namespaces kube-system": "get",
	}
	namespaced := map[string]string{"coordination.k8s.io leases": "create", "coordination.k8s.io leases x-cloud-controller-manager": "get update"}
	bound := []string{"ClusterRole ccm:x-cloud-controller-manager", "ClusterRole system:auth-delegator", "Role extension-apiserver-authentication-reader", "Role x-cloud-controller-manager"}
	for provider, values := range map[string]string{"aws": "cloudProvider: aws\n", "digitalocean": digitalocean, "linode": linode, "openstack": openstack} {
		t.Run(provider, func(t *testing.T) {
			t.Parallel()
			inCluster, inNamespace, roles := map[string]string{}, map[string]string{}, []string{}
			for _, o := range objects(t, render(t, "x", values+everything)) {
				switch o := o.(type) {
				case *rbacv1.ClusterRole:
					grants(inCluster, o.Rules)
				case *rbacv1.Role:
					assert.Equal(t, "ccm", o.Namespace)
					grants(inNamespace, o.Rules)
				case *rbacv1.ClusterRoleBinding:
					roles = append(roles, o.RoleRef.Kind+" "+o.RoleRef.Name)
				case *rbacv1.RoleBinding:
					roles = append(roles, o.RoleRef.Kind+" "+o.RoleRef.Name)
				}
			}
			assert.Equal(t, cluster, inCluster)
			assert.Equal(t, namespaced, inNamespace)
			assert.ElementsMatch(t, bound, roles)
		})
	}
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
// can try out guesses. What the program reads only at its start makes the pods start anew.
func TestNoHashOfCredentials(t *testing.T) {
	t.Parallel()
	// outside is a sum of what is rendered but for Secrets; the texts themselves would be a long message.
	outside := func(values string) string {
		var kept []string
		for text := range strings.SplitSeq(render(t, "x", values), "\n---\n") {
			if !strings.Contains(text, "kind: Secret\n") {
				kept = append(kept, text)
			}
		}
		sum := sha256.Sum256([]byte(strings.Join(kept, "\n---\n")))
		return hex.EncodeToString(sum[:])
	}
	other := strings.NewReplacer("secret-token", "another", "hush", "another", `a"b\c`, "another")
	for _, values := range []string{digitalocean, awsKey, openstack} {
		require.NotEqual(t, values, other.Replace(values))
		assert.Equal(t, outside(values), outside(other.Replace(values)), "it shows outside of the Secret: %s", values)
	}
	free := "cloudProvider: openstack\nopenstack:\n  extraCloudConfig: |\n"
	first := free + "    [Global] Password = zebra\n    trustee-password=t\\\n    xyz\n    region = A\n"
	assert.Equal(t, outside(first), outside(strings.NewReplacer("zebra", "three", "xyz", "four").Replace(first)), "in text, too")
	assert.NotEqual(t, outside(first), outside(strings.Replace(first, "region = A", "region = B", 1)), "another region needs a new start")
	assert.NotEqual(t, outside(openstack), outside(strings.Replace(openstack, "https://k/v3", "https://l/v3", 1)))
}

// TestAdoptionPolicy: the value by itself makes the policy that refuses what asks for existing load balancers, for each cloud where
// an annotation does so; without it nothing is refused.
func TestAdoptionPolicy(t *testing.T) {
	t.Parallel()
	const name = "ValidatingAdmissionPolicy/ccm-cloud-controller-manager-service-adoption"
	for values, keys := range map[string][]string{
		digitalocean: {"kubernetes.digitalocean.com/load-balancer-id", "service.beta.kubernetes.io/do-loadbalancer-name"},
		linode:       {"anyccm.io/linode-nodebalancer-id", "anyccm.io/linode-firewall-id", "service.beta.kubernetes.io/linode-loadbalancer-nodebalancer-id"},
		openstack:    {"loadbalancer.openstack.org/load-balancer-id", "loadbalancer.openstack.org/load-balancer-address"},
		aws:          nil,
	} {
		for _, without := range []string{"", "admissionPolicy: {enabled: true, action: Deny}\n"} {
			require.NotContains(t, objects(t, render(t, "cloud-controller-manager", values+without)), name)
		}
		all := objects(t, render(t, "cloud-controller-manager", values+"admissionPolicy: {refuseAdoption: true}\n"))
		if keys == nil {
			require.NotContains(t, all, name, "a policy without any rule would be refused")
			continue
		}
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
	named := render(t, "cloud-controller-manager", linode+"admissionPolicy: {refuseAdoption: true}\nserviceAccount: {name: mine}\nloadBalancerClassMode: named\nloadBalancerClass: example.com/lb\n")
	assert.Contains(t, named, "request.userInfo.username == 'system:serviceaccount:ccm:mine'")
	assert.Contains(t, named, "object.spec.type != 'LoadBalancer' || (object.spec.type == 'LoadBalancer' && has(object.spec.loadBalancerClass) && object.spec.loadBalancerClass == 'example.com/lb')")
}

// TestReleases: two releases share no name, no lease and no account.
func TestReleases(t *testing.T) {
	t.Parallel()
	names := func(release string) []string {
		var list []string
		for name := range objects(t, render(t, release, digitalocean+"kind: Deployment\nadmissionPolicy: {enabled: true, refuseAdoption: true}\n")) {
			list = append(list, name)
		}
		return list
	}
	first := names("cloud-controller-manager")
	for _, name := range names("second") {
		assert.NotContains(t, first, name)
	}
	_, c := container(t, objects(t, render(t, "second", digitalocean)))
	assert.Contains(t, c.Args, "--leader-elect-resource-name=second-cloud-controller-manager")
	_, c = container(t, objects(t, render(t, "cloud-controller-manager", digitalocean)))
	assert.Contains(t, c.Args, "--leader-elect-resource-name=cloud-controller-manager", "it waits for the cloud's own controller")
}

func TestImages(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"image: {repository: r.example/ccm, tag: v1}\n":                          "r.example/ccm:v1",
		"image: {repository: r.example/ccm, tag: v1, slim: true}\n":              "r.example/ccm-digitalocean:v1",
		"image: {repository: r.example/ccm, tag: v1, digest: 'sha256:abc'}\n":    "r.example/ccm@sha256:abc",
		"image: {repository: r.example/ccm, digest: 'sha256:abc', slim: true}\n": "r.example/ccm-digitalocean@sha256:abc",
	} {
		_, c := container(t, objects(t, render(t, "x", digitalocean+values)))
		assert.Equal(t, want, c.Image)
	}
}

// TestRefusals: what cannot work is refused with what to do.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for values, want := range map[string]string{
		"":                       `cloudProvider is ""; set it to one of aws, digitalocean, linode, openstack`,
		"cloudProvider: azure\n": "value must be one of '', 'aws', 'digitalocean', 'linode', 'openstack'",
		"cloudProvider: aws\naws: {credentials: {accessKeyID: a}}\n":              "aws.credentials.secretAccessKey must be set",
		"cloudProvider: aws\naws: {cloudConfig: {Global: {Regoin: us-east-1}}}\n": "Regoin",
		"cloudProvider: linode\n":     "linode.credentials.existingSecret or linode.credentials.token must be set",
		"cloudProvider: openstack\n":  "openstack.credentials.existingSecret or openstack.cloudConfig must be set",
		digitalocean + "replica: 3\n": "additional properties 'replica' not allowed",
		"cloudProvider: digitalocean\ndigitalocean: {options: {REGOIN: nyc3}}\n":                    "additional properties 'REGOIN' not allowed",
		"cloudProvider: openstack\nopenstack: {cloudConfig: {LoadBalancer: {lb-methode: x}}}\n":     "additional properties 'lb-methode' not allowed",
		"cloudProvider: openstack\nopenstack: {cloudConfig: {LoadBalancer: {lb-method: RANDOM}}}\n": "value must be one of 'ROUND_ROBIN'",
		digitalocean + "kind: StatefulSet\n":                                                        "value must be one of 'DaemonSet', 'Deployment'",
	} {
		out, err := helm(t, values, "template", "x", folder)
		require.Error(t, err, values)
		assert.Contains(t, out, want, values)
	}
}

// TestLint: helm finds nothing to complain of.
func TestLint(t *testing.T) {
	t.Parallel()
	for _, values := range []string{digitalocean, linode, openstack} {
		out, err := helm(t, values, "lint", "--strict", folder)
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
