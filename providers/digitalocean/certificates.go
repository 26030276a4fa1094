package digitalocean

import (
	"context"
	"errors"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// certificate resolves the Service's certificate and follows the rotation of Let's Encrypt certificates. rotatedTo is set if the renewal
// has replaced the certificate that the Service names by ID.
func (l *loadBalancers) certificate(ctx context.Context, s settings, observed *godo.LoadBalancer) (id, rotatedTo string, err error) {
	if s.CertificateID == "" && s.CertificateName == "" {
		return "", "", nil
	}
	if s.Type == godo.LoadBalancerTypeRegionalNetwork {
		return "", "", nil // it does not terminate TLS
	}
	query := inventory.Query{MaxAge: certificateMaxAge}
	if s.CertificateID == "" {
		found, err := l.certificates.Find(ctx, indexName, s.CertificateName, query)
		if err != nil {
			return "", "", err
		}
		if len(found) == 0 {
			return "", "", &schema.Problem{Place: "annotation " + annotationCertificateName, Value: s.CertificateName, Reason: "is not the name of a certificate of this account"}
		}
		return found[0].ID, "", nil
	}
	if observed == nil {
		return s.CertificateID, "", nil
	}
	inUseID := certificateInUse(observed)
	if inUseID == "" || inUseID == s.CertificateID {
		return s.CertificateID, "", nil
	}
	inUse, err := l.certificateByID(ctx, inUseID, query)
	if err != nil || inUse == nil || inUse.Type != letsEncrypt {
		return s.CertificateID, "", err
	}
	wanted, err := l.certificateByID(ctx, s.CertificateID, query)
	if err != nil {
		return "", "", err
	}
	if isRotated(inUse, wanted) {
		return inUseID, inUseID, nil
	}
	return s.CertificateID, "", nil
}

// certificateByID returns nil for a missing certificate.
func (l *loadBalancers) certificateByID(ctx context.Context, id string, q inventory.Query) (*godo.Certificate, error) {
	c, err := l.certificates.Get(ctx, id, q)
	if errors.Is(err, cloudapi.ErrNotFound) {
		return nil, nil //nolint:nilnil // absence is an answer here
	}
	return c, err
}
