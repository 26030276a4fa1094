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

// claims records which Node an instance was given to, until the informer shows it. Two provider IDs can name one instance. Each
// new Node is compared with all others, so instances are indexed.
type claims struct {
	mu sync.Mutex
	// byNode are the claims by Node, claimants the Nodes with claims by instance.
	byNode    map[string]claim
	claimants map[string][]string
	swept     time.Time
	// indexed is the list of Nodes from which the two indexes below were made.
	indexed         []*v1.Node
	nodesByInstance map[string][]string
	names           map[string]string
}

type claim struct {
	instance string
	at       time.Time
}

// claimInstance returns the Node that already has the instance, and otherwise records the claim of the asking Node. nodes are all Nodes of
// the cluster.
func (c *claims) claimInstance(facts Facts, nodes []*v1.Node, node *v1.Node, instance string) string {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if contract.Uninitialized(node) {
		c.indexLocked(facts, nodes)
		for _, other := range slices.Concat(c.nodesByInstance[instance], c.claimants[instance]) {
			if name, exists := c.names[other]; exists && other != nodeKey(node) {
				return name
			}
		}
	}
	if now.Sub(c.swept) > time.Minute {
		c.swept = now
		for k, made := range c.byNode {
			if now.Sub(made.at) > claimMemory {
				c.dropLocked(k)
			}
		}
	}
	c.dropLocked(nodeKey(node))
	if c.byNode == nil {
		c.byNode, c.claimants = map[string]claim{}, map[string][]string{}
	}
	c.byNode[nodeKey(node)] = claim{instance, now}
	c.claimants[instance] = append(c.claimants[instance], nodeKey(node))
	return ""
}

// indexLocked rebuilds the indexes if the list of Nodes is another one. Lists are never changed in place.
func (c *claims) indexLocked(facts Facts, nodes []*v1.Node) {
	if len(nodes) == len(c.indexed) && (len(nodes) == 0 || &nodes[0] == &c.indexed[0]) {
		return
	}
	c.indexed, c.nodesByInstance, c.names = nodes, make(map[string][]string, len(nodes)), make(map[string]string, len(nodes))
	for _, n := range nodes {
		c.names[nodeKey(n)] = n.Name
		if instance := facts.instanceKey(n.Spec.ProviderID); instance != "" {
			c.nodesByInstance[instance] = append(c.nodesByInstance[instance], nodeKey(n))
		}
	}
}

// dropLocked forgets the claim of a Node.
func (c *claims) dropLocked(node string) {
	made, ok := c.byNode[node]
	if !ok {
		return
	}
	delete(c.byNode, node)
	left := slices.DeleteFunc(c.claimants[made.instance], func(maker string) bool { return maker == node })
	if len(left) == 0 {
		delete(c.claimants, made.instance)
		return
	}
	c.claimants[made.instance] = left
}

// claim refuses an instance to a new Node if another Node has it: kubelet may choose its provider ID and its name.
func (i *instances) claim(node *v1.Node, providerID string) error {
	holder := i.claims.claimInstance(i.facts, i.ownership.allNodes(), node, i.facts.instanceKey(providerID))
	if holder == "" {
		return nil
	}
	return fmt.Errorf("instance %s is already that of node %s; if that Node is left over from the same machine: kubectl delete node %s, "+
		"otherwise find out who set name and provider ID of node %s", providerID, holder, holder, node.Name)
}
