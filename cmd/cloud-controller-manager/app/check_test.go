package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	v1 "k8s.io/api/core/v1"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const colour = "example.com/lb-colour"

// colours is a provider with one annotation, whose valid values depend on an option.
func colours() *registry.Registry {
	r := &registry.Registry{}
	p := provider("alpha", func(p *registry.Provider) {
		p.Annotations = []schema.AnnotationRow{{Key: colour}}
		p.Options = []schema.OptionRow{{Flag: "colours"}}
		p.CheckService = func(in registry.Inputs, s *v1.Service) (warnings, err error) {
			legal := in.Flags["colours"]
			if legal == "" {
				legal = "red"
			}
			if c := s.Annotations[colour]; c != "" && c != legal {
				err = &schema.Problem{Place: "annotation " + colour, Value: c, Reason: "is not " + legal}
			}
			for _, port := range s.Spec.Ports {
				if port.Protocol == "" || port.NodePort == 0 {
					err = &schema.Problem{Place: "spec.ports", Reason: "lack what the API server fills in"}
				}
			}
			return nil, err
		}
	})
	if err := r.Add(p); err != nil {
		panic(err)
	}
	return r
}

// validateRun runs the command and returns its output. Not in parallel: cobra writes to global variables.
func validateRun(t *testing.T, input string, args ...string) (string, error) {
	t.Helper()
	cmd := validateCommand(choose(colours(), args))
	out := &bytes.Buffer{}
	cmd.SetArgs(args)
	cmd.SetIn(strings.NewReader(input))
	cmd.SetOut(out)
	cmd.SetErr(out)
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	err := cmd.ExecuteContext(t.Context())
	return out.String(), err
}

const manifests = `# comment
apiVersion: v1
kind: Service
metadata:
  name: web
  namespace: shop
  annotations:
    example.com/lb-colour: blue
    example.com/lb-coluor: red
spec:
  type: LoadBalancer
  ports: [{port: 80}]
---
apiVersion: v1
kind: List
items:
- apiVersion: v1
  kind: Service
  metadata: {name: fine, annotations: {example.com/lb-colour: red}}
  spec: {type: LoadBalancer, ports: [{port: 80}]}
- apiVersion: v1
  kind: Service
  metadata: {name: strange, annotation: {}}
  spec: {type: LoadBalancer}
- apiVersion: v1
  kind: Service
  metadata: {name: inside, annotations: {example.com/lb-colour: blue}}
  spec: {type: ClusterIP}
- {apiVersion: v1, kind: ConfigMap}
---
`

func TestValidateCommand(t *testing.T) {
	out, err := validateRun(t, manifests, "-f", "-")
	require.Error(t, err)
	lines := strings.Split(strings.TrimSpace(out), "\n")
	require.Len(t, lines, 4)
	assert.Equal(t, `-:8: error: Service shop/web: annotation example.com/lb-colour: "blue" is not red`, lines[0])
	assert.Equal(t, "-:9: warning: Service shop/web: annotation example.com/lb-coluor: is unknown and has no effect; did you mean example.com/lb-colour?", lines[1])
	assert.Regexp(t, `^-:21: error: Service strange: this is not a valid Service: unknown field "metadata.annotation"`, lines[2])
	assert.Equal(t, "Services of type LoadBalancer: 3, errors: 2, warnings: 1", lines[3])
}

func TestValidateCommandJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "service.json")
	require.NoError(t, os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web",
		"annotations": {"example.com/lb-colour": "blue"}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]}}`), 0o600))
	out, err := validateRun(t, "", "-f", file, "-o", "json")
	require.Error(t, err)
	var v verdict
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	want := verdict{Provider: "alpha", Services: 1, Errors: 1, Findings: []finding{{
		File: file, Line: 2, Service: "web", Severity: severityError, Message: `annotation example.com/lb-colour: "blue" is not red`,
	}}}
	assert.Equal(t, want, v)

	out, err = validateRun(t, "", "-f", file, "-o", "json", "--colours=blue")
	require.NoError(t, err, "an option changes what is legal")
	require.NoError(t, json.Unmarshal([]byte(out), &v))
	assert.Equal(t, verdict{Provider: "alpha", Services: 1, Findings: []finding{}}, v)
}

func TestValidateCommandRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		input string
		args  []string
		want  string
	}{
		"no file":           {"", nil, "--filename is missing"},
		"a file that lacks": {"", []string{"-f", "nowhere.yaml"}, "nowhere.yaml"},
		"a format":          {"", []string{"-f", "-", "-o", "xml"}, "use text, json or yaml"},
		"a provider":        {"", []string{"-f", "-", "--cloud-provider=alhpa"}, `did you mean "alpha"?`},
		"a mode alone":      {"", []string{"-f", "-", "--load-balancer-class-mode=named"}, "needs --load-balancer-class"},
		"a class alone":     {"", []string{"-f", "-", "--load-balancer-class=example.com/x"}, "has no effect with --load-balancer-class-mode=unclassed"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := validateRun(t, c.input, c.args...)
			require.ErrorContains(t, err, c.want)
		})
	}
	out, err := validateRun(t, "common: &lb {type: LoadBalancer, ports: [{port: 80}]}\n---\nkind: List\nitems:\n- &web {apiVersion: v1, kind: Service, metadata: &m {name: web, annotations: {example.com/lb-colour: blue}}, spec: {type: LoadBalancer}}\n- *web\n", "-f", "-")
	require.Error(t, err)
	assert.Equal(t, 2, strings.Count(out, `:5: error: Service web: annotation example.com/lb-colour: "blue" is not red`), "aliases are followed: %s", out)
	out, err = validateRun(t, "kind: [Service\n", "-f", "-")
	require.Error(t, err)
	assert.Contains(t, out, "-:1: error: this is neither YAML nor JSON")
}

// TestValidateReadsAsTheAPIServerDoes: a manifest that kubectl could not apply is a fault, with its line and a correction.
func TestValidateReadsAsTheAPIServerDoes(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata:\n  name: web\n  annotations:\n    example.com/lb-colour: %s\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n"
	for _, value := range []string{"true", "False", "yes", "off", "3", "1.5", "0x1F", "1e3"} {
		out, err := validateRun(t, fmt.Sprintf(service, value), "-f", "-", "--colours="+value)
		require.Error(t, err, value)
		want := "-:6: error: Service web: annotation example.com/lb-colour: " + value + " without quotes is no text, and the API server refuses it; write \"" + value + "\"\n"
		assert.Equal(t, want+"Services of type LoadBalancer: 1, errors: 1, warnings: 0\n", out)
	}
	for _, value := range []string{`"true"`, "'3'", "red", "2006-01-02", "10.0.0.0/8", "!!str 3", ""} {
		_, err := validateRun(t, fmt.Sprintf(service, value), "-f", "-", "--colours="+strings.Trim(strings.TrimPrefix(value, "!!str "), `"'`))
		require.NoError(t, err, value)
	}
	for name, c := range map[string][2]string{
		"a label":          {`metadata: {name: web, labels: {tier: 1}}`, "label tier: 1 without quotes is no text"},
		"an alias":         {`metadata: {name: &n yes, annotations: {a/b: *n}}`, "annotation a/b: yes without quotes"},
		"a field's case":   {`metadata: {name: web, Labels: {tier: a}}`, `unknown field "metadata.Labels"`},
		"a type":           {`metadata: {name: 3}`, "cannot unmarshal number"},
		"a list for a map": {`metadata: {name: web, annotations: [a]}`, "cannot unmarshal array"},
	} {
		text := "apiVersion: v1\nkind: Service\n" + c[0] + "\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n"
		out, err := validateRun(t, text, "-f", "-")
		require.Error(t, err, name)
		assert.Contains(t, out, c[1], name)
		_, err = servicesIn([]byte(text))
		require.ErrorContains(t, err, c[1], "plan reads it in the same way")
	}
}

// TestValidateWithoutLoadBalancers: a cloud without load balancers is reported, and other clouds' outcomes stay.
func TestValidateWithoutLoadBalancers(t *testing.T) {
	const service = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {type: LoadBalancer, ports: [{port: 80}]}\n"
	m := newManager(t, provider("plain", nil), provider("none", func(p *registry.Provider) { p.Features.LoadBalancers = registry.CloudHasNone }),
		provider("later", func(p *registry.Provider) { p.Features.LoadBalancers = registry.NotYet }))
	run := func(args ...string) string {
		cmd := validateCommand(choose(m.providers, args))
		out := &bytes.Buffer{}
		cmd.SetArgs(append(args, "-f", "-"))
		cmd.SetIn(strings.NewReader(service))
		cmd.SetOut(out)
		require.NoError(t, cmd.ExecuteContext(t.Context()))
		return out.String()
	}
	const none = "is not served: its load balancer is left to another controller, because there are none on none"
	assert.Contains(t, run("--cloud-provider=none"), "-:1: warning: Service web: "+none+"\n")
	assert.Contains(t, run("--cloud-provider=later"), "because this program makes none on later yet\n")
	table := run("--cloud-provider=all")
	assert.Regexp(t, "web +plain +served *\n", table)
	assert.Regexp(t, "web +none +not served +"+none, table)
	assert.Contains(t, run("--cloud-provider=all", "-o", "json"), `"outcome": "not served"`)
}

