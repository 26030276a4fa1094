package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/secrets"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// This file puts the certificates of Secrets on load balancers.

// certificate is the content of a Secret.
type certificate struct {
	secret              string // its name
	public, ca          string
	private, passphrase schema.Secret
}

const (
	keyAuthority  = "ca.crt"
	keyPassphrase = "passphrase"
	// suffixLength is the length of the digest in the name of a certificate that replaces another one.
	suffixLength = 8
)

// endsTLS reports whether TLS ends at a port.
func (s settings) endsTLS(p v1.ServicePort) bool {
	return s.tlsEnds && s.TLSSecret != "" && slices.Contains(s.SSLPorts, int(p.Port))
}

// beginsTLS reports whether the load balancer speaks TLS to the nodes of a port.
func (s settings) beginsTLS(p v1.ServicePort) bool {
	return s.tlsEnds && s.BackSecret != "" && slices.Contains(s.SSLPorts, int(p.Port))
}

// readSecret reads the certificate of a Secret. One of another namespace is read only if the operator has allowed that, because its key
// gets onto the load balancer of whoever writes the Service.
func (r *common) readSecret(ctx context.Context, read secrets.Read, namespace, name, what string) (*certificate, error) {
	if name == "" {
		return nil, nil //nolint:nilnil // no certificate is asked for
	}
	own := namespace
	if before, after, cut := strings.Cut(name, "/"); cut {
		namespace, name = before, after
	}
	if namespace != own && !slices.Contains(r.api.config.SecretNamespaces, namespace) {
		return nil, fmt.Errorf("the Secret for TLS of the %s: %s/%s is in another namespace than the Service, which may only name Secrets of %s: copy it there, "+
			"or have the operator add %s to the option %s", what, namespace, name, own, namespace, envSecretNamespaces)
	}
	if r.kube == nil {
		return nil, fmt.Errorf("the Secret for TLS of the %s: the cluster is not known yet", what)
	}
	secret, err := read(ctx, namespace, name)
	if err != nil {
		return nil, fmt.Errorf("reading the Secret for TLS of the %s: %w", what, err)
	}
	for _, key := range []string{v1.TLSCertKey, v1.TLSPrivateKeyKey} {
		if len(secret.Data[key]) == 0 {
			return nil, fmt.Errorf("the Secret for TLS of the %s, %s/%s, has no key %s", what, namespace, name, key)
		}
	}
	if !certificateName.MatchString(name) {
		return nil, fmt.Errorf("the Secret for TLS of the %s: %s is no name that a certificate can have in the cloud: letters, digits, dashes and underscores are", what, name)
	}
	text := func(key string) string { return string(secret.Data[key]) }
	return &certificate{
		secret: name, public: text(v1.TLSCertKey), ca: text(keyAuthority), private: schema.NewSecret(text(v1.TLSPrivateKeyKey)),
		passphrase: schema.NewSecret(text(keyPassphrase)),
	}, nil
}

