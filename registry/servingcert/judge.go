// Package servingcert judges requests of kubelets for serving certificates by what the cloud alone knows of their instances.
package servingcert

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

const (
	nodesGroup = "system:nodes"
	userPrefix = "system:node:"
)

// Cluster holds the facts about a cluster for judging a request.
type Cluster struct {
	// Nodes are all of the cluster, those of other clouds too.
	Nodes []*v1.Node
	// InstanceKey returns what identifies the instance behind a provider ID, "" for another cloud's.
	InstanceKey func(providerID string) string
	// Domain is the DNS domain of the cluster, such as cluster.local.
	Domain string
	// Reserved are names and addresses of the API server and of Services, which no node may have.
	Reserved []string
}

// Waiting reports whether a request is for a serving certificate of a kubelet and nobody has decided on it.
func Waiting(csr *certificatesv1.CertificateSigningRequest) bool {
	return csr.Spec.SignerName == certificatesv1.KubeletServingSignerName && len(csr.Status.Conditions)+len(csr.Status.Certificate) == 0
}

// NodeName is the name of the Node whose kubelet made a request, as the API server authenticated it; "" where it was none.
func NodeName(csr *certificatesv1.CertificateSigningRequest) string {
	name, ok := strings.CutPrefix(csr.Spec.Username, userPrefix)
	if !ok || !slices.Contains(csr.Spec.Groups, nodesGroup) {
		return ""
	}
	return name
}

// Supersedes reports whether a request of the same node is newer than another one. Kubelets leave older requests behind.
func Supersedes(csr, other *certificatesv1.CertificateSigningRequest) bool {
	if !csr.CreationTimestamp.Equal(&other.CreationTimestamp) {
		return other.CreationTimestamp.Before(&csr.CreationTimestamp)
	}
	return Waiting(csr) || !Waiting(other)
}

// parseWellFormed returns a request that the signer would accept, or why it is none.
func parseWellFormed(csr *certificatesv1.CertificateSigningRequest) (request *x509.CertificateRequest, why string) {
	if !Waiting(csr) {
		return nil, "it is no request for a serving certificate that waits"
	}
	request, err := parse(csr.Spec.Request)
	if err != nil {
		return nil, err.Error()
	}
	return request, whyMalformed(csr, request)
}

// judge reports whether a request may be approved, and why not. The Node is nil where there is none; the attestation is of its instance.
func judge(
	csr *certificatesv1.CertificateSigningRequest, node *v1.Node, a contract.Attested, c Cluster,
) (approve bool, why string) {
	request, why := parseWellFormed(csr)
	if why != "" {
		return false, why
	}
	for _, why := range []string{
		c.whyRefused(csr, node), c.findForeignName(request, a), c.findForeignAddress(request, a), c.findOtherNodesName(request, node),
	} {
		if why != "" {
			return false, why
		}
	}
	return true, ""
}

func parse(data []byte) (*x509.CertificateRequest, error) {
	block, rest := pem.Decode(data)
	if block == nil || block.Type != "CERTIFICATE REQUEST" || len(strings.TrimSpace(string(rest))) > 0 {
		return nil, errors.New("it holds no single PEM block with a certificate request")
	}
	request, err := x509.ParseCertificateRequest(block.Bytes)
	if err == nil {
		err = request.CheckSignature()
	}
	if err != nil {
		return nil, fmt.Errorf("its certificate request is broken: %w", err)
	}
	return request, nil
}

// whyMalformed returns a reason if Kubernetes' own signer would refuse the request, or if it is for another one's certificate.
func whyMalformed(csr *certificatesv1.CertificateSigningRequest, r *x509.CertificateRequest) string {
	switch {
	case NodeName(csr) == "":
		return "no kubelet made it: its user is " + csr.Spec.Username
	case r.Subject.CommonName != csr.Spec.Username:
		return fmt.Sprintf("it is for %q, and %s made it", r.Subject.CommonName, csr.Spec.Username)
	case !slices.Equal(r.Subject.Organization, []string{nodesGroup}):
		return "its organization is not " + nodesGroup + " alone"
	case len(r.DNSNames)+len(r.IPAddresses) == 0:
		return "it names neither a DNS name nor an address"
	case len(r.EmailAddresses)+len(r.URIs) > 0:
		return "it names an e-mail address or a URI"
	case !areServingUsages(csr.Spec.Usages):
		return fmt.Sprintf("its usages %v are not those of a kubelet's serving certificate", csr.Spec.Usages)
	}
	return ""
}

