package guard

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	cloudprovider "k8s.io/cloud-provider"
	cloudproviderapi "k8s.io/cloud-provider/api"

	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// exported is a scrape of the metrics of Services that are not served. build/prometheus evaluates the alerts on it.
const exported = "testdata/unserved.prom"

//go:embed testdata/unserved.prom
var wasExported string

var updateExported = flag.Bool("update", false, "write "+exported)

// TestUnservedServicesAreCounted: each Service that wants a load balancer of ours and has none counts, with why and since when.
func TestUnservedServicesAreCounted(t *testing.T) {
	t.Parallel()
	const provider = "unserved"
	outcomes := map[string]error{
		"quota":   errors.New("quota exceeded"),
		"works":   cloudproviderapi.NewRetryError("the load balancer is made", time.Minute),
		"settled": nil,
	}
	g := Wrap(&outcome{errs: outcomes}, Facts{Provider: provider, Policy: DefaultPolicy()})
	show := showMetrics(t, g)
	assert.Empty(t, unservedShown(show()), "a replica that does not lead knows nothing")
	stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	showServices(g.loadBalancers, stored, false)
	assert.Equal(t, []string{"0", "0", "0"}, values(unservedShown(show())["anyccm_guard_unserved_services"]))

	add := func(name string, made int64, change func(*v1.Service)) *v1.Service {
		s := serviceNamed(name)
		s.Spec.Type, s.CreationTimestamp = v1.ServiceTypeLoadBalancer, metav1.Unix(made, 0)
		change(s)
		require.NoError(t, stored.Add(s))
		return s
	}
	add("served", 100, func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}} })
	add("elsewhere", 100, func(s *v1.Service) { s.Spec.LoadBalancerClass = new("example.com/other") })
	add("disowned", 100, func(s *v1.Service) { s.Annotations = map[string]string{contract.AnnotationDisown: "true"} })
	add("deleted", 100, func(s *v1.Service) { s.DeletionTimestamp = &metav1.Time{Time: time.Unix(200, 0)} })
	add("internal", 100, func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeClusterIP })
	add("untried", 1000, func(*v1.Service) {})
	tried := []*v1.Service{
		add("quota", 400, func(*v1.Service) {}), add("works", 500, func(*v1.Service) {}),
		add("misspelt", 300, func(s *v1.Service) { s.Annotations = map[string]string{contract.AnnotationProtect: "maybe"} }),
		add("later", 600, func(s *v1.Service) { s.Annotations = map[string]string{contract.AnnotationProtect: "perhaps"} }),
	}
	for _, s := range tried {
		_, err := g.loadBalancers.EnsureLoadBalancer(t.Context(), "c", s, nodesNamed("a"))
		require.Error(t, err, s.Name)
	}
	shown := unservedShown(show())
	var text strings.Builder
	for _, name := range []string{"anyccm_guard_oldest_unserved_service_timestamp_seconds", "anyccm_guard_unserved_services"} {
		fmt.Fprintf(&text, "# TYPE %s gauge\n%s", name, strings.Join(shown[name], ""))
	}
	if *updateExported {
		require.NoError(t, os.WriteFile(exported, []byte(text.String()), 0o600))
	}
	assert.Equal(t, wasExported, text.String())

	for _, s := range tried {
		delete(s.Annotations, contract.AnnotationProtect)
		outcomes[s.Name] = nil
		_, err := g.loadBalancers.EnsureLoadBalancer(t.Context(), "c", s, nodesNamed("a"))
		require.NoError(t, err, s.Name)
		s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}}
	}
	assert.Equal(t, []string{"0", "1", "0"}, values(unservedShown(show())["anyccm_guard_unserved_services"]), "the untried one is left")
	assert.Zero(t, countUnservedRemembered(g.loadBalancers))
}

// TestWaitsBeginWithTheChange: a Service that was long there before it asked for a load balancer, or lost the one that it had, waits since
// then.
func TestWaitsBeginWithTheChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := Wrap(&outcome{}, Facts{Provider: "waits", Policy: DefaultPolicy()})
		s := serviceNamed("web")
		s.Namespace, s.CreationTimestamp = "default", metav1.NewTime(time.Now().Add(-time.Hour))
		kube := fake.NewClientset(s)
		ctx, stop := context.WithCancel(t.Context())
		factory := informers.NewSharedInformerFactory(kube, 0)
		g.stop = ctx.Done()
		g.SetInformers(factory)
		factory.Start(ctx.Done())
		factory.WaitForCacheSync(ctx.Done())
		change := func(edit func(*v1.Service)) time.Time {
			time.Sleep(time.Minute)
			edit(s)
			_, err := kube.CoreV1().Services("default").Update(ctx, s, metav1.UpdateOptions{})
			require.NoError(t, err)
			at := time.Now()
			time.Sleep(time.Minute)
			synctest.Wait()
			return at
		}
		waits := func() float64 {
			all, known := g.loadBalancers.countUnserved()
			require.True(t, known)
			return all[unservedPending].oldest
		}
		assert.Zero(t, waits())
		asked := change(func(s *v1.Service) { s.Spec.Type = v1.ServiceTypeLoadBalancer })
		assert.InDelta(t, asked.Unix(), waits(), 1)
		change(func(s *v1.Service) { s.Labels = map[string]string{"team": "web"} })
		assert.InDelta(t, asked.Unix(), waits(), 1)
		change(func(s *v1.Service) { s.Status.LoadBalancer.Ingress = []v1.LoadBalancerIngress{{IP: "192.0.2.1"}} })
		assert.Zero(t, waits())
		lost := change(func(s *v1.Service) { s.Status.LoadBalancer.Ingress = nil })
		assert.InDelta(t, lost.Unix(), waits(), 1)
		require.NoError(t, kube.CoreV1().Services("default").Delete(ctx, "web", metav1.DeleteOptions{}))
		time.Sleep(time.Second)
		synctest.Wait()
		assert.Zero(t, countUnservedRemembered(g.loadBalancers))
		stop()
		factory.Shutdown()
		synctest.Wait()
	})
}

// outcome is a cloud whose reconciliations end as a test says.
type outcome struct {
	cloud

	errs map[string]error
}

func (o *outcome) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return o, true }

func (o *outcome) EnsureLoadBalancer(_ context.Context, _ string, s *v1.Service, _ []*v1.Node) (*v1.LoadBalancerStatus, error) {
	return &v1.LoadBalancerStatus{}, o.errs[s.Name]
}

// unservedShown are the lines of a scrape about Services that are not served, by metric.
func unservedShown(shown map[string]float64) map[string][]string {
	all := map[string][]string{}
	for what, value := range shown {
		if name, reason, found := strings.Cut(what, " "); found && strings.Contains(name, "unserved_service") {
			all[name] = append(all[name], fmt.Sprintf("%s{provider=%q,reason=%q} %v\n", name, "unserved", reason, value))
		}
	}
	for _, lines := range all {
		slices.Sort(lines)
	}
	return all
}

// values returns the values at the ends of a scrape's lines.
func values(lines []string) []string {
	all := make([]string, len(lines))
	for i, line := range lines {
		all[i] = strings.TrimSpace(line[strings.LastIndex(line, " "):])
	}
	return all
}
