package chart

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	yamlnode "go.yaml.in/yaml/v3"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// further are the values with which somebody adapts the chart to a cluster.
const further = `
namespaceOverride: elsewhere
commonLabels: {team: infra}
commonAnnotations: {owner: me}
podLabels: {own: label}
podAnnotations: {owner: pods}
kind: %s
strategy: {type: Recreate}
updateStrategy: {type: OnDelete}
revisionHistoryLimit: 3
livenessProbe: {periodSeconds: 7}
readinessProbe: null
hostAliases: [{ip: 10.0.0.1, hostnames: [keystone]}]
dnsConfig: {nameservers: [10.0.0.2]}
initContainers: [{name: before, image: first}]
extraContainers: [{name: beside, image: other}]
extraEnvFrom: [{secretRef: {name: proxy}}]
rbac: {extraRules: [{apiGroups: [example.com], resources: [things], verbs: [get]}]}
imagePullSecrets: [{name: own}]
global: {imagePullSecrets: [{name: shared}]}
logFormat: json
extraObjects: [{apiVersion: v1, kind: ConfigMap, metadata: {name: first}}, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: second}\n"]
`

func TestFurtherValues(t *testing.T) {
	t.Parallel()
	values := installedValues(clouds()[0]) + strings.Replace(further, "%s", "Deployment", 1)
	all := objects(t, render(t, "x", values))
	d, ok := all["Deployment/x-cloud-controller-manager"].(*appsv1.Deployment)
	require.True(t, ok)
	assert.Equal(t, "elsewhere", d.Namespace)
	assert.Equal(t, "infra", d.Labels["team"])
	assert.Equal(t, "me", d.Annotations["owner"])
	assert.Equal(t, appsv1.RecreateDeploymentStrategyType, d.Spec.Strategy.Type)
	assert.Equal(t, int32(3), *d.Spec.RevisionHistoryLimit)
	assert.NotContains(t, d.Spec.Selector.MatchLabels, "team", "the selector never changes")
	pod, c := d.Spec.Template, d.Spec.Template.Spec.Containers[0]
	assert.Equal(t, "infra label pods", strings.Join([]string{pod.Labels["team"], pod.Labels["own"], pod.Annotations["owner"]}, " "))
	assert.Equal(t, int32(7), c.LivenessProbe.PeriodSeconds)
	assert.Equal(t, "/healthz", c.LivenessProbe.HTTPGet.Path)
	assert.Nil(t, c.ReadinessProbe)
	assert.Equal(t, []v1.HostAlias{{IP: "10.0.0.1", Hostnames: []string{"keystone"}}}, pod.Spec.HostAliases)
	assert.Equal(t, []string{"10.0.0.2"}, pod.Spec.DNSConfig.Nameservers)
	assert.Equal(t, "before", pod.Spec.InitContainers[0].Name)
	require.Len(t, pod.Spec.Containers, 2)
	assert.Equal(t, "beside", pod.Spec.Containers[1].Name)
	assert.Equal(t, "proxy", c.EnvFrom[0].SecretRef.Name)
	assert.Equal(t, []v1.LocalObjectReference{{Name: "own"}, {Name: "shared"}}, pod.Spec.ImagePullSecrets)
	assert.Contains(t, c.Args, "--logging-format=json")
	assert.Contains(t, c.Args, "--leader-elect-resource-namespace=elsewhere")
	assert.Contains(t, all, "ConfigMap/first")
	assert.Contains(t, all, "ConfigMap/second")
	role, ok := all["ClusterRole/elsewhere:x-cloud-controller-manager"].(*rbacv1.ClusterRole)
	require.True(t, ok)
	assert.Contains(t, role.Rules, rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"things"}, Verbs: []string{"get"}})
	assert.Equal(t, "me", role.Annotations["owner"])
	for name, o := range all {
		if b, ok := o.(*rbacv1.ClusterRoleBinding); ok {
			assert.Equal(t, "elsewhere", b.Subjects[0].Namespace, name)
		}
	}
	all = objects(t, render(t, "x", installedValues(clouds()[0])+strings.Replace(further, "%s", "DaemonSet", 1)))
	set, ok := all["DaemonSet/x-cloud-controller-manager"].(*appsv1.DaemonSet)
	require.True(t, ok)
	assert.Equal(t, appsv1.OnDeleteDaemonSetStrategyType, set.Spec.UpdateStrategy.Type)
}

