package linode

import (
	"context"
	"testing"

	"github.com/linode/linodego"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
)

// TestRedirects: the SDK's client, as the provider makes it, follows none; nor does the SDK's own request path.
func TestRedirects(t *testing.T) {
	t.Parallel()
	conformance.Redirects(t, testToken, func(t *testing.T, url string) map[string]func(context.Context) error {
		t.Helper()
		c, err := newCloud(testInputs(url, nil, nil))
		require.NoError(t, err)
		a := c.api
		return map[string]func(context.Context) error{
			"reading": func(ctx context.Context) error { _, err := a.nodeBalancer(ctx, 7); return err },
			"listing": func(ctx context.Context) error { _, _, err := a.nodeBalancers(ctx); return err },
			"creating": func(ctx context.Context) error {
				_, err := a.createNodeBalancer(ctx, &nodeBalancerRequest{Label: "x"})
				return err
			},
			"deleting": func(ctx context.Context) error { return a.deleteNodeBalancer(ctx, 7) },
			"attaching": func(ctx context.Context) error {
				return do(ctx, "attaching", func(ctx context.Context) error {
					_, err := a.sdk.CreateFirewallDevice(ctx, 7, linodego.FirewallDeviceCreateOptions{ID: 8, Type: deviceNodeBalancer})
					return err
				})
			},
		}
	})
}
