package conformance

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// runServiceFields: what the spec of a Service asks for becomes what the description says, when the load balancer is made as when the
// Service changes later, and validate says it too.
func runServiceFields(t *testing.T, newFixture func(t testing.TB) *Fixture) {
	t.Helper()
	virtual(t, "declared", func(t *testing.T) { require.NoError(t, newFixture(t).Provider.ServiceFields.Check()) })
	for i, row := range readFixture(t, newFixture, func(f *Fixture) schema.Fields { return f.Provider.ServiceFields }) {
		words := []string{string(row.Field)}
		for _, key := range sortedKeys(row.With) {
			words = append(words, key[strings.LastIndex(key, "/")+1:]+"="+row.With[key])
		}
		name := strings.Join(words, " ") + " "
		virtual(t, name+"created", func(t *testing.T) {
			if c := newFieldCase(t, newFixture(t), i); c != nil {
				c.runCreated()
			}
		})
		if row.Becomes == schema.Refused && row.Only == "" && !isOfPorts(row.Field) {
			virtual(t, name+"with other nodes", func(t *testing.T) {
				if c := newFieldCase(t, newFixture(t), i); c != nil {
					c.runNodes()
				}
			})
		}
		if row.Field == schema.FieldIPv6 {
			continue // the first family of a Service never changes
		}
		virtual(t, name+"later", func(t *testing.T) {
			if c := newFieldCase(t, newFixture(t), i); c != nil {
				c.runChanged()
			}
		})
	}
}

// fieldCase is a row that is tried: asking is a Service that asks for the field, plain one that does not.
type fieldCase struct {
	*world
	row schema.FieldRow
	// status is that of the last try.
	status        string
	plain, asking *v1.Service
}

// newFieldCase returns the case of a row; nil where the options of the fixture choose another one.
func newFieldCase(t *testing.T, f *Fixture, number int) *fieldCase {
	t.Helper()
	table := f.Provider.ServiceFields
	row, feature, options := table[number], f.fieldFeature(table[number].Field), map[string]string{}
	if f.Provider.FieldOptions != nil {
		options = f.Provider.FieldOptions(f.Inputs())
	}
	given, with := map[string]string{}, map[string]string{}
	for key, value := range row.With {
		if strings.Contains(key, "/") {
			given[key] = value
		}
	}
	maps.Copy(with, feature.With)
	maps.Copy(with, given)
	for _, annotations := range []map[string]string{with, given} {
		known := maps.Clone(options)
		maps.Copy(known, annotations)
		if chosen, _ := table.Row(row.Field, nil, known); !assert.ObjectsAreEqual(row, chosen) {
			continue
		}
		if feature.Prepare != nil {
			feature.Prepare()
		}
		c := &fieldCase{newWorld(t, f), row, "", featureService(annotations), featureService(annotations)}
		c.addNode(t.Context(), "worker-1", nil)
		c.ask()
		return c
	}
	return nil
}

// fieldFeature returns the prerequisites for testing a field.
func (f *Fixture) fieldFeature(field schema.Field) FeatureCase {
	switch field {
	case schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart:
		return f.UDP
	case schema.FieldIPv6, schema.FieldPreferBoth, schema.FieldRequireBoth:
		return f.DualStack
	case schema.FieldSourceRanges:
		return f.SourceRanges
	default:
		return FeatureCase{}
	}
}

// ask makes the Service ask for the field.
func (c *fieldCase) ask() {
	spec, udp := &c.asking.Spec, Port("udp", 54, 30054)
	udp.Protocol = v1.ProtocolUDP
	both := []v1.IPFamily{v1.IPv4Protocol, v1.IPv6Protocol}
	switch c.row.Field {
	case schema.FieldAddress:
		served, _ := portableCase(c.Fixture, c.kube, portable.Address)
		spec.LoadBalancerIP = served.Value
	case schema.FieldIPv6:
		spec.IPFamilies = []v1.IPFamily{v1.IPv6Protocol}
	case schema.FieldPreferBoth:
		spec.IPFamilies, spec.IPFamilyPolicy = both, new(v1.IPFamilyPolicyPreferDualStack)
	case schema.FieldRequireBoth:
		spec.IPFamilies, spec.IPFamilyPolicy = both, new(v1.IPFamilyPolicyRequireDualStack)
	case schema.FieldNoNodePorts:
		spec.AllocateLoadBalancerNodePorts, spec.Ports[0].NodePort = new(false), 0
	case schema.FieldAffinity:
		spec.SessionAffinity = v1.ServiceAffinityClientIP
	case schema.FieldLocal:
		spec.ExternalTrafficPolicy, spec.HealthCheckNodePort = v1.ServiceExternalTrafficPolicyLocal, 32000
	case schema.FieldSourceRanges:
		spec.LoadBalancerSourceRanges = []string{sourceRange}
	case schema.FieldSCTP, schema.FieldUDP:
		spec.Ports[0].Protocol = v1.Protocol(c.row.Field)
	case schema.FieldMixed:
		spec.Ports = append(spec.Ports, udp)
	case schema.FieldShared, schema.FieldApart:
		udp.Port = spec.Ports[0].Port
		if c.row.Field == schema.FieldShared {
			udp.NodePort = spec.Ports[0].NodePort
		}
		spec.Ports = append(spec.Ports, udp)
	}
}