var certificateName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,240}$`)

// certificates returns the certificates that a Service names for its listeners and its backend sets, or nil.
func (r *common) certificates(ctx context.Context, service *v1.Service, s settings) (front, back *certificate, err error) {
	read := r.follower.Follow(service)
	if !s.tlsEnds {
		return nil, nil, nil
	}
	if front, err = r.readSecret(ctx, read, service.Namespace, s.TLSSecret, "listeners"); err != nil {
		return nil, nil, err
	}
	back, err = r.readSecret(ctx, read, service.Namespace, s.BackSecret, "backend sets")
	return front, back, err
}

// samePEM compares certificates without white space, which the cloud may change.
func samePEM(a, b string) bool { return withoutSpace(a) == withoutSpace(b) }

func withoutSpace(text string) string { return strings.Join(strings.Fields(text), "") }

// digestOf identifies a certificate by what the cloud shows of it.
func digestOf(public, ca string) string {
	sum := sha256.Sum256([]byte(withoutSpace(public) + " " + withoutSpace(ca)))
	return hex.EncodeToString(sum[:])[:suffixLength]
}

// isOfSecret reports whether a name is one of those that a Secret's certificates get.
func isOfSecret(name, secret string) bool {
	rest, ok := strings.CutPrefix(name, secret)
	return ok && (rest == "" || digestSuffix.MatchString(rest))
}

var digestSuffix = regexp.MustCompile(`^-[0-9a-f]{8}$`)

// nameFor returns the name of a Secret's certificate on a load balancer: of an existing one with the same content, or else the Secret's
// name. If that is taken a digest follows it, because a certificate cannot be changed. lb may be nil.
func (c *certificate) nameFor(lb *loadBalancer) string {
	if lb == nil {
		return c.secret
	}
	for _, name := range sortedKeys(lb.Certificates) {
		d := lb.Certificates[name]
		if isOfSecret(name, c.secret) && samePEM(fieldOf[string](d, "publicCertificate"), c.public) && samePEM(fieldOf[string](d, "caCertificate"), c.ca) {
			return name
		}
	}
	if _, taken := lb.Certificates[c.secret]; !taken {
		return c.secret
	}
	return c.secret + "-" + digestOf(c.public, c.ca)
}

// document returns the request for a certificate.
func (c *certificate) document(name string) document {
	return document{
		"certificateName": name, "publicCertificate": c.public, "privateKey": c.private.Reveal(), "caCertificate": c.ca,
		"passphrase": c.passphrase.Reveal(),
	}
}

// sslConfiguration returns the settings of TLS of a listener or backend set.
func (c tlsConfig) sslConfiguration(name string) document {
	d := document{"certificateName": name, "verifyDepth": 0, "verifyPeerCertificate": false}
	if c.CipherSuiteName != "" {
		d["cipherSuiteName"] = c.CipherSuiteName
	}
	if len(c.Protocols) > 0 {
		d["protocols"] = c.Protocols
	}
	return d
}

// mergeTLS sets the wanted settings of TLS. Cipher suite and protocols count only if they are requested, protocols in any order.
func mergeTLS(after, want document) (differs bool) {
	wanted, have := fieldOf[document](want, "sslConfiguration"), fieldOf[document](after, "sslConfiguration")
	switch {
	case wanted == nil:
		delete(after, "sslConfiguration")
		return len(have) > 0
	case have == nil:
		after["sslConfiguration"] = wanted
		return true
	}
	for key, v := range wanted {
		var equal bool
		switch key {
		case "protocols":
			equal = sameTexts(have[key], v)
		case "verifyDepth": // the cloud has another one of its own where peers are not verified
			equal = true
		default:
			equal = equalField(have[key], v)
		}
		if !equal {
			have[key], differs = v, true
		}
	}
	return differs
}

// sameTexts compares lists of texts in any order.
func sameTexts(a, b any) bool {
	texts := func(v any) (all []string) {
		list, _ := v.([]any)
		for _, v := range list {
			all = append(all, fmt.Sprint(v))
		}
		return all
	}
	return services.SameSet(texts(a), texts(b))
}

// certificateChanges creates missing certificates first, and removes obsolete ones last, when nothing refers to them.
func (r *loadBalancers) certificateChanges(lb *loadBalancer, d desired) (first, last []change) {
	for _, name := range sortedKeys(d.certificates) {
		if _, there := lb.Certificates[name]; !there {
			first = append(first, r.planPart(partCertificate, name, "", nil, d.certificates[name], nil))
		}
	}
	for _, name := range d.obsolete {
		last = append(last, r.planPart(partCertificate, name, "", lb.Certificates[name], nil, nil))
	}
	return first, last
}

// obsoleteCertificates returns the unwanted certificates of a load balancer that are of a Secret which the Service names, or has named.
// secrets are those of this process. For an earlier one's, the digest in the name has to be that of the content, or the Secret still to
// hold it: others may have been uploaded by people who have their keys nowhere else.
func (r *common) obsoleteCertificates(
	ctx context.Context, service *v1.Service, lb *loadBalancer, wanted map[string]document, secrets []string,
) (names []string) {
	if lb == nil {
		return nil
	}
	for _, name := range sortedKeys(lb.Certificates) {
		has := lb.Certificates[name]
		public, ca := fieldOf[string](has, "publicCertificate"), fieldOf[string](has, "caCertificate")
		switch _, uses := wanted[name]; {
		case uses:
		case slices.ContainsFunc(secrets, func(secret string) bool { return isOfSecret(name, secret) }),
			strings.HasSuffix(name, "-"+digestOf(public, ca)), r.isInSecret(ctx, service, name, public, ca):
			names = append(names, name)
		}
	}
	return names
}

// noteSecrets stores the Secrets that a Service names, and returns all that it has named during this process. A Secret may be deleted at
// the moment when the Service names another.
func (r *common) noteSecrets(uid types.UID, named ...*certificate) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range named {
		if c != nil && !slices.Contains(r.secrets[uid], c.secret) {
			r.secrets[uid] = append(r.secrets[uid], c.secret)
		}
	}
	return slices.Clone(r.secrets[uid])
}

func (r *common) forgetSecrets(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.secrets, uid)
}

// isInSecret reports whether a Secret that the Service may name holds a certificate.
func (r *common) isInSecret(ctx context.Context, service *v1.Service, name, public, ca string) bool {
	if r.kube == nil {
		return false
	}
	return slices.ContainsFunc(append([]string{service.Namespace}, r.api.config.SecretNamespaces...), func(namespace string) bool {
		secret, err := r.follower.Get(ctx, namespace, name)
		return err == nil && len(secret.Data[v1.TLSPrivateKeyKey]) > 0 &&
			samePEM(public, string(secret.Data[v1.TLSCertKey])) && samePEM(ca, string(secret.Data[keyAuthority]))
	})
}

// addTLS adds the certificates to listeners and backend sets.
func (d *desired) addTLS(service *v1.Service, s settings, lb *loadBalancer, front, back *certificate) {
	d.certificates = map[string]document{}
	var frontName, backName string
	if front != nil {
		frontName = front.nameFor(lb)
		d.certificates[frontName] = front.document(frontName)
	}
	if back != nil {
		backName = back.nameFor(lb)
		d.certificates[backName] = back.document(backName)
	}
	for _, p := range service.Spec.Ports {
		if s.endsTLS(p) && frontName != "" {
			d.listeners[s.listenerName(p)]["sslConfiguration"] = jsondoc.Clone(s.tls.sslConfiguration(frontName))
		}
		if s.beginsTLS(p) && backName != "" {
			d.sets[setName(p)]["sslConfiguration"] = jsondoc.Clone(s.backTLS.sslConfiguration(backName))
		}
	}
}
