package conformance

import (
	"cmp"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	cloudprovider "k8s.io/cloud-provider"

	"github.com/anyccm/cloud-controller-manager/providers/kit/simkit"
	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/guard"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
)

// runWithoutPortable: for a Service without portable annotations the cloud gets byte for byte the requests that it gets from a program
// which knows none, from the creation to the deletion, whether or not other classes have defaults.
func runWithoutPortable(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	for _, name := range readFixture(t, newFixture, serviceNames) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			without := recordLife(t, newFixture, name, func(f *Fixture) { f.bare = true })
			require.NotEmpty(t, without)
			assert.Equal(t, without, recordLife(t, newFixture, name, func(*Fixture) {}), "nothing portable is asked for")
			others := defaults.Set{"other": {portable.Scheme: portable.SchemeInternal, portable.BackendSelector: "pool=edge"}}
			assert.Equal(t, without, recordLife(t, newFixture, name, func(f *Fixture) { f.defaults.Use(others) }), "another class has defaults")
			nodes := defaults.Set{"": {portable.BackendSelector: "pool=edge"}}
			with := recordLife(t, newFixture, name, func(f *Fixture) { f.defaults.Use(nodes) })
			assert.Equal(t, readFixture(t, newFixture, (*Fixture).outside), !slices.Equal(without, with), "a default about nodes shows in what is recorded")
		})
	}
}

// openBare makes the provider with a guard that knows no portable annotations.
func (f *Fixture) openBare(in registry.Inputs) (cloudprovider.Interface, error) {
	cloud, err := f.Provider.New(in)
	if err != nil {
		return nil, err
	}
	return guard.Wrap(cloud, guard.Facts{
		Provider: f.Provider.Name, ProviderIDPrefixes: f.Provider.ProviderIDPrefixes, InstanceKey: f.Provider.InstanceKey,
		Unmanaged: f.Provider.Unmanaged, ClusterCIDR: in.ClusterCIDR, Policy: *in.Guard,
	}), nil
}

// recordLife returns the requests that the life of a Service makes, in their order. Those of the same moment have none.
func recordLife(t *testing.T, newFixture func(t testing.TB) *Fixture, name string, change func(*Fixture)) (requests []string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t)
		change(f)
		ctx, w := t.Context(), newWorld(t, f)
		w.Sim.Disarrange(0, nil) // requests of two runs are compared
		c := w.Services[name]
		require.False(t, portable.Asks(c.Service.Annotations))
		w.addNode(ctx, "worker-1", nil)
		w.addNode(ctx, "worker-2", nil)
		w.nodes[0].Labels = map[string]string{"pool": "edge"}
		w.Sim.ResetCalls()
		w.createService(ctx, c.Service)
		w.ensure(ctx, c.Service, nil)
		w.addNode(ctx, "worker-3", nil)
		w.update(ctx, c.Service, nil)
		w.changeService(ctx, c.Service, c.Change)
		w.ensure(ctx, c.Service, nil)
		w.changeService(ctx, c.Service, func(s *v1.Service) { s.Spec.Ports[0].NodePort++ })
		w.ensure(ctx, c.Service, nil)
		w.restart()
		w.ensure(ctx, c.Service, nil)
		w.remove(ctx, c.Service, nil)
		requests = describeRequests(w.Sim.Calls().Latest)
	})
	return requests
}

// generatedIDs are made up at random, here or in the simulated cloud: UUIDs, and the IDs of clusters on Google Compute Engine.
var generatedIDs = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}|\b[0-9a-f]{16}\b`)

// normalizeBody returns a body as it was sent. Of a document that was read from the cloud and is written back, which its etag tells, lists
// are sorted: they have the order in which the cloud gave them.
func normalizeBody(body string) string {
	var document map[string]any
	if json.Unmarshal([]byte(body), &document) != nil || document["etag"] == nil {
		return body
	}
	return fmt.Sprint(InOrder(document))
}

// InOrder sorts all lists in decoded JSON, which it changes, for clouds that promise no order of them.
func InOrder(v any) any {
	switch v := v.(type) {
	case map[string]any:
		for key, value := range v {
			v[key] = InOrder(value)
		}
	case []any:
		for i := range v {
			v[i] = InOrder(v[i])
		}
		slices.SortFunc(v, func(a, b any) int {
			return strings.Compare(generatedIDs.ReplaceAllString(fmt.Sprint(a), "*"), generatedIDs.ReplaceAllString(fmt.Sprint(b), "*"))
		})
	}
	return v
}

// describeRequests returns calls as they were sent, with names for generated IDs in the order in which they appear. Calls
// that differ in IDs alone and follow each other are sorted: the cloud promises no order of what it lists.
func describeRequests(calls []simkit.Call) []string {
	slices.SortStableFunc(calls, func(a, b simkit.Call) int {
		return cmp.Or(a.At.Compare(b.At), strings.Compare(a.Method+a.URL+a.Body, b.Method+b.URL+b.Body))
	})
	names := map[string]string{}
	all := make([]string, len(calls))
	for i, c := range calls {
		all[i] = generatedIDs.ReplaceAllStringFunc(fmt.Sprintln(c.Method, c.URL, normalizeBody(c.Body)), func(id string) string {
			if names[id] == "" {
				names[id] = fmt.Sprintf("ID-%d", len(names)+1)
			}
			return names[id]
		})
	}
	shape := func(i int) string { return calls[i].Method + generatedIDs.ReplaceAllString(calls[i].URL, "*") }
	for from := 0; from < len(all); {
		to := from + 1
		for to < len(all) && shape(to) == shape(from) {
			to++
		}
		slices.Sort(all[from:to])
		from = to
	}
	return all
}
