package app

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"maps"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
)

const (
	webWithColour = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop", "annotations": {"colour": "red"}},
		"spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 80}], "loadBalancerSourceRanges": ["10.0.0.0/8"]}}`
	webPlain = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "shop"},
		"spec": {"type": "LoadBalancer", "ports": [{"name": "http", "port": 8080}]}}`
)

// helmSecret returns a Secret in which Helm stores a release.
func helmSecret(t *testing.T, version, manifest string) *v1.Secret {
	t.Helper()
	text, err := json.Marshal(map[string]string{"name": "web", "manifest": manifest})
	require.NoError(t, err)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err = w.Write(text)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return &v1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "sh.helm.release.v1.web.v" + version,
			Labels: map[string]string{"owner": "helm", "status": "deployed", "name": "web", "version": version},
		},
		Data: map[string][]byte{"release": []byte(base64.StdEncoding.EncodeToString(packed.Bytes()))},
	}
}

// TestApplyClientSide: fields of the last manifest, kubectl's or Helm's, that the new one lacks are removed. Without an earlier manifest
// they stay.
func TestApplyClientSide(t *testing.T) {
	for name, c := range map[string]struct {
		annotations map[string]string
		secrets     []*v1.Secret
		removes     bool
		says        string
		fault       string
	}{
		"kubectl": {annotations: map[string]string{v1.LastAppliedConfigAnnotation: webWithColour}, removes: true},
		"nobody":  {says: "NeverApplied"},
		"Helm": {
			annotations: map[string]string{helmReleaseName: "web", helmReleaseNamespace: "shop"},
			secrets:     []*v1.Secret{helmSecret(t, "9", "{}"), helmSecret(t, "10", webWithColour)},
			removes:     true,
		},
		"Helm, no more": {
			annotations: map[string]string{helmReleaseName: "web", helmReleaseNamespace: "shop"},
			fault:       "the namespace shop has no Secret of the release web, by which Helm knows what its chart had before; use --apply=server-side or --apply=replace",
		},
	} {
		t.Run(name, func(t *testing.T) {
			stored, err := servicesIn([]byte(webWithColour))
			require.NoError(t, err)
			live := stored[0].service
			maps.Copy(live.Annotations, c.annotations)
			client := fake.NewClientset(live)
			for _, s := range c.secrets {
				require.NoError(t, client.Tracker().Add(s))
			}
			next, err := servicesIn([]byte(webPlain))
			require.NoError(t, err)
			a := &applier{way: applyAuto, client: client}
			result, err := a.apply(t.Context(), next[0])
			if c.fault != "" {
				require.EqualError(t, err, c.fault)
				return
			}
			require.NoError(t, err)
			assert.Equal(t, c.removes, result.after.Annotations["colour"] == "")
			assert.Equal(t, c.removes, len(result.after.Spec.LoadBalancerSourceRanges) == 0)
			assert.Equal(t, c.removes, len(result.after.Spec.Ports) == 1)
			assert.Equal(t, c.annotations[helmReleaseName], result.after.Annotations[helmReleaseName], "what Helm adds stays")
			if c.says != "" {
				require.Len(t, result.findings, 1)
				assert.Equal(t, c.says, result.findings[0].Reason)
			} else {
				assert.Empty(t, result.findings)
			}
		})
	}
}

// TestApplyServerSideAfterClientSide: the first server-side apply removes fields of an earlier client-side one that the manifest lacks.
func TestApplyServerSideAfterClientSide(t *testing.T) {
	for name, migrates := range map[string]bool{"kubectl.kubernetes.io/last-applied-configuration": true, "colour": false} {
		stored, err := servicesIn([]byte(webWithColour))
		require.NoError(t, err)
		live := stored[0].service
		last, err := stored[0].encode()
		require.NoError(t, err)
		live.Annotations[v1.LastAppliedConfigAnnotation] = string(last)
		live.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: clientSideManager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", FieldsType: "FieldsV1",
			FieldsV1: metav1.NewFieldsV1(`{"f:metadata":{"f:annotations":{"f:` + name + `":{}}}}`),
		}}
		next, err := servicesIn([]byte(webPlain))
		require.NoError(t, err)
		a := &applier{way: applyServerSide, client: fake.NewClientset(live)}
		result, err := a.apply(t.Context(), next[0])
		require.NoError(t, err)
		assert.Equal(t, migrates, len(result.after.Spec.LoadBalancerSourceRanges) == 0, name)
		assert.Equal(t, migrates, result.after.Annotations["colour"] == "", name)
	}
}

// TestWayToApply: the last manager of the spec determines how a Service is applied; kubectl's own record counts if several managers apply
// parts.
func TestWayToApply(t *testing.T) {
	entry := func(manager string, operation metav1.ManagedFieldsOperationType, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: manager, Operation: operation, FieldsV1: metav1.NewFieldsV1(fields)}
	}
	flux := entry("kustomize-controller", metav1.ManagedFieldsOperationApply, `{"f:spec":{}}`)
	annotator := entry("annotator", metav1.ManagedFieldsOperationApply, `{"f:metadata":{}}`)
	clientSide := entry(clientSideManager, metav1.ManagedFieldsOperationUpdate, `{"f:spec":{}}`)
	for name, c := range map[string]struct {
		fields   []metav1.ManagedFieldsEntry
		applier  applier
		want     string
		managers []string
	}{
		"nobody": {applier: applier{way: applyAuto}, want: applyClientSide},
		"Flux": {
			fields: []metav1.ManagedFieldsEntry{flux}, applier: applier{way: applyAuto},
			want: applyServerSide, managers: []string{"kustomize-controller"},
		},
		"a part alone": {fields: []metav1.ManagedFieldsEntry{annotator}, applier: applier{way: applyAuto}, want: applyClientSide},
		"kubectl and another": {
			fields: []metav1.ManagedFieldsEntry{clientSide, flux}, applier: applier{way: applyAuto},
			want: applyClientSide, managers: []string{"kustomize-controller"},
		},
		"a manager that is given": {applier: applier{way: applyAuto, manager: "x"}, want: applyServerSide},
		"a way that is given": {
			fields: []metav1.ManagedFieldsEntry{flux}, applier: applier{way: applyReplace},
			want: applyReplace, managers: []string{"kustomize-controller"},
		},
		"of the status, not of all": {
			fields: []metav1.ManagedFieldsEntry{{
				Manager: "x", Operation: metav1.ManagedFieldsOperationApply, Subresource: "status",
				FieldsV1: metav1.NewFieldsV1(`{"f:spec":{}}`),
			}},
			applier: applier{way: applyAuto}, want: applyClientSide,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &v1.Service{ObjectMeta: metav1.ObjectMeta{ManagedFields: c.fields}}
			managers := applyManagers(s)
			assert.Equal(t, c.managers, managers)
			assert.Equal(t, c.want, c.applier.chooseMode(s, managers))
		})
	}
}

// TestPlanOfDump: what a dump of the cluster has besides the manifests is left out, because the API server refuses to apply it.
func TestPlanOfDump(t *testing.T) {
	live := &v1.Service{}
	stored, err := servicesIn([]byte(webWithColour))
	require.NoError(t, err)
	stored[0].service.DeepCopyInto(live)
	live.Annotations[v1.LastAppliedConfigAnnotation] = webWithColour
	live.UID, live.ResourceVersion, live.Generation, live.CreationTimestamp = "u", "7", 3, metav1.Now()
	live.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: clientSideManager, Operation: metav1.ManagedFieldsOperationUpdate}}
	live.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	live.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}
	dump, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{live}})
	require.NoError(t, err)
	found, err := servicesIn(dump)
	require.NoError(t, err)
	require.Len(t, found, 1)
	assert.Equal(t, stored[0].object["metadata"], found[0].object["metadata"])
	assert.NotContains(t, found[0].object, "status")
	assert.Equal(t, stored[0].service.ObjectMeta, found[0].service.ObjectMeta)
	a := &applier{way: applyAuto, client: fake.NewClientset(live)}
	result, err := a.apply(t.Context(), found[0])
	require.NoError(t, err)
	assert.Equal(t, live.Spec, result.after.Spec)
	assert.Equal(t, "red", result.after.Annotations["colour"])
	assert.Empty(t, result.findings)
}
