package openstack

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// certificate is an existing reference in the key manager.
type certificate struct{ ref string }

func newCertificateInventory(a *api) *inventory.Inventory[string, certificate] {
	return inventory.New(inventory.Source[string, certificate]{
		Kind: "certificate", ID: func(c certificate) string { return c.ref },
		Get: func(ctx context.Context, ref string) (certificate, error) {
			kind, id, err := splitReference(ref)
			if err != nil {
				return certificate{}, err
			}
			_, err = request[json.RawMessage](ctx, a, keyManager, "reading the certificates "+ref, http.MethodGet, kind+"/"+id, nil, "status",
				http.StatusOK)
			return certificate{ref}, err
		},
	})
}

// checkCertificate refuses a reference that the key manager does not have.
func (r *reconciler) checkCertificate(ctx context.Context, s settings) error {
	if s.TLSContainerRef == "" || r.config.LoadBalancer.ContainerStore != storeBarbican {
		return nil
	}
	_, err := r.certificates.Get(ctx, s.TLSContainerRef, inventory.Query{MaxAge: updateMaxAge})
	if errors.Is(err, cloudapi.ErrNotFound) {
		return &schema.Problem{
			Place: "annotation " + annotationTLSContainerRef, Value: s.TLSContainerRef,
			Reason: "is not in the key manager, or its access list does not let the project read it",
		}
	}
	return err
}
