package app

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/textlogger"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/defaults"
	"github.com/anyccm/cloud-controller-manager/registry/portable"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// shades are two clouds, only one of which has internal load balancers.
func shades(t *testing.T) *registry.Registry {
	t.Helper()
	r := &registry.Registry{}
	require.NoError(t, r.Add(provider("light", func(p *registry.Provider) {
		p.Annotations = []schema.AnnotationRow{{Key: "light/internal", Spec: schema.Spec{Kind: schema.KindBool}, Serves: []schema.Serves{{
			Portable: portable.Scheme, Values: map[string]string{portable.SchemePublic: "false", portable.SchemeInternal: "true"},
		}}}}
	})))
	require.NoError(t, r.Add(provider("dark", nil)))
	return r
}

func runValidate(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := validateCommand(choose(shades(t), args))
	out := &strings.Builder{}
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const portableManifests = `apiVersion: v1
kind: Service
metadata: {name: a, namespace: shop, annotations: {anyccm.io/load-balancer-scheme: internal}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: b, annotations: {anyccm.io/load-balancer-algorithm: round-robin}}
spec: {type: LoadBalancer, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: c}
spec: {type: LoadBalancer, ports: [{port: 80}]}
`

func TestValidateAllClouds(t *testing.T) { //nolint:paralleltest // cobra writes to global variables
	out, err := runValidate(t, portableManifests, "--cloud-provider=all", "-f", "-")
	require.Error(t, err, "a cloud refuses")
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, []string{
		"SERVICE CLOUD OUTCOME WHY",
		`shop/a dark refused annotation anyccm.io/load-balancer-scheme: "internal" cannot be served on dark, so that nothing is created or changed; remove it`,
		`b dark without effect annotation anyccm.io/load-balancer-algorithm: "round-robin" has no effect on dark; remove it`,
		"c dark served",
		"shop/a light served",
		`b light without effect annotation anyccm.io/load-balancer-algorithm: "round-robin" has no effect on light; remove it`,
		"c light served",
	}, rows)
	out, err = runValidate(t, portableManifests, "--cloud-provider=all", "-f", "-", "-o", "json")
	require.Error(t, err)
	assert.Contains(t, out, `"refused": 1`)
	assert.Contains(t, out, `"outcome": "without effect"`)
	_, err = runValidate(t, strings.Split(portableManifests, "---\n")[2], "--cloud-provider=all", "-f", "-")
	require.NoError(t, err)
	_, err = runValidate(t, portableManifests, "--cloud-provider=all", "--cloud-config=x", "-f", "-")
	require.ErrorContains(t, err, "--cloud-config: is that of one cloud")
}

func TestValidateKnowsDefaults(t *testing.T) { //nolint:paralleltest // cobra writes to global variables
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	require.NoError(t, os.WriteFile(file, []byte("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: internal, anyccm.io/load-balancer-algorithm: round-robin}\n"), 0o600))
	out, err := runValidate(t, strings.Split(portableManifests, "---\n")[2], "--cloud-provider=light", "-f", "-", "--service-defaults="+file)
	require.NoError(t, err)
	assert.Contains(t, out, "anyccm.io/load-balancer-algorithm")
	_, err = runValidate(t, portableManifests, "--cloud-provider=dark", "-f", "-", "--service-defaults="+file)
	require.ErrorContains(t, err, "--service-defaults="+file+`: line 2: annotation anyccm.io/load-balancer-scheme: "internal" cannot be served on dark`)
}

// TestValidateAllTellsWhichCloudRefusesDefaults, and how the others handle the Services.
func TestValidateAllTellsWhichCloudRefusesDefaults(t *testing.T) { //nolint:paralleltest // cobra writes to global variables
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	const text = "- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n"
	require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	out, err := runValidate(t, strings.Split(portableManifests, "---\n")[2], "--cloud-provider=all", "-f", "-", "--service-defaults="+file)
	require.Error(t, err)
	var rows []string
	for line := range strings.Lines(out) {
		rows = append(rows, strings.Join(strings.Fields(line), " "))
	}
	assert.Equal(t, []string{
		"SERVICE CLOUD OUTCOME WHY",
		"(defaults) dark refused --service-defaults=" + file + `: line 2: annotation anyccm.io/load-balancer-scheme: "internal" cannot be ` +
			"served on dark, so that nothing is created or changed; remove it",
		"c light served",
	}, rows)
}

