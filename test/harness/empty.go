package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// maxPasses is how often Empty looks for what is left.
const maxPasses = 5

// Empty deletes every object of a cluster that its API server did not make itself, with finalizers and with what is in namespaces, so that
// the next cluster finds a new API server. Nobody else may work on the cluster.
//
// It is not reusable if there were admission policies: the API server applies them for a moment after they are deleted, and nothing says
// when that ends.
func Empty(ctx context.Context, config *rest.Config) (reusable bool, err error) {
	e := &emptying{}
	if e.kube, err = kubernetes.NewForConfig(config); err != nil {
		return false, err
	}
	if e.objects, err = metadata.NewForConfig(config); err != nil {
		return false, err
	}
	resources, err := deletable(e.kube.Discovery())
	if err != nil {
		return false, fmt.Errorf("asking which resources there are: %w", err)
	}
	for range maxPasses {
		var left []string
		var problems error
		for _, resource := range resources {
			found, err := e.empty(ctx, resource)
			left, problems = append(left, found...), errors.Join(problems, err)
		}
		if len(left) == 0 && problems == nil {
			return !e.policies, nil
		}
		err = fmt.Errorf("emptying the cluster: still there are %s: %w", strings.Join(left, ", "), problems)
	}
	return false, err
}

type emptying struct {
	kube     kubernetes.Interface
	objects  metadata.Interface
	policies bool
}

var namespaces = v1.SchemeGroupVersion.WithResource("namespaces")

// deletable are the resources whose objects can be listed and deleted, namespaces last. Left out are those that the API server derives
// from others.
func deletable(client discovery.DiscoveryInterface) ([]schema.GroupVersionResource, error) {
	lists, err := client.ServerPreferredResources()
	if err != nil {
		return nil, err
	}
	var all []schema.GroupVersionResource
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, err
		}
		for _, r := range list.APIResources {
			resource := version.WithResource(r.Name)
			derived := []string{"events.k8s.io", "flowcontrol.apiserver.k8s.io", "apiregistration.k8s.io"}
			if resource != namespaces && !slices.Contains(derived, version.Group) && r.Name != "ipaddresses" &&
				slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") {
				all = append(all, resource)
			}
		}
	}
	return append(all, namespaces), nil
}

// empty deletes the objects of a resource and returns their names.
func (e *emptying) empty(ctx context.Context, resource schema.GroupVersionResource) (found []string, err error) {
	list, err := e.objects.Resource(resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		if ownObject(o.ManagedFields) && resource.Resource != "events" {
			continue
		}
		found = append(found, fmt.Sprintf("%s %s/%s", resource.Resource, o.Namespace, o.Name))
		e.policies = e.policies || strings.HasPrefix(resource.Resource, "validatingadmissionpolic")
		if one := e.delete(ctx, resource, o); one != nil && !apierrors.IsNotFound(one) && !apierrors.IsConflict(one) {
			err = errors.Join(err, one)
		}
	}
	return found, err
}

// ownObject reports whether the API server made an object.
func ownObject(fields []metav1.ManagedFieldsEntry) bool {
	return slices.ContainsFunc(fields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == "kube-apiserver" })
}

// delete deletes an object whatever its finalizers are.
func (e *emptying) delete(ctx context.Context, resource schema.GroupVersionResource, o metav1.PartialObjectMetadata) error {
	client := e.objects.Resource(resource).Namespace(o.Namespace)
	if len(o.Finalizers) > 0 {
		if _, err := client.Patch(ctx, o.Name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	err := client.Delete(ctx, o.Name, metav1.DeleteOptions{GracePeriodSeconds: new(int64(0))})
	if resource != namespaces || err != nil {
		return err
	}
	// No controller finishes namespaces here.
	_, err = e.kube.CoreV1().Namespaces().Finalize(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.Name}}, metav1.UpdateOptions{})
	return err
}
