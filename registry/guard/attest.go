package guard

import (
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// AttestInstance asks the cloud about a Node that is ours, whatever --verify-node-instances says.
func (c *Cloud) AttestInstance(ctx context.Context, node *v1.Node) (a contract.Attested, why string, err error) {
	attester, ok := c.inner.(contract.InstanceAttester)
	if !ok {
		return a, "this provider vouches for no instance", nil
	}
	if why := c.ownership.whyForeign(node); why != "" {
		return a, "the Node is not ours: " + why, nil
	}
	ctx, cancel := context.WithTimeout(ctx, instanceDeadline)
	defer cancel()
	defer recoverPanic(&err, "AttestInstance", node.Name)
	return attester.AttestInstance(ctx, node)
}
