package portable

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// toy is a cloud with two kinds of load balancers.
var toy = Cloud{Title: "Toy", Rows: []schema.AnnotationRow{
	{Key: "toy/kind", Spec: schema.Spec{Kind: schema.KindString}},
	{
		Key: "toy/internal", Spec: schema.Spec{Kind: schema.KindBool},
		Serves: []schema.Serves{{Portable: Scheme, Values: map[string]string{SchemePublic: "false", SchemeInternal: "true"}}},
	},
	{
		Key: "toy/seconds", Spec: schema.Spec{Kind: schema.KindInt, Min: new(5.0), Max: new(300.0)},
		Serves: []schema.Serves{{Portable: CheckInterval, Unit: time.Second, Also: map[string]string{"toy/check": "on"}}},
	},
	{
		Key: "toy/proxy", Spec: schema.Spec{Kind: schema.KindString}, Where: &schema.Where{Key: "toy/kind", NoneOf: []string{"fast"}},
		Serves: []schema.Serves{{Portable: ProxyProtocol, Values: map[string]string{ProxyNone: "", ProxyV1: "*"}}},
	},
	{
		Key: "toy/attributes", Spec: schema.Spec{Kind: schema.KindString}, Where: &schema.Where{Key: "toy/kind", OneOf: []string{"fast"}},
		Serves: []schema.Serves{{
			Portable: ProxyProtocol, Choose: true, Values: map[string]string{ProxyNone: "", ProxyV2: "proxy=2"},
			Merge: func(own, translated string) (string, bool) {
				if strings.Contains(own, "proxy=") {
					return own, !strings.Contains(own, translated)
				}
				return own + "," + translated, false
			},
		}},
	},
	{
		Key: "toy/idle", Spec: schema.Spec{Kind: schema.KindInt}, Where: &schema.Where{Key: "toy/kind", NoneOf: []string{"fast"}},
		Serves: []schema.Serves{{Portable: IdleTimeout, Unit: time.Second}},
	},
	{Key: "toy/path", RefuseEmpty: true, Spec: schema.Spec{Kind: schema.KindString}, Serves: []schema.Serves{{Portable: CheckPath}}},
	{Key: "toy/tries", Spec: schema.Spec{Kind: schema.KindInt, Min: new(2.0), Max: new(10.0)}, Serves: []schema.Serves{{Portable: HealthyThreshold}}},
	{
		Key: "toy/certificate", Spec: schema.Spec{Kind: schema.KindString},
		Serves: []schema.Serves{{Portable: Certificate}, {Portable: TLSPorts, Rivals: []string{"toy/ports"}}},
	},
	{Key: FieldLoadBalancerIP, Spec: schema.Spec{Kind: schema.KindString}, Serves: []schema.Serves{{Portable: Address}}},
}}

func web(annotations ...string) *v1.Service {
	s := &v1.Service{ObjectMeta: metav1.ObjectMeta{Name: "web", Annotations: map[string]string{"note": "kept"}}}
	s.Spec.Ports = []v1.ServicePort{
		{Name: "http", Port: 80},
		{Name: "https", Port: 443, Protocol: v1.ProtocolTCP},
		{Name: "dns", Port: 53, Protocol: v1.ProtocolUDP},
	}
	for i := 0; i < len(annotations); i += 2 {
		s.Annotations[annotations[i]] = annotations[i+1]
	}
	return s
}