// look reads the file in its present state.
func (d *serviceDefaults) look(ctx context.Context, p registry.Provider, broken string, report func(kind, reason, message string)) string {
	data, err := readDefaults(d.path)
	return d.applyContent(ctx, p, registry.Inputs{}, data, err, broken, report)
}

// heard records which Services changed.
type heard struct{ names []string }

func (h *heard) OnAdd(any, bool) {}
func (h *heard) OnDelete(any)    {}
func (h *heard) OnUpdate(before, now any) {
	a, okA := before.(*v1.Service)
	b, okB := now.(*v1.Service)
	if okA && okB && a.Annotations[defaulted] != b.Annotations[defaulted] {
		h.names = append(h.names, b.Name)
	}
}

// TestChangedDefaults: only the Services that a change affects are reconciled, and a broken file changes nothing.
func TestChangedDefaults(t *testing.T) {
	t.Parallel()
	light, err := shades(t).Lookup("light")
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	store, h := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{}), &heard{}
	add := func(name, class string, annotations map[string]string) {
		s := &v1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}, Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer},
		}
		if class != "" {
			s.SetSelfLink(defaults.Selected + class)
		}
		require.NoError(t, store.Add(s))
	}
	add("plain", "", nil)
	add("own", "", map[string]string{"light/internal": "false"})
	add("classed", "internal", nil)
	var events []string
	report := func(_, reason, message string) { events = append(events, reason+" "+message) }

	write("- loadBalancerClass: internal\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n")
	d := &serviceDefaults{path: file}
	require.NoError(t, d.load(light, registry.Inputs{}))
	assert.Equal(t, []string{"internal"}, d.servedClasses())
	d.notifier.services, d.notifier.handlers = listers.NewServiceLister(store), []cache.ResourceEventHandler{h}
	assert.Empty(t, d.look(t.Context(), light, "", report))
	assert.Empty(t, h.names, "nothing changed")

	write("- loadBalancerClass: internal\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n")
	broken := d.look(t.Context(), light, "", report)
	assert.Equal(t, []string{"plain"}, h.names, "one says it itself, and one has it already")

	write("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: intern}\n")
	broken = d.look(t.Context(), light, broken, report)
	assert.Equal(t, broken, d.look(t.Context(), light, broken, report))
	require.Len(t, events, 1, "told once")
	assert.Contains(t, events[0], `ServiceDefaultsInvalid the defaults of Services are broken, and the last good ones stay in force: --service-defaults=`+file+`: line 2: annotation anyccm.io/load-balancer-scheme: "intern" is not one of "public", "internal"`)
	assert.Equal(t, "internal", d.source.Of("")[portable.Scheme], "the last good one stays in force")

	write("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: public}\n")
	assert.Empty(t, d.look(t.Context(), light, broken, report))
	assert.Len(t, events, 3)
	assert.Equal(t, "ServiceDefaultsValid the defaults of Services are good again", events[1])
	assert.Equal(t, "ServiceDefaultsPending class internal is gone from the defaults of Services; it is served, with the defaults that it had, until a restart", events[2])
	assert.ElementsMatch(t, []string{"plain", "plain"}, h.names, "what was internal by its class stays so")
	assert.Equal(t, "internal", d.source.Of("internal")[portable.Scheme])
	assert.Equal(t, []string{"internal"}, d.servedClasses(), "a class is served until the program ends")

	write("- loadBalancerClass: fast\n- loadBalancerClass: internal\n  annotations: {anyccm.io/load-balancer-scheme: public}\n")
	assert.Empty(t, d.look(t.Context(), light, "", report))
	assert.Equal(t, []string{"internal"}, d.servedClasses())
	assert.Len(t, events, 4)
	assert.Equal(t, "ServiceDefaultsPending class fast is new in the defaults of Services, and is served after a restart", events[3])
	assert.ElementsMatch(t, []string{"plain", "plain", "plain", "classed"}, h.names, "what is in the file counts again")
}

