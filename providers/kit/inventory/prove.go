package inventory

import (
	"context"
	"fmt"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// Prove returns cloudapi.ErrNotFound if an object that a read did not find is gone, for clouds that also hide objects without permission: a
// complete listing, begun now, must lack it as well. doubt says why a listing proves nothing; nil if it does.
func (i *Inventory[ID, V]) Prove(ctx context.Context, id ID, doubt func(all []V) error) error {
	what := fmt.Sprintf("looking for %s %v", i.source.Kind, id)
	all, err := i.All(ctx, Query{})
	if err != nil {
		return cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", err)
	}
	for _, v := range all {
		if i.ID(v) == id {
			return cloudapi.Unclear(what, "it is not found, and yet it is listed")
		}
	}
	if err := doubt(all); err != nil {
		return cloudapi.Unclear(what, "it is not found, which does not prove that it is gone: %s", err)
	}
	return &cloudapi.Error{Class: cloudapi.ErrNotFound, Operation: what, Message: "there is none with this ID"}
}
