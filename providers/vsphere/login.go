package vsphere

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/sts"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/soap"
	"github.com/vmware/govmomi/vim25/types"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// readCredentials reads the current credentials from the Secret or the folder, if configured.
func (v *vcenter) readCredentials(ctx context.Context) (credentials, error) {
	c := v.config
	configured := credentials{user: c.User.Reveal(), password: c.Password.Reveal()}
	var data map[string][]byte
	var from string
	var err error
	switch {
	case c.SecretName != "":
		from = fmt.Sprintf("Secret %s/%s", c.SecretNamespace, c.SecretName)
		data, err = v.readSecret(ctx)
	case c.SecretsDirectory != "":
		from = "folder " + c.SecretsDirectory
		data, err = readDirectory(c.SecretsDirectory)
	default:
		return configured, nil
	}
	if err != nil {
		return credentials{}, fmt.Errorf("%s: %w", from, err)
	}
	found, ignored, err := parseCredentials(data, c.Server)
	if len(ignored) > 0 {
		klog.Warningf("%s: ignoring the unknown keys %s; keys are %s.username and %s.password", from, strings.Join(ignored, ", "), c.Server, c.Server)
	}
	if errors.Is(err, errNoCredentials) && !configured.isEmpty() {
		return configured, nil
	}
	if err != nil {
		keys := strings.Join(slices.Sorted(maps.Keys(data)), ", ") // which are not secret
		return credentials{}, fmt.Errorf("%s: %w for server %s; it has the keys %s", from, err, c.Server, keys)
	}
	return found, nil
}

// readSecret reads the Secret; if that fails, the last one is kept.
func (v *vcenter) readSecret(ctx context.Context) (map[string][]byte, error) {
	v.mu.Lock()
	kube, known := v.kube, v.secret
	v.mu.Unlock()
	if kube == nil {
		return nil, errors.New("Secrets are read once this program leads") //nolint:staticcheck // a kind of objects
	}
	s, err := kube.CoreV1().Secrets(v.config.SecretNamespace).Get(ctx, v.config.SecretName, metav1.GetOptions{})
	switch {
	case err == nil:
		v.mu.Lock()
		v.secret = s.Data
		v.mu.Unlock()
		return s.Data, nil
	case known != nil:
		return known, nil
	case apierrors.IsNotFound(err):
		return nil, errors.New("does not exist; create it with the keys <server>.username and <server>.password")
	}
	return nil, fmt.Errorf("cannot be read: %w", err)
}

func isPEM(text string) bool { return strings.HasPrefix(strings.TrimSpace(text), "-----BEGIN ") }

// restSigner signs requests of the REST API after a login by certificate.
type restSigner interface{ SignRequest(*http.Request) error }

// loginBySSO logs in by certificate with a token from single sign-on.
func (s *session) loginBySSO(ctx context.Context, c credentials) error {
	pair, err := tls.X509KeyPair([]byte(c.user), []byte(c.password))
	if err != nil {
		return &cloudapi.Error{
			Class: cloudapi.ErrUnauthorized, Message: "user and password are not a certificate and its key: " + err.Error(), Cause: errRefused,
		}
	}
	client := s.NewServiceClient(sts.Path, sts.Namespace)
	s.vcenter.api.useTransport(client)
	issuer := &sts.Client{Client: client, RoundTripper: client}
	signer, err := issuer.Issue(withMethod(ctx, "Issue"), sts.TokenRequest{Certificate: &pair, Delegatable: true})
	if err != nil {
		if soap.IsSoapFault(err) {
			return &cloudapi.Error{
				Class: cloudapi.ErrUnauthorized, Message: "single sign-on: " + soap.ToSoapFault(err).String, Cause: errRefused,
			}
		}
		return err //nolint:wrapcheck // apiError names it
	}
	signed := s.WithHeader(withMethod(ctx, "LoginByToken"), soap.Header{Security: signer})
	answer, err := methods.LoginByToken(signed, s, &types.LoginByToken{This: *s.ServiceContent.SessionManager, Locale: locale})
	if err != nil {
		return err //nolint:wrapcheck // apiError names it
	}
	s.user, s.signer = answer.Returnval.UserName, signer
	return nil
}

const (
	serviceAccountToken = "/var/run/secrets/kubernetes.io/serviceaccount/token" //nolint:gosec // a path
	sharedTimeout       = 5 * time.Second
	maxTicket           = 64 << 10
)

// readTicket gets a ticket for a session from the service that hands them out.
func (v *vcenter) readTicket(ctx context.Context, c credentials) (string, error) {
	if reason := schema.InsecureURL(c.sessionURL, v.api.insecure); reason != nil {
		return "", unclearError("vc-session-manager-url %s", reason)
	}
	ctx, cancel := context.WithTimeout(ctx, sharedTimeout)
	defer cancel()
	token := c.sessionToken
	if token == "" {
		text, err := os.ReadFile(serviceAccountToken)
		if err != nil {
			return "", unclearError("vc-session-manager-token is not set, and the ServiceAccount has no token: %s", err)
		}
		token = strings.TrimSpace(string(text))
	}
	r, err := http.NewRequestWithContext(withMethod(ctx, "GET session manager"), http.MethodGet, c.sessionURL, http.NoBody)
	if err != nil {
		return "", unclearError("vc-session-manager-url is not an address")
	}
	r.Header.Set("Authorization", "Bearer "+token)
	answer, err := v.api.http.Do(r)
	if err != nil {
		return "", err //nolint:wrapcheck // apiError names it
	}
	defer answer.Body.Close()
	var said struct {
		Token string `json:"token"`
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxTicket))
	if err == nil && answer.StatusCode == http.StatusOK {
		err = json.Unmarshal(body, &said)
	}
	if err != nil || said.Token == "" {
		return "", unclearError("the session manager answers HTTP %d without a token; check vc-session-manager-url", answer.StatusCode)
	}
	return said.Token, nil
}
