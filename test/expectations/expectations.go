// Package expectations reads what the tests over all clouds expect of each one from the folders of the providers.
package expectations

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	v1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/anyccm/cloud-controller-manager/registry"
)

// Cloud holds the expectations of one cloud: testdata/expectations.yaml in the provider's folder.
type Cloud struct {
	// ProviderID is a regular expression that provider IDs match.
	ProviderID string `json:"providerID"`
	// Labels are regular expressions that labels of node-1 match.
	Labels map[string]string `json:"labels"`
	// Service are annotations with which a Service is served.
	Service map[string]string `json:"service"`
	// Admission are annotations as the admission policy takes them.
	Admission Admission `json:"admission"`
	// IDs is the number of annotations that name objects of the cloud, and so have a form of IDs; NoIDs are those whose help speaks
	// of one that is not their value, and what that is.
	IDs   int               `json:"ids"`
	NoIDs map[string]string `json:"noIDs"`
	// Adoption is how a Service asks for what exists in the cloud; empty where it cannot.
	Adoption Adoption `json:"adoption"`
	// SystemRights are rights in the namespace kube-system besides those of every cloud: verbs by resource and name.
	SystemRights map[string]string `json:"systemRights"`
	// ServiceRights are rights in the whole cluster besides those of every cloud: verbs by API group and resource.
	ServiceRights map[string]string `json:"serviceRights"`
	// ProgramRights are those of every cloud that the cloud's part needs itself, where each controller has an account of its own.
	ProgramRights map[string]string `json:"programRights"`
	// Validate holds, by their names, the Services that this cloud does not serve: validate's outcome, and the place that it names.
	Validate map[string]string `json:"validate"`
	// LifeCycle are kinds of Services by name; each is followed from its creation to its end.
	LifeCycle map[string]Kind `json:"lifeCycle"`
	// Portable holds the expected results of the manifests in docs/examples/portable, if the provider has load balancers.
	Portable Portable `json:"portable"`
	// Page has the Services of the cloud's page: public, and internal where the cloud has such load balancers.
	Page map[string]PageExample `json:"page"`
	// Costs are the calls that nodes and Services cost.
	Costs Costs `json:"costs"`
	// PodRanges are ways in which nodes get ranges for their pods, by name, where the program gives them on this cloud.
	PodRanges map[string]PodRanges `json:"podRanges"`
	// Controllers are the expected effects of the cloud's further controllers, by their names.
	Controllers map[string]Controller `json:"controllers"`
}

// Admission are annotations as the admission policy takes them.
type Admission struct {
	// Bad annotations are refused with these words.
	Bad   map[string]string `json:"bad"`
	Words string            `json:"words"`
	// Good annotations are taken; Lenient ones as well, with a warning.
	Good    map[string]string `json:"good"`
	Lenient map[string]string `json:"lenient"`
}

// Adoption is how a Service asks for what exists in the cloud.
type Adoption struct {
	// Annotations are all that ask for it, in the order of the provider's table.
	Annotations []string `json:"annotations"`
	// Asks is one of them with a legal value.
	Asks map[string]string `json:"asks"`
	// Recorded is the annotation that the program itself writes.
	Recorded string `json:"recorded"`
}

// Kind is a kind of Service.
type Kind struct {
	Annotations map[string]string `json:"annotations"`
	// Holds is the expected line about its load balancer in the simulator's summary.
	Holds string `json:"holds"`
	// Address is a regular expression for the address or name in the status, and IPMode what goes with it.
	Address string                `json:"address"`
	IPMode  v1.LoadBalancerIPMode `json:"ipMode"`
}

// Read returns what is expected of a provider's cloud; root is the root of the checkout.
func Read(root string, p registry.Provider) (Cloud, error) {
	path := filepath.Join("providers", p.Name, "testdata", "expectations.yaml")
	var c Cloud
	text, err := os.ReadFile(filepath.Join(root, path))
	if err != nil {
		return c, fmt.Errorf("%s is missing; docs/developing-a-provider.md says what is in it: %w", path, err)
	}
	if err := yaml.UnmarshalStrict(text, &c); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	var problems []error
	missing := func(bad bool, what string) {
		if bad {
			problems = append(problems, fmt.Errorf("%s: %s is missing", path, what))
		}
	}
	missing(p.Features.Instances == registry.Done && c.ProviderID == "", "providerID")
	missing(p.Features.Instances == registry.Done && len(c.Labels) == 0, "labels")
	missing(p.Features.LoadBalancers == registry.Done && len(c.LifeCycle) == 0, "lifeCycle")
	missing(p.Features.LoadBalancers == registry.Done && len(c.Admission.Bad) == 0, "admission.bad")
	missing(p.Features.LoadBalancers == registry.Done && c.Admission.Words == "", "admission.words")
	missing(p.Features.LoadBalancers == registry.Done && len(c.Admission.Good) == 0, "admission.good")
	missing(len(c.Adoption.Annotations) > 0 && len(c.Adoption.Asks) != 1, "one annotation in adoption.asks")
	if p.Features.LoadBalancers == registry.Done {
		names, err := Examples(root)
		problems = append(append(problems, err), c.Portable.problems(path, names)...)
		for _, name := range PageNames(p) {
			e := c.Page[name]
			missing(e.Gives == "" || len(e.State) == 0 && e.Address == "", "gives, or state or address, in page."+name)
		}
	}
	problems = append(problems, c.problems(path, p))
	return c, errors.Join(problems...)
}
