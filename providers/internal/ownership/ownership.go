// Package ownership tells our load balancers from those of other clusters and Services.
//
// A cloud object carries the mark of its cluster where the cloud has room for it: a tag, a description, a name. The mark
// is the UID of the kube-system namespace, which no two clusters share and which lives as long as the cluster. A mark of
// another cluster is never a reason to take over. An object without any mark is as the cloud's own controller left it;
// it is adopted as it is.
package ownership

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"
)

// markPrefix begins a mark. Letters, digits, dashes and colons are what every cloud allows in a tag.
const markPrefix = "anyccm:"

// retryAfter is how long a failure to read the cluster's identity is believed.
const retryAfter = time.Minute

// NotOursError is the answer to a Service that claims an object of somebody else.
type NotOursError struct {
	// Object names the object, such as "load balancer 4de7ac8b".
	Object string
	// Owner says whose it is.
	Owner string
}

// Error implements error.
func (e *NotOursError) Error() string {
	return fmt.Sprintf("%s belongs to %s and is left alone; choose another name or ID, or remove it from there first", e.Object, e.Owner)
}

// Cluster is the identity of this cluster, and what its Services have recorded.
type Cluster struct {
	mu       sync.Mutex
	client   kubernetes.Interface
	services listers.ServiceLister
	uid      string
	failed   time.Time
}

// SetClient gives the client that reads the identity.
func (c *Cluster) SetClient(client kubernetes.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
}

// SetServices gives the Services among which records are looked for.
func (c *Cluster) SetServices(l listers.ServiceLister) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = l
}

// Mark returns the mark of this cluster, or "" where its identity cannot be read. Without the right to read one
// namespace, objects are neither marked nor checked for marks, as with the clouds' own controllers.
func (c *Cluster) Mark(ctx context.Context) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.uid == "" && c.client != nil && time.Since(c.failed) > retryAfter {
		ns, err := c.client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		if err != nil {
			klog.ErrorS(err, "Load balancers are not marked as this cluster's: grant get on the namespace kube-system")
			c.failed = time.Now()
			return ""
		}
		c.uid = string(ns.UID)
	}
	if c.uid == "" {
		return ""
	}
	return markPrefix + c.uid
}

// Check returns a NotOursError if the marks name another cluster.
func Check(object, mark string, marks []string) error {
	for _, m := range marks {
		if uid, ok := strings.CutPrefix(m, markPrefix); ok && mark != "" && m != mark {
			return &NotOursError{Object: object, Owner: "another cluster, whose namespace kube-system has the UID " + uid}
		}
	}
	return nil
}

// CheckRecords returns a NotOursError if another living Service of the cluster records the same ID under the annotation.
func (c *Cluster) CheckRecords(object, annotation, id string, service *v1.Service) error {
	c.mu.Lock()
	services := c.services
	c.mu.Unlock()
	if services == nil || id == "" {
		return nil
	}
	all, err := services.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("looking for other owners of %s: %w", object, err)
	}
	for _, other := range all {
		if other.Annotations[annotation] != id || other.UID == service.UID || other.Spec.Type != v1.ServiceTypeLoadBalancer {
			continue
		}
		// Of two that claim the same object, the older one has it.
		if other.CreationTimestamp.Before(&service.CreationTimestamp) {
			return &NotOursError{Object: object, Owner: fmt.Sprintf("Service %s/%s", other.Namespace, other.Name)}
		}
	}
	return nil
}