// TestMonitorValues: monitors stand where Prometheus looks for them, with its token beside them and the release as their target.
func TestMonitorValues(t *testing.T) {
	t.Parallel()
	const one = "{enabled: true, annotations: {a: b}, labels: {release: prometheus}, scrapeTimeout: 9s, relabelings: [{action: labeldrop, regex: pod}], " +
		"metricRelabelings: [{action: drop, regex: go_.*, sourceLabels: [__name__]}]}"
	values := installedValues(clouds()[0]) + "metrics: {namespace: monitoring, podMonitor: " + one + ", serviceMonitor: " + one + ", rules: {enabled: true}}\n"
	all := objects(t, render(t, "x", values))
	for _, kind := range []string{"ServiceMonitor", "PodMonitor"} {
		text, err := yaml.Marshal(all[kind+"/x-cloud-controller-manager"])
		require.NoError(t, err)
		for _, want := range []string{
			"namespace: monitoring\n", "a: b\n", "release: prometheus\n", "scrapeTimeout: 9s\n", "regex: pod\n", "regex: go_.*\n",
			"matchNames:\n    - ccm\n", "name: x-cloud-controller-manager-scraper\n",
		} {
			assert.Contains(t, string(text), want, kind)
		}
	}
	secret, ok := all["Secret/x-cloud-controller-manager-scraper"].(*v1.Secret)
	require.True(t, ok)
	assert.Equal(t, "monitoring", secret.Namespace, "a monitor finds no Secret of another namespace")
	own := objects(t, render(t, "x", installedValues(clouds()[0])+"metrics: {podMonitor: {enabled: true}, scraper: {existingSecret: mine, key: bearer}}\n"))
	assert.NotContains(t, own, "Secret/x-cloud-controller-manager-scraper")
	text, err := yaml.Marshal(own["PodMonitor/x-cloud-controller-manager"])
	require.NoError(t, err)
	assert.Contains(t, string(text), "key: bearer\n        name: mine\n")
}

// TestMonitorsWithoutTheirKinds: a cluster without the Prometheus operator takes the release, which says what was left out.
func TestMonitorsWithoutTheirKinds(t *testing.T) {
	t.Parallel()
	values := installedValues(clouds()[0]) + "metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}, rules: {enabled: true}}\n"
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	out, err := helm(t, "", "install", "x", folder, "--dry-run=client", "--namespace=ccm", "--values="+file)
	require.NoError(t, err, out)
	assert.NotContains(t, out, "apiVersion: monitoring.coreos.com/v1")
	assert.Contains(t, out, "WARNING: this cluster has no monitoring.coreos.com/v1")
}

// TestLintOfDefaults: with its defaults the chart says what to set, and nothing else is wrong.
func TestLintOfDefaults(t *testing.T) {
	t.Parallel()
	out, said, err := helmSays(t, "", "lint", folder)
	require.NoError(t, err, out+said)
	assert.Contains(t, said, `message="cloudProvider is \"\"; set it to one of `)
	for _, p := range clouds() {
		out, err := helm(t, "", "lint", folder, "--strict", "--values="+filepath.Join(folder, "ci", p.Name+"-values.yaml"))
		require.NoError(t, err, "%s: %s", p.Name, out)
		assert.NotContains(t, out, "[INFO]")
		assert.NotContains(t, out, "[WARNING]")
	}
}

// TestImageWithoutRegistry: whoever installs the chart as it is in the repository hears what is missing.
func TestImageWithoutRegistry(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]bool{"cloud-controller-manager": true, "registry.example.com/ccm": false} {
		out, err := helm(t, installedValues(clouds()[0])+"image: {repository: "+repository+"}\n", "install", "x", folder, "--dry-run=client", "--namespace=ccm")
		require.NoError(t, err, out)
		assert.Equal(t, want, strings.Contains(out, "names no registry"), repository)
	}
}

// TestNoAdoptionIsTold: whoever switches on what makes no policy on a cloud hears it.
func TestNoAdoptionIsTold(t *testing.T) {
	t.Parallel()
	for _, p := range clouds() {
		expected, err := expectations.Read("../..", p)
		require.NoError(t, err)
		out, err := helm(t, installedValues(p)+"admissionPolicy: {refuseAdoption: true}\n", "install", "x", folder, "--dry-run=client", "--namespace=ccm")
		require.NoError(t, err, out)
		assert.Equal(t, len(expected.Adoption.Annotations) == 0, strings.Contains(out, "refuseAdoption made no policy: no annotation on "+p.Name), p.Name)
	}
}

