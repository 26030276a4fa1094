package digitalocean

import (
	"context"
	"errors"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// certificates are those of the account.
type certificates struct {
	*inventory.Inventory[string, *godo.Certificate]
}

func newCertificates(a *api) certificates {
	return certificates{inventory.New(inventory.Source[string, *godo.Certificate]{
		Kind: "certificate", ID: func(c *godo.Certificate) string { return c.ID }, List: a.certificates, Get: a.certificate,
		Indexes: map[string]func(*godo.Certificate) []string{indexName: func(c *godo.Certificate) []string { return []string{c.Name} }},
	})}
}

// find resolves the Service's certificate and follows the rotation of Let's Encrypt certificates. lb is nil before the creation. rotatedTo
// is set if the renewal has replaced the certificate that the Service names by ID.
func (c certificates) find(ctx context.Context, s settings, lb *godo.LoadBalancer) (id, rotatedTo string, err error) {
	if s.CertificateID == "" && s.CertificateName == "" {
		return "", "", nil
	}
	if s.Type == godo.LoadBalancerTypeRegionalNetwork {
		return "", "", nil // it does not terminate TLS
	}
	query := inventory.Query{MaxAge: certificateMaxAge}
	if s.CertificateID == "" {
		found, err := c.Find(ctx, indexName, s.CertificateName, query)
		if err != nil {
			return "", "", err
		}
		if len(found) == 0 {
			return "", "", &schema.Problem{Place: "annotation " + annotationCertificateName, Value: s.CertificateName, Reason: "is not the name of a certificate of this account"}
		}
		return found[0].ID, "", nil
	}
	if lb == nil {
		return s.CertificateID, "", nil
	}
	inUseID := certificateInUse(lb)
	if inUseID == "" || inUseID == s.CertificateID {
		return s.CertificateID, "", nil
	}
	inUse, err := c.getOrNil(ctx, inUseID, query)
	if err != nil || inUse == nil || inUse.Type != letsEncrypt {
		return s.CertificateID, "", err
	}
	wanted, err := c.getOrNil(ctx, s.CertificateID, query)
	if err != nil {
		return "", "", err
	}
	if isRotated(inUse, wanted) {
		return inUseID, inUseID, nil
	}
	return s.CertificateID, "", nil
}

// getOrNil returns nil for a missing certificate.
func (c certificates) getOrNil(ctx context.Context, id string, q inventory.Query) (*godo.Certificate, error) {
	found, err := c.Get(ctx, id, q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return found, err
}
