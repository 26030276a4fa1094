package chart

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/yaml"
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
	values := given(clouds()[0]) + strings.Replace(further, "%s", "Deployment", 1)
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
	all = objects(t, render(t, "x", given(clouds()[0])+strings.Replace(further, "%s", "DaemonSet", 1)))
	set, ok := all["DaemonSet/x-cloud-controller-manager"].(*appsv1.DaemonSet)
	require.True(t, ok)
	assert.Equal(t, appsv1.OnDeleteDaemonSetStrategyType, set.Spec.UpdateStrategy.Type)
}

// TestMonitorValues: monitors stand where Prometheus looks for them, with its token beside them and the release as their target.
func TestMonitorValues(t *testing.T) {
	t.Parallel()
	const one = "{enabled: true, annotations: {a: b}, labels: {release: prometheus}, scrapeTimeout: 9s, relabelings: [{action: labeldrop, regex: pod}], " +
		"metricRelabelings: [{action: drop, regex: go_.*, sourceLabels: [__name__]}]}"
	values := given(clouds()[0]) + "metrics: {namespace: monitoring, podMonitor: " + one + ", serviceMonitor: " + one + ", rules: {enabled: true}}\n"
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
	own := objects(t, render(t, "x", given(clouds()[0])+"metrics: {podMonitor: {enabled: true}, scraper: {existingSecret: mine, key: bearer}}\n"))
	assert.NotContains(t, own, "Secret/x-cloud-controller-manager-scraper")
	text, err := yaml.Marshal(own["PodMonitor/x-cloud-controller-manager"])
	require.NoError(t, err)
	assert.Contains(t, string(text), "key: bearer\n        name: mine\n")
}

// TestMonitorsWithoutTheirKinds: a cluster without the Prometheus operator takes the release, which says what was left out.
func TestMonitorsWithoutTheirKinds(t *testing.T) {
	t.Parallel()
	values := given(clouds()[0]) + "metrics: {podMonitor: {enabled: true}, serviceMonitor: {enabled: true}, rules: {enabled: true}}\n"
	file := filepath.Join(t.TempDir(), "values.yaml")
	require.NoError(t, os.WriteFile(file, []byte(values), 0o600))
	out, err := helm(t, "", "install", "x", folder, "--dry-run=client", "--namespace=ccm", "--values="+file)
	require.NoError(t, err, out)
	assert.NotContains(t, out, "apiVersion: monitoring.coreos.com/v1")
	assert.Contains(t, out, "WARNING: this cluster has no monitoring.coreos.com/v1")
}
