package nodes

import (
	"context"
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
)

// VerifyInstance implements contract.InstanceVerifier.
func (i *Instances[ID, T]) VerifyInstance(ctx context.Context, node *v1.Node) (ok bool, why string, err error) {
	if i.cloud.Verify == nil {
		return false, "a " + i.cloud.Kind + " cannot be verified", nil
	}
	id, err := i.cloud.Parse(node.Spec.ProviderID)
	if err != nil {
		return false, err.Error(), nil //nolint:nilerr // a wrong ID is a verdict, which time does not change
	}
	query := inventory.Query{MaxAge: verifiedMaxAge, MaxMissAge: MissMaxAge, Expected: i.cloud.Nodes.Counts().All}
	if _, why, err = i.verified(ctx, node, id, query); err == nil && why != "" {
		query.MaxAge = SweepMaxAge
		_, why, err = i.verified(ctx, node, id, query)
	}
	return why == "" && err == nil, why, err
}

// verified returns an instance with the verdict on it.
func (i *Instances[ID, T]) verified(ctx context.Context, node *v1.Node, id ID, q inventory.Query) (instance T, why string, err error) {
	instance, err = i.cloud.Inventory.Get(ctx, id, q)
	switch {
	case errors.Is(err, cloudapi.ErrNotFound), err != nil && i.cloud.BadID != nil && i.cloud.BadID(err):
		return instance, fmt.Sprintf(i.cloud.Absent, id), nil
	case err != nil:
		return instance, "", err
	}
	why, err = i.cloud.Verify(ctx, node, instance)
	return instance, why, err
}

// VerifyName is Cloud.Verify for clouds where the name of an instance, which no kubelet can change, is the node's name or its first label;
// case is ignored. what names the instance in the message, such as "virtual machine 42".
func VerifyName(node *v1.Node, what, name string) (why string) {
	label, _, _ := strings.Cut(node.Name, ".")
	if strings.EqualFold(name, node.Name) || strings.EqualFold(name, label) {
		return ""
	}
	return fmt.Sprintf("the %s is named %q", what, name)
}
