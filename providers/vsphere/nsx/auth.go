package nsx

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

const (
	// secretMaxAge is how long a change of the Secret is unnoticed while NSX accepts the former content.
	secretMaxAge = 30 * time.Second
	// tokenMargin is how long before its end a token of VMware Cloud is renewed, and tokenLife the default lifetime.
	tokenMargin = 2 * time.Minute
	tokenLife   = 20 * time.Minute
	// failedHold is how long a failed token exchange is not retried.
	failedHold = 3 * time.Second
)

// authorizer holds the current credential of NSX. Certificates are in the transport; others become a header.
type authorizer struct {
	config managerConfig
	// exchange makes the calls that get a token of VMware Cloud.
	exchange *cloudapi.Client

	mu   sync.Mutex
	kube kubernetes.Interface
	// header is the value of the header Authorization; "" if there is none.
	header string
	// until is when header must be renewed.
	until time.Time
	// failure is why that failed last, at failed.
	failure error
	failed  time.Time
}

// errNoSecret: without its Secret there is no credential, and an empty one would count as a failed login.
var errNoSecret = errors.New("the Secret with NSX's credentials cannot be read yet; nothing is asked of NSX without it")

// setClient sets the client that reads the Secret.
func (a *authorizer) setClient(kube kubernetes.Interface) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.kube = kube
}

// usesCertificate reports whether the only credential is a certificate.
func (a *authorizer) usesCertificate() bool {
	return a.config.ClientCertFile != "" && a.config.SecretName == ""
}

// ensureFresh makes sure that the credential is new enough. One call at a time fetches it.
func (a *authorizer) ensureFresh(ctx context.Context) error {
	if a.usesCertificate() {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.config.SecretName == "" && a.config.VMCAccessToken.IsZero():
		a.header = a.basicHeader(a.config.User, a.config.Password.Reveal())
		return nil
	case a.header != "" && time.Now().Before(a.until):
		return nil
	case a.failure != nil && time.Since(a.failed) < failedHold:
		return a.failure
	}
	renew := a.readSecretLocked
	if a.config.SecretName == "" {
		renew = a.renewTokenLocked
	}
	if a.failure = renew(ctx); a.failure != nil {
		a.failed = time.Now()
	}
	return a.failure
}

// expire makes the next call fetch the credential again, after a change or its end.
func (a *authorizer) expire() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.until = time.Time{}
}

// isRenewable reports whether fetching a refused credential again may give another one.
func (a *authorizer) isRenewable() bool {
	return !a.usesCertificate() && (a.config.SecretName != "" || !a.config.VMCAccessToken.IsZero())
}

// authorize adds the credential to a request.
func (a *authorizer) authorize(r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.header != "" {
		r.Header.Set("Authorization", a.header)
	}
}

// currentHeader returns the present header, for comparisons.
func (a *authorizer) currentHeader() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.header
}

func (a *authorizer) basicHeader(user, password string) string {
	scheme := "Basic "
	if a.config.RemoteAuth {
		scheme = "Remote "
	}
	return scheme + base64.StdEncoding.EncodeToString([]byte(user+":"+password))
}

func (a *authorizer) readSecretLocked(ctx context.Context) error {
	name := a.config.SecretNamespace + "/" + a.config.SecretName
	if a.kube == nil {
		return cloudapi.Describe(errNoSecret, "reading the Secret "+name)
	}
	secret, err := a.kube.CoreV1().Secrets(a.config.SecretNamespace).Get(ctx, a.config.SecretName, metav1.GetOptions{})
	if err != nil {
		if a.header != "" && !apierrors.IsNotFound(err) {
			klog.ErrorS(err, "The Secret with NSX's credentials cannot be read; those read before stay in force", "secret", name)
			a.until = time.Now().Add(secretMaxAge)
			return nil
		}
		a.header = ""
		return cloudapi.Describe(fmt.Errorf("NSX's credentials are not known: %w", err), "reading the Secret "+name)
	}
	user, password := string(secret.Data["username"]), string(secret.Data["password"])
	if user == "" || password == "" {
		a.header = ""
		return &cloudapi.Error{
			Class: cloudapi.ErrUnauthorized, Operation: "reading the Secret " + name,
			Message: "it must have the keys username and password, and neither may be empty",
		}
	}
	a.header, a.until = a.basicHeader(strings.TrimSpace(user), strings.TrimRight(password, "\r\n")), time.Now().Add(secretMaxAge)
	return nil
}

// renewTokenLocked exchanges the configured token for one that NSX accepts.
func (a *authorizer) renewTokenLocked(ctx context.Context) error {
	const doing = "getting a token of VMware Cloud"
	address := a.config.VMCAuthHost
	if !strings.Contains(address, "://") {
		address = "https://" + address
	}
	form := url.Values{"refresh_token": {a.config.VMCAccessToken.Reveal()}}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(form.Encode()))
	if err != nil {
		return fmt.Errorf("%s: vmcAuthHost: %w", doing, err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	answer, err := a.exchange.Do(r)
	if err != nil {
		return cloudapi.Describe(err, doing)
	}
	defer answer.Body.Close()
	var token struct {
		AccessToken string `json:"access_token"`
		ExpiresIn   int    `json:"expires_in"`
	}
	if err := readAnswer(answer, doing, &token); err != nil {
		return err
	}
	if token.AccessToken == "" {
		return &cloudapi.Error{Class: cloudapi.ErrUnauthorized, Operation: doing, Message: "the answer has no access_token; check vmcAccessToken"}
	}
	life := time.Duration(token.ExpiresIn) * time.Second
	if life <= tokenMargin {
		life = max(life, tokenLife)
	}
	a.header, a.until = "Bearer "+token.AccessToken, time.Now().Add(life-tokenMargin)
	return nil
}
