package oci

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/anyccm/cloud-controller-manager/providers/kit/jsondoc"
	"github.com/anyccm/cloud-controller-manager/providers/kit/loop"
	"github.com/anyccm/cloud-controller-manager/providers/kit/services"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// This file gives load balancers the certificates of Secrets.

// certificate is the content of a Secret. It is never printed.
type certificate struct {
	secret                           string // its name
	public, ca                       string
	private, passphrase, fingerprint hidden
}

// hidden is a text that is not printed.
type hidden string

// Format implements fmt.Formatter.
func (hidden) Format(s fmt.State, _ rune) { _, _ = s.Write([]byte("(hidden)")) }

const (
	keyAuthority  = "ca.crt"
	keyPassphrase = "passphrase"
	// suffixLength is how much of a digest is in the name of a certificate that replaces another one.
	suffixLength = 8
)

// endsTLS reports whether TLS ends at a port.
func (s settings) endsTLS(p v1.ServicePort) bool {
	return s.ends && s.TLSSecret != "" && slices.Contains(s.SSLPorts, int(p.Port))
}

// beginsTLS reports whether the load balancer speaks TLS with the nodes of a port.
func (s settings) beginsTLS(p v1.ServicePort) bool {
	return s.ends && s.BackSecret != "" && slices.Contains(s.SSLPorts, int(p.Port))
}

// readSecret reads the certificate of a Secret, which must be one for TLS; "" is none. A Secret of another namespace is read only where the
// operator has released that: whoever writes a Service gets the key onto a load balancer of his.
func (r *common) readSecret(ctx context.Context, namespace, name, what string) (*certificate, error) {
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
	secret, err := r.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
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
	c := &certificate{
		secret: name, public: string(secret.Data[v1.TLSCertKey]), ca: string(secret.Data[keyAuthority]),
		private: hidden(secret.Data[v1.TLSPrivateKeyKey]), passphrase: hidden(secret.Data[keyPassphrase]),
	}
	sum := sha256.Sum256([]byte(c.public + "\x00" + c.ca + "\x00" + string(c.private)))
	c.fingerprint = hidden(hex.EncodeToString(sum[:]))
	return c, nil
}

var certificateName = regexp.MustCompile(`^[A-Za-z0-9_-]{1,240}$`)

// certificates are those that a Service names: of its listeners and of its backend sets; nil is none.
func (r *common) certificates(ctx context.Context, service *v1.Service, s settings) (front, back *certificate, err error) {
	if !s.ends {
		return nil, nil, nil
	}
	if front, err = r.readSecret(ctx, service.Namespace, s.TLSSecret, "listeners"); err != nil {
		return nil, nil, err
	}
	back, err = r.readSecret(ctx, service.Namespace, s.BackSecret, "backend sets")
	return front, back, err
}

// samePEM compares certificates but for white space, as the cloud may show them.
func samePEM(a, b string) bool {
	return strings.Join(strings.Fields(a), "") == strings.Join(strings.Fields(b), "")
}

// replaces reports whether the name of a certificate is one that a Secret's has, at first or later.
func replaces(name, secret string) bool {
	rest, ok := strings.CutPrefix(name, secret)
	return ok && (rest == "" || len(rest) == suffixLength+1 && rest[0] == '-' && isHex(rest[1:]))
}

func isHex(text string) bool {
	_, err := hex.DecodeString(text)
	return err == nil && text == strings.ToLower(text)
}

// nameFor is the name of a Secret's certificate on a load balancer: of one that is there with the same content, or else the name of the
// Secret, or, since a certificate cannot be changed, that with part of a digest. lb is nil where there is none.
func (c *certificate) nameFor(lb *loadBalancer) string {
	if lb == nil {
		return c.secret
	}
	for _, name := range sortedKeys(lb.Certificates) {
		public, _ := lb.Certificates[name]["publicCertificate"].(string)
		ca, _ := lb.Certificates[name]["caCertificate"].(string)
		if replaces(name, c.secret) && samePEM(public, c.public) && samePEM(ca, c.ca) {
			return name
		}
	}
	if _, taken := lb.Certificates[c.secret]; !taken {
		return c.secret
	}
	return c.secret + "-" + string(c.fingerprint[:suffixLength])
}

// document is the request for a certificate.
func (c *certificate) document(name string) document {
	return document{
		"certificateName": name, "publicCertificate": c.public, "privateKey": string(c.private), "caCertificate": c.ca, "passphrase": string(c.passphrase),
	}
}

// secretDocument is a document whose secrets are not printed.
func secretDocument(d document) document {
	shown := maps.Clone(d)
	delete(shown, "privateKey")
	delete(shown, "passphrase")
	return shown
}

// sslConfiguration is that of a listener or of a backend set.
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