// TestHalfWrittenDefaults: a file that is being written is not applied; an empty or endless one is an error; one replaced by a symbolic
// link, like a ConfigMap's, is applied.
func TestHalfWrittenDefaults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		light, err := shades(t).Lookup("light")
		require.NoError(t, err)
		folder := t.TempDir()
		file := filepath.Join(folder, "defaults.yaml")
		const internal = "- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n"
		version := 0
		swap := func(text string) { // as the kubelet does
			version++
			data := filepath.Join(folder, fmt.Sprint("..", version))
			require.NoError(t, os.Mkdir(data, 0o700))
			require.NoError(t, os.WriteFile(filepath.Join(data, "defaults.yaml"), []byte(text), 0o600))
			require.NoError(t, os.Symlink(data, filepath.Join(folder, "..tmp")))
			require.NoError(t, os.Rename(filepath.Join(folder, "..tmp"), filepath.Join(folder, "..data")))
		}
		swap(internal)
		require.NoError(t, os.Symlink(filepath.Join("..data", "defaults.yaml"), file))
		d := &serviceDefaults{path: file}
		require.NoError(t, d.load(light, registry.Inputs{}))
		var events []string
		go d.follow(t.Context(), light, registry.Inputs{}, func(_, reason, _ string) { events = append(events, reason) })
		time.Sleep(defaultsPeriod / 2) // between two reads
		pass := func(looks int) { time.Sleep(time.Duration(looks) * defaultsPeriod); synctest.Wait() }
		scheme := func() string { return d.source.Of("")[portable.Scheme] }
		pass(2)

		swap("- loadBalancerClass: \"\"\n") // half-written content
		pass(1)
		assert.Equal(t, "internal", scheme(), "what is half written is not in force")
		swap(internal + "# and more\n")
		pass(3)
		assert.Equal(t, "internal", scheme())
		assert.Empty(t, events, "what was half written was never in force")
		for _, broken := range []string{"", internal + strings.Repeat("# more\n", maxDefaults/7)} {
			swap(broken)
			pass(3)
			assert.Equal(t, "internal", scheme())
			assert.Equal(t, "ServiceDefaultsInvalid", events[len(events)-1])
			swap(internal)
			pass(3)
			assert.Equal(t, "ServiceDefaultsValid", events[len(events)-1])
		}
		swap("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: public}\n")
		pass(3)
		assert.Equal(t, "public", scheme())
		swap("[]")
		pass(3)
		assert.Empty(t, scheme())
	})
}

