package aws

import (
	"context"
	"crypto/md5" //nolint:gosec // a checksum of tags in a label, as AWS's own controller has it
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"golang.org/x/time/rate"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/registry/rescue"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	taggingController = "tagging"
	// taggingLabel holds the checksum of the tags that the node's instance got.
	taggingLabel = "k8s.io/cloud-provider-aws"
	// taggingRequeues is how often an item is tried again before it is dropped.
	taggingRequeues = 9
	// recentNode is how long EC2 may not know an instance whose node is there.
	recentNode = 5 * time.Minute
	// taggingBatch is how many instances one call tags.
	taggingBatch = 50
	// taggingMinDelay and taggingMaxDelay bound the pauses between two tries.
	taggingMinDelay = 5 * time.Millisecond
	taggingMaxDelay = 1000 * time.Second
	// taggingTimeout bounds one try.
	taggingTimeout = 30 * time.Second
)

// check refuses flags that the controller cannot run with.
func (c taggingConfig) check() error {
	var problems []error
	if len(c.Tags) == 0 {
		problems = append(problems, &schema.Problem{Place: "flag --tags", Reason: "is required by the controller tagging"})
	}
	if len(c.Resources) == 0 {
		problems = append(problems, &schema.Problem{Place: "flag --resources", Reason: "is required by the controller tagging; use instance"})
	}
	return errors.Join(problems...)
}

// desiredTags are the tags of the flag.
func (c taggingConfig) desiredTags() map[string]string {
	tags := map[string]string{}
	for _, one := range c.Tags {
		key, value, _ := strings.Cut(one, "=")
		tags[strings.TrimSpace(key)] = strings.TrimSpace(value)
	}
	return tags
}

// checksum identifies a set of tags, to compare those that an instance got with those wanted now.
func checksum(tags map[string]string) string {
	var pairs []string
	for _, k := range slices.Sorted(maps.Keys(tags)) {
		pairs = append(pairs, k+"="+tags[k])
	}
	sum := md5.Sum([]byte(strings.Join(pairs, ","))) //nolint:gosec // as above
	return hex.EncodeToString(sum[:])
}

// taggingItem is one instance to tag, or to take the tags from.
type taggingItem struct {
	node, instanceID string
	remove           bool
}

// tagging puts tags on the instances of nodes, and takes them away with the Node.
type tagging struct {
	config   taggingConfig
	api      *api
	wanted   map[string]string
	label    string
	queue    workqueue.TypedRateLimitingInterface[taggingItem]
	kube     kubernetes.Interface
	informer cache.SharedIndexInformer
	lister   listers.NodeLister
}

func newTagging(c Config, a *api) *tagging {
	t := &tagging{config: c.Tagging, api: a, wanted: c.Tagging.desiredTags()}
	t.label = checksum(t.wanted)
	return t
}

// limiter paces tries; with both limits also those that are the first.
func (t *tagging) limiter() workqueue.TypedRateLimiter[taggingItem] {
	each := workqueue.NewTypedItemExponentialFailureRateLimiter[taggingItem](taggingMinDelay, taggingMaxDelay)
	perSecond, burst := 10.0, 100
	if t.isRateLimited() {
		perSecond, burst = t.config.RateLimit, t.config.Burst
	}
	return workqueue.NewTypedMaxOfRateLimiter(each, &workqueue.TypedBucketRateLimiter[taggingItem]{
		Limiter: rate.NewLimiter(rate.Limit(perSecond), burst),
	})
}

func (t *tagging) isRateLimited() bool { return t.config.RateLimit > 0 && t.config.Burst > 0 }

// start begins to tag, until the context ends.
func (t *tagging) start(ctx context.Context, kube kubernetes.Interface) error {
	if t.informer == nil || kube == nil {
		return errors.New("the tagging controller has no view of the nodes; this is a bug")
	}
	t.kube = kube
	t.queue = workqueue.NewTypedRateLimitingQueueWithConfig(t.limiter(), workqueue.TypedRateLimitingQueueConfig[taggingItem]{Name: "tagging-controller"})
	_, err := t.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(obj any) { t.enqueue(obj, false) },
		UpdateFunc: func(_, obj any) {
			if n, ok := obj.(*v1.Node); ok && n.Labels[taggingLabel] != t.label {
				t.enqueue(n, false)
			}
		},
		DeleteFunc: func(obj any) { t.enqueue(obj, true) },
	})
	if err != nil {
		return fmt.Errorf("watching nodes for the tagging controller: %w", err)
	}
	context.AfterFunc(ctx, t.queue.ShutDown)
	for range t.config.Workers {
		rescue.Go("tagging nodes", func() { // until the queue is shut down
			for t.processNext(ctx) {
			}
		})
	}
	return nil
}

