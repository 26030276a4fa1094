package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	yamlnode "go.yaml.in/yaml/v3"
	v1 "k8s.io/api/core/v1"
	kubejson "sigs.k8s.io/json"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// serviceCheck checks manifests of Services before they are applied, with the controllers' own tables.
type serviceCheck struct {
	providers   *registry.Registry
	cmd         *cobra.Command
	provider    string
	cloudConfig string
	files       manifestFiles
	output      string
	defaults    serviceDefaults
	services    serviceSelection
}

// Severities of findings.
const (
	severityError   = "error"
	severityWarning = "warning"
	severityNote    = "note"
)

// finding is a fault, or a setting without effect, in a manifest.
type finding struct {
	File string `json:"file"`
	// Line starts at 1; it is the Service's first line if no other applies.
	Line     int    `json:"line"`
	Service  string `json:"service,omitempty"`
	Severity string `json:"severity"`
	Message  string `json:"message"`

	// notServed: the cloud serves no Services.
	notServed bool
	// left: another controller serves the Service.
	left bool
}

// verdict is the command's output with -o json.
type verdict struct {
	Provider string `json:"provider"`
	// Services counts the checked Services of type LoadBalancer.
	Services int `json:"services"`
	Errors   int `json:"errors"`
	Warnings int `json:"warnings"`
	// Note says by which options the Services were judged, where nobody said.
	Note     string    `json:"note,omitempty"`
	Findings []finding `json:"findings"`
}

func validateCommand(chosen choice) *cobra.Command {
	c := &serviceCheck{providers: chosen.providers}
	c.cmd = &cobra.Command{
		Use:     "validate [FILE or folder]...",
		Short:   "Check Services in files before they are applied; needs neither a cluster nor the cloud",
		Example: chosen.example("validate --cloud-provider=%s service.yaml"),
		RunE:    func(_ *cobra.Command, args []string) error { return c.run(args) },
	}
	fs := c.cmd.Flags()
	fs.StringVar(&c.provider, "cloud-provider", "", "The cloud, or "+allClouds+" for a table of what each linked cloud makes of the Services.")
	c.defaults.addFlags(fs)
	c.services.addFlags(fs)
	fs.StringVar(&c.cloudConfig, "cloud-config", "", "The provider's configuration file, for the defaults that it sets.")
	c.files.addFlags(c.cmd)
	addOutputFlag(c.cmd, &c.output, humanText)
	chosen.completeProviders(c.cmd, allClouds)
	chosen.addFlags(c.cmd)
	return c.cmd
}

func (c *serviceCheck) run(args []string) error {
	var p registry.Provider
	var err error
	if c.provider != allClouds {
		if p, err = c.providers.Lookup(c.provider); err != nil {
			return usage(err)
		}
	}
	if err := errors.Join(checkOutput(c.output, humanText), usage(c.services.validate())); err != nil {
		return err
	}
	if err := c.files.addArguments(args); err != nil {
		return err
	}
	contents, err := c.files.read(c.cmd.InOrStdin())
	if err != nil {
		return err
	}
	if c.provider == allClouds {
		return c.runAll(contents)
	}
	// Endpoints without TLS are no fault here, because no endpoint is called.
	flags := schema.SetFlags(c.cmd.Flags(), p.Options)
	in := registry.Inputs{
		Version: version,
		Sources: schema.Sources{LookupEnv: schema.Environment, EnvNames: schema.EnvironmentNames, Flags: flags, AllowInsecureEndpoints: true},
	}
	if c.cloudConfig != "" {
		in.FilePath = c.cloudConfig
		if in.File, err = os.ReadFile(c.cloudConfig); err != nil {
			return fmt.Errorf("--cloud-config: %w", err)
		}
	}
	if err := c.addDefaults(p, &in); err != nil {
		return err
	}
	v := verdict{Provider: p.Name, Findings: c.checkConfig(p, in)}
	if c.cloudConfig == "" && p.Installation.Config.Format != registry.NoConfig {
		v.Note = "without --cloud-config the options that it holds are taken for their defaults"
	}
	for _, file := range contents {
		services, findings := c.checkManifests(p, in, file.data)
		for i := range findings {
			findings[i].File = file.name
		}
		v.Services += len(services)
		v.Findings = append(v.Findings, findings...)
	}
	v.countFindings()
	if err := c.print(v); err != nil {
		return err
	}
	if v.Errors > 0 {
		return &printedError{errors.New("there are faults")}
	}
	return nil
}

