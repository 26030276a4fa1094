package app

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/anyccm/cloud-controller-manager/registry"
	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

// allClouds as --cloud-provider makes validate check Services for every linked cloud.
const allClouds = "all"

// Possible outcomes for a Service on a cloud.
const (
	outcomeServed  = "served"
	outcomePartial = "without effect"
	outcomeRefused = "refused"
	// outcomeNone: the cloud has no load balancers.
	outcomeNone = "not served"
	// outcomeLeft: another controller serves the Service, so it is not checked further.
	outcomeLeft = "left to another controller"
)

// fromBest orders the outcomes, the best first.
var fromBest = []string{outcomeServed, outcomePartial, outcomeLeft, outcomeNone, outcomeRefused}

// outcome returns the outcome for a Service that has only this finding.
func (f finding) outcome() string {
	switch {
	case f.Severity == severityError:
		return outcomeRefused
	case f.notServed:
		return outcomeNone
	case f.left:
		return outcomeLeft
	}
	return outcomePartial
}

// outcome is one cloud's handling of one Service.
type outcome struct {
	File    string `json:"file"`
	Service string `json:"service"`
	Cloud   string `json:"cloud"`
	// Outcome is the worst of its findings' outcomes.
	Outcome  string    `json:"outcome"`
	Findings []finding `json:"findings"`
}

// outcomes is the command's output with -o json for all clouds.
type outcomes struct {
	Refused int       `json:"refused"`
	Results []outcome `json:"results"`
}

// runAll checks the Services for every linked cloud, with the options of the environment.
func (c *serviceCheck) runAll(contents []content) error {
	if c.cloudConfig != "" {
		return usage(fmt.Errorf("--cloud-config: is that of one cloud; leave it out with --cloud-provider=%s", allClouds))
	}
	all := outcomes{Results: []outcome{}}
	inputs := map[string]registry.Inputs{}
	for _, p := range c.providers.Providers() {
		in := registry.Inputs{Version: version, Sources: schema.Sources{
			LookupEnv: schema.Environment, EnvNames: schema.EnvironmentNames, AllowInsecureEndpoints: true,
		}}
		if err := c.addDefaults(p, &in); err != nil {
			all.Results = append(all.Results, defaultsRefusal(p, c.defaults.path, err))
			continue // the program would not start
		}
		inputs[p.Name] = in
	}
	for _, file := range contents {
		for _, p := range c.providers.Providers() {
			if in, judged := inputs[p.Name]; judged {
				services, findings := c.checkManifests(p, in, file.data)
				all.Results = append(all.Results, outcomesOf(p, file.name, services, findings)...)
			}
		}
	}
	for _, o := range all.Results {
		if o.Outcome == outcomeRefused {
			all.Refused++
		}
	}
	if err := c.printAll(all); err != nil {
		return err
	}
	if all.Refused > 0 {
		return &printedError{errors.New("some cloud refuses")}
	}
	return nil
}

// defaultsRefusal is the outcome if the program would refuse to start with a file of defaults.
func defaultsRefusal(p registry.Provider, file string, err error) outcome {
	o := outcome{File: file, Service: "(defaults)", Cloud: p.Name, Outcome: outcomeRefused, Findings: []finding{}}
	for _, problem := range schema.Problems(err) {
		o.Findings = append(o.Findings, finding{File: file, Severity: severityError, Message: problem.Error()})
	}
	return o
}

// outcomesOf groups findings by Service. A finding without a Service, such as invalid YAML, refuses the whole file.
func outcomesOf(p registry.Provider, file string, services []string, findings []finding) []outcome {
	var all []outcome
	for _, service := range append(services, "") {
		o := outcome{File: file, Service: service, Cloud: p.Name, Outcome: outcomeServed, Findings: []finding{}}
		for _, f := range findings {
			if f.Service != service {
				continue
			}
			f.File = file
			o.Findings = append(o.Findings, f)
			if worst := f.outcome(); slices.Index(fromBest, worst) > slices.Index(fromBest, o.Outcome) {
				o.Outcome = worst
			}
		}
		if service != "" || len(o.Findings) > 0 {
			all = append(all, o)
		}
	}
	return all
}

func (c *serviceCheck) printAll(all outcomes) error {
	w := c.cmd.OutOrStdout()
	if c.output != humanText {
		return printFor(w, c.output, all)
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "SERVICE\tCLOUD\tOUTCOME\tWHY")
	for _, o := range all.Results {
		if len(o.Findings) == 0 {
			fmt.Fprintf(t, "%s\t%s\t%s\t\n", o.Service, o.Cloud, o.Outcome)
		}
		for _, f := range o.Findings {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", o.Service, o.Cloud, f.outcome(), strings.ReplaceAll(f.Message, "\n", "; "))
		}
	}
	return t.Flush()
}
