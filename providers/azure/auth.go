package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore"
	azcloud "github.com/Azure/azure-sdk-for-go/sdk/azcore/cloud"
	"github.com/Azure/azure-sdk-for-go/sdk/azcore/policy"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/providers/kit/session"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// environment holds the endpoints of one Azure cloud.
type environment struct {
	name, endpoint, authority, audience string
	// described is set where the endpoint itself says where tokens come from.
	described bool
}

// clouds are the names that a configuration may have.
func clouds() []string {
	return []string{"AzureCloud", "AzurePublicCloud", "AzureChinaCloud", "AzureUSGovernment", "AzureUSGovernmentCloud", "AZURESTACKCLOUD"}
}

// cloudOf returns the cloud of a name. A configured endpoint describes itself.
func cloudOf(name, endpoint string) environment {
	at := environment{"AzureCloud", "https://management.azure.com", "https://login.microsoftonline.com/", "https://management.azure.com", false}
	switch strings.ToLower(name) {
	case "azurechinacloud":
		at = environment{"AzureChinaCloud", "https://management.chinacloudapi.cn", "https://login.chinacloudapi.cn/", "https://management.chinacloudapi.cn", false}
	case "azureusgovernment", "azureusgovernmentcloud":
		at = environment{"AzureUSGovernment", "https://management.usgovcloudapi.net", "https://login.microsoftonline.us/", "https://management.usgovcloudapi.net", false}
	}
	if endpoint != "" {
		at.endpoint, at.described = strings.TrimSuffix(endpoint, "/"), true
	}
	return at
}

// identity gets tokens.
type identity struct {
	config    Config
	transport *authority
	// audience is that of the latest token.
	audience string
}

// authority sends the calls for tokens. The SDK insists on TLS; plainHost is a host, such as a loopback address, that is called without.
type authority struct {
	http      *cloudapi.Client
	plainHost string
}

// Do implements policy.Transporter.
func (a *authority) Do(r *http.Request) (*http.Response, error) {
	if a.plainHost != "" && r.URL.Scheme == "https" && r.URL.Host == a.plainHost {
		r.URL.Scheme = "http"
	}
	return a.http.Do(r) //nolint:gosec // the host is that of the cloud config, or of its description of itself
}

// renewBefore is how long before its end a token is renewed.
const renewBefore = 5 * time.Minute

// fetch requests a token.
func (i *identity) fetch(ctx context.Context) (token string, expires time.Time, err error) {
	ctx, last := cloudapi.RecordLastResponse(ctx)
	credential, err := i.prepare(ctx)
	if err != nil {
		return "", time.Time{}, err
	}
	fetched, err := credential.GetToken(ctx, policy.TokenRequestOptions{Scopes: []string{i.audience + "/.default"}})
	if err != nil {
		return "", time.Time{}, tokenError(err, last)
	}
	return fetched.Token, fetched.ExpiresOn, nil
}

// tokenError maps a failure to get a token.
func tokenError(err error, last *cloudapi.LastResponse) error {
	const what = "getting a token"
	if described, ok := errors.AsType[*cloudapi.Error](err); ok {
		return cloudapi.Describe(described, what)
	}
	answer, failed := last.Last()
	mapped := &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: firstLine(err)}
	switch {
	case failed != nil:
		mapped.Message = firstLine(failed)
	case answer != nil && answer.Status >= http.StatusBadRequest:
		mapped.Class, mapped.Status = cloudapi.ClassOfStatus(answer.Status), answer.Status
		if answer.Status < http.StatusInternalServerError && answer.Status != http.StatusTooManyRequests {
			mapped.Class = cloudapi.ErrUnauthorized
		}
		mapped.RetryAfter = cloudapi.ParseRetryAfter(answer.Header, time.Now())
		mapped.Message = refusalText(err)
	}
	return mapped
}