// try reconciles a Service that is there and tells what becomes of it. Its status is noted beside the cloud's state.
func (c *fieldCase) try(ctx context.Context) (became schema.Outcome, why string) {
	require.NoError(c.t, c.kube.CoreV1().Events(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	c.protect(ctx, c.asking)
	var status *v1.LoadBalancerStatus
	err := c.untilTried(func() (err error) {
		status, err = c.tryEnsure(ctx, c.asking)
		return err
	})
	c.status = ""
	if status != nil {
		text, bad := json.Marshal(status)
		require.NoError(c.t, bad)
		c.status = string(text)
	}
	told := c.warnings(ctx)
	switch {
	case err != nil:
		return schema.Refused, fmt.Sprintf("%v; %q", err, told)
	case told != nil:
		return schema.Told, fmt.Sprintf("%q", told)
	}
	return schema.Served, ""
}

// state returns the cloud's state, and the Service's status if it requests an address: otherwise each load balancer has another one.
func (c *fieldCase) state() string {
	if c.row.Field == schema.FieldAddress {
		return c.Snapshot() + c.status
	}
	return c.Snapshot()
}

func (c *fieldCase) warnings(ctx context.Context) (all []string) {
	time.Sleep(time.Second)
	list, err := c.kube.CoreV1().Events(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	require.NoError(c.t, err)
	for _, e := range list.Items {
		if e.Type == v1.EventTypeWarning && e.InvolvedObject.Name == c.asking.Name {
			all = append(all, e.Reason+" "+e.Message)
		}
	}
	return all
}

// runCreated: the row holds when the load balancer is made, and validate says so.
func (c *fieldCase) runCreated() {
	ctx := c.t.Context()
	c.createService(ctx, c.plain)
	became, why := c.try(ctx)
	if c.row.Only == "" {
		assert.Equal(c.t, schema.Served, became, "without the field: %s", why)
	}
	plain := c.state()
	c.remove(ctx, c.plain, nil)
	require.NoError(c.t, c.kube.CoreV1().Services(c.plain.Namespace).Delete(ctx, c.plain.Name, metav1.DeleteOptions{}))
	empty := c.Snapshot()
	c.createService(ctx, c.asking)
	became, why = c.try(ctx)
	c.requireOutcome(c.row.Becomes, became, why, plain)
	if became == schema.Refused {
		assert.Equal(c.t, empty, c.Snapshot(), "nothing is made")
	}
	if c.row.Only == "" {
		told, refused := registry.CheckServiceOf(c.Provider, c.Inputs(), c.asking)
		assert.Equal(c.t, [2]bool{became == schema.Told, became == schema.Refused}, [2]bool{told != nil, refused != nil}, "validate: %v; %v", told, refused)
	}
}

// runChanged: the row holds when the field comes later. What is refused changes nothing, and what is served is as if it had been there
// from the beginning.
func (c *fieldCase) runChanged() {
	ctx := c.t.Context()
	c.createService(ctx, c.plain)
	c.try(ctx)
	plain := c.state()
	before := c.Snapshot()
	c.changeService(ctx, c.plain, func(s *v1.Service) { s.Spec = *c.asking.Spec.DeepCopy() })
	became, why := c.try(ctx)
	want := c.row.Becomes
	if c.row.Later != "" {
		want = c.row.Later
	}
	c.requireOutcome(want, became, why, plain)
	if became == schema.Refused {
		assert.Equal(c.t, before, c.Snapshot(), "nothing changes")
	}
}

// isOfPorts reports whether a field is about ports: nobody knows which nodes a port leads to that is not the Service's any more.
func isOfPorts(f schema.Field) bool {
	return slices.Contains([]schema.Field{
		schema.FieldNoNodePorts, schema.FieldSCTP, schema.FieldUDP, schema.FieldMixed, schema.FieldShared, schema.FieldApart,
	}, f)
}

// runNodes: a Service whose load balancer is there, perhaps by another controller, is refused for the field. Nodes join all the same.
func (c *fieldCase) runNodes() {
	ctx := c.t.Context()
	c.createService(ctx, c.plain)
	c.try(ctx)
	c.changeService(ctx, c.plain, func(s *v1.Service) { s.Spec = *c.asking.Spec.DeepCopy() })
	became, why := c.try(ctx)
	require.Equal(c.t, schema.Refused, became, why)
	before := c.Snapshot()
	c.addNode(ctx, "worker-2", nil)
	c.updateNodes(ctx, c.plain)
	assert.Equal(c.t, c.outside(), before != c.Snapshot(), "a node joined")
}

// requireOutcome: what became of the field is what the row says; where several things decide, nothing is silent all the same.
func (c *fieldCase) requireOutcome(want, became schema.Outcome, why, plain string) {
	if c.row.Only == "" || became == schema.Served {
		assert.Equal(c.t, want, became, "the description says that it is %s: %s", want, why)
	}
	if became == schema.Served && c.outside() {
		assert.Equal(c.t, c.row.Anyway, plain == c.state(), "it shows nowhere")
	}
	if became == schema.Served && c.row.Field == schema.FieldAddress {
		assert.Contains(c.t, c.status, `"`+c.asking.Spec.LoadBalancerIP+`"`)
	}
	if became != schema.Served {
		place, _, _ := strings.Cut(string(c.row.Field), ":")
		if strings.HasPrefix(place, "spec.ipFamil") {
			place = "spec.ipFamil"
		}
		assert.True(c.t, c.row.Silent || c.row.Only != "" || c.row.Later != "" || strings.Contains(why, strings.TrimSpace(place)) ||
			strings.Contains(why, "spec.ports"), "the place is not named: %s", why)
	}
}
