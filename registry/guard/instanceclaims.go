package guard

import (
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// claimMemory is how long the instance of an inactive Node is remembered; by then the informers know it.
const claimMemory = 15 * time.Minute

// claims: which Node an instance was given to. Needed until the informer shows it, and because two provider IDs can name one instance. Each
// new Node is compared with all others, so instances are indexed.
type claims struct {
	mu sync.Mutex
	// made are the claims by Node, makers the Nodes with claims by instance.
	made   map[string]claim
	makers map[string][]string
	swept  time.Time
	// known are the Nodes of the latest indexes: holders by their instance, names by Node.
	known   []*v1.Node
	holders map[string][]string
	names   map[string]string
}

type claim struct {
	instance string
	at       time.Time
}

// holder returns the Node that already has the instance, and otherwise records the claim of the asking Node. nodes are all Nodes of the
// cluster.
func (c *claims) holder(facts Facts, nodes []*v1.Node, node *v1.Node, instance string) string {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if contract.Uninitialized(node) {
		c.knowLocked(facts, nodes)
		for _, other := range slices.Concat(c.holders[instance], c.makers[instance]) {
			if name, exists := c.names[other]; exists && other != key(node) {
				return name
			}
		}
	}
	if now.Sub(c.swept) > time.Minute {
		c.swept = now
		for k, made := range c.made {
			if now.Sub(made.at) > claimMemory {
				c.dropLocked(k)
			}
		}
	}
	c.dropLocked(key(node))
	if c.made == nil {
		c.made, c.makers = map[string]claim{}, map[string][]string{}
	}
	c.made[key(node)] = claim{instance, now}
	c.makers[instance] = append(c.makers[instance], key(node))
	return ""
}

// knowLocked rebuilds the indexes if the list of Nodes is another one. Lists are never changed in place.
func (c *claims) knowLocked(facts Facts, nodes []*v1.Node) {
	if len(nodes) == len(c.known) && (len(nodes) == 0 || &nodes[0] == &c.known[0]) {
		return
	}
	c.known, c.holders, c.names = nodes, make(map[string][]string, len(nodes)), make(map[string]string, len(nodes))
	for _, n := range nodes {
		c.names[key(n)] = n.Name
		if instance := facts.instanceKey(n.Spec.ProviderID); instance != "" {
			c.holders[instance] = append(c.holders[instance], key(n))
		}
	}
}

// dropLocked forgets the claim of a Node.
func (c *claims) dropLocked(node string) {
	made, ok := c.made[node]
	if !ok {
		return
	}
	delete(c.made, node)
	left := slices.DeleteFunc(c.makers[made.instance], func(maker string) bool { return maker == node })
	if len(left) == 0 {
		delete(c.makers, made.instance)
		return
	}
	c.makers[made.instance] = left
}

// claim refuses an instance to a new Node if another Node has it: kubelet may choose its provider ID and its name.
func (i *instances) claim(node *v1.Node, providerID string) error {
	holder := i.claims.holder(i.facts, i.ownership.everyone(), node, i.facts.instanceKey(providerID))
	if holder == "" {
		return nil
	}
	return fmt.Errorf("instance %s is already that of node %s; if that Node is left over from the same machine: kubectl delete node %s, "+
		"otherwise find out who set name and provider ID of node %s", providerID, holder, holder, node.Name)
}
