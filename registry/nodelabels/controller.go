package nodelabels

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/client-go/util/workqueue"
	cloudprovider "k8s.io/cloud-provider"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
	"github.com/anyccm/cloud-controller-manager/registry/rescue"
)

// Reasons of the events that are written on Nodes.
const (
	// EventNodeLabelsUpdated: labels that differed from the cloud were corrected.
	EventNodeLabelsUpdated = "NodeLabelsUpdated"
	// EventNodeTopologyChanged: the cloud has another zone or region than the Node, which keeps its labels.
	EventNodeTopologyChanged = "NodeTopologyChanged"
	// EventNodeTagsIgnored: tags of the instance give no label, although rules name them.
	EventNodeTagsIgnored = "NodeTagsIgnored"
	// EventNodeRecordForged: labels are not written, because somebody else wrote as this program's field manager.
	EventNodeRecordForged = "NodeRecordForged"
)

// forgetAfter is how long the facts of a Node are stored after the last answer. The framework asks about each Node every few minutes.
const forgetAfter = 2 * time.Hour

// Controller corrects labels of Nodes. It asks the cloud nothing, but gets what the framework asks about each Node.
type Controller struct {
	client kubernetes.Interface
	events record.EventRecorder
	// isOurs reports whether this program manages a Node.
	isOurs        func(*v1.Node) bool
	writeTopology bool
	// leaveAdditional is set if the framework corrects additional labels.
	leaveAdditional bool
	rules           Rules
	queue           workqueue.TypedRateLimitingInterface[types.UID]

	mu        sync.Mutex
	instances map[types.UID]*instance
	swept     time.Time
}

// instance holds the cloud's last answers about the instance of a Node.
type instance struct {
	node string
	// labels are of the last answer; latest are the last value of each label, also where the last answer lacked it.
	labels, latest map[string]string
	// updates are labels whose value in the cloud changed between two answers, until they are written.
	updates map[string]bool
	// fromTags is by the last tags; nil before there are any.
	fromTags *tagLabels
	// difference was compared last, and told was reported last; neither is repeated.
	difference string
	told       report
	at         time.Time
}

// New returns a controller. writeTopology lets it write zone and region, which Kubernetes documents as unchanging.
func New(
	client kubernetes.Interface, events record.EventRecorder, isOurs func(*v1.Node) bool, writeTopology bool, rules Rules,
) *Controller {
	return &Controller{
		client: client, events: events, isOurs: isOurs, writeTopology: writeTopology, rules: rules, instances: map[types.UID]*instance{},
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.UID]()),
	}
}

// LeaveAdditional leaves the additional labels to the framework, which may correct them itself. It is called before Observe.
func (c *Controller) LeaveAdditional() { c.leaveAdditional = true }

// Observe takes the metadata of a Node that this program manages, and the tags of its instance. It makes no call, except for an
// uninitialized Node, which gets its labels from tags before anything can run there; the error is of that call.
func (c *Controller) Observe(ctx context.Context, node *v1.Node, m *cloudprovider.InstanceMetadata, tags map[string]string) error {
	all := cloudLabels(m)
	labels := maps.Clone(all)
	if c.leaveAdditional {
		maps.DeleteFunc(labels, func(key, _ string) bool { return betaName(key) == "" })
	}
	var keys []string
	uninitialized := contract.Uninitialized(node)
	if !uninitialized { // or the framework writes them
		keys = differences(node, labels)
	}
	differing := make([]string, 0, len(keys))
	for _, key := range keys {
		differing = append(differing, key+"="+node.Labels[key]+" "+labels[key])
	}
	c.mu.Lock()
	now := time.Now()
	i := c.instances[node.UID]
	if i == nil {
		i = &instance{latest: map[string]string{}, updates: map[string]bool{}}
		c.instances[node.UID] = i
	}
	tagged := c.observeTags(i, node, tags, all)
	difference := "" // an uninitialized Node is compared again later
	if !uninitialized {
		difference = strings.Join(append(differing, tagged...), "\n")
	}
	for key, value := range labels {
		if before, ok := i.latest[key]; ok && value != before {
			i.updates[key], i.difference = true, ""
		}
		i.latest[key] = value
		if !slices.Contains(keys, key) { // what somebody sets later is no update of the cloud
			delete(i.updates, key)
		}
	}
	i.node, i.labels, i.at = node.Name, labels, now
	if difference != "" && difference != i.difference {
		c.queue.Add(node.UID)
	}
	i.difference = difference
	if now.Sub(c.swept) > forgetAfter {
		c.swept = now
		maps.DeleteFunc(c.instances, func(_ types.UID, i *instance) bool { return now.Sub(i.at) > forgetAfter })
	}
	c.mu.Unlock()
	if uninitialized && len(tagged) > 0 {
		return retry.RetryOnConflict(retry.DefaultBackoff, func() error { return c.correct(ctx, node.UID) })
	}
	return nil
}

