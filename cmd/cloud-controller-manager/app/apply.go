package app

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// Values of --apply.
const (
	// applyAuto applies in the same way as the Service's last manager.
	applyAuto = "auto"
	// applyClientSide acts like kubectl apply and Argo CD: fields of the last manifest that the new one lacks are removed.
	applyClientSide = "client-side"
	// applyServerSide acts like kubectl apply --server-side, Flux and Helm 4.
	applyServerSide = "server-side"
	// applyReplace acts like kubectl replace.
	applyReplace = "replace"
)

const (
	clientSideManager = "kubectl-client-side-apply"
	serverSideManager = "kubectl"
	helmManager       = "helm"

	helmReleaseName      = "meta.helm.sh/release-name"
	helmReleaseNamespace = "meta.helm.sh/release-namespace"
	managedByLabel       = "app.kubernetes.io/managed-by"
)

// applier finds out by dry runs how a manifest would change a Service.
type applier struct {
	way     string
	manager string
	client  kubernetes.Interface
}

// applied is a Service before and after a manifest is applied; before is nil for a new one.
type applied struct {
	before, after *v1.Service
	findings      []contract.Finding
}

func (a *applier) addFlags(fs *pflag.FlagSet) {
	fs.StringVar(&a.way, "apply", applyAuto, "How the manifests will be applied: auto (as the Service was applied before), client-side (kubectl apply, Argo CD), server-side (kubectl apply --server-side, Flux, Helm 4), replace (kubectl replace).")
	fs.StringVar(&a.manager, "field-manager", "", "The field manager that applies server-side; without it the one that applied the Service before.")
}

func (a *applier) validate() error {
	ways := []string{applyAuto, applyClientSide, applyServerSide, applyReplace}
	switch {
	case !slices.Contains(ways, a.way):
		return usage(fmt.Errorf("--apply=%s: use %s", a.way, strings.Join(ways, ", ")))
	case a.manager != "" && a.way != applyAuto && a.way != applyServerSide:
		return usage(fmt.Errorf("--field-manager=%s: has no effect with --apply=%s; leave it out, or use --apply=%s", a.manager, a.way, applyServerSide))
	}
	return nil
}

// apply returns the present and the resulting Service.
func (a *applier) apply(ctx context.Context, m manifest) (applied, error) {
	before, err := a.client.CoreV1().Services(m.service.Namespace).Get(ctx, m.service.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return a.applyServerSide(ctx, nil, m, cmp.Or(a.manager, serverSideManager))
	}
	if err != nil {
		return applied{}, fmt.Errorf("reading the Service: %w", err)
	}
	m.keepHelm(before)
	managers := applyManagers(before)
	switch way := a.chooseMode(before, managers); {
	case way == applyReplace:
		return a.replace(ctx, before, m)
	case way == applyClientSide:
		return a.applyClientSide(ctx, before, m)
	case a.manager != "":
		return a.applyServerSide(ctx, before, m, a.manager)
	case len(managers) > 1:
		return applied{}, fmt.Errorf("several field managers apply this Service; name the one that will apply the manifest, --field-manager=%s",
			strings.Join(managers, " or --field-manager="))
	case len(managers) == 1:
		return a.applyServerSide(ctx, before, m, managers[0])
	}
	return a.applyServerSide(ctx, before, m, serverSideManager)
}

// chooseMode chooses how a Service is applied. Fields of a client-side apply are taken over by kubectl apply --server-side.
func (a *applier) chooseMode(before *v1.Service, managers []string) string {
	clientSide := slices.ContainsFunc(before.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Manager == clientSideManager && f.Operation == metav1.ManagedFieldsOperationUpdate
	})
	switch {
	case a.way != applyAuto:
		return a.way
	case a.manager != "", len(managers) > 0 && !clientSide:
		return applyServerSide
	}
	return applyClientSide
}

// applyManagers returns the field managers that applied the Service's spec server-side.
func applyManagers(s *v1.Service) (managers []string) {
	for _, f := range s.ManagedFields {
		if f.Operation == metav1.ManagedFieldsOperationApply && f.Subresource == "" && f.FieldsV1 != nil &&
			bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:spec"`)) {
			managers = append(managers, f.Manager)
		}
	}
	return managers
}

// applyServerSide takes over fields of other managers like Flux, and reports it, because kubectl and Helm would refuse.
func (a *applier) applyServerSide(ctx context.Context, before *v1.Service, m manifest, manager string) (applied, error) {
	result := applied{before: before}
	data, err := m.encode()
	if err != nil {
		return result, err
	}
	options := metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict, Force: new(false),
	}
	services := a.client.CoreV1().Services(m.service.Namespace)
	result.after, err = services.Patch(ctx, m.service.Name, types.ApplyPatchType, data, options)
	if apierrors.IsConflict(err) {
		result.findings = append(result.findings, contract.Finding{
			Warning: true, Reason: "FieldConflict", Message: fmt.Sprintf("fields of other field managers change hands, which Flux does and kubectl and Helm refuse without --force-conflicts: %v", err),
		})
		options.Force = new(true)
		result.after, err = services.Patch(ctx, m.service.Name, types.ApplyPatchType, data, options)
	}
	if err == nil && isAppliedClientSide(before) {
		merged, err := a.applyClientSide(ctx, before, m)
		return applied{before: before, after: merged.after, findings: result.findings}, err
	}
	return result, storageError(err)
}