// translations are portable annotations, and what they are on the toy cloud.
var translations = map[string]struct {
	given []string
	// want are the annotations of the cloud, as key, value.
	want []string
	// err and warning are parts of what is said; empty means nothing.
	err, warning string
}{
	"a choice":                      {given: []string{Scheme, "internal"}, want: []string{"toy/internal", "true"}},
	"an illegal value":              {given: []string{Scheme, "intern"}, err: `annotation anyccm.io/load-balancer-scheme: "intern" is not one of "public", "internal"`},
	"empty is absent":               {given: []string{Scheme, ""}},
	"a duration, and what it needs": {given: []string{CheckInterval, "1m30s"}, want: []string{"toy/seconds", "90", "toy/check", "on"}},
	"what it needs is the user's": {
		given: []string{CheckInterval, "5s", "toy/check", "off"}, want: []string{"toy/seconds", "5"},
		warning: `annotations anyccm.io/load-balancer-health-check-interval and toy/check: contradict: "5s" and "off"`,
	},
	"below the range":        {given: []string{CheckInterval, "2s"}, err: `annotation anyccm.io/load-balancer-health-check-interval: "2s" is out of range; use 5s to 300s`},
	"a part below the range": {given: []string{CheckInterval, "4999ms"}, err: `is out of range; use 5s to 300s`},
	"above the range":        {given: []string{CheckInterval, "6m"}, err: `"6m" is out of range; use 5s to 300s`},
	"no whole seconds":       {given: []string{CheckInterval, "7500ms"}, err: `"7500ms" is not a whole number of seconds; use 5s to 300s`},
	"no duration":            {given: []string{CheckInterval, "10"}, err: `"10" is not a duration; use a form such as "90s" or "5m"`},
	"a number":               {given: []string{HealthyThreshold, "3"}, want: []string{"toy/tries", "3"}},
	"a number out of range":  {given: []string{HealthyThreshold, "11"}, err: `annotation anyccm.io/load-balancer-health-check-healthy-threshold: "11" is out of range; use 2 to 10`},
	"by kind":                {given: []string{ProxyProtocol, "v1"}, want: []string{"toy/proxy", "*"}},
	"the kind is chosen":     {given: []string{ProxyProtocol, "v2"}, want: []string{"toy/kind", "fast", "toy/attributes", "proxy=2"}},
	"the kind is the user's": {given: []string{ProxyProtocol, "v2", "toy/kind", "slow"}, err: `"v2" is not one of "none", "v1" on Toy`},
	"of the other kind":      {given: []string{ProxyProtocol, "v1", "toy/kind", "fast"}, err: `"v1" is not one of "none", "v2" on Toy`},
	"merged": {
		given: []string{ProxyProtocol, "v2", "toy/kind", "fast", "toy/attributes", "a=b"},
		want:  []string{"toy/attributes", "a=b,proxy=2"},
	},
	"merged, contradicting": {given: []string{ProxyProtocol, "v2", "toy/kind", "fast", "toy/attributes", "proxy=1"}, warning: "annotations anyccm.io/load-balancer-proxy-protocol and toy/attributes: contradict"},
	"the chosen kind lacks another": {
		given: []string{ProxyProtocol, "v2", IdleTimeout, "10s"}, want: []string{"toy/kind", "fast", "toy/attributes", "proxy=2"},
		warning: `annotation anyccm.io/load-balancer-idle-timeout: "10s" has no effect on Toy; remove it, or change toy/kind, which is "fast"`,
	},
	"the own one wins":     {given: []string{Scheme, "internal", "toy/internal", "false"}, warning: `annotations anyccm.io/load-balancer-scheme and toy/internal: contradict: "internal" and "false"`},
	"the own one is empty": {given: []string{Scheme, "internal", "toy/internal", ""}, want: []string{"toy/internal", "true"}},
	"the own one must have a value": {
		given:   []string{CheckPath, "/a", "toy/path", ""},
		warning: "annotations anyccm.io/load-balancer-health-check-path and toy/path: contradict",
	},
	"a path in another case":      {given: []string{CheckPath, "/Ready", "toy/path", "/ready"}, warning: `contradict: "/Ready" and "/ready"`},
	"the own number agrees":       {given: []string{HealthyThreshold, "3", "toy/tries", "+03"}},
	"the own one agrees":          {given: []string{Scheme, "internal", "toy/internal", "1"}},
	"no such thing, harmless":     {given: []string{Algorithm, "source-ip"}, warning: `annotation anyccm.io/load-balancer-algorithm: "source-ip" has no effect on Toy; remove it`},
	"no such thing, refused":      {given: []string{SecurityGroups, "a"}, err: `annotation anyccm.io/load-balancer-security-groups: "a" cannot be served on Toy, so that nothing is created or changed; remove it`},
	"ports without a certificate": {given: []string{TLSPorts, "443"}, err: "needs anyccm.io/load-balancer-certificate"},
	"a port that is none": {
		given: []string{TLSPorts, "https, 8443", Certificate, "x"},
		want:  []string{"toy/certificate", "x"},
		err:   `holds "8443", which is no TCP port of the Service`,
	},
	"a port of UDP":             {given: []string{TLSPorts, "dns", Certificate, "x"}, want: []string{"toy/certificate", "x"}, err: `holds "dns"`},
	"an address that is none":   {given: []string{Address, "web"}, err: "is not an IP address"},
	"two addresses of a family": {given: []string{Address, "192.0.2.1,192.0.2.2"}, err: "holds several addresses of a family"},
	"tags":                      {given: []string{Tags, "team"}, err: `is not a list of tags; use a form such as "team=web,stage=prod"`},
	"a path":                    {given: []string{CheckPath, "healthz"}, err: "is not a path"},
	"a selector":                {given: []string{BackendSelector, "a in b"}, err: "is not a label selector"},
	"a good selector":           {given: []string{BackendSelector, "a in (b),!c"}},
	"all at once":               {given: []string{Scheme, "x", HealthyThreshold, "0", CheckPort, "http"}, err: "health-check-port: \"http\" is not a port; use node-port or 1 to 65535"},
}

func TestTranslate(t *testing.T) {
	t.Parallel()
	for name, c := range translations {
		s := web(c.given...)
		before := s.DeepCopy()
		r := Translate(toy, s)
		assert.Equal(t, before, s, "%s: the Service itself stays", name)
		want := before.Annotations
		for i := 0; i < len(c.want); i += 2 {
			want[c.want[i]] = c.want[i+1]
		}
		assert.Equal(t, want, r.Service.Annotations, name)
		if c.err == "" {
			require.NoError(t, r.Err, name)
		} else {
			require.ErrorContains(t, r.Err, c.err, name)
		}
		if c.warning == "" {
			assert.Empty(t, r.Warnings, name)
		} else if assert.Len(t, r.Warnings, 1, name) {
			assert.Contains(t, r.Warnings[0].Error(), c.warning, name)
		}
	}
}