// mergeTLS is how TLS is spoken as it should be. Cipher suite and protocols count only where they are asked for, protocols as a set.
func mergeTLS(after, want document) (differs bool) {
	wanted, _ := want["sslConfiguration"].(document)
	have, _ := after["sslConfiguration"].(document)
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
			equal = sameTexts(listOf(have[key]), listOf(v))
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

func sameTexts(a, b []any) bool {
	texts := func(list []any) (all []string) {
		for _, v := range list {
			all = append(all, fmt.Sprint(v))
		}
		return all
	}
	return services.SameSet(texts(a), texts(b))
}

// certificateChanges make certificates that are missing, and remove those that nothing refers to any more: they go last.
func (r *loadBalancers) certificateChanges(lb *loadBalancer, d desired) (first, last []change) {
	for _, name := range sortedKeys(d.certificates) {
		if _, there := lb.Certificates[name]; there {
			continue
		}
		c := d.certificates[name]
		first = append(first, r.change(contract.PlanCreate, "certificate "+name, "", func() (any, any) { return nil, secretDocument(c) },
			write{what: "creating certificate " + name, method: http.MethodPost, path: "/certificates", in: c}))
	}
	for _, name := range sortedKeys(lb.Certificates) {
		_, wanted := d.certificates[name]
		if wanted || !d.obsolete(name) {
			continue
		}
		last = append(last, r.planPartDeletion("certificate", "/certificates/", name, lb.Certificates[name]))
	}
	return first, last
}

// obsolete reports whether a certificate that is not wanted is of a Secret that the Service names, or has named while this process runs.
// Others may have been uploaded by somebody else, who may have their keys nowhere else: they stay.
func (d desired) obsolete(name string) bool {
	return slices.ContainsFunc(d.secrets, func(secret string) bool { return replaces(name, secret) })
}

// secretsOf notes the Secrets that a Service names, and returns all that it has named while this process runs.
func (r *common) secretsOf(uid types.UID, secrets []string) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, name := range secrets {
		if !slices.Contains(r.secrets[uid], name) {
			r.secrets[uid] = append(r.secrets[uid], name)
		}
	}
	return slices.Clone(r.secrets[uid])
}

// forgetSecrets forgets them.
func (r *common) forgetSecrets(uid types.UID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.secrets, uid)
}

const (
	// secretsPeriod is how often Secrets are read again, to replace certificates long before they end.
	secretsPeriod  = 10 * time.Minute
	secretsTimeout = 5 * time.Minute
)

// rotating replaces certificates whose Secrets have changed.
func (c *cloud) rotating() loop.Job {
	return loop.Job{Name: "oci-tls-secrets", Period: secretsPeriod, Spacing: time.Second, Timeout: secretsTimeout, Run: c.rotate}
}

func (c *cloud) rotate(ctx context.Context) error {
	list, err := c.loadBalancers.cluster.Services(ctx)
	if err != nil {
		return err
	}
	var failures []error
	for _, s := range list {
		_, ends := s.Annotations[annotationSSLPorts]
		served := s.Spec.Type == v1.ServiceTypeLoadBalancer && s.Spec.LoadBalancerClass == nil && s.DeletionTimestamp == nil
		if !ends || !served || c.loadBalancers.lb.isInvalid(s) || isNetworkService(s) || contract.IsDisowned(s) {
			continue
		}
		if err := c.rotateFor(ctx, s); err != nil {
			failures = append(failures, fmt.Errorf("the certificates of Service %s/%s: %w", s.Namespace, s.Name, err))
		}
	}
	return errors.Join(failures...)
}

// rotateFor brings the certificates of one Service to its load balancer, where there is one that is its own.
func (c *cloud) rotateFor(ctx context.Context, s *v1.Service) error {
	r := c.loadBalancers.lb
	req := services.Request{Purpose: services.UpdateNodes, Service: s}
	o, err := r.Observe(ctx, req)
	if err == nil {
		o, _, err = r.CheckOwner(ctx, req, o)
	}
	if err != nil || o.lb == nil || o.lb.State != stateActive {
		return err
	}
	unlock, err := r.Lock(ctx, o.lb.ID)
	if err != nil {
		return err
	}
	defer unlock()
	if o, err = r.Settle(ctx, &req, o); err != nil || o.lb == nil {
		return err
	}
	changes, err := r.rotation(ctx, s, o)
	for _, change := range changes {
		if err == nil {
			o, err = change.Make(ctx, &req, o)
		}
	}
	if errors.Is(err, services.ErrGone) {
		return nil // somebody else changes it: the next run looks again
	}
	return err
}

// rotation returns the changes of certificates alone.
func (r *reconciler) rotation(ctx context.Context, s *v1.Service, o observed) ([]change, error) {
	set := o.settings
	front, back, err := r.certificates(ctx, s, set)
	if err != nil {
		return nil, err
	}
	d := desired{listeners: set.desiredListeners(s), sets: set.desiredSets(s, nil)}
	d.speakTLS(s, set, o.lb, front, back)
	d.secrets = r.secretsOf(s.UID, d.secrets)
	all, last := r.certificateChanges(o.lb, d)
	for _, name := range sortedKeys(d.sets) {
		have, there := o.lb.BackendSets[name]
		if !there {
			continue
		}
		if after, _ := mergeSet(have, document{}, true); mergeTLS(after, d.sets[name]) {
			all = append(all, r.planSetUpdate(name, have, after, []string{"certificate"}))
		}
	}
	listeners, _ := matchListeners(o.lb.Listeners, d.listeners)
	for _, name := range sortedKeys(d.listeners) {
		is, there := listeners[name]
		have := o.lb.Listeners[is]
		if after := withoutShown(have); there && mergeTLS(after, d.listeners[name]) {
			all = append(all, r.planListenerUpdate(is, have, after))
		}
	}
	return append(all, last...), nil
}

// speakTLS gives listeners and backend sets their certificates.
func (d *desired) speakTLS(service *v1.Service, s settings, lb *loadBalancer, front, back *certificate) {
	d.certificates = map[string]document{}
	var frontName, backName string
	if front != nil {
		frontName = front.nameFor(lb)
		d.certificates[frontName], d.secrets = front.document(frontName), append(d.secrets, front.secret)
	}
	if back != nil {
		backName = back.nameFor(lb)
		d.certificates[backName], d.secrets = back.document(backName), append(d.secrets, back.secret)
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