// refusalText returns Entra's own description of a refusal.
func refusalText(err error) string {
	failure, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failure.RawResponse == nil {
		return firstLine(err)
	}
	body, _ := io.ReadAll(failure.RawResponse.Body)
	var answer struct {
		Description string `json:"error_description"`
	}
	if json.Unmarshal(body, &answer) == nil && answer.Description != "" {
		line, _, _ := strings.Cut(answer.Description, "\n")
		return strings.TrimSpace(line)
	}
	return "the request for a token was refused"
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// prepare makes the credential, after it has asked a described cloud where tokens come from.
func (i *identity) prepare(ctx context.Context) (azcore.TokenCredential, error) {
	at := i.config.cloud
	if at.described {
		var err error
		if at, err = i.describe(ctx, at); err != nil {
			return nil, err
		}
	}
	base, err := url.Parse(at.authority)
	if err != nil || base.Host == "" {
		return nil, fmt.Errorf("the address %q for tokens is not legal", at.authority)
	}
	if err := schema.InsecureURL(at.authority, i.config.Insecure); err != nil {
		return nil, fmt.Errorf("the address %q for tokens: %w", at.authority, err)
	}
	i.transport.plainHost = ""
	if base.Scheme == "http" {
		base.Scheme, i.transport.plainHost = "https", base.Host
	}
	options := azcore.ClientOptions{
		Cloud:     azcloud.Configuration{ActiveDirectoryAuthorityHost: base.String()},
		Transport: i.transport, Retry: policy.RetryOptions{MaxRetries: -1}, Telemetry: policy.TelemetryOptions{Disabled: true},
	}
	i.audience = strings.TrimSuffix(at.audience, "/")
	return i.config.credential(options, at.described, i.config.currentSecret())
}

// describe asks for the description of a cloud.
func (i *identity) describe(ctx context.Context, at environment) (environment, error) {
	const what = "reading the description of the cloud"
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, at.endpoint+"/metadata/endpoints?api-version=2019-05-01", http.NoBody)
	if err != nil {
		return at, fmt.Errorf("%s: %w", what, err)
	}
	answer, err := i.transport.http.Do(r)
	if err != nil {
		return at, cloudapi.Describe(err, what)
	}
	defer answer.Body.Close()
	var list []struct {
		Name           string `json:"name"`
		Authentication struct {
			Login     string   `json:"loginEndpoint"`
			Audiences []string `json:"audiences"`
		} `json:"authentication"`
	}
	if err := read(answer, what, &list); err != nil {
		return at, err
	}
	for _, c := range list {
		if strings.EqualFold(c.Name, at.name) && len(c.Authentication.Audiences) > 0 {
			at.authority, at.audience = c.Authentication.Login, c.Authentication.Audiences[0]
			return at, nil
		}
	}
	return at, &cloudapi.Error{Class: cloudapi.ErrTransient, Operation: what, Message: "it has no cloud " + at.name + "; check cloud and resourceManagerEndpoint"}
}

// credential makes the SDK's credential, in the order of Azure's own controller.
func (c *Config) credential(options azcore.ClientOptions, described bool, secret string) (azcore.TokenCredential, error) {
	switch {
	case c.Federated:
		return azidentity.NewWorkloadIdentityCredential(&azidentity.WorkloadIdentityCredentialOptions{
			ClientOptions: options, ClientID: c.ClientID, TenantID: c.Tenant, TokenFilePath: c.FederatedFile, DisableInstanceDiscovery: described,
		})
	case c.ManagedIdentity:
		managed := &azidentity.ManagedIdentityCredentialOptions{ClientOptions: options}
		switch {
		case strings.Contains(strings.ToLower(c.UserIdentity), "/subscriptions/"):
			managed.ID = azidentity.ResourceID(c.UserIdentity)
		case c.UserIdentity != "":
			managed.ID = azidentity.ClientID(c.UserIdentity)
		}
		return azidentity.NewManagedIdentityCredential(managed)
	case secret != "":
		return azidentity.NewClientSecretCredential(c.Tenant, c.ClientID, secret, &azidentity.ClientSecretCredentialOptions{
			ClientOptions: options, DisableInstanceDiscovery: described,
		})
	}
	data, err := os.ReadFile(c.CertPath)
	if err != nil {
		return nil, fmt.Errorf("aadClientCertPath: %w", err)
	}
	certificates, key, err := azidentity.ParseCertificates(data, []byte(c.CertPassword.Reveal()))
	if err != nil {
		return nil, errors.New("aadClientCertPath: the file holds no certificate and key, or aadClientCertPassword does not open it")
	}
	return azidentity.NewClientCertificateCredential(c.Tenant, c.ClientID, certificates, key, &azidentity.ClientCertificateCredentialOptions{
		ClientOptions: options, SendCertificateChain: true, DisableInstanceDiscovery: described,
	})
}

// currentSecret returns the present secret, because the file may have changed since the start.
func (c *Config) currentSecret() string {
	if c.file != "" {
		if data, err := os.ReadFile(c.file); err == nil {
			if keys, _, err := readFile(data); err == nil && keys["aadClientSecret"] != "" {
				return keys["aadClientSecret"]
			}
		}
	}
	return c.ClientSecret.Reveal()
}

// bearer puts the token into requests, and gets another one where it is refused.
type bearer struct{ tokens session.Tokens[string] }

// Do implements policy.Policy.
func (b *bearer) Do(r *policy.Request) (*http.Response, error) {
	token, err := b.tokens.Get(r.Raw().Context(), "")
	if err != nil {
		return nil, err
	}
	r.Raw().Header.Set("Authorization", "Bearer "+token)
	answer, err := r.Next()
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	again, err := b.tokens.Get(r.Raw().Context(), token)
	if err != nil {
		return nil, err
	}
	if again == token {
		return answer, nil
	}
	if err := r.RewindBody(); err != nil {
		return nil, err
	}
	r.Raw().Header.Set("Authorization", "Bearer "+again)
	return r.Next()
}