// illegal are values that the API server or the program would refuse after the installation, and where the schema says so.
var illegal = map[string]string{
	"loadBalancerClassMode: named\n":                                       "/loadBalancerClass",
	"loadBalancerClassMode: named-and-unclassed\n":                         "/loadBalancerClass",
	"loadBalancerClass: example.com/lb\n":                                  "/loadBalancerClass",
	"loadBalancerClass: a b\nloadBalancerClassMode: named\n":               "/loadBalancerClass",
	"serviceDefaults: [{class: '', annotations: {}}]\n":                    "/serviceDefaults/0",
	"serviceDefaults: [{loadBalancerClass: '', annotations: {a: true}}]\n": "/serviceDefaults/0/annotations/a",
	"serviceDefaults: [{loadBalancerClass: a b}]\n":                        "/serviceDefaults/0/loadBalancerClass",
	"image: {repository: 'registry.example.com/ccm:v1'}\n":                 "/image/repository",
	"podAnnotations: {a: true}\n":                                          "/podAnnotations/a",
	"commonAnnotations: {a: 1}\n":                                          "/commonAnnotations/a",
	"serviceAccount: {annotations: {a: 1}}\n":                              "/serviceAccount/annotations/a",
	"nodeSelector: {a: true}\n":                                            "/nodeSelector/a",
	"metrics: {podMonitor: {labels: {a: 1}}}\n":                            "/metrics/podMonitor/labels/a",
	"metrics: {rules: {selector: job=x}}\n":                                "/metrics/rules/selector",
	"metrics: null\n":                                                      "missing property 'metrics'",
	"imagePullSecrets: [registry]\n":                                       "/imagePullSecrets/0",
	"global: {imagePullSecrets: [registry]}\n":                             "/global/imagePullSecrets/0",
	"dnsPolicy: cluster\n":                                                 "/dnsPolicy",
	"strategy: {type: OnDelete}\n":                                         "/strategy/type",
	"updateStrategy: {type: Recreate}\n":                                   "/updateStrategy/type",
	"extraArgs: [v=3]\n":                                                   "/extraArgs/0",
	"extraEnv: [{name: A, value: 1}]\n":                                    "/extraEnv/0/value",
	"extraEnv: [{value: a}]\n":                                             "/extraEnv/0",
	"admissionPolicy: {excludeNamespaces: [a b]}\n":                        "/admissionPolicy/excludeNamespaces/0",
	"admissionPolicy: {exemptUsers: [\"a'b\"]}\n":                          "/admissionPolicy/exemptUsers/0",
	"leaderElection: {namespace: Upper}\n":                                 "/leaderElection/namespace",
	"logLevel: 11\n":                                                       "/logLevel",
	"securePort: 0\n":                                                      "/securePort",
	"securePort: 70000\n":                                                  "/securePort",
	"image: {digest: latest}\n":                                            "/image/digest",
	"image: {repository: ''}\n":                                            "/image/repository",
	"fullnameOverride: Upper\n":                                            "/fullnameOverride",
	"namespaceOverride: a.b\n":                                             "/namespaceOverride",
	"serviceAccount: {name: a_b}\n":                                        "/serviceAccount/name",
	"leaderElection: {leaseName: 'a b'}\n":                                 "/leaderElection/leaseName",
	"clusterName: ''\n":                                                    "/clusterName",
	"routes: {clusterCIDR: 10.0.0.0}\n":                                    "/routes/clusterCIDR",
	"routes: {clusterCIDR: 999.0.0.0/8}\n":                                 "/routes/clusterCIDR",
	"routes: {clusterCIDR: 10.0.0.0/33}\n":                                 "/routes/clusterCIDR",
	"routes: {clusterCIDR: 'fd00::/129'}\n":                                "/routes/clusterCIDR",
	"routes: {clusterCIDR: '10.0.0.0/16,10.1.0.0/16'}\n":                   "/routes/clusterCIDR",
	"image: {tag: 'a:b'}\n":                                                "/image/tag",
	"clusterName: ' '\n":                                                   "/clusterName",
	"podLabels: {a b: x}\n":                                                "invalid propertyName 'a b'",
	"commonLabels: {a: b c}\n":                                             "/commonLabels/a",
	"bindAddress: localhost\n":                                             "/bindAddress",
	"podLabels: {app.kubernetes.io/name: x}\n":                             "the pods are chosen by this label",
	"commonLabels: {app.kubernetes.io/instance: x}\n":                      "the pods are chosen by this label",
	"controllers: []\n":                                                    "/controllers",
	"controllers: [service-lb-controller, nonesuch]\n":                     "/controllers/1",
	"logFormat: xml\n":                                                     "/logFormat",
	"metrics: {podMonitor: {interval: often}}\n":                           "/metrics/podMonitor/interval",
	"extraEnv: [{name: A, value: b}, {name: A, value: c}]\n":               "extraEnv sets A, which is set already",
	"extraEnv: [{name: POD_NAMESPACE, value: b}]\n":                        "extraEnv sets POD_NAMESPACE",
}

