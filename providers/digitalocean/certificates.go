package digitalocean

import (
	"context"

	"github.com/digitalocean/godo"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/inventory"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const letsEncrypt = "lets_encrypt"

// certificates finds the account's certificates.
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
	if s.Type == godo.LoadBalancerTypeRegionalNetwork || (s.CertificateID == "" && s.CertificateName == "") {
		return "", "", nil // network load balancers do not terminate TLS
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
	named, err := c.getOrNil(ctx, s.CertificateID, query)
	if err != nil {
		return "", "", err
	}
	// A renewal has a new ID and the same name.
	if named == nil || named.Name == inUse.Name {
		return inUseID, inUseID, nil
	}
	return s.CertificateID, "", nil
}

// certificateInUse returns the first certificate of a load balancer's rules, or "".
func certificateInUse(lb *godo.LoadBalancer) string {
	for _, rule := range lb.ForwardingRules {
		if rule.CertificateID != "" {
			return rule.CertificateID
		}
	}
	return ""
}

// getOrNil returns nil for a missing certificate.
func (c certificates) getOrNil(ctx context.Context, id string, q inventory.Query) (*godo.Certificate, error) {
	found, err := c.Get(ctx, id, q)
	return found, cloudapi.IgnoreNotFound(err)
}