// enqueue takes up a node whose provider ID names an instance. One on Fargate has none to tag. The informer wraps what it kept of a Node
// whose deletion it missed.
func (t *tagging) enqueue(obj any, remove bool) {
	if missed, ok := obj.(cache.DeletedFinalStateUnknown); ok {
		obj = missed.Obj
	}
	n, ok := obj.(*v1.Node)
	if !ok {
		return
	}
	id, err := parseProviderID(n.Spec.ProviderID)
	if err != nil {
		return
	}
	item := taggingItem{n.Name, id, remove}
	if t.isRateLimited() {
		t.queue.AddRateLimited(item)
		return
	}
	t.queue.Add(item)
}

// processNext processes an item, with batching together with similar waiting ones. It returns false at the end.
func (t *tagging) processNext(ctx context.Context) bool {
	first, over := t.queue.Get()
	if over {
		return false
	}
	items := []taggingItem{first}
	for t.config.Batching && len(items) < taggingBatch && t.queue.Len() > 0 {
		more, over := t.queue.Get()
		if over {
			break
		}
		items = append(items, more)
	}
	for _, remove := range []bool{false, true} {
		batch := slices.DeleteFunc(slices.Clone(items), func(i taggingItem) bool { return i.remove != remove })
		if len(batch) > 0 {
			rescue.Do("tagging nodes", func() { t.processItems(ctx, batch) })
		}
	}
	for _, i := range items {
		t.queue.Done(i)
	}
	return true
}

// processItems tags the instances of items in one call. If AWS refuses one, each is tried alone, so that a deleted instance does not block
// the others.
func (t *tagging) processItems(ctx context.Context, items []taggingItem) {
	ctx, cancel := context.WithTimeout(ctx, taggingTimeout)
	defer cancel()
	items = slices.DeleteFunc(items, func(i taggingItem) bool {
		if t.isDue(i) {
			return false
		}
		t.queue.Forget(i)
		return true
	})
	if len(items) == 0 {
		return
	}
	err := t.write(ctx, items)
	if len(items) > 1 && (strings.HasPrefix(codeOf(err), "InvalidInstanceID") || codeOf(err) == "InvalidID") {
		for _, i := range items {
			t.finish(ctx, i, t.write(ctx, []taggingItem{i}))
		}
		return
	}
	for _, i := range items {
		t.finish(ctx, i, err)
	}
}

// isDue reports whether an item still has to be done.
func (t *tagging) isDue(i taggingItem) bool {
	if i.remove {
		return true
	}
	n, err := t.lister.Get(i.node)
	return err == nil && n.Labels[taggingLabel] != t.label
}

func (t *tagging) write(ctx context.Context, items []taggingItem) error {
	ids := make([]string, len(items))
	for n, i := range items {
		ids[n] = i.instanceID
	}
	what := "tagging instances " + strings.Join(ids, ", ")
	if items[0].remove {
		_, err := call(ctx, t.api, "un"+what, (*ec2.Client).DeleteTags, &ec2.DeleteTagsInput{Resources: ids, Tags: ec2Tags(t.wanted)})
		return err
	}
	_, err := call(ctx, t.api, what, (*ec2.Client).CreateTags, &ec2.CreateTagsInput{Resources: ids, Tags: ec2Tags(t.wanted)})
	return err
}

// finish labels the node, or sees to another try.
func (t *tagging) finish(ctx context.Context, i taggingItem, err error) {
	code := codeOf(err)
	gone := code == "InvalidInstanceID.NotFound"
	unknown := code == "InvalidID" || strings.HasPrefix(code, "InvalidInstanceID.Malformed")
	switch {
	case err == nil && !i.remove:
		err = t.labelNode(ctx, i)
	case i.remove && (gone || unknown), unknown:
		err = nil
	case gone && !t.recentlyJoined(i):
		klog.InfoS("Not tagging an instance that does not exist", "node", i.node, "instance", i.instanceID)
		err = nil
	}
	if err == nil {
		t.queue.Forget(i)
		return
	}
	taggingErrors.WithLabelValues("total_errors", "").Inc()
	if t.queue.NumRequeues(i) >= taggingRequeues {
		klog.ErrorS(err, "Giving up on the tags of an instance", "node", i.node, "instance", i.instanceID)
		taggingErrors.WithLabelValues("errors_after_retries_exhausted", "").Inc()
		t.queue.Forget(i)
		return
	}
	t.queue.AddRateLimited(i)
}

func (t *tagging) recentlyJoined(i taggingItem) bool {
	n, err := t.lister.Get(i.node)
	return err == nil && time.Since(n.CreationTimestamp.Time) < recentNode
}

// labelNode labels the node with the checksum of its tags.
func (t *tagging) labelNode(ctx context.Context, i taggingItem) error {
	if n, err := t.lister.Get(i.node); err == nil && n.Labels[taggingLabel] == "" {
		taggingDelay.Observe(time.Since(n.CreationTimestamp.Time).Seconds())
	}
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, taggingLabel, t.label)
	_, err := t.kube.CoreV1().Nodes().Patch(ctx, i.node, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	if err == nil || apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("labelling node %s: %w", i.node, err)
}
