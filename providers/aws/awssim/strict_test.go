package awssim_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	elb "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing"
	elbtypes "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancing/types"
	elbv2 "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2"
	v2types "github.com/aws/aws-sdk-go-v2/service/elasticloadbalancingv2/types"
	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/aws/awslimits"
	"github.com/anyccm/cloud-controller-manager/providers/aws/awssim"
)

// These tests check that the simulator is as strict and as delayed as AWS. The provider's tests rely on both.

// direct is a transport to a handler, without a connection.
type direct struct{ http.Handler }

// RoundTrip implements http.RoundTripper.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		r.Body = http.NoBody
	}
	answer := httptest.NewRecorder()
	d.ServeHTTP(answer, r)
	return answer.Result(), nil
}

const (
	firstPublic  = "subnet-00000000000000a0"
	secondPublic = "subnet-00000000000000a2"
	certificate  = "arn:aws:acm:us-east-1:123456789012:certificate/one"
	policy       = "ELBSecurityPolicy-TLS13-1-2-2021-06"
)

// region is a simulated region with the SDK's own clients.
type region struct {
	*awssim.Sim

	classic *elb.Client
	network *elbv2.Client
}

func newRegion(o awssim.Options) *region {
	sim, server := awssim.New(o)
	c := aws.Config{
		Region: awssim.Region, BaseEndpoint: aws.String("http://sim"), HTTPClient: &http.Client{Transport: direct{server}}, RetryMaxAttempts: 1,
		Credentials: credentials.NewStaticCredentialsProvider(awssim.Key, "secret", ""),
	}
	return &region{sim, elb.NewFromConfig(c), elbv2.NewFromConfig(c)}
}

// requireRefused demands an error of AWS's with this code.
func requireRefused(t *testing.T, err error, code string, why string) {
	t.Helper()
	var refusal smithy.APIError
	require.ErrorAs(t, err, &refusal, why)
	assert.Equal(t, code, refusal.ErrorCode(), why)
}

// TestListsAreInAnyOrder: what AWS lists without saying in which order comes in this order and in that.
func TestListsAreInAnyOrder(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(awssim.Options{}), t.Context()
	r.AddGroup(awssim.Group{ID: "sg-0000000000000eef0", Name: "extra"})
	for _, name := range []string{"one", "two"} {
		_, err := r.classic.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			LoadBalancerName: aws.String(name), Subnets: []string{firstPublic, secondPublic}, SecurityGroups: []string{awssim.NodeGroup, "sg-0000000000000eef0"},
			Listeners: []elbtypes.Listener{
				{Protocol: aws.String("TCP"), LoadBalancerPort: 80, InstancePort: aws.Int32(30080)},
				{Protocol: aws.String("TCP"), LoadBalancerPort: 81, InstancePort: aws.Int32(30081)},
			},
		})
		require.NoError(t, err)
	}
	seen := map[string][]string{}
	see := func(list, what string) {
		if !slices.Contains(seen[list], what) {
			seen[list] = append(seen[list], what)
		}
	}
	for range 40 { // both orders of two, but for one run in 2^39; the dice fall alike in every run
		out, err := r.classic.DescribeLoadBalancers(ctx, &elb.DescribeLoadBalancersInput{})
		require.NoError(t, err)
		require.Len(t, out.LoadBalancerDescriptions, 2)
		lb := out.LoadBalancerDescriptions[0]
		see("load balancers", *lb.LoadBalancerName)
		see("security groups", lb.SecurityGroups[0])
		see("subnets", lb.Subnets[0])
		see("listeners", strconv.Itoa(int(lb.ListenerDescriptions[0].Listener.LoadBalancerPort)))
	}
	for _, list := range []string{"load balancers", "security groups", "subnets", "listeners"} {
		assert.Len(t, seen[list], 2, "the first of two %s", list)
	}
}

