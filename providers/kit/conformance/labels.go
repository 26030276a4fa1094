package conformance

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/anyccm/cloud-controller-manager/providers/kit/cloudapi"
)

// Marks by which what somebody wrote is found again: as a text, in an ID of hexadecimal digits, in a number.
const (
	markText   = "zq7q"
	markHex    = "5eeded5eeded"
	markNumber = "918273645546"
)

// writings are values that authors of Services and kubelets may write: IDs of every form, and invalid ones.
var writings = []string{
	markText, "../" + markText, markText + "?x=y", "5eeded5e-495b-4884-9a69-" + markHex, "sg-" + markHex, "subnet-" + markHex, "eipalloc-" + markHex, markNumber,
	"arn:aws:acm:us-east-1:123456789012:certificate/" + markHex, "https://host/v1/containers/5eeded5e-495b-4884-9a69-" + markHex,
}

// runLabels: labels of metrics are kept for as long as the process lives, so that nothing in them may come from a Service or a Node.
func runLabels(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	if readFixture(t, newFixture, (*Fixture).hasLoadBalancers) {
		runLabelsOfServices(t, newFixture)
	}
	if readFixture(t, newFixture, (*Fixture).hasNodes) {
		runLabelsOfNodes(t, newFixture)
	}
}

func runLabelsOfServices(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	all := triesAll(t, newFixture)
	virtual(t, "no label holds what a Service says", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.addNode(t.Context(), "worker", nil)
		c := w.Services[sortedKeys(w.Services)[0]]
		n := 0
		for i, row := range w.Provider.Annotations {
			texts := writings
			if !all { // another one for each annotation
				texts = writings[i%len(writings):][:1]
			}
			for _, text := range texts {
				n++
				s := c.Service.DeepCopy()
				s.Name, s.UID = fmt.Sprintf("labels-%d", n), types.UID(fmt.Sprintf("5eed0000-495b-4884-9a69-%012d", n))
				if s.Annotations == nil {
					s.Annotations = map[string]string{}
				}
				if row.Where != nil && len(row.Where.OneOf) > 0 {
					s.Annotations[row.Where.Key] = row.Where.OneOf[0]
				}
				s.Annotations[strings.ReplaceAll(row.Key, "<port>", "80")] = text
				w.tryService(t.Context(), s)
			}
		}
		w.requireCleanLabels()
	})
}

func runLabelsOfNodes(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "no label holds what a Node says", func(t *testing.T) {
		w := newWorld(t, newFixture(t))
		w.addNode(t.Context(), "worker", nil)
		for _, text := range append(writings, "i-"+markHex+"aaaaa") {
			node := bareNode(text)
			try := func() {
				_, err := w.instances().InstanceMetadata(t.Context(), node)
				w.requireNoCrash(err)
			}
			try()
			for _, prefix := range w.Provider.ProviderIDPrefixes {
				for _, slash := range []string{"", "/"} {
					node.Spec.ProviderID = prefix + slash + text
					_, err := w.instances().InstanceExists(t.Context(), node)
					w.requireNoCrash(err)
					_, err = w.instances().InstanceShutdown(t.Context(), node)
					w.requireNoCrash(err)
					try()
				}
			}
		}
		w.requireCleanLabels()
	})
}

// tryService reconciles and deletes a Service once each. Whether that succeeds is no matter here, but nothing crashes.
func (w *world) tryService(ctx context.Context, s *v1.Service) {
	w.createService(ctx, s)
	_, err := w.loadBalancer().EnsureLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes)
	w.requireNoCrash(err)
	_, _, err = w.loadBalancer().GetLoadBalancer(ctx, clusterName, w.service(ctx, s))
	w.requireNoCrash(err)
	w.requireNoCrash(w.loadBalancer().UpdateLoadBalancer(ctx, clusterName, w.service(ctx, s), w.nodes))
	w.requireNoCrash(w.loadBalancer().EnsureLoadBalancerDeleted(ctx, clusterName, w.service(ctx, s)))
	time.Sleep(time.Second)
}

func (w *world) requireCleanLabels() {
	w.t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	require.NoError(w.t, err)
	calls := 0
	for _, f := range families {
		for _, m := range f.GetMetric() {
			for _, l := range m.GetLabel() {
				for _, mark := range []string{markText, "5eeded", markNumber} {
					assert.NotContains(w.t, l.GetValue(), mark, "label %s of %s", l.GetName(), f.GetName())
				}
				if f.GetName() == requestsMetric && l.GetValue() == w.cloud.ProviderName() {
					calls++
				}
			}
		}
	}
	assert.Equal(w.t, w.outside(), calls > 0, "calls were counted")
}

const requestsMetric = "anyccm_cloud_api_requests_total"

// CheckOperations returns an error where one of the calls that a package's tests made is not in its provider's fixed list, and
// so was counted as another.
func CheckOperations(provider string) error {
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		return fmt.Errorf("reading the metrics: %w", err)
	}
	for _, f := range families {
		if f.GetName() != requestsMetric {
			continue
		}
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			if labels["provider"] == provider && strings.HasSuffix(labels["operation"], cloudapi.OtherOperation) {
				return fmt.Errorf("%v calls are not in the provider's list of operations (%s)", m.GetCounter().GetValue(), labels["operation"])
			}
		}
	}
	return nil
}
