package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/contract"
)

// markedCloud has load balancers with several clusters' marks.
type markedCloud struct {
	found  []contract.MarkedLoadBalancer
	marked map[string]string
	fails  string
}

func (c *markedCloud) MarkedLoadBalancers(_ context.Context, services []*v1.Service) ([]contract.MarkedLoadBalancer, error) {
	if len(services) != 2 {
		return nil, errors.New("not all Services are shown")
	}
	return c.found, nil
}

func (c *markedCloud) RemarkLoadBalancer(_ context.Context, m contract.MarkedLoadBalancer, service types.UID) error {
	if m.ID == c.fails {
		return errors.New("the cloud refuses")
	}
	c.marked[m.ID] = string(service)
	return nil
}

// clusterWithServices is a cluster with the UID "now" and the Services web and api of the namespace shop.
func clusterWithServices() *fake.Clientset {
	return fake.NewClientset(
		&v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system", UID: "now"}},
		&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "uid-web"}},
		&v1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "api", UID: "uid-api"}},
	)
}

func TestHandover(t *testing.T) {
	found := []contract.MarkedLoadBalancer{
		{ID: "lb-1", Name: "a", Cluster: "before", ServiceUID: "old", Claims: []string{"shop/web"}},
		{ID: "lb-2", Name: "b", Cluster: "before", Claims: []string{"shop/api"}},
		{ID: "lb-3", Name: "c", Cluster: "a-neighbour", Claims: []string{"shop/web"}},
		{ID: "lb-4", Name: "d", Cluster: "before", Claims: []string{"shop/api", "shop/web"}},
		{ID: "lb-5", Name: "e", Cluster: "before"},
		{ID: "lb-6", Name: "f", Cluster: "now", Claims: []string{"shop/web"}},
		{ID: "lb-7", Name: "g", ServiceUID: "uid-web", Claims: []string{"shop/web"}},
	}
	for name, c := range map[string]struct {
		args, input, fails string
		found              []contract.MarkedLoadBalancer
		marked             map[string]string
		says, fault        string
	}{
		"a list alone":    {found: found, says: "name it by --from"},
		"nothing foreign": {args: "--from=before --yes", says: "No load balancer of this cluster's Services carries"},
		"asked and agreed": {
			args: "--from=before --cluster-name=prod", input: "prod\n", found: found,
			marked: map[string]string{"lb-1": "uid-web", "lb-2": "uid-api"}, says: "Marked load balancer lb-1",
		},
		"asked and mistyped":  {args: "--from=before --cluster-name=prod", input: "production\n", found: found, fault: "nothing was changed: that is not the name of the cluster"},
		"asked and no answer": {args: "--from=before", found: found, fault: "nothing was changed"},
		"not asked": {
			args: "--from=before --yes", found: found, marked: map[string]string{"lb-1": "uid-web", "lb-2": "uid-api"},
			says: "several Services record it",
		},
		"another UID": {args: "--from=long-ago --yes", found: found, says: "a-neighbour"},
		"ourselves":   {args: "--from=now --yes", found: found, fault: "is this cluster itself"},
		"one refused": {
			args: "--from=before --yes", fails: "lb-1", found: found, marked: map[string]string{"lb-2": "uid-api"},
			fault: "load balancer lb-1 of Service shop/web: the cloud refuses",
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHandover(choice{providers: &registry.Registry{}})
			client := clusterWithServices()
			var output bytes.Buffer
			h.cmd.SetOut(&output)
			h.cmd.SetErr(&output)
			h.cmd.SetIn(strings.NewReader(c.input))
			require.NoError(t, h.cmd.ParseFlags(strings.Fields(c.args)))
			cloud := &markedCloud{found: c.found, fails: c.fails, marked: map[string]string{}}
			err := h.move(t.Context(), cloud, client)
			if c.fault == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.fault)
			}
			assert.Contains(t, output.String(), c.says)
			assert.NotRegexp(t, "lb-[567]", output.String(), "what has no Service here, and what has no other cluster's mark, is not listed")
			if c.marked == nil {
				c.marked = map[string]string{}
			}
			assert.Equal(t, c.marked, cloud.marked)
		})
	}
}

func TestHandoverOutput(t *testing.T) {
	t.Parallel()
	for args, want := range map[string]string{
		"handover -o xml": `--output "xml": use table, json or yaml`,
		"handover --yes":  "--yes: needs --from",
	} {
		cmd := handoverCommand(choice{providers: &registry.Registry{}})
		cmd.SetArgs(strings.Fields(args)[1:])
		cmd.SilenceErrors, cmd.SilenceUsage = true, true
		require.ErrorContains(t, cmd.ExecuteContext(t.Context()), want)
	}
	r := &registry.Registry{}
	require.NoError(t, r.Add(provider("alpha", func(p *registry.Provider) { p.Handover = true })))
	require.NoError(t, r.Add(provider("beta", func(*registry.Provider) {})))
	h := newHandover(choice{providers: r})
	elsewhere := h.unsupportedError()
	require.ErrorIs(t, elsewhere, contract.ErrNoHandover)
	require.ErrorContains(t, elsewhere, "of the linked ones these can: alpha. Elsewhere replace the other cluster's mark")
	h.output = "json"
	var output bytes.Buffer
	h.cmd.SetOut(&output)
	require.NoError(t, h.print(h.foreignLoadBalancers(nil, nil, "now")))
	var list []foreignLoadBalancer
	require.NoError(t, json.Unmarshal(output.Bytes(), &list))
	assert.NotNil(t, list, "a program gets a list")
}