func areServingUsages(usages []certificatesv1.KeyUsage) bool {
	has := map[certificatesv1.KeyUsage]bool{}
	for _, u := range usages {
		has[u] = true
	}
	serving := has[certificatesv1.UsageDigitalSignature] && has[certificatesv1.UsageServerAuth]
	delete(has, certificatesv1.UsageDigitalSignature)
	delete(has, certificatesv1.UsageServerAuth)
	delete(has, certificatesv1.UsageKeyEncipherment) // of RSA keys alone
	return serving && len(has) == 0
}

// whyRefused says what is wrong with the Node of a request: its instance must be its alone.
func (c Cluster) whyRefused(csr *certificatesv1.CertificateSigningRequest, node *v1.Node) string {
	switch {
	case node == nil || node.Name != NodeName(csr):
		return "there is no Node " + NodeName(csr)
	case node.DeletionTimestamp != nil:
		return "the Node is being deleted"
	}
	key := c.InstanceKey(node.Spec.ProviderID)
	if key == "" {
		return "the Node has no provider ID of this cloud"
	}
	for _, other := range c.Nodes {
		if other.Name != node.Name && (c.InstanceKey(other.Spec.ProviderID) == key || other.Spec.ProviderID == node.Spec.ProviderID) {
			return fmt.Sprintf("Node %s has the same instance", other.Name)
		}
	}
	return ""
}

// findForeignName says which DNS name of a request is not one of the instance.
func (c Cluster) findForeignName(r *x509.CertificateRequest, a contract.Attested) string {
	for _, name := range r.DNSNames {
		same := func(other string) bool { return strings.EqualFold(other, name) }
		switch {
		case c.isReservedName(strings.ToLower(name)):
			return fmt.Sprintf("the name %q is never a node's", name)
		case name == "" || !slices.ContainsFunc(a.Names, same):
			return fmt.Sprintf("the name %q is not one of the instance, which the cloud knows as %s", name, joinNames(a.Names))
		}
	}
	return ""
}

// findOtherNodesName says which DNS name of a request is the name of another Node. Clouds may have several instances of one name.
func (c Cluster) findOtherNodesName(r *x509.CertificateRequest, node *v1.Node) string {
	for _, name := range r.DNSNames {
		same := func(other *v1.Node) bool { return other.Name != node.Name && strings.EqualFold(other.Name, name) }
		if slices.ContainsFunc(c.Nodes, same) {
			return fmt.Sprintf("the name %q is the name of another Node", name)
		}
	}
	return ""
}

// isReservedName reports whether a name in lower case is the API server's or a Service's, or serves for more than one host.
func (c Cluster) isReservedName(name string) bool {
	name = strings.TrimSuffix(name, ".")
	under := func(domain string) bool {
		domain = strings.ToLower(strings.Trim(domain, "."))
		return domain != "" && (name == domain || strings.HasSuffix(name, "."+domain))
	}
	return strings.Contains(name, "*") || under("localhost") || name == "kubernetes" || strings.HasPrefix(name, "kubernetes.") ||
		under("svc") || strings.Contains(name, ".svc.") || under(c.Domain) ||
		slices.ContainsFunc(c.Reserved, func(r string) bool { return strings.EqualFold(strings.TrimSuffix(r, "."), name) })
}

// findForeignAddress says which address of a request is not one of the instance.
func (c Cluster) findForeignAddress(r *x509.CertificateRequest, a contract.Attested) string {
	reserved := contract.AttestedAddresses(c.Reserved...)
	for _, ip := range r.IPAddresses {
		address, ok := netip.AddrFromSlice(ip)
		address = address.Unmap()
		switch {
		case !ok || address.IsLoopback() || address.IsUnspecified() || address.IsMulticast() || slices.Contains(reserved, address):
			return fmt.Sprintf("the address %s is never a node's", ip)
		case !slices.Contains(a.Addresses, address):
			return fmt.Sprintf("the address %s is not one of the instance, which has %v in the cloud", ip, a.Addresses)
		}
	}
	return ""
}

func joinNames(names []string) string {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "" })
	if len(names) == 0 {
		return "nothing"
	}
	return strings.Join(names, ", ")
}
