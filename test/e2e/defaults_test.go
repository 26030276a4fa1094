package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/test/expectations"
	"github.com/anyccm/cloud-controller-manager/test/harness"
)

// TestDefaultsAreReadAgain: a default that changes in the file reconciles exactly the Services concerned, by the events that the
// framework writes at every reconciliation. A broken file changes nothing, and an event says so.
func TestDefaultsAreReadAgain(t *testing.T) {
	onEachCloud(t, hasLoadBalancers, func(t *testing.T, provider string, expected expectations.Cloud) {
		const edge = "example.com/edge"
		file := filepath.Join(t.TempDir(), "defaults.yaml")
		write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
		of := func(hostname string) string {
			const item = "- loadBalancerClass: %q\n  annotations: {%s: %s}\n"
			return fmt.Sprintf(item, edge, portable.Hostname, "edge.example.com") + fmt.Sprintf(item, "", portable.Hostname, hostname)
		}
		write(of("one.example.com"))
		c := newClusterOn(t, provider, "--instances=1")
		for _, step := range expected.Portable.Prepare {
			prepare(t, c, step)
		}
		values := harness.Values{}
		maps.Copy(values, expected.Portable.Values)
		_, err := c.Install(t.Context(), "cloud-controller-manager", values)
		require.NoError(t, err)
		m := startRelease(t, c, values, []string{"--service-defaults=" + file}, nil)
		joinNodes(t, c, 1)
		create := func(name, class string, more map[string]string) {
			annotations := maps.Clone(expected.Service)
			if annotations == nil {
				annotations = map[string]string{}
			}
			maps.Copy(annotations, more)
			s := serviceOf(name, v1.ServiceTypeLoadBalancer, annotations)
			if class != "" {
				s.Spec.LoadBalancerClass = &class
			}
			_, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Create(t.Context(), s, metav1.CreateOptions{})
			require.NoError(t, err)
		}
		create("plain", "", nil)
		create("own", "", map[string]string{portable.Hostname: "own.example.com"})
		create("edge", edge, nil)
		shows := func(name, hostname string) { t.Helper(); requireShown(t, c, name, hostname) }
		shows("plain", "one.example.com")
		shows("own", "own.example.com")
		shows("edge", "edge.example.com")
		requireWorked(t, m, "service") // what was written to the Services themselves has them reconciled once more
		began := map[string]int32{"own": reconciliations(t, c, "own"), "edge": reconciliations(t, c, "edge")}

		write(of("two.example.com"))
		shows("plain", "two.example.com")
		write("- loadBalancerClass: [\n")
		requireEvent(t, c, metav1.NamespaceSystem, "ServiceDefaultsInvalid", "cloud-controller-manager", "the last good ones stay in force")
		shows("plain", "two.example.com")
		write(of("three.example.com"))
		shows("plain", "three.example.com")
		requireEvent(t, c, metav1.NamespaceSystem, "ServiceDefaultsValid", "cloud-controller-manager")
		for name, before := range began {
			assert.Equal(t, before, reconciliations(t, c, name), "no default of %s changed", name)
		}
	})
}

// reconciliations is how often the framework reconciled a Service, once the events of all of them have come.
func reconciliations(t *testing.T, c *harness.Cluster, name string) int32 {
	t.Helper()
	var times map[string]int32
	require.NoError(t, harness.Eventually(t.Context(), patience, "the events of "+name, func(ctx context.Context) error {
		list, err := c.Kube.CoreV1().Events(metav1.NamespaceDefault).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return err
		}
		times = map[string]int32{}
		for _, e := range list.Items {
			times[e.Reason] += max(e.Count, 1)
		}
		if begun, ended := times["EnsuringLoadBalancer"], times["EnsuredLoadBalancer"]; begun == 0 || begun != ended {
			return fmt.Errorf("%d reconciliations began, %d ended", begun, ended)
		}
		return nil
	}))
	return times["EnsuringLoadBalancer"]
}

// requireShown waits until the status of a Service has a hostname.
func requireShown(t *testing.T, c *harness.Cluster, name, hostname string) {
	t.Helper()
	require.NoError(t, harness.Eventually(t.Context(), patience, name+" shows "+hostname, func(ctx context.Context) error {
		s, err := c.Kube.CoreV1().Services(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if ingress := s.Status.LoadBalancer.Ingress; len(ingress) == 0 || ingress[0].Hostname != hostname {
			return fmt.Errorf("it shows %v", ingress)
		}
		return nil
	}))
}
