package nodes

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// BareTag is the value of a tag that has none in the cloud.
const BareTag = "true"

// BareTags returns tags without values as Cloud.Tags does.
func BareTags(tags []string) map[string]string {
	all := make(map[string]string, len(tags))
	for _, tag := range tags {
		all[tag] = BareTag
	}
	return all
}

// tagView holds the last answer of Cloud.AllTags.
type tagView[ID comparable] struct {
	mu  sync.Mutex
	at  time.Time
	all map[ID]map[string]string
	err error
	// lacking are instances that the answer did not name.
	lacking map[ID]bool
}

// tellTags tells the caller an instance's tags, if it asks for them. While they cannot be read, an initialised Node's caller is told
// nothing, and a new Node waits.
func (i *Instances[ID, T]) tellTags(ctx context.Context, node *v1.Node, instance T) error {
	err := contract.TellTags(ctx, func() (map[string]string, error) {
		switch {
		case i.cloud.Tags != nil:
			return i.cloud.Tags(instance), nil
		case i.cloud.AllTags == nil:
			return map[string]string{}, nil
		}
		return i.readTags(ctx, i.cloud.Inventory.ID(instance))
	})
	if err != nil && contract.Uninitialized(node) {
		return err
	}
	return nil
}

// readTags returns the tags of an instance from a read of those of all nodes' instances.
func (i *Instances[ID, T]) readTags(ctx context.Context, id ID) (map[string]string, error) {
	t := &i.tags
	t.mu.Lock()
	defer t.mu.Unlock()
	tags, known := t.all[id]
	switch age := time.Since(t.at); {
	case known && age < SweepMaxAge:
		return tags, nil
	case !known && (t.err != nil || t.lacking[id]) && age < MissMaxAge: // an outage costs no call for each node
		return nil, i.unreadTags(id)
	}
	ids := append(i.idsOf(ctx, func(*v1.Node) bool { return true }), id)
	t.at, t.all, t.lacking = time.Now(), map[ID]map[string]string{}, map[ID]bool{}
	all, err := i.cloud.AllTags(ctx, ids)
	if t.err = cloudapi.NotAbsence(err); err != nil {
		klog.FromContext(ctx).Error(err, "The tags of instances cannot all be read")
	}
	maps.Copy(t.all, all)
	for _, asked := range ids {
		_, known := all[asked]
		t.lacking[asked] = !known
	}
	if tags, known = t.all[id]; known {
		return tags, nil
	}
	return nil, i.unreadTags(id)
}

// unreadTags says why the tags of an instance are not known. That an answer lacks it does not mean that it has none.
func (i *Instances[ID, T]) unreadTags(id ID) error {
	if i.tags.err != nil {
		return i.tags.err
	}
	return fmt.Errorf("the answer about tags lacks %s %v", i.cloud.Kind, id)
}
