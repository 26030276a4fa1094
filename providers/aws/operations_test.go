package aws

import (
	"context"
	"net/http"
	"testing"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestOperations: the names of calls are those of a list. That every call is in it shows at the end of this package's tests.
func TestOperations(t *testing.T) {
	t.Parallel()
	for want, call := range map[string][2]string{
		"EC2 DescribeInstances":                           {serviceEC2, "DescribeInstances"},
		"Elastic Load Balancing v2 DescribeLoadBalancers": {serviceELBv2, "DescribeLoadBalancers"},
		"STS AssumeRole":                                  {serviceSTS, "AssumeRole"},
		"other":                                           {serviceEC2, "i-0123456789abcdef0"},
	} {
		ctx := awsmiddleware.SetServiceID(context.Background(), call[0])
		ctx = awsmiddleware.SetOperationName(ctx, call[1])
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://ec2.test/", nil)
		require.NoError(t, err)
		assert.Equal(t, want, operation(r))
	}
}
