package guard

import (
	"fmt"
	"sync"
	"time"

	v1 "k8s.io/api/core/v1"
)

// claimMemory is how long an instance is remembered as that of a Node of which nothing is heard; by then the informers know.
const claimMemory = 15 * time.Minute

// claims remember which Node an instance was given to, for the time in which the informers do not show it yet, and for provider
// IDs that name one instance in two ways.
type claims struct {
	mu   sync.Mutex
	made map[string]claim
}

type claim struct {
	instance string
	at       time.Time
}

// holder returns the Node that already has the instance of a new one, and otherwise remembers it as that of the Node which asks.
// The Nodes are all that the cluster has.
func (c *claims) holder(facts Facts, nodes []*v1.Node, node *v1.Node, instance string) string {
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, other := range nodes {
		if key(other) == key(node) || !Uninitialized(node) {
			continue
		}
		if made, ok := c.made[key(other)]; facts.instanceKey(other.Spec.ProviderID) == instance || (ok && made.instance == instance) {
			return other.Name
		}
	}
	for k, made := range c.made {
		if now.Sub(made.at) > claimMemory {
			delete(c.made, k)
		}
	}
	if c.made == nil {
		c.made = map[string]claim{}
	}
	c.made[key(node)] = claim{instance, now}
	return ""
}

// claim refuses a new Node the instance that another Node has: kubelet may choose its provider ID, and its name.
func (i *instances) claim(node *v1.Node, providerID string) error {
	holder := i.claims.holder(i.facts, i.ownership.everyone(), node, i.facts.instanceKey(providerID))
	if holder == "" {
		return nil
	}
	return fmt.Errorf("instance %s is already that of node %s; if that Node is left over from the same machine: kubectl delete node %s, "+
		"otherwise find out who set name and provider ID of node %s", providerID, holder, holder, node.Name)
}