// checkConfig returns the faults of the cloud config, with which the program would not start, and what has no effect in it. What may come
// from the environment instead is left out.
func (c *serviceCheck) checkConfig(p registry.Provider, in registry.Inputs) []finding {
	findings := []finding{}
	add := func(severity string, err error) {
		for _, one := range schema.Problems(err) {
			if problem, ok := errors.AsType[*schema.Problem](one); ok && problem.InFile {
				findings = append(findings, finding{File: c.cloudConfig, Line: 1, Severity: severity, Message: one.Error()})
			}
		}
	}
	if c.cloudConfig != "" {
		add(severityError, p.Validate(in))
		if p.Warnings != nil {
			add(severityWarning, p.Warnings(in))
		}
	}
	return findings
}

func (v *verdict) countFindings() {
	for _, f := range v.Findings {
		switch f.Severity {
		case severityError:
			v.Errors++
		case severityWarning:
			v.Warnings++
		}
	}
}

func (c *serviceCheck) addDefaults(p registry.Provider, in *registry.Inputs) error {
	d := &serviceDefaults{path: c.defaults.path}
	if err := d.load(p, *in); err != nil {
		return err
	}
	in.Defaults = &d.source
	return nil
}

func (c *serviceCheck) print(v verdict) error {
	w := c.cmd.OutOrStdout()
	if c.output != humanText {
		return printFor(w, c.output, v)
	}
	for _, f := range v.Findings {
		subject := ""
		if f.Service != "" {
			subject = "Service " + f.Service + ": "
		}
		fmt.Fprintf(w, "%s:%d: %s: %s%s\n", f.File, f.Line, f.Severity, subject, f.Message)
	}
	if v.Note != "" && v.Services > 0 {
		fmt.Fprintf(w, "note: %s\n", v.Note)
	}
	_, err := fmt.Fprintf(w, "Services of type LoadBalancer: %d, errors: %d, warnings: %d\n", v.Services, v.Errors, v.Warnings)
	return err
}

// checkManifests checks all Services of type LoadBalancer in a file, and returns their names.
func (c *serviceCheck) checkManifests(p registry.Provider, in registry.Inputs, data []byte) (services []string, findings []finding) {
	decoder := yamlnode.NewDecoder(strings.NewReader(string(data)))
	for {
		var document yamlnode.Node
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return services, findings
		}
		if err != nil {
			// The decoder's message names the line.
			return services, append(findings, finding{Line: 1, Severity: severityError, Message: "this is neither YAML nor JSON: " + err.Error()})
		}
		for _, object := range objects(&document) {
			names, found := c.checkObject(p, in, object)
			services = append(services, names...)
			findings = append(findings, found...)
		}
	}
}

// objects returns the document itself, or the items of a list.
func objects(document *yamlnode.Node) []*yamlnode.Node {
	if document.Kind == yamlnode.DocumentNode && len(document.Content) == 1 {
		document = document.Content[0]
	}
	items := child(document, "items")
	if kind := child(document, "kind"); kind != nil && strings.HasSuffix(kind.Value, "List") && items != nil {
		return items.Content
	}
	return []*yamlnode.Node{document}
}

// child returns the value at a path of keys, or nil.
func child(node *yamlnode.Node, path ...string) *yamlnode.Node {
	for _, key := range path {
		if node = value(node, key); node == nil {
			return nil
		}
	}
	return node
}

func value(node *yamlnode.Node, key string) *yamlnode.Node {
	if node = resolveAlias(node); node.Kind != yamlnode.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(node.Content); i += 2 {
		if node.Content[i].Value == key {
			return node.Content[i+1]
		}
	}
	return nil
}

