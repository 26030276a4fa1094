package linode

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/nodes"
)

const metadataTimeout = 2 * time.Minute

const (
	annotationPrivateIP  = "node.k8s.linode.com/private-ip"
	annotationPublicIPv6 = "node.k8s.linode.com/public-ipv6"
	labelHostUUID        = "node.k8s.linode.com/host-uuid"
)

// metadata writes on each Node the host of its Linode, and the addresses for NodeBalancers.
type metadata struct {
	kube      kubernetes.Interface
	instances *instances
	nodes     listers.NodeLister
	// maxAge is the period of the job, so that nodes which join one by one need no listing each.
	maxAge time.Duration
}

func (m *metadata) job(period time.Duration) loop.Job {
	m.maxAge = period
	return loop.Job{Name: "node-metadata", Period: period, Spacing: time.Second, Timeout: metadataTimeout, Run: m.run}
}

// lacksMetadata reports whether a Node lacks its metadata.
func lacksMetadata(object any) bool {
	node, ok := object.(*v1.Node)
	return ok && strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) && node.Labels[labelHostUUID] == ""
}

// run reads the metadata of all nodes from the shared view, and writes differences.
func (m *metadata) run(ctx context.Context) error {
	all, err := m.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("listing nodes: %w", err)
	}
	var failures []error
	for _, node := range all {
		if !strings.HasPrefix(node.Spec.ProviderID, providerIDPrefix) {
			continue
		}
		l, err := m.instances.Find(ctx, node, inventory.Query{MaxAge: m.maxAge, MaxMissAge: max(m.maxAge, nodes.SweepMaxAge), Expected: len(all)})
		if errors.Is(err, cloudapi.ErrNotFound) {
			continue
		}
		if err != nil {
			return err // it would be the same for every node
		}
		failures = append(failures, m.write(ctx, node, l))
	}
	return errors.Join(failures...)
}

// missingMetadata returns the label and annotations that a Node lacks. An existing private address stays, because a user may have chosen it
// for NodeBalancers.
func missingMetadata(node *v1.Node, l instance) (label string, annotations map[string]string) {
	if l.hostUUID != "" && node.Labels[labelHostUUID] != l.hostUUID {
		label = l.hostUUID
	}
	annotations = map[string]string{}
	if ip := l.privateIPv4(); ip != "" && node.Annotations[annotationPrivateIP] == "" {
		annotations[annotationPrivateIP] = ip
	}
	if l.ipv6 != "" && node.Annotations[annotationPublicIPv6] != l.ipv6 {
		annotations[annotationPublicIPv6] = l.ipv6
	}
	return label, annotations
}

func (m *metadata) write(ctx context.Context, node *v1.Node, l instance) error {
	label, annotations := missingMetadata(node, l)
	if label == "" && len(annotations) == 0 {
		return nil
	}
	change := map[string]any{"annotations": annotations}
	if label != "" {
		change["labels"] = map[string]string{labelHostUUID: label}
	}
	patch, err := json.Marshal(map[string]any{"metadata": change})
	if err != nil {
		return fmt.Errorf("node %s: %w", node.Name, err)
	}
	klog.V(2).InfoS("Writing metadata of a node", "node", node.Name, "linode", l.id)
	if _, err := m.kube.CoreV1().Nodes().Patch(ctx, node.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("writing metadata of node %s: %w", node.Name, err)
	}
	return nil
}
