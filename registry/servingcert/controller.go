package servingcert

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/evidence"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

const (
	// EventServingCertificateNotApproved says that a kubelet asks for what the cloud does not attest.
	EventServingCertificateNotApproved = "ServingCertificateNotApproved"
	// Selector selects the requests for serving certificates of kubelets.
	Selector = "spec.signerName=" + certificatesv1.KubeletServingSignerName

	// gatherTime passes before the first look at a request, so that one listing of the cloud answers for all nodes of a burst. Each further
	// look at a node, also for a newer request, comes after twice the time, up to maxPause.
	gatherTime = 2 * time.Second
	maxPause   = 5 * time.Minute
	// maxRequest is the size of the largest request that is looked at. One of a kubelet has about 1 kB.
	maxRequest = 16 << 10
)

// Cloud is the guarded cloud.
type Cloud interface {
	contract.InstanceAttester
	IsOurs(node *v1.Node) bool
	InstanceKey(providerID string) string
}

// Controller approves requests of kubelets for serving certificates. It denies none: after a denial a kubelet asks more often than after
// silence.
type Controller struct {
	Client kubernetes.Interface
	Events record.EventRecorder
	Cloud  Cloud
	// Nodes and Services are of the whole cluster.
	Nodes    listers.NodeLister
	Services listers.ServiceLister
	// Domain and Reserved are those of Cluster; addresses and names of Services come in addition.
	Domain   string
	Reserved []string
	// Approved is called for each approval.
	Approved func()

	queue workqueue.TypedRateLimitingInterface[string]
	mu    sync.Mutex
	// newest holds the newest request of each node.
	newest map[string]*nodeRequest
}

// nodeRequest is the newest request of a node.
type nodeRequest struct {
	csr *certificatesv1.CertificateSigningRequest
	// firstSeen is when this program first saw the request, and so after its creation, by its own clock.
	firstSeen time.Time
	// lastReason is the last reason that an event gave.
	lastReason string
}

// Run approves requests until the context ends. Nodes and Services must be known.
func (c *Controller) Run(ctx context.Context) error {
	limiter := workqueue.NewTypedItemExponentialFailureRateLimiter[string](gatherTime, maxPause)
	c.queue = workqueue.NewTypedRateLimitingQueueWithConfig(limiter, workqueue.TypedRateLimitingQueueConfig[string]{Name: "serving_certificates"})
	ofKubelets := func(o *metav1.ListOptions) { o.FieldSelector = Selector }
	informer := certinformers.NewFilteredCertificateSigningRequestInformer(c.Client, 0, nil, ofKubelets)
	err := informer.SetTransform(trim)
	if err == nil {
		_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: c.observe, UpdateFunc: func(_, now any) { c.observe(now) }, DeleteFunc: c.forget,
		})
	}
	if err != nil {
		return fmt.Errorf("watching requests for serving certificates: %w", err)
	}
	rescue.Go("watching requests for serving certificates", func() { informer.RunWithContext(ctx) })
	rescue.Go("ending the queue of serving certificates", func() {
		<-ctx.Done()
		c.queue.ShutDown()
	})
	for {
		name, ended := c.queue.Get()
		if ended {
			return nil
		}
		if err := c.look(ctx, name); err != nil {
			klog.FromContext(ctx).V(2).Info("A kubelet still waits for its serving certificate", "node", name, "err", err)
			c.queue.AddRateLimited(name)
		}
		c.queue.Done(name)
	}
}

// trim drops what is not needed of a cached request, and a request that is decided or too large.
func trim(object any) (any, error) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return object, nil
	}
	csr.ManagedFields, csr.Spec.Extra = nil, nil
	if !Waiting(csr) || len(csr.Spec.Request) > maxRequest {
		csr.Spec.Request = nil
	}
	if len(csr.Status.Conditions) > 0 {
		csr.Status.Certificate = nil
	}
	return csr, nil
}

// observe stores a request if it is the newest of its node.
func (c *Controller) observe(object any) {
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok || NodeName(csr) == "" {
		return
	}
	name := NodeName(csr)
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.newest[name]
	switch {
	case n == nil:
		n = &nodeRequest{}
		if c.newest == nil {
			c.newest = map[string]*nodeRequest{}
		}
		c.newest[name] = n
	case n.csr.UID == csr.UID:
		n.csr = csr
		return
	case !Supersedes(csr, n.csr):
		return
	}
	n.csr, n.firstSeen = csr, time.Now()
	if Waiting(csr) {
		c.queue.AddRateLimited(name)
	}
}

