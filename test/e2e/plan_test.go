package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/test/expectations"
)

// planned is the command's output for a Service.
type planned struct {
	Service string
	Planned []struct {
		Action, Object, Detail string
		Fields                 []struct{ Name, Before, After string }
	}
	Error string
}

// TestPlan: on every cloud, what would be made for a new Service, nothing for one that is served, and what a change would
// do; nothing is written anywhere.
func TestPlan(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		annotations, err := json.Marshal(expected.Service)
		require.NoError(t, err)
		c := newClusterOn(t, provider, "--instances=2")
		m := startCCM(t, c, nil, nil)
		joinNodes(t, c, 2)
		plan := planner(t, c, provider)
		manifest := "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations: " + string(annotations) + "\nspec:\n  type: LoadBalancer\n  ports:\n  - {name: http, port: 80}\n"
		m.Stop(patience)
		fresh := plan("web", manifest)
		require.Empty(t, fresh.Error)
		require.NotEmpty(t, fresh.Planned)
		assert.Equal(t, "create", fresh.Planned[0].Action)
		for _, one := range fresh.Planned {
			assert.NotEmpty(t, one.Fields, "%s %s", one.Action, one.Object)
		}
		t.Logf("%v", fresh.Planned)
		_, err = c.Kube.CoreV1().Services("default").Get(t.Context(), "web", metav1.GetOptions{})
		assert.True(t, apierrors.IsNotFound(err), "the Service was not made either")

		_, err = c.CreateService(t.Context(), "web", expected.Service)
		require.NoError(t, err)
		m = startCCM(t, c, nil, nil)
		_, err = c.WaitServed(t.Context(), "web", patience)
		require.NoError(t, err)
		waitHoldings(t, c, 1, unlessInCluster(c, ", 2 "))
		requireWorked(t, m, "service")
		m.Stop(patience)
		served := plan("web", manifest)
		assert.Empty(t, served.Error)
		assert.Empty(t, served.Planned)
		changed := plan("web", manifest+"  - {name: https, port: 443}\n")
		assert.Empty(t, changed.Error)
		assert.Equal(t, c.Cloud.InCluster(), len(changed.Planned) == 0, "an address has no ports")
		t.Logf("%v", changed.Planned)
		refused := plan("web", strings.ReplaceAll(manifest, "  ports:", "  loadBalancerSourceRanges: [nowhere]\n  ports:"))
		assert.NotEmpty(t, refused.Error)
	})
}
