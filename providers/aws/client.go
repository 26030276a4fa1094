package aws

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/arn"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/keylock"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const (
	// requestTimeout bounds one attempt at a call; a page of 1,000 instances takes a few seconds.
	requestTimeout = 30 * time.Second
	// identifyPause is how long a failure to find out where we are is believed.
	identifyPause = 3 * time.Second
)

// api is the part of AWS's APIs that is used, in the common vocabulary of errors.
type api struct {
	config  Config
	version string
	// insecure is set if the operator allows endpoints without TLS.
	insecure bool
	// dial is nil for the system's network.
	dial cloudapi.DialFunc
	http *cloudapi.Client

	// once keeps the identity from being looked for by everybody at the same time.
	once keylock.Locks

	mu       sync.Mutex
	clients  *clients
	identity *identity
	failedAt time.Time
	failure  error
}

// clients are the SDK's clients of one region.
type clients struct {
	ec2   *ec2.Client
	elb   *elb.Client
	elbv2 *elbv2.Client
}

// limitsFunc returns how often calls may be sent.
type limitsFunc func(*http.Request) (group string, limits []cloudapi.Limit)

func newAPI(c Config, in registry.Inputs, limits limitsFunc) (*api, error) {
	transport, err := newTransport(c, in.Dial)
	if err != nil {
		return nil, err
	}
	registerMetrics()
	a := &api{config: c, version: in.Version, insecure: in.AllowInsecureEndpoints, dial: in.Dial}
	a.http = cloudapi.NewClient(cloudapi.Config{
		Provider: Name, UserAgent: "anyccm/" + in.Version, Operation: operation, Timeout: requestTimeout, Transport: transport,
		LimitsOf: limits, Repeatable: repeatable, ClassOf: answerClass,
	})
	return a, nil
}

func newTransport(c Config, dial cloudapi.DialFunc) (http.RoundTripper, error) {
	t := cloudapi.NewTransport(dial)
	if c.CABundle != "" {
		data, err := os.ReadFile(c.CABundle)
		if err != nil {
			return nil, fmt.Errorf("reading AWS_CA_BUNDLE: %w", err)
		}
		roots := x509.NewCertPool()
		if !roots.AppendCertsFromPEM(data) {
			return nil, fmt.Errorf("AWS_CA_BUNDLE %s holds no certificate in PEM form", c.CABundle)
		}
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: roots}
	}
	return t, nil
}

// action is the name of a call as the SDK has it, and of its service.
func action(r *http.Request) (service, name string) {
	return awsmiddleware.GetServiceID(r.Context()), awsmiddleware.GetOperationName(r.Context())
}

// operation names a call for metrics and logs: by a name of the list, so that no input makes metrics grow.
func operation(r *http.Request) string {
	service, name := action(r)
	if name = service + " " + name; !operations()[name] {
		return cloudapi.OtherOperation
	}
	return name
}

// operations are the names of all calls: those in the permissions, and those that find the credential and the region, which need no
// permission.
var operations = sync.OnceValue(func() map[string]bool {
	services := map[string][]string{"ec2": {serviceEC2}, "elasticloadbalancing": {serviceELB, serviceELBv2}, "sts": {serviceSTS}}
	known := map[string]bool{}
	for _, p := range permissions() {
		for _, need := range p.Needs {
			prefix, name, _ := strings.Cut(need, ":")
			for _, service := range services[prefix] {
				known[service+" "+name] = true
			}
		}
	}
	for _, name := range []string{"GetToken", "GetMetadata", "GetDynamicData", "GetRegion", "GetInstanceIdentityDocument", "GetIAMInfo"} {
		known[serviceMetadata+" "+name] = true
	}
	for _, name := range []string{"AssumeRoleWithWebIdentity", "GetCallerIdentity"} {
		known[serviceSTS+" "+name] = true
	}
	return known
})

// repeatable: what creates is not sent twice, everything else ends in the same state however often it is sent.
func repeatable(r *http.Request) bool {
	_, name := action(r)
	return !strings.HasPrefix(name, "Create") && !strings.HasPrefix(name, "Authorize") && !strings.HasPrefix(name, "Revoke")
}

// The buckets are those that EC2's API reference publishes under "Request throttling", and about what Elastic Load
// Balancing allows; an account may have others, so refusals slow them down.
func limitsOf(r *http.Request) (group string, limits []cloudapi.Limit) {
	service, name := action(r)
	read := strings.HasPrefix(name, "Describe")
	switch {
	case service == serviceEC2 && read:
		return "EC2 reads", []cloudapi.Limit{{PerSecond: 20, Burst: 100, Floor: 0.5}}
	case service == serviceEC2:
		return "EC2 writes", []cloudapi.Limit{{PerSecond: 5, Burst: 50, Floor: 0.5}}
	case service == serviceSTS:
		return "STS", []cloudapi.Limit{{PerSecond: 1, Burst: 10, Floor: 0.1}}
	case read:
		return service + " reads", []cloudapi.Limit{{PerSecond: 10, Burst: 40, Floor: 0.5}}
	}
	return service + " writes", []cloudapi.Limit{{PerSecond: 10, Burst: 40, Floor: 0.5}}
}