// createServed is a network load balancer with a listener and its target group.
func (r *region) createServed(t *testing.T) (loadBalancer, targetGroup, listener string) {
	t.Helper()
	ctx := t.Context()
	made, err := r.network.CreateLoadBalancer(ctx, &elbv2.CreateLoadBalancerInput{
		Name: aws.String("web"), Type: v2types.LoadBalancerTypeEnumNetwork, Subnets: []string{firstPublic},
	})
	require.NoError(t, err)
	loadBalancer = *made.LoadBalancers[0].LoadBalancerArn
	group, err := r.network.CreateTargetGroup(ctx, targets("web", nil, nil))
	require.NoError(t, err)
	targetGroup = *group.TargetGroups[0].TargetGroupArn
	listening, err := r.network.CreateListener(ctx, &elbv2.CreateListenerInput{
		LoadBalancerArn: &loadBalancer, Port: aws.Int32(443), Protocol: v2types.ProtocolEnumTcp, DefaultActions: forward(targetGroup),
	})
	require.NoError(t, err)
	return loadBalancer, targetGroup, *listening.Listeners[0].ListenerArn
}

func targets(name string, interval, timeout *int32) *elbv2.CreateTargetGroupInput {
	return &elbv2.CreateTargetGroupInput{
		Name: &name, Protocol: v2types.ProtocolEnumTcp, Port: aws.Int32(30443), VpcId: aws.String(awssim.VPC),
		HealthCheckIntervalSeconds: interval, HealthCheckTimeoutSeconds: timeout,
	}
}

func forward(targetGroup string) []v2types.Action {
	return []v2types.Action{{Type: v2types.ActionTypeEnumForward, TargetGroupArn: &targetGroup}}
}

// TestTargetGroupsShowWhatIsDeleted: a target group shows its load balancer for a while after that is gone, and cannot be deleted
// for as long.
func TestTargetGroupsShowWhatIsDeleted(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r, ctx := newRegion(awssim.Options{Release: 10 * time.Second}), t.Context()
		loadBalancer, group, _ := r.createServed(t)
		_, err := r.network.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &group})
		requireRefused(t, err, "ResourceInUse", "a listener sends to it")
		_, err = r.network.DeleteLoadBalancer(ctx, &elbv2.DeleteLoadBalancerInput{LoadBalancerArn: &loadBalancer})
		require.NoError(t, err)
		_, err = r.network.DescribeLoadBalancers(ctx, &elbv2.DescribeLoadBalancersInput{LoadBalancerArns: []string{loadBalancer}})
		requireRefused(t, err, "LoadBalancerNotFound", "the load balancer itself is gone")
		for range 2 {
			out, err := r.network.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{TargetGroupArns: []string{group}})
			require.NoError(t, err)
			assert.Equal(t, []string{loadBalancer}, out.TargetGroups[0].LoadBalancerArns, "it still shows the load balancer that is gone")
			_, err = r.network.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &group})
			requireRefused(t, err, "ResourceInUse", "for as long it is in use")
			time.Sleep(9 * time.Second)
		}
		out, err := r.network.DescribeTargetGroups(ctx, &elbv2.DescribeTargetGroupsInput{TargetGroupArns: []string{group}})
		require.NoError(t, err)
		assert.Empty(t, out.TargetGroups[0].LoadBalancerArns)
		_, err = r.network.DeleteTargetGroup(ctx, &elbv2.DeleteTargetGroupInput{TargetGroupArn: &group})
		require.NoError(t, err)
	})
}

// TestIntervalsAreLongerThanTimeouts: a health check of a target group whose time-out is not shorter than its interval is refused,
// whoever chose them; the time-out that nobody gives is 10 s.
func TestIntervalsAreLongerThanTimeouts(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(awssim.Options{}), t.Context()
	for name, c := range map[string]struct {
		interval, timeout *int32
		refused           bool
	}{
		"neither":           {nil, nil, false},
		"interval-5-alone":  {aws.Int32(5), nil, true},
		"interval-10-alone": {aws.Int32(10), nil, true},
		"interval-11-alone": {aws.Int32(11), nil, false},
		"equal":             {aws.Int32(20), aws.Int32(20), true},
		"fitting":           {aws.Int32(5), aws.Int32(4), false},
		"longer":            {nil, aws.Int32(31), true},
	} {
		_, err := r.network.CreateTargetGroup(ctx, targets(name, c.interval, c.timeout))
		if c.refused {
			requireRefused(t, err, "ValidationError", name)
			continue
		}
		require.NoError(t, err, name)
	}
	_, group, _ := r.createServed(t)
	_, err := r.network.ModifyTargetGroup(ctx, &elbv2.ModifyTargetGroupInput{TargetGroupArn: &group, HealthCheckIntervalSeconds: aws.Int32(5)})
	requireRefused(t, err, "ValidationError", "the time-out that it has is 10 s")
	_, err = r.network.ModifyTargetGroup(ctx, &elbv2.ModifyTargetGroupInput{TargetGroupArn: &group, HealthCheckTimeoutSeconds: aws.Int32(30)})
	requireRefused(t, err, "ValidationError", "the interval that it has is 30 s")
}

