package oci

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// subnetMaxAge is long because a subnet's network never changes.
const subnetMaxAge = 24 * time.Hour

// annotationJob writes the compartment of its instance on each Node. The volume driver reads it.
func (c *cloud) annotationJob() loop.Job {
	return loop.Job{
		Name: "oci-node-annotations", Period: 10 * time.Minute, Spacing: 100 * time.Millisecond, Timeout: time.Minute, Run: c.annotate,
	}
}

// lacksAnnotation reports whether a Node lacks the annotation. Uninitialized Nodes, which may have no provider ID yet, come later.
func (*cloud) lacksAnnotation(object any) bool {
	node, ok := object.(*v1.Node)
	if !ok || contract.Uninitialized(node) || node.Annotations[annotationCompartment] != "" {
		return false
	}
	_, err := parseProviderID(node.Spec.ProviderID)
	return err == nil
}

func (c *cloud) annotate(ctx context.Context) error {
	var problems []error
	for _, node := range c.instances.nodes.Nodes() {
		if !c.lacksAnnotation(node) {
			continue
		}
		if err := c.annotateNode(ctx, node); err != nil {
			problems = append(problems, fmt.Errorf("annotating node %s: %w", node.Name, err))
		}
	}
	return errors.Join(problems...)
}

func (c *cloud) annotateNode(ctx context.Context, node *v1.Node) error {
	in, err := c.instances.Find(ctx, node, inventory.Query{
		MaxAge: nodes.SweepMaxAge, MaxMissAge: nodes.SweepMaxAge, Expected: c.instances.nodes.Counts().All, PerSingle: callPrice,
	})
	if err != nil {
		return err
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": map[string]string{annotationCompartment: in.Compartment}}})
	if err != nil {
		return err
	}
	_, err = c.loadBalancers.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}