// sdkHTTP is the HTTP client of the SDK. It makes requests repeatable and refuses foreign answers: the SDK decodes any XML without
// complaint, so an unrelated document would look like an empty answer.
type sdkHTTP struct {
	client *http.Client
	// insecure is set if the operator allows endpoints without TLS.
	insecure bool
}

// Do implements the SDK's HTTPClient.
func (h sdkHTTP) Do(r *http.Request) (*http.Response, error) {
	if reason := schema.InsecureURL(cloudapi.HostOf(r.URL.String()), h.insecure); reason != nil { // the SDK's files may name endpoints
		return nil, &cloudapi.Error{Class: cloudapi.ErrInvalid, Message: fmt.Sprintf("the endpoint %s %s", cloudapi.HostOf(r.URL.String()), reason)}
	}
	if r.Body != nil && r.Body != http.NoBody {
		data, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, fmt.Errorf("reading the request: %w", err)
		}
		r.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil }
		r.Body, _ = r.GetBody()
		r.ContentLength = int64(len(data))
	}
	resp, err := h.client.Do(r) //nolint:gosec // the endpoint is the SDK's, or the operator's choice
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	resp.Body = io.NopCloser(bytes.NewReader(data))
	_, name := action(r)
	root := rootOf(data)
	if (resp.StatusCode < http.StatusMultipleChoices && root != name+"Response") ||
		(resp.StatusCode >= http.StatusMultipleChoices && root != "Response" && root != "ErrorResponse") {
		return nil, &cloudapi.Error{
			Class: cloudapi.ErrTransient, Status: resp.StatusCode,
			Message: "an answer that is not from AWS; check the endpoint, and proxies",
		}
	}
	return resp, nil
}

// sdkConfig returns the configuration of all the SDK's clients. The transport retries, because it knows the limits. Credential providers
// were created before and keep the SDK's own transport and retries.
func (a *api) sdkConfig(ctx context.Context, region string) (aws.Config, error) {
	loaded, err := a.loadConfig(ctx, region)
	loaded.HTTPClient, loaded.Retryer = sdkHTTP{a.http.Client, a.insecure}, func() aws.Retryer { return aws.NopRetryer{} }
	return loaded, err
}

// loadConfig reads the settings of the SDK: the environment and the shared files.
func (a *api) loadConfig(ctx context.Context, region string) (aws.Config, error) {
	options := []func(*config.LoadOptions) error{
		config.WithRegion(region), config.WithAPIOptions([]func(*middleware.Stack) error{awsmiddleware.AddUserAgentKeyValue("anyccm", a.version)}),
	}
	add := func(given bool, o config.LoadOptionsFunc) {
		if given {
			options = append(options, o)
		}
	}
	c := a.config
	add(!c.AccessKeyID.IsZero(), config.WithCredentialsProvider(keyPair{c}))
	add(c.Profile != "", config.WithSharedConfigProfile(c.Profile))
	add(c.ConfigFile != "", config.WithSharedConfigFiles([]string{c.ConfigFile}))
	add(c.CredentialsFile != "", config.WithSharedCredentialsFiles([]string{c.CredentialsFile}))
	add(c.MetadataDisabled, config.WithEC2IMDSClientEnableState(imds.ClientDisabled))
	add(c.MetadataEndpoint != "", config.WithEC2IMDSEndpoint(c.MetadataEndpoint))
	options = append(options, config.WithHTTPClient(credentialsHTTP()))
	add(c.CABundle != "", config.WithCustomCABundle(caBundle(c.CABundle)))
	loaded, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Config{}, fmt.Errorf("reading the settings of the SDK: %w", err)
	}
	return loaded, nil
}

// caBundle is the file that AWS_CA_BUNDLE names, for the SDK's own calls for credentials.
func caBundle(path string) io.Reader {
	data, err := os.ReadFile(path)
	if err != nil {
		return strings.NewReader("") // newTransport has read it before
	}
	return bytes.NewReader(data)
}

// credentialsHTTP is the SDK's client for fetching credentials. By default it would follow redirects with the web identity's token in the
// request. The SDK insists on its own client type, which looks up the proxy before it sends.
func credentialsHTTP() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(func(t *http.Transport) {
		proxy := t.Proxy
		t.Proxy = func(r *http.Request) (*url.URL, error) {
			if r.Response != nil && r.Response.Request != nil {
				return nil, cloudapi.Redirected(r.Response.Request, r.Response)
			}
			if proxy == nil {
				return nil, nil // no proxy
			}
			return proxy(r)
		}
	})
}

// keyPair gives the access key of the environment or its files, as they are now.
type keyPair struct{ c Config }

// Retrieve implements aws.CredentialsProvider.
func (k keyPair) Retrieve(context.Context) (aws.Credentials, error) {
	return aws.Credentials{
		AccessKeyID: k.c.AccessKeyID.Reveal(), SecretAccessKey: k.c.SecretAccessKey.Reveal(), SessionToken: k.c.SessionToken.Reveal(),
		Source: "environment", CanExpire: true, Expires: time.Now().Add(keyPairMaxAge),
	}, nil
}