func TestNothingAskedCostsNothing(t *testing.T) { //nolint:paralleltest // allocations are counted
	s := web("anyccm.io/load-balancer-ip-mode", "Proxy", "toy/internal", "true")
	assert.Same(t, s, Translate(toy, s).Service)
	assert.Zero(t, testing.AllocsPerRun(10, func() { Translate(toy, s) }))
}

func TestAddressAndHostname(t *testing.T) {
	t.Parallel()
	s := web(Address, "192.0.2.1", Hostname, "web.example.com")
	s.Spec.LoadBalancerIP = "192.0.2.9"
	r := Translate(toy, s)
	require.NoError(t, r.Err)
	assert.Equal(t, "192.0.2.1", r.Service.Spec.LoadBalancerIP)
	assert.Equal(t, "192.0.2.9", s.Spec.LoadBalancerIP)
	assert.Equal(t, Address, r.From[FieldLoadBalancerIP], "a plan says where it comes from")
	assert.Equal(t, "web.example.com", r.Hostname, "the cloud has no annotation for it")
}

func TestExplained(t *testing.T) {
	t.Parallel()
	r := Translate(toy, web(CheckInterval, "10s"))
	problem := &schema.Problem{Place: "annotation toy/seconds", Value: "10", Reason: "is less than the timeout"}
	assert.Equal(t, `annotation anyccm.io/load-balancer-health-check-interval, which is toy/seconds: "10" is less than the timeout`, r.Named(problem).Error())
	assert.Equal(t, `annotation toy/seconds: "10" is less than the timeout (toy/seconds comes from anyccm.io/load-balancer-health-check-interval)`, r.Explain(problem).Error())
	require.ErrorIs(t, r.Explain(problem), problem)
	assert.Equal(t, r.Named(problem).Error(), Words(With(t.Context(), r))(problem.Error()), "events have the words of validate")
	assert.Equal(t, problem.Error(), Words(t.Context())(problem.Error()))
	assert.False(t, Refused(With(t.Context(), r)))
	assert.True(t, Refused(With(t.Context(), Translate(toy, web(Scheme, "x")))))
	other := &schema.Problem{Place: "annotation toy/tries", Reason: "x"}
	assert.Same(t, other, r.Explain(other))
}

func TestDefaultsGiveWay(t *testing.T) {
	t.Parallel()
	defaults := map[string]string{Scheme: "internal", "toy/tries": "4", "note": "default", IdleTimeout: "10s"}
	with, added := WithDefaults(toy, web(HealthyThreshold, "3", "toy/internal", "false"), defaults)
	assert.Equal(t, map[string]string{IdleTimeout: "10s"}, added, "the Service says all else itself")
	assert.Equal(t, "kept", with.Annotations["note"])
	s := web()
	with, added = WithDefaults(toy, s, defaults)
	assert.Len(t, added, 3)
	assert.Equal(t, "internal", with.Annotations[Scheme])
	assert.NotContains(t, s.Annotations, Scheme)
	none := web("toy/internal", "false")
	with, _ = WithDefaults(toy, none, map[string]string{Scheme: "internal"})
	assert.Same(t, none, with)
	with, _ = WithDefaults(toy, web(Scheme, ""), map[string]string{Scheme: "internal"})
	assert.Equal(t, "internal", with.Annotations[Scheme], "a template without a value opens nothing")
	with, _ = WithDefaults(toy, &v1.Service{}, defaults)
	assert.Equal(t, "internal", with.Annotations[Scheme])
}

// TestSelectorsAreRead: what cannot be read is an error, and never a selector of all nodes.
func TestSelectorsAreRead(t *testing.T) {
	t.Parallel()
	none, err := Selector(map[string]string{BackendSelector: ""})
	require.NoError(t, err)
	assert.Nil(t, none)
	assert.False(t, Selects(map[string]string{BackendSelector: ""}))
	bad := map[string]string{BackendSelector: "pool in edge"}
	_, err = Selector(bad)
	require.EqualError(t, err, `annotation anyccm.io/load-balancer-backend-selector: "pool in edge" is not a label selector; `+
		`use a form such as "pool=edge,zone in (a,b)"`)
	assert.True(t, Selects(bad))
}

func TestTable(t *testing.T) {
	t.Parallel()
	require.NoError(t, Annotations.Defaults())
	keys := map[string]bool{}
	for _, row := range Annotations.Rows() {
		keys[row.Key] = true
		assert.True(t, strings.HasPrefix(row.Key, Prefix), row.Key)
		assert.NotEmpty(t, row.Help, row.Key)
	}
	assert.Len(t, keys, 21)
	assert.Negative(t, slices.IndexFunc(essential, func(k string) bool { return !keys[k] }))
}
