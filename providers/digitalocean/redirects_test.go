package digitalocean

import (
	"context"
	"testing"

	"github.com/digitalocean/godo"
	"github.com/stretchr/testify/require"

	"github.com/anyccm/cloud-controller-manager/providers/kit/conformance"
	"github.com/anyccm/cloud-controller-manager/registry/priority"
)

// TestRedirects: the SDK's client, as the provider makes it, follows none.
func TestRedirects(t *testing.T) {
	t.Parallel()
	conformance.Redirects(t, testToken, func(t *testing.T, url string) map[string]func(context.Context) error {
		t.Helper()
		c, err := newCloud(testInputs(url, nil))
		require.NoError(t, err)
		a := c.api
		return map[string]func(context.Context) error{
			"reading": func(ctx context.Context) error {
				_, err := a.loadBalancer(ctx, "4de7ac8b-495b-4884-9a69-1050c6793cd6")
				return err
			},
			"listing": func(ctx context.Context) error {
				_, _, err := a.loadBalancers(ctx, 0, identity)
				return err
			},
			"creating": func(ctx context.Context) error {
				_, err := a.createLoadBalancer(ctx, &godo.LoadBalancerRequest{Name: "x"})
				return err
			},
			"deleting": func(ctx context.Context) error {
				return a.deleteLoadBalancer(ctx, "4de7ac8b-495b-4884-9a69-1050c6793cd6")
			},
			"urgently": func(ctx context.Context) error { _, _, err := a.certificates(priority.Urgent(ctx)); return err },
		}
	})
}
