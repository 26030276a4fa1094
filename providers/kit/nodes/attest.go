package nodes

import (
	"cmp"
	"context"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// AttestInstance implements contract.InstanceAttester.
func (i *Instances[ID, T]) AttestInstance(ctx context.Context, node *v1.Node) (a contract.Attested, why string, err error) {
	if i.cloud.Attested == nil || i.cloud.Verify == nil {
		return a, cmp.Or(i.cloud.Unattested, "the cloud alone does not know what names and addresses a "+i.cloud.Kind+" has"), nil
	}
	id, err := i.cloud.Parse(node.Spec.ProviderID)
	if err != nil {
		return a, err.Error(), nil //nolint:nilerr // a wrong ID is a verdict, which time does not change
	}
	query := demanded(ctx, inventory.Query{MaxAge: SweepMaxAge, MaxMissAge: MissMaxAge})
	instance, why, err := i.verified(ctx, node, id, query)
	if why != "" || err != nil {
		return a, why, err
	}
	return i.cloud.Attested(instance), "", nil
}