// checkObject checks one object; other kinds are ignored.
func (c *serviceCheck) checkObject(p registry.Provider, in registry.Inputs, object *yamlnode.Node) (services []string, findings []finding) {
	kind, apiVersion, serviceType := child(object, "kind"), child(object, "apiVersion"), child(object, "spec", "type")
	if kind == nil || kind.Value != "Service" || apiVersion == nil ||
		apiVersion.Value != "v1" || serviceType == nil || serviceType.Value != string(v1.ServiceTypeLoadBalancer) {
		return nil, nil
	}
	service := &v1.Service{}
	report := func(severity string, problem error) {
		f := finding{Line: lineOf(object, problem), Severity: severity, Message: problem.Error()}
		if service.Name != "" {
			f.Service = qualifiedName(service)
		}
		findings = append(findings, f)
	}
	unquoted := quoteTexts(object)
	if err := decode(object, service); err != nil {
		report(severityError, fmt.Errorf("this is not a valid Service: %w", err))
		return []string{qualifiedName(service)}, findings
	}
	for _, problem := range unquoted {
		report(severityError, problem)
	}
	if p.Features.LoadBalancers != registry.Done {
		report(severityWarning, &notServedError{p})
		findings[len(findings)-1].notServed = true
		return []string{qualifiedName(service)}, findings
	}
	registry.AsStored(service)
	selection := c.services
	selection.more = in.Defaults.Set().Classes()
	if why := selection.reasonToLeave(p, in, service); why != "" {
		report(severityNote, errors.New("is left to another controller: "+why))
		findings[len(findings)-1].left = true
		return []string{qualifiedName(service)}, findings
	}
	warnings, err := registry.CheckServiceOf(p, in, service)
	for _, problem := range schema.Problems(err) {
		report(severityError, problem)
	}
	for _, problem := range schema.Problems(warnings) {
		report(severityWarning, problem)
	}
	slices.SortStableFunc(findings, func(a, b finding) int { return a.Line - b.Line })
	return []string{qualifiedName(service)}, findings
}

// notServedError: the cloud's provider creates no load balancers.
type notServedError struct{ provider registry.Provider }

func (e *notServedError) Error() string {
	why := "there are none on " + e.provider.Title
	if e.provider.Features.LoadBalancers == registry.NotYet {
		why = "this program makes none on " + e.provider.Title + " yet"
	}
	return "is not served: its load balancer is left to another controller, because " + why
}

// decode resolves anchors and aliases, and refuses unknown fields and wrong types like the API server.
func decode(object *yamlnode.Node, service *v1.Service) error {
	if problems := quoteTexts(object); len(problems) > 0 {
		return errors.Join(problems...)
	}
	content, err := encodeJSON(object)
	if err != nil {
		return err
	}
	data, err := json.Marshal(content)
	if err != nil {
		return err
	}
	strict, err := kubejson.UnmarshalStrict(data, service)
	return errors.Join(append(strict, err)...)
}

// encodeJSON returns an object as it is sent to the API server.
func encodeJSON(object *yamlnode.Node) (content map[string]any, err error) {
	return content, object.Decode(&content)
}

func qualifiedName(s *v1.Service) string {
	if s.Namespace == "" {
		return s.Name
	}
	return s.Namespace + "/" + s.Name
}

// lineOf returns the line of the annotation or field with the problem, else the object's first line.
func lineOf(object *yamlnode.Node, problem error) int {
	p, ok := errors.AsType[*schema.Problem](problem)
	if !ok {
		return object.Line
	}
	if path, ok := strings.CutPrefix(p.Place, "spec."); ok {
		if field := child(object, "spec", path); field != nil {
			return field.Line
		}
	}
	annotations := child(object, "metadata", "annotations")
	if annotations == nil {
		return object.Line
	}
	// Names may be prefixes of other names, so the longest match is the right one.
	best, line := "", object.Line
	for i := 0; i+1 < len(annotations.Content); i += 2 {
		if key := annotations.Content[i]; len(key.Value) > len(best) && strings.Contains(p.Place, key.Value) {
			best, line = key.Value, key.Line
		}
	}
	return line
}