// legal are others that look like them.
var legal = []string{
	"loadBalancerClassMode: named\nloadBalancerClass: example.com/lb\n", "routes: {clusterCIDR: '10.0.0.0/16,fd00::/48'}\n",
	"routes: {clusterCIDR: 'fd00::/48'}\n", "podLabels: {example.com/team: a_b, empty: ''}\n", "bindAddress: '::'\n",
	"image: {digest: 'sha256:" + strings.Repeat("a", 64) + "'}\n", "serviceAccount: {name: a.b}\n", "logLevel: 10\n", "global: {other: 1}\n",
	"loadBalancerClassMode: named\nloadBalancerClass: internal\n", "serviceDefaults: [{loadBalancerClass: internal}]\n",
	"image: {repository: 'localhost:5000/team_a/ccm-x.y'}\n", "image: {repository: '[::1]:5000/ccm'}\n", "livenessProbe: null\n",
	`metrics: {rules: {enabled: true, selector: 'job="a", cluster=~"b.*"'}}` + "\n",
}

// TestIllegalValues: what would be refused after the installation is refused before.
func TestIllegalValues(t *testing.T) {
	t.Parallel()
	for values, want := range illegal {
		requireRefusal(t, installedValues(clouds()[0])+values, want)
	}
	for _, values := range legal {
		objects(t, render(t, "x", installedValues(clouds()[0])+values))
	}
}

// TestArguments: each is one text, whatever YAML would make of it, and kubelet asks where the program listens.
func TestArguments(t *testing.T) {
	t.Parallel()
	for address, host := range map[string]string{
		"": "127.0.0.1", "127.0.0.1": "127.0.0.1", "'::1'": "::1", "10.0.0.4": "10.0.0.4", "0.0.0.0": "", "'::'": "",
	} {
		values := installedValues(clouds()[0]) + "bindAddress: " + address + "\nclusterName: 'prod:'\nnodeSelectorOfNodes: 'env in (a, b)'\n"
		set, ok := objects(t, render(t, "x", values))["DaemonSet/x-cloud-controller-manager"].(*appsv1.DaemonSet)
		require.True(t, ok)
		c := set.Spec.Template.Spec.Containers[0]
		listens := strings.Trim(address, "'")
		if address == "" {
			listens = "127.0.0.1"
		}
		for _, arg := range []string{"--bind-address=" + listens, "--cluster-name=prod:", "--node-selector=env in (a, b)"} {
			assert.Contains(t, c.Args, arg)
		}
		assert.Equal(t, host, c.LivenessProbe.HTTPGet.Host, address)
		assert.Equal(t, host, c.ReadinessProbe.HTTPGet.Host, address)
	}
}