// TestTLSNeedsAPolicy: a listener that becomes one for TLS needs its security policy said, and a certificate. Its creation has a
// default policy.
func TestTLSNeedsAPolicy(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(awssim.Options{}), t.Context()
	loadBalancer, group, listener := r.createServed(t)
	certificates := []v2types.Certificate{{CertificateArn: aws.String(certificate)}}
	_, err := r.network.ModifyListener(ctx, &elbv2.ModifyListenerInput{
		ListenerArn: &listener, Protocol: v2types.ProtocolEnumTls, Certificates: certificates,
	})
	requireRefused(t, err, "ValidationError", "without a security policy")
	_, err = r.network.ModifyListener(ctx, &elbv2.ModifyListenerInput{
		ListenerArn: &listener, Protocol: v2types.ProtocolEnumTls, SslPolicy: aws.String(policy),
	})
	requireRefused(t, err, "ValidationError", "without a certificate")
	assert.Equal(t, "TCP", r.Listeners()[0].Protocol, "what is refused changes nothing")
	_, err = r.network.ModifyListener(ctx, &elbv2.ModifyListenerInput{
		ListenerArn: &listener, Protocol: v2types.ProtocolEnumTls, SslPolicy: aws.String(policy), Certificates: certificates,
	})
	require.NoError(t, err)
	out, err := r.network.CreateListener(ctx, &elbv2.CreateListenerInput{
		LoadBalancerArn: &loadBalancer, Port: aws.Int32(8443), Protocol: v2types.ProtocolEnumTls, Certificates: certificates,
		DefaultActions: forward(group),
	})
	require.NoError(t, err)
	assert.NotEmpty(t, *out.Listeners[0].SslPolicy)
}

// TestTextsOfLoadBalancers: both APIs of load balancers refuse characters in tags that EC2 takes, and ELBv2 long values of attributes.
func TestTextsOfLoadBalancers(t *testing.T) {
	t.Parallel()
	r, ctx := newRegion(awssim.Options{}), t.Context()
	arn, _, _ := r.createServed(t)
	for value, refused := range map[string]bool{"Größe 1_2.3:4/5=6+7-8@9": false, "a&b": true, "a*": true} {
		_, network := r.network.AddTags(ctx, &elbv2.AddTagsInput{
			ResourceArns: []string{arn}, Tags: []v2types.Tag{{Key: aws.String("team"), Value: &value}},
		})
		_, classic := r.classic.CreateLoadBalancer(ctx, &elb.CreateLoadBalancerInput{
			LoadBalancerName: aws.String("web"), Subnets: []string{firstPublic},
			Tags: []elbtypes.Tag{{Key: aws.String("team"), Value: &value}},
			Listeners: []elbtypes.Listener{{
				Protocol: aws.String("TCP"), InstanceProtocol: aws.String("TCP"), LoadBalancerPort: 80, InstancePort: aws.Int32(30080),
			}},
		})
		for _, err := range []error{network, classic} {
			if refused {
				requireRefused(t, err, "ValidationError", value)
				continue
			}
			require.NoError(t, err, value)
		}
	}
	for n, refused := range map[int]bool{awslimits.AttributeValue.Max: false, awslimits.AttributeValue.Max + 1: true} {
		_, err := r.network.ModifyLoadBalancerAttributes(ctx, &elbv2.ModifyLoadBalancerAttributesInput{
			LoadBalancerArn: &arn, Attributes: []v2types.LoadBalancerAttribute{
				{Key: aws.String("access_logs.s3.prefix"), Value: aws.String(strings.Repeat("p", n))},
			},
		})
		if refused {
			requireRefused(t, err, "ValidationError", "a long prefix")
			continue
		}
		require.NoError(t, err)
	}
}