// FuzzManifests: no file makes the command panic.
func FuzzManifests(f *testing.F) {
	f.Add([]byte(manifests))
	f.Add([]byte("&a {kind: List, items: [*a]}"))
	f.Add([]byte("kind: ServiceList\nitems: 3"))
	f.Add([]byte("a: &x {kind: Service}\n---\n- *x"))
	r := colours()
	p, err := r.Lookup("alpha")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(_ *testing.T, data []byte) { (&serviceCheck{}).checkManifests(p, registry.Inputs{}, data) })
}

// TestValidateTellsWhatIsLeft: Services of other controllers are neither served nor faulty, whatever their annotations.
func TestValidateTellsWhatIsLeft(t *testing.T) {
	r := &registry.Registry{}
	require.NoError(t, r.Add(provider("alpha", func(p *registry.Provider) {
		p.Features.LoadBalancers = registry.Done
		p.Annotations = []schema.AnnotationRow{{Key: colour}}
		p.ServedElsewhere = &schema.Where{Key: colour, OneOf: []string{"external"}}
		p.Controllers = []registry.Controller{{Name: "own-lb-controller", Classes: []string{"example.com/own"}}}
		p.CheckService = func(_ registry.Inputs, s *v1.Service) (warnings, err error) {
			if s.Annotations[colour] == "bad" {
				return nil, &schema.Problem{Place: "annotation " + colour, Value: "bad", Reason: "is no colour"}
			}
			return nil, nil
		}
	})))
	const service = `{"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "annotations": {"example.com/lb-colour": "%s"}}, "spec": {"type": "LoadBalancer", "ports": [{"port": 80}]%s}}`
	named := []string{"--load-balancer-class=example.com/ours", "--load-balancer-class-mode=named"}
	for name, c := range map[string]struct {
		colour, class string
		args          []string
		outcome, says string
	}{
		"ours":              {colour: "red", outcome: outcomeServed},
		"wrong":             {colour: "bad", outcome: outcomeRefused, says: "is no colour"},
		"by an annotation":  {colour: "external", outcome: outcomeLeft, says: "its class or its annotations ask for that"},
		"a foreign class":   {colour: "bad", class: "example.com/other", outcome: outcomeLeft, says: "spec.loadBalancerClass example.com/other is not one that this program serves"},
		"a controller's":    {colour: "red", class: "example.com/own", outcome: outcomeLeft, says: "is served where --controllers names own-lb-controller"},
		"our class":         {colour: "red", class: "example.com/ours", args: named, outcome: outcomeServed},
		"no class, but one": {colour: "red", args: named, outcome: outcomeLeft, says: "it has no class"},
	} {
		t.Run(name, func(t *testing.T) {
			class := ""
			if c.class != "" {
				class = fmt.Sprintf(`, "loadBalancerClass": "%s"`, c.class)
			}
			run := func(args ...string) string {
				args = append(args, c.args...)
				cmd := validateCommand(choose(r, args))
				out := &bytes.Buffer{}
				cmd.SetArgs(args)
				cmd.SetIn(strings.NewReader(fmt.Sprintf(service, c.colour, class)))
				cmd.SetOut(out)
				cmd.SilenceUsage, cmd.SilenceErrors = true, true
				assert.Equal(t, c.outcome == outcomeRefused, cmd.ExecuteContext(t.Context()) != nil)
				return out.String()
			}
			var all outcomes
			require.NoError(t, json.Unmarshal([]byte(run("--cloud-provider=all", "-f", "-", "-o", "json")), &all))
			require.Len(t, all.Results, 1)
			assert.Equal(t, c.outcome, all.Results[0].Outcome)
			text := run("--cloud-provider=alpha", "-f", "-")
			assert.Contains(t, text, c.says)
			assert.Equal(t, c.outcome == outcomeLeft, strings.Contains(text, ": note: Service web: is left to another controller: "), text)
			assert.Contains(t, text, "warnings: 0\n")
		})
	}
}
