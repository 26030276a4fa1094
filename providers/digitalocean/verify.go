package digitalocean

import (
	"context"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/internal/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/internal/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
)

var _ guard.InstanceVerifier = (*cloud)(nil)

// VerifyInstance implements guard.InstanceVerifier: the droplet behind the provider ID has the Node's name, which nobody can
// write who controls a kubelet alone.
func (c *cloud) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	id, err := parseProviderID(node.Spec.ProviderID)
	if err != nil {
		return false, err.Error(), nil //nolint:nilerr // what is wrong with the ID is a verdict
	}
	d, err := c.instances.droplets.Get(ctx, id, inventory.Query{MaxAge: backendMaxAge, MaxMissAge: missMaxAge, Expected: c.instances.nodes.Counts().All})
	switch {
	case errors.Is(err, cloudapi.ErrNotFound):
		return false, fmt.Sprintf("there is no droplet %d", id), nil
	case err != nil:
		return false, "", err
	case d.name != node.Name:
		return false, fmt.Sprintf("the droplet %d is named %q", id, d.name), nil
	}
	return true, "", nil
}
