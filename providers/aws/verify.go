package aws

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.InstanceVerifier = (*cloud)(nil)

// VerifyInstance implements guard.InstanceVerifier: an instance is a Node's where it is of this cluster, by its tags and its
// VPC, and the Node is named after it, by its ID or its private DNS name. A Node with a name of its own counts where the tag
// Name of its instance says so.
func (c *cloud) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	if _, pod := fargateKey(node.Spec.ProviderID); pod {
		return false, "it runs on Fargate, which has no instance", nil
	}
	instanceID, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return false, err.Error(), nil //nolint:nilerr // an ID that is none is a refusal, which time does not mend
	}
	_, id, err := c.api.ready(ctx)
	if err != nil {
		return false, "", err
	}
	one, err := c.instances.all.Get(ctx, instanceID, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge, Expected: c.instances.nodes.Counts().All})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), errors.Is(err, cloudapi.ErrInvalid):
		return false, "EC2 knows no instance " + instanceID, nil
	case err != nil:
		return false, "", fmt.Errorf("verifying node %s: %w", node.Name, err)
	}
	why = unverified(id, node.Name, one)
	return why == "", why, nil
}

// unverified says why an instance is not shown to be a Node's, or "".
func unverified(id *identity, node string, one instance) string {
	name, _, _ := strings.Cut(node, ".")
	dns, _, _ := strings.Cut(one.privateDNS, ".")
	switch {
	case !id.ours(one.tags):
		return fmt.Sprintf("instance %s lacks the tag %s", one.id, id.clusterTag())
	case id.vpc != "" && one.vpc != id.vpc:
		return fmt.Sprintf("instance %s is in VPC %s, the cluster in %s", one.id, one.vpc, id.vpc)
	case name == one.id, node == one.privateDNS, name == dns, node == one.tags["Name"]:
		return ""
	}
	return fmt.Sprintf("node %s is named neither by the ID nor by the private DNS name of instance %s (%s), nor is that its tag Name", node, one.id, one.privateDNS)
}