// TestBrokenDefaultsAreTold by event, metric and log, and so is their correction. Not parallel, because the metric is global.
func TestBrokenDefaultsAreTold(t *testing.T) { //nolint:paralleltest // see above
	light, err := shades(t).Lookup("light")
	require.NoError(t, err)
	var logged bytes.Buffer
	ctx := klog.NewContext(t.Context(), textlogger.NewLogger(textlogger.NewConfig(textlogger.Output(&logged))))
	file := filepath.Join(t.TempDir(), "defaults.yaml")
	write := func(text string) { require.NoError(t, os.WriteFile(file, []byte(text), 0o600)) }
	var events []string
	report := func(kind, reason, _ string) { events = append(events, kind+" "+reason) }
	registerDefaultsMetrics()
	invalid := func() float64 {
		value, err := testutil.GetGaugeMetricValue(defaultsInvalid)
		require.NoError(t, err)
		return value
	}
	write("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: public}\n")
	d := &serviceDefaults{path: file}
	require.NoError(t, d.load(light, registry.Inputs{}))
	assert.Zero(t, invalid())
	write("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: [public\n")
	broken := d.look(ctx, light, "", report)
	assert.Equal(t, "public", d.source.Of("")[portable.Scheme], "the last good one stays in force")
	assert.Equal(t, []string{"Warning ServiceDefaultsInvalid"}, events)
	assert.InDelta(t, 1, invalid(), 0)
	assert.Contains(t, logged.String(), "The defaults of Services are broken; the last good ones stay in force")
	require.NoError(t, os.Remove(file))
	broken = d.look(ctx, light, broken, report)
	assert.Contains(t, broken, "no such file", "a file that is gone is broken as well")
	assert.Equal(t, "public", d.source.Of("")[portable.Scheme])
	write("- loadBalancerClass: \"\"\n  annotations: {anyccm.io/load-balancer-scheme: internal}\n")
	assert.Empty(t, d.look(ctx, light, broken, report))
	assert.Zero(t, invalid())
	assert.Equal(t, "Normal ServiceDefaultsValid", events[len(events)-1])
	assert.Equal(t, "internal", d.source.Of("")[portable.Scheme])
}

// TestClassesOfDefaultsAreServed, and are still known after the framework's copy was changed.
func TestClassesOfDefaultsAreServed(t *testing.T) {
	t.Parallel()
	d := &serviceDefaults{classes: []string{"internal"}}
	s := serviceSelection{mode: unclassed, defaults: d}
	service := &v1.Service{Spec: v1.ServiceSpec{Type: v1.ServiceTypeLoadBalancer, LoadBalancerClass: new("internal")}}
	s.apply(service)
	s.apply(service)
	assert.Nil(t, service.Spec.LoadBalancerClass)
	assert.Equal(t, "internal", defaults.ClassOf(service))
	assert.True(t, s.selects(nil))
	assert.False(t, s.selects(new("other")))
}

// TestValidateWithConfig: what keeps the program from starting with a cloud config is an error of validate, unless the environment may hold
// it. Without a cloud config, validate says which options it took.
func TestValidateWithConfig(t *testing.T) {
	r := &registry.Registry{}
	require.NoError(t, r.Add(provider("toy", func(p *registry.Provider) {
		p.Installation.Config.Format = registry.INI
		p.Validate = func(in registry.Inputs) error {
			absent := &schema.Problem{Place: "key user of the cloud config", Reason: "is required and is not set"}
			elsewhere := &schema.Problem{Place: "flags --one and --two", Reason: "exclude each other", InFile: true}
			return errors.Join(absent, schema.BlameKey("size", string(in.File), "is not a number"), elsewhere)
		}
		p.Warnings = func(registry.Inputs) error {
			return schema.WarnOfKey("colour", "is unknown")
		}
	})))
	config := filepath.Join(t.TempDir(), "toy.conf")
	require.NoError(t, os.WriteFile(config, []byte("big"), 0o600))
	validate := func(args ...string) (string, error) {
		cmd := validateCommand(choose(r, nil))
		out := &strings.Builder{}
		cmd.SetArgs(append([]string{"-f", "-"}, args...))
		cmd.SetIn(strings.NewReader("{apiVersion: v1, kind: Service, metadata: {name: web}, spec: {type: LoadBalancer}}"))
		cmd.SetOut(out)
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		err := cmd.ExecuteContext(t.Context())
		return out.String(), err
	}
	out, err := validate("--cloud-config=" + config)
	assert.Equal(t, config+":1: error: key size of the cloud config: \"big\" is not a number\n"+
		config+":1: error: flags --one and --two: exclude each other\n"+
		config+":1: warning: key colour of the cloud config: is unknown\nServices of type LoadBalancer: 1, errors: 2, warnings: 1\n", out)
	require.Error(t, err)
	out, err = validate()
	require.NoError(t, err)
	assert.Contains(t, out, "note: without --cloud-config the options that it holds are taken for their defaults\n")
}
