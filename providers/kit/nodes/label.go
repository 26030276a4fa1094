package nodes

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

var illegal = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// LabelValue makes a name the value of a label: what is illegal becomes "-". Of some names nothing is left.
func LabelValue(name string) string {
	text := strings.Trim(illegal.ReplaceAllString(name, "-"), "-._")
	return strings.TrimRight(text[:min(len(text), validation.LabelValueMaxLength)], "-._")
}
