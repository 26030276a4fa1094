package e2e

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestChartInstallation: the chart is installed, upgraded and uninstalled on a real API server, which validates every
// object strictly; the upgrade changes the running set-up, and nothing is left at the end.
func TestChartInstallation(t *testing.T) {
	c := newCluster(t, "--instances=1")
	everything := harness.Values{
		"kind": "Deployment", "networkPolicy.enabled": true, "metrics.dashboard.enabled": true, "admissionPolicy.enabled": true, "loadBalancerClassMode": "named", "loadBalancerClass": "example.com/lb",
		"podAnnotations": map[string]string{"a": "b"}, "podLabels": map[string]string{"c": "d"}, "extraArgs": []string{"--node-deletion-dry-run"},
	}
	_, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	objects, err := c.Install(t.Context(), "extra", everything)
	require.NoError(t, err)
	_, err = c.Install(t.Context(), "extra", everything)
	require.NoError(t, err, "once more changes nothing")
	m, err := c.StartRelease(t.Context(), "extra", c.Programs.CCM, everything, nil, nil)
	require.NoError(t, err)
	require.NoError(t, m.WaitLeading(t.Context(), patience))
	joinNodes(t, c, 1)
	m.Stop(10 * time.Second)

	first, err := c.Install(t.Context(), "extra", nil)
	require.NoError(t, err)
	require.NoError(t, c.Delete(t.Context(), objects))
	for _, o := range first {
		if o.GetKind() == "DaemonSet" {
			require.NoError(t, c.Kube.AppsV1().DaemonSets(o.GetNamespace()).Delete(t.Context(), o.GetName(), metav1.DeleteOptions{}), "the only object that the change of the kind replaces")
		}
	}
	roles, err := c.Kube.RbacV1().ClusterRoles().List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, roles.Items)
	accounts, err := c.Kube.CoreV1().ServiceAccounts(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/instance=extra"})
	require.NoError(t, err)
	assert.Empty(t, accounts.Items)
}

// TestAdmissionPolicy: the API server says about bad annotations what the events would say, and refuses them where that is
// asked for.
func TestAdmissionPolicy(t *testing.T) {
	for provider, c := range map[string]struct {
		bad, good, lenient map[string]string
		words              string
	}{
		"digitalocean": {
			bad:   map[string]string{"service.beta.kubernetes.io/do-loadbalancer-type": "network"},
			good:  map[string]string{"service.beta.kubernetes.io/do-loadbalancer-type": "REGIONAL_NETWORK", "anyccm.io/load-balancer-ip-mode": "Proxy"},
			words: `annotation service.beta.kubernetes.io/do-loadbalancer-type: "network" is not one of "REGIONAL", "REGIONAL_NETWORK"`,
		},
		"linode": {
			bad:   map[string]string{linodeAnnotations + "check-interval": "1"},
			good:  map[string]string{linodeAnnotations + "check-interval": "10", linodeAnnotations + "default-protocol": "HTTP"},
			words: "annotation " + linodeAnnotations + `check-interval: "1" is out of range; use 2 to 3600`,
		},
		"aws": {
			bad:     map[string]string{awsAnnotations + "type": "nlb", awsAnnotations + "healthcheck-interval": "1"},
			good:    map[string]string{awsAnnotations + "type": "nlb", awsAnnotations + "proxy-protocol": "what another kind knows"},
			lenient: map[string]string{awsAnnotations + "type": "external", awsAnnotations + "healthcheck-interval": "1"},
			words:   "annotation " + awsAnnotations + `healthcheck-interval: "1" is out of range; use 5 to 300`,
		},
		"openstack": {
			bad:     map[string]string{openstackAnnotations + "lb-method": "RANDOM"},
			good:    map[string]string{openstackAnnotations + "lb-method": "SOURCE_IP", openstackAnnotations + "timeout-client-data": ""},
			lenient: map[string]string{openstackAnnotations + "connection-limit": "many"},
			words:   "annotation " + openstackAnnotations + `lb-method: "RANDOM" is not one of "ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", "SOURCE_IP_PORT"`,
		},
	} {
		t.Run(provider, func(t *testing.T) {
			cluster := newClusterOn(t, provider)
			_, err := cluster.Install(t.Context(), "cloud-controller-manager", harness.Values{"admissionPolicy.enabled": true, "admissionPolicy.action": "Deny"})
			require.NoError(t, err)
			tries := 0
			require.NoError(t, harness.Eventually(t.Context(), patience, "the policy to be in force", func(ctx context.Context) error {
				tries++
				_, err := cluster.CreateService(ctx, fmt.Sprintf("bad-%d", tries), c.bad)
				if err == nil {
					return errors.New("the Service was taken")
				}
				if !strings.Contains(err.Error(), c.words) {
					return fmt.Errorf("refused with other words: %w", err)
				}
				return nil
			}))
			_, err = cluster.CreateService(t.Context(), "good", c.good)
			require.NoError(t, err)
			_, err = cluster.CreateService(t.Context(), "lenient", c.lenient)
			require.NoError(t, err, "what counts as the default is a warning alone")
			const key = "anyccm.io/retain-load-balancer"
			_, err = cluster.CreateService(t.Context(), "long", map[string]string{key: strings.Repeat("t", 16385)})
			require.ErrorContains(t, err, "annotation "+key+": is too long; use at most 16384 characters")
		})
	}
}