// TestKeysOnce: labels of all objects and of one may have the same key; renderers that read strictly take the result.
func TestKeysOnce(t *testing.T) {
	t.Parallel()
	values := installedValues(clouds()[0]) + `
commonLabels: {release: all, app.kubernetes.io/component: mine}
commonAnnotations: {owner: all}
metrics:
  podMonitor: {enabled: true, labels: {release: prometheus}, annotations: {owner: me}}
  serviceMonitor: {enabled: true, labels: {release: prometheus}, annotations: {owner: me}}
  rules: {enabled: true, labels: {release: prometheus}, annotations: {owner: me}}
  dashboard: {enabled: true, labels: {release: grafana}, annotations: {owner: me}}
`
	out := render(t, "x", values)
	decoder := yamlnode.NewDecoder(strings.NewReader(out))
	found := 0
	for {
		var content map[string]any
		err := decoder.Decode(&content)
		if errors.Is(err, io.EOF) {
			break
		}
		require.NoError(t, err)
		found++
	}
	assert.Greater(t, found, 8)
	for name, want := range map[string]string{"PodMonitor": "prometheus", "PrometheusRule": "prometheus", "DaemonSet": "all"} {
		text, err := yaml.Marshal(objects(t, out)[name+"/x-cloud-controller-manager"])
		require.NoError(t, err)
		assert.Contains(t, string(text), "release: "+want+"\n", name)
		assert.Contains(t, string(text), "app.kubernetes.io/component: mine\n", name)
	}
}

// TestLongNames: Helm allows 53 characters for a release; a Service's name may have 63, and the alerts look for the jobs of both monitors.
func TestLongNames(t *testing.T) {
	t.Parallel()
	release := strings.Repeat("r", 53)
	out := render(t, release, installedValues(clouds()[0])+"metrics: {serviceMonitor: {enabled: true}, podMonitor: {enabled: true}, rules: {enabled: true}}\n")
	services := 0
	for name, o := range objects(t, out) {
		if s, ok := o.(*v1.Service); ok {
			services++
			assert.LessOrEqual(t, len(s.Name), 63, name)
			full := release + "-cloud-con"
			assert.Contains(t, out, "(ccm/)?("+full+"|"+s.Name+")")
		}
	}
	assert.Equal(t, 1, services)
}

// TestPackagedRepository: make release REGISTRY=… writes the registry into the chart that it packages, at the line that is there.
func TestPackagedRepository(t *testing.T) {
	t.Parallel()
	makefile, err := os.ReadFile("../../Makefile")
	require.NoError(t, err)
	values, err := os.ReadFile(folder + "/values.yaml")
	require.NoError(t, err)
	const line = "  repository: cloud-controller-manager"
	assert.Equal(t, 1, strings.Count(string(values), "\n"+line+"\n"))
	assert.Contains(t, string(makefile), "s|^"+line+"$$|  repository: $(REGISTRY)/cloud-controller-manager|")
}

// TestPlainManifests: each release holds what the chart renders for each cloud, ready for kubectl once its Secret is there.
func TestPlainManifests(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{
		"../../Makefile": "> dist/manifests/cloud-controller-manager-$$name.yaml", "../../.goreleaser.yaml": "- glob: dist/manifests/*.yaml\n",
	} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Contains(t, string(text), want)
	}
	for _, p := range clouds() {
		values, err := os.ReadFile(filepath.Join(folder, "ci", p.Name+"-values.yaml"))
		require.NoError(t, err)
		all := objects(t, render(t, "cloud-controller-manager", string(values)))
		pod, c := container(t, all)
		assert.Contains(t, c.Args, "--cloud-provider="+p.Name)
		assert.Contains(t, c.Image, "registry.example.com/cloud-controller-manager:")
		for _, v := range pod.Volumes {
			if v.Secret != nil {
				assert.Equal(t, p.Installation.Secret, v.Secret.SecretName)
			}
		}
		for name := range all {
			assert.NotRegexp(t, "^Secret/", name, "no manifest of a release holds a credential")
		}
	}
}

// TestNodeLabelsFromTags: the rules are one argument.
func TestNodeLabelsFromTags(t *testing.T) {
	t.Parallel()
	served := slices.IndexFunc(clouds(), func(p registry.Provider) bool { return p.InstanceTags.Served() })
	values := installedValues(clouds()[served]) + "nodeLabelsFromTags: [Cost Center=example.com/cost-center, 'a/*=example.com/*', cluster-autoscaler]\n"
	_, c := container(t, objects(t, render(t, "x", values)))
	assert.Contains(t, c.Args, "--node-labels-from-tags=Cost Center=example.com/cost-center,a/*=example.com/*,cluster-autoscaler")
	requireRefusal(t, installedValues(clouds()[served])+"nodeLabelsFromTags: [team]\n", "at '/nodeLabelsFromTags/0': 'team' does not match pattern")
}