// forget drops a node whose newest request was deleted.
func (c *Controller) forget(object any) {
	if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
		object = unknown.Obj
	}
	csr, ok := object.(*certificatesv1.CertificateSigningRequest)
	if !ok {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.newest[NodeName(csr)]; n != nil && n.csr.UID == csr.UID {
		delete(c.newest, NodeName(csr))
		c.queue.Forget(NodeName(csr))
	}
}

// look approves the newest request of a node, or says why not. After an error, also a refusal, the node is looked at again: an instance may
// get the address that its kubelet asks for.
func (c *Controller) look(ctx context.Context, name string) (err error) {
	defer rescue.Into(&err, "judging the request of node "+name)
	c.mu.Lock()
	n := c.newest[name]
	if n == nil || !Waiting(n.csr) {
		c.mu.Unlock()
		return nil
	}
	csr, seen := n.csr, n.firstSeen
	c.mu.Unlock()
	node, err := c.Nodes.Get(name)
	switch {
	case err != nil:
		return err
	case !c.Cloud.IsOurs(node) || node.Spec.ProviderID == "":
		return errors.New("the Node is not ours, or not initialised yet")
	}
	if _, why := parseWellFormed(csr); why != "" {
		return c.refuse(n, node, why)
	}
	demand := evidence.RollCall(seen).Among(c.queue.Len() + 1)
	attested, why, err := c.Cloud.AttestInstance(evidence.With(ctx, demand), node)
	switch {
	case err != nil:
		return err
	case why != "":
		return c.refuse(n, node, why)
	}
	live, err := c.Client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case err != nil:
		return fmt.Errorf("reading node %s: %w", name, err)
	case live.UID != node.UID || live.Spec.ProviderID != node.Spec.ProviderID:
		return errors.New("the Node changed meanwhile")
	}
	cluster, err := c.cluster()
	if err != nil {
		return err
	}
	if approve, why := judge(csr, live, attested, cluster); !approve {
		return c.refuse(n, live, why)
	}
	return c.approve(ctx, csr)
}

// refuse leaves a request as it is, and tells its node once for each reason.
func (c *Controller) refuse(n *nodeRequest, node *v1.Node, why string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n.lastReason != why {
		n.lastReason = why
		c.Events.Event(node, v1.EventTypeWarning, EventServingCertificateNotApproved, "the request "+n.csr.Name+" of the kubelet is not approved: "+why)
	}
	return errors.New(why)
}

// cluster returns the facts about the cluster as they are now.
func (c *Controller) cluster() (Cluster, error) {
	nodes, err := c.Nodes.List(labels.Everything())
	services, serviceErr := c.Services.List(labels.Everything())
	reserved := slices.Clone(c.Reserved)
	for _, s := range services {
		if s.Spec.ClusterIP != v1.ClusterIPNone {
			reserved = append(reserved, s.Spec.ClusterIPs...)
		}
		for _, i := range s.Status.LoadBalancer.Ingress {
			reserved = append(reserved, i.IP, i.Hostname)
		}
	}
	return Cluster{Nodes: nodes, InstanceKey: c.Cloud.InstanceKey, Domain: c.Domain, Reserved: reserved}, errors.Join(err, serviceErr)
}

func (c *Controller) approve(ctx context.Context, csr *certificatesv1.CertificateSigningRequest) error {
	approved := csr.DeepCopy()
	approved.Status.Conditions = append(approved.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
		Type: certificatesv1.CertificateApproved, Status: v1.ConditionTrue, Reason: "AttestedByCloud",
		Message: "The cloud attests all names and addresses to the instance of the node.",
	})
	_, err := c.Client.CertificatesV1().CertificateSigningRequests().UpdateApproval(ctx, csr.Name, approved, metav1.UpdateOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("approving %s: %w", csr.Name, err)
	}
	klog.FromContext(ctx).Info("Approved the serving certificate of a kubelet", "node", NodeName(csr), "request", csr.Name)
	c.Approved()
	return nil
}

// WaitingNodes counts our Nodes whose newest request nobody has decided on.
func (c *Controller) WaitingNodes() (count int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name, n := range c.newest {
		if node, err := c.Nodes.Get(name); err == nil && Waiting(n.csr) && c.Cloud.IsOurs(node) {
			count++
		}
	}
	return count
}
