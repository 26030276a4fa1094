// Package ownership distinguishes our load balancers from those of other clusters, Services and people.
//
// A cloud object carries marks in tags, a description or a name. The mark of the cluster is the UID of the kube-system namespace, which no
// two clusters share and which lives as long as the cluster; the mark of the Service is its own UID. Annotations prove nothing, because
// authors of Services write them: they lead to an object, and Decide determines the owner by other evidence.
package ownership

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	// markPrefix begins the mark of a cluster, serviceMarkPrefix that of a Service. Every cloud allows letters, digits, dashes and colons
	// in a tag, and has room for 50 characters.
	markPrefix        = "anyccm:"
	serviceMarkPrefix = "anyccm-svc:"
	// nameMarkPrefix begins the mark of a Service's namespace and name, which outlive its UID.
	nameMarkPrefix = "anyccm-for:"
	// reservedPrefix begins every other mark.
	reservedPrefix = "anyccm-"
	// nameMarkBytes of a digest make collisions infeasible, and fit into 50 characters.
	nameMarkBytes = 16
)

// refusedFor is how long the API server's refusal to show the cluster's identity is cached.
const refusedFor = time.Minute

// Reasons of the events about a claim.
const (
	// EventNotOurs is written on the Service that claims what is not its own.
	EventNotOurs = "LoadBalancerNotOurs"
	// EventClaimed is written on the Service whose load balancer another one claims.
	EventClaimed = "LoadBalancerClaimed"
)

// NotOursError is returned for a Service that claims another owner's object.
type NotOursError struct {
	// Object names the object, such as "load balancer 4de7ac8b".
	Object string
	// Owner names the owner.
	Owner string
	// Advice says what to do; "" means the usual text.
	Advice string
}

// Error implements error.
func (e *NotOursError) Error() string {
	advice := e.Advice
	if advice == "" {
		advice = "choose another name or ID, or remove it from there first"
	}
	return fmt.Sprintf("%s belongs to %s and is left alone; %s", e.Object, e.Owner, advice)
}

// Cluster is the identity of this cluster, and its Services.
type Cluster struct {
	mu       sync.Mutex
	client   kubernetes.Interface
	services listers.ServiceLister
	uid      string
	refused  time.Time
}

// SetClient sets the client that reads the identity.
func (c *Cluster) SetClient(client kubernetes.Interface) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.client = client
}

// SetServices sets the Services among which other owners are searched.
func (c *Cluster) SetServices(l listers.ServiceLister) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.services = l
}

// Mark returns the mark of this cluster, or "" if the API server denies access to its identity: without the right to read one namespace,
// objects are neither marked nor checked for the marks of clusters, as with the clouds' own controllers. Any other failure is an error,
// because it may be temporary.
func (c *Cluster) Mark(ctx context.Context) (string, error) {
	c.mu.Lock()
	client, uid, refused := c.client, c.uid, c.refused
	c.mu.Unlock()
	if uid == "" && client != nil && time.Since(refused) > refusedFor {
		// The lock is not held during the call; concurrent callers get the same result.
		ns, err := client.CoreV1().Namespaces().Get(ctx, metav1.NamespaceSystem, metav1.GetOptions{})
		switch {
		case apierrors.IsForbidden(err), apierrors.IsNotFound(err):
			klog.ErrorS(err, "Load balancers are not marked as this cluster's: grant get on the namespace kube-system")
			c.mu.Lock()
			c.refused = time.Now()
			c.mu.Unlock()
			return "", nil
		case err != nil:
			return "", fmt.Errorf("reading the identity of the cluster, the UID of the namespace kube-system: %w", err)
		case ns.UID == "":
			return "", errors.New("reading the identity of the cluster: the namespace kube-system has no UID")
		}
		uid = string(ns.UID)
		c.mu.Lock()
		c.uid = uid
		c.mu.Unlock()
	}
	if uid == "" {
		return "", nil
	}
	return ClusterMark(uid), nil
}

// ErrUnknown is returned if ownership is undecidable, because the API server denies access to the cluster's identity.
var ErrUnknown = errors.New("the identity of the cluster is unknown: grant get on the namespace kube-system")