// keyPairMaxAge is how long a rotated access key goes unnoticed.
const keyPairMaxAge = 10 * time.Second

// newClients makes the SDK's clients for a region.
func (a *api) newClients(ctx context.Context, region string) (*clients, error) {
	base, err := a.sdkConfig(ctx, region)
	if err != nil {
		return nil, err
	}
	if a.config.RoleARN != "" {
		base.Credentials = aws.NewCredentialsCache(a.assumedRole(base, region))
	}
	ec2At := a.config.endpointOf(serviceEC2, region, cmp.Or(a.config.EndpointEC2, a.config.Endpoint))
	elbAt := a.config.endpointOf(serviceELB, region, cmp.Or(a.config.EndpointELB, a.config.Endpoint))
	elbv2At := a.config.endpointOf(serviceELBv2, region, cmp.Or(a.config.EndpointELBv2, a.config.Endpoint))
	return &clients{
		ec2: ec2.NewFromConfig(base, func(o *ec2.Options) {
			setEndpoint(ec2At, o, &o.BaseEndpoint, ec2.WithSigV4SigningRegion, ec2.WithSigV4SigningName)
		}),
		elb: elb.NewFromConfig(base, func(o *elb.Options) {
			setEndpoint(elbAt, o, &o.BaseEndpoint, elb.WithSigV4SigningRegion, elb.WithSigV4SigningName)
		}),
		elbv2: elbv2.NewFromConfig(base, func(o *elbv2.Options) {
			setEndpoint(elbv2At, o, &o.BaseEndpoint, elbv2.WithSigV4SigningRegion, elbv2.WithSigV4SigningName)
		}),
	}, nil
}

// setEndpoint sends a client's calls to an endpoint, and signs for it. Without one the SDK's own settings stand, such as endpoint_url and
// services of the shared config file.
func setEndpoint[O any](at override, options *O, endpoint **string, signingRegion, signingName func(string) func(*O)) {
	if at.URL != "" {
		*endpoint = aws.String(at.URL)
	}
	if at.SigningRegion != "" {
		signingRegion(at.SigningRegion)(options)
	}
	if at.SigningName != "" {
		signingName(at.SigningName)(options)
	}
}

func nilIfEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// assumedRole gives credentials of the role, with the headers that guard against a confused deputy.
func (a *api) assumedRole(base aws.Config, region string) aws.CredentialsProvider {
	role, _ := arn.Parse(a.config.RoleARN) // the table has checked it
	client := sts.NewFromConfig(base, func(o *sts.Options) {
		at := a.config.endpointOf(serviceSTS, region, cmp.Or(a.config.EndpointSTS, a.config.Endpoint))
		setEndpoint(at, o, &o.BaseEndpoint, sts.WithSigV4SigningRegion, sts.WithSigV4SigningName)
		o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
			return stack.Build.Add(middleware.BuildMiddlewareFunc("SourceHeaders", func(
				ctx context.Context, in middleware.BuildInput, next middleware.BuildHandler,
			) (middleware.BuildOutput, middleware.Metadata, error) {
				if r, ok := in.Request.(*smithyhttp.Request); ok {
					r.Header.Set("x-amz-source-account", role.AccountID)
					if a.config.SourceARN != "" {
						r.Header.Set("x-amz-source-arn", a.config.SourceARN)
					}
				}
				return next.HandleBuild(ctx, in)
			}), middleware.After)
		})
	})
	return stscreds.NewAssumeRoleProvider(client, a.config.RoleARN)
}

// client is one of the SDK's clients.
type client interface {
	*ec2.Client | *elb.Client | *elbv2.Client
}

// clientOf returns the client of a type.
func clientOf[C client](c *clients) (found C) {
	for _, client := range []any{c.ec2, c.elb, c.elbv2} {
		if typed, ok := client.(C); ok {
			found = typed
		}
	}
	return found
}

// call carries out one operation of the SDK and describes its failure.
func call[C client, Option, In, Out any](
	ctx context.Context, a *api, what string, do func(C, context.Context, *In, ...func(*Option)) (*Out, error), in *In,
) (*Out, error) {
	c, _, err := a.connect(ctx)
	if err != nil {
		return nil, err
	}
	return callWith(ctx, c, what, do, in)
}

// callWith is call before the identity is known.
func callWith[C client, Option, In, Out any](
	ctx context.Context, c *clients, what string, do func(C, context.Context, *In, ...func(*Option)) (*Out, error), in *In,
) (*Out, error) {
	ctx, last := cloudapi.RecordLastResponse(ctx)
	began := time.Now()
	out, err := do(clientOf[C](c), ctx, in)
	countCall(last, began, err)
	return out, apiError(err, last, what)
}

// errIncomplete is the answer to a page that says less than it must.
var errIncomplete = errors.New("an incomplete answer")