// observeTags evaluates the tags of an instance, and returns how the Node differs. No tags are a doubt: the answer may only lack them.
func (c *Controller) observeTags(i *instance, node *v1.Node, tags, labels map[string]string) (differences []string) {
	if !c.rules.Any() || len(tags) == 0 {
		return nil
	}
	t := c.rules.evaluate(tags, labels)
	if t.faults != "" && (i.fromTags == nil || i.fromTags.faults != t.faults) {
		c.events.Event(node, v1.EventTypeWarning, EventNodeTagsIgnored, "tags of the instance give no label: "+t.faults)
	}
	if i.fromTags != nil {
		t.seen = t.seen.Union(i.fromTags.seen)
	}
	i.fromTags = &t
	for _, key := range c.rules.tagDifferences(node, t) {
		differences = append(differences, key+"="+node.Labels[key]+" from a tag "+t.labels[key])
	}
	return differences
}

// Run corrects labels until the context ends.
func (c *Controller) Run(ctx context.Context) {
	rescue.Go("ending the queue of labels", func() {
		<-ctx.Done()
		c.queue.ShutDown()
	})
	for {
		uid, ended := c.queue.Get()
		if ended {
			return
		}
		if err := c.correct(ctx, uid); err != nil {
			klog.FromContext(ctx).Error(err, "The labels of a Node are not corrected yet")
			c.queue.AddRateLimited(uid)
		} else {
			c.queue.Forget(uid)
		}
		c.queue.Done(uid)
	}
}

// correct reads a Node, whose managed fields the informers drop, and makes at most one patch.
func (c *Controller) correct(ctx context.Context, uid types.UID) error {
	c.mu.Lock()
	i, ok := c.instances[uid]
	if !ok {
		c.mu.Unlock()
		return nil
	}
	name, labels, updates, fromTags := i.node, i.labels, maps.Clone(i.updates), i.fromTags
	c.mu.Unlock()
	node, err := c.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return fmt.Errorf("reading node %s: %w", name, err)
	case node.UID != uid || node.DeletionTimestamp != nil || !c.isOurs(node):
		return nil
	}
	var d, tags decision
	if !contract.Uninitialized(node) {
		d = decide(node, labels, updates, c.writeTopology)
		if node, err = c.apply(ctx, node, Manager, d); err != nil {
			return err
		}
	}
	if fromTags != nil {
		tags = c.rules.decideTags(node, *fromTags)
		if node, err = c.apply(ctx, node, TagManager, tags); err != nil {
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	told := i.told
	i.told = reportOn(node, d, tags)
	c.tell(node, told, i.told)
	if i.told.forged != "" {
		i.difference = "" // tried again after the next answer
		return nil
	}
	for key := range updates {
		if i.latest[key] == labels[key] {
			delete(i.updates, key)
		}
	}
	return nil
}

// tell writes the events of a report, each once.
func (c *Controller) tell(node *v1.Node, before, now report) {
	if now.topology != "" && now.topology != before.topology {
		c.events.Event(node, v1.EventTypeWarning, EventNodeTopologyChanged, "the cloud has another zone or region than the Node's labels, which stay, "+
			"because volumes and Pods keep the old one: "+now.topology+"; delete the Node and let it register again, or set --update-topology-labels")
	}
	if now.forged != "" && now.forged != before.forged {
		c.events.Event(node, v1.EventTypeWarning, EventNodeRecordForged, "labels are not written: the Node's managed fields name "+now.forged+
			" for more than labels, which somebody else wrote; remove that entry, and find out who may write the Node")
	}
}

// apply makes the one patch of a decision, reports it, and returns the Node after it.
func (c *Controller) apply(ctx context.Context, node *v1.Node, manager string, d decision) (*v1.Node, error) {
	if d.patch == nil || forgedRecord(node, manager) {
		return node, nil
	}
	// The version holds off a write of others that came after the read, such as a label set by hand.
	labels, err := json.Marshal(metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "Node"},
		ObjectMeta: metav1.ObjectMeta{Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, Labels: d.patch},
	})
	after := node
	if err == nil {
		options := metav1.PatchOptions{FieldManager: manager, Force: new(true)}
		after, err = c.client.CoreV1().Nodes().Patch(ctx, node.Name, types.ApplyPatchType, labels, options)
	}
	if err != nil {
		return node, fmt.Errorf("writing the labels of node %s: %w", node.Name, err)
	}
	c.events.Event(node, v1.EventTypeNormal, EventNodeLabelsUpdated, "set to what the cloud says: "+strings.Join(d.corrections, ", "))
	return after, nil
}