// isAppliedClientSide reports whether a client-side apply owns fields. The first server-side apply of kubectl and Flux takes them over, and
// removes those that the manifest lacks.
func isAppliedClientSide(s *v1.Service) bool {
	return s != nil && slices.ContainsFunc(s.ManagedFields, func(f metav1.ManagedFieldsEntry) bool {
		return f.Operation == metav1.ManagedFieldsOperationUpdate && f.Subresource == "" && f.FieldsV1 != nil &&
			bytes.Contains(f.FieldsV1.GetRawBytes(), []byte(`"f:`+v1.LastAppliedConfigAnnotation+`"`))
	})
}

// applyClientSide makes a three-way merge: fields of the last manifest that the new one lacks are removed, fields of neither stay.
func (a *applier) applyClientSide(ctx context.Context, before *v1.Service, m manifest) (applied, error) {
	result := applied{before: before}
	original, err := a.lastApplied(ctx, before)
	if err != nil {
		return result, err
	}
	manager := clientSideManager
	if releaseOf(before) != "" {
		manager = helmManager
	}
	if original == nil {
		result.findings = append(result.findings, contract.Finding{
			Reason: "NeverApplied", Message: "the Service was not made by apply, so that what the manifest lacks stays; --apply=replace shows what kubectl replace does",
		})
	}
	m.values("annotations") // kubectl adds its own annotation, so a manifest without any does not remove all
	modified, err := m.encode()
	if err != nil {
		return result, err
	}
	current, err := json.Marshal(before)
	if err != nil {
		return result, fmt.Errorf("encoding the Service: %w", err)
	}
	meta, err := strategicpatch.NewPatchMetaFromStruct(v1.Service{})
	if err != nil {
		return result, fmt.Errorf("reading how Services are merged: %w", err)
	}
	patch, err := strategicpatch.CreateThreeWayMergePatch(original, modified, current, meta, true)
	if err != nil {
		return result, fmt.Errorf("comparing the Service with the manifest: %w", err)
	}
	services := a.client.CoreV1().Services(before.Namespace)
	result.after, err = services.Patch(ctx, before.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{
		DryRun: []string{metav1.DryRunAll}, FieldManager: manager, FieldValidation: metav1.FieldValidationStrict,
	})
	return result, storageError(err)
}

func (a *applier) replace(ctx context.Context, before *v1.Service, m manifest) (applied, error) {
	after, err := a.client.CoreV1().Services(before.Namespace).Update(ctx, m.service, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
	return applied{before: before, after: after}, storageError(err)
}

func storageError(err error) error {
	if err != nil {
		return fmt.Errorf("asking the API server what it would store: %w", err)
	}
	return nil
}

// lastApplied returns the last applied manifest, from kubectl's annotation or Helm's release; nil without one.
func (a *applier) lastApplied(ctx context.Context, s *v1.Service) ([]byte, error) {
	if last := s.Annotations[v1.LastAppliedConfigAnnotation]; last != "" {
		return []byte(last), nil
	}
	release := releaseOf(s)
	if release == "" {
		return nil, nil
	}
	namespace := s.Annotations[helmReleaseNamespace]
	found, err := a.client.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{LabelSelector: "owner=helm,status=deployed,name=" + release})
	if err != nil {
		return nil, fmt.Errorf("reading what Helm has of the release %s in the namespace %s, which says what its chart had before: %w", release, namespace, err)
	}
	if len(found.Items) == 0 {
		return nil, fmt.Errorf("the namespace %s has no Secret of the release %s, by which Helm knows what its chart had before; use --apply=%s or --apply=%s",
			namespace, release, applyServerSide, applyReplace)
	}
	newest := slices.MaxFunc(found.Items, func(a, b v1.Secret) int { return cmp.Compare(revision(a), revision(b)) })
	text, err := releaseManifest(newest.Data["release"])
	if err != nil {
		return nil, fmt.Errorf("the Secret %s of the namespace %s is no release of Helm: %w", newest.Name, namespace, err)
	}
	manifests, err := servicesIn(text)
	if err != nil {
		return nil, fmt.Errorf("the Secret %s of the namespace %s: %w", newest.Name, namespace, err)
	}
	for _, m := range manifests {
		if m.service.Name == s.Name && cmp.Or(m.service.Namespace, namespace) == s.Namespace {
			return m.encode()
		}
	}
	return nil, nil
}

func revision(s v1.Secret) int {
	n, _ := strconv.Atoi(s.Labels["version"])
	return n
}

// releaseManifest unpacks the manifests of a Helm release.
func releaseManifest(data []byte) ([]byte, error) {
	packed, err := base64.StdEncoding.DecodeString(string(data))
	if err != nil {
		return nil, err
	}
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var release struct{ Manifest string }
	if err := json.NewDecoder(r).Decode(&release); err != nil {
		return nil, err
	}
	return []byte(release.Manifest), nil
}

// releaseOf returns the Helm release of a Service, "" without one.
func releaseOf(s *v1.Service) string { return s.Annotations[helmReleaseName] }

// keepHelm adds the metadata that Helm adds to each object but `helm template` does not print.
func (m manifest) keepHelm(before *v1.Service) {
	if releaseOf(before) == "" {
		return
	}
	m.values("labels")[managedByLabel] = before.Labels[managedByLabel]
	m.values("annotations")[helmReleaseName] = before.Annotations[helmReleaseName]
	m.values("annotations")[helmReleaseNamespace] = before.Annotations[helmReleaseNamespace]
}

// values returns the annotations or labels of a manifest.
func (m manifest) values(field string) map[string]any {
	metadata, _ := m.object["metadata"].(map[string]any)
	values, ok := metadata[field].(map[string]any)
	if !ok {
		values = map[string]any{}
		metadata[field] = values
	}
	return values
}
