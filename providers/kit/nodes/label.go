package nodes

import (
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

var illegal = regexp.MustCompile(`[^A-Za-z0-9._-]+`)

// LabelValue turns a name into a label's value: illegal characters become "-". The result may be empty.
func LabelValue(name string) string {
	text := strings.Trim(illegal.ReplaceAllString(name, "-"), "-._")
	return strings.TrimRight(text[:min(len(text), validation.LabelValueMaxLength)], "-._")
}