// KnownMark is Mark for operations that need it: "" becomes ErrUnknown.
func (c *Cluster) KnownMark(ctx context.Context) (string, error) {
	mark, err := c.Mark(ctx)
	if err == nil && mark == "" {
		err = ErrUnknown
	}
	return mark, err
}

// OrphanMaxAge is the maximum age of listings in which orphans are searched; nothing is deleted because of them.
const OrphanMaxAge = 10 * time.Minute

// MayHave reports whether a Service may have a load balancer: it requests one, or the deletion of one has not ended.
func MayHave(service *v1.Service) bool {
	return service.Spec.Type == v1.ServiceTypeLoadBalancer || len(service.Finalizers) > 0
}

// Leaves reports whether a Service gives up the load balancer that it has.
func Leaves(service *v1.Service) bool {
	return service.DeletionTimestamp != nil || service.Spec.Type != v1.ServiceTypeLoadBalancer
}

// ClusterMark returns the mark of the cluster whose namespace kube-system has the UID.
func ClusterMark(uid string) string { return markPrefix + uid }

// ServiceMark returns the mark of a Service.
func ServiceMark(uid types.UID) string { return serviceMarkPrefix + string(uid) }

// NameMark returns the mark of a Service's namespace and name. A load balancer that a Service retained may go to a new one of the same
// namespace and name, whose author is the same. Names may be longer than a tag, so the mark is a digest.
func NameMark(namespace, name string) string {
	sum := sha256.Sum256([]byte(namespace + "/" + name))
	return nameMarkPrefix + hex.EncodeToString(sum[:nameMarkBytes])
}

// ServiceMarks returns the marks of a Service, in the order in which they are written: the UID first, because it decides.
func ServiceMarks(service *v1.Service) []string {
	return []string{ServiceMark(service.UID), NameMark(service.Namespace, service.Name)}
}

// IsMark reports whether a tag is a mark. Users may not set such tags by annotation.
func IsMark(tag string) bool {
	return strings.HasPrefix(tag, markPrefix) || strings.HasPrefix(tag, reservedPrefix)
}

// IsServiceMark reports whether a tag is a mark of a Service, by its UID or its name.
func IsServiceMark(tag string) bool {
	return strings.HasPrefix(tag, serviceMarkPrefix) || strings.HasPrefix(tag, nameMarkPrefix)
}

// Marked returns the UIDs that the marks among tags name; "" where there is none.
func Marked(tags []string) (cluster, service string) {
	for _, t := range tags {
		if uid, ok := strings.CutPrefix(t, markPrefix); ok {
			cluster = uid
		}
		if uid, ok := strings.CutPrefix(t, serviceMarkPrefix); ok {
			service = uid
		}
	}
	return cluster, service
}

// MarkedBefore is Marked for objects that may be handed over to the cluster of a mark: if there are marks of several clusters, as after an
// interrupted handover, another cluster's counts until it is repeated. The order of the tags does not matter.
func MarkedBefore(tags []string, mark string) (cluster, service string) {
	sorted := slices.Sorted(slices.Values(tags))
	cluster, service = Marked(sorted)
	other, _ := Marked(slices.DeleteFunc(sorted, func(tag string) bool { return tag == mark }))
	return cmp.Or(other, cluster), service
}

