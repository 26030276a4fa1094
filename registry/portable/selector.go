package portable

import (
	"errors"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"

	"github.com/anyccm/cloud-controller-manager/registry/schema"
)

const noSelector = `is not a label selector; use a form such as "pool=edge,zone in (a,b)"`

// The form of label selectors, as k8s.io/apimachinery/pkg/labels parses them, so that the admission policy has it too. checkSelector alone
// judges the length of a label's domain, the size of numbers and contradictions.
const (
	gap       = `[ \t\r\n]*`
	comma     = `,` + gap
	labelName = `[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?`
	labelKey  = `(?:` + schema.SubdomainPattern + `/)?` + labelName
	// listed are the values within parentheses, any of which may be empty.
	listed = `(?:` + comma + `)*(?:` + labelName + gap + `(?:(?:` + comma + `)+` + labelName + gap + `)*)?(?:` + comma + `)*`
	// requirement is one of the terms separated by commas.
	requirement = `(?:!` + gap + labelKey + gap + `|` +
		labelKey + gap + `(?:(?:==?|!=)` + gap + `(?:` + labelName + gap + `)?|[<>]` + gap + `[0-9]{1,63}` + gap + `)?|` +
		labelKey + `[ \t\r\n]+(?:in|notin)` + gap + `\(` + gap + listed + `\)` + gap + `)`
)

// selectorForm is the form of a whole selector.
const selectorForm = `^` + gap + `(?:` + requirement + `(?:` + comma + requirement + `)*)?$`

func checkSelector(v string) error {
	selector, err := labels.Parse(v)
	if err != nil {
		return errors.New(noSelector)
	}
	if label := FindContradiction(selector); label != "" {
		return fmt.Errorf("can match no node: its conditions on the label %s exclude each other", label)
	}
	return nil
}

// FindContradiction returns the label whose conditions in a selector nothing can meet together; "" if there is none.
func FindContradiction(selector labels.Selector) string {
	all, _ := selector.Requirements()
	for _, r := range all {
		fits := func(set labels.Set) bool {
			return !slices.ContainsFunc(all, func(o labels.Requirement) bool { return o.Key() == r.Key() && !o.Matches(set) })
		}
		possible := true
		switch r.Operator() {
		case selection.DoesNotExist:
			possible = fits(labels.Set{})
		case selection.In, selection.Equals, selection.DoubleEquals:
			possible = slices.ContainsFunc(r.ValuesUnsorted(), func(value string) bool { return fits(labels.Set{r.Key(): value}) })
		default: // too many labels fit
		}
		if !possible {
			return r.Key()
		}
	}
	return ""
}

// Selector returns the node selector of a Service's load balancer; nil if there is none. An invalid one is an error: with none, every node
// would receive traffic.
func Selector(annotations map[string]string) (labels.Selector, error) {
	text := annotations[BackendSelector]
	if text == "" {
		return nil, nil //nolint:nilnil // none is no error
	}
	selector, err := labels.Parse(text)
	if err != nil {
		return nil, &schema.Problem{Place: place(BackendSelector), Value: text, Reason: noSelector}
	}
	return selector, nil
}

// Selects reports whether a Service has a node selector for its load balancer, even an invalid one.
func Selects(annotations map[string]string) bool { return annotations[BackendSelector] != "" }
