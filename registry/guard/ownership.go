package guard

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	listers "k8s.io/client-go/listers/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// ownership decides which Nodes are ours, before any code of the provider runs.
type ownership struct {
	facts   Facts
	meters  *meters
	reports *reports

	parse    sync.Once
	selector labels.Selector

	mu      sync.Mutex
	lister  listers.NodeLister
	counted time.Time
	all     []*v1.Node
	ours    []*v1.Node
	// foreignIDs is set if a Node has another cloud's provider ID.
	foreignIDs bool
}

func (o *ownership) setLister(l listers.NodeLister) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lister = l
}

// listOurs returns our Nodes as they are now; known is false on a replica that does not lead, because it has no informer.
func (o *ownership) listOurs() (ours []*v1.Node, known bool) {
	o.mu.Lock()
	lister := o.lister
	o.mu.Unlock()
	if lister == nil {
		return nil, false
	}
	nodes, err := lister.List(labels.Everything())
	return o.filterOurs(nodes), err == nil
}

// whyForeign says why a Node is not ours, or "" if it is.
func (o *ownership) whyForeign(node *v1.Node) string {
	o.parse.Do(func() {
		var err error
		if o.selector, err = labels.Parse(o.facts.Policy.NodeSelector); err != nil {
			o.selector = labels.Nothing() // refused at start; matching nothing is safe
		}
	})
	if id := node.Spec.ProviderID; o.facts.hasForeignID(node) {
		return fmt.Sprintf("its provider ID %s does not begin with %s", id, strings.Join(o.facts.ProviderIDPrefixes, " or "))
	}
	if !o.selector.Matches(labels.Set(node.Labels)) {
		return fmt.Sprintf("its labels do not match --node-selector=%s", o.facts.Policy.NodeSelector)
	}
	if o.facts.Unmanaged != nil {
		return o.facts.Unmanaged(node)
	}
	return ""
}

// reportIfForeign is foreign, and reports once for each Node.
func (o *ownership) reportIfForeign(node *v1.Node) bool {
	why := o.whyForeign(node)
	if why == "" {
		return false
	}
	o.reports.reportForeign(node, why)
	return true
}

// filterOurs returns our Nodes among the given ones.
func (o *ownership) filterOurs(nodes []*v1.Node) []*v1.Node {
	return slices.DeleteFunc(slices.Clone(nodes), func(n *v1.Node) bool { return o.whyForeign(n) != "" })
}

// ourNodes returns our Nodes as they were up to a second ago; none before the informers have listed.
func (o *ownership) ourNodes() []*v1.Node {
	_, ours := o.refresh()
	return ours
}

// allNodes returns all Nodes of the cluster, like ourNodes.
func (o *ownership) allNodes() []*v1.Node {
	all, _ := o.refresh()
	return all
}

// nodeByName returns the current Node with a name. known is false before the informers have listed.
func (o *ownership) nodeByName(name string) (node *v1.Node, known bool, err error) {
	o.mu.Lock()
	lister := o.lister
	o.mu.Unlock()
	if lister == nil {
		return nil, false, nil
	}
	node, err = lister.Get(name)
	return node, true, err
}

// whyChanged says how a Node differs from a copy of it, or "": a pass over all Nodes copies them at its start, and the framework deletes by
// name.
func (o *ownership) whyChanged(node *v1.Node) string {
	now, known, err := o.nodeByName(node.Name)
	switch {
	case !known || apierrors.IsNotFound(err):
		return "" // there is nobody to delete
	case err != nil:
		return fmt.Sprintf("it cannot be told whether the Node has changed: %v", err)
	case nodeKey(now) != nodeKey(node):
		return "another Node has this name by now"
	case isReady(now):
		return "the Node is ready by now"
	}
	return ""
}

// withForeign adds to an operation's context that Nodes have another cloud's provider ID, if there are any.
func (o *ownership) withForeign(ctx context.Context) context.Context {
	_, _ = o.refresh()
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.foreignIDs {
		return contract.WithForeignNodes(ctx)
	}
	return ctx
}

func (o *ownership) refresh() (all, ours []*v1.Node) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.lister == nil || time.Since(o.counted) < time.Second {
		return o.all, o.ours
	}
	nodes, err := o.lister.List(labels.Everything())
	if err != nil {
		return o.all, o.ours
	}
	o.all, o.ours, o.counted = nodes, o.filterOurs(nodes), time.Now()
	o.foreignIDs = slices.ContainsFunc(nodes, o.facts.hasForeignID)
	o.meters.foreignNodes.WithLabelValues(o.facts.Provider).Set(float64(len(o.all) - len(o.ours)))
	return o.all, o.ours
}

func (f Facts) hasForeignID(node *v1.Node) bool {
	return node.Spec.ProviderID != "" && f.instanceKey(node.Spec.ProviderID) == ""
}

// instanceKey returns the key of the instance behind a provider ID, and "" for one that is not the provider's.
func (f Facts) instanceKey(id string) string {
	if f.InstanceKey != nil {
		return f.InstanceKey(id)
	}
	if len(f.ProviderIDPrefixes) == 0 {
		return id // a provider without nodes serves the Nodes of any cloud
	}
	if slices.ContainsFunc(f.ProviderIDPrefixes, func(p string) bool { return strings.HasPrefix(id, p) }) {
		return id
	}
	return ""
}