// ListMarked returns the objects with a mark of any cluster or Service, and which Services record each.
func ListMarked(objects []Object, mark string, record func(*v1.Service) string, services []*v1.Service) []contract.MarkedLoadBalancer {
	marked := []contract.MarkedLoadBalancer{}
	for _, o := range objects {
		cluster, uid := MarkedBefore(o.Marks, mark)
		if cluster == "" && uid == "" {
			continue
		}
		m := contract.MarkedLoadBalancer{ID: o.ID, Name: o.Name, Cluster: cluster, ServiceUID: uid}
		for _, s := range services {
			if s.Spec.Type == v1.ServiceTypeLoadBalancer && record(s) == o.ID {
				m.Claims = append(m.Claims, s.Namespace+"/"+s.Name)
			}
		}
		marked = append(marked, m)
	}
	return marked
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

// Foreign reports whether the marks name another cluster.
func Foreign(mark string, marks []string) bool { return Check("", mark, marks) != nil }

// isOlder reports whether a Service is the older one. Creation times have seconds; the UID breaks the tie.
func isOlder(a, b *v1.Service) bool {
	if a.CreationTimestamp.Time.Equal(b.CreationTimestamp.Time) {
		return a.UID < b.UID
	}
	return a.CreationTimestamp.Time.Before(b.CreationTimestamp.Time)
}

func serviceName(s *v1.Service) string { return fmt.Sprintf("Service %s/%s", s.Namespace, s.Name) }

// Services returns the Services of the cluster: those of the informer, else, in a command without one, those of the API server; nil before
// either is known.
func (c *Cluster) Services(ctx context.Context) ([]*v1.Service, error) {
	c.mu.Lock()
	services, client := c.services, c.client
	c.mu.Unlock()
	switch {
	case services != nil:
		return services.List(labels.Everything())
	case client == nil:
		return nil, nil
	}
	return listServices(ctx, client)
}

func listServices(ctx context.Context, client kubernetes.Interface) ([]*v1.Service, error) {
	list, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing Services: %w", err)
	}
	all := make([]*v1.Service, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all, nil
}

// errNoServices: without knowing the Services, no object can be called an orphan.
var errNoServices = errors.New("the Services of the cluster are not known; nothing can be said to belong to none of them")

// Living returns the Services that the API server has now. It is required before an orphan is deleted: an informer may lag behind, and a
// failed call proves nothing.
func (c *Cluster) Living(ctx context.Context) ([]*v1.Service, error) {
	c.mu.Lock()
	client := c.client
	c.mu.Unlock()
	if client == nil {
		return nil, errNoServices
	}
	return listServices(ctx, client)
}

// StillOrphan searches again for an orphan from an older listing, with the current Services, and fails if the same one no longer exists.
func (c *Cluster) StillOrphan(
	ctx context.Context, o contract.Orphan, find func(context.Context, []*v1.Service) ([]contract.Orphan, error),
) error {
	living, err := c.Living(ctx)
	if err != nil {
		return err
	}
	found, err := find(ctx, living)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(found, func(other contract.Orphan) bool {
		return other.Kind == o.Kind && other.ID == o.ID && other.Name == o.Name
	}) {
		return fmt.Errorf("%s %s is no orphan any more, and is left alone; list again", o.Kind, cmp.Or(o.Name, o.ID))
	}
	return nil
}

// otherServices returns the Services of the cluster except one.
func (c *Cluster) otherServices(ctx context.Context, service *v1.Service) ([]*v1.Service, error) {
	all, err := c.Services(ctx)
	if err != nil {
		return nil, err
	}
	others := make([]*v1.Service, 0, len(all))
	for _, s := range all {
		if s.UID != service.UID {
			others = append(others, s)
		}
	}
	return others, nil
}

// Judge collects the input of Decide and calls it. targets reads the targets of the object, which costs calls on some clouds: it is called
// only if the result matters, and may be nil if a cloud cannot tell.
func (c *Cluster) Judge(
	ctx context.Context, service *v1.Service, object Object, rules Rules, targets func(context.Context) (Targets, error),
) (Decision, error) {
	mark, err := c.Mark(ctx)
	if err != nil {
		return Decision{}, err
	}
	facts := Facts{Service: service, Mark: mark, Object: object, Rules: rules}
	if slices.Contains(object.Marks, ServiceMark(service.UID)) {
		return Decide(facts), nil // independent of other Services; comparing each with all others is most of the work if there are many
	}
	if facts.Others, err = c.otherServices(ctx, service); err != nil {
		return Decision{}, fmt.Errorf("looking for other owners of %s: %w", object.Title, err)
	}
	d := Decide(facts)
	if !d.TargetsMayTell || targets == nil {
		return d, nil
	}
	found, err := targets(ctx)
	if err != nil {
		return Decision{}, fmt.Errorf("looking whose %s is, by its targets: %w", object.Title, err)
	}
	facts.Targets = &found
	return Decide(facts), nil
}

// ClaimOf returns the message for an object's owner about the Service that claims it.
func ClaimOf(service *v1.Service, d Decision) string {
	return fmt.Sprintf("%s claims %s, which is this Service's, by its annotations or its name; that is refused", serviceName(service), d.Object)
}
