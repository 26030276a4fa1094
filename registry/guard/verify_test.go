package guard

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	cloudprovider "k8s.io/cloud-provider"
)

// verifier is a cloud that verifies by a table of provider IDs.
type verifier struct {
	cloud
	refused  map[string]string
	failure  error
	asked    atomic.Int32
	backends []*v1.Node
}

func (v *verifier) LoadBalancer() (cloudprovider.LoadBalancer, bool) { return v, true }

func (v *verifier) VerifyInstance(_ context.Context, node *v1.Node) (ok bool, why string, err error) {
	v.asked.Add(1)
	why, bad := v.refused[node.Spec.ProviderID]
	return !bad, why, v.failure
}

func (v *verifier) EnsureLoadBalancer(_ context.Context, _ string, _ *v1.Service, nodes []*v1.Node) (*v1.LoadBalancerStatus, error) {
	v.backends = nodes
	return &v1.LoadBalancerStatus{}, nil
}

func (v *verifier) UpdateLoadBalancer(_ context.Context, _ string, _ *v1.Service, nodes []*v1.Node) error {
	v.backends = nodes
	return nil
}

func verifying(v *verifier, on bool) (*Cloud, *record.FakeRecorder) {
	p := DefaultPolicy()
	p.VerifyInstances = on
	g := Wrap(v, Facts{Provider: "alpha", ProviderIDPrefixes: []string{"alpha://"}, Policy: p})
	recorder := record.NewFakeRecorder(10)
	g.reports.setRecorder(recorder)
	return g, recorder
}

func backendNodes() []*v1.Node {
	nodes := aged(3)
	nodes[0].Spec.ProviderID, nodes[1].Spec.ProviderID = "alpha://1", "alpha://2"
	return nodes
}

func TestOnlyVerifiedNodesBecomeBackends(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		v := &verifier{refused: map[string]string{"alpha://2": "its name is db-1"}}
		g, recorder := verifying(v, true)
		lb, _ := g.LoadBalancer()
		nodes := backendNodes()
		_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{}, nodes)
		require.NoError(t, err)
		assert.Equal(t, nodes[:1], v.backends, "neither a refused one nor one without an ID")
		assert.Contains(t, <-recorder.Events, EventNodeInstanceNotVerified+" the Node does not become a backend of load balancers and gets no route (--verify-node-instances): its name is db-1")
		require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{}, nodes))
		assert.Equal(t, nodes[:1], v.backends)
		assert.EqualValues(t, 2, v.asked.Load(), "a verdict is kept")

		time.Sleep(verdictMaxAge + time.Second)
		v.failure = errors.New("503")
		require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{}, nodes))
		assert.Equal(t, nodes[:1], v.backends, "an outage changes no verdict")
		nodes[2].Spec.ProviderID = "alpha://3"
		require.ErrorContains(t, lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{}, nodes), "verifying the instance of node n2: 503", "and makes none")

		v.failure, v.refused = nil, nil
		require.NoError(t, lb.UpdateLoadBalancer(t.Context(), "c", &v1.Service{}, nodes))
		assert.Equal(t, nodes, v.backends)
	})
}

func TestVerdictIsAboutOneProviderID(t *testing.T) {
	t.Parallel()
	v := &verifier{refused: map[string]string{"alpha://2": "another cluster's"}}
	g, _ := verifying(v, true)
	nodes := backendNodes()[:1]
	passed, err := g.verification.filterVerified(t.Context(), nodes)
	require.NoError(t, err)
	assert.Len(t, passed, 1)
	nodes[0].Spec.ProviderID = "alpha://2"
	passed, err = g.verification.filterVerified(t.Context(), nodes)
	require.NoError(t, err)
	assert.Empty(t, passed)
}

func TestWithoutTheOptionNothingIsVerified(t *testing.T) {
	t.Parallel()
	v := &verifier{refused: map[string]string{"alpha://2": "no"}}
	g, _ := verifying(v, false)
	lb, _ := g.LoadBalancer()
	_, err := lb.EnsureLoadBalancer(t.Context(), "c", &v1.Service{}, backendNodes())
	require.NoError(t, err)
	assert.Len(t, v.backends, 3)
	assert.Zero(t, v.asked.Load())
}
